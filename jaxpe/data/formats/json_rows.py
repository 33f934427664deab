"""Rows of JSON: one object a line or record, and files that are one array."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import parse_json
from jaxpe._core.memory import check_bytes
from jaxpe._core.options import Choice
from jaxpe.data.formats.columns import USUAL, Fields, Found, NullRow, Row, label_column, text_column
from jaxpe.data.formats.files import SHOWN, check_text, listed, quoted

_COPIES = 6  # of a file: its bytes, its text, and the values made of it
_ARRAY = 'write one array of objects, such as [{"text": "..."}], or of strings'


TURN_KEYS = ("content", "value", "text")  # usual keys of the text of a turn of a chat


def json_rows(
    texts: Iterable[tuple[str, str]], fields: Fields, found: Found
) -> Iterator[Row | NullRow]:
    """The rows of JSON objects, each given by its place and its text."""
    for place, text in texts:
        yield _row(json_record(text, place), place, fields, found)


def json_record(text: str, place: str) -> dict[str, Any]:
    """The object that JSON text is; raises `InputError`."""
    record = parse_json(text, place=place, remedy="write one JSON object a line")
    return _checked(record, place, 'write one JSON object a line, such as {"text": "..."}')


def array_rows(text: str, path: str, fields: Fields, found: Found) -> Iterator[Row | NullRow]:
    """The rows of a file that is one array, of objects or of strings."""
    items = json_items(text, path, found)
    first = next((item for item in items if item is not None), None)
    if isinstance(first, str):
        yield from _string_rows(items, path, fields)
        return
    for number, item in enumerate(items):
        place = f"{path}, record {number}"
        if item is None:
            yield NullRow(found.text or "text", place)
        else:
            yield _row(_checked(item, place, _ARRAY), place, fields, found)


def json_items(text: str, path: str, found: Found) -> list[Any]:
    """The items of the array that a file is, or that is the only one of objects in its object."""
    check_bytes(_COPIES * len(text), what=path, remedy="write one JSON object a line into a .jsonl")
    remedy = f"{_ARRAY}, or one object a line into a .jsonl"
    value = parse_json(text, place=path, remedy=remedy) if text.strip() else []
    if isinstance(value, list):
        return value
    lists = [key for key, items in _checked(value, path, remedy).items() if _of_objects(items)]
    if len(lists) != 1:
        what = f"{len(lists)} lists of objects ({listed(lists)})" if lists else "no list of objects"
        raise InputError(f"{path} is a JSON object with {what}; {remedy}")
    why = f"the only list of objects, among the keys {listed([*value])}"
    found.choices += (Choice("records", lists[0], why, "save the list of records alone"),)
    return value[lists[0]]


def _of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _string_rows(items: list[Any], path: str, fields: Fields) -> Iterator[Row | NullRow]:
    for name, field in (("text_field", fields.text), (fields.label_name, fields.label)):
        if field is not None:
            raise InputError(f"{path} is a list of strings, without columns; leave `{name}` out")
    for number, item in enumerate(items):
        place = f"{path}, record {number}"
        if item is None:
            yield NullRow("text", place)
        else:
            yield Row(_text(item, "text", place), None, place)


def _row(record: dict[str, Any], place: str, fields: Fields, found: Found) -> Row | NullRow:
    """The row of one object. Once chosen, the text has the same key in all of them."""
    column = found.text
    if column is None and fields.skip_nulls and fields.text is not None:
        column = found.text = fields.text  # which the first object may lack
    if column is None:
        strings = [key for key, value in record.items() if isinstance(value, str)]
        turns = [key for key, value in record.items() if _key_of_turns(value)]
        if fields.text is None and turns and not {*USUAL}.intersection(record):
            _text(record[turns[0]], turns[0], place)
        column = text_column(place, list(record), strings, fields, found)
    if record.get(column) is None:
        return NullRow(column, place)
    label = None
    if fields.label is not None:
        label_column(place, list(record), fields)
        label = record[fields.label]
    return Row(_text(record[column], column, place), label, place)


def _checked(value: Any, place: str, remedy: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{place}: a JSON {type(value).__name__}, not an object; {remedy}")
    return value


def _text(value: Any, field: str, place: str) -> str:
    if not isinstance(value, str):
        nested = isinstance(value, list | dict)
        kind = f"a JSON {type(value).__name__}" if nested else json.dumps(value)[:SHOWN]
        remedy = "pass the name of a text column as `text_field`"
        if inner := _key_of_turns(value):
            text = f'[.[{json.dumps(field[:SHOWN])}][].{inner} | strings] | join("\\n")'
            remedy += f", or make one: jq -c '{{text: ({text})}}' chat.jsonl > texts.jsonl"
        raise InputError(f"{place}: {quoted(field)} is {kind}, not a string; {remedy}")
    remedy = "remove the document or repair its \\u escapes"
    check_text(value, what=f"{place}: {quoted(field)}", remedy=remedy)
    return value


def _key_of_turns(value: Any) -> str | None:
    """The key of the text of a chat's turns, a list of objects; None for other values."""
    return next((key for key in TURN_KEYS if key in value[0]), None) if _of_objects(value) else None
