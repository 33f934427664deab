"""Cohorts of documents that reach every position, so that all positions have one composition."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool

from jaxpe._core.arrays import ArrayLike


@jax.jit
def cohort_of(mask: Bool[ArrayLike, "documents n"]) -> Bool[Array, " documents"]:
    """Mask of the documents that have a token at every position where any document has one.

    All positions then have the same documents and equal counts. Findings hold for these documents
    alone.

    >>> cohort_of(np.array([[True, True], [True, False]])).tolist()
    [True, False]
    """
    mask = jnp.asarray(mask)
    if mask.ndim != 2 or mask.dtype != bool:
        raise ValueError(f"mask is {mask.dtype} of shape {mask.shape}: pass bool [documents, n]")
    return jnp.all(mask | ~jnp.any(mask, axis=0)[None], axis=1) & jnp.any(mask, axis=1)
