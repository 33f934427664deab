"""Remark 7: does stationarity make B circulant, and P_MDS Vaswani's encoding?"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Real

from jaxpe._core.arrays import ArrayLike, dot
from jaxpe.encodings.families.absolute import sinusoidal_vectors
from jaxpe.encodings.families.orthogonal import cosine_vectors
from jaxpe.geometry.distances.matrices import (
    as_present,
    centre_rows,
    floating,
    gram_from_squared,
    pair_mask,
    safe_sqrt,
)
from jaxpe.geometry.distances.stress import scaled_stress
from jaxpe.geometry.distances.toeplitz import (
    circulant_residual,
    toeplitz_projection,
    toeplitz_residual,
)
from jaxpe.geometry.mds.classical import classical_mds_from_gram
from jaxpe.theory.audit import Audit, less_equal
from jaxpe.theory.lipschitz import share

# Sinusoids of long wavelength are nearly constant or linear over n positions. A direction counts
# as spanned if the encoding's size along it is at least this share of the greatest.
_NEGLIGIBLE = 1e-3


@partial(jax.jit, static_argnames=("dim", "tolerance"))
def remark_7(
    squared_distances: Real[ArrayLike, "n n"], *, dim: int, tolerance: float = 0.05
) -> Audit:
    """Measure the steps of Remark 7 on squared distances between n consecutive positions.

    Cirrincione (2026), Section 5.4; false as stated of B. The remark has no numbers, so each share
    that it calls small is compared with `tolerance`. Hypothesis "stationary": share of the variance
    of d²_ij, i ≠ j, that |i − j| leaves unexplained (0 for constant distances). Conclusions: "B
    circulant", `circulant_residual(B)`; "Fourier eigenvectors", the share lost when each of the
    first `dim` eigenvectors, weighted by its eigenvalue, is projected on its best pair cos,
    sin(2πki/n); "Vaswani's span", one minus the mean cos² of the principal angles between the first
    `dim` MDS coordinates and the (centred) sinusoidal encoding of width `dim`.

    Measured: `toeplitz_residual` of B; by eigenvector `eigenvalue_share`, `fourier_share` and
    `cosine_share` (in its best single cosine of the DCT-II); `principal_cosines`; `overlap` (mean
    cos²) and `overlap_random`, its expectation for a random subspace as wide as the one that the
    sinusoids span (numerically: see `_NEGLIGIBLE`); `variance_in_span` of P_MDS;
    `scaled_stress_mds` and `scaled_stress_sinusoidal` at width `dim`. Directions with eigenvalues
    not above 0 have shares of 0 and no weight.

    Args:
        squared_distances: plug-in `D.values**2`, or the squared distances of `position_geometry`
            (negative ones are 0 for the stress), of present positions alone.
        dim: leading eigenvectors, and width of the encoding; even.
        tolerance: deviation that counts as approximate, in (0, 1).

    >>> audit = remark_7(stationary_squared_distances(32, scale=32.0), dim=4)
    >>> circulant = audit.conclusions["B circulant"]
    >>> audit.hypotheses["stationary"].holds.item(), circulant.holds.item()
    (True, False)
    >>> audit.measured["cosine_share"].round(2).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    squared = floating(squared_distances)
    n = squared.shape[0]
    if dim % 2 or not 2 <= dim < n:
        raise ValueError(f"dim must be even and lie in [2, {n - 1}] for {n} positions, not {dim}")
    B = gram_from_squared(squared, as_present(None, n))
    mds = classical_mds_from_gram(B, dim=dim)
    size = jnp.sum(mds.coordinates**2, axis=0)
    vectors = share(mds.coordinates, jnp.sqrt(size)[None, :])
    weight = share(size, jnp.sum(size))
    fourier = _fourier_share(vectors)
    sinusoidal = sinusoidal_vectors(jnp.arange(n), dim=dim).astype(squared.dtype)
    spanned, width = _span(centre_rows(sinusoidal, as_present(None, n)))
    inner = dot(spanned.T, vectors)
    overlap = jnp.sum(inner**2) / jnp.maximum(jnp.sum(size > 0), 1).astype(squared.dtype)
    D = safe_sqrt(squared)
    measured = {
        "toeplitz_residual": toeplitz_residual(B),
        "eigenvalue_share": weight,
        "fourier_share": fourier,
        "cosine_share": _cosine_share(vectors),
        "principal_cosines": jnp.linalg.svd(inner, compute_uv=False),
        "overlap": overlap,
        "overlap_random": width / (n - 1),
        "variance_in_span": jnp.sum(inner**2 * weight[None, :]),
        "scaled_stress_mds": scaled_stress(mds.coordinates, D).stress,
        "scaled_stress_sinusoidal": scaled_stress(sinusoidal, D).stress,
    }
    return Audit(
        {"stationary": less_equal(unexplained_by_offset(squared), tolerance)},
        {
            "B circulant": less_equal(circulant_residual(B), tolerance),
            "Fourier eigenvectors": less_equal(1.0 - jnp.sum(weight * fourier), tolerance),
            "Vaswani's span": less_equal(1.0 - overlap, tolerance),
        },
        measured,
    )


def unexplained_by_offset(A: Real[ArrayLike, "n n"]) -> Float[Array, ""]:
    """Share of the variance of A_ij, i ≠ j, that j − i leaves unexplained; 0 where all are equal.

    >>> A = np.array([[0.0, 1.0, 5.0], [1.0, 0.0, 3.0], [5.0, 3.0, 0.0]])
    >>> unexplained_by_offset(A).item()
    0.25
    """
    A = floating(A)
    off = pair_mask(as_present(None, A.shape[0])).astype(A.dtype)
    mean = jnp.sum(off * A) / jnp.maximum(jnp.sum(off), 1.0)
    missed = jnp.sum(off * (A - toeplitz_projection(A)) ** 2)
    variance = jnp.sum(off * (A - mean) ** 2)
    constant = variance <= (64.0 * jnp.finfo(A.dtype).eps) ** 2 * jnp.sum(off * A**2)
    return jnp.where(constant, 0.0, missed / jnp.where(constant, 1.0, variance))


def stationary_squared_distances(n: int, *, scale: float) -> Float[Array, "n n"]:
    """2(1 − exp(−|i − j|/scale)): exactly stationary, and squared distances of unit vectors.

    The counterexample: B is far from circulant unless scale ≪ n. The kernel is positive definite
    with entries in [0, 1]; as scale grows, B tends to the B of Brownian motion, whose eigenvectors
    are exactly the DCT-II.

    >>> stationary_squared_distances(2, scale=1.0).round(3).tolist()
    [[0.0, 1.264], [1.264, 0.0]]
    """
    i = jnp.arange(n).astype(float)
    return -2.0 * jnp.expm1(-jnp.abs(i[:, None] - i[None, :]) / scale)


def _fourier_share(V: Float[Array, "n dim"]) -> Float[Array, " dim"]:
    """‖projection‖² of each column on its best pair cos, sin(2πki/n), 0 < k ≤ n/2."""
    n = V.shape[0]
    k = jnp.arange(1, n // 2 + 1)
    power = jnp.abs(jnp.fft.rfft(V, axis=0)[1:]) ** 2 / n
    return jnp.max(jnp.where((2 * k == n)[:, None], power, 2.0 * power), axis=0)


def _cosine_share(V: Float[Array, "n dim"]) -> Float[Array, " dim"]:
    n = V.shape[0]
    cosines = cosine_vectors(jnp.arange(n), dim=n, length=n).astype(V.dtype)
    return jnp.max(dot(cosines.T, V) ** 2, axis=0)


def _span(X: Float[Array, "n dim"]) -> tuple[Float[Array, "n dim"], Float[Array, ""]]:
    """An orthonormal basis of the columns, padded with 0, and its size."""
    U, s, _ = jnp.linalg.svd(X, full_matrices=False)
    spanned = (s > _NEGLIGIBLE * s[0]).astype(X.dtype)
    return U * spanned[None, :], jnp.sum(spanned)
