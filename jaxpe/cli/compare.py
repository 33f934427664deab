"""`jaxpe compare`."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import rich
from rich.text import Text
from tyro.conf import Positional

from jaxpe import report
from jaxpe._core.errors import InputError
from jaxpe._core.results import load_result
from jaxpe.analysis.comparison import RunComparison, compare_runs
from jaxpe.analysis.corpora import DEFAULT_DIM, CorporaComparison, compare_counts
from jaxpe.analysis.counts import is_counted
from jaxpe.analysis.inspect import InspectResult
from jaxpe.analysis.inspections import InspectionComparison, compare_inspections
from jaxpe.cli.console import Bars
from jaxpe.cli.pages import print_advice, write_methods
from jaxpe.cli.parsing import command_line, flag_message, parse
from jaxpe.cli.train import config_with_seed, train_command
from jaxpe.geometry.noise.two_samples import DEFAULT_PERMUTATIONS
from jaxpe.report.style import FigureFormat, FigureStyle
from jaxpe.training.config import read_config

_INSPECTION = "inspect.json"
_SEEDS = 3  # runs per configuration; with two, Student's interval is too wide to be useful


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """Compare runs of `jaxpe train`, inspections of models, or counts of corpora.

    Runs are compared by settings and results. Runs that differ only in their seeds are one
    configuration, whose mean has an interval. Counts are compared by the distances between the
    positional geometries of the corpora, and their significance.

    Attributes:
        runs: folders of two or more runs, with the same documents and task; of counts that
            `jaxpe count` wrote, with the same tokenizer and length; or of pages of `jaxpe inspect`.
        out: folder for the page, the numbers and the figure.
        figures: format of the figures in files, besides the SVG of the page.
        style: style of the figures in files; paper for the columns of a paper.
        mds_dim: number of MDS dimensions for Procrustes and principal angles, for counts.
        permutations: number of random permutations of folds, for counts.
        seed: random seed of the permutations, for counts.
    """

    runs: Positional[tuple[Path, ...]]
    out: Path = Path("comparison")
    figures: FigureFormat = "svg"
    style: FigureStyle = "screen"
    mds_dim: int = DEFAULT_DIM
    permutations: int = DEFAULT_PERMUTATIONS
    seed: int = 0


def run(words: Sequence[str]) -> None:
    """Compare, write the page, and print the tables."""
    started = time.perf_counter()
    options = parse(Command, words)
    kinds = [_kind(folder) for folder in options.runs]
    if len(set(kinds)) > 1:
        other = next(index for index, kind in enumerate(kinds) if kind != kinds[0])
        raise InputError(
            f"{options.runs[0]} holds {kinds[0]}, but {options.runs[other]} holds {kinds[other]}; "
            f"pass folders of one kind"
        )
    compare, table, summary = _COMPARE[kinds[0]]
    comparison = compare(options)
    commands = more_seeds(options, comparison) if isinstance(comparison, RunComparison) else {}
    page = report.write(
        comparison, options.out, figures=options.figures, style=options.style, commands=commands
    )
    rich.print(table(comparison))
    for text in (*(f"Warning: {text}" for text in comparison.warnings), summary(comparison)):
        rich.print(Text(f"{text}\n"))
    print_advice(comparison, commands=commands)
    write_methods(comparison, options, words)
    print(f"\nComparison: {page}   ({time.perf_counter() - started:.0f} s)")


def _kind(folder: Path) -> str:
    """Kind of the contents of a folder."""
    if is_counted(folder):
        return "counts"
    return "an inspection" if (folder / _INSPECTION).is_file() else "a run"


def _counts(options: Command) -> CorporaComparison:
    return compare_counts(
        options.runs,
        dim=options.mds_dim,
        permutations=options.permutations,
        seed=options.seed,
        progress=Bars(Command),
    )


def _runs(options: Command) -> RunComparison:
    comparison = compare_runs(options.runs)
    warnings = tuple(flag_message(text, Command) for text in comparison.warnings)
    return comparison._replace(warnings=warnings)


def _inspections(options: Command) -> InspectionComparison:
    found = [load_result(InspectResult, folder / _INSPECTION) for folder in options.runs]
    return compare_inspections(found)


# What compares folders of a kind, and its table and summary.
_COMPARE: dict[str, tuple[Callable[[Command], Any], Callable, Callable]] = {
    "counts": (_counts, report.corpora_table, report.corpora_summary),
    "an inspection": (_inspections, report.inspections_table, report.inspections_summary),
    "a run": (_runs, report.comparison_table, report.comparison_summary),
}


def more_seeds(options: Command, comparison: RunComparison) -> dict[str, str]:
    """Commands that train each configuration from three seeds, and then compare all runs."""
    commands, folders = {}, list(options.runs)
    for group in comparison.groups if len(comparison.groups) > 1 else ():
        members = [i for i, one in enumerate(comparison.runs) if one.group == group.name]
        config = read_config(options.runs[members[0]])
        seeds = {comparison.runs[i].init_seed for i in members}
        new_seeds = [seed for seed in range(_SEEDS + len(seeds)) if seed not in seeds]
        for seed in new_seeds[: max(0, _SEEDS - len(members))]:
            new_config = config_with_seed(config, seed)
            purpose = f"Train “{group.name}” from initial weights {seed}"
            commands[purpose] = train_command(new_config)
            folders.append(new_config.out)
    if commands:
        commands["Compare all"] = command_line(dataclasses.replace(options, runs=tuple(folders)))
    return commands
