"""`jaxpe bench`."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from tyro.conf import Positional

from jaxpe._core.errors import InputError
from jaxpe.analysis.bench import (
    BenchOptions,
    BenchResult,
    bench,
    bench_command,
    bench_part,
    merge_parts,
)
from jaxpe.cli.console import Bars
from jaxpe.cli.pages import page_docstring, run_to_page
from jaxpe.cli.parsing import parse, plain
from jaxpe.report import bench_summary, bench_tables
from jaxpe.report.style import FigureFormat, FigureStyle


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(BenchOptions):
    __doc__ = page_docstring(
        BenchOptions,
        out="folder for bench.html, bench.json, tables, figures, and models (.npz, left in parts).",
        part="compute part i of k parts, written i/k, on one of several machines.",
        merge="folders of all parts; with the options of the parts.",
    )
    encoding: Positional[str]
    out: Path = Path("bench")
    figures: FigureFormat = "svg"
    style: FigureStyle = "screen"
    part: str | None = None
    merge: tuple[Path, ...] = ()


def run(words: Sequence[str]) -> None:
    """Compute a part, or compare and write the report."""
    options = parse(Command, words)
    if options.part is not None:
        return _part(options)

    def job(options: Command, *, progress: Bars) -> BenchResult:
        settings = plain(options, BenchOptions)
        if options.merge:
            merge_parts(settings, options.merge, options.out)
        return bench(settings, options.out, progress=progress)

    run_to_page(Command, words, job, "Bench", bench_summary, bench_tables)


def _part(options: Command) -> None:
    """Compute one part, and print the command that merges all."""
    settings, found = plain(options, BenchOptions), re.fullmatch(r"(\d+)/(\d+)", options.part or "")
    if found is None or options.merge:
        raise InputError(f"`part` is {options.part!r}: pass it as 2/3, and without `merge`")
    index, count = map(int, found.groups())
    cells = bench_part(settings, options.out, part=(index, count), progress=Bars(Command))
    folders = tuple(f"part-{i}" if i != index else options.out for i in range(1, count + 1))
    print(
        f"Part {index} of {count}: {cells} cells in {options.out}. When all parts are complete:\n"
    )
    print(f"    {bench_command(settings, merge=folders, out='whole')}")
