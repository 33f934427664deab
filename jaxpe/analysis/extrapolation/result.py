"""Results of a comparison beyond the training length."""

from typing import NamedTuple

import numpy as np

from jaxpe._core.results import Seconds
from jaxpe.analysis.extrapolation.presets import Suite


class SeedMean(NamedTuple):
    """Mean over seeds, with a Student interval.

    Attributes:
        mean: mean over seeds.
        half: half the width of its 95 % interval by Student's t; NaN for one seed.
    """

    mean: np.ndarray
    half: np.ndarray


class SeedInterval(NamedTuple):
    """Mean over seeds, with the ends of its interval.

    Attributes:
        mean: mean over seeds.
        low: lower end of the interval; NaN for one seed, or for seeds that agree without a number
            of trials.
        high: upper end.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Comparison(NamedTuple):
    """Comparison of an encoding with a task's best one, by mean score beyond the training length.

    Scores of a seed are means over the lengths beyond T. The intervals of all pairs of encodings,
    on all tasks of the suite, hold jointly at 95 % (`pair_level`).

    Attributes:
        suite: the comparison it belongs to.
        task: name of the task.
        best: encoding of the best mean score.
        encoding: the other one.
        lead: lead of the best over the other, seed by seed; scalars. A difference of accuracies, in
            [−1, 1], or the logarithm of the ratio of errors.
        decided: whether the interval of the lead lies above 0; false without an interval.
        seeds: number of seeds that would decide it at the present mean and spread; 0 if it is
            decided, unknown, or above `MOST_SEEDS`.
    """

    suite: str
    task: str
    best: str
    encoding: str
    lead: SeedInterval
    decided: bool
    seeds: int


class ExtrapolationCell(NamedTuple):
    """A task under an encoding.

    Attributes:
        suite: the comparison it belongs to.
        task: name of the task.
        encoding: name of the encoding.
        metric: score that ranks.
        lengths: tested input lengths; the first is the training length.
        scores: metrics by name, `[seeds, lengths]`; NaN where undefined, or where training
            diverged.
        summary: summary of each metric `[lengths]` over seeds; NaN where any seed has no finite
            score.
        defined: whether the encoding is defined at each length, `[lengths]`.
        rate: chosen learning rate.
        rates: learning rates to choose from.
        tuning: loss of each rate, after a share of the steps, on a separate seed.
        loss: final training loss, `[seeds]`.
        seconds: duration of "training", including the choice of the rate.
        tests: number of test rows at each length; 0 if unknown.
        chance: accuracy at T of the best answer that ignores the input; 0 for numbers, or if
            unknown.
    """

    suite: str
    task: str
    encoding: str
    metric: str
    lengths: tuple[int, ...]
    scores: dict[str, np.ndarray]
    summary: dict[str, SeedInterval]
    defined: np.ndarray
    rate: float
    rates: tuple[float, ...]
    tuning: np.ndarray
    loss: np.ndarray
    seconds: Seconds = {}  # noqa: RUF012
    tests: int = 0
    chance: float = 0.0

    @property
    def learned(self) -> bool:
        """Whether the models do better at T than an answer that ignores the input.

        The 95 % interval over seeds lies above `chance`, or below the relative squared error 1 of
        always saying 0. Models without an interval are judged by their mean.
        """
        numbers = "relative_mse" in self.summary
        mean, low, high = self.summary["relative_mse" if numbers else self.metric]
        end = (high if numbers else low)[0]
        score = mean[0] if np.isnan(end) else end
        return bool(score < 1) if numbers else bool(score > self.chance)


class ExtrapolationResult(NamedTuple):
    """Result of `extrapolate`.

    Attributes:
        suites: settings of each comparison.
        cells: results of all of them, in order.
        mean_reciprocal_rank: means by suite and encoding, in descending order; scalars. Empty for
            one encoding, or without inputs longer than T.
        comparisons: comparisons of each task, the best encoding with every other one, among those
            that learned the task at T and have finite scores beyond it.
        seconds: duration of the "whole" run, without cells read from an earlier one.
    """

    suites: tuple[Suite, ...]
    cells: tuple[ExtrapolationCell, ...]
    mean_reciprocal_rank: dict[str, dict[str, SeedInterval]]
    comparisons: tuple[Comparison, ...] = ()
    seconds: Seconds = {}  # noqa: RUF012

    def cells_of(self, suite: Suite) -> list[ExtrapolationCell]:
        """The cells of one comparison."""
        return [cell for cell in self.cells if cell.suite == suite.name]
