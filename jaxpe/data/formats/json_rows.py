"""Rows of JSON: one object per line or record."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import parse_json
from jaxpe._core.progress import SILENT, Progress
from jaxpe.data.formats.columns import Fields, NullRow, ReadLog, Row, label_column, text_column
from jaxpe.data.formats.files import SHOWN, check_text, quoted, text_lines, where

_REMEDY = 'write one JSON object a line, such as {"text": "..."}'
_TURN_KEYS = ("content", "value", "text")  # usual keys of the text of a turn of a chat


def json_line_rows(
    path: str, fields: Fields, log: ReadLog, progress: Progress
) -> Iterator[Row | NullRow]:
    """Read the rows of a .jsonl; blank lines are skipped."""
    return json_rows(_located_lines(path, progress), fields, log)


def json_names(path: str) -> list[str]:
    """Keys of the first object of a .jsonl."""
    return [*next((_record(line, location) for location, line in _located_lines(path, SILENT)), {})]


def json_rows(
    texts: Iterable[tuple[str, str]], fields: Fields, log: ReadLog
) -> Iterator[Row | NullRow]:
    """Rows of JSON objects, each a pair of its location and its text."""
    for location, text in texts:
        yield _row(_record(text, location), location, fields, log)


def _located_lines(path: str, progress: Progress) -> Iterator[tuple[str, str]]:
    lines = enumerate(text_lines(path, progress), start=1)
    return ((where(path, number), line) for number, line in lines if line.strip())


def _record(text: str, location: str) -> dict[str, Any]:
    record = parse_json(text, where=location, remedy=_REMEDY)
    if not isinstance(record, dict):
        raise InputError(f"{location}: a JSON {type(record).__name__}, not an object; {_REMEDY}")
    return record


def _row(record: dict[str, Any], location: str, fields: Fields, log: ReadLog) -> Row | NullRow:
    """Row of one object; all objects use the key of the text that the first one chose."""
    column = log.text
    if column is None and fields.skip_nulls and fields.text is not None:
        column = log.text = fields.text  # which the first object may lack
    if column is None:
        strings = [key for key, value in record.items() if isinstance(value, str)]
        # The turns of a chat come first: their error shows how to make text of them.
        turns = [key for key, value in record.items() if _turn_key(value)][:1]
        column = text_column(location, list(record), turns or strings, fields, log)
    if record.get(column) is None:
        return NullRow(column, location)
    label = None
    if fields.label is not None:
        label_column(location, list(record), fields)
        label = record[fields.label]
    return Row(_text(record[column], column, location), label, location)


def _text(value: Any, field: str, location: str) -> str:
    if not isinstance(value, str):
        is_nested = isinstance(value, list | dict)
        kind = f"a JSON {type(value).__name__}" if is_nested else json.dumps(value)[:SHOWN]
        remedy = "pass the name of a text column as `text_field`"
        if key := _turn_key(value):
            text = f'[.[{json.dumps(field[:SHOWN])}][].{key} | strings] | join("\\n")'
            remedy += f", or make one: jq -c '{{text: ({text})}}' chat.jsonl > texts.jsonl"
        raise InputError(f"{location}: {quoted(field)} is {kind}, not a string; {remedy}")
    remedy = "remove the document or repair its \\u escapes"
    check_text(value, what=f"{location}: {quoted(field)}", remedy=remedy)
    return value


def _turn_key(value: Any) -> str | None:
    """Key of the text in the turns of a chat, a list of objects; None for other values."""
    if not (isinstance(value, list) and value and isinstance(value[0], dict)):
        return None
    return next((key for key in _TURN_KEYS if key in value[0]), None)
