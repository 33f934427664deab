"""Toeplitz and circulant parts of a matrix over positions: what depends on the offset alone."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Real

from jaxpe._types import ArrayLike
from jaxpe.geometry.distances import floating


def toeplitz_projection(A: Real[ArrayLike, "n n"]) -> Float[Array, "n n"]:
    """The Toeplitz matrix nearest in Frobenius norm: each diagonal becomes its mean.

    >>> toeplitz_projection(np.array([[1.0, 4.0], [0.0, 3.0]])).tolist()
    [[2.0, 4.0], [0.0, 2.0]]
    """
    A = _square(A)
    n = A.shape[0]
    return _class_means(A, _offsets(n) + n - 1, 2 * n - 1)


def circulant_projection(A: Real[ArrayLike, "n n"]) -> Float[Array, "n n"]:
    """The circulant matrix nearest in Frobenius norm: means over entries of equal j − i modulo n.

    The discrete Fourier basis diagonalises it, and its eigenvalues are the diagonal of A in that
    basis. As circulant matrices are Toeplitz, A is never nearer to it than to
    `toeplitz_projection(A)`.

    >>> circulant_projection(np.array([[1.0, 4.0], [0.0, 3.0]])).tolist()
    [[2.0, 2.0], [2.0, 2.0]]
    """
    A = _square(A)
    n = A.shape[0]
    return _class_means(A, _offsets(n) % n, n)


def toeplitz_residual(A: Real[ArrayLike, "n n"]) -> Float[Array, ""]:
    """Share ‖A − T‖² / ‖A‖² that no Toeplitz matrix explains, in [0, 1]; 0 for A = 0.

    >>> toeplitz_residual(np.diag([1.0, -1.0])).item()
    1.0
    """
    return _residual(A, toeplitz_projection(A))


def circulant_residual(A: Real[ArrayLike, "n n"]) -> Float[Array, ""]:
    """Share ‖A − C‖² / ‖A‖² that no circulant matrix explains, in [0, 1]; 0 for A = 0.

    >>> circulant_residual(np.array([[0.0, 1.0], [-1.0, 0.0]])).item()
    1.0
    """
    return _residual(A, circulant_projection(A))


def _square(A: ArrayLike) -> Array:
    A = floating(A)
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise ValueError(f"the matrix has shape {A.shape}, not [n, n]")
    return A


def _offsets(n: int) -> Array:
    positions = jnp.arange(n)
    return positions[None, :] - positions[:, None]


def _class_means(A: Array, label: Array, classes: int) -> Array:
    """Every entry replaced by the mean of the entries that share its label.

    Means are taken of deviations from one of these entries, so that equal ones stay equal to the
    last digit; which one it is does not matter, nor to derivatives.
    """
    one = jnp.zeros(classes, A.dtype).at[label].set(jax.lax.stop_gradient(A))
    sums = jnp.zeros(classes, A.dtype).at[label].add(A - one[label])
    sizes = jnp.zeros(classes, A.dtype).at[label].add(1.0)
    return (one + sums / sizes)[label]


def _residual(A: ArrayLike, projection: Array) -> Array:
    A = floating(A)
    missed, whole = jnp.sum((A - projection) ** 2), jnp.sum(A**2)
    return missed / jnp.where(whole == 0, 1.0, whole)
