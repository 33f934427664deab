"""Arrays on disk, .npy and .npz: no size that a header names is believed before it is counted."""

import io
import math
import os
import shutil
import warnings
import zipfile
from collections.abc import Mapping
from typing import IO

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.memory import check_bytes

_SHOWN = 160  # characters of a reason
# Of version 3 are headers with names that are not Latin-1, which an array of numbers has none of.
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,
}


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The content of an .npz without the time of writing, which `np.savez` puts in."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            write_npz_array(archive, name, array)
    return buffer.getvalue()


def write_npz_array(
    archive: zipfile.ZipFile, name: str, array: np.ndarray, *, level: int | None = None
) -> None:
    """Write an array into an .npz, compressed at a level of zlib, without the time of writing."""
    content = io.BytesIO()
    np.lib.format.write_array(content, array, allow_pickle=False)
    entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
    archive.writestr(entry, content.getvalue(), zipfile.ZIP_DEFLATED, level)


def npz_arrays(
    file: str | os.PathLike[str] | bytes, *, place: str, remedy: str, largest: int | None = None
) -> dict[str, np.ndarray]:
    """The arrays of an .npz, or of its content.

    Raises `InputError`, with the place and the remedy, for a damaged or encrypted file, for Python
    objects, and for arrays of more bytes than `largest` or than memory has.

    >>> npz_arrays(npz_bytes({"a": np.arange(3)}), place="it", remedy="write it again")
    {'a': array([0, 1, 2])}
    """
    try:
        with zipfile.ZipFile(io.BytesIO(file) if isinstance(file, bytes) else file) as archive:
            needed = sum(member.file_size for member in archive.infolist())
            check_bytes(needed, what=place, remedy=remedy)
            if largest is not None and needed > largest:
                raise InputError(
                    f"{place} holds arrays of {needed:,} bytes and may hold {largest:,}; {remedy}"
                )
            return read_members(archive)
    # Of zipfile, of each of its decompressors, and of NumPy's parser of headers, which are Python.
    except Exception as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{place} cannot be read ({reason(error)}); {remedy}") from error


def reason(error: Exception) -> str:
    """Message of an error, as one short line."""
    return " ".join(str(error).split())[:_SHOWN] or type(error).__name__


def read_members(archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    """All arrays of an .npz; raises any error where it is damaged."""
    members = archive.infolist()
    return {
        member.filename.removesuffix(".npy"): read_member(archive, member) for member in members
    }


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """An array of an .npz; raises any error where it is damaged, before it takes memory for it."""
    content = io.BytesIO()
    with archive.open(member) as file:
        shape, by_columns, dtype = npy_header(file, member.file_size)
        shutil.copyfileobj(file, content)  # to the end, where the checksum is compared
    order = "F" if by_columns else "C"
    return np.ndarray(shape, dtype, content.getbuffer(), order=order)


def npy_header(
    file: io.FileIO | zipfile.ZipExtFile | IO[bytes], size: int
) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether by columns, and dtype of a .npy file, held against its size in bytes."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"its format is {version}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of headers as Python 2 wrote them, and bad escapes
        shape, by_columns, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    rest = size - file.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != rest:
        raise ValueError(f"its header names shape {shape} of {dtype}, and {rest:,} bytes follow")
    return shape, by_columns, dtype
