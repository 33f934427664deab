"""Page of a comparison of reports."""

import itertools

import numpy as np

from jaxpe.analysis.reports import LEVEL, ReportComparison
from jaxpe.report.findings import Finding, Page, Section, Table
from jaxpe.report.numbers import name_list
from jaxpe.report.writing import page

_ON_TOP = 4  # findings as cards


@page.register
def reports_page(result: ReportComparison) -> Page:
    """Page of a comparison: each finding of each report against the first."""
    first, *others = result.reports
    pairs = itertools.product(range(len(others)), range(len(result.names)))
    rows = [row for pair in pairs if (row := _difference(result, *pair)).verdict != "not judged"]
    rows.sort(key=lambda row: row.verdict)  # those that differ come first
    names, count = [each.name for each in result.reports], sum(x.verdict == "differs" for x in rows)
    more = rows[min(count, _ON_TOP) :]
    lead = Finding(
        "findings that differ",
        count,
        unit="count",
        reference=len(rows),
        against="of those judged:",
        sentence="" if rows else "Reports may share documents, or have no intervals.",
    )
    cells = [
        [Finding("", *ends, unit=unit).texts() for ends in zip(*columns, strict=True)]
        for unit, *columns in zip(
            result.units, result.values.T, result.low.T, result.high.T, strict=True
        )
    ]
    values = [
        (name, *(f"{value} ({ends})" if ends else value for value, ends, _ in row))
        for name, row in zip(result.names, cells, strict=True)
    ]
    settings = [
        (name, *(each.settings[name] for each in result.reports))
        for name in first.settings
        if len({each.settings[name] for each in result.reports}) > 1
    ]
    sources = [
        (each.name, ", ".join(each.sources), f"{each.documents:,}", f"{each.tokens:,}")
        for each in result.reports
    ]
    return Page(
        name="reports",
        title=f"Reports of {name_list(names)}",
        about=f"each compared with {first.name}",
        lead=[lead, *rows[: min(count, _ON_TOP)]],
        sections=(
            *([Section("Differences", more)] if more else []),
            Section(
                "Reports",
                [
                    Finding(
                        name, " / ".join(values), verdict="less comparable",
                        sentence="Numbers are comparable at equal settings.",
                    )
                    for name, *values in settings
                ],
                [
                    Table("Values", ("finding", *names), values, "Not judged without an interval."),
                    Table("Sources", ("report", "source", "documents", "tokens"), sources),
                ],
            ),
        ),
        methods=(
            f"Findings of {len(names)} reports were compared with the first. Intervals of "
            "differences of independent estimates follow from their 95 % intervals (Zou and Donner "
            f"2008) and hold jointly at {1 - LEVEL:.0%}, by Bonferroni [@jaxpe]."
        ),
    )  # fmt: skip


def _difference(result: ReportComparison, report: int, index: int) -> Finding:
    """One finding of a report less that of the first, judged by its interval."""
    value, low, high = result.differences[:, report, index]
    verdict = "differs" if low > 0 or high < 0 else "not significant"
    several = f", {result.reports[report + 1].name}" if len(result.reports) > 2 else ""
    return Finding(
        f"{result.names[index]}{several}",
        float(value),
        float(low),
        float(high),
        unit=result.units[index],
        verdict=verdict if np.isfinite(low + high) else "not judged",
    )
