"""Attention with an encoding."""

from typing import Any

from jax import Array
from jax.sharding import Mesh
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike, Scalar
from jaxpe.encodings.attention_mask import Mask
from jaxpe.encodings.attention_terms import Keys, Queries, gated
from jaxpe.encodings.base import (
    Encoding,
    Params,
    as_floats,
    bind_context,
    centered_positions,
    check_queries_and_keys,
)
from jaxpe.encodings.implementations import Call, Implementation, encoded_attention
from jaxpe.encodings.sharded_attention import sharded_attention


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
    scale: Scalar | None = None,
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
    block_size: int | None = None,
    mesh: Mesh | None = None,
    axis: str | None = None,
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
            blocks; "xla" and "cudnn" are `jax.nn.dot_product_attention`, with an n × n bias, and an
            n × n mask unless it is an `AttentionMask` of causality alone. By default "dense" up to
            512 × 512 pairs or 16 queries, and "blocks" beyond, or "dense" up to 8192 × 8192 for an
            encoding that needs whole rows.
        block_size: queries and keys of a block; only time and memory depend on it. When None an
            eighth of the keys, from 128 to 512; on CPUs without arrays of pairs half, to 1024.
        mesh, axis: divides the tokens of queries and keys over an axis of a mesh, see
            `sharded_attention`; no division when None.
        params, q, k, q_positions, k_positions, scale: arguments of `attention_logits`.
        encoded_queries, encoded_keys, q_context, k_context: arguments of `attention_logits`.

    Raises:
        ValueError: shapes that do not fit, a mask that is not boolean, an implementation that
            cannot compute what is asked for, or weights of whole rows beyond 8192 × 8192 pairs.

    >>> v = jnp.asarray([[[1.0]], [[3.0]]])
    >>> i = jnp.arange(2)
    >>> attend(identity(), (), 0 * v, 0 * v, v, q_positions=i, k_positions=i).ravel().tolist()
    [2.0, 2.0]
    """
    q, k, v = as_floats(q, "q"), as_floats(k, "k"), as_floats(v, "v")
    check_queries_and_keys(q, k, v)
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
    more = {"q_context": q_context, "k_context": k_context, "block_size": block_size}
    if mesh is not None and axis is not None:
        out = sharded_attention(
            encoding, params, call, implementation, mesh=mesh, axis=axis, **more
        )
    elif mesh is axis:
        out = encoded_attention(encoding, params, call, implementation, **more)
    else:
        raise ValueError(f"mesh is {mesh} and axis {axis!r}: pass both, or none")
    return gated(out, gate)
