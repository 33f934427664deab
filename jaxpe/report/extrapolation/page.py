"""Length extrapolation: tables, a page, and the numbers as JSON."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxpe._core.errors import require
from jaxpe._core.folders import output_folder, remove_files
from jaxpe.analysis.extrapolation.result import ExtrapolationCell, ExtrapolationReport
from jaxpe.report.attention.page import _plain
from jaxpe.report.extrapolation.figures import NAMES, render_extrapolation
from jaxpe.report.extrapolation.words import (
    METRIC_WORDS,
    by_suite,
    by_task,
    extrapolation_findings,
    over_seeds,
    rank_rows,
    ranks,
    task_header,
    task_rows,
)
from jaxpe.report.files import write_files
from jaxpe.report.page import template
from jaxpe.report.style import Rendered
from jaxpe.report.tables import make_table
from jaxpe.report.words import visible

if TYPE_CHECKING:
    import rich.console

_RANK_HEADER = ["encoding", "mean reciprocal rank"]


def extrapolation_table(report: ExtrapolationReport) -> "rich.console.Group":
    """A table for each task and one of ranks for each suite: `rich.print(...)` shows them.

    Scores are means over seeds ± half of a 95 % interval; the best encoding comes first.

    Raises `MissingExtraError` without the extra `report`.
    """
    group = require("rich.console", extra="report").Group
    tables = [
        make_table(table["title"], table["header"], table["rows"], right=range(1, 99))
        for suite in _tables(report)
        for table in suite["tables"]
    ]
    for table in tables:
        table.padding = (0, 1, 0, 0)  # 100 columns are to do
    return group(*tables)


def write_extrapolation(report: ExtrapolationReport, directory: str | os.PathLike[str]) -> Path:
    """Write extrapolation.html, extrapolation.json and the figures; return the page's path.

    Figures that an earlier report left in the folder go where this one has none of that name.

    Raises `InputError` where the folder cannot be written or another run writes into it, and
    `MissingExtraError` without the extra `report`.
    """
    figures = render_extrapolation(report)
    page = template("extrapolation.html.j2").render(
        report=report,
        findings=extrapolation_findings(report),
        suites=_tables(report),
        figures=figures,
        settings=_settings(report),
    )
    files = {
        "extrapolation.json": _lines(extrapolation_json(report)).encode(),
        "extrapolation.html": page.encode(),
    }
    with output_folder(directory) as folder:
        written = write_files(folder, figures, files)
        remove_files(folder, _others(folder, figures))
    return written


def extrapolation_json(report: ExtrapolationReport) -> dict[str, Any]:
    """The report as plain values; numbers that are not finite are null.

    To the fields of a cell come the means of its scores over seeds, and halves of their intervals.
    """
    found = {
        "suites": report.suites,
        "cells": [_cell(cell) for cell in report.cells],
        "mean_reciprocal_rank": {
            settings["name"]: {name: x._asdict() for name, x in ranks(cells).items()}
            for settings, cells in by_suite(report)
        },
        "seconds": report.seconds,
    }
    return _plain(found)


def _cell(cell: ExtrapolationCell) -> dict[str, Any]:
    means = {metric: over_seeds(cell, metric)._asdict() for metric in cell.scores}
    return cell._asdict() | {"summary": means}


def _tables(report: ExtrapolationReport) -> list[dict[str, Any]]:
    """The tables of each suite, that of its ranks last."""
    suites = []
    for settings, cells in by_suite(report):
        name = visible(settings["name"])
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


def _settings(report: ExtrapolationReport) -> list[list[str]]:
    """A row for each setting, a column for each suite."""

    def shown(value: Any) -> str:
        if isinstance(value, list | tuple):
            return ", ".join(map(shown, value))
        return visible(f"{value:g}" if isinstance(value, float) else str(value), limit=200)

    names = list(report.suites[0])
    return [[name.replace("_", " "), *(shown(x[name]) for x in report.suites)] for name in names]


def _others(directory: Path, figures: list[Rendered]) -> list[str]:
    """What an earlier report drew in the folder and this one has no figure for."""
    kept = {figure.name for figure in figures}
    drawn = [path for path in (directory / "figures").iterdir() if NAMES.fullmatch(path.name)]
    return [f"figures/{path.name}" for path in drawn if path.stem not in kept]


def _lines(fields: dict[str, Any]) -> str:
    """JSON with a line for each suite and cell."""

    def entry(name: str, value: Any) -> str:
        if isinstance(value, list):
            inner = ",\n".join(f"    {json.dumps(x)}" for x in value)
            return f"  {json.dumps(name)}: [\n{inner}\n  ]"
        return f"  {json.dumps(name)}: {json.dumps(value)}"

    return "{\n" + ",\n".join(entry(*item) for item in fields.items()) + "\n}\n"
