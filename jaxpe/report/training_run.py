"""Page of a run of `jaxpe train`: model, duration, held-out loss, and advice."""

import importlib.metadata
from collections.abc import Mapping
from typing import TYPE_CHECKING

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe.analysis.training_run import TrainedRun, Trend, choices, loss_trend
from jaxpe.report.page import View
from jaxpe.report.text import Advice, Headline, number, percent, plural, visible
from jaxpe.report.training_figures import (
    FIGURES,
    as_float,
    perplexity_of,
    summary_rows,
    training_figures,
)

if TYPE_CHECKING:
    from jaxpe.training import TrainSummary

_TASKS = {
    "classify": "to tell {classes} classes apart",
    "mlm": "to guess masked tokens",
    "causal": "to predict the next token",
    "translate": "to answer inputs",
}
_LIBRARIES = ("jax", "flax", "optax", "numpy")
# Metric beside the loss, its headline, and what it is a share of.
_SHARES = {
    "translate": ("exact", "Answers wholly right", "input"),
    "classify": ("accuracy", "Held-out accuracy", "document"),
}
# What commands do, the most useful first.
_NEXT = {
    "resume": "Resume it",
    "extend": "Train it for longer",
    "none": "Train it without an encoding, to see what the encoding is worth",
    "seed": "Train it again from other initial weights",
    "compare": "Compare the two runs",
    "spectral": "See what attention does with positions",
    "audit": "Check the published theorems on it",
}


def trained_summary(run: TrainedRun) -> str:
    """Summary of a run: model, result and next steps.

    Raises `InputError` for a run that is not finished.

    >>> trained_summary(read_run("run"))  # doctest: +SKIP
    'A transformer of 1,154 parameters ...'
    """
    done, trend = _finished(run), loss_trend(run)
    return f"{_training(run, done)} {_evaluation(done)} {_advice(run, trend)}"


def view(run: TrainedRun, *, commands: Mapping[str, str] = {}) -> View:
    """Page of a run, whose numbers are in files already."""
    done, figures = _finished(run), training_figures(run.history)
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    rows = summary_rows(done)
    shown = {
        "run": run,
        "done": done,
        "summary": trained_summary(run),
        "headlines": headlines(run),
        "rows": rows,
        "choices": choices(run),
        "versions": {"jaxpe": jaxpe.__version__} | versions,
    }
    tables = [("Evaluations", ["", "start", "best", "end"], rows)]
    names = "|".join(name for name, *_ in FIGURES)
    steps = advice(run, commands=commands)
    return View("train", shown, figures, tables, steps, "training", names, saved=True)


def advice(run: TrainedRun, *, commands: Mapping[str, str] = {}) -> list[Advice]:
    """Steps to take after a run."""
    if loss_trend(run).direction not in ("falling", "unknown"):  # longer training helps least
        commands = dict(sorted(commands.items(), key=lambda item: item[0] == "extend"))
    return next_steps(commands)


def next_steps(commands: Mapping[str, str]) -> list[Advice]:
    """Steps to take with these commands."""
    return [Advice(f"{_NEXT.get(name, name)}.", line) for name, line in commands.items()]


def headlines(run: TrainedRun) -> list[Headline]:
    """The numbers at the top of the page."""
    done = _finished(run)
    first, _, last = done.evaluation
    losses = [as_float(record["loss"]) for record in (first, last)]
    if done.task in _SHARES:
        metric, label, noun = _SHARES[done.task]
        share = percent(as_float(last.get(metric)))
        second = Headline(label, share, f"of {plural(done.held_out, noun)}")
    else:
        before, after = (number(perplexity_of(loss)) for loss in losses)
        second = Headline("Held-out perplexity", after, f"{before} before")
    return [
        Headline("Held-out loss, nats", number(losses[1]), f"{number(losses[0])} before"),
        second,
        Headline("Steps", f"{done.steps:,}", f"of {plural(run.config.batch_size, 'document')}"),
        Headline("Parameters", f"{done.parameters:,}", done.encoding),
    ]


def _training(run: TrainedRun, done: "TrainSummary") -> str:
    """Model, task, documents and duration."""
    model, size = run.config.model, f"{done.parameters:,} parameters"
    trained = f"{visible(done.encoding)}, a pretrained model of {size}, was fine-tuned"
    if run.config.pretrained is None:
        trained = (
            f"A transformer of {plural(model.layers, 'layer')}, width {model.dim} and {size}, with "
            f"the positional encoding {visible(done.encoding)}, was trained"
        )
    cut, translates = "", done.task == "translate"
    if not translates and (done.longest or 0) > done.length:
        cut = f", cut to {done.length:,} tokens (the longest has {done.longest:,})"
    task = _TASKS[done.task].format(classes=len(run.vocabulary.classes))
    documents = plural(done.documents, "pair" if translates else "document")
    after = f"; steps after {done.resumed_at:,} took " if done.resumed_at else " and "
    took = "" if done.resumed_at >= done.steps else after + duration(done.seconds)
    batch = plural(run.config.batch_size, "document")
    return (
        f"{trained} {task}. The corpus was {documents} of {visible(done.source)}{cut}. Training "
        f"took {plural(done.steps, 'step')} of {batch}{took}."
    )


def _evaluation(done: "TrainSummary") -> str:
    """Loss and accuracy on the held-out documents, before and after training."""
    first, _, last = done.evaluation
    before, after = (number(as_float(record["loss"])) for record in (first, last))
    documents = plural(done.held_out, "held-out document")
    text = f"On {documents}, the loss went from {before} to {after}"
    if done.task == "classify":
        before, after = (percent(as_float(record.get("accuracy"))) for record in (first, last))
        return f"{text} nats and the accuracy from {before} to {after}."
    if done.task != "translate":
        return f"{text} nats a token."
    shares = {
        k.removeprefix("exact_"): percent(as_float(v)) for k, v in last.items() if "exact" in k
    }
    longer = [f", {share} at length {n}" for n, share in shares.items() if n != "exact"]
    return (
        f"{text} nats a token. Of the answers {shares['exact']} are right at every token at "
        f"lengths up to {done.length:,}{''.join(longer)}."
    )


def _advice(run: TrainedRun, trend: Trend) -> str:
    """Direction of the held-out loss, and advice."""
    if trend.direction == "unknown":
        return (
            "Too few evaluations show whether the loss was still falling: extend the run with more "
            "evaluations, or compare it with another run."
        )
    if trend.direction == "rising" and trend.fall == 0:
        return (
            "The held-out loss was lowest before training. Next, try a lower learning rate or more "
            "documents."
        )
    if trend.direction == "rising":
        return (
            f"The held-out loss was lowest at step {trend.best.step:,} "
            f"({number(trend.best.loss)}) and has risen since: the model overfits. Next, try fewer "
            "steps, more dropout or a smaller model, and compare."
        )
    moved = f"From step {trend.since:,} to the end the held-out loss "
    if trend.direction == "falling":
        return (
            f"{moved}fell by {number(-trend.change)} of {number(trend.fall)} in all: it was still "
            "falling. Next, extend the run, or compare it with another of as many steps."
        )
    rate = ""
    if run.config.decay != "constant":
        rate = " The learning rate decays to 0, so more steps at a higher rate may still lower it."
    return (
        f"{moved}{'fell' if trend.change < 0 else 'rose'} by only {number(abs(trend.change))} of "
        f"{number(trend.fall)} in all.{rate} Next, compare the run with one of another encoding "
        "or other settings."
    )


def _finished(run: TrainedRun) -> "TrainSummary":
    if run.summary is None:
        raise InputError(f"{run.config.out} is only at step {run.step:,}; resume it first")
    return run.summary


def duration(seconds: float) -> str:
    """Duration in seconds, from two minutes on in minutes, from two hours on in hours."""
    for unit, size in (("hour", 3600.0), ("minute", 60.0)):
        if seconds >= 2 * size:
            return plural(round(seconds / size), unit)
    return plural(max(1, round(seconds)), "second")
