"""Results of a comparison beyond the training length."""

from typing import NamedTuple

import numpy as np

from jaxpe._core.results import Seconds
from jaxpe.analysis.extrapolation.presets import Suite


class SeedMean(NamedTuple):
    """A mean over seeds of what has no bounds.

    Attributes:
        mean: over seeds.
        half: half the width of its 95 % interval by Student's t; NaN of one seed.
    """

    mean: np.ndarray
    half: np.ndarray


class SeedInterval(NamedTuple):
    """A mean over seeds and the ends of its interval.

    Attributes:
        mean: over seeds.
        low: lower end of the interval; NaN of one seed, which has none.
        high: upper end.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Comparison(NamedTuple):
    """An encoding against the one of the best mean score beyond the training length, on a task.

    Scores of a seed are means over the lengths beyond the training's. The intervals of all pairs of
    encodings, on all tasks of the suite, hold together at 95 % (`pair_level`).

    Attributes:
        suite: the comparison it belongs to.
        task: name of the task.
        best: encoding of the best mean score.
        encoding: the other one.
        lead: lead of the best over the other, seed by seed; scalars. A difference of accuracies, in
            [−1, 1], or the logarithm of the ratio of errors.
        decided: whether the interval of the lead lies above 0.
        seeds: number of seeds that would decide if mean and spread stay as they are; 0 where it is
            decided, cannot be told, or would take more than `MOST_SEEDS`.
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
        lengths: lengths of inputs tested; the first is that of the training.
        scores: metrics by name, `[seeds, lengths]`; NaN where not defined, or where training came
            to NaN.
        summary: summary of each metric `[lengths]` over seeds; NaN where any seed has no finite
            score.
        defined: whether the encoding says anything at each length, `[lengths]`.
        rate: learning rate chosen.
        rates: learning rates that it was chosen from.
        tuning: loss of each rate, after a share of the steps, on a seed of its own.
        loss: loss of training, at the end, `[seeds]`.
        seconds: duration of "training", choosing the rate included.
        tests: number of rows at each length tested; 0 where unknown.
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


class ExtrapolationResult(NamedTuple):
    """Result of `extrapolate`.

    Attributes:
        suites: settings of each comparison.
        cells: results of all of them, in order.
        mean_reciprocal_rank: means by suite and encoding, the first first; scalars. Empty where
            nothing ranks: of one encoding, or without inputs longer than those of the training.
        comparisons: comparisons of each task, the best encoding with every other one whose scores
            are finite.
        seconds: duration of the "whole" run, what was read from an earlier one not counted.
    """

    suites: tuple[Suite, ...]
    cells: tuple[ExtrapolationCell, ...]
    mean_reciprocal_rank: dict[str, dict[str, SeedInterval]]
    comparisons: tuple[Comparison, ...] = ()
    seconds: Seconds = {}  # noqa: RUF012

    def cells_of(self, suite: Suite) -> list[ExtrapolationCell]:
        """The cells of one comparison."""
        return [cell for cell in self.cells if cell.suite == suite.name]
