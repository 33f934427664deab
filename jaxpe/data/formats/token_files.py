"""Documents that are token ids already: memory maps of trainers, NumPy arrays, columns of lists."""

import itertools
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Integer

from jaxpe._core.array_files import npy_header
from jaxpe._core.errors import InputError
from jaxpe._core.files import Content
from jaxpe.data.formats.columnar import columnar_id_blocks, id_columns
from jaxpe.data.formats.columns import Fields, Found
from jaxpe.data.formats.files import COLUMNAR, hash_file, open_regular, readable, text_ending
from jaxpe.data.tokens.ragged import Ragged, equally_long

MEMORY_MAPS = (".bin", ".npy")
_AT_ONCE = 2**22  # ids that are read at once
_MEGATRON = b"MMIDIDX\x00\x00"
_MEGATRON_HEAD = struct.Struct("<9sQBQQ")  # magic, version, type, sequences, documents
_MEGATRON_TYPES = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 8: "u2"}
_LLM_C = {20240520: "<u2", 20240801: "<u4"}  # the first number of 256 in front of the ids
_LLM_C_HEAD = 256 * 4


class Stream(NamedTuple):
    """Settings that cut a stream of ids without documents into documents.

    - `separator`: id between two documents, which is of neither; None cuts every `length` ids.
    - `length`: ids of a document where there is no separator.
    - `vocab_size`: of the ids; .bin without an index holds 16 bits for at most 65,536, else 32.
    """

    separator: int | None = None
    length: int = 128
    vocab_size: int = 1


def holds_ids(path: str, field: str | None = None) -> bool:
    """Whether a file holds token ids: a memory map, or a table whose column has lists of integers.

    Of a table: the column that is named, or where none is, one of lists and none of text.

    Raises:
        InputError: a table that cannot be read.

    >>> holds_ids("train.bin"), holds_ids("poems.txt")
    (True, False)
    """
    if path.lower().endswith(MEMORY_MAPS):
        return True
    if text_ending(path) not in COLUMNAR:
        return False
    lists, texts = id_columns(path)
    return field in lists if field is not None else bool(lists) and not texts


def files_of_ids(path: str) -> list[str]:
    """The files that the content of a token file is: with an index, where it has one."""
    index = _index_of(path)
    return [path] if index is None else [index, path]


def id_blocks(
    path: str,
    fields: Fields,
    stream: Stream,
    *,
    found: Found | None = None,
    content: Content | None = None,
) -> Iterator[tuple[Ragged, Sequence[Any] | None]]:
    """The ids of the documents that have any, and their labels, many documents at once.

    Args:
        path: path of a file that `holds_ids`.
        fields: column of ids and that of labels, of a table.
        stream: how ids are cut into documents where the file does not say.
        found: is told the column, and the rows without ids.
        content: hash that is given the bytes of the files.

    Raises:
        InputError: a damaged file, no such column, or ids that are no integers.
    """
    if text_ending(path) in COLUMNAR:
        found = Found() if found is None else found
        blocks = columnar_id_blocks(path, fields, found, content=content)
    else:
        blocks = ((block, None) for block in _mapped(path, stream, content))
    for block, labels in blocks:
        there = block.lengths > 0
        if labels is not None:
            labels = [*itertools.compress(labels, there.tolist())]
        yield block.chosen(there), labels


def id_documents(
    path: str,
    fields: Fields,
    stream: Stream,
    *,
    found: Found | None = None,
    content: Content | None = None,
) -> Iterator[tuple[Int[np.ndarray, " n"], Any]]:
    """The documents of `id_blocks`, and their labels, one by one."""
    for block, labels in id_blocks(path, fields, stream, found=found, content=content):
        yield from zip(block, itertools.repeat(None) if labels is None else labels)  # noqa: B905


def _mapped(path: str, stream: Stream, content: Content | None) -> Iterator[Ragged]:
    with readable(path, Exception):  # of headers, of which NumPy's is Python
        if content is not None:
            for file in files_of_ids(path):
                hash_file(file, content)
        if (index := _index_of(path)) is not None:
            yield from _of_lengths(path, *_megatron(index, path))
        elif path.lower().endswith(".npy"):
            yield from _numpy(path, stream)
        else:
            yield from _cut(_parts(path, *_raw(path, stream)), stream)


def _index_of(path: str) -> str | None:
    """The index of a .bin, where there is one."""
    index = f"{path[:-4]}.idx"
    return index if path.lower().endswith(".bin") and os.path.exists(index) else None


def _raw(path: str, stream: Stream) -> tuple[np.dtype, int]:
    """The type of ids without an index, and the bytes before them."""
    with open_regular(path) as file:
        head = file.read(_LLM_C_HEAD)
        size = os.fstat(file.fileno()).st_size
    first = int.from_bytes(head[:4], "little")
    if len(head) == _LLM_C_HEAD and first in _LLM_C:
        dtype, start = np.dtype(_LLM_C[first]), _LLM_C_HEAD
    else:
        dtype, start = np.dtype("<u2" if stream.vocab_size <= 2**16 else "<u4"), 0
    if (size - start) % dtype.itemsize:
        raise InputError(
            f"{path} has {size - start:,} bytes of ids, no multiple of {dtype.itemsize}; check "
            "that it is whole, and that `vocab_size` is that of its tokenizer"
        )
    return dtype, start


def _numpy(path: str, stream: Stream) -> Iterator[Ragged]:
    """Rows of a matrix, or a stream."""
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


def _megatron(index: str, path: str) -> tuple[np.dtype, np.ndarray]:
    """The type of ids, and how many each document has."""
    with open_regular(index) as file:
        whole = file.read()
    if len(whole) < _MEGATRON_HEAD.size:
        raise InputError(f"{index} is no index of Megatron's; put it out of the way of {path}")
    magic, version, kind, sequences, documents = _MEGATRON_HEAD.unpack_from(whole)
    sizes = _MEGATRON_HEAD.size + 12 * sequences + 8 * documents
    if (magic, version) != (_MEGATRON, 1) or kind not in _MEGATRON_TYPES or sizes > len(whole):
        raise InputError(
            f"{index} is no index of Megatron's for integers (version {version}, type {kind}, "
            f"{len(whole):,} bytes); put it out of the way of {path}"
        )
    dtype, at = np.dtype(f"<{_MEGATRON_TYPES[kind]}"), _MEGATRON_HEAD.size
    lengths = np.frombuffer(whole, "<i4", sequences, at).astype(np.int64)
    places = np.frombuffer(whole, "<i8", sequences, at + 4 * sequences)
    bounds = np.frombuffer(whole, "<i8", documents, at + 12 * sequences)
    ends = np.cumsum(lengths)
    fine = np.array_equal(places, (ends - lengths) * dtype.itemsize) and np.all(lengths >= 0)
    inside = not len(bounds) or (bounds[0] == 0 and bounds[-1] == sequences)
    if not (fine and inside and np.all(np.diff(bounds) >= 0)):
        raise InputError(f"{index}: its documents do not follow each other; write it anew")
    total = int(ends[-1]) if len(ends) else 0
    if total * dtype.itemsize != (there := Path(path).stat().st_size):
        raise InputError(
            f"{path} has {there:,} bytes, and {index} names {total:,} ids of {dtype.itemsize}; "
            "check that both are whole"
        )
    return dtype, np.diff(np.concatenate([[0], ends])[bounds])


def _of_lengths(
    path: str, dtype: np.dtype, lengths: Int[np.ndarray, " documents"]
) -> Iterator[Ragged]:
    """Documents of these lengths, one behind the other."""
    pieces: list[np.ndarray] = []
    ends, first, before, there = np.cumsum(lengths), 0, 0, 0
    for part in _parts(path, dtype, 0):
        pieces, there = [*pieces, part], there + len(part)
        last = int(np.searchsorted(ends, there, side="right"))
        if last > first:
            ids, whole = np.concatenate(pieces), int(ends[last - 1]) - before
            yield Ragged(ids[:whole], lengths[first:last])
            pieces, first, before = [ids[whole:]], last, before + whole


def _parts(
    path: str, dtype: np.dtype, start: int, *, multiple: int = 1
) -> Iterator[Integer[np.ndarray, " ids"]]:
    """The ids behind a header, so many at once."""
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
            whole = len(part) // stream.length * stream.length
            yield equally_long(part[:whole], stream.length)
            rest = part[whole:]
            continue
        apart = part == stream.separator
        places = np.flatnonzero(apart)
        whole = int(places[-1]) + 1 if len(places) else 0
        yield Ragged(part[:whole][~apart[:whole]], np.diff(places, prepend=-1) - 1)
        rest = part[whole:]
    if rest is not None:
        yield Ragged(rest, np.array([len(rest)], np.int64))
