"""Offsets between query and key that a loss sees, counted by document, and their shares."""

from typing import NamedTuple

import numpy as np

from jaxpe._core.errors import InputError

_RANGES = 40  # offsets 0, 1, 2 to 3, 4 to 7, ...
_FEWEST = 40  # effective number of documents of an interval; below, its coverage is under 90 %
_Z = 1.959964  # quantile of the normal distribution, for intervals of 95 %


class OffsetShare(NamedTuple):
    """Share of pairs in a range of offsets.

    Attributes:
        first: smallest offset of the range.
        last: largest offset of the range.
        share: share of all pairs, 0 to 1.
        low: lower end of the interval of 95 %; 0 where too few documents have most of the pairs.
        high: upper end of the interval; 1 there.
    """

    first: int
    last: int
    share: float
    low: float
    high: float


class OffsetHistogram(NamedTuple):
    """Pairs of query and key in ranges of offsets 0, 1, 2 to 3, 4 to 7, ...; histograms add.

    Attributes:
        pairs: numbers of pairs, `[ranges]`.
        squares: sums over documents of squared numbers of pairs, `[ranges]`.
        products: sums over documents of pairs in the range times all pairs, `[ranges]`.
        total_squares: sum over documents of the squared number of all pairs.
        documents: number of documents that have pairs.
    """

    pairs: np.ndarray
    squares: np.ndarray
    products: np.ndarray
    total_squares: float
    documents: int

    def __add__(self, other: tuple) -> "OffsetHistogram":
        """Histogram of the documents of both."""
        return OffsetHistogram(*(x + y for x, y in zip(self, other, strict=True)))

    def shares(self) -> list[OffsetShare]:
        """Share of each range up to the last that has pairs, with intervals of 95 %.

        Documents are the clusters: a share is a ratio of sums over documents. Its variance is the
        variance of the linearised ratio; the interval is a Student interval of the logit. Degrees
        of freedom are the effective number of documents less 1: long ones have most of the pairs.
        An interval is from 0 to 1 where that number is 40 or less.
        """
        if not (total := self.pairs.sum()):
            return []
        share, effective = self.pairs / total, total**2 / self.total_squares
        residuals = self.squares - 2 * share * self.products + share**2 * self.total_squares
        known = (share > 0) & (share < 1) & (effective > _FEWEST)
        s, freedom = np.where(known, share, 0.5), max(effective - 1, 0.5)
        error = np.sqrt(np.maximum(residuals, 0) * effective / freedom) / total
        student = (
            _Z + (_Z**3 + _Z) / 4 / freedom + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96 / freedom**2
        )
        factor = np.exp(student * error / (s * (1 - s)))
        low = np.where(known, s / (s + (1 - s) * factor), 0.0).tolist()
        high = np.where(known, s / (s + (1 - s) / factor), 1.0).tolist()
        first = [0, *(1 << k for k in range(_RANGES))]
        used = range(np.flatnonzero(self.pairs)[-1] + 1)
        return [
            OffsetShare(first[k], first[k + 1] - 1, share[k].item(), low[k], high[k]) for k in used
        ]


def offset_counts(
    segments: np.ndarray,
    *,
    positions: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    causal: bool = True,
    window: int | None = None,
) -> np.ndarray:
    """Numbers of pairs of a query with loss and a key that it sees, by document and distance.

    Keys are tokens of the query's document. Documents are runs of one segment.

    Args:
        segments: numbers of the documents in their row, int `[batch, n]`; 0 is padding.
        positions: positions, int `[batch, n]`; consecutive in each document when absent.
        weights: weights of the loss of each query `[batch, n]`; all queries when absent.
        mask: keys that a query sees, bool `[batch, n, n]`; all when absent.
        causal: whether a query sees no later keys.
        window: number of keys that a query sees, itself included; all when absent.

    Returns:
        int64 `[documents, distances]`: entry d is the number of pairs at distance d.

    Raises:
        InputError: arrays of other shapes.

    >>> offset_counts(np.array([[1, 1, 1, 2, 2, 0]]))
    array([[3, 2, 1],
           [2, 1, 0]])
    """
    segments, counts = np.asarray(segments), []
    for name, array in {"positions": positions, "weights": weights, "mask": mask}.items():
        if array is not None and array.shape[:2] != segments.shape:
            raise InputError(f"`{name}` {array.shape} does not fit segments {segments.shape}")
    for row, numbers in enumerate(segments):
        for part in np.split(np.arange(len(numbers)), np.flatnonzero(np.diff(numbers)) + 1):
            if numbers[part[0]] <= 0:
                continue
            has_loss = np.ones(len(part), bool) if weights is None else weights[row, part] > 0
            own = part if positions is None else positions[row, part]
            if mask is None and causal and (np.diff(own) == 1).all():
                counted = np.cumsum(has_loss[::-1])[::-1]
            else:
                counted = np.zeros(np.ptp(own) + 1, np.int64)
                for query in np.flatnonzero(has_loss):
                    keys = own[: query + 1] if causal else own
                    seen = ... if mask is None else mask[row, part[query], part[: len(keys)]]
                    distances = np.abs(own[query] - keys[seen])
                    counted += np.bincount(distances, minlength=len(counted))
            counts.append(counted[:window])
    width = max(map(len, counts), default=0)
    rows = [np.pad(counted, (0, width - len(counted))) for counted in counts]
    return np.array(rows, np.int64).reshape(len(rows), width)


def offset_histogram(counts: np.ndarray) -> OffsetHistogram:
    """Histogram of offsets in ranges of powers of two.

    Args:
        counts: numbers of pairs, `[documents, distances]`, as of `offset_counts`.

    >>> one = offset_histogram(offset_counts(np.array([[1, 1, 1, 1, 2, 2, 0]])))
    >>> for share in (one + one).shares():
    ...     print(f"{share.first} to {share.last}: {share.share:.3f}")
    0 to 0: 0.462
    1 to 1: 0.308
    2 to 3: 0.231
    """
    ranges = np.frexp(np.arange(np.shape(counts)[1]))[1]
    pairs = counts @ np.eye(_RANGES)[ranges]
    total = pairs.sum(axis=1)
    sums = (pairs.sum(axis=0), (pairs**2).sum(axis=0), total @ pairs)
    return OffsetHistogram(*sums, float(total @ total), int((total > 0).sum()))
