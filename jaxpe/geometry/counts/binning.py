"""Bins of positions: fewer, better filled rows for long documents."""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int, Int32, Integer

from jaxpe._core.arrays import ArrayLike, is_traced
from jaxpe.geometry.counts.position_counts import PositionCounts, checked_tokens


def position_bins(
    n: int, *, bins: int, spacing: Literal["equal", "log"] = "equal"
) -> Int32[np.ndarray, " edges"]:
    """NumPy edges `[bins + 1]` that cut positions 0, ..., n − 1 into bins [edge_b, edge_{b+1}).

    "equal" bins differ by at most one position. "log" bins start with a single position and never
    get narrower: their widths grow geometrically, by the factor that makes them end at n.

    >>> position_bins(20, bins=4).tolist(), position_bins(20, bins=4, spacing="log").tolist()
    ([0, 5, 10, 15, 20], [0, 1, 3, 8, 20])
    """
    if not 1 <= bins <= n:
        raise ValueError(f"bins must lie in [1, n] = [1, {n}], not {bins}")
    if spacing not in ("equal", "log"):
        raise ValueError(f"spacing is {spacing!r}: pass 'equal' or 'log'")
    if spacing == "equal":
        edges = np.arange(bins + 1) * n // bins
    else:
        # Rounding may put a narrower bin after a wider one.
        edges = np.cumsum([0, *np.sort(np.diff(_geometric_edges(n, bins)))])
    return edges.astype(np.int32)


def bin_positions(
    positions: Integer[ArrayLike, "*shape"], edges: Integer[ArrayLike, " edges"]
) -> Int32[Array, "*shape"]:
    """The number b of the bin [edge_b, edge_{b+1}) that each position falls into.

    Raises:
        ValueError: edges that do not rise, or positions outside them. Under `jit` neither is
            checked: a position below the edges gets −1, a position beyond them the number of bins.

    >>> bin_positions(np.array([0, 4, 9]), np.array([0, 1, 5, 10])).tolist()
    [0, 1, 2]
    """
    edges, positions = _checked_edges(edges), _integers("positions", positions)
    if not is_traced(edges, positions) and positions.size:
        numbers = np.asarray(positions)
        least, most = int(numbers.min()), int(numbers.max())
        if least < edges[0] or most >= edges[-1]:
            ends = f"[{edges[0]}, {edges[-1]})"
            raise ValueError(f"positions lie in [{least}, {most}], the bins in {ends}")
    return _bin_numbers(positions, edges)


@jax.jit
def _bin_numbers(
    positions: Int[Array, "*shape"], edges: Int[Array, " edges"]
) -> Int32[Array, "*shape"]:
    return (jnp.searchsorted(edges, positions, side="right") - 1).astype(jnp.int32)


def bin_counts(counts: PositionCounts, edges: Integer[ArrayLike, " edges"]) -> PositionCounts:
    """Counts of positions as counts of bins: tokens `[bins, vocab]`, in folds if they were.

    A bin of several positions holds several tokens of a document, so `per_position` then counts
    tokens, which are not independent. Functions that read it as a sample size (`noise_floor`,
    `pair_weights`) understate the noise. Functions that compare folds of documents
    (`split_half_geometry`, `position_geometry_from_counts`) stay right. `documents` does not
    change. Add shards before binning, because `+` checks counts against the number of documents.

    Raises:
        ValueError: edges that are not `[bins + 1]`, rising from 0 to n, as of `position_bins`.
        OverflowError: a bin with more tokens than its integers hold (2³¹ − 1). Both are eager
            checks: under `jit` edges are not checked, and a cell stops at 2³¹ − 1.

    >>> counts = count_tokens(np.array([[0, 1, 1], [0, 0, 1]]), vocab_size=2)
    >>> bin_counts(counts, np.array([0, 1, 3])).tokens.tolist()
    [[2, 0], [1, 3]]
    """
    n = checked_tokens(counts).shape[-2]
    edges = _checked_edges(edges)
    if not is_traced(edges) and (edges[0] != 0 or edges[-1] != n):
        raise ValueError(f"edges go from {edges[0]} to {edges[-1]}, not from 0 to n = {n}")
    if not is_traced(edges, counts.tokens):
        _refuse_overflow(counts, np.asarray(edges))
    return counts._replace(tokens=_bin_sums(counts.tokens, edges))


@jax.jit
def _bin_sums(tokens: Int[Array, "*folds n vocab"], edges: Int[Array, " edges"]) -> Array:
    """`bin_counts` of arrays."""
    bins = len(edges) - 1
    number = jnp.searchsorted(edges, jnp.arange(tokens.shape[-2]), side="right") - 1
    options = {"segment_ids": number, "num_segments": bins, "indices_are_sorted": True}
    summed = partial(jax.ops.segment_sum, **options)

    def binned(tokens: Array) -> Array:
        wrapped, most = summed(tokens), jnp.iinfo(tokens.dtype).max
        # Between the largest integer and twice as much a sum is negative; beyond, about right.
        about = summed(tokens.astype(float))
        full = (wrapped < 0) | (about > 1.5 * most)
        return jnp.where(full, jnp.asarray(most, tokens.dtype), wrapped)

    return binned(tokens) if tokens.ndim == 2 else jax.vmap(binned)(tokens)


def _geometric_edges(n: int, bins: int) -> np.ndarray:
    """Edges 0, 1, 1 + q, 1 + q + q², ..., n, rounded; q ≥ 1 by bisection."""
    if bins == 1:
        return np.array([0, n])
    powers = np.arange(bins)
    low, high = 1.0, float(n) ** (1.0 / (bins - 1))
    for _ in range(100):
        q = 0.5 * (low + high)
        low, high = (low, q) if np.sum(q**powers) > n else (q, high)
    edges = np.floor(np.cumsum([0.0, *low**powers]) + 0.5).astype(int)
    return np.append(edges[:-1], n)


def _checked_edges(edges: Integer[ArrayLike, " edges"]) -> Array:
    edges = _integers("edges", edges)
    if edges.ndim != 1 or len(edges) < 2:
        raise ValueError(f"edges have shape {edges.shape}: pass [bins + 1], two or more")
    if not is_traced(edges) and (np.diff(edges) <= 0).any():
        raise ValueError("edges do not rise: every bin needs a position")
    return edges


def _integers(name: str, values: ArrayLike) -> Array:
    values = jnp.asarray(values)
    if not jnp.issubdtype(values.dtype, jnp.integer):
        raise ValueError(f"{name} are {values.dtype}, not integers: pass whole positions")
    return values.astype(int)


def _refuse_overflow(counts: PositionCounts, edges: np.ndarray) -> None:
    # A bin's tokens bound its cells and every sum over folds or vocabulary.
    size = np.asarray(counts.merged().per_position, np.int64)
    largest = np.add.reduceat(size, edges[:-1]).max()
    if largest > np.iinfo(counts.tokens.dtype).max:
        raise OverflowError(
            f"a bin holds {largest} tokens, more than {counts.tokens.dtype} does: take more bins, "
            "or convert tokens to int64 (jax.enable_x64) before binning"
        )
