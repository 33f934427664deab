"""Classical multidimensional scaling, differentiable, and the information-optimal encoding."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int, Integer, Real

from jaxpe._core.arrays import ArrayLike, checked_jit, dot
from jaxpe.geometry.checks import (
    check_size,
    checked_distances,
    checked_encoding,
    checked_symmetric,
    sized,
)
from jaxpe.geometry.counts.distributions import EmptyPolicy, positional_distributions
from jaxpe.geometry.counts.position_counts import count_tokens
from jaxpe.geometry.distances.matrices import (
    Distances,
    as_distances,
    as_present,
    distances_from_gram,
    gram_from_squared,
    hellinger_gram,
    safe_sqrt,
)
from jaxpe.geometry.distances.stress import stress
from jaxpe.geometry.distances.toeplitz import unexplained_share
from jaxpe.geometry.mds.gauge import (
    horizontal_operator,
    inverse_where,
    turning,
    with_fixed_signs,
)


class ClassicalMDS(NamedTuple):
    """Coordinates and spectrum of classical multidimensional scaling.

    Attributes:
        coordinates: float `[n, dim]`, U_d Λ_d^½; columns beyond the rank are 0, and so are the
            rows of absent positions. In each column the entry largest in magnitude is positive.
        eigenvalues: float `[n]`, all eigenvalues of B, descending (absent positions add zeros).
        rank: int, eigenvalues above `n · eps · max|λ|`, with eps of the dtype; −1 for NaN.
        negative_mass: Σ|λ < 0| / Σ|λ|, in [0, 1]; 0 (to rounding) for Euclidean distances.
        gap: λ_d − λ_{d+1}. Derivatives of the coordinates are defined where it is positive (or the
            cut is at or beyond the rank).
        present: bool `[n]`, positions that take part.
    """

    coordinates: Float[Array, "n dim"]
    eigenvalues: Float[Array, " n"]
    rank: Int[Array, ""]
    negative_mass: Float[Array, ""]
    gap: Float[Array, ""]
    present: Bool[Array, " n"]


class InformationOptimalEncoding(NamedTuple):
    """Algorithm 1: the encoding, its stress, and the distances and MDS behind it.

    Attributes:
        coordinates: float `[n, dim]`, the encoding.
        stress: Eq. (4) of the encoding.
        distances: Hellinger distances of the corpus.
        mds: the full result of classical MDS.
    """

    coordinates: Float[Array, "n dim"]
    stress: Float[Array, ""]
    distances: Distances
    mds: ClassicalMDS


class LowRankFactors(NamedTuple):
    """P ≈ A Bᵀ with A `[n, r]`, B `[d, r]`, their r(n + d) parameters and the relative error.

    Attributes:
        A: float `[n, r]`.
        B: float `[d, r]`.
        parameters: number of entries of both, r(n + d).
        relative_error: ‖P − A Bᵀ‖ / ‖P‖.
    """

    A: Float[Array, "n r"]
    B: Float[Array, "d r"]
    parameters: int
    relative_error: Float[Array, ""]


@checked_jit("dim", D=checked_distances)
def classical_mds(D: Distances | Real[ArrayLike, "n n"], *, dim: int) -> ClassicalMDS:
    """Classical (Torgerson) scaling: P = U_d Λ_d^½ from B = −½ H D² H.

    Proposition 6 of Cirrincione (2026) says that P minimises the stress. It minimises the strain ‖P
    Pᵀ − B‖ instead; `smacof` started from it lowers the stress. At dim ≥ rank of Euclidean
    distances both are 0.

    Derivatives, second ones too, are right for every function of P that rotations leave unchanged
    (distances, stress, P Pᵀ), also where eigenvalues repeat. Where the cut between λ_d and λ_{d+1}
    splits equal eigenvalues (`gap` is 0) no derivative exists; the terms that would divide by the
    gap are then 0. Second derivatives of eigenvalues are right where they are distinct; of sums
    over all equal ones, too.
    Inside `jit`, distances that `as_distances` refuses give NaN in coordinates, eigenvalues and
    `gap`.

    Args:
        D: distances (not squared), `Distances` or `[n, n]`.
        dim: number of columns; columns beyond the rank are 0.

    >>> mds = classical_mds(np.array([[0.0, 2.0], [2.0, 0.0]]), dim=1)
    >>> mds.coordinates.round(6).tolist(), mds.rank.item()
    ([[1.0], [-1.0]], 1)
    """
    D = as_distances(D)
    B = gram_from_squared(D.values**2, D.present)
    return classical_mds_from_gram(B, dim=dim, present=D.present)


@checked_jit("dim", B=checked_symmetric)
def classical_mds_from_gram(
    B: Float[ArrayLike, "n n"], *, dim: int, present: Bool[ArrayLike, " n"] | None = None
) -> ClassicalMDS:
    """Classical scaling of a Gram matrix B; negative eigenvalues are clipped to 0.

    Args:
        B: symmetric Gram matrix, `[n, n]`.
        dim: number of columns; columns beyond the rank are 0.
        present: positions that take part, `[n]`; all when None. Rows and columns of others must be
            0 in B.

    >>> classical_mds_from_gram(np.diag([4.0, 1.0]), dim=1).coordinates.tolist()
    [[2.0], [0.0]]
    """
    B = sized(B, "the Gram matrix", "n n")
    n = B.shape[0]
    check_size("dim", dim, each=n)
    if not n:
        raise ValueError("the Gram matrix has shape (0, 0): pass at least one position")
    columns = min(dim, n)
    present = as_present(present, n)
    coordinates, eigenvalues, _ = principal_coordinates(B, columns)
    # Zero rows of B leave rounding errors in the eigenvectors.
    coordinates = jnp.where(present[:, None], coordinates, 0.0)
    rank = jnp.sum(eigenvalues > _tolerance(eigenvalues))
    magnitude = jnp.abs(eigenvalues)
    negative = jnp.sum(jnp.where(eigenvalues < 0, magnitude, 0.0))
    total = jnp.sum(magnitude)
    following = eigenvalues[columns] if columns < n else jnp.zeros((), B.dtype)
    return ClassicalMDS(
        coordinates=jnp.pad(coordinates, ((0, 0), (0, dim - columns))),
        eigenvalues=eigenvalues,
        rank=jnp.where(jnp.isnan(eigenvalues[0]), -1, rank),
        negative_mass=negative / jnp.where(total == 0, 1.0, total),
        gap=eigenvalues[columns - 1] - following,
        present=present,
    )


def information_optimal_encoding(
    ids: Integer[ArrayLike, "documents n"],
    *,
    vocab_size: int,
    dim: int,
    mask: Bool[ArrayLike, "documents n"] | None = None,
    exclude: Sequence[int] = (),
    empty: EmptyPolicy = "drop",
    smoothing: float = 0.0,
) -> InformationOptimalEncoding:
    """Algorithm 1 of Cirrincione (2026) in one call: ids to P_MDS `[n, dim]` and its stress.

    Args:
        ids, vocab_size, mask, exclude: arguments of `count_tokens`.
        dim: number of columns; columns beyond the rank are 0.
        empty, smoothing: arguments of `positional_distributions`.

    >>> ids = np.random.default_rng(0).integers(0, 9, (50, 4))
    >>> encoding = information_optimal_encoding(ids, vocab_size=9, dim=3)
    >>> encoding.coordinates.shape, bool(encoding.stress < 1e-6)
    ((4, 3), True)
    """
    counts = count_tokens(ids, vocab_size=vocab_size, mask=mask, exclude=exclude)
    mu = positional_distributions(counts, empty=empty, smoothing=smoothing)
    gram = hellinger_gram(mu)
    distances = distances_from_gram(gram, present=mu.present)
    mds = classical_mds_from_gram(gram, dim=dim, present=mu.present)
    loss = stress(mds.coordinates, distances)
    return InformationOptimalEncoding(mds.coordinates, loss, distances, mds)


def low_rank_factors(P: Float[ArrayLike, "n d"], *, rank: int) -> LowRankFactors:
    """Best factors P ≈ A Bᵀ of a given rank (Eckart–Young), r(n + d) parameters (Remark 8).

    B has orthonormal columns and A = P B. The derivative is right for every function of A Bᵀ,
    also where singular values repeat. Where the cut splits equal ones no derivative exists, and the
    terms that would divide by their difference are 0.

    Args:
        P: position vectors, `[n, d]`.
        rank: r, from 1 to min(n, d).

    >>> low_rank_factors(np.ones((32, 128)), rank=3).parameters
    480
    """
    P = sized(checked_encoding(P), "P", "n d")
    n, d = P.shape
    if not 1 <= rank <= min(n, d):
        raise ValueError(f"rank must lie in [1, {min(n, d)}] for shape {P.shape}, not {rank}")
    B = _jitted_row_space(P, rank)
    A = dot(P, B)
    error = safe_sqrt(unexplained_share(P, dot(A, B.T)))
    return LowRankFactors(A, B, rank * (n + d), error)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def row_space(P: Array, rank: int) -> Array:
    """The leading right singular vectors V_r of P, as columns."""
    return jnp.linalg.svd(P, full_matrices=False)[2][:rank].T


_jitted_row_space = jax.jit(row_space, static_argnums=1)


# Y = V_r matters up to rotations of its columns, so its derivative Z is taken orthogonal to Y. With
# A = PᵀP and K = Yᵀ A Y it solves Z K − A Z = (1 − Y Yᵀ) dA Y, in the basis of the right singular
# vectors Z_cb = (Vᵀ dA Y)_cb / (s_b² − s_c²). The term 2 Y K Yᵀ Z, which is 0, makes all
# denominators of kept rows s_a² + s_b². No derivative of the singular vectors is needed, so that
# second derivatives are right where singular values repeat.
@row_space.defjvp
def _row_space_jvp(rank, primals, tangents):
    (P,), (dP,) = primals, tangents
    Y = row_space(P, rank)
    # Y does not depend on the scale of P, whose squares may be no floats.
    largest = jnp.max(jnp.abs(lax.stop_gradient(P)), initial=0.0)
    P, dP = (x / jnp.where(largest == 0, 1.0, largest) for x in (P, dP))
    PY = dot(P, Y)
    K = dot(PY.T, PY)
    moved = dot(dP.T, PY) + dot(P.T, dot(dP, Y))
    _, s, Vt = jnp.linalg.svd(lax.stop_gradient(P), full_matrices=False)
    least = max(P.shape) * jnp.finfo(P.dtype).eps * jnp.max(s, initial=0.0)
    b, c = s[None, :rank], jnp.where(jnp.arange(len(s)) < rank, s, -s)[:, None]
    inverse = inverse_where(b + c > least, b**2 + c * jnp.abs(c))

    def operator(Z: Array) -> Array:
        return dot(Z, K) + 2.0 * dot(Y, dot(K, dot(Y.T, Z))) - dot(P.T, dot(P, Z))

    def solve(_: Any, R: Array) -> Array:
        coefficients = dot(Vt, R)
        outside = R - dot(Vt.T, coefficients)
        return dot(Vt.T, coefficients * inverse) + outside * inverse_where(b > least, b**2)

    right = moved - dot(Y, dot(Y.T, moved))
    return Y, lax.custom_linear_solve(operator, right, solve, symmetric=True)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def principal_coordinates(B: Array, dim: int) -> tuple[Array, Array, Array]:
    """U_d Λ_d^½ with signs fixed; all eigenvalues, descending, and all eigenvectors."""
    eigenvalues, V = jnp.linalg.eigh(0.5 * (B + B.T))
    eigenvalues, V = eigenvalues[::-1], with_fixed_signs(V[:, ::-1])
    positive = eigenvalues[:dim] > _tolerance(eigenvalues)
    scale = jnp.sqrt(jnp.where(positive, eigenvalues[:dim], 0.0))
    return V[:, :dim] * scale[None, :], eigenvalues, V


# The derivative of the coordinates solves `horizontal_operator`(dX) = dB X, whose denominators are
#   λ_a + λ_b for kept rows a: repeated eigenvalues do no harm;
#   λ_b − λ_c for dropped rows c, undefined only where the cut splits a cluster.
# Eigenvalues and eigenvectors move by dλ_a = M_aa and dV = V (M / (λ_b − λ_a)), with M = Vᵀ dB V.
@principal_coordinates.defjvp
def _principal_coordinates_jvp(dim, primals, tangents):
    (B,), (dB,) = primals, tangents
    X, eigenvalues, V = principal_coordinates(B, dim)
    B, dB = 0.5 * (B + B.T), 0.5 * (dB + dB.T)
    M = dot(V.T, dB, V)
    dV = dot(V, turning(M, eigenvalues, _tolerance(eigenvalues)))
    basis, spectrum = lax.stop_gradient((V, eigenvalues))
    least = _tolerance(spectrum)
    kept = (jnp.arange(len(B)) < dim) & (spectrum > least)
    sums = jnp.where(kept, spectrum, -spectrum)[:, None] + spectrum[None, :dim]
    inverse = inverse_where(kept[None, :dim] & (sums > least), sums)

    def solve(_: Any, R: Array) -> Array:
        return dot(basis, dot(basis.T, R) * inverse)

    operator = partial(horizontal_operator, partial(dot, B), X)
    dX = lax.custom_linear_solve(operator, dot(dB, X), solve, symmetric=True)
    return (X, eigenvalues, V), (dX, jnp.diagonal(M), dV)


def _tolerance(eigenvalues: Array) -> Array:
    """Magnitude below which an eigenvalue of B counts as 0: n · eps · max|λ|."""
    eps = jnp.finfo(eigenvalues.dtype).eps
    return len(eigenvalues) * eps * jnp.max(jnp.abs(eigenvalues))
