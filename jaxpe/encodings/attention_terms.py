"""Reference attention: the plainest form, which calls every hook of an encoding."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike, Scalar
from jaxpe.encodings.base import (
    Encoding,
    Params,
    as_floats,
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
    cap: float | None = None,
    encoded_queries: bool = False,
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
        cap: soft cap c, c·tanh(logits/c); none when None.
        encoded_queries, encoded_keys: whether `encoding.query` has been applied to q already, and
            `encoding.key` to k, as to cached keys.
        q_context, k_context: contexts of the tokens of queries and of keys, where the encoding
            defines `context`.

    >>> far = jaxpe.encodings.alibi(num_heads=1, slopes=1.0)
    >>> x, i = jnp.zeros((3, 1, 2)), jnp.arange(3)
    >>> attention_logits(far, (), x, x, q_positions=i, k_positions=i)[0, 0].tolist()
    [0.0, -1.0, -2.0]
    """
    q, k = as_floats(q, "q"), as_floats(k, "k")
    check_queries_and_keys(q, k)
    encoding = bind_context(encoding, q_context, k_context)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    i, j = q_positions, k_positions
    if not encoded_keys:
        i, j = centered_positions(encoding, i, j)
    q = q if encoded_queries else encoding.query(params, q, i)
    k = k if encoded_keys else encoding.key(params, k, j)
    bias = encoding.bias(params, q, k, q_positions, k_positions)
    products = encoding.products(params, q, k, q_positions, k_positions)
    return encoded_logits(dot_products(q, k) if products is None else products, bias, scale, cap)


def encoded_logits(
    products: Float[ArrayLike, "... heads n_q n_k"],
    bias: Array | None,
    scale: float | ArrayLike,
    cap: float | None = None,
) -> Float[Array, "... heads n_q n_k"]:
    """Logits from products and bias: scale·products + bias, within ±cap where there is one.

    >>> encoded_logits(jnp.ones((1, 1, 1)), None, 2.0).item()
    2.0
    """
    logits = jnp.asarray(scale, products.dtype) * products
    logits = logits if bias is None else logits + expand_rank(bias, logits.ndim, logits.dtype)
    return capped(logits, cap)


def capped(logits: Array, cap: float | None) -> Array:
    """Soft-capped logits c·tanh(logits/c), within ±c; unchanged without a cap."""
    if cap is None:
        return logits
    limit = jnp.asarray(cap, logits.dtype)
    return limit * jnp.tanh(logits / limit)


@jax.jit
def attention_weights(
    logits: Float[ArrayLike, "... heads n_q n_k"],
    mask: ArrayLike | None = None,
    *,
    sink: Float[ArrayLike, " heads"] | None = None,
) -> Float[Array, "... heads n_q n_k"]:
    """Softmax of the logits over the keys that a query may attend to; 0 for other keys.

    Rows whose keys are all masked are 0. Gradients are finite everywhere.

    Args:
        logits: float32 or wider.
        mask: boolean, true where a query may attend, broadcasting to the logits.
        sink: a logit a head for no key at all, in the denominator alone; none when None.

    Raises:
        ValueError: a mask that is not boolean (an additive one would be read backwards), or has
            more axes than the logits.

    >>> attention_weights(jnp.zeros((1, 1, 2)), np.array([[True, False]])).tolist()
    [[[1.0, 0.0]]]
    """
    logits = floating(logits, "logits")
    if logits.ndim < 1 or (not logits.shape[-1] and math.prod(logits.shape[:-1])):
        raise ValueError(f"logits have shape {logits.shape}: pass [..., n_q, n_k] of some keys")
    allowed = None if mask is None else broadcast_mask(mask, logits.shape)
    least = jnp.finfo(logits.dtype).min
    # Without an operation between, XLA may compute scale·products − maximum in one instruction, in
    # which the product is not rounded as the maximum was. Of large logits the softmax would be NaN.
    logits = jnp.maximum(logits, least) if allowed is None else jnp.where(allowed, logits, least)
    n_k = logits.shape[-1]
    if sink is not None:
        column = expand_rank(sink[:, None, None], logits.ndim, logits.dtype)
        column = jnp.broadcast_to(column, (*logits.shape[:-1], 1))
        logits = jnp.concatenate([logits, column], axis=-1)
    weights = jax.nn.softmax(logits, axis=-1)[..., :n_k]
    return weights if allowed is None else jnp.where(allowed, weights, 0.0)


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
    if term is not None and term.shape[-1] != v.shape[-1]:
        raise ValueError(
            f"the encoding adds values of width {term.shape[-1]}, but values have {v.shape[-1]}: "
            "build it for the width of values"
        )
    return (out if term is None else out + term.astype(out.dtype)).astype(v.dtype)


def gated(out: Array, gate: ArrayLike | None) -> Array:
    """Attention output times σ(gate), in the dtype of the output; unchanged without a gate."""
    if gate is None:
        return out
    share = jax.nn.sigmoid(jnp.asarray(gate, compute_dtype(out)))
    return (out * share).astype(out.dtype)


def dropout_bits(key: Array, shape: tuple[int, ...], n_q: int, n_k: int) -> tuple[Array, Array]:
    """Random bits of queries and of keys, `[*shape, n]`, that decide which weights are dropped.

    Whether the weight of a pair survives depends on the bits of its query and its key, so it is
    the same in any block, and memory is linear.

    >>> rows, columns = dropout_bits(jax.random.key(0), (2,), 3, 4)
    >>> dropout_factors(rows, columns, 0.5).shape
    (2, 3, 4)
    """
    of_queries, of_keys = jax.random.split(key)
    rows = jax.random.bits(of_queries, (*shape, n_q), jnp.uint32)
    return rows, jax.random.bits(of_keys, (*shape, n_k), jnp.uint32)


def dropout_factors(rows: Array, columns: Array, rate: float, dtype: Any = float) -> Array:
    """Factors of the weights `[..., n_q, n_k]`: 0 for a share `rate`, and 1/(1 − rate)."""
    bits = rows[..., :, None] ^ columns[..., None, :]
    # The finaliser of MurmurHash3: every bit of the sum changes half of the others.
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = (bits ^ (bits >> jnp.uint32(shift))) * jnp.uint32(factor)
    threshold = min(round(rate * 2**32), 2**32 - 1)  # of a rate next to 1, too
    survives = (bits ^ (bits >> jnp.uint32(16))) >= jnp.uint32(threshold)
    return jnp.where(survives, jnp.asarray(1 / (1 - rate), dtype), 0)
