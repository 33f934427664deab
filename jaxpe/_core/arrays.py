"""Array types of signatures, and products that accelerators are not to round."""

import jax
import jax.numpy as jnp
import numpy as np

ArrayLike = jax.Array | np.ndarray


def is_traced(*arrays: object) -> bool:
    """Whether any value is abstract, so that it cannot be looked at (inside jit, vmap or grad)."""
    return any(isinstance(array, jax.core.Tracer) for array in arrays)


def dot(*matrices: ArrayLike) -> jax.Array:
    """The matrix product, from the left, at the highest precision: TF32 is too coarse.

    Neither orthogonality nor a derivative survives it.
    """
    product = jnp.asarray(matrices[0])
    for matrix in matrices[1:]:
        product = jnp.matmul(product, matrix, precision="highest")
    return product
