"""Models as functions of their position vectors and of shifts of their first attention logits."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike
from jaxpe._core.errors import InputError
from jaxpe.encodings import Encoding, chain, learned
from jaxpe.encodings.base import expand_rank
from jaxpe.nn.attention import BoundEncoding, MultiHeadAttention
from jaxpe.nn.heads import HeadOutput, trunk

_SHIFT = "shift"


class Projections(NamedTuple):
    """Projections of the first layer, per head, without biases."""

    query: Float[Array, "dim heads head_dim"]  # W_Q
    key: Float[Array, "dim heads head_dim"]  # W_K
    value: Float[Array, "dim heads head_dim"]  # W_V
    output: Float[Array, "heads head_dim dim"]  # W_O


def position_table(model: Any, *, length: int | None = None) -> Float[Array, "n dim"]:
    """Position vectors that a model adds to the embeddings of its tokens.

    Args:
        model: BERT, MPNet, or any model on a transformer of `jaxpe.nn`.
        length: number of positions; all positions of the model's table when None.

    Raises:
        InputError: a model that adds no vectors (rotary, biases), more positions than its table
            has, or no length for a model without a table.

    >>> from jaxpe import encodings, nn
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> table = encodings.learned(length=7, dim=16)
    >>> encoder = nn.Encoder(config, encoding=table, rngs=nnx.Rngs(0))
    >>> position_table(encoder, length=7).shape
    (7, 16)
    """
    below = trunk(model)
    encoding, rows = below.encoding, getattr(below, "length", None)
    if not (encoding.defines("embed") and encoding.defines("vectors")):
        raise InputError(
            "the model adds no position vectors to its embeddings: its encoding acts on queries, "
            "keys or logits, whose geometry `encoding_distances` gives"
        )
    if length is None and rows is None:
        raise InputError("the model has no table of a fixed length: pass `length`")
    if length is not None and rows is not None and length > rows:
        raise InputError(f"`length={length}` exceeds the {rows} positions of the model")
    positions = jnp.arange(rows if length is None else length)
    return encoding.vectors(below.encoding_params.get_value(), positions)


class PositionFunctions(NamedTuple):
    """Functions and arrays to evaluate a statement about positions in a transformer.

    Attributes:
        vectors: position vectors P that the model adds, `[n, dim]`; 0 if it adds none.
        apply: `(P, shift, ids, added=None, **options) -> HeadOutput`, the model with P as its
            position vectors. `shift` `[heads, n, n]` is added to the first layer's attention
            logits, and `added` `[n, dim]` to the output of its attention.
        no_shift: zeros in the shape of a shift.
        embeddings: token embeddings, `[vocab, dim]`.
        tokens: input of the first attention for each token at P = 0, `[vocab, dim]`: embeddings
            after any norms. Eq. (1) has no norms, and reads E(t) + p.
        projections: projections of the first layer.
        no_other_order: whether the order of tokens enters through P alone: there is no causal mask,
            and the encoding acts on embeddings alone.
    """

    vectors: Float[Array, "n dim"]
    apply: Callable[..., HeadOutput]
    no_shift: Float[Array, "heads n n"]
    embeddings: Float[Array, "vocab dim"]
    tokens: Float[Array, "vocab dim"]
    projections: Projections
    no_other_order: bool


def position_functions(model: Any, *, length: int) -> PositionFunctions:
    """Classifier or language model as a function of its first `length` position vectors.

    The derivative by P is the gradient of training on positions. The derivative by the shift is
    ∂loss/∂L_ij of Cirrincione (2026). Rotations and biases of the model's encoding are unchanged.

    Args:
        model: classifier or language model on a transformer of `jaxpe.nn`; it stays unchanged.
        length: number of positions, and of tokens in every row.

    Raises:
        ValueError: grouped or latent attention, more positions than the model has, or a model
            without a transformer.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=2, num_heads=4)
    >>> encoder = nn.Encoder(config, encoding=encodings.sinusoidal(dim=16), rngs=nnx.Rngs(0))
    >>> model = nn.Classifier(encoder, num_classes=2, rngs=nnx.Rngs(1))
    >>> functions = nn.position_functions(model, length=5)
    >>> functions.apply(functions.vectors, functions.no_shift, jnp.zeros(5, int)).logits.shape
    (2,)
    """
    model = nnx.clone(model)
    below = trunk(model)
    attention = below.layers.attention
    config = below.config
    plain = isinstance(attention, MultiHeadAttention) and config.key_heads == config.num_heads
    if not plain or config.attention_sink or config.attention_gate:
        raise ValueError(
            "heads of the first layer share keys and values, or have a sink or a gate: pass a "
            "model with plain multi-head attention"
        )
    no_other_order = not below.causal and not any(
        encoding.defines(hook)
        for encoding in (below.encoding, attention.encoding, *below.pattern.encodings)
        for hook in ("context", "query", "key", "products", "bias", "mask", "value")
    )
    vectors, embeddings, tokens, projections = _arrays(model, length)
    dtype = np.dtype(vectors.dtype)
    no_shift = np.zeros((config.num_heads, length, length), dtype)
    _chain_encoding(
        below, learned(length=length, dim=config.dim), {"table": np.zeros(vectors.shape, dtype)}
    )
    layers = np.zeros((config.num_layers, *no_shift.shape), dtype)
    _chain_encoding(attention, Encoding(bias=_shift_bias), {_SHIFT: layers})
    # A shift is an array of all pairs, of which blocks of attention get no part.
    attention.config = dataclasses.replace(config, attention="dense")
    nothing = np.zeros((config.num_layers, *vectors.shape), dtype)
    setattr(attention, "output", _OutputWithAddition(attention.output, nothing))  # noqa: B010
    graphdef, params = nnx.split(model, nnx.Param)

    def apply(
        P: Array, shift: Array, *args: Any, added: Array | None = None, **options: Any
    ) -> HeadOutput:
        moved = nnx.merge(graphdef, params)
        below = trunk(moved)
        _set_chained_params(below, {"table": jnp.asarray(P) - vectors})
        _set_chained_params(below.layers.attention, {_SHIFT: jnp.asarray(layers).at[0].set(shift)})
        if added is not None:
            projection: Any = below.layers.attention.output
            projection.addition = nnx.Param(jnp.asarray(nothing).at[0].set(added))
        return moved(*args, **options)

    no_shift = jnp.asarray(no_shift)
    return PositionFunctions(
        vectors, apply, no_shift, embeddings, tokens, projections, no_other_order
    )


class _OutputWithAddition(nnx.Module):
    """Output projection with an array `[n, dim]` added to its output."""

    def __init__(self, projection: nnx.Linear, addition: ArrayLike):
        self.projection = projection
        self.addition = nnx.Param(addition)

    def __call__(self, x: Array) -> Array:
        out = self.projection(x)
        return out + expand_rank(self.addition.get_value(), out.ndim, out.dtype)


def _arrays(model: Any, length: int) -> tuple[Array, Array, Array, Projections]:
    """Position vectors, embeddings, inputs of the first attention, and its projections."""
    graphdef, params = nnx.split(model, nnx.Param)

    @jax.jit
    def arrays(params: Any) -> tuple[Array, Array, Array, Projections]:
        below = trunk(nnx.merge(graphdef, params))
        bound = BoundEncoding(below.encoding, below.encoding_params.get_value())
        vectors = _position_vectors(bound, length, below.config.dim)
        projections = _projections(below.layers.attention)
        _chain_encoding(below, learned(length=length, dim=below.config.dim), {"table": -vectors})
        return vectors, below.tokens.embedding.get_value(), _attention_input(below), projections

    return arrays(params)


def _attention_input(below: Any) -> Array:
    """Input of the first attention for every token of the vocabulary, at position 0."""
    ids = jnp.arange(below.config.vocab_size, dtype=jnp.int32)
    entered = below.embed(ids, positions=jnp.zeros_like(ids))
    if below.config.norm_position == "post" or not below.config.first_norm:
        return entered
    graphdef, params = nnx.split(below.layers.attention_norm)
    return nnx.merge(graphdef, jax.tree.map(lambda leaf: leaf[0], params))(entered)


def _position_vectors(bound: BoundEncoding, length: int, dim: int) -> Array:
    """Vectors that the model adds at its first positions; zeros if it only rotates or biases."""
    if not bound.encoding.defines("embed"):
        return jnp.zeros((length, dim))
    positions = jnp.arange(length, dtype=jnp.int32)
    return bound.encoding.vectors(bound.params, positions)


def _shift_bias(params: Any, q: Any, k: Any, q_positions: Any, k_positions: Any) -> Array:
    return params[_SHIFT]


def _chain_encoding(module: Any, encoding: Encoding, params: Any) -> None:
    """Chain another encoding after the encoding of a module."""
    first = module.encoding_params.get_value()
    module.encoding = nnx.static(chain(module.encoding, encoding))
    module.encoding_params = nnx.Param((first, params))


def _set_chained_params(module: Any, params: Any) -> None:
    first, _ = module.encoding_params.get_value()
    module.encoding_params = nnx.Param((first, params))


def _projections(attention: Any) -> Projections:
    width = attention.config.head_width

    def heads(layer: nnx.Linear) -> Array:
        kernel = layer.kernel.get_value()[0]
        return kernel.reshape(kernel.shape[0], -1, width)

    kernel = attention.output.kernel.get_value()[0]
    return Projections(
        heads(attention.query),
        heads(attention.key),
        heads(attention.value),
        kernel.reshape(-1, width, kernel.shape[-1]),
    )
