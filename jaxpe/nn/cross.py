"""Cross-attention to the tokens of an encoder: memory, checks and mask."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Float, Int

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings import Encoding, LayerPattern
from jaxpe.encodings.attention_mask import AttentionMask
from jaxpe.nn.attention import LayerCache
from jaxpe.nn.config import TransformerConfig
from jaxpe.nn.masks import checked_valid


class Memory(NamedTuple):
    """Tokens of an encoder for the cross-attention of a decoder.

    Attributes:
        hidden: hidden states `[..., m, dim]`; None if `layers` replaces them.
        positions: `[..., m]`; the index in the row when None.
        mask: `[..., m]`, false on padding; None without padding.
        segments: `[..., m]`, segments of packed documents: tokens of the decoder attend to tokens
            of their own segment. None for rows with one document.
        layers: keys and values in every layer, from `Decoder.cache_memory`.
    """

    hidden: Float[ArrayLike, "... m dim"] | None = None
    positions: ArrayLike | None = None
    mask: ArrayLike | None = None
    segments: Int[ArrayLike, "... m"] | None = None
    layers: LayerCache | None = None


def checked_cross(encoding: Encoding | LayerPattern | None) -> Encoding | None:
    """Check an encoding of cross-attention: it may not embed, or depend on hidden states.

    Sums of gates, or a recurrence over keys, are not defined between two rows.
    """
    if encoding is None:
        return None
    if not isinstance(encoding, Encoding):
        raise ValueError(
            f"cross_encoding is a {type(encoding).__name__}: pass one encoding for all layers, "
            "such as jaxpe.encodings.rope(head_dim=4), or jaxpe.encodings.identity() for none"
        )
    for hook, why in (
        ("embed", "acts on embeddings, which exist before the first layer: pass it as encoding"),
        ("context", "depends on the hidden states of one row of tokens: pass another"),
    ):
        if encoding.defines(hook):
            raise ValueError(f"cross_encoding {why}, or jaxpe.encodings.identity() for none")
    return encoding


def checked_memory(
    memory: Memory, config: TransformerConfig, shape: tuple[int, ...], segments: Any
) -> Memory:
    """Memory with positions; raises `ValueError` unless it fits the ids of the decoder."""
    if memory.layers is None:
        if memory.hidden is None:
            raise ValueError("memory has neither hidden states nor keys and values: pass one")
        hidden = jnp.asarray(memory.hidden)
        if hidden.shape[:-2] != shape[:-1] or hidden.shape[-1] != config.dim:
            raise ValueError(
                f"memory has hidden states of shape {hidden.shape}: pass [..., m, dim] = "
                f"{(*shape[:-1], '_', config.dim)} for ids of shape {shape}"
            )
        memory = memory._replace(hidden=hidden.astype(config.dtype))
        tokens = hidden.shape[:-1]
        memory = memory._replace(mask=checked_valid(memory.mask, tokens))
        if memory.positions is None:
            memory = memory._replace(positions=jnp.arange(tokens[-1], dtype=jnp.int32))
    if (segments is None) != (memory.segments is None):
        lacks = "memory" if memory.segments is None else "decoder"
        raise ValueError(
            f"only one side has packed rows: also pass segments of the {lacks}, or none"
        )
    return memory


def cross_mask(memory: Memory, segments: Any) -> AttentionMask | None:
    """Mask of the encoder's tokens that tokens of a decoder may attend to; None for all."""
    if memory.mask is None and segments is None:
        return None
    source = None if segments is None else memory.segments
    return AttentionMask(q_segments=segments, k_segments=source, k_valid=memory.mask)
