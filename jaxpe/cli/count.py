"""`jaxpe count`."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import rich
from tyro.conf import Positional

from jaxpe.analysis.counts import CountOptions, count, count_by, one_line_process_errors
from jaxpe.cli.console import Bars
from jaxpe.cli.parsing import command_docstring, parse
from jaxpe.report import counts_table
from jaxpe.report.tables import make_table
from jaxpe.report.text import visible


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(CountOptions):
    __doc__ = command_docstring(
        CountOptions,
        out="folder for the counts, and for the state while counting.",
        by="column or key, such as a language, whose values are counted separately in one "
        "pass, each in a subfolder of `out`.",
    )
    sources: Positional[tuple[str, ...]]
    out: Path = Path("counts")
    by: str | None = None


def run(words: Sequence[str]) -> None:
    """Count, alone or as one of several processes; only the first process prints."""
    started = time.perf_counter()
    options = parse(Command, words)
    if options.by is not None:
        return _run_grouped(options, options.by, started)
    with one_line_process_errors():
        counted = count(options, options.out, progress=Bars(Command))
    if jax.process_index() == 0:
        rich.print(counts_table(counted))
        print(f"Counts: {options.out}   ({time.perf_counter() - started:.0f} s)")


def _run_grouped(options: Command, by: str, started: float) -> None:
    """Count the documents of each value of a column separately."""
    counted = count_by(options, options.out, by=by, progress=Bars(Command))
    values = sorted(counted.items(), key=lambda item: (item[0] is None, item[0]))
    tokens = [f"{int(stored.table.sum(dtype='int64')):,}" for _, stored in values]
    rows = [
        (visible(value or "–"), f"{stored.documents:,}", total)
        for (value, stored), total in zip(values, tokens, strict=True)
    ]
    rich.print(make_table("Counts", [visible(by), "documents", "tokens"], rows, right=(1, 2)))
    print(f"Counts: {options.out}/*   ({time.perf_counter() - started:.0f} s)")
