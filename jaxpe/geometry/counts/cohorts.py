"""Cohorts: documents that reach every position, whose composition is the same at all of them."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool

from jaxpe._core.arrays import ArrayLike


@jax.jit
def cohort_of(mask: Bool[ArrayLike, "documents n"]) -> Bool[Array, " documents"]:
    """Documents that have a token at every position where some document has one.

    Composition is the same at all positions then, and the counts are equal. What is found is of
    these documents alone.

    >>> cohort_of(np.array([[True, True], [True, False]])).tolist()
    [True, False]
    """
    mask = jnp.asarray(mask)
    if mask.ndim != 2 or mask.dtype != bool:
        raise ValueError(f"mask is {mask.dtype} of shape {mask.shape}: pass bool [documents, n]")
    return jnp.all(mask | ~jnp.any(mask, axis=0)[None], axis=1) & jnp.any(mask, axis=1)
