"""Means over documents, with Student's intervals."""

import numpy as np

from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.extrapolation.intervals import seed_interval
from jaxpe.analysis.inspect.result import Means

Bounds = tuple[float, float] | None


def means_of(values: np.ndarray, *, within: Bounds = None) -> Means:
    """Means over the first axis, that of documents; ends within bounds where there are some.

    >>> found = means_of(np.array([[1.0], [2.0], [3.0]]))
    >>> found.mean.item(), round(found.low.item(), 2)
    (2.0, -0.48)
    """
    found = seed_interval(np.asarray(values, np.float64), within=within)
    return Means(*map(np.asarray, found))


def mean_of(values: np.ndarray, *, within: Bounds = None) -> Interval:
    """The mean of one number a document.

    >>> mean_of(np.array([0.25, 0.75])).estimate
    0.5
    """
    return Interval(*map(float, means_of(values, within=within)))
