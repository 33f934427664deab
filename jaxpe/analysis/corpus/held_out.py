"""Held-out scores of encodings: MDS of the other half of the documents, and fixed encodings."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe.analysis.corpus.result import POWERS, TAUS, HeldOutScores, Interval
from jaxpe.analysis.corpus.vectors import columns, fixed_vectors, scored_entries, widths_of
from jaxpe.encodings import power_positions
from jaxpe.geometry import (
    HeldOut,
    SplitHalfGeometry,
    cross_validated_choice,
    cross_validated_mds,
    half_sample_interval,
    held_out_stress,
)

SPLITS, HALVINGS = 8, 2
WIDEST = 32  # largest width of encodings fitted to halves


def held_out_scores(
    halves: SplitHalfGeometry,
    coordinates: np.ndarray,
    *,
    rank: int,
    dim: int,
    encodings: Sequence[str | jaxpe.encodings.CatalogueEntry] = (),
) -> HeldOutScores | None:
    """Cross-validated stress of MDS and of fixed encodings; None if no position can be judged.

    Args:
        halves: geometries of position of disjoint halves.
        coordinates: MDS of the geometry of all documents, `[n, at least min(n, WIDEST)]`.
        rank: number of significant dimensions.
        dim: width of the report.
        encodings: further encodings, besides the catalogue.
    """
    if not np.any(np.asarray(halves.present)):
        return None
    n, widths = halves.present.shape[-1], widths_of(dim)
    entries = tuple(scored_entries(encodings))
    vectors = fixed_vectors(n, dim, entries)
    widest = max(rows.shape[-1] for by_width in vectors.values() for rows in by_width)
    padded = [[columns(rows, widest) for rows in by_width] for by_width in vectors.values()]
    fixed = held_out_stress(np.array(padded), halves)
    by_width = cross_validated_mds(halves, dim=min(WIDEST, n))
    fitted_dim, names = min(rank, WIDEST, n), list(vectors)
    # Encodings of a model do not compete. The least mean comes first; rounding decides no tie.
    competes = np.array([entry.family != "model" for entry in entries if entry.name in vectors])
    samples = np.asarray(fixed.samples)  # [splits, 2, entries, widths]
    mean = np.where(competes[:, None], samples.mean(axis=(0, 1)), np.inf)
    order = np.argsort(np.round(mean, 6), axis=0, kind="stable")[: competes.sum()]
    least = np.take_along_axis(samples, order[None, None, :1], axis=2)
    low = np.asarray(half_sample_interval(samples - least).low)
    best = [
        [names[i] for i in ranked if i == ranked[0] or low[i, at] <= 0]
        for at, ranked in enumerate(order.T)
    ]
    fitted_samples = np.asarray(by_width.samples)[..., max(fitted_dim, 1) - 1]
    taus, powers = (x.ravel() for x in np.meshgrid(TAUS, POWERS))
    numbers = jax.vmap(lambda tau, power: power_positions(np.arange(n), tau=tau, power=power))
    by_number = held_out_stress(numbers(taus, powers)[..., None], halves).samples
    least_number = int(np.argmin(np.asarray(by_number).mean(axis=(0, 1))))
    at = widths.index(dim)
    best_samples = least[:, :, 0, at]
    gain = half_sample_interval(best_samples - fitted_samples)
    equal = _equal_stress(halves)
    over_equal = half_sample_interval(equal - best_samples)
    return HeldOutScores(
        splits=len(samples),
        dim=fitted_dim,
        vectors=coordinates[:, :fitted_dim],
        own=[Interval(*ends) for ends in _ends(by_width)],
        widths=np.array(widths),
        fixed={
            name: [Interval(*ends) for ends in row]
            for name, row in zip(names, _ends(fixed), strict=True)
        },
        best=best,
        one_number=Interval(*_ends(cross_validated_choice(by_number))),
        tau=float(taus[least_number]),
        power=float(powers[least_number]),
        gain=Interval(*_ends(gain)) if fitted_dim else None,
        equal=Interval(*_ends(half_sample_interval(equal))),
        over_equal=Interval(*_ends(over_equal)),
    )


@jax.jit
def _equal_stress(halves: SplitHalfGeometry) -> jax.Array:
    """Scaled stress of distances that are all equal, on each half, `[splits, 2]`."""

    def against(geometry: SplitHalfGeometry) -> jax.Array:
        distances = geometry.distances
        equal = distances._replace(values=1.0 - jnp.eye(len(distances.values)))
        return jaxpe.scaled_stress(equal, distances).stress

    return jax.lax.map(lambda split: jax.lax.map(against, split), halves)


def _ends(statistic: HeldOut) -> list:
    """Estimates with the ends of their intervals, as the last axis of a nested list."""
    return np.stack([statistic.mean, statistic.low, statistic.high], axis=-1).tolist()
