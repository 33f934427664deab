"""Attention biases seen as points: ALiBi as positions on a line."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jaxpe._types import ArrayLike
from jaxpe.encodings.absolute import Positions


def alibi_slopes(num_heads: int) -> Float[np.ndarray, " heads"]:
    """Slopes of ALiBi, one a head, positive; head 1 is the steepest (Press et al. 2022).

    2^(−8h/H) for a power of two. Otherwise those of the next lower power of two, then every
    second one of twice that power.

    >>> alibi_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    if num_heads < 1:
        raise ValueError(f"num_heads must be at least 1, not {num_heads}")
    power = 2 ** (num_heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 / power * np.arange(1, power + 1))
    between = 2.0 ** (-4.0 / power * np.arange(1, 2 * power + 1, 2))
    return np.concatenate([slopes, between[: num_heads - power]])


def alibi_line(
    positions: Positions, *, slope: float | Float[ArrayLike, ""] = 1.0
) -> Float[Array, "n 1"]:
    """ALiBi as points p_i = m·i on a line, whose distances m|i − j| are its biases, negated.

    ALiBi has no position vectors; its stress depends on the slope m. The best slope for given
    distances is the scale of `scaled_stress(alibi_line(positions), D)`.

    >>> alibi_line(jnp.arange(3), slope=0.5).tolist()
    [[0.0], [0.5], [1.0]]
    """
    positions = jnp.asarray(positions).astype(jnp.result_type(float))
    return (positions * jnp.asarray(slope, positions.dtype))[:, None]
