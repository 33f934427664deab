"""Intervals of what the position geometry says: variances, nearness, the curve against offset."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxpe._core.program import one_program
from jaxpe.geometry.checks import check_confidence
from jaxpe.geometry.cross_validation import PositionHalves, students_t
from jaxpe.geometry.distances import safe_sqrt
from jaxpe.geometry.nearness import PositionStatistics, position_statistics
from jaxpe.geometry.position import PositionGeometry


class Estimate(NamedTuple):
    """A number, or an array of them, with an interval over documents.

    Attributes:
        value: the estimate.
        low, high: ends of the interval.
        standard_error: of the estimate, for other documents of the same kind.
    """

    value: Float[Array, "..."]
    low: Float[Array, "..."]
    high: Float[Array, "..."]
    standard_error: Float[Array, "..."]


class PositionIntervals(NamedTuple):
    """Estimates with intervals, from `position_intervals`.

    Attributes:
        position: variance between positions that is of position.
        composition: variance that shuffled documents show.
        split_half: both together, the variance without sampling noise.
        nearness: `nearness` of the squared distances.
        by_offset: mean squared distance of position at each offset, `[n − 1]`.
    """

    position: Estimate
    composition: Estimate
    split_half: Estimate
    nearness: Estimate
    by_offset: Estimate


@one_program
def position_intervals(
    geometry: PositionGeometry, halves: PositionHalves, *, confidence: float = 0.95
) -> PositionIntervals:
    """Intervals from halves of the documents, calibrated by the same halves of shuffled ones.

    The squared standard error is h − h₀ + v₀. h is that of half-samples (`half_sample_interval`).
    Noise falls as 1/N² where there is no effect, so half-samples overstate it; h₀ is what they say
    of shuffled corpora, and v₀ the variance that shuffled corpora have. Ends are Student's, of as
    many degrees of freedom as there are splits, at most one less than folds. Nearness is a ratio:
    it has no bounds, ends −∞ and ∞, where the mean squared distance is within its error of 0.

    Args:
        geometry: of all documents, from `position_geometry`.
        halves: from `disjoint_position_geometries`.
        confidence: coverage of the intervals, in (0, 1).

    >>> ids = np.random.default_rng(0).integers(0, 9, (400, 3))
    >>> shuffles = [permute_within_documents(jax.random.key(k), ids) for k in range(4)]
    >>> counts, *nulls = [
    ...     count_tokens(each, vocab_size=9, folds=8, groups=np.arange(400))
    ...     for each in (ids, *shuffles)]
    >>> key = jax.random.key(0)
    >>> geometry = position_geometry_from_counts(counts, nulls, key=key)
    >>> halves = disjoint_position_geometries(counts, nulls, key=key)
    >>> variance = position_intervals(geometry, halves).position
    >>> bool(variance.low < 0 < variance.high)
    True
    """
    check_confidence(confidence)
    t = students_t(len(halves.own.trace), confidence)
    whole = position_statistics(geometry.split_half.squared_distances, geometry.present)
    null = jax.lax.map(lambda d2: position_statistics(d2, geometry.present), geometry.null)
    parts = (whole, null, halves.own, halves.null)

    def estimate(get: Callable[[PositionStatistics], Array], part: str) -> Estimate:
        value, error = _calibrated(*map(get, parts), part=part)
        return Estimate(value, value - t * error, value + t * error, error)

    difference, total = (
        getattr(whole, name) - jnp.mean(getattr(null, name)) for name in ("difference", "total")
    )
    ratio = difference / jnp.where(total == 0, jnp.nan, total)
    # By the delta method the error of a ratio is that of difference − ratio · total, over total.
    residual = estimate(lambda x: x.difference - ratio * x.total, "position")
    error = residual.standard_error / jnp.abs(total)
    # A total within its error of 0 leaves the ratio without bounds (Fieller 1954).
    certain = jnp.abs(total) > t * estimate(lambda x: x.total, "position").standard_error
    error = jnp.where(certain, error, jnp.inf)
    return PositionIntervals(
        position=estimate(lambda x: x.trace, "position"),
        composition=estimate(lambda x: x.trace, "composition"),
        split_half=estimate(lambda x: x.trace, "split_half"),
        nearness=Estimate(ratio, ratio - t * error, ratio + t * error, error),
        by_offset=estimate(lambda x: x.by_offset, "position"),
    )


def _calibrated(
    whole: Float[Array, "..."],
    null: Float[Array, "nulls ..."],
    own: Float[Array, "splits 2 ..."],
    shuffled: Float[Array, "more_nulls splits 2 ..."],
    *,
    part: str,
) -> tuple[Array, Array]:
    """Value and standard error of a linear statistic of a part of the variance.

    Args:
        whole, null: the statistic of the documents and of each shuffled corpus.
        own, shuffled: likewise of halves.
        part: "position", "composition" or "split_half".
    """
    mean, mean_of_halves = jnp.mean(null, axis=0), jnp.mean(shuffled, axis=0)
    if part == "composition":
        return mean, _half_sample_error(mean_of_halves)
    nulls, more = len(null), len(shuffled)
    h0 = jnp.mean(jax.vmap(_half_sample_error)(shuffled - mean_of_halves) ** 2, axis=0)
    h0, v0 = h0 * more / (more - 1), jnp.var(null, axis=0, ddof=1)
    if part == "position":
        value, h = whole - mean, _half_sample_error(own - mean_of_halves) ** 2
        h0, v0 = h0 * (1 + 1 / more), v0 * (1 + 1 / nulls)
    else:
        value, h = whole, _half_sample_error(own) ** 2
    return value, safe_sqrt(jnp.maximum(h - h0, 0.0) + v0)


def _half_sample_error(samples: Float[Array, "splits 2 ..."]) -> Float[Array, "..."]:
    return 0.5 * safe_sqrt(jnp.mean((samples[:, 0] - samples[:, 1]) ** 2, axis=0))
