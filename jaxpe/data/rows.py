"""Rows of files: documents and their labels, from lines, tables, JSON and Parquet."""

import csv
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from jaxpe._core.errors import InputError
from jaxpe._core.hashing import Content
from jaxpe._core.memory import check_bytes
from jaxpe._core.progress import SILENT, Progress
from jaxpe.data.columnar import columnar_names, columnar_rows
from jaxpe.data.fields import (
    Fields,
    Found,
    Row,
    label_column,
    refuse_repeated,
    text_column,
    with_text,
)
from jaxpe.data.files import (
    COLUMNAR,
    LARGEST_TEXT,
    listed,
    text_ending,
    text_lines,
    where,
    whole_text,
)
from jaxpe.data.json_rows import array_rows, json_items, json_record, json_rows

_STEP = 2**28  # bytes of documents that are taken into memory between checks of what is left
_ROW_BYTES = 200  # of a row beside its text
_LIMIT = threading.RLock()  # on the size of fields, which is of the module csv

_T = TypeVar("_T")


def read_rows(
    path: str,
    *,
    text_field: str | None,
    label_field: str | None = None,
    skip_nulls: bool = False,
    found: Found | None = None,
    progress: Progress,
) -> list[Row]:
    """The rows of a file, or of standard input, `"-"`, whose text is not blank."""
    fields = Fields(text_field, label_field, skip_nulls=skip_nulls)
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
    if ending in COLUMNAR:
        rows = columnar_rows(path, fields, found, content=content, progress=progress)
        return with_text(rows, fields, found)
    if ending == ".json":
        rows = array_rows(whole_text(path, content=content), path, fields, found)
        return with_text(rows, fields, found)
    lines = text_lines(path, progress=progress, content=content)
    if ending == ".jsonl":
        return with_text(json_rows(_objects(lines, path), fields, found), fields, found)
    if ending in (".csv", ".tsv"):
        return _table(lines, path, fields, found)
    return (Row(line.rstrip("\r\n"), None, path) for line in lines)


def column_names(path: str) -> list[str]:
    """The columns of a table: of its header, or the keys of its first object; [] where none is."""
    ending = text_ending(path)
    if ending in COLUMNAR:
        return columnar_names(path)
    if ending == ".json":
        first = next(iter(json_items(whole_text(path), path, Found())), None)
        return [*first] if isinstance(first, dict) else []
    lines = text_lines(path, progress=SILENT)
    if ending == ".jsonl":
        records = (json_record(line, place) for place, line in _objects(lines, path))
        return [*next(records, {})]
    return next(_cells_of(lines, path), (0, []))[1]


def _objects(lines: Iterable[str], path: str) -> Iterator[tuple[str, str]]:
    """The lines that are not blank, each with its place."""
    return ((where(path, n), line) for n, line in enumerate(lines, start=1) if line.strip())


def _table(lines: Iterable[str], path: str, fields: Fields, found: Found) -> Iterator[Row]:
    """The rows under a header."""
    cells = _cells_of(lines, path)
    _, header = next(cells, (0, []))
    text, label = None, None
    for line, row in cells:
        place = where(path, line)
        if len(row) != len(header):
            raise InputError(
                f"{place}: {len(row)} fields, but the header names "
                f"{len(header)}: {listed(header)}; give every row the same columns"
            )
        if text is None:
            text, label = _columns(path, header, row, fields, found)
        yield Row(row[text], None if label is None else row[label], place)


def _columns(
    path: str, header: list[str], row: list[str], fields: Fields, found: Found
) -> tuple[int, int | None]:
    """The places of text and label, where the first row has `row`."""
    label = label_column(path, header, fields)
    strings = [name for name, cell in zip(header, row, strict=True) if not _number(cell)]
    chosen = text_column(path, header, strings, fields, found)
    refuse_repeated(path, header, (chosen, fields.label))
    return header.index(chosen), label


def _cells_of(lines: Iterable[str], path: str) -> Iterator[tuple[int, list[str]]]:
    """Lines of a table, cut into fields, each with its number; empty ones are left out."""
    # TSV has no quoting: a lone quotation mark is text, as in SST-2 and the rest of GLUE.
    tabs = text_ending(path) == ".tsv"
    dialect: dict[str, Any] = (
        {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if tabs else {"strict": True}
    )
    taken = 0

    def bounded() -> Iterator[str]:
        nonlocal taken
        for line in lines:
            taken += len(line)
            if taken > LARGEST_TEXT:
                raise InputError(
                    f"{where(path, reader.line_num)}: a row is longer than "
                    f"{LARGEST_TEXT:,} characters; close the quotation mark that is open, or cut "
                    "longer documents"
                )
            yield line

    reader = csv.reader(bounded(), **dialect)
    while True:
        taken = 0
        try:
            row = _next_row(reader)
        except csv.Error as error:
            raise InputError(
                f"{where(path, reader.line_num)}: {error}; quote fields as CSV does, or use .jsonl"
            ) from error
        if row is None:
            return
        if row:
            yield reader.line_num, row


def _next_row(reader: Any) -> list[str] | None:
    # The limit is the whole process's, and others may read while this reader waits.
    with _LIMIT:
        limit = csv.field_size_limit(LARGEST_TEXT)
        try:
            return next(reader, None)
        finally:
            csv.field_size_limit(limit)


def _number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
