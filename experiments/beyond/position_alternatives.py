"""Ways to keep composition out of a geometry that were measured and not taken into the library.

`position_geometry` takes composition away by shuffled documents. The masks choose tokens instead,
so that positions have as many documents, or documents of the same lengths; contrasts take the mean
of shuffles away before the products. `position_truth.py` compares them.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from jaxpe._core.arrays import dot
from jaxpe.geometry import PositionCounts, SplitHalfGeometry
from jaxpe.geometry.distances.matrices import centre_rows
from jaxpe.geometry.noise.split_half import (
    DEFAULT_SPLITS,
    fold_count,
    geometry_from_products,
    random_halves,
)


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
    """Split-half geometry of contrasts δ within documents, √μ̂ less the mean √μ̂ of shuffles.

    It has no cross terms of composition and position, and understates effects that change steadily
    with position: late documents' shuffles hold them too.
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
    products, present = jax.lax.map(product, halves)
    mean = jnp.mean(products, axis=0)
    return geometry_from_products(0.5 * (mean + mean.T), jnp.all(present, axis=0))
