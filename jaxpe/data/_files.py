"""Text from files: .txt, .tsv, .csv and .jsonl, plain or gzipped, and standard input."""

import contextlib
import csv
import gzip
import json
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jaxpe._errors import InputError
from jaxpe.data._types import Progress

STANDARD_INPUT = "-"
TABLES = (".tsv", ".csv", ".jsonl")
ENDINGS = (".txt", *TABLES)
_USUAL_FIELDS = ("text", "sentence")
# C long on every platform; sys.maxsize overflows it on Windows.
_LARGEST_FIELD = 2**31 - 1


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
    return list(iter_rows(path, text_field=text_field, label_field=label_field, progress=progress))


def iter_rows(
    path: str,
    *,
    text_field: str | None,
    label_field: str | None = None,
    label_name: str = "label_field",
    progress: Progress,
) -> Iterator[Row]:
    """The same, one by one; `label_name` is what errors call the argument."""
    lines = text_lines(path, progress=progress)
    fields = _Fields(text_field, label_field, label_name)
    match text_ending(path):
        case ".jsonl":
            rows = _jsonl(lines, path, fields)
        case ".csv":
            rows = _table(lines, path, fields, strict=True)
        case ".tsv":
            # TSV has no quoting: a lone quotation mark is text, as in SST-2 and the rest of GLUE.
            rows = _table(lines, path, fields, delimiter="\t", quoting=csv.QUOTE_NONE)
        case _:
            rows = (Row(line.rstrip("\r\n"), None, path) for line in lines)
    return (row for row in rows if row.text.strip())


def text_lines(path: str, *, progress: Progress) -> Iterator[str]:
    """Lines of a UTF-8 file with their ends, without the byte order mark."""
    name = "standard input" if path == STANDARD_INPUT else Path(path).name
    for number, line in enumerate(progress(_byte_lines(path), f"Reading {name}"), start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{where(path, number)}: byte 0x{error.object[error.start]:02x} is not UTF-8; "
                "save the text as UTF-8 (from Latin-1: iconv -f LATIN1 -t UTF-8)"
            ) from error


def where(path: str, line: int) -> str:
    """A place in a file, as error messages name it."""
    return f"{'standard input' if path == STANDARD_INPUT else path}, line {line}"


def _byte_lines(path: str) -> Iterator[bytes]:
    try:
        with _opened(path) as stream:
            yield from stream
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{path} cannot be read: {error}; check that the file is whole and readable"
        ) from error


def _opened(path: str) -> Any:
    if path == STANDARD_INPUT:
        return contextlib.nullcontext(sys.stdin.buffer)
    return gzip.open(path, "rb") if path.lower().endswith(".gz") else open(path, "rb")


def _table(lines: Iterable[str], path: str, fields: _Fields, **dialect: Any) -> Iterator[Row]:
    limit = csv.field_size_limit(_LARGEST_FIELD)
    reader = csv.reader(lines, **dialect)
    try:
        yield from _cells(reader, path, fields)
    except csv.Error as error:
        raise InputError(
            f"{where(path, reader.line_num)}: {error}; quote fields as CSV does, or use .jsonl"
        ) from error
    finally:
        csv.field_size_limit(limit)


def _cells(reader: Any, path: str, fields: _Fields) -> Iterator[Row]:
    header = next(reader, [])
    text, label = None, None
    for row in filter(None, reader):
        place = where(path, reader.line_num)
        if len(row) != len(header):
            raise InputError(
                f"{place}: {len(row)} fields, but the header names "
                f"{len(header)}: {_listed(header)}; give every row the same columns"
            )
        if text is None:
            label = _label_column(path, header, fields)
            strings = [name for name, cell in zip(header, row, strict=True) if not _number(cell)]
            text = header.index(_chosen_field(path, header, strings, fields))
        yield Row(row[text], None if label is None else row[label], place)


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
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not JSON ({error}); write one JSON object a line") from error
    if not isinstance(record, dict):
        raise InputError(
            f"{place}: a JSON {type(record).__name__}, not an object; "
            'write one JSON object a line, such as {"text": "..."}'
        )
    return record


def _json_text(value: Any, field: str, place: str) -> str:
    if not isinstance(value, str):
        raise InputError(
            f"{place}: {field!r} is {json.dumps(value)[:40]}, not a string; "
            "pass the name of a text column as text_field"
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{place}: {field!r} holds half of a surrogate pair, which is no character; "
            "remove the document or repair its \\u escapes"
        ) from error
    return value


def _chosen_field(place: str, columns: list[str], strings: list[str], fields: _Fields) -> str:
    if fields.text is not None:
        if fields.text in columns:
            return fields.text
        raise InputError(
            f"{place}: no column {fields.text!r}; pass one of {_listed(columns)} as text_field"
        )
    for usual in _USUAL_FIELDS:
        if usual in columns:
            return usual
    texts = [name for name in strings if name != fields.label]
    if len(texts) == 1:
        return texts[0]
    raise InputError(
        f"{place}: it is not clear which column holds the text; "
        f"pass one of {_listed(columns)} as text_field"
    )


def _label_column(place: str, columns: list[str], fields: _Fields) -> int | None:
    if fields.label is None:
        return None
    if fields.label not in columns:
        raise InputError(
            f"{place}: no column {fields.label!r}; pass one of {_listed(columns)} as "
            f"{fields.label_name}"
        )
    return columns.index(fields.label)


def _listed(columns: Iterable[str]) -> str:
    return ", ".join(map(repr, columns)) or "(no columns)"


def _number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
