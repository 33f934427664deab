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

_QUOTING = "quoting"  # value of a choice
_ROWS_SEEN = 1000  # rows that tell whether blanks follow the delimiters
_LONGEST_NAME = 30  # characters of the name of a column, where none has a usual one
_QUOTED_FIELD = re.compile(r'"[^"]*+(?:""[^"]*+)*+"')
_FIELD = rf'(?:{_QUOTED_FIELD.pattern}|[^"\t]*+)'
_ROW = re.compile(rf"{_FIELD}(?:\t{_FIELD})*+")


class _Dialect(NamedTuple):
    """Format of a table.

    - `delimiter`: character between two fields.
    - `is_declared`: whether a line above the header names the delimiter.
    - `skips_blanks`: whether blanks follow the delimiters.
    - `is_quoted`: whether quotation marks quote fields; otherwise they are text.
    - `choice`: the reason of `is_quoted`, for a .tsv with quotation marks.
    """

    delimiter: str
    is_declared: bool
    skips_blanks: bool
    is_quoted: bool = True
    choice: Choice | None = None


def csv_records(
    path: str, columns: Sequence[str] | None, log: ReadLog, progress: Progress
) -> Iterator[Record]:
    """Read the rows of a table with a header.

    Raises:
        InputError: rows of other lengths than the header, no header, several, or two columns of one
            of the names.
    """
    dialect = _dialect(path)
    if choice := dialect.choice:
        log.choose(choice)
    cells = _cells(path, dialect, progress)
    if dialect.is_declared:
        next(cells)
    header = [name.strip() for name in next(cells, (0, []))[1]]
    names = sorted(header)
    for number, (line, row) in enumerate(cells):
        if number == 0:  # an undecodable first row is told first
            _check_header(path, header, columns or ())
        location = where(path, line)
        if len(row) != len(header):
            marks = f"; {choice.setting} are {choice.value}: {choice.why}" if choice else ""
            raise InputError(
                f"{location}: {len(row)} fields, but the header names {len(header)}: "
                f"{listed(header)}{marks}; make them equal, and put nothing above the header"
            )
        if row[0] in names and sorted(map(str.strip, row)) == names:
            raise InputError(f"{location} is a header again; remove it: {listed(row)}")
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
    if any(is_number(x) or len(x) > _LONGEST_NAME or x.startswith("# ") for x in header):
        raise InputError(
            f"{where(path, 1)} does not seem to name columns: {listed(header)}; begin the file "
            "with a line such as text,label"
        )


def _dialect(path: str) -> _Dialect:
    """Format of a table, by its header and, of a .tsv, by all its quotation marks."""
    lines = filter(str.strip, text_lines(path, SILENT))
    header = next(lines, "")
    if declared := re.fullmatch(r'"?sep=(.)"?\s*', header):
        header = next(lines, "")
    names = _QUOTED_FIELD.sub("", header)
    usual = "\t" if re.search(r"\.tsv(\.\w+)?$", path.lower()) else ","
    delimiter = usual if usual in names else max(usual + ";\t,|", key=names.count)
    delimiter = declared[1] if declared else delimiter
    # Quoted fields behind blanks, in the header or the first rows.
    quoted_late = re.compile(rf'{re.escape(delimiter)} +"[^"]*"\s*({re.escape(delimiter)}|$)')
    first = itertools.islice(lines, _ROWS_SEEN)
    skips_blanks = f"{delimiter} " in names or any(map(quoted_late.search, first))
    dialect = _Dialect(delimiter, declared is not None, skips_blanks)
    if usual == "\t" == delimiter and not declared and holds_byte(path, b'"'):
        choice = _tab_choice(path, header)
        return dialect._replace(is_quoted=choice.value == _QUOTING, choice=choice)
    return dialect


def _tab_choice(path: str, header: str) -> Choice:
    """Whether the quotation marks of a .tsv quote fields or are text, as in GLUE.

    They quote fields if every mark does, and if a field needs them or the header has them.
    """
    setting, tabs = "quotation marks", header.count("\t")
    how = "rename the file to .csv if they quote fields, write a .jsonl if they are text"
    first, is_needed = 0, '"' in header
    for number, lines in _marked_rows(path):
        row = "".join(lines).rstrip("\r\n")
        # Lines with all columns are rows, even between two lone marks.
        is_several = tabs > 0 and [line.count("\t") for line in lines].count(tabs) > 1
        if is_several or not _ROW.fullmatch(row):
            return Choice(setting, "text", f"line {number:,} has one that quotes no field", how)
        first = first or number
        fields = _QUOTED_FIELD.findall(row)
        is_needed = is_needed or any(re.search(r'["\t\n]', field[1:-1]) for field in fields)
    if is_needed:
        why = "the header has them, or a field with a tab, a line end or a mark"
        return Choice(setting, _QUOTING, why, how)
    return Choice(setting, "text", f"the field in line {first:,} does not need them", how)


def _marked_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """First line numbers and lines of rows with quotation marks, an even number in each."""
    lines: list[str] = []
    marks = size = number = 0
    for number, line in enumerate(text_lines(path, SILENT), start=1):
        if lines or '"' in line:
            lines.append(line)
            marks, size = marks + line.count('"'), size + len(line)
            if marks % 2 == 0 or size > LARGEST_TEXT:
                yield number - len(lines) + 1, lines
                lines, marks, size = [], 0, 0
    if lines:
        yield number - len(lines) + 1, lines


def _cells(path: str, dialect: _Dialect, progress: Progress) -> Iterator[tuple[int, list[str]]]:
    """Rows as line number and fields, without empty ones."""
    options: dict[str, Any] = {"strict": True} if dialect.is_quoted else {"quoting": csv.QUOTE_NONE}
    options |= {"delimiter": dialect.delimiter, "skipinitialspace": dialect.skips_blanks}
    # The limit is global to the process; csv's own default is 128 kB.
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST_TEXT))
    reader = csv.reader(text_lines(path, progress), **options)
    try:
        yield from ((reader.line_num, row) for row in reader if row)
    except csv.Error as error:
        raise InputError(
            f"{where(path, reader.line_num)}: {error}; quote as CSV, with LF, or use .jsonl"
        ) from error
