"""Toeplitz and circulant projections: the part of a matrix that depends on the offset alone."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Real

from jaxpe._core.arrays import ArrayLike
from jaxpe.geometry.checks import floating, sized


@jax.jit
def toeplitz_projection(A: Real[ArrayLike, "n n"]) -> Float[Array, "n n"]:
    """The Toeplitz matrix nearest in Frobenius norm: each diagonal becomes its mean.

    >>> toeplitz_projection(np.array([[1.0, 4.0], [0.0, 3.0]])).tolist()
    [[2.0, 4.0], [0.0, 2.0]]
    """
    A = sized(A, "the matrix", "n n")
    label = diagonal_labels(len(A))
    return class_means(A, label, 2 * len(A) - 1)[label]


@jax.jit
def circulant_projection(A: Real[ArrayLike, "n n"]) -> Float[Array, "n n"]:
    """The circulant matrix nearest in Frobenius norm: means over entries of equal j − i modulo n.

    The discrete Fourier basis diagonalises it, and its eigenvalues are the diagonal of A in that
    basis. As circulant matrices are Toeplitz, A is never nearer to it than to
    `toeplitz_projection(A)`.

    >>> circulant_projection(np.array([[1.0, 4.0], [0.0, 3.0]])).tolist()
    [[2.0, 2.0], [2.0, 2.0]]
    """
    A = sized(A, "the matrix", "n n")
    label = (diagonal_labels(len(A)) + 1) % max(len(A), 1)
    return class_means(A, label, len(A))[label]


@jax.jit
def toeplitz_residual(A: Real[ArrayLike, "n n"]) -> Float[Array, ""]:
    """Share ‖A − T‖² / ‖A‖² that no Toeplitz matrix explains, in [0, 1]; 0 for A = 0.

    Args:
        A: real matrix, `[n, n]`.

    >>> toeplitz_residual(np.diag([1.0, -1.0])).item()
    1.0
    """
    return unexplained_share(A, toeplitz_projection(A))


@jax.jit
def circulant_residual(A: Real[ArrayLike, "n n"]) -> Float[Array, ""]:
    """Share ‖A − C‖² / ‖A‖² that no circulant matrix explains, in [0, 1]; 0 for A = 0.

    >>> circulant_residual(np.array([[0.0, 1.0], [-1.0, 0.0]])).item()
    1.0
    """
    return unexplained_share(A, circulant_projection(A))


def diagonal_labels(n: int) -> Int[Array, "n n"]:
    """The diagonal that each entry of an n × n matrix is on: j − i + n − 1, from 0 to 2n − 2."""
    positions = jnp.arange(n)
    return positions[None, :] - positions[:, None] + n - 1


def class_means(
    A: Float[Array, "n n"],
    label: Int[Array, "n n"],
    classes: int,
    counted: Bool[Array, "n n"] | None = None,
) -> Float[Array, " classes"]:
    """The mean of the entries of each label in [0, classes); 0 for a label without an entry.

    Entries that are not counted are never read. Means are taken of deviations from one of the
    entries, so that equal entries have exactly that mean; the choice of the entry does not matter,
    nor does it for derivatives.
    """
    if counted is not None:
        A, label = jnp.where(counted, A, 0.0), jnp.where(counted, label, classes)
    zeros = jnp.zeros(classes + 1, A.dtype)  # one more class, for entries that do not count
    one = zeros.at[label].set(jax.lax.stop_gradient(A))
    sums = zeros.at[label].add(A - one[label])
    sizes = zeros.at[label].add(1.0)
    return (one + sums / jnp.maximum(sizes, 1.0))[:classes]


def unexplained_share(A: Real[ArrayLike, "n m"], projection: Float[Array, "n m"]) -> Array:
    """Share ‖A − projection‖² / ‖A‖²; 0 for A = 0."""
    A = floating(A)
    missed, size = jnp.sum((A - projection) ** 2), jnp.sum(A**2)
    return missed / jnp.where(size == 0, 1.0, size)
