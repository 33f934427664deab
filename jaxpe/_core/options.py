"""Ranges of options, checked before anything is read."""

import re
from typing import NamedTuple

from jaxpe._core.errors import InputError

LARGEST_SEED = 2**32 - 1  # a larger seed has the key of a smaller one
MOST_STEPS = 2**31 - 1  # largest value of a 32-bit counter
LARGEST_SIZE = 2**31 - 1  # largest size of an axis of an array
_LENGTH = re.compile(r"(\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)([km]?)", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20}


def check_range(
    name: str,
    value: int | float | None,
    *,
    least: int | float | None = None,
    most: int | float | None = None,
) -> None:
    """Raise `InputError` for a number out of range; None passes, and NaN never does.

    >>> check_range("steps", 0, least=1)
    Traceback (most recent call last):
    jaxpe.InputError: `steps` is 0; pass at least 1
    """
    if value is None:
        return
    if least is not None and not value >= least:
        raise InputError(f"`{name}` is {value}; pass at least {least:,}")
    if most is not None and not value <= most:
        raise InputError(f"`{name}` is {value}; pass at most {most:,}")


def check_seed(name: str, value: int) -> None:
    """Raise `InputError` for a random seed outside [0, 2**32)."""
    check_range(name, value, least=0, most=LARGEST_SEED)


def parse_length(name: str, text: str) -> int:
    """Parse a length such as 131,072 or 128k; k is 1,024, m is 1,048,576.

    >>> parse_length("length", "128k"), parse_length("length", "131,072")
    (131072, 131072)
    >>> parse_length("length", "1.5k")
    Traceback (most recent call last):
    jaxpe.InputError: `length` is 1.5k; pass a whole number, with k for 1,024 or m for 1,048,576
    """
    match = _LENGTH.fullmatch(text) if len(text) < 30 else None  # int() refuses 4,300 digits
    if match is None:
        raise InputError(
            f"`{name}` is {text}; pass a whole number, with k for 1,024 or m for 1,048,576"
        )
    return int(re.sub("[,_]", "", match[1])) * _UNITS[match[2].lower()]


class Choice(NamedTuple):
    """Automatic choice of a setting that the user did not pass.

    Attributes:
        setting: name of the setting.
        value: value that was chosen.
        why: rule of the choice.
        how: way to set it; arguments are in backticks.

    >>> Choice("length", "64", "5 % of the documents are as long", "pass `length`").value
    '64'
    """

    setting: str
    value: str
    why: str
    how: str
