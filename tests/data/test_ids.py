"""Corpora that come as ids."""

import numpy as np
import pytest

from jaxpe._errors import InputError
from jaxpe.data import load_tokens, three_regimes, tokens_from_ids


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64])
def test_npy(tmp_path, dtype):
    ids = np.array([[3, 1, 2], [0, 1, 6]], dtype)
    np.save(tmp_path / "x.npy", ids)
    corpus = load_tokens(tmp_path / "x.npy")
    assert (corpus.name, corpus.tokenizer, corpus.vocab_size) == ("x.npy", "ids", 7)
    assert corpus.ids.dtype == np.int32
    assert corpus.mask.all()
    assert (corpus.exclude, corpus.longest, len(corpus.tokens)) == ((), 3, 7)
    np.testing.assert_array_equal(corpus.ids, ids)


@pytest.mark.parametrize(("length", "positions"), [(None, 128), (2, 2), (300, 300)])
def test_length_cuts_or_pads(length, positions):
    corpus = tokens_from_ids(np.ones((2, 200), int), length=length)
    assert corpus.ids.shape == corpus.mask.shape == (2, positions)
    assert corpus.mask.sum() == 2 * min(positions, 200)
    assert corpus.longest == 200
    np.testing.assert_array_equal(corpus.ids, corpus.mask)


BAD = {
    "float": (np.ones((2, 2)), "holds float64, not token ids"),
    "nan": (np.array([[np.nan, 1.0], [1.0, 2.0]]), "float64 with NaN"),
    "bool": (np.ones((2, 2), bool), "holds bool"),
    "string": (np.array([["a"], ["b"]]), "not token ids"),
    "flat": (np.arange(3), r"shape \(3,\); pass ids of shape \[documents, n\]"),
    "negative": (np.array([[0, 1], [2, -1]]), "id -1 at row 1, position 1 is negative"),
    "huge": (np.array([[0, 1], [2**40, 1]]), "id 1099511627776 at row 1, position 0 is not below"),
    "one": (np.array([[0, 1]]), "at least two documents"),
    "none": (np.zeros((0, 4), int), "at least two documents"),
    "objects": (np.array([[1], [1, 2]], dtype=object), "objects"),
    "ragged": ([[1], [1, 2]], "ragged"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_array_of_ids(case):
    ids, message = BAD[case]
    with pytest.raises(InputError, match=message):
        tokens_from_ids(ids)


def test_unreadable_npy(tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(b"no array")
    with pytest.raises(InputError, match=r"x\.npy cannot be read as an array.*numpy\.save"):
        load_tokens(path)
    np.save(path, np.array([[1], [1, 2]], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"x\.npy cannot be read as an array.*rectangular"):
        load_tokens(path)
    with pytest.raises(InputError, match="no such file"):
        load_tokens(tmp_path / "y.npy")


def test_synthetic_by_name():
    corpus = load_tokens("synthetic", length=10)
    np.testing.assert_array_equal(corpus.ids, three_regimes().ids[:, :10])
    assert (corpus.name, corpus.tokenizer, corpus.longest) == ("three_regimes", "ids", 32)


def test_options_that_ids_do_not_take():
    for options in ({"tokenizer": "bytes"}, {"special": True}):
        with pytest.raises(InputError, match="leave tokenizer and special out"):
            load_tokens("synthetic", **options)
    with pytest.raises(InputError, match="leave text_field out"):
        load_tokens("synthetic", text_field="x")
    with pytest.raises(InputError, match="length is 1; pass at least 2"):
        load_tokens("synthetic", length=1)
