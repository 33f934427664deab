"""Array types of signatures."""

import jax
import numpy as np

ArrayLike = jax.Array | np.ndarray


def is_traced(*arrays: object) -> bool:
    """Whether any value is abstract, so that it cannot be looked at (inside jit, vmap or grad)."""
    return any(isinstance(array, jax.core.Tracer) for array in arrays)
