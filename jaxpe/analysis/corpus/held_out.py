"""Encodings against documents they were not fitted to: an own one of the corpus, and fixed ones."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.compiled import compiled
from jaxpe.analysis.corpus.result import HeldOutScores, Interval
from jaxpe.analysis.corpus.scores import ALIBI_HEADS, columns, scored_entries
from jaxpe.geometry import HeldOut, SplitHalfGeometry
from jaxpe.geometry.noise import geometry_shape

SPLITS = 8
WIDEST = 32  # of the encodings fitted to halves
FIXED_WIDTHS = (8, 32, 128)


Entries = tuple[jaxpe.encodings.CatalogueEntry, ...]


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
    static = _static(halves.present.shape[-1], dim, encodings)
    return HeldOutHalves(static["entries"], *jax.device_get(_scores(halves, **static)))


def prepare_held_out(n: int, dim: int) -> None:
    """Compile what n positions will need, where programs are kept."""
    _scores.prepare(geometry_shape(SPLITS, 2, n), **_static(n, dim, ()))  # pyrefly: ignore


def _static(
    n: int, dim: int, encodings: Sequence[str | jaxpe.encodings.CatalogueEntry]
) -> dict[str, Any]:
    entries = fixed_entries(n, encodings)
    return {"entries": entries, "widths": widths_of(dim), "largest": min(WIDEST, n)}


def widths_of(dim: int) -> tuple[int, ...]:
    """Widths at which fixed encodings are compared, that of the report among them."""
    return tuple(sorted({*FIXED_WIDTHS, dim}))


def fixed_entries(
    n: int, encodings: Sequence[str | jaxpe.encodings.CatalogueEntry] = ()
) -> Entries:
    """Encodings that are the same for every corpus, also those named beside the catalogue."""
    key = jax.eval_shape(lambda: jax.random.key(0))

    def has_params(entry: jaxpe.encodings.CatalogueEntry) -> bool:
        encoding = entry.in_one_layer(_sizes(FIXED_WIDTHS[0], n))
        return bool(jax.tree.leaves(jax.eval_shape(encoding.init, key)))

    return tuple(entry for entry in scored_entries(encodings) if not has_params(entry))


def _sizes(dim: int, n: int) -> jaxpe.EncodingSizes:
    return jaxpe.EncodingSizes(dim=dim, num_heads=ALIBI_HEADS, head_dim=dim, length=n)


@compiled(static=("entries", "widths", "largest"), brief=True)
def _scores(
    halves: SplitHalfGeometry,
    *,
    entries: Entries,
    widths: tuple[int, ...],
    largest: int,
) -> tuple[HeldOut, HeldOut]:
    """MDS of halves, and fixed encodings at all widths, by one program."""
    n = halves.present.shape[-1]
    positions = jnp.arange(n)

    def vectors(entry: jaxpe.encodings.CatalogueEntry, width: int) -> jax.Array:
        if entry.name == "alibi":  # of one head: the slope is a scale
            return jaxpe.encodings.alibi_line(positions, slope=1.0)
        return entry.in_one_layer(_sizes(width, n)).vectors((), positions)

    made = [vectors(entry, width) for entry in entries for width in widths]
    widest = max(rows.shape[-1] for rows in made)
    stacked = jnp.stack([columns(rows, widest) for rows in made])
    fixed = stacked.reshape(len(entries), len(widths), n, widest)
    return (
        jaxpe.geometry.cross_validated_mds(halves, dim=largest),
        jaxpe.geometry.held_out_stress(fixed, halves),
    )


def held_out_scores(
    found: HeldOutHalves | None,
    geometry: SplitHalfGeometry,
    *,
    rank: int | None,
    dim: int,
) -> HeldOutScores | None:
    """The corpus' own encoding of significant dimensions, and what every encoding scores.

    Args:
        found: on the halves.
        geometry: geometry of all documents.
        rank: significant dimensions, None where they were not judged.
        dim: width of the report.
    """
    if found is None:
        return None
    widths, n = widths_of(dim), len(geometry.present)
    least = 1 + int(np.argmin(found.by_width.mean))
    own_dim = least if rank is None else min(rank, len(found.by_width.mean))
    vectors = np.zeros((n, 0), np.float32)
    if own_dim:
        mds = jaxpe.geometry.classical_mds_from_gram(
            geometry.gram, dim=own_dim, present=geometry.present
        )
        vectors = np.asarray(mds.coordinates)
    names = [entry.name for entry in found.entries]
    fixed = np.array([entry.family != "model" for entry in found.entries])
    samples = np.asarray(found.fixed.samples)  # [splits, 2, encodings, widths]
    gain = None
    if own_dim:
        at = widths.index(dim)
        best = int(np.argmin(np.where(fixed, found.fixed.mean[:, at], np.inf)))
        own = found.by_width.samples[..., own_dim - 1]
        gain = _interval(jaxpe.geometry.half_sample_interval(samples[..., best, at] - own))
    return HeldOutScores(
        splits=len(found.by_width.samples),
        dim=own_dim,
        vectors=vectors,
        own=_intervals(_ends(found.by_width)),
        widths=np.array(widths),
        fixed=dict(zip(names, map(_intervals, zip(*_ends(found.fixed), strict=True)), strict=True)),
        best=[
            _best(
                samples[..., fixed, at],
                [name for name, own in zip(names, fixed, strict=True) if own],
            )
            for at in range(len(widths))
        ],
        gain=gain,
    )


def _best(samples: np.ndarray, names: list[str]) -> list[str]:
    """The encoding of least mean, then those not significantly worse; samples `[..., names]`."""
    mean = samples.mean(axis=(0, 1))
    order = np.argsort(mean, kind="stable")
    apart = jaxpe.geometry.half_sample_interval(samples - samples[..., order[:1]])
    low = np.asarray(apart.low)
    return [names[index] for index in order if index == order[0] or low[index] <= 0]


def _ends(found: HeldOut) -> tuple[np.ndarray, ...]:
    return tuple(map(np.asarray, (found.mean, found.low, found.high)))


def _intervals(ends: Iterable[np.ndarray]) -> list[Interval]:
    """Intervals from arrays of means, lower ends and upper ends."""
    return [Interval(*map(float, of)) for of in zip(*ends, strict=True)]


def _interval(found: HeldOut) -> Interval:
    return Interval(*map(float, _ends(found)))
