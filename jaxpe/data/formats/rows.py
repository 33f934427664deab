"""Rows of files: documents and their labels, from lines, tables, JSON and Parquet."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from jaxpe._core.files import Content
from jaxpe._core.memory import check_bytes
from jaxpe._core.progress import SILENT, Progress
from jaxpe.data.formats.columnar import columnar_names, columnar_rows
from jaxpe.data.formats.columns import Fields, Found, Row, with_text
from jaxpe.data.formats.csv_rows import csv_names, csv_rows
from jaxpe.data.formats.files import COLUMNAR, text_ending, text_lines, where, whole_text
from jaxpe.data.formats.json_rows import array_rows, json_items, json_record, json_rows

_STEP = 2**28  # bytes of documents that are taken into memory between checks of what is left
_ROW_BYTES = 200  # of a row beside its text

_T = TypeVar("_T")


def read_rows(
    path: str, fields: Fields, *, found: Found | None = None, progress: Progress
) -> list[Row]:
    """The rows of a file, or of standard input, `"-"`, whose text is not blank."""
    rows = iter_rows(path, fields, found=found, progress=progress)
    return held(rows, lambda row: sys.getsizeof(row.text) + _ROW_BYTES, what=path)


def held(items: Iterable[_T], size: Callable[[_T], int], *, what: str) -> list[_T]:
    """Items of outside as a list, refused where no room is left to make tokens of them."""
    kept, taken, looked = [], 0, 0
    for item in items:
        kept.append(item)
        taken += size(item)
        if taken > looked:
            check_bytes(
                taken + 2 * _STEP,
                what=f"{what}, of which {taken / 1e9:.1f} GB are read,",
                remedy="pass fewer documents, or count them with jaxpe count, which streams them",
            )
            looked = taken + _STEP
    return kept


def iter_rows(
    path: str,
    fields: Fields,
    *,
    found: Found | None = None,
    content: Content | None = None,
    progress: Progress,
) -> Iterator[Row]:
    """The same, one by one.

    Args:
        path: path of the file.
        fields: what is asked of the columns.
        found: is told what was chosen, and how many rows had no text.
        content: is given the bytes of the file, all of them once the last row is read.
        progress: receiver of progress in reading.
    """
    found = Found() if found is None else found
    rows = _rows_of(path, fields, found, content, progress)
    return (row for row in rows if row.text.strip())


def _rows_of(
    path: str, fields: Fields, found: Found, content: Content | None, progress: Progress
) -> Iterator[Row]:
    ending = text_ending(path)
    lines = text_lines(path, progress=progress, content=content)
    if ending in COLUMNAR:
        rows = columnar_rows(path, fields, found, content=content, progress=progress)
    elif ending == ".json":
        rows = array_rows(whole_text(path, content=content), path, fields, found)
    elif ending == ".jsonl":
        rows = json_rows(_objects(lines, path), fields, found)
    elif ending in (".csv", ".tsv"):
        return csv_rows(lines, path, fields, found)
    else:
        return (Row(line.rstrip("\r\n"), None, path) for line in lines)
    return with_text(rows, fields, found)


def column_names(path: str) -> list[str]:
    """The columns of a table: of its header, or the keys of its first object; [] where none is."""
    ending = text_ending(path)
    if ending in COLUMNAR:
        return columnar_names(path)
    if ending == ".json":
        first = next(iter(json_items(whole_text(path), path, Found())), None)
        return [*first] if isinstance(first, dict) else []
    if ending == ".jsonl":
        lines = _objects(text_lines(path, progress=SILENT), path)
        return [*next((json_record(line, place) for place, line in lines), {})]
    return csv_names(path)


def _objects(lines: Iterable[str], path: str) -> Iterator[tuple[str, str]]:
    """The lines that are not blank, each with its place."""
    return ((where(path, n), line) for n, line in enumerate(lines, start=1) if line.strip())
