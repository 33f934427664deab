"""Documents that are token ids: .npy arrays and the .bin memory maps of trainers."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Integer

from jaxpe._core.errors import InputError
from jaxpe._core.results import npy_header
from jaxpe.data.formats.columns import Fields, ReadLog
from jaxpe.data.formats.files import open_regular, readable
from jaxpe.data.tokens.ragged import Ragged, equally_long

_AT_ONCE = 2**22  # ids that are read at once
# llm.c writes a header of 256 numbers. The first one tells the type of the ids behind it.
_LLM_C = {20240520: "<u2", 20240801: "<u4"}
_LLM_C_HEADER = 256 * 4


class Stream(NamedTuple):
    """How a stream of ids is cut into documents.

    - `separator`: id between two documents, part of neither; None cuts every `length` ids.
    - `length`: ids of a document without a separator.
    - `vocab_size`: number of ids; a .bin holds 16 bits an id for at most 65,536, else 32.
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
        is_array = path.lower().endswith(".npy")
        for block in _array_rows(path, stream) if is_array else _raw_rows(path, stream):
            yield block, None


def is_npy_matrix(path: str) -> bool:
    """Whether a file is a .npy of rows, not of one stream, or a damaged .npy."""
    with contextlib.suppress(Exception), open_regular(path) as file:  # its reader tells the fault
        return path.lower().endswith(".npy") and len(npy_header(file, os.path.getsize(path))[0]) > 1
    return path.lower().endswith(".npy")


def _raw_rows(path: str, stream: Stream) -> Iterator[Ragged]:
    """Documents of a .bin: ids alone, or behind the header of llm.c."""
    with open_regular(path) as file:
        header = file.read(_LLM_C_HEADER)
        size = os.fstat(file.fileno()).st_size
    dtype, start = "<u2" if stream.vocab_size <= 2**16 else "<u4", 0
    if len(header) == _LLM_C_HEADER and (first := int.from_bytes(header[:4], "little")) in _LLM_C:
        dtype, start = _LLM_C[first], _LLM_C_HEADER
    if (size - start) % np.dtype(dtype).itemsize:
        raise InputError(
            f"{path} has {size - start:,} bytes of ids, no multiple of {np.dtype(dtype).itemsize}; "
            "check that it is complete, and pass the `vocab_size` of its tokenizer"
        )
    yield from _cut(_parts(path, np.dtype(dtype), start), stream)


def _array_rows(path: str, stream: Stream) -> Iterator[Ragged]:
    """Rows of a matrix, or documents of a stream."""
    with open_regular(path) as file:
        shape, by_columns, dtype = npy_header(file, os.path.getsize(path))
        start = file.tell()
    if dtype.kind not in "iu" or by_columns or not 1 <= len(shape) <= 2:
        raise InputError(
            f"{path} holds {dtype} of shape {shape}{' by columns' * by_columns}; save integers "
            "[documents, n] or [tokens] with numpy.save"
        )
    if len(shape) == 1:
        yield from _cut(_parts(path, dtype, start), stream)
        return
    n = max(1, shape[1])
    for part in _parts(path, dtype, start, multiple=n):
        yield equally_long(part, n)


def _parts(
    path: str, dtype: np.dtype, start: int, *, multiple: int = 1
) -> Iterator[Integer[np.ndarray, " ids"]]:
    """Ids behind a header, a part at a time."""
    number = max(1, _AT_ONCE // multiple) * multiple
    with open_regular(path) as file:
        file.seek(start)
        while len(part := np.fromfile(file, dtype, number)):
            yield part


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
