"""View of length extrapolation: tables, a page, and the numbers as JSON."""

from typing import TYPE_CHECKING, Any

from jaxpe.analysis.extrapolation import ExtrapolationResult
from jaxpe.report.extrapolation import text
from jaxpe.report.extrapolation.figures import NAMES, render_extrapolation
from jaxpe.report.extrapolation.text import advice
from jaxpe.report.page import View
from jaxpe.report.tables import table_group
from jaxpe.report.text import visible

if TYPE_CHECKING:
    import rich.console

_RANK_HEADER = ["encoding", "mean reciprocal rank"]


def extrapolation_table(result: ExtrapolationResult) -> "rich.console.Group":
    """Tables of scores for each task and of ranks for each suite, for `rich.print`.

    Scores are means over seeds with 95 % intervals; the best encoding comes first.

    Raises `MissingExtraError` without the extra `report`.

    >>> rich.print(extrapolation_table(found))  # doctest: +SKIP
    """
    tables = table_group(table.values() for suite in _tables(result) for table in suite["tables"])
    tables.renderables.insert(0, text.summary(result) + "\n")
    return tables


def view(result: ExtrapolationResult) -> View:
    """Page of a comparison."""
    tables = [tuple(table.values()) for suite in _tables(result) for table in suite["tables"]]
    shown = {
        "summary": text.summary(result),
        "findings": text.extrapolation_findings(result),
        "suites": _tables(result),
        "settings": _settings(result),
    }
    figures = render_extrapolation(result)
    return View(
        "extrapolation", shown, figures, tables, advice(result), "which-encoding", NAMES
    )  # fmt: skip


def _tables(result: ExtrapolationResult) -> list[dict[str, Any]]:
    """Tables of each suite: one for each task, then the ranks."""
    suites = []
    for suite in result.suites:
        cells, name = result.cells_of(suite), visible(suite.name)
        tables = [
            {
                "title": f"{name}, {task}: {text.METRIC_WORDS[task_cells[0].metric]}",
                "header": text.task_header(task_cells),
                "rows": text.task_rows(task_cells),
            }
            for task, task_cells in text.by_task(cells).items()
        ]
        if rows := text.rank_rows(cells):
            title = f"{name}: ranks beyond T"
            tables.append({"title": title, "header": _RANK_HEADER, "rows": rows})
        suites.append({"name": name, "tables": tables})
    return suites


def _settings(result: ExtrapolationResult) -> list[list[str]]:
    """A row for each setting, a column for each suite."""

    def shown(value: Any) -> str:
        if isinstance(value, list | tuple):
            return ", ".join(map(shown, value))
        if value in (None, "none"):  # no norm; an encoding of none is NoPE
            return "–"
        return visible(f"{value:g}" if isinstance(value, float) else str(value), limit=200)

    columns = [
        vars(suite) | {"encodings": [text.title_of(name) for name in suite.encodings]}
        for suite in result.suites
    ]
    names = columns[0] if columns else ()
    return [[name.replace("_", " "), *(shown(x[name]) for x in columns)] for name in names]
