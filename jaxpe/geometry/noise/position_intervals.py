"""Confidence intervals of the position geometry: variances, nearness, distance by offset."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.geometry.checks import check_confidence, floating, sized
from jaxpe.geometry.distances.matrices import safe_sqrt
from jaxpe.geometry.distances.nearness import PositionStatistics, position_statistics
from jaxpe.geometry.noise.cross_validation import PositionHalves, half_sample_variance, students_t
from jaxpe.geometry.noise.position import PositionGeometry, checked_position


class Estimate(NamedTuple):
    """A number or an array with a confidence interval over documents.

    Attributes:
        value: the estimate.
        low, high: ends of the interval.
        standard_error: standard error, for other documents of the same kind.
    """

    value: Float[Array, "..."]
    low: Float[Array, "..."]
    high: Float[Array, "..."]
    standard_error: Float[Array, "..."]


class PositionIntervals(NamedTuple):
    """Estimates with intervals, from `position_intervals`.

    Attributes:
        position: variance between positions due to position.
        composition: variance due to composition, which rotated documents show.
        split_half: sum of both: the variance without sampling noise.
        nearness: `nearness` of the squared distances.
        by_offset: mean squared distance of position at each offset, `[n − 1]`.
    """

    position: Estimate
    composition: Estimate
    split_half: Estimate
    nearness: Estimate
    by_offset: Estimate


@partial(jax.jit, static_argnames="confidence")
def position_intervals(
    geometry: PositionGeometry, halves: PositionHalves, *, confidence: float = 0.95
) -> PositionIntervals:
    """Half-sample intervals of the position geometry, calibrated on rotated documents.

    The squared standard error is s + v₀, s = max(h − h₀, h/10). h is the variance of half-samples
    (`half_sample_interval`). Without an effect noise falls as 1/N², so half-samples overstate it:
    h₀ is the half-sample variance of rotated corpora, and v₀ their actual variance. Ends are at t
    errors with t = (s·t_s + v₀·t_v)/(s + v₀) (Cochran and Cox 1950), of Student's t. A difference
    has fewer degrees of freedom than its parts (Satterthwaite 1946): s has (s/h)² times the number
    of splits, at least 4, and v₀ one less than rotated corpora. The tenth of h and the 4 are
    chosen by coverage on corpora of known truth (`experiments/beyond/position_truth.py`).

    Nearness is a ratio. Its interval holds every ratio r in [−1, 1] for which the mean of
    "difference − r · total" is within t errors of 0 (Fieller 1954). It excludes 0 where the
    interval of the difference does, and is [−1, 1] without information.

    Args:
        geometry: geometry of all documents, from `position_geometry`.
        halves: geometries of their halves, from `disjoint_position_geometries`.
        confidence: coverage of the intervals, in (0, 1).

    >>> ids = np.random.default_rng(0).integers(0, 9, (400, 3))
    >>> rotations = [rotate_within_documents(jax.random.key(k), ids) for k in range(4)]
    >>> counts, *nulls = [
    ...     count_tokens(each, vocab_size=9, folds=8, groups=np.arange(400))
    ...     for each in (ids, *rotations)]
    >>> key = jax.random.key(0)
    >>> geometry = position_geometry_from_counts(counts, nulls, key=key)
    >>> halves = disjoint_position_geometries(counts, nulls, key=key)
    >>> variance = position_intervals(geometry, halves).position
    >>> bool(variance.low < 0 < variance.high)
    True
    """
    check_confidence(confidence)
    parts = _statistics(geometry, halves)

    def estimate(get: Callable[[PositionStatistics], Array], part: str = "position") -> Estimate:
        return _calibrated_estimate(*map(get, parts), part=part, confidence=confidence)

    return PositionIntervals(
        position=estimate(lambda x: x.trace),
        composition=estimate(lambda x: x.trace, "composition"),
        split_half=estimate(lambda x: x.trace, "split_half"),
        nearness=_ratio(estimate),
        by_offset=estimate(lambda x: x.by_offset),
    )


class VarianceShares(NamedTuple):
    """Parts of the observed variance between positions, which add up to 1.

    Attributes:
        noise: share of sampling noise.
        composition: share that rotated documents show.
        position: share of position.
    """

    noise: Estimate
    composition: Estimate
    position: Estimate


@partial(jax.jit, static_argnames="confidence")
def variance_shares(
    geometry: PositionGeometry,
    halves: PositionHalves,
    observed: float | Float[ArrayLike, ""],
    *,
    confidence: float = 0.95,
) -> VarianceShares:
    """Shares of noise, composition and position in the observed variance, with intervals.

    Other documents change a part x and the total T alike, which moves x/T by (T − x)/T² only. The
    noise of products of halves enters the part alone. So the squared error is ((T − x)²s/T² +
    v₀)/T², with s and v₀ from `position_intervals`.

    Args:
        geometry, halves: arguments of `position_intervals`.
        observed: T, trace of the plug-in Gram matrix over the positions that are present.
        confidence: coverage of the intervals, in (0, 1).

    >>> ids = np.random.default_rng(0).integers(0, 9, (400, 3))
    >>> tokens = token_lists(ids, vocab_size=9, folds=8, groups=np.arange(400))
    >>> nulls, key = [tokens.rotated(jax.random.key(k)) for k in range(4)], jax.random.key(0)
    >>> geometry = position_geometry_from_counts(tokens, nulls, key=key)
    >>> halves = disjoint_position_geometries(tokens, nulls, key=key)
    >>> mu = positional_distributions(count_tokens(ids, vocab_size=9))
    >>> observed = jnp.trace(hellinger_gram(mu))
    >>> variance_shares(geometry, halves, observed).noise.value > 0.5
    Array(True, dtype=bool)
    """
    check_confidence(confidence)
    parts = [each.trace for each in _statistics(geometry, halves)]
    observed = sized(observed, "observed", "").astype(parts[0].dtype)
    all_documents, composition = parts[0], jnp.mean(parts[1])
    values = {
        "split_half": observed - all_documents,
        "composition": composition,
        "position": all_documents - composition,
    }
    shares = []
    for part, value in values.items():
        share = value / observed
        rest = share if part == "split_half" else 1.0 - share
        part_of_trace = _calibrated_estimate(*parts, part=part, confidence=confidence, signal=rest)
        width = (part_of_trace.high - part_of_trace.low) / observed
        error = part_of_trace.standard_error / observed
        shares.append(Estimate(share, share - 0.5 * width, share + 0.5 * width, error))
    return VarianceShares(*shares)


def _statistics(geometry: PositionGeometry, halves: PositionHalves) -> list[PositionStatistics]:
    """Statistics of the documents, of rotations, and of halves of both, in floats."""
    geometry = checked_position(geometry)
    n = len(geometry.present)
    documents = _checked_statistics(halves.documents, "halves.documents", "splits 2", n)
    splits = len(documents.trace)
    rotated = _checked_statistics(halves.null, "halves.null", f"nulls {splits} 2", n)
    nulls = len(rotated.trace)
    if not splits or nulls < 2:
        raise ValueError(
            f"halves have {splits} splits and {nulls} nulls: pass at least one split and two nulls"
        )
    all_documents = position_statistics(geometry.split_half.squared_distances, geometry.present)
    null = jax.lax.map(lambda d2: position_statistics(d2, geometry.present), geometry.null)
    return [all_documents, null, documents, rotated]


def _checked_statistics(
    statistics: PositionStatistics, name: str, lead: str, n: int
) -> PositionStatistics:
    """Statistics of n positions in floats; raises unless they have these leading axes."""
    sized(statistics.trace, f"{name}.trace", lead)
    sized(statistics.by_offset, f"{name}.by_offset", f"{lead} {n - 1}")
    return jax.tree.map(floating, statistics)


def _ratio(estimate: Callable[[Callable[[PositionStatistics], Array]], Estimate]) -> Estimate:
    """Nearness with Fieller's set, from a grid of ratios ever farther from the estimate."""
    difference, total = (estimate(lambda x, n=n: getattr(x, n)) for n in ("difference", "total"))
    ratio = difference.value / jnp.where(total.value == 0, jnp.nan, total.value)
    value = jnp.clip(ratio, -1.0, 1.0)

    def residual(ratio: Array) -> Estimate:
        return estimate(lambda x: x.difference - ratio * x.total)

    steps = jnp.asarray(np.geomspace(1e-5, 2.0, 300), value.dtype)
    ratios = jnp.clip(value + jnp.concatenate([-steps, steps]), -1.0, 1.0)
    residuals = jax.lax.map(residual, ratios)
    inside = (residuals.low <= 0.0) & (residuals.high >= 0.0)
    low = jnp.min(jnp.where(inside, ratios, value))
    high = jnp.max(jnp.where(inside, ratios, value))
    # Delta method: the error of a ratio is the error of (difference − ratio · total) / total.
    error = residual(ratio).standard_error / jnp.abs(total.value)
    return Estimate(value, low, high, error)


def _calibrated_estimate(
    all_documents: Float[Array, "..."],
    null: Float[Array, "nulls ..."],
    halves: Float[Array, "splits 2 ..."],
    rotated: Float[Array, "more_nulls splits 2 ..."],
    *,
    part: str,
    confidence: float,
    signal: float | Array = 1.0,
) -> Estimate:
    """Calibrated interval of a linear statistic of one part of the variance.

    Args:
        all_documents, null: the statistic of the documents and of each rotated corpus.
        halves, rotated: the statistic of halves of the documents and of the rotated corpora.
        part: "position", "composition" or "split_half".
        confidence: coverage of the interval.
        signal: factor of the change that other documents make.
    """
    mean, half_mean = jnp.mean(null, axis=0), jnp.mean(rotated, axis=0)
    nulls, more = len(null), len(rotated)
    h0 = jnp.mean(jax.vmap(half_sample_variance)(rotated - half_mean[None]), axis=0)
    h0, v0 = h0 * more / (more - 1), jnp.var(null, axis=0, ddof=1)
    if part == "position":
        value, h = all_documents - mean, half_sample_variance(halves - half_mean)
        s, v = h - h0 * (1 + 1 / more), v0 * (1 + 1 / nulls)
    elif part == "composition":
        value, h = mean, half_sample_variance(half_mean)
        s, v = h - h0 / more, v0 / nulls
    else:
        value, h = all_documents, half_sample_variance(halves)
        s, v = h - h0, v0
    s = jnp.maximum(s, 0.1 * h)
    t_s, t_v = _part_quantile(s, h, len(halves), confidence), students_t(nulls - 1, confidence)
    s = s * signal**2
    t = (s * t_s + v * t_v) / jnp.where(s + v > 0, s + v, 1.0)
    error = safe_sqrt(s + v)
    return Estimate(value, value - t * error, value + t * error, error)


def _part_quantile(
    s: Float[Array, "..."], h: Float[Array, "..."], splits: int, confidence: float
) -> Float[Array, "..."]:
    """Student's t for s, the difference of h and better known variances (Satterthwaite)."""
    freedom = jnp.maximum(splits * (s / jnp.where(h > 0, h, 1.0)) ** 2, min(4, splits))
    # SciPy's quantile takes no traced degrees of freedom: linear between whole ones.
    whole = np.arange(1, splits + 1)
    ts = [students_t(number, confidence) for number in whole.tolist()]
    return jnp.interp(freedom, *(jnp.asarray(x, s.dtype) for x in (whole, ts)))
