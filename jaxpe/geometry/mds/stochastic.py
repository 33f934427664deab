"""Stochastic multidimensional scaling: a step moves random pairs, in O(n·d) time."""

import statistics
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Real

from jaxpe._core.arrays import ArrayLike
from jaxpe._core.errors import InputError
from jaxpe.geometry.checks import check_confidence, check_size
from jaxpe.geometry.distances.matrices import Distances, as_distances, centre_rows, safe_sqrt
from jaxpe.geometry.distances.points import PointCloud, as_points
from jaxpe.geometry.distances.random_pairs import (
    coordinate_count,
    distances_at,
    draw_in_parts,
    draw_positions,
)
from jaxpe.geometry.distances.stress import Configuration, Targets, ratio_of_sums
from jaxpe.geometry.mds.smacof import first_configuration, random_configuration


class SampledStress(NamedTuple):
    """Stress estimated from random pairs, with a normal interval whose lower end is at least 0.

    Attributes:
        stress: estimate of Eq. (4).
        low: lower end of the interval.
        high: upper end of the interval.
    """

    stress: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]


class StochasticMDS(NamedTuple):
    """A configuration of low stress, from stochastic MDS.

    Attributes:
        coordinates: float `[n, dim]`, centred; rows of absent positions are 0.
        stress: stress of the coordinates, by `sampled_stress`; at most `initial_stress`, over
            the same pairs.
        initial_stress: stress of the start.
    """

    coordinates: Float[Array, "n dim"]
    stress: SampledStress
    initial_stress: SampledStress


def stochastic_mds(
    D: Targets,
    *,
    dim: int,
    key: Array,
    init: Literal["classical", "random"] | Real[ArrayLike, "n dim"] = "classical",
    steps: int = 3000,
    rate: float = 1.0,
    pairs: int = 1_000_000,
    confidence: float = 0.95,
) -> StochasticMDS:
    """Lower the stress of Eq. (4) by moving random pairs towards their target distances.

    Zheng, Pawar and Goodman (2019), with weights of 1: a pair at distance δ moves by µ·(δ − d)/2
    at either end, µ ≤ 1. A step moves a random matching, n/2 disjoint pairs at once, in O(n·(k +
    d)) time. With t from 0 to 1 over the steps, the rate falls as µ = rate·(1 − t)². `smacof` uses
    all n² pairs for every transform and ends in a minimum. This method ends within a few per cent
    of one, after a number of steps that does not grow with n.

    Args:
        D: target distances: a `PointCloud` for many positions, `Distances` or `[n, n]`.
        init: "classical" as in `smacof`; "random", normal with the size of the targets, which in
            more than a few dimensions takes several times the steps; or an array `[n, dim]`.
        steps: matchings.
        rate: µ at the start, at most 1.
        pairs: random pairs on which start and end are compared; the better one is returned.
        confidence: confidence of the intervals of the stress.

    Raises:
        ValueError: a start of another shape, fewer than one step or pair, or a rate outside (0, 1].

    >>> D = euclidean_distances(np.random.default_rng(0).standard_normal((40, 3)))
    >>> fit = stochastic_mds(D, dim=2, key=jax.random.key(0), steps=500, pairs=1000)
    >>> bool(fit.stress.stress < 0.7 * fit.initial_stress.stress)
    True
    """
    check_size("steps", steps, each=4)
    if not 0 < rate <= 1:
        raise InputError(f"rate must lie in (0, 1], not {rate}")
    D = _source(D, as_distances)
    judging, moving, starting = jax.random.split(key, 3)
    if isinstance(init, str) and init == "random":
        init = random_configuration(D, starting, dim)
    start = first_configuration(D, dim, init)
    rates = rate * (1.0 - jnp.arange(steps, dtype=start.dtype) / steps) ** 2
    end = centre_rows(_moved_points(start, D, jax.random.split(moving, steps), rates), D.present)
    judge = partial(sampled_stress, D=D, key=judging, pairs=pairs, confidence=confidence)
    both = jax.vmap(judge)(jnp.stack([start, end]))  # over the same pairs
    before, after = (SampledStress(*(x[k] for x in both)) for k in (0, 1))
    pick = partial(jnp.where, after.stress < before.stress)
    return StochasticMDS(pick(end, start), jax.tree.map(pick, after, before), before)


def sampled_stress(
    P: Configuration,
    D: Targets,
    *,
    key: Array,
    pairs: int = 1_000_000,
    confidence: float = 0.95,
) -> SampledStress:
    """`stress`, Σ(δ − d)² / Σ d² over pairs drawn at random, in O(pairs · (d + k)) time.

    It is a ratio of two means over independent pairs, with a normal interval by the delta method.
    The interval is too narrow below about 200 pairs, or where a few pairs carry the sum.

    >>> P = np.random.default_rng(0).standard_normal((40, 2))
    >>> D = euclidean_distances(2.0 * P)
    >>> sampled_stress(P, D, key=jax.random.key(0)).stress.round(6).item()
    0.25
    """
    check_size("pairs", pairs, each=4)
    check_confidence(confidence)
    P, D = _source(P, as_points), _source(D, as_distances)
    if len(P.present) != len(D.present):
        raise ValueError(
            f"the encoding has {len(P.present)} positions and the targets {len(D.present)}: pass "
            "as many of each"
        )
    width = coordinate_count(P) + coordinate_count(D)
    residuals, targets = draw_in_parts(key, P, D, draw=_draw_terms, number=pairs, width=width)
    size = jnp.sum(targets)
    value = ratio_of_sums(jnp.sum(residuals), size)
    z = statistics.NormalDist().inv_cdf(0.5 * (1.0 + confidence))
    spread = safe_sqrt(jnp.sum((residuals - jnp.where(size > 0, value, 0.0) * targets) ** 2))
    half = jnp.where(size == 0, 0.0, z * ratio_of_sums(spread, size))
    return SampledStress(value, jnp.maximum(value - half, 0.0), value + half)


def _draw_terms(
    key: Array, part: int, P: Distances | PointCloud, D: Distances | PointCloud
) -> tuple[Array, Array]:
    """(δ − d)² and d² of random pairs."""
    i, j = draw_positions(key, P.present & D.present, (2, part))
    delta = distances_at(P, i, j)
    d = distances_at(D, i, j).astype(delta.dtype)
    return (delta - d) ** 2, d**2


def _source(D: Targets | Configuration, otherwise) -> Distances | PointCloud:
    """Source of distances: a matrix or points. A plain array is converted by `otherwise`."""
    if isinstance(D, Distances):
        return as_distances(D)
    return as_points(D) if isinstance(D, PointCloud) else otherwise(D)


@jax.jit
def _moved_points(X: Array, D: Distances | PointCloud, keys: Array, rates: Array) -> Array:
    """Points after all steps."""
    return jax.lax.scan(lambda X, now: (_move_pairs(X, D, *now), None), X, (keys, rates))[0]


def _move_pairs(X: Array, D: Distances | PointCloud, key: Array, rate: Array) -> Array:
    """Move the pairs of a random matching; pairs with an absent position stay."""
    half = len(X) // 2
    order = jax.random.permutation(key, jnp.arange(len(X), dtype=jnp.int32))
    i, j = order[:half], order[half : 2 * half]
    difference = X[i] - X[j]
    delta = safe_sqrt(jnp.sum(difference**2, axis=1))
    moves = D.present[i] & D.present[j] & (delta != 0)
    d = distances_at(D, i, j).astype(X.dtype)
    share = jnp.where(moves, 0.5 * rate * (delta - d) / jnp.where(moves, delta, 1.0), 0.0)
    moved = share[:, None] * difference
    return X.at[i].add(-moved, unique_indices=True).at[j].add(moved, unique_indices=True)
