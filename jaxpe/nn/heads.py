"""What stands on a transformer: a classifier and two language models."""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jaxtyping import Bool, Float, Int

from jaxpe._types import ArrayLike
from jaxpe.encodings.base import compute_dtype
from jaxpe.nn.layers import activation, dense, dropout, norm, unembed
from jaxpe.nn.transformer import Decoder, Encoder, Transformer, TransformerOutput

Pooling = Literal["first", "mean"]


class HeadOutput(NamedTuple):
    """What a model with a head gives.

    Attributes:
        logits: of classes `[..., classes]`, or of tokens `[..., n, vocab]`; float32 or wider.
        transformer: what is below the head.
    """

    logits: Float[Array, "... classes"]
    transformer: TransformerOutput


class Classifier(nnx.Module):
    """Classes of a sequence, from its first token or the mean of its valid ones.

    Args:
        encoder: the transformer below.
        num_classes: classes.
        pooling: "first" as BERT does with [CLS], or "mean" over tokens that are not masked.
        pooler: a dense layer with tanh between, as BERT has: one already trained, or True for a
            new one.
        rngs: for the initialisation.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> encoder = jaxpe.nn.Encoder(config, encoding=jaxpe.sinusoidal(dim=16), rngs=nnx.Rngs(0))
    >>> classify = jaxpe.nn.Classifier(encoder, num_classes=3, rngs=nnx.Rngs(1))
    >>> classify(jnp.zeros((4, 7), int)).logits.shape
    (4, 3)
    """

    def __init__(
        self,
        encoder: Transformer,
        *,
        num_classes: int,
        pooling: Pooling = "first",
        pooler: nnx.Linear | bool | None = None,
        rngs: nnx.Rngs,
    ):
        config = encoder.config
        self.encoder = encoder
        self.pooling = pooling
        if pooler is True:
            pooler = dense(config, config.dim, config.dim, rngs=rngs)
        self.pooler = pooler or None
        self.output = dense(config, config.dim, num_classes, rngs=rngs)

    def __call__(
        self,
        ids: Int[ArrayLike, "... n"],
        *,
        mask: Bool[ArrayLike, "... n"] | None = None,
        dropout_key: Array | None = None,
        **options: Any,
    ) -> HeadOutput:
        """Logits of the classes; other options are the transformer's."""
        keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        below = self.encoder(ids, mask=mask, dropout_key=keys[0], **options)
        x = pooled(below.hidden, mask, pooling=self.pooling)
        if self.pooler is not None:
            x = jnp.tanh(self.pooler(x))
        x = dropout(x, rate=self.encoder.config.dropout, key=keys[1])
        return HeadOutput(_wide(self.output(x)), below)


class MaskedLM(nnx.Module):
    """Logits of every token, as BERT's head has them: dense, activation, norm, tied embeddings.

    Args:
        encoder: the transformer below.
        rngs: for the initialisation.
    """

    def __init__(self, encoder: Encoder, *, rngs: nnx.Rngs):
        config = encoder.config
        self.encoder = encoder
        self.transform = dense(config, config.dim, config.dim, rngs=rngs)
        self.activation = activation(config.activation)
        self.norm = norm(config, rngs=rngs)
        self.bias = nnx.Param(jnp.zeros(config.vocab_size, config.param_dtype))

    def __call__(self, ids: Int[ArrayLike, "... n"], **options: Any) -> HeadOutput:
        """Logits `[..., n, vocab]`; options are the transformer's."""
        below = self.encoder(ids, **options)
        return HeadOutput(self.head(below.hidden), below)

    def head(self, hidden: Float[ArrayLike, "... dim"]) -> Float[Array, "... vocab"]:
        """Logits of hidden states: of the few that count, where those are chosen before."""
        x = self.norm(self.activation(self.transform(jnp.asarray(hidden))))
        logits = _wide(unembed(self.encoder.tokens, x))
        bias = self.bias.get_value().astype(logits.dtype)
        return logits + bias.reshape((1,) * (logits.ndim - 1) + (-1,))


class CausalLM(nnx.Module):
    """Logits of the next token.

    Args:
        decoder: the transformer below.
        rngs: for the initialisation of an output layer that is not tied.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> decoder = jaxpe.nn.Decoder(config, encoding=jaxpe.rope(head_dim=8), rngs=nnx.Rngs(0))
    >>> jaxpe.nn.CausalLM(decoder, rngs=nnx.Rngs(1))(jnp.zeros((4, 7), int)).logits.shape
    (4, 7, 50)
    """

    def __init__(self, decoder: Decoder, *, rngs: nnx.Rngs):
        config = decoder.config
        self.decoder = decoder
        self.output = (
            None
            if config.tie_embeddings
            else dense(config, config.dim, config.vocab_size, rngs=rngs)
        )

    def __call__(self, ids: Int[ArrayLike, "... n"], **options: Any) -> HeadOutput:
        """Logits `[..., n, vocab]`; options are the transformer's."""
        below = self.decoder(ids, **options)
        if self.output is None:
            return HeadOutput(_wide(unembed(self.decoder.tokens, below.hidden)), below)
        return HeadOutput(_wide(self.output(below.hidden)), below)


def pooled(
    hidden: Float[ArrayLike, "... n dim"],
    mask: Bool[ArrayLike, "... n"] | None = None,
    *,
    pooling: Pooling = "mean",
) -> Float[Array, "... dim"]:
    """One vector a sequence: its first token's, or the mean over tokens that are not masked.

    The mean of no token is 0.

    >>> jaxpe.nn.pooled(jnp.array([[1.0], [3.0], [9.0]]), np.array([True, True, False])).tolist()
    [2.0]
    """
    hidden = jnp.asarray(hidden)
    if pooling == "first":
        return hidden[..., 0, :]
    if mask is None:
        return jnp.mean(hidden, axis=-2)
    weight = jnp.asarray(mask)[..., None]
    count = jnp.maximum(jnp.sum(weight, axis=-2), 1).astype(hidden.dtype)
    return jnp.sum(jnp.where(weight, hidden, 0), axis=-2) / count


def _wide(logits: Array) -> Array:
    return logits.astype(compute_dtype(logits))
