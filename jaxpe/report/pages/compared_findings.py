"""Results of one kind beside each other, finding by finding, and their page."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jaxpe._core.errors import InputError
from jaxpe.report.findings import Finding, Page, Section, Table
from jaxpe.report.numbers import name_list
from jaxpe.report.writing import page

_RATIO = 1.25  # of sizes that count as equal: tokenizers make texts longer or shorter
_ON_TOP = 4  # findings that tell results apart, as cards
# By name of a page: settings without which numbers are not comparable, and what to do.
_ALIKE = {
    "inspect": (("source", "positions", "longest text"), "Inspect the models again on one text."),
}


class ComparedFinding(NamedTuple):
    """One finding of several results.

    Attributes:
        name: name of the finding.
        findings: the finding of each result; None where it has none.
        apart: whether the 95 % intervals of every two results are disjoint; None where fewer than
            two have an interval, or units differ.
    """

    name: str
    findings: list[Finding | None]
    apart: bool | None


class FindingsComparison(NamedTuple):
    """Results of one kind, finding by finding.

    Attributes:
        kind: name of their pages, such as "inspect".
        names: names of the results.
        rows: findings that at least two results have, in the order of the pages.
        settings: values of the settings that differ, one for each result.
        warnings: those of them without which numbers are not comparable.
    """

    kind: str
    names: list[str]
    rows: list[ComparedFinding]
    settings: dict[str, list[str]]
    warnings: list[str]


def compare_pages(pages: Iterable[Page], *, names: Sequence[str] = ()) -> FindingsComparison:
    """Compare pages of one kind by the findings that they share.

    Args:
        pages: pages of two or more results, from `jaxpe.report.page`.
        names: names of the results, such as their folders; of models or titles when absent.

    Raises:
        InputError: fewer than two pages, or pages of different jobs.

    >>> one = Page("corpora", "A", "", [Finding("rank", 3.0, 2.5, 3.5)])
    >>> other = Page("corpora", "B", "", [Finding("rank", 4.0, 3.6, 4.4)])
    >>> compare_pages([one, other]).rows[0].apart
    True
    """
    pages = list(pages)
    kinds = list(dict.fromkeys(each.name for each in pages))
    if len(pages) < 2 or len(kinds) > 1:
        raise InputError(f"{len(pages)} results ({', '.join(kinds)}); pass two or more of one job")
    found = [{one.name: one for one in each.findings} for each in pages]
    shared = {name for name in itertools.chain(*found) if sum(name in x for x in found) > 1}
    rows = []
    for name in dict.fromkeys(itertools.chain(*found)):
        if name in shared:
            row = [each.get(name) for each in found]
            rows.append(ComparedFinding(name, row, _apart(row)))
    settings = _differing([each.settings for each in pages])
    strict, _ = _ALIKE.get(kinds[0], ((), ""))
    return FindingsComparison(
        kind=kinds[0],
        names=[*(names or (each.settings.get("model", each.title) for each in pages))],
        rows=rows,
        settings=settings,
        warnings=[name for name in strict if not _alike(settings.get(name, []))],
    )


def _apart(row: Sequence[Finding | None]) -> bool | None:
    """Whether every two intervals of one unit are disjoint; an end may be infinite."""
    found = [one for one in row if one is not None and not math.isnan(one.low + one.high)]
    units = {one.unit.removesuffix(" or more") for one in found}
    if len(found) < 2 or len(units) > 1:
        return None
    ends = sorted((one.value, one.low, one.high) for one in found)
    return all(left[2] < right[1] for left, right in itertools.pairwise(ends))


def _differing(settings: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    rows = {name: [each.get(name, "") for each in settings] for name in settings[0]}
    return {name: values for name, values in rows.items() if len(set(values)) > 1}


def _alike(values: Sequence[str]) -> bool:
    """Whether values are equal, or sizes within a ratio of each other."""
    if len(set(values)) < 2:
        return True
    sizes = [int(x.replace(",", "")) for x in values if x.replace(",", "").isdecimal()]
    return len(sizes) == len(values) and max(sizes) <= _RATIO * min(sizes)


@page.register
def compared_page(result: FindingsComparison) -> Page:
    """Page of a comparison: the findings that tell results apart, then all of them."""
    judged = [row for row in result.rows if row.apart is not None]
    apart = [row for row in judged if row.apart]
    verdicts = {None: "", True: "apart", False: "not decided"}
    rows = [(row.name, *map(_cell, row.findings), verdicts[row.apart]) for row in result.rows]
    found = Table("All findings", ("finding", *result.names, "verdict"), rows)
    differing = [(name, *values) for name, values in result.settings.items()]
    settings = Table("Settings that differ", ("setting", *result.names), differing)
    count = Finding(
        "findings that tell the results apart", len(apart), unit="count", reference=len(judged),
        against="of", verdict="they differ" if apart else "no difference is decided",
        sentence="Where intervals overlap, the order of results is not decided.",
    )  # fmt: skip
    warnings = [
        Finding(name, " / ".join(result.settings[name]), verdict="differs",
                todo=_ALIKE[result.kind][1] * (name == result.warnings[0]))
        for name in result.warnings
    ]  # fmt: skip
    return Page(
        name="comparison",
        title=f"Comparison of {name_list(result.names)}",
        about=f"{len(result.names)} results of jaxpe {result.kind}",
        lead=[count, *(_card(row) for row in apart[:_ON_TOP])],
        sections=(
            Section("All findings", warnings, [found]),
            Section("Settings that differ", tables=[settings], folded=True),
        ),
        methods=(
            f"{len(result.names)} results were compared finding by finding. Intervals (95 %) are "
            "for each number alone [@jaxpe]."
        ),
    )


def _card(row: ComparedFinding) -> Finding:
    """A finding of all results that it tells apart, as a card."""
    values = ("–" if one is None else one.texts()[0] for one in row.findings)
    return Finding(row.name, " / ".join(values), verdict="apart")


def _cell(finding: Finding | None) -> str:
    if finding is None:
        return "–"
    value, ends, _ = finding.texts()
    return f"{value} ({ends})" if ends else value
