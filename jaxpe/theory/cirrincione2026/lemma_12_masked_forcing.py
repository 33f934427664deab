"""Lemma 12: is the forcing of masked language modelling Lipschitz, with the published constant?"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.geometry import hellinger_distances
from jaxpe.geometry.counts.distributions import PositionalDistributions, as_distributions
from jaxpe.geometry.distances.matrices import pair_mask
from jaxpe.theory.audit import (
    Audit,
    all_less_equal,
    less_equal,
)
from jaxpe.theory.divergences import Distributions, kl_divergences, kl_ratio
from jaxpe.theory.gradients import PositionGradients, Projection, largest_norm, score_norms
from jaxpe.theory.lipschitz import entry_slope, product, vector_slope


@jax.jit
def lemma_12(
    gradients: PositionGradients,
    mu: Distributions,
    means: Float[ArrayLike, "n dim"],
    query: Projection,
    key: Projection,
) -> Audit:
    """Compare the published C_b with the largest ‖b_i − b_j‖/d_H, and check the proof's steps.

    Cirrincione (2026), Appendix A.3; false as stated. Conclusions. "(A2)": the measured C_b is at
    most the published one, summed over heads (with O(τ² + ε_suff) in its denominator taken as 0).
    "(A2) with n": it is at most n times the published one. "D_KL ≤ 2√2 d_H" and "D_KL(i‖k) −
    D_KL(j‖k) ≤ D_KL(i‖j)": the steps, for the worst pair or triple; a difference of two infinite
    divergences counts as 0, and infinite differences are not compared with infinite divergences.

    What holds instead. "D_KL ≤ g(max μ_i/μ_j) d_H²", with g of `kl_ratio`. "slope in i": |D_KL(i‖k)
    − D_KL(j‖k)| ≤ log(1/m) ‖μ_i − μ_j‖₁ ≤ 2 log(1/m) d_H, since the derivative log(μ/μ_k) + 1 is
    between ±log(1/m), up to a constant, on the segment from μ_i to μ_j. "slope in k": |D_KL(i‖k) −
    D_KL(i‖l)| ≤ Σ μ_i |log(μ_k/μ_l)| ≤ (2/√m) d_H, by |log a − log b| ≤ 2|√a − √b|/min(√a, √b) and
    Cauchy and Schwarz. m is the least probability, at any position, of a word that occurs at some
    position. Where it is 0 both bounds and D_KL are infinite, and the comparison is 0 ≤ 0.

    Measured: `C_b`, `published`, `published with n`, `m`.

    Args:
        gradients: gradients at P ≈ 0.
        mu: positional distributions.
        means: ē from `mean_embeddings`.
        query, key: W_Q and W_K of the first layer.

    >>> b = jnp.array([[0.0], [2.0]])
    >>> gradients = PositionGradients(jnp.zeros((1, 2, 2)), jnp.full((1, 2, 2), 0.5), b, b, b)
    >>> W = jnp.ones((1, 1, 1))
    >>> audit = lemma_12(gradients, np.eye(2), jnp.array([[0.1], [0.0]]), W, W)
    >>> [round(audit.measured[name].item(), 2) for name in ("C_b", "published")]
    [1.41, 0.57]
    """
    mu = as_distributions(mu)
    D = hellinger_distances(mu)
    b, d, where = gradients.forcing, D.values, pair_mask(mu.present)
    kl = kl_divergences(mu)
    n = jnp.sum(mu.present).astype(b.dtype)
    norms = jnp.sum(score_norms(query, key)).astype(b.dtype) / query.shape[-1] ** 0.5
    published = 4.0 * 2.0**0.5 * largest_norm(means).astype(b.dtype) * norms
    C_b = vector_slope(b, D)
    m = least_probability(mu)
    tolerance = 64 * float(jnp.finfo(d.dtype).eps)
    noise = tolerance * float(jnp.finfo(d.dtype).eps)  # of the square of a distance
    difference = _largest_differences(kl)
    bound = product(d**2, kl_ratio(_largest_ratios(mu.probabilities)))
    comparable = where & ~(jnp.isinf(difference) & jnp.isinf(kl))

    def slope(kl: Array) -> Array:
        # The largest float replaces infinity, so that two of them have difference 0. Equal
        # distributions have distance 0, and a divergence of rounding size.
        capped = jnp.where(jnp.isinf(kl), jnp.finfo(kl.dtype).max, kl)
        return entry_slope(capped, d, where=where, negligible=noise)

    compare = partial(all_less_equal, tolerance=tolerance, noise=noise)
    conclusions = {
        "(A2)": less_equal(C_b, published),
        "(A2) with n": less_equal(C_b, n * published),
        "D_KL ≤ 2√2 d_H": compare(kl, 8.0**0.5 * d, where=where),
        "D_KL(i‖k) − D_KL(j‖k) ≤ D_KL(i‖j)": compare(difference, kl, where=comparable),
    }
    instead = {
        "D_KL ≤ g(max μ_i/μ_j) d_H²": compare(kl, bound, where=where & jnp.isfinite(kl)),
        "slope in i": compare(slope(kl), -2.0 * jnp.log(m), where=m > 0),
        "slope in k": compare(slope(kl.T), 2.0 / jnp.sqrt(m), where=m > 0),
    }
    measured = {"C_b": C_b, "published": published, "published with n": n * published, "m": m}
    return Audit({}, conclusions, measured, instead)


def least_probability(mu: PositionalDistributions) -> Array:
    """The least probability, at any position, of a word that occurs at some position."""
    present = mu.present[:, None] & occurring(mu)[None, :]
    return jnp.min(mu.probabilities, where=present, initial=jnp.inf)


def occurring(mu: PositionalDistributions) -> Array:
    """Words that occur at some position."""
    return jnp.any((mu.probabilities > 0) & mu.present[:, None], axis=0)


def _largest_differences(kl: Array) -> Array:
    """max_k |D_KL(i‖k) − D_KL(j‖k)| for all i and j."""

    def largest_difference(row: Array) -> Array:
        both = jnp.isinf(row)[None, :] & jnp.isinf(kl)
        difference = jnp.abs(row[None, :] - jnp.where(both, 0.0, kl))
        return jnp.max(jnp.where(both, 0.0, difference), axis=1)

    return jax.lax.map(largest_difference, kl)


def _largest_ratios(rows: Array) -> Array:
    """max_v μ_i(v)/μ_j(v)."""

    def largest(row: Array) -> Array:
        ratio = jnp.where(rows > 0, row[None, :] / jnp.where(rows > 0, rows, 1.0), jnp.inf)
        return jnp.max(jnp.where(row[None, :] > 0, ratio, 0.0), axis=1)

    return jax.lax.map(largest, rows)
