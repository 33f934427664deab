"""Corollary 15: the slope of E[∂loss/∂L_ij] for three families of losses."""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp

from jaxpe.geometry import euclidean_distances, hellinger_distances
from jaxpe.geometry.counts.distributions import as_distributions
from jaxpe.geometry.distances.matrices import pair_mask
from jaxpe.theory.audit import Audit, all_less_equal, finite, less, less_equal
from jaxpe.theory.cirrincione2026.lemma_12_masked_forcing import least_probability
from jaxpe.theory.divergences import Distributions, kl_divergences
from jaxpe.theory.gradients import PositionGradients
from jaxpe.theory.lipschitz import head_slopes, vector_slope

Family = Literal["masked", "classification", "agnostic"]


@partial(jax.jit, static_argnames="family")
def corollary_15(gradients: PositionGradients, mu: Distributions, *, family: Family) -> Audit:
    """Evaluate Corollary 15 for one family of losses.

    Cirrincione (2026), Appendix A.3; false as stated. The family is given, not tested. The
    hypothesis of "masked", "away from zero", asks for a positive least probability; (i) also has
    those of Lemma 11. "positional frequencies" of "classification" is not checked.

    Conclusions of "masked" are "L_g ≤ 2√2", for
    the measured slope of E δ in its first argument (worst head), and "D_KL ≤ 2√2 d_H", from which
    the paper derives it. The conclusion of "classification" is "L_g finite", which fails if
    positions with equal distributions have different δ. Conclusions of "agnostic" are "g
    symmetric", the largest |E δ_ij − E δ_ji|; "L_g = 0"; and "b_i = b_j", the largest ‖b_i − b_j‖,
    each against rounding.

    (iii) is true under invariance. Let a permutation σ of positions leave the distribution of the
    examples unchanged, and commute with loss and model. Then E[loss] is invariant under permuting
    the rows of P by σ. So at equal rows b_σ(i) = b_i. All b_i are equal if such σ map any i to any
    j, as cyclic shifts do.

    Measured: by head `slopes in i` and `slopes in j`, and `C_b`.

    Args:
        gradients: gradients at P ≈ 0, of a loss of that family.
        mu: positional distributions.
        family: "masked" (i), "classification" (ii) or "agnostic" (iii).

    >>> b = jnp.array([[-4.0], [0.0]])    # of (Σ_j (E(t_j) + p_j)²)² for E(t) = 1, then 0
    >>> none = jnp.zeros((1, 2, 2))
    >>> gradients = PositionGradients(none, none, b, 0 * b, 0 * b)
    >>> audit = corollary_15(gradients, np.eye(2), family="agnostic")
    >>> audit.conclusions["L_g = 0"].holds.item(), audit.conclusions["b_i = b_j"].lhs.item()
    (True, 4.0)
    """
    mu = as_distributions(mu)
    D = hellinger_distances(mu)
    delta, b = gradients.delta, gradients.forcing
    in_i, in_j = head_slopes(delta, D), head_slopes(delta, D, columns=True)
    L_g = jnp.max(in_i)
    where = pair_mask(mu.present)
    hypotheses, unchecked = {}, {}
    if family == "masked":
        hypotheses = {"away from zero": less(0.0, least_probability(mu))}
        conclusions = {
            "L_g ≤ 2√2": less_equal(L_g, 8.0**0.5),
            "D_KL ≤ 2√2 d_H": all_less_equal(kl_divergences(mu), 8.0**0.5 * D.values, where=where),
        }
    elif family == "classification":
        unchecked = {"positional frequencies": None}
        conclusions = {"L_g finite": finite(L_g)}
    elif family == "agnostic":
        eps = 1e3 * float(jnp.finfo(delta.dtype).eps)
        asymmetry = jnp.where(where[None], jnp.abs(delta - jnp.swapaxes(delta, 1, 2)), 0.0)
        apart = jnp.max(euclidean_distances(b, present=mu.present).values)
        conclusions = {
            "g symmetric": less_equal(jnp.max(asymmetry), eps * jnp.max(jnp.abs(delta))),
            "L_g = 0": less_equal(L_g, eps * jnp.max(jnp.abs(delta))),
            "b_i = b_j": less_equal(apart, eps * jnp.max(jnp.abs(b))),
        }
    else:
        raise ValueError(f"family is {family!r}: pass 'masked', 'classification' or 'agnostic'")
    measured = {"slopes in i": in_i, "slopes in j": in_j, "C_b": vector_slope(b, D)}
    return Audit(hypotheses, conclusions, measured, unchecked=unchecked)
