"""View of a benchmark: accuracy beside cost, verdicts, scores, properties, and a figure."""

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxpe.analysis.bench import BenchResult, EncodingMeasures, Verdict
from jaxpe.analysis.bench.measures import COST_LENGTH, COST_ROWS, COST_TASK
from jaxpe.analysis.extrapolation import (
    MOST_SEEDS,
    ExtrapolationCell,
    SeedInterval,
    beyond,
    seed_interval,
)
from jaxpe.analysis.extrapolation.comparisons import trials_beyond
from jaxpe.report.bench.advice import advice, verdict_counts
from jaxpe.report.encodings import information, scaled
from jaxpe.report.extrapolation.figures import MARKERS
from jaxpe.report.extrapolation.text import (
    joined,
    percent_ends,
    quoted,
    title_of,
    with_interval,
)
from jaxpe.report.page import View
from jaxpe.report.style import add_legend, encoding_colours, new_figure, render
from jaxpe.report.tables import Table, table_group
from jaxpe.report.text import number, plural

if TYPE_CHECKING:
    import matplotlib.figure
    import rich.console


def view(result: BenchResult) -> View:
    """Page of a benchmark."""
    figures = render(result, ("accuracy_cost", accuracy_cost_figure, _CAPTION))
    shown = {"summary": bench_summary(result), "notes": _notes(result)}
    tables, suite = _tables(result), result.suite
    return View(
        "bench", shown, figures, tables, advice(result), "own-encoding", "accuracy_cost",
        further={"tables/scores.csv": _scores_file(result)},
        setting=f"T = {suite.length}, {plural(suite.seeds, 'seed')}, intervals of "
        f"{100 * result.level:.2f} %",
    )  # fmt: skip


def bench_summary(result: BenchResult) -> str:
    """First paragraph of a benchmark: the verdicts, and how the intervals hold.

    >>> bench_summary(found)  # doctest: +SKIP
    '“mine:slow” beyond the training length: better than “rope” on copy; ...'
    """
    parts = []
    for said in ("better", "worse", "not decided", "not learned", "undefined"):
        rivals: dict[str, list[str]] = {}
        for one in result.verdicts:
            if one.verdict == said:
                rivals.setdefault(one.task, []).append(short_name(one.rival))
        on = [f"{task} ({joined(names)})" for task, names in rivals.items()]
        parts += [f"{said.capitalize()} on {joined(on)}."] if on else []
    suite, looks = result.suite, len(result.verdicts)
    each = f"The {100 * result.level:.4g} % intervals of {looks} comparisons hold jointly at 95 %."
    own = quoted(result.options.encoding)
    return (
        f"{own} was trained up to length T = {suite.length} and compared with its rivals by mean "
        f"accuracy at {joined([str(n) for n in suite.lengths[1:]])}, over "
        f"{plural(suite.seeds, 'seed')}. {' '.join(parts)} Two encodings are compared where both "
        "have learned the task: at T they do better than the best answer that ignores the input. "
        f"{each if looks > 1 else 'The interval holds at 95 %.'}"
    )


def bench_tables(result: BenchResult) -> "rich.console.Group":
    """Tables of a benchmark, accuracy beside cost first, for `rich.print`.

    Raises `MissingExtraError` without the extra `report`.

    >>> rich.print(bench_tables(found))  # doctest: +SKIP
    """
    return table_group(_tables(result)[:2])


def _tables(result: BenchResult) -> list[Table]:
    by_pair = {(cell.task, cell.encoding): cell for cell in result.cells}
    tasks, names = result.suite.tasks, result.suite.encodings
    own, short = short_name(result.options.encoding), short_name
    main = [
        [*_cost(row), *(_beyond(by_pair[task, row.name], result.level) for task in tasks)]
        for row in result.measures
    ]
    header = ["encoding", "time", "MiB", "params", "stress", *tasks]
    against = [[one.task, short(one.rival), *_said(one)] for one in result.verdicts]
    scores = [
        (
            f"{task}: accuracy in %",
            ["encoding", *(f"{n} = {_multiple(k)}T" for n, k in _lengths(result)), "rate"],
            [_scores(by_pair[task, name], result.level) for name in names],
        )
        for task in tasks
    ]
    return [
        ("Accuracy beyond T in %, beside cost", header, main),
        (f"{own} against each rival, beyond T", _VERDICT_HEADER, against),
        *scores,
        ("Properties", _PROPERTY_HEADER, [_property_row(row) for row in result.measures]),
    ]


def _lengths(result: BenchResult) -> list[tuple[int, int]]:
    return list(zip(result.suite.lengths, result.suite.factors, strict=True))


def _multiple(factor: int) -> str:
    return "" if factor == 1 else f"{factor}"


def short_name(encoding: str) -> str:
    """Title of an encoding for narrow tables, without the module of one's own.

    >>> short_name("my_module:halved"), short_name("none")
    ('halved', 'NoPE')
    """
    return "NoPE" if encoding == "none" else title_of(encoding.rpartition(":")[2])


def _cost(row: EncodingMeasures) -> list[str]:
    stress = "–" if math.isnan(row.stress) else f"{row.stress:.2f}"
    memory = "n/a" if math.isnan(row.memory) else f"{row.memory / 2**20:.1f}"
    return [
        short_name(row.name),
        f"{row.relative_time:.2f}×",
        memory,
        f"{row.parameters:,}",
        stress,
    ]


def _beyond(cell: ExtrapolationCell, level: float) -> str:
    """Mean accuracy beyond T with its interval, or the reason why there is none."""
    if not cell.learned:
        return "not learned"
    values = beyond(cell)
    if not np.isfinite(values).all():
        return "undefined" if not cell.defined.all() else "failed"
    mean, low, high = map(float, _interval(values, trials_beyond(cell), level))
    ends = "" if math.isnan(low) else f" {percent_ends(low, high)}"
    return f"{100 * mean:.0f}{ends}"


def _interval(values: np.ndarray, trials: int | float | None, level: float) -> SeedInterval:
    return seed_interval(values, within=(0.0, 1.0), trials=trials or math.inf, level=level)


def _scores(cell: ExtrapolationCell, level: float) -> list[str]:
    """Row of a task's table: accuracy at each length, with intervals."""
    cells = [
        with_interval(interval, metric=cell.metric)
        if np.isfinite(interval.mean)
        else ("failed" if defined else "undefined")
        for interval, defined in zip(_intervals(cell, level), cell.defined, strict=True)
    ]
    return [short_name(cell.encoding), *cells, f"{cell.rate:g}"]


def _intervals(cell: ExtrapolationCell, level: float) -> list[SeedInterval]:
    """Mean accuracy at each length with its interval; NaN where a seed has no finite score."""
    return [_interval(values, cell.tests, level) for values in cell.scores[cell.metric].T]


def _scores_file(result: BenchResult) -> bytes:
    """Numbers of the tables of scores as CSV, shares in [0, 1], a row for each length."""
    lines = ["encoding,task,length,mean,low,high,seeds"]
    for cell in result.cells:
        for n, interval in zip(cell.lengths, _intervals(cell, result.level), strict=True):
            ends = ",".join(f"{float(end):.6g}" for end in interval)
            lines.append(f"{cell.encoding},{cell.task},{n},{ends},{result.suite.seeds}")
    return "\n".join([*lines, ""]).encode()


_VERDICT_HEADER = ["task", "rival", "verdict", "lead in points", "seeds to decide"]


def _said(verdict: Verdict) -> list[str]:
    """Verdict, lead with its interval in percentage points, and seeds that would decide."""
    lead, seeds = verdict.lead, f"{verdict.seeds}"
    if math.isnan(lead.mean):
        return [verdict.verdict, "–", "–"]
    if verdict.verdict != "not decided":
        seeds = "decided"
    elif not verdict.seeds:
        seeds = f"over {MOST_SEEDS}" if np.isfinite(lead.low) else "unknown"
    ends = percent_ends(float(lead.low), float(lead.high)) if np.isfinite(lead.low) else ""
    points = f"{100 * lead.mean:+.1f} {ends.replace('–', ' to ')}".strip().replace("-", "−")
    return [verdict.verdict, points, seeds]


_PROPERTY_HEADER = [
    "encoding", "position", "beyond T", "gradient", "FLOPs/token", "bytes/token", "µs/token",
]  # fmt: skip


def _property_row(row: EncodingMeasures) -> list[str]:
    found = row.properties
    return [
        short_name(row.name), information(found), found.beyond, ", ".join(found.gradient) or "–",
        scaled(found.flops), scaled(found.bytes), number(1e6 * row.token_seconds),
    ]  # fmt: skip


def accuracy_cost_figure(result: BenchResult) -> "matplotlib.figure.Figure":
    """Accuracy beyond T against the duration of an update, a panel for each task."""
    tasks, own = result.suite.tasks, result.options.encoding
    figure, axes = new_figure(
        _figure_title(result), columns=len(tasks), height=3.4, width=5.2, sharex=True, sharey=True
    )
    times = {row.name: row.relative_time for row in result.measures}
    colours = encoding_colours(times)
    markers = dict(zip(times, itertools.cycle(MARKERS), strict=False)) | {own: "*"}
    for axis, task in zip(axes, tasks, strict=True):
        for cell in (cell for cell in result.cells if cell.task == task):
            mean, low, high = _interval(beyond(cell), trials_beyond(cell), result.level)
            name, x = cell.encoding, times[cell.encoding]
            look: dict[str, Any] = {"color": colours[name], "label": short_name(name)}
            look |= {"marker": markers[name], "ms": 11 if name == own else 6}
            look |= {} if cell.learned else {"mfc": "white"}
            axis.vlines(x, 100 * low, 100 * high, color=colours[name], lw=1)
            axis.plot(x, 100 * mean, ls="none", **look)
        axis.set(title=task, ylim=(-3, 103))
    axes[0].set_ylabel("accuracy beyond T in %")
    axes[len(tasks) // 2].set_xlabel("time of an update by the time of NoPE")
    add_legend(figure, axes[0], columns=3)
    return figure


def _figure_title(result: BenchResult) -> str:
    counts = verdict_counts(result)
    shown = [f"{n} {said}" for said, n in counts.items() if said in ("better", "worse")]
    decided = ", ".join(shown) or "nothing decided"
    return f"{short_name(result.options.encoding)}: {decided} of {sum(counts.values())}"


_CAPTION = (
    "Higher is better, farther left is cheaper. Means over seeds with intervals that hold jointly "
    "at 95 %; the star is the judged encoding. Hollow: no better at T than without the input."
)


def _notes(result: BenchResult) -> list[tuple[str, str]]:
    """Definitions of the columns."""
    n, rows = COST_LENGTH, COST_ROWS
    vectors = [short_name(row.name) for row in result.measures if math.isnan(row.stress)]
    without = f" Without vectors (–): {joined(vectors)}." if vectors else ""
    return [
        ("time", "Time of an update (forward and backward pass) by the time without an "
         f"encoding: {rows} rows of “{COST_TASK}” of {n} words, in a model of the benchmark's "
         "sizes, on one machine; processor time on CPUs. The shortest over rounds in which all "
         "encodings take turns."),
        ("MiB", "Largest temporary memory of this update, as the compiler plans it."),
        ("params", "Parameters that the encoding adds to the model. Layers share them, unless an "
         "encoding has a pattern of layers."),
        ("stress", "Scaled stress of its position vectors against the exact Hellinger distances of "
         "the built-in corpus of three regimes: 0 copies the distances, 1 ignores them. "
         f"The command jaxpe report measures it on your corpus.{without}"),
        ("accuracy", "Share of the answer's tokens that are right after the true tokens, the mean "
         "over 2T and 4T, over seeds. Ends of intervals are rounded outwards. copy reads at a "
         "constant offset, reverse at an offset that grows, sort by the tokens themselves."),
        ("better, worse, not decided", "Whether the interval of the difference, seed by seed on "
         "the same data, excludes 0; in percentage points. At the level of each interval, all "
         "comparisons hold jointly at 95 % (Bonferroni): an encoding that differs from no rival is "
         "called better or worse at least once in at most 5 % of all benchmarks. T itself "
         "is shown and not judged: the question is longer inputs, and more comparisons would widen "
         "all intervals."),
        ("seeds to decide", "Number of seeds whose interval would exclude 0, at the present mean "
         f"and spread. decided: it does now. over {MOST_SEEDS}: even {MOST_SEEDS} seeds would not. "
         "unknown: the present seeds give no interval. –: not compared. With more seeds, a run "
         "of the same random seed draws the first ones again. You have seen these, so its level is "
         "only nominal; another random seed draws all anew."),
        ("rate", "Learning rate: of several, the one of the lowest training loss on a separate "
         "seed."),
        ("not learned", "One of the two does no better at T than the best answer that ignores the "
         "input. Its accuracy beyond T says nothing about length."),
        ("undefined, failed", "The encoding has no value at such positions, or a seed diverged."),
        ("FLOPs, bytes", "Of all hooks of one layer, forward, by token, as the compiler counts "
         "them with every pass of a loop."),
    ]  # fmt: skip
