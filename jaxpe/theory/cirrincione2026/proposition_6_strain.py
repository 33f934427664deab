"""Proposition 6: does classical scaling minimise the stress?"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Real

from jaxpe._core.arrays import ArrayLike
from jaxpe.geometry.distances.matrices import (
    Distances,
    as_distances,
    centre_rows,
    gram_matrix,
    inner_products,
)
from jaxpe.geometry.distances.stress import scaled_stress
from jaxpe.geometry.distances.toeplitz import unexplained_share
from jaxpe.geometry.mds.classical import classical_mds
from jaxpe.geometry.mds.smacof import smacof
from jaxpe.theory.audit import Audit, less_equal


@partial(jax.jit, static_argnames=("dim", "max_iterations", "tolerance"))
def proposition_6(
    D: Distances | Real[ArrayLike, "n n"],
    *,
    dim: int,
    max_iterations: int = 1000,
    tolerance: float = 1e-6,
) -> Audit:
    """Compare P_MDS with SMACOF started from it: "minimal stress", stress(P_MDS) ≤ stress(P).

    Cirrincione (2026), Section 5.3; false as stated. Every P of lower stress refutes it, and SMACOF
    never raises the stress. SMACOF finds a local minimum, so minus the slack is a lower bound of
    the excess stress of P_MDS. The strain changes the other way. Part of the gap is scale:
    `scaled_stress_classical` is the stress of P_MDS at its best scale.

    Measured: `stress_classical`, `stress_smacof`, `strain_classical`, `strain_smacof` (‖P Pᵀ − B‖²
    / ‖B‖², P centred), `scaled_stress_classical`, `rank` of B and `smacof_converged`.

    Args:
        D: target distances (not squared).
        dim: width d of the encodings.
        max_iterations: largest number of iterations of SMACOF.
        tolerance: relative difference that counts as equal; also where SMACOF stops.

    >>> audit = proposition_6(hellinger_distances(np.eye(3)), dim=1)
    >>> stress = audit.conclusions["minimal stress"]
    >>> round(1 / stress.lhs.item()), round(1 / stress.rhs.item()), stress.holds.item()
    (6, 9, False)
    """
    D = as_distances(D)
    B = gram_matrix(D)
    mds = classical_mds(D, dim=dim)
    start, options = mds.coordinates, {"max_iterations": max_iterations, "tolerance": tolerance}
    fit = smacof(D, dim=dim, init=start, **options)
    # If both are exact, the rest is rounding and has no order.
    exact = len(B) * jnp.finfo(B.dtype).eps
    sides = jnp.where(fit.initial_stress <= exact, 0.0, jnp.stack([fit.initial_stress, fit.stress]))
    minimal = less_equal(*sides, tolerance=tolerance)
    measured = {
        "stress_classical": fit.initial_stress,
        "stress_smacof": fit.stress,
        "strain_classical": strain(mds.coordinates, B),
        "strain_smacof": strain(centre_rows(fit.coordinates, D.present), B),
        "scaled_stress_classical": scaled_stress(mds.coordinates, D).stress,
        "rank": mds.rank,
        "smacof_converged": fit.converged,
    }
    return Audit({}, {"minimal stress": minimal}, measured)


def strain(P: Float[ArrayLike, "n d"], B: Float[ArrayLike, "n n"]) -> Float[Array, ""]:
    """Strain ‖P Pᵀ − B‖² / ‖B‖² of centred points against a Gram matrix; ‖P Pᵀ‖² where B is 0.

    Classical scaling minimises it (Torgerson 1952; Eckart and Young 1936).

    >>> strain(np.array([[1.0], [-1.0]]), np.array([[1.0, -1.0], [-1.0, 1.0]])).item()
    0.0
    """
    return unexplained_share(B, inner_products(jnp.asarray(P)))
