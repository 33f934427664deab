"""Stress: how far the distances of an encoding are from the distances they should have.

Throughout, δ_ij = ‖p_i − p_j‖ are the encoding's distances, d_ij the target's, w_ij the weights of
pairs (1 by default), and sums run over pairs i ≠ j of positions that are present.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Real

from jaxpe._types import ArrayLike
from jaxpe.geometry.counts import PositionCounts
from jaxpe.geometry.distances import (
    Distances,
    as_distances,
    euclidean_distances,
    floating,
    pair_mask,
    safe_sqrt,
)

# An encoding as points, or as distances of its own where it has no points.
Points = Real[ArrayLike, "n d"]
Encoded = Distances | Points
Targets = Distances | Real[ArrayLike, "n n"]
PairWeights = Float[ArrayLike, "n n"]


class ScaledStress(NamedTuple):
    """The stress at the best scale, and that scale.

    Attributes:
        stress: float in [0, 1].
        scale: the factor s ≥ 0 that minimises stress(s·P, D).
    """

    stress: Float[Array, ""]
    scale: Float[Array, ""]


def stress(P: Encoded, D: Targets, *, weights: PairWeights | None = None) -> Float[Array, ""]:
    """Stress Σ w(δ − d)² / Σ w d², in [0, ∞): Eq. (4) of Cirrincione (2026), no square root.

    It depends on the scale of P (at P = 0 it is 1; it exceeds 1 whenever P is much too large), so
    compare encodings of different scale by `scaled_stress`. When every target is 0 it is 0 if
    the encoding is constant too and inf otherwise. Differentiable in P and D; where two rows of P
    coincide the derivative of their distance is taken as 0.

    Args:
        P: encoding `[n, d]`, or its `Distances` where it has no vectors (`encoding_distances`).
        D: target distances.
        weights: symmetric pair weights, such as `pair_weights(counts)`.

    >>> stress(np.array([[0.0], [1.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])).item()
    0.25
    """
    delta, d, w = _pairs(P, D, weights)
    return _ratio(jnp.sum(w * (delta - d) ** 2), jnp.sum(w * d**2))


def scaled_stress(P: Encoded, D: Targets, *, weights: PairWeights | None = None) -> ScaledStress:
    """Stress at the best scale, min_s stress(s·P, D) = 1 − (Σ w δd)² / (Σ w δ² · Σ w d²).

    It lies in [0, 1] and does not depend on the scale of P or D, so it is the fair comparison.
    The best scale is s = Σ w δd / Σ w δ². A constant encoding scores 1 with scale 0. When the
    targets are all 0, every encoding scores 0 at scale 0: there is nothing to fit.

    >>> fit = scaled_stress(np.array([[0.0], [1.0]]), np.array([[0.0, 2.0], [2.0, 0.0]]))
    >>> fit.stress.item(), fit.scale.item()
    (0.0, 2.0)
    """
    delta, d, w = _pairs(P, D, weights)
    cross, own = jnp.sum(w * delta * d), jnp.sum(w * delta**2)
    scale = jnp.where(own == 0, 0.0, cross / jnp.where(own == 0, 1.0, own))
    # Summing the residuals keeps the digits that 1 − cos² would lose near a perfect fit.
    residual = jnp.sum(w * (scale * delta - d) ** 2)
    return ScaledStress(jnp.minimum(_ratio(residual, jnp.sum(w * d**2)), 1.0), scale)


def kruskal_stress1(
    P: Encoded, D: Targets, *, weights: PairWeights | None = None
) -> Float[Array, ""]:
    """Kruskal's stress-1, √(Σ w(δ − d)² / Σ w δ²), in [0, ∞), unfitted.

    Kruskal (1964), with the targets themselves as disparities (metric scaling). Its denominator is
    the encoding's own size, so a large encoding tends to 1 where Eq. (4) explodes. A constant
    encoding scores inf (0 when the targets are all 0 too).

    >>> kruskal_stress1(np.array([[0.0], [4.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])).item()
    0.5
    """
    delta, d, w = _pairs(P, D, weights)
    return safe_sqrt(_ratio(jnp.sum(w * (delta - d) ** 2), jnp.sum(w * delta**2)))


def stress_per_position(
    P: Encoded, D: Targets, *, weights: PairWeights | None = None
) -> Float[Array, " n"]:
    """Stress of each position's own distances, Σ_j w(δ − d)² / Σ_j w d², float `[n]`.

    The mean of these with weights Σ_j w d² is `stress`. Absent positions get 0.

    >>> stress_per_position(np.array([[0.0], [1.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])).tolist()
    [0.25, 0.25]
    """
    delta, d, w = _pairs(P, D, weights)
    return _ratio(jnp.sum(w * (delta - d) ** 2, axis=1), jnp.sum(w * d**2, axis=1))


def pair_weights(counts: PositionCounts) -> Float[Array, "n n"]:
    """Weights N_i N_j / (N_i + N_j) that trust a pair as far as its rarer position allows.

    The inverse of 1/N_i + 1/N_j, to which the noise of a plug-in squared distance is proportional;
    scaled to a largest weight of 1. Zero where a position is empty.

    >>> pair_weights(count_tokens(np.array([[0, 1], [1, 0]]), vocab_size=2)).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    size = counts.merged().per_position.astype(float)
    total = size[:, None] + size[None, :]
    weights = size[:, None] * size[None, :] / jnp.where(total > 0, total, 1.0)
    largest = jnp.max(weights)
    return weights / jnp.where(largest > 0, largest, 1.0)


def min_separation(P: Encoded, *, present: Bool[ArrayLike, " n"] | None = None) -> Float[Array, ""]:
    """Smallest distance min_{i≠j} ‖p_i − p_j‖ between positions present (Theorem 4).

    inf when fewer than two positions are present; those that `Distances` lack never are.

    >>> min_separation(np.array([[0.0], [1.0], [3.0]])).item()
    1.0
    """
    if isinstance(P, Distances):
        delta, there = as_distances(P)
        present = there if present is None else there & jnp.asarray(present)
    else:
        delta, present = euclidean_distances(P, present=present)
    return jnp.min(jnp.where(pair_mask(present), delta, jnp.inf))


def distance_correlation_pearson(P: Encoded, D: Targets) -> Float[Array, ""]:
    """Pearson correlation between δ_ij and d_ij over pairs, in [−1, 1] (Figure 7).

    0 when either side is constant, where the correlation is undefined.

    >>> P = np.array([[0.0], [1.0], [3.0]])
    >>> distance_correlation_pearson(P, 2 * abs(P - P.T)).round(6).item()
    1.0
    """
    delta, d, w = _pairs(P, D, None)
    count = jnp.maximum(jnp.sum(w), 1.0)

    def standardised(x: Array) -> Array:
        centred = w * (x - jnp.sum(w * x) / count)
        norm2, size2 = jnp.sum(centred**2), jnp.sum((w * x) ** 2)
        # Rounding leaves equal distances a tiny variance; that must not pass for a correlation.
        constant = norm2 <= (64.0 * jnp.finfo(x.dtype).eps) ** 2 * size2
        return jnp.where(constant, 0.0, centred / jnp.sqrt(jnp.where(constant, 1.0, norm2)))

    return jnp.sum(standardised(delta) * standardised(d))


def _pairs(P: Encoded, D: Targets, weights: PairWeights | None) -> tuple[Array, Array, Array]:
    """Encoding distances, target distances and weights; the weight is 0 off the pairs compared."""
    D = as_distances(D)
    n = D.values.shape[0]
    points = P.values if isinstance(P, Distances) else floating(P)
    if points.ndim != 2 or points.shape[0] != n:
        raise ValueError(
            f"the encoding has shape {points.shape} and the distances {D.values.shape}: pass an "
            f"encoding [{n}, d], one row for every position"
        )
    present = D.present & P.present if isinstance(P, Distances) else D.present
    w = pair_mask(present).astype(points.dtype)
    if weights is not None:
        w = w * jnp.asarray(weights, points.dtype)
    delta = P if isinstance(P, Distances) else euclidean_distances(points, present=present)
    return delta.values, D.values.astype(points.dtype), w


def _ratio(numerator: Array, denominator: Array) -> Array:
    """numerator / denominator ≥ 0, with 0/0 = 0, x/0 = inf, finite derivatives at both, and NaN."""
    usable = denominator != 0
    value = numerator / jnp.where(usable, denominator, 1.0)
    return jnp.where(usable, value, jnp.where(numerator == 0, 0.0, jnp.inf))
