"""Length extrapolation: tables, a page, and the numbers as JSON."""

import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxpe._core.errors import require
from jaxpe._core.folders import output_folder
from jaxpe._core.results import result_files
from jaxpe.analysis.extrapolation import ExtrapolationResult, Suite
from jaxpe.report.extrapolation.figures import NAMES, render_extrapolation
from jaxpe.report.extrapolation.words import (
    METRIC_WORDS,
    by_task,
    extrapolation_findings,
    rank_rows,
    task_header,
    task_rows,
)
from jaxpe.report.files import remove_other_figures, write_files
from jaxpe.report.page import template
from jaxpe.report.tables import make_table
from jaxpe.report.words import visible

if TYPE_CHECKING:
    import rich.console

_RANK_HEADER = ["encoding", "mean reciprocal rank"]


def extrapolation_table(result: ExtrapolationResult) -> "rich.console.Group":
    """A table for each task and one of ranks for each suite: `rich.print(...)` shows them.

    Scores are means over seeds ± half of a 95 % interval; the best encoding comes first.

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
    return group(*tables)


def write_extrapolation(result: ExtrapolationResult, directory: str | os.PathLike[str]) -> Path:
    """Write extrapolation.html, extrapolation.json and the figures; return the page's path.

    Figures that an earlier report left in the folder go where this one has none of that name.

    Raises `InputError` where the folder cannot be written or another run writes into it, and
    `MissingExtraError` without the extra `report`.
    """
    figures = render_extrapolation(result)
    page = template("extrapolation.html.j2").render(
        result=result,
        findings=extrapolation_findings(result),
        suites=_tables(result),
        figures=figures,
        settings=_settings(result),
    )
    files = result_files(result, "extrapolation") | {"extrapolation.html": page.encode()}
    with output_folder(directory) as folder:
        written = write_files(folder, figures, files)
        before = [path for path in (folder / "figures").iterdir() if NAMES.fullmatch(path.name)]
        remove_other_figures(folder, [path.stem for path in before], figures)
    return written


def _tables(result: ExtrapolationResult) -> list[dict[str, Any]]:
    """The tables of each suite, that of its ranks last."""
    suites = []
    for suite in result.suites:
        cells, name = result.cells_of(suite), visible(suite.name)
        tables = [
            {
                "title": f"{name}, {task}: {METRIC_WORDS[own[0].metric]}",
                "header": task_header(own),
                "rows": task_rows(own),
            }
            for task, own in by_task(cells).items()
        ]
        if rows := rank_rows(cells):
            title = f"{name}: ranks beyond T"
            tables.append({"title": title, "header": _RANK_HEADER, "rows": rows})
        suites.append({"name": name, "tables": tables})
    return suites


def _settings(result: ExtrapolationResult) -> list[list[str]]:
    """A row for each setting, a column for each suite."""

    def shown(value: Any) -> str:
        if isinstance(value, list | tuple):
            return ", ".join(map(shown, value))
        return visible(f"{value:g}" if isinstance(value, float) else str(value), limit=200)

    names = [field.name for field in fields(Suite)]
    return [
        [name.replace("_", " "), *(shown(getattr(suite, name)) for suite in result.suites)]
        for name in names
    ]
