"""Array records: files of byte strings by number, read within what memory there is."""

import io
import operator
import struct
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple, SupportsIndex

from jaxpe._core.errors import InputError, require
from jaxpe._core.memory import check_bytes
from jaxpe.data.formats.files import LARGEST_TEXT, open_regular, readable

# Riegeli's format: chunks, which a header in front of each block interrupts. The header of a chunk
# has the size of its content once it is unpacked.
_BLOCK, _BLOCK_HEADER = 2**16, 24
_CHUNK = struct.Struct("<8xQ8xQQ")  # bytes of the content; number of records and kind; unpacked
_KINDS = b"smprt"  # signature, metadata, padding, records, records by column
_AT_ONCE, _BYTES_AT_ONCE = 1000, 2**28  # read at once at most
_COPIES = 3  # of a chunk, packed and unpacked


class Records:
    """The records of files as one sequence; it can be pickled, for the processes of Grain.

    Raises (also while reading):
        InputError: a file that is no regular one, is damaged, or is larger unpacked than memory.
    """

    def __init__(self, paths: Sequence[str]):
        source = require("array_record.python.array_record_data_source", extra="data")
        self._name = paths[0]
        self._at_once = _AT_ONCE
        for path in paths:
            with readable(path, Exception):  # what C++ makes of a damaged file
                self._at_once = min(self._at_once, _looked_at(path))
        with readable(self._name, Exception):
            self._source = source.ArrayRecordDataSource(list(paths))

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: SupportsIndex) -> bytes:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[bytes]:
        numbers = [*map(operator.index, indices)]
        if not numbers:
            return []
        if not 0 <= min(numbers) <= max(numbers) < len(self):
            raise IndexError(f"records {min(numbers)} to {max(numbers)} of {len(self)}")
        with readable(self._name, Exception):
            records = list(self._source.__getitems__(numbers))
        if (longest := max(map(len, records))) > LARGEST_TEXT:
            raise InputError(
                f"{self._name} has a record of {longest:,} bytes, which may have "
                f"{LARGEST_TEXT:,}; cut longer documents"
            )
        return records

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self), self._at_once):
            yield from self.__getitems__(range(start, min(start + self._at_once, len(self))))


def _looked_at(path: str) -> int:
    """Number of records to read at once; refuses a chunk that is larger than memory."""
    largest, number = 0, _AT_ONCE
    for chunk in _chunks(path):
        if chunk.unpacked > LARGEST_TEXT * max(1, chunk.records):
            raise InputError(
                f"{path} has a chunk of {chunk.unpacked:,} bytes for {chunk.records:,} records, "
                f"which may have {LARGEST_TEXT:,} each; cut longer documents"
            )
        largest = max(largest, chunk.unpacked)
        number = min(number, _BYTES_AT_ONCE * max(1, chunk.records) // max(1, chunk.unpacked))
    check_bytes(
        _COPIES * largest,
        what=f"{path}, of which a chunk has {largest:,} bytes unpacked,",
        remedy="check that it is whole, or write fewer records into a chunk (group_size:1)",
    )
    return max(1, number)


class _Chunk(NamedTuple):
    """Header of a chunk."""

    packed: int  # bytes of its content
    kind: int
    records: int
    unpacked: int  # bytes of its content


def _chunks(path: str) -> Iterator[_Chunk]:
    """The headers of the chunks, in order."""
    with open_regular(path) as raw:
        file, place = io.BufferedReader(raw), 0
        while len(header := _header(file, place)) == _CHUNK.size:
            packed, number_and_kind, unpacked = _CHUNK.unpack(header)
            chunk = _Chunk(packed, number_and_kind & 0xFF, number_and_kind >> 8, unpacked)
            if chunk.kind not in _KINDS:
                raise ValueError(f"there is no chunk at byte {place:,}")
            yield chunk
            end = _after(place, _CHUNK.size + chunk.packed)
            # A chunk is at least as long as it has records, and does not end in a block's header.
            least = place + chunk.records
            if 0 < least % _BLOCK < _BLOCK_HEADER:
                least += _BLOCK_HEADER - least % _BLOCK
            place = max(end, least)


def _header(file: BinaryIO, place: int) -> bytes:
    """The header of a chunk, which the header of a block may interrupt."""
    start = place if place % _BLOCK else place + _BLOCK_HEADER
    before = min(_CHUNK.size, _BLOCK - start % _BLOCK)
    try:
        file.seek(start)
    except OverflowError:  # beyond the end of any file
        return b""
    header = file.read(before)
    if before < _CHUNK.size:
        file.seek(_BLOCK_HEADER, io.SEEK_CUR)
        header += file.read(_CHUNK.size - before)
    return header


def _after(place: int, size: int) -> int:
    """The place behind so many bytes, headers of blocks between them not counted."""
    usable = _BLOCK - _BLOCK_HEADER
    return place + size + (size + (place + usable - 1) % _BLOCK) // usable * _BLOCK_HEADER
