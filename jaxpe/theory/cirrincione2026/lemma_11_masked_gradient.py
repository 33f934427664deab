"""Lemma 11: is the expected gradient of masked language modelling a KL divergence?"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.stats import rankdata

from jaxpe._core.compiled import compiled
from jaxpe._core.program import one_program
from jaxpe.geometry.counts.distributions import PositionalDistributions, as_distributions
from jaxpe.geometry.distances.matrices import pair_mask
from jaxpe.theory.audit import Audit, Comparison, Statement, all_less_equal, less_equal
from jaxpe.theory.divergences import Distributions, kl_divergences
from jaxpe.theory.gradients import PositionGradients
from jaxpe.theory.lipschitz import rounding, share

LEMMA_11 = Statement(
    name="Lemma 11",
    title="the gradient of masked language modelling and the KL divergence",
    source="Cirrincione (2026), Appendix A.3, Eq. (7)",
    claim=(
        "Where attention weights are near μ_i(t_j) and the temperature τ is low, E[∂loss/∂L_ij] = "
        "D_KL(μ_i‖μ_j) + O(τ² + ε_suff)."
    ),
    status="false as stated",
    finding=(
        "Softmax ignores a shift of a row of logits, so Σ_j ∂loss/∂L_ij = 0 for every example, "
        "model and loss, while Σ_j D_KL(μ_i‖μ_j) > 0: the error is at least the mean of a row of "
        "D_KL, whatever τ and ε_suff. Two words in two orders have ε_suff = 0 and an error of "
        "0.27 or more. The δ of the proof is the derivative of a loss by its own logits, not by "
        "those of attention; its D_KL(μ‖ν) = D_KL(ν‖μ) + O(‖μ − ν‖₁) is as large as either; and "
        "weights of a row sum to 1, which μ_i(t_j) need not."
    ),
)


@one_program
def lemma_11(
    gradients: PositionGradients,
    mu: Distributions,
    *,
    temperature: float = 1.0,
    smoothing: float = 0.01,
    tolerance: float = 0.1,
) -> Audit:
    """Compare E δ_ij with D_KL(μ_i‖μ_j), and say what a row of δ adds up to.

    Hypotheses. "τ < 1": the threshold of (ii) is below 1 and not given; this is the least that it
    asks. "ε_suff": ε ≤ `tolerance`, with ε = max_ij |E A_ij − E μ_i(t_j)|, where E μ_i(t_j)
    = Σ_v μ_i(v) μ_j(v): at most the paper's supremum over examples.

    Conclusions. "(7)": |E δ_ij − D_KL| ≤ τ² + ε for the worst pair and head (with 1 for the
    constant that O hides); an infinite D_KL refutes it. "(7) up to a factor": what the best
    multiple of D_KL leaves of δ, as a share of its norm, at most `tolerance` for every head.

    What holds instead, "rows sum to 0": |Σ_j E δ_ij| over all j against rounding, as a share of
    Σ_j |E δ_ij|.

    Measured: `ε_suff`; `least error`, the largest |Σ_j (E δ_ij − D_KL(μ_i‖μ_j))| over the positions
    present, by their number, which some |E δ_ij − D_KL| of the row must reach (where all are
    present it is the mean of a row of D_KL, whatever the model does); by head `pearson`, `rank
    correlation` and `residual` over pairs i ≠ j with finite D_KL, and the same `smoothed`; `finite
    pairs`, their share. Where δ or D_KL is constant correlations are 0, where one is 0 the residual
    is 1.

    Args:
        gradients: gradients of a masked language model.
        mu: positional distributions.
        temperature: τ of the read-out.
        smoothing: share λ in (0, 1) of the mean distribution in the smoothed (1 − λ)μ_i + λ μ̄, so
            that D_KL is finite.
        tolerance: tolerance of "ε_suff" and of the best multiple.

    >>> delta = jnp.array([[[-0.2, 0.2], [0.1, -0.1]]])
    >>> none = jnp.zeros((2, 1))
    >>> given = PositionGradients(delta, jnp.full((1, 2, 2), 0.5), none, none, none)
    >>> audit = lemma_11(given, np.array([[0.75, 0.25], [0.25, 0.75]]))
    >>> audit.measured["least error"].round(2).item()    # D_KL is 0 and 0.55: mean 0.27
    0.27
    """
    delta = jnp.asarray(gradients.delta)
    mu = as_distributions(mu)
    smooth = kl_divergences(_smoothed(mu, smoothing)).astype(delta.dtype)
    there = mu.present[:, None] & mu.present[None, :]
    kl = kl_divergences(mu).astype(delta.dtype)
    finite = jnp.isfinite(kl) & pair_mask(mu.present)
    epsilon = _insufficiency(gradients.weights, mu, there)
    near = _likeness(delta, kl, finite)
    smoothed = _likeness(delta, smooth, pair_mask(mu.present))
    largest = jnp.max(jnp.sum(jnp.abs(delta), axis=-1))
    sums = share(jnp.max(jnp.abs(jnp.sum(delta, axis=-1))), largest)
    error = jnp.where(there[None], jnp.abs(delta - kl[None]), 0.0)
    conclusions = {
        "(7)": all_less_equal(error, temperature**2 + epsilon),
        "(7) up to a factor": less_equal(jnp.max(near["residual"]), tolerance),
    }
    measured = {
        "ε_suff": epsilon,
        "least error": _least_error(delta, kl, there),
        "least error smoothed": _least_error(delta, smooth, there),
        "finite pairs": jnp.sum(finite) / jnp.maximum(jnp.sum(pair_mask(mu.present)), 1),
        **near,
        **{f"{name} smoothed": value for name, value in smoothed.items()},
    }
    instead = {
        "rows sum to 0": less_equal(
            sums, 1000 * delta.shape[-1] * float(jnp.finfo(delta.dtype).eps)
        )
    }
    hypotheses = {"τ < 1": below_one(temperature), "ε_suff": less_equal(epsilon, tolerance)}
    return Audit(hypotheses, conclusions, measured, instead)


def below_one(temperature: float) -> Comparison:
    """Condition (ii) on the temperature τ, whatever its threshold τ_0 < 1."""
    tau = jnp.asarray(temperature, jnp.result_type(float))
    return Comparison(tau, jnp.ones_like(tau), 1 - tau, tau < 1)


def _least_error(delta: Array, kl: Array, there: Array) -> Array:
    """The largest |mean over j of δ_ij − D_KL|, over the positions present."""
    sums = jnp.sum(jnp.where(there[None], delta, 0.0), axis=2)
    sums = sums - jnp.sum(jnp.where(there, kl, 0.0), axis=1)[None]
    count = jnp.maximum(jnp.max(jnp.sum(there, axis=1)), 1).astype(delta.dtype)
    return jnp.max(jnp.abs(sums)) / count


def _smoothed(mu: PositionalDistributions, smoothing: float) -> PositionalDistributions:
    if not 0 < smoothing < 1:
        raise ValueError(f"smoothing is {smoothing}: pass a share in (0, 1)")
    rows = jnp.where(mu.present[:, None], mu.probabilities, 0.0)
    mean = jnp.sum(rows, axis=0) / jnp.maximum(jnp.sum(mu.present), 1).astype(rows.dtype)
    return mu._replace(probabilities=(1 - smoothing) * rows + smoothing * mean[None, :])


def _insufficiency(weights: Array, mu: PositionalDistributions, there: Array) -> Array:
    rows = jnp.asarray(mu.probabilities)
    agreement = jnp.matmul(rows, rows.T, precision="highest").astype(weights.dtype)
    return jnp.max(jnp.where(there[None], jnp.abs(weights - agreement[None]), 0.0))


@compiled()
def _likeness(delta: Array, kl: Array, where: Array) -> dict[str, Array]:
    """Correlations of δ of each head with D_KL over some pairs."""
    ranks = rankdata(jnp.where(where, kl, jnp.inf), axis=None).reshape(kl.shape)

    def of(head: Array) -> dict[str, Array]:
        own = rankdata(jnp.where(where, head, jnp.inf), axis=None).reshape(kl.shape)
        cosine = _cosine(jnp.where(where, head, 0.0), jnp.where(where, kl, 0.0))
        return {
            "pearson": _cosine(_centred(head, where), _centred(kl, where)),
            "rank correlation": _cosine(_centred(own, where), _centred(ranks, where)),
            "residual": jnp.sqrt(jnp.maximum(1.0 - cosine**2, 0.0)),
        }

    return jax.lax.map(of, delta)


def _centred(x: Array, where: Array) -> Array:
    count = jnp.maximum(jnp.sum(where), 1).astype(x.dtype)
    inside = jnp.where(where, x, 0.0)
    centred = jnp.where(where, inside - jnp.sum(inside) / count, 0.0)
    return jnp.where(jnp.abs(centred) > rounding(inside), centred, 0.0)


def _cosine(x: Array, y: Array) -> Array:
    return share(jnp.sum(x * y), jnp.linalg.norm(x) * jnp.linalg.norm(y))
