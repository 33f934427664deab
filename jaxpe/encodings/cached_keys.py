"""Cached keys at other positions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike, is_traced
from jaxpe.encodings.base import (
    Encoding,
    Params,
    as_floats,
    as_positions,
    compute_dtype,
    expand_rank,
)

# Positions and moves on which the law of rotations is checked, and a token beside them. They reach
# beyond training lengths, where the frequencies of some scalings change.
_MOVES = ((0, 3), (1, 7), (60, -40), (5_000, -777), (100_000, 65_537))
_BESIDE = 2**30
_NEAR = 3  # of the moves, for encodings whose factors overflow at far positions


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

    Whether an encoding's keys rotate is checked once, on a few random keys and parameters.

    Args:
        encoding: encoding of the keys.
        params: parameters of the encoding.
        k: results of `encoding.key`.
        delta: one number, or `[..., n]` as positions are; `[..., n, axes]` with all axes of k in
            front where a position has several coordinates.

    Raises:
        ValueError: keys that do not move by a rotation: frequencies depend on the length,
            rotations do not commute, or the encoding defines `embed` or `context`.

    >>> rope, k, i = jaxpe.rope(head_dim=4), jnp.ones((3, 1, 4)), jnp.arange(3)
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
    if not delta.ndim:
        delta = jnp.broadcast_to(delta, k.shape[-3:-2])
    axes = delta.shape[k.ndim - 2 :]  # () where a position is one number
    if not _rotates(encoding, k.shape[-2:], axes):
        raise ValueError(
            "the encoding's keys do not move by a rotation: pass `length` to a rope whose "
            "frequencies depend on it, or encode the keys again at their new positions"
        )
    return _rotated(encoding, params, k.astype(compute_dtype(k)), delta, axes).astype(k.dtype)


def _rotated(
    encoding: Encoding, params: Params, k: Array, delta: Array, axes: tuple[int, ...]
) -> Array:
    """Keys encoded at δ, without the amplitude at position 0 that they have already."""
    one = jnp.ones((1, *k.shape[-2:]), k.dtype)
    amplitude = encoding.key(params, one, jnp.zeros((1, *axes), jnp.int32))
    return encoding.key(params, k / expand_rank(amplitude[0], k.ndim), delta)


@functools.lru_cache(maxsize=64)
def _rotates(encoding: Encoding, heads: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether keys encoded at i and moved by δ are keys encoded at i + δ, in float64."""
    moves = np.asarray(_MOVES[:_NEAR] if encoding.centered else _MOVES, np.int32)
    if axes:  # coordinates that differ, so that rotations about them need to commute
        moves = moves[..., None] + np.multiply.outer([1, 2], np.arange(axes[0])).astype(np.int32)

    def errors(moves: Array) -> Array:
        rng = np.random.default_rng(0)
        params = jax.tree.map(
            lambda x: x + 0.1 * rng.standard_normal(x.shape).astype(x.dtype),
            encoding.init(jax.random.key(0)),
        )
        k = jnp.asarray(rng.standard_normal((2, *heads)))

        def error(move: Array) -> Array:
            i, delta = move
            start, wanted = (
                encoding.key(params, k, jnp.stack([at, jnp.full_like(at, _BESIDE)]))[:1]
                for at in (i, i + delta)
            )
            moved = _rotated(encoding, params, start, delta[None], axes)
            distance = jnp.sum(jnp.abs(move.astype(float)))  # hooks may compute in float32
            return jnp.max(jnp.abs(moved - wanted)) / (1 + distance)

        return jax.vmap(error)(moves)

    with jax.enable_x64(True):
        if is_traced(*jax.make_jaxpr(errors)(moves).consts):
            raise ValueError("the encoding was built with traced numbers: build it outside of jit")
        # Compiled ahead of time, it gives numbers inside the traces of callers, too.
        largest = np.asarray(jax.jit(errors).lower(moves).compile()(moves)).max()
    return bool(largest < 1e-6)
