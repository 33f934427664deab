"""Documents that are token ids: .npy arrays and the .bin memory maps of trainers."""

import os
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.options import Choice
from jaxpe.data.formats.columns import Fields, ReadLog
from jaxpe.data.formats.files import open_regular, readable
from jaxpe.data.tokens.ragged import Ragged

_SAVE = "save the ids as integers [documents, n] or [tokens] with numpy.save"
_AT_ONCE = 2**22  # ids per read
_LOOKED_AT = 2**20  # numbers that are looked at
_HIGH = 32  # the upper halves of ids below two million
# llm.c writes a header of 256 numbers. The first one determines the type of the ids after it.
_LLM_C = {20240520: "<u2", 20240801: "<u4"}
_LLM_C_HEADER = 256 * 4
_LITDATA = b"LITPKDS"
# Megatron writes an .idx beside the .bin: this mark, a version, the code of the type of the ids.
_MEGATRON = struct.Struct("<9sQB")
_MEGATRON_MARK = b"MMIDIDX\0\0"
_MEGATRON_TYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}


class Stream(NamedTuple):
    """Cut of a stream of ids into documents.

    - `separator`: id between two documents, part of neither; None cuts every `length` ids.
    - `length`: ids of a document without a separator.
    - `vocab_size`: number of ids; a .bin has 32 bits per id for more than 65,536, and otherwise 16,
      unless its content or an .idx of Megatron says another number.
    """

    separator: int | None = None
    length: int = 128
    vocab_size: int = 1


def map_id_blocks(
    path: str, fields: Fields, stream: Stream, log: ReadLog
) -> Iterator[tuple[Ragged, list[Any] | None]]:
    """Read documents of ids from a memory map, many at once; they have no labels.

    Documents are the rows of a matrix, or cut from a stream.

    Raises:
        InputError: a damaged file, or ids that are no integers.
    """
    # NumPy's parser of headers, which are Python, raises errors of many types.
    with readable(path, Exception):
        open_regular(path).close()
        is_npy = path.lower().endswith(".npy")
        ids = np.lib.format.open_memmap(path, mode="r") if is_npy else _map_raw(path, stream, log)
        if ids.dtype.kind not in "iu" or not 1 <= ids.ndim <= 2:
            raise InputError(f"{path} holds {ids.dtype} of shape {ids.shape}; {_SAVE}")
        n = ids.shape[1] if ids.ndim == 2 else 1
        rows = max(1, _AT_ONCE // max(1, n))
        parts = (np.array(ids[start : start + rows]) for start in range(0, len(ids), rows))
        if ids.ndim == 1:
            blocks = _cut(parts, stream, log)
        else:
            blocks = (Ragged(x.reshape(-1), np.full(len(x), n, np.int64)) for x in parts)
        yield from ((block, None) for block in blocks)


def _map_raw(path: str, stream: Stream, log: ReadLog) -> np.ndarray:
    """Map the ids of a .bin: ids alone, or behind the header of llm.c."""
    size = os.path.getsize(path)
    header = np.fromfile(path, "u1", _LLM_C_HEADER).tobytes()
    index = os.path.join(os.path.dirname(path), "index.json")
    is_chunk = os.path.basename(path).startswith("chunk-") and os.path.isfile(index)
    if header.startswith(_LITDATA) or is_chunk:
        raise InputError(f"{path} is a file of LitData; {_SAVE}")
    number = int.from_bytes(header[:4], "little")
    start = _LLM_C_HEADER if number in _LLM_C else 0
    if size < start:
        raise InputError(f"{path} ends within the header of llm.c; pass a complete file")
    dtype = _LLM_C.get(number) or _megatron_type(path) or _raw_type(path, stream, log)
    if (size - start) % np.dtype(dtype).itemsize:
        fault = f"has {size - start:,} bytes of ids, no multiple of {np.dtype(dtype).itemsize}"
        raise InputError(f"{path} {fault}; pass its `vocab_size`, or a complete file")
    ids = np.memmap(path, dtype, "r", start) if size > start else np.zeros(0, dtype)
    if start and len(ids) != (stated := int.from_bytes(header[8:12], "little")):
        raise InputError(f"{path} has {len(ids):,} ids, and its header says {stated:,}")
    return ids


def _megatron_type(path: str) -> str | None:
    """Type of the ids by the .idx of Megatron beside a .bin; None without one."""
    index = os.path.splitext(path)[0] + ".idx"
    if not os.path.isfile(index):
        return None
    with open_regular(index) as file:
        content = file.read(_MEGATRON.size)
    mark, _, code = _MEGATRON.unpack(content.ljust(_MEGATRON.size, b"\0"))
    if mark != _MEGATRON_MARK or code not in _MEGATRON_TYPES:
        raise InputError(
            f"{index} does not say a type of integers as Megatron does; move it away, or {_SAVE}"
        )
    return _MEGATRON_TYPES[code]


def _raw_type(path: str, stream: Stream, log: ReadLog) -> str:
    """Type of the ids of a .bin that nothing names, by the vocabulary and the content."""
    size = expected = 4 if stream.vocab_size > 2**16 else 2
    while size < 8 and os.path.getsize(path) % (2 * size) == 0:
        numbers = np.fromfile(path, f"<u{size}", _LOOKED_AT)
        if not _are_halves(numbers[::2], numbers[1::2]):
            break
        size *= 2
    if size != expected:
        why = f"every second {4 * size}-bit number is below {_HIGH}, as the upper half of an id"
        how = "save the ids with numpy.save, which names their type"
        log.choose(Choice("bits of an id", str(8 * size), why, how))
    return f"<u{size}"


def _are_halves(low: np.ndarray, high: np.ndarray) -> bool:
    """Whether numbers are the halves of ids; text has no such run of every second number."""
    are_small = len(high) >= 64 and high.max() < _HIGH <= low.max()
    return len(high) > 0 and bool(are_small or not high.any())


def _cut(parts: Iterator[np.ndarray], stream: Stream, log: ReadLog) -> Iterator[Ragged]:
    """Documents of a stream."""
    rest, is_cut = np.zeros(0, np.uint8), False
    for part in parts:
        part = np.concatenate([rest, part]) if len(rest) else part
        if stream.separator is None:
            end = len(part) // stream.length * stream.length
            yield Ragged(part[:end], np.full(end // stream.length, stream.length, np.int64))
        else:
            is_separator = part == stream.separator
            positions = np.flatnonzero(is_separator)
            is_cut = is_cut or len(positions) > 0
            end = int(positions[-1]) + 1 if len(positions) else 0
            yield Ragged(part[:end][~is_separator[:end]], np.diff(positions, prepend=-1) - 1)
        rest = part[end:]
    if stream.separator is not None and not is_cut:
        why, how = "it does not occur: the file is one document", "pass the id between documents"
        log.choose(Choice("separator", str(stream.separator), why, how))
    if len(rest):
        yield Ragged(rest, np.array([len(rest)], np.int64))
