"""Findings, tables and figures in sections, what a result says; one set of types for every job."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxpe.report.numbers import interval_texts, number, percent

if TYPE_CHECKING:
    import matplotlib.axes

# Cells that are numbers.
_NUMBER = re.compile(r"[<>≤~]?\s?[−+-]?[\d.,]+.*|n/a|–|-|")
_WRITE = {"share": percent, "count": lambda value, decimals=0: f"{value:,.0f}"}
HEADER = ("finding", "value", "95 % interval", "compared with", "verdict")


class Finding(NamedTuple):
    """A number that a job found, and all that is said of it.

    It is the card at the top of a page, the line on a console, the row of `findings.csv`, `.json`
    and `.tex`, and what a test compares.

    Attributes:
        name: name in the words of the field, without the value.
        value: the estimate, NaN where undefined; a text for a name, such as of an encoding.
        low, high: ends of its 95 % interval; NaN without one. An infinite end is written "or more".
        unit: "share" (written in per cent), "count", or what follows the number, such as "bits".
        reference: value to compare it with, such as the level of chance; NaN without one.
        against: name of the reference.
        verdict: consequence by a rule, in a few words; "" where nothing is judged.
        sentence: meaning, one sentence of at most 25 words that repeats no number of the row.
        todo: step to take, one sentence; "" for nothing.
        paste: command or code of that step, ready to paste.

    >>> share = Finding(
    ...     "share of position", 0.0533, 0.049, 0.0583, unit="share", verdict="found")
    >>> share.texts()
    ('5.3\\xa0%', '4.9\\xa0% to 5.8\\xa0%', '')
    """

    name: str
    value: float | str
    low: float = math.nan
    high: float = math.nan
    unit: str = ""
    reference: float = math.nan
    against: str = ""
    verdict: str = ""
    sentence: str = ""
    todo: str = ""
    paste: str = ""

    def texts(self) -> tuple[str, str, str]:
        """Value, interval and what it is compared with, as a page writes them."""
        if isinstance(self.value, str):
            return self.value, "", self._compared()
        write, unit = _WRITE.get(self.unit, number), self.unit * (self.unit not in _WRITE)
        value, low, high = write(float(self.value)), "", ""
        if math.isfinite(self.low + self.high):
            value, low, high = interval_texts(
                float(self.value), float(self.low), float(self.high), write
            )
        elif math.isfinite(self.low) and self.high == math.inf:
            return f"{value} {unit}".strip(), f"{write(self.low)} or more", self._compared()
        ends = f"{low} to {high}" if low != high else low
        return f"{value} {unit}".strip(), ends, self._compared()

    def _compared(self) -> str:
        if math.isnan(self.reference):
            return self.against
        return f"{self.against} {_WRITE.get(self.unit, number)(self.reference)}".strip()

    def row(self) -> tuple[str, ...]:
        """Cells of `HEADER`."""
        return (self.name, *self.texts(), self.verdict)


class Table(NamedTuple):
    """A table of a page, also written as CSV and LaTeX.

    Attributes:
        title: title, from which its files are named.
        header: names of the columns.
        rows: cells, as texts; the first names the row.
        note: one sentence or two below it.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


class Figure(NamedTuple):
    """A figure of a page: functions that draw into axes.

    Attributes:
        name: stem of its files.
        title: content, or the finding.
        caption: one or two sentences on reading it.
        panels: one function of `ax` for each panel, such as those of `jaxpe.plot` with arrays.
        columns: panels in a row.
        height: height in inches of a row; the width is 5.2 inches, which suits a phone.
    """

    name: str
    title: str
    caption: str
    panels: Sequence[Callable[["matplotlib.axes.Axes"], Any]]
    columns: int = 1
    height: float = 3.4


class Section(NamedTuple):
    """A part of a page.

    Attributes:
        title: heading.
        findings, tables, figures: contents, in this order.
        note: one sentence or two below the heading.
        folded: whether it is closed at first.
    """

    title: str
    findings: Sequence[Finding] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    note: str = ""
    folded: bool = False


class Page(NamedTuple):
    """Page of a result: `jaxpe.report.page(result)`.

    Attributes:
        name: stem of its files.
        title: heading.
        about: line on what was measured, with at most three numbers.
        lead: findings at the top, as cards; at most five.
        sections: the rest.
        settings: settings of the job, by name, at the end.
        methods: paragraph of methods in Markdown, with citation keys such as [@jaxpe].
        files: further files by name, such as of vectors; None removes one of an earlier page.
    """

    name: str
    title: str
    about: str
    lead: Sequence[Finding] = ()
    sections: Sequence[Section] = ()
    settings: Mapping[str, str] = {}
    methods: str = "Results are of jaxpe [@jaxpe]."
    files: Mapping[str, bytes | None] = {}

    @property
    def findings(self) -> list[Finding]:
        """All findings, those at the top first."""
        return [*self.lead, *(each for section in self.sections for each in section.findings)]

    @property
    def tables(self) -> list[Table]:
        """All tables."""
        return [table for section in self.sections for table in section.tables]

    @property
    def figures(self) -> list[Figure]:
        """All figures."""
        return [figure for section in self.sections for figure in section.figures]

    @property
    def steps(self) -> list[Finding]:
        """Findings with something to do."""
        return [finding for finding in self.findings if finding.todo]


def findings_table(findings: Sequence[Finding], title: str = "Findings") -> Table:
    """Findings as a table.

    >>> findings_table([Finding("tokens", 1200, unit="count")]).rows
    [('tokens', '1,200', '', '', '')]
    """
    return Table(title, HEADER, [finding.row() for finding in findings])


def used_columns(table: Table) -> Table:
    """A table without the columns, after the first, that have no cell.

    >>> used_columns(Table("Sizes", ["corpus", "share", "tokens"], [("a", "", "12")])).header
    ['corpus', 'tokens']
    """
    used = [k for k in range(len(table.header)) if k == 0 or any(row[k] for row in table.rows)]
    rows = [[row[k] for k in used] for row in table.rows]
    return table._replace(header=[table.header[k] for k in used], rows=rows)


def text_columns(table: Table) -> set[int]:
    """Columns with a cell that is no number, which are aligned to the left.

    >>> text_columns(Table("Sizes", ["corpus", "share"], [("a", "< 1 %"), ("b", "n/a")]))
    {0}
    """
    cells = ((index, cell) for row in table.rows for index, cell in enumerate(row))
    return {index for index, cell in cells if not _NUMBER.fullmatch(cell)}
