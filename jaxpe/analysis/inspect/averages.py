"""Means over documents and statistics of groups of them, with Student's intervals."""

import math

import numpy as np
from scipy.special import stdtrit

from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.extrapolation.intervals import seed_interval
from jaxpe.analysis.inspect.result import Means

Bounds = tuple[float, float] | None


def document_means(
    values: np.ndarray, *, within: Bounds = None, trials: int | float = math.inf
) -> Means:
    """Means over the first axis, that of documents; ends as `seed_interval` gives them.

    >>> found = document_means(np.array([[1.0], [2.0], [3.0]]))
    >>> found.mean.item(), round(found.low.item(), 2)
    (2.0, -0.48)
    """
    found = seed_interval(np.asarray(values, np.float64), within=within, trials=trials)
    return Means(*map(np.asarray, found))


def jackknife(value: np.ndarray | np.floating, left_out: np.ndarray) -> Means:
    """Statistics with Student's intervals from the jackknife over groups of documents.

    Args:
        value: statistics of all documents.
        left_out: statistics without each group, on the first axis.

    >>> x = np.arange(6.0)  # of a mean, it is the interval of the mean
    >>> found = jackknife(x.mean(), np.array([np.delete(x, k).mean() for k in range(6)]))
    >>> bool(np.isclose(found.low, document_means(x).low))
    True
    """
    count = len(left_out)
    half = stdtrit(count - 1, 0.975) * np.sqrt((count - 1) * left_out.var(axis=0))
    return Means(*map(np.asarray, (value, value - half, value + half)))


def document_mean(values: np.ndarray, *, within: Bounds = None) -> Interval:
    """The mean of one number a document.

    >>> document_mean(np.array([0.25, 0.75])).estimate
    0.5
    """
    return Interval(*map(float, document_means(values, within=within)))
