"""Result of a comparison beyond the training length: ranks, leads and verdicts."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import stdtrit

from jaxpe._core.results import Seconds
from jaxpe.analysis.extrapolation.cost import EncodingCost
from jaxpe.analysis.extrapolation.options import ExtrapolationOptions
from jaxpe.analysis.intervals import (
    SeedInterval,
    joint_level,
    lead_interval,
    pair_level,
    score_interval,
    seed_interval,
)

# Largest number of seeds that a comparison recommends; leads that need more count as too small.
MOST_SEEDS = 100
_LEAST_ERROR = 1e-30  # whose logarithm is taken

Verdict = Literal["better", "worse", "not decided", "not learned", "undefined"]


class ExtrapolationCell(NamedTuple):
    """A task under an encoding.

    Attributes:
        task: name of the task.
        encoding: name of the encoding.
        scores: metrics by name, `[seeds, lengths]`: "accuracy", which ranks, and "exact", in
            [0, 1]; or "relative_mse", which ranks, and "mse". NaN where the encoding is undefined,
            or training diverged.
        rate: chosen learning rate.
        tuning: training loss of each rate, after a quarter of the steps, on a separate seed.
        loss: final training loss, `[seeds]`.
        tests: number of test rows at each length.
        chance: score at T of the best answer that ignores the input: an accuracy, or the relative
            squared error 1 of always saying 0.
    """

    task: str
    encoding: str
    scores: dict[str, np.ndarray]
    rate: float
    tuning: np.ndarray
    loss: np.ndarray
    tests: int
    chance: float

    @property
    def metric(self) -> str:
        """Name of the score that ranks."""
        return "accuracy" if self.is_share else "relative_mse"

    @property
    def is_share(self) -> bool:
        """Whether the score is a share of correct tokens, in [0, 1], and not an error."""
        return "accuracy" in self.scores

    @property
    def interval(self) -> SeedInterval:
        """Score at each length, `[lengths]`, with 95 % intervals over seeds."""
        return score_interval(
            self.scores[self.metric], trials=self.tests if self.is_share else None
        )

    @property
    def learned(self) -> bool:
        """Whether the models do better at T than an answer that ignores the input.

        The interval at T lies on the better side of `chance`; without an interval the mean does.
        """
        mean, low, high = (float(x[0]) for x in self.interval)
        end = low if self.is_share else high
        score = mean if np.isnan(end) else end
        return score > self.chance if self.is_share else score < self.chance

    @property
    def beyond(self) -> np.ndarray:
        """Mean score of each seed beyond T, `[seeds]`: of errors the geometric mean."""
        values = self.scores[self.metric][:, 1:]
        if self.is_share:
            return values.mean(axis=1)
        return np.exp(np.log(np.maximum(values, _LEAST_ERROR)).mean(axis=1))

    @property
    def worth(self) -> np.ndarray:
        """`beyond` on a scale where larger is better and differences are comparable."""
        return self.beyond if self.is_share else -np.log(self.beyond)

    @property
    def comparable(self) -> bool:
        """Whether the task is learned at T and all scores beyond T are finite."""
        return self.learned and bool(np.isfinite(self.beyond).all())

    @property
    def beyond_interval(self) -> SeedInterval:
        """Mean score beyond T with its 95 % interval over seeds, scalars; NaN where undefined."""
        interval = score_interval(self.beyond[:, None], trials=self.trials)
        return SeedInterval(*(end[0] for end in interval))

    @property
    def trials(self) -> int | None:
        """Number of rows tested beyond T; None for errors."""
        lengths = self.scores[self.metric].shape[1]
        return self.tests * (lengths - 1) if self.is_share else None


class Comparison(NamedTuple):
    """Verdict on one encoding against another on a task, by mean score beyond T.

    Attributes:
        task: name of the task.
        first: encoding that is judged: one of one's own, or the best of the task.
        other: the other encoding.
        verdict: "better" or "worse" if the interval of the lead excludes 0; "not decided" if it
            includes 0, or with one seed; "not learned" if either has not learned the task at T;
            "undefined" if either has no finite score beyond T.
        lead: lead of the first, seed by seed, scalars: a difference of accuracies, or the logarithm
            of the ratio of errors; NaN without a comparison.
        seeds: number of seeds that would decide it at the present mean and spread; 0 if decided,
            unknown, or above `MOST_SEEDS`.
        is_share: whether scores are accuracies, and not errors.
    """

    task: str
    first: str
    other: str
    verdict: Verdict
    lead: SeedInterval
    seeds: int
    is_share: bool


class ExtrapolationResult(NamedTuple):
    """Result of `extrapolate`.

    Attributes:
        options: options of the job.
        cells: every task under every encoding, in order.
        costs: cost of each encoding.
        seconds: duration of the "whole" run.
    """

    options: ExtrapolationOptions
    cells: tuple[ExtrapolationCell, ...]
    costs: tuple[EncodingCost, ...]
    seconds: Seconds = {}  # noqa: RUF012

    def ranks(self) -> dict[str, SeedInterval]:
        """Mean reciprocal rank of each encoding over tasks, lengths and seeds, in (0, 1].

        In descending order, with intervals over seeds; empty for one encoding, or without inputs
        longer than T.
        """
        if len(self.options.encodings) < 2 or len(self.options.factors) < 2:
            return {}
        means = {
            name: seed_interval(x.mean(axis=(0, 2)), within=(0.0, 1.0), trials=x[:, 0].size)
            for name, x in reciprocal_ranks(self.cells).items()
        }
        return dict(sorted(means.items(), key=lambda item: -round(float(item[1].mean), 9)))

    def comparisons(self) -> tuple[Comparison, ...]:
        """Verdicts, task by task, whose intervals hold jointly at 95 %.

        Encodings of one's own, whose names have a colon, are chosen before the scores are known:
        each is compared with every other encoding, and the comparisons are as many as these pairs.
        Without one, the best encoding of each task is compared with the others. It is chosen by its
        scores, so that level is of all pairs (`pair_level`).

        Returns:
            Comparisons, the best rivals of a task first; none without inputs longer than T.
        """
        if len(self.options.factors) < 2:
            return ()
        own = [name for name in self.options.encodings if ":" in name]
        groups = [best_first([x for x in self.cells if x.task == t]) for t in self.options.tasks]
        if own:
            pairs = [
                (cell, other)
                for group in groups
                for cell in group
                for other in group
                if cell.encoding in own
                and other.encoding not in own[: own.index(cell.encoding) + 1]
            ]
            level = joint_level(len(pairs))
        else:
            pairs = [(group[0], other) for group in groups for other in group[1:]]
            level = pair_level([sum(x.comparable for x in group) for group in groups])
        return tuple(_comparison(one, other, level) for one, other in pairs)


def best_first(cells: Sequence[ExtrapolationCell]) -> list[ExtrapolationCell]:
    """Cells of a task by mean score beyond T; those that are not comparable are last.

    >>> best_first(result.cells)[0].encoding  # doctest: +SKIP
    'alibi'
    """
    return sorted(cells, key=lambda x: -x.worth.mean() if x.comparable else np.inf)


def _comparison(one: ExtrapolationCell, other: ExtrapolationCell, level: float) -> Comparison:
    lead, seeds = SeedInterval(*(np.array(np.nan) for _ in range(3))), 0
    verdict: Verdict = "not learned" if not (one.learned and other.learned) else "undefined"
    if one.comparable and other.comparable:
        lead = lead_interval(one.worth, other.worth, trials=one.trials, level=level)
        verdict = "better" if lead.low > 0 else "worse" if lead.high < 0 else "not decided"
        if verdict == "not decided" and np.isfinite(lead.low):
            pair = (one.worth, other.worth) if lead.mean > 0 else (other.worth, one.worth)
            seeds = _seeds_needed(*pair, one.trials, level)
    return Comparison(one.task, one.encoding, other.encoding, verdict, lead, seeds, one.is_share)


def _seeds_needed(values: np.ndarray, other: np.ndarray, trials: int | None, level: float) -> int:
    """The least number of seeds whose interval lies above 0; 0 if unknown.

    It uses Student's t, and the trials as if all seeds equalled the mean. It is at least one more
    than the present number, because the bounded interval, which decides, is wider.
    """
    leads = values - other

    def enough(count: int) -> bool:
        a, b = (np.full(count, x.mean()) for x in (values, other))
        half = stdtrit(count - 1, (1 + level) / 2) * leads.std(ddof=1) / count**0.5
        pooled = lead_interval(a, b, trials=trials, level=level).low
        return bool(min(leads.mean() - half, pooled) > 0)

    most = MOST_SEEDS if len(leads) > 1 and enough(MOST_SEEDS) else 0
    return next(filter(enough, range(len(leads) + 1, most + 1)), 0)


def reciprocal_ranks(cells: Sequence[ExtrapolationCell]) -> dict[str, np.ndarray]:
    """Reciprocal rank 1/rank of each encoding, `[tasks, seeds, lengths − 1]`, beyond T.

    Encodings are ranked within a task, a seed (of data and weights) and a length. Equal ones share
    the mean of 1/rank over their ranks; undefined ones, and ones with failed training, are last.

    Args:
        cells: every task under every encoding.

    >>> reciprocal_ranks(result.cells)["alibi"].shape  # doctest: +SKIP
    (2, 3, 2)
    """
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    names = list(dict.fromkeys(cell.encoding for cell in cells))
    by_pair = {(cell.task, cell.encoding): cell for cell in cells}
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, len(names) + 1))])
    shares = []
    for task in tasks:
        worth = np.stack([_worth_by_length(by_pair[task, name]) for name in names])
        better = (worth[None, :] > worth[:, None]).sum(axis=1)
        equal = (worth[None, :] == worth[:, None]).sum(axis=1)
        shares.append((harmonic[better + equal] - harmonic[better]) / equal)
    stacked = np.stack(shares)  # [tasks, encodings, seeds, lengths]
    return {name: stacked[:, index] for index, name in enumerate(names)}


def _worth_by_length(cell: ExtrapolationCell) -> np.ndarray:
    values = cell.scores[cell.metric][:, 1:]
    return np.nan_to_num(values if cell.is_share else -values, nan=-np.inf, neginf=-np.inf)
