"""Figures and table of a training run, from the records of its log.

A record is a dict with "step", the metrics of that step ("loss", "accuracy"), and the results of
hooks after it, "eval/..." and "probe/...", as `jaxpe.training.train` writes them.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxpe.report import style
from jaxpe.report.style import ABSENT, PLUG_IN, POSITION, Rendered, add_legend, new_figure
from jaxpe.report.tables import make_table
from jaxpe.report.text import number, percent, visible

if TYPE_CHECKING:
    import matplotlib.figure
    import rich.table

    from jaxpe.training import TrainSummary

Record = dict[str, Any]

# Over all positions, over those that hold a token, and against the geometry of position alone.
PLACES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("all_positions", "all", {"color": ABSENT, "lw": 6, "solid_capstyle": "round"}),
    ("occupied", "occupied", {"color": PLUG_IN, "marker": "o", "ms": 4}),
    ("position", "position", {"color": POSITION, "marker": "D", "ms": 4}),
)
SCORES = (
    ("min_separation", "smallest separation"),
    ("violation_rate", "violation rate, % of triples"),
    ("correlation", "Mantel r"),
    ("entropy_rank", "dimensions, entropy rank"),
    ("stress", "raw stress, Eq. (4)"),
    ("scaled_stress", "scaled stress"),
)
_PROBED = "probe/occupied/stress"  # which every probe records
_WINDOWS = 20  # a smoothed curve averages over one part in so many of the run


def training_figures(history: Sequence[Record]) -> list[Rendered]:
    """The curves and, if the encoding was probed, its geometry."""
    curves, probe = FIGURES
    probed = _series(history, _PROBED)[0].size
    return style.render(history, curves, *([probe] if probed else []))


def curves_figure(history: Sequence[Record]) -> "matplotlib.figure.Figure":
    """Loss, and accuracy if the task has one: in training, smoothed, and on held-out documents."""
    panels = [("loss", "cross-entropy, nats")]
    if any("accuracy" in record for record in history):
        panels.append(("accuracy", "accuracy, %"))
    height = 2.6 + 1.9 * (len(panels) - 1)
    figure, axes = new_figure(_curves_title(history), height=height, rows=len(panels), sharex=True)
    for axis, (name, label) in zip(axes, panels, strict=True):
        factor = 100.0 if name == "accuracy" else 1.0
        steps, values = _series(history, name)
        values = factor * values
        axis.plot(steps, values, color=PLUG_IN, alpha=0.25, lw=0.8, label="each step")
        axis.plot(steps, smoothed(values), color=PLUG_IN, label="smoothed")
        steps, values = _series(history, f"eval/{name}")
        held_out: dict[str, Any] = {"color": POSITION, "marker": "o", "ms": 4.5, "lw": 1}
        axis.plot(steps, factor * values, **held_out, clip_on=False, label="held out")
        axis.set_ylabel(label)
        axis.grid(axis="y", color="#EEEEEE", lw=0.8)
        axis.set_axisbelow(True)
    axes[-1].set_xlabel("step")
    axes[-1].set_xlim(0, max(record["step"] for record in history) or 1)
    axes[-1].locator_params(axis="x", integer=True)
    add_legend(figure, axes[0], columns=3)
    return figure


def probe_figure(history: Sequence[Record]) -> "matplotlib.figure.Figure":
    """The geometry of the encoding during training, compared with the corpus's."""
    steps, _ = _series(history, _PROBED)
    title = "The geometry of the encoding in training"
    figure, axes = new_figure(title, height=7.2, rows=3, columns=2, sharex=True)
    if not len(steps):
        return style.say_why_empty(figure, axes[0], "the encoding was not probed")
    ticks = np.arange(len(steps))  # the steps that are probed lie ever farther apart
    for axis, (name, label) in zip(axes, SCORES, strict=True):
        factor = 100.0 if name == "violation_rate" else 1.0
        for where, shown, look in PLACES:
            probed, values = _series(history, f"probe/{where}/{name}")
            axis.plot(np.searchsorted(steps, probed), factor * values, **look, label=shown)
        axis.set_title(label, fontsize=10, loc="left")
        axis.set_xticks(ticks, [f"{step:g}" for step in steps], rotation=60, fontsize=9)
        axis.grid(axis="y", color="#F2F2F2", lw=0.8)
        axis.set_axisbelow(True)
        _widen_axis(axis)
    for axis in axes[-2:]:
        axis.set_xlabel("step, evenly spaced")
    add_legend(figure, axes[0], columns=3)
    return figure


_CAPTIONS: dict[style.Draw, str] = {
    curves_figure: (
        "Training batches (faint; averaged over a twentieth of the run) and held-out documents. "
        "Dropout raises the loss of training batches alone."
    ),
    probe_figure: (
        "Distances between position vectors against Hellinger distances between the token "
        "frequencies of the training documents, at the steps probed. Distances of position come "
        "from disjoint halves, less the distances of rotated documents."
    ),
}
FIGURES = style.drawings(_CAPTIONS)


def training_table(summary: "TrainSummary") -> "rich.table.Table":
    """Summary table of a run for a console of 80 columns.

    Raises `MissingExtraError` without the extra `report`.

    >>> rich.print(training_table(result.summary))  # doctest: +SKIP
    """
    rows = summary_rows(summary)
    title = f"{visible(summary.source)}: {summary.task}, {summary.encoding}"
    return make_table(title, ["", "start", "best", "end"], rows, right=(1, 2, 3))


def summary_rows(summary: "TrainSummary") -> list[tuple[str, ...]]:
    """Metrics at the start, at the best step and at the end, a row for each."""
    records = list(summary.evaluation)

    def row(label: str, name: str, shown: Callable[[float], str]) -> tuple[str, ...]:
        return (label, *(shown(as_float(record.get(name))) for record in records))

    rows = [row("held-out step", "step", "{:,.0f}".format), row("loss, nats", "loss", number)]
    if summary.task != "classify":
        rows.append(row("perplexity", "loss", lambda loss: number(perplexity_of(loss))))
    rows.append(row("accuracy", "accuracy", percent))
    for name in records[-1]:
        if name.startswith("exact"):  # of an encoder-decoder, at the trained lengths and beyond
            rows.append(row("right answers" + name[5:].replace("_", ", length "), name, percent))
    for name, label in SCORES if summary.probe else ():
        shown = percent if name == "violation_rate" else number
        scores = [summary.probe[end].get(f"occupied/{name}") for end in ("first", "last")]
        first, last = (shown(as_float(score)) for score in scores)
        rows.append((label.removesuffix(", % of triples"), first, "", last))
    return rows


def pace(summary: "TrainSummary") -> str:
    """Duration of a run, and its tokens a second if enough steps were timed.

    >>> pace(result.summary)  # doctest: +SKIP
    '62 s, 5,100 tokens/s'
    """
    text, speed = f"{summary.seconds:.0f} s", summary.tokens_per_second
    if speed is None:
        return text
    return f"{text}, {float(f'{speed:.2g}'):,.0f} tokens/s"  # which is not known better


def perplexity_of(loss: float) -> float:
    """exp(loss), ∞ beyond the largest float."""
    return math.exp(loss) if loss < 700 else math.inf


def _curves_title(history: Sequence[Record]) -> str:
    _, values = _series(history, "eval/loss")
    if len(values) < 2:
        return "Training"
    first, last = values[0], values[-1]
    moved = "falls" if last < first else "does not fall"
    return f"Held-out loss {moved}, from {number(first)} to {number(last)}"


def _series(history: Sequence[Record], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of a number."""
    values = [(record["step"], as_float(record[name])) for record in history if name in record]
    steps, values = np.array(values, float).reshape(-1, 2).T
    return steps, values


def smoothed(values: np.ndarray) -> np.ndarray:
    """Moving average, over fewer steps at the ends."""
    window = np.ones(2 * (len(values) // (2 * _WINDOWS)) + 1)
    ones = np.ones(len(values))
    return np.convolve(values, window, "same") / np.convolve(ones, window, "same")


def _widen_axis(axis) -> None:
    """Widen an axis whose curve hardly moves, which would show rounding."""
    low, high = axis.get_ylim()
    least = 0.02 * max(abs(low), abs(high), 1e-6)
    if high - low < least:
        middle = (low + high) / 2
        axis.set_ylim(middle - least / 2, middle + least / 2)
    axis.ticklabel_format(axis="y", useOffset=False, style="plain")


def as_float(value: int | float | None) -> float:
    """A number from a log, in which None stands for a number that is not finite."""
    return math.nan if value is None else float(value)
