"""Jacobians of independent examples, and their products block by block.

Two blocks of Jacobians exist at a time. Those of x2 are computed again for every block of x1.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpe._core.arrays import dot
from jaxpe.ntk._checks import Apply, Inputs, OutputAxes, Params

Jacobian = list[Array]  # for each leaf of the parameters [n, diagonal, free, trace, parameters]


def jacobians(
    f: Apply, params: Params, x: Inputs, *, axes: OutputAxes, at_once: bool, dtype: jnp.dtype
) -> Jacobian:
    """Jacobians of a block of examples, differentiated all at once or one after another."""
    order = [a - 1 for a in (*axes.diagonal, *axes.free, *axes.trace) if a]
    groups = axes.size(axes.diagonal), axes.size(axes.free), axes.size(axes.trace)

    def grouped(leaf: Array) -> Array:
        shape = leaf.shape[len(order) :]
        leaf = leaf.transpose(*order, *range(len(order), leaf.ndim))
        return leaf.reshape(*groups, math.prod(shape)).astype(dtype)

    def example(x: Inputs) -> Jacobian:
        one = jax.tree.map(lambda a: a[None], x)
        leaves = jax.tree.leaves(jax.jacrev(lambda params: f(params, one)[0])(params))
        return [grouped(leaf) for leaf in leaves]

    return jax.vmap(example)(x) if at_once else lax.map(example, x)


def inner_products(left: Jacobian, right: Jacobian) -> Array:
    """J₁ J₂ᵀ of all pairs, summed over traced outputs: `[n1, n2, diagonal, free, free]`."""
    first, *others = map(_inner_products, left, right)
    return sum(others, start=first)


def paired_inner_products(left: Jacobian, right: Jacobian) -> Array:
    """J₁ J₂ᵀ of the same row, summed over traced outputs: `[n, diagonal, free, free]`."""
    product = partial(jnp.einsum, "ndftp,ndgtp->ndfg", precision="highest")
    first, *others = map(product, left, right)
    return sum(others, start=first)


def _inner_products(left: Array, right: Array) -> Array:
    (n, d, f, *summed), (m, _, g, *_) = left.shape, right.shape
    # Matrices with the sum along their rows: other layouts are slow on CPUs.
    a = jnp.moveaxis(left, 1, 0).reshape(d, n * f, math.prod(summed))
    b = jnp.moveaxis(right, 1, 0).reshape(d, m * g, math.prod(summed))
    out = dot(a[0], b[0].T)[None] if d == 1 else dot(a, b.mT)
    return out.reshape(d, n, f, m, g).transpose(1, 3, 0, 2, 4)


def between(
    prepare: Callable[[Inputs], Jacobian], x1: Inputs, x2: Inputs | None, *, size: int
) -> Array:
    """`inner_products` of all examples of x1 with those of x2, in blocks of `size` examples.

    For x2 = None the kernel is symmetric, and about half of the blocks are computed: row i of
    them meets columns i, i + 1, ..., i + ⌊count/2⌋, modulo their count. So rows have equally many
    blocks, and every pair of blocks occurs in one order or the other.
    """
    rows = _padded_blocks(x1, size)
    columns = rows if x2 is None else _padded_blocks(x2, size)
    n1, n2 = length(x1), length(x1 if x2 is None else x2)
    n_rows, n_columns = length(rows), length(columns)
    if x2 is None and n_rows == 1:
        side = prepare(x1)
        return inner_products(side, side)
    steps = jnp.arange(n_columns // 2 + 1 if x2 is None else n_columns)

    def row(i: Array) -> Array:
        side = prepare(_block_at(rows, i))

        def block(step: Array) -> Array:
            return inner_products(side, prepare(_block_at(columns, (i + step) % n_columns)))

        return lax.map(jax.checkpoint(block), steps)  # or gradients would store all blocks

    blocks = lax.map(row, jnp.arange(n_rows))  # [rows, steps, size, size, diagonal, free, free]
    i = jnp.broadcast_to(jnp.arange(n_rows)[:, None], blocks.shape[:2])
    j = (i + steps[None, :]) % n_columns
    kernel = jnp.zeros((n_rows, n_columns, *blocks.shape[2:]), blocks.dtype)
    if x2 is None:
        kernel = kernel.at[j, i].set(jnp.swapaxes(jnp.swapaxes(blocks, 2, 3), -1, -2))
    kernel = jnp.moveaxis(kernel.at[i, j].set(blocks), 2, 1)
    return kernel.reshape(n_rows * size, n_columns * size, *kernel.shape[4:])[:n1, :n2]


def along(prepare: Callable[[Inputs], Jacobian], x1: Inputs, x2: Inputs, *, size: int) -> Array:
    """`paired_inner_products` in blocks of `size` examples."""
    blocks = _padded_blocks((x1, x2), size)
    out = lax.map(lambda pair: paired_inner_products(*map(prepare, pair)), blocks)
    return out.reshape(-1, *out.shape[2:])[: length(x1)]


def _padded_blocks(x: Inputs, size: int) -> Inputs:
    """Leaves `[count, size, ...]`; the last example is repeated to fill the last block."""
    n = length(x)
    count = -(-n // size)
    index = jnp.minimum(jnp.arange(count * size), n - 1)
    return jax.tree.map(lambda a: a[index].reshape(count, size, *a.shape[1:]), x)


def _block_at(blocks: Any, i: Any) -> Any:
    return jax.tree.map(lambda a: a[i], blocks)


def length(x: Inputs) -> int:
    """Number of examples of a batch."""
    return len(jax.tree.leaves(x)[0])
