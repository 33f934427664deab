"""Lemma 16: Lipschitz constants of mean embeddings, attention weights and E[∂loss/∂L_ij]."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike, dot
from jaxpe.geometry import euclidean_distances, hellinger_distances
from jaxpe.geometry.counts.distributions import PositionalDistributions, as_distributions
from jaxpe.geometry.distances.matrices import pair_mask
from jaxpe.theory.audit import Audit, all_less_equal
from jaxpe.theory.cirrincione2026.lemma_12_masked_forcing import occurring
from jaxpe.theory.divergences import Distributions, total_variation_bound
from jaxpe.theory.gradients import (
    PositionGradients,
    Projection,
    largest_norm,
    mean_embeddings,
    product_norms,
    score_norms,
)
from jaxpe.theory.lipschitz import head_slopes, rounding, vector_slope

_STEPS = 200  # towards the centre of the embeddings; any centre gives a valid bound


@jax.jit
def lemma_16(
    gradients: PositionGradients,
    mu: Distributions,
    embeddings: Float[ArrayLike, "vocab dim"],
    query: Projection,
    key: Projection,
    value: Float[ArrayLike, "dim heads value_dim"],
    output: Float[ArrayLike, "heads value_dim dim"],
    *,
    gradient_bound: Float[ArrayLike, ""] | float,
) -> Audit:
    """Compare the published constants with the measured ones, and with sharper ones.

    Cirrincione (2026), Appendix A.3. Conclusions and what holds instead, each for the worst pair or
    head:

    "(10)": ‖ē_i − ē_k‖ ≤ L_e d_H. Instead, "(10) by the radius": ‖ē_i − ē_k‖ = ‖Σ_v (μ_i −
    μ_k)(v)(E(v) − c)‖ ≤ r‖μ_i − μ_k‖₁ ≤ r√(4 − d_H²) d_H for any centre c and r = max_v ‖E(v) − c‖.

    "(11) of mean logits": the slope of softmax_j(ē_i M ē_jᵀ/√d_k) in i is at most L_A. Instead,
    "(11) halved": at most L_A/2 with 2r in place of L_e; Σ_k |∂σ_j/∂u_k| = 2σ_j(1 − σ_j) ≤ ½. "(11)
    of weights": the slope of E A_ij is at most L_A, which is what the lemma says and does not hold.

    "(12)": the slope of E δ_ij in i is at most L_g of that head, with ‖W_V‖ = ‖W_V,h W_O,h‖.
    Instead, "(12) of one layer": at most G‖W_V‖ 2r/4 over the least d_H. It holds where only the
    first row has δ, as in a classifier of one layer that reads [CLS], and G bounds the derivative
    by what attention adds there: δ_0j = A_0j(1 − A_0j)⟨∂loss/∂h, (x_j − x̄)W_V⟩, with x̄ a mean of
    the others, at most 2r from x_j.

    Measured: `L_e` published, `2‖E‖∞`, `2r` and `slope of means`; by head `L_A` published, `L_A
    halved`, `slopes of mean logits` and `slopes of weights`; `L_g` published and `slopes of δ`.

    Args:
        gradients: gradients of a classifier that reads [CLS], at P ≈ 0.
        mu: positional distributions.
        embeddings: embeddings of all words. Those that occur nowhere count in ‖E‖∞ alone.
        query, key, value, output: W_Q, W_K, W_V and W_O of the first layer.
        gradient_bound: G, the largest ‖∂loss/∂a_i‖ over examples and positions, a what the first
            layer's attention adds to its residual stream.

    >>> none, b = jnp.zeros((1, 2, 2)), jnp.zeros((2, 1))
    >>> gradients = PositionGradients(none, none, b, b, b)
    >>> W, E = jnp.ones((1, 1, 1)), jnp.eye(4)[:, :1]
    >>> audit = lemma_16(gradients, np.eye(2, 4), E, W, W, W, W, gradient_bound=1.0)
    >>> names = ("L_e", "2‖E‖∞", "2r", "slope of means")
    >>> [audit.measured[name].round(2).item() for name in names]
    [2.83, 2.0, 1.0, 0.71]
    """
    mu = as_distributions(mu)
    D = hellinger_distances(mu)
    dtype = gradients.delta.dtype
    means = mean_embeddings(mu, embeddings)
    largest, radius = largest_norm(embeddings).astype(dtype), _radius(mu, embeddings).astype(dtype)
    L_e = largest * (2.0 * embeddings.shape[0]) ** 0.5
    mean = largest_norm(means).astype(dtype)
    per_mean = score_norms(query, key).astype(dtype) * mean / query.shape[-1] ** 0.5
    L_A, halved = per_mean * L_e, per_mean * radius
    values = jnp.asarray(gradient_bound, dtype) * product_norms(value, output).astype(dtype)
    L_g = 0.25 * values * mean * L_A
    slopes = head_slopes(gradients.delta, D)
    logits_slopes = head_slopes(_weights_of_means(means, query, key, mu).astype(dtype), D)
    weights_slopes = head_slopes(gradients.weights, D)
    apart = euclidean_distances(means, present=mu.present).values.astype(dtype)
    d, where = D.values.astype(dtype), pair_mask(mu.present)
    least = jnp.min(jnp.where(where, d, jnp.inf))
    one_layer = jnp.where(least > 0, 0.5 * values * radius / least, jnp.inf)
    compare = partial(all_less_equal, tolerance=64 * float(jnp.finfo(dtype).eps))
    compare_means = partial(compare, apart, where=where, noise=rounding(means).astype(dtype))
    conclusions = {
        "(10)": compare_means(L_e * d),
        "(11) of mean logits": compare(logits_slopes, L_A),
        "(11) of weights": compare(weights_slopes, L_A),
        "(12)": compare(slopes, L_g),
    }
    instead = {
        "(10) by the radius": compare_means(radius * total_variation_bound(d)),
        "(11) halved": compare(logits_slopes, halved),
        "(12) of one layer": compare(slopes, one_layer),
    }
    measured = {
        "L_e": L_e,
        "2‖E‖∞": 2.0 * largest,
        "2r": 2.0 * radius,
        "slope of means": vector_slope(means, D),
        "L_A": L_A,
        "L_A halved": halved,
        "slopes of mean logits": logits_slopes,
        "slopes of weights": weights_slopes,
        "L_g": L_g,
        "slopes of δ": slopes,
    }
    return Audit({}, conclusions, measured, instead)


def _radius(mu: PositionalDistributions, embeddings: ArrayLike) -> Array:
    """max ‖E(v) − c‖ over words that occur, c near the best centre (Bădoiu and Clarkson 2003)."""
    occurs = occurring(mu)
    weight = occurs.astype(embeddings.dtype)
    start = dot(weight[None], embeddings)[0] / jnp.maximum(jnp.sum(weight), 1.0)

    def distances(c: Array) -> Array:
        return jnp.where(occurs, jnp.linalg.norm(embeddings - c[None, :], axis=1), 0.0)

    def step(k: Array, c: Array) -> Array:
        farthest = embeddings[jnp.argmax(distances(c))]
        return c + (farthest - c) / (k + 2).astype(c.dtype)

    near = lax.fori_loop(0, _STEPS, step, start)
    return jnp.minimum(jnp.max(distances(near)), jnp.max(distances(start)))


def _weights_of_means(
    means: Array, query: Projection, key: Projection, mu: PositionalDistributions
) -> Array:
    """softmax_j(ē_i M_h ē_jᵀ/√d_k) over the positions present, `[heads, n, n]`."""
    product = partial(jnp.einsum, precision="highest")
    q, k = (product("nd,dhc->hnc", means, x.astype(means.dtype)) for x in (query, key))
    logits = product("hic,hjc->hij", q, k) / query.shape[-1] ** 0.5
    return jax.nn.softmax(jnp.where(mu.present[None, None, :], logits, -jnp.inf), axis=-1)
