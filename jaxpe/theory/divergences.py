"""Divergences between positional distributions, and inequalities between them.

d_H is the Hellinger distance of Cirrincione (2026), d_H² = Σ(√μ − √ν)², without a factor 1/2. No
bound D_KL ≤ 2√2 d_H exists, as in its Corollary 15 (see `lemma_12`): what holds is D_KL ≤ C d_H²,
with C from the largest ratio μ/ν (`kl_ratio`) or the least probability of ν (`kl_constant`).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike, checked_jit
from jaxpe.geometry.counts.distributions import PositionalDistributions, as_distributions
from jaxpe.geometry.distances.matrices import floating, pair_mask, safe_sqrt

Distributions = PositionalDistributions | Float[ArrayLike, "n vocab"]

# g − 2 = 4 Σ_{k≥2} (−1)^k u^{k−1} / ((k − 1) k (k + 1)) with u = √x − 1, highest power first.
_SERIES = (*(4.0 * (-1) ** k / ((k - 1) * k * (k + 1)) for k in range(18, 1, -1)), 0.0)


@checked_jit(mu=as_distributions)
def kl_divergences(mu: Distributions) -> Float[Array, "n n"]:
    """Kullback–Leibler divergences D_KL(μ_i‖μ_j) in nats, in [0, ∞]; not symmetric.

    It is inf where μ_i has a word that μ_j has not: with observed frequencies this is almost every
    pair, so smooth them first. Pairs with an absent position are 0. It sums μ_i log(μ_i/μ_j) − μ_i
    + μ_j ≥ 0, which keeps the digits of near distributions. Rows are computed one at a time, with
    memory for one copy of μ; it takes n² · vocab logarithms. The derivative with respect to a
    probability of 0 is defined as 0. Rows that are no distributions raise an error, and give NaN
    inside `jit`.

    >>> kl_divergences(np.array([[0.5, 0.5], [1.0, 0.0]])).round(4).tolist()
    [[0.0, inf], [0.6931, 0.0]]
    """
    return _word_sums(mu, _kl_terms)


@checked_jit(mu=as_distributions)
def total_variation(mu: Distributions) -> Float[Array, "n n"]:
    """Total variation ‖μ_i − μ_j‖₁ = Σ_v |μ_i(v) − μ_j(v)|, in [0, 2] (no factor 1/2).

    Pairs with an absent position are 0. One row at a time, as in `kl_divergences`.

    >>> total_variation(np.eye(2)).tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    return _word_sums(mu, lambda p, q: jnp.abs(p - q))


def total_variation_bound(d: Float[ArrayLike, "*batch"] | float) -> Float[Array, "*batch"]:
    """Upper bound ‖μ − ν‖₁ ≤ d_H √(4 − d_H²) ≤ 2 d_H, for d_H in [0, √2] (clipped to it).

    Cauchy–Schwarz on |√μ − √ν| · (√μ + √ν), whose second factor has the squared norm
    2 + 2 Σ√(μν) = 4 − d_H². Attained by (s, 1 − s) and (1 − s, s). Conversely d_H² ≤ ‖μ − ν‖₁.

    >>> total_variation_bound(2.0**0.5).round(6).item()      # disjoint: ‖μ − ν‖₁ = 2
    2.0
    """
    d = _distance(d)
    return d * jnp.sqrt(4.0 - d**2)


def kl_ratio(ratio: Float[ArrayLike, "*batch"] | float) -> Float[Array, "*batch"]:
    """Ratio g(x) = (x log x − x + 1) / (√x − 1)² of D_KL to d_H² at μ/ν = x ≥ 0.

    g increases from g(0) = 1 through g(1) = 2 to inf, so for every μ and ν

        d_H² ≤ g(min μ/ν) d_H² ≤ D_KL(μ‖ν) ≤ g(max μ/ν) d_H².

    The upper constant is the least that depends on R = max μ/ν alone: take μ/ν = R on a word of
    probability ν → 0. It sharpens 2 + log R (Yang and Barron 1998, Lemma 4), with which it agrees
    at R = 1.

    >>> kl_ratio(np.array([0.0, 1.0, np.inf])).tolist()
    [1.0, 2.0, inf]
    """
    # D_KL = Σ ν φ(μ/ν) with φ(x) = x log x − x + 1, and d_H² = Σ ν (√x − 1)², term by term.
    # g increases: with s = √x, g = N/(s − 1)², N = 2s² log s − s² + 1 and N' = 4s log s, so that
    # g' (s − 1)³ = N'(s − 1) − 2N = 2s (s − 1/s − 2 log s), and the bracket, whose derivative is
    # (1 − 1/s)² ≥ 0, has the sign of s − 1.
    # g ≤ 2 + log x for x ≥ 1: (2 + log x)(s − 1)² − N = (3s − 1)(s − 1) − 2(2s − 1) log s is 0 at
    # s = 1 with its first two derivatives, the second being 6 − 4/s − 2/s² ≥ 0.
    x = _floating(ratio)
    u = safe_sqrt(x) - 1.0
    near = jnp.abs(u) < 0.25
    # Near 1 the series of ∫ 4s log s ds; N itself loses its digits there.
    series = 2.0 + jnp.polyval(jnp.asarray(_SERIES, x.dtype), jnp.where(near, u, 0.0))
    usable = (x > 0) & (x < jnp.inf) & ~near
    y = jnp.where(usable, x, 4.0)
    direct = (y * jnp.log(y) - y + 1.0) / (jnp.sqrt(y) - 1.0) ** 2
    value = jnp.where(near, series, direct)
    value = jnp.where(x == 0, 1.0, jnp.where(x == jnp.inf, jnp.inf, value))
    return jnp.where((x < 0) | jnp.isnan(x), jnp.nan, value)


def kl_constant(
    least: Float[ArrayLike, "*batch"] | float, d: Float[ArrayLike, "*batch"] | float = 2.0**0.5
) -> Float[Array, "*batch"]:
    """Constant C(m, d_H) with D_KL(μ‖ν) ≤ C d_H², m = `least` the least probability of ν.

    C = g(R) of `kl_ratio` with √R = min(1/√m, 1 + d_H/√m). It needs m > 0 on the words of μ (inf
    otherwise). It tends to 2 as d_H → 0 at fixed m, and without d_H it is g(1/m), about
    log(1/m) − 1.

    >>> kl_constant(1e-4).round(3).item(), kl_constant(1e-4, 1e-4).round(3).item()
    (8.377, 2.007)
    """
    # √μ(v) ≤ √ν(v) + |√μ(v) − √ν(v)| ≤ √ν(v) + d_H, and μ(v) ≤ 1: so √(μ/ν) is at most both.
    m = jnp.sqrt(_floating(least))
    d = _distance(d, m.dtype)
    root = jnp.minimum(1.0, m + d) / jnp.where(m > 0, m, 1.0)
    return kl_ratio(jnp.where(m > 0, root**2, jnp.inf))


def kl_lower_bound(d: Float[ArrayLike, "*batch"] | float) -> Float[Array, "*batch"]:
    """Lower bound D_KL ≥ −2 log(1 − d_H²/2) ≥ d_H², for d_H in [0, √2] (clipped to it).

    Jensen: −D_KL/2 = Σ μ log √(ν/μ) ≤ log Σ √(μν) = log(1 − d_H²/2).

    >>> kl_lower_bound(1.0).round(4).item()
    1.3863
    """
    d = _distance(d)
    return -2.0 * jnp.log1p(-jnp.minimum(0.5 * d**2, 1.0))


def _word_sums(mu: Any, terms: Callable[[Array, Array], Array]) -> Float[Array, "n n"]:
    """Σ_v terms(μ_i(v), μ_j(v)) for all pairs present, one i at a time."""
    p = mu.probabilities
    sums = jax.lax.map(lambda row: jnp.sum(terms(row[None, :], p), axis=1), p)
    return jnp.where(pair_mask(mu.present), sums, 0.0)


def _kl_terms(p: Array, q: Array) -> Array:
    """p log(p/q) − p + q, each ≥ 0; q where p = 0, inf where only q = 0."""
    both = (p > 0) & (q > 0)
    safe_p, safe_q = jnp.where(both, p, 1.0), jnp.where(both, q, 1.0)
    t = (safe_q - safe_p) / safe_p
    # log1p keeps the digits of p ≈ q; near t = −1, where q ≪ p, q/p has them.
    log_ratio = jnp.where(t > -0.5, jnp.log1p(jnp.maximum(t, -0.5)), jnp.log(safe_q / safe_p))
    inside = jnp.maximum(safe_p * (t - log_ratio), 0.0)
    return jnp.where(both, inside, jnp.where(p > 0, jnp.inf, q) + 0.0 * (p + q))  # NaN stays


def _floating(x: Float[ArrayLike, "*batch"] | float) -> Array:
    return floating(jnp.asarray(x, jnp.result_type(float)) if isinstance(x, float) else x)


def _distance(d: Float[ArrayLike, "*batch"] | float, dtype=None) -> Array:
    """A Hellinger distance, clipped to [0, √2]."""
    d = _floating(d)
    return jnp.clip(d if dtype is None else d.astype(dtype), 0.0, 2.0**0.5)
