"""How much of one quantity a monotone function of another explains."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Shaped

from jaxpe._types import ArrayLike


class MonotoneFit(NamedTuple):
    """The best monotone functions of x, in least squares.

    Attributes:
        increasing: their values at each x, `[m]`.
        decreasing: likewise.
        explained_increasing: share of the variance of y explained, in [0, 1]; 1 for constant y.
        explained_decreasing: likewise.
    """

    increasing: Float[Array, " m"]
    decreasing: Float[Array, " m"]
    explained_increasing: Float[Array, ""]
    explained_decreasing: Float[Array, ""]


def monotone_fit(x: Float[ArrayLike, "..."], y: Float[ArrayLike, "..."]) -> MonotoneFit:
    """Fit y `[m]` by increasing and by decreasing functions of x `[m]`; equal x, equal values.

    Isotonic regression by pooling adjacent violators (Ayer et al. 1955).

    >>> fit = monotone_fit(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 5.0, 3.0]))
    >>> fit.increasing.tolist(), fit.explained_increasing.item()
    ([1.0, 4.0, 4.0], 0.75)
    >>> fit.decreasing.tolist(), fit.explained_decreasing.item()
    ([3.0, 3.0, 3.0], 0.0)
    """
    x, y = jnp.asarray(x), jnp.asarray(y)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"x has shape {x.shape} and y {y.shape}: pass two of the same [m]")
    increasing, decreasing = _increasing(x, y), -_increasing(x, -y)
    return MonotoneFit(
        increasing, decreasing, *(_explained(y, z) for z in (increasing, decreasing))
    )


def _explained(y: Array, fitted: Array) -> Array:
    total = jnp.sum((y - jnp.mean(y)) ** 2)
    flat = total <= (jnp.finfo(y.dtype).eps * y.size) ** 2 * jnp.sum(y**2)
    share = 1.0 - jnp.sum((y - fitted) ** 2) / jnp.where(flat, 1.0, total)
    return jnp.where(flat, 1.0, jnp.clip(share, 0.0, 1.0))


def _increasing(x: Array, y: Array) -> Array:
    # Equal x come with y falling, so that they violate the order and are pooled.
    order = jnp.lexsort((-y, x))
    sums, sizes, top = _pooled(y[order])
    places = jnp.arange(y.size, dtype=jnp.int32)
    ends = jnp.cumsum(jnp.where(places <= top, sizes, 0), dtype=jnp.int32)
    block = jnp.searchsorted(ends, places, side="right")
    fitted = sums[block] / sizes[block].astype(y.dtype)
    return jnp.zeros_like(y).at[order].set(fitted)


def _pooled(y: Array) -> tuple[Array, Array, Array]:
    """Sums and sizes of the blocks with increasing means, a stack, and the index of its top."""
    eps = jnp.finfo(y.dtype).eps

    def violates(stack) -> Array:
        sums, sizes, top = stack
        last, before = (sums[k] / sizes[k].astype(y.dtype) for k in (top, top - jnp.int32(1)))
        # Equal means are one block, also where rounding tells them apart.
        return (top > 0) & (last <= before + eps * jnp.abs(before))

    def merge(stack):
        sums, sizes, top = stack
        return (
            sums.at[top - jnp.int32(1)].add(sums[top]),
            sizes.at[top - jnp.int32(1)].add(sizes[top]).at[top].set(1),
            top - jnp.int32(1),
        )

    def push(stack, value):
        sums, sizes, top = stack
        stack = sums.at[top + 1].set(value), sizes.at[top + 1].set(1), top + 1
        return lax.while_loop(violates, merge, stack), None

    empty = jnp.zeros_like(y), jnp.ones(y.shape, jnp.int32), jnp.int32(-1)
    return lax.scan(push, empty, y)[0]


def pairs(values: Shaped[ArrayLike, "n n"]) -> Shaped[Array, " m"]:
    """The entries above the diagonal, row by row.

    >>> pairs(jnp.arange(9.0).reshape(3, 3)).tolist()
    [1.0, 2.0, 5.0]
    """
    values = jnp.asarray(values)
    i, j = jnp.triu_indices(values.shape[0], 1)
    return values[i, j]
