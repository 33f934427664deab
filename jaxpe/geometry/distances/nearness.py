"""Nearness: whether nearer positions are more alike, by statistics linear in squared distances.

Noise that averages to 0 leaves them unbiased. The violation rate is not linear: noise moves it
towards chance, so no interval around it covers the true value.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.geometry.checks import as_present, sized
from jaxpe.geometry.distances.matrices import pair_mask


class PositionStatistics(NamedTuple):
    """Statistics that are linear in squared distances.

    Attributes:
        trace: trace of the centred Gram matrix, Σ_ij d²_ij / 2m over m positions.
        difference: mean, over triples with |i − j| < |i − k|, of d²_ik − d²_ij.
        total: mean of d²_ik + d²_ij over the same triples.
        by_offset: float `[n − 1]`, mean of d²_ij at |i − j| = 1, 2, ...; 0 without a pair.
    """

    trace: Float[Array, "..."]
    difference: Float[Array, "..."]
    total: Float[Array, "..."]
    by_offset: Float[Array, "..."]


@jax.jit
def nearness(
    squared: Float[ArrayLike, "n n"], *, present: Bool[ArrayLike, " n"] | None = None
) -> Float[Array, ""]:
    """Relative excess of d² over farther positions: in [−1, 1] for squared distances ≥ 0.

    Over triples of distinct positions with |i − j| < |i − k|, the mean of d²_ik − d²_ij divided by
    the mean of d²_ik + d²_ij. 0 means no order, positive that nearer positions are more alike.
    Over 128 positions it is 0.37 where d² = |i − j|, and 0.55 where d² = (i − j)². Unlike a
    violation rate it is a ratio of means, so noise of mean 0 in d² does not move it.
    NaN without a triple, or where all distances are 0.

    Args:
        squared: squared distances d², `[n, n]`.
        present: positions that take part, `[n]`; all when None.

    >>> i = np.arange(3.0)
    >>> nearness((i[:, None] - i[None, :]) ** 2).round(2).item()
    0.6
    """
    squared = sized(squared, "squared", "n n")
    result = position_statistics(squared, as_present(present, len(squared)))
    return result.difference / jnp.where(result.total == 0, jnp.nan, result.total)


@jax.jit
def position_statistics(
    squared: Float[Array, "n n"], present: Bool[Array, " n"]
) -> PositionStatistics:
    """The statistics of one matrix of squared distances, over the positions present."""
    n, dtype = len(squared), squared.dtype
    pairs = pair_mask(present).astype(dtype)
    d2 = jnp.where(pairs > 0, squared, 0.0)
    offset = jnp.abs(jnp.arange(n)[:, None] - jnp.arange(n)[None, :])
    # Numbers of other positions at each offset from i, and nearer than it.
    at = jax.vmap(lambda o, p: jnp.zeros(n, dtype).at[o].add(p))(offset, pairs)
    nearer = jnp.cumsum(at, axis=1) - at
    farther = jnp.sum(at, axis=1, keepdims=True) - nearer - at
    below, above = (jnp.take_along_axis(x, offset, axis=1) for x in (nearer, farther))
    triples = jnp.maximum(jnp.sum(below * pairs), 1.0)
    rows = jnp.zeros(n, dtype).at[offset].add(d2) / jnp.maximum(jnp.sum(at, axis=0), 1.0)
    return PositionStatistics(
        trace=jnp.sum(d2) / (2.0 * jnp.maximum(jnp.sum(present.astype(dtype)), 1.0)),
        difference=jnp.sum(d2 * (below - above)) / triples,
        total=jnp.sum(d2 * (below + above)) / triples,
        by_offset=rows[1:],
    )
