"""Rows of tables of text: the delimiter, the quoting and the header of .csv and .tsv."""

import csv
import itertools
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from jaxpe._core.errors import InputError
from jaxpe._core.options import Choice
from jaxpe._core.progress import SILENT
from jaxpe.data.formats.columns import (
    USUAL,
    Fields,
    Found,
    Row,
    label_column,
    refuse_repeated,
    text_column,
)
from jaxpe.data.formats.files import LARGEST_TEXT, listed, text_ending, text_lines, where

_LIMIT = threading.RLock()  # on the size of fields, which is of the module csv
_QUOTED = r'"[^"]*+(?:""[^"]*+)*+'  # a quoted field without the mark at its end
_FIELD = rf'(?:{_QUOTED}"|[^"\t]*+)'
_ROW = re.compile(rf"{_FIELD}(?:\t{_FIELD})*+")
_OPEN = re.compile(rf"(?:{_FIELD}\t)*+{_QUOTED}")  # a line whose last field goes on in the next
_MARKED = re.compile(rf'(?<![^\t])({_QUOTED}")')
_LONGEST_NAME = 30  # characters of the name of a column, where none has a usual one
_HEADER, _EVERY_ROW = "the header has them", "every row has them"
_COMMAS = "exactly the fields with commas have them"  # as Excel writes
_MANY = 10  # lone marks for one that quotes, where marks are text, as in GLUE


class _Dialect(NamedTuple):
    """Format of a table.

    - `delimiter`: character between two fields.
    - `is_quoted`: whether quotation marks around fields belong to the format, not to the text.
    - `choices`: whether they do and why, where a .tsv has any.
    - `skipped`: lines above the header.
    """

    delimiter: str
    is_quoted: bool = True
    choices: tuple[Choice, ...] = ()
    skipped: int = 0


def csv_names(path: str) -> list[str]:
    """The columns of a table, of its header; [] where none is."""
    return next(_cells(text_lines(path, progress=SILENT), path, _dialect(path)), (0, []))[1]


def csv_rows(lines: Iterable[str], path: str, fields: Fields, found: Found) -> Iterator[Row]:
    """The rows under a header.

    Raises:
        InputError: no such columns, rows of other lengths than the header, no header, or several.
    """
    dialect = _dialect(path)
    found.choices += dialect.choices
    cells = _cells(lines, path, dialect)
    _, header = next(cells, (0, []))
    text, label, names = None, None, sorted(header)
    for line, row in cells:
        place = where(path, line)
        if len(row) > 1 and row[0] in names and sorted(row) == names:
            raise InputError(
                f"{place} is a header again, as in files put together; remove it: {listed(row)}"
            )
        if len(row) != len(header):
            marks = "".join(f"; {c.setting} are {c.value}: {c.why}" for c in dialect.choices)
            raise InputError(
                f"{place}: {len(row)} fields, but the header names {len(header)}: "
                f"{listed(header)}{marks}; give every row the same columns, and put nothing above "
                "the header"
            )
        if text is None:
            text, label = _columns(path, header, row, fields, found)
        yield Row(row[text], None if label is None else row[label], place)


def _dialect(path: str) -> _Dialect:
    """The format of a table, by its header, and of .tsv by all quotation marks in the file.

    Fields of .csv are quoted. Fields of .tsv are where each mark is one that a writer of CSV
    makes, and there is evidence of such a writer: lone marks are text, as in GLUE.
    """
    numbered = enumerate(text_lines(path, progress=SILENT), start=1)
    start, header = next(((n, line) for n, line in numbered if line.strip()), (1, ""))
    if declared := re.fullmatch(r'"?sep=(.)"?\s*', header):
        return _Dialect(declared[1], skipped=start)
    usual = "\t" if text_ending(path) == ".tsv" else ","
    names = re.sub(rf'{_QUOTED}"', "", header)
    delimiter = usual if usual in names else max(usual + ";\t,|", key=names.count)
    if usual == "\t" == delimiter:
        return _tab_dialect(itertools.chain([(start, header)], numbered), names.count("\t"), path)
    return _Dialect(delimiter)


def _tab_dialect(numbered: Iterator[tuple[int, str]], tabs: int, path: str) -> _Dialect:
    """The format of a table by tabs, from its header and all lines below it with their numbers."""
    likely, proofs = {_EVERY_ROW, _COMMAS}, Counter[str]()  # reasons for quoting
    lone, first = 0, 0  # rows with a mark that quotes no field, and the line of the first
    for index, (number, line) in enumerate(numbered):
        if '"' not in line:
            likely.discard(_EVERY_ROW if index and line.strip() else "")
            likely.discard(_COMMAS if "," in line else "")
            continue
        pieces = [line, *(_continued(numbered) if _OPEN.fullmatch(line) else ())]
        row = "".join(pieces).rstrip("\r\n")
        if not _ROW.fullmatch(row):
            lone, first = lone + 1, first or number
            continue
        quoted, unquoted = _MARKED.findall(row), _MARKED.sub("", row)
        if "," in unquoted or not all("," in field for field in quoted):
            likely.discard(_COMMAS)
        cut = any(piece.count("\t") != tabs for piece in pieces) or (len(pieces) > 1 and not tabs)
        proofs["tabs or line ends stand between them"] += cut
        proofs["those within are doubled"] += any('""' in field[1:-1] for field in quoted)
        proofs[_HEADER] += index == 0
    if not (proofs or lone):
        return _Dialect("\t")
    why = f"line {first:,} has one that quotes no field"
    if lone and (proofs[_HEADER] or _MANY * proofs.total() > lone):
        raise InputError(
            f"{path}: quotation marks quote fields, but {why}; double those within fields (without "
            "backslashes), or write a .jsonl if all are text"
        )
    reasons = () if lone else sorted({*likely, *(+proofs)})
    if not lone:
        why = " and ".join(reasons) or "some fields have them, without need"
    how = "rename the file to .csv if they quote fields, write a .jsonl if they are text"
    choice = Choice("quotation marks", "quoting" if reasons else "text", why, how)
    return _Dialect("\t", bool(reasons), (choice,))


def _continued(numbered: Iterator[tuple[int, str]]) -> Iterator[str]:
    """The lines up to the end of a quoted field, no more than a row may have."""
    size = 0
    for _, line in numbered:
        yield line
        size += len(line)
        if line.count('"') % 2 or size > LARGEST_TEXT:
            return


def _columns(
    path: str, header: list[str], row: list[str], fields: Fields, found: Found
) -> tuple[int, int | None]:
    """The places of text and label, where the first row has `row`."""
    if not {fields.text, fields.label, *USUAL}.intersection(header):
        _check_names(path, header)
    label = label_column(path, header, fields)
    strings = [name for name, cell in zip(header, row, strict=True) if not _number(cell)]
    chosen = text_column(path, header, strings, fields, found)
    refuse_repeated(path, header, (chosen, fields.label))
    return header.index(chosen), label


def _check_names(path: str, header: list[str]) -> None:
    """Refuse a first line that is a comment or a document; raises `InputError`."""
    numbered = header == [*map(str, range(len(header)))]  # as pandas names columns without names
    for name in header:
        is_number = _number(name) and not numbered
        if is_number or len(name) > _LONGEST_NAME or name.startswith("# "):
            raise InputError(
                f"{where(path, 1)} does not seem to name columns: {listed(header)}; begin the file "
                "with a line such as text,label, or pass one of these names as `text_field`"
            )


def _cells(lines: Iterable[str], path: str, dialect: _Dialect) -> Iterator[tuple[int, list[str]]]:
    """Rows from the header on, cut into fields, each with its line; empty ones are left out."""
    options: dict[str, Any] = {"strict": True} if dialect.is_quoted else {"quoting": csv.QUOTE_NONE}
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

    reader = csv.reader(bounded(), delimiter=dialect.delimiter, **options)
    while True:
        taken = 0
        try:
            row = _next_row(reader)
        except csv.Error as error:
            raise InputError(
                f"{where(path, reader.line_num)}: {error}; quote as CSV, with LF, or use .jsonl"
            ) from error
        if row is None:
            return
        if row and reader.line_num > dialect.skipped:
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
