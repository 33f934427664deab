"""Lipschitz constants over the positions of a corpus: the largest quotient of two distances."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.geometry import Distances, euclidean_distances
from jaxpe.geometry.distances.matrices import as_distances, pair_mask


def largest_ratio(
    over: Float[ArrayLike, "*pairs"],
    under: Float[ArrayLike, "*pairs"],
    *,
    where: Bool[ArrayLike, "*pairs"],
    negligible: Float[ArrayLike, ""] | float = 0.0,
) -> Float[Array, ""]:
    """The largest quotient over/under ≥ 0: 0/0 is 0, anything else over 0 is inf.

    Args:
        over: numerators ≥ 0.
        under: denominators ≥ 0.
        where: the pairs that count.
        negligible: numerators up to it count as 0, as rounding errors of differences.

    >>> over, under = jnp.array([1.0, 0.0, 3.0]), jnp.array([2.0, 0.0, 0.0])
    >>> largest_ratio(over, under, where=jnp.array([True, True, False])).item()
    0.5
    >>> largest_ratio(over, under, where=jnp.array([True, True, True])).item()
    inf
    """
    over, under = jnp.asarray(over), jnp.asarray(under)
    quotient = jnp.where(under > 0, over / jnp.where(under > 0, under, 1.0), jnp.inf)
    return jnp.max(jnp.where(jnp.asarray(where) & (over > negligible), quotient, 0.0))


@jax.jit
def entry_slope(
    rows: Float[ArrayLike, "n m"],
    d: Float[ArrayLike, "n n"],
    *,
    where: Bool[ArrayLike, "n n"],
    negligible: Float[ArrayLike, ""] | float = 0.0,
) -> Float[Array, ""]:
    """Largest slope max |K_il − K_jl| / d_ij over pairs of rows and all columns, in O(K) memory.

    Arguments as in `largest_ratio`.

    >>> K, d = jnp.array([[1.0, 5.0], [2.0, 5.0]]), jnp.array([[0.0, 2.0], [2.0, 0.0]])
    >>> entry_slope(K, d, where=d > 0).item()
    0.5
    """

    def slope(pairs: tuple[Array, Array, Array]) -> Array:
        row, d_i, where_i = pairs
        change = jnp.max(jnp.abs(row[None, :] - rows), axis=1)
        return largest_ratio(change, d_i, where=where_i, negligible=negligible)

    return jnp.max(jax.lax.map(slope, (rows, d, where)))


def vector_slope(
    x: Float[ArrayLike, "n dim"], D: Distances | Float[ArrayLike, "n n"]
) -> Float[Array, ""]:
    """Largest slope max ‖x_i − x_j‖ / d_ij over pairs present; rounding errors count as 0.

    >>> vector_slope(jnp.array([[0.0], [3.0]]), jnp.array([[0.0, 2.0], [2.0, 0.0]])).item()
    1.5
    """
    x, D = jnp.asarray(x), as_distances(D)
    between = euclidean_distances(x, present=D.present).values
    d = D.values.astype(between.dtype)
    return largest_ratio(between, d, where=pair_mask(D.present), negligible=rounding(x))


@partial(jax.jit, static_argnames="columns")
def head_slopes(
    K: Float[ArrayLike, "heads n n"],
    D: Distances | Float[ArrayLike, "n n"],
    *,
    columns: bool = False,
) -> Float[Array, " heads"]:
    """`entry_slope` of each head's matrix in its first argument, or of its columns in the second.

    Positions absent from D count neither as rows nor as columns.

    >>> K = jnp.array([[[0.0, 1.0], [0.0, 3.0]]])
    >>> d = jnp.array([[0.0, 2.0], [2.0, 0.0]])
    >>> head_slopes(K, d).item(), head_slopes(K, d, columns=True).item()
    (1.0, 1.5)
    """
    D = as_distances(D)
    K = jnp.swapaxes(K, 1, 2) if columns else K
    K = jnp.where((D.present[:, None] & D.present[None, :])[None], K, 0.0)
    d, where = D.values.astype(K.dtype), pair_mask(D.present)
    return jax.lax.map(lambda head: entry_slope(head, d, where=where, negligible=rounding(K)), K)


def share(part: Float[ArrayLike, "..."], total: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
    """part / total, broadcast; 0 where the total, ≥ 0, is 0.

    >>> share(jnp.array([1.0, 1.0]), jnp.array([2.0, 0.0])).tolist()
    [0.5, 0.0]
    """
    total = jnp.asarray(total)
    return jnp.where(total > 0, part / jnp.where(total > 0, total, 1.0), 0.0)


def product(factor: Float[ArrayLike, "..."], x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
    """factor · x, broadcast; 0 where the factor, ≥ 0, is 0 and x infinite.

    >>> product(jnp.array([2.0, 0.0]), jnp.array(jnp.inf)).tolist()
    [inf, 0.0]
    """
    factor = jnp.asarray(factor)
    return factor * jnp.where((factor == 0) & jnp.isinf(x), 0.0, x)


def rounding(x: Float[ArrayLike, "..."]) -> Float[Array, ""]:
    """Differences of entries of x up to this are rounding: 64·eps·max |x|.

    >>> rounding(jnp.array([2.0])) == 128 * jnp.finfo(float).eps
    Array(True, dtype=bool)
    """
    x = jnp.asarray(x)
    return 64 * jnp.finfo(x.dtype).eps * jnp.max(jnp.abs(x), initial=0.0)
