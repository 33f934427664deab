"""Kernels block by block, so that no more than two blocks of Jacobians exist at a time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpe.ntk._checks import Inputs

Side = Any
Prepare = Callable[[Inputs], Side]
Meet = Callable[[Side, Side], Array]


def between(left: Prepare, right: Prepare, meet: Meet, x1: Inputs, x2: Inputs, *, size: int):
    """`meet(left(x1), right(x2))`, `[n1, n2, ...]`, in blocks of examples."""
    rows, columns = _padded_blocks(x1, size), _padded_blocks(x2, size)

    def row(block):
        prepared = left(block)
        return _map_blocks(lambda other: meet(prepared, right(other)), columns)

    out = _joined_blocks(_map_blocks(row, rows))
    return out[: _length(x1), : _length(x2)]


def within(left: Prepare, right: Prepare, meet: Meet, x: Inputs, *, size: int) -> Array:
    """`between` for x1 = x2, where the kernel is symmetric: about half of the blocks.

    Row i of the blocks meets columns i, i + 1, ..., i + ⌊count/2⌋, modulo their count. So each row
    has equally many blocks, and every pair of blocks occurs in one order or the other.
    """
    blocks, n = _padded_blocks(x, size), _length(x)
    count = _length(blocks)
    if count == 1:
        side = left(x)
        return meet(side, side if right is left else right(x))
    steps = jnp.arange(count // 2 + 1)

    def row(i):
        prepared = left(_block_at(blocks, i))
        column = lambda step: meet(prepared, right(_block_at(blocks, (i + step) % count)))  # noqa: E731
        return lax.map(jax.checkpoint(column), steps)

    upper = lax.map(row, jnp.arange(count))  # [count, steps, size, size, ...]
    i = jnp.broadcast_to(jnp.arange(count)[:, None], upper.shape[:2])
    j = (i + steps[None, :]) % count
    kernel = jnp.zeros((count, count, *upper.shape[2:]), upper.dtype)
    kernel = kernel.at[j, i].set(_transposed_blocks(upper)).at[i, j].set(upper)
    return _joined_blocks(kernel)[:n, :n]


def along(left: Prepare, right: Prepare, meet: Meet, x1: Inputs, x2: Inputs, *, size: int) -> Array:
    """`meet(left(x1), right(x2))`, `[n, ...]`, where only examples of the same row meet."""
    pairs = _padded_blocks((x1, x2), size)
    out = _map_blocks(lambda pair: meet(left(pair[0]), right(pair[1])), pairs)
    return out.reshape(-1, *out.shape[2:])[: _length(x1)]


def in_pieces(f: Callable[[Inputs], Any], x: Inputs, *, size: int) -> Any:
    """`f(x)` of independent examples, piece by piece; leaves `[n, ...]`."""
    if _length(x) <= size:
        return f(x)
    pieces = lax.map(f, _padded_blocks(x, even_blocks(_length(x), size)))
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[: _length(x)], pieces)


def even_blocks(n: int, size: int) -> int:
    """Size of equal blocks, no more of them than blocks of `size`."""
    count = -(-n // size)
    return -(-n // count)


def _padded_blocks(x: Inputs, size: int) -> Inputs:
    """Leaves `[count, size, ...]`; the last example is repeated to fill the last block."""
    n = _length(x)
    count = -(-n // size)
    index = jnp.minimum(jnp.arange(count * size), n - 1)
    return jax.tree.map(lambda a: a[index].reshape(count, size, *a.shape[1:]), x)


def _map_blocks(f: Callable[[Any], Array], blocks: Any) -> Array:
    """`lax.map`, without a loop for a single block."""
    if _length(blocks) == 1:
        return f(_block_at(blocks, 0))[None]
    return lax.map(jax.checkpoint(f), blocks)


def _joined_blocks(blocks: Array) -> Array:
    """`[rows, columns, size, size, ...]` as `[n1, n2, ...]`."""
    rows, columns, one, two, *rest = blocks.shape
    return jnp.moveaxis(blocks, 2, 1).reshape(rows * one, columns * two, *rest)


def _transposed_blocks(blocks: Array) -> Array:
    """Transposed blocks `[..., size, size, diagonal, free, free]`, for pairs in reverse order."""
    return jnp.swapaxes(jnp.swapaxes(blocks, 2, 3), -1, -2)


def _block_at(blocks: Any, i: Any) -> Any:
    return jax.tree.map(lambda a: a[i], blocks)


def _length(x: Inputs) -> int:
    return len(jax.tree.leaves(x)[0])
