"""`jaxpe extrapolate`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from jaxpe.analysis.extrapolation import (
    PRESETS,
    ExtrapolationOptions,
    ExtrapolationResult,
    extrapolate,
    variant_names,
)
from jaxpe.cli.console import Bars
from jaxpe.cli.pages import page_docstring, run_to_page
from jaxpe.cli.parsing import plain
from jaxpe.data import SEQUENCE_TASKS
from jaxpe.encodings import catalogue
from jaxpe.report import extrapolation_table
from jaxpe.report.style import FigureFormat, FigureStyle


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(ExtrapolationOptions):
    __doc__ = page_docstring(
        ExtrapolationOptions,
        out="folder for extrapolation.html, extrapolation.json, figures and trained models.",
        list="print the names of presets, tasks and encodings, and exit.",
    )
    out: Path = Path("extrapolation")
    figures: FigureFormat = "svg"
    style: FigureStyle = "screen"
    list: bool = False  # handled before the options are parsed


def run(words: Sequence[str]) -> None:
    """Train and test, write the report, and print the ranks."""
    if "--list" in words:
        return print(_names())

    def job(options: Command, *, progress: Bars) -> ExtrapolationResult:
        return extrapolate(plain(options, ExtrapolationOptions), options.out, progress=progress)

    run_to_page(Command, words, job, "Extrapolation", extrapolation_table)


def _names() -> str:
    """Text that lists presets, tasks and encodings with their descriptions."""
    presets = {
        name: "; ".join(
            f"{', '.join(suite.tasks)} under {len(suite.encodings)} encodings" for suite in suites
        )
        for name, suites in PRESETS.items()
    }
    descriptions = {entry.name: entry.description for entry in catalogue()}
    encodings = {name: descriptions.get(name, "") for name in variant_names()}
    width = max(map(len, encodings))
    lines = ["--preset", *(f"  {name:{width}}  {text}" for name, text in presets.items()), ""]
    lines += ["--tasks", f"  {', '.join(SEQUENCE_TASKS)}", "", "--encodings"]
    lines += [f"  {name:{width}}  {text}" for name, text in encodings.items()]
    return "\n".join([*lines, "", "Pass your own encoding as my_module:my_encoding."])
