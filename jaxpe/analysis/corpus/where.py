"""Information of position about tokens: bits, reach from both ends, and half-distance."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from jaxpe.analysis.corpus.result import Interval, Reach, Where
from jaxpe.geometry import (
    Estimate,
    PositionGeometry,
    PositionHalves,
    TokenLists,
    half_sample_interval,
)
from jaxpe.geometry.counts.token_lists import listed_counts
from jaxpe.geometry.distances.mutual_information import entropy
from jaxpe.geometry.noise.cross_validation import fold_orders
from jaxpe.geometry.noise.split_half import FoldedCounts, fold_count

_SPLITS = 8  # splits of the folds into halves, for intervals
_SHARES = (0.0, 0.5, 0.9)  # of the information; 0 stands for its size


def where_position_tells(
    counts: FoldedCounts,
    nulls: Sequence[FoldedCounts],
    *,
    end_nulls: Sequence[TokenLists] = (),
    key: jax.Array,
    cut: np.ndarray | None = None,
) -> Where:
    """Bits per token that position explains, and the positions that carry them.

    The information of rotated documents is subtracted, so it is 0 in the mean without an effect:
    from the beginning, if documents are stationary given their length and last token; from the end,
    if they are stationary given their length. Words of a single fold are left out.

    Args:
        counts, nulls: counts in folds, of the documents and of rotated documents.
        end_nulls: documents whose last token is rotated, too; needed with `cut`.
        key: PRNG key of the splits into halves.
        cut: bool `[documents]`, documents that were cut; None leaves out positions from the end.
    """
    corpora = [
        each if isinstance(each, TokenLists) else listed_counts(each) for each in (counts, *nulls)
    ]
    folds, documents = fold_count(counts), corpora[0].documents
    orders = np.asarray(fold_orders(key, folds=folds, splits=min(_SPLITS, folds - 1)))
    cells = [_cells(each) for each in corpora]
    start, end = _reach(cells, orders), None
    if cut is not None and documents is not None:
        after = np.argmax(np.asarray(documents.counted)[:, ::-1], axis=1)  # positions after the end
        last = np.where(cut, -1, documents.counted.shape[1] - 1 - after)
        from_end = [_cells(each, last) for each in (corpora[0], *end_nulls)]
        end = _reach(from_end, orders)
    words = np.unique(cells[0].cell[cells[0].number > 0] % cells[0].shape[1])
    return Where(start, end, len(words), int(cells[0].number.sum()))


class _Cells(NamedTuple):
    """Fold of each token, its cell in the table `[n, words]`, and its number."""

    fold: np.ndarray
    cell: np.ndarray
    number: np.ndarray
    shape: tuple[int, int]


def _cells(lists: TokenLists, last: np.ndarray | None = None) -> _Cells:
    """Cells of the tokens; positions count backwards from `last` of each document, if given."""
    fold, position, word, number, document = map(np.asarray, lists.tokens)
    words = int(word.max()) + 1
    if last is not None:
        position = last[document] - position
        number = np.where(position >= 0, number, 0)
    cell = np.maximum(position, 0) * words + word
    return _Cells(fold, cell, number, (lists.per_position.shape[1], words))


def _reach(corpora: Sequence[_Cells], orders: np.ndarray) -> Reach | None:
    """Information of the first positions; None without tokens."""
    half, fold = orders.shape[1] // 2, corpora[0].fold
    if not corpora[0].number.any():
        return None
    parts = np.stack([orders[:, :half], orders[:, half : 2 * half]], axis=1)
    in_halves = np.array([
        [_information(corpora[0], np.isin(fold, part)) for part in split] for split in parts
    ])  # fmt: skip
    found, *rotated = (_information(each) for each in corpora)
    curve, *shares = (
        _estimate(*(x - share * x[..., -1:] for x in (found - np.mean(rotated, axis=0), in_halves)))
        for share in _SHARES
    )
    reached = [first_reached(x) if curve[1, -1] > 0 else None for x in shares]
    return Reach(Interval(*map(float, curve[:, -1])), curve[:, 1:], *reached)


def _estimate(value: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """A curve and the ends of its half-sample interval, `[3, k]`."""
    sampled = half_sample_interval(samples)
    error = np.asarray(sampled.high - sampled.mean)
    return np.stack([value, value - error, value + error])


def _information(cells: _Cells, chosen: np.ndarray | slice = slice(None)) -> np.ndarray:
    """I(min(position, k); token) in bits for k = 0, ..., n, of chosen tokens.

    By the chain rule, the entropy of all tokens less the mean entropy of the tokens at each of the
    first k positions and of the rest. Entropies have Miller's (1955) correction.
    """
    cell, number = cells.cell[chosen], cells.number[chosen]
    table = np.bincount(cell, number, minlength=math.prod(cells.shape)).astype(np.float32)
    table = table.reshape(cells.shape)
    within, beyond = (
        np.asarray(entropy(x, estimator="miller-madow")) * x.sum(axis=1, dtype=float)
        for x in (table, np.cumsum(table[::-1], axis=0)[::-1])
    )
    rest = beyond[0] - np.append(0, np.cumsum(within)) - np.append(beyond, 0)
    return rest / (max(number.sum(), 1) * math.log(2))


def first_reached(values: np.ndarray, *, first: int = 0) -> Interval:
    """Smallest index at which a curve and the ends of its interval reach 0.

    Args:
        values: estimate, lower and upper end, `[3, k]`. An end that is never reached is infinite.
        first: index of the first value.
    """
    at = [first + int(np.argmax(x >= 0)) if np.any(x >= 0) else math.inf for x in values]
    return Interval(at[0], at[2], at[1])


def half_distance(
    by_offset: Estimate, geometry: PositionGeometry, halves: PositionHalves
) -> Interval | None:
    """Offset at which the mean squared distance first reaches half of its mean over all pairs.

    None if it does not. The mean over the pairs of m positions is 2/(m − 1) times the trace.
    """
    halves, m = jax.device_get(halves), int(np.sum(geometry.present))
    others = np.maximum(np.sum(halves.position.present, axis=-1) - 1, 1)
    documents, null = (
        x.by_offset - (x.trace / others)[..., None] for x in (halves.documents, halves.null)
    )
    value = np.asarray(by_offset.value) - float(geometry.trace) / max(m - 1, 1)
    reached = first_reached(_estimate(value, documents - np.mean(null, axis=0)), first=1)
    return reached if math.isfinite(reached.estimate) else None
