"""Comparison of reports, or of inspections, finding by finding, from their stored findings.

compare_findings(["films", "code"]).differences
"""

import collections
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from jaxpe._core.errors import InputError
from jaxpe._core.files import short_names
from jaxpe._core.json_values import parse_json, read_json, read_small

LEVEL = 0.05  # of all differences together
_REMEDY = "pass folders that jaxpe report wrote, or folders of jaxpe inspect"
# By job: settings without which numbers are less comparable, and the ratio of sizes that count as
# equal. Tokenizers make the texts of an inspection longer or shorter.
_ALIKE = {
    "report": (("tokenizer", "length", "origin", "edges", "cohort", "special"), 1.0),
    "inspect": (("source", "positions", "longest"), 1.25),
}
_NOT_SHOWN = ("command", "left_out", "cut")
_ENDS = ("value", "low", "high")


class FindingsComparison(NamedTuple):
    """Findings of two or more folders: numbers that at least two of them have.

    Attributes:
        kind: job that wrote the folders, "report" or "inspect".
        folders: their names, without the common beginning.
        names, units: names and units of the findings.
        estimates: values and the ends of their 95 % intervals `[3, folders, findings]`; NaN where a
            folder has none, and infinite for a bound.
        settings: options and facts of each folder, by name.
        shared: whether each folder may share documents with the first one, `[folders]`.
    """

    kind: str
    folders: tuple[str, ...]
    names: tuple[str, ...]
    units: tuple[str, ...]
    estimates: np.ndarray
    settings: tuple[dict[str, Any], ...]
    shared: tuple[bool, ...]

    @property
    def differences(self) -> np.ndarray:
        """Each folder less the first, with intervals, `[3, folders − 1, findings]`.

        Intervals hold jointly at 95 % (Bonferroni). They are NaN for a finding without an interval,
        and for counts, which are not nearly normal.
        """
        shared = np.array(self.shared[1:])[:, None]
        found = differences(self.estimates[:, :1], self.estimates[:, 1:], shared=shared)
        found[1:] = np.where(np.array(self.units) == "count", np.nan, found[1:])
        tests = max(1, int((~np.isnan(found[1])).sum()))
        found[1:] = found[0] + (found[1:] - found[0]) * joint_factor(tests)
        return found

    @property
    def differing(self) -> dict[str, list[Any]]:
        """Values of the settings that differ, one for each folder."""
        rows = {name: [each.get(name) for each in self.settings] for name in self.settings[0]}
        return {name: row for name, row in rows.items() if any(x != row[0] for x in row)}

    @property
    def less_comparable(self) -> list[str]:
        """Settings that differ and make numbers less comparable."""
        names, ratio = _ALIKE[self.kind]
        rows = self.differing.items()
        return [name for name, row in rows if name in names and not _alike(row, ratio)]


def differences(
    first: np.ndarray, second: np.ndarray, *, shared: bool | np.ndarray = False
) -> np.ndarray:
    """Differences of estimates, with 95 % intervals from those of the estimates.

    Independent estimates: by the method of variance estimates recovery (Zou & Donner 2008), each
    side of the interval is the root of the summed squares of the half-widths that bound it. With
    symmetric intervals it is the normal approximation. Estimates of the same documents: the sum of
    these half-widths, which holds at any correlation and is exact at −1. It excludes 0
    where the two intervals are disjoint.

    Args:
        first, second: estimates and the ends of their 95 % intervals, `[3, ...]`.
        shared: whether they may be of the same documents, for all or `[...]`.

    Returns:
        Second less first, and the ends of its interval, `[3, ...]`; NaN where an estimate has no
        interval, or one of no width.

    >>> a, b = np.array([1.0, 0.7, 1.3]), np.array([2.0, 1.6, 2.4])
    >>> differences(a, b).tolist()
    [1.0, 0.5, 1.5]
    >>> differences(a, b, shared=True).round(3).tolist()
    [1.0, 0.3, 1.7]
    """
    (x, x_low, x_high), (y, y_low, y_high) = first, second
    below, above = (
        np.where(shared, one + other, np.hypot(one, other))
        for one, other in ((y - y_low, x_high - x), (y_high - y, x - x_low))
    )
    ordered = (x_low <= x) & (x <= x_high) & (y_low <= y) & (y <= y_high)
    judged = ordered & (x_low < x_high) & (y_low < y_high)
    ends = np.where(judged, np.stack([-below, above]), np.nan)
    return np.concatenate([(y - x)[None], y - x + ends])


def joint_factor(tests: int) -> float:
    """Factor on the width of intervals that hold jointly at 95 % (Bonferroni), of normal estimates.

    >>> joint_factor(1), round(joint_factor(20), 2)
    (1.0, 1.54)
    """
    return float(ndtri(1 - LEVEL / 2 / tests) / ndtri(1 - LEVEL / 2))


def compare_findings(folders: Sequence[str | os.PathLike[str]]) -> FindingsComparison:
    """Compare reports of `jaxpe report`, or inspections of `jaxpe inspect`, by their numbers.

    Args:
        folders: two folders or more of one job; each is compared with the first.

    Raises:
        InputError: fewer than two, the same folder twice, or a folder without findings.

    >>> compare_findings(["films", "code"]).differences.shape  # doctest: +SKIP
    (3, 1, 12)
    """
    paths = [Path(folder).resolve() for folder in folders]
    if len(paths) < 2 or len(set(paths)) < len(paths):
        raise InputError("pass two folders of one job or more, each once")
    kind = "inspect" if (paths[0] / "inspect.json").is_file() else "report"
    found = [_findings(path / "findings.json") for path in paths]
    settings = [_settings(path / f"{kind}.json", kind) for path in paths]
    times = collections.Counter(itertools.chain(*found))
    keys = [key for key, number in times.items() if number > 1]
    numbers = [[each.get(key, [math.nan] * 3) for key in keys] for each in found]
    return FindingsComparison(
        kind=kind,
        folders=tuple(short_names(paths)),
        names=tuple(name for name, _ in keys),
        units=tuple(unit for _, unit in keys),
        estimates=np.moveaxis(np.reshape(numbers, (len(paths), len(keys), 3)), -1, 0),
        settings=tuple(settings),
        shared=tuple(kind == "inspect" or _may_share(settings[0], each) for each in settings),
    )


def _findings(path: Path) -> dict[tuple[str, str], list[float]]:
    """Numbers by name and unit, with intervals; a name that is there twice is left out."""
    rows = parse_json(read_small(path, remedy=_REMEDY), where=path, remedy=_REMEDY)
    found, twice = {}, set()
    try:
        for row in rows:
            # A bound, and a length that is none, are one measure.
            key = row["name"], row["unit"].removesuffix(" or more")
            if not isinstance(row["value"], str):
                twice |= {key} & found.keys()
                found[key] = [math.nan if row[k] is None else float(row[k]) for k in _ENDS]
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise InputError(f"{path} holds no findings; {_REMEDY}") from error
    return {key: values for key, values in found.items() if key not in twice}


def _settings(path: Path, kind: str) -> dict[str, Any]:
    """Options and facts of a result."""
    values = read_json(path, remedy=_REMEDY)
    try:
        found = {**values.get("options", {}), **values["facts"]}
        _ = [found[name] for name in _ALIKE[kind][0]]
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path} is no {kind} of this version; {_REMEDY}") from error
    return {name: value for name, value in found.items() if name not in _NOT_SHOWN}


def _may_share(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether reports may be of the same documents: one source, one within another, or a copy.

    Counts do not say which documents they are of; `compare_counts` compares them.
    """
    copy = all(one[name] == other[name] for name in ("documents", "tokens"))
    if copy or one["from_counts"] or other["from_counts"]:
        return True
    sources = (np.atleast_1d(each["source"]).tolist() for each in (one, other))
    pairs = itertools.product(*(map(os.path.abspath, each) for each in sources))
    return any(os.path.commonpath(pair) in pair for pair in pairs)


def _alike(values: Sequence[Any], ratio: float) -> bool:
    """Whether values are sizes within a ratio of each other."""
    return all(isinstance(x, int) for x in values) and max(values) <= ratio * min(values)
