"""Page of a comparison of runs of `jaxpe train`."""

import functools
import math
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from jaxpe._core.options import command_line
from jaxpe._core.progress import duration
from jaxpe.analysis.comparison import (
    NOT_TRAINED,
    ComparedRun,
    Group,
    RunComparison,
    other_documents,
)
from jaxpe.report.findings import Figure, Finding, Page, Section, Table
from jaxpe.report.numbers import number, percent, plural
from jaxpe.report.pages.training import other_seed, smoothed
from jaxpe.report.writing import page
from jaxpe.training import TrainConfig

_SEEDS = 3  # runs per configuration; with two, Student's interval is too wide to be useful
_MOST_LISTED = 2  # settings after a name
_NOTE = (
    "The lowest loss of a run is chosen on the documents that judge it, which favours runs with "
    "more evaluations."
)
_METHODS = (
    "Runs were compared by losses on held-out documents, at the last step at which all were "
    "evaluated. Intervals (95 %) are over seeds, by Student's t for losses, and also over "
    "documents for accuracies. Those of differences from the first hold jointly for all pairs "
    "(Bonferroni), since the first is chosen by the same losses. No interval covers documents of "
    "another kind [@jaxpe]."
)


@page.register
def runs_page(result: RunComparison) -> Page:
    """Page of a comparison: each configuration against the first, runs, and what differs."""
    at = "at the end" if result.step is None else f"at step {result.step:,}"
    names = [run.name for run in result.runs]
    settings = [(name, *values) for name, values in result.settings.items()]
    tables = [_run_table(result, at)]
    tables += [Table("Settings that differ", ("setting", *names), settings)] if settings else []
    losses = Figure(
        "losses",
        f"Losses of {plural(len(names), 'run')}",
        "Held-out documents (points) and training batches (faint, averaged over a twentieth of "
        "each run); one colour a configuration. Dropout raises the loss of batches alone.",
        [functools.partial(plot_losses, result.runs)],
        height=4.0,
    )
    new = new_seeds(result)
    means = [_loss(result, group, new.get(group.name, [])) for group in result.groups]
    leads = [_lead(result, other, new) for other in result.groups[1:]]
    accuracies = [
        Finding(f"accuracy of {title_of(result, group.name)}", *group.accuracy, unit="share")
        for group in result.groups
        if result.task == "classify"
    ]
    more = {
        "Configurations": [*means[2:], *leads[1:], *accuracies],
        "What makes them less comparable": list(_warnings(result)),
    }
    return Page(
        name="comparison",
        title=f"{plural(len(names), 'run')} on {result.source}",
        about=f"{result.task}, compared {at}",
        lead=[*means[:2], *leads[:1]],
        sections=(
            Section("Runs", tables=tables, figures=[losses], note=_NOTE),
            *(Section(title, rows) for title, rows in more.items() if rows),
        ),
        methods=_METHODS,
    )


def _loss(result: RunComparison, group: Group, new: Sequence[TrainConfig]) -> Finding:
    """The mean loss of a configuration, and the seeds that it lacks."""
    mean, half, seeds = group.loss
    alone = len(result.groups) == 1
    return Finding(
        f"loss of {title_of(result, group.name)}",
        mean,
        mean - half,
        mean + half,
        unit="nats",
        against=f"mean of {plural(seeds, 'seed')}",
        sentence="Runs that differ in their seeds alone differ by chance." if alone else "",
        todo=f"Train {group.name} from further initial weights." if new else "",
        paste=" && ".join(command_line("train", config) for config in new),
    )


def _lead(result: RunComparison, other: Group, new: dict[str, list[TrainConfig]]) -> Finding:
    """How far a configuration is behind the first, and whether this is decided."""
    first, second = result.groups[:2]
    mean, half, _ = other.behind
    verdict = "significant" if mean - half > 0 else "not significant"
    todo, paste = "", ""
    if other is second and is_decided(result):
        todo = f"Take {first.name}, and see whether it holds on other documents or sizes."
    elif other is second:
        todo = "Train more seeds of each configuration, or take the cheaper one."
        folders = [str(config.out) for configs in new.values() for config in configs]
        compared = ["jaxpe", "compare", *(str(run.config.out) for run in result.runs), *folders]
        if folders:
            todo, paste = "Then compare all, or take the cheaper one.", shlex.join(compared)
    return Finding(
        f"{title_of(result, other.name)} behind {first.name}",
        mean,
        mean - half,
        mean + half,
        unit="nats",
        against="seed by seed" if other.paired else "independent seeds",
        verdict=verdict if math.isfinite(half) else "not judged",
        sentence="" if math.isfinite(half) else "One seed has no interval.",
        todo=todo,
        paste=paste,
    )


def is_decided(result: RunComparison) -> bool:
    """Whether the interval of the lead of the first configuration over the next is above 0."""
    mean, half, _ = result.groups[1].behind
    return mean - half > 0


def new_seeds(result: RunComparison) -> dict[str, list[TrainConfig]]:
    """Configurations to train, by group, for three seeds of each; none where it is decided."""
    new = {}
    for group in () if len(result.groups) < 2 or is_decided(result) else result.groups:
        members = [run.config for run in result.runs if run.group == group.name]
        seeds = {config.init_seed for config in members}
        unused = [seed for seed in range(_SEEDS + len(seeds)) if seed not in seeds]
        lacking = unused[: max(0, _SEEDS - len(members))]
        new[group.name] = [other_seed(members[0], seed) for seed in lacking]
    return new


def _warnings(result: RunComparison) -> Iterator[Finding]:
    """What makes runs less comparable."""
    first, *others = result.runs
    for other in others:
        pair, tokens = f"{first.name}, {other.name}", first.vocabulary != other.vocabulary
        if tokens:
            yield _warning(pair, "vocabularies", "They read the documents as different tokens.")
        names = other_documents(first, other) + ["tokenizer"] * tokens
        if first.documents != other.documents and names:
            listed = ", ".join(f"`{name}`" for name in names)
            yield _warning(pair, listed, "They hold out or cut their documents differently.")
        if first.drawn != other.drawn:
            sentence = "They are evaluated on different parts of the held-out documents."
            yield _warning(pair, "`evaluate_rows`", sentence)
    decays = {run.config.decay for run in result.runs} - {"constant"}
    if len({run.steps for run in result.runs}) > 1 and decays:
        sentence = "At the same step their learning rates differ: each decays to 0 at its end."
        yield _warning("all runs", "`steps`", sentence)
    for run in result.runs:
        if run.summary is None:
            yield _warning(run.name, f"stopped at step {run.steps:,}", "It is not finished.")
        elif run.summary.extended_after:
            sentence = "Until then its learning rate followed the schedule of a shorter run."
            yield _warning(run.name, f"extended at step {run.summary.extended_after:,}", sentence)
    seeds = {
        group.name: {run.config.seed for run in result.runs if run.group == group.name}
        for group in result.groups
    }
    best = result.groups[0].name
    for group in result.groups[1:]:
        # An interval over independent seeds includes the scatter of documents.
        if math.isnan(group.behind.half) and seeds[group.name].isdisjoint(seeds[best]):
            sentence = "They are evaluated on different documents: train both from equal seeds."
            yield _warning(f"{best}, {group.name}", "`seed`", sentence)


def _warning(name: str, what: str, sentence: str) -> Finding:
    return Finding(name, what, verdict="less comparable", sentence=sentence)


def title_of(result: RunComparison, name: str) -> str:
    """Name of a configuration, with up to two settings in which it differs."""
    index = [run.name for run in result.runs].index(name)
    values = {k: v[index] for k, v in result.settings.items() if k not in NOT_TRAINED}
    listed = ", ".join(f"{setting} {value}" for setting, value in values.items())
    return f"{name} ({listed})" if 0 < len(values) <= _MOST_LISTED else name


def _run_table(result: RunComparison, at: str) -> Table:
    accuracy = ["accuracy"] if result.task == "classify" else []
    header = ["run", f"loss {at}", *accuracy, "lowest", "at step", "steps", "parameters", "time"]
    rows = []
    for run in result.runs:
        reached, best, done = run.at(result.step), run.best, run.summary
        cells = [
            run.name,
            number(reached.loss, 4),
            *(percent(reached.accuracy, 1) for _ in accuracy),
        ]
        cells += [number(best.loss, 4), f"{best.step:,}"]
        cells.append(f"{run.steps:,}{', stopped' * (done is None)}")
        cells += [f"{done.parameters:,}", duration(done.seconds)] if done else ["–", "–"]
        rows.append(cells)
    return Table("Held-out loss in nats", header, rows)


def plot_losses(runs: Sequence[ComparedRun], ax: Any) -> None:
    """Losses over steps, a colour for each configuration."""
    colours: dict[str, str] = {}
    for run in runs:
        label = None if run.group in colours else run.group
        (line,) = ax.plot(
            run.held_out_steps, run.held_out, color=colours.get(run.group), marker="o", ms=3.5,
            lw=1.3, label=label,
        )  # fmt: skip
        colour = colours.setdefault(run.group, line.get_color())
        ax.plot(run.loss_steps, smoothed(run.loss), color=colour, alpha=0.35, lw=0.9)
    ax.set(xlabel="step", ylabel="cross-entropy, nats")
    ax.legend()
