r"""Effect of phases on the spectrum of logits, and its limits.

Rotary logits of one frequency θ are Re[W ∘ E], with W the Gram matrix of complex pairs and E_mn =
e^{i(m−n)θ}. E is positive semidefinite, of rank one, with unit diagonal. Lemma B.1 of arXiv
2505.13027 calls W ∘ E a contraction of W. What holds:

- For W ⪰ 0 and E ⪰ 0 the eigenvalues of W ∘ E lie between min E_ii · λ_min(W) and
  max E_ii · λ_max(W) (Schur; Theorem 5.3.4 of Horn & Johnson 1991). With a constant diagonal of E
  it holds for any Hermitian W, because shifting W by cI shifts W ∘ E by a multiple of I.
- For one frequency W ∘ E = D W D* with D = diag(e^{imθ}) is a unitary similarity: the spectrum of W
  does not change at all. Only what follows can contract: the real part, or a sum.
- For real W, symmetric or not, W ∘ cos((m − n)θ) = (D W D* + D* W D)/2 is a mean of two such
  matrices. So no norm of its singular values grows, and for symmetric W its eigenvalues stay
  between the extreme ones of W. For Toeplitz W with symbol f the symbol becomes (f(ω − θ) + f(ω +
  θ))/2, of no greater amplitude.
- If all pairs of queries and keys have the same W ⪰ 0, as in the lemma, the sum over frequencies is
  W ∘ Ē, with Ē the mean of the cosines. Ē is positive semidefinite with unit diagonal, so W ∘ Ē
  contracts W.

What does not follow:

- That rotary logits contract the logits without positions. If the pairs of queries and keys differ,
  W is complex, and Re[D W D*] may be large although Re W = 0.
- That a sum over frequencies contracts the sum of different W_p. Each Re[W_p ∘ E_p] stays within
  the range of W_p, but ranges of summands do not bound the range of Σ W_p from below: W_1 + W_2 = I
  has range 0, and W_1 ∘ E_1 + W_2 ∘ E_2 need not.
- That rotary logits are more contracted than additive ones, W + T. The bound compares W ∘ E with W
  alone; the range of W + T may be smaller or greater than the range of W ∘ E.
- Anything about optimisation.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Inexact, Num

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.base import broadcast_mask
from jaxpe.geometry.mds.entropy_rank import effective_number
from jaxpe.spectral.toeplitz import (
    Kind,
    descending_values,
    diagonals_of,
    inexact,
    square,
    symbol,
    symmetric_part,
)


class Spectrum(NamedTuple):
    """Eigenvalues or singular values v of a matrix, with its ranks, condition number and range.

    All fields but the values are invariant to scale. Values below n·eps·max |v| count as 0.

    Attributes:
        values: v, descending.
        effective_rank: exp(−Σ p log p) for p = |v| / Σ |v| (Roy & Vetterli 2007), from 1 to n; 0
            for a zero matrix.
        stable_rank: ‖·‖_F² / ‖·‖₂² = Σ v² / max v², from 1 to n; 0 for a zero matrix.
        condition_number: max |v| / min |v|; inf where the matrix is singular.
        range: max v − min v at Σ v² = 1; 0 for a zero matrix.
    """

    values: Float[Array, "... n"]
    effective_rank: Float[Array, "..."]
    stable_rank: Float[Array, "..."]
    condition_number: Float[Array, "..."]
    range: Float[Array, "..."]


class SchurBounds(NamedTuple):
    """Both sides of Schur's inequality for the eigenvalues of W ∘ E.

    Attributes:
        lower, upper: min diag(E) · λ_min(W), and max diag(E) · λ_max(W).
        values: eigenvalues of W ∘ E, descending.
        lower_slack, upper_slack: λ_min(W ∘ E) − lower, and upper − λ_max(W ∘ E).
        holds: whether both slacks are at least 0, to the tolerance.
        smallest_w, smallest_e: λ_min(W) and λ_min(E).
        hypotheses: whether W and E are Hermitian and positive semidefinite, to the tolerance.
    """

    lower: Float[Array, "..."]
    upper: Float[Array, "..."]
    values: Float[Array, "... n"]
    lower_slack: Float[Array, "..."]
    upper_slack: Float[Array, "..."]
    holds: Bool[Array, "..."]
    smallest_w: Float[Array, "..."]
    smallest_e: Float[Array, "..."]
    hypotheses: Bool[Array, "..."]


@partial(jax.jit, static_argnames="kind")
def spectrum(
    L: Num[ArrayLike, "... n n"],
    *,
    kind: Kind = "eigenvalues",
    mask: Bool[ArrayLike, "... n n"] | None = None,
) -> Spectrum:
    """Spectrum of logit matrices: eigenvalues of the symmetric part, or singular values.

    Logits are seldom symmetric, so "eigenvalues" belong to the symmetric part (L + Lᵀ)/2;
    "singular" values belong to L itself. The eigenvalues of causal logits would only be their
    diagonal. Their symmetric part, which halves the entries off the diagonal, and their singular
    values tell more.

    The derivative of `effective_rank` is right where values repeat, and grows without bound as a
    value approaches 0. The other fields depend on the largest or smallest value, and have no
    derivative where it repeats.

    Args:
        L: logits, real or complex.
        kind: "eigenvalues" or "singular".
        mask: entries that a query may attend to; others count as 0, even −inf.

    Raises:
        ValueError: a matrix that is not square, an unknown kind, or a mask that is not boolean.

    >>> s = spectrum(np.diag([1.0, -1.0, 0.0]))
    >>> s.values.tolist(), round(s.effective_rank.item(), 6), round(s.range.item(), 6)
    ([1.0, 0.0, -1.0], 2.0, 1.414214)
    >>> s.condition_number.item()
    inf
    """
    L = inexact(square(L))
    if mask is not None:
        L = jnp.where(broadcast_mask(mask, L.shape), L, jnp.zeros((), L.dtype))
    values = descending_values(L, kind)
    size = jnp.abs(values)
    largest = jnp.max(size, axis=-1)
    zero = largest == 0
    size = size / jnp.where(zero, 1.0, largest)[..., None]
    singular = jnp.min(size, axis=-1) <= _resolution(values)
    least = jnp.where(singular, 1.0, jnp.min(size, axis=-1))
    squares = jnp.sum(size**2, axis=-1)
    width = (values[..., 0] - values[..., -1]) / jnp.where(zero, 1.0, largest)
    return Spectrum(
        values,
        effective_number(size, size <= _resolution(size)),
        squares,
        jnp.where(singular, jnp.inf, 1.0 / least),
        width / jnp.sqrt(jnp.where(zero, 1.0, squares)),
    )


@partial(jax.jit, static_argnames="tolerance")
def schur_bounds(
    W: Num[ArrayLike, "... n n"], E: Num[ArrayLike, "... n n"], *, tolerance: float | None = None
) -> SchurBounds:
    """Schur's bounds for W ⪰ 0 and E ⪰ 0: min E_ii λ_min(W) ≤ λ(W ∘ E) ≤ max E_ii λ_max(W).

    Theorem 5.3.4 of Horn & Johnson, Topics in Matrix Analysis (1991). For the phases of a rotary
    encoding E_ii = 1, so the eigenvalues of W ∘ E lie between the extreme ones of W. This module's
    docstring lists what does not follow.

    Args:
        W, E: symmetric or Hermitian, of one size, such as the Gram matrix of complex pairs; leading
            axes broadcast. Eigenvalues are taken of the symmetric part; if one of the two is not
            symmetric, `hypotheses` is False.
        tolerance: relative to the largest eigenvalue of each matrix; 10·n·eps when None.

    Raises:
        ValueError: matrices that are not square or not of one size.

    >>> W = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> bounds = schur_bounds(W, np.array([[1.0, -0.5], [-0.5, 1.0]]))
    >>> lower, upper = bounds.lower.round(6).item(), bounds.upper.round(6).item()
    >>> lower, bounds.values.round(6).tolist(), upper
    (1.0, [2.5, 1.5], 3.0)
    >>> bounds.hypotheses.item(), bounds.holds.item()
    (True, True)
    """
    W, E = _pair(W, E)
    w_values, e_values, values = (descending_values(A, "eigenvalues") for A in (W, E, W * E))
    if tolerance is None:
        tolerance = 10 * _resolution(values)
    diagonal = jnp.diagonal(E, axis1=-2, axis2=-1).real
    lower = jnp.min(diagonal, axis=-1) * w_values[..., -1]
    upper = jnp.max(diagonal, axis=-1) * w_values[..., 0]
    below, above = values[..., -1] - lower, upper - values[..., 0]
    off = tolerance * jnp.max(jnp.abs(diagonal), axis=-1) * jnp.max(jnp.abs(w_values), axis=-1)
    return SchurBounds(
        lower=lower,
        upper=upper,
        values=values,
        lower_slack=below,
        upper_slack=above,
        holds=jnp.minimum(below, above) >= -off,
        smallest_w=w_values[..., -1],
        smallest_e=e_values[..., -1],
        hypotheses=_positive(W, w_values, tolerance) & _positive(E, e_values, tolerance),
    )


@jax.jit
def contraction_ratio(
    W: Num[ArrayLike, "... n n"], E: Num[ArrayLike, "... n n"]
) -> Float[Array, "..."]:
    """Contraction ratio: λ_max − λ_min of W ∘ E over λ_max − λ_min of W, of symmetric parts.

    At most 1 for W = W*, E ⪰ 0 and E_ii = 1. It is 1 up to rounding for the complex phases of one
    frequency, a unitary similarity; their real part cos((m − n)θ) contracts. If W is a multiple of
    the identity, the ratio is 1 if W ∘ E is one too, and otherwise inf. It has no derivative where
    an extreme eigenvalue repeats.

    Args:
        W, E: square matrices of one size, as in `schur_bounds`.

    >>> contraction_ratio(np.ones((2, 2)), np.array([[1.0, 0.5], [0.5, 1.0]])).round(6).item()
    0.5
    """
    W, E = _pair(W, E)
    before, after = (descending_values(A, "eigenvalues") for A in (W, W * E))
    least = _resolution(before) * jnp.max(jnp.abs(before), axis=-1)
    before, after = before[..., 0] - before[..., -1], after[..., 0] - after[..., -1]
    flat = before <= least
    ratio = after / jnp.where(flat, 1.0, before)
    return jnp.where(flat, jnp.where(after <= least, 1.0, jnp.inf), ratio)


def phase_mixing(
    diagonals: Num[ArrayLike, "... diagonals"], theta: float | ArrayLike
) -> Inexact[Array, "... diagonals"]:
    """Diagonals t_k cos(kθ) of T ∘ cos((m − n)θ), whose symbol is (f(ω − θ) + f(ω + θ))/2.

    The mean of two shifted copies of f has no greater amplitude than f: the rigorous content of
    Lemma B.1 of arXiv 2505.13027, for one frequency and a Toeplitz T.

    Args:
        diagonals: t_k, as for `toeplitz_matrix`.
        theta: θ in radians a position, one number.

    >>> phase_mixing(np.array([1.0, 3.0, 1.0]), np.pi / 3).round(6).tolist()
    [0.5, 3.0, 0.5]
    """
    t = diagonals_of(diagonals)
    half = t.shape[-1] // 2
    theta = jnp.asarray(theta, jnp.finfo(t.dtype).dtype)
    if theta.ndim:
        raise ValueError(f"theta has shape {theta.shape}: pass one number, and vmap over more")
    cos = jnp.cos(jnp.arange(-half, half + 1, dtype=theta.dtype) * theta).astype(t.dtype)
    return t * cos.reshape((1,) * (t.ndim - 1) + cos.shape)


@partial(jax.jit, static_argnames="samples")
def amplitude(
    diagonals: Num[ArrayLike, "... diagonals"], *, samples: int | None = None
) -> Float[Array, "..."]:
    """max f − min f of the symbol (of Re f where T is not Hermitian), on a grid of frequencies.

    The spectrum of every symmetric section lies in between. On a grid of m > 2K frequencies, f of
    degree K = n − 1, the true amplitude is at most 1/cos(πK/m) times this one (Ehlich & Zeller
    1964): half a percent more with the default.

    Args:
        diagonals: t_k, as for `toeplitz_matrix`.
        samples: m, frequencies 2πk/m; 16 for each diagonal when None.

    >>> amplitude(np.array([1.0, 3.0, 1.0])).round(6).item()
    4.0
    """
    t = diagonals_of(diagonals)
    samples = 16 * t.shape[-1] if samples is None else samples
    if samples < t.shape[-1]:
        raise ValueError(
            f"samples is {samples}, too few for {t.shape[-1]} diagonals: pass several times as many"
        )
    f = symbol(t, np.arange(samples) * (2 * np.pi / samples)).real
    return jnp.max(f, axis=-1) - jnp.min(f, axis=-1)


def _resolution(values: Float[Array, "... n"]) -> float:
    """n·eps: values smaller than this, relative to the largest, are rounding errors."""
    return values.shape[-1] * float(jnp.finfo(values.dtype).eps)


def _pair(W: ArrayLike, E: ArrayLike) -> tuple[Array, ...]:
    """Both matrices in one dtype and one shape."""
    W, E = inexact(square(W)), inexact(square(E))
    if W.shape[-1] != E.shape[-1]:
        raise ValueError(f"W has shape {W.shape}, E {E.shape}: pass both of one size, [..., n, n]")
    shape = jnp.broadcast_shapes(W.shape, E.shape)
    dtype = np.result_type(W.dtype, E.dtype)
    return tuple(jnp.broadcast_to(A, shape).astype(dtype) for A in (W, E))


def _positive(A: Array, values: Float[Array, "... n"], tolerance: float) -> Bool[Array, "..."]:
    """Whether A is Hermitian and its smallest eigenvalue not below 0."""
    largest = jnp.max(jnp.abs(values), axis=-1)
    asymmetry = jnp.max(jnp.abs(A - symmetric_part(A)), axis=(-2, -1))
    return (values[..., -1] >= -tolerance * largest) & (asymmetry <= tolerance * largest)
