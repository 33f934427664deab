"""Attention profiles: entropy, mean distance, and the shares of near keys and of the first key."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.base import as_positions, broadcast_mask, compute_dtype, expand_rank

Weights = Float[ArrayLike, "... heads n_q n_k"]
PerQuery = Float[Array, "... heads n_q"]


class AttentionProfile(NamedTuple):
    """Statistics of each query's attention weights; all 0 for a query without a key.

    Attributes:
        entropy: entropy in nats, `attention_entropy`.
        evenness: entropy over the largest it could be, in [0, 1], `attention_evenness`.
        distance: mean distance in positions, `attention_distance`.
        near: share of weight within the window, in [0, 1], `near_share`.
        first: share of weight on the first key, in [0, 1], `first_share`.
    """

    entropy: PerQuery
    evenness: PerQuery
    distance: PerQuery
    near: PerQuery
    first: PerQuery


@partial(jax.jit, static_argnames="window")
def attention_profile(
    weights: Weights,
    *,
    window: int | float = 8,
    mask: Bool[ArrayLike, "..."] | None = None,
    q_positions: ArrayLike | None = None,
    k_positions: ArrayLike | None = None,
) -> AttentionProfile:
    """All statistics of this module at once, `[..., heads, n_q]`.

    Args:
        weights: attention weights, such as a transformer returns with `trace=True`; rows sum to 1,
            or to 0 where all keys are masked.
        window, mask, q_positions, k_positions: arguments of the single functions, which also raise
            the errors.

    >>> causal = jnp.tri(4, dtype=bool)
    >>> even = jaxpe.encodings.attention_weights(jnp.zeros((1, 4, 4)), causal)
    >>> profile = attention_profile(even, window=1, mask=causal)
    >>> profile.evenness[0].round(4).tolist(), profile.distance[0].round(4).tolist()
    ([0.0, 1.0, 1.0, 1.0], [0.0, 0.5, 1.0, 1.5])
    >>> profile.near[0].round(2).tolist(), profile.first[0].round(2).tolist()
    ([1.0, 1.0, 0.67, 0.5], [1.0, 0.5, 0.33, 0.25])
    """
    where = {"q_positions": q_positions, "k_positions": k_positions}
    return AttentionProfile(
        attention_entropy(weights),
        attention_evenness(weights, mask),
        attention_distance(weights, **where),
        near_share(weights, window=window, **where),
        first_share(weights),
    )


@jax.jit
def attention_entropy(weights: Weights) -> PerQuery:
    """Attention entropy H_i = −Σ_j a_ij log a_ij in nats, from 0 (one key) to log n_k (all equal).

    exp(H_i) is the effective number of keys that the query attends to. Weights below the smallest
    normal number count as 0 with derivative 0, so masked keys have no effect. Towards 0 the
    derivative by a weight grows as −log a; the derivative by a logit does not. A weight of NaN
    gives NaN.

    >>> weights = jnp.asarray([[[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]])
    >>> jnp.exp(attention_entropy(weights))[0].tolist()
    [2.0, 1.0]
    """
    a = _wide(weights)
    none = a < jnp.finfo(a.dtype).tiny  # false for NaN, which passes
    # Before the logarithm too: otherwise the derivative of excluded weights would be 0 · inf.
    return jnp.sum(jnp.where(none, 0, -a * jnp.log(jnp.where(none, 1, a))), axis=-1)


@jax.jit
def attention_evenness(weights: Weights, mask: Bool[ArrayLike, "..."] | None = None) -> PerQuery:
    """Attention evenness: H_i over the log of the number of keys allowed, in [0, 1] (Pielou 1966).

    It makes queries with few and with many keys comparable. 0 for a query with at most one key.

    Args:
        weights: attention weights, 0 where the mask is false.
        mask: true where a query may attend, broadcasting to the weights; all keys when None.

    Raises:
        ValueError: a mask that is not boolean, or does not broadcast to the weights.

    >>> weights = jnp.asarray([[[1.0, 0.0], [0.5, 0.5]]])
    >>> attention_evenness(weights, jnp.tri(2, dtype=bool))[0].round(4).tolist()
    [0.0, 1.0]
    """
    entropy = attention_entropy(weights)
    shape = jnp.shape(weights)
    mask = jnp.ones(shape, bool) if mask is None else broadcast_mask(mask, shape)
    allowed = jnp.sum(mask, axis=-1).astype(entropy.dtype)
    choice = allowed > 1
    return jnp.where(choice, entropy / jnp.log(jnp.where(choice, allowed, 2)), 0)


@jax.jit
def attention_distance(
    weights: Weights, *, q_positions: ArrayLike | None = None, k_positions: ArrayLike | None = None
) -> PerQuery:
    """Mean attention distance Σ_j a_ij |i − j|, in positions.

    Args:
        weights: attention weights.
        q_positions, k_positions: i and j, `[..., n]` with the axes before heads; indices when None.

    Raises:
        ValueError: positions of other lengths than the weights, or no positions where the numbers
            of queries and keys differ (as with a cache).

    >>> attention_distance(jnp.asarray([[[1.0, 0.0], [0.25, 0.75]]]))[0].tolist()
    [0.0, 0.25]
    """
    a = _wide(weights)
    return jnp.sum(a * _distances(a, q_positions, k_positions), axis=-1)


@partial(jax.jit, static_argnames="window")
def near_share(
    weights: Weights,
    *,
    window: int | float,
    q_positions: ArrayLike | None = None,
    k_positions: ArrayLike | None = None,
) -> PerQuery:
    """Share of each query's weight on keys at most `window` positions away, Σ_{|i−j| ≤ w} a_ij.

    Args:
        weights: attention weights.
        window: w, in positions; 0 for the token itself.
        q_positions, k_positions: arguments of `attention_distance`.

    Raises:
        ValueError: a negative window, or as `attention_distance`.

    >>> near_share(jnp.asarray([[[1.0, 0.0], [0.25, 0.75]]]), window=0)[0].tolist()
    [1.0, 0.75]
    """
    if window < 0:
        raise ValueError(f"window is {window}: pass 0 (the token itself) or more positions")
    a = _wide(weights)
    return jnp.sum(jnp.where(_distances(a, q_positions, k_positions) <= window, a, 0), axis=-1)


@partial(jax.jit, static_argnames="keys")
def first_share(weights: Weights, *, keys: int = 1) -> PerQuery:
    """Share of each query's weight on the first keys: the sink of Xiao et al. (2023).

    With padding on the left these keys are padding. A count below 1 or above the number of keys
    raises `ValueError`.

    >>> first_share(jnp.asarray([[[1.0, 0.0], [0.25, 0.75]]]))[0].tolist()
    [1.0, 0.25]
    """
    a = _wide(weights)
    if not 1 <= keys <= a.shape[-1]:
        raise ValueError(f"keys is {keys}, but the weights have {a.shape[-1]}: pass 1 to that many")
    return jnp.sum(a[..., :keys], axis=-1)


def _wide(weights: ArrayLike) -> Array:
    """Weights in float32 or wider: sums of hundreds of bfloat16 numbers lose small terms."""
    weights = jnp.asarray(weights)
    if weights.ndim < 3:
        raise ValueError(f"weights have shape {weights.shape}: pass [..., heads, n_q, n_k]")
    return weights.astype(compute_dtype(weights))


def _distances(
    weights: Array, q_positions: ArrayLike | None, k_positions: ArrayLike | None
) -> Float[Array, "... n_q n_k"]:
    """|i − j| with the axes of the weights (1 for heads)."""
    n_q, n_k = weights.shape[-2:]
    if n_q != n_k and (q_positions is None or k_positions is None):
        raise ValueError(
            f"{n_q} queries attend to {n_k} keys: pass q_positions and k_positions, which say where"
        )
    i = _positions(q_positions, n_q, "q_positions", weights.ndim)
    j = _positions(k_positions, n_k, "k_positions", weights.ndim)
    if i.dtype != j.dtype:
        i, j = i.astype(weights.dtype), j.astype(weights.dtype)
    # Integers are subtracted as integers: float32 is exact only up to 2²⁴.
    return jnp.abs(i[..., :, None] - j[..., None, :]).astype(weights.dtype)


def _positions(positions: ArrayLike | None, n: int, name: str, ndim: int) -> Array:
    """Positions `[..., 1, n]`, 1 for the heads, with one axis fewer than the weights."""
    if positions is None:
        positions = jnp.arange(n, dtype=jnp.int32)
    positions = as_positions(positions)
    if positions.shape[-1:] != (n,) or positions.ndim > ndim - 2:
        raise ValueError(
            f"{name} have shape {positions.shape}: pass [..., n] with n = {n}, and no axis for "
            "heads"
        )
    return expand_rank(positions[..., None, :], ndim - 1)
