"""Reference attention: the plainest form, which calls every hook of an encoding."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from jaxpe._core.arrays import ArrayLike, Scalar
from jaxpe.encodings.base import (
    Encoding,
    Params,
    as_floats,
    as_mask,
    bind_context,
    broadcast_mask,
    centered_positions,
    check_queries_and_keys,
    compute_dtype,
    expand_rank,
    repeat_heads,
)
from jaxpe.geometry.distances.matrices import floating

Queries = Float[ArrayLike, "... n_q heads head_dim"]
Keys = Float[ArrayLike, "... n_k groups head_dim"]


def dot_products(q: Queries, k: Keys) -> Float[Array, "... heads n_q n_k"]:
    """Inner products of queries and keys, float32 or wider; heads share keys evenly.

    >>> x = jnp.ones((3, 2, 4))
    >>> dot_products(x, x)[0, 0].tolist()
    [4.0, 4.0, 4.0]
    """
    q, k = as_floats(q, "q"), as_floats(k, "k")
    k = repeat_heads(k, q.shape[-2])
    return jnp.einsum("...qhd,...khd->...hqk", q, k, preferred_element_type=compute_dtype(q))


def attention_logits(
    encoding: Encoding,
    params: Params,
    q: Queries,
    k: Keys,
    *,
    q_positions: ArrayLike,
    k_positions: ArrayLike,
    scale: Scalar | None = None,
    encoded_keys: bool = False,
    q_context: Any = None,
    k_context: Any = None,
) -> Float[Array, "... heads n_q n_k"]:
    """Logits scale·⟨query(q_i), key(k_j)⟩ + bias_ij, float32 or wider.

    An encoding's `products` replace the inner products.

    Args:
        encoding: encoding whose hooks `query`, `key`, `products` and `bias` act.
        params: parameters from `encoding.init`, trained or not.
        q, k: queries and keys; with fewer key heads, query heads share them evenly.
        q_positions, k_positions: `[..., n_q]` and `[..., n_k]`.
        scale: factor of q·k, 1/√head_dim when None. Biases that depend on the content (Shaw,
            Transformer-XL, CoPE) keep the factor of their published form.
        encoded_keys: whether `encoding.key` has been applied to k already, as to cached keys.
        q_context, k_context: contexts of the tokens of queries and of keys, where the encoding
            defines `context`.

    >>> far = jaxpe.alibi(num_heads=1, slopes=1.0)
    >>> x, i = jnp.zeros((3, 1, 2)), jnp.arange(3)
    >>> attention_logits(far, (), x, x, q_positions=i, k_positions=i)[0, 0].tolist()
    [0.0, -1.0, -2.0]
    """
    q, k = as_floats(q, "q"), as_floats(k, "k")
    check_queries_and_keys(q, k)
    dtype = compute_dtype(q)
    encoding = bind_context(encoding, q_context, k_context)
    scale = jnp.asarray(q.shape[-1] ** -0.5 if scale is None else scale, dtype)
    i, j = q_positions, k_positions
    if not encoded_keys:
        i, j = centered_positions(encoding, i, j)
    q = encoding.query(params, q, i)
    k = k if encoded_keys else encoding.key(params, k, j)
    bias = encoding.bias(params, q, k, q_positions, k_positions)
    products = encoding.products(params, q, k, q_positions, k_positions)
    logits = scale * (dot_products(q, k) if products is None else products)
    return logits if bias is None else logits + expand_rank(bias, logits.ndim, dtype)


@jax.jit
def attention_weights(
    logits: Float[ArrayLike, "... heads n_q n_k"], mask: ArrayLike | None = None
) -> Float[Array, "... heads n_q n_k"]:
    """Softmax of the logits over the keys that a query may attend to; 0 for other keys.

    Rows whose keys are all masked are 0. Gradients are finite everywhere.

    Args:
        logits: float32 or wider.
        mask: boolean, true where a query may attend, broadcasting to the logits.

    Raises:
        ValueError: a mask that is not boolean (an additive one would be read backwards), or has
            more axes than the logits.

    >>> attention_weights(jnp.zeros((1, 1, 2)), np.array([[True, False]])).tolist()
    [[[1.0, 0.0]]]
    """
    logits = floating(logits, "logits")
    if logits.ndim < 1 or (not logits.shape[-1] and math.prod(logits.shape[:-1])):
        raise ValueError(f"logits have shape {logits.shape}: pass [..., n_q, n_k] of some keys")
    if mask is None:
        return jax.nn.softmax(logits, axis=-1)
    mask = broadcast_mask(mask, logits.shape)
    weights = jax.nn.softmax(jnp.where(mask, logits, jnp.finfo(logits.dtype).min), axis=-1)
    return jnp.where(mask, weights, 0.0)


def encoded_weights(
    encoding: Encoding,
    params: Params,
    logits: Float[ArrayLike, "... heads n_q n_k"],
    mask: ArrayLike | None = None,
    *,
    q_positions: ArrayLike,
    k_positions: ArrayLike,
) -> Float[Array, "... heads n_q n_k"]:
    """Attention weights: the encoding's own, if it defines `weights`, or `attention_weights`.

    Args:
        mask: boolean, true where a query may attend; `encoded_mask` adds the encoding's mask.
        encoding, params, q_positions, k_positions: as in `attention_logits`.

    >>> logits, i = jnp.zeros((1, 2, 2)), jnp.arange(2)
    >>> encoded_weights(Encoding(), (), logits, q_positions=i, k_positions=i)[0].tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    weights = encoding.weights(params, logits, mask, q_positions, k_positions)
    return attention_weights(logits, mask) if weights is None else weights


def encoded_mask(
    encoding: Encoding,
    params: Params,
    q: Queries,
    k: Keys,
    mask: ArrayLike | None = None,
    *,
    q_positions: ArrayLike,
    k_positions: ArrayLike,
) -> Bool[Array, "..."] | None:
    """Mask of the keys that a query may attend to, by `mask` and by the encoding; None for all.

    Arguments as in `attend`.

    >>> x, i = jnp.zeros((2, 1, 2)), jnp.arange(2)
    >>> encoded_mask(Encoding(), (), x, x, q_positions=i, k_positions=i) is None
    True
    """
    mask = None if mask is None else as_mask(mask)
    encoding_mask = encoding.mask(params, q, k, q_positions, k_positions)
    if encoding_mask is None or mask is None:
        return mask if encoding_mask is None else encoding_mask
    ndim = max(mask.ndim, encoding_mask.ndim)
    return expand_rank(mask, ndim) & expand_rank(encoding_mask, ndim)


def attention_output(
    encoding: Encoding,
    params: Params,
    weights: Float[ArrayLike, "... heads n_q n_k"],
    v: Keys,
    *,
    q_positions: ArrayLike,
    k_positions: ArrayLike,
) -> Float[Array, "... n_q heads head_dim"]:
    """Attention output: weights times values, plus the encoding's value term, in the dtype of v.

    With fewer value heads, heads share them evenly. Arguments are as in `attention_logits`.

    >>> v, i = jnp.asarray([[[1.0]], [[3.0]]]), jnp.arange(2)
    >>> weights = jnp.asarray([[[0.5, 0.5]]])
    >>> attention_output(identity(), (), weights, v, q_positions=i[1:], k_positions=i).item()
    2.0
    """
    weights, v = floating(weights, "weights"), as_floats(v, "v")
    leading = zip(weights.shape[:-3], v.shape[:-3], strict=False)
    fits = 3 <= weights.ndim == v.ndim and weights.shape[-1] == v.shape[-3]
    if not fits or any(1 != a != b != 1 for a, b in leading):
        raise ValueError(
            f"weights have shape {weights.shape} and v {v.shape}: pass [..., heads, n_q, n_k] and "
            "[..., n_k, heads, head_dim], with equal numbers of axes"
        )
    values = repeat_heads(v, weights.shape[-3]).astype(weights.dtype)
    out = jnp.einsum("...hqk,...khd->...qhd", weights, values)
    term = encoding.value(params, weights, q_positions, k_positions)
    if term is None:
        return out.astype(v.dtype)
    if term.shape[-1] != v.shape[-1]:
        raise ValueError(
            f"the encoding adds values of width {term.shape[-1]}, but values have {v.shape[-1]}: "
            "build it for the width of values"
        )
    return (out + term.astype(out.dtype)).astype(v.dtype)


def attend(
    encoding: Encoding,
    params: Params,
    q: Queries,
    k: Keys,
    v: Keys,
    *,
    q_positions: ArrayLike,
    k_positions: ArrayLike,
    mask: ArrayLike | None = None,
    scale: Scalar | None = None,
    encoded_keys: bool = False,
    q_context: Any = None,
    k_context: Any = None,
) -> Float[Array, "... n_q heads head_dim"]:
    """Attention with an encoding: softmax of `attention_logits`, times values, plus its value term.

    It is written for clarity, and stores the n × n weights. Rows whose keys are all masked give 0.

    Args:
        encoding: encoding whose hooks are called, except `embed`, which the caller applies to the
            embeddings.
        v: values, with the heads of the keys.
        mask: boolean, true where a query may attend, broadcasting to `[..., heads, n_q, n_k]`.
        params, q, k, q_positions, k_positions, scale, encoded_keys, q_context, k_context: arguments
            of `attention_logits`.

    Raises:
        ValueError: a mask that `attention_weights` refuses.

    >>> v = jnp.asarray([[[1.0]], [[3.0]]])
    >>> i = jnp.arange(2)
    >>> attend(identity(), (), 0 * v, 0 * v, v, q_positions=i, k_positions=i).ravel().tolist()
    [2.0, 2.0]
    """
    pair_positions = {"q_positions": q_positions, "k_positions": k_positions}
    encoding = bind_context(encoding, q_context, k_context)
    logits = attention_logits(
        encoding, params, q, k, scale=scale, encoded_keys=encoded_keys, **pair_positions
    )
    mask = encoded_mask(encoding, params, jnp.asarray(q), jnp.asarray(k), mask, **pair_positions)
    weights = encoded_weights(encoding, params, logits, mask, **pair_positions)
    return attention_output(encoding, params, weights, v, **pair_positions)
