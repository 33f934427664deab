"""Phases ω·i that are exact at position 10⁶ in float32."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.base import as_positions, expand_rank


def phases(positions: ArrayLike, frequencies: np.ndarray | Array, dtype: jnp.dtype | type) -> Array:
    """Phases ω_k i, `[..., half]` for positions `[...]`, up to whole turns, in float32 or float64.

    A float32 product ω·i is wrong by up to 0.06 rad at i = 10⁶: half a unit in the last place of
    the product, and i times the same of ω. Where ω is concrete (float64 NumPy) and float32 is
    requested, turns are counted in 32-bit integers instead, whose overflow drops exactly the whole
    turns. The error is then below 10⁻⁶ rad for every position under 2³¹ where ω ≤ 1, and grows like
    float64's for larger ω (2·10⁻⁵ at ω = 100). Frequencies in a JAX array (learned, or scaled by
    the current length) use the product.
    """
    positions = as_positions(positions)
    if isinstance(frequencies, Array) or jnp.dtype(dtype).itemsize > 4:
        return positions.astype(dtype)[..., None] * expand_rank(
            frequencies, positions.ndim + 1, dtype
        )
    rounded = jnp.round(positions).astype(jnp.int32)
    counted = _integer_phases(rounded, frequencies)
    if jnp.issubdtype(positions.dtype, jnp.integer):
        return counted
    rest = (positions - rounded.astype(positions.dtype)).astype(dtype)
    return counted + rest[..., None] * expand_rank(frequencies, positions.ndim + 1, dtype)


def _integer_phases(positions: Array, frequencies: np.ndarray) -> Array:
    """ω_k i for int32 positions: ω = 2π·(coarse + fine)/2³² turns, coarse whole, fine in [0, 1)."""
    turns = np.asarray(frequencies, np.float64) / (2 * np.pi)
    scaled = (turns - np.floor(turns)) * 2.0**32
    coarse = np.floor(scaled)
    fine = expand_rank(scaled - coarse, positions.ndim + 1, jnp.float32)
    coarse = expand_rank(coarse.astype(np.uint64).astype(np.uint32), positions.ndim + 1)
    wrapped = positions[..., None].astype(jnp.uint32) * coarse
    turn = lax.bitcast_convert_type(wrapped, jnp.int32).astype(jnp.float32)
    return (turn + positions[..., None].astype(jnp.float32) * fine) * np.float32(
        2 * np.pi / 2.0**32
    )
