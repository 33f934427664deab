"""Page of a comparison of reports or inspections, finding by finding."""

import itertools
from collections.abc import Sequence

import numpy as np

from jaxpe.analysis.findings import LEVEL, FindingsComparison
from jaxpe.report.findings import Finding, Page, Section, Table
from jaxpe.report.numbers import name_list
from jaxpe.report.writing import page

_ON_TOP = 4  # findings that differ, as cards


@page.register
def findings_page(result: FindingsComparison) -> Page:
    """Page of a comparison: each finding of each folder against the first."""
    pairs = itertools.product(range(len(result.folders) - 1), range(len(result.names)))
    judged = [x for pair in pairs if (x := _difference(result, *pair)).verdict != "not judged"]
    judged.sort(key=lambda row: row.verdict)  # those that differ come first
    count = sum(row.verdict == "differs" for row in judged)
    top, more = judged[: min(count, _ON_TOP)], judged[min(count, _ON_TOP) :]
    lead = Finding(
        "findings that differ", count, unit="count", reference=len(judged),
        against="of those judged:",
    )  # fmt: skip
    differing = {name: [*map(_text, row)] for name, row in result.differing.items()}
    warnings = [
        Finding(name, " / ".join(differing[name]), verdict="less comparable")
        for name in result.less_comparable
    ]
    rows = zip(result.names, result.units, result.estimates.T, strict=True)
    values = [(name, *(_cell(ends.tolist(), unit) for ends in cells)) for name, unit, cells in rows]
    settings = [(name.replace("_", " "), *row) for name, row in differing.items()]
    tables = [
        Table("Values", ("finding", *result.folders), values, "Not judged without an interval."),
        Table("Settings that differ", ("setting", *result.folders), settings),
    ]
    note = "Numbers are comparable at equal settings." if warnings else ""
    return Page(
        name="comparison",
        title=f"Comparison of {name_list(result.folders)}",
        about=f"differences from {result.folders[0]}",
        lead=[lead, *top],
        sections=(
            *([Section("Differences", more)] if more else []),
            Section("All values", warnings, tables, note=note),
        ),
        methods=(
            f"Findings of {len(result.folders)} folders were compared with the first. Intervals of "
            "differences follow from their 95 % intervals (Zou and Donner 2008), whose half-widths "
            "are added where estimates may be of the same documents, and hold jointly at "
            f"{1 - LEVEL:.0%}, by Bonferroni [@jaxpe]."
        ),
    )


def _difference(result: FindingsComparison, folder: int, index: int) -> Finding:
    """One finding of a folder less that of the first, judged by its interval."""
    value, low, high = map(float, result.differences[:, folder, index])
    several = f", {result.folders[folder + 1]}" if len(result.folders) > 2 else ""
    verdict = "differs" if low > 0 or high < 0 else "not significant"
    return Finding(
        f"{result.names[index]}{several}", value, low, high, unit=result.units[index],
        verdict="not judged" if np.isnan(low) else verdict,
    )  # fmt: skip


def _cell(estimate: Sequence[float], unit: str) -> str:
    value, low, high = estimate
    if np.isnan(value):
        return "–"
    text, ends, _ = Finding("", value, low, high, unit=unit).texts()
    return f"{text} ({ends})" if ends else text


def _text(value: object) -> str:
    return f"{value:,}" if type(value) is int else str(value)
