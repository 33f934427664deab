"""`jaxpe count`."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import rich
from tyro.conf import Positional

from jaxpe.analysis.counts import CountOptions, count
from jaxpe.cli.console import Bars
from jaxpe.cli.parsing import command_docstring, parse
from jaxpe.report import counts_table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(CountOptions):
    __doc__ = command_docstring(CountOptions, out="folder for the counts.")
    sources: Positional[tuple[str, ...]]
    out: Path = Path("counts")


def run(words: Sequence[str]) -> None:
    """Count, and print what was counted."""
    started = time.perf_counter()
    options = parse(Command, words)
    counted = count(options, options.out, progress=Bars(Command))
    rich.print(counts_table(counted))
    print(f"Counts: {options.out}   ({time.perf_counter() - started:.0f} s)")
