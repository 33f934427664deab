"""Records of .csv and .tsv: the delimiter, the quoting and the header."""

import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jaxpe._core.errors import InputError
from jaxpe._core.options import Choice
from jaxpe._core.progress import SILENT, Progress
from jaxpe.data.formats.columns import USUAL, ReadLog, Record, is_number
from jaxpe.data.formats.files import LARGEST_TEXT, holds_byte, listed, quoted, text_lines, where

_ROWS_SEEN = 1000  # rows that tell whether blanks follow the delimiters
_LONGEST_NAME = 30  # characters of the name of a column, where none has a usual one
_QUOTED_FIELD = re.compile(r'"[^"]*+(?:""[^"]*+)*+"')
_FIELD = rf'(?:{_QUOTED_FIELD.pattern}|[^"\t]*+)'
_ROW = re.compile(rf"{_FIELD}(?:\t{_FIELD})*+")


class _Dialect(NamedTuple):
    """Format of a table.

    - `delimiter`: character between two fields.
    - `is_quoted`: whether quotation marks quote fields; otherwise they are text.
    - `choices`: the reason of `is_quoted`, for a .tsv with quotation marks.
    - `skipped`: number of lines above the header.
    - `skips_blanks`: whether blanks follow the delimiters.
    """

    delimiter: str
    is_quoted: bool = True
    choices: tuple[Choice, ...] = ()
    skipped: int = 0
    skips_blanks: bool = False


def csv_records(
    path: str, columns: Sequence[str] | None, log: ReadLog, progress: Progress
) -> Iterator[Record]:
    """Read the rows of a table with a header.

    Raises:
        InputError: rows of other lengths than the header, no header, several, or two columns of one
            of the names.
    """
    dialect = _dialect(path)
    for choice in dialect.choices:
        log.choose(choice)
    cells = _cells(path, dialect, progress)
    header = [name.strip() for name in next(cells, (0, []))[1]]
    names = sorted(header)
    for number, (line, row) in enumerate(cells):
        if number == 0:  # an undecodable first row is told first
            _check_header(path, header, columns or ())
        location = where(path, line)
        if len(row) != len(header):
            marks = "".join(f"; {c.setting} are {c.value}: {c.why}" for c in dialect.choices)
            raise InputError(
                f"{location}: {len(row)} fields, but the header names {len(header)}: "
                f"{listed(header)}{marks}; give every row the same columns, and put nothing above "
                "the header"
            )
        if len(row) > 1 and row[0] in names and sorted(map(str.strip, row)) == names:
            raise InputError(
                f"{location} is a header again, as in files put together; remove it: {listed(row)}"
            )
        yield location, dict(zip(header, row, strict=True))


def _check_header(path: str, header: list[str], columns: Sequence[str]) -> None:
    """Refuse two columns of one name, and a first line that is a comment or a document."""
    for name in columns:
        if (number := header.count(name)) > 1:
            raise InputError(
                f"{path}: {number} columns are named {quoted(name)}; rename all but one"
            )
    from_pandas = header == [*map(str, range(len(header)))]  # columns without names
    if from_pandas or not {*columns, *USUAL["text"]}.isdisjoint(header):
        return
    for name in header:
        if is_number(name) or len(name) > _LONGEST_NAME or name.startswith("# "):
            raise InputError(
                f"{where(path, 1)} does not seem to name columns: {listed(header)}; begin the file "
                "with a line such as text,label, or pass one of these names as `text_field`"
            )


def _dialect(path: str) -> _Dialect:
    """Format of a table, by its header and, of a .tsv, by all its quotation marks."""
    lines = ((n, x) for n, x in enumerate(text_lines(path, SILENT), start=1) if x.strip())
    skipped, (start, header) = 0, next(lines, (1, ""))
    if declared := re.fullmatch(r'"?sep=(.)"?\s*', header):
        skipped, header = start, next(lines, (1, ""))[1]
    names = _QUOTED_FIELD.sub("", header)
    usual = "\t" if re.search(r"\.tsv(\.\w+)?$", path.lower()) else ","
    delimiter = usual if usual in names else max(usual + ";\t,|", key=names.count)
    delimiter = declared[1] if declared else delimiter
    # Quoted fields behind blanks, in the header or the first rows.
    quoted_late = re.compile(rf'{re.escape(delimiter)} +"[^"]*"\s*({re.escape(delimiter)}|$)')
    first = (line for _, line in itertools.islice(lines, _ROWS_SEEN))
    skips_blanks = f"{delimiter} " in names or any(map(quoted_late.search, first))
    if usual == "\t" == delimiter and not declared:
        return _tab_dialect(path, names.count("\t"))._replace(skips_blanks=skips_blanks)
    return _Dialect(delimiter, skipped=skipped, skips_blanks=skips_blanks)


def _tab_dialect(path: str, tabs: int) -> _Dialect:
    """Format of a .tsv: whether its quotation marks quote fields or are text, as in GLUE.

    They quote fields if every mark does, and if a field needs them or the header has them.
    """
    if not holds_byte(path, b'"'):
        return _Dialect("\t")
    how = "rename the file to .csv if they quote fields, write a .jsonl if they are text"
    lines: list[str] = []  # of one row

    def row_lines() -> Iterator[str]:
        for line in text_lines(path, SILENT):
            if lines and tabs and lines[0].count("\t") == tabs == line.count("\t"):
                raise csv.Error("lines with all columns are rows, even between two lone marks")
            lines.append(line)
            yield line

    reader = _csv_reader(row_lines(), delimiter="\t", strict=True)
    is_needed, first, number, is_header = False, 0, 1, True
    try:
        for row in reader:
            if any('"' in line for line in lines):
                if not _ROW.fullmatch("".join(lines).rstrip("\r\n")):
                    raise csv.Error("a mark within a field quotes nothing")
                first = first or number
                is_needed |= is_header or any(re.search(r'["\t\n]', cell) for cell in row)
            number, is_header = reader.line_num + 1, is_header and not row
            lines.clear()
    except csv.Error:
        why = f"line {number:,} has one that quotes no field"
        return _Dialect("\t", False, (Choice("quotation marks", "text", why, how),))
    why = f"the field in line {first:,} does not need them"
    if is_needed:
        why = "the header has them, or a field with a tab, a line end or a mark"
    value = "quoting" if is_needed else "text"
    return _Dialect("\t", is_needed, (Choice("quotation marks", value, why, how),))


def _cells(path: str, dialect: _Dialect, progress: Progress) -> Iterator[tuple[int, list[str]]]:
    """Rows from the header on as line number and fields, without empty ones."""
    options: dict[str, Any] = {"strict": True} if dialect.is_quoted else {"quoting": csv.QUOTE_NONE}
    options |= {"delimiter": dialect.delimiter, "skipinitialspace": dialect.skips_blanks}
    reader = _csv_reader(text_lines(path, progress), **options)
    try:
        for row in reader:
            if row and reader.line_num > dialect.skipped:
                yield reader.line_num, row
    except csv.Error as error:
        raise InputError(
            f"{where(path, reader.line_num)}: {error}; quote as CSV, with LF, or use .jsonl"
        ) from error


def _csv_reader(lines: Iterator[str], **options: Any) -> Any:
    # The limit is global to the process; csv's own default is 128 kB.
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST_TEXT))
    return csv.reader(lines, **options)
