"""Columns of text and labels: their choice by name, and rows without text."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jaxpe._core.errors import InputError
from jaxpe._core.options import Choice
from jaxpe.data.formats.files import listed, quoted

USUAL = ("text", "sentence")


class Row(NamedTuple):
    """Document of a file, its label as read, and its location for error messages."""

    text: str
    label: Any  # None without a label column
    location: str


class NullRow(NamedTuple):
    """Row whose text is null or missing."""

    field: str
    location: str


class Fields(NamedTuple):
    """Columns to read."""

    text: str | None
    label: str | None
    label_name: str = "label_field"  # the name of the argument, for errors
    skip_nulls: bool = False


class ReadLog:
    """Record of reading a file: the chosen columns and skipped rows, complete after the last row.

    - `text`: name of the text column, once it is known.
    - `null_texts`: number of rows skipped because their text is null or missing.
    - `choices`: settings that were chosen because they were not passed.
    - `classes`: names of the classes that the file gives its labels, in their order; or empty.
    """

    def __init__(self) -> None:
        self.text: str | None = None
        self.null_texts = 0
        self.choices: tuple[Choice, ...] = ()
        self.classes: tuple[str, ...] = ()

    def add(self, other: "ReadLog", path: str) -> None:
        """Add the record of one more file; raises `InputError` for other classes."""
        if self.classes and other.classes not in ((), self.classes):
            raise InputError(
                f"{path} has the classes {listed(other.classes)}, and the files before it "
                f"{listed(self.classes)}; pass files of one dataset"
            )
        self.null_texts += other.null_texts
        self.choices = tuple(dict.fromkeys(self.choices + other.choices))
        self.classes = self.classes or other.classes


def non_null_rows(rows: Iterator[Row | NullRow], fields: Fields, log: ReadLog) -> Iterator[Row]:
    """Rows with a text; rows without are skipped and counted, or the first is refused."""
    number, last = 0, None
    for row in rows:
        number += 1
        if isinstance(row, Row):
            yield row
        elif not fields.skip_nulls:
            raise InputError(
                f"{row.location}: {quoted(row.field)} is null or missing; pass `skip_nulls=True` "
                "to leave out such rows, or another column as `text_field`"
            )
        else:
            log.null_texts, last = log.null_texts + 1, row
    if last is not None and log.null_texts == number:
        raise InputError(
            f"{last.location}: {quoted(last.field)} is null or missing in this and all {number:,} "
            "rows; pass the name of a text column as `text_field`"
        )


def text_column(
    location: str,
    columns: Sequence[str],
    candidates: Sequence[str],
    fields: Fields,
    log: ReadLog,
    *,
    usual: Sequence[str] = USUAL,
    what: str = "text",
) -> str:
    """Name of the column of text: the requested one, a usual name, or the only candidate.

    Args:
        location: beginning of error messages.
        columns: all names.
        candidates: names of columns of the right type.
        fields: columns to read.
        log: receives the column and the reason of the choice.
        usual: usual names of such columns.
        what: content of the column, for messages.

    Raises:
        InputError: no such column, or more than one candidate.
    """
    log.text = fields.text
    if log.text is not None:
        if log.text not in columns:
            raise InputError(
                f"{location}: no column {quoted(log.text)}; pass one of {listed(columns)} as "
                "`text_field`"
            )
        return log.text
    candidates = [name for name in candidates if name != fields.label]
    log.text, why = next((name for name in usual if name in columns), None), "its usual name"
    if log.text is None and len(candidates) == 1:
        kind = "strings" if what == "text" else "lists of integers"
        log.text, why = candidates[0], f"the only one with {kind}"
    if log.text is None:
        raise InputError(
            f"{location}: it is not clear which column holds the {what}; pass one of "
            f"{listed(columns)} as `text_field`"
        )
    why += f", among the columns {listed(columns)}"
    how = "pass the name of another column as `text_field`"
    log.choices += (Choice(f"column of {what}", log.text, why, how),)
    return log.text


def label_column(location: str, columns: Sequence[str], fields: Fields) -> int | None:
    """Index of the label column; None without one."""
    if fields.label is None:
        return None
    if fields.label not in columns:
        raise InputError(
            f"{location}: no column {quoted(fields.label)}; pass one of {listed(columns)} as "
            f"`{fields.label_name}`"
        )
    return columns.index(fields.label)


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
    raise InputError(
        f"{location}: the group is a {type(value).__name__}; pass a column of strings or numbers "
        "as `group_field`"
    )
