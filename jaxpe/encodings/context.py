"""Sums and convolutions over the tokens of a row, for encodings that depend on the hidden states.

Both skip padding, restart at each segment of a packed row, and continue from a carry. So a row in
pieces gives the same result as the whole row.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.base import Rows, expand_rank


def running_sum(values: ArrayLike, rows: Rows, *, after: int = 1) -> tuple[Array, Array]:
    """Running sums over the tokens so far, this one included, and the carry.

    Args:
        values: `[..., n, *]`, with `after` axes behind n.
        rows: padding and segments; the carry is the sum up to the preceding token.
        after: number of axes behind n.

    >>> sums, carry = running_sum(jnp.ones((3, 1)), Rows(valid=jnp.array([True, False, True])))
    >>> sums.ravel().tolist(), carry.tolist()
    ([1.0, 1.0, 2.0], [2.0])
    """
    values = jnp.asarray(values)
    axis = values.ndim - after - 1
    values = _masked_values(values, rows, after)
    if not values.shape[axis]:  # of no tokens the carry stays
        nothing = jnp.zeros((*values.shape[:axis], *values.shape[axis + 1 :]), values.dtype)
        return values, nothing if rows.carry is None else rows.carry
    if rows.starts is None:
        sums = jnp.cumsum(values, axis=axis)
        if rows.carry is not None:
            sums = sums + jnp.expand_dims(rows.carry, axis)
    else:
        fresh = jnp.broadcast_to(_expanded_flags(rows.starts, values, after), values.shape)
        sums, started = lax.associative_scan(_segmented_add, (values, fresh), axis=axis)
        if rows.carry is not None:
            sums = jnp.where(started, sums, sums + jnp.expand_dims(rows.carry, axis))
    return sums, lax.index_in_dim(sums, -1, axis, keepdims=False)


def sums_to_the_end(values: Array, *, block: int = 64) -> Array:
    """Reverse cumulative sums along the last axis: each entry plus all later ones, `[..., n]`.

    Computed by products with a triangle of ones within blocks, and sums of blocks: on CPUs a
    cumulative sum of n × n logits takes XLA several times as long.

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
        rows: padding and segments; the carry is the values of the `count − 1` preceding tokens.
        count: tokens, at least 1.
        after: number of axes behind n.

    >>> preceding(jnp.arange(3.0)[:, None], Rows(), 2)[0][..., 0].tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 2.0]]
    """
    values = jnp.asarray(values)
    axis = values.ndim - after - 1
    n, lead = values.shape[axis], values.shape[:axis]
    values = _masked_values(values, rows, after)
    before = (*lead, count - 1, *values.shape[axis + 1 :])
    carry = jnp.zeros(before, values.dtype) if rows.carry is None else rows.carry
    if not n:  # of no tokens the carry stays
        return jnp.zeros((*lead, 0, count, *before[axis + 1 :]), values.dtype), carry
    valid = jnp.ones((*lead, n), bool) if rows.valid is None else rows.valid
    valid = jnp.broadcast_to(valid, (*lead, n))
    if rows.valid is not None:  # tokens that count move to the front, in their order
        order = jnp.argsort(~valid, axis=-1, stable=True)
        values = jnp.take_along_axis(values, _expanded_flags(order, values, after), axis=axis)
    tokens = jnp.concatenate([carry.astype(values.dtype), values], axis=axis)
    # The index of each token in `tokens` (for padding, of the last token before it), and the index
    # of the first token of its segment.
    index = jnp.cumsum(valid, axis=-1, dtype=jnp.int32) + (count - 2)
    first = jnp.zeros_like(index)
    if rows.starts is not None:
        begins = jnp.where(valid, index, index + 1)
        starts = jnp.broadcast_to(rows.starts, index.shape)
        first = lax.cummax(jnp.where(starts, begins, 0), axis=index.ndim - 1)

    def window(index: Array, first: Array, length: int) -> Array:
        """The `length` tokens up to an index, zeros before the first of the segment."""
        index = index[..., None] + expand_rank(np.arange(1 - length, 1), index.ndim + 1, jnp.int32)
        flat = jnp.maximum(index.reshape(*lead, -1), 0)
        tokens_before = jnp.take_along_axis(tokens, _expanded_flags(flat, values, after), axis=axis)
        tokens_before = tokens_before.reshape(*index.shape, *values.shape[axis + 1 :])
        inside = index >= first[..., None]
        return jnp.where(inside.reshape(*inside.shape, *(1,) * after), tokens_before, 0)

    last = window(index[..., -1], first[..., -1], count - 1)
    return window(index, first, count), last


def causal_convolution(
    values: ArrayLike, kernel: ArrayLike, rows: Rows, *, after: int = 1
) -> tuple[Array, Array]:
    """Depthwise convolution over the tokens so far, Σ_w kernel_w·v_{t − width + 1 + w}, and carry.

    Args:
        values: `[..., n, *channels]`, with `after` axes behind n.
        kernel: `[width, *channels]`; its last row multiplies the token itself.
        rows: padding and segments; the carry is as in `preceding`.
        after: number of axes behind n.

    >>> values, kernel = jnp.arange(3.0)[:, None], jnp.ones((2, 1))
    >>> causal_convolution(values, kernel, Rows())[0].ravel().tolist()
    [0.0, 1.0, 3.0]
    """
    kernel = jnp.asarray(kernel)
    window, carry = preceding(values, rows, kernel.shape[0], after=after)
    return jnp.sum(window * expand_rank(kernel, window.ndim), axis=window.ndim - after - 1), carry


def _masked_values(values: Array, rows: Rows, after: int) -> Array:
    """Values with zeros on padding."""
    if rows.valid is None:
        return values
    return jnp.where(_expanded_flags(rows.valid, values, after), values, 0)


def _expanded_flags(flags: ArrayLike, values: Array, after: int) -> Array:
    """Flags or indices `[..., n]`, expanded to as many axes as values `[..., n, *]`."""
    flags = expand_rank(flags, values.ndim - after)
    return flags.reshape(*flags.shape, *(1,) * after)


def _segmented_add(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
    """Associative addition of sums and their segment starts: a start drops the sum before it."""
    (a, started), (b, fresh) = left, right
    return jnp.where(fresh, b, a + b), started | fresh
