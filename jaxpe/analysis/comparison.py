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
from jaxpe.analysis.intervals import pair_level, seed_interval, seed_mean
from jaxpe.analysis.training_run import Evaluation, TrainedRun, choices, evaluations, read_run
from jaxpe.data.corpora.sources import source_name

# Options that may differ between seeds of one configuration: seeds and logging.
NOT_TRAINED = ("seed", "init_seed", "checkpoint_every", "keep", "probe_at", "devices", "accumulate")
# Options that determine the held-out documents, besides the corpus and the seed.
_OF_DOCUMENTS = ("held_out", "length", "special", "text_field", "label_field")


class ComparedRun(NamedTuple):
    """A run in a comparison.

    Attributes:
        name: its folder, without the common beginning of all folders.
        group: name of its group, the runs that differ only in their seeds: the name of the first
            one.
        seed, init_seed: seeds of the documents and of the weights.
        steps: number of updates so far.
        finished: whether these are all steps of the run.
        parameters: number of parameters of the model; None while steps are left, as are `seconds`.
        seconds: duration of the run.
        common: evaluation at the last step that all runs evaluated; None without one.
        last: the last evaluation.
        best: the evaluation of lowest loss.
        loss_steps: steps of `loss`.
        loss: loss of the training batches, one a step.
        held_out_steps: steps of `held_out`.
        held_out: losses on held-out documents.
        evaluated: number of these documents; an upper bound while steps are left.
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

    @property
    def compared(self) -> Evaluation:
        """The evaluation by which the run is compared."""
        return self.last if self.common is None else self.common


class Estimate(NamedTuple):
    """A mean over seeds.

    Attributes:
        mean: mean over `seeds` seeds.
        half: half the width of its interval by Student's t; NaN for one seed.
    """

    mean: float
    half: float
    seeds: int


class Group(NamedTuple):
    """Runs that differ in their seeds alone.

    Attributes:
        name: name of its first run.
        loss: loss on held-out documents at the step compared, with a 95 % interval.
        accuracy: mean accuracy at this step, with the 95 % interval of a share of documents
            (`seed_interval`); NaN for a task without one.
        behind: its loss less the loss of the first group, seed by seed if they share at least two
            seeds, else as independent samples (Welch); 0 for the first. Intervals of all pairs of
            groups hold jointly at 95 % (`pair_level`), because the first group is chosen by the
            same losses.
        paired: whether `behind` is computed seed by seed.
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
        step: the last step that all runs evaluated; None if only the first is common, and then
            groups are compared at the last evaluation of each run.
        runs: runs in the order of the folders.
        groups: groups, in the order of their mean loss.
        settings: options that differ, by name, one value a run.
        warnings: reasons that make the runs less comparable, as sentences.
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

    Runs that differ only in their seeds are one group, whose mean has an interval. Stopped runs are
    compared as far as they came.

    Args:
        directories: folders of two runs or more.

    Raises:
        InputError: a folder without a run or an evaluation, the same folder twice, or losses that
            do not compare: of different tasks, documents or, for language models, vocabularies.

    >>> compare_runs(["rope", "alibi"]).groups[0].name  # doctest: +SKIP
    'alibi'
    """
    if len(directories) < 2:
        raise InputError(f"`runs`: {len(directories)} to compare; pass two folders or more")
    folders = [Path(directory).resolve() for directory in directories]
    if twice := [folder for folder in folders if folders.count(folder) > 1]:
        raise InputError(f"`runs`: {twice[0]} is there twice; pass each folder once")
    runs = [read_run(directory) for directory in directories]
    evaluated = [_evaluations(run) for run in runs]
    warnings = [text for other in runs[1:] for text in _pair_warnings(runs[0], other)]
    step = max(set.intersection(*({x.step for x in history} for history in evaluated)), default=0)
    chosen = [{name: choice.value for name, choice in choices(run).items()} for run in runs]
    compared: list[ComparedRun] = []
    groups: dict[str, str] = {}  # names of the first runs, by their configurations
    names = short_names(folders)
    for run, history, options, name in zip(runs, evaluated, chosen, names, strict=True):
        extended = 0 if run.summary is None else run.summary.extended_after
        settings = {k: v for k, v in options.items() if k not in NOT_TRAINED}
        group = groups.setdefault(repr((sorted(settings.items()), extended)), name)
        compared.append(_compared_run(run, history, name, group, step))
    means = _groups(compared)
    warnings += [*_length_warnings(runs), *_seed_warnings(compared, means)]
    return RunComparison(
        source=source_name(runs[0].config.source),
        task=runs[0].vocabulary.task,
        step=step or None,
        runs=tuple(compared),
        groups=means,
        settings={
            name: values
            for name in dict.fromkeys(itertools.chain(*chosen))
            if len(set(values := tuple(x.get(name, "–") for x in chosen))) > 1
        },
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _evaluations(run: TrainedRun) -> list[Evaluation]:
    """Evaluations of a run; raises for a run without a training step."""
    evaluated = evaluations(run)
    if not any(one.step > 0 for one in evaluated):
        raise InputError(
            f"{run.config.out} has no evaluation after a training step yet (it is at step "
            f"{run.step:,}): resume it first, or leave it out"
        )
    return evaluated


def _pair_warnings(first: TrainedRun, other: TrainedRun) -> list[str]:
    """Warnings about two runs; raises if their losses do not compare."""
    runs, pair = (first, other), f"{first.config.out} and {other.config.out}"
    other_tokens = first.vocabulary_hash != other.vocabulary_hash
    other_documents = first.documents != other.documents

    def refuse(noun: str, values: Sequence[str], *, differ: bool | None = None) -> None:
        if values[0] != values[1] if differ is None else differ:
            raise InputError(
                f"{pair} have different {noun} ({values[0]} and {values[1]}), so their losses do "
                "not compare: pass runs with the same"
            )

    refuse("tasks", [run.vocabulary.task for run in runs])
    refuse("classes", [", ".join(sorted(run.vocabulary.classes)) for run in runs])
    refuse("shares of masked tokens", [f"{run.config.mask_rate:g}" for run in runs])
    if first.vocabulary.task != "classify":  # a loss per token depends on the tokenizer
        sizes = [f"{len(run.vocabulary.tokens):,} tokens" for run in runs]
        refuse("vocabularies", sizes, differ=other_tokens)
    warnings = []
    if other_tokens:
        warnings.append(f"{pair} read the documents with different vocabularies.")
    if other_documents:
        refuse("corpora", [source_name(run.config.source) for run in runs])
        chosen = [choices(run) for run in runs]
        names = [name for name in _OF_DOCUMENTS if chosen[0].get(name) != chosen[1].get(name)]
        names += ["tokenizer"] * other_tokens
        if not names and first.config.seed == other.config.seed:
            raise InputError(
                f"{pair} are of documents of the same name and different content: pass runs of the "
                "same documents"
            )
        if names:
            listed = ", ".join(f"`{name}`" for name in names)
            warnings.append(f"{pair} hold out or cut their documents differently ({listed}).")
    if _evaluated_rows(first) != _evaluated_rows(other):
        warnings.append(f"{pair} are evaluated on different parts of the held-out documents.")
    return warnings


def _evaluated_rows(run: TrainedRun) -> int | None:
    """Number of documents drawn for evaluation; None for all of them."""
    rows = run.config.evaluate_rows
    return None if run.summary is None or rows >= run.summary.held_out else rows


def _seed_warnings(runs: Sequence[ComparedRun], groups: Sequence[Group]) -> list[str]:
    """Warnings of configurations on different documents that no interval accounts for.

    Each seed draws and holds out other documents. Pairs of equal seeds share them, and an interval
    over independent seeds includes their scatter.
    """
    seeds = {group.name: {run.seed for run in runs if run.group == group.name} for group in groups}
    return [
        f"{groups[0].name} and {group.name} are trained from different seeds (`seed` differs), and "
        "so evaluated on different documents: train both from the same seeds."
        for group in groups[1:]
        if math.isnan(group.behind.half) and seeds[group.name].isdisjoint(seeds[groups[0].name])
    ]


def _length_warnings(runs: list[TrainedRun]) -> list[str]:
    """Warnings of runs that were stopped, extended, or differ in length."""
    warnings = []
    if len({run.step for run in runs}) > 1 and any(run.config.decay != "constant" for run in runs):
        warnings.append(
            "Runs of different numbers of steps have different learning rates at the same step, "
            "since the rate decays to 0 at the end of each."
        )
    for run in runs:
        if run.summary is None:
            warnings.append(f"{run.config.out} is not finished: it is at step {run.step:,}.")
        elif run.summary.extended_after:
            warnings.append(
                f"{run.config.out} was extended: up to step {run.summary.extended_after:,} its "
                "learning rate followed the schedule of a shorter run."
            )
    return warnings


def _compared_run(
    run: TrainedRun, evaluated: list[Evaluation], name: str, group: str, step: int
) -> ComparedRun:
    losses = [(r["step"], r["loss"]) for r in run.history if r.get("loss") is not None]
    loss_steps, loss = np.array(losses, float).reshape(-1, 2).T
    finite = [one for one in evaluated if math.isfinite(one.loss)]
    done, rows = run.summary, run.config.evaluate_rows
    return ComparedRun(
        name=name,
        group=group,
        seed=run.config.seed,
        init_seed=run.config.init_seed,
        steps=run.step,
        finished=done is not None,
        parameters=None if done is None else done.parameters,
        seconds=None if done is None else done.seconds,
        common=next((one for one in evaluated if step and one.step == step), None),
        last=evaluated[-1],
        best=min(finite or evaluated, key=lambda one: one.loss),
        loss_steps=loss_steps,
        loss=loss,
        held_out_steps=np.array([one.step for one in evaluated], float),
        held_out=np.array([one.loss for one in evaluated], float),
        evaluated=rows if done is None else min(rows, done.held_out),
    )


def _groups(runs: Sequence[ComparedRun]) -> tuple[Group, ...]:
    """Groups by mean loss, each compared with the first; a repeated run counts once."""
    members: dict[str, dict[tuple[int, int], ComparedRun]] = {}
    for run in runs:
        members.setdefault(run.group, {})[run.seed, run.init_seed] = run

    def loss(name: str) -> float:
        mean = np.mean([run.compared.loss for run in members[name].values()])
        return math.inf if math.isnan(mean) else float(mean)

    names = sorted(members, key=loss)
    level = pair_level(len(names))
    return tuple(_group(name, members[name], members[names[0]], level) for name in names)


def _group(
    name: str,
    runs: dict[tuple[int, int], ComparedRun],
    best: dict[tuple[int, int], ComparedRun],
    level: float,
) -> Group:
    losses, others = ({k: run.compared.loss for k, run in group.items()} for group in (runs, best))
    shared = sorted(losses.keys() & others.keys())
    paired = len(shared) > 1
    if runs is best:
        behind = Estimate(0.0, math.nan, len(runs))
    elif paired:
        behind = _mean([losses[seeds] - others[seeds] for seeds in shared], level)
    else:
        behind = _welch(list(losses.values()), list(others.values()), level)
    accuracies = np.array([run.compared.accuracy for run in runs.values()])
    trials = min(run.evaluated for run in runs.values())
    accuracy = seed_interval(accuracies, within=(0.0, 1.0), trials=trials)
    mean = _mean(list(losses.values()))
    return Group(name, mean, Interval(*map(float, accuracy)), behind, paired)


def _mean(values: Sequence[float], level: float = 0.95) -> Estimate:
    mean, half = seed_mean(np.asarray(values, float), level=level)
    return Estimate(float(mean), float(half), len(values))


def _welch(values: list[float], others: list[float], level: float) -> Estimate:
    """Difference of means of independent samples, with Welch's interval; NaN for one value."""
    mean, seeds = float(np.mean(values) - np.mean(others)), min(len(values), len(others))
    if seeds < 2:
        return Estimate(mean, math.nan, seeds)
    parts = np.array([np.var(x, ddof=1) / len(x) for x in (values, others)])
    freedom = np.array([len(values) - 1, len(others) - 1])
    # Welch–Satterthwaite; two samples without spread have an interval without width.
    degrees = parts.sum() ** 2 / max((parts**2 / freedom).sum(), np.finfo(float).tiny)
    half = stdtrit(max(degrees, 1.0), (1 + level) / 2) * parts.sum() ** 0.5
    return Estimate(mean, float(half), seeds)
