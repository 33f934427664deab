"""Noise, composition and position: their shares of the observed variance, with intervals."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe.analysis.corpus.result import Interval, Observed, Position
from jaxpe.analysis.corpus.where import half_distance, over_half_of_mean
from jaxpe.geometry import (
    Distances,
    PositionCounts,
    classical_mds_from_gram,
    position_intervals,
    position_rank,
    variance_shares,
)
from jaxpe.geometry.counts.distributions import EmptyPolicy
from jaxpe.geometry.distances.matrices import centre_rows, distances_from_gram, hellinger_roots
from jaxpe.geometry.mds.classical import ClassicalMDS
from jaxpe.geometry.noise.cross_validation import PositionHalves
from jaxpe.geometry.noise.position import PositionGeometry
from jaxpe.geometry.noise.position_intervals import Estimate, PositionIntervals, VarianceShares
from jaxpe.geometry.noise.significant_rank import SignificantRank


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
    roots = hellinger_roots(jaxpe.geometry.positional_distributions(counts))[0]
    return jnp.sum(centre_rows(roots, present) ** 2)


class ObservedGeometry(NamedTuple):
    """Geometry of the observed frequencies.

    Attributes:
        distances, mds: distances, and their MDS at full width.
        trace: `plug_in_trace`.
        errors: split-half error of each position, `[n]`.
    """

    distances: Distances
    mds: ClassicalMDS
    trace: jax.Array
    errors: jax.Array


@partial(jax.jit, static_argnames="empty")
def observed_geometry(
    counts: PositionCounts, shown: PositionCounts, present: jax.Array, *, empty: EmptyPolicy
) -> ObservedGeometry:
    """All numbers of observed frequencies, in one program.

    Args:
        counts: counts `[n, vocab]` of the words that occur.
        shown: counts of the words that distances are over.
        present: positions that the geometry of position judges, `[n]`.
        empty: distribution of an empty position.
    """
    mu = jaxpe.geometry.positional_distributions(shown, empty=empty)
    gram = jaxpe.geometry.hellinger_gram(mu)
    return ObservedGeometry(
        distances=distances_from_gram(gram, present=mu.present),
        mds=classical_mds_from_gram(gram, dim=len(gram), present=mu.present),
        trace=plug_in_trace(counts, present),
        errors=jaxpe.geometry.noise_floor(counts).split_half_error,
    )


class PositionNumbers(NamedTuple):
    """Numbers of the geometry of position.

    Attributes:
        rank: parallel analysis.
        eigenvalues, trace, distances: properties of the geometry.
        split_half_trace: trace with composition.
        coordinates: classical MDS of position alone, `[n, at least 3 and at most dim]`.
        composition_correlation: absolute correlation of the first eigenvectors of position and of
            composition.
        shares, intervals: `variance_shares` and `position_intervals`.
        over_half: `over_half_of_mean`.
    """

    rank: SignificantRank
    eigenvalues: jax.Array
    trace: jax.Array
    distances: Distances
    split_half_trace: jax.Array
    coordinates: jax.Array
    composition_correlation: jax.Array
    shares: VarianceShares
    intervals: PositionIntervals
    over_half: jax.Array


@partial(jax.jit, static_argnames="dim")
def position_numbers(
    geometry: PositionGeometry, halves: PositionHalves, observed: jax.Array, *, dim: int
) -> PositionNumbers:
    """All numbers of the geometry of position, in one program.

    Args:
        geometry, halves: geometry of all documents, and of their halves.
        observed: trace of the plug-in Gram matrix over the positions that are present.
        dim: most dimensions of the coordinates.
    """
    some, split_half = geometry.present.any(), geometry.split_half
    defined = lambda x: jnp.where(some, x, jnp.nan)  # noqa: E731
    width = max(3, min(dim, len(geometry.gram)))
    mds = classical_mds_from_gram(geometry.gram, dim=width, present=geometry.present)
    position = jnp.linalg.eigh(geometry.gram)[1][:, -1]
    composition = jnp.linalg.eigh(split_half.gram - geometry.gram)[1][:, -1]
    intervals = position_intervals(geometry, halves)
    return PositionNumbers(
        rank=position_rank(geometry),
        eigenvalues=geometry.eigenvalues,
        trace=defined(geometry.trace),
        distances=geometry.distances,
        split_half_trace=defined(split_half.trace),
        coordinates=mds.coordinates,
        composition_correlation=defined(jnp.abs(position @ composition)),
        shares=variance_shares(geometry, halves, observed),
        intervals=intervals,
        over_half=over_half_of_mean(intervals.by_offset.value, geometry, halves),
    )


def stored_observed(observed: ObservedGeometry, numbers: PositionNumbers) -> Observed:
    """The geometry of the observed frequencies as a report stores it."""
    return Observed(
        rank=int(observed.mds.rank),
        eigenvalues=np.asarray(observed.mds.eigenvalues),
        present=np.asarray(observed.distances.present),
        distances=np.asarray(observed.distances.values),
        split_half_trace=float(numbers.split_half_trace),
    )


def stored_position(
    geometry: PositionGeometry, numbers: PositionNumbers, errors: np.ndarray
) -> Position:
    """The geometry of position as a report stores it."""
    rank, by_offset = numbers.rank, numbers.intervals.by_offset
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
        half_distance=half_distance(np.asarray(numbers.over_half)) if rank.rank > 0 else None,
    )
