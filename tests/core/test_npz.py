"""Files of arrays, damaged and crafted."""

import io
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from jaxpe import InputError
from jaxpe._core.results import npz_bytes, read_npz

METHODS = {
    "stored": zipfile.ZIP_STORED,
    "deflate": zipfile.ZIP_DEFLATED,
    "bzip2": zipfile.ZIP_BZIP2,
    "lzma": zipfile.ZIP_LZMA,
}
A = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
REMEDY = "write it again"


def archive(content: bytes, method: str = "stored") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", METHODS[method]) as file:
        file.writestr("a.npy", content)
    return buffer.getvalue()


def npy(header: str, body: bytes = bytes(24)) -> bytes:
    head = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + body


def described(shape: str = "(3, 2)", descr: str = "'<f4'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


def directory(field: int, value: bytes, *, local: int) -> bytes:
    """An archive with other bytes in its directory, and in the head of its member."""
    content = bytearray(archive(npy(described())))
    start = content.index(b"PK\x01\x02") + field
    content[start : start + len(value)] = value
    content[local : local + len(value)] = value
    return bytes(content)


@pytest.fixture
def read(tmp_path):
    """Function that reads the arrays of a file with this content."""

    def call(content: bytes, **options) -> dict[str, np.ndarray]:
        (tmp_path / "it.npz").write_bytes(content)
        return read_npz(tmp_path / "it.npz", remedy=REMEDY, **options)

    return call


CRAFTED = {
    "unclosed": (archive(npy("{'descr': '<f4', 'shape': (3, 2")), "array 'a'"),
    "negative sizes": (archive(npy(described("(-3, -2)"))), "-3, -2"),
    "no size": (archive(npy(described("(10000000000,)", "'|S0'"), b"")), "10000000000"),
    "objects": (archive(npy(described(descr="'|O'"))), "Python objects"),
    "encrypted": (directory(8, b"\x01\x00", local=6), "encrypted"),
    "no archive": (b"hello", "zip"),
    "4 TB": (archive(npy(described("(1000000, 1000000)"))), "24 bytes follow"),
}


@pytest.mark.parametrize("case", CRAFTED)
def test_a_crafted_file_is_one_error_and_takes_no_memory(case, read):
    content, word = CRAFTED[case]
    tracemalloc.start()
    with pytest.raises(InputError, match=f"it.npz.*{word}") as caught:
        read(content)
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()
    assert "\n" not in str(caught.value)


def test_more_than_a_limit_is_refused_before_it_is_read(read):
    content = archive(npy(described("(1000, 1000)"), bytes(4_000_000)), "deflate")
    assert len(content) < 10_000
    with pytest.raises(InputError, match="more than 99"):
        read(content, largest=99)


def test_arrays_come_back_as_they_were(read):
    arrays = {
        "columns": np.asfortranarray(A),
        "number": np.asarray(2.0),
        "text": np.asarray("abc"),
        "complex": A[0] + 1j,
    }
    found = read(npz_bytes(arrays))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == np.asarray(array).dtype
        assert found[name].flags.writeable
