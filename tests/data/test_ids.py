"""Corpora that come as ids."""

import io
import os
import struct

import numpy as np
import pytest

from jaxpe._core import memory
from jaxpe._core.errors import InputError
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
    "float": (np.ones((2, 2)), "holds float64 .*, not token ids"),
    "nan": (np.array([[np.nan, 1.0], [1.0, 2.0]]), "holds float64"),
    "bool": (np.ones((2, 2), bool), "holds bool"),
    "string": (np.array([["a"], ["b"]]), "not token ids"),
    "flat": (np.arange(3), r"shape \(3,\).*; pass .* \[documents, n\]"),
    "negative": (np.array([[0, 1], [2, -1]]), "id -1 of document 1 is not in 0 to"),
    "huge": (np.array([[0, 1], [2**40, 1]]), "id 1099511627776 of document 1 is not in"),
    "hashes": (
        np.array([[2**63 + 6, 2**63 + 5]] * 2, np.uint64),
        "id 9223372036854775814 .* not in",
    ),
    "one": (np.array([[0, 1]]), "at least two documents"),
    "none": (np.zeros((0, 4), int), "at least two documents"),
    "objects": (np.array([[1], [1, 2]], dtype=object), "holds object"),
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
    with pytest.raises(InputError, match=r"x\.npy cannot be read: "):
        load_tokens(path)
    np.save(path, np.array([[1], [1, 2]], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"x\.npy cannot be read: .*Python objects"):
        load_tokens(path)
    with pytest.raises(InputError, match="no such file"):
        load_tokens(tmp_path / "y.npy")


def test_synthetic_by_name():
    corpus = load_tokens("synthetic", length=10)
    np.testing.assert_array_equal(corpus.ids, three_regimes().ids[:, :10])
    assert (corpus.name, corpus.tokenizer, corpus.longest) == ("synthetic", "ids", 32)


def test_options_that_ids_do_not_take():
    for options in ({"tokenizer": "bytes"}, {"special": True}):
        with pytest.raises(InputError, match="leave `tokenizer` and `special` out"):
            load_tokens("synthetic", **options)
    with pytest.raises(InputError, match="leave `text_field` out"):
        load_tokens("synthetic", text_field="x")
    with pytest.raises(InputError, match="`length` is 1; pass at least 2"):
        load_tokens("synthetic", length=1)


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy("(" * 9000), "cannot be read: "),
        (npy("(" * 200_000, version=(2, 0)), "cannot be read: "),
        (npy("-" * 9000 + "1"), "cannot be read: "),
        (npy("[" * 4000 + "]" * 4000), "cannot be read: "),
        (npy(named("(1000000, 800000)"), IDS), "greater than file size"),
        (npy(named("(-2, -3)"), IDS), "negative dimensions"),
        (npy(named("(2, 3)"), IDS[:-1]), "greater than file size"),
        (npy(named(dtype="|O"), bytes(48)), "Python objects"),
        (npy(named(dtype="<m8[s]"), bytes(48)), r"holds timedelta64\[s\]"),
        (npy(named("(True, 3)"), IDS), "cannot be read: "),
        (npy(named(), IDS, (9, 0)), r"format version"),
        (b"PK\x03\x04" + bytes(100), "is a zip archive"),
        (NPZ.getvalue(), "is a zip archive"),
        (b"", "cannot be read: "),
    ],
)
def test_crafted_npy(tmp_path, content, message):
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        load_tokens(tmp_path / "x.npy")
    assert len(str(caught.value)) < 1000


def test_npy_that_is_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "zero.npy").symlink_to("/dev/zero")
    for name in ("pipe.npy", "zero.npy"):
        with pytest.raises(InputError, match=rf"{name} is not a regular file"):
            load_tokens(tmp_path / name)


def test_memory_is_looked_at_before_it_is_asked_for(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.ones((100, 100), np.int8))
    monkeypatch.setattr("jaxpe.data.formats.table._STEP", 1000)
    monkeypatch.setattr(memory, "available_bytes", lambda: 200_000)
    assert load_tokens(tmp_path / "x.npy").ids.shape == (100, 100)
    with pytest.raises(InputError, match="length 1,000,000,000 of 100 documents needs 1,000"):
        load_tokens(tmp_path / "x.npy", length=10**9)
    monkeypatch.setattr(memory, "available_bytes", lambda: 19_999)
    with pytest.raises(InputError, match=r"x\.npy, of which .* are read, needs"):
        load_tokens(tmp_path / "x.npy")
