"""Attention masks, and positions of padded and packed rows."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Int, Int32

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.attention_mask import AttentionMask
from jaxpe.encodings.base import as_mask


def attention_mask(
    length: int,
    *,
    valid: Bool[ArrayLike, "... n"] | None = None,
    segments: Int[ArrayLike, "... n"] | None = None,
    causal: bool = False,
) -> AttentionMask | None:
    """Mask of attention within rows, from numbers of single tokens; None for all pairs.

    Args:
        length: number n of tokens in a row.
        valid: false on padding.
        segments: segments of packed documents; no token attends to another segment.
        causal: whether queries ignore later keys of the row; positions do not matter.

    >>> jaxpe.nn.attention_mask(3, causal=True).pairs()[0].astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    >>> jaxpe.nn.attention_mask(3) is None
    True
    """
    if not causal and valid is None and segments is None:
        return None
    order = np.arange(length, dtype=np.int32) if causal else None
    valid = None if valid is None else as_mask(valid)
    return AttentionMask(order, order, segments, segments, valid)


def checked_valid(valid: ArrayLike | None, shape: tuple[int, ...]) -> Bool[Array, "..."] | None:
    """Mask of tokens in the shape of the ids; raises `ValueError` unless it is bool and fits."""
    if valid is None:
        return None
    valid = as_mask(valid)
    leading = len(shape) - valid.ndim
    sizes = zip(valid.shape, shape[leading:], strict=True) if leading >= 0 else []
    if leading < 0 or valid.shape[-1:] != shape[-1:] or any(a not in (1, b) for a, b in sizes):
        raise ValueError(
            f"mask has shape {valid.shape}, but the ids have {shape}: pass [..., n], false on "
            "padding; with a cache, of the new tokens alone"
        )
    return jnp.broadcast_to(valid, shape)


def padded_positions(valid: Bool[ArrayLike, "... n"]) -> Int32[Array, "... n"]:
    """Positions that count valid tokens from 0, for padding on the left or the right.

    Padding has the position of the last valid token before it, or 0.

    Args:
        valid: `[..., n]`, false on padding.

    >>> from jaxpe import nn
    >>> nn.padded_positions(jnp.array([False, False, True, True])).tolist()
    [0, 0, 0, 1]
    """
    count = jnp.cumsum(jnp.asarray(valid), axis=-1, dtype=jnp.int32)
    return jnp.maximum(count - 1, 0)


def packed_positions(segments: Int[ArrayLike, "... n"]) -> Int32[Array, "... n"]:
    """Positions that start at 0 in each segment of a packed row.

    Args:
        segments: segments of packed documents, `[..., n]`; each is contiguous.

    >>> jaxpe.nn.packed_positions(jnp.array([5, 5, 5, 2, 2])).tolist()
    [0, 1, 2, 0, 1]
    """
    segments = jnp.asarray(segments)
    index = jnp.broadcast_to(jnp.arange(segments.shape[-1], dtype=jnp.int32), segments.shape)
    start = jnp.where(segment_starts(segments), index, 0)
    return index - lax.cummax(start, axis=start.ndim - 1)


def segment_starts(segments: Int[ArrayLike, "... n"]) -> Bool[Array, "... n"]:
    """True at the first token of each segment of a packed row.

    >>> segment_starts(jnp.array([5, 5, 2])).tolist()
    [True, False, True]
    """
    segments = jnp.asarray(segments)
    first = jnp.ones_like(segments[..., :1], bool)
    return jnp.concatenate([first, segments[..., 1:] != segments[..., :-1]], axis=-1)
