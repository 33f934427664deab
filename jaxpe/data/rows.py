"""Rows of text files: documents and their labels, from lines, tables and JSON lines."""

import csv
import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from jaxpe._core.errors import InputError
from jaxpe._core.hashing import Content
from jaxpe._core.json_values import parse_json
from jaxpe._core.memory import check_bytes
from jaxpe._core.progress import SILENT, Progress
from jaxpe.data.files import (
    LARGEST_TEXT,
    SHOWN,
    check_text,
    listed,
    quoted,
    text_ending,
    text_lines,
    where,
)

_USUAL_FIELDS = ("text", "sentence")
_STEP = 2**28  # bytes of documents that are taken into memory between looks at what is left
_ROW_BYTES = 200  # of a row beside its text
_LIMIT = threading.RLock()  # on the size of fields, which is of the module csv

_T = TypeVar("_T")


class _Fields(NamedTuple):
    """The columns asked for."""

    text: str | None
    label: str | None
    label_name: str  # what errors call the argument


class Row(NamedTuple):
    """A document of a file: its text, its label as it stands there, and where that is."""

    text: str
    label: Any  # None where no labels were asked for
    place: str


def read_rows(
    path: str, *, text_field: str | None, label_field: str | None = None, progress: Progress
) -> list[Row]:
    """The rows of a file, or of standard input, `"-"`, whose text is not blank."""
    rows = iter_rows(path, text_field=text_field, label_field=label_field, progress=progress)
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
    *,
    text_field: str | None,
    label_field: str | None = None,
    label_name: str = "label_field",
    content: Content | None = None,
    progress: Progress,
) -> Iterator[Row]:
    """The same, one by one; errors call the label's argument `label_name`.

    `content` is given the bytes of the file, all of them once the last row is read.
    """
    lines = text_lines(path, progress=progress, content=content)
    fields = _Fields(text_field, label_field, label_name)
    match text_ending(path):
        case ".jsonl":
            rows = _jsonl(lines, path, fields)
        case ".csv" | ".tsv":
            rows = _table(lines, path, fields)
        case _:
            rows = (Row(line.rstrip("\r\n"), None, path) for line in lines)
    return (row for row in rows if row.text.strip())


def column_names(path: str) -> list[str]:
    """The columns of a table: of its header, or the keys of its first object; [] where none is."""
    lines = text_lines(path, progress=SILENT)
    if text_ending(path) == ".jsonl":
        records = (_record(line, where(path, n)) for n, line in enumerate(lines, 1) if line.strip())
        return [*next(records, {})]
    return next(_cells_of(lines, path), (0, []))[1]


def _table(lines: Iterable[str], path: str, fields: _Fields) -> Iterator[Row]:
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
            text, label = _columns(path, header, row, fields)
        yield Row(row[text], None if label is None else row[label], place)


def _columns(
    path: str, header: list[str], row: list[str], fields: _Fields
) -> tuple[int, int | None]:
    """The places of text and label, where the first row has `row`."""
    label = _label_column(path, header, fields)
    strings = [name for name, cell in zip(header, row, strict=True) if not _number(cell)]
    chosen = _chosen_field(path, header, strings, fields)
    for name in filter(None, (chosen, fields.label)):
        if (number := header.count(name)) > 1:
            raise InputError(
                f"{path}: {number} columns are named {quoted(name)}; rename all but one"
            )
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
                    f"{where(path, reader.line_num)}: a row goes on for more than "
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


def _jsonl(lines: Iterable[str], path: str, fields: _Fields) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            row, text = _json_row(line, where(path, number), fields)
            # Once chosen, it is the same key in all lines.
            fields = fields._replace(text=text)
            yield row


def json_row(
    line: str, place: str, text_field: str | None, label_field: str | None, *, label_name: str
) -> Row:
    """The row of one JSON object."""
    return _json_row(line, place, _Fields(text_field, label_field, label_name))[0]


def _json_row(line: str, place: str, fields: _Fields) -> tuple[Row, str]:
    """The row of one JSON object, and the key with its text."""
    record, text = _record(line, place), fields.text
    if text is None or text not in record:
        strings = [key for key, value in record.items() if isinstance(value, str)]
        text = _chosen_field(place, list(record), strings, fields)
    _label_column(place, list(record), fields)
    label = None if fields.label is None else record[fields.label]
    return Row(_json_text(record[text], text, place), label, place), text


def _record(line: str, place: str) -> dict[str, Any]:
    record = parse_json(line, place=place, remedy="write one JSON object a line")
    if not isinstance(record, dict):
        raise InputError(
            f"{place}: a JSON {type(record).__name__}, not an object; "
            'write one JSON object a line, such as {"text": "..."}'
        )
    return record


def _json_text(value: Any, field: str, place: str) -> str:
    if not isinstance(value, str):
        nested = isinstance(value, list | dict)
        found = f"a JSON {type(value).__name__}" if nested else json.dumps(value)[:SHOWN]
        raise InputError(
            f"{place}: {quoted(field)} is {found}, not a string; "
            "pass the name of a text column as `text_field`"
        )
    remedy = "remove the document or repair its \\u escapes"
    check_text(value, what=f"{place}: {quoted(field)}", remedy=remedy)
    return value


def _chosen_field(place: str, columns: list[str], strings: list[str], fields: _Fields) -> str:
    if fields.text is not None:
        if fields.text in columns:
            return fields.text
        raise InputError(
            f"{place}: no column {quoted(fields.text)}; pass one of {listed(columns)} as "
            "`text_field`"
        )
    for usual in _USUAL_FIELDS:
        if usual in columns:
            return usual
    texts = [name for name in strings if name != fields.label]
    if len(texts) == 1:
        return texts[0]
    raise InputError(
        f"{place}: it is not clear which column holds the text; "
        f"pass one of {listed(columns)} as `text_field`"
    )


def _label_column(place: str, columns: list[str], fields: _Fields) -> int | None:
    if fields.label is None:
        return None
    if fields.label not in columns:
        raise InputError(
            f"{place}: no column {quoted(fields.label)}; pass one of {listed(columns)} as "
            f"`{fields.label_name}`"
        )
    return columns.index(fields.label)


def _number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
