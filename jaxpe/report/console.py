"""A page on a console, readable at 80 columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxpe._core.errors import require
from jaxpe.report.findings import HEADER, Finding, Page, Table, text_columns, used_columns
from jaxpe.report.numbers import visible

if TYPE_CHECKING:
    import rich.table


def show(page: Page, *, tables: int = 3) -> None:
    """Print a page: its findings, its first tables with their notes, and what to do.

    Args:
        page: page of a result.
        tables: number of tables to print; folded sections are left to the files.

    Raises:
        MissingExtraError: without the extra `report`.

    >>> show(page(result))  # doctest: +SKIP
    """
    text = require("rich.text", extra="cli").Text
    console = require("rich.console", extra="cli").Console()
    opened = [section for section in page.sections if not section.folded]
    findings = [*page.lead, *(each for section in opened for each in section.findings)]
    console.print(text(f"{visible(page.title, limit=200)}\n{visible(page.about, limit=400)}"))
    shown = [table for section in opened for table in section.tables][:tables]
    for table in ([_findings(findings)] if findings else []) + shown:
        console.print(rich_table(table))
        if table.note:
            console.print(text(visible(table.note, limit=2000)))
    for finding in findings:
        if finding.sentence:
            console.print(text(f"{finding.name}: {finding.sentence}"))
    if page.steps:
        console.print(text("\nWhat to do"))
    for finding in page.steps:
        console.print(text(visible(finding.todo, limit=2000)))
        for line in finding.paste.splitlines():  # a command that was wrapped is pasted as two
            console.print(text(f"    {visible(line, limit=4000)}"), soft_wrap=True)


def _findings(findings: Sequence[Finding]) -> Table:
    """Findings in three columns, so that their names stay on one line or two."""
    rows, used = [], [False] * 3
    for finding in findings:
        value, *rest = (*finding.texts(), finding.verdict)
        used = [any(pair) for pair in zip(used, rest, strict=True)]
        rows.append((finding.name, value, "; ".join(filter(None, rest))))
    named = "; ".join(name for name, some in zip(HEADER[2:], used, strict=True) if some)
    return Table("", (*HEADER[:2], named), rows)


def rich_table(table: Table) -> "rich.table.Table":
    """A rich table. Cells are `Text`, not markup, so a corpus named "[red]" stays a name.

    >>> rich_table(Table("Sizes", ["corpus", "tokens"], [("a", "12")])).row_count
    1
    """
    text: Any = require("rich.text", extra="cli").Text
    box = require("rich.box", extra="cli").SIMPLE_HEAD
    make = require("rich.table", extra="cli").Table
    table = used_columns(table)
    shown = make(title=text(table.title) if table.title else None, box=box, padding=(0, 1, 0, 0))
    texts = text_columns(table) | {0}
    for index, name in enumerate(table.header):
        shown.add_column(text(name), justify="left" if index in texts else "right", overflow="fold")
    for row in table.rows:
        shown.add_row(*(text(visible(cell, limit=400) if cell else "") for cell in row))
    return shown
