"""Rotary encoding seen as points: the orbit of a reference vector."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jaxpe._types import ArrayLike
from jaxpe.encodings.absolute import Positions, inverse_frequencies, position_phases


def rotary_orbit(
    positions: Positions,
    *,
    dim: int,
    reference: Float[ArrayLike, " dim"] | None = None,
    base: float = 10_000.0,
) -> Float[Array, "n dim"]:
    """The points R(i)·q that rotary encoding makes of one reference vector q.

    RoPE (Su et al. 2021) has no position vectors; its stress needs a map, and this is it. The
    pairs (q_{2k}, q_{2k+1}) turn by ω_k i. The default q = (1, 0, 1, 0, ...) has unit pairs, and
    for equal pair norms the distances are exactly the sinusoidal ones.

    >>> rotary_orbit(jnp.arange(2), dim=2).round(4).tolist()
    [[1.0, 0.0], [0.5403, 0.8415]]
    """
    phases = position_phases(positions, inverse_frequencies(dim, base=base))
    if reference is None:
        reference = jnp.tile(jnp.asarray([1.0, 0.0], phases.dtype), dim // 2)
    if np.shape(reference) != (dim,):
        raise ValueError(f"reference has shape {np.shape(reference)}, not [dim] = {(dim,)}")
    pairs = jnp.asarray(reference, phases.dtype).reshape(1, dim // 2, 2)
    x, y = pairs[..., 0], pairs[..., 1]
    cos, sin = jnp.cos(phases), jnp.sin(phases)
    return jnp.stack([cos * x - sin * y, sin * x + cos * y], axis=-1).reshape(-1, dim)
