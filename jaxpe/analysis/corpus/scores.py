"""Scores of the encodings in a report."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe import geometry
from jaxpe._core.arrays import ArrayLike
from jaxpe.analysis.corpus.result import EncodingScore
from jaxpe.analysis.corpus.vectors import EncodingVectors, columns
from jaxpe.geometry.mds.classical import ClassicalMDS


def score_encodings(
    D: geometry.Distances,
    position: geometry.Distances,
    mds: ClassicalMDS,
    encodings: Sequence[EncodingVectors],
    *,
    dim: int,
) -> list[EncodingScore]:
    """Scores of classical MDS and of encodings.

    Args:
        D, position, mds: distances observed and of position alone, and MDS of full width.
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
    draws = [len(vectors) for *_, vectors in rows]
    first = np.cumsum([0, *draws[:-1]])
    every = np.concatenate([columns(vectors, widest) for *_, vectors in rows])
    scores, distances = jax.device_get(_scores(every, first, D, position))
    means = {name: np.add.reduceat(x.astype(float), first) / draws for name, x in scores.items()}
    return [
        EncodingScore(
            *row, **{name: float(x[i]) for name, x in means.items()}, distances=values, note=note
        )
        for i, ((row, note, _), values) in enumerate(zip(rows, distances, strict=True))
    ]


@jax.jit
def _scores(
    vectors: ArrayLike,
    first: ArrayLike,
    D: geometry.Distances,
    position: geometry.Distances,
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Scores of all vectors `[rows, n, columns]`, and the distances of the first rows."""
    any_position = position.present.any()
    distances = partial(geometry.euclidean_distances, present=D.present)

    def score(P: jax.Array) -> dict[str, jax.Array]:
        delta = distances(P)
        fit, r = (
            geometry.scaled_stress(delta, position),
            geometry.mantel_correlation(delta, position),
        )
        return {
            "scaled_stress": geometry.scaled_stress(delta, D).stress,
            "position_scaled_stress": jnp.where(any_position, fit.stress, jnp.nan),
            "violation_rate": geometry.monotonicity_violation_rate(delta),
            "mantel_r": jnp.where(any_position, r, jnp.nan),
        }

    scored = jax.lax.map(score, jnp.asarray(vectors))
    return scored, jax.lax.map(lambda P: distances(P).values, jnp.asarray(vectors)[first])
