"""Page of a training run."""

import dataclasses
import functools
import importlib.metadata
import math
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.options import Model, command_line
from jaxpe._core.progress import duration
from jaxpe.analysis.training_run import TrainedRun, choices, loss_trend
from jaxpe.report.findings import Figure, Finding, Page, Section, Table
from jaxpe.report.numbers import number, percent, plural
from jaxpe.report.writing import page
from jaxpe.training import TrainConfig, TrainSummary
from jaxpe.training.config import DEFAULT_STEPS, MACHINE, SIDES
from jaxpe.training.log import Record

# Metric beside the loss, and its name.
_SHARES = {
    "translate": ("exact", "answers wholly right"),
    "classify": ("accuracy", "held-out accuracy"),
}
_SCORES = {
    "min_separation": "smallest separation",
    "violation_rate": "violation rate",
    "correlation": "Mantel r",
    "entropy_rank": "dimensions, entropy rank",
    "stress": "raw stress, Eq. (4)",
    "scaled_stress": "scaled stress",
}
# Over all positions, over those that hold a token, and against the geometry of position alone.
_PLACES: dict[str, tuple[str, dict[str, Any]]] = {
    "all_positions": ("all", {"color": "#DDDDDD", "lw": 6, "solid_capstyle": "round"}),
    "occupied": ("occupied", {"marker": "o", "ms": 4}),
    "position": ("position", {"marker": "D", "ms": 4}),
}
_WINDOWS = 20  # a smoothed curve averages over one part in so many of the run
_NOTE = (
    "Losses and accuracies are of held-out documents. Scores of the geometry compare position "
    "vectors with the training documents. The best step is chosen on the same held-out documents, "
    "so it looks a little better than it is."
)


@page.register
def training_page(run: TrainedRun) -> Page:
    """Page of a finished run: losses, the geometry of its encoding, and what is not known yet."""
    done, config = run.summary, run.config
    if done is None:
        raise InputError(f"{config.out} is only at step {run.step:,}; resume it first")
    ends = Table("Evaluations", ("measure", "start", "best", "end"), summary_rows(done), _NOTE)
    extended = ""
    if done.extended_after:
        extended = (
            f"The run was extended: up to step {done.extended_after:,} its learning rate followed "
            "the schedule of a shorter run."
        )
    since = f", since step {done.resumed_at:,}" if done.resumed_at else ""
    settings = {
        "held-out documents": f"{done.held_out:,}",
        "longest document": f"{done.longest:,} tokens" if done.longest else "not known",
        "vocabulary size": f"{done.vocab_size:,}",
        "duration": f"{duration(done.seconds)}{since}",
        "pace": _pace(done.tokens_per_second),
        **{k: f"{value} ({origin})" for k, (value, origin) in choices(config, done.task).items()},
        **{name: importlib.metadata.version(name) for name in ("flax", "optax")},
    }
    return Page(
        name="train",
        title=f"Trained on {done.source}: {done.task}, {done.encoding}",
        about=f"{plural(done.documents, 'training document')}, {plural(done.steps, 'step')} of "
        f"{plural(config.batch_size, 'document')}",
        lead=[
            *_losses(done),
            _trend(run),
            Finding("parameters", done.parameters, unit="count"),
        ],
        sections=(
            Section("Evaluations", tables=[ends], figures=_figures(run.history), note=extended),
            Section("What is not known yet", _open(run)),
        ),
        settings=settings,
    )


def _pace(speed: float | None) -> str:
    # Which is not known better than to two digits.
    return "not known" if speed is None else f"{float(f'{speed:.2g}'):,.0f} tokens/s"


def _losses(done: TrainSummary) -> list[Finding]:
    """The loss and the metric of the task, after and before training."""
    first, _, last = done.evaluation
    before, after = (as_float(record["loss"]) for record in (first, last))
    loss = Finding("held-out loss", after, unit="nats", reference=before, against="before")
    if done.task not in _SHARES:
        before, after = perplexity_of(before), perplexity_of(after)
        return [loss, Finding("held-out perplexity", after, reference=before, against="before")]
    metric, label = _SHARES[done.task]
    before, after = (as_float(record.get(metric)) for record in (first, last))
    return [loss, Finding(label, after, unit="share", reference=before, against="before")]


def _trend(run: TrainedRun) -> Finding:
    """Direction of the held-out loss at the end, and what may lower it."""
    trend, meaning = loss_trend(run), ""
    if trend.direction == "unknown":
        meaning = "Too few evaluations show whether the loss was still falling."
    elif trend.direction == "rising" and trend.fall == 0:
        meaning = "It was lowest before training: try a lower learning rate or more documents."
    elif trend.direction == "rising":
        meaning = "The model overfits: try fewer steps, more dropout or a smaller model."
    elif trend.direction == "level" and run.config.decay != "constant":
        meaning = "The learning rate decays to 0: more steps at a higher rate may still lower it."
    known = trend.direction != "unknown"
    return Finding(
        f"change of the loss since step {trend.since:,}" if known else "change of the loss",
        trend.change,
        unit="nats" if known else "",
        reference=trend.fall,
        against=f"fall up to step {trend.best.step:,}:",
        verdict=trend.direction if known else "not judged",
        sentence=meaning,
    )


def _open(run: TrainedRun) -> list[Finding]:
    """What the run does not show, with the commands that show it; the most useful first."""
    config = run.config
    longer = {"epochs": 2 * config.epochs} if config.epochs else {}
    longer = longer or {"steps": 2 * (config.steps or DEFAULT_STEPS)}
    steps = [
        ("loss after longer training", "Train it for longer.", resume_command(config, **longer))
    ]
    if config.pretrained is None and config.encoding != "none":
        out = config.out.parent / f"{config.out.resolve().name}-none"
        without = dataclasses.replace(config, encoding="none", out=out, resume=False)
        said = "Train it without an encoding, and compare, to see what the encoding is worth."
        steps.append(("worth of the encoding", said, _train_and_compare(config, without)))
    said = "Train it again from other initial weights, and compare."
    other = other_seed(config, config.init_seed + 1)
    steps.append(("difference between seeds", said, _train_and_compare(config, other)))
    # It reads texts, and does not import modules of encodings.
    if config.task != "translate" and ":" not in (config.encoding or ""):
        said, model = "Check the published theorems on it.", Model(model=str(config.out))
        steps.append(("published theorems", said, command_line("audit", model)))
    if loss_trend(run).direction not in ("falling", "unknown"):  # longer training helps least
        steps = [*steps[1:], steps[0]]
    return [Finding(name, "not measured", todo=said, paste=line) for name, said, line in steps]


def _train_and_compare(config: TrainConfig, other: TrainConfig) -> str:
    compare = shlex.join(["jaxpe", "compare", str(config.out), str(other.out)])
    return f"{command_line('train', other)} && {compare}"


def resume_command(config: TrainConfig, **changes: Any) -> str:
    """Command that resumes a run, with the options that its saved configuration lacks."""
    # Modules are imported only if the command line names them, never from a file.
    named = {name: getattr(config, name) for name in SIDES if ":" in (getattr(config, name) or "")}
    machine = {name: getattr(config, name) for name in MACHINE}
    return command_line(
        "train", TrainConfig(out=config.out, resume=True, **machine, **named, **changes)
    )


def other_seed(config: TrainConfig, init_seed: int) -> TrainConfig:
    """Configuration with other initial weights and another folder, next to the first."""
    out = config.out.parent / f"{config.out.resolve().name}-init-{init_seed}"
    return dataclasses.replace(config, init_seed=init_seed, out=out, resume=False)


def summary_rows(done: TrainSummary) -> list[tuple[str, ...]]:
    """Metrics at the start, at the best step and at the end, a row for each."""
    records = list(done.evaluation)

    def row(label: str, name: str, shown: Callable[[float], str]) -> tuple[str, ...]:
        return (label, *(shown(as_float(record.get(name))) for record in records))

    rows = [row("held-out step", "step", "{:,.0f}".format), row("loss, nats", "loss", number)]
    if done.task != "classify":
        rows.append(row("perplexity", "loss", lambda loss: number(perplexity_of(loss))))
    rows.append(row("accuracy", "accuracy", percent))
    for name in records[-1]:
        if name.startswith("exact"):  # of an encoder-decoder, at the trained lengths and beyond
            rows.append(row("right answers" + name[5:].replace("_", ", length "), name, percent))
    for name, label in _SCORES.items() if done.probe else ():
        shown = percent if name == "violation_rate" else number
        scores = [done.probe[end].get(f"occupied/{name}") for end in ("first", "last")]
        first, last = (shown(as_float(score)) for score in scores)
        rows.append((label, first, "", last))
    return rows


def perplexity_of(loss: float) -> float:
    """exp(loss), ∞ beyond the largest float."""
    return math.exp(loss) if loss < 700 else math.inf


def as_float(value: int | float | None) -> float:
    """A number from a log, in which None stands for a number that is not finite."""
    return math.nan if value is None else float(value)


def _series(history: Sequence[Record], name: str) -> np.ndarray:
    """Steps and values of a number, `[2, records]`."""
    values = [(record["step"], as_float(record[name])) for record in history if name in record]
    return np.array(values, float).reshape(-1, 2).T


def _figures(history: Sequence[Record]) -> list[Figure]:
    """The curves and, if the encoding was probed, its geometry."""
    shown = {"loss": "cross-entropy, nats", "accuracy": "accuracy"}
    panels = [
        functools.partial(
            plot_curve, _series(history, name), _series(history, f"eval/{name}"), label
        )
        for name, label in shown.items()
        if any(name in record for record in history)
    ]
    figures = [
        Figure(
            "curves", "Losses in training and on held-out documents",
            "Training batches (faint; averaged over a twentieth of the run) and held-out "
            "documents. Dropout raises the loss of training batches alone.",
            panels, height=2.4,
        )
    ]  # fmt: skip
    probes = {
        label: [(name, *_series(history, f"probe/{place}/{score}"), look)
                for place, (name, look) in _PLACES.items()]
        for score, label in _SCORES.items()
    }  # fmt: skip
    if any(steps.size for curves in probes.values() for _, steps, _, _ in curves):
        panels = [functools.partial(plot_probe, curves, label) for label, curves in probes.items()]
        caption = (
            "Position vectors against the token frequencies of the training documents. Position: "
            "distances from disjoint halves, less those of rotated documents."
        )
        title = "The geometry of the encoding in training"
        figures.append(Figure("probe", title, caption, panels, columns=2, height=2.4))
    return figures


def plot_curve(training: np.ndarray, held_out: np.ndarray, label: str, ax: Any) -> None:
    """A metric in training, as it is and smoothed, and on held-out documents."""
    (line,) = ax.plot(*training, color="C0", alpha=0.25, lw=0.8)
    ax.plot(training[0], smoothed(training[1]), color=line.get_color(), label="training")
    ax.plot(*held_out, color="C1", marker="o", ms=4.5, lw=1, clip_on=False, label="held out")
    ax.set(xlabel="step", ylabel=label, xlim=(0, None))
    ax.legend()


def plot_probe(
    curves: Sequence[tuple[str, np.ndarray, np.ndarray, dict]], label: str, ax: Any
) -> None:
    """A score of the geometry at the probed steps, which are evenly spaced."""
    steps = np.unique(np.concatenate([steps for _, steps, _, _ in curves]))
    for name, probed, values, look in curves:
        ax.plot(np.searchsorted(steps, probed), values, **look, label=name)
    ax.set_title(label)
    ax.set_xticks(range(len(steps)), [f"{step:g}" for step in steps], rotation=60)
    low, high = ax.get_ylim()
    least = 0.02 * max(abs(low), abs(high), 1e-6)
    if high - low < least:  # a curve that hardly moves would show rounding
        ax.set_ylim((low + high - least) / 2, (low + high + least) / 2)
    ax.ticklabel_format(axis="y", useOffset=False, style="plain")
    if label == _SCORES["min_separation"]:
        ax.legend()


def smoothed(values: np.ndarray) -> np.ndarray:
    """Moving average, over fewer steps at the ends."""
    window = np.ones(2 * (len(values) // (2 * _WINDOWS)) + 1)
    ones = np.ones(len(values))
    return np.convolve(values, window, "same") / np.convolve(ones, window, "same")
