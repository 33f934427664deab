"""Rows of files, which of their columns hold text and label, and rows without a text."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jaxpe._core.errors import InputError
from jaxpe._core.options import Choice
from jaxpe.data.formats.files import listed, quoted

USUAL = ("text", "sentence")
_LOOKED_AT = 100_000  # rows after the first null one in which a refusal counts others


class Row(NamedTuple):
    """A document of a file: its text, its label as it stands there, and where that is."""

    text: str
    label: Any  # None where no labels were asked for
    place: str


class NullRow(NamedTuple):
    """A row whose text is null or missing."""

    field: str
    place: str


class Fields(NamedTuple):
    """Columns to read."""

    text: str | None
    label: str | None
    label_name: str = "label_field"  # what errors call the argument
    skip_nulls: bool = False


class Found:
    """Columns found and rows left out, complete once the last row is read.

    - `text`: the column that holds the text, once it is known.
    - `null_texts`: rows left out because their text is null or missing.
    - `choices`: what was not passed and was chosen.
    """

    def __init__(self) -> None:
        self.text: str | None = None
        self.null_texts = 0
        self.choices: tuple[Choice, ...] = ()


def with_text(rows: Iterator[Row | NullRow], fields: Fields, found: Found) -> Iterator[Row]:
    """The rows that have a text; others are counted in `found`, or the first of them is refused."""
    read, last = 0, None
    for read, row in enumerate(rows, start=1):
        if isinstance(row, Row):
            yield row
        elif not fields.skip_nulls:
            raise _refused(row, read, rows)
        else:
            found.null_texts, last = found.null_texts + 1, row
    if last is not None and found.null_texts == read:
        raise InputError(
            f"{last.place}: {quoted(last.field)} is null or missing here and in all {read:,} rows; "
            "pass the name of a text column as `text_field`"
        )


def _refused(row: NullRow, read: int, rows: Iterator[Row | NullRow]) -> InputError:
    """Error about the first null row, number `read`, after more rows were read."""
    nulls = 1
    with contextlib.suppress(InputError):  # of a later row
        for other in itertools.islice(rows, _LOOKED_AT):
            read, nulls = read + 1, nulls + isinstance(other, NullRow)
    return InputError(
        f"{row.place}: {quoted(row.field)} is null or missing in {nulls:,} of {read:,} rows read, "
        "of which this is the first; pass `skip_nulls=True` to leave them out, or another column "
        "as `text_field`"
    )


def text_column(
    place: str, columns: Sequence[str], strings: Sequence[str], fields: Fields, found: Found
) -> str:
    """The column of text: that asked for, or one that is chosen, with its reason in `found`.

    Args:
        place: what errors begin with.
        columns: all names.
        strings: names of those that hold strings.
        fields: what is asked for.
        found: is told the column, and why it was chosen.

    Raises:
        InputError: no such column, or it is not clear which.
    """
    if fields.text is None:
        choice = _chosen(place, columns, strings, fields)
        found.choices += (choice,)
        found.text = choice.value
    elif fields.text in columns:
        found.text = fields.text
    else:
        raise InputError(
            f"{place}: no column {quoted(fields.text)}; pass one of {listed(columns)} as "
            "`text_field`"
        )
    return found.text


def _chosen(place: str, columns: Sequence[str], strings: Sequence[str], fields: Fields) -> Choice:
    how = "pass the name of another column as `text_field`"
    for usual in USUAL:
        if usual in columns:
            why = f"its usual name, among the columns {listed(columns)}"
            return Choice("column of text", usual, why, how)
    texts = [name for name in strings if name != fields.label]
    if len(texts) == 1:
        why = f"the only one with strings, among the columns {listed(columns)}"
        return Choice("column of text", texts[0], why, how)
    raise InputError(
        f"{place}: it is not clear which column holds the text; "
        f"pass one of {listed(columns)} as `text_field`"
    )


def label_column(place: str, columns: Sequence[str], fields: Fields) -> int | None:
    """The place of the column of labels; None where none is asked for."""
    if fields.label is None:
        return None
    if fields.label not in columns:
        raise InputError(
            f"{place}: no column {quoted(fields.label)}; pass one of {listed(columns)} as "
            f"`{fields.label_name}`"
        )
    return columns.index(fields.label)


def group_of(value: Any, place: str) -> str | None:
    """Author or source of a document as text; None where it has none.

    Raises:
        InputError: a value that is neither a string nor a number.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str | int | float):
        return str(value)
    raise InputError(
        f"{place}: the group is a {type(value).__name__}; pass a column of strings or numbers as "
        "`group_field`"
    )


def refuse_repeated(path: str, columns: Sequence[str], names: Sequence[str | None]) -> None:
    """Refuse columns in use that share their name with others, with `InputError`."""
    for name in filter(None, names):
        if (number := columns.count(name)) > 1:
            raise InputError(
                f"{path}: {number} columns are named {quoted(name)}; rename all but one"
            )
