"""Masks by position."""

import jax.numpy as jnp

from jaxpe.encodings.base import Encoding, check_sizes, position_offsets
from jaxpe.encodings.registry import register


@register(
    "sliding_window", source="Beltagy et al. (2020)", make=lambda s: sliding_window(size=s.window)
)
def sliding_window(*, size: int) -> Encoding:
    """Sliding window: key j is seen by query i where |i − j| < size (Beltagy et al. 2020).

    In a decoder a query sees itself and the size − 1 tokens before it, as in Mistral and Gemma.
    Chain it with another encoding: `chain(rope(...), sliding_window(size=512))`.

    Args:
        size: number of positions seen, including the query's own.

    >>> x, i = jnp.zeros((3, 1, 2)), jnp.arange(3)
    >>> sliding_window(size=2).mask((), x, x, i, i)[0].astype(int).tolist()
    [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    """
    check_sizes(size=size)

    def mask(params, q, k, q_positions, k_positions):
        return jnp.abs(position_offsets(q, k, q_positions, k_positions)) < size

    return Encoding(mask=mask)


@register(
    "attention_chunks",
    source="Meta (2025), Llama 4",
    make=lambda s: attention_chunks(size=s.window),
)
def attention_chunks(*, size: int) -> Encoding:
    """Chunked attention: key j is seen by query i where ⌊j/size⌋ = ⌊i/size⌋.

    The RoPE layers of Llama 4 use it. It depends on where chunks begin, so it is not a function of
    the offset.

    Args:
        size: positions of a chunk.

    >>> x, i = jnp.zeros((3, 1, 2)), jnp.arange(3)
    >>> attention_chunks(size=2).mask((), x, x, i, i)[0].astype(int).tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    check_sizes(size=size)

    def mask(params, q, k, q_positions, k_positions):
        i, j = (jnp.floor_divide(jnp.asarray(p), size) for p in (q_positions, k_positions))
        return position_offsets(q, k, i, j) == 0

    return Encoding(mask=mask)
