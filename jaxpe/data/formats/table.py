"""Table of corpus formats, with one row per format, and reading by this table."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from jaxpe._core.memory import check_bytes
from jaxpe._core.progress import SILENT, Progress
from jaxpe.data.formats.columnar import (
    columnar_classes,
    columnar_holds_ids,
    columnar_id_blocks,
    columnar_records,
)
from jaxpe.data.formats.columns import (
    TEXT,
    Fields,
    ReadLog,
    Record,
    Row,
    group_name,
    text_rows,
)
from jaxpe.data.formats.csv_tables import csv_records
from jaxpe.data.formats.files import COMPRESSED, STANDARD_INPUT, text_lines
from jaxpe.data.formats.json_lines import json_records
from jaxpe.data.formats.sequences import sequence_records
from jaxpe.data.formats.tfds_folders import is_tfds, tfds_classes, tfds_files, tfds_records
from jaxpe.data.formats.token_files import Stream, map_id_blocks
from jaxpe.data.tokens.ragged import Ragged

IdBlock = tuple[Ragged, list[str | None] | None]  # ids of many documents, and their groups
_STEP = 2**28  # bytes of documents between two checks of free memory

_T = TypeVar("_T")


def _line_records(
    path: str, columns: Sequence[str] | None, log: ReadLog, progress: Progress
) -> Iterator[Record]:
    return ((path, {TEXT: line.rstrip("\r\n")}) for line in text_lines(path, progress))


class Format(NamedTuple):
    """A format of corpora.

    - `suffixes`: file name endings; empty for folders.
    - `records`: reader of records, of some columns or all; None for ids alone.
    - `has_columns`: whether a text or label field can be asked for; otherwise records have `text`.
    - `holds_ids`: whether a file or its column holds token ids.
    - `id_blocks`: reader of token ids.
    - `classes`: reader of the names of the classes of a column, if it has any.
    - `tokenizer`: tokenizer for its texts if none is passed.
    """

    suffixes: tuple[str, ...]
    records: Callable[[str, Sequence[str] | None, ReadLog, Progress], Iterator[Record]] | None
    has_columns: bool = False
    holds_ids: Callable[[str, str | None], bool] = lambda path, field: False
    id_blocks: Callable[[str, Fields, Stream, ReadLog], Iterator[Any]] | None = None
    classes: Callable[[str, str], tuple[str, ...]] = lambda path, label: ()
    tokenizer: str | None = None


def _names(*suffixes: str) -> tuple[str, ...]:
    """Suffixes of text, alone and compressed."""
    return tuple(suffix + packed for suffix in suffixes for packed in ("", *COMPRESSED))


_TFDS = Format((), tfds_records, True, classes=tfds_classes)
_COLUMNAR = (columnar_holds_ids, columnar_id_blocks, columnar_classes)
FORMATS = (
    Format(_names(".txt"), _line_records),
    Format(_names(".tsv", ".csv"), csv_records, True),
    Format(_names(".jsonl"), json_records, True),
    Format((".parquet", ".arrow"), columnar_records, True, *_COLUMNAR),
    Format(
        _names(".fa", ".fasta", ".fna", ".ffn", ".faa", ".fas", ".fastq", ".fq"),
        sequence_records,
        tokenizer="characters",
    ),
    Format((".bin", ".npy"), None, False, lambda path, field: True, map_id_blocks),
)


def _suffixes(formats: Iterable[Format]) -> str:
    suffixes = itertools.chain.from_iterable(one.suffixes for one in formats)
    return ", ".join(suffix for suffix in suffixes if not suffix.endswith(COMPRESSED))


SUPPORTED = f"{_suffixes(FORMATS)} (text also {' '.join(COMPRESSED)})"
TABLES = _suffixes(one for one in FORMATS if one.has_columns)


def find_format(path: str) -> Format | None:
    """Format of a file, by its name, or of a split of a dataset; None if unknown."""
    if path == STANDARD_INPUT:
        return FORMATS[0]
    if is_tfds(path):
        return _TFDS
    name = "" if Path(path).is_dir() else path.lower()
    return next((one for one in FORMATS if name.endswith(one.suffixes)), None)


def content_files(path: str) -> list[str]:
    """Files with the content of a path."""
    return tfds_files(path) if is_tfds(path) else [path]


def has_columns(path: str) -> bool:
    """Whether a path is a table, with columns of text and label."""
    return (one := find_format(path)) is not None and one.has_columns


def read_records(
    path: str, columns: Sequence[str] | None, log: ReadLog, progress: Progress
) -> Iterator[Record]:
    """Read the locations of the rows of a file, and their values by column.

    Args:
        path: path of the file or split, or `"-"` for standard input.
        columns: columns that are needed; default: all.
        log: receives choices of the reader.
        progress: receiver of progress.
    """
    one: Any = find_format(path)  # callers check the format
    return one.records(path, columns, log, progress)


def column_names(path: str) -> list[str]:
    """Names of the columns of a table, from its first row; [] for other formats."""
    records = read_records(path, None, ReadLog(), SILENT) if has_columns(path) else iter(())
    return [*next(records, ("", {}))[1]]


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
        fields: columns to read; a format without columns has texts, and no labels.
        log: receives choices of the reader, the classes and the number of skipped rows.
        progress: receiver of progress.
    """
    one: Any = find_format(path)  # callers check the format
    if not one.has_columns:
        fields = Fields(TEXT, None)
    classes = () if fields.label is None else one.classes(path, fields.label)
    log.set_classes(classes, path)
    records = one.records(path, fields.columns(), log, progress)
    return text_rows(records, fields, log, classes=classes)


def id_blocks(path: str, fields: Fields, stream: Stream, log: ReadLog) -> Iterator[IdBlock]:
    """Read token ids of documents that have any, and their groups, many documents at once.

    Args:
        path: path of a file that `holds_ids`.
        fields: columns of ids and groups, of a table.
        stream: how a stream is cut into documents.
        log: receives the column, and the number of rows without ids.

    Raises:
        InputError: a damaged file, no such column, or ids that are not integers.
    """
    one: Any = find_format(path)  # callers check the format
    for block, labels in one.id_blocks(path, fields, stream, log):
        is_full = block.lengths > 0
        groups = None
        if labels is not None:
            groups = [group_name(x, path) for x in itertools.compress(labels, is_full.tolist())]
        yield block.chosen(is_full), groups


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
