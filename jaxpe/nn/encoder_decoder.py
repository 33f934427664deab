"""Encoder–decoder: a decoder with cross-attention to the tokens of an encoder."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jaxtyping import Float, Int

from jaxpe._core.arrays import ArrayLike
from jaxpe.nn.cross import Memory
from jaxpe.nn.transformer import Cache, Decoder, Transformer, TransformerOutput


class EncoderDecoderOutput(NamedTuple):
    """Output of an encoder–decoder.

    Attributes:
        encoder: output of the encoder.
        decoder: output of the decoder, with traced cross-attention.
    """

    encoder: TransformerOutput
    decoder: TransformerOutput

    @property
    def hidden(self) -> Float[Array, "... n dim"]:
        """Hidden states of the decoder's last layer."""
        return self.decoder.hidden


class EncoderDecoder(nnx.Module):
    """Encoder–decoder: a decoder that attends to an encoder (Vaswani et al. 2017, Section 3.1).

    Each side has its own configuration, encoding and positions; the decoder's `cross_encoding` acts
    between them.

    Args:
        encoder: encoder side.
        decoder: decoder side, built with `cross_encoding` and the encoder's width.
        share_embeddings: whether both sides share one table of embeddings, as in T5. The model then
            has a copy of the decoder without a table.

    Raises:
        ValueError: a decoder without cross-attention, or sizes that contradict each other.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=2, num_heads=4)
    >>> encoder = nn.Encoder(config, encoding=encodings.t5(num_heads=4), rngs=nnx.Rngs(0))
    >>> decoder = nn.Decoder(config, encoding=encodings.rope(head_dim=4),
    ...                            cross_encoding=encodings.identity(), rngs=nnx.Rngs(1))
    >>> model = nn.EncoderDecoder(encoder, decoder)
    >>> output = model(jnp.zeros((3, 7), int), jnp.zeros((3, 5), int), trace=True)
    >>> output.hidden.shape, output.decoder.cross_weights.shape
    ((3, 5, 16), (2, 3, 4, 5, 7))
    """

    def __init__(self, encoder: Transformer, decoder: Decoder, *, share_embeddings: bool = True):
        _check_sides(encoder, decoder, share_embeddings)
        if share_embeddings:
            decoder = nnx.clone(decoder)
            decoder.tokens = None
        self.encoder = encoder
        self.decoder = decoder

    def __call__(
        self,
        ids: Int[ArrayLike, "... m"],
        decoder_ids: Int[ArrayLike, "... n"],
        *,
        mask: ArrayLike | None = None,
        positions: ArrayLike | None = None,
        segments: Int[ArrayLike, "... m"] | None = None,
        decoder_mask: ArrayLike | None = None,
        decoder_positions: ArrayLike | None = None,
        decoder_segments: Int[ArrayLike, "... n"] | None = None,
        dropout_key: Array | None = None,
        trace: bool = False,
    ) -> EncoderDecoderOutput:
        """Hidden states of both sides.

        Args:
            ids: token ids of the encoder.
            decoder_ids: token ids of the decoder.
            mask: `[..., m]`, false on padding of the encoder, which neither side attends to.
            positions: `[..., m]`, positions of the encoder's tokens in self-attention and
                cross-attention; the index in the row when None.
            segments: segments of packed documents; tokens of the decoder attend to encoder tokens
                of their own segment. Packed rows need segments on both sides.
            decoder_mask, decoder_positions, decoder_segments: these arguments for the decoder.
            dropout_key: random key that switches dropout on.
            trace: also return hidden states, attention logits and weights.
        """
        keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        rows: dict[str, Any] = {"mask": mask, "positions": positions, "segments": segments}
        encoded = self.encoder(ids, **rows, dropout_key=keys[0], trace=trace)
        decoded = self.decode(
            decoder_ids,
            memory=Memory(encoded.hidden, positions, mask, segments),
            mask=decoder_mask,
            positions=decoder_positions,
            segments=decoder_segments,
            dropout_key=keys[1],
            trace=trace,
        )
        return EncoderDecoderOutput(encoded, decoded)

    def encode(
        self,
        ids: Int[ArrayLike, "... m"],
        *,
        mask: ArrayLike | None = None,
        positions: ArrayLike | None = None,
        **options: Any,
    ) -> Memory:
        """Keys and values of the encoder's tokens in every layer of the decoder.

        `decode` uses them for every new token.

        Args:
            ids, mask, positions: arguments of the model's call.
            **options: further arguments of the encoder, such as `segments`.
        """
        hidden = self.encoder(ids, mask=mask, positions=positions, **options).hidden
        segments = options.get("segments")
        return self.decoder.cache_memory(Memory(hidden, positions, mask, segments))

    def decode(
        self, ids: Int[ArrayLike, "... n"], *, cache: Cache | None = None, **options: Any
    ) -> TransformerOutput:
        """Output of the decoder, with a passed or cached memory.

        Args:
            ids: token ids of the decoder, `[..., n]`.
            cache: keys and values of earlier tokens; the new ones are appended.
            **options: further arguments of the decoder, such as `memory` without a cache.
        """
        if self.decoder.tokens is None:
            ids = jnp.asarray(ids)
            # Masked ids may be any numbers.
            valid = ids if options.get("mask") is None else jnp.where(options["mask"], ids, 0)
            options = {"vectors": self.encoder.token_embeddings(valid), **options}
        return self.decoder(ids, cache=cache, **options)


def _check_sides(encoder: Transformer, decoder: Decoder, share_embeddings: bool) -> None:
    if encoder.causal:
        raise ValueError(f"the encoder is a {type(encoder).__name__}: pass an Encoder")
    if decoder.cross_encoding is None:
        raise ValueError(
            "the decoder has no cross-attention: build it with cross_encoding, such as "
            "jaxpe.encodings.identity() for none"
        )
    one, other = encoder.config, decoder.config
    if one.dim != other.dim:
        raise ValueError(
            f"the encoder has dim={one.dim}, but the decoder {other.dim}: pass equal widths"
        )
    if share_embeddings and one.vocab_size != other.vocab_size:
        raise ValueError(
            f"vocabularies of {one.vocab_size} and {other.vocab_size} tokens cannot share "
            "embeddings: pass share_embeddings=False"
        )
