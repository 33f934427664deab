"""Damaged .npz files: one error, or the arrays."""

import io
import os
import struct
import zipfile

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.results import read_npz
from tests.core.test_npz import METHODS, REMEDY, A, archive
from tests.hardening.mutations import mutations

IDS = np.tile(np.arange(40), (9, 1))
LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"  # signatures of ZIP
DATA = 30 + len("positions.npy")  # a local header has 30 bytes before the name, and data after it


def batch_bytes(method: int, *names: str) -> bytes:
    """A file of equal arrays with these names."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name in names or ("positions", "ids"):
            file.writestr(f"{name}.npy", npy_bytes(IDS))
    return buffer.getvalue()


def npy_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def with_bytes(content: bytes, *changes: tuple[bytes, int, bytes]) -> bytes:
    """Content with other bytes: each so far after the first place of a signature."""
    changed = bytearray(content)
    for signature, offset, value in changes:
        start = content.index(signature) + offset
        changed[start : start + len(value)] = value
    return bytes(changed)


def with_shape(shape: bytes) -> bytes:
    """The batch with another shape in its first header; the blanks at its end make room."""
    before = b"(9, 40), }".ljust(len(shape) + 3)
    return STORED.replace(before, shape + b", }", 1)


STORED, DEFLATE, LZMA = (batch_bytes(METHODS[name]) for name in ("stored", "deflate", "lzma"))
# Content, and the name of the array that the message names.
DAMAGED = {
    "deflated data": (with_bytes(DEFLATE, (LOCAL, DATA, b"\xff" * 40)), "positions"),
    "LZMA data": (with_bytes(LZMA, (LOCAL, DATA + 9, b"\xff" * 40)), "positions"),
    "LZMA properties": (with_bytes(LZMA, (LOCAL, DATA + 4, b"\xff" * 5)), "positions"),
    "encrypted": (with_bytes(STORED, (LOCAL, 6, b"\1"), (CENTRAL, 8, b"\1")), "positions"),
    "method 99": (with_bytes(DEFLATE, (LOCAL, 8, b"c"), (CENTRAL, 10, b"c")), "positions"),
    "72 TiB": (with_shape(b"(99999, 99999999)"), "positions"),
    "negative shape": (with_shape(b"(-9, -40)"), "positions"),
    "objects": (STORED.replace(b"'<i8'", b"'|O' ", 1), "positions"),
    "another name before it": (with_bytes(STORED, (LOCAL, 30, b"q")), "positions"),
    "checksum": (with_bytes(STORED, (CENTRAL, 16, bytes(4))), "positions"),
    "data": (with_bytes(STORED, (LOCAL, DATA + 200, b"\xee")), "positions"),
    "size of 9": (with_bytes(STORED, (CENTRAL, 20, struct.pack("<II", 9, 9))), "positions"),
    "size of 16 MB": (with_bytes(STORED, (CENTRAL, 20, b"\0\0\0\1" * 2)), "positions"),
    "two of one name": (
        batch_bytes(0, "positions", "token_ids").replace(b"token_ids", b"positions"),
        "positions",
    ),
    "truncated": (STORED[: len(STORED) // 2], ""),
    "without its end": (STORED[: STORED.index(END)], ""),
    "offset of the directory": (with_bytes(STORED, (END, 16, b"\xff\xff\xff\x7f")), ""),
    "one array": (npy_bytes(IDS), ""),
    "no ZIP": (b"positions: 0 1 2 3", ""),
    "empty": (b"", ""),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_one_error_that_names_the_array(case, tmp_path, command):
    content, name = DAMAGED[case]
    (tmp_path / "batch.npz").write_bytes(content)
    refused(tmp_path / "batch.npz", f"batch.npz, array '{name}'" if name else "batch.npz", command)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: None])
def test_only_regular_files_are_read(make, tmp_path, command):
    make(tmp_path / "batch.npz")
    refused(tmp_path / "batch.npz", "batch.npz", command)


def refused(path, words, command):
    with pytest.raises(InputError, match=words) as caught:
        read_npz(path, remedy=REMEDY)
    assert str(caught.value).endswith(REMEDY)
    code, out, err = command("batch", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert path.name in err


@pytest.mark.parametrize("content", [STORED, DEFLATE, LZMA], ids=["stored", "deflate", "lzma"])
def test_undamaged_files_are_read(content, tmp_path, command):
    path = tmp_path / "batch.npz"
    path.write_bytes(content)
    np.testing.assert_equal(read_npz(path, remedy=REMEDY), {"positions": IDS, "ids": IDS})
    assert command("batch", path)[0] == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_changed_file_is_one_error_or_the_arrays(method, tmp_path):
    """Cut at many places, with a byte turned at many places, and with random changes."""
    path = tmp_path / "it.npz"
    whole = archive(npy_bytes(A), method)
    places = range(0, len(whole), 5)
    damaged = [whole[:place] for place in places]
    damaged += [whole[:i] + bytes([whole[i] ^ 0xFF]) + whole[i + 1 :] for i in places]
    damaged += mutations(whole, seed=len(method), number=60)
    messages = []
    for content in damaged:
        path.write_bytes(content)
        try:
            arrays = read_npz(path, remedy=REMEDY)
        except InputError as error:
            messages.append(str(error))
        else:  # of a date, or another name
            for array in arrays.values():
                np.testing.assert_array_equal(array, A)
    assert len(messages) > 0.9 * len(damaged)
    assert all(str(path) in words and words.endswith(REMEDY) for words in messages)
    assert not any("\n" in words for words in messages)
