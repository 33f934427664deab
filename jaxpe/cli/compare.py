"""`jaxpe compare`."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import rich
from rich.text import Text
from tyro.conf import Positional

from jaxpe import report
from jaxpe._core.errors import InputError
from jaxpe._core.files import output_folder
from jaxpe.analysis.comparison import RunComparison, compare_runs
from jaxpe.analysis.corpora import DEFAULT_DIM, compare_counts
from jaxpe.analysis.counts import is_counted
from jaxpe.cli.console import Bars
from jaxpe.cli.parsing import command_line, flag_message, parse
from jaxpe.geometry.noise.two_samples import DEFAULT_PERMUTATIONS
from jaxpe.training.config import read_config

_SEEDS = 3  # of each configuration; of two, an interval by Student's t says next to nothing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """Compare runs of `jaxpe train`, or counts of corpora.

    Runs: settings and results. Runs that differ only in their seeds are one configuration, whose
    mean has an interval. Counts: distances between the positional geometries of the corpora, and
    their significance.

    Attributes:
        runs: folders of two runs or more, on the same documents and of the same task, or of counts
            that `jaxpe count` wrote, with the same tokenizer and length.
        out: folder for the page, the numbers and the figure.
        png: whether figures are written as PNG beside SVG.
        mds_dim: MDS dimensions that Procrustes and principal angles compare, for counts.
        permutations: number of random permutations of folds, for counts.
        seed: random seed of the permutations, for counts.
    """

    runs: Positional[tuple[Path, ...]]
    out: Path = Path("comparison")
    png: bool = False
    mds_dim: int = DEFAULT_DIM
    permutations: int = DEFAULT_PERMUTATIONS
    seed: int = 0


def run(words: Sequence[str]) -> None:
    """Compare, write the page, and print the tables."""
    started = time.perf_counter()
    options = parse(Command, words)
    counted = [is_counted(folder) for folder in options.runs]
    if any(counted) and not all(counted):
        one, other = (options.runs[counted.index(kind)] for kind in (True, False))
        raise InputError(f"{one} holds counts, and {other} none; pass counts or runs, not both")
    page = _counts(options) if counted and all(counted) else _runs(options)
    print(f"Comparison: {page}   ({time.perf_counter() - started:.0f} s)")


def _counts(options: Command) -> Path:
    """The page on corpora."""
    found = compare_counts(
        options.runs,
        dim=options.mds_dim,
        permutations=options.permutations,
        seed=options.seed,
        progress=Bars(Command),
    )
    with output_folder(options.out):
        page = report.write(found, options.out, png=options.png)
    rich.print(report.corpora_table(found))
    _tell(found.warnings, report.corpora_summary(found))
    return page


def _runs(options: Command) -> Path:
    """The page on runs."""
    found = compare_runs(options.runs)
    found = found._replace(warnings=tuple(flag_message(text, Command) for text in found.warnings))
    with output_folder(options.out):
        commands = more_seeds(options, found)
        page = report.write(found, options.out, png=options.png, commands=commands)
    rich.print(report.comparison_table(found))
    _tell(found.warnings, report.comparison_summary(found))
    return page


def _tell(warnings: Sequence[str], summary: str) -> None:
    for text in (*(f"Warning: {text}" for text in warnings), summary):
        rich.print(Text(f"{text}\n"))


def more_seeds(options: Command, found: RunComparison) -> dict[str, str]:
    """Commands that train each configuration from three seeds, and then compare all runs."""
    from jaxpe.cli import train  # which has the command that compares

    commands, folders = {}, list(options.runs)
    for group in found.groups if len(found.groups) > 1 else ():
        own = [i for i, one in enumerate(found.runs) if one.group == group.name]
        config = read_config(options.runs[own[0]])
        known = {found.runs[i].init_seed for i in own}
        new = [seed for seed in range(_SEEDS + len(known)) if seed not in known]
        for seed in new[: max(0, _SEEDS - len(own))]:
            other = train.another_seed(config, seed)
            commands[f"Train “{group.name}” from initial weights {seed}"] = train.anew(other)
            folders.append(other.out)
    if commands:
        commands["Compare all"] = command_line(dataclasses.replace(options, runs=tuple(folders)))
    return commands
