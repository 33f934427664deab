"""Means over seeds and their intervals, shares of trials included, and levels of several."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit

from jaxpe.analysis.extrapolation.result import SeedInterval, SeedMean

Values = float | np.ndarray  # NumPy makes a float of an array without axes

IN_0_1 = ("accuracy", "exact")  # metrics that lie there


def seed_mean(values: np.ndarray, *, level: float = 0.95) -> SeedMean:
    """Mean over the first axis, with half of its Student interval.

    >>> found = seed_mean(np.array([[1.0], [2.0], [3.0]]))
    >>> found.mean.item(), round(found.half.item(), 3)
    (2.0, 2.484)
    """
    values = np.asarray(values, float)
    count, mean = len(values), values.mean(axis=0)
    if count < 2:
        return SeedMean(mean, np.full(mean.shape, np.nan))
    t = stdtrit(count - 1, (1 + level) / 2)
    return SeedMean(mean, t * values.std(axis=0, ddof=1) / count**0.5)


def seed_interval(
    values: np.ndarray,
    *,
    within: tuple[float, float] | None = None,
    trials: int | float = math.inf,
    level: float = 0.95,
) -> SeedInterval:
    """Mean over the first axis, with an interval within bounds where there are any.

    Without bounds it is Student's. Of accuracies near 1 this reaches beyond 1, and covers too
    seldom: the spread of few seeds is most often too small there. Within bounds, scaled to [0, 1],
    it is Wilson's interval with the variance of a quasi-binomial: all m for which

        (x̄ − m)² ≤ c m (1 − m),   c = max(t² s² / (k x̄ (1 − x̄)), z² / (k · trials)),

    of k seeds, t and z being quantiles of Student's law with k − 1 degrees of freedom and of the
    normal law. The first term is the spread between seeds. The second is the binomial variance of
    all trials together, below which no spread of few seeds is believed: seeds that agree have an
    interval with a width. Values of one trial each have the second term alone, since their spread
    says nothing more.

    `experiments/interval_coverage.py` measures its coverage: 93 to 99.5 % at 95 %, but for
    means near 1 of seeds that differ much: a seed that fails once in fifty is not among three.

    Args:
        values: values of the seeds, on the first axis.
        within: least and largest value that there can be.
        trials: number of trials that each value is the share of; infinite where it is no share.
        level: share of cases in which the interval is to hold the mean.

    Returns:
        The mean and the ends; NaN for the ends of one seed. Seeds that agree have an interval
        without width only where `trials` is infinite.

    >>> found = seed_interval(np.array([0.9, 0.98, 1.0]), within=(0.0, 1.0))
    >>> [round(x.item(), 2) for x in found]
    [0.96, 0.64, 1.0]
    >>> found = seed_interval(np.ones(3), within=(0.0, 1.0), trials=200)
    >>> [round(x.item(), 3) for x in found]
    [1.0, 0.994, 1.0]
    """
    values = np.asarray(values, float)
    count, mean = len(values), values.mean(axis=0)
    if count < 2:
        return SeedInterval(mean, np.full(mean.shape, np.nan), np.full(mean.shape, np.nan))
    squared = stdtrit(count - 1, (1 + level) / 2) ** 2 * values.var(axis=0, ddof=1) / count
    if within is None:
        half = np.sqrt(squared)
        return SeedInterval(mean, mean - half, mean + half)
    least, most = within
    share, size = (mean - least) / (most - least), most - least
    variance = share * (1 - share)
    spread = np.divide(squared / size**2, variance, out=np.zeros_like(variance), where=variance > 0)
    pooled = _squared_quantile(count * trials, level)
    ends = _wilson(share, np.maximum(spread, pooled) if trials > 1 else pooled)
    return SeedInterval(mean, *(least + size * np.clip(end, 0, 1) for end in ends))


def _squared_quantile(trials: int | float, level: float) -> float:
    """Squared normal quantile by the number of trials."""
    return float(ndtri((1 + level) / 2) ** 2 / trials)


def _wilson(share: Values, spread: Values) -> tuple[Values, Values]:
    """The m with (share − m)² = spread · m (1 − m), the ends of shares."""
    half = np.sqrt(spread * share * (1 - share) + spread**2 / 4)
    return (share + spread / 2 - half) / (1 + spread), (share + spread / 2 + half) / (1 + spread)


def lead_interval(
    values: np.ndarray, other: np.ndarray, *, trials: int | float | None, level: float
) -> SeedInterval:
    """Mean difference of two rows of values, seed by seed; of shares at least as wide as by trials.

    Shares have two intervals, of which the ends that are farther apart are taken: `seed_interval`
    of the differences, and Newcombe's (1998) of two proportions of all trials.

    Args:
        values, other: values of the same seeds, `[seeds]`.
        trials: number of trials that each value is the share of; None for values without bounds.
        level: share of cases in which the interval is to hold the difference.

    >>> found = lead_interval(np.ones(3), np.full(3, 0.995), trials=200, level=0.95)
    >>> bool(found.low < 0 < found.high)  # differences that agree: three of 600 trials
    True
    """
    if trials is None:
        return seed_interval(values - other, level=level)
    mean, least, most = seed_interval(values - other, within=(-1.0, 1.0), level=level)
    spread, p, q = _squared_quantile(len(values) * trials, level), values.mean(), other.mean()
    (low, high), (under, over) = _wilson(p, spread), _wilson(q, spread)
    return SeedInterval(
        mean,
        np.minimum(least, p - q - np.hypot(p - low, over - q)),
        np.maximum(most, p - q + np.hypot(high - p, q - under)),
    )


def pair_level(counts: int | Sequence[int], *, level: float = 0.95) -> float:
    """Level of the interval of each pair such that those of all pairs hold together (Bonferroni).

    The best of k is chosen by the values that it is compared by: its lead over another is the
    largest of k (k − 1)/2 differences, not one of k − 1.

    Args:
        counts: number of things compared, or one number for each of several groups.
        level: share of cases in which all intervals are to hold.

    >>> round(pair_level(5), 6), round(pair_level([5, 5]), 6), pair_level(1)
    (0.995, 0.9975, 0.95)
    """
    pairs = sum(math.comb(count, 2) for count in np.atleast_1d(counts).tolist())
    return 1 - (1 - level) / max(1, pairs)


def seed_means(scores: dict[str, np.ndarray], *, tests: int = 0) -> dict[str, SeedInterval]:
    """Intervals of metrics `[seeds, lengths]` by length; NaN where a seed has no finite score.

    Args:
        scores: metrics by name.
        tests: number of rows that each score is of; 0 where unknown. Rows are the trials of an
            accuracy, since the tokens of a row are not independent.
    """
    means = {}
    for metric, values in scores.items():
        finite = np.isfinite(values).all(axis=0)
        bounds: dict[str, Any] = {"within": (0.0, 1.0), "trials": tests or math.inf}
        bounds = bounds if metric in IN_0_1 else {}
        interval = seed_interval(np.where(finite, values, 0.0), **bounds)
        means[metric] = SeedInterval(*(np.where(finite, x, np.nan) for x in interval))
    return means
