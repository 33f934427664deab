"""`jaxpe extrapolate`."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import rich

from jaxpe import report
from jaxpe._core.folders import output_folder
from jaxpe.analysis.extrapolation import ExtrapolationOptions, extrapolate
from jaxpe.cli.console import Bars
from jaxpe.cli.parsing import described, parse, plain


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(ExtrapolationOptions):
    out: Path = Path("extrapolation")


Command.__doc__ = described(
    ExtrapolationOptions,
    out="folder for extrapolation.html, extrapolation.json, figures and what was trained.",
)


def run(words: Sequence[str]) -> None:
    """Train and test, write the report, and print the ranks."""
    started = time.perf_counter()
    options = parse(Command, words)
    with output_folder(options.out):
        found = extrapolate(
            plain(options, ExtrapolationOptions), options.out, progress=Bars(Command)
        )
        page = report.write(found, options.out)
    rich.print(report.extrapolation_table(found))
    print(f"Extrapolation: {page}   ({time.perf_counter() - started:.0f} s)")
