"""Multi-head attention with the hooks of an encoding: plain, grouped or latent.

Names: x is `[batch, n, dim]`, queries and keys `[batch, n, heads, head_dim]`, logits and weights
`[batch, heads, n_q, n_k]`; leading axes may be none or many.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax
from jaxtyping import Float, Int32

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings import Encoding, chain, identity
from jaxpe.encodings.attention_mask import Mask
from jaxpe.encodings.attention_terms import gated
from jaxpe.encodings.base import (
    Params,
    Rows,
    bind_context,
    centered_positions,
    expand_rank,
    repeat_heads,
)
from jaxpe.encodings.implementations import Call, dense_attention, encoded_attention
from jaxpe.nn.config import TransformerConfig
from jaxpe.nn.layers import dense, norm

# Cache of a layer: arrays `[..., n, heads, width]` by name. If the encoding depends on the hidden
# states, also "context", a pytree `[..., n, *]`, and "carry", one without n.
LayerCache = dict[str, Any]


class BoundEncoding(NamedTuple):
    """Encoding with its parameters.

    Attributes:
        encoding: positional encoding.
        params: initial or trained parameters of the encoding.
    """

    encoding: Encoding = identity()
    params: Params = ()


_NO_ENCODING = BoundEncoding()


class Context(NamedTuple):
    """Arguments of attention that all layers share.

    Attributes:
        q_positions, k_positions: `[..., n_q]` and `[..., n_k]`.
        mask: true where a query may attend, as in `jaxpe.encodings.attend`.
        shared: encoding that all layers share.
        slot: slot of the cache for the first new key.
        trace: whether to return logits, weights and the outputs of heads.
        embeddings: source of keys and values in every layer; the layer's input when None.
        rows: padding and segments of the new tokens, for encodings that depend on hidden states.
        cross: context of cross-attention. Its `embeddings` are the encoder's hidden states, or None
            with cached keys and values.
    """

    q_positions: ArrayLike
    k_positions: ArrayLike
    mask: Mask | None = None
    shared: BoundEncoding = BoundEncoding()
    slot: Int32[Array, ""] | int = 0
    trace: bool = False
    embeddings: Float[Array, "... n_q dim"] | None = None
    rows: Rows = Rows()
    cross: "Context | None" = None


class Gates(NamedTuple):
    """Gates of heads before the output projection: open·x + (1 − open)·fill.

    Attributes:
        open: `[..., n, heads]`, or with fewer leading axes; 0 ablates a head.
        fill: `[..., n, heads, width]`, or with fewer leading axes; zero when None.
    """

    open: Float[Array, "*open"]
    fill: Float[Array, "*fill width"] | None = None


class Attended(NamedTuple):
    """Result of attention; logits, weights and heads are None unless traced.

    Attributes:
        output: `[..., n_q, dim]`.
        logits: `[..., heads, n_q, n_k]`, with everything the encoding adds, after a cap of the
            configuration and before the mask.
        weights: softmax of the logits, 0 where masked; with a sink they sum to less than 1.
        heads: output of each head, with the gate of the configuration and before its gate of
            `Gates`, `[..., n_q, heads, width]`.
        cache: the layer's cache with the new keys; None without one.
        cross: result of cross-attention in a block; None without it.
    """

    output: Float[Array, "... n_q dim"]
    logits: Float[Array, "... heads n_q n_k"] | None = None
    weights: Float[Array, "... heads n_q n_k"] | None = None
    heads: Float[Array, "... n_q heads width"] | None = None
    cache: LayerCache | None = None
    cross: "Attended | None" = None


class _Heads(NamedTuple):
    """Encoded queries and keys, and values, `[..., n, heads, width]`."""

    q: Array
    k: Array
    v: Array


class _Attention(nnx.Module):
    """Base of multi-head and latent attention, which differ in queries, keys and values."""

    config: TransformerConfig
    output: nnx.Linear
    encoding: Encoding
    encoding_params: nnx.Param
    sink: nnx.Param | None
    gate: nnx.Linear | None

    def _add_encoding(self, encoding: Encoding, value_dim: int, rngs: nnx.Rngs) -> None:
        """Add an encoding, and the sink and gate of the configuration, with their parameters."""
        config, heads = self.config, self.config.num_heads
        self.encoding = nnx.static(encoding)
        self.encoding_params = encoding_parameters(config, encoding, rngs=rngs)
        draw = nnx.initializers.normal(config.init_scale)
        sink = draw(rngs.params(), (heads,), config.param_dtype) if config.attention_sink else None
        self.sink = None if sink is None else nnx.Param(sink)
        make = partial(dense, config, part="query_key_value", rngs=rngs)
        self.gate = make(config.dim, heads * value_dim) if config.attention_gate else None

    def __call__(
        self,
        x: Float[ArrayLike, "... n_q dim"],
        context: Context,
        *,
        source: Float[ArrayLike, "... n_k dim"] | None = None,
        source_keys_values: LayerCache | None = None,
        cache: LayerCache | None = None,
        gates: Gates | None = None,
        dropout_key: Array | None = None,
    ) -> Attended:
        """Attention from x to a source, or to a cache extended by the source.

        Args:
            x: hidden states of queries.
            context: positions, mask and encoding.
            source: hidden states of keys and values; x when None.
            source_keys_values: keys and values of a fixed source, from the method of this name.
            cache: keys and values of earlier tokens; keys and values of the source are appended.
            gates: gates of the heads.
            dropout_key: random key that switches dropout on.
        """
        x = jnp.asarray(x)
        bound = chain_bound(context.shared, self._bound_encoding())
        if source_keys_values is not None:
            heads = self._heads(x, bound, context.q_positions, source_keys_values)
            mixed = self._mixed(x, bound, heads, context, (None, None), dropout_key)
            return _projected_heads(self.output, mixed, gates, None)
        source = x if source is None else jnp.asarray(source)
        new, carry = _encoding_context(bound, x, source, context, cache)
        encoder = bound._replace(encoding=bind_context(bound.encoding, new, new))
        q_positions, k_positions, k_context = context.q_positions, context.k_positions, new
        if cache is None:  # no earlier keys fix the origin of positions
            q_positions, k_positions = centered_positions(bound.encoding, q_positions, k_positions)
            keys_values = self._keys_values(source, encoder, k_positions)
        else:
            keys_values = self._keys_values(source, encoder, q_positions)
            axis = x.ndim - 2
            cache = _updated_cache(cache, keys_values, new, carry, context.slot, axis=axis)
            keys_values, k_context = cache, cache.get("context")
        heads = self._heads(x, encoder, q_positions, keys_values)
        mixed = self._mixed(x, bound, heads, context, (new, k_context), dropout_key)
        return _projected_heads(self.output, mixed, gates, cache)

    def source_keys_values(
        self,
        source: Float[ArrayLike, "... n_k dim"],
        positions: ArrayLike,
        *,
        shared: BoundEncoding = _NO_ENCODING,
    ) -> LayerCache:
        """Encoded keys and values of a fixed source.

        Args:
            source: hidden states of an encoder.
            positions: positions of the source, `[..., n_k]`.
            shared: encoding that all layers share.
        """
        bound = chain_bound(shared, self._bound_encoding())
        return self._keys_values(jnp.asarray(source), bound, positions)

    def empty_cache(
        self, shape: tuple[int, ...], *, shared: BoundEncoding = _NO_ENCODING
    ) -> LayerCache:
        """Empty cache of a layer, `[*shape, ...]`.

        Args:
            shape: shape of the ids that the cache will hold.
            shared: encoding that all layers share.
        """

        def filled() -> LayerCache:
            bound = chain_bound(shared, self._bound_encoding())
            x = jnp.zeros((*shape, self.config.dim), self.config.dtype)
            positions = jnp.zeros(shape, jnp.int32)
            new, carry = bound.encoding.context(bound.params, x, positions, Rows())
            bound = bound._replace(encoding=bind_context(bound.encoding, new, new))
            keys_values = self._keys_values(x, bound, positions)
            return keys_values if new is None else keys_values | {"context": new, "carry": carry}

        return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(filled))

    def _mixed(
        self,
        x: Array,
        bound: BoundEncoding,
        heads: _Heads,
        context: Context,
        contexts: tuple[Any, Any],
        dropout_key: Array | None,
    ) -> Attended:
        """Outputs of heads; `contexts` are the encoding's, of queries and of keys."""
        positions = context.q_positions, context.k_positions
        sink = None if self.sink is None else self.sink.get_value()
        call = Call(*heads, *positions, context.mask, self.scale, self.config.attention_cap, sink)
        gate = None if self.gate is None else _split(self.gate(x), heads.v.shape[-1])
        if dropout_key is not None:
            call = call.with_dropout(dropout_key, self.config.attention_dropout)
        if context.trace:
            encoding = bind_context(bound.encoding, *contexts)
            out, logits, weights = dense_attention(encoding, bound.params, call)
            out = gated(out, gate)
            return Attended(out, logits, weights, out)
        of_tokens = {"q_context": contexts[0], "k_context": contexts[1]}
        out = encoded_attention(*bound, call, self.config.attention, **of_tokens)
        return Attended(gated(out, gate))

    def _bound_encoding(self) -> BoundEncoding:
        return BoundEncoding(self.encoding, self.encoding_params.get_value())

    @property
    def scale(self) -> float:
        """Factor of q·k in the logits."""
        scale = self.config.attention_scale
        return self._width() ** -0.5 if scale is None else scale

    def _width(self) -> int:
        """Width of queries and keys before the encoding acts on them."""
        raise NotImplementedError

    def _keys_values(self, x: Array, bound: BoundEncoding, positions: ArrayLike) -> LayerCache:
        """Encoded keys, and values, as a cache holds them."""
        raise NotImplementedError

    def _keys_and_values(self, keys_values: LayerCache) -> tuple[Array, Array]:
        """Keys and values of a cache, `[..., n, heads, width]`."""
        raise NotImplementedError

    def _queries(self, x: Array, bound: BoundEncoding, positions: ArrayLike) -> Array:
        """Encoded queries, `[..., n, heads, width]`."""
        raise NotImplementedError

    def _heads(
        self, x: Array, bound: BoundEncoding, positions: ArrayLike, keys_values: LayerCache
    ) -> _Heads:
        return _Heads(self._queries(x, bound, positions), *self._keys_and_values(keys_values))


class MultiHeadAttention(_Attention):
    """Multi-head attention with an encoding (Vaswani et al. 2017).

    With fewer `num_kv_heads`, query heads share keys and values evenly (Ainslie et al. 2023).
    Logits are ⟨query(q_i), key(k_j)⟩/√head_dim + bias_ij. For an encoding of embeddings this is
    Eq. (1) of Cirrincione (2026). The configuration may have another scale, norms of queries and
    keys before the encoding, a cap of the logits, a sink and a gate.

    Args:
        config: sizes and choices.
        encoding: positional encoding with parameters of this layer, chained with the shared
            encoding of the context.
        rngs: random streams of the initialisation.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2)
    >>> rope = encodings.rope(head_dim=4)
    >>> attention = MultiHeadAttention(config, encoding=rope, rngs=nnx.Rngs(0))
    >>> i = jnp.arange(5)
    >>> attended = attention(jnp.ones((2, 5, 8)), Context(i, i, trace=True))
    >>> attended.output.shape, attended.weights.shape
    ((2, 5, 8), (2, 2, 5, 5))
    """

    def __init__(
        self, config: TransformerConfig, *, encoding: Encoding = identity(), rngs: nnx.Rngs
    ):
        width, heads, key_heads = config.head_width, config.num_heads, config.key_heads
        self.config = config
        inward = partial(dense, config, rngs=rngs, part="query_key_value")
        self.query = inward(config.dim, heads * width)
        self.key = inward(config.dim, key_heads * width)
        self.value = inward(config.dim, key_heads * width)
        self.output = dense(config, heads * width, config.dim, part="attention_output", rngs=rngs)
        normed = config.query_key_norm
        joint = normed == "joint"
        widths = (heads * width, key_heads * width) if joint else (width, width)
        make_norm = partial(norm, config, rngs=rngs)
        self.query_norm = make_norm(widths[0]) if normed else None
        self.key_norm = make_norm(widths[1]) if normed else None
        self._add_encoding(encoding, width, rngs)

    def _width(self) -> int:
        return self.config.head_width

    def _keys_values(self, x: Array, bound: BoundEncoding, positions: ArrayLike) -> LayerCache:
        k = self._normed_heads(self.key_norm, self.key(x))
        v = _split(self.value(x), self.config.head_width)
        return {"k": bound.encoding.key(bound.params, k, positions), "v": v}

    def _keys_and_values(self, keys_values: LayerCache) -> tuple[Array, Array]:
        return keys_values["k"], keys_values["v"]

    def _queries(self, x: Array, bound: BoundEncoding, positions: ArrayLike) -> Array:
        q = self._normed_heads(self.query_norm, self.query(x))
        return bound.encoding.query(bound.params, q, positions)

    def _normed_heads(self, layer: Any, x: Array) -> Array:
        """Heads of queries or keys after their norm, if there is one."""
        if self.config.query_key_norm == "joint":
            x, layer = layer(x), None
        x = _split(x, self.config.head_width)
        return x if layer is None else layer(x)


class LatentAttention(_Attention):
    """Multi-head latent attention: keys and values from one narrow vector per token.

    DeepSeek-AI (2024), Eq. (9) to (19). With c = norm(x W_DKV), keys are [c W_UK, key(x W_KR)];
    all heads share the rotary part. Queries have the same two parts. Values are c W_UV, and logits
    q·k/√(head_dim + rotary_dim). The encoding's `query` and `key` act on the rotary part alone, its
    `bias` on full queries and keys. A cache keeps c and the encoded rotary key, key_value_rank +
    rotary_dim numbers per token. Each layer has its own parameters of `encoding`; `config.latent`
    has the sizes.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> latent = nn.LatentSizes(key_value_rank=6, rotary_dim=2)
    >>> config = nn.TransformerConfig(
    ...     vocab_size=9, dim=8, num_layers=1, num_heads=2, latent=latent)
    >>> rope = encodings.rope(head_dim=2)
    >>> attention = LatentAttention(config, encoding=rope, rngs=nnx.Rngs(0))
    >>> attention(jnp.ones((5, 8)), Context(jnp.arange(5), jnp.arange(5))).output.shape
    (5, 8)
    """

    def __init__(
        self, config: TransformerConfig, *, encoding: Encoding = identity(), rngs: nnx.Rngs
    ):
        latent = config.latent
        if latent is None:
            raise ValueError("latent attention needs its sizes: pass latent=LatentSizes(...)")
        width, heads, rank = config.head_width, config.num_heads, latent.key_value_rank
        self.config = config
        self.latent = latent
        self.value_dim = config.value_width
        inward = partial(dense, config, rngs=rngs, part="query_key_value")
        query_in = config.dim if latent.query_rank is None else latent.query_rank
        if latent.query_rank is not None:
            self.query_down = inward(config.dim, latent.query_rank)
            self.query_norm = norm(config, latent.query_rank, rngs=rngs)
        self.query = inward(query_in, heads * (width + latent.rotary_dim))
        self.key_value_down = inward(config.dim, rank)
        self.key_value_norm = norm(config, rank, rngs=rngs)
        self.rotary_key = inward(config.dim, latent.rotary_dim)
        self.key = inward(rank, heads * width)
        self.value = inward(rank, heads * self.value_dim)
        self.output = dense(
            config, heads * self.value_dim, config.dim, part="attention_output", rngs=rngs
        )
        self._add_encoding(encoding, self.value_dim, rngs)

    def _width(self) -> int:
        return self.config.head_width + self.latent.rotary_dim

    def _keys_values(self, x: Array, bound: BoundEncoding, positions: ArrayLike) -> LayerCache:
        rotary = _split(self.rotary_key(x), self.latent.rotary_dim)
        latent = self.key_value_norm(self.key_value_down(x))
        return {
            "latent": latent[..., None, :],
            "rotary": bound.encoding.key(bound.params, rotary, positions),
        }

    def _keys_and_values(self, keys_values: LayerCache) -> tuple[Array, Array]:
        latent = keys_values["latent"][..., 0, :]
        content = _split(self.key(latent), self.config.head_width)
        shared = repeat_heads(keys_values["rotary"], self.config.num_heads)
        k = jnp.concatenate([content, shared], axis=-1)
        return k, _split(self.value(latent), self.value_dim)

    def _queries(self, x: Array, bound: BoundEncoding, positions: ArrayLike) -> Array:
        width = self.config.head_width
        if self.latent.query_rank is not None:
            x = self.query_norm(self.query_down(x))
        q = _split(self.query(x), width + self.latent.rotary_dim)
        turned = bound.encoding.query(bound.params, q[..., width:], positions)
        return jnp.concatenate([q[..., :width], turned], axis=-1)


def make_attention(
    config: TransformerConfig, *, encoding: Encoding, rngs: nnx.Rngs
) -> MultiHeadAttention | LatentAttention:
    """Multi-head attention, or latent attention if the configuration has its sizes."""
    layer = MultiHeadAttention if config.latent is None else LatentAttention
    return layer(config, encoding=encoding, rngs=rngs)


def encoding_parameters(
    config: TransformerConfig, encoding: Encoding, *, rngs: nnx.Rngs
) -> nnx.Param:
    """Initialised parameters of an encoding as one `nnx.Param`, of the dtype of `config`."""
    if not isinstance(encoding, Encoding):
        raise ValueError(
            f"encoding={encoding!r}: pass an encoding, such as jaxpe.encodings.rope(head_dim=4)"
        )

    def cast(leaf):
        leaf = jnp.asarray(leaf)
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(
                f"the encoding has parameters of {leaf.dtype}, which have no gradient: close over "
                "them in its hooks instead"
            )
        return leaf.astype(config.param_dtype)

    return nnx.Param(jax.tree.map(cast, encoding.init(rngs.params())))


def chain_bound(*encodings: BoundEncoding) -> BoundEncoding:
    """Chain of encodings with their parameters."""
    parts = [part for part in encodings if part.encoding != identity()]
    if len(parts) == 1:
        return parts[0]
    return BoundEncoding(chain(*(p.encoding for p in parts)), tuple(p.params for p in parts))


def _encoding_context(
    bound: BoundEncoding, x: Array, source: Array, context: Context, cache: LayerCache | None
) -> tuple[Any, Any]:
    """Context of new tokens and its carry; both None for an encoding without context."""
    if not bound.encoding.defines("context"):
        return None, None
    if source.shape[:-1] != x.shape[:-1]:
        raise ValueError(
            f"the encoding depends on the hidden states of one row of tokens, but queries have "
            f"shape {x.shape[:-1]} and keys {source.shape[:-1]}: use another for cross-attention"
        )
    rows = context.rows if cache is None else context.rows._replace(carry=cache["carry"])
    return bound.encoding.context(bound.params, x, context.q_positions, rows)


def _split(x: Array, width: int) -> Array:
    """Split features into heads, `[..., heads, width]`."""
    return x.reshape(*x.shape[:-1], x.shape[-1] // width, width)


def _updated_cache(
    cache: LayerCache,
    new: LayerCache,
    context: Any,
    carry: Any,
    slot: ArrayLike | int,
    *,
    axis: int,
) -> LayerCache:
    """Cache with new entries written along an axis, from `slot` on."""

    def put(old: Array, entry: Array) -> Array:
        return lax.dynamic_update_slice_in_dim(old, entry.astype(old.dtype), slot, axis)

    if context is not None:
        new = new | {"context": context}
    updated = {name: jax.tree.map(put, cache[name], entry) for name, entry in new.items()}
    if context is None:
        return updated
    cast = jax.tree.map(lambda old, new: new.astype(old.dtype), cache["carry"], carry)
    return updated | {"carry": cast}


def _projected_heads(
    output: Callable[[Array], Array], mixed: Attended, gates: Gates | None, cache: LayerCache | None
) -> Attended:
    """Output projection of heads, after their gates."""
    out = mixed.output
    if gates is not None:
        share = expand_rank(jnp.asarray(gates.open, out.dtype)[..., None], out.ndim)
        out = out * share
        if gates.fill is not None:
            out = out + expand_rank(gates.fill, out.ndim, out.dtype) * (1 - share)
    out = output(out.reshape(*out.shape[:-2], math.prod(out.shape[-2:])))
    return mixed._replace(output=out, cache=cache)
