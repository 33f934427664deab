"""Counts of documents that are token ids already are those of the text that they came from."""

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.analysis.counts import job, read_counts
from tests.analysis.counts.test_run import texts

OPTIONS = {"tokenizer": "bytes", "length": 12, "folds": 4, "nulls": 2, "batch_size": 16}


def counted(folder, *sources, **options):
    paths = tuple(str(source) for source in sources)
    return job.count(job.CountOptions(sources=paths, **OPTIONS | options), folder)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same documents as text, and as a stream of their bytes with 0 behind each."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "a.txt").write_text("\n".join(texts()))
    stream = b"".join(text.encode() + b"\0" for text in texts())
    np.frombuffer(stream, np.uint8).astype("<u2").tofile(folder / "a.bin")
    return folder


def test_counts_of_ids_are_those_of_their_text(files, tmp_path):
    text = counted(tmp_path / "text", files / "a.txt")
    ids = counted(tmp_path / "ids", files / "a.bin", separator=0)
    assert ids.settings == text.settings
    np.testing.assert_array_equal(ids.table, text.table)
    np.testing.assert_array_equal(ids.nulls, text.nulls)
    assert (ids.documents, ids.separator) == (70, 0)
    assert read_counts(tmp_path / "ids").separator == 0
    merged = job.merge([tmp_path / "ids", tmp_path / "text"], tmp_path / "both")
    assert (merged.documents, merged.separator) == (140, None)
    with pytest.raises(InputError, match="holds other counts: separator is 0 and None"):
        counted(tmp_path / "ids", files / "a.bin")
    unnamed = counted(
        tmp_path / "unnamed", files / "a.bin", separator=0, tokenizer="ids", vocab_size=256
    )
    np.testing.assert_array_equal(unnamed.table, ids.table)
    assert unnamed.tokens[-1] == "id 255"


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ("ab", {}, r"a\.bin holds token ids, and .*a\.txt text"),
        ("b", {"tokenizer": "words"}, "words are made from text"),
        ("b", {"tokenizer": "ids"}, "pass `vocab_size`"),
        ("b", {"tokenizer": "ids", "vocab_size": 99}, "has id 1.., and ids has 99"),
        ("b", {"max_vocab": 9}, "leave `vocab` and `max_vocab` out"),
        ("a", {"vocab_size": 9}, "the documents are text, not token ids; leave `vocab_size`"),
    ],
)
def test_what_does_not_go_together(files, tmp_path, names, options, message):
    sources = [files / {"a": "a.txt", "b": "a.bin"}[name] for name in names]
    with pytest.raises(InputError, match=message):
        counted(tmp_path / "out", *sources, **options)
