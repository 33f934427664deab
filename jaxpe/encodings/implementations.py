"""Attention with an encoding, and the implementations that compute it."""

import math
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.attention import (
    Keys,
    Queries,
    attention_logits,
    attention_output,
    dropout_bits,
    dropout_factors,
    encoded_weights,
)
from jaxpe.encodings.attention_mask import AttentionMask, Mask, encoded_mask
from jaxpe.encodings.base import (
    Encoding,
    Params,
    as_floats,
    as_mask,
    bind_context,
    centered_positions,
    check_choice,
    check_queries_and_keys,
    check_sizes,
    compute_dtype,
    expand_rank,
)
from jaxpe.encodings.block_attention import Plan, Tokens, block_attention

Implementation = Literal["dense", "blocks", "xla", "cudnn"]
# Pairs of a query and a key, in one row and head. Up to the first, XLA's fused attention is as fast
# as blocks; up to the second, "dense" stands in for blocks that an encoding does not have.
SMALL, LARGE = 512 * 512, 8192 * 8192


def attend(
    encoding: Encoding,
    params: Params,
    q: Queries,
    k: Keys,
    v: Keys,
    *,
    q_positions: ArrayLike,
    k_positions: ArrayLike,
    mask: Mask | None = None,
    scale: float | ArrayLike | None = None,
    cap: float | None = None,
    sink: Float[ArrayLike, " heads"] | None = None,
    gate: Float[ArrayLike, "... n_q heads _"] | None = None,
    dropout_rate: float = 0.0,
    dropout_key: Array | None = None,
    broadcast_dropout: bool = False,
    encoded_queries: bool = False,
    encoded_keys: bool = False,
    q_context: Any = None,
    k_context: Any = None,
    implementation: Implementation | None = None,
    block_size: int = 256,
) -> Float[Array, "... n_q heads head_dim"]:
    """Attention with an encoding: softmax of `attention_logits`, times values, plus its value term.

    Attention in blocks takes memory linear in the length, for every encoding of the catalogue, with
    exact gradients. Rows whose keys are all masked give 0.

    Args:
        encoding: encoding whose hooks are called, except `embed`, which the caller applies to the
            embeddings.
        v: values, with the heads of the keys.
        mask: true where a query may attend: an array that broadcasts to `[..., heads, n_q, n_k]`,
            an `AttentionMask` of numbers of single tokens, or a function of the positions of
            queries `[..., 1, n_q, 1]` and keys `[..., 1, 1, n_k]`, such as `lambda i, j: j <= i`.
            The last two need no array of pairs, and blocks that they mask are skipped.
        cap: soft cap c of the logits, c·tanh(logits/c).
        sink: a learned logit a head, in the denominator of the softmax alone, as in gpt-oss.
        gate: the output is multiplied by σ(gate); `[..., n_q, heads, 1]` for one number a head.
        dropout_rate: share of the weights that dropout sets to 0, where there is a `dropout_key`.
        dropout_key: random key. The same weights are dropped in every implementation.
        broadcast_dropout: whether all rows and heads drop the weights of the same pairs.
        implementation: "dense" stores n × n weights, and is the reference; "blocks" makes them by
            blocks; "xla" and "cudnn" are `jax.nn.dot_product_attention`, with an n × n bias. By
            default "xla" up to 512 × 512 pairs, or "dense" for what it lacks, and "blocks" beyond.
        block_size: queries and keys of a block; only time and memory depend on it.
        params, q, k, q_positions, k_positions, scale, encoded_queries, encoded_keys, q_context,
            k_context: arguments of `attention_logits`.

    Raises:
        ValueError: shapes that do not fit, a mask that is not boolean, an implementation that
            cannot compute what is asked for, or weights of whole rows beyond 8192 × 8192 pairs.

    >>> v = jnp.asarray([[[1.0]], [[3.0]]])
    >>> i = jnp.arange(2)
    >>> attend(identity(), (), 0 * v, 0 * v, v, q_positions=i, k_positions=i).ravel().tolist()
    [2.0, 2.0]
    """
    q, k, v = as_floats(q, "q"), as_floats(k, "k"), as_floats(v, "v")
    check_queries_and_keys(q, k)
    bound = bind_context(encoding, q_context, k_context)
    i, j = q_positions, k_positions
    if not encoded_keys:
        i, j = centered_positions(encoding, i, j)
    call = Call(
        q if encoded_queries else bound.query(params, q, i),
        k if encoded_keys else bound.key(params, k, j),
        v, q_positions, k_positions, mask, q.shape[-1] ** -0.5 if scale is None else scale, cap,
        sink,
    )  # fmt: skip
    if dropout_key is not None:
        call = call.with_dropout(dropout_key, dropout_rate, broadcast=broadcast_dropout)
    contexts = {"q_context": q_context, "k_context": k_context}
    out = encoded_attention(
        encoding, params, call, implementation, block_size=block_size, **contexts
    )
    if gate is None:
        return out
    gate = jax.nn.sigmoid(jnp.asarray(gate, compute_dtype(out)))
    return (out * gate).astype(out.dtype)


class Call(NamedTuple):
    """Arrays and options of one attention; q and k are encoded. Fields are those of `attend`."""

    q: Array
    k: Array
    v: Array
    q_positions: ArrayLike
    k_positions: ArrayLike
    mask: Mask | None = None
    scale: float | ArrayLike = 1.0
    cap: float | None = None
    sink: ArrayLike | None = None
    bits: tuple[Array, Array] | None = None
    dropout_rate: float = 0.0

    @property
    def positions(self) -> dict[str, ArrayLike]:
        """Positions of queries and keys, by name."""
        return {"q_positions": self.q_positions, "k_positions": self.k_positions}

    def with_dropout(self, key: Array, rate: float, *, broadcast: bool = False) -> "Call":
        """The call with dropout of a share `rate` of the weights."""
        if rate == 0.0:
            return self
        lead = jnp.broadcast_shapes(self.q.shape[:-3], self.k.shape[:-3])
        shape = (1,) * (len(lead) + 1) if broadcast else (*lead, self.q.shape[-2])
        bits = dropout_bits(key, shape, self.q.shape[-3], self.k.shape[-3])
        return self._replace(bits=bits, dropout_rate=rate)


def encoded_attention(
    encoding: Encoding,
    params: Params,
    call: Call,
    implementation: Implementation | None = None,
    *,
    q_context: Any = None,
    k_context: Any = None,
    block_size: int = 256,
) -> Array:
    """Attention of queries and keys that the encoding has encoded; arguments as in `attend`."""
    bound = bind_context(encoding, q_context, k_context)
    chosen = chosen_implementation(encoding, call, implementation)
    if chosen == "dense":
        return dense_attention(bound, params, call)[0]
    if chosen == "blocks":
        return _blocks(encoding, params, call, q_context, k_context, block_size)
    return _fused(bound, params, call, chosen)


def lacking(implementation: str, encoding: Encoding, call: Call | None = None) -> str | None:
    """What an implementation cannot compute, in words; None where it can.

    Args:
        implementation: one of `Implementation`.
        encoding: an encoding; only its hooks matter.
        call: the arrays and options; None for plain attention of float32.

    >>> lacking("xla", jaxpe.encodings.stick_breaking())
    'weights other than a softmax'
    """
    if implementation == "dense":
        return None
    if implementation == "blocks":
        whole = encoding.defines("weights") and not encoding.defines("key_carry")
        return "weights made of whole rows (an encoding without `key_carry`)" if whole else None
    names = {
        "products": "products other than q·k",
        "weights": "weights other than a softmax",
        "value": "a term of values",
    }
    reasons = [words for hook, words in names.items() if encoding.defines(hook)]
    if call is not None:
        absent = {"a soft cap": call.cap, "a sink": call.sink, "dropout": call.bits}
        reasons += [words for words, value in absent.items() if value is not None]
        if call.v.shape[-1] > call.k.shape[-1]:
            reasons.append("values wider than keys")
        # It computes logits of float64 in float32, and XLA lacks float16 on CPUs.
        if call.q.dtype == jnp.float64 or (call.q.dtype == jnp.float16 and implementation == "xla"):
            reasons.append(f"{call.q.dtype}")
        if np.ndim(call.scale):
            reasons.append("a scale for each head")
    return reasons[0] if reasons else None


def chosen_implementation(
    encoding: Encoding, call: Call, implementation: Implementation | None
) -> Implementation:
    """The implementation that was asked for, or the default by size and by what it can compute."""
    if implementation is not None:
        check_choice("implementation", implementation, get_args(Implementation))
        lack = lacking(implementation, encoding, call)
        if lack is not None:
            raise ValueError(
                f"implementation {implementation!r} cannot compute {lack}: pass 'dense', or None "
                "for the default"
            )
        return implementation
    pairs = call.q.shape[-3] * call.k.shape[-3]
    if pairs <= SMALL:
        return "dense" if lacking("xla", encoding, call) else "xla"
    lack = lacking("blocks", encoding, call)
    if lack is not None and pairs > LARGE:
        raise ValueError(
            f"{call.q.shape[-3]} queries and {call.k.shape[-3]} keys need {lack}: pass "
            "implementation='dense', which stores all weights"
        )
    return "blocks" if lack is None else "dense"


def dense_attention(encoding: Encoding, params: Params, call: Call) -> tuple[Array, Array, Array]:
    """Output, logits and weights of attention that stores all pairs.

    The encoding's contexts are bound, and its hooks `query` and `key` have acted.
    """
    logits = attention_logits(
        encoding, params, call.q, call.k, scale=call.scale, cap=call.cap, encoded_queries=True,
        encoded_keys=True, **call.positions,
    )  # fmt: skip
    mask = encoded_mask(encoding, params, call.q, call.k, call.mask, **call.positions)
    weights = encoded_weights(encoding, params, logits, mask, sink=call.sink, **call.positions)
    dropped = weights
    if call.bits is not None:
        dropped = weights * dropout_factors(*call.bits, call.dropout_rate, weights.dtype)
    out = attention_output(encoding, params, dropped, call.v, **call.positions)
    return out, logits, weights


def _fused(encoding: Encoding, params: Params, call: Call, implementation: str) -> Array:
    """`jax.nn.dot_product_attention`, with the encoding's bias and mask."""
    q, k, v = call.q, call.k, call.v
    lead, width = q.shape[:-3], v.shape[-1]
    mask = encoded_mask(encoding, params, q, k, call.mask, **call.positions)
    bias = encoding.bias(params, q, k, *call.positions.values())
    bias, mask = (None if x is None else _four_axes(x, lead) for x in (bias, mask))
    q, k, v = (
        jnp.broadcast_to(x, (*lead, *x.shape[-3:])).reshape(math.prod(lead), *x.shape[-3:])
        for x in (q, k, v)
    )
    v = jnp.pad(v, [(0, 0)] * 3 + [(0, k.shape[-1] - width)])
    options: Any = {"scale": call.scale, "implementation": implementation}
    with jax.numpy_dtype_promotion("standard"):  # it mixes 16-bit numbers and float32
        out = jax.nn.dot_product_attention(q, k, v, bias, mask, **options)
    if mask is not None:  # a query whose keys are all masked would attend to all
        out = jnp.where(jnp.any(mask, axis=-1).swapaxes(-1, -2)[..., None], out, 0)
    return out[..., :width].reshape(*lead, *out.shape[-3:-1], width)


def _four_axes(x: Array, lead: tuple[int, ...]) -> Array:
    """Array `[..., heads, n_q, n_k]` with one leading axis, for the fused implementations."""
    x = expand_rank(x, len(lead) + 3)
    if len(lead) == 1:
        return x
    if all(size == 1 for size in x.shape[:-3]):
        return x.reshape(1, *x.shape[-3:])
    return jnp.broadcast_to(x, (*lead, *x.shape[-3:])).reshape(math.prod(lead), *x.shape[-3:])


def _blocks(
    encoding: Encoding, params: Params, call: Call, q_context: Any, k_context: Any, block_size: int
) -> Array:
    """Attention in blocks, of the arrays of a call."""
    check_sizes(block_size=block_size)
    lead = jnp.broadcast_shapes(*(x.shape[:-3] for x in (call.q, call.k, call.v)))
    q, k, v = (jnp.broadcast_to(x, (*lead, *x.shape[-3:])) for x in (call.q, call.k, call.v))
    if not (math.prod(lead) and q.shape[-3] and k.shape[-3]):
        return jnp.zeros((*q.shape[:-1], v.shape[-1]), v.dtype)
    queries = Tokens(jnp.asarray(call.q_positions), q_context)
    keys = Tokens(jnp.asarray(call.k_positions), k_context)
    by_position, pairs = None, None
    if isinstance(call.mask, AttentionMask):
        only = call.mask._replace(k_order=None, k_segments=None, k_valid=None)
        queries = queries._replace(mask=only)
        keys = keys._replace(mask=call.mask._replace(q_order=None, q_segments=None))
    elif callable(call.mask):
        by_position = call.mask
    elif call.mask is not None:
        pairs = expand_rank(as_mask(call.mask), q.ndim)
        of_keys = pairs.shape[-2] == 1
        queries = queries._replace(pairs=None if of_keys else pairs)
        keys = keys._replace(pairs=pairs if of_keys else None)
    if call.bits is not None:
        queries, keys = queries._replace(bits=call.bits[0]), keys._replace(bits=call.bits[1])
    if encoding.defines("key_carry"):
        none = jax.tree.map(lambda x: lax.slice_in_dim(x, 0, 0, axis=len(lead)), k_context)
        bound = bind_context(encoding, q_context, none)
        logits = jnp.zeros((*lead, q.shape[-2], q.shape[-3], 0), compute_dtype(q))
        positions = queries.positions, keys.positions[..., :0]
        carry = bound.key_carry(params, q, k[..., :0, :, :], logits, None, *positions)
        queries = queries._replace(carry=carry)
    scale = float(call.scale) if isinstance(call.scale, (int, float)) else None
    plan = Plan(
        encoding, by_position, 1.0 if scale is None else scale, call.cap, call.dropout_rate,
        block_size,
    )  # fmt: skip
    factor = jnp.asarray(call.scale) if scale is None else None
    sink = None if call.sink is None else jnp.asarray(call.sink)
    heads = (x.swapaxes(-2, -3) for x in (q, k, v))
    out = _jitted_blocks(plan, params, *heads, queries, keys, scale=factor, sink=sink)
    return out.swapaxes(-2, -3)


_jitted_blocks = jax.jit(block_attention, static_argnums=0)
