"""`jaxpe extrapolate`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from jaxpe.analysis.extrapolation import ExtrapolationOptions, ExtrapolationResult, extrapolate
from jaxpe.cli.console import Bars
from jaxpe.cli.pages import run_to_page
from jaxpe.cli.parsing import described, plain
from jaxpe.report import extrapolation_table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(ExtrapolationOptions):
    __doc__ = described(
        ExtrapolationOptions,
        out="folder for extrapolation.html, extrapolation.json, figures and trained models.",
        png="whether figures are written as PNG beside SVG.",
        list="whether to print the names of presets, tasks and encodings, and end.",
    )
    out: Path = Path("extrapolation")
    png: bool = False
    list: bool = False  # which `jaxpe.cli.main` sees to


def run(words: Sequence[str]) -> None:
    """Train and test, write the report, and print the ranks."""

    def job(options: Command, *, progress: Bars) -> ExtrapolationResult:
        own = plain(options, ExtrapolationOptions)
        return extrapolate(own, options.out, progress=progress)

    run_to_page(Command, words, job, "Extrapolation", extrapolation_table)
