"""Array types of signatures, and products that accelerators are not to round."""

import jax
import jax.numpy as jnp
import numpy as np

ArrayLike = jax.Array | np.ndarray


def is_traced(*arrays: object) -> bool:
    """Whether any value is abstract, as inside jit, vmap or grad: its numbers are unknown."""
    return any(isinstance(array, jax.core.Tracer) for array in arrays)


def dot(*matrices: ArrayLike) -> jax.Array:
    """The matrix product, from the left, at the highest precision: TF32 is too coarse.

    Neither orthogonality nor a derivative survives it.
    """
    product = jnp.asarray(matrices[0])
    for matrix in matrices[1:]:
        product = jnp.matmul(product, matrix, precision="highest")
    return product


def rounded_size(size: int, *, steps: int = 8) -> int:
    """The next of the sizes 1 to 16, 18, 20, ..., 32, 36, ...: eight between powers of two.

    Arrays that are filled up to such sizes have few shapes, at most an eighth larger, so that
    programs of one serve others. With fewer steps, a power of two, there are fewer.

    >>> [rounded_size(size) for size in (0, 7, 17, 100, 1025)]
    [1, 7, 18, 104, 1152]
    """
    step = 1 << max(0, (max(size, 1) - 1).bit_length() - steps.bit_length())
    return -(-max(size, 1) // step) * step
