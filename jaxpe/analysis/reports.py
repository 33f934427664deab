"""Comparison of reports of `jaxpe report`, finding by finding, from their stored findings."""

import itertools
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from jaxpe._core.errors import InputError
from jaxpe._core.files import short_names
from jaxpe._core.json_values import parse_json, read_json, read_small

LEVEL = 0.05  # of all differences together
_REMEDY = "pass folders that jaxpe report wrote"


class ComparedReport(NamedTuple):
    """A report in a comparison.

    Attributes:
        name: its folder, without the common beginning of all folders.
        sources: its corpus as it was given; empty for stored counts.
        documents, tokens: numbers of documents and tokens.
        settings: tokenizer, length and other settings by which numbers compare.
    """

    name: str
    sources: tuple[str, ...]
    documents: int
    tokens: int
    settings: dict[str, str]


class ReportComparison(NamedTuple):
    """Findings of two or more reports: numbers that all of them have.

    Attributes:
        reports: reports in the order of the folders.
        names, units: names and units of the findings.
        values: estimates `[reports, findings]`.
        low, high: ends of their 95 % intervals; NaN without one.
        shared: whether each report may share documents with the first one, `[reports]`.
    """

    reports: tuple[ComparedReport, ...]
    names: tuple[str, ...]
    units: tuple[str, ...]
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    shared: tuple[bool, ...]

    @property
    def differences(self) -> np.ndarray:
        """Each report less the first, with intervals, `[3, reports − 1, findings]`.

        Intervals hold jointly at 95 % (Bonferroni). They are NaN for a finding without an interval,
        for counts, which are not nearly normal, and where reports may share documents, so that
        estimates are not independent.
        """
        estimates = np.stack([self.values, self.low, self.high])
        found = independent_differences(estimates[:, :1], estimates[:, 1:])
        left_out = np.array(self.shared[1:])[:, None] | (np.array(self.units) == "count")
        found[1:] = np.where(left_out, np.nan, found[1:])
        tests = max(1, int(np.isfinite(found[1:].sum(axis=0)).sum()))
        found[1:] = found[0] + (found[1:] - found[0]) * joint_factor(tests)
        return found


def independent_differences(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Differences of independent estimates, with 95 % intervals from those of the estimates.

    By the method of variance estimates recovery (Zou & Donner 2008): each side of the interval is
    the root of the summed squares of the half-widths that bound it. With symmetric intervals it is
    the normal approximation.

    Args:
        first, second: estimates and the ends of their 95 % intervals, `[3, ...]`.

    Returns:
        Second less first, and the ends of its interval, `[3, ...]`; NaN where an estimate has no
        interval, or one of no width.

    >>> a, b = np.array([1.0, 0.7, 1.3]), np.array([2.0, 1.6, 2.4])
    >>> independent_differences(a, b).tolist()
    [1.0, 0.5, 1.5]
    """
    (x, x_low, x_high), (y, y_low, y_high) = first, second
    below, above = np.hypot(y - y_low, x_high - x), np.hypot(y_high - y, x - x_low)
    ordered = (x_low <= x) & (x <= x_high) & (y_low <= y) & (y <= y_high)
    judged = ordered & (x_low < x_high) & (y_low < y_high)
    ends = np.where(judged, np.stack([-below, above]), np.nan)
    return np.concatenate([(y - x)[None], y - x + ends])


def joint_factor(tests: int) -> float:
    """How much wider intervals are that hold jointly at 95 %, by Bonferroni, of normal estimates.

    >>> joint_factor(1), round(joint_factor(20), 2)
    (1.0, 1.54)
    """
    return float(ndtri(1 - LEVEL / 2 / tests) / ndtri(1 - LEVEL / 2))


def compare_reports(folders: Sequence[str | os.PathLike[str]]) -> ReportComparison:
    """Compare reports of `jaxpe report` by the numbers that all of them have.

    Args:
        folders: two folders or more; each is compared with the first.

    Raises:
        InputError: fewer than two, the same folder twice, or a folder without a report.

    >>> compare_reports(["films", "code"]).differences.shape  # doctest: +SKIP
    (3, 1, 12)
    """
    paths = [Path(folder).resolve() for folder in folders]
    if len(paths) < 2 or len(set(paths)) < len(paths):
        raise InputError("pass two folders of reports or more, each once")
    found = [_findings(path) for path in paths]
    reports = [_report(path, name) for path, name in zip(paths, short_names(paths), strict=True)]
    keys = [key for key in found[0] if all(key in each for each in found)]
    names, units = zip(*keys, strict=True) if keys else ((), ())
    numbers = np.array([[each[key] for key in keys] for each in found], float)
    return ReportComparison(
        tuple(reports),
        names,
        units,
        *np.moveaxis(numbers.reshape(len(paths), len(keys), 3), -1, 0),
        shared=tuple(_may_share(reports[0], each) for each in reports),
    )


def _findings(folder: Path) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Numbers by name and unit, with intervals; a name that is there twice is left out."""
    path = folder / "findings.json"
    rows = parse_json(read_small(path, remedy=_REMEDY), where=path, remedy=_REMEDY)
    try:
        numbers = [
            (
                (row["name"], row["unit"]),
                (_number(row["value"]), _number(row["low"]), _number(row["high"])),
            )
            for row in rows
            if not isinstance(row["value"], str)
        ]
    except (TypeError, KeyError, ValueError) as error:
        raise InputError(f"{path} holds no findings; {_REMEDY}") from error
    keys = [key for key, _ in numbers]
    return {key: values for key, values in numbers if keys.count(key) == 1}


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _report(folder: Path, name: str) -> ComparedReport:
    """Facts and options of a report."""
    path = folder / "report.json"
    values = read_json(path, remedy=_REMEDY)
    try:
        facts, options = values["facts"], values["options"]
        given = () if facts["from_counts"] else options["source"]
        settings = {
            name: str(facts[name]) for name in ("tokenizer", "length", "origin", "edges")
        } | {name: str(options[name]) for name in ("cohort", "special")}
        sources = (given,) if isinstance(given, str) else tuple(given)
        return ComparedReport(name, sources, facts["documents"], facts["tokens"], settings)
    except (TypeError, KeyError) as error:
        raise InputError(f"{path} is no report of this version; {_REMEDY}") from error


def _may_share(one: ComparedReport, other: ComparedReport) -> bool:
    """Whether reports may be of the same documents: one source, one within another, or a copy.

    Counts do not say which documents they are of; `compare_counts` compares them.
    """
    sizes = [(each.documents, each.tokens) for each in (one, other)]
    if sizes[0] == sizes[1] or not (one.sources and other.sources):
        return True
    pairs = itertools.product(
        map(os.path.abspath, one.sources), map(os.path.abspath, other.sources)
    )
    return any(os.path.commonpath(pair) in pair for pair in pairs)
