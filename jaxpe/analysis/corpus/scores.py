"""The encodings of a report: every score of each, and stress by width."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe._core.progress import Progress
from jaxpe.analysis.corpus.result import EncodingScore, SlopeStress, StressByDimension
from jaxpe.geometry import SplitHalfGeometry

# Vectors [n, d] to the scores by name and the distances [n, n].
Measure = Callable[[jax.Array], tuple[dict[str, float], np.ndarray]]

RANDOM_DRAWS = 8
ALIBI_HEADS = 8


@jax.jit
def _refined(D: jaxpe.Distances, start: jax.Array) -> jax.Array:
    """SMACOF from a start padded to n columns: zero columns stay zero, so one program serves."""
    n = D.values.shape[0]
    return jaxpe.smacof(D, dim=n, init=_columns(start, n), max_iterations=300).coordinates


def score_encodings(
    D: jaxpe.Distances,
    geometry: SplitHalfGeometry,
    mds: jaxpe.ClassicalMDS,
    dim: int,
    key: jax.Array,
    encodings: Sequence[str] = (),
) -> tuple[list[EncodingScore], list[SlopeStress]]:
    """Every encoding at width dim, also those named beside the catalogue, and ALiBi by slope."""
    n = D.values.shape[0]
    measure = partial(_measure, D=D, corrected=geometry.distances, width=max(dim, n))
    start = _columns(mds.coordinates, dim)
    rank = min(dim, int(mds.rank))
    fitted = partial(
        _score,
        measure=measure,
        family="fitted",
        parameters=min(rank * (n + dim), n * dim),
        fitted=True,
    )
    slope, slopes = _alibi_slopes(jnp.arange(n), measure)
    sizes = jaxpe.EncodingSizes(dim=dim, num_heads=ALIBI_HEADS, head_dim=dim, length=n)
    entries = [_at_slope(e, slope) if e.name == "alibi" else e for e in scored_entries(encodings)]
    keys = jax.random.split(key, len(entries))
    return [
        fitted("mds", start, note=f"classical MDS, rank {rank}"),
        fitted("smacof", _columns(_refined(D, start), dim), note="stress minimised from MDS"),
        *(_score_entry(e, sizes, k, measure) for e, k in zip(entries, keys, strict=True)),
    ], slopes


def scored_entries(names: Sequence[str] = ()) -> list[jaxpe.encodings.CatalogueEntry]:
    """Encodings of the catalogue with vectors for text that owe nothing to the corpus, and others.

    Raises `InputError` for a name that is unknown, or an encoding without such vectors.
    """
    known = [e for e in jaxpe.catalogue() if e.vectors and e.coordinates == 1 and not e.fitted]
    further = [e for e in map(jaxpe.encodings.resolve, dict.fromkeys(names)) if e not in known]
    for entry in further:
        if not entry.vectors or entry.coordinates != 1 or entry.fitted:
            raise InputError(
                f"`encodings`: {entry.name} has no position vectors for text that owe nothing to a "
                "corpus, and cannot be scored: pass another"
            )
    return [*known, *further]


def _at_slope(
    alibi: jaxpe.encodings.CatalogueEntry, slope: float
) -> jaxpe.encodings.CatalogueEntry:
    """ALiBi with one head: the slopes of several would only multiply the line."""
    return alibi._replace(
        make=lambda sizes: jaxpe.alibi(num_heads=1, slopes=slope),
        vectors=f"{alibi.vectors}, at slope {slope:.3g}, its best standard one",
    )


def _score_entry(
    entry: jaxpe.encodings.CatalogueEntry,
    sizes: jaxpe.EncodingSizes,
    key: jax.Array,
    measure: Measure,
) -> EncodingScore:
    """The score of an encoding; where its vectors are drawn, the mean over several draws."""
    encoding, positions = entry.make(sizes), jnp.arange(sizes.length)
    vectors = jax.jit(encoding.vectors)
    params, note = [encoding.init(key)], entry.vectors
    if jax.tree.leaves(params):
        params = [encoding.init(draw) for draw in jax.random.split(key, RANDOM_DRAWS)]
        note = f"{note}; mean of {RANDOM_DRAWS} draws"
    score = partial(
        _score,
        entry.name,
        measure=measure,
        family=entry.family,
        note=note,
        parameters=_trainable(encoding, params[0], positions),
    )
    return _mean_score([score(vectors(drawn, positions)) for drawn in params])


def _trainable(encoding: jaxpe.Encoding, params: Any, positions: jax.Array) -> int:
    """Numbers in the parameters that receive a gradient through the vectors."""
    if not jax.tree.leaves(params):
        return 0
    squares = jax.grad(lambda p, i: jnp.sum(encoding.vectors(p, i) ** 2))
    gradients = jax.tree.leaves(jax.jit(squares)(params, positions))
    return sum(g.size for g in gradients if np.any(g))


@jax.jit
def _measures(
    P: jax.Array, D: jaxpe.Distances, corrected: jaxpe.Distances
) -> tuple[dict[str, jax.Array], jax.Array]:
    """All scores of one encoding, and its distances."""
    delta = jaxpe.euclidean_distances(P, present=D.present)
    scaled = jaxpe.scaled_stress(P, D)
    return {
        "stress": jaxpe.stress(P, D),
        "scaled_stress": scaled.stress,
        "scale": scaled.scale,
        "kruskal_stress1": jaxpe.kruskal_stress1(P, D),
        "split_half_scaled_stress": jnp.where(
            corrected.present.any(), jaxpe.scaled_stress(P, corrected).stress, jnp.nan
        ),
        "violation_rate": jaxpe.monotonicity_violation_rate(delta),
        "pearson_r": jaxpe.mantel_correlation(P, D),
        "min_separation": jaxpe.min_separation(P, present=D.present),
    }, delta.values


def _measure(
    P: jax.Array, *, D: jaxpe.Distances, corrected: jaxpe.Distances, width: int
) -> tuple[dict[str, float], np.ndarray]:
    """`_measures` of P padded with zeros to one width, so that it is compiled once."""
    values, delta = _measures(_columns(P, width), D, corrected)
    return {name: float(value) for name, value in values.items()}, np.asarray(delta)


def _columns(P: jax.Array, width: int) -> jax.Array:
    """The first columns of P, with zeros where it has fewer: distances stay what they are."""
    return jnp.pad(P[:, :width], ((0, 0), (0, max(width - P.shape[1], 0))))


def _score(
    name: str,
    P: jax.Array,
    *,
    measure: Measure,
    family: str,
    note: str,
    parameters: int,
    fitted: bool = False,
) -> EncodingScore:
    values, delta = measure(P)
    del values["scale"]
    return EncodingScore(
        name=name,
        family=family,
        dim=P.shape[1],
        parameters=parameters,
        distances=delta,
        note=note,
        fitted=fitted,
        **values,
    )


def _mean_score(draws: list[EncodingScore]) -> EncodingScore:
    """Scores averaged over draws; the distances are those of the first."""
    means: dict[str, Any] = {
        name: float(np.mean([getattr(draw, name) for draw in draws]))
        for name, value in draws[0]._asdict().items()
        if isinstance(value, float)
    }
    return draws[0]._replace(**means)


def _alibi_slopes(positions: jax.Array, measure: Measure) -> tuple[float, list[SlopeStress]]:
    """The standard slope with the lowest stress, and (slope, stress) of all and of the best."""

    def stress_at(slope: float) -> float:
        return measure(jaxpe.encodings.alibi_line(positions, slope=slope))[0]["stress"]

    slopes = map(float, jaxpe.encodings.alibi_slopes(ALIBI_HEADS))
    standard = [SlopeStress(slope, stress_at(slope)) for slope in slopes]
    best = measure(jaxpe.encodings.alibi_line(positions))[0]
    slope = min(standard, key=lambda found: found.stress).slope
    return slope, [*standard, SlopeStress(best["scale"], best["scaled_stress"])]


def stress_by_dimension(
    D: jaxpe.Distances,
    geometry: SplitHalfGeometry,
    mds: jaxpe.ClassicalMDS,
    dim: int,
    progress: Progress,
) -> StressByDimension:
    """Stress and scaled stress of MDS, SMACOF and sinusoids at widths 2, 4, 8, ... (Figure 4)."""
    n = D.values.shape[0]
    widths = [2**k for k in range(1, 12) if 2**k <= max(dim, n)]
    found: dict[str, list[dict[str, float]]] = {"mds": [], "smacof": [], "sinusoidal": []}
    for width in progress.track(widths, "dimensions"):
        start = _columns(mds.coordinates, width)
        encodings = {
            "mds": start,
            "smacof": _refined(D, start),
            "sinusoidal": jaxpe.sinusoidal_vectors(jnp.arange(n), dim=width),
        }
        for name, P in encodings.items():
            values, _ = _measure(P, D=D, corrected=geometry.distances, width=max(dim, n))
            found[name].append(values)

    def curves(measure: str) -> dict[str, np.ndarray]:
        return {name: np.array([of[measure] for of in values]) for name, values in found.items()}

    return StressByDimension(np.array(widths), curves("stress"), curves("scaled_stress"))
