"""Logit decomposition: queries and keys of a trained model as content plus position.

A hidden state is x = c + p. A dense layer is linear, and its bias counts as content. A norm is
linear with its statistics fixed at x. So the images of c and p in every layer add up exactly to
queries and keys.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array, lax
from jaxtyping import Float, Int

from jaxpe._core.arrays import ArrayLike, tree_add
from jaxpe.encodings import Encoding, chain
from jaxpe.encodings.base import Params, Rows, compute_dtype, expand_rank, repeat_heads
from jaxpe.nn.attention import LatentAttention, MultiHeadAttention
from jaxpe.nn.cross import Memory
from jaxpe.nn.heads import trunk
from jaxpe.nn.layers import NoNorm
from jaxpe.nn.masks import checked_valid, segment_starts
from jaxpe.nn.transformer import check_one_encoding, has_one_encoding

_OPTIONS = ("mask", "positions", "segments", "token_types", "memory")


class Split(NamedTuple):
    """Array as content plus position, float32 or wider."""

    content: Float[Array, "..."]
    position: Float[Array, "..."]

    def through(self, layer: nnx.Linear | nnx.LayerNorm | nnx.RMSNorm | NoNorm) -> "Split":
        """Parts after a dense layer or a norm; their sum is the layer's output.

        The bias counts as content. A norm divides both parts by the deviation of their sum.
        """
        if isinstance(layer, NoNorm):
            return self
        parts = _project(self, layer) if isinstance(layer, nnx.Linear) else _normalise(self, layer)
        bias = getattr(layer, "bias", None)
        if bias is None:
            return parts
        content = parts.content + expand_rank(bias.get_value(), parts[0].ndim, parts[0].dtype)
        return parts._replace(content=content)

    def map(self, linear: Callable[[Array], Array]) -> "Split":
        """Apply a linear function to both parts."""
        return Split(linear(self.content), linear(self.position))

    def heads(self, width: int) -> "Split":
        """Split both parts into heads, `[..., heads, width]`."""
        return self.map(lambda x: x.reshape(*x.shape[:-1], x.shape[-1] // width, width))


class HeadParts(NamedTuple):
    """Queries and keys of all heads before the encoding acts on them, as content plus position.

    Leading axes are `[layers, ..., n]`; without means there is only the first layer.

    Attributes:
        q_content: content part of queries, with the biases. With latent attention, queries and keys
            have width head_dim + rotary_dim, and the rotary part of keys is repeated for all heads.
        q_position: position part of queries.
        k_content: content part of keys; grouped queries share fewer heads of keys.
        k_position: position part of keys.
        logits: attention logits of the model, with all terms of the encoding, before the mask.
        scale: factor of q·k in the logits.
        positions: positions of the tokens in all layers.
        params: parameters of `head_encoding(model)`, stacked over layers; () with `by_layer`.
        by_layer: parameters and context of `head_encoding(model, layer=...)` for each layer, if
            encodings differ by layer or depend on hidden states; None otherwise.
    """

    q_content: Float[Array, "layers ... n heads width"]
    q_position: Float[Array, "layers ... n heads width"]
    k_content: Float[Array, "layers ... n key_heads width"]
    k_position: Float[Array, "layers ... n key_heads width"]
    logits: Float[Array, "layers ... heads n n"]
    scale: Float[Array, ""]
    positions: Array
    params: Params
    by_layer: tuple[tuple[Params, Any], ...] | None = None


def split_heads(
    model: Any,
    ids: Int[ArrayLike, "... n"],
    *,
    means: Float[ArrayLike, "layers places dim"] | None = None,
    mask: ArrayLike | None = None,
    positions: ArrayLike | None = None,
    segments: Int[ArrayLike, "... n"] | None = None,
    token_types: Int[ArrayLike, "... n"] | None = None,
    memory: Memory | None = None,
) -> HeadParts:
    """Queries and keys of a model's heads as content plus position.

    With `encoding = head_encoding(model)`, q = q_content + q_position and k = k_content +
    k_position, `attention_logits(encoding, params, q, k, ...)` are the model's logits of each
    layer. With `by_layer`, each layer has its own encoding, parameters and context.

    To compile: `apply, params = jaxpe.nn.functionalize(model, method=jaxpe.nn.split_heads)` and
    `jax.jit(apply)(params, ids, mask=mask, means=means)`.

    Args:
        model: transformer, or classifier or language model on one.
        means: position parts of the inputs of all layers, from `position_means`. When None, only
            the first layer is decomposed. Its position part is what the encoding adds to the
            embeddings, after any norm; token types are content.
        ids, mask, positions, segments, token_types, memory: arguments of a `Transformer`. In a
            decoder with cross-attention, heads of self-attention are decomposed.

    Raises:
        ValueError: a model whose logits are no such sum, or means of another shape.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=2, num_heads=4)
    >>> encoder = nn.Encoder(config, encoding=encodings.sinusoidal(dim=16), rngs=nnx.Rngs(0))
    >>> parts = nn.split_heads(encoder, jnp.arange(7))
    >>> parts.q_content.shape, parts.logits.shape
    ((1, 7, 4, 4), (1, 4, 7, 7))
    >>> q, k = parts.q_content + parts.q_position, parts.k_content + parts.k_position
    >>> logits = jnp.einsum("lihd,ljhd->lhij", q, k) * parts.scale
    >>> bool(jnp.allclose(logits, parts.logits, atol=1e-5))
    True
    """
    below = _transformer(model)
    options: Any = {"positions": positions, "segments": segments, "token_types": token_types}
    options["memory"] = memory
    trace, tokens, positions = _trace_run(below, jnp.asarray(ids), mask=mask, **options)
    if means is None:
        entered = _first_input(below, tokens, positions)
    else:
        entered = _layer_inputs(trace.hidden_states[:-1], means)
    q, k = _layers(below, entered)
    by_layer = None
    if not has_one_encoding(below):
        rows = Rows(
            checked_valid(mask, jnp.shape(ids)),
            None if segments is None else segment_starts(segments),
        )
        by_layer = _layer_params(below, entered, jnp.asarray(positions), rows)
    count, dtype = q.content.shape[0], q.content.dtype
    return HeadParts(
        *q,
        *k,
        logits=trace.logits[:count],
        scale=jnp.asarray(below.layers.attention.scale, dtype),
        positions=jnp.asarray(positions),
        params=_parameters(below, count) if by_layer is None else (),
        by_layer=by_layer,
    )


def head_encoding(model: Any, *, layer: int | None = None) -> Encoding:
    """The encoding that acts on queries and keys of `split_heads`, with `HeadParts.params`.

    It chains the shared encoding with the encoding of the layers. With latent attention it rotates
    the last rotary_dim entries of queries and keys alone. Each call makes new functions, so build
    it once where it is a static argument of `jit`.

    Args:
        model: a transformer, or a classifier or language model on one.
        layer: number of the layer, for a model with `HeadParts.by_layer`; None otherwise.

    Raises:
        ValueError: no layer where the model needs one.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> latent = nn.LatentSizes(key_value_rank=6, rotary_dim=2)
    >>> config = nn.TransformerConfig(
    ...     vocab_size=9, dim=8, num_layers=1, num_heads=2, latent=latent)
    >>> decoder = nn.Decoder(config, encoding=encodings.rope(head_dim=2), rngs=nnx.Rngs(0))
    >>> encoding = nn.head_encoding(decoder)
    >>> q = jnp.ones((3, 2, 6))  # 4 entries without position, 2 that turn
    >>> turned = encoding.query(((), ()), q, jnp.arange(3))
    >>> (turned == q).all(axis=(0, 1)).tolist()
    [True, True, True, True, False, False]
    """
    below = _transformer(model)
    if layer is None:
        check_one_encoding(below, "queries and keys of all layers")
    attention = below.layers.attention
    parts = (below.encoding, attention.encoding)
    if len(below.pattern.encodings) > 1:
        parts = (*parts, below.pattern.at(layer or 0))
    encoding = chain(*parts)
    if isinstance(attention, LatentAttention):
        return _rotary_part_encoding(encoding, attention.latent.rotary_dim)
    return encoding


class HiddenSums(NamedTuple):
    """Sums of the inputs of each layer by index in the row, a pytree that adds.

    `a + b` merges the sums of two sets of documents, after padding to equal length. Sums of many
    batches lose digits in float32: convert both fields to NumPy's float64 first, as
    `position_means` does.

    Attributes:
        sums: sums over the tokens at each index, float32 or wider.
        counts: number of tokens at each index.
    """

    sums: Float[ArrayLike, "layers n dim"]
    counts: Int[ArrayLike, " n"]

    def __add__(self, other: "HiddenSums") -> "HiddenSums":  # pyrefly: ignore
        n = max(self.counts.shape[0], other.counts.shape[0])
        one, two = self._padded(n), other._padded(n)
        if _library(self.sums) is np and one.sums.shape == two.sums.shape:  # counts have 64 bits
            return HiddenSums(one.sums + two.sums, one.counts + two.counts)
        return tree_add(one, two)

    __radd__ = tree_add  # `sum` starts from 0

    def means(self) -> Float[ArrayLike, "layers n dim"]:
        """Position part of the inputs of each layer, p_i = E[x_i] − mean over i of E[x_i].

        The mean over i weighs all indices with tokens equally; indices without tokens have p = 0.
        The result has the dtype and the array type of the sums.
        """
        lib = _library(self.sums)
        seen = self.counts > 0
        average = self.sums / lib.maximum(self.counts, 1).astype(self.sums.dtype)[None, :, None]
        length = lib.maximum(seen.sum(), 1).astype(self.sums.dtype)
        centre = average.sum(axis=1, keepdims=True) / length
        return lib.where(seen[None, :, None], average - centre, 0)

    def _padded(self, length: int) -> "HiddenSums":
        pad, after = _library(self.sums).pad, (0, length - self.counts.shape[0])
        return HiddenSums(pad(self.sums, ((0, 0), after, (0, 0))), pad(self.counts, (after,)))


def sum_hidden(model: Any, ids: Int[ArrayLike, "... n"], **options: Any) -> HiddenSums:
    """Sums over rows of the inputs of each layer, by index in the row.

    Arguments and options are as in `split_heads`. Masked tokens do not count.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=4)
    >>> encoder = nn.Encoder(config, encoding=encodings.sinusoidal(dim=16), rngs=nnx.Rngs(0))
    >>> sums = sum_hidden(encoder, jnp.zeros((3, 7), int))
    >>> sums.sums.shape, sums.counts.tolist()
    ((1, 7, 16), [3, 3, 3, 3, 3, 3, 3])
    """
    ids = jnp.asarray(ids)
    trace = _transformer(model)(ids, trace=True, **options)
    states = trace.hidden_states[:-1]  # the last one is the output of the last block
    valid = checked_valid(options.get("mask"), ids.shape)
    valid = jnp.ones(ids.shape, bool) if valid is None else valid
    wide = jnp.where(valid[None, ..., None], states, 0).astype(compute_dtype(states))
    rows = tuple(range(ids.ndim - 1))
    sums = jnp.sum(wide, axis=tuple(row + 1 for row in rows))
    return HiddenSums(sums, jnp.sum(valid, axis=rows, dtype=jnp.int32))


def position_means(
    model: Any, batches: Iterable[Mapping[str, ArrayLike]]
) -> Float[Array, "layers n dim"]:
    """Position part of the inputs of each layer, p_i = E[x_i] − mean over i of E[x_i].

    Means are over the documents of all batches; n is the length of the longest rows.
    Batches are summed in float32 or wider, and added in float64.

    Args:
        model: transformer, or classifier or language model on one; or a function `(ids,
            **options)` that returns the sums of its hidden states.
        batches: one batch or more, each with "ids" `[..., n]` and optionally "mask", "positions",
            "segments", "token_types" or "memory". A new shape compiles again.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=4)
    >>> encoder = nn.Encoder(config, encoding=encodings.sinusoidal(dim=16), rngs=nnx.Rngs(0))
    >>> position_means(encoder, [{"ids": np.zeros((3, 7), int)}]).shape
    (1, 7, 16)
    """
    summed = _sum_function(model) if isinstance(model, nnx.Module) else model
    total = 0
    for batch in batches:
        options = {name: batch[name] for name in _OPTIONS if batch.get(name) is not None}
        sums = summed(batch["ids"], **options)
        total += HiddenSums(np.asarray(sums.sums, np.float64), np.asarray(sums.counts, np.int64))
    if not total:
        raise ValueError("no batches to take means over: pass at least one")
    return jnp.asarray(total.means())


def _sum_function(model: nnx.Module) -> Callable[..., HiddenSums]:
    graphdef, params = nnx.split(model, nnx.Param)
    return lambda ids, **options: _sums(params, ids, options, graphdef=graphdef)


@partial(jax.jit, static_argnames="graphdef")
def _sums(params: Any, ids: Array, options: dict[str, ArrayLike], *, graphdef: Any) -> HiddenSums:
    return sum_hidden(nnx.merge(graphdef, params), ids, **options)


def _transformer(model: Any) -> Any:
    """Transformer of a model; raises `ValueError` unless its layers can be decomposed."""
    below = trunk(model)
    if below.config.attention_cap is not None or not below.config.first_norm:
        raise ValueError(
            f"the model has attention_cap={below.config.attention_cap} and first_norm="
            f"{below.config.first_norm}: logits are a sum of content and position without a cap, "
            "and with a norm in every layer"
        )
    return below


def _trace_run(below: Any, ids: Array, **options: Any) -> tuple[Any, Array, ArrayLike]:
    """Traced output, embeddings without positional encoding, and positions."""
    encoding, seen = below.encoding, []

    def embed(params, x, positions):
        seen.append((x, positions))
        return encoding.embed(params, x, positions)

    # Only the `embed` hook receives embeddings without positions, and a model's default positions.
    tapped = nnx.clone(below)
    tapped.encoding = nnx.static(encoding._replace(embed=embed))
    trace = tapped(ids, trace=True, **options)
    ((tokens, positions),) = seen
    return trace, tokens, positions


def _first_input(below: Any, tokens: Array, positions: ArrayLike) -> Split:
    """Input of the first layer, `[1, ..., n, dim]`: tokens plus the term of the encoding."""
    tokens = tokens.astype(compute_dtype(tokens))
    embedded = below.encoding.embed(below.encoding_params.get_value(), tokens, positions)
    split = Split(tokens, embedded - tokens)
    if below.embedding_norm is not None:
        split = split.through(below.embedding_norm)
    return split.map(lambda x: x[None])


def _layer_inputs(states: Array, means: ArrayLike) -> Split:
    """Input of each layer, `[layers, ..., n, dim]`, with the means as position part."""
    states = states.astype(compute_dtype(states))
    means = jnp.asarray(means, states.dtype)
    layers, *between, n, dim = states.shape
    if means.shape != (layers, n, dim):
        raise ValueError(
            f"means have shape {means.shape}: pass [layers, n, dim] = [{layers}, {n}, {dim}], "
            "with a mean for each token of a row"
        )
    position = means.reshape(layers, *(1 for _ in between), n, dim)
    return Split(states - position, jnp.broadcast_to(position, states.shape))


def _layers(below: Any, entered: Split) -> tuple[Split, Split]:
    """Queries and keys of the layers, from their inputs `[layers, ..., n, dim]`."""
    graphdef, params = nnx.split(below.layers)
    count = entered.content.shape[0]
    first = entered.map(lambda x: x[0])

    def queries_and_keys(layer: Any, x: Split) -> tuple[Split, Split]:
        block = nnx.merge(graphdef, layer)
        source = first if below.config.keys_from == "embeddings" else x
        if below.config.norm_position != "post":
            x, source = (y.through(block.attention_norm) for y in (x, source))
        if isinstance(block.attention, LatentAttention):
            return _latent(block.attention, x, source)
        return _multi_head(block.attention, x, source)

    return jax.vmap(queries_and_keys)(jax.tree.map(lambda leaf: leaf[:count], params), entered)


def _multi_head(attention: MultiHeadAttention, x: Split, source: Split) -> tuple[Split, Split]:
    width = attention.config.head_width

    def heads(projected: Split, layer: Any) -> Split:
        if attention.config.query_key_norm == "joint":
            return projected.through(layer).heads(width)
        split = projected.heads(width)
        return split if layer is None else split.through(layer)

    q = heads(x.through(attention.query), attention.query_norm)
    return q, heads(source.through(attention.key), attention.key_norm)


def _latent(attention: LatentAttention, x: Split, source: Split) -> tuple[Split, Split]:
    width, rotary_dim = attention.config.head_width, attention.latent.rotary_dim
    if attention.latent.query_rank is not None:
        x = x.through(attention.query_down).through(attention.query_norm)
    q = x.through(attention.query).heads(width + rotary_dim)
    latent = source.through(attention.key_value_down).through(attention.key_value_norm)
    content = latent.through(attention.key).heads(width)
    rotary = source.through(attention.rotary_key).heads(rotary_dim)
    rotary = rotary.map(lambda x: repeat_heads(x, attention.config.num_heads))
    pairs = zip(content, rotary, strict=True)
    return q, Split(*(jnp.concatenate(pair, axis=-1) for pair in pairs))


def _parameters(below: Any, count: int) -> Params:
    """Parameters of `head_encoding` for the first layers; shared parameters are repeated."""
    shared = below.encoding_params.get_value()
    by_layer = below.layers.attention.encoding_params.get_value()
    return (
        jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), shared),
        jax.tree.map(lambda leaf: leaf[:count], by_layer),
    )


def _layer_params(
    below: Any, entered: Split, positions: Array, rows: Rows
) -> tuple[tuple[Params, Any], ...]:
    """Parameters and context of `head_encoding` in each layer, from the layers' inputs."""
    graphdef, blocks = nnx.split(below.layers)
    shared, period = below.encoding_params.get_value(), len(below.pattern.encodings)
    count = entered.content.shape[0]

    def params_and_context(layer: int) -> tuple[Params, Any]:
        block = nnx.merge(graphdef, jax.tree.map(lambda leaf: leaf[layer], blocks))
        params = (shared, block.attention.encoding_params.get_value())
        if period > 1:
            slot = below.pattern_params.get_value()[layer % period]
            params = (*params, jax.tree.map(lambda leaf: leaf[layer // period], slot))
        x = entered.content[layer] + entered.position[layer]
        x = x if below.config.norm_position == "post" else block.attention_norm(x)
        context, _ = head_encoding(below, layer=layer).context(params, x, positions, rows)
        return params, context

    return tuple(map(params_and_context, range(count)))


def _rotary_part_encoding(encoding: Encoding, width: int) -> Encoding:
    """Encoding whose `query` and `key` act on the last entries alone, as in latent attention."""

    def last(hook: Callable[..., Array]) -> Callable[..., Array]:
        def apply(params, x, positions):
            content, rotary = jnp.split(jnp.asarray(x), [x.shape[-1] - width], axis=-1)
            return jnp.concatenate([content, hook(params, rotary, positions)], axis=-1)

        return apply

    hooks: dict[str, Any] = {
        name: last(getattr(encoding, name)) for name in ("query", "key") if encoding.defines(name)
    }
    return encoding._replace(**hooks)


def _project(x: Split, layer: nnx.Linear) -> Split:
    """Parts after the kernel of a dense layer."""
    kernel = layer.kernel.get_value().astype(x.content.dtype)
    return x.map(lambda part: jnp.einsum("...i,io->...o", part, kernel, precision="highest"))


def _normalise(x: Split, layer: Any) -> Split:
    """Parts after a norm without its bias, with the statistics of their sum."""
    if isinstance(layer, nnx.LayerNorm):
        x = x.map(lambda part: part - jnp.mean(part, axis=-1, keepdims=True))
    square = jnp.mean((x.content + x.position) ** 2, axis=-1, keepdims=True)
    scale = expand_rank(layer.scale.get_value(), square.ndim, square.dtype)
    factor = lax.rsqrt(square + layer.epsilon) * scale
    return x.map(lambda part: part * factor)


def _library(x: ArrayLike) -> Any:
    """Array module: NumPy for its arrays, which may be wider than JAX's, else jax.numpy."""
    return np if isinstance(x, np.ndarray) else jnp
