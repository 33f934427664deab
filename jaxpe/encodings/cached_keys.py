"""Cached keys at other positions."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.base import (
    Encoding,
    Params,
    as_floats,
    as_positions,
    compute_dtype,
    expand_rank,
)


def rotate_by(
    encoding: Encoding,
    params: Params,
    k: Float[ArrayLike, "... n heads head_dim"],
    delta: ArrayLike | int,
) -> Float[Array, "... n heads head_dim"]:
    """Rotate encoded keys from positions i to i + δ: R(i + δ) = R(δ)R(i).

    A cache keeps encoded keys. When its tokens move, because others are evicted or a prefix is put
    in front, their keys are rotated and not computed again. Amplitudes of keys (YaRN, xPos) count
    once. Keys that do not depend on positions are returned as they are (ALiBi, T5's bias, NoPE).

    An encoding of your own says by `rotates` that its keys do so.

    Args:
        encoding: encoding of the keys.
        params: parameters of the encoding.
        k: results of `encoding.key`.
        delta: one number, or `[..., n]` as positions are; `[..., n, axes]` with all axes of k in
            front where a position has several coordinates.

    Raises:
        ValueError: keys that do not move by a rotation: frequencies depend on the length,
            rotations do not commute, or the encoding defines `embed` or `context`.

    >>> from jaxpe import encodings
    >>> rope, k, i = encodings.rope(head_dim=4), jnp.ones((3, 1, 4)), jnp.arange(3)
    >>> moved = rotate_by(rope, (), rope.key((), k, i), 100)
    >>> bool(jnp.allclose(moved, rope.key((), k, i + 100), atol=1e-5))
    True
    """
    k, delta = as_floats(k, "k"), as_positions(jnp.asarray(delta))
    if encoding.defines("embed") or encoding.defines("context"):
        raise ValueError(
            "the encoding adds position vectors or depends on hidden states, and keys with it: "
            "read the tokens again at their new positions"
        )
    if not encoding.defines("key"):
        return k
    if not encoding.rotates:
        raise ValueError(
            "the encoding's keys do not move by a rotation: pass `length` to a rope whose "
            "frequencies depend on it, or encode the keys again at their new positions"
        )
    wide = k.astype(compute_dtype(k))
    delta = delta if delta.ndim else jnp.broadcast_to(delta, k.shape[-3:-2])
    start = jnp.zeros((1, *delta.shape[k.ndim - 2 :]), jnp.int32)  # with coordinates, if any
    amplitude = encoding.key(params, jnp.ones((1, *k.shape[-2:]), wide.dtype), start)[0]
    return encoding.key(params, wide / expand_rank(amplitude, k.ndim), delta).astype(k.dtype)
