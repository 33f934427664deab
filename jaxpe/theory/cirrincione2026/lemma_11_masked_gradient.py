"""Lemma 11: is the expected gradient of masked language modelling a KL divergence?"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.stats import rankdata

from jaxpe._core.arrays import dot
from jaxpe.geometry.counts.distributions import PositionalDistributions, as_distributions
from jaxpe.geometry.distances.matrices import pair_mask
from jaxpe.theory.audit import Audit, Comparison, all_less_equal, less, less_equal
from jaxpe.theory.divergences import Distributions, kl_divergences
from jaxpe.theory.gradients import PositionGradients
from jaxpe.theory.lipschitz import rounding, share


@partial(jax.jit, static_argnames=("temperature", "smoothing", "tolerance"))
def lemma_11(
    gradients: PositionGradients,
    mu: Distributions,
    *,
    temperature: float = 1.0,
    smoothing: float = 0.01,
    tolerance: float = 0.1,
) -> Audit:
    """Compare E δ_ij with D_KL(μ_i‖μ_j), and sum the rows of δ.

    Hypotheses. "τ < 1": the threshold of (ii) is below 1 but not given, so this is the least
    requirement. "ε_suff": ε ≤ `tolerance`, with ε = max_ij |E A_ij − E μ_i(t_j)|, where E μ_i(t_j)
    = Σ_v μ_i(v) μ_j(v): at most the paper's supremum over examples, so that it can hold where (i)
    does not. An audit of a model names this, and the threshold of (ii), as unchecked.

    Conclusions. "(7)": |E δ_ij − D_KL| ≤ τ² + ε for the worst pair and head (with 1 for the
    constant that O hides); an infinite D_KL refutes it. "(7) up to a factor": the share of the norm
    of δ that the best multiple of D_KL leaves, at most `tolerance` for every head; 0 ≤ 0 where no
    D_KL is finite.

    What holds instead, "rows sum to 0": |Σ_j E δ_ij| over all j against rounding, as a share of
    Σ_j |E δ_ij|.

    Measured: `ε_suff`; `least error`, the largest |Σ_j (E δ_ij − D_KL(μ_i‖μ_j))| over the number of
    positions present, a lower bound of the largest |E δ_ij − D_KL| of a row (where all are present
    it is the mean of a row of D_KL, for any model); by head `pearson`, `rank correlation` and
    `residual` over pairs i ≠ j with finite D_KL, and the same `smoothed`; `finite pairs`, their
    share. Correlations are 0 where δ or D_KL is constant; the residual is 1 where one is 0.

    Args:
        gradients: gradients of a masked language model.
        mu: positional distributions.
        temperature: τ of the readout.
        smoothing: share λ in (0, 1) of the mean distribution in the smoothed (1 − λ)μ_i + λ μ̄,
            which makes D_KL finite.
        tolerance: tolerance of "ε_suff" and of the best multiple.

    >>> delta = jnp.array([[[-0.2, 0.2], [0.1, -0.1]]])
    >>> none = jnp.zeros((2, 1))
    >>> gradients = PositionGradients(delta, jnp.full((1, 2, 2), 0.5), none, none, none)
    >>> audit = lemma_11(gradients, np.array([[0.75, 0.25], [0.25, 0.75]]))
    >>> audit.measured["least error"].round(2).item()    # D_KL is 0 and 0.55: mean 0.27
    0.27
    """
    delta = gradients.delta
    mu = as_distributions(mu)
    hypotheses = premises(gradients, mu, temperature=temperature, tolerance=tolerance)
    epsilon = hypotheses["ε_suff"].lhs.astype(delta.dtype)
    smooth = kl_divergences(_smoothed(mu, smoothing)).astype(delta.dtype)
    both = mu.present[:, None] & mu.present[None, :]
    kl = kl_divergences(mu).astype(delta.dtype)
    finite = jnp.isfinite(kl) & pair_mask(mu.present)
    near = _likeness(delta, kl, finite)
    smoothed = _likeness(delta, smooth, pair_mask(mu.present))
    largest = jnp.max(jnp.sum(jnp.abs(delta), axis=-1))
    sums = share(jnp.max(jnp.abs(jnp.sum(delta, axis=-1))), largest)
    error = jnp.where(both[None], jnp.abs(delta - kl[None]), 0.0)
    residual = near["residual"]
    some = jnp.broadcast_to(jnp.any(finite), residual.shape)
    conclusions = {
        "(7)": all_less_equal(error, temperature**2 + epsilon),
        "(7) up to a factor": all_less_equal(residual, tolerance, where=some),
    }
    measured = {
        "ε_suff": epsilon,
        "least error": _least_error(delta, kl, both),
        "least error smoothed": _least_error(delta, smooth, both),
        "finite pairs": jnp.sum(finite) / jnp.maximum(jnp.sum(pair_mask(mu.present)), 1),
        **near,
        **{f"{name} smoothed": value for name, value in smoothed.items()},
    }
    rounding_of_sums = 1000 * delta.shape[-1] * float(jnp.finfo(delta.dtype).eps)
    instead = {"rows sum to 0": less_equal(sums, rounding_of_sums)}
    return Audit(hypotheses, conclusions, measured, instead)


def premises(
    gradients: PositionGradients,
    mu: PositionalDistributions,
    *,
    temperature: float,
    tolerance: float = 0.1,
) -> dict[str, Comparison]:
    """Hypotheses of Lemmas 11 and 12: a low temperature τ, and attention near μ_i(t_j)."""
    overlap = dot(mu.probabilities, mu.probabilities.T).astype(gradients.weights.dtype)
    both = mu.present[:, None] & mu.present[None, :]
    apart = jnp.where(both[None], jnp.abs(gradients.weights - overlap[None]), 0.0)
    return {
        # Whatever the threshold τ_0 < 1 of condition (ii).
        "τ < 1": less(temperature, 1.0),
        "ε_suff": less_equal(jnp.max(apart), tolerance),
    }


def _least_error(delta: Array, kl: Array, both: Array) -> Array:
    """The largest |mean over j of δ_ij − D_KL|, over the positions present."""
    sums = jnp.sum(jnp.where(both[None], delta, 0.0), axis=2)
    sums = sums - jnp.sum(jnp.where(both, kl, 0.0), axis=1)[None]
    count = jnp.maximum(jnp.max(jnp.sum(both, axis=1)), 1).astype(delta.dtype)
    return jnp.max(jnp.abs(sums)) / count


def _smoothed(mu: PositionalDistributions, smoothing: float) -> PositionalDistributions:
    if not 0 < smoothing < 1:
        raise ValueError(f"smoothing is {smoothing}: pass a share in (0, 1)")
    rows = jnp.where(mu.present[:, None], mu.probabilities, 0.0)
    mean = jnp.sum(rows, axis=0) / jnp.maximum(jnp.sum(mu.present), 1).astype(rows.dtype)
    return mu._replace(probabilities=(1 - smoothing) * rows + smoothing * mean[None, :])


def _likeness(delta: Array, kl: Array, where: Array) -> dict[str, Array]:
    """Correlations of δ of each head with D_KL over some pairs."""

    def ranks(x: Array) -> Array:
        return rankdata(jnp.where(where, x, jnp.inf), axis=None).reshape(x.shape)

    kl_ranks = _centred(ranks(kl), where)

    def likeness(head: Array) -> dict[str, Array]:
        cosine = _cosine(jnp.where(where, head, 0.0), jnp.where(where, kl, 0.0))
        return {
            "pearson": _cosine(_centred(head, where), _centred(kl, where)),
            "rank correlation": _cosine(_centred(ranks(head), where), kl_ranks),
            "residual": jnp.sqrt(jnp.maximum(1.0 - cosine**2, 0.0)),
        }

    return jax.lax.map(likeness, delta)


def _centred(x: Array, where: Array) -> Array:
    count = jnp.maximum(jnp.sum(where), 1).astype(x.dtype)
    inside = jnp.where(where, x, 0.0)
    centred = jnp.where(where, inside - jnp.sum(inside) / count, 0.0)
    return jnp.where(jnp.abs(centred) > rounding(inside), centred, 0.0)


def _cosine(x: Array, y: Array) -> Array:
    return share(jnp.sum(x * y), jnp.linalg.norm(x) * jnp.linalg.norm(y))
