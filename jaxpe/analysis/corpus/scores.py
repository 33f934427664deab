"""The encodings of a report: every score of each, and stress by width."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.compiled import compiled
from jaxpe._core.errors import InputError
from jaxpe._core.stored import SMALL, TINY
from jaxpe.analysis.corpus.order import prepare_rates, violation_rates
from jaxpe.analysis.corpus.result import EncodingScore, SlopeStress, StressByDimension
from jaxpe.geometry import SplitHalfGeometry
from jaxpe.geometry.noise import geometry_shape

RANDOM_DRAWS = 8
ALIBI_HEADS = 8
# Widths that have a loop of their own, where others have more columns than a few: of few columns a
# second loop takes as long to compile as it saves.
_NARROW, _FEW_COLUMNS = 32, 128
SLOPES = tuple(map(float, jaxpe.encodings.alibi_slopes(ALIBI_HEADS)))


class _Drawn(NamedTuple):
    """Vectors of entries, before the corpus is known.

    Attributes:
        vectors: of each entry `[draws, n, d]`, one where they are not drawn; none for ALiBi.
        trainable: masks by entry, for each leaf of its parameters, which numbers receive a
            gradient.
    """

    vectors: tuple[jax.Array | None, ...]
    trainable: tuple[list[jax.Array], ...]


class _Scored(NamedTuple):
    """Scores as arrays: of both fitted encodings, of all entries and of ALiBi's lines.

    Attributes:
        vectors: `[draws of all encodings, n, width of the widest]`.
        values: values by name, each `[draws of all encodings]`.
        distances: `[2 + entries, n, n]`, of the first draw.
        lines: stress of the line at each standard slope, `[heads]`.
        best: stress of the line at the best slope of all, and that slope.
    """

    vectors: jax.Array
    values: dict[str, jax.Array]
    distances: jax.Array
    lines: jax.Array
    best: jaxpe.geometry.ScaledStress


def score_encodings(
    D: jaxpe.Distances,
    geometry: SplitHalfGeometry,
    mds: jaxpe.ClassicalMDS,
    dim: int,
    key: jax.Array,
    encodings: Sequence[str | jaxpe.encodings.CatalogueEntry] = (),
) -> tuple[list[EncodingScore], list[SlopeStress]]:
    """Every encoding at width dim, also those named beside the catalogue, and ALiBi by slope."""
    n = D.values.shape[0]
    entries = tuple(scored_entries(encodings))
    sizes = jaxpe.EncodingSizes(dim=dim, num_heads=ALIBI_HEADS, head_dim=dim, length=n)
    drawn = _drawn(key, entries=entries, sizes=sizes)
    scored = _scored(D, geometry, mds.coordinates, drawn.vectors, dim=dim)
    rates = violation_rates(np.asarray(scored.vectors), D.present)
    found, rates, trainable = jax.device_get((scored, rates, drawn.trainable))
    widths = [1 if vectors is None else vectors.shape[-1] for vectors in drawn.vectors]
    lines = list(map(SlopeStress, SLOPES, map(float, found.lines)))
    slope = min(lines, key=lambda line: line.stress).slope
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
    draws = _draws_of_each(drawn.vectors)
    measured = {
        name: (np.add.reduceat(value, _firsts(draws)) / draws).tolist()
        for name, value in (found.values | {"violation_rate": rates}).items()
    }
    rows = [dict(zip(measured, row, strict=True)) for row in zip(*measured.values(), strict=True)]
    scores = [
        EncodingScore(**of, **row, distances=own)
        for of, row, own in zip(known, rows, found.distances, strict=True)
    ]
    return scores, [*lines, SlopeStress(float(found.best.scale), float(found.best.stress))]


def prepare_scores(n: int, dim: int, key: jax.Array) -> None:
    """Compile what n positions will need, where programs are kept."""
    geometry = geometry_shape(n)
    square = geometry.gram
    D = jaxpe.Distances(square, geometry.present)
    sizes = jaxpe.EncodingSizes(dim=dim, num_heads=ALIBI_HEADS, head_dim=dim, length=n)
    vectors = _drawn(key, entries=tuple(scored_entries()), sizes=sizes).vectors
    _scored.prepare(D, geometry, square, vectors, dim=dim)  # pyrefly: ignore
    widest = max(dim, *(own.shape[-1] for own in vectors if own is not None))
    prepare_rates(n, widest)
    _by_width.prepare(D, square, widths=_widths(n, dim))  # pyrefly: ignore


def scored_entries(
    names: Sequence[str | jaxpe.encodings.CatalogueEntry] = (),
) -> list[jaxpe.encodings.CatalogueEntry]:
    """Encodings of the catalogue with vectors for text that owe nothing to the corpus, and others.

    Without those that are variants of another row, unless they are named.

    Raises `InputError` for a name that is unknown, or an encoding without such vectors.
    """
    suited = [e for e in jaxpe.catalogue() if e.vectors and e.coordinates == 1 and not e.fitted]
    known = [e for e in suited if not e.variant_of]
    further = [e for e in map(jaxpe.encodings.resolve, dict.fromkeys(names)) if e not in known]
    for entry in further:
        if not entry.vectors or entry.coordinates != 1 or entry.fitted:
            raise InputError(
                f"`encodings`: {entry.name} has no position vectors for text that owe nothing to a "
                "corpus, and cannot be scored: pass another"
            )
    return [*known, *further]


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


@compiled(static=("entries", "sizes"), brief=SMALL, remembered=True)
def _drawn(
    key: jax.Array,
    *,
    entries: tuple[jaxpe.encodings.CatalogueEntry, ...],
    sizes: jaxpe.EncodingSizes,
) -> _Drawn:
    """Vectors of all entries, made by one program."""
    positions, found = jnp.arange(sizes.length), []
    for entry, own in zip(entries, jax.random.split(key, len(entries)), strict=True):
        if entry.name == "alibi":  # its best slope depends on the corpus
            found.append((None, []))
        else:
            found.append(_draws(entry.in_one_layer(sizes), own, positions))
    return _Drawn(tuple(vectors for vectors, _ in found), tuple(own for _, own in found))


@compiled(static=("dim",), brief=2**21)
def _scored(
    D: jaxpe.Distances,
    geometry: SplitHalfGeometry,
    coordinates: jax.Array,
    vectors: tuple[jax.Array | None, ...],
    *,
    dim: int,
) -> _Scored:
    """Scores of all encodings, computed by one program."""
    positions, corrected = jnp.arange(len(coordinates)), geometry.distances
    lines = jnp.stack([jaxpe.encodings.alibi_line(positions, slope=slope) for slope in SLOPES])
    stress_of_lines = jax.lax.map(lambda line: jaxpe.stress(line, D), lines)
    # Of one head: the slopes of several would only multiply the line.
    line = lines[jnp.argmin(stress_of_lines)][None]
    start = columns(coordinates, dim)
    drawn = [start[None], columns(_refined(D, start), dim)[None]]
    drawn += [line if own is None else own for own in vectors]
    widest = max(vectors.shape[-1] for vectors in drawn)
    stacked = jnp.concatenate([columns(vectors, widest) for vectors in drawn])
    measured = jax.lax.map(lambda P: _measures(P, D, corrected), stacked)
    distances = jax.lax.map(
        lambda P: jaxpe.euclidean_distances(P, present=D.present).values,
        stacked[_firsts(_draws_of_each(vectors))],
    )
    best = jaxpe.scaled_stress(lines[0] / SLOPES[0], D)
    return _Scored(stacked, measured, distances, stress_of_lines, best)


def _draws_of_each(vectors: tuple[jax.Array | None, ...]) -> list[int]:
    """Number of draws of each encoding, the two that are fitted first."""
    return [1, 1, *(1 if own is None else len(own) for own in vectors)]


def _firsts(draws: list[int]) -> np.ndarray:
    """Index of the first draw of each encoding among all."""
    return np.cumsum([0, *draws[:-1]])


def _draws(
    encoding: jaxpe.Encoding, key: jax.Array, positions: jax.Array
) -> tuple[jax.Array, list[jax.Array]]:
    """Vectors `[draws, n, d]`, one where they are not drawn, and the gradients of Σ vectors²."""
    if not jax.tree.leaves(jax.eval_shape(encoding.init, key)):
        return encoding.vectors(encoding.init(key), positions)[None], []
    params = jax.lax.map(encoding.init, jax.random.split(key, RANDOM_DRAWS))  # compiles soonest
    vectors = jax.vmap(encoding.vectors, in_axes=(0, None))(params, positions)
    squares = jax.grad(lambda p: jnp.sum(encoding.vectors(p, positions) ** 2))
    return vectors, jax.tree.leaves(squares(jax.tree.map(lambda x: x[0], params)))


def _measures(P: jax.Array, D: jaxpe.Distances, corrected: jaxpe.Distances) -> dict[str, jax.Array]:
    """All scores of one encoding."""
    delta = jaxpe.euclidean_distances(P, present=D.present)
    return {
        "stress": jaxpe.stress(delta, D),
        "scaled_stress": jaxpe.scaled_stress(delta, D).stress,
        "kruskal_stress1": jaxpe.kruskal_stress1(delta, D),
        "split_half_scaled_stress": jnp.where(
            corrected.present.any(), jaxpe.scaled_stress(delta, corrected).stress, jnp.nan
        ),
        "pearson_r": jaxpe.mantel_correlation(delta, D),
        "min_separation": jaxpe.min_separation(delta),
    }


def _refined(D: jaxpe.Distances, start: jax.Array) -> jax.Array:
    return jaxpe.smacof(D, dim=start.shape[1], init=start, max_iterations=300).coordinates


def columns(P: jax.Array, width: int) -> jax.Array:
    """The first columns of P, with zeros where it has fewer: distances stay what they are."""
    missing = max(width - P.shape[-1], 0)
    return jnp.pad(P[..., :width], [(0, 0)] * (P.ndim - 1) + [(0, missing)])


def stress_by_dimension(D: jaxpe.Distances, mds: jaxpe.ClassicalMDS, dim: int) -> StressByDimension:
    """Stress and scaled stress of MDS, SMACOF and sinusoids at widths 2, 4, 8, ... (Figure 4)."""
    widths = _widths(D.values.shape[0], dim)
    found = _by_width(D, mds.coordinates, widths=widths)
    return StressByDimension(np.array(widths), *jax.tree.map(np.asarray, found))


def _widths(n: int, dim: int) -> tuple[int, ...]:
    return tuple(2**k for k in range(1, 12) if 2**k <= max(dim, n, 2))


@compiled(static=("widths",), brief=TINY)
def _by_width(
    D: jaxpe.Distances, coordinates: jax.Array, *, widths: tuple[int, ...]
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    groups = [widths]
    if max(widths) > _FEW_COLUMNS:
        narrow = sum(width <= _NARROW for width in widths)
        groups = [widths[:narrow], widths[narrow:]]
    found = [_of_widths(D, coordinates, own) for own in groups]
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *found)


def _of_widths(
    D: jaxpe.Distances, coordinates: jax.Array, widths: tuple[int, ...]
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Stress and scaled stress at ascending widths, by one loop over arrays of the largest."""
    largest = widths[-1]
    waves = [jaxpe.sinusoidal_vectors(jnp.arange(len(D.values)), dim=width) for width in widths]
    whole = columns(coordinates, largest)

    def at(given: tuple[jax.Array, jax.Array]) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        width, sinusoidal = given
        # Columns of zeros stay so, in MDS and in SMACOF: one program serves all widths.
        mds = jnp.where(jnp.arange(largest) < width, whole, 0.0)
        encodings = {"mds": mds, "smacof": _refined(D, mds), "sinusoidal": sinusoidal}
        raw = {name: jaxpe.stress(P, D) for name, P in encodings.items()}
        return raw, {name: jaxpe.scaled_stress(P, D).stress for name, P in encodings.items()}

    stacked = jnp.stack([columns(wave, largest) for wave in waves])
    return jax.lax.map(at, (jnp.array(widths), stacked))
