"""Table of corpus formats, with one row per format, and reading by this table."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from jaxpe._core.memory import check_bytes
from jaxpe._core.progress import Progress
from jaxpe.data.formats.array_records import record_rows
from jaxpe.data.formats.columnar import (
    columnar_holds_ids,
    columnar_id_blocks,
    columnar_names,
    columnar_rows,
)
from jaxpe.data.formats.columns import Fields, NullRow, ReadLog, Row, non_null_rows
from jaxpe.data.formats.csv_rows import csv_names, csv_rows
from jaxpe.data.formats.files import COMPRESSED, STANDARD_INPUT, text_lines
from jaxpe.data.formats.json_rows import json_line_rows, json_names
from jaxpe.data.formats.sequence_records import sequence_rows
from jaxpe.data.formats.tfds_folders import (
    holds_tokens,
    is_tfds,
    tfds_columns,
    tfds_files,
    tfds_rows,
)
from jaxpe.data.formats.token_files import Stream, map_id_blocks
from jaxpe.data.tokens.ragged import Ragged

IdBlock = tuple[Ragged, list[Any] | None]  # ids of many documents, and their labels
_STEP = 2**28  # bytes of documents between two checks of free memory

_T = TypeVar("_T")


def _lines(path: str, fields: Fields, log: ReadLog, progress: Progress) -> Iterator[Row]:
    return (Row(line.rstrip("\r\n"), None, path) for line in text_lines(path, progress))


class Format(NamedTuple):
    """A format of corpora.

    - `suffixes`: file name endings; empty for folders.
    - `is_folder`: whether a folder, or a split in it, has this format.
    - `rows`: reader of texts and labels; None for ids alone.
    - `columns`: reader of column names; None for formats without columns.
    - `has_fields`: whether a text or label field can be asked for.
    - `holds_ids`: whether a file or its column holds token ids.
    - `id_blocks`: reader of token ids.
    - `files`: files with the content of a path.
    - `tokenizer`: tokenizer for its texts if none is passed.
    """

    suffixes: tuple[str, ...]
    rows: Callable[[str, Fields, ReadLog, Progress], Iterator[Row | NullRow]] | None
    columns: Callable[[str], list[str]] | None = None
    holds_ids: Callable[[str, str | None], bool] = lambda path, field: False
    id_blocks: Callable[[str, Fields, Stream, ReadLog], Iterator[IdBlock]] | None = None
    has_fields: bool = False
    is_folder: Callable[[str], bool] = lambda path: False
    files: Callable[[str], list[str]] = lambda path: [path]
    tokenizer: str | None = None


def _names(*suffixes: str) -> tuple[str, ...]:
    """Suffixes of text, alone and compressed."""
    return tuple(suffix + packed for suffix in suffixes for packed in ("", *COMPRESSED))


FORMATS = (
    Format(_names(".txt"), _lines),
    Format(_names(".tsv", ".csv"), csv_rows, csv_names, has_fields=True),
    Format(_names(".jsonl"), json_line_rows, json_names, has_fields=True),
    Format(
        (".parquet", ".arrow"),
        columnar_rows,
        columnar_names,
        columnar_holds_ids,
        columnar_id_blocks,
        has_fields=True,
    ),
    Format(
        _names(".fa", ".fasta", ".fna", ".ffn", ".faa", ".fas", ".fastq", ".fq"),
        sequence_rows,
        tokenizer="characters",
    ),
    Format((".array_record", ".arrayrecord"), record_rows, has_fields=True),
    Format((".bin", ".npy"), None, None, lambda path, field: True, map_id_blocks),
    Format(
        (),
        tfds_rows,
        tfds_columns,
        lambda path, field: holds_tokens(path),
        has_fields=True,
        is_folder=is_tfds,
        files=tfds_files,
    ),
)


def _suffixes(formats: Iterable[Format]) -> str:
    suffixes = itertools.chain.from_iterable(one.suffixes for one in formats)
    return ", ".join(suffix for suffix in suffixes if not suffix.endswith(COMPRESSED))


SUPPORTED = f"{_suffixes(FORMATS)} (text also {' '.join(COMPRESSED)})"
TABLES = _suffixes(one for one in FORMATS if one.columns)


def find_format(path: str) -> Format | None:
    """Format of a file, by its name, or of a split of a dataset; None if unknown."""
    if path == STANDARD_INPUT:
        return FORMATS[0]
    if folder := next((one for one in FORMATS if one.is_folder(path)), None):
        return folder
    name = "" if Path(path).is_dir() else path.lower()
    return next((one for one in FORMATS if one.suffixes and name.endswith(one.suffixes)), None)


def content_files(path: str) -> list[str]:
    """Files with the content of a path."""
    one = find_format(path)
    return [path] if one is None else one.files(path)


def has_columns(path: str) -> bool:
    """Whether a path is a table, with columns of text and label."""
    return (one := find_format(path)) is not None and one.columns is not None


def column_names(path: str) -> list[str]:
    """Names of the columns of a file; [] for formats without."""
    one = find_format(path)
    return one.columns(path) if one is not None and one.columns is not None else []


def usual_tokenizer(paths: Iterable[str]) -> str | None:
    """Tokenizer of the first path whose format has one, as files of sequences do; None for text."""
    formats = map(find_format, paths)
    return next((one.tokenizer for one in formats if one is not None and one.tokenizer), None)


def holds_ids(path: str, field: str | None = None) -> bool:
    """Whether a file holds token ids: a memory map, or a table whose column has lists of integers.

    Args:
        path: path of a file or a split.
        field: column of a table; default: a column of lists, if no column holds text.

    Raises:
        InputError: a table that cannot be read.

    >>> holds_ids("train.bin"), holds_ids("poems.txt")
    (True, False)
    """
    one = find_format(path)
    return one is not None and one.holds_ids(path, field)


def iter_rows(path: str, fields: Fields, log: ReadLog, progress: Progress) -> Iterator[Row]:
    """Read the rows of a file whose text is not blank, one by one.

    Args:
        path: path of the file or split, or `"-"` for standard input.
        fields: columns to read.
        log: receives the chosen columns and the number of skipped rows.
        progress: receiver of progress.
    """
    one: Any = find_format(path)  # callers check the format
    rows = non_null_rows(one.rows(path, fields, log, progress), fields, log)
    return (row for row in rows if row.text.strip())


def id_blocks(path: str, fields: Fields, stream: Stream, log: ReadLog) -> Iterator[IdBlock]:
    """Read token ids of documents that have any, and their labels, many documents at once.

    Args:
        path: path of a file that `holds_ids`.
        fields: columns of ids and labels, of a table.
        stream: how a stream is cut into documents.
        log: receives the column, and the number of rows without ids.

    Raises:
        InputError: a damaged file, no such column, or ids that are not integers.
    """
    one: Any = find_format(path)  # callers check the format
    for block, labels in one.id_blocks(path, fields, stream, log):
        is_full = block.lengths > 0
        if labels is not None:
            labels = [*itertools.compress(labels, is_full.tolist())]
        yield block.chosen(is_full), labels


def list_within_memory(items: Iterable[_T], size: Callable[[_T], int], *, what: str) -> list[_T]:
    """Collect items in a list; raise `InputError` for more than memory can tokenize."""
    collected: list[_T] = []
    total, next_check = 0, 0
    for item in items:
        collected.append(item)
        total += size(item)
        if total > next_check:
            check_bytes(
                total + 2 * _STEP,
                what=f"{what}, of which {total / 1e9:.1f} GB are read,",
                remedy="pass fewer documents, or count them with jaxpe count, which streams them",
            )
            next_check = total + _STEP
    return collected
