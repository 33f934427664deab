"""Page of a comparison beyond the training length."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxpe._core.options import command_line
from jaxpe.analysis.extrapolation import ExtrapolationResult
from jaxpe.analysis.extrapolation.cost import COST_LENGTH, COST_ROWS, COST_TASK
from jaxpe.analysis.extrapolation.result import (
    MOST_SEEDS,
    Comparison,
    ExtrapolationCell,
    best_first,
)
from jaxpe.analysis.intervals import SeedInterval
from jaxpe.report.findings import Figure, Finding, Page, Section, Table
from jaxpe.report.numbers import name_list, number, plural
from jaxpe.report.writing import page

_MARKERS = "osD^vPX*"  # of the lines of a panel; further encodings are left out
_ROUNDING = 1e-9  # of a percentage that is whole but for its last bit
_MEANING = (
    "Squared error, geometric mean over the longer inputs.",
    "Right tokens of the answer, mean over the longer inputs.",
)
_LONGER = 4  # times the steps, where no encoding learned a task


@page.register
def extrapolation_page(result: ExtrapolationResult) -> Page:
    """Page of a comparison: verdicts, scores beside cost, and scores by length."""
    options, comparisons = result.options, result.comparisons()
    groups = [best_first([x for x in result.cells if x.task == task]) for task in options.tasks]
    lead = [_task_finding(group, comparisons) for group in groups]
    todo, paste = _next_step(result, comparisons)
    meaning = _MEANING[groups[0][0].is_share]
    lead[0] = lead[0]._replace(sentence=meaning, todo=todo, paste=paste)
    lengths = Figure(
        "lengths",
        "Scores by length of the input",
        "Means over seeds with 95 % intervals. The vertical line is T; dotted is the best answer "
        "at T that ignores the input.",
        [functools.partial(plot_lengths, options.lengths, group) for group in groups],
        columns=min(2, len(groups)),
    )
    note = "Mean differences over seeds, on the same data. All intervals hold jointly at 95 %."
    settings = {
        name: ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for name, value in vars(options).items()
    }
    return Page(
        name="extrapolation",
        title="Trained on short inputs, tested on longer ones",
        about=f"Length up to T = {options.length:,}; {plural(options.seeds, 'seed')}; "
        f"{plural(options.steps, 'step')}",
        lead=lead[:5],
        sections=(
            Section("Beyond T", lead[5:], [_cost_table(result)]),
            Section("Each length", (), [_score_table(result, x) for x in groups], [lengths]),
            Section("Comparisons", list(map(_comparison_finding, comparisons)), note=note),
        ),
        settings=settings,
        methods=(
            f"{len(result.cells)} pairs of a task and an encoding were trained from equal weights "
            "on equal data with equal budgets, and tested on longer inputs. Intervals (95 %) are "
            "over seeds; those of all comparisons hold jointly [@jaxpe]."
        ),
    )


def _next_step(result: ExtrapolationResult, comparisons: Sequence[Comparison]) -> tuple[str, str]:
    """Sentence on what to do, and its command."""
    options, learned = result.options, {cell.task for cell in result.cells if cell.learned}
    unlearned = [task for task in options.tasks if task not in learned]
    seeds = max((x.seeds for x in comparisons), default=0)
    if unlearned:
        text = f"No encoding has learned {name_list(unlearned)} at T: train longer."
        changed = dataclasses.replace(options, steps=_LONGER * options.steps)
    elif seeds:
        text = "More seeds would decide more comparisons. Another random seed draws all anew."
        changed = dataclasses.replace(options, seeds=seeds, seed=options.seed + 1)
    else:
        return "Small models may rank otherwise: compare at your own length, on your tasks.", ""
    return text, command_line("extrapolate", changed, positional=())


def _task_finding(cells: Sequence[ExtrapolationCell], comparisons: Sequence[Comparison]) -> Finding:
    """Score beyond T of the judged encoding of a task, or of its best, with the verdicts."""
    task = cells[0].task
    first = next((x.first for x in comparisons if x.task == task), cells[0].encoding)
    cell = next(cell for cell in cells if cell.encoding == first)
    said: dict[str, list[str]] = {"better": [], "worse": [], "not decided": []}
    for one in comparisons:
        if (one.task, one.first) == (task, first) and one.verdict in said:
            said[one.verdict].append(title_of(one.other))
    verdict = "; ".join(
        f"{word} {'against' if word == 'not decided' else 'than'} {name_list(names)}"
        for word, names in said.items()
        if names
    )
    if not cell.comparable:
        verdict = "undefined beyond T" if cell.learned else "not learned at T"
    return Finding(
        f"{'accuracy' if cell.is_share else 'error'} on {task} beyond T: {title_of(first)}",
        *map(float, cell.beyond_interval),
        unit="share" if cell.is_share else "of the error of saying 0",
        reference=cell.chance,
        against="best without the input, at T:",
        verdict=verdict,
    )


def _comparison_finding(one: Comparison) -> Finding:
    """Lead of an encoding over another, in points of accuracy or as a logarithm of errors."""
    sentence = ""
    if one.verdict == "not decided" and math.isnan(one.lead.low):
        sentence = "These seeds give no interval."
    elif one.verdict == "not decided":
        count = f"About {one.seeds} seeds would" if one.seeds else f"Even {MOST_SEEDS} would not"
        sentence = f"{count} decide it, at the present mean and spread."
    scale, unit = (100.0, "points") if one.is_share else (1.0, "log ratio of errors")
    return Finding(
        f"{one.task}: {title_of(one.first)} against {title_of(one.other)}",
        *(scale * float(x) for x in one.lead),
        unit=unit if one.verdict not in ("not learned", "undefined") else "",
        verdict=one.verdict,
        sentence=sentence,
    )


def _cost_table(result: ExtrapolationResult) -> Table:
    """Mean score beyond T of each encoding on each task, beside its rank and its cost."""
    tasks, ranks = result.options.tasks, result.ranks()
    cells = {(cell.encoding, cell.task): cell for cell in result.cells}
    costs = {cost.encoding: cost for cost in result.costs}
    rows = [
        (
            title_of(name),
            *(_beyond_text(cells[name, task]) for task in tasks),
            _text(ranks[name]) if ranks else "–",
            f"{costs[name].relative_time:.2f}×",
            "n/a" if math.isnan(costs[name].memory) else f"{costs[name].memory / 2**20:.1f}",
            f"{costs[name].parameters:,}",
        )
        for name in ranks or result.options.encodings
    ]
    note = (
        "Accuracy in %, or squared error, relative to answering 0. Rank: mean of 1/rank over "
        f"tasks, seeds and lengths beyond T. Time and MiB: of an update, {COST_ROWS} rows of "
        f"{COST_TASK} of {COST_LENGTH} words, by the time without an encoding."
    )
    header = ["encoding", *tasks, "mean reciprocal rank", "time", "MiB", "parameters"]
    return Table("Score beyond T, rank and cost", header, rows, note)


def _beyond_text(cell: ExtrapolationCell) -> str:
    if not cell.comparable:
        return "undefined" if cell.learned else "not learned"
    return _text(cell.beyond_interval, share=cell.is_share)


def _score_table(result: ExtrapolationResult, cells: Sequence[ExtrapolationCell]) -> Table:
    """Score of each encoding at each length, and the rate chosen."""
    rows = []
    for cell in cells:
        lost = (~np.isfinite(cell.scores[cell.metric])).sum(axis=0)
        undefined = (lost == len(cell.loss)) & (lost[0] == 0)
        texts = [
            _text(SeedInterval(*interval), share=cell.is_share)
            if not count
            else "undefined"
            if none
            else f"{count} of {len(cell.loss)} failed"
            for count, none, *interval in zip(lost, undefined, *cell.interval, strict=True)
        ]
        rows.append((title_of(cell.encoding), *texts, f"{cell.rate:g}"))
    metric = "accuracy in %" if cells[0].is_share else "squared error, relative to answering 0"
    lengths = zip(result.options.lengths, result.options.factors, strict=True)
    columns = [f"{n:,} = {k if k > 1 else ''}T" for n, k in lengths]
    return Table(f"{cells[0].task}: {metric}", ["encoding", *columns, "rate"], rows)


def _text(interval: SeedInterval, *, share: bool = False) -> str:
    """Mean and interval, or the mean alone; ends of percentages are rounded outwards."""
    mean, low, high = map(float, interval)
    if math.isnan(low):
        return f"{100 * mean:.1f}" if share else number(mean)
    if share:
        low, high = math.floor(100 * low + _ROUNDING), math.ceil(100 * high - _ROUNDING)
        return f"{100 * mean:.1f} [{low}–{high}]"
    return f"{number(mean)} [{number(low)} to {number(high)}]"


def title_of(encoding: str) -> str:
    """Title of an encoding; "none" is named NoPE, and one's own stands without its module.

    >>> title_of("none"), title_of("my_module:halved")
    ('NoPE (none)', 'halved')
    """
    return "NoPE (none)" if encoding == "none" else encoding.rpartition(":")[2]


def plot_lengths(lengths: Sequence[int], cells: Sequence[ExtrapolationCell], ax: Any) -> None:
    """Scores of a task against the length, a line for each of the first eight encodings."""
    for marker, cell in zip(_MARKERS, cells, strict=False):
        mean, low, high = cell.interval
        (line,) = ax.plot(lengths, mean, marker=marker, ms=4.5, label=title_of(cell.encoding))
        ax.fill_between(lengths, low, high, color=line.get_color(), alpha=0.12, lw=0)
    ax.axvline(lengths[0], color="#BBBBBB", lw=1, zorder=0)
    ax.axhline(cells[0].chance, color="#666666", ls=":", lw=1.2)
    ax.set_xscale("log", base=2)
    ax.set_xticks(lengths, [f"{n:,}" for n in lengths])
    ax.minorticks_off()
    ax.set(title=cells[0].task, xlabel="length of the input", ylabel=cells[0].metric)
    ax.set_yscale("linear" if cells[0].is_share else "log")
    ax.legend(fontsize="small")
