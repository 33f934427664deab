"""Export to TFDS and back."""

import json
import pickle
import shutil
import sys

import numpy as np
import pytest

from jaxpe._core.errors import InputError, MissingExtraError
from jaxpe.data import (
    Corpus,
    export_corpus,
    find_shards,
    load_corpus,
    load_tokens,
    open_corpus,
    tokenize,
)

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
    for field, value in tokens._replace(choices=(), cut=None)._asdict().items():  # not exported
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


def test_tfds_reads_it_too(tmp_path):
    import tensorflow_datasets as tfds

    source = tfds.builder_from_directory(export_corpus(TEXT, tmp_path)).as_data_source("train")
    assert [row["text"].decode() for row in source] == TEXT.documents


def test_rows_by_number_survive_pickling(tmp_path):
    rows = pickle.loads(pickle.dumps(open_corpus(export_corpus(TEXT, tmp_path))))
    assert [row["text"].decode() for row in rows.__getitems__([7, 3])] == [
        TEXT.documents[7],
        TEXT.documents[3],
    ]
    assert sum(1 for _ in rows) == len(rows)


@pytest.mark.parametrize(
    ("documents", "message"),
    [([], "two has no documents"), (["a", "\ud800"], "document 1 of two holds half of a surrog")],
)
def test_what_cannot_be_exported(tmp_path, documents, message):
    with pytest.raises(InputError, match=message):
        export_corpus(Corpus("two", documents), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_names_and_tokens_that_cannot_be_written(tmp_path):
    tokens = tokenize(Corpus("x", ["a \ud800", "b"]), tokenizer="characters")
    for corpus in (tokens, Corpus("\ud800", ["a", "b"])):
        with pytest.raises(InputError, match="half of a surrogate pair"):
            export_corpus(corpus, tmp_path / "x")


SMALL = Corpus("small", ["to be", "or not", "to be"])
SHARD = "jaxpe_corpus-train.array_record-00000-of-00001"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return export_corpus(SMALL, tmp_path_factory.mktemp("small") / "x")


@pytest.fixture
def copy(small, tmp_path):
    return shutil.copytree(small, tmp_path / "copy")


def refused(folder, message):
    for read in (load_corpus, load_tokens, open_corpus, lambda path: find_shards([path])):
        with pytest.raises(InputError, match=message) as caught:
            read(folder)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"kind": "text", "name": 3}', "name is 3, not a string"),
        ('{"kind": "bytes", "name": "x"}', "kind is 'bytes', not 'text'"),
        ('{"kind": "text", "name": "x", "extra": 1}', "unknown fields 'extra'"),
        ('{"kind": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_metadata_that_is_damaged(copy, content, message):
    (copy / "metadata.json").write_text(content)
    refused(copy, message)


def test_a_folder_of_another_writer(copy):
    (copy / "metadata.json").unlink()
    assert load_corpus(copy) == SMALL._replace(name="jaxpe_corpus")
    with pytest.raises(InputError, match="holds no corpus; pass a directory that export_corpus"):
        open_corpus(copy)


def test_records_that_are_damaged(copy):
    content = (copy / SHARD).read_bytes()
    (copy / SHARD).write_bytes(content[:100] + bytes(len(content) - 100))
    for read in (load_corpus, load_tokens):
        with pytest.raises(InputError, match=r"cannot be read: .*check that it is complete"):
            read(copy)


def test_tokens_beyond_the_vocabulary(tmp_path):
    folder = export_corpus(tokenize(SMALL), tmp_path / "x")
    about = json.loads((folder / "metadata.json").read_text())
    (folder / "metadata.json").write_text(
        json.dumps(about | {"vocab_size": 2, "tokens": ["a", "b"]})
    )
    with pytest.raises(InputError, match="has ids up to 3 and names 2 tokens"):
        load_tokens(folder)
