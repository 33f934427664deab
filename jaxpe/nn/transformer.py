"""Encoder and decoder: embeddings, positions, and a stack of blocks."""

from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array, lax
from jaxtyping import Bool, Float, Int, Int32

from jaxpe._core.arrays import ArrayLike, is_traced
from jaxpe.encodings import Encoding, LayerPattern, chain, identity
from jaxpe.encodings.attention_mask import AttentionMask
from jaxpe.encodings.base import Rows, as_positions
from jaxpe.nn.attention import (
    BoundEncoding,
    Context,
    Gates,
    LayerCache,
    chain_bound,
    encoding_parameters,
)
from jaxpe.nn.blocks import Block
from jaxpe.nn.config import TransformerConfig
from jaxpe.nn.cross import Memory, checked_cross, checked_memory, cross_mask
from jaxpe.nn.layer_stack import (
    Layers,
    Slot,
    check_positions,
    pattern_parameters,
    run_blocks,
    split_by_period,
)
from jaxpe.nn.layers import dropout, embedding, norm
from jaxpe.nn.masks import attention_mask, checked_valid, segment_starts

_NO_POSITION = 2**30  # position of slots without a token, after every query


class Cache(NamedTuple):
    """Keys and values of the tokens that a decoder has read.

    Attributes:
        layers: keys, already encoded, and values of every layer, stacked `[layers, batch, slots,
            ...]`. With a `LayerPattern`, one cache for each of its encodings.
        positions: position of the token in each slot; 2³⁰ for padding and empty slots.
        valid: slots with a token that queries may attend to.
        length: number of filled slots. Too many tokens raise; inside jit, hidden states become NaN.
        memory: keys and values of cross-attention; None for a decoder without it.
    """

    layers: LayerCache | tuple[LayerCache, ...]
    positions: Int32[Array, "batch slots"]
    valid: Bool[Array, "batch slots"]
    length: Int32[Array, ""]
    memory: Memory | None = None


class TransformerOutput(NamedTuple):
    """Output of a transformer; all fields except hidden and cache are None unless traced.

    Attributes:
        hidden: hidden states of the last layer (after the last norm).
        hidden_states: inputs of each block and output of the last, `[layers + 1, ..., n, dim]`.
        logits, weights: logits and weights of attention, `[layers, ..., heads, n_q, n_k]`.
        heads: output of each head, with the gate of the configuration and before `gates`.
        cache: cache with the new tokens; None without one.
        cross_logits, cross_weights: logits and weights of cross-attention,
            `[layers, ..., heads, n_q, m]`.
    """

    hidden: Float[Array, "... n dim"]
    hidden_states: Float[Array, "layers1 ... n dim"] | None = None
    logits: Float[Array, "layers ... heads n_q n_k"] | None = None
    weights: Float[Array, "layers ... heads n_q n_k"] | None = None
    heads: Float[Array, "layers ... n heads width"] | None = None
    cache: Cache | None = None
    cross_logits: Float[Array, "layers ... heads n_q m"] | None = None
    cross_weights: Float[Array, "layers ... heads n_q m"] | None = None


class Transformer(nnx.Module):
    """Transformer: token embeddings, an encoding, and blocks with stacked parameters.

    Build an `Encoder` or a `Decoder`. `functionalize` converts it to a function for plain
    `jax.jit`, `jax.grad` and `jax.vmap`.

    Args:
        config: sizes and choices.
        encoding: positional encoding; all layers share its parameters. An encoding that depends on
            the hidden states, or a `LayerPattern`, is chained with `layer_encoding`.
        layer_encoding: another encoding, with separate parameters in every layer, such as the terms
            of Transformer-XL; or a `LayerPattern` of several. It may not act on embeddings, which
            exist only once.
        cross_encoding: encoding of cross-attention, from positions of queries to positions of the
            encoder's tokens; all layers share its parameters. None builds blocks without
            cross-attention; `identity()` builds cross-attention without positions. It may neither
            embed nor depend on hidden states.
        rngs: random streams of the initialisation.
    """

    causal = False

    def __init__(
        self,
        config: TransformerConfig,
        *,
        encoding: Encoding | LayerPattern = identity(),
        layer_encoding: Encoding | LayerPattern = identity(),
        cross_encoding: Encoding | LayerPattern | None = None,
        rngs: nnx.Rngs,
    ):
        cross = checked_cross(cross_encoding)
        encoding, layer_encoding = shared_and_layer_encoding(encoding, layer_encoding)
        if layer_encoding.defines("embed"):
            raise ValueError("layer_encoding acts on embeddings: pass it as encoding")
        in_blocks, pattern = split_by_period(layer_encoding, config.num_layers)
        self.config = config
        self.length: Any = None  # number of positions, for a table of positions
        self.fields = ""  # fields of the config.json that it was loaded from, as JSON
        self.encoding = nnx.static(encoding)
        # An `nnx.Embed`; None if the encoder of an `EncoderDecoder` has the table.
        self.tokens: Any = embedding(config, config.vocab_size, rngs=rngs)
        kinds = config.token_types
        self.token_types = embedding(config, kinds, rngs=rngs) if kinds else None
        self.encoding_params = encoding_parameters(config, encoding, rngs=rngs)
        self.embedding_norm = norm(config, rngs=rngs) if config.normalises_embeddings else None
        keys = jax.random.split(rngs.params(), config.num_layers)
        options: Any = {"encoding": in_blocks, "cross": cross is not None}

        def block(key: Array) -> Block:
            return Block(config, **options, rngs=nnx.Rngs(key))

        self.layers = jax.vmap(block)(keys)  # all blocks in one, with stacked parameters
        self.pattern = nnx.static(pattern)
        self.pattern_params = pattern_parameters(config, pattern, rngs=rngs)
        self.final_norm = norm(config, rngs=rngs) if config.norm_position != "post" else None
        self.cross_encoding = nnx.static(cross)
        if cross is not None:
            self.cross_encoding_params = encoding_parameters(config, cross, rngs=rngs)

    def __call__(
        self,
        ids: Int[ArrayLike, "... n"],
        *,
        vectors: Float[ArrayLike, "... n dim"] | None = None,
        mask: ArrayLike | None = None,
        positions: ArrayLike | None = None,
        segments: Int[ArrayLike, "... n"] | None = None,
        token_types: Int[ArrayLike, "... n"] | None = None,
        memory: Memory | None = None,
        cache: Cache | None = None,
        gates: Float[ArrayLike, "layers *heads"] | None = None,
        gate_fill: Float[ArrayLike, "layers *filled width"] | None = None,
        dropout_key: Array | None = None,
        trace: bool = False,
    ) -> TransformerOutput:
        """Hidden states of tokens.

        Args:
            ids: token ids below vocab_size. Other ids raise, and give NaN inside jit; masked ids
                may be any numbers.
            vectors: `[..., n, dim]`, vectors that replace the embeddings of the ids, as in
                `Regressor`.
            mask: `[..., n]`, false on padding, which no token attends to.
            positions: `[..., n]`; the index in the row when None. `padded_positions` and
                `packed_positions` compute others.
            segments: segments of packed documents, which do not attend to each other.
            token_types: types of tokens, all 0 when None.
            memory: tokens of an encoder, for blocks with cross-attention; the memory of the cache
                when None.
            cache: keys and values of earlier tokens, for decoders; the new ones are appended.
            gates: factors of each layer's heads before the output projection, `[layers, heads]`;
                0 ablates a head, including the output of the encoding's `value` hook. Axes between
                the two broadcast to `[..., n, heads]`.
            gate_fill: output of a head with a closed gate, `[layers, heads, width]`, with axes
                between as for gates; zero when None. The mean of `heads` over documents gives mean
                ablation.
            dropout_key: random key that switches dropout on.
            trace: whether to return hidden states, attention logits and weights, and heads.
        """
        ids = jnp.asarray(ids)
        mask = checked_valid(mask, ids.shape)
        ids = ids if mask is None else jnp.where(mask, ids, 0)
        _check_ids(ids, self.config.vocab_size)
        if positions is None:
            positions = np.arange(ids.shape[-1], dtype=np.int32)  # so that a table can refuse them
            positions = positions if cache is None else cache.length + positions
        keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        memory = cache.memory if memory is None and cache is not None else memory
        cross = self._cross(ids, memory, positions, segments, trace)
        cache, context = self._context(ids, mask, positions, segments, cache, trace)
        context = context._replace(cross=cross)
        x = self.embed(
            ids,
            vectors=vectors,
            mask=mask,
            positions=positions,
            token_types=token_types,
            dropout_key=keys[0],
        )
        if self.config.keys_from == "embeddings":
            context = context._replace(embeddings=x)
        gated = _make_gates(gates, gate_fill, self.config, ids.shape)
        source = None if memory is None else memory.layers
        out = self._blocks(x, context, cache, source, gated, keys[1])
        hidden = out.hidden if self.final_norm is None else self.final_norm(out.hidden)
        if cache is not None:  # NaN is the only way to report a full cache inside jit
            full = cache.length > cache.valid.shape[-1]
            hidden = jnp.where(full, jnp.asarray(jnp.nan, hidden.dtype), hidden)
        return out._replace(hidden=hidden)

    def embed(
        self,
        ids: Int[ArrayLike, "... n"],
        *,
        vectors: Float[ArrayLike, "... n dim"] | None = None,
        mask: Bool[ArrayLike, "... n"] | None = None,
        positions: ArrayLike,
        token_types: Int[ArrayLike, "... n"] | None = None,
        dropout_key: Array | None = None,
    ) -> Float[Array, "... n dim"]:
        """Input of the first block: embeddings, positional encoding, norm, dropout.

        Args:
            ids, vectors, mask, positions, token_types, dropout_key: as in a call of the model.
        """
        x = self.token_embeddings(ids, mask=mask) if vectors is None else jnp.asarray(vectors)
        if x.shape != (*jnp.shape(ids), self.config.dim):
            raise ValueError(
                f"vectors have shape {x.shape}: pass [..., n, dim] = "
                f"{(*jnp.shape(ids), self.config.dim)}"
            )
        if self.token_types is None and token_types is not None:
            raise ValueError("the model has no token types: pass none, or config.token_types")
        if self.token_types is not None:
            kinds = jnp.zeros_like(ids) if token_types is None else jnp.asarray(token_types)
            x = x + self.token_types(kinds)
        x = self.encoding.embed(self.encoding_params.get_value(), x, positions)
        x = x.astype(self.config.dtype)
        x = x if self.embedding_norm is None else self.embedding_norm(x)
        return dropout(x, rate=self.config.dropout, key=dropout_key)

    def token_embeddings(
        self, ids: Int[ArrayLike, "... n"], *, mask: Bool[ArrayLike, "... n"] | None = None
    ) -> Float[Array, "... n dim"]:
        """Embeddings of tokens, times the configuration's factor; masked tokens do not count.

        Args:
            ids, mask: as in a call of the model.
        """
        if self.tokens is None:
            raise ValueError("the encoder has the token embeddings: pass vectors=")
        x, factor = self.tokens(jnp.asarray(ids)), self.config.embedding_factor
        x = x if factor == 1.0 else x * jnp.asarray(factor, x.dtype)
        if self.config.dropped_token is None:
            return x
        valid = jnp.ones_like(ids, bool) if mask is None else jnp.asarray(mask)
        other = valid & (jnp.asarray(ids) != self.config.dropped_token)
        share = other.sum(-1, keepdims=True) / valid.sum(-1, keepdims=True)
        return jnp.where(other[..., None], x / share[..., None].astype(x.dtype), 0)

    def _context(
        self, ids: Array, mask, positions, segments, cache: Cache | None, trace: bool
    ) -> tuple[Cache | None, Context]:
        """Context of all layers, and the cache with slots reserved for the new tokens."""
        shared = BoundEncoding(self.encoding, self.encoding_params.get_value())
        if cache is None:
            allowed = attention_mask(
                ids.shape[-1], valid=mask, segments=segments, causal=self.causal
            )
            rows = Rows(mask, None if segments is None else segment_starts(segments))
            return None, Context(positions, positions, allowed, shared, trace=trace, rows=rows)
        if not self.causal:
            raise ValueError("an encoder has no cache: tokens attend to later ones; pass a Decoder")
        if segments is not None:
            raise ValueError("a cache holds one document per row: leave segments out")
        before = cache.length
        cache = _extended_cache(cache, ids, mask, positions)
        slots = jnp.arange(cache.valid.shape[-1], dtype=jnp.int32)
        new = before + jnp.arange(ids.shape[-1], dtype=jnp.int32)
        allowed = AttentionMask(q_order=new, k_order=slots, k_valid=cache.valid)
        rows = Rows(mask)
        return cache, Context(positions, cache.positions, allowed, shared, before, trace, rows=rows)

    def _cross(
        self, ids: Array, memory: Memory | None, positions, segments, trace: bool
    ) -> Context | None:
        """Context of cross-attention; None for a model without it."""
        if self.cross_encoding is None:
            if memory is None:
                return None
            raise ValueError(
                "the model has no cross-attention: leave memory out, or build the model with "
                "cross_encoding, such as jaxpe.encodings.identity()"
            )
        if memory is None:
            raise ValueError(
                "the model has cross-attention: pass memory=Memory(hidden states of an encoder)"
            )
        memory = checked_memory(memory, self.config, ids.shape, segments)
        bound = BoundEncoding(self.cross_encoding, self.cross_encoding_params.get_value())
        allowed = cross_mask(memory, segments)
        hidden = None if memory.layers is not None else jnp.asarray(memory.hidden)
        k_positions = jnp.asarray(memory.positions)
        return Context(positions, k_positions, allowed, bound, trace=trace, embeddings=hidden)

    def _blocks(
        self,
        x: Array,
        context: Context,
        cache: Cache | None,
        source_keys_values: LayerCache | None,
        gates: Gates | None,
        key: Array | None,
    ) -> TransformerOutput:
        """Output and trace of all blocks, and the cache with the new tokens."""
        count, period = self.config.num_layers, len(self.pattern.encodings)
        graphdef, params = nnx.split(self.layers)
        keys = None if key is None else jax.random.split(key, count)
        first = None if self.config.first_norm else np.arange(count) == 0
        layers = Layers(params, gates, keys, source_keys_values, first)
        slot_params = ((),) if self.pattern_params is None else self.pattern_params.get_value()
        caches: Any = (None,) * period
        if cache is not None:
            caches = (cache.layers,) if isinstance(cache.layers, dict) else cache.layers
        slots = tuple(map(Slot, slot_params, caches))
        if not is_traced(x, context.q_positions):
            check_positions(graphdef, self.pattern, context, x, layers, slots)
        x, trace, caches = run_blocks(
            graphdef, self.config, self.pattern, context, x, layers, slots
        )
        entered, *traces = trace
        states = None if entered is None else jnp.concatenate([entered, x[None]])
        if cache is not None:
            cache = cache._replace(layers=caches[0] if period == 1 else caches)
        logits, weights, heads, *cross = traces
        return TransformerOutput(x, states, logits, weights, heads, cache, *cross)


def shared_and_layer_encoding(
    encoding: Encoding | LayerPattern, layer_encoding: Encoding | LayerPattern
) -> tuple[Encoding, Encoding | LayerPattern]:
    """Encoding that all layers share, and the encoding with parameters in each layer."""
    if isinstance(encoding, Encoding):
        shared = encoding.defines("embed") or not encoding.defines("context")
        if shared:
            return encoding, layer_encoding
    if layer_encoding == identity():
        return identity(), encoding
    return identity(), chain(encoding, layer_encoding)


def has_one_encoding(transformer: Transformer) -> bool:
    """Whether all layers have one encoding, of positions alone."""
    encoding = chain(transformer.encoding, transformer.layers.attention.encoding)
    alike = len(set(transformer.pattern.encodings)) == 1
    return alike and not encoding.defines("context")


def check_one_encoding(transformer: Transformer, purpose: str) -> None:
    """Raise for encodings that differ between layers, or depend on hidden states."""
    if not has_one_encoding(transformer):
        raise ValueError(
            f"{purpose} need one encoding of positions in all layers, but this model has a pattern "
            "of several, or one that depends on the hidden states: pass another model"
        )


class Encoder(Transformer):
    """Transformer whose tokens all attend to each other.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=2, num_heads=4)
    >>> encoder = nn.Encoder(config, encoding=encodings.alibi(num_heads=4), rngs=nnx.Rngs(0))
    >>> output = encoder(jnp.zeros((3, 7), int), trace=True)
    >>> output.hidden.shape, output.weights.shape
    ((3, 7, 16), (2, 3, 4, 7, 7))
    """


class Decoder(Transformer):
    """Causal transformer: tokens attend to earlier ones, also through a cache.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=2, num_heads=4)
    >>> decoder = nn.Decoder(config, encoding=encodings.rope(head_dim=4), rngs=nnx.Rngs(0))
    >>> ids = jnp.arange(6)[None]
    >>> first = decoder(ids[:, :4], cache=decoder.empty_cache(batch=1, slots=6))
    >>> rest = decoder(ids[:, 4:], cache=first.cache)
    >>> bool(jnp.allclose(rest.hidden, decoder(ids).hidden[:, 4:], atol=1e-5))
    True
    """

    causal = True

    def cache_memory(self, memory: Memory) -> Memory:
        """Memory with keys and values in every layer, computed once for all later tokens.

        They replace its hidden states.

        Args:
            memory: tokens of an encoder, with their hidden states.
        """
        if self.cross_encoding is None or memory.hidden is None:
            raise ValueError("the memory has no hidden states: pass hidden states of an encoder")
        shape = jnp.shape(memory.hidden)[:-1]
        memory = checked_memory(memory, self.config, shape, memory.segments)
        hidden, positions = jnp.asarray(memory.hidden), jnp.asarray(memory.positions)
        graphdef, params = nnx.split(self.layers)
        bound = BoundEncoding(self.cross_encoding, self.cross_encoding_params.get_value())

        def layer_keys_values(layer: Any) -> LayerCache:
            attention = nnx.merge(graphdef, layer).cross_attention
            return attention.source_keys_values(hidden, positions, shared=bound)

        return memory._replace(hidden=None, layers=jax.vmap(layer_keys_values)(params))

    def empty_cache(self, *, batch: int, slots: int, memory: Memory | None = None) -> Cache:
        """Empty cache for `slots` tokens in each of `batch` rows.

        Args:
            batch: number of rows.
            slots: number of tokens per row.
            memory: tokens of an encoder, for a decoder with cross-attention; `cache_memory`
                computes their keys and values once.
        """
        shape, period = (batch, slots), len(self.pattern.encodings)
        graphdef, params = nnx.split(self.layers)
        slot_params = ((),) if self.pattern_params is None else self.pattern_params.get_value()

        def layer_cache(slot: int, params: Any, slot_params: Any, shared_params: Any) -> LayerCache:
            params, slot_params = jax.tree.map(itemgetter(0), (params, slot_params))
            bound = chain_bound(
                BoundEncoding(self.encoding, shared_params),
                BoundEncoding(self.pattern.at(slot), slot_params),
            )
            return nnx.merge(graphdef, params).attention.empty_cache(shape, shared=bound)

        def empty(slot: int) -> LayerCache:
            count = len(range(slot, self.config.num_layers, period))
            arrays = (params, slot_params[slot], self.encoding_params.get_value())
            shapes = jax.eval_shape(partial(layer_cache, slot), *arrays)
            return jax.tree.map(lambda a: jnp.zeros((count, *a.shape), a.dtype), shapes)

        caches = tuple(map(empty, range(period)))
        positions = jnp.full(shape, _NO_POSITION, jnp.int32)
        unused = jnp.zeros(shape, bool), jnp.zeros((), jnp.int32)
        return Cache(caches[0] if period == 1 else caches, positions, *unused, memory)


def _extended_cache(cache: Cache, ids: Array, mask: Any, positions: Any) -> Cache:
    """Cache with positions, validity and length of the new tokens, but without their keys."""
    if ids.ndim != 2:
        raise ValueError(f"with a cache, ids must be [batch, n], not of shape {ids.shape}")
    slots, new = cache.valid.shape[-1], ids.shape[-1]
    filled = 0 if is_traced(cache.length) else int(cache.length)
    if filled + new > slots:
        raise ValueError(
            f"{new} tokens do not fit into a cache with {filled} of {slots} slots filled: make a "
            "longer one"
        )
    valid = jnp.ones(ids.shape, bool) if mask is None else mask
    positions = as_positions(positions)
    if positions.dtype != jnp.int32 or positions.shape[-1:] != ids.shape[-1:]:
        raise ValueError(
            f"with a cache, positions must be integers [batch, n], not {positions.dtype} of shape "
            f"{positions.shape}"
        )
    # Positions after every query, so that encodings that count keys do not count padding.
    positions = jnp.where(valid, jnp.broadcast_to(positions, ids.shape), _NO_POSITION)
    start = (jnp.zeros_like(cache.length), cache.length)
    return cache._replace(
        positions=lax.dynamic_update_slice(cache.positions, positions, start),
        valid=lax.dynamic_update_slice(cache.valid, valid, start),
        length=cache.length + new,
    )


def _check_ids(ids: Array, vocab_size: int) -> None:
    """Raise for concrete token ids outside the vocabulary."""
    if not jnp.issubdtype(ids.dtype, jnp.integer):
        raise ValueError(f"ids are {ids.dtype}: pass integers")
    if is_traced(ids) or not ids.size:
        return
    values = np.asarray(ids)
    for extreme in (values.min(), values.max()):
        if not 0 <= extreme < vocab_size:
            raise ValueError(f"id {extreme} is not in the vocabulary of {vocab_size}")


def _make_gates(
    gates: ArrayLike | None,
    fill: ArrayLike | None,
    config: TransformerConfig,
    shape: tuple[int, ...],
) -> Gates | None:
    """Gates and their fill, with a leading axis of layers; None without gates."""
    if gates is None:
        if fill is not None:
            raise ValueError("gate_fill fills closed gates: pass gates with it")
        return None
    layers, heads = config.num_layers, (*shape, config.num_heads)
    gates = _layer_values("gates", gates, layers, heads)
    if fill is None:
        return Gates(gates)
    heads = (*heads, config.value_width)
    return Gates(gates, _layer_values("gate_fill", fill, layers, heads, fixed=2))


def _layer_values(
    name: str, values: ArrayLike, layers: int, wanted: tuple[int, ...], *, fixed: int = 1
) -> Array:
    """Values `[layers, ..., *wanted[-fixed:]]`, checked: axes between broadcast to `wanted`."""
    values = jnp.asarray(values)
    shape = values.shape[1:]
    fits = fixed <= len(shape) <= len(wanted) and shape[-fixed:] == wanted[-fixed:]
    fits = fits and all(a in (1, b) for a, b in zip(shape[::-1], wanted[::-1], strict=False))
    if not fits or values.shape[0] != layers:
        tail = ", ".join(map(str, wanted[-fixed:]))
        names = "heads" if fixed == 1 else "heads, width"
        raise ValueError(
            f"{name} {'have' if name == 'gates' else 'has'} shape {values.shape}: pass "
            f"[layers, ..., {names}] = [{layers}, ..., {tail}], where ... broadcasts to "
            f"{wanted[:-fixed]}"
        )
    return values
