"""Comparison of runs of `jaxpe train`: differences in their settings and in their results."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from jaxpe._core.errors import InputError
from jaxpe._core.files import short_names
from jaxpe._core.results import LargeArray
from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.extrapolation.intervals import pair_level, seed_interval, seed_mean
from jaxpe.analysis.training_run import Evaluation, TrainedRun, choices, evaluations, read_run

# What may differ between runs that are seeds of one configuration: seeds, and how it is watched.
NOT_TRAINED = ("seed", "init_seed", "checkpoint_every", "keep", "probe_at", "devices", "accumulate")
# What the held-out documents depend on, beside the corpus and the seed, which is a repeat.
_OF_DOCUMENTS = ("held_out", "length", "special", "text_field", "label_field")


class ComparedRun(NamedTuple):
    """Run in a comparison.

    Attributes:
        name: its folder, without what all folders begin with.
        group: name of the group of runs that differ in their seeds alone, by the name of its first
            run.
        steps: made so far; `finished` says whether these are all that were asked for.
        parameters: number of parameters of the model; None while steps are left, as are `seconds`.
        common: on held-out documents at the last step that all runs evaluated; None without one.
        last: the same at its last evaluation.
        best: the same where the loss is least.
        loss: loss of the training batches, one a step; `loss_steps` their steps.
        held_out: losses on held-out documents; `held_out_steps` their steps.
        evaluated: number of these documents, or the most there can be while steps are left.
    """

    name: str
    group: str
    seed: int
    init_seed: int
    steps: int
    finished: bool
    parameters: int | None
    seconds: float | None
    common: Evaluation | None
    last: Evaluation
    best: Evaluation
    loss_steps: LargeArray
    loss: LargeArray
    held_out_steps: LargeArray
    held_out: LargeArray
    evaluated: int


class Estimate(NamedTuple):
    """A mean over seeds.

    Attributes:
        mean: over so many `seeds`.
        half: half the width of its interval by Student's t; NaN of one seed.
    """

    mean: float
    half: float
    seeds: int


class Group(NamedTuple):
    """Runs that differ in their seeds alone.

    Attributes:
        name: name of its first run.
        loss: loss on held-out documents at the step compared, with a 95 % interval.
        accuracy: mean accuracy there, with the 95 % interval of a share of documents
            (`seed_interval`); NaN where the task has none.
        behind: how much larger its loss is than that of the first group, seed by seed where both
            have the same two seeds or more, else of independent samples (Welch); 0 of the first.
            Intervals of all pairs of groups hold together at 95 % (`pair_level`): the first is
            chosen by the same losses.
        paired: whether seed by seed.
    """

    name: str
    loss: Estimate
    accuracy: Interval
    behind: Estimate
    paired: bool


class RunComparison(NamedTuple):
    """Result of `compare_runs`.

    Attributes:
        source: the corpus.
        task: classify, mlm or causal.
        step: the last one that all runs evaluated; None where there is none but the first, and
            then groups are compared at the last evaluation of each run.
        runs: runs in the order asked for.
        groups: groups, that of the least mean loss first.
        settings: options that differ, by name, one value a run.
        warnings: what makes the runs less comparable, in sentences.
    """

    source: str
    task: str
    step: int | None
    runs: tuple[ComparedRun, ...]
    groups: tuple[Group, ...]
    settings: dict[str, tuple[str, ...]]
    warnings: tuple[str, ...]


def compare_runs(directories: Sequence[str | Path]) -> RunComparison:
    """Compare runs of `jaxpe.training.train` on the same documents, at the same step.

    Runs that differ in their seeds alone are one group, whose mean has an interval. Runs that were
    stopped are compared as far as they came.

    Args:
        directories: folders of two runs or more.

    Raises:
        InputError: no run in a folder or no evaluation of it, the same folder twice, or losses
            that cannot be compared: of other tasks, other documents or, of language models, other
            vocabularies.

    >>> compare_runs(["rope", "alibi"]).groups[0].name  # doctest: +SKIP
    'alibi'
    """
    if len(directories) < 2:
        raise InputError(f"`runs`: {len(directories)} to compare; pass two folders or more")
    places = [Path(directory).resolve() for directory in directories]
    if len(set(places)) < len(places):
        twice = next(place for place in places if places.count(place) > 1)
        raise InputError(f"`runs`: {twice} is there twice; pass each folder once")
    runs = [read_run(directory) for directory in directories]
    found = [_evaluated(run) for run in runs]
    warnings = [*_checked(runs), *_of_lengths(runs)]
    step = _common_step(found)
    compared = _compared(runs, found, short_names(places), step)
    differing, groups = _differences(runs), _groups(compared)
    warnings += _of_seeds(compared, groups)
    return RunComparison(
        source=Path(runs[0].config.source).name,
        task=runs[0].vocabulary.task,
        step=step,
        runs=compared,
        groups=groups,
        settings=differing,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _evaluated(run: TrainedRun) -> list[Evaluation]:
    """The evaluations of a run that has been trained for some steps."""
    found = evaluations(run)
    if not any(one.step > 0 for one in found):
        raise InputError(
            f"{run.config.out} has no evaluation after a training step yet (it is at step "
            f"{run.step:,}): resume it first, or leave it out"
        )
    return found


def _checked(runs: list[TrainedRun]) -> list[str]:
    """Warnings about runs that can be compared; raises where their losses cannot."""
    first, *others = runs
    warnings = []
    for other in others:
        pair = f"{first.config.out} and {other.config.out}"
        _check_task(first, other, pair)
        if first.vocabulary_hash != other.vocabulary_hash:
            warnings.append(_other_vocabulary(first, other, pair))
        if first.documents != other.documents:
            warnings += _other_documents(first, other, pair)
        if _evaluated_on(first) != _evaluated_on(other):
            warnings.append(f"{pair} are evaluated on different parts of the held-out documents.")
    return warnings


def _check_task(first: TrainedRun, other: TrainedRun, pair: str) -> None:
    tasks = [run.vocabulary.task for run in (first, other)]
    if tasks[0] != tasks[1]:
        raise InputError(
            f"{pair} have different tasks ({tasks[0]} and {tasks[1]}), whose losses do not "
            "compare: pass runs of one task"
        )
    if set(first.vocabulary.classes) != set(other.vocabulary.classes):
        raise InputError(f"{pair} tell different classes apart: pass runs with the same classes")
    rates = [run.config.mask_rate for run in (first, other)]
    if rates[0] != rates[1]:
        raise InputError(
            f"{pair} guess different shares of the tokens (`mask_rate` {rates[0]:g} and "
            f"{rates[1]:g}), so that one guesses from less: pass runs with the same"
        )


def _other_vocabulary(first: TrainedRun, other: TrainedRun, pair: str) -> str:
    if first.vocabulary.task != "classify":
        raise InputError(
            f"{pair} have different vocabularies ({len(first.vocabulary.tokens):,} and "
            f"{len(other.vocabulary.tokens):,} tokens): a loss per token depends on what a token "
            "is, so theirs do not compare. Pass runs with the same documents and tokenizer"
        )
    return f"{pair} read the documents with different vocabularies."


def _other_documents(first: TrainedRun, other: TrainedRun, pair: str) -> list[str]:
    """Settings why token ids differ; raises where neither they nor the seed explain it."""
    sources = [Path(run.config.source).name for run in (first, other)]
    if sources[0] != sources[1]:
        raise InputError(
            f"{pair} are of different corpora ({sources[0]} and {sources[1]}), whose losses do not "
            "compare: pass runs of one corpus"
        )
    chosen = [choices(run) for run in (first, other)]
    names = [n for n in _OF_DOCUMENTS if chosen[0].get(n) != chosen[1].get(n)]
    if first.vocabulary_hash != other.vocabulary_hash:
        names.append("tokenizer")
    if not names and first.config.seed == other.config.seed:
        raise InputError(
            f"{pair} are of documents of the same name and different content: pass runs of the "
            "same documents"
        )
    listed = ", ".join(f"`{name}`" for name in names)
    text = f"{pair} have different held-out documents or cut them differently ({listed} differs)."
    return [text] if names else []


def _evaluated_on(run: TrainedRun) -> int | None:
    """Number of documents drawn for evaluation; None for all of them."""
    rows = run.config.evaluate_rows
    held_out = None if run.summary is None else run.summary.held_out
    return None if held_out is None or rows >= held_out else rows


def _of_seeds(runs: Sequence[ComparedRun], groups: Sequence[Group]) -> list[str]:
    """Warnings of configurations on other documents, where no interval allows for them.

    Each seed holds out and draws other documents. Pairs of equal seeds share theirs, and an
    interval over independent seeds contains the scatter of documents.
    """
    seeds = {group.name: {run.seed for run in runs if run.group == group.name} for group in groups}
    return [
        f"{groups[0].name} and {group.name} are trained from different seeds (`seed` differs), and "
        "so evaluated on different documents: train both from the same seeds."
        for group in groups[1:]
        if math.isnan(group.behind.half) and seeds[group.name].isdisjoint(seeds[groups[0].name])
    ]


def _of_lengths(runs: list[TrainedRun]) -> list[str]:
    """Warnings of runs that were stopped, extended, or are of different lengths."""
    found = [
        f"{run.config.out} is not finished: it is at step {run.step:,}."
        for run in runs
        if run.summary is None
    ]
    if len({run.step for run in runs}) > 1 and any(run.config.decay != "constant" for run in runs):
        found.append(
            "Runs of different numbers of steps have different learning rates at the same step, "
            "since the rate decays to 0 at the end of each."
        )
    return found + [
        f"{run.config.out} was extended: up to step {run.summary.extended_after:,} its learning "
        "rate was that of fewer steps."
        for run in runs
        if run.summary is not None and run.summary.extended_after
    ]


def _common_step(found: list[list[Evaluation]]) -> int | None:
    steps = set.intersection(*({one.step for one in own} for own in found))
    return max(steps) or None if steps else None


def _compared(
    runs: list[TrainedRun], found: list[list[Evaluation]], names: list[str], step: int | None
) -> tuple[ComparedRun, ...]:
    first_of: dict[str, str] = {}
    compared = []
    for run, own, name in zip(runs, found, names, strict=True):
        group = first_of.setdefault(_configuration(run), name)
        compared.append(_one(run, own, name, group, step))
    return tuple(compared)


def _one(
    run: TrainedRun, found: list[Evaluation], name: str, group: str, step: int | None
) -> ComparedRun:
    losses = [(r["step"], r["loss"]) for r in run.history if r.get("loss") is not None]
    loss_steps, loss = np.array(losses, float).reshape(-1, 2).T
    known = [one for one in found if math.isfinite(one.loss)]
    rows = run.config.evaluate_rows
    return ComparedRun(
        name=name,
        group=group,
        seed=run.config.seed,
        init_seed=run.config.init_seed,
        steps=run.step,
        finished=run.summary is not None,
        parameters=None if run.summary is None else run.summary.parameters,
        seconds=None if run.summary is None else run.summary.seconds,
        common=next((one for one in found if one.step == step), None),
        last=found[-1],
        best=min(known or found, key=lambda one: one.loss),
        loss_steps=loss_steps,
        loss=loss,
        held_out_steps=np.array([one.step for one in found], float),
        held_out=np.array([one.loss for one in found], float),
        evaluated=rows if run.summary is None else min(rows, run.summary.held_out),
    )


def _configuration(run: TrainedRun) -> str:
    """Text that is equal for runs that differ in their seeds alone."""
    found = {name: own.value for name, own in choices(run).items() if name not in NOT_TRAINED}
    found["extended"] = str(0 if run.summary is None else run.summary.extended_after)
    return repr(sorted(found.items()))


def _differences(runs: list[TrainedRun]) -> dict[str, tuple[str, ...]]:
    """Options that are not the same in all runs; "–" where a run has none."""
    chosen = [choices(run) for run in runs]
    found = {}
    for name in dict.fromkeys(itertools.chain(*chosen)):
        values = tuple(own[name].value if name in own else "–" for own in chosen)
        if len(set(values)) > 1:
            found[name] = values
    return found


def _groups(runs: Sequence[ComparedRun]) -> tuple[Group, ...]:
    """Groups by their mean loss; each is held against the first."""
    members: dict[str, list[ComparedRun]] = {}
    for run in runs:
        members.setdefault(run.group, []).append(run)

    def loss(name: str) -> float:
        mean = _mean([_at(run).loss for run in members[name]]).mean
        return math.inf if math.isnan(mean) else mean

    names = sorted(members, key=loss)
    level = pair_level(len(names))
    return tuple(_group(name, members[name], members[names[0]], level) for name in names)


def _group(name: str, own: list[ComparedRun], first: list[ComparedRun], level: float) -> Group:
    found, best = _by_seeds(own), _by_seeds(first)
    losses = [one.loss for one in found.values()]
    shared = sorted(found.keys() & best.keys())
    paired = len(shared) > 1
    if own is first:
        behind = Estimate(0.0, math.nan, len(found))
    elif paired:
        behind = _mean([found[seeds].loss - best[seeds].loss for seeds in shared], level)
    else:
        behind = _welch(losses, [one.loss for one in best.values()], level)
    accuracies = np.array([one.accuracy for one in found.values()])
    trials = min(run.evaluated for run in own)
    return Group(
        name=name,
        loss=_mean(losses),
        accuracy=Interval(*map(float, seed_interval(accuracies, within=(0.0, 1.0), trials=trials))),
        behind=behind,
        paired=paired,
    )


def _by_seeds(runs: list[ComparedRun]) -> dict[tuple[int, int], Evaluation]:
    """Compared evaluation of each run, by its seeds; a run made twice counts once."""
    return {(run.seed, run.init_seed): _at(run) for run in runs}


def _at(run: ComparedRun) -> Evaluation:
    """Evaluation by which a run is compared."""
    return run.last if run.common is None else run.common


def _mean(values: Sequence[float], level: float = 0.95) -> Estimate:
    found = seed_mean(np.asarray(values, float), level=level)
    return Estimate(float(found.mean), float(found.half), len(values))


def _welch(own: list[float], other: list[float], level: float) -> Estimate:
    """Difference of means of independent samples, with Welch's interval; NaN of one value."""
    a, b = np.asarray(own, float), np.asarray(other, float)
    mean, seeds = float(a.mean() - b.mean()), min(len(a), len(b))
    if seeds < 2:
        return Estimate(mean, math.nan, seeds)
    parts = np.array([a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)])
    freedom = np.array([len(a) - 1, len(b) - 1])
    if not parts.sum() > 0:
        return Estimate(mean, 0.0, seeds)
    degrees = parts.sum() ** 2 / (parts**2 / freedom).sum()
    return Estimate(mean, float(stdtrit(degrees, (1 + level) / 2) * parts.sum() ** 0.5), seeds)
