"""Scores of the encodings in a report, and stress by width."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.arrays import ArrayLike
from jaxpe.analysis.corpus.result import EncodingScore, StressByDimension
from jaxpe.analysis.corpus.vectors import (
    ALIBI_HEADS,
    RANDOM_DRAWS,
    columns,
    fixed_vectors,
    random_vectors,
    scored_entries,
    sizes_of,
    widths_of,
)
from jaxpe.geometry import PositionGeometry

# Wide encodings, to which narrow ones are not padded.
_NARROW, _FEW_COLUMNS = 32, 128
_sinusoidal_vectors = jax.jit(jaxpe.sinusoidal_vectors, static_argnames="dim")
SLOPES = tuple(map(float, jaxpe.encodings.alibi_slopes(ALIBI_HEADS)))


def score_encodings(
    D: jaxpe.Distances,
    geometry: PositionGeometry,
    mds: jaxpe.ClassicalMDS,
    refined: ArrayLike,
    key: jax.Array,
    encodings: Sequence[str | jaxpe.encodings.CatalogueEntry] = (),
) -> list[EncodingScore]:
    """Scores of every encoding of the catalogue and of further ones; ALiBi at its best slope.

    Args:
        D, geometry, mds: plug-in distances, geometry of position, and MDS of full width.
        refined: coordinates `[n, dim]` of SMACOF; other encodings have the same width.
        key: PRNG key of random encodings.
        encodings: encodings besides the catalogue.
    """
    n, dim = refined.shape
    rank = min(dim, int(mds.rank))
    fitted = {"family": "fitted", "fitted": True, "parameters": min(rank * (n + dim), n * dim)}
    rows: list[tuple[dict[str, Any], ArrayLike]] = [
        (
            {"name": "mds", "note": f"classical MDS, rank {rank}", **fitted},
            columns(mds.coordinates, dim)[None],
        ),
        ({"name": "smacof", "note": "stress minimised from MDS", **fitted}, refined[None]),
    ]
    entries = tuple(scored_entries(encodings))
    fixed, at = fixed_vectors(n, dim, entries), widths_of(dim).index(dim)
    random = jax.device_get(random_vectors(key, entries=entries, sizes=sizes_of(dim, n)))
    for entry in entries:
        fields: dict[str, Any] = {"name": entry.name, "family": entry.family, "note": entry.vectors}
        fields |= {"fitted": False, "parameters": 0}
        if entry.name == "alibi":
            line = fixed["alibi"][0]
            slope = min(SLOPES, key=lambda slope: float(jaxpe.stress(slope * line, D)))
            vectors = slope * line[None]
            fields["note"] += f", at slope {slope:.3g}, its best standard one"
        elif entry.name in random:
            vectors, gradients = random[entry.name]
            fields["note"] += f"; mean of {RANDOM_DRAWS} draws"
            fields["parameters"] = sum(leaf.size for leaf in gradients if np.any(leaf))
        else:
            vectors = fixed[entry.name][at][None]
        rows.append((fields, vectors))
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
        "stress": jaxpe.stress(delta, D),
        "scaled_stress": jaxpe.scaled_stress(delta, D).stress,
        "kruskal_stress1": jaxpe.kruskal_stress1(delta, D),
        "position_scaled_stress": jnp.where(
            any_position, jaxpe.scaled_stress(delta, position).stress, jnp.nan
        ),
        "violation_rate": jaxpe.monotonicity_violation_rate(delta),
        "mantel_r": jnp.where(any_position, jaxpe.mantel_correlation(delta, position), jnp.nan),
        "min_separation": jaxpe.min_separation(delta),
    }


def stress_by_dimension(
    D: jaxpe.Distances, mds: jaxpe.ClassicalMDS, dim: int
) -> tuple[StressByDimension, np.ndarray]:
    """Stress and scaled stress of MDS, SMACOF and sinusoids at widths 2, 4, 8, ... (Figure 4).

    Returns the coordinates `[n, dim]` of SMACOF as well.
    """
    n = len(D.values)
    widths = [2**k for k in range(1, 12) if 2**k <= max(dim, n, 2)]
    largest, refined = max(*widths, dim), np.empty(0)
    names = ("mds", "smacof", "sinusoidal")
    raw: dict[str, list[float]] = {name: [] for name in names}
    scaled: dict[str, list[float]] = {name: [] for name in names}
    for width in sorted({*widths, dim}):
        # Columns of zeros stay zero in MDS and SMACOF, so few shapes are compiled.
        padded = _NARROW if width <= _NARROW and largest > _FEW_COLUMNS else largest
        start = columns(columns(mds.coordinates, width), padded)
        smacof = jaxpe.smacof(D, dim=padded, init=start, max_iterations=300).coordinates
        if width == dim:
            refined = columns(smacof, dim)
        if width in widths:
            waves = columns(_sinusoidal_vectors(jnp.arange(n), dim=width), padded)
            for name, P in zip(names, (start, smacof, waves), strict=True):
                raw[name].append(float(jaxpe.stress(P, D)))
                scaled[name].append(float(jaxpe.scaled_stress(P, D).stress))
    stresses = ({name: np.array(x) for name, x in each.items()} for each in (raw, scaled))
    return StressByDimension(np.array(widths), *stresses), refined
