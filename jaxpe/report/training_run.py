"""The page on a run of `jaxpe train`: what was trained, how it ended, and what to do next."""

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe.analysis.training_run import TrainedRun, Trend, choices, loss_trend
from jaxpe.report.files import write_files
from jaxpe.report.page import template
from jaxpe.report.text import Headline, number, percent, plural, visible
from jaxpe.report.training_figures import perplexity_of, summary_rows, training_figures

if TYPE_CHECKING:
    from jaxpe.training import TrainSummary

_TASKS = {
    "classify": "to tell {classes} apart",
    "mlm": "to guess masked tokens",
    "causal": "to predict the next token",
    "translate": "to answer inputs",
}
# What commands do, in the order in which they are of use.
_NEXT = {
    "resume": "Go on where it was stopped",
    "extend": "Train it for longer, from where it ended",
    "none": "Train it without an encoding, to see what the encoding is worth",
    "seed": "Train it once more, from other initial weights",
    "compare": "Compare the two",
    "spectral": "See what attention does with positions",
    "audit": "Check the published theorems on it",
}


def trained_summary(run: TrainedRun) -> str:
    """Summary of a run and of what to do next, for a reader who has read nothing else.

    Raises `InputError` for a run that is not finished.

    >>> trained_summary(read_run("run"))  # doctest: +SKIP
    'A transformer of 1,154 parameters ...'
    """
    done, trend = _finished(run), loss_trend(run)
    return " ".join(
        [_what(run, done), _how_long(run, done), _how_it_ended(run, done), _where_to(run, trend)]
    )


def write_trained(
    run: TrainedRun, folder: Path, *, png: bool = False, commands: Mapping[str, str] = {}
) -> Path:
    """Write train.html and the figures; return the path of the page."""
    done, figures = _finished(run), training_figures(run.history)
    page = template("train.html.j2").render(
        run=run,
        done=done,
        summary=trained_summary(run),
        headlines=headlines(run),
        next_steps=next_steps(_ordered(commands, loss_trend(run))),
        rows=summary_rows(done),
        figures=figures,
        choices=choices(run),
        versions=_versions(),
    )
    return write_files(folder, "train", None, page, figures, png=png, others="curves|probe")


def next_steps(commands: Mapping[str, str]) -> dict[str, str]:
    """Commands by what they do in words."""
    return {_NEXT.get(name, name): line for name, line in commands.items()}


def _ordered(commands: Mapping[str, str], trend: Trend) -> dict[str, str]:
    """Training for longer comes first where the loss was still falling, else last."""
    if trend.direction in ("falling", "unknown"):
        return dict(commands)
    return dict(sorted(commands.items(), key=lambda item: item[0] == "extend"))


def headlines(run: TrainedRun) -> list[Headline]:
    """The numbers on top of the page."""
    done = _finished(run)
    first, _, last = done.evaluation
    loss = Headline(
        "Held-out loss, nats",
        number(_known(last["loss"])),
        f"{number(_known(first['loss']))} before",
    )
    if done.task == "translate":
        share = percent(_known(last.get("exact")))
        second = Headline("Answers wholly right", share, f"of {plural(done.held_out, 'input')}")
    elif done.task == "classify":
        share = percent(_known(last.get("accuracy")))
        second = Headline("Held-out accuracy", share, f"of {plural(done.held_out, 'document')}")
    else:
        values = [number(perplexity_of(_known(found["loss"]))) for found in (last, first)]
        second = Headline("Held-out perplexity", values[0], f"{values[1]} before")
    rows = f"of {plural(run.config.batch_size, 'document')}"
    size = Headline("Parameters", f"{done.parameters:,}", done.encoding)
    return [loss, second, Headline("Steps", f"{done.steps:,}", rows), size]


def _what(run: TrainedRun, done: "TrainSummary") -> str:
    classes = plural(len(run.vocabulary.classes), "class").replace("classs", "classes")
    task = _TASKS[done.task].format(classes=classes)
    size = f"{done.parameters:,} parameters"
    model = f"{visible(done.encoding)}, a pretrained model of {size}, was fine-tuned"
    if run.config.pretrained is None:
        layers = plural(run.config.model.layers, "layer")
        model = (
            f"A transformer of {layers}, width {run.config.model.dim} and {size}, with the "
            f"positional encoding {visible(done.encoding)}, was trained"
        )
    cut = ""
    if done.task != "translate" and (done.longest or 0) > done.length:
        cut = f", cut to {done.length:,} tokens (the longest has {done.longest:,})"
    noun = "pair" if done.task == "translate" else "document"
    documents = plural(done.documents, noun)
    return f"{model} {task} on {documents} of {visible(done.source)}{cut}."


def _how_long(run: TrainedRun, done: "TrainSummary") -> str:
    steps = f"It took {plural(done.steps, 'step')} of {plural(run.config.batch_size, 'document')}"
    if done.resumed_at >= done.steps:
        return f"{steps}."
    if done.resumed_at:
        return f"{steps}; those after step {done.resumed_at:,} took {duration(done.seconds)}."
    return f"{steps} and {duration(done.seconds)}."


def _how_it_ended(run: TrainedRun, done: "TrainSummary") -> str:
    first, _, last = done.evaluation
    losses = [number(_known(found["loss"])) for found in (first, last)]
    said = (
        f"On {plural(done.held_out, 'document')} that it was not trained on, the loss went from "
        f"{losses[0]} to {losses[1]} nats"
    )
    if done.task == "translate":
        return f"{said} a token. {_how_long_inputs_went(done)}"
    if done.task != "classify":
        return f"{said} a token."
    shares = [percent(_known(found.get("accuracy"))) for found in (first, last)]
    return f"{said} and the accuracy from {shares[0]} to {shares[1]}."


def _how_long_inputs_went(done: "TrainSummary") -> str:
    """Share of answers that are right at the lengths trained on, and at longer ones."""
    last = done.evaluation.last
    longer = [
        f"{percent(_known(value))} at length {name.removeprefix('exact_')}"
        for name, value in last.items()
        if name.startswith("exact_")
    ]
    beyond = f", {', '.join(longer)}" if longer else ""
    return (
        f"Of the answers {percent(_known(last.get('exact')))} are right at every token at lengths "
        f"up to {done.length:,}{beyond}."
    )


def _where_to(run: TrainedRun, trend: Trend) -> str:
    """Whether the loss was still falling, and what follows from it."""
    if trend.direction == "unknown":
        return (
            "It was evaluated too rarely to say whether the loss was still falling: extend it, "
            "evaluating more often, or compare it with another run."
        )
    if trend.direction == "rising":
        return (
            f"The held-out loss was least at step {trend.best.step:,} "
            f"({number(trend.best.loss)}) and has risen since: the model fits its training "
            "documents better than others. More steps will not help; next, try fewer steps, more "
            "dropout or a smaller model, and compare."
        )
    moved = f"From step {trend.since:,} to the end the held-out loss "
    if trend.direction == "falling":
        return (
            f"{moved}fell by {number(-trend.change)} of {number(trend.fall)} in all, so it was "
            "still falling: next, extend the run, or compare it with another of as many steps."
        )
    rate = "" if run.config.decay == "constant" else (
        " The learning rate decays to 0 at the end, which levels any loss, so more steps at a "
        "higher rate may still lower it."
    )  # fmt: skip
    return (
        f"{moved}{'fell' if trend.change < 0 else 'rose'} by only {number(abs(trend.change))} of "
        f"{number(trend.fall)} in all.{rate} Next, compare the run with one of another encoding "
        "or other settings."
    )


def _finished(run: TrainedRun) -> "TrainSummary":
    if run.summary is None:
        raise InputError(
            f"{run.config.out} is not finished: it is at step {run.step:,}; resume it first"
        )
    return run.summary


def duration(seconds: float) -> str:
    """Seconds, from two minutes on minutes, from two hours on hours."""
    for unit, size in (("hour", 3600.0), ("minute", 60.0)):
        if seconds >= 2 * size:
            return plural(round(seconds / size), unit)
    return plural(max(1, round(seconds)), "second")


def _known(value: float | None) -> float:
    return float("nan") if value is None else value


def _versions() -> dict[str, str]:
    names = ("jax", "flax", "optax", "numpy")
    return {"jaxpe": jaxpe.__version__} | {name: importlib.metadata.version(name) for name in names}
