"""Page of a training run."""

import dataclasses
import functools
import importlib.metadata
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.options import Model, command_line
from jaxpe._core.progress import duration
from jaxpe.analysis.training_run import TrainedRun, choices, loss_trend
from jaxpe.report.findings import Figure, Finding, Page, Section, Table
from jaxpe.report.numbers import number, percent, plural
from jaxpe.report.writing import page
from jaxpe.training import TrainConfig
from jaxpe.training.config import DEFAULT_STEPS, MACHINE
from jaxpe.training.log import Record
from jaxpe.training.run import TrainSummary

_SCORES = {
    "min_separation": "smallest separation",
    "violation_rate": "violation rate",
    "correlation": "Mantel r",
    "entropy_rank": "dimensions, entropy rank",
    "stress": "raw stress, Eq. (4)",
    "scaled_stress": "scaled stress",
}
# Over positions that hold a token, and against the geometry of position alone.
_PLACES = ("occupied", "position")
_WINDOWS = 20  # a smoothed curve averages over one part in so many of the run
_NOTE = (
    "Held-out documents also choose the best step, which looks a little better than it is. Scores "
    "of the geometry compare position vectors with the training documents."
)


@page.register
def training_page(run: TrainedRun) -> Page:
    """Page of a finished run: losses, the geometry of its encoding, and what is not known yet."""
    done, config = run.summary, run.config
    if done is None:
        raise InputError(f"{config.out} is only at step {run.step:,}; resume it first")
    ends = Table("Evaluations", ("measure", "start", "best", "end"), summary_rows(done), _NOTE)
    since = f", since step {done.resumed_at:,}" if done.resumed_at else ""
    settings = {
        "held-out documents": f"{done.held_out:,}",
        "longest document": f"{done.longest:,} tokens" if done.longest else "not known",
        "vocabulary size": f"{done.vocab_size:,}",
        "duration": f"{duration(done.seconds)}{since}",
        **({"extended at step": f"{done.extended_after:,}"} if done.extended_after else {}),
        **{k: f"{value} ({origin})" for k, (value, origin) in choices(config, done.task).items()},
        **{name: importlib.metadata.version(name) for name in ("flax", "optax")},
    }
    return Page(
        name="train",
        title=f"Trained on {done.source}: {done.task}, {done.encoding}",
        about=f"{plural(done.documents, 'training document')}, {plural(done.steps, 'step')} of "
        f"{plural(config.batch_size, 'document')}",
        lead=[*_losses(done), _trend(run), Finding("parameters", done.parameters, unit="count")],
        sections=(
            Section("Evaluations", tables=[ends], figures=_figures(run.history)),
            Section("What is not known yet", _open(run)),
        ),
        settings=settings,
    )


def _losses(done: TrainSummary) -> list[Finding]:
    """The loss and the metric of the task, after and before training."""
    first, _, last = done.evaluation
    before, after = (as_float(record["loss"]) for record in (first, last))
    loss = Finding("held-out loss", after, unit="nats", reference=before, against="before")
    label, unit = "held-out perplexity", ""
    before, after = map(perplexity_of, (before, after))
    if done.task == "classify":
        label, unit = "held-out accuracy", "share"
        before, after = (as_float(record["accuracy"]) for record in (first, last))
    return [loss, Finding(label, after, unit=unit, reference=before, against="before")]


def _trend(run: TrainedRun) -> Finding:
    """Direction of the held-out loss at the end, and what may lower it."""
    trend = loss_trend(run)
    known, rising = trend.direction != "unknown", trend.direction == "rising"
    sentence = ""
    if not known:
        sentence = "Too few evaluations show whether the loss was still falling."
    elif rising and trend.fall == 0:
        sentence = "It was lowest before training: try a lower learning rate or more documents."
    elif rising:
        sentence = "The model overfits: try fewer steps, more dropout or a smaller model."
    elif trend.direction == "level" and run.config.decay != "constant":
        sentence = "The learning rate decays to 0: more steps at a higher rate may still lower it."
    return Finding(
        f"change of the loss since step {trend.since:,}" if known else "change of the loss",
        trend.change,
        unit="nats" if known else "",
        reference=trend.fall,
        against=f"fall up to step {trend.best.step:,}:",
        verdict=trend.direction if known else "not judged",
        sentence=sentence,
    )


def _open(run: TrainedRun) -> list[Finding]:
    """Open questions of the run, with the commands that show it; the most useful first."""
    config = run.config
    other = other_seed(config, config.init_seed + 1)
    rows = [("difference between seeds", "Train it again from other initial weights.", other)]
    if config.pretrained is None and config.encoding != "none":
        out = config.out.parent / f"{config.out.resolve().name}-none"
        without = dataclasses.replace(config, encoding="none", out=out, resume=False)
        rows.insert(0, ("worth of the encoding", "Train it without an encoding.", without))
    unknown = functools.partial(Finding, value="not measured")
    steps = [unknown(name, todo=said, paste=_compared(config, new)) for name, said, new in rows]
    # It reads texts, and does not import modules of encodings.
    if ":" not in (config.encoding or ""):
        line = command_line("audit", Model(model=str(config.out)))
        said = "Check the published theorems on it."
        steps.append(unknown("published theorems", todo=said, paste=line))
    said = "Train it for longer."
    longer = unknown("loss after longer training", todo=said, paste=_resumed(config))
    # Where the loss does not fall, longer training helps least.
    first = loss_trend(run).direction in ("falling", "unknown")
    return [longer, *steps] if first else [*steps, longer]


def _compared(config: TrainConfig, other: TrainConfig) -> str:
    compare = shlex.join(["jaxpe", "compare", str(config.out), str(other.out)])
    return f"{command_line('train', other)} && {compare}"


def _resumed(config: TrainConfig) -> str:
    """Command that trains a run twice as long, with options its saved configuration lacks."""
    name = "epochs" if config.epochs else "steps"
    longer: dict[str, Any] = {name: 2 * (getattr(config, name) or DEFAULT_STEPS)}
    # Modules are imported only if the command line names them, never from a file.
    named = ["encoding"] if ":" in (config.encoding or "") else []
    given = {name: getattr(config, name) for name in (*MACHINE, *named)}
    return command_line("train", TrainConfig(out=config.out, resume=True, **given, **longer))


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
    panels = []
    for name, label in (("loss", "cross-entropy, nats"), ("accuracy", "accuracy")):
        curves = _series(history, name), _series(history, f"eval/{name}")
        if curves[0].size:
            panels.append(functools.partial(plot_curve, *curves, label))
    caption = (
        "Training batches (faint; averaged over a twentieth of the run) and held-out documents. "
        "Dropout raises the loss of training batches alone."
    )
    title = "Losses in training and on held-out documents"
    figures = [Figure("curves", title, caption, panels, height=2.4)]
    probes = {
        label: {place: _series(history, f"probe/{place}/{score}") for place in _PLACES}
        for score, label in _SCORES.items()
    }
    if any(steps.size for curves in probes.values() for steps, _ in curves.values()):
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


def plot_probe(curves: Mapping[str, np.ndarray], label: str, ax: Any) -> None:
    """A score of the geometry at the probed steps, on a logarithmic axis with 0."""
    for width, (name, (steps, values)) in zip((4, 1.2), curves.items(), strict=True):
        ax.plot(steps, values, marker="o", ms=2 + width, lw=width, label=name)
    ax.set(title=label, xlabel="step", xscale="symlog")
    ax.ticklabel_format(axis="y", useOffset=False, style="plain")
    if label == _SCORES["min_separation"]:
        ax.legend()


def smoothed(values: np.ndarray) -> np.ndarray:
    """Moving average, over fewer steps at the ends."""
    window = np.ones(2 * (len(values) // (2 * _WINDOWS)) + 1)
    ones = np.ones(len(values))
    return np.convolve(values, window, "same") / np.convolve(ones, window, "same")
