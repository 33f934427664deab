"""The encodings of a report: every score of each, and stress by width."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.arrays import ArrayLike
from jaxpe._core.compiled import compiled
from jaxpe.analysis.corpus.result import EncodingScore, StressByDimension
from jaxpe.analysis.corpus.vectors import (
    ALIBI_HEADS,
    RANDOM_DRAWS,
    columns,
    scored_entries,
    vectors_at,
)
from jaxpe.analysis.corpus.violations import violation_rates
from jaxpe.geometry import PositionGeometry

# Widths that have a loop of their own, where others have more columns than a few: of few columns a
# second loop takes as long to compile as it saves.
_NARROW, _FEW_COLUMNS = 32, 128
SLOPES = tuple(map(float, jaxpe.encodings.alibi_slopes(ALIBI_HEADS)))


class _Scored(NamedTuple):
    """Scores as arrays: of both fitted encodings, of all entries and of ALiBi's lines.

    Attributes:
        vectors: `[draws of all encodings, n, width of the widest]`.
        values: values by name, each `[draws of all encodings]`.
        distances: `[2 + entries, n, n]`, of the first draw.
        lines: stress of ALiBi's line at each standard slope, `[heads]`.
    """

    vectors: jax.Array
    values: dict[str, jax.Array]
    distances: jax.Array
    lines: jax.Array


def score_encodings(
    D: jaxpe.Distances,
    geometry: PositionGeometry,
    mds: jaxpe.ClassicalMDS,
    refined: jax.Array,
    key: jax.Array,
    encodings: Sequence[str | jaxpe.encodings.CatalogueEntry] = (),
) -> list[EncodingScore]:
    """Every encoding, also those named beside the catalogue; ALiBi at its best standard slope.

    Args:
        D, geometry, mds: plug-in distances, geometry of position, and MDS of full width.
        refined: coordinates `[n, dim]` of SMACOF; the others are of this width, too.
        key: PRNG key of encodings that are drawn.
        encodings: further ones.
    """
    n, dim = refined.shape
    entries = tuple(scored_entries(encodings))
    vectors, trainable = vectors_at(key, n, dim, entries)
    scored = _scored(D, geometry, mds.coordinates, refined, vectors)
    rates = violation_rates(np.asarray(scored.vectors), D.present)
    found, rates = jax.device_get((scored, rates))
    widths = [1 if own is None else own.shape[-1] for own in vectors]
    slope = SLOPES[int(np.argmin(found.lines))]
    rank = min(dim, int(mds.rank))
    fitted = {
        "family": "fitted",
        "dim": dim,
        "parameters": min(rank * (n + dim), n * dim),
        "fitted": True,
    }
    known: list[dict[str, Any]] = [
        {"name": "mds", "note": f"classical MDS, rank {rank}", **fitted},
        {"name": "smacof", "note": "stress minimised from MDS", **fitted},
        *(
            _known(entry, own, width, slope)
            for entry, own, width in zip(entries, trainable, widths, strict=True)
        ),
    ]
    draws = _draws_of_each(vectors)
    measured = {
        name: (np.add.reduceat(value, _firsts(draws)) / draws).tolist()
        for name, value in (found.values | {"violation_rate": rates}).items()
    }
    rows = [dict(zip(measured, row, strict=True)) for row in zip(*measured.values(), strict=True)]
    return [
        EncodingScore(**of, **row, distances=own)
        for of, row, own in zip(known, rows, found.distances, strict=True)
    ]


def _known(
    entry: jaxpe.encodings.CatalogueEntry,
    trainable: list[np.ndarray],
    width: int,
    slope: float,
) -> dict[str, Any]:
    """Fields of an entry other than its scores."""
    note = entry.vectors
    if entry.name == "alibi":
        note = f"{note}, at slope {slope:.3g}, its best standard one"
    if trainable:
        note = f"{note}; mean of {RANDOM_DRAWS} draws"
    return {
        "name": entry.name,
        "family": entry.family,
        "dim": width,
        "parameters": sum(leaf.size for leaf in trainable if np.any(leaf)),
        "note": note,
        "fitted": False,
    }


@compiled()
def _scored(
    D: jaxpe.Distances,
    geometry: PositionGeometry,
    coordinates: jax.Array,
    refined: jax.Array,
    vectors: Sequence[ArrayLike | None],
) -> _Scored:
    """Scores of all encodings, computed by one program."""
    positions, corrected = jnp.arange(len(coordinates)), geometry.distances
    lines = jnp.stack([jaxpe.encodings.alibi_line(positions, slope=slope) for slope in SLOPES])
    stress_of_lines = jax.lax.map(lambda line: jaxpe.stress(line, D), lines)
    # Of one head: the slopes of several would only multiply the line.
    line = lines[jnp.argmin(stress_of_lines)][None]
    drawn = [columns(coordinates, refined.shape[-1])[None], refined[None]]
    drawn += [line if own is None else jnp.asarray(own) for own in vectors]
    widest = max(vectors.shape[-1] for vectors in drawn)
    stacked = jnp.concatenate([columns(vectors, widest) for vectors in drawn])
    measured = jax.lax.map(lambda P: _measures(P, D, corrected), stacked)
    distances = jax.lax.map(
        lambda P: jaxpe.euclidean_distances(P, present=D.present).values,
        stacked[_firsts(_draws_of_each(vectors))],
    )
    return _Scored(stacked, measured, distances, stress_of_lines)


def _draws_of_each(vectors: Sequence[ArrayLike | None]) -> list[int]:
    """Number of draws of each encoding, the two that are fitted first."""
    return [1, 1, *(1 if own is None else len(own) for own in vectors)]


def _firsts(draws: list[int]) -> np.ndarray:
    """Index of the first draw of each encoding among all."""
    return np.cumsum([0, *draws[:-1]])


def _measures(P: jax.Array, D: jaxpe.Distances, corrected: jaxpe.Distances) -> dict[str, jax.Array]:
    """All scores of one encoding."""
    delta = jaxpe.euclidean_distances(P, present=D.present)
    return {
        "stress": jaxpe.stress(delta, D),
        "scaled_stress": jaxpe.scaled_stress(delta, D).stress,
        "kruskal_stress1": jaxpe.kruskal_stress1(delta, D),
        "position_scaled_stress": jnp.where(
            corrected.present.any(), jaxpe.scaled_stress(delta, corrected).stress, jnp.nan
        ),
        "pearson_r": jaxpe.mantel_correlation(delta, D),
        "min_separation": jaxpe.min_separation(delta),
    }


def _refined(D: jaxpe.Distances, start: jax.Array) -> jax.Array:
    return jaxpe.smacof(D, dim=start.shape[1], init=start, max_iterations=300).coordinates


def stress_by_dimension(
    D: jaxpe.Distances, mds: jaxpe.ClassicalMDS, dim: int
) -> tuple[StressByDimension, jax.Array]:
    """Stress and scaled stress of MDS, SMACOF and sinusoids at widths 2, 4, 8, ... (Figure 4).

    And the coordinates `[n, dim]` of SMACOF.
    """
    widths = _widths(D.values.shape[0], dim)
    found, refined = _by_width(D, mds.coordinates, widths=widths, dim=dim)
    return StressByDimension(np.array(widths), *jax.tree.map(np.asarray, found)), refined


def _widths(n: int, dim: int) -> tuple[int, ...]:
    return tuple(2**k for k in range(1, 12) if 2**k <= max(dim, n, 2))


Stresses: TypeAlias = tuple[dict[str, jax.Array], dict[str, jax.Array]]  # raw, and scaled


@compiled(static=("widths", "dim"))
def _by_width(
    D: jaxpe.Distances, coordinates: jax.Array, *, widths: tuple[int, ...], dim: int
) -> tuple[Stresses, jax.Array]:
    every = tuple(sorted({*widths, dim}))
    groups = [every]
    if max(every) > _FEW_COLUMNS:
        narrow = sum(width <= _NARROW for width in every)
        groups = [every[:narrow], every[narrow:]]
    found, refined = zip(*(_of_widths(D, coordinates, own, dim) for own in groups), strict=True)
    shown = np.array([width in widths for width in every])
    stresses = jax.tree.map(lambda *parts: jnp.concatenate(parts)[shown], *found)
    return stresses, refined[[dim in own for own in groups].index(True)]


def _of_widths(
    D: jaxpe.Distances, coordinates: jax.Array, widths: tuple[int, ...], dim: int
) -> tuple[Stresses, jax.Array]:
    """Stress and scaled stress at ascending widths, by one loop over arrays of the largest.

    And the coordinates of SMACOF at width dim, where it is one of them.
    """
    largest = widths[-1]
    waves = [jaxpe.sinusoidal_vectors(jnp.arange(len(D.values)), dim=width) for width in widths]
    whole = columns(coordinates, largest)

    def at(kept: jax.Array, given: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, Stresses]:
        width, sinusoidal = given
        # Columns of zeros stay so, in MDS and in SMACOF: one program serves all widths.
        mds = jnp.where(jnp.arange(largest) < width, whole, 0.0)
        encodings = {"mds": mds, "smacof": _refined(D, mds), "sinusoidal": sinusoidal}
        raw = {name: jaxpe.stress(P, D) for name, P in encodings.items()}
        scaled = {name: jaxpe.scaled_stress(P, D).stress for name, P in encodings.items()}
        return jnp.where(width == dim, encodings["smacof"], kept), (raw, scaled)

    stacked = jnp.stack([columns(wave, largest) for wave in waves])
    start = jnp.zeros_like(whole)
    refined, found = jax.lax.scan(at, start, (jnp.array(widths), stacked))
    return found, columns(refined, dim)
