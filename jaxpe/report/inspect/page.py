"""The page on a model, its table for the console, and the same in Markdown."""

from typing import TYPE_CHECKING

from jaxpe._core.errors import require
from jaxpe.analysis.inspect import InspectResult
from jaxpe.report.inspect.advice import advice
from jaxpe.report.inspect.attention_view import view_data
from jaxpe.report.inspect.figures import FIGURES
from jaxpe.report.inspect.sections import absent_sections, inspect_figures, page_sections
from jaxpe.report.inspect.summary import headlines, inspect_summary
from jaxpe.report.inspect.tables import Table
from jaxpe.report.inspect.text import about
from jaxpe.report.page import View
from jaxpe.report.style import figure_name
from jaxpe.report.tables import table_group
from jaxpe.report.text import advice_text, visible

if TYPE_CHECKING:
    import rich.console

_ON_CONSOLE = ("offsets", "ablation", "loss", "needles")  # tables without a row a layer


def view(result: InspectResult) -> View:
    """Page of an inspection, and the same as inspect.md."""
    figures, sections = inspect_figures(result), page_sections(result)
    shown = {
        "about": about(result),
        "summary": inspect_summary(result),
        "headlines": headlines(result),
        "sections": sections,
        "figures": figures,
        "view": result.attention and view_data(result.attention),
        "absent": absent_sections(result),
    }
    return View(
        "inspect", shown, [figure for group in figures.values() for figure in group],
        [table for section in sections for table in section.tables],
        advice(result), "inspecting-a-model",
        "|".join(figure_name(figure.draw) for figure in FIGURES),
        {"inspect.md": inspect_markdown(result).encode()},
    )  # fmt: skip


def inspect_markdown(result: InspectResult) -> str:
    """The findings and tables as Markdown.

    >>> inspect_markdown(result).splitlines()[0]  # doctest: +SKIP
    '# What position does in all-MiniLM-L6-v2'
    """
    parts = [f"# What position does in {visible(result.facts.model)}", inspect_summary(result)]
    parts += ["## What to do", advice_text(advice(result)), about(result)]
    for section in page_sections(result):
        parts += [f"## {section.title}", section.finding]
        parts += [_as_markdown(table) for table in section.tables]
        parts.append(section.method)
    return "\n\n".join(parts) + "\n"


def inspect_table(result: InspectResult) -> "rich.console.Group":
    """Findings, section by section, on a console: `rich.print(...)` shows it.

    Raises `MissingExtraError` without the extra `report`.

    >>> rich.print(inspect_table(result))  # doctest: +SKIP
    """
    console, text = (require(f"rich.{name}", extra="report") for name in ("console", "text"))
    shown = []
    for section in page_sections(result):
        shown.append(text.Text(f"\n{section.title}", style="bold"))
        shown.append(text.Text(section.finding))
        if section.name in _ON_CONSOLE:
            shown.append(table_group(section.tables[:1]))
    return console.Group(*shown)


def _as_markdown(table: Table) -> str:
    def line(cells) -> str:
        return "| " + " | ".join(cells) + " |"

    rule = "|" + "|".join(["---"] * len(table.header)) + "|"
    header = [cell.replace("|", "/") for cell in table.header]
    rows = ([cell.replace("|", "/") for cell in row] for row in table.rows)
    return "\n".join([f"{table.title}:", "", line(header), rule, *map(line, rows)])
