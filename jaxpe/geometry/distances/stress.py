"""Stress: how far the distances of an encoding are from the distances they should have.

δ_ij = ‖p_i − p_j‖ are the encoding's distances, d_ij the target's, w_ij the weights of pairs (1 by
default); sums run over pairs i ≠ j of positions present. Targets are a matrix of distances, or a
`PointCloud`, whose pairs are computed tile by tile in O(n·k) memory (`sum_over_pairs`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, PyTree, Real

from jaxpe._core.arrays import ArrayLike, checked_jit
from jaxpe.geometry.checks import (
    as_weights,
    checked_encoding,
    checked_targets,
    checked_weights,
    nan_unless_weights,
    sized,
)
from jaxpe.geometry.counts.position_counts import PositionCounts
from jaxpe.geometry.distances.matrices import (
    Distances,
    as_distances,
    as_present,
    euclidean_distances,
    pair_mask,
    safe_sqrt,
)
from jaxpe.geometry.distances.pairs import (
    DENSE,
    Term,
    smallest_distance,
    sum_over_pairs,
    trust_in_pairs,
)
from jaxpe.geometry.distances.points import HasCoordinates, PointCloud, as_points

# An encoding as points, or as distances if it has no points.
Points = Real[ArrayLike, "n d"]
Encoded = Distances | Points
Configuration = Encoded | PointCloud | HasCoordinates
Targets = Distances | PointCloud | Real[ArrayLike, "n n"]
PairWeights = Real[ArrayLike, "n n"] | Real[ArrayLike, " n"]

_checked = checked_jit(P=checked_encoding, D=(checked_targets, "P"), weights=checked_weights)


class ScaledStress(NamedTuple):
    """Scaled stress: the minimum over scales s ≥ 0, in [0, 1], and the minimising s.

    Attributes:
        stress: stress at the best scale, in [0, 1].
        scale: the best scale, at least 0.
    """

    stress: Float[Array, ""]
    scale: Float[Array, ""]


@_checked
def stress(P: Configuration, D: Targets, *, weights: PairWeights | None = None) -> Float[Array, ""]:
    """Stress Σ w(δ − d)² / Σ w d², in [0, ∞), without a square root: Eq. (4) of Cirrincione (2026).

    It is 1 at P = 0 and exceeds 1 where P is much too large: compare encodings of different scale
    by `scaled_stress`. When every target is 0, it is 0 for a constant encoding and inf for others.
    Where two rows of P coincide, the derivative of their distance is defined as 0.

    Args:
        P: encoding `[n, d]`, a result with `coordinates` such as `ClassicalMDS`, or `Distances`
            of an encoding without vectors (`encoding_distances`).
        D: target distances, symmetric and not negative. To differentiate with respect to
            `Distances`, differentiate their values: `jax.grad(lambda values: stress(P,
            D._replace(values=values)))(D.values)`.
        weights: symmetric pair weights `[n, n]`, such as `pair_weights(counts)`; or the documents
            per position `[n]` behind them, the only choice for a `PointCloud`.

    Raises:
        ValueError: an encoding of another number of positions, targets that `as_distances` refuses,
            or weights that are negative, asymmetric or all 0. Inside `jit`, where numbers are
            unknown, such targets and weights give NaN.

    >>> stress(np.array([[0.0], [1.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])).item()
    0.25
    """
    return _stress(_sums(P, D, weights))


@_checked
def scaled_stress(
    P: Configuration, D: Targets, *, weights: PairWeights | None = None
) -> ScaledStress:
    """Stress at the best scale, min_s stress(s·P, D) = 1 − (Σ w δd)² / (Σ w δ² · Σ w d²).

    In [0, 1] whatever the scale of P or D, at the best scale s = Σ w δd / Σ w δ². A constant
    encoding scores 1 with scale 0; where the targets are all 0, every encoding scores 0 at scale 0.

    Args:
        P, D, weights: arguments of `stress`.

    >>> fit = scaled_stress(np.array([[0.0], [1.0]]), np.array([[0.0, 2.0], [2.0, 0.0]]))
    >>> fit.stress.item(), fit.scale.item()
    (0.0, 2.0)
    """
    total = _sums(P, D, weights)
    cross, encoding, target = total(lambda delta, d: (delta * d, delta**2, d**2))
    scale = jnp.where(encoding == 0, 0.0, cross / jnp.where(encoding == 0, 1.0, encoding))
    # Summing the residuals keeps the digits that 1 − cos² would lose near a perfect fit.
    residual = total(lambda delta, d, scale: (scale * delta - d) ** 2, minimiser(scale))
    return ScaledStress(jnp.minimum(ratio_of_sums(residual, target), 1.0), scale)


@_checked
def kruskal_stress1(
    P: Configuration, D: Targets, *, weights: PairWeights | None = None
) -> Float[Array, ""]:
    """Kruskal's stress-1, √(Σ w(δ − d)² / Σ w δ²), in [0, ∞), unfitted.

    Kruskal (1964), with the targets themselves as disparities (metric scaling). Its denominator is
    the encoding's own size, so a large encoding tends to 1 where Eq. (4) explodes. A constant
    encoding scores inf (0 when the targets are all 0 too).

    Args:
        P, D, weights: arguments of `stress`.

    >>> kruskal_stress1(np.array([[0.0], [4.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])).item()
    0.5
    """
    sums = _sums(P, D, weights)(lambda delta, d: ((delta - d) ** 2, delta**2))
    return safe_sqrt(ratio_of_sums(*sums))


@_checked
def stress_per_position(
    P: Configuration, D: Targets, *, weights: PairWeights | None = None
) -> Float[Array, " n"]:
    """Stress of each position's own distances, Σ_j w(δ − d)² / Σ_j w d², float `[n]`.

    Their mean with weights Σ_j w d² is `stress`. Absent positions get 0.

    Args:
        P, D, weights: arguments of `stress`.

    >>> P, D = np.array([[0.0], [1.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])
    >>> stress_per_position(P, D).tolist()
    [0.25, 0.25]
    """
    return _stress(_sums(P, D, weights, per_position=True))


def pair_weights(counts: PositionCounts) -> Float[Array, "n n"]:
    """Pair weights N_i N_j / (N_i + N_j): a pair counts as far as its rarer position allows.

    The inverse of 1/N_i + 1/N_j, to which the noise of a plug-in squared distance is proportional;
    scaled to a largest weight of 1. Zero where a position is empty.

    >>> pair_weights(count_tokens(np.array([[0, 1], [1, 0]]), vocab_size=2)).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    size = counts.merged().per_position.astype(float)
    weights = trust_in_pairs(size[:, None], size[None, :])
    largest = jnp.max(weights, initial=0.0)
    return weights / jnp.where(largest > 0, largest, 1.0)


@checked_jit(P=checked_encoding)
def min_separation(
    P: Configuration, *, present: Bool[ArrayLike, " n"] | None = None
) -> Float[Array, ""]:
    """Smallest distance min_{i≠j} ‖p_i − p_j‖ between positions present (Theorem 4).

    inf when fewer than two positions are present. A `PointCloud`, and more than 4,096 points, take
    O(n·d) memory.

    Args:
        P: argument of `stress`, or a `PointCloud`.
        present: positions that take part, `[n]`; all when None. Positions absent from P stay
            absent.

    >>> min_separation(np.array([[0.0], [1.0], [3.0]])).item()
    1.0
    """
    P = distances_or_points(P, present)
    if isinstance(P, PointCloud):
        return smallest_distance(P)
    return jnp.min(jnp.where(pair_mask(P.present), P.values, jnp.inf), initial=jnp.inf)


def distances_or_points(
    encoding: Configuration, present: Bool[ArrayLike, " n"] | None
) -> Distances | PointCloud:
    """A matrix of distances, also of few plain points; else points, at least one of them."""
    plain = not isinstance(encoding, Distances | PointCloud)
    encoding = encoding if isinstance(encoding, Distances) else as_points(encoding)
    present = encoding.present & as_present(present, len(encoding.present))
    if not len(present):  # an absent position, so that there is a row
        return Distances(jnp.zeros((1, 1)), jnp.zeros(1, bool))
    encoding = encoding._replace(present=present)
    small = isinstance(encoding, Distances) or (plain and len(present) <= DENSE)
    return _dense(encoding) if small else encoding


@_checked
def mantel_correlation(P: Configuration, D: Targets) -> Float[Array, ""]:
    """The Mantel statistic: Pearson correlation of δ_ij and d_ij over pairs, in [−1, 1].

    Mantel (1967), standardised; Figure 7 of Cirrincione (2026) shows it. Pairs that share a
    position are dependent, so tests of a correlation do not apply: Mantel's test permutes
    positions. 0 when either side is constant, where the correlation is undefined.

    Args:
        P, D: arguments of `stress`.

    >>> P = np.array([[0.0], [1.0], [3.0]])
    >>> mantel_correlation(P, 2 * abs(P - P.T)).round(6).item()
    1.0
    """
    total = _sums(P, D, None)
    count, *sums = total(lambda delta, d: (1.0, delta, d))
    count = jnp.maximum(count, 1.0)
    rough = [x / count for x in sums]
    # A plain sum of n² numbers in float32 accumulates rounding errors, and so does its mean.
    means = [x + rest / count for x, rest in zip(rough, total(_centred, rough), strict=True)]
    norms2, sizes2 = total(lambda *x: ([y**2 for y in _centred(*x)], [y**2 for y in x[:2]]), means)
    # Rounding gives equal distances a tiny variance, which must not count as a correlation.
    least = (64.0 * jnp.finfo(means[0].dtype).eps) ** 2
    constant = [norm2 <= least * size2 for norm2, size2 in zip(norms2, sizes2, strict=True)]
    norms = [jnp.sqrt(jnp.where(c, 1.0, norm2)) for c, norm2 in zip(constant, norms2, strict=True)]

    def correlated(delta: Array, d: Array, means: list[Array], norms: list[Array]) -> Array:
        first, second = _centred(delta, d, means)
        return (first / norms[0]) * (second / norms[1])

    return jnp.where(constant[0] | constant[1], 0.0, total(correlated, means, norms))


def _stress(total: Callable[..., PyTree]) -> Array:
    return ratio_of_sums(*total(lambda delta, d: ((delta - d) ** 2, d**2)))


def _centred(delta: Array, d: Array, means: list[Array]) -> list[Array]:
    return [delta - means[0], d - means[1]]


# At the minimum over s, the derivative does not depend on ds (envelope theorem), which saves
# differentiating the sums of s. s itself remains a function of P and D, so that second derivatives
# are right too: `stop_gradient` would lose them.
@jax.custom_jvp
def minimiser(s: Array) -> Array:
    """Arguments s of a minimum, constant in its first derivative alone."""
    return s


@minimiser.defjvp
def _minimiser_jvp(primals, tangents):
    return primals[0], jnp.zeros_like(tangents[0])


def _sums(
    P: Configuration, D: Targets, weights: PairWeights | None, *, per_position: bool = False
) -> Callable[..., PyTree[Array]]:
    """Function of a term and args: Σ w·term(δ, d, *args) over all pairs, or of each position."""
    # A matrix has every pair twice, so only ratios of sums are meaningful.
    if isinstance(D, PointCloud) and not isinstance(P, Distances):
        P = as_points(P)
        sized(P.points, "the encoding", f"{len(D.points)} d")
        if weights is not None:
            weights = nan_unless_weights(jnp.asarray(weights, P.points.dtype))
        options = {"weights": weights, "per_position": per_position}
        return lambda term, *args: sum_over_pairs(term, P, D, args=args, **options)
    delta, d, w = _pairs(P, D, weights)
    axis = 1 if per_position else None

    def total(term: Term, *args: Any) -> PyTree[Array]:
        return jax.tree.map(lambda x: jnp.sum(w * x, axis=axis), term(delta, d, *args))

    return total


def _pairs(P: Configuration, D: Targets, weights: PairWeights | None) -> tuple[Array, Array, Array]:
    """Encoding distances, target distances and weights; the weight is 0 off the pairs compared."""
    D = _dense(D) if isinstance(D, PointCloud) else as_distances(D)
    P = P if isinstance(P, Distances) else as_points(P)
    points = P.values if isinstance(P, Distances) else P.points
    sized(points, "the encoding", f"{len(D.present)} d")
    present = D.present & P.present
    w = pair_mask(present).astype(points.dtype)
    if weights is not None:
        n = len(present)
        weights = as_weights(weights, (n,), (n, n), dtype=points.dtype)
        if weights.ndim == 1:
            weights = trust_in_pairs(weights[:, None], weights[None, :])
        w = jnp.where(w > 0, weights, 0.0)
    delta = _dense(P._replace(present=present))
    # Otherwise XLA computes the distances again within each sum, and compiles for seconds.
    return jax.lax.optimization_barrier((delta.values, D.values.astype(points.dtype), w))


def _dense(points: PointCloud | Distances) -> Distances:
    """Matrix of distances, for a given matrix or few points."""
    if isinstance(points, Distances):
        return as_distances(points)
    return euclidean_distances(points.points, present=points.present)


def ratio_of_sums(numerator: Array, denominator: Array) -> Array:
    """numerator / denominator ≥ 0, with 0/0 = 0, x/0 = inf, finite derivatives at both, and NaN."""
    usable = denominator != 0
    value = numerator / jnp.where(usable, denominator, 1.0)
    return jnp.where(usable, value, jnp.where(numerator == 0, 0.0, jnp.inf))
