"""Files of counts: tables in counts.npz, and everything else in counts.json."""

import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxpe._core.errors import InputError, shortened
from jaxpe._core.files import atomic_file, file_hash, write_file
from jaxpe._core.json_values import from_json, read_json, to_json
from jaxpe._core.memory import check_bytes
from jaxpe.analysis.counts.base import CountedShard, StoredCounts
from jaxpe.analysis.counts.settings import (
    CELL_BYTES,
    CountSettings,
    check_settings,
    dtype_of_counts,
    zero_tables,
)
from jaxpe.analysis.counts.tables import named_tables, read_tables, write_tables

_TABLES, _HEADER = "counts.npz", "counts.json"
_FORMAT = 5
# Memory while reading a table: the numbers of its file, twice, and their cells.
_READING_BYTES = 32
_REMEDY = "pass a folder that jaxpe count wrote, or count again"


class _Header(NamedTuple):
    """Content of counts.json: fields of `StoredCounts`, and the hash of the file of tables."""

    format: int
    documents: int
    settings: CountSettings
    text_field: str | None
    shards: tuple[CountedShard, ...]
    tokens: list[str]
    tables: str
    separator: int | None = None


def write_counts(stored: StoredCounts, directory: str | os.PathLike[str]) -> Path:
    """Write counts into a folder, all files or none; returns the folder.

    Empty cells take no space; with many positions and words most cells are empty.

    Raises:
        InputError: no disk space or no permission, which leaves older counts unchanged; or
            inconsistent numbers.

    >>> import tempfile
    >>> from jaxpe.analysis.counts import count_settings
    >>> from jaxpe.data import open_tokenizer
    >>> words = open_tokenizer(vocabulary=["to", "be"])
    >>> settings = count_settings(words, length=2, folds=4, nulls=0)
    >>> table = np.ones((4, 2, 2), np.int32)
    >>> nulls = np.zeros((0, 4, 2, 2), np.int32)
    >>> shards = (CountedShard("a.txt", 40, "5f" * 16, 8),)
    >>> stored = StoredCounts(table, nulls, 8, settings, words.tokens, shards)
    >>> folder = write_counts(stored, tempfile.mkdtemp())
    >>> read_counts(folder).counts.documents.item()
    8
    """
    directory = Path(directory)
    _check(stored)
    with atomic_file(directory / _TABLES) as part:
        write_tables(part, named_tables(stored.table, stored.nulls))
        tables = file_hash(part)
    fields = {name: value for name, value in stored._asdict().items() if name in _Header._fields}
    header = _Header(format=_FORMAT, tables=tables, **fields)
    write_file(directory / _HEADER, json.dumps(to_json(header), indent=1) + "\n")
    return directory


def read_counts(directory: str | os.PathLike[str]) -> StoredCounts:
    """Counts that `write_counts` wrote.

    Raises:
        InputError: a folder without counts, or counts that are incomplete, changed, of another
            version, too large for memory, or inconsistent.

    >>> import tempfile
    >>> read_counts(tempfile.mkdtemp())
    Traceback (most recent call last):
    jaxpe.InputError: .../counts.json cannot be read: No such file ...; pass a folder ...
    """
    directory = Path(directory)
    stored, tables = _read_header(directory)
    settings = stored.settings
    try:
        dtype = dtype_of_counts(stored.documents, settings)
        needed = settings.bytes * dtype.itemsize // CELL_BYTES
        needed += _READING_BYTES * settings.rows * settings.vocab_size
        check_bytes(needed, what="their table", remedy="read them where there is more memory")
        table, nulls = zero_tables(settings, stored.documents)
        if file_hash(directory / _TABLES) != tables:
            raise InputError(f"{_TABLES} is damaged, or not of {_HEADER}")
        read_tables(directory / _TABLES, named_tables(table, nulls))
        stored = stored._replace(table=table, nulls=nulls)
        _check(stored)
    except OSError as error:
        raise InputError(
            f"{directory / _TABLES} cannot be read: {error.strerror or error}; {_REMEDY}"
        ) from error
    except InputError as error:
        raise InputError(f"{directory} holds no counts: {error}; {_REMEDY}") from error
    return stored


def read_header(directory: str | os.PathLike[str]) -> StoredCounts:
    """Counts that `write_counts` wrote, without their tables.

    Raises:
        InputError: as `read_counts`, except for faults of the tables.

    >>> import tempfile
    >>> read_header(tempfile.mkdtemp())
    Traceback (most recent call last):
    jaxpe.InputError: .../counts.json cannot be read: No such file ...; pass a folder ...
    """
    return _read_header(Path(directory))[0]


def _read_header(directory: Path) -> tuple[StoredCounts, str]:
    """Counts with empty tables, and the hash of the file of tables."""
    values = read_json(directory / _HEADER, remedy=_REMEDY)
    if values.get("format") != _FORMAT:
        raise InputError(
            f"{directory} holds counts of format {shortened(values.get('format'))}, not {_FORMAT}; "
            f"{_REMEDY}"
        )
    try:
        fields = from_json(_Header, values, where=_HEADER)._asdict()
        check_settings(fields["settings"])
    except InputError as error:
        raise InputError(f"{directory} holds no counts: {error}; {_REMEDY}") from error
    del fields["format"]
    tables = fields.pop("tables")
    empty = np.zeros((0, 0, 0), np.int32), np.zeros((0, 0, 0, 0), np.int32)
    return StoredCounts(*empty, **fields), tables


def is_counted(directory: str | os.PathLike[str]) -> bool:
    """Whether the folder holds counts.

    >>> import tempfile
    >>> is_counted(tempfile.mkdtemp())
    False
    """
    return (Path(directory) / _HEADER).exists()


def _check(stored: StoredCounts) -> None:
    """Raise for inconsistent numbers."""
    settings, table, nulls = stored.settings, stored.table, stored.nulls
    shape = (settings.rows, settings.vocab_size)
    expected = [(settings.folds, *shape), (settings.nulls, settings.null_folds, *shape)]
    problem = None
    if [table.shape, nulls.shape] != expected or len(stored.tokens) != settings.vocab_size:
        problem = (
            f"the tables are of shapes {table.shape} and {nulls.shape} with {len(stored.tokens)} "
            f"tokens, and the settings ask for {expected[0]}, {expected[1]} and "
            f"{settings.vocab_size}"
        )
    elif sum(shard.documents for shard in stored.shards) != stored.documents:
        problem = f"there are {stored.documents} documents, and other ones in the shards"
    elif min(table.min(initial=0), nulls.min(initial=0)) < 0:
        problem = "a count is negative"
    if problem:
        raise InputError(f"{problem}; count again, in another folder")
