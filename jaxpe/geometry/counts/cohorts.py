"""Masks that keep composition out of a geometry by choosing which tokens are counted.

`position_geometry` takes composition away by shuffled documents. The functions here choose tokens
instead, so that positions have the same documents, or as many, or of the same lengths. They return
masks for `count_tokens` and all that counts. `docs/who-gets-there.md` compares them on corpora of
known truth.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool

from jaxpe._core.arrays import ArrayLike
from jaxpe.geometry.checks import check_size


@jax.jit
def cohort_of(mask: Bool[ArrayLike, "documents n"]) -> Bool[Array, " documents"]:
    """Documents that have a token at every position where some document has one.

    Composition is the same at all positions then, and the counts are equal. What is found is of
    these documents alone.

    >>> cohort_of(np.array([[True, True], [True, False]])).tolist()
    [True, False]
    """
    mask = _checked(mask)
    return jnp.all(mask | ~jnp.any(mask, axis=0)[None], axis=1) & jnp.any(mask, axis=1)


@jax.jit
def thinned_mask(key: Array, mask: Bool[ArrayLike, "documents n"]) -> Bool[Array, "documents n"]:
    """Random subsample of tokens, as many at each position as the thinnest position has.

    Roots of thin counts are then biased alike everywhere. Composition stays.

    >>> mask = np.array([[True, True], [True, False], [True, False]])
    >>> thinned_mask(jax.random.key(0), mask).sum(0).tolist()
    [1, 1]
    """
    mask = _checked(mask)
    size = jnp.sum(mask, axis=0)
    least = jnp.min(jnp.where(size > 0, size, mask.shape[0]))
    noise = jnp.where(mask, jax.random.uniform(key, mask.shape, jnp.float32), 2.0)
    rank = jnp.argsort(jnp.argsort(noise, axis=0), axis=0)
    return mask & (rank < least)


@partial(jax.jit, static_argnames="classes")
def length_weighted_mask(
    key: Array, mask: Bool[ArrayLike, "documents n"], *, classes: int = 4
) -> Bool[Array, "documents n"]:
    """Tokens drawn with inverse-probability weights by length, at each position.

    Documents are in classes of about equal size by their number of tokens. At each position a class
    that some of its documents do not reach is drawn more often, so that all classes that reach it
    have their share of the corpus. A class that no document of which reaches a position cannot be
    weighted: where length decides who gets there, weights by length leave most of composition.

    >>> mask = np.arange(4)[None, :] < np.array([[1], [2], [3], [4]])
    >>> length_weighted_mask(jax.random.key(0), mask, classes=1).sum(0).tolist()
    [4, 3, 2, 1]
    """
    check_size("classes", classes)
    mask = _checked(mask)
    length = jnp.sum(mask, axis=1)
    order = jnp.argsort(jnp.argsort(length))
    label = order * classes // max(mask.shape[0], 1)
    member = (label[:, None] == jnp.arange(classes)[None]).astype(jnp.float32)
    reached = jnp.einsum("dc,dn->cn", member, mask.astype(jnp.float32))
    share = reached / jnp.maximum(jnp.sum(member, axis=0), 1.0)[:, None]
    weight = jnp.where(share > 0, 1.0 / jnp.where(share > 0, share, 1.0), 0.0)
    keep = weight / jnp.maximum(jnp.max(weight, axis=0), 1.0)[None]
    return mask & (jax.random.uniform(key, mask.shape, keep.dtype) < keep[label])


def _checked(mask: Bool[ArrayLike, "documents n"]) -> Bool[Array, "documents n"]:
    mask = jnp.asarray(mask)
    if mask.ndim != 2 or mask.dtype != bool:
        raise ValueError(f"mask is {mask.dtype} of shape {mask.shape}: pass bool [documents, n]")
    return mask
