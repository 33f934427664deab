"""Settings that were not passed: what was chosen for them, and by which rule."""

from typing import NamedTuple


class Choice(NamedTuple):
    """A setting that was not passed, as the function that chose it tells.

    Attributes:
        setting: setting that was chosen.
        value: the choice.
        why: the rule behind it.
        how: way to set it; arguments stand in backticks.

    >>> Choice("length", "64", "5 % of the documents are as long", "pass `length`").value
    '64'
    """

    setting: str
    value: str
    why: str
    how: str
