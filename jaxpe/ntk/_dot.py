"""Matrix products that accelerators are not to round."""

import jax.numpy as jnp
from jax import Array


def dot(a: Array, b: Array) -> Array:
    """a b at the highest precision."""
    return jnp.matmul(a, b, precision="highest")
