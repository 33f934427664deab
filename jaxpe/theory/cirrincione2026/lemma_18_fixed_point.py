"""Lemma 18 and Definition 10: monotone positions at the fixed point of the linearised flow."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike, dot
from jaxpe.geometry import Distances, euclidean_distances, monotonicity_violation_rate
from jaxpe.geometry.distances.matrices import as_distances, pair_mask
from jaxpe.ntk.flow import gradient_flow
from jaxpe.theory.audit import Audit, Comparison, all_less_equal, finite, less, less_equal
from jaxpe.theory.lipschitz import entry_slope, largest_ratio, product
from jaxpe.theory.monotone_fit import MonotoneFit, monotone_fit


@partial(jax.jit, static_argnames="fraction")
def lemma_18(
    alpha: Float[ArrayLike, "..."],
    b: Float[ArrayLike, "..."],
    D: Distances | Float[ArrayLike, "n n"],
    *,
    fraction: float = 0.9,
) -> Audit:
    """Evaluate the hypotheses (A1) to (A4), the bound (13) and its use on a kernel and a forcing.

    Hypotheses. (A1) α is an increasing function of d_H: the best one explains at least `fraction`
    of the variance of α_ij over i ≤ j, with d_ii = 0; "A1 diagonal", f(0) ≤ f(d): no α_ii is above
    any α_ij; and λ_min(α) > 0. The last two exclude each other: α ≻ 0 has α_ii + α_jj > 2α_ij. (A2)
    ‖b_i − b_j‖ ≤ C_b d_H, with C_b the largest quotient there is: it fails where that is infinite.
    (A3) d_H is monotone: no triple has |i − j| < |i − k| and d_ij > d_ik. Ties, which
    `conjecture_5` examines as well, do not count here. (A4) the flow from P_0 = 0 stays bounded: no
    negative eigenvalue, and b in the range of α.

    Conclusions. "(13)" with its constant C = (C_b + 2 R L_f ‖f‖∞)/λ_min as published, L_f the
    largest |α_il − α_jl| / d_H(μ_i, μ_j) and R the largest ‖p_i‖ along the flow; "(13) with n",
    C = (C_b + n R L_f)/λ_min, which is what its proof arrives at before "absorbing" n;
    "monotone", the share of violated triples of P*. Both constants are NaN where λ_min ≤ 0.

    Why (13) says nothing where α is a function of d_H. Then λ_min ≤ ½(e_i − e_j)ᵀα(e_i − e_j) =
    f(0) − f(d_ij) ≤ L_f d_ij for every pair, so its right side with n is at least n R ≥ 2R, which
    the triangle inequality gives already. `measured["share above 2R"]` counts the pairs where the
    right side is at least that. The proof also subtracts α(p_i − p_j) from a row difference that
    holds it already: there is no such term.

    What holds instead, by Cauchy and Schwarz in the norm of α: "energy bound", ‖p*_i − p*_j‖² ≤
    (e_i − e_j)ᵀ α⁻¹ (e_i − e_j) · tr(bᵀ α⁻¹ b). Its first factor grows where d_H shrinks. Positions
    absent from D are left out. It needs α ⪰ 0, as a kernel of `positional_ntk` is. Where α is
    singular, P* is the least solution.

    Args:
        alpha: `[n, n]`, symmetric, of `jaxpe.ntk.positional_ntk`.
        b: `[n, d]`, the forcing at P_0 ≈ 0, of `positional_forcing`.
        D: Hellinger distances.
        fraction: share of the variance that a function has to explain, in (0, 1].

    >>> D = jnp.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    >>> audit = lemma_18(jnp.eye(3), jnp.eye(3), D)
    >>> round(audit.instead["energy bound"].lhs.item(), 4)    # ‖p*_0 − p*_1‖ for P* = I
    1.4142
    """
    D = as_distances(D)
    alpha, b, d, present = _present(alpha, b, D)
    n = jnp.sum(present, dtype=alpha.dtype)
    mask = pair_mask(present)
    flow = gradient_flow(alpha, b, jnp.zeros_like(b))
    end = flow.fixed_point()
    fit = _monotone(alpha, d, mask)
    C_b = largest_ratio(euclidean_distances(b, present=present).values, d, where=mask)
    L_f = entry_slope(alpha, d, where=mask)
    R = _largest_orbit(flow, end.positions)
    f_max = jnp.max(jnp.where(mask, alpha, 0.0))
    lhs = euclidean_distances(end.positions, present=present).values
    smallest = jnp.min(flow.eigenvalues)
    positive = jnp.where(smallest > 0, smallest, jnp.nan)
    published = (C_b + 2 * R * L_f * jnp.maximum(f_max, jnp.max(jnp.diagonal(alpha)))) / positive
    with_n = (C_b + n * R * L_f) / positive
    sensitivity, energy = _energy(flow)
    rhs_n = product(d, with_n)
    eps = float(jnp.finfo(alpha.dtype).eps)
    rounding = n * eps * jnp.max(jnp.abs(flow.eigenvalues))
    bounded = end.stable & (end.residual <= 64 * eps)
    compare = partial(all_less_equal, where=mask, tolerance=64 * eps)
    hypotheses = {
        "A1 increasing": less_equal(fraction, fit.explained_increasing),
        "A1 diagonal": _diagonal(alpha, mask),
        "A1 positive": less(0.0, smallest, noise=rounding),
        "A2": finite(C_b),
        "A3": less_equal(monotonicity_violation_rate(Distances(d, present)), 0.0),
        "A4": less_equal(end.residual, 0.0)._replace(holds=bounded),
    }
    conclusions = {
        "(13)": compare(lhs, product(d, published)),
        "(13) with n": compare(lhs, rhs_n),
        "monotone": less_equal(monotonicity_violation_rate(Distances(lhs, present)), 0.0),
    }
    bound = jnp.sqrt(jnp.maximum(sensitivity * energy, 0.0))
    instead = {"energy bound": compare(lhs, bound)}
    measured = {
        "explained by increasing f": fit.explained_increasing,
        "explained by decreasing f": fit.explained_decreasing,
        "condition": end.condition,
        "C_b": C_b,
        "L_f": L_f,
        "R": R,
        "constant of (13)": published,
        "constant of (13) with n": with_n,
        "share above 2R": jnp.sum(mask & (rhs_n >= 2 * R)) / jnp.maximum(jnp.sum(mask), 1),
    }
    return Audit(hypotheses, conclusions, measured, instead)


def _present(alpha, b, D: Distances) -> tuple[Array, Array, Array, Array]:
    """The arrays with what is absent taken out: an absent position is a flow of its own."""
    n = D.values.shape[0]
    if alpha.shape != (n, n) or b.ndim != 2 or b.shape[0] != n:
        raise ValueError(
            f"alpha has shape {alpha.shape}, b {b.shape} and D {D.values.shape}: pass [n, n], "
            "[n, d] and [n, n] of the same positions"
        )
    present = D.present
    inside = present[:, None] & present[None, :]
    scale = jnp.max(jnp.where(inside, jnp.abs(alpha), 0.0))
    absent = jnp.diag(jnp.where(present, 0.0, jnp.where(scale == 0, 1.0, scale)))
    alpha = jnp.where(inside, (alpha + alpha.T) / 2, absent.astype(alpha.dtype))
    d = jnp.where(inside, D.values, 0.0).astype(alpha.dtype)
    return alpha, jnp.where(present[:, None], b, 0.0).astype(alpha.dtype), d, present


def _monotone(alpha: Array, d: Array, mask: Array) -> MonotoneFit:
    """α over i ≤ j by monotone functions of d."""
    i, j = jnp.triu_indices(alpha.shape[0])
    counts = (mask | jnp.diag(jnp.any(mask, axis=1)))[i, j]
    return monotone_fit(d[i, j], alpha[i, j], where=counts)


def _diagonal(alpha: Array, mask: Array) -> Comparison:
    """max α_ii ≤ min α_ij, over the positions that count."""
    counts = jnp.any(mask, axis=1)
    largest = jnp.max(jnp.diagonal(alpha), where=counts, initial=-jnp.inf)
    smallest = jnp.min(alpha, where=mask, initial=jnp.inf)
    return less_equal(*(jnp.where(jnp.any(mask), x, 0.0) for x in (largest, smallest)))


def _largest_orbit(flow, end: Array) -> Array:
    """sup ‖p_i(t)‖: at the end, and at times from 1/(100 λ_max) to 100/λ_min."""
    size = jnp.abs(flow.eigenvalues)
    fastest = jnp.max(size)
    slowest = jnp.maximum(jnp.min(size), fastest * jnp.finfo(size.dtype).eps)
    fastest = jnp.where(fastest > 0, fastest, 1.0)
    slowest = jnp.where(slowest > 0, slowest, 1.0)
    times = jnp.geomspace(0.01 / fastest, 100.0 / slowest, 64).astype(size.dtype)
    along = jax.lax.map(lambda t: jnp.max(jnp.linalg.norm(flow.at(t), axis=1)), times)
    return jnp.maximum(jnp.max(along), jnp.max(jnp.linalg.norm(end, axis=1)))


def _energy(flow) -> tuple[Array, Array]:
    """(e_i − e_j)ᵀ α⁺ (e_i − e_j) for all pairs, and tr(bᵀ α⁺ b); eigenvalues at 0 left out."""
    inverse = flow.inverse_eigenvalues()
    U = flow.eigenvectors
    basis = dot(U.T, flow.forcing)

    def from_row(row: Array) -> Array:  # differences: in products large weights would cancel
        return dot((U - row[None, :]) ** 2, inverse)

    return jax.lax.map(from_row, U), jnp.sum(inverse[:, None] * basis**2)
