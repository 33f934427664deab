"""Noise, composition and position: their shares of the observed variance, with intervals."""

import math

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe.analysis.corpus.result import Interval, Position
from jaxpe.analysis.corpus.where import half_distance
from jaxpe.geometry import (
    Estimate,
    PositionCounts,
    PositionGeometry,
    PositionHalves,
    SignificantRank,
    VarianceShares,
    classical_mds_from_gram,
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


def leading_coordinates(geometry: PositionGeometry, *, dim: int) -> np.ndarray:
    """Classical MDS of position alone, `[n, at least 3 and at most dim]`."""
    width = max(3, min(dim, len(geometry.gram)))
    mds = classical_mds_from_gram(geometry.gram, dim=width, present=geometry.present)
    return np.asarray(mds.coordinates)


def stored_position(
    geometry: PositionGeometry,
    halves: PositionHalves,
    rank: SignificantRank,
    coordinates: np.ndarray,
    errors: np.ndarray,
    by_offset: Estimate,
) -> Position:
    """The geometry of position as a report stores it."""
    present = np.asarray(geometry.present)
    return Position(
        trace=float(geometry.trace) if present.any() else math.nan,
        eigenvalues=np.asarray(geometry.eigenvalues),
        significant_rank=max(int(rank.rank), 0),
        p_value=float(rank.p_value),
        rank_eigenvalues=np.asarray(rank.eigenvalues),
        null_eigenvalue=float(rank.threshold) + 0.0,  # no −0
        present=present,
        standard_errors=errors,
        squared_distances=np.asarray(geometry.squared_distances),
        coordinates=coordinates[:, :3],
        composition_correlation=float(composition_correlation(geometry)),
        by_offset=np.stack([by_offset.value, by_offset.low, by_offset.high]),
        half_distance=half_distance(by_offset, geometry, halves) if rank.rank > 0 else None,
    )


@jax.jit
def composition_correlation(geometry: PositionGeometry) -> jax.Array:
    """|r| of the first eigenvectors of position and of rotated documents; both are centred."""
    position = jnp.linalg.eigh(geometry.gram)[1][:, -1]
    composition = jnp.linalg.eigh(geometry.split_half.gram - geometry.gram)[1][:, -1]
    return jnp.where(geometry.present.any(), jnp.abs(position @ composition), jnp.nan)
