"""Masks by position, and attention weights other than the softmax."""

import jax
import jax.numpy as jnp

from jaxpe.encodings.base import Encoding, check_sizes, position_offsets, weight_offsets
from jaxpe.encodings.context import sums_to_the_end
from jaxpe.encodings.registry import register, short_window


@register(
    "sliding_window",
    source="Beltagy et al. (2020)",
    make=lambda s: sliding_window(size=short_window(s.length)),
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
    make=lambda s: attention_chunks(size=short_window(s.length)),
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


@register("stick_breaking", source="Tan et al. (2025)")
def stick_breaking() -> Encoding:
    """Stick-breaking attention: weights σ(z_ij) Π_{j<l<i} (1 − σ(z_il)) (Tan et al. 2025).

    Going back from its own position, a query gives each key the share σ(z) of the remaining weight.
    Rows sum to at most 1; the row of the first token, which has no earlier key, sums to 0. A query
    sees only earlier positions, in an encoder too. Keys are in the order of the row.

    >>> z, i = jnp.zeros((1, 3, 3)), jnp.arange(3)
    >>> stick_breaking().weights((), z, None, i, i)[0].tolist()
    [[0.0, 0.0, 0.0], [0.5, 0.0, 0.0], [0.25, 0.5, 0.0]]
    """

    def log_remaining(logits, mask, q_positions, k_positions):
        """Logits, log(1 − σ) of the keys that the query sees, 0 for others, and which it sees."""
        attends = weight_offsets(logits, q_positions, k_positions) < 0
        if mask is not None:
            attends = attends & mask.reshape((1,) * (attends.ndim - mask.ndim) + mask.shape)
        attends = jnp.broadcast_to(attends, logits.shape)
        # Masked logits may be infinite: neither they nor their derivatives take part.
        z = jnp.where(attends, logits, 0.0)
        return z, jnp.where(attends, -jax.nn.softplus(z), 0.0), attends

    def weights(params, logits, mask, q_positions, k_positions, carry=None):
        z, remaining, attends = log_remaining(logits, mask, q_positions, k_positions)
        behind = sums_to_the_end(remaining) - remaining
        if carry is not None:
            behind = behind + carry[..., None]
        return jnp.where(attends, jnp.exp(jax.nn.log_sigmoid(z) + behind), 0.0)

    def key_carry(params, q, k, logits, mask, q_positions, k_positions, carry=None):
        total = jnp.sum(log_remaining(logits, mask, q_positions, k_positions)[1], axis=-1)
        return total if carry is None else total + carry

    return Encoding(weights=weights, key_carry=key_carry)
