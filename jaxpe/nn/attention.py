"""Multi-head attention that calls the hooks of an encoding, plain, grouped or latent.

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
from jaxtyping import Bool, Float, Int32

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings import (
    Encoding,
    Rows,
    attention_logits,
    attention_output,
    chain,
    identity,
)
from jaxpe.encodings.attention import encoded_mask, encoded_weights
from jaxpe.encodings.base import Params, bind_context, centered_positions, expand_rank, repeat_heads
from jaxpe.nn.config import TransformerConfig
from jaxpe.nn.layers import capped, dense, dropout, norm

# What a layer keeps of the tokens so far: arrays `[..., n, heads, width]` by name; "context", a
# pytree `[..., n, *]`, and "carry", one without n, where the encoding depends on the hidden states.
LayerCache = dict[str, Any]


class BoundEncoding(NamedTuple):
    """An encoding with its parameters: what `encoding.init` gave, or training made of it.

    Attributes:
        encoding: the encoding.
        params: parameters of the encoding.
    """

    encoding: Encoding = identity()
    params: Params = ()


_NOTHING = BoundEncoding()


class Context(NamedTuple):
    """Arguments of attention beside its input, the same for every layer.

    Attributes:
        q_positions, k_positions: `[..., n_q]` and `[..., n_k]`.
        mask: true where a query may look, broadcasting to `[..., heads, n_q, n_k]`.
        shared: the encoding all layers share.
        slot: slot of a cache for the first of the new keys.
        trace: whether to return logits, weights and the outputs of heads.
        embeddings: input of the first layer; None unless keys and values are read from it.
        rows: padding and segments of the new tokens, for encodings that depend on hidden states.
        cross: context of cross-attention: positions of queries and of the encoder's tokens, their
            mask, its encoding, and as `embeddings` the encoder's hidden states, None where keys are
            cached.
    """

    q_positions: ArrayLike
    k_positions: ArrayLike
    mask: Bool[Array, "... n_q n_k"] | None = None
    shared: BoundEncoding = BoundEncoding()
    slot: Int32[Array, ""] | int = 0
    trace: bool = False
    embeddings: Float[Array, "... n_q dim"] | None = None
    rows: Rows = Rows()
    cross: "Context | None" = None


class Gates(NamedTuple):
    """Gates of heads before the output projection: open·x + (1 − open)·fill.

    Attributes:
        open: `[..., n, heads]`, or fewer axes in front; 0 ablates a head.
        fill: `[..., n, heads, width]`, or fewer axes in front; zero when None.
    """

    open: Float[Array, "*open"]
    fill: Float[Array, "*fill width"] | None = None


class Attended(NamedTuple):
    """Result of attention; logits, weights and heads are None unless traced.

    Attributes:
        output: `[..., n_q, dim]`.
        logits: `[..., heads, n_q, n_k]`, of Eq. (1) with everything the encoding adds, capped where
            the configuration has a cap, before the mask.
        weights: their softmax, 0 where masked.
        heads: output of each head before its gate, `[..., n_q, heads, width]`.
        cache: the layer's cache with the new keys; None without one.
        cross: output of cross-attention; None for a layer of attention, or a block without it.
    """

    output: Float[Array, "... n_q dim"]
    logits: Float[Array, "... heads n_q n_k"] | None = None
    weights: Float[Array, "... heads n_q n_k"] | None = None
    heads: Float[Array, "... n_q heads width"] | None = None
    cache: LayerCache | None = None
    cross: "Attended | None" = None


class _Heads(NamedTuple):
    """Queries, and keys and values as a cache holds them: encoded already."""

    q: Array
    k: Array
    v: Array


class _Attention(nnx.Module):
    """Base of the kinds of attention, which differ in queries, keys and values."""

    config: TransformerConfig
    output: nnx.Linear
    encoding: Encoding
    encoding_params: nnx.Param

    def __call__(
        self,
        x: Float[ArrayLike, "... n_q dim"],
        context: Context,
        *,
        source: Float[ArrayLike, "... n_k dim"] | None = None,
        kept: LayerCache | None = None,
        cache: LayerCache | None = None,
        gates: Gates | None = None,
        dropout_key: Array | None = None,
    ) -> Attended:
        """Attend from x to the source (x when None), or to the cache with it appended.

        With what `remembered` made of a source, `kept`, attend to that.
        """
        x = jnp.asarray(x)
        if kept is not None:
            bound = both(context.shared, self._own())
            heads = _Heads(self._queries(x, bound, context.q_positions), *self._expanded(kept))
            mixed = _mix(self.config, bound, heads, context, dropout_key, self.scale)
            return _finished(self.output, mixed, gates, None)
        source = x if source is None else jnp.asarray(source)
        bound = both(context.shared, self._own())
        new, carry = _context_of(bound, x, source, context, cache)
        fresh = bound._replace(encoding=bind_context(bound.encoding, new, new))
        q_positions, k_positions = context.q_positions, context.k_positions
        if cache is None:  # nothing was encoded before
            q_positions, k_positions = centered_positions(bound.encoding, q_positions, k_positions)
            kept, bound = self._kept(source, fresh, k_positions), fresh
        else:
            kept = self._kept(source, fresh, q_positions)
            kept = cache = _appended(cache, kept, new, carry, context.slot, axis=x.ndim - 2)
            known = bind_context(bound.encoding, new, cache.get("context"))
            bound = bound._replace(encoding=known)
        heads = _Heads(self._queries(x, fresh, q_positions), *self._expanded(kept))
        mixed = _mix(self.config, bound, heads, context, dropout_key, self.scale)
        return _finished(self.output, mixed, gates, cache)

    def remembered(
        self,
        source: Float[ArrayLike, "... n_k dim"],
        positions: ArrayLike,
        *,
        shared: BoundEncoding = _NOTHING,
    ) -> LayerCache:
        """Keys, encoded, and values of a source that does not change, as a cache has them.

        Args:
            source: hidden states of the encoder.
            positions: theirs, `[..., n_k]`.
            shared: encoding that all layers share.
        """
        return self._kept(jnp.asarray(source), both(shared, self._own()), positions)

    def empty_cache(
        self, shape: tuple[int, ...], *, shared: BoundEncoding = _NOTHING
    ) -> LayerCache:
        """A cache of nothing yet, `[*shape, ...]`.

        Args:
            shape: that of the ids it will hold.
            shared: encoding that all layers share.
        """

        def filled() -> LayerCache:
            bound = both(shared, self._own())
            x = jnp.zeros((*shape, self.config.dim), self.config.dtype)
            positions = jnp.zeros(shape, jnp.int32)
            new, carry = bound.encoding.context(bound.params, x, positions, Rows())
            bound = bound._replace(encoding=bind_context(bound.encoding, new, new))
            kept = self._kept(x, bound, positions)
            return kept if new is None else kept | {"context": new, "carry": carry}

        return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(filled))

    def _own(self) -> BoundEncoding:
        return BoundEncoding(self.encoding, self.encoding_params.get_value())

    @property
    def scale(self) -> float:
        """Factor of q·k in the logits."""
        own = self.config.attention_scale
        return self._width() ** -0.5 if own is None else own

    def _width(self) -> int:
        """Width of queries and keys before the encoding acts on them."""
        raise NotImplementedError

    def _kept(self, x: Array, bound: BoundEncoding, positions: ArrayLike) -> LayerCache:
        """Entries of a cache for these tokens."""
        raise NotImplementedError

    def _expanded(self, kept: LayerCache) -> tuple[Array, Array]:
        """Keys and values, `[..., n, heads, width]`, from what a cache holds."""
        raise NotImplementedError

    def _queries(self, x: Array, bound: BoundEncoding, positions: ArrayLike) -> Array:
        """Encoded queries, `[..., n, heads, width]`."""
        raise NotImplementedError


class MultiHeadAttention(_Attention):
    """Attention with an encoding; query heads share keys evenly where `num_kv_heads` is fewer.

    Vaswani et al. (2017); Ainslie et al. (2023) for grouped queries. Logits are
    ⟨query(q_i), key(k_j)⟩/√head_dim + bias_ij: Eq. (1) of Cirrincione (2026), where the encoding
    acts on embeddings. The configuration may have another scale than 1/√head_dim, norms of queries
    and keys before the encoding, and a cap of the logits.

    The layer has parameters of `encoding` for itself, beside those of the context's.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2)
    >>> rope = jaxpe.rope(head_dim=4)
    >>> attention = jaxpe.nn.MultiHeadAttention(config, encoding=rope, rngs=nnx.Rngs(0))
    >>> i = jnp.arange(5)
    >>> attended = attention(jnp.ones((2, 5, 8)), jaxpe.nn.Context(i, i, trace=True))
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
        self.query_norm = norm(config, width, rngs=rngs) if normed else None
        self.key_norm = norm(config, width, rngs=rngs) if normed else None
        self.encoding = nnx.static(encoding)
        self.encoding_params = encoding_parameters(config, encoding, rngs=rngs)

    def _width(self) -> int:
        return self.config.head_width

    def _kept(self, x: Array, bound: BoundEncoding, positions: ArrayLike) -> LayerCache:
        width = self.config.head_width
        k = _split(self.key(x), width)
        k = k if self.key_norm is None else self.key_norm(k)
        k = bound.encoding.key(bound.params, k, positions)
        return {"k": k, "v": _split(self.value(x), width)}

    def _expanded(self, kept: LayerCache) -> tuple[Array, Array]:
        return kept["k"], kept["v"]

    def _queries(self, x: Array, bound: BoundEncoding, positions: ArrayLike) -> Array:
        q = _split(self.query(x), self.config.head_width)
        q = q if self.query_norm is None else self.query_norm(q)
        return bound.encoding.query(bound.params, q, positions)


class LatentAttention(_Attention):
    """Multi-head latent attention: keys and values from one narrow vector a token.

    DeepSeek-AI (2024), Eq. (9) to (19): c = norm(x W_DKV); keys [c W_UK, key(x W_KR)], whose
    rotary part all heads share; queries likewise; values c W_UV; logits q·k/√(head_dim +
    rotary_dim). The encoding's `query` and `key` act on the rotary part alone, `bias` sees whole
    queries and keys. A cache keeps c and the encoded rotary key: key_value_rank + rotary_dim
    numbers a token. The layer has parameters of `encoding` for itself; `config.latent` has sizes.

    >>> from flax import nnx
    >>> latent = jaxpe.nn.LatentSizes(key_value_rank=6, rotary_dim=2)
    >>> config = jaxpe.nn.TransformerConfig(
    ...     vocab_size=9, dim=8, num_layers=1, num_heads=2, latent=latent)
    >>> rope = jaxpe.rope(head_dim=2)
    >>> attention = jaxpe.nn.LatentAttention(config, encoding=rope, rngs=nnx.Rngs(0))
    >>> attention(jnp.ones((5, 8)), jaxpe.nn.Context(jnp.arange(5), jnp.arange(5))).output.shape
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
        self.value_dim = width if latent.value_dim is None else latent.value_dim
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
        self.encoding = nnx.static(encoding)
        self.encoding_params = encoding_parameters(config, encoding, rngs=rngs)

    def _width(self) -> int:
        return self.config.head_width + self.latent.rotary_dim

    def _kept(self, x: Array, bound: BoundEncoding, positions: ArrayLike) -> LayerCache:
        rotary = _split(self.rotary_key(x), self.latent.rotary_dim)
        latent = self.key_value_norm(self.key_value_down(x))
        return {
            "latent": latent[..., None, :],
            "rotary": bound.encoding.key(bound.params, rotary, positions),
        }

    def _expanded(self, kept: LayerCache) -> tuple[Array, Array]:
        latent = kept["latent"][..., 0, :]
        content = _split(self.key(latent), self.config.head_width)
        shared = repeat_heads(kept["rotary"], self.config.num_heads)
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
    """The attention layer that the sizes ask for."""
    layer = MultiHeadAttention if config.latent is None else LatentAttention
    return layer(config, encoding=encoding, rngs=rngs)


def encoding_parameters(
    config: TransformerConfig, encoding: Encoding, *, rngs: nnx.Rngs
) -> nnx.Param:
    """Parameters of an encoding, which must be floats, in one `nnx.Param`, as `config` has them."""
    if not isinstance(encoding, Encoding):
        raise ValueError(f"encoding={encoding!r}: pass one that is made, as jaxpe.rope(head_dim=4)")

    def cast(leaf):
        leaf = jnp.asarray(leaf)
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(
                f"the encoding has parameters of {leaf.dtype}, which no gradient takes: close over "
                "them in its hooks"
            )
        return leaf.astype(config.param_dtype)

    return nnx.Param(jax.tree.map(cast, encoding.init(rngs.params())))


def both(shared: BoundEncoding, own: BoundEncoding) -> BoundEncoding:
    """The encodings that act here, as one."""
    parts = [part for part in (shared, own) if part.encoding != identity()]
    if len(parts) == 1:
        return parts[0]
    return BoundEncoding(chain(*(p.encoding for p in parts)), tuple(p.params for p in parts))


def _context_of(
    bound: BoundEncoding, x: Array, source: Array, context: Context, cache: LayerCache | None
) -> tuple[Any, Any]:
    """The context of new tokens and its carry; None and None where the encoding has none."""
    if not bound.encoding.defines("context"):
        return None, None
    if source.shape[:-1] != x.shape[:-1]:
        raise ValueError(
            f"the encoding depends on the hidden states of one row of tokens, but queries are of "
            f"{x.shape[:-1]} and keys of {source.shape[:-1]} tokens: give cross-attention another"
        )
    rows = context.rows if cache is None else context.rows._replace(carry=cache["carry"])
    return bound.encoding.context(bound.params, x, context.q_positions, rows)


def _mix(
    config: TransformerConfig,
    bound: BoundEncoding,
    heads: _Heads,
    context: Context,
    key: Array | None,
    scale: float,
) -> Attended:
    """Values mixed by attention, `[..., n_q, heads, head_dim]`, from encoded queries and keys."""
    # What is encoded already must not be encoded again.
    rest = bound.encoding._replace(query=Encoding().query, key=Encoding().key)
    places = {"q_positions": context.q_positions, "k_positions": context.k_positions}
    allowed = encoded_mask(rest, bound.params, heads.q, heads.k, context.mask, **places)
    context = context._replace(mask=allowed)
    drops = key is not None and config.attention_dropout > 0
    # The fused paths take no wider values, have float32 logits for float64 too, and on a CPU
    # nothing for float16.
    unfit = heads.v.shape[-1] > heads.k.shape[-1] or heads.q.dtype == jnp.float64
    unfit |= heads.q.dtype == jnp.float16 and config.attention == "xla"
    unfit |= config.attention_cap is not None
    unfit |= any(rest.defines(hook) for hook in ("products", "weights", "value"))
    plain = context.trace or drops or unfit
    mix = _transparent if plain or config.attention == "transparent" else _fused
    return mix(config, BoundEncoding(rest, bound.params), heads, context, key, scale)


def _transparent(
    config: TransformerConfig,
    bound: BoundEncoding,
    heads: _Heads,
    context: Context,
    key: Array | None,
    scale: float,
) -> Attended:
    where = {"q_positions": context.q_positions, "k_positions": context.k_positions}
    logits = attention_logits(*bound, heads.q, heads.k, scale=scale, **where)
    logits = capped(logits, config.attention_cap)
    weights = encoded_weights(*bound, logits, context.mask, **where)
    dropped = dropout(weights, rate=config.attention_dropout, key=key)
    out = attention_output(*bound, dropped, heads.v, **where)
    return Attended(out, logits, weights, out) if context.trace else Attended(out)


def _fused(
    config: TransformerConfig,
    bound: BoundEncoding,
    heads: _Heads,
    context: Context,
    key: Array | None,
    scale: float,
) -> Attended:
    lead, width = heads.q.shape[:-3], heads.v.shape[-1]
    positions = context.q_positions, context.k_positions
    bias = bound.encoding.bias(bound.params, heads.q, heads.k, *positions)
    bias, mask = (None if x is None else _four_axes(x, lead) for x in (bias, context.mask))
    q, k, v = (x.reshape(math.prod(lead), *x.shape[-3:]) for x in heads)
    v = jnp.pad(v, [(0, 0)] * 3 + [(0, k.shape[-1] - width)])
    options: Any = {"scale": scale, "implementation": config.attention}
    with jax.numpy_dtype_promotion("standard"):  # it mixes 16-bit numbers and float32
        out = jax.nn.dot_product_attention(q, k, v, bias, mask, **options)
    if mask is not None:  # where there is no key to attend to, softmax attends to all
        out = jnp.where(jnp.any(mask, axis=-1).swapaxes(-1, -2)[..., None], out, 0)
    return Attended(out[..., :width].reshape(*lead, *out.shape[-3:-1], width))


def _four_axes(x: Array, lead: tuple[int, ...]) -> Array:
    """`[..., heads, n_q, n_k]` with one axis in front, as the fused path has it."""
    x = expand_rank(x, len(lead) + 3)
    if len(lead) == 1:
        return x
    if all(size == 1 for size in x.shape[:-3]):
        return x.reshape(1, *x.shape[-3:])
    return jnp.broadcast_to(x, (*lead, *x.shape[-3:])).reshape(math.prod(lead), *x.shape[-3:])


def _split(x: Array, width: int) -> Array:
    """Heads of this width, `[..., heads, width]`."""
    return x.reshape(*x.shape[:-1], x.shape[-1] // width, width)


def _appended(
    cache: LayerCache,
    new: LayerCache,
    context: Any,
    carry: Any,
    slot: ArrayLike | int,
    *,
    axis: int,
) -> LayerCache:
    """The cache with new entries `[..., n_q, *]`, n_q being that axis, in its slots from `slot`."""

    def put(old: Array, entry: Array) -> Array:
        return lax.dynamic_update_slice_in_dim(old, entry.astype(old.dtype), slot, axis)

    if context is not None:
        new = new | {"context": context}
    found = {name: jax.tree.map(put, cache[name], entry) for name, entry in new.items()}
    if context is None:
        return found
    before = cache["carry"]
    return found | {"carry": jax.tree.map(lambda old, now: now.astype(old.dtype), before, carry)}


def _finished(
    output: Callable[[Array], Array], mixed: Attended, gates: Gates | None, cache: LayerCache | None
) -> Attended:
    """Heads through their gates and the output projection."""
    out = mixed.output
    if gates is not None:
        share = expand_rank(jnp.asarray(gates.open, out.dtype)[..., None], out.ndim)
        out = out * share
        if gates.fill is not None:
            out = out + expand_rank(gates.fill, out.ndim, out.dtype) * (1 - share)
    out = output(out.reshape(*out.shape[:-2], math.prod(out.shape[-2:])))
    return mixed._replace(output=out, cache=cache)
