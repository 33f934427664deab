"""Means over documents and jackknifed statistics, with intervals."""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.intervals import seed_interval

Bounds = tuple[float, float] | None


class Means(NamedTuple):
    """Means over documents with 95 % intervals, arrays of one shape.

    Attributes:
        mean: mean over documents.
        low: lower end of the interval; NaN for one document.
        high: upper end.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def document_means(
    values: np.ndarray,
    *,
    within: Bounds = None,
    trials: int | float = math.inf,
    level: float = 0.95,
) -> Means:
    """Means over documents, the first axis, with the intervals of `seed_interval`.

    >>> means = document_means(np.array([[1.0], [2.0], [3.0]]))
    >>> means.mean.item(), round(means.low.item(), 2)
    (2.0, -0.48)
    """
    interval = seed_interval(
        np.asarray(values, np.float64), within=within, trials=trials, level=level
    )
    return Means(*map(np.asarray, interval))


def jackknife(value: np.ndarray | np.floating, left_out: np.ndarray) -> Means:
    """Statistics with Student's intervals from the jackknife over groups of documents.

    Args:
        value: statistics of all documents.
        left_out: statistics without each group, on the first axis.

    >>> x = np.arange(6.0)  # for a mean, it is the usual interval
    >>> means = jackknife(x.mean(), np.array([np.delete(x, k).mean() for k in range(6)]))
    >>> bool(np.isclose(means.low, document_means(x).low))
    True
    """
    count = len(left_out)
    half = stdtrit(count - 1, 0.975) * np.sqrt((count - 1) * left_out.var(axis=0))
    return Means(*map(np.asarray, (value, value - half, value + half)))


def document_mean(values: np.ndarray, *, within: Bounds = None) -> Interval:
    """Mean of one number of each document, with its interval.

    >>> document_mean(np.array([0.25, 0.75])).estimate
    0.5
    """
    return Interval(*map(float, document_means(values, within=within)))
