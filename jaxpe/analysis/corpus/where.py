"""Information of position about tokens: bits, reach from both ends, and half-distance."""

import math
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import xlogy

from jaxpe._core.arrays import ArrayLike
from jaxpe.analysis.corpus.result import Interval, Reach, Where
from jaxpe.geometry.counts.token_lists import TokenLists, listed_counts
from jaxpe.geometry.noise.cross_validation import PositionHalves, fold_orders, half_sample_interval
from jaxpe.geometry.noise.half_products import FoldedCounts, fold_count
from jaxpe.geometry.noise.position import PositionGeometry

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
    own = _lists(counts)
    folds, documents, end = fold_count(counts), own.documents, None
    halves = _halves(key, folds=folds)
    start = _reach(own, map(_lists, nulls), halves)
    if cut is not None and documents is not None:
        after = np.argmax(documents.counted[:, ::-1], axis=1)  # positions after the end
        last = np.where(cut, -1, documents.counted.shape[1] - 1 - after)
        rotated = (_from_end(each, last) for each in end_nulls)
        end = _reach(_from_end(own, last), rotated, halves)
    return Where(start, end, own.words, int(own.count.sum()))


def _lists(counts: FoldedCounts) -> TokenLists:
    return counts if isinstance(counts, TokenLists) else listed_counts(counts)


def _halves(key: jax.Array, *, folds: int) -> np.ndarray:
    """Halves of the folds for intervals, bool `[splits, 2, folds]`."""
    orders = np.asarray(fold_orders(key, folds=folds, splits=min(_SPLITS, folds - 1)))
    place = np.argsort(orders, axis=1)[:, None]
    half, first = folds // 2, np.array([0, folds // 2])[:, None]
    return (place >= first) & (place < first + half)


def _from_end(lists: TokenLists, last: np.ndarray) -> TokenLists:
    """Lists whose positions count backwards from `last` of each document; tokens after it go."""
    position = last[lists.document] - lists.position
    return lists._replace(position=position).chosen(position >= 0)


def _reach(own: TokenLists, rotated: Iterable[TokenLists], halves: np.ndarray) -> Reach | None:
    """Information of the first positions; None without tokens."""
    if not len(own.word):
        return None
    (splits, _, folds), every = halves.shape, np.ones((1, halves.shape[2]))
    parts = np.concatenate([every, halves.reshape(-1, folds)])
    whole, *parts = _information(own, parts)
    null = np.mean([_information(each, every)[0] for each in rotated], axis=0)
    shares = np.array(_SHARES)[:, None]
    value, in_halves = whole - null, np.reshape(parts, (splits, 2, 1, -1))
    curves = _estimate(*(x - shares * x[..., -1:] for x in (value, in_halves)))
    curve, *reaching = np.moveaxis(curves, 1, 0)
    reached = [first_reached(x) if curve[1, -1] > 0 else None for x in reaching]
    return Reach(Interval(*map(float, curve[:, -1])), curve[:, 1:], *reached)


def _estimate(value: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Curves and the ends of their half-sample intervals, `[3, ...]`."""
    sampled = half_sample_interval(samples)
    error = np.asarray(sampled.high) - np.asarray(sampled.mean)
    return np.stack([value, value - error, value + error])


def _information(lists: TokenLists, parts: np.ndarray) -> np.ndarray:
    """Information of the first positions in parts of the folds, `[parts, n + 1]`, in bits."""
    cells, n = lists.cells(), lists.per_position.shape[1]
    last = np.searchsorted(cells.word, cells.word, side="right") - 1
    return np.array([
        _bits(cells.position, cells.counts @ part.astype(np.float32), last, n) for part in parts
    ])  # fmt: skip


def _bits(position: np.ndarray, counts: np.ndarray, last: np.ndarray, n: int) -> np.ndarray:
    """I(min(position, k); token) in bits for k = 0, ..., n, of counts in cells.

    By the chain rule, the entropy of all tokens less the mean entropy of the tokens at each of the
    first k positions and of the rest. Entropies are `entropy` with Miller's (1955) correction, from
    sums of c log c over occupied cells: a table of words and positions has twenty times as many.

    Args:
        position, counts: of each cell, by word and then by position.
        last: index of the last cell of the word of each cell.
        n: number of positions.
    """
    counts = counts.astype(float)
    total = np.cumsum(counts)
    after = total[last] - total  # of the word at later positions
    both = after + counts
    sums = lambda x: np.bincount(position, x, minlength=n)  # noqa: E731
    tokens = sums(counts)
    within = _times_entropy(tokens, sums(xlogy(counts, counts)), sums(counts > 0))
    # As k falls, the rest gains the cells of position k alone.
    gained = xlogy(both, both) - xlogy(after, after), (both > 0) & (after == 0)
    rest = (np.cumsum(x[::-1])[::-1] for x in (tokens, *map(sums, gained)))
    beyond = np.append(_times_entropy(*rest), 0)
    left = beyond[0] - np.append(0, np.cumsum(within)) - beyond
    return left / (max(tokens.sum(), 1) * math.log(2))


def _times_entropy(tokens: np.ndarray, terms: np.ndarray, words: np.ndarray) -> np.ndarray:
    """N times the entropy of N tokens of K words, N log N − Σ c log c + (K − 1)/2; 0 for none."""
    return np.where(tokens > 0, xlogy(tokens, tokens) - terms + (words - 1) / 2, 0)


def first_reached(values: np.ndarray, *, first: int = 0) -> Interval:
    """Smallest index at which a curve and the ends of its interval reach 0.

    Args:
        values: estimate, lower and upper end, `[3, k]`. An end that is never reached is infinite.
        first: index of the first value.
    """
    at = [first + int(np.argmax(x >= 0)) if np.any(x >= 0) else math.inf for x in values]
    return Interval(at[0], at[2], at[1])


def over_half_of_mean(
    by_offset: ArrayLike, geometry: PositionGeometry, halves: PositionHalves
) -> jax.Array:
    """Mean squared distance at each offset less half of its mean over all pairs, `[3, n − 1]`.

    With the ends of its interval. The mean over the pairs of m positions is 2/(m − 1) times the
    trace.
    """

    def others(present: ArrayLike) -> jax.Array:
        return jnp.maximum(jnp.sum(present, axis=-1, dtype=by_offset.dtype) - 1, 1)

    offsets, trace = (
        getattr(halves.documents, name) - jnp.mean(getattr(halves.null, name), axis=0)
        for name in ("by_offset", "trace")
    )
    sampled = half_sample_interval(offsets - (trace / others(halves.position.present))[..., None])
    value = by_offset - geometry.trace / others(geometry.present)
    error = sampled.high - sampled.mean
    return jnp.stack([value, value - error, value + error])


def half_distance(over_half: np.ndarray) -> Interval | None:
    """Offset at which `over_half_of_mean` first reaches 0; None if it does not."""
    reached = first_reached(over_half, first=1)
    return reached if math.isfinite(reached.estimate) else None
