"""Heads on transformers: classifier, language models, regression."""

from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jaxtyping import Float, Int

from jaxpe._core.arrays import ArrayLike
from jaxpe._core.errors import InputError
from jaxpe.encodings.attention_terms import capped
from jaxpe.encodings.base import compute_dtype
from jaxpe.nn.encoder_decoder import EncoderDecoder
from jaxpe.nn.layers import activation, dense, dropout, norm, read_out
from jaxpe.nn.masks import checked_valid
from jaxpe.nn.transformer import Decoder, Encoder, Transformer, TransformerOutput

Pooling = Literal["first", "last", "mean", "mean_padded"]


class HeadOutput(NamedTuple):
    """Output of a model with a head, and of its transformer.

    Attributes:
        logits: logits of classes `[..., classes]` or tokens `[..., n, vocab]`, or numbers of a
            regression `[..., n, outputs]`; float32 or wider.
        transformer: output of the transformer, with any trace.
    """

    logits: Float[Array, "... classes"]
    transformer: TransformerOutput


class Seq2SeqOutput(NamedTuple):
    """Output of a language model on an encoder–decoder.

    Attributes:
        logits: logits of the decoder's next tokens, `[..., n, vocab]`, float32 or wider.
        encoder: output of the encoder.
        decoder: output of the decoder.
    """

    logits: Float[Array, "... n vocab"]
    encoder: TransformerOutput
    decoder: TransformerOutput


class Classifier(nnx.Module):
    """Classifier of sequences, from their first or last token or a mean of tokens.

    Args:
        encoder: transformer under the head.
        num_classes: number of classes, the width of the logits.
        pooling: "first" token, as BERT's [CLS]; "last" unmasked token, for decoders; "mean" of
            unmasked tokens; or "mean_padded", the mean of all tokens with padding.
        pooler: dense layer with tanh before the output layer, as in BERT; True for a new one.
        rngs: random streams of the initialisation, with another seed than the encoder's.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> encoder = nn.Encoder(config, encoding=encodings.sinusoidal(dim=16), rngs=nnx.Rngs(0))
    >>> classify = nn.Classifier(encoder, num_classes=3, rngs=nnx.Rngs(1))
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
        _check_pooling(pooling)
        if encoder.causal and pooling == "first":
            raise ValueError(
                "the first token of a decoder attends to itself alone: pass 'last' or 'mean'"
            )
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
        mask: ArrayLike | None = None,
        dropout_key: Array | None = None,
        **options: Any,
    ) -> HeadOutput:
        """Logits of the classes.

        Args:
            ids: token ids, `[..., n]`.
            mask: `[..., n]`, false on padding, for attention and for the pooling.
            dropout_key: random key that switches dropout on.
            **options: further arguments of the transformer, such as `positions`.
        """
        keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        below = self.encoder(ids, mask=mask, dropout_key=keys[0], **options)
        x = pooled(below.hidden, mask, pooling=self.pooling)
        if self.pooler is not None:
            x = jnp.tanh(self.pooler(x))
        x = dropout(x, rate=self.encoder.config.dropout, key=keys[1])
        return HeadOutput(read_out(self.output, x), below)


class MaskedLM(nnx.Module):
    """Masked language model with BERT's head: dense, activation, norm, tied embeddings.

    Args:
        encoder: transformer under the head, with tie_embeddings=True.
        rngs: random streams of the initialisation, with another seed than the encoder's.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> encoder = nn.Encoder(config, encoding=encodings.learned(length=7, dim=16),
    ...                            rngs=nnx.Rngs(0))
    >>> nn.MaskedLM(encoder, rngs=nnx.Rngs(1))(jnp.zeros((4, 7), int)).logits.shape
    (4, 7, 50)
    """

    def __init__(self, encoder: Encoder, *, rngs: nnx.Rngs):
        config = encoder.config
        self.encoder = encoder
        if not config.tie_embeddings:
            raise ValueError("a masked language model's head is tied: pass tie_embeddings=True")
        self.transform = dense(config, config.dim, config.dim, rngs=rngs)
        self.activation = config.activation
        self.norm = norm(config, rngs=rngs)
        self.bias = nnx.Param(jnp.zeros(config.vocab_size, config.param_dtype))

    def __call__(self, ids: Int[ArrayLike, "... n"], **options: Any) -> HeadOutput:
        """Logits `[..., n, vocab]`.

        Args:
            ids: token ids, `[..., n]`.
            **options: further arguments of the transformer, such as `mask`.
        """
        below = self.encoder(ids, **options)
        return HeadOutput(self.head(below.hidden), below)

    def head(self, hidden: Float[ArrayLike, "... dim"]) -> Float[Array, "... vocab"]:
        """Logits of hidden states, such as for selected tokens alone.

        Args:
            hidden: hidden states of the last layer, `[..., dim]`.
        """
        x = self.norm(activation(self.activation)(self.transform(jnp.asarray(hidden))))
        logits = read_out(self.encoder.tokens, x)
        bias = self.bias.get_value().astype(logits.dtype)
        return logits + bias.reshape((1,) * (logits.ndim - 1) + (-1,))


class CausalLM(nnx.Module):
    """Causal language model: logits of the next token.

    Args:
        decoder: transformer under the head.
        rngs: random streams of an untied output layer, with another seed than the decoder's.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> decoder = nn.Decoder(config, encoding=encodings.rope(head_dim=8), rngs=nnx.Rngs(0))
    >>> nn.CausalLM(decoder, rngs=nnx.Rngs(1))(jnp.zeros((4, 7), int)).logits.shape
    (4, 7, 50)
    """

    def __init__(self, decoder: Decoder, *, rngs: nnx.Rngs):
        config = decoder.config
        self.decoder = decoder
        tied, sizes = config.tie_embeddings, (config.dim, config.vocab_size)
        self.output = None if tied else dense(config, *sizes, rngs=rngs)

    def __call__(self, ids: Int[ArrayLike, "... n"], **options: Any) -> HeadOutput:
        """Logits `[..., n, vocab]`.

        Args:
            ids: token ids, `[..., n]`.
            **options: further arguments of the transformer, such as `mask`.
        """
        below = self.decoder(ids, **options)
        return HeadOutput(self.head(below.hidden), below)

    def head(self, hidden: Float[ArrayLike, "... dim"]) -> Float[Array, "... vocab"]:
        """Logits of hidden states, such as for selected tokens alone.

        Args:
            hidden: hidden states of the last layer, `[..., dim]`.
        """
        layer = self.decoder.tokens if self.output is None else self.output
        logits = read_out(layer, _scaled_hidden(self.decoder, jnp.asarray(hidden)))
        return capped(logits, self.decoder.config.logit_cap)


class Seq2SeqLM(nnx.Module):
    """Language model on an encoder–decoder: logits of the decoder's next token.

    Args:
        transformer: encoder–decoder; the decoder's configuration determines whether the output
            layer is tied to its embeddings.
        rngs: random streams of an untied output layer.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> encoder = nn.Encoder(config, encoding=encodings.rope(head_dim=8), rngs=nnx.Rngs(0))
    >>> decoder = nn.Decoder(config, encoding=encodings.rope(head_dim=8),
    ...                            cross_encoding=encodings.identity(), rngs=nnx.Rngs(1))
    >>> model = nn.Seq2SeqLM(nn.EncoderDecoder(encoder, decoder), rngs=nnx.Rngs(2))
    >>> model(jnp.zeros((4, 7), int), jnp.zeros((4, 3), int)).logits.shape
    (4, 3, 50)
    """

    def __init__(self, transformer: EncoderDecoder, *, rngs: nnx.Rngs):
        config = transformer.decoder.config
        self.transformer = transformer
        tied, sizes = config.tie_embeddings, (config.dim, config.vocab_size)
        self.output = None if tied else dense(config, *sizes, rngs=rngs)

    def __call__(
        self,
        ids: Int[ArrayLike, "... m"],
        decoder_ids: Int[ArrayLike, "... n"],
        **options: Any,
    ) -> Seq2SeqOutput:
        """Logits `[..., n, vocab]`.

        Args:
            ids: token ids of the encoder, `[..., m]`.
            decoder_ids: token ids of the decoder, `[..., n]`.
            **options: further arguments of the `EncoderDecoder`, such as `mask`.
        """
        below = self.transformer(ids, decoder_ids, **options)
        return Seq2SeqOutput(self._logits(below.decoder.hidden), *below)

    def decode(self, ids: Int[ArrayLike, "... n"], **options: Any) -> HeadOutput:
        """Logits of the decoder's tokens, with a passed or cached memory.

        Args:
            ids, **options: arguments of `EncoderDecoder.decode`.
        """
        below = self.transformer.decode(ids, **options)
        return HeadOutput(self._logits(below.hidden), below)

    def _logits(self, hidden: Array) -> Array:
        encoder, decoder = self.transformer.encoder, self.transformer.decoder
        tokens = encoder.tokens if decoder.tokens is None else decoder.tokens
        layer = tokens if self.output is None else self.output
        return capped(read_out(layer, _scaled_hidden(decoder, hidden)), decoder.config.logit_cap)


class Regressor(nnx.Module):
    """Regression from numbers to numbers at every token.

    Args:
        transformer: transformer between two dense layers; its token embeddings are not used, so
            vocab_size=1 is enough.
        inputs: number of inputs per token.
        outputs: number of outputs per token.
        rngs: random streams of the initialisation, with another seed than the transformer's.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(
    ...     vocab_size=1, dim=16, num_layers=2, num_heads=1, activation="relu", norm="none")
    >>> encoder = nn.Encoder(config, encoding=encodings.sinusoidal(dim=16), rngs=nnx.Rngs(0))
    >>> model = nn.Regressor(encoder, inputs=1, outputs=1, rngs=nnx.Rngs(1))
    >>> model(jnp.ones((4, 7, 1))).logits.shape
    (4, 7, 1)
    """

    def __init__(self, transformer: Transformer, *, inputs: int, outputs: int, rngs: nnx.Rngs):
        config = transformer.config
        self.transformer = transformer
        self.input = dense(config, inputs, config.dim, rngs=rngs)
        self.output = dense(config, config.dim, outputs, rngs=rngs)

    def __call__(self, values: Float[ArrayLike, "... n inputs"], **options: Any) -> HeadOutput:
        """Numbers `[..., n, outputs]`.

        Args:
            values: numbers `[..., n, inputs]`.
            **options: further arguments of the transformer, such as `mask`.
        """
        values = jnp.asarray(values, self.transformer.config.dtype)
        ids = jnp.zeros(values.shape[:-1], jnp.int32)
        below = self.transformer(ids, vectors=self.input(values), **options)
        return HeadOutput(read_out(self.output, below.hidden), below)


def _scaled_hidden(transformer: Transformer, hidden: Array) -> Array:
    """Hidden states times the logit scale of the configuration."""
    return hidden * jnp.asarray(transformer.config.logit_scale, hidden.dtype)


def trunk(model: Any) -> Transformer:
    """Transformer of a model, under its head if it has one.

    Raises:
        InputError: a model without a transformer of `jaxpe.nn`, or an encoder–decoder.

    >>> from jaxpe import nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> encoder = nn.Encoder(config, rngs=nnx.Rngs(0))
    >>> trunk(nn.MaskedLM(encoder, rngs=nnx.Rngs(1))) is encoder
    True
    """
    below = model
    if isinstance(getattr(model, "transformer", model), EncoderDecoder):
        name = "model" if isinstance(model, EncoderDecoder) else "model.transformer"
        raise InputError(
            f"{type(model).__name__} has two transformers: pass `{name}.encoder` or "
            f"`{name}.decoder`"
        )
    for name in ("encoder", "decoder", "transformer"):
        below = getattr(below, name, below)
    if not isinstance(below, Transformer):
        raise InputError(
            f"{type(model).__name__} has no transformer of jaxpe.nn: pass a transformer, or a "
            "classifier, language model or regression on one"
        )
    return below


def pooled(
    hidden: Float[ArrayLike, "... n dim"],
    mask: ArrayLike | None = None,
    *,
    pooling: Pooling = "mean",
) -> Float[Array, "... dim"]:
    """Pooled vector of each sequence: its first token, its last unmasked token, or a mean.

    Without unmasked tokens, the mean is 0, and "last" is the last token of the row. Sums are
    float32 or wider.

    >>> from jaxpe import nn
    >>> pooled(jnp.array([[1.0], [3.0], [9.0]]), np.array([True, True, False])).tolist()
    [2.0]
    """
    _check_pooling(pooling)
    hidden = jnp.asarray(hidden)
    valid = checked_valid(mask, hidden.shape[:-1])
    if valid is None or pooling == "mean_padded":
        valid = jnp.ones(hidden.shape[:-1], bool)
    if pooling == "first":
        return hidden[..., 0, :]
    if pooling == "last":
        from_end = jnp.argmax(valid[..., ::-1], axis=-1)
        last = jnp.broadcast_to(hidden.shape[-2] - 1 - from_end, hidden.shape[:-2])
        return jnp.take_along_axis(hidden, last[..., None, None], axis=-2)[..., 0, :]
    wide = compute_dtype(hidden)
    count = jnp.maximum(jnp.sum(valid, axis=-1, dtype=wide), 1)[..., None]
    total = jnp.sum(jnp.where(valid[..., None], hidden, 0).astype(wide), axis=-2)
    return (total / count).astype(hidden.dtype)


def _check_pooling(pooling: str) -> None:
    if pooling not in get_args(Pooling):
        raise ValueError(f"pooling is {pooling!r}; pass one of {', '.join(get_args(Pooling))}")
