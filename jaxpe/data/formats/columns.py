"""Columns of text, ids and labels: their choice from sampled records, and rows of text."""

import dataclasses
import datetime
import decimal
import itertools
import json
import re
import reprlib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from jaxpe._core.errors import InputError
from jaxpe._core.options import Choice
from jaxpe.data.formats.files import LARGEST_TEXT, check_text, listed, quoted

TEXT = "text"  # the column of formats without columns
Record = tuple[str, dict[str, Any]]  # location for error messages, and values by column
USUAL = {"text": (TEXT, "sentence"), "ids": ("input_ids", "ids", "tokens", "token_ids")}
# What pandas and databases write for a missing value.
_NULL_WORDS = frozenset(
    ("#N/A", "#NA", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "\\N")
)
_NULL_TEXTS = "texts such as NA"
_NUMBERS = (int, float, decimal.Decimal, datetime.date, datetime.time, datetime.timedelta)
_TURN_KEYS = ("content", "text", "value")  # usual keys of the text in a turn of a chat
_JSON_LINES = re.compile(r"(.*\.jsonl)(\.\w+)?(, line \d+|, and \d+ more)?", re.I | re.DOTALL)
_LISTED, _VALUES = 10, 3  # columns, and values of each, in an error message
_short = reprlib.Repr()
_short.maxstring, _short.maxother, _short.maxlist, _short.maxdict, _short.maxlevel = 24, 24, 2, 2, 2


class Row(NamedTuple):
    """Document of a file, its label as read, and its location for error messages."""

    text: str
    label: Any  # None without a label column
    location: str


class Fields(NamedTuple):
    """Columns to read."""

    text: str | None
    label: str | None
    label_name: str = "label_field"  # the name of the argument, for errors
    skip_nulls: bool = False

    def columns(self) -> list[str]:
        """Names of the columns of text and label, each once."""
        return [*dict.fromkeys(name for name in (self.text, self.label) if name is not None)]


@dataclasses.dataclass
class ReadLog:
    """Record of reading files, complete after their last row.

    - `null_texts`: number of rows skipped because their text is null or missing.
    - `null_words`: number of texts such as NA, which are documents.
    - `choices`: settings that were chosen because they were not passed.
    - `classes`: names of the classes that the files give their labels, in their order; or empty.
    """

    null_texts: int = 0
    null_words: int = 0
    choices: tuple[Choice, ...] = ()
    classes: tuple[str, ...] = ()

    def choose(self, choice: Choice) -> None:
        """Add a choice, once."""
        self.choices = tuple(dict.fromkeys((*self.choices, choice)))

    def add_null_words(self, number: int) -> None:
        """Add texts such as NA, and a choice that counts all of them."""
        self.null_words += number
        others = (choice for choice in self.choices if choice.setting != _NULL_TEXTS)
        how = "leave these rows out, or write null in a .jsonl, if the text is missing"
        why = "whole texts such as NA, nan, null and \\N may be words or missing values"
        choice = Choice(_NULL_TEXTS, f"{self.null_words:,} read as text", why, how)
        self.choices = (*others, choice)

    def set_classes(self, classes: tuple[str, ...], path: str) -> None:
        """Set the classes of one more file; raises `InputError` for other ones."""
        if self.classes and classes not in ((), self.classes):
            raise InputError(
                f"{path} has the classes {listed(classes)}, others {listed(self.classes)}; pass one"
            )
        self.classes = self.classes or classes


def text_rows(
    records: Iterable[Record], fields: Fields, log: ReadLog, *, classes: Sequence[str] = ()
) -> Iterator[Row]:
    """Rows of records whose text is not blank.

    Args:
        records: locations and values by column.
        fields: columns to read, the text's not None unless there are no records.
        log: receives the number of rows without text, and of texts such as NA.
        classes: names of the classes, for labels that are numbers of classes.

    Raises:
        InputError: a null text unless nulls are skipped, a text that is no string or too long, or
            no column of labels.
    """
    column, null_words = str(fields.text), 0
    for location, record in records:
        text = record.get(column)
        if text is None:
            if not fields.skip_nulls:
                raise null_text(location, column, f"(its columns are {listed([*record])})")
            log.null_texts += 1
            continue
        if not isinstance(text, str) or len(text) > LARGEST_TEXT or not text.isascii():
            _check_string(text, column, location)
        if fields.label is not None and fields.label not in record:
            raise missing_column(location, [*record], fields.label, fields.label_name)
        null_words += len(text) < 5 and text in _NULL_WORDS
        if text.strip():
            label = None if fields.label is None else class_name(record[fields.label], classes)
            yield Row(text, label, location)
    if null_words:
        log.add_null_words(null_words)


def chosen_column(
    where: str, records: Sequence[dict[str, Any]], fields: Fields, log: ReadLog, *, what: str
) -> str:
    """Name of the column of text or ids, from the first records of all files of a job.

    A column with a usual name that holds such values; otherwise the only one that does, if every
    other column holds numbers.

    Args:
        where: beginning of error messages.
        records: values by column.
        fields: columns to read; the column of labels is no candidate.
        log: receives the choice.
        what: `"text"` or `"ids"`.

    Raises:
        InputError: no column or several columns may be meant; the message shows values of each.
    """
    names = dict.fromkeys(itertools.chain.from_iterable(records))
    columns = {name: [record.get(name) for record in records] for name in names}
    others = {name: values for name, values in columns.items() if name != fields.label}
    is_kind = _is_id_list if what == "ids" else _is_string
    usual = next((x for x in USUAL[what] if any(map(is_kind, others.get(x, ())))), None)
    kinds = {name: _kind(values) for name, values in others.items()}
    held = [name for name, kind in kinds.items() if kind == what]
    # An id of rows is no text because the text is a list, or null at first.
    is_unclear = what == "text" and not {"text", "number"}.issuperset(kinds.values())
    if usual is None and (len(held) != 1 or is_unclear):
        raise InputError(
            f"{where}: it is not clear which column holds the {what}: {_shown(columns)}; pass the "
            f"name of a column of strings as `text_field`{_advice(where, others)}"
        )
    kind = "strings" if what == "text" else "lists of integers"
    why = f"the only one with {kind}" if usual is None else "its usual name"
    why += f", among the columns {listed([*columns])}"
    how = "pass the name of another column as `text_field`"
    log.choose(Choice(f"column of {what}", name := usual or held[0], why, how))
    return name


def null_text(where: str, column: str, detail: str) -> InputError:
    """Error about texts or ids that are null, or whose column does not exist."""
    remedy = "pass `skip_nulls=True`, or another column as `text_field`"
    return InputError(f"{where}: {quoted(column)} is null or missing {detail}; {remedy}")


def missing_column(where: str, columns: Sequence[str], name: str, argument: str) -> InputError:
    """Error about a column that does not exist."""
    return InputError(
        f"{where}: no column {quoted(name)}; pass one of {listed(columns)} as `{argument}` (a key "
        "that only later rows have needs `skip_nulls`, too)"
    )


def class_name(label: Any, classes: Sequence[str]) -> Any:
    """Name of the class of a number; other labels are returned as they are."""
    is_class = isinstance(label, int) and 0 <= label < len(classes)
    return classes[label] if is_class else label


def group_name(value: Any, location: str) -> str | None:
    """Author or source of a document as text; None without one.

    Raises:
        InputError: a value that is neither a string nor a number.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str | int | float):
        return str(value)
    remedy = "pass a column of strings or numbers as `group_field`"
    raise InputError(f"{location}: the group is a {type(value).__name__}; {remedy}")


def is_number(cell: str) -> bool:
    """Whether text is a number or a boolean, as Python reads and writes them."""
    try:
        float(cell)
    except ValueError:
        return cell.lower() in ("true", "false")
    return True


def _kind(values: Sequence[Any]) -> str:
    """Content of a column: text, ids, number, or unclear (nothing, lists, objects, bytes)."""
    present = [x for x in values if x not in (None, "", [], *_NULL_WORDS)]
    if not present:
        return "unclear"
    if all(isinstance(x, _NUMBERS) or (isinstance(x, str) and is_number(x)) for x in present):
        return "number"
    if all(map(_is_id_list, present)):
        return "ids"
    return "text" if all(isinstance(x, (str, *_NUMBERS)) for x in present) else "unclear"


def _is_string(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_id_list(value: Any) -> bool:
    is_list = isinstance(value, list) and bool(value)
    return is_list and all(x is None or type(x) is int for x in value)


def _shown(columns: dict[str, list[Any]]) -> str:
    """Columns with the first values of each."""
    shown = []
    for name, values in [*columns.items()][:_LISTED]:
        texts = dict.fromkeys("null" if x is None else _short.repr(x) for x in values)
        shown.append(f"{quoted(name)} ({', '.join([*texts][:_VALUES])})")
    return ", ".join(shown) + (", ..." if len(columns) > _LISTED else "")


def _check_string(value: Any, field: str, location: str) -> None:
    """Raise `InputError` for a text that is no string, no Unicode, or too long."""
    if not isinstance(value, str):
        remedy = f"pass a text column as `text_field`{_advice(location, {field: [value]})}"
        fault = f"{quoted(field)} is {_short.repr(value)}, not a string"
        raise InputError(f"{location}: {fault}; {remedy}")
    if len(value) > LARGEST_TEXT:
        fault = f"has {len(value):,} characters, more than {LARGEST_TEXT:,}; cut longer documents"
        raise InputError(f"{location}: {quoted(field)} {fault}")
    check_text(value, what=f"{location}: {quoted(field)}", remedy="repair its \\u escapes")


def _advice(location: str, columns: dict[str, list[Any]]) -> str:
    """Command that makes text of the turns of a chat in a .jsonl; "" without any."""
    path = _JSON_LINES.fullmatch(location)
    chat = next((name for name, values in columns.items() if any(map(_is_chat, values))), None)
    if path is None or chat is None or len(chat) > 40:
        return ""
    keys = ", ".join(f".{key}?" for key in _TURN_KEYS)
    # Content may be text, a list of texts, or a list of objects, which `..` visits.
    texts = f".[{json.dumps(chat)}] | .. | objects | ({keys}) | (strings, (arrays | .[] | strings))"
    program = shlex.quote(f'{{text: ([{texts}] | join("\\n"))}}')
    unpack = "unpack the file and " if path[2] else ""
    return f", or {unpack}make one: jq -c {program} {shlex.quote(path[1])} > texts.jsonl"


def _is_chat(value: Any) -> bool:
    """Whether a value is a list of turns, objects with text under a usual key."""
    is_list = isinstance(value, list) and bool(value) and isinstance(value[0], dict)
    return is_list and not value[0].keys().isdisjoint(_TURN_KEYS)
