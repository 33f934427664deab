"""The page on a model, its table for the console, and the same in Markdown."""

from pathlib import Path
from typing import TYPE_CHECKING

from jaxpe._core.errors import require
from jaxpe.analysis.inspect import InspectResult
from jaxpe.report.files import write_files
from jaxpe.report.inspect.figures import NAMES, inspect_figures
from jaxpe.report.inspect.sections import Section, Table, sections_of
from jaxpe.report.inspect.text import headlines, inspect_summary
from jaxpe.report.page import template
from jaxpe.report.tables import make_table
from jaxpe.report.text import plural, visible

if TYPE_CHECKING:
    import rich.console

_ON_CONSOLE = ("offsets", "ablation", "loss", "needles")
_KINDS = {
    "causal": "a causal language model",
    "masked": "a masked language model",
    "encoder": "an encoder",
}


def write_inspect(result: InspectResult, folder: Path, *, png: bool = False) -> Path:
    """Write inspect.html, .json, .npz and .md, and the figures; return the path of the page."""
    figures, sections = inspect_figures(result), sections_of(result)
    page = template("inspect.html.j2").render(
        result=result,
        about=_about(result),
        summary=inspect_summary(result),
        headlines=headlines(result),
        sections=sections,
        figures=figures,
    )
    drawn = [figure for own in figures.values() for figure in own]
    text = inspect_markdown(result).encode()
    return write_files(
        folder, "inspect", result, page, drawn, png=png, others="|".join(NAMES),
        further={"inspect.md": text},
    )  # fmt: skip


def inspect_markdown(result: InspectResult) -> str:
    """The findings and tables as Markdown.

    >>> inspect_markdown(result).splitlines()[0]  # doctest: +SKIP
    '# What position does in all-MiniLM-L6-v2'
    """
    parts = [f"# What position does in {visible(result.facts.model)}", _about(result)]
    parts.append(inspect_summary(result))
    for section in sections_of(result):
        parts += [f"## {section.title}", section.finding]
        parts += [_as_markdown(table) for table in section.tables]
        if section.method:
            parts.append(section.method)
    return "\n\n".join(parts) + "\n"


def inspect_table(result: InspectResult) -> "rich.console.Group":
    """Findings, section by section, on a console: `rich.print(...)` shows it.

    Raises `MissingExtraError` without the extra `report`.

    >>> rich.print(inspect_table(result))  # doctest: +SKIP
    """
    console, text = (require(f"rich.{name}", extra="report") for name in ("console", "text"))
    shown = []
    for section in sections_of(result):
        shown.append(text.Text(f"\n{section.title}", style="bold"))
        shown.append(text.Text(section.finding))
        shown += [_on_console(table) for table in _tables_of(section)]
    return console.Group(*shown)


def _tables_of(section: Section) -> list[Table]:
    """Tables that a console has room for: not those with a row for each layer."""
    return section.tables[:1] if section.name in _ON_CONSOLE else []


def _on_console(table: Table):
    made = make_table(table.title, table.header, table.rows, right=range(1, len(table.header)))
    made.padding = (0, 1, 0, 0)
    return made


def _about(result: InspectResult) -> str:
    facts = result.facts
    return (
        f"{visible(facts.model)}, {_KINDS[facts.kind]} of {facts.parameters / 1e6:,.0f} million "
        f"parameters: {plural(facts.layers, 'layer')} of {plural(facts.heads, 'head')}, "
        f"{facts.width} wide. {visible(facts.source)}: {facts.documents:,} documents, "
        f"{facts.examples} of them looked at in attention, each {facts.positions} places of text."
    )


def _as_markdown(table: Table) -> str:
    def line(cells) -> str:
        return "| " + " | ".join(cells) + " |"

    rule = "|" + "|".join(["---"] * len(table.header)) + "|"
    header = [cell.replace("|", "/") for cell in table.header]
    rows = ([cell.replace("|", "/") for cell in row] for row in table.rows)
    return "\n".join([f"{table.title}:", "", line(header), rule, *map(line, rows)])
