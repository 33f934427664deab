"""Numbers, positions and names as pages, tables and findings write them."""

import itertools
import math
import unicodedata
from collections.abc import Callable, Sequence

import numpy as np

_MOST_NAMES = 3  # longer lists name only the first two
_MORE_DIGITS = 16  # at most, to tell the ends of an interval apart
_LEAST = 1e-6  # smaller values are bounds
_ALIKE = 20  # parts of an interval's width in which values may look equal
_NEAR_ZERO = 1000  # parts of the width in which an end may look like 0


def number(value: float, decimals: int | None = None) -> str:
    """Three significant digits, or decimals; thousands with commas; values below 1e-6 as a bound.

    The minus sign is U+2212; files for programs have an ASCII one.

    >>> number(1127.5), number(999.7), number(-0.03999), number(3e-13), number(float("nan"))
    ('1,128', '1,000', '−0.04', '< 1e-6', 'n/a')
    >>> number(0.11, 3)
    '0.110'
    """
    if not math.isfinite(value):
        return "n/a"
    if decimals is not None:
        text = f"{round(value, decimals) + 0.0:,.{decimals}f}"  # no −0
    elif 0 < abs(value) < _LEAST:
        return "< 1e-6" if value > 0 else "> −1e-6"
    else:
        text = f"{value:,.0f}" if abs(value) >= 999.5 else f"{value + 0.0:.3g}"
    return f"−{text[1:]}" if text.startswith("-") else text


def percent(share: float, more: int = 0) -> str:
    """Percentage of a share in [0, 1], which rounds neither to none nor to all and never wraps.

    >>> percent(0.224), percent(0.9991), percent(0.002), percent(0.002, 1)
    ('22\\xa0%', 'over 99\\xa0%', 'under 1\\xa0%', '0.2\\xa0%')
    """
    if not math.isfinite(share):
        return "n/a"
    least, value = 10.0**-more, 100 * share
    if 0 < value < least:
        return f"under {least:g}\N{NO-BREAK SPACE}%"
    if 100 - least < value < 100:
        return f"over {100 - least:g}\N{NO-BREAK SPACE}%"
    return f"{number(value, more)}\N{NO-BREAK SPACE}%"


def interval_texts(
    estimate: float, low: float, high: float, write: Callable[[float, int], str] = number
) -> tuple[str, str, str]:
    """Estimate and ends of an interval, all with as many decimals, which tell them apart.

    Numbers have three digits of the estimate or of the width, whichever is larger. Two values may
    look equal that are closer than a twentieth of the width. An end keeps its sign, unless it is
    within a thousandth of the width of 0.

    Args:
        estimate, low, high: the interval.
        write: text of a value with a number of decimals: `number` or `percent`.

    >>> interval_texts(0.103, 0.0951, 0.11)
    ('0.103', '0.095', '0.110')
    >>> interval_texts(0.0588, 0.0541, 0.0639, percent)
    ('5.9\\xa0%', '5.4\\xa0%', '6.4\\xa0%')
    """
    values = (float(estimate), float(low), float(high))
    width, first = values[2] - values[1], 0
    if write is number:
        scale = max((abs(x) for x in (*values, width) if math.isfinite(x)), default=0.0)
        if scale < _LEAST:
            return number(values[0]), number(values[1]), number(values[2])
        finite = (abs(x) for x in (values[0], width) if math.isfinite(x))
        first = max(2 - math.floor(math.log10(max(finite, default=0.0) or scale)), 0)
    for decimals in range(first, first + _MORE_DIGITS):
        texts = [write(value, decimals) for value in values]
        pairs = itertools.combinations(zip(values, texts, strict=True), 2)
        apart = all(s != t or not abs(x - y) > width / _ALIKE for (x, s), (y, t) in pairs)
        zero, ends = write(0.0, decimals), zip(values[1:], texts[1:], strict=True)
        if apart and not any(t == zero and abs(x) > width / _NEAR_ZERO for x, t in ends):
            break
    while all("." in text and text.endswith("0") for text in texts):
        texts = [text[:-1].removesuffix(".") for text in texts]
    return texts[0], texts[1], texts[2]


def name_list(names: Sequence[str]) -> str:
    """Names in a sentence; of more than three, the first two and the number of others.

    >>> name_list(["a", "b", "c"]), name_list(list("abcde"))
    ('a, b and c', 'a, b and 3 others')
    """
    if len(names) > _MOST_NAMES:
        return f"{names[0]}, {names[1]} and {len(names) - 2} others"
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def plural(count: int, noun: str) -> str:
    """Count and noun.

    >>> plural(1, "position"), plural(3, "position")
    ('1 position', '3 positions')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def position_name(index: int, origin: int) -> str:
    """Position of an index, signed if positions count from a site.

    >>> position_name(2, 0), position_name(2, 5), position_name(5, 5), position_name(7, 5)
    ('2', '−3', '0', '+2')
    """
    position = index - origin
    return f"{position:+d}".replace("-", "−") if origin and position else f"{position}"


def ranges(mask: np.ndarray, *, limit: int = 4, origin: int = 0) -> str:
    """Text of the positions where a boolean [n] mask is true, as at most `limit` ranges.

    >>> ranges(np.array([True, False, True, True, True]))
    '0, 2–4'
    """
    positions = np.flatnonzero(mask)
    runs = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
    ends = [dict.fromkeys(r[[0, -1]].tolist()) for r in runs[:limit] if len(r)]
    to = " to " if origin else "–"
    named = [to.join(position_name(i, origin) for i in pair) for pair in ends]
    left = len(positions) - sum(len(r) for r in runs[:limit])
    return ", ".join(named) + (f" and {left} more" if left else "")


def visible(text: str, *, limit: int = 48) -> str:
    """Text from a corpus made safe to print: invisible characters are named, long texts are cut.

    Control, format and private characters (terminal escapes, bidirectional overrides, NUL), odd
    spaces and lone surrogates become ⟨U+....⟩. Escaping for HTML is left to the template.

    >>> visible("a\u202eb"), visible("x" * 60, limit=5), visible("")
    ('a⟨U+202E⟩b', 'xxxxx…', '(empty)')
    """
    shown = "".join(map(_visible_character, text[:limit]))
    return (shown + "…" if len(text) > limit else shown) or "(empty)"


def _visible_character(character: str) -> str:
    hidden = unicodedata.category(character)[0] in "CZ" and character not in " \xa0"
    return f"⟨U+{ord(character):04X}⟩" if hidden else character
