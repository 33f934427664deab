"""Offsets between query and key that a loss sees, counted by document, and their shares."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jaxpe._core.errors import InputError

_RANGES = 40  # offsets 0, 1, 2 to 3, 4 to 7, ...
_Z = 1.959964  # quantile of the normal distribution, for intervals of 95 %


class OffsetShare(NamedTuple):
    """Share of pairs in a range of offsets.

    Attributes:
        first: smallest offset of the range.
        last: largest offset of the range.
        share: share of all pairs, 0 to 1.
        low: lower end of the interval of 95 %; 0 for a single document.
        high: upper end of the interval; 1 for a single document.
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

        Documents are the clusters. A share is a ratio of sums over documents; its variance is the
        variance of the linearised ratio, and the interval is a Student interval of the logit.
        """
        total, count = self.pairs.sum(), self.documents
        if not total:
            return []
        share = self.pairs / total
        residuals = self.squares - 2 * share * self.products + share**2 * self.total_squares
        error = np.sqrt(np.maximum(residuals, 0) * count / max(count - 1, 1)) / total
        inside = (share > 0) & (share < 1) & (count > 1)
        s = np.where(inside, share, 0.5)
        width = _student(max(count - 1, 1)) * error / (s * (1 - s))
        low, high = (1 / (1 + (1 - s) / s * np.exp(sign * width)) for sign in (1, -1))
        rare = 0.05 ** (1 / count)  # a range without pairs may have 1 - rare of the documents
        low = np.where(inside, low, np.where(share == 1, rare, 0.0))
        high = np.where(inside, high, np.where(share == 0, 1 - rare, 1.0))
        used = np.flatnonzero(self.pairs)[-1] + 1
        first = [0, *(1 << k for k in range(used))]
        return [
            OffsetShare(first[k], first[k + 1] - 1, float(share[k]), float(low[k]), float(high[k]))
            for k in range(used)
        ]


def _student(freedom: int) -> float:
    """Quantile of Student's distribution for intervals of 95 %, by its expansion."""
    z = _Z
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + (z**3 + z) / 4 / freedom + second / freedom**2 + third / freedom**3


def offset_counts(
    segments: np.ndarray,
    *,
    positions: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    window: int | None = None,
) -> np.ndarray:
    """Numbers of pairs of a query with loss and a key that it sees, by document and offset.

    Keys are tokens of the query's document, up to the query. Documents are runs of one segment.

    Args:
        segments: numbers of the documents in their row, int `[batch, n]`; 0 is padding.
        positions: positions, int `[batch, n]`; consecutive in each document when absent.
        weights: weights of the loss of each query `[batch, n]`; all queries when absent.
        mask: keys that a query sees, bool `[batch, n, n]`; all up to the query when absent.
        window: number of keys that a query sees, 1 or more.

    Returns:
        int64 `[documents, n]`: entry o is the number of pairs at distance o of two positions.

    Raises:
        InputError: arrays of other shapes, or a window below 1.

    >>> offset_counts(np.array([[1, 1, 1, 2, 2, 0]]))
    array([[3, 2, 1, 0, 0, 0],
           [2, 1, 0, 0, 0, 0]])
    """
    segments = np.asarray(segments)
    if window is not None and window < 1:
        raise InputError(f"`window={window}`: pass 1 or more")
    shapes = {"positions": positions, "weights": weights, "mask": mask}
    for name, array in shapes.items():
        if array is not None and np.shape(array)[:2] != segments.shape:
            raise InputError(f"`{name}` {np.shape(array)} does not fit segments {segments.shape}")
    counts = []
    for row, start, stop in document_runs(segments):
        size = stop - start
        has_loss = np.ones(size, bool) if weights is None else weights[row, start:stop] > 0
        own = np.arange(size) if positions is None else positions[row, start:stop]
        if mask is None and (np.diff(own) == 1).all():
            counted = np.cumsum(has_loss[::-1])[::-1]
        else:
            offsets = own[:, None] - own[None, :]
            seen = np.tril(np.ones((size, size), bool)) & has_loss[:, None]
            if mask is not None:
                seen &= mask[row, start:stop, start:stop]
            counted = np.bincount(np.abs(offsets[seen]), minlength=1)
        counted = counted[: segments.shape[1] if window is None else window]
        counts.append(np.pad(counted, (0, segments.shape[1] - len(counted))))
    return np.array(counts, np.int64).reshape(-1, segments.shape[1])


def document_runs(segments: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Row, first column and column after the last of each run of one segment above 0."""
    for row, own in enumerate(segments):
        ends = [0, *(np.flatnonzero(np.diff(own)) + 1).tolist(), len(own)]
        yield from ((row, a, b) for a, b in itertools.pairwise(ends) if b > a and own[a] > 0)


def offset_histogram(counts: np.ndarray) -> OffsetHistogram:
    """Histogram of offsets in ranges of powers of two.

    Args:
        counts: numbers of pairs by offset, `[documents, n]`, as of `offset_counts`.

    >>> one = offset_histogram(offset_counts(np.array([[1, 1, 1, 1, 2, 2, 0]])))
    >>> for share in (one + one).shares():
    ...     print(f"{share.first} to {share.last}: {share.share:.3f}")
    0 to 0: 0.462
    1 to 1: 0.308
    2 to 3: 0.231
    """
    counts = np.asarray(counts, float)
    counts = counts[counts.sum(axis=1) > 0]
    edges = [0, *(1 << k for k in range(_RANGES - 1))]
    edges = [edge for edge in edges if edge < max(counts.shape[1], 1)]
    pairs = np.zeros((len(counts), _RANGES))
    if counts.size:
        pairs[:, : len(edges)] = np.add.reduceat(counts, edges, axis=1)
    total = pairs.sum(axis=1)
    sums = (pairs.sum(axis=0), (pairs**2).sum(axis=0), (pairs * total[:, None]).sum(axis=0))
    return OffsetHistogram(*sums, float((total**2).sum()), len(counts))
