"""Ways to keep composition out of a geometry that were measured and not taken into the library.

`position_geometry` takes composition away by rotated documents. Shuffles and blocks are other ways.
Masks choose tokens, so that positions have as many documents, or documents of the same lengths.
Contrasts take the mean of rotations away before the products. `position_truth.py` compares them.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from jaxpe._core.arrays import dot
from jaxpe.geometry import PositionCounts, SplitHalfGeometry
from jaxpe.geometry.counts.rotations import rotated_positions
from jaxpe.geometry.distances.matrices import centre_rows
from jaxpe.geometry.noise.half_products import fold_count
from jaxpe.geometry.noise.split_half import DEFAULT_SPLITS, geometry_from_products, random_halves


@partial(jax.jit, static_argnames="null")
def null_documents(key: Array, ids: Array, moves: Array, labels: Array, *, null: str) -> Array:
    """Ids where `moves` is true in another order: "rotation", "shuffle", or "blocks" of 3 tokens.

    Blocks of a document come in random order. Documents of one label are moved alike.
    """
    if null == "rotation":
        return jnp.take_along_axis(ids, rotated_positions(key, moves, labels), axis=1)
    size = {"shuffle": 1, "blocks": 3}[null]
    n = moves.shape[1]
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, labels)
    noise = jax.vmap(lambda k: jax.random.uniform(k, (n,), jnp.float32))(keys)
    rank = jnp.cumsum(moves, axis=1, dtype=jnp.int32) - 1
    block = jnp.take_along_axis(noise, jnp.maximum(rank, 0) // size, axis=1)
    order = jnp.argsort(jnp.where(moves, block, 2.0), axis=1, stable=True)
    source = jnp.take_along_axis(order, jnp.maximum(rank, 0), axis=1)
    return jnp.where(moves, jnp.take_along_axis(ids, source, axis=1), ids)


@jax.jit
def thinned_mask(key: Array, mask: Array) -> Array:
    """Random subsample of tokens, as many at each position as the thinnest position has.

    Roots of thin counts are then biased alike everywhere. Composition stays.
    """
    size = jnp.sum(mask, axis=0)
    least = jnp.min(jnp.where(size > 0, size, mask.shape[0]))
    noise = jnp.where(mask, jax.random.uniform(key, mask.shape, jnp.float32), 2.0)
    rank = jnp.argsort(jnp.argsort(noise, axis=0), axis=0)
    return mask & (rank < least)


@partial(jax.jit, static_argnames="classes")
def length_weighted_mask(key: Array, mask: Array, *, classes: int = 4) -> Array:
    """Tokens drawn with inverse-probability weights by length, at each position.

    At each position a class of lengths that some of its documents do not reach is drawn more often,
    so that all that reach it have their share. One of which no document reaches it has no weight.
    """
    length = jnp.sum(mask, axis=1)
    order = jnp.argsort(jnp.argsort(length))
    label = order * classes // max(mask.shape[0], 1)
    member = (label[:, None] == jnp.arange(classes)[None]).astype(jnp.float32)
    reached = jnp.einsum("dc,dn->cn", member, mask.astype(jnp.float32))
    share = reached / jnp.maximum(jnp.sum(member, axis=0), 1.0)[:, None]
    weight = jnp.where(share > 0, 1.0 / jnp.where(share > 0, share, 1.0), 0.0)
    keep = weight / jnp.maximum(jnp.max(weight, axis=0), 1.0)[None]
    return mask & (jax.random.uniform(key, mask.shape, keep.dtype) < keep[label])


def contrast_geometry(
    counts: PositionCounts, nulls: Sequence[PositionCounts], *, key: Array
) -> SplitHalfGeometry:
    """Split-half geometry of contrasts δ within documents, √μ̂ less the mean √μ̂ of rotations.

    It has no cross terms of composition and position, and understates effects that change steadily
    with position: late documents' rotations hold them too.
    """
    tables = jnp.stack([each.tokens for each in (counts, *nulls)])

    def contrast(half: Array) -> tuple[Array, Array]:
        table = jnp.einsum("f,cfnv->cnv", half, tables)
        size = jnp.sum(table[0], axis=1)
        rates = table.astype(float) / jnp.maximum(size, 1).astype(float)[None, :, None]
        roots = jnp.sqrt(rates)
        return centre_rows(roots[0] - jnp.mean(roots[1:], axis=0), size > 0), size > 0

    def product(half: Array) -> tuple[Array, Array]:
        (a, in_a), (b, in_b) = contrast(half), contrast(1 - half)
        return dot(a, b.T), in_a & in_b

    halves = random_halves(key, folds=fold_count(counts), splits=DEFAULT_SPLITS)
    products, present = jax.lax.map(product, halves[0])
    mean = jnp.mean(products, axis=0)
    return geometry_from_products(0.5 * (mean + mean.T), jnp.all(present, axis=0))
