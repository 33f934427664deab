"""Point clouds: points that stand for their distances, for many positions."""

from typing import NamedTuple, Protocol, runtime_checkable

from jax import Array
from jaxtyping import Bool, Float, Real

from jaxpe._core.arrays import ArrayLike
from jaxpe.geometry.checks import as_present, sized
from jaxpe.geometry.counts.distributions import PositionalDistributions
from jaxpe.geometry.distances.matrices import hellinger_roots, of_distributions, refuse_tuple


class PointCloud(NamedTuple):
    """Points that stand for their Euclidean distances, and the positions that take part.

    A function of target `Distances` takes a `PointCloud` too, and computes the pairs block by
    block: memory grows as n·k instead of n². Rows of absent positions are never read.

    Attributes:
        points: float `[n, k]`, a row for each position.
        present: bool `[n]`, positions that take part.
    """

    points: Float[Array, "n k"]
    present: Bool[Array, " n"]


@of_distributions
def hellinger_points(mu: PositionalDistributions | Float[ArrayLike, "n vocab"]) -> PointCloud:
    """The points √μ_i, whose Euclidean distances are the Hellinger distances: Eq. (3).

    Args:
        mu: distributions, `[n, vocab]` if an array.

    >>> hellinger_points(np.eye(2)).points.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return PointCloud(*hellinger_roots(mu))


@runtime_checkable
class HasCoordinates(Protocol):
    """A result with coordinates of positions, such as `ClassicalMDS` or `Smacof`."""

    @property
    def coordinates(self) -> Array:
        """Position vectors `[n, k]`."""
        ...


def as_points(points: PointCloud | HasCoordinates | Real[ArrayLike, "n k"]) -> PointCloud:
    """A point cloud from an array `[n, k]`, in which every position is present.

    A result with coordinates gives its coordinates and its mask of positions.

    >>> as_points(np.eye(2)).present.tolist()
    [True, True]
    """
    present = None
    if isinstance(points, PointCloud):
        points, present = points
    elif isinstance(points, HasCoordinates):
        points, present = points.coordinates, getattr(points, "present", None)
    refuse_tuple(points, "points", "position vectors [n, k], a PointCloud or an MDS result")
    points = sized(points, "points", "n k")
    return PointCloud(points, as_present(present, points.shape[0]))
