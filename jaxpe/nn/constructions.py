"""Transformers with constructed weights, as in a proof."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jaxtyping import Float

from jaxpe.encodings.base import check_sizes, compute_dtype
from jaxpe.nn.config import TransformerConfig
from jaxpe.nn.transformer import Decoder, Transformer

# Entries of the residual stream that the proofs use: 1, whether <bos>, the position, content.
_ONE, _BOS, _POSITION, _CONTENT = 0, 1, 2, 3


def nope_decoder(
    *,
    vocab_size: int,
    dim: int,
    num_layers: int,
    num_heads: int,
    length: int,
    key: Array,
    bos: int = 0,
    head_dim: int | None = None,
    scale: float = 1.0,
    dtype: Any = jnp.float32,
    param_dtype: Any = jnp.float32,
) -> Decoder:
    """Decoder without positional encoding whose weights compute absolute positions.

    Appendix C of Kazemnejad et al. (2023), for rows that start with <bos>. Token embeddings are
    1, whether <bos>, 0, and random content. In the first layer, head 1 has equal keys and writes
    the weight of <bos>, u = 1/t, to the third entry (Eq. 18, 19). The feed-forward layer converts
    it to t = 1 … length:

        t = u + 3 relu(1 − u) + Σ_{k=2}^{length−1} 2k relu(1/k − u)  at u = 1/t,

    All terms are positive, so there is no cancellation. Later layers have W_Q and W_K of Eq. (28)
    and (29) in every head, so their logits are content − (t − i). W_Q has an additional factor
    √head_dim, which attention divides by; (29) is printed as W_V. All other weights are random, and
    act on the content entries alone. The model has ReLU, no norms and no biases. Positions beyond
    `length` are too small.

    Args:
        vocab_size, num_layers, num_heads, dtype, param_dtype: fields of `TransformerConfig`; the
            second theorem needs at least two layers.
        dim: width of the residual stream, at least 3.
        length: number of exact positions; feed-forward layers have width length − 1.
        key: random key of the weights.
        bos: id of <bos>.
        head_dim: width of a head, at least 2; dim / num_heads when None.
        scale: factor on the random weights, which have variance 1/dim; with 0, the logits of later
            layers are ALiBi's with slope 1.

    Raises:
        ValueError: `dim` or heads that are too narrow, or a `bos` out of range.

    >>> sizes = dict(vocab_size=9, dim=4, num_layers=1, num_heads=1, length=5)
    >>> def hidden(key, ids):
    ...     return jaxpe.nn.nope_decoder(**sizes, key=key)(ids).hidden
    >>> states = jax.jit(hidden)(jax.random.key(0), jnp.array([0, 3, 7, 7, 2]))
    >>> states[:, 2].round(4).tolist()
    [1.0, 2.0, 3.0, 4.0, 5.0]
    """
    check_sizes(length=length)
    config = TransformerConfig(
        vocab_size=vocab_size,
        dim=dim,
        num_layers=num_layers,
        num_heads=num_heads,
        head_dim=head_dim,
        hidden_dim=max(length - 1, 1),
        activation="relu",
        norm="none",
        use_bias=False,
        init_scale=scale * dim**-0.5,
        embedding_scale=1.0,
        dtype=dtype,
        param_dtype=param_dtype,
    )
    _check_room(config, bos)
    decoder = Decoder(config, rngs=nnx.Rngs(key))
    _set(decoder.tokens.embedding, lambda table: _embeddings(table, bos))
    _mask_content_rows(decoder)
    _set_counting_head(decoder)
    _set_position_kinks(decoder, length)
    _set_position_differences(decoder)
    return decoder


def content_logits(
    decoder: Transformer, hidden_states: Float[Array, "layers1 *batch n dim"]
) -> Float[Array, "later *batch heads n n"]:
    """Content logits f_cnt of Eq. (37), without the first two entries of queries and keys.

    They are for every layer except the first, in float32 or wider.

    Args:
        decoder: a model of `nope_decoder`.
        hidden_states: its traced hidden states, `[layers + 1, ..., n, dim]`.

    >>> from jaxpe import nn
    >>> sizes = dict(vocab_size=9, dim=4, num_layers=2, num_heads=1, length=4)
    >>> def without_content(key, ids):
    ...     decoder = nn.nope_decoder(**sizes, key=key)
    ...     seen = decoder(ids, trace=True)
    ...     return seen.logits[1:] - content_logits(decoder, seen.hidden_states)
    >>> logits = jax.jit(without_content)(jax.random.key(0), jnp.array([0, 3, 7, 2]))
    >>> logits[0, 0, 3].round().astype(int).tolist()
    [-3, -2, -1, 0]
    """
    attention = decoder.layers.attention
    dtype = compute_dtype(hidden_states)

    def heads(kernel: nnx.Param) -> Array:
        by_head = kernel.get_value()[1:].reshape(-1, decoder.config.dim, *_heads(decoder))
        entered = hidden_states[1:-1].astype(dtype)
        content = by_head[..., 2:].astype(dtype)
        return jnp.einsum("l...nd,ldhw->l...nhw", entered, content, precision="highest")

    q, k = heads(attention.query.kernel), heads(attention.key.kernel)
    logits = jnp.einsum("l...qhw,l...khw->l...hqk", q, k, precision="highest")
    return logits * jnp.asarray(attention.scale, dtype)


def _embeddings(table: Array, bos: int) -> Array:
    """Token embeddings of Eq. (17): 1, whether <bos>, 0, and random content."""
    is_bos = (jnp.arange(len(table)) == bos).astype(table.dtype)
    return table.at[:, _ONE].set(1).at[:, _BOS].set(is_bos).at[:, _POSITION].set(0)


def _mask_content_rows(decoder: Decoder) -> None:
    """Restrict the random weights to read and write content entries alone."""
    attention, mlp = decoder.layers.attention, decoder.layers.mlp
    for reads in (attention.query, attention.key, attention.value, mlp.up):
        _set(reads.kernel, lambda W: W.at[:, :_CONTENT].set(0))
    for writes in (attention.output, mlp.down):
        _set(writes.kernel, lambda W: W.at[..., :_CONTENT].set(0))
    # The sum has as many terms as the hidden width, which the initialisation does not account for.
    shrink = (decoder.config.dim / decoder.config.hidden_width) ** 0.5
    _set(mlp.down.kernel, lambda W: W * jnp.asarray(min(shrink, 1.0), W.dtype))


def _set_counting_head(decoder: Decoder) -> None:
    """Set head 1 of the first layer to Eq. (18), (19): equal weights of keys; <bos> has value 1."""
    attention, width = decoder.layers.attention, decoder.config.head_width
    head = slice(0, width)
    _set(attention.key.kernel, lambda W: W.at[0, :, head].set(0).at[0, _ONE, head].set(1))
    _set(attention.value.kernel, lambda W: W.at[0, :, head].set(0).at[0, _BOS, 0].set(1))
    _set(attention.output.kernel, lambda W: W.at[0, head].set(0).at[0, 0, _POSITION].set(1))


def _set_position_kinks(decoder: Decoder, length: int) -> None:
    """Set the first feed-forward layer to t − u at u = 1/t, as a sum of kinks at 1/k.

    Between 1/(k + 1) and 1/k the slope is −k(k + 1) − 1.
    """
    mlp = decoder.layers.mlp
    k = np.arange(1, max(length, 2))
    up, down = 1 / k, 2.0 * k
    down[0] = 3.0 if length > 1 else 0.0  # 2 relu(1 − u) of the sum, and 1 − u = relu(1 − u)

    def kinks(W: Array) -> Array:
        rows = W.at[0].set(0).at[0, _ONE].set(jnp.asarray(up, W.dtype))
        return rows.at[0, _POSITION].set(-1)

    def sums(W: Array) -> Array:
        return W.at[0].set(0).at[0, :, _POSITION].set(jnp.asarray(down, W.dtype))

    _set(mlp.up.kernel, kinks)
    _set(mlp.down.kernel, sums)


def _set_position_differences(decoder: Decoder) -> None:
    """Set queries and keys of Eq. (28), (29) in every head of every layer except the first."""
    attention = decoder.layers.attention
    root = decoder.config.head_width**0.5
    query_rows = ((_ONE, root), (_POSITION, -root))
    key_rows = ((_POSITION, 1.0), (_ONE, 1.0))
    for projection, rows in ((attention.query, query_rows), (attention.key, key_rows)):

        def read(W: Array, rows=rows) -> Array:
            by_head = W.reshape(*W.shape[:2], *_heads(decoder))
            for entry, (row, value) in enumerate(rows):
                by_head = by_head.at[1:, :, :, entry].set(0).at[1:, row, :, entry].set(value)
            return by_head.reshape(W.shape)

        _set(projection.kernel, read)


def _heads(decoder: Transformer) -> tuple[int, int]:
    return decoder.config.num_heads, decoder.config.head_width


def _set(param: nnx.Param, change: Any) -> None:
    param.set_value(change(param.get_value()))


def _check_room(config: TransformerConfig, bos: int) -> None:
    if config.dim < _CONTENT or config.head_width < 2:
        raise ValueError(
            f"dim={config.dim} and heads of width {config.head_width} are too narrow for the "
            "proofs: pass at least dim=3 and head_dim=2"
        )
    if not 0 <= bos < config.vocab_size:
        raise ValueError(f"bos={bos} is out of range: pass 0 to {config.vocab_size - 1}")
