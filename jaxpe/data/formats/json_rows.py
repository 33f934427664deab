"""Rows of JSON: one object a line or record."""

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
    return json_rows(_placed_lines(path, progress), fields, log)


def json_names(path: str) -> list[str]:
    """Keys of the first object of a .jsonl."""
    return [*next((_record(line, place) for place, line in _placed_lines(path, SILENT)), {})]


def json_rows(
    texts: Iterable[tuple[str, str]], fields: Fields, log: ReadLog
) -> Iterator[Row | NullRow]:
    """Rows of JSON objects, each a pair of its place and its text."""
    for place, text in texts:
        yield _row(_record(text, place), place, fields, log)


def _placed_lines(path: str, progress: Progress) -> Iterator[tuple[str, str]]:
    lines = enumerate(text_lines(path, progress), start=1)
    return ((where(path, number), line) for number, line in lines if line.strip())


def _record(text: str, place: str) -> dict[str, Any]:
    record = parse_json(text, where=place, remedy=_REMEDY)
    if not isinstance(record, dict):
        raise InputError(f"{place}: a JSON {type(record).__name__}, not an object; {_REMEDY}")
    return record


def _row(record: dict[str, Any], place: str, fields: Fields, log: ReadLog) -> Row | NullRow:
    """The row of one object. Once chosen, the text has the same key in all of them."""
    column = log.text
    if column is None and fields.skip_nulls and fields.text is not None:
        column = log.text = fields.text  # which the first object may lack
    if column is None:
        strings = [key for key, value in record.items() if isinstance(value, str)]
        # The turns of a chat come first: their error shows how to make text of them.
        turns = [key for key, value in record.items() if _key_of_turns(value)][:1]
        column = text_column(place, list(record), turns or strings, fields, log)
    if record.get(column) is None:
        return NullRow(column, place)
    label = None
    if fields.label is not None:
        label_column(place, list(record), fields)
        label = record[fields.label]
    return Row(_text(record[column], column, place), label, place)


def _text(value: Any, field: str, place: str) -> str:
    if not isinstance(value, str):
        is_nested = isinstance(value, list | dict)
        kind = f"a JSON {type(value).__name__}" if is_nested else json.dumps(value)[:SHOWN]
        remedy = "pass the name of a text column as `text_field`"
        if key := _key_of_turns(value):
            text = f'[.[{json.dumps(field[:SHOWN])}][].{key} | strings] | join("\\n")'
            remedy += f", or make one: jq -c '{{text: ({text})}}' chat.jsonl > texts.jsonl"
        raise InputError(f"{place}: {quoted(field)} is {kind}, not a string; {remedy}")
    remedy = "remove the document or repair its \\u escapes"
    check_text(value, what=f"{place}: {quoted(field)}", remedy=remedy)
    return value


def _key_of_turns(value: Any) -> str | None:
    """Key of the text in the turns of a chat, a list of objects; None for other values."""
    if not (isinstance(value, list) and value and isinstance(value[0], dict)):
        return None
    return next((key for key in _TURN_KEYS if key in value[0]), None)
