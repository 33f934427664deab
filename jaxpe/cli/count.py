"""`jaxpe count`."""

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import rich
from tyro.conf import Positional

from jaxpe.analysis.counts import CountOptions, count, ending_in_one_line
from jaxpe.cli.console import Bars
from jaxpe.cli.parsing import described, parse
from jaxpe.report import counts_table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(CountOptions):
    __doc__ = described(
        CountOptions, out="folder for the counts, and for the state while counting."
    )
    sources: Positional[tuple[str, ...]]
    out: Path = Path("counts")


def run(words: Sequence[str]) -> None:
    """Count, alone or as one of several processes; the first of them prints."""
    started = time.perf_counter()
    options = parse(Command, words)
    with ending_in_one_line() if options.several else contextlib.nullcontext():
        counted = count(options, options.out, progress=Bars(Command))
    if jax.process_index() == 0:
        rich.print(counts_table(counted))
        print(f"Counts: {options.out}   ({time.perf_counter() - started:.0f} s)")
