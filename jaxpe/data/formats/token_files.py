"""Documents that are token ids: .npy arrays and the .bin memory maps of trainers."""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError, reason
from jaxpe.data.formats.columns import Fields, ReadLog
from jaxpe.data.formats.files import open_regular, readable
from jaxpe.data.tokens.ragged import Ragged, equally_long

_AT_ONCE = 2**22  # ids per read
# llm.c writes a header of 256 numbers. The first one determines the type of the ids after it.
_LLM_C = {20240520: "<u2", 20240801: "<u4"}
_LLM_C_HEADER = 256 * 4


class Stream(NamedTuple):
    """Cut of a stream of ids into documents.

    - `separator`: id between two documents, part of neither; None cuts every `length` ids.
    - `length`: ids of a document without a separator.
    - `vocab_size`: number of ids; a .bin has 16 bits per id for at most 65,536, else 32.
    """

    separator: int | None = None
    length: int = 128
    vocab_size: int = 1


def map_id_blocks(
    path: str, fields: Fields, stream: Stream, log: ReadLog
) -> Iterator[tuple[Ragged, list[Any] | None]]:
    """Read documents of ids from a memory map, many at once; they have no labels.

    Raises:
        InputError: a damaged file, or ids that are no integers.
    """
    with readable(path, Exception):  # NumPy's parser of headers raises errors of many types
        open_regular(path).close()
        for block in _blocks(path, stream):
            yield block, None


def is_npy_matrix(path: str) -> bool:
    """Whether a file is a .npy of rows, not of one stream, or a damaged .npy."""
    if not path.lower().endswith(".npy"):
        return False
    try:
        return map_npy(path).ndim != 1
    except InputError:  # which the reader of matrices raises again
        return True


def map_npy(path: str) -> np.ndarray:
    """Map the array of a .npy file into memory; its header is checked against its size."""
    try:
        open_regular(path).close()
        return np.lib.format.open_memmap(path, mode="r")
    # The header is Python, of which NumPy's parser raises SyntaxError, MemoryError and others.
    except Exception as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path} cannot be read as an array of numbers: {reason(error)}; "
            "save one rectangular integer array [documents, n] with numpy.save"
        ) from error


def _blocks(path: str, stream: Stream) -> Iterator[Ragged]:
    """Rows of a matrix, or documents of a stream."""
    ids = map_npy(path) if path.lower().endswith(".npy") else _map_raw(path, stream)
    if ids.dtype.kind not in "iu" or not 1 <= ids.ndim <= 2:
        raise InputError(
            f"{path} holds {ids.dtype} of shape {ids.shape}; save integers [documents, n] or "
            "[tokens] with numpy.save"
        )
    n = ids.shape[1] if ids.ndim == 2 else 1
    rows = max(1, _AT_ONCE // max(1, n))
    parts = (np.array(ids[start : start + rows]) for start in range(0, len(ids), rows))
    if ids.ndim == 1:
        return _cut(parts, stream)
    return (Ragged(part.reshape(-1), np.full(len(part), n, np.int64)) for part in parts)


def _map_raw(path: str, stream: Stream) -> np.ndarray:
    """Map the ids of a .bin: ids alone, or behind the header of llm.c."""
    size = os.path.getsize(path)
    header = np.fromfile(path, "<u4", 1) if size >= _LLM_C_HEADER else np.zeros(0)
    dtype, start = "<u2" if stream.vocab_size <= 2**16 else "<u4", 0
    if len(header) and int(header[0]) in _LLM_C:
        dtype, start = _LLM_C[int(header[0])], _LLM_C_HEADER
    if (size - start) % np.dtype(dtype).itemsize:
        raise InputError(
            f"{path} has {size - start:,} bytes of ids, no multiple of {np.dtype(dtype).itemsize}; "
            "check that it is complete, and pass the `vocab_size` of its tokenizer"
        )
    return np.memmap(path, dtype, "r", start) if size > start else np.zeros(0, dtype)


def _cut(parts: Iterator[np.ndarray], stream: Stream) -> Iterator[Ragged]:
    """Documents of a stream."""
    rest: np.ndarray | None = None
    for part in parts:
        part = part if rest is None or not len(rest) else np.concatenate([rest, part])
        if stream.separator is None:
            end = len(part) // stream.length * stream.length
            yield equally_long(part[:end], stream.length)
        else:
            is_separator = part == stream.separator
            positions = np.flatnonzero(is_separator)
            end = int(positions[-1]) + 1 if len(positions) else 0
            yield Ragged(part[:end][~is_separator[:end]], np.diff(positions, prepend=-1) - 1)
        rest = part[end:]
    if rest is not None:
        yield Ragged(rest, np.array([len(rest)], np.int64))
