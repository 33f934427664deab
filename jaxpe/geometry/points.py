"""Points whose distances are looked at without ever being a matrix: for many positions."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Real

from jaxpe._types import ArrayLike
from jaxpe.geometry.distances import as_present, floating, safe_sqrt
from jaxpe.geometry.distributions import PositionalDistributions, as_distributions


class PointCloud(NamedTuple):
    """Points that stand for their Euclidean distances, and the positions that take part.

    Where a function takes target `Distances`, it takes a `PointCloud` too, and works through the
    pairs block by block: memory grows as n·k instead of n².

    Attributes:
        points: float `[n, k]`.
        present: bool `[n]`; what stands in rows of absent positions is never looked at.
    """

    points: Float[Array, "n k"]
    present: Bool[Array, " n"]


def hellinger_points(
    mu: PositionalDistributions | Float[ArrayLike, "n vocab"],
) -> PointCloud:
    """The points √μ_i, whose Euclidean distances are the Hellinger distances: Eq. (3).

    >>> hellinger_points(np.eye(2)).points.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    mu = as_distributions(mu)
    return PointCloud(safe_sqrt(mu.probabilities), mu.present)


def as_points(points: PointCloud | Real[ArrayLike, "n k"]) -> PointCloud:
    """A plain array `[n, k]` means that every position is present.

    >>> as_points(np.eye(2)).present.tolist()
    [True, True]
    """
    if isinstance(points, PointCloud):
        points, present = points
    else:
        present = None
    points = _wide(points)
    if points.ndim != 2:
        raise ValueError(f"points have shape {points.shape}, not [n, k]")
    return PointCloud(points, as_present(present, points.shape[0]))


def _wide(x: ArrayLike) -> Array:
    """At least 32 bits: sums over pairs overflow float16, and have no digits in bfloat16."""
    x = floating(x)
    return x if jnp.finfo(x.dtype).bits >= 32 else x.astype(jnp.float32)
