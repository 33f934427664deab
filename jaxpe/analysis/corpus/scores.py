"""Scores of the encodings in a report."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.arrays import ArrayLike
from jaxpe.analysis.corpus.result import EncodingScore
from jaxpe.analysis.corpus.vectors import EncodingVectors, columns
from jaxpe.geometry import PositionGeometry


def score_encodings(
    D: jaxpe.Distances,
    geometry: PositionGeometry,
    mds: jaxpe.ClassicalMDS,
    encodings: Sequence[EncodingVectors],
    *,
    dim: int,
) -> list[EncodingScore]:
    """Scores of classical MDS and of encodings.

    Args:
        D, geometry, mds: observed distances, geometry of position, and MDS of full width.
        encodings: position vectors of encodings.
        dim: width of the report.
    """
    n, rank = len(D.values), min(dim, int(mds.rank))
    note, size = f"classical MDS, rank {rank}", min(rank * (n + dim), n * dim)
    rows = [(("mds", "fitted", dim, size), note, columns(mds.coordinates, dim)[None])]
    for entry, vectors, parameters in encodings:
        note = entry.vectors + f"; mean of {len(vectors)} draws" * (len(vectors) > 1)
        row = (entry.name, entry.family, vectors.shape[-1], parameters)
        rows.append((row, note, vectors))
    widest = max(vectors.shape[-1] for *_, vectors in rows)  # one shape, compiled once
    position = geometry.distances
    return [
        _score(row, columns(vectors, widest), D, position, note=note) for row, note, vectors in rows
    ]


def _score(
    row: tuple[str, str, int, int],
    vectors: np.ndarray,
    D: jaxpe.Distances,
    position: jaxpe.Distances,
    *,
    note: str,
) -> EncodingScore:
    """Means of the scores over draws `[draws, n, columns]`, and the distances of the first."""
    scores = jax.device_get([_scores(P, D, position) for P in vectors])
    means = {name: float(np.mean([each[name] for each in scores])) for name in scores[0]}
    distances = jaxpe.euclidean_distances(vectors[0], present=D.present).values
    return EncodingScore(*row, **means, distances=np.asarray(distances), note=note)


@jax.jit
def _scores(P: ArrayLike, D: jaxpe.Distances, position: jaxpe.Distances) -> dict[str, jax.Array]:
    """All scores of one encoding."""
    delta, any_position = jaxpe.euclidean_distances(P, present=D.present), position.present.any()
    return {
        "scaled_stress": jaxpe.scaled_stress(delta, D).stress,
        "position_scaled_stress": jnp.where(
            any_position, jaxpe.scaled_stress(delta, position).stress, jnp.nan
        ),
        "violation_rate": jaxpe.monotonicity_violation_rate(delta),
        "mantel_r": jnp.where(any_position, jaxpe.mantel_correlation(delta, position), jnp.nan),
    }
