"""Toeplitz matrices by their diagonals, their symbols, and Szegő's theorem at finite size.

A Toeplitz matrix T_ij = t_{j−i} is represented by its diagonals, `[2n − 1]`, from t_{−(n−1)}, the
lower left corner, to t_{n−1}, with t_0 in the middle.
"""

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Complex, Float, Inexact, Num, Real

from jaxpe._core.arrays import ArrayLike, dot
from jaxpe.encodings.base import broadcast_mask
from jaxpe.geometry.distances.matrices import floating
from jaxpe.geometry.distances.toeplitz import class_means, diagonal_labels

Kind = Literal["eigenvalues", "singular"]


class Szego(NamedTuple):
    """The spectrum of a section of a Toeplitz matrix, compared with its symbol.

    Attributes:
        values: eigenvalues or singular values of the n × n section, descending.
        samples: the symbol (singular values: its modulus) at the frequencies 2πk/n, descending.
        distance: mean |values − samples| over the joint range of both, in [0, 1]; 0 where all are
            equal.
    """

    values: Float[Array, "... n"]
    samples: Float[Array, "... n"]
    distance: Float[Array, "..."]


@jax.jit
def diagonal_means(
    A: Real[ArrayLike, "... n n"], *, mask: Bool[ArrayLike, "... n n"] | None = None
) -> Float[Array, "... diagonals"]:
    """The mean t_k of each diagonal j − i = k, `[..., 2n − 1]` from k = −(n − 1) to n − 1.

    They are the diagonals of `toeplitz_projection(A)`; equal entries are preserved to the last
    digit.

    Args:
        A: square matrices, `[..., n, n]`.
        mask: entries that count, such as `np.tri(n, dtype=bool)` for causal logits. Other entries,
            even −inf, are never read. A diagonal without an entry that counts is 0.

    Raises:
        ValueError: a matrix that is not square, or a mask that is not boolean.

    >>> A = np.array([[1.0, 9.0], [4.0, 3.0]])
    >>> diagonal_means(A).tolist(), diagonal_means(A, mask=np.tri(2, dtype=bool)).tolist()
    ([4.0, 2.0, 9.0], [4.0, 2.0, 0.0])
    """
    A = floating(square(A))
    n = A.shape[-1]
    counted = broadcast_mask(np.ones((n, n), bool) if mask is None else mask, A.shape)

    def means(A: Array, counted: Array) -> Array:
        return class_means(A, diagonal_labels(n), 2 * n - 1, counted)

    return jnp.vectorize(means, signature="(n,n),(n,n)->(k)")(A, counted)


@partial(jax.jit, static_argnames="n")
def toeplitz_matrix(
    diagonals: Num[ArrayLike, "... diagonals"], *, n: int | None = None
) -> Inexact[Array, "... n n"]:
    """The n × n Toeplitz matrix T_ij = t_{j−i}, real or complex.

    Args:
        diagonals: t_k in the order of k, an odd number of them.
        n: number of rows; (number of diagonals + 1)/2 when None. For fewer rows the far diagonals
            are left out; for more they are 0, so a few diagonals make a banded matrix of any size.

    >>> toeplitz_matrix(np.array([4.0, 2.0, 9.0]), n=3).tolist()
    [[2.0, 9.0, 0.0], [4.0, 2.0, 9.0], [0.0, 4.0, 2.0]]
    """
    t = _middle_diagonals(diagonals_of(diagonals), n)
    return t[..., diagonal_labels((t.shape[-1] + 1) // 2)]


@jax.jit
def symbol(
    diagonals: Num[ArrayLike, "... diagonals"], frequencies: Real[ArrayLike, " m"]
) -> Complex[Array, "... m"]:
    """The symbol f(ω) = Σ_k t_k e^{ikω}; its imaginary part is exactly 0 for a Hermitian T.

    Args:
        diagonals: t_k; further diagonals are 0.
        frequencies: ω in radians a position.

    >>> f = symbol(np.array([1.0, 2.0, 1.0]), np.array([0.0, np.pi]))
    >>> f.real.round(6).tolist(), f.imag.tolist()
    ([4.0, 0.0], [0.0, 0.0])
    """
    t = diagonals_of(diagonals)
    omega = jnp.asarray(frequencies, jnp.finfo(t.dtype).dtype)
    if omega.ndim != 1:
        raise ValueError(f"frequencies have shape {omega.shape}: pass one axis, [m]")
    middle = t.shape[-1] // 2
    behind, before = t[..., middle + 1 :], t[..., :middle][..., ::-1]
    angles = jnp.arange(1, middle + 1, dtype=omega.dtype)[:, None] * omega[None, :]
    # Even and odd parts separately, so that cancelling terms cancel before rounding.
    cos, sin = (f(angles).astype(t.dtype) for f in (jnp.cos, jnp.sin))
    even, odd = t[..., middle, None] + dot(behind + before, cos), dot(behind - before, sin)
    return even + 1j * odd if jnp.iscomplexobj(t) else lax.complex(even, odd)


@partial(jax.jit, static_argnames=("n", "kind"))
def szego(
    diagonals: Num[ArrayLike, "... diagonals"], *, n: int, kind: Kind = "eigenvalues"
) -> Szego:
    """Compare the spectrum of the n × n section with the symbol at the n Fourier frequencies.

    For a bounded symbol the eigenvalues of Hermitian sections are distributed as f for n → ∞
    (Szegő; Grenander & Szegő 1958), and the singular values of any section as |f| (Parter 1986,
    Avram 1988). At finite n `distance` measures the deviation; for a banded matrix it is of the
    order of the bandwidth over n. It also falls if one eigenvalue outgrows all others, as for t_k =
    1 or −|k|, which have no bounded symbol: a small distance alone does not prove one.

    Args:
        diagonals: t_k; further diagonals are 0.
        n: rows of the section.
        kind: "eigenvalues" of the `symmetric_part` of T, whose symbol is Re f, or "singular"
            values.

    Raises:
        ValueError: an n below 1, or an unknown kind.

    >>> band = np.array([1.0, 2.0, 1.0])
    >>> [round(szego(band, n=n).distance.item(), 3) for n in (8, 64)]
    [0.062, 0.008]
    """
    t = diagonals_of(diagonals)
    T = toeplitz_matrix(t, n=n)
    f = symbol(t, np.arange(n) * (2 * np.pi / n))
    values = descending_values(T, kind)
    samples = jnp.sort(f.real if kind == "eigenvalues" else jnp.abs(f), descending=True)
    both = jnp.concatenate([values, samples], axis=-1)
    width = jnp.max(both, axis=-1) - jnp.min(both, axis=-1)
    apart = jnp.mean(jnp.abs(values - samples), axis=-1)
    return Szego(values, samples, apart / jnp.where(width == 0, 1.0, width))


def symmetric_part(A: Num[ArrayLike, "... n n"]) -> Inexact[Array, "... n n"]:
    """Symmetric part (A + A*)/2, on which alone the real part of x*Ax depends.

    >>> symmetric_part(np.array([[1.0, 2.0], [0.0, 1.0]])).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    A = inexact(square(A))
    return (A + jnp.conj(jnp.swapaxes(A, -1, -2))) / 2


def descending_values(A: Inexact[Array, "... n n"], kind: str) -> Float[Array, "... n"]:
    """Eigenvalues of the symmetric part, or singular values; raises for an unknown kind."""
    if kind not in ("eigenvalues", "singular"):
        raise ValueError(f"unknown kind {kind!r}: pass 'eigenvalues' or 'singular'")
    if kind == "singular":
        return _matrix_spectra(A, singular=True)
    return _matrix_spectra(symmetric_part(A), singular=False)[..., ::-1]


@partial(jax.jit, static_argnames="singular")
def _matrix_spectra(A: Array, *, singular: bool) -> Array:
    """Singular values or eigenvalues of every matrix; on a CPU one matrix after another."""

    # LAPACK distributes a batch over the threads that run the program. Two batched decompositions
    # at once, on two threads, deadlock while waiting for a free thread (jaxlib 0.10, on two cores).
    def values(A: Array) -> Array:
        if singular:
            return jnp.linalg.svd(A, compute_uv=False)
        return jnp.linalg.eigvalsh(A, symmetrize_input=False)

    def loop(A: Array) -> Array:
        return lax.map(values, A.reshape(-1, *A.shape[-2:])).reshape(A.shape[:-1])

    if A.ndim == 2 or 0 in A.shape:
        return values(A)
    return lax.platform_dependent(A, cpu=loop, default=values)


def square(A: ArrayLike) -> Array:
    """The matrices; raises unless they are square."""
    A = jnp.asarray(A)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2] or A.shape[-1] < 1:
        raise ValueError(f"the matrix has shape {A.shape}: pass a square one, [..., n, n]")
    return A


def inexact(x: ArrayLike) -> Array:
    """A floating or complex array of at least 32 bits a number."""
    x = jnp.asarray(x)
    if jnp.iscomplexobj(x):
        return x
    return floating(x)


def diagonals_of(diagonals: ArrayLike) -> Array:
    """The diagonals as floating or complex numbers; raises for an even number of them."""
    t = inexact(diagonals)
    if t.ndim < 1 or t.shape[-1] % 2 == 0:
        raise ValueError(
            f"the diagonals have shape {t.shape}: pass an odd number of them, [..., 2n − 1] from "
            "t_{−(n−1)} to t_{n−1}"
        )
    return t


def _middle_diagonals(t: Array, n: int | None) -> Array:
    """The 2n − 1 middle diagonals, padded with zeros."""
    size = (t.shape[-1] + 1) // 2
    if n is None:
        return t
    if n < 1:
        raise ValueError(f"n is {n}: a matrix has at least one row")
    if n <= size:
        return t[..., size - n : size + n - 1]
    return jnp.pad(t, [(0, 0)] * (t.ndim - 1) + [(n - size, n - size)])
