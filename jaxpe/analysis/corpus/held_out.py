"""Encodings against documents they were not fitted to: an own one of the corpus, and fixed ones."""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import numpy as np

import jaxpe
from jaxpe._core.arrays import ArrayLike
from jaxpe._core.compiled import compiled
from jaxpe.analysis.corpus.result import HeldOutScores, Interval
from jaxpe.analysis.corpus.vectors import Entries, fixed_vectors, scored_entries, widths_of
from jaxpe.geometry import HeldOut, SplitHalfGeometry

SPLITS, HALVINGS = 8, 2
WIDEST = 32  # of the encodings fitted to halves


class HeldOutHalves(NamedTuple):
    """Fit to one half of the documents, and test on the other.

    Attributes:
        entries: encodings that are the same for every corpus.
        by_width: held-out stress of MDS of a half, `[widths]`.
        fixed: held-out stress of the entries, `[entries, widths]`.
    """

    entries: Entries
    by_width: HeldOut
    fixed: HeldOut


def held_out_halves(
    halves: SplitHalfGeometry,
    dim: int,
    encodings: Sequence[str | jaxpe.encodings.CatalogueEntry] = (),
) -> HeldOutHalves | None:
    """Scores on geometries of disjoint halves; None where no position is in all quarters."""
    if not np.any(np.asarray(halves.present)):
        return None
    entries = tuple(scored_entries(encodings))
    vectors = fixed_vectors(halves.present.shape[-1], dim, entries)
    found = _scores(halves, vectors.padded, largest=min(WIDEST, vectors.padded.shape[-2]))
    fixed = tuple(itertools.compress(entries, vectors.fixed))
    return HeldOutHalves(fixed, *jax.device_get(found))


@compiled(static=("largest",))
def _scores(
    halves: SplitHalfGeometry, fixed: ArrayLike, *, largest: int
) -> tuple[HeldOut, HeldOut]:
    """MDS of halves, and fixed encodings, by one program."""
    return (
        jaxpe.geometry.cross_validated_mds(halves, dim=largest),
        jaxpe.geometry.held_out_stress(fixed, halves),
    )


def held_out_scores(
    found: HeldOutHalves | None,
    coordinates: np.ndarray,
    *,
    rank: int,
    dim: int,
) -> HeldOutScores | None:
    """The fitted encoding of the significant dimensions, and what every encoding scores.

    Args:
        found: on the halves.
        coordinates: MDS of the geometry of all documents, `[n, at least min(n, WIDEST)]`.
        rank: significant dimensions.
        dim: width of the report.
    """
    if found is None:
        return None
    widths = widths_of(dim)
    own_dim = min(rank, len(found.by_width.mean))
    names = [entry.name for entry in found.entries]
    judged = np.array([entry.family != "model" for entry in found.entries])
    best, gain = _compared(found, judged, max(own_dim, 1), widths.index(dim))
    return HeldOutScores(
        splits=len(found.by_width.samples),
        dim=own_dim,
        vectors=coordinates[:, :own_dim],
        own=_intervals(_ends(found.by_width)),
        widths=np.array(widths),
        fixed=dict(zip(names, map(_intervals, zip(*_ends(found.fixed), strict=True)), strict=True)),
        best=[[names[index] for index in order] for order in best],
        gain=gain if own_dim else None,
    )


def _compared(
    found: HeldOutHalves, judged: np.ndarray, own_dim: int, at: int
) -> tuple[list[np.ndarray], Interval]:
    """Indices of the best entries at each width, and by how much MDS of `own_dim` is better at one.

    The entry of least mean comes first, then those not significantly worse.
    """
    samples = np.asarray(found.fixed.samples)  # [splits, 2, entries, widths]
    mean = np.where(judged[:, None], samples.mean(axis=(0, 1)), np.inf)
    order = np.argsort(mean, axis=0, kind="stable")[: judged.sum()]
    least = np.take_along_axis(samples, order[None, None, :1], axis=2)
    gain = least[:, :, 0, at] - found.by_width.samples[..., own_dim - 1]
    apart = (samples - least).reshape(*gain.shape, -1)
    told = jax.device_get(_differences(np.concatenate([apart, gain[..., None]], axis=-1)))
    low = told.low[:-1].reshape(mean.shape)
    best = [
        ranked[(ranked == ranked[0]) | (own[ranked] <= 0)]
        for ranked, own in zip(order.T, low.T, strict=True)
    ]
    return best, Interval(*(float(ends[-1]) for ends in _ends(told)))


@compiled()
def _differences(samples: ArrayLike) -> HeldOut:
    """`half_sample_interval` of all differences, by one program."""
    return jaxpe.geometry.half_sample_interval(samples)


def _ends(found: HeldOut) -> tuple[np.ndarray, ...]:
    return tuple(map(np.asarray, (found.mean, found.low, found.high)))


def _intervals(ends: Iterable[np.ndarray]) -> list[Interval]:
    """Intervals from arrays of means, lower ends and upper ends."""
    return [Interval(*map(float, of)) for of in zip(*ends, strict=True)]
