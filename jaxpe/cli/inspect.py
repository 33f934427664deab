"""`jaxpe inspect`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from tyro.conf import Positional

from jaxpe.analysis.inspect import InspectOptions, InspectResult, inspect_model
from jaxpe.cli.console import Bars
from jaxpe.cli.pages import page_docstring, run_to_page
from jaxpe.cli.parsing import plain
from jaxpe.report import inspect_summary, inspect_table
from jaxpe.report.style import FigureFormat, FigureStyle


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(InspectOptions):
    __doc__ = page_docstring(
        InspectOptions,
        out="folder for inspect.html, inspect.md, inspect.json, figures and intermediate results, "
        "from which the same command resumes.",
    )
    model: Positional[str]
    source: Positional[str | tuple[str, ...]] = InspectOptions.source
    out: Path = Path("inspect")
    figures: FigureFormat = "svg"
    style: FigureStyle = "screen"


def run(words: Sequence[str]) -> None:
    """Inspect the model, write the page, and print what it says."""

    def job(options: Command, *, progress: Bars) -> InspectResult:
        return inspect_model(plain(options, InspectOptions), options.out, progress=progress)

    run_to_page(Command, words, job, "Page", inspect_table, inspect_summary)
