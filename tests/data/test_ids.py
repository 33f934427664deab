"""Corpora that come as ids."""

import io
import os
import struct

import numpy as np
import pytest

from jaxpe._core import memory
from jaxpe.data import load_tokens, three_regimes, tokens_from_ids
from tests.data.reading import refused


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
    "float": (np.ones((2, 2)), "float64"),
    "bool": (np.ones((2, 2), bool), "bool"),
    "flat": (np.arange(3), "shape"),
    "negative": (np.array([[0, 1], [2, -1]]), "id -1 of document 1"),
    "huge": (np.array([[0, 1], [2**40, 1]]), "id 1099511627776 of document 1"),
    "hashes": (np.array([[2**63 + 6, 2**63 + 5]] * 2, np.uint64), "id 9223372036854775814"),
    "one": (np.array([[0, 1]]), "two documents"),
    "ragged": ([[1], [1, 2]], "ragged"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_array_of_ids(case):
    refused(BAD[case][0], BAD[case][1], tokens_from_ids)


def test_synthetic_by_name():
    corpus = load_tokens("synthetic", length=10)
    np.testing.assert_array_equal(corpus.ids, three_regimes().ids[:, :10])
    assert (corpus.name, corpus.tokenizer, corpus.longest) == ("synthetic", "ids", 32)


def test_options_that_ids_do_not_take():
    for option in ({"tokenizer": "bytes"}, {"special": True}, {"text_field": "x"}, {"length": 1}):
        refused("synthetic", f"`{next(iter(option))}`", load_tokens, **option)


def npy(header, content=b"", version=(1, 0)):
    """The bytes of a file with a header of any text."""
    size = struct.pack("<H" if version == (1, 0) else "<I", len(header))
    return b"\x93NUMPY" + bytes(version) + size + header.encode("latin-1") + content


def named(shape="(2, 3)", dtype="<i4", order="False"):
    return f"{{'descr': '{dtype}', 'fortran_order': {order}, 'shape': {shape}, }}\n"


IDS = np.arange(6, dtype="<i4").tobytes()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize(("order", "ids"), [("False", [0, 1, 2]), ("True", [0, 2, 4])])
def test_every_version_and_order_of_npy(tmp_path, version, order, ids):
    (tmp_path / "x.npy").write_bytes(npy(named(order=order), IDS, version))
    assert load_tokens(tmp_path / "x.npy").ids[0].tolist() == ids


NPZ = io.BytesIO()
np.savez(NPZ, np.ones((2, 2), int))
CRAFTED = [
    (npy("(" * 9000), "cannot be read"),
    (npy(named("(1000000, 800000)"), IDS), "file size"),
    (npy(named("(-2, -3)"), IDS), "negative"),
    (npy(named("(2, 3)"), IDS[:-1]), "file size"),
    (npy(named(dtype="|O"), bytes(48)), "objects"),
    (npy(named(dtype="<m8[s]"), bytes(48)), "timedelta64"),
    (npy(named(), IDS, (9, 0)), "version"),
    (NPZ.getvalue(), "zip"),
    (b"", "cannot be read"),
]


def test_crafted_npy(tmp_path):
    for content, word in CRAFTED:
        (tmp_path / "x.npy").write_bytes(content)
        refused(tmp_path / "x.npy", word, load_tokens)
    refused(tmp_path / "y.npy", "no such file", load_tokens)
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "zero.npy").symlink_to("/dev/zero")
    for name in ("pipe.npy", "zero.npy"):
        refused(tmp_path / name, "regular file", load_tokens)


def test_memory_is_looked_at_before_it_is_asked_for(tmp_path, monkeypatch):
    path = tmp_path / "x.npy"
    np.save(path, np.ones((100, 100), np.int8))
    monkeypatch.setattr("jaxpe.data.formats.table._STEP", 1000)
    monkeypatch.setattr(memory, "available_bytes", lambda: 200_000)
    assert load_tokens(path).ids.shape == (100, 100)
    refused(path, "length 1,000,000,000 of 100 documents", load_tokens, length=10**9)
    monkeypatch.setattr(memory, "available_bytes", lambda: 19_999)
    refused(path, "needs", load_tokens)
