"""Position vectors that are given once and for all."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from jaxpe._types import ArrayLike

Positions = Int[ArrayLike, " n"] | Float[ArrayLike, " n"]


def inverse_frequencies(dim: int, *, base: float = 10_000.0) -> Float[np.ndarray, " half"]:
    """ω_k = base^(−2k/dim), k = 0..dim/2 − 1, in float64 NumPy: Eq. (2).

    >>> inverse_frequencies(4).tolist()
    [1.0, 0.01]
    """
    if dim < 2 or dim % 2:
        raise ValueError(f"dim must be even and at least 2, not {dim}: frequencies come in pairs")
    return base ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)


def sinusoidal_vectors(
    positions: Positions, *, dim: int, base: float = 10_000.0
) -> Float[Array, "n dim"]:
    """Sinusoidal vectors, PE_{i,2k} = sin(ω_k i) and PE_{i,2k+1} = cos(ω_k i), in [−1, 1].

    Vaswani et al. (2017); Eq. (2) of Cirrincione (2026).

    >>> sinusoidal_vectors(jnp.arange(2), dim=2).round(4).tolist()
    [[0.0, 1.0], [0.8415, 0.5403]]
    """
    phases = position_phases(positions, inverse_frequencies(dim, base=base))
    return jnp.stack([jnp.sin(phases), jnp.cos(phases)], axis=-1).reshape(-1, dim)


def random_vectors(
    key: Array, length: int, *, dim: int, scale: float = 1.0
) -> Float[Array, "length dim"]:
    """Independent N(0, scale²) entries: the "random initialisation" of Table 4 has scale 1.

    >>> random_vectors(jax.random.key(0), 3, dim=2).shape
    (3, 2)
    """
    return scale * jax.random.normal(key, (length, dim), jnp.result_type(float))


def position_phases(positions: Positions, frequencies: np.ndarray) -> Float[Array, "n half"]:
    """Phases ω_k i, never below float32: bfloat16 cannot count to 257."""
    positions = jnp.asarray(positions).astype(jnp.result_type(float))
    if positions.ndim != 1:
        raise ValueError(f"positions have shape {positions.shape}, not [n]: vmap over batches")
    return positions[:, None] * jnp.asarray(frequencies, positions.dtype)[None, :]
