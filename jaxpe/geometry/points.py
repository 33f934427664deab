"""Points whose distances are looked at without ever being a matrix: for many positions."""

from typing import NamedTuple

from jax import Array
from jaxtyping import Bool, Float, Real

from jaxpe._core.arrays import ArrayLike
from jaxpe.geometry.distances import as_present, hellinger_roots, matrix
from jaxpe.geometry.distributions import PositionalDistributions


class PointCloud(NamedTuple):
    """Points that stand for their Euclidean distances, and the positions that take part.

    Where a function takes target `Distances`, it takes a `PointCloud` too, and works through the
    pairs block by block: memory grows as n·k instead of n². What stands in rows of positions that
    are not present is never looked at.
    """

    points: Float[Array, "n k"]
    present: Bool[Array, " n"]


def hellinger_points(mu: PositionalDistributions | Float[ArrayLike, "n vocab"]) -> PointCloud:
    """The points √μ_i, whose Euclidean distances are the Hellinger distances: Eq. (3).

    >>> hellinger_points(np.eye(2)).points.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return PointCloud(*hellinger_roots(mu))


def as_points(points: PointCloud | Real[ArrayLike, "n k"]) -> PointCloud:
    """A plain array `[n, k]` means that every position is present.

    >>> as_points(np.eye(2)).present.tolist()
    [True, True]
    """
    points, present = points if isinstance(points, PointCloud) else (points, None)
    points = matrix(points, "points", "[n, k]")
    return PointCloud(points, as_present(present, points.shape[0]))
