"""Sums and convolutions over the tokens of a row, for encodings that depend on the hidden states.

Both skip padding, start anew with each segment of a packed row, and go on from a carry, so that a
row in pieces gives what the whole row gives.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.base import Rows, expand_rank


def running_sum(values: ArrayLike, rows: Rows, *, after: int = 1) -> tuple[Array, Array]:
    """Sums over the tokens so far, this one included, and the carry.

    Args:
        values: `[..., n, *]`, with `after` axes behind n.
        rows: padding and segments; its carry is the sum at the last token before these.
        after: number of axes behind n.

    >>> sums, carry = running_sum(jnp.ones((3, 1)), Rows(valid=jnp.array([True, False, True])))
    >>> sums.ravel().tolist(), carry.tolist()
    ([1.0, 1.0, 2.0], [2.0])
    """
    values = jnp.asarray(values)
    axis = values.ndim - after - 1
    values = _counted(values, rows, after)
    if rows.starts is None:
        sums = jnp.cumsum(values, axis=axis)
        if rows.carry is not None:
            sums = sums + jnp.expand_dims(rows.carry, axis)
    else:
        fresh = _beside(rows.starts, values, after)
        sums, started = lax.associative_scan(_restarting, (values, fresh), axis=axis)
        if rows.carry is not None:
            sums = jnp.where(started, sums, sums + jnp.expand_dims(rows.carry, axis))
    return sums, lax.index_in_dim(sums, -1, axis, keepdims=False)


def sums_to_the_end(values: Array, *, block: int = 64) -> Array:
    """Sums of each entry and those behind it along the last axis, `[..., n]`.

    By products with a triangle of ones inside blocks, and sums of whole blocks: a cumulative sum of
    n × n logits takes XLA several times as long on CPUs.

    Args:
        values: floats `[..., n]`.
        block: entries of a block; only the time depends on it.

    >>> sums_to_the_end(jnp.asarray([1.0, 2.0, 4.0])).tolist()
    [7.0, 6.0, 4.0]
    """
    n = values.shape[-1]
    block = max(1, min(block, n))
    count = -(-n // block)
    padded = jnp.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, count * block - n)])
    blocks = padded.reshape(*values.shape[:-1], count, block)
    triangle = jnp.tri(block, dtype=values.dtype)
    inside = jnp.matmul(blocks, triangle, precision="highest")
    totals = inside[..., 0]
    behind = lax.cumsum(totals, axis=totals.ndim - 1, reverse=True) - totals
    return (inside + behind[..., None]).reshape(padded.shape)[..., :n]


def preceding(values: ArrayLike, rows: Rows, count: int, *, after: int = 1) -> tuple[Array, Array]:
    """Values of the last `count` tokens up to this one, `[..., n, count, *]`, and the carry.

    Oldest first, this token last; zeros where there is no such token in the segment.

    Args:
        values: `[..., n, *]`, with `after` axes behind n.
        rows: padding and segments; its carry is the values of the `count − 1` tokens before.
        count: tokens, at least 1.
        after: number of axes behind n.

    >>> preceding(jnp.arange(3.0)[:, None], Rows(), 2)[0][..., 0].tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 2.0]]
    """
    values = jnp.asarray(values)
    axis = values.ndim - after - 1
    n, lead = values.shape[axis], values.shape[:axis]
    values = _counted(values, rows, after)
    before = (*lead, count - 1, *values.shape[axis + 1 :])
    carry = jnp.zeros(before, values.dtype) if rows.carry is None else rows.carry
    known = jnp.concatenate([carry.astype(values.dtype), values], axis=axis)
    if rows.valid is None and rows.starts is None:
        window = np.arange(n)[:, None] + np.arange(count)
        return jnp.take(known, window, axis=axis), lax.slice_in_dim(known, n, None, axis=axis)
    places, ends = _places(rows, (*lead, n), count)
    flat = known.reshape(*known.shape[: axis + 1], -1)

    def gathered(index: Array) -> Array:
        found = jnp.take_along_axis(flat, jnp.maximum(index, 0)[..., None], axis=axis)
        found = jnp.where(index[..., None] >= 0, found, 0)
        return found.reshape(*index.shape, *known.shape[axis + 1 :])

    picked = gathered(places.reshape(*lead, n * count))
    return picked.reshape(*lead, n, count, *known.shape[axis + 1 :]), gathered(ends)


def causal_convolution(
    values: ArrayLike, kernel: ArrayLike, rows: Rows, *, after: int = 1
) -> tuple[Array, Array]:
    """Depthwise convolution over the tokens so far, Σ_w kernel_w·v_{t − width + 1 + w}, and carry.

    Args:
        values: `[..., n, *channels]`, with `after` axes behind n.
        kernel: `[width, *channels]`; its last row multiplies the token itself.
        rows: padding and segments; its carry is that of `preceding`.
        after: number of axes behind n.

    >>> causal_convolution(jnp.arange(3.0)[:, None], jnp.ones((2, 1)), Rows())[0].ravel().tolist()
    [0.0, 1.0, 3.0]
    """
    kernel = jnp.asarray(kernel)
    window, carry = preceding(values, rows, kernel.shape[0], after=after)
    return jnp.sum(window * expand_rank(kernel, window.ndim), axis=window.ndim - after - 1), carry


def _counted(values: Array, rows: Rows, after: int) -> Array:
    """Values with zeros in place of padding."""
    if rows.valid is None:
        return values
    return jnp.where(_beside(rows.valid, values, after), values, 0)


def _beside(flags: ArrayLike, values: Array, after: int) -> Array:
    """Flags `[..., n]` with the axes of values `[..., n, *]`."""
    flags = jnp.asarray(flags)
    flags = flags.reshape((1,) * (values.ndim - after - flags.ndim) + flags.shape + (1,) * after)
    return jnp.broadcast_to(flags, values.shape)


def _restarting(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
    (a, started), (b, fresh) = left, right
    return jnp.where(fresh, b, a + b), started | fresh


def _places(rows: Rows, shape: tuple[int, ...], count: int) -> tuple[Array, Array]:
    """Indices in `[carry, values]` of the tokens of each window, and of those of the next carry.

    `[..., n, count]` and `[..., count − 1]`, with −1 where there is none.
    """
    carried = count - 1
    valid = jnp.ones(shape, bool) if rows.valid is None else jnp.broadcast_to(rows.valid, shape)
    starts = jnp.zeros(shape, bool) if rows.starts is None else jnp.broadcast_to(rows.starts, shape)
    place = jnp.broadcast_to(jnp.arange(carried + shape[-1]), (*shape[:-1], carried + shape[-1]))
    ahead = jnp.ones((*shape[:-1], carried), bool)
    valid = jnp.concatenate([ahead, valid], axis=-1)
    # The last token before or at each place that counts, and where the segment of a place begins.
    last = lax.cummax(jnp.where(valid, place, -1), axis=place.ndim - 1)
    earlier = jnp.concatenate([jnp.full_like(last[..., :1], -1), last[..., :-1]], axis=-1)
    begins = jnp.where(jnp.concatenate([~ahead, starts], axis=-1), place, 0)
    begins = lax.cummax(begins, axis=place.ndim - 1)

    def back(index: Array) -> Array:
        found = jnp.take_along_axis(earlier, jnp.maximum(index, 0), axis=-1)
        return jnp.where(index >= 0, found, -1)

    own = place[..., carried:]
    chain, index = [own], own
    for _ in range(carried):
        index = back(index)
        chain.append(index)
    places = jnp.stack(chain[::-1], axis=-1)
    places = jnp.where(places >= begins[..., carried:, None], places, -1)
    end, ends = last[..., -1:], []
    for _ in range(carried):
        ends.append(end)
        end = back(end)
    tail = jnp.concatenate(ends[::-1], axis=-1) if ends else place[..., :0]
    return places, jnp.where(tail >= begins[..., -1:], tail, -1)
