"""Comparison of runs of `jaxpe train`: differences in their settings and in their results."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from jaxpe._core.errors import InputError
from jaxpe._core.files import short_names
from jaxpe._core.results import LargeArray
from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.intervals import pair_level, seed_interval, seed_mean
from jaxpe.analysis.training_run import Evaluation, TrainedRun, choices, evaluations, read_run
from jaxpe.data.corpora.sources import source_name
from jaxpe.training import TrainConfig
from jaxpe.training.run import TrainSummary

# Options that may differ between seeds of one configuration: seeds and logging.
NOT_TRAINED = ("seed", "init_seed", "checkpoint_every", "keep", "probe_at", "devices", "accumulate")
# Options that determine the held-out documents, besides the corpus and the seed.
OF_DOCUMENTS = ("held_out", "length", "special", "text_field", "label_field")


class ComparedRun(NamedTuple):
    """A run in a comparison.

    Attributes:
        name: its folder, without the common beginning of all folders.
        group: name of its group, the runs that differ only in their seeds: the name of the first
            one.
        config: its options and its folder.
        summary: summary in numbers; None while steps are left.
        vocabulary: hash of the text of all ids.
        documents: checksum of the token ids of all documents.
        steps: number of updates so far.
        loss_steps: steps of `loss`.
        loss: loss of the training batches, one a step.
        held_out_steps: steps of `held_out` and `accuracy`.
        held_out: losses on held-out documents, in nats.
        accuracy: accuracies on them; NaN for a task without one.
    """

    name: str
    group: str
    config: TrainConfig
    summary: TrainSummary | None
    vocabulary: str
    documents: int
    steps: int
    loss_steps: LargeArray
    loss: LargeArray
    held_out_steps: LargeArray
    held_out: LargeArray
    accuracy: LargeArray

    @property
    def best(self) -> Evaluation:
        """The evaluation of lowest finite loss, or the first."""
        return self._evaluation(
            int(np.argmin(np.where(np.isfinite(self.held_out), self.held_out, np.inf)))
        )

    def at(self, step: int | None) -> Evaluation:
        """The evaluation at a step; the last one without a step."""
        return self._evaluation(-1 if step is None else list(self.held_out_steps).index(step))

    @property
    def drawn(self) -> int | None:
        """Number of held-out documents drawn for evaluation; None for all, or while steps are left.

        Documents are drawn by the seed.
        """
        rows = self.config.evaluate_rows
        return None if self.summary is None or rows >= self.summary.held_out else rows

    @property
    def evaluated(self) -> int:
        """Number of documents of an evaluation; an upper bound while steps are left."""
        rows = self.config.evaluate_rows
        return rows if self.summary is None else min(rows, self.summary.held_out)

    def _evaluation(self, index: int) -> Evaluation:
        arrays = self.held_out_steps, self.held_out, self.accuracy
        step, loss, accuracy = (x[index].item() for x in arrays)
        return Evaluation(int(step), loss, accuracy)


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
    """

    source: str
    task: str
    step: int | None
    runs: tuple[ComparedRun, ...]
    groups: tuple[Group, ...]

    @property
    def settings(self) -> dict[str, tuple[str, ...]]:
        """Options that differ, by name, one value a run; "–" for an option that a run has not."""
        chosen = [_values(run.config, self.task) for run in self.runs]
        names = dict.fromkeys(itertools.chain(*chosen))
        values = {name: tuple(x.get(name, "–") for x in chosen) for name in names}
        return {name: each for name, each in values.items() if len(set(each)) > 1}

    def members(self, name: str) -> list[ComparedRun]:
        """Runs of a group."""
        return [run for run in self.runs if run.group == name]


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
    task, groups = runs[0].vocabulary.task, {}  # names of the first runs, by their configurations
    compared = []
    for run, name in zip(runs, short_names(folders), strict=True):
        extended = 0 if run.summary is None else run.summary.extended_after
        values = _values(run.config, run.vocabulary.task)
        trained = sorted(item for item in values.items() if item[0] not in NOT_TRAINED)
        group = groups.setdefault(repr((trained, extended)), name)
        compared.append(_compared_run(run, name, group))
    for other in runs[1:]:
        _refuse_differences(runs[0], other)
    steps = set.intersection(*(set(run.held_out_steps.astype(int).tolist()) for run in compared))
    step = max(steps, default=0) or None
    return RunComparison(
        source=source_name(runs[0].config.source),
        task=task,
        step=step,
        runs=tuple(compared),
        groups=_groups(compared, step),
    )


def _values(config: TrainConfig, task: str) -> dict[str, str]:
    return {name: choice.value for name, choice in choices(config, task).items()}


def other_documents(run: Any, other: Any) -> list[str]:
    """Names of settings for which two runs hold out or cut their documents differently."""
    pair = [_values(each.config, "classify") for each in (run, other)]
    return [name for name in OF_DOCUMENTS if pair[0].get(name) != pair[1].get(name)]


def _refuse_differences(first: TrainedRun, other: TrainedRun) -> None:
    """Raise `InputError` for two runs whose losses do not compare."""
    runs, pair = (first, other), f"{first.config.out} and {other.config.out}"
    other_tokens = first.vocabulary_hash != other.vocabulary_hash

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
    if first.documents != other.documents:
        refuse("corpora", [source_name(run.config.source) for run in runs])
        alike = not other_tokens and not other_documents(first, other)
        if alike and first.config.seed == other.config.seed:
            raise InputError(
                f"{pair} are of documents of the same name and different content: pass runs of the "
                "same documents"
            )


def _compared_run(run: TrainedRun, name: str, group: str) -> ComparedRun:
    """A run as arrays; raises `InputError` for a run without a training step."""
    evaluated = evaluations(run)
    if not any(one.step > 0 for one in evaluated):
        raise InputError(
            f"{run.config.out} has no evaluation after a training step yet (it is at step "
            f"{run.step:,}): resume it first, or leave it out"
        )
    losses = [(r["step"], r["loss"]) for r in run.history if r.get("loss") is not None]
    return ComparedRun(
        name,
        group,
        run.config,
        run.summary,
        run.vocabulary_hash,
        run.documents,
        run.step,
        *np.array(losses, float).reshape(-1, 2).T,
        *np.array(evaluated, float).T,
    )


def _groups(runs: Sequence[ComparedRun], step: int | None) -> tuple[Group, ...]:
    """Groups by mean loss, each compared with the first; a repeated run counts once."""
    members: dict[str, dict[tuple[int, int], ComparedRun]] = {}
    for run in runs:
        members.setdefault(run.group, {})[run.config.seed, run.config.init_seed] = run

    def loss(name: str) -> float:
        mean = np.mean([run.at(step).loss for run in members[name].values()])
        return math.inf if math.isnan(mean) else float(mean)

    names = sorted(members, key=loss)
    level = pair_level(len(names))
    return tuple(_group(name, members[name], members[names[0]], step, level) for name in names)


def _group(
    name: str,
    runs: dict[tuple[int, int], ComparedRun],
    best: dict[tuple[int, int], ComparedRun],
    step: int | None,
    level: float,
) -> Group:
    losses, others = ({k: run.at(step).loss for k, run in group.items()} for group in (runs, best))
    shared = sorted(losses.keys() & others.keys())
    paired = len(shared) > 1
    if runs is best:
        behind = Estimate(0.0, math.nan, len(runs))
    elif paired:
        behind = _mean([losses[seeds] - others[seeds] for seeds in shared], level)
    else:
        behind = _welch(list(losses.values()), list(others.values()), level)
    accuracies = np.array([run.at(step).accuracy for run in runs.values()])
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
