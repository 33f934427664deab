"""Share of one quantity that a monotone function of another explains."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Shaped

from jaxpe._core.arrays import ArrayLike
from jaxpe.geometry.distances.matrices import floating


class MonotoneFit(NamedTuple):
    """Isotonic regressions: the best monotone functions of x, by their values at each x.

    Shares explained are shares of the variance of y, in [0, 1]; 1 for constant y.

    Attributes:
        increasing: float `[m]`, the best increasing function.
        decreasing: float `[m]`, the best decreasing function.
        explained_increasing: share of the variance that the increasing one explains.
        explained_decreasing: share of the variance that the decreasing one explains.
    """

    increasing: Float[Array, " m"]
    decreasing: Float[Array, " m"]
    explained_increasing: Float[Array, ""]
    explained_decreasing: Float[Array, ""]


@jax.jit
def monotone_fit(
    x: Float[ArrayLike, "..."],
    y: Float[ArrayLike, "..."],
    *,
    where: Bool[ArrayLike, "..."] | None = None,
) -> MonotoneFit:
    """Isotonic regression of y `[m]` on x `[m]`, increasing and decreasing; equal x, equal values.

    It pools adjacent violators (Ayer et al. 1955).

    Args:
        x, y: `[m]`, m ≥ 1.
        where: bool `[m]`, the entries that count; all when None. Fits at other entries are
            meaningless.

    Raises:
        ValueError: shapes other than two of the same `[m]`, or no entries.

    >>> fit = monotone_fit(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 5.0, 3.0]))
    >>> fit.increasing.tolist(), fit.explained_increasing.item()
    ([1.0, 4.0, 4.0], 0.75)
    >>> fit.decreasing.tolist(), fit.explained_decreasing.item()
    ([3.0, 3.0, 3.0], 0.0)
    """
    x, y = floating(x), floating(y)
    if x.ndim != 1 or x.shape != y.shape or x.size == 0:
        raise ValueError(f"x has shape {x.shape} and y {y.shape}: pass two [m] with m ≥ 1")
    counts = jnp.ones(x.shape, bool) if where is None else jnp.asarray(where)
    increasing, decreasing = _isotonic_fit(x, y, counts), -_isotonic_fit(x, -y, counts)
    shares = (_explained_share(y, fitted, counts) for fitted in (increasing, decreasing))
    return MonotoneFit(increasing, decreasing, *shares)


@partial(jax.jit, static_argnames=("orders", "level"))
def explained_by_chance(
    x: Float[ArrayLike, "..."],
    y: Float[ArrayLike, "..."],
    *,
    key: Array,
    orders: int = 200,
    level: float = 0.05,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Permutation null of `monotone_fit`: shares explained with rows and columns of y shuffled.

    The 1 − `level` quantiles of the shares explained by increasing and by decreasing functions,
    over pairs i < j: a share below its quantile is no evidence that y depends on x. Entries of one
    row move together, as in Mantel (1967).

    Args:
        x, y: symmetric, `[n, n]`.
        key: PRNG key of the orders.
        orders: number of random orders.
        level: level, in (0, 1).

    Raises:
        ValueError: shapes that differ or are not square; a level outside (0, 1); no orders.

    >>> x = jnp.abs(jnp.arange(6.0)[:, None] - jnp.arange(6.0)[None, :])
    >>> up, down = explained_by_chance(x, -x, key=jax.random.key(0), orders=50)
    >>> decreasing = monotone_fit(pairs(x), pairs(-x)).explained_decreasing
    >>> bool(up < 1), bool(down < 1), decreasing.item()
    (True, True, 1.0)
    """
    if x.ndim != 2 or x.shape != y.shape or x.shape[0] != x.shape[1]:
        raise ValueError(f"x has shape {x.shape} and y {y.shape}: pass two of the same [n, n]")
    if not (0.0 < level < 1.0 and orders >= 1):
        raise ValueError(f"level is {level} and orders {orders}: pass (0, 1) and 1 or more")

    def shares(key: Array) -> Array:
        order = jax.random.permutation(key, y.shape[0])
        fit = monotone_fit(pairs(x), pairs(y[order[:, None], order]))
        return jnp.stack([fit.explained_increasing, fit.explained_decreasing])

    shares_by_order = lax.map(shares, jax.random.split(key, orders))
    up, down = jnp.quantile(shares_by_order, 1.0 - level, axis=0)
    return up, down


def _explained_share(y: Array, fitted: Array, counts: Array) -> Array:
    """1 − Σ(y − fitted)²/Σ(y − ȳ)²; 1 where every y is the mean to rounding."""
    size = jnp.maximum(jnp.sum(counts), 1).astype(y.dtype)
    y = jnp.where(counts, y, 0.0)
    centred = jnp.where(counts, y - jnp.sum(y) / size, 0.0)
    left = jnp.where(counts, y - fitted, 0.0)
    flat = jnp.max(jnp.abs(centred)) <= 8.0 * jnp.finfo(y.dtype).eps * jnp.max(jnp.abs(y))
    share = 1.0 - jnp.sum(left**2) / jnp.where(flat, 1.0, jnp.sum(centred**2))
    return jnp.where(flat, 1.0, jnp.clip(share, 0.0, 1.0))


def _isotonic_fit(x: Array, y: Array, counts: Array) -> Array:
    # Entries that do not count are moved beyond all others, where they do not affect the fit.
    x, y = jnp.where(counts, x, jnp.inf), jnp.where(counts, y, jnp.max(y))
    # Equal x are sorted by falling y, so that they violate the order and are pooled.
    order = jnp.lexsort((-y, x))
    sums, sizes, top = _pooled_blocks(y[order])
    index = jnp.arange(y.size, dtype=jnp.int32)
    ends = jnp.cumsum(jnp.where(index <= top, sizes, 0), dtype=jnp.int32)
    block = jnp.searchsorted(ends, index, side="right")
    fitted = sums[block] / sizes[block].astype(y.dtype)
    return jnp.zeros_like(y).at[order].set(fitted)


def _pooled_blocks(y: Array) -> tuple[Array, Array, Array]:
    """Sums and sizes of the blocks with increasing means, a stack, and the index of its top."""
    eps = jnp.finfo(y.dtype).eps

    def violates(stack) -> Array:
        sums, sizes, top = stack
        last, before = (sums[k] / sizes[k].astype(y.dtype) for k in (top, top - 1))
        # Equal means are one block, also where rounding separates them.
        return (top > 0) & (last <= before + eps * jnp.abs(before))

    def merge(stack):
        sums, sizes, top = stack
        return sums.at[top - 1].add(sums[top]), sizes.at[top - 1].add(sizes[top]), top - 1

    def push(stack, value):
        sums, sizes, top = stack
        stack = sums.at[top + 1].set(value), sizes.at[top + 1].set(1), top + 1
        return lax.while_loop(violates, merge, stack), None

    empty = jnp.zeros_like(y), jnp.ones(y.shape, jnp.int32), jnp.int32(-1)
    return lax.scan(push, empty, y)[0]


def pairs(values: Shaped[ArrayLike, "n n"]) -> Shaped[Array, " m"]:
    """The entries above the diagonal, row by row.

    Args:
        values: square matrix `[n, n]`.

    >>> pairs(jnp.arange(9.0).reshape(3, 3)).tolist()
    [1.0, 2.0, 5.0]
    """
    values = jnp.asarray(values)
    i, j = jnp.triu_indices(values.shape[0], 1)
    return values[i, j]
