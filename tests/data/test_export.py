"""Export to TFDS and back."""

import sys

import numpy as np
import pytest

from jaxpe._errors import InputError, MissingExtraError
from jaxpe.data import Corpus, export_corpus, load_corpus, load_tokens, open_corpus, tokenize

TEXT = Corpus("poems", [f"The fog № {i} comes" + " on" * (i % 4) for i in range(2500)])


def test_text_round_trip(tmp_path, capfd):
    folder = export_corpus(TEXT, tmp_path / "deep" / "poems")
    assert capfd.readouterr() == ("", "")
    assert folder == tmp_path / "deep" / "poems"
    assert load_corpus(folder) == TEXT
    assert [path.name for path in folder.parent.iterdir()] == ["poems"]
    tokens, expected = load_tokens(folder), tokenize(TEXT)
    np.testing.assert_array_equal(tokens.ids, expected.ids)


def test_tokens_round_trip(tmp_path):
    tokens = tokenize(TEXT)._replace(exclude=(3, 5))
    folder = export_corpus(tokens, tmp_path)
    back = load_tokens(folder)
    for field, value in tokens._asdict().items():
        assert np.array_equal(getattr(back, field), value), field
    assert (back.ids.dtype, back.mask.dtype) == (np.int32, bool)
    cut = load_tokens(folder, length=3, tokenizer="words")
    np.testing.assert_array_equal(cut.ids, tokens.ids[:, :3])
    with pytest.raises(InputError, match="token ids, not text"):
        load_corpus(folder)
    with pytest.raises(InputError, match="token ids already"):
        load_tokens(folder, tokenizer="bytes")


def test_grain_reads_it_in_any_order(tmp_path):
    import grain

    rows = open_corpus(export_corpus(TEXT, tmp_path))
    assert len(rows) == len(TEXT.documents)
    assert rows[7]["text"].decode() == TEXT.documents[7]
    texts = grain.MapDataset.source(rows).seed(0).shuffle().map(lambda row: row["text"].decode())
    assert list(texts) != TEXT.documents
    assert sorted(texts) == sorted(TEXT.documents)
    assert len(next(iter(texts.batch(4).to_iter_dataset()))) == 4


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(InputError, match="is in use; pass a new or an empty directory"):
        export_corpus(TEXT, tmp_path)
    with pytest.raises(InputError, match="cannot be written"):
        export_corpus(TEXT, tmp_path / "mine.txt" / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_other_directories(tmp_path):
    with pytest.raises(InputError, match="holds no corpus; pass a directory that export_corpus"):
        open_corpus(tmp_path)


@pytest.mark.parametrize("module", ["tensorflow_datasets", "importlib_resources"])
def test_without_tfds(tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"{module} is not installed.*jaxpe\[data\]"):
        export_corpus(TEXT, tmp_path / "x")
