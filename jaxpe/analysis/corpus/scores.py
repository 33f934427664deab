"""Scores of the encodings in a report."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.arrays import ArrayLike
from jaxpe.analysis.corpus.result import EncodingScore
from jaxpe.analysis.corpus.vectors import (
    RANDOM_DRAWS,
    columns,
    fixed_vectors,
    random_vectors,
    scored_entries,
    sizes_of,
    widths_of,
)
from jaxpe.geometry import PositionGeometry


def score_encodings(
    D: jaxpe.Distances,
    geometry: PositionGeometry,
    mds: jaxpe.ClassicalMDS,
    *,
    dim: int,
    key: jax.Array,
    encodings: Sequence[str | jaxpe.encodings.CatalogueEntry] = (),
) -> list[EncodingScore]:
    """Scores of classical MDS, of every encoding of the catalogue, and of further ones.

    Args:
        D, geometry, mds: observed distances, geometry of position, and MDS of full width.
        dim: width of the encodings.
        key: PRNG key of random encodings.
        encodings: encodings besides the catalogue.
    """
    n, rank = len(D.values), min(dim, int(mds.rank))
    rows: list[tuple[dict[str, Any], np.ndarray]] = [
        (
            {
                "name": "mds",
                "family": "fitted",
                "note": f"classical MDS, rank {rank}",
                "parameters": min(rank * (n + dim), n * dim),
            },
            columns(mds.coordinates, dim)[None],
        )
    ]
    entries = tuple(scored_entries(encodings))
    fixed, at = fixed_vectors(n, dim, entries), widths_of(dim).index(dim)
    random = jax.device_get(random_vectors(key, entries=entries, sizes=sizes_of(dim, n)))
    for entry in entries:
        fields = {"name": entry.name, "family": entry.family, "note": entry.vectors}
        if entry.name in random:
            vectors, gradients = random[entry.name]
            fields["note"] += f"; mean of {RANDOM_DRAWS} draws"
            trained = sum(leaf.size for leaf in gradients if np.any(leaf))
            rows.append((fields | {"parameters": trained}, vectors))
        else:
            rows.append((fields | {"parameters": 0}, fixed[entry.name][at][None]))
    widest = max(vectors.shape[-1] for _, vectors in rows)  # one shape, compiled once
    return [
        _score(fields, columns(vectors, widest), D, geometry.distances, dim=vectors.shape[-1])
        for fields, vectors in rows
    ]


def _score(
    fields: dict[str, Any],
    vectors: np.ndarray,
    D: jaxpe.Distances,
    position: jaxpe.Distances,
    *,
    dim: int,
) -> EncodingScore:
    """Means of the scores over draws `[draws, n, columns]`, and the distances of the first."""
    scores = jax.device_get([_scores(P, D, position) for P in vectors])
    means: dict[str, Any] = {
        name: float(np.mean([row[name] for row in scores])) for name in scores[0]
    }
    distances = jaxpe.euclidean_distances(vectors[0], present=D.present).values
    return EncodingScore(**fields, dim=dim, **means, distances=np.asarray(distances))


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
        "min_separation": jaxpe.min_separation(delta),
    }
