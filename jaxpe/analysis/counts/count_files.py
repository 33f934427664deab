"""Counts on disk, to be added to and reported on; written whole or not at all."""

import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.files import atomic_file, file_hash, write_file
from jaxpe._core.json_values import from_json, read_json, to_json
from jaxpe._core.memory import check_bytes
from jaxpe.analysis.counts.base import CountedShard, StoredCounts
from jaxpe.analysis.counts.settings import (
    CELL_BYTES,
    CountSettings,
    check_settings,
    dtype_of_counts,
    shortened,
)
from jaxpe.analysis.counts.tables import named_tables, read_tables, write_tables

_TABLES, _ABOUT = "counts.npz", "counts.json"
_FORMAT = 4
# While a table is read: the numbers of its file, twice, and the cells they are for.
_READING_BYTES = 32
_REMEDY = "pass a folder that jaxpe count wrote, or count again"


class _About(NamedTuple):
    """Metadata beside the tables; `tables` is the hash of their file."""

    format: int
    documents: int
    settings: CountSettings
    text_field: str | None
    shards: tuple[CountedShard, ...]
    tokens: list[str]
    tables: str
    separator: int | None = None


def write_counts(stored: StoredCounts, directory: str | os.PathLike[str]) -> Path:
    """Write counts into a folder, whole or not at all; returns the folder.

    Empty cells take no space: most are empty where positions and words are many.

    Raises:
        InputError: no room or no permission, and what was there before is still there; or numbers
            that contradict each other.

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
    about = _About(
        format=_FORMAT,
        documents=stored.documents,
        settings=stored.settings,
        text_field=stored.text_field,
        shards=stored.shards,
        tokens=stored.tokens,
        tables=tables,
        separator=stored.separator,
    )
    write_file(directory / _ABOUT, json.dumps(to_json(about), indent=1) + "\n")
    return directory


def read_counts(directory: str | os.PathLike[str]) -> StoredCounts:
    """Counts that `write_counts` wrote.

    Raises:
        InputError: none there, not whole, changed, of another version, more than memory holds, or
            numbers that contradict each other.

    >>> import tempfile
    >>> read_counts(tempfile.mkdtemp())
    Traceback (most recent call last):
    jaxpe.InputError: .../counts.json cannot be read: No such file ...; pass a folder ...
    """
    directory = Path(directory)
    about = _about(directory)
    try:
        stored = _empty(about)
        if _file_hash(directory / _TABLES) != about.tables:
            raise InputError(f"{_TABLES} is damaged, or not of {_ABOUT}")
        read_tables(directory / _TABLES, named_tables(stored.table, stored.nulls))
        _check(stored)
    except InputError as error:
        raise InputError(f"{directory} holds no counts: {error}; {_REMEDY}") from error
    return stored


def read_about(directory: str | os.PathLike[str]) -> StoredCounts:
    """Counts that `write_counts` wrote, with empty tables: all that stands beside these.

    Raises:
        InputError: as `read_counts`, but for what is wrong with the tables.

    >>> import tempfile
    >>> read_about(tempfile.mkdtemp())
    Traceback (most recent call last):
    jaxpe.InputError: .../counts.json cannot be read: No such file ...; pass a folder ...
    """
    return _without_tables(_about(Path(directory)))


def _about(directory: Path) -> _About:
    """Metadata beside the tables."""
    values = read_json(directory / _ABOUT, remedy=_REMEDY)
    if values.get("format") != _FORMAT:
        raise InputError(
            f"{directory} holds counts of format {shortened(values.get('format'))}, not {_FORMAT}; "
            f"{_REMEDY}"
        )
    try:
        about = from_json(_About, values, place=_ABOUT)
        check_settings(about.settings)
    except InputError as error:
        raise InputError(f"{directory} holds no counts: {error}; {_REMEDY}") from error
    return about


def is_counted(directory: str | os.PathLike[str]) -> bool:
    """Whether the folder holds counts.

    >>> import tempfile
    >>> is_counted(tempfile.mkdtemp())
    False
    """
    return (Path(directory) / _ABOUT).exists()


def _empty(about: _About) -> StoredCounts:
    """The counts with tables of zeros, once it is sure that there is room for them."""
    settings, shape = about.settings, (about.settings.rows, about.settings.vocab_size)
    dtype = dtype_of_counts(about.documents, settings)
    tables = settings.bytes * dtype.itemsize // CELL_BYTES
    needed = tables + _READING_BYTES * settings.rows * settings.vocab_size
    check_bytes(needed, what="their table", remedy="read them where there is more memory")
    return _without_tables(about)._replace(
        table=np.zeros((settings.folds, *shape), dtype),
        nulls=np.zeros((settings.nulls, settings.null_folds, *shape), dtype),
    )


def _without_tables(about: _About) -> StoredCounts:
    return StoredCounts(
        np.zeros((0, 0, 0), np.int32),
        np.zeros((0, 0, 0, 0), np.int32),
        about.documents,
        about.settings,
        about.tokens,
        about.shards,
        about.text_field,
        about.separator,
    )


def _file_hash(path: Path) -> str:
    try:
        return file_hash(path)
    except OSError as error:
        raise InputError(f"{path.name} cannot be read: {error.strerror or error}") from error


def _check(stored: StoredCounts) -> None:
    """Refuse numbers that contradict each other."""
    settings, table, nulls = stored.settings, stored.table, stored.nulls
    shape = (settings.rows, settings.vocab_size)
    expected = [(settings.folds, *shape), (settings.nulls, settings.null_folds, *shape)]
    if [table.shape, nulls.shape] != expected or len(stored.tokens) != settings.vocab_size:
        raise InputError(
            f"the tables are of shapes {table.shape} and {nulls.shape} with {len(stored.tokens)} "
            f"tokens, and the settings ask for {expected[0]}, {expected[1]} and "
            f"{settings.vocab_size}; count again, in another folder"
        )
    if sum(shard.documents for shard in stored.shards) != stored.documents:
        raise InputError(
            f"there are {stored.documents} documents, and other ones in the shards; count again, "
            "in another folder"
        )
    if min(table.min(initial=0), nulls.min(initial=0)) < 0:
        raise InputError("a count is negative; count again, in another folder")
