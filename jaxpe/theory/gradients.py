"""Gradients of the expected loss by positions and attention logits, the subject of Appendix A.

A model and its loss are two plain functions of one example; `jaxpe.nn.position_functions` makes
them of a Flax model.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float

from jaxpe._core.arrays import ArrayLike, dot
from jaxpe.geometry.counts.distributions import as_distributions
from jaxpe.geometry.distances.matrices import floating
from jaxpe.ntk.examples import expectation
from jaxpe.theory.divergences import Distributions
from jaxpe.theory.lipschitz import share

Loss = Callable[[Array, Array, Any], Array]
Attention = Callable[[Array, Any], tuple[Array, Array]]
Projection = Float[ArrayLike, "dim heads head_dim"]


class PositionGradients(NamedTuple):
    """Expectations over examples at one P, with δ_ij = ∂loss/∂L_ij of the first layer.

    Attributes:
        delta: E δ_ij by head.
        weights: E A_ij by head.
        forcing: b = −∂E[loss]/∂P.
        through_logits: the part of b through the first layer's logits. The rest acts through its
            values and the residual stream.
        by_means: this part with each δ replaced by its mean, which leaves out its correlation with
            the tokens.
    """

    delta: Float[Array, "heads n n"]
    weights: Float[Array, "heads n n"]
    forcing: Float[Array, "n d"]
    through_logits: Float[Array, "n d"]
    by_means: Float[Array, "n d"]


@partial(jax.jit, static_argnames=("loss", "attention", "batch_size"))
def position_gradients(
    loss: Loss,
    attention: Attention,
    P: Float[ArrayLike, "n d"],
    examples: Any,
    *,
    occupied: Bool[ArrayLike, "examples n"] | None = None,
    batch_size: int = 8,
) -> PositionGradients:
    """Gradients of the expected loss by positions, in total and through attention logits alone.

    With δ of each example, b through the logits is −E Σ_hij δ_hij ∂L_hij/∂P, a vector-Jacobian
    product that is exact for every model. Expectations are over all examples, padding included:
    this loss trains P, and masked pairs have δ = 0. Only weights are averaged over the examples in
    which the query holds a token.

    Args:
        loss: `(P, shift, example) -> scalar`, with `shift` `[heads, n, n]` added to the attention
            logits of the first layer; compiled once for the same functions.
        attention: `(P, example) -> (logits, weights)` of that layer, each `[heads, n, n]`, for the
            tokens that the loss sees (those with masked words, in a masked language model).
        P: point to differentiate at; 0 is the paper's initialisation.
        examples: pytree of `[examples, ...]`.
        occupied: true where an example has a token; everywhere when None.
        batch_size: examples at a time; it bounds memory and changes nothing else.

    Raises:
        ValueError: an `attention` that does not return two arrays `[heads, n, n]`.

    >>> def logits(P, x):
    ...     return ((x + P) @ (x + P).T)[None]
    >>> def attention(P, x):
    ...     return logits(P, x), jax.nn.softmax(logits(P, x))
    >>> def loss(P, shift, x):
    ...     return jnp.sum((jax.nn.softmax(logits(P, x) + shift) @ (x + P)) ** 2)
    >>> found = position_gradients(
    ...     loss, attention, jnp.zeros((2, 1)), jnp.array([[[1.0], [0.0]]]))
    >>> found.delta.sum(axis=-1).round(12).tolist()    # softmax ignores a shift of a row
    [[0.0, 0.0]]
    """
    P = jnp.asarray(P)
    count = jax.tree.leaves(examples)[0].shape[0]
    occupied = jnp.ones((count, P.shape[0]), bool) if occupied is None else occupied
    no_shift = jnp.zeros(_logits_shape(attention, P, examples), P.dtype)
    rows = (examples, occupied)

    def gradients(row: tuple[Any, Array]) -> tuple[PositionGradients, Array, Array]:
        example, present = row
        weights, back = _linearised(attention, P, example)
        by_P, delta = jax.grad(loss, argnums=(0, 1))(P, no_shift, example)
        present = present.astype(P.dtype)
        weights = weights.astype(P.dtype) * present[None, :, None]
        parts = PositionGradients(delta, weights, -by_P, -back(delta), jnp.zeros_like(by_P))
        return parts, present, present[:, None] * present[None, :]

    mean, queries, pairs = expectation(gradients, rows, batch_size)
    # E[δ x] = Pr[both present] E[δ x | both present], and δ is 0 elsewhere.
    expected = share(mean.delta, pairs[None])

    def by_means(row: tuple[Any, Array]) -> Array:
        example, present = row
        pair_present = (present[:, None] & present[None, :])[None]
        return -_linearised(attention, P, example)[1](jnp.where(pair_present, expected, 0.0))

    weights = share(mean.weights, queries[None, :, None])
    return mean._replace(weights=weights, by_means=expectation(by_means, rows, batch_size))


def mean_embeddings(
    mu: Distributions, embeddings: Float[ArrayLike, "vocab dim"]
) -> Float[Array, "n dim"]:
    """Mean embeddings ē_i = Σ_v μ_i(v) E(v); 0 for absent positions.

    >>> mean_embeddings(np.array([[0.5, 0.5]]), np.array([[1.0, 0.0], [3.0, 2.0]])).tolist()
    [[2.0, 1.0]]
    """
    mu = as_distributions(mu)
    embeddings = jnp.asarray(embeddings)
    frequencies = jnp.where(mu.present[:, None], floating(mu.probabilities), 0.0)
    return dot(frequencies.astype(embeddings.dtype), embeddings)


@jax.jit
def forcing_of_means(
    delta: Float[ArrayLike, "heads n n"],
    means: Float[ArrayLike, "n dim"],
    query: Projection,
    key: Projection,
) -> Float[Array, "n dim"]:
    """Forcing b of Lemmas 12 and 14, −Σ_hk (δ_hik ē_k M_hᵀ + δ_hki ē_k M_h)/√d_k, M = W_Q W_Kᵀ.

    The paper writes Mᵀ in both terms; ∂L_ki/∂p_i = x_k M/√d_k has M, which is another matrix
    unless M is symmetric.

    >>> W = jnp.ones((1, 1, 1))
    >>> delta = jnp.array([[[1.0, -1.0], [0.0, 0.0]]])
    >>> forcing_of_means(delta, jnp.array([[0.0], [2.0]]), W, W).tolist()
    [[2.0], [-0.0]]
    """
    means, query, key = (x.astype(delta.dtype) for x in (means, query, key))
    term = partial(jnp.einsum, precision="highest")
    by_keys = term("hik,kd,dhc,ehc->ie", delta, means, key, query)
    by_queries = term("hki,kd,dhc,ehc->ie", delta, means, query, key)
    return -(by_keys + by_queries) / query.shape[-1] ** 0.5


def score_norms(query: Projection, key: Projection) -> Float[Array, " heads"]:
    """Largest singular value ‖M_h‖ = ‖W_Q,h W_K,hᵀ‖ by head, without forming `[dim, dim]`.

    >>> score_norms(np.ones((4, 1, 1)), 3 * np.ones((4, 1, 1))).round(6).tolist()
    [12.0]
    """
    return product_norms(query, jnp.transpose(jnp.asarray(key), (1, 2, 0)))


def product_norms(
    inward: Projection, outward: Float[ArrayLike, "heads head_dim dim2"]
) -> Float[Array, " heads"]:
    """Largest singular value ‖W_h U_h‖ by head, such as of values and output, W_V W_O.

    >>> product_norms(np.ones((4, 1, 1)), 3 * np.ones((1, 1, 4))).round(6).tolist()
    [12.0]
    """
    # An orthonormal factor on either side changes no singular value.
    left = jnp.linalg.qr(jnp.transpose(jnp.asarray(inward), (1, 0, 2)), mode="r")
    right = jnp.linalg.qr(jnp.transpose(jnp.asarray(outward), (0, 2, 1)), mode="r")
    product = jnp.einsum("hac,hbc->hab", left, right, precision=lax.Precision.HIGHEST)
    return jnp.linalg.norm(product, ord=2, axis=(1, 2))


def largest_norm(x: Float[ArrayLike, "n dim"]) -> Float[Array, ""]:
    """Largest norm of a row, ‖x‖∞ = max ‖x_i‖.

    >>> largest_norm(np.array([[3.0, 4.0], [0.0, 0.0]])).item()
    5.0
    """
    return jnp.max(jnp.linalg.norm(jnp.asarray(x), axis=1), initial=0.0)


def _linearised(
    attention: Attention, P: Array, example: Any
) -> tuple[Array, Callable[[Array], Array]]:
    """Weights at P, and δ ↦ Σ δ_hij ∂L_hij/∂P."""
    logits, back, weights = jax.vjp(lambda P: attention(P, example), P, has_aux=True)
    return weights, lambda delta: back(delta.astype(logits.dtype))[0]


def _logits_shape(attention: Attention, P: Array, examples: Any) -> tuple[int, ...]:
    example = jax.tree.map(lambda leaf: jax.eval_shape(lambda x: x[0], leaf), examples)
    shapes = [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(attention, P, example))]
    n = P.shape[0]
    if len(shapes) != 2 or shapes[0] != shapes[1] or shapes[0][1:] != (n, n):
        raise ValueError(
            f"attention gives {shapes} for one example and {n} positions: pass a function that "
            f"gives logits and weights of the first layer, each [heads, {n}, {n}]"
        )
    return shapes[0]
