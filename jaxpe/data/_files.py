"""Text from files: .txt, .tsv, .csv and .jsonl, plain or gzipped, and standard input."""

import contextlib
import csv
import functools
import gzip
import hashlib
import io
import json
import os
import stat
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import parse_json
from jaxpe._core.memory import check_bytes
from jaxpe.data._types import Progress, no_progress

STANDARD_INPUT = "-"
TABLES = (".tsv", ".csv", ".jsonl")
ENDINGS = (".txt", *TABLES)
# Of a document, with the rest of its line; the longest novels have a tenth of it.
LARGEST_TEXT = 2**26
_USUAL_FIELDS = ("text", "sentence")
_BUFFER = 2**20
_STEP = 2**28  # bytes of documents that are taken into memory between looks at what is left
_ROW_BYTES = 200  # of a row beside its text
_LIMIT = threading.RLock()  # on the size of fields, which is of the module csv
_SHOWN = 40  # characters of a value, or columns, that an error message quotes

_T = TypeVar("_T")


Content = hashlib.blake2b  # of the bytes of a file


class _Fields(NamedTuple):
    """The columns asked for, and what errors call the argument for the second."""

    text: str | None
    label: str | None
    label_name: str


class Row(NamedTuple):
    """A document of a file: its text, its label as it stands there, and where that is."""

    text: str
    label: Any  # None where no labels were asked for
    place: str


def text_ending(path: str) -> str | None:
    """The text format that a file name announces, `.gz` aside; None when it is no such format."""
    suffix = Path(path.lower().removesuffix(".gz")).suffix
    return suffix if suffix in ENDINGS else None


def read_documents(path: str, *, text_field: str | None, progress: Progress) -> list[str]:
    """The texts of a file (or of standard input, `"-"`), without the blank ones."""
    return [row.text for row in read_rows(path, text_field=text_field, progress=progress)]


def read_rows(
    path: str, *, text_field: str | None, label_field: str | None = None, progress: Progress
) -> list[Row]:
    """The rows of a file whose text is not blank; with labels where the file has columns."""
    rows = iter_rows(path, text_field=text_field, label_field=label_field, progress=progress)
    return held(rows, lambda row: sys.getsizeof(row.text) + _ROW_BYTES, what=path)


def held(items: Iterable[_T], size: Callable[[_T], int], *, what: str) -> list[_T]:
    """Items of outside as a list, refused where no room is left to make tokens of them."""
    kept, taken, looked = [], 0, 0
    for item in items:
        kept.append(item)
        taken += size(item)
        if taken > looked:
            remedy = "pass fewer documents, or count them with jaxpe count, which streams them"
            free = taken + 2 * _STEP
            check_bytes(
                free, what=f"{what}, of which {taken / 1e9:.1f} GB are read,", remedy=remedy
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
    """The same, one by one.

    Args:
        path, text_field, label_field, progress: as in `read_rows`.
        label_name: what errors call the argument.
        content: is given the bytes of the file, all of them once the last row is read.
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
    lines = text_lines(path, progress=no_progress)
    if text_ending(path) == ".jsonl":
        records = (_record(line, where(path, n)) for n, line in enumerate(lines, 1) if line.strip())
        return [*next(records, {})]
    return next(_cells_of(lines, path), (0, []))[1]


def text_lines(path: str, *, progress: Progress, content: Content | None = None) -> Iterator[str]:
    """Lines of a UTF-8 file with their ends, without the byte order mark."""
    name = "standard input" if path == STANDARD_INPUT else name_of(path)
    lines = progress(_byte_lines(path, content), f"Reading {name}")
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(path, number, error) from error


def decoded(content: bytes, path: str) -> str:
    """The content of a UTF-8 file, without the byte order mark."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + error.object.count(b"\n", 0, error.start)
        raise _not_utf8(path, line, error) from error


def _not_utf8(path: str, line: int, error: UnicodeDecodeError) -> InputError:
    return InputError(
        f"{where(path, line)}: byte 0x{error.object[error.start]:02x} is not UTF-8; "
        "save the text as UTF-8 (from Latin-1: iconv -f LATIN1 -t UTF-8)"
    )


def where(path: str, line: int) -> str:
    """A place in a file, as error messages name it."""
    return f"{'standard input' if path == STANDARD_INPUT else path}, line {line}"


def open_regular(path: str | os.PathLike[str]) -> io.FileIO:
    """Open a file for reading; a pipe or a device is refused, not waited for.

    Raises:
        InputError: not a regular file.
        OSError: none there, or no permission.
    """
    # Without O_NONBLOCK a pipe waits for its writer, for ever where there is none.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(
            f"{path} is not a regular file; save what it gives in one, or pipe lines of text into "
            f"standard input and pass {STANDARD_INPUT!r}"
        )
    return io.FileIO(handle)


def _byte_lines(path: str, content: Content | None) -> Iterator[bytes]:
    try:
        with _opened(path, content) as stream:
            lines = iter(functools.partial(stream.readline, LARGEST_TEXT + 1), b"")
            for number, line in enumerate(lines, start=1):
                if len(line) > LARGEST_TEXT:
                    raise InputError(
                        f"{where(path, number)} has more than {LARGEST_TEXT:,} bytes, the most "
                        "that a line may have; write one document a line, and cut longer ones"
                    )
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{path} cannot be read: {error}; check that the file is whole and readable"
        ) from error


@contextlib.contextmanager
def _opened(path: str, content: Content | None) -> Iterator[Any]:
    if path == STANDARD_INPUT:
        stream = getattr(sys.stdin, "buffer", None)  # sys.stdin is None where it came closed
        if stream is None or stream.closed:
            raise InputError("standard input is closed; pipe lines of text into it, or pass a file")
        yield stream
        return
    with open_regular(path) as file:
        raw: io.RawIOBase = file if content is None else _Hashed(file, content)
        stream = io.BufferedReader(raw, _BUFFER)
        if not path.lower().endswith(".gz"):
            yield stream
        else:
            with gzip.GzipFile(fileobj=stream) as unpacked:
                yield io.BufferedReader(unpacked, _BUFFER)


class _Hashed(io.RawIOBase):
    """A file whose bytes go into a hash on their way."""

    def __init__(self, file: io.FileIO, content: Content):
        self._file, self._content = file, content

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._file.readinto(buffer)
        self._content.update(memoryview(buffer)[:size])
        return size


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
        raise InputError(
            f"{place}: {quoted(field)} is {_json_value(value)}, not a string; "
            "pass the name of a text column as text_field"
        )
    if not is_text(value):
        raise InputError(
            f"{place}: {quoted(field)} holds half of a surrogate pair, which is no character; "
            "remove the document or repair its \\u escapes"
        )
    return value


def _chosen_field(place: str, columns: list[str], strings: list[str], fields: _Fields) -> str:
    if fields.text is not None:
        if fields.text in columns:
            return fields.text
        raise InputError(
            f"{place}: no column {quoted(fields.text)}; pass one of {listed(columns)} as text_field"
        )
    for usual in _USUAL_FIELDS:
        if usual in columns:
            return usual
    texts = [name for name in strings if name != fields.label]
    if len(texts) == 1:
        return texts[0]
    raise InputError(
        f"{place}: it is not clear which column holds the text; "
        f"pass one of {listed(columns)} as text_field"
    )


def _label_column(place: str, columns: list[str], fields: _Fields) -> int | None:
    if fields.label is None:
        return None
    if fields.label not in columns:
        raise InputError(
            f"{place}: no column {quoted(fields.label)}; pass one of {listed(columns)} as "
            f"{fields.label_name}"
        )
    return columns.index(fields.label)


def is_text(text: str) -> bool:
    """Whether a text can be written as UTF-8: no half of a surrogate pair is in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def name_of(path: str) -> str:
    """The last part of a path, with a mark for what is no UTF-8 in it."""
    return os.fsencode(Path(path).name).decode(errors="replace")


def quoted(text: str) -> str:
    """Text as error messages quote it: on one line, and not all of a long one."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."


def _json_value(value: Any) -> str:
    nested = isinstance(value, list | dict)
    return f"a JSON {type(value).__name__}" if nested else json.dumps(value)[:_SHOWN]


def listed(columns: Sequence[str]) -> str:
    """Names as error messages list them, the first ones of many."""
    more = ", ..." if len(columns) > _SHOWN else ""
    return ", ".join(map(quoted, columns[:_SHOWN])) + more or "(no columns)"


def _number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
