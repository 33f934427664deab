"""Rows of .csv and .tsv: the delimiter, the quoting and the header."""

import csv
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from jaxpe._core.errors import InputError
from jaxpe._core.options import Choice
from jaxpe._core.progress import SILENT, Progress
from jaxpe.data.formats.columns import (
    USUAL,
    Fields,
    ReadLog,
    Row,
    label_column,
    text_column,
)
from jaxpe.data.formats.files import LARGEST_TEXT, listed, quoted, text_lines, where

_LONGEST_NAME = 30  # characters of the name of a column, where none has a usual one
_OPEN_FIELD = r'"[^"]*+(?:""[^"]*+)*+'
_QUOTED_FIELD = re.compile(rf'{_OPEN_FIELD}"')
_FIELD = rf'(?:{_OPEN_FIELD}"|[^"\t]*+)'
_ROW = re.compile(rf"{_FIELD}(?:\t{_FIELD})*+")
_OPEN_ROW = re.compile(rf"(?:{_FIELD}\t)*+{_OPEN_FIELD}")  # its last field goes on in the next line


class _Dialect(NamedTuple):
    """Format of a table.

    - `delimiter`: character between two fields.
    - `is_quoted`: whether quotation marks quote fields; otherwise they are text.
    - `choices`: the reason of `is_quoted`, for a .tsv with quotation marks.
    - `skipped`: number of lines above the header.
    """

    delimiter: str
    is_quoted: bool = True
    choices: tuple[Choice, ...] = ()
    skipped: int = 0


def csv_names(path: str) -> list[str]:
    """Names of the columns of a table; [] for an empty file."""
    return next(_cells(path, _dialect(path), SILENT), (0, []))[1]


def csv_rows(path: str, fields: Fields, log: ReadLog, progress: Progress) -> Iterator[Row]:
    """Read the rows of a table with a header.

    Raises:
        InputError: no such columns, rows of other lengths than the header, no header, or several.
    """
    dialect = _dialect(path)
    log.choices += dialect.choices
    cells = _cells(path, dialect, progress)
    _, header = next(cells, (0, []))
    text, label, names = None, None, sorted(header)
    for line, row in cells:
        location = where(path, line)
        if len(row) > 1 and row[0] in names and sorted(row) == names:
            raise InputError(
                f"{location} is a header again, as in files put together; remove it: {listed(row)}"
            )
        if len(row) != len(header):
            marks = "".join(f"; {c.setting} are {c.value}: {c.why}" for c in dialect.choices)
            raise InputError(
                f"{location}: {len(row)} fields, but the header names {len(header)}: "
                f"{listed(header)}{marks}; give every row the same columns, and put nothing above "
                "the header"
            )
        if text is None:
            text, label = _columns(path, header, row, fields, log)
        yield Row(row[text], None if label is None else row[label], location)


def _dialect(path: str) -> _Dialect:
    """Format of a table, by its header and, of a .tsv, by all its quotation marks."""
    numbered = enumerate(text_lines(path, SILENT), start=1)
    start, header = next(((n, line) for n, line in numbered if line.strip()), (1, ""))
    if declared := re.fullmatch(r'"?sep=(.)"?\s*', header):
        return _Dialect(declared[1], skipped=start)
    usual = "\t" if re.search(r"\.tsv(\.\w+)?$", path.lower()) else ","
    names = _QUOTED_FIELD.sub("", header)
    delimiter = usual if usual in names else max(usual + ";\t,|", key=names.count)
    if usual == "\t" == delimiter:
        return _tab_dialect(path, names.count("\t"))
    return _Dialect(delimiter)


def _tab_dialect(path: str, tabs: int) -> _Dialect:
    """Format of a .tsv: whether its quotation marks quote fields or are text, as in GLUE.

    They quote fields if every mark does, and if a field needs them or the header has them.
    """
    lines = enumerate(text_lines(path, SILENT), start=1)
    evidence, first = set[str](), 0
    how = "rename the file to .csv if they quote fields, write a .jsonl if they are text"
    is_header = True
    for number, line in lines:
        if '"' in line:
            pieces = [line]
            while _OPEN_ROW.fullmatch("".join(pieces)) and (more := next(lines, None)):
                pieces.append(more[1])
            row = "".join(pieces).rstrip("\r\n")
            # A line with all columns is a row of its own, even between two lone marks.
            is_cut = tabs and any(piece.count("\t") == tabs for piece in pieces[1:])
            if is_cut or not _ROW.fullmatch(row):
                why = f"line {number:,} has one that quotes no field"
                return _Dialect("\t", False, (Choice("quotation marks", "text", why, how),))
            first = first or number
            if is_header:
                evidence.add("the header has them")
            if any(re.search(r'""|[\t\n]', field[1:-1]) for field in _QUOTED_FIELD.findall(row)):
                evidence.add("a field with a tab, a line end or a mark has them")
        is_header = is_header and not line.strip()
    if not first:
        return _Dialect("\t")
    why = " and ".join(sorted(evidence)) or f"the field in line {first:,} does not need them"
    value = "quoting" if evidence else "text"
    return _Dialect("\t", bool(evidence), (Choice("quotation marks", value, why, how),))


def _columns(
    path: str, header: list[str], row: list[str], fields: Fields, log: ReadLog
) -> tuple[int, int | None]:
    """Indices of the text and label columns, from the header and the first row."""
    if not {fields.text, fields.label, *USUAL}.intersection(header):
        _check_names(path, header)
    label = label_column(path, header, fields)
    strings = [name for name, cell in zip(header, row, strict=True) if not _is_number(cell)]
    chosen = text_column(path, header, strings, fields, log)
    for name in filter(None, (chosen, fields.label)):
        if (number := header.count(name)) > 1:
            raise InputError(
                f"{path}: {number} columns are named {quoted(name)}; rename all but one"
            )
    return header.index(chosen), label


def _check_names(path: str, header: list[str]) -> None:
    """Refuse a first line that is a comment or a document; raises `InputError`."""
    from_pandas = header == [*map(str, range(len(header)))]  # columns without names
    for name in header:
        is_number = _is_number(name) and not from_pandas
        if is_number or len(name) > _LONGEST_NAME or name.startswith("# "):
            raise InputError(
                f"{where(path, 1)} does not seem to name columns: {listed(header)}; begin the file "
                "with a line such as text,label, or pass one of these names as `text_field`"
            )


def _cells(path: str, dialect: _Dialect, progress: Progress) -> Iterator[tuple[int, list[str]]]:
    """Rows from the header on as line number and fields, without empty ones."""
    options: dict[str, Any] = {"strict": True} if dialect.is_quoted else {"quoting": csv.QUOTE_NONE}
    # The limit is global to the process; csv's own default is 128 kB.
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST_TEXT))
    reader = csv.reader(text_lines(path, progress), delimiter=dialect.delimiter, **options)
    try:
        for row in reader:
            if row and reader.line_num > dialect.skipped:
                yield reader.line_num, row
    except csv.Error as error:
        raise InputError(
            f"{where(path, reader.line_num)}: {error}; quote as CSV, with LF, or use .jsonl"
        ) from error


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
