"""Noise, composition and position: their shares of the observed variance, with intervals."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe.analysis.corpus.result import Interval, Position
from jaxpe.analysis.corpus.where import half_distance
from jaxpe.geometry import (
    Distances,
    Estimate,
    PositionCounts,
    PositionGeometry,
    PositionHalves,
    PositionIntervals,
    SignificantRank,
    VarianceShares,
    classical_mds_from_gram,
    position_intervals,
    position_rank,
    variance_shares,
)
from jaxpe.geometry.distances.matrices import centre_rows, hellinger_roots


def defined_intervals(shares: VarianceShares, nearness: Estimate) -> dict[str, Interval]:
    """Defined intervals of shares and nearness, by name."""
    estimates = {f"{name}_share": share for name, share in shares._asdict().items()}
    intervals = {
        name: Interval(float(estimate.value), float(estimate.low), float(estimate.high))
        for name, estimate in (estimates | {"nearness": nearness}).items()
    }
    return {name: x for name, x in intervals.items() if math.isfinite(sum(x))}


@jax.jit
def plug_in_trace(counts: PositionCounts, present: jax.Array) -> jax.Array:
    """Trace of the plug-in Gram matrix of the positions that are present alone."""
    roots = hellinger_roots(jaxpe.positional_distributions(counts))[0]
    return jnp.sum(centre_rows(roots, present) ** 2)


@jax.jit
def sampling_noise(counts: PositionCounts, present: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`plug_in_trace`, and the split-half error of each position, in one program."""
    return plug_in_trace(counts, present), jaxpe.noise_floor(counts).split_half_error


class PositionNumbers(NamedTuple):
    """Numbers of the geometry of position.

    Attributes:
        rank: parallel analysis.
        eigenvalues, trace, distances: properties of the geometry.
        split_half_trace: trace with composition.
        coordinates: classical MDS of position alone, `[n, at least 3 and at most dim]`.
        composition_correlation: absolute correlation of the first eigenvectors of position and of
            composition.
    """

    rank: SignificantRank
    eigenvalues: jax.Array
    trace: jax.Array
    distances: Distances
    split_half_trace: jax.Array
    coordinates: jax.Array
    composition_correlation: jax.Array


@partial(jax.jit, static_argnames="dim")
def position_numbers(geometry: PositionGeometry, *, dim: int) -> PositionNumbers:
    """All numbers of the geometry of position, in one program."""
    some, split_half = geometry.present.any(), geometry.split_half
    defined = lambda x: jnp.where(some, x, jnp.nan)  # noqa: E731
    width = max(3, min(dim, len(geometry.gram)))
    mds = classical_mds_from_gram(geometry.gram, dim=width, present=geometry.present)
    position = jnp.linalg.eigh(geometry.gram)[1][:, -1]
    composition = jnp.linalg.eigh(split_half.gram - geometry.gram)[1][:, -1]
    return PositionNumbers(
        rank=position_rank(geometry),
        eigenvalues=geometry.eigenvalues,
        trace=defined(geometry.trace),
        distances=geometry.distances,
        split_half_trace=defined(split_half.trace),
        coordinates=mds.coordinates,
        composition_correlation=defined(jnp.abs(position @ composition)),
    )


class PositionEstimates(NamedTuple):
    """Intervals of a geometry of position, and the shares of the observed variance."""

    shares: VarianceShares
    intervals: PositionIntervals


@jax.jit
def position_estimates(
    geometry: PositionGeometry, halves: PositionHalves, observed: jax.Array
) -> PositionEstimates:
    """`variance_shares` and `position_intervals`, in one program.

    Args:
        geometry, halves: geometry of all documents, and of their halves.
        observed: trace of the plug-in Gram matrix over the positions that are present.
    """
    shares = variance_shares(geometry, halves, observed)
    return PositionEstimates(shares, position_intervals(geometry, halves))


def stored_position(
    geometry: PositionGeometry,
    halves: PositionHalves,
    numbers: PositionNumbers,
    errors: np.ndarray,
    by_offset: Estimate,
) -> Position:
    """The geometry of position as a report stores it."""
    rank = numbers.rank
    return Position(
        trace=float(numbers.trace),
        eigenvalues=np.asarray(numbers.eigenvalues),
        significant_rank=max(int(rank.rank), 0),
        p_value=float(rank.p_value),
        rank_eigenvalues=np.asarray(rank.eigenvalues),
        null_eigenvalue=float(rank.threshold) + 0.0,  # no −0
        present=np.asarray(geometry.present),
        standard_errors=errors,
        squared_distances=np.asarray(geometry.squared_distances),
        coordinates=np.asarray(numbers.coordinates[:, :3]),
        composition_correlation=float(numbers.composition_correlation),
        by_offset=np.stack([by_offset.value, by_offset.low, by_offset.high]),
        half_distance=half_distance(by_offset, geometry, halves) if rank.rank > 0 else None,
    )
