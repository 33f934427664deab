"""Length extrapolation: tables, a page, and the numbers as JSON."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxpe._core.errors import require
from jaxpe.analysis.extrapolation import ExtrapolationResult, Suite
from jaxpe.report.extrapolation import text
from jaxpe.report.extrapolation.figures import NAMES, render_extrapolation
from jaxpe.report.extrapolation.summary import summary
from jaxpe.report.files import write_files
from jaxpe.report.page import template
from jaxpe.report.tables import make_table
from jaxpe.report.text import visible

if TYPE_CHECKING:
    import rich.console

_RANK_HEADER = ["encoding", "mean reciprocal rank"]


def extrapolation_table(result: ExtrapolationResult) -> "rich.console.Group":
    """Scores, a table for each task and one of ranks for each suite, for `rich.print`.

    Scores are means over seeds with 95 % intervals; the best encoding comes first.

    Raises `MissingExtraError` without the extra `report`.

    >>> rich.print(extrapolation_table(found))  # doctest: +SKIP
    """
    group = require("rich.console", extra="report").Group
    tables = [
        make_table(table["title"], table["header"], table["rows"], right=range(1, 99))
        for suite in _tables(result)
        for table in suite["tables"]
    ]
    for table in tables:
        table.padding = (0, 1, 0, 0)  # 100 columns are to do
    text = require("rich.text", extra="report").Text
    return group(text(summary(result) + "\n"), *tables)


def write_extrapolation(result: ExtrapolationResult, folder: Path, *, png: bool = False) -> Path:
    """Write extrapolation.html, extrapolation.json and the figures; return the page's path."""
    figures = render_extrapolation(result)
    page = template("extrapolation.html.j2").render(
        result=result,
        summary=summary(result),
        findings=text.extrapolation_findings(result),
        suites=_tables(result),
        figures=figures,
        settings=_settings(result),
    )
    return write_files(folder, "extrapolation", result, page, figures, png=png, others=NAMES)


def _tables(result: ExtrapolationResult) -> list[dict[str, Any]]:
    """The tables of each suite, that of its ranks last."""
    suites = []
    for suite in result.suites:
        cells, name = result.cells_of(suite), visible(suite.name)
        tables = [
            {
                "title": f"{name}, {task}: {text.METRIC_WORDS[own[0].metric]}",
                "header": text.task_header(own),
                "rows": text.task_rows(own),
            }
            for task, own in text.by_task(cells).items()
        ]
        if rows := text.rank_rows(cells):
            title = f"{name}: ranks beyond T"
            tables.append({"title": title, "header": _RANK_HEADER, "rows": rows})
        suites.append({"name": name, "tables": tables})
    return suites


def _settings(result: ExtrapolationResult) -> list[list[str]]:
    """A row for each setting, a column for each suite."""

    def shown(value: Any) -> str:
        if value is None:
            return "–"
        if isinstance(value, list | tuple):
            return ", ".join(map(shown, value))
        return visible(f"{value:g}" if isinstance(value, float) else str(value), limit=200)

    names = [field.name for field in fields(Suite)]
    columns = [[shown(value) for value in _settings_of(suite)] for suite in result.suites]
    return [[name.replace("_", " "), *row] for name, *row in zip(names, *columns, strict=True)]


def _settings_of(suite: Suite) -> list[Any]:
    """Values of the settings, such that "none" is said of an encoding alone."""
    norm = None if suite.norm == "none" else suite.norm
    encodings = tuple(map(text.title_of, suite.encodings))
    values = vars(suite) | {"norm": norm, "encodings": encodings}
    return [values[field.name] for field in fields(Suite)]
