"""Page of a comparison of runs of `jaxpe train`."""

import functools
import itertools
import math
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from jaxpe._core.options import command_line
from jaxpe._core.progress import duration
from jaxpe.analysis.comparison import (
    ComparedRun,
    Estimate,
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
_NOTE = "The lowest loss is chosen on the documents that judge it, which favours many evaluations."
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
    tables = [_run_table(result, at), Table("Settings that differ", ("setting", *names), settings)]
    losses = Figure(
        "losses",
        f"Losses of {plural(len(names), 'run')}",
        "Held-out documents (points) and training batches (faint, averaged over a twentieth of "
        "each run); one colour a configuration. Dropout raises the loss of batches alone.",
        [functools.partial(plot_losses, result.runs)],
        height=4.0,
    )
    means = [_estimate(f"loss of {group.name}", group.loss) for group in result.groups]
    leads = [_lead(result, other) for other in result.groups[1:]]
    accuracies = [
        Finding(f"accuracy of {group.name}", *group.accuracy, unit="share")
        for group in result.groups
        if result.task == "classify"
    ]
    more = [*means[2:], *leads[1:], *accuracies, *_warnings(result)]
    return Page(
        name="comparison",
        title=f"{plural(len(names), 'run')} on {result.source}",
        about=f"{result.task}, compared {at}",
        lead=[*means[:2], *leads[:1]],
        sections=(
            Section("Runs", (), tables if settings else tables[:1], [losses], note=_NOTE),
            *([Section("Configurations", more)] if more else []),
        ),
        methods=_METHODS,
    )


def _estimate(name: str, found: Estimate) -> Finding:
    mean, half, seeds = found
    against = f"mean of {plural(seeds, 'seed')}"
    return Finding(name, mean, mean - half, mean + half, unit="nats", against=against)


def _lead(result: RunComparison, other: Group) -> Finding:
    """Lag of a configuration on the first, whether it is decided, and the next step."""
    first, second = result.groups[:2]
    finding = _estimate(f"{other.name}, lag on {first.name}", other.behind)
    verdict, todo, paste = "significant" if finding.low > 0 else "not significant", "", ""
    if other is second and finding.low > 0:
        todo = f"Take {first.name}, and see whether it holds on other documents or sizes."
    elif other is second:
        todo = "Train more seeds of each configuration, or take the cheaper one."
        if new := new_seeds(result):
            configs = [*(run.config for run in result.runs), *new]
            compared = shlex.join(["jaxpe", "compare", *(str(each.out) for each in configs)])
            paste = " && ".join([*(command_line("train", each) for each in new), compared])
    return finding._replace(
        against="seed by seed" if other.paired else "independent seeds",
        verdict="not judged" if math.isnan(finding.low) else verdict,
        sentence="One seed has no interval." * math.isnan(finding.low),
        todo=todo,
        paste=paste,
    )


def new_seeds(result: RunComparison) -> list[TrainConfig]:
    """Configurations to train for three seeds of each, with unused initial weights."""
    new = []
    for group in result.groups:
        members = [run.config for run in result.members(group.name)]
        used = {config.init_seed for config in members}
        unused = (seed for seed in itertools.count() if seed not in used)
        lacking = itertools.islice(unused, max(0, _SEEDS - len(members)))
        new += [other_seed(members[0], seed) for seed in lacking]
    return new


def _warnings(result: RunComparison) -> Iterator[Finding]:
    """Reasons that make runs less comparable: which runs, the setting, and why."""
    less = functools.partial(Finding, verdict="less comparable")
    first, *others = result.runs
    for other in others:
        pair, tokens = f"{first.name}, {other.name}", first.vocabulary != other.vocabulary
        names = other_documents(first, other) + ["tokenizer"] * tokens
        if names and (tokens or first.documents != other.documents):
            listed = ", ".join(f"`{name}`" for name in names)
            sentence = "They read, hold out or cut their documents differently."
            yield less(pair, listed, sentence=sentence)
        if first.drawn != other.drawn:
            sentence = "They are evaluated on different held-out documents."
            yield less(pair, "`evaluate_rows`", sentence=sentence)
    decays = {run.config.decay for run in result.runs} - {"constant"}
    if len({run.steps for run in result.runs}) > 1 and decays:
        yield less("all runs", "`steps`", sentence="At the same step their learning rates differ.")
    for run in result.runs:
        if run.summary is None:
            yield less(run.name, f"stopped at step {run.steps:,}", sentence="It is not finished.")
        elif after := run.summary.extended_after:
            sentence = "Its learning rate was of a shorter run."
            yield less(run.name, f"extended at step {after:,}", sentence=sentence)
    best = result.groups[0].name
    seeds = {run.config.seed for run in result.members(best)}
    for group in result.groups[1:]:
        own = {run.config.seed for run in result.members(group.name)}
        # An interval over independent seeds includes the scatter of documents.
        if math.isnan(group.behind.half) and own.isdisjoint(seeds):
            sentence = "They are evaluated on different documents: train both from equal seeds."
            yield less(f"{best}, {group.name}", "`seed`", sentence=sentence)


def _run_table(result: RunComparison, at: str) -> Table:
    accuracy = ["accuracy"] if result.task == "classify" else []
    header = ["run", f"loss {at}", *accuracy, "lowest", "at step", "steps", "parameters", "time"]
    rows = []
    for run in result.runs:
        reached, best, done = run.at(result.step), run.best, run.summary
        shares = [percent(reached.accuracy, 1) for _ in accuracy]
        cost = [f"{done.parameters:,}", duration(done.seconds)] if done else ["–", "–"]
        losses = [number(reached.loss, 4), *shares, number(best.loss, 4), f"{best.step:,}"]
        rows.append([run.name, *losses, f"{run.steps:,}{', stopped' * (not done)}", *cost])
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
