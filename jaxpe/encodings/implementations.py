"""Implementations of attention, of queries and keys that are encoded already."""

import math
from functools import reduce
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe._core.arrays import ArrayLike, is_traced
from jaxpe.encodings.attention_mask import AttentionMask, Mask, encoded_mask, split_mask
from jaxpe.encodings.attention_terms import (
    attention_logits,
    attention_output,
    attention_weights,
    dropout_bits,
    dropout_factors,
)
from jaxpe.encodings.base import (
    Encoding,
    Params,
    as_mask,
    bind_context,
    check_choice,
    check_sizes,
    expand_rank,
)
from jaxpe.encodings.block_attention import Plan, Tokens, block_attention, reads_pairs

Implementation = Literal["dense", "blocks", "xla", "cudnn"]
# Pairs of a query and a key in one row and head. Up to the first they are stored: a training step
# of 8 × 512 tokens takes 1.2 s with 4 heads, and 3.5 s in blocks, row by row (BERT-mini, 2 cores).
# Up to the second, "dense" stands in for blocks that an encoding does not have.
SMALL, LARGE = 512 * 512, 8192 * 8192
FEW = 16  # queries, whose weights are linear memory: a cache is read by one


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
    def dtype(self) -> jnp.dtype:
        """The widest dtype of queries, keys and values."""
        return reduce(jnp.promote_types, (self.q.dtype, self.k.dtype, self.v.dtype))

    @property
    def positions(self) -> dict[str, ArrayLike]:
        """Positions of queries and keys, by name."""
        return {"q_positions": self.q_positions, "k_positions": self.k_positions}

    def with_dropout(self, key: Array, rate: float, *, broadcast: bool = False) -> "Call":
        """The call with dropout of a share `rate` of the weights, in [0, 1)."""
        if not 0 <= rate < 1:
            raise ValueError(f"dropout_rate is {rate}: pass at least 0 and less than 1")
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
    block_size: int | None = None,
) -> Array:
    """Attention of queries and keys that the encoding has encoded; arguments as in `attend`."""
    bound = bind_context(encoding, q_context, k_context)
    chosen = chosen_implementation(encoding, call, implementation)
    if block_size is None:
        block_size = default_block_size(call.k.shape[-3], pairs=reads_pairs(encoding))
    if chosen == "dense":
        return dense_attention(bound, params, call)[0]
    if chosen == "blocks":
        return _blocks(encoding, params, call, q_context, k_context, block_size)
    return _fused(bound, params, call, chosen)


def lacking(implementation: str, encoding: Encoding, call: Call | None = None) -> str | None:
    """Reason why an implementation cannot compute an encoding, in words; None if it can.

    Args:
        implementation: one of `Implementation`.
        encoding: an encoding; only its hooks matter.
        call: the arrays and options; None for plain attention of float32.

    >>> lacking("blocks", jaxpe.encodings.cope(head_dim=2, max_positions=4))
    'whole rows of keys'
    """
    reasons = {}
    if implementation == "blocks":
        reasons["whole rows of keys"] = encoding.whole_rows
        reasons["a traced soft cap"] = call is not None and is_traced(call.cap)
    elif implementation != "dense":
        reasons["products other than q·k"] = encoding.defines("products")
        reasons["a term of values"] = encoding.defines("value")
        if call is not None:
            reasons |= _lacking_options(implementation, call)
    return next((words for words, lacks in reasons.items() if lacks), None)


def _lacking_options(implementation: str, call: Call) -> dict[str, bool]:
    """Options of a call that `jax.nn.dot_product_attention` cannot compute."""
    # It computes logits of float64 in float32, and XLA lacks float16 on CPUs.
    narrow = call.dtype == jnp.float16 and implementation != "cudnn"
    return {
        "a soft cap": call.cap is not None,
        "a sink": call.sink is not None,
        "dropout": call.bits is not None,
        f"{call.dtype}": call.dtype == jnp.float64 or narrow,
        "a scale for each head": np.ndim(call.scale) > 0,
        "other heads of values than of keys": call.v.shape[-2] != call.k.shape[-2],
        "values wider than keys": call.v.shape[-1] > call.k.shape[-1],
    }


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
    if pairs <= SMALL or call.q.shape[-3] <= FEW:
        return "dense"
    lack = lacking("blocks", encoding, call)
    if lack is not None and pairs > LARGE:
        raise ValueError(
            f"{call.q.shape[-3]} queries and {call.k.shape[-3]} keys need {lack}: pass "
            "implementation='dense', which stores all weights"
        )
    return "blocks" if lack is None else "dense"


def default_block_size(n: int, *, pairs: bool) -> int:
    """Tokens of a block for n keys: an eighth of them, from 128 to 512.

    Large blocks have fast products on CPUs, and small ones skip more of what is masked. Where rows
    are taken one by one, `_over_rows` of blocks, half of the keys, up to 1024.

    Args:
        n: keys.
        pairs: whether the encoding makes arrays of pairs.

    >>> default_block_size(300, pairs=True), default_block_size(4096, pairs=True)
    (128, 512)
    """
    if pairs or jax.default_backend() != "cpu":
        return min(max(n // 8, 128), 512)
    return min(max(n // 2, 128), 1024)


def dense_attention(encoding: Encoding, params: Params, call: Call) -> tuple[Array, Array, Array]:
    """Output, logits and weights of attention that stores all pairs.

    The encoding's contexts are bound, and its hooks `query` and `key` have acted.
    """
    logits = attention_logits(
        encoding, params, call.q, call.k, scale=call.scale, cap=call.cap, encoded_queries=True,
        encoded_keys=True, **call.positions,
    )  # fmt: skip
    mask = encoded_mask(encoding, params, call.q, call.k, call.mask, **call.positions)
    weights = attention_weights(logits, mask, sink=call.sink)
    dropped = weights
    if call.bits is not None:
        dropped = weights * dropout_factors(*call.bits, call.dropout_rate, weights.dtype)
    out = attention_output(encoding, params, dropped, call.v, **call.positions)
    return out, logits, weights


def _fused(encoding: Encoding, params: Params, call: Call, implementation: str) -> Array:
    """Attention of `jax.nn`, with the encoding's bias and mask."""
    causal = not encoding.defines("mask") and _is_causality(call.mask)
    if causal:  # no array of pairs
        call = call._replace(mask=None)
    q, k, v = (x.astype(call.dtype) for x in (call.q, call.k, call.v))
    lead, width = jnp.broadcast_shapes(*(x.shape[:-3] for x in (q, k, v))), v.shape[-1]
    if not (math.prod(lead) and q.size and k.size and v.size):  # a row without keys is 0
        return jnp.zeros((*lead, *q.shape[-3:-1], width), call.v.dtype)
    mask = encoded_mask(encoding, params, q, k, call.mask, **call.positions)
    bias = encoding.bias(params, q, k, *call.positions.values())
    bias, mask = (None if x is None else _four_axes(x, lead) for x in (bias, mask))
    q, k, v = (
        jnp.broadcast_to(x, (*lead, *x.shape[-3:])).reshape(math.prod(lead), *x.shape[-3:])
        for x in (q, k, v)
    )
    v = jnp.pad(v, [(0, 0)] * 3 + [(0, k.shape[-1] - width)])
    with jax.numpy_dtype_promotion("standard"):  # it mixes 16-bit numbers and float32
        options: Any = {"scale": call.scale, "implementation": implementation}
        out = jax.nn.dot_product_attention(q, k, v, bias, mask, is_causal=causal, **options)
    if mask is not None:  # a query whose keys are all masked would attend to all
        out = jnp.where(jnp.any(mask, axis=-1).swapaxes(-1, -2)[..., None], out, 0)
    return out[..., :width].reshape(*lead, *out.shape[-3:-1], width).astype(call.v.dtype)


def _is_causality(mask: Mask | None) -> bool:
    """True if a mask is causality alone, of queries and keys that begin with the same token.

    Traced orders give False: a fused kernel fixes causality when it is compiled.
    """
    if not isinstance(mask, AttentionMask) or is_traced(mask.q_order, mask.k_order):
        return False
    if mask.q_order is None or mask.k_order is None:
        return False
    orders = np.asarray(mask.q_order), np.asarray(mask.k_order)
    counted = all(x.ndim == 1 and x.size and (np.diff(x) == 1).all() for x in orders)
    same = counted and orders[0][0] == orders[1][0]
    return bool(same) and mask.k_valid is None and mask.q_segments is None


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
    by_position = None
    if isinstance(call.mask, AttentionMask):
        of_queries, of_keys = split_mask(call.mask)
        queries, keys = queries._replace(mask=of_queries), keys._replace(mask=of_keys)
    elif callable(call.mask):
        by_position = call.mask
    elif call.mask is not None:
        mask = expand_rank(as_mask(call.mask), q.ndim)
        if mask.shape[-3:-1] == (1, 1):  # of keys alone, which needs no array of pairs
            valid = jnp.broadcast_to(mask[..., 0, 0, :], (*mask.shape[:-3], k.shape[-3]))
            keys = keys._replace(mask=AttentionMask(k_valid=valid))
        else:
            pairs = (*mask.shape[:-2], q.shape[-3], k.shape[-3])
            queries = queries._replace(pairs=jnp.broadcast_to(mask, pairs))
    if call.bits is not None:
        queries, keys = queries._replace(bits=call.bits[0]), keys._replace(bits=call.bits[1])
    scale = float(call.scale) if isinstance(call.scale, (int, float)) else None
    plan = Plan(
        encoding, (), by_position, 1.0 if scale is None else scale, call.cap, call.dropout_rate,
        block_size,
    )  # fmt: skip
    factor = jnp.asarray(call.scale) if scale is None else None
    sink = None if call.sink is None else jnp.asarray(call.sink)
    heads = (x.swapaxes(-2, -3) for x in (q, k, v))
    out = _jitted_blocks(plan, params, *heads, queries, keys, scale=factor, sink=sink)
    return out.swapaxes(-2, -3)


_jitted_blocks = jax.jit(block_attention, static_argnums=0)
