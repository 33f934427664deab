"""Held-out scores of encodings: MDS of the other half of the documents, and fixed encodings."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe.analysis.corpus.result import POWERS, TAUS, HeldOutScores, Interval
from jaxpe.analysis.corpus.vectors import EncodingVectors, columns
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
    encodings: Sequence[EncodingVectors],
    *,
    rank: int,
) -> HeldOutScores | None:
    """Cross-validated stress of MDS and of fixed encodings; None if no position can be judged.

    Args:
        halves: geometries of position of disjoint halves.
        coordinates: MDS of the geometry of all documents, `[n, at least min(n, WIDEST)]`.
        encodings: position vectors of encodings; those with several draws are not fixed.
        rank: number of significant dimensions.
    """
    if not np.any(np.asarray(halves.present)):
        return None
    n, fitted_dim = halves.present.shape[-1], min(rank, WIDEST, halves.present.shape[-1])
    of_widths = cross_validated_mds(halves, dim=min(WIDEST, n))
    fitted = np.asarray(of_widths.samples)[..., max(fitted_dim, 1) - 1]
    fixed = [each for each in encodings if len(each.vectors) == 1]
    widest, names = max(x.vectors.shape[-1] for x in fixed), [x.entry.name for x in fixed]
    of_fixed = held_out_stress(np.array([columns(x.vectors[0], widest) for x in fixed]), halves)
    # Encodings of a model do not compete. The least mean comes first; rounding decides no tie.
    competes = np.array([x.entry.family != "model" for x in fixed])
    samples = np.asarray(of_fixed.samples)  # [splits, 2, encodings]
    mean = np.where(competes, samples.mean(axis=(0, 1)), np.inf)
    first, *others = np.argsort(np.round(mean, 6), kind="stable")[: competes.sum()]
    least = samples[..., first]
    low = np.asarray(half_sample_interval(samples - least[..., None]).low)
    taus, powers = (x.ravel() for x in np.meshgrid(TAUS, POWERS))
    numbers = jax.vmap(lambda tau, power: power_positions(np.arange(n), tau=tau, power=power))
    by_number = held_out_stress(numbers(taus, powers)[..., None], halves).samples
    least_number = int(np.argmin(np.asarray(by_number).mean(axis=(0, 1))))
    equal = _equal_stress(halves)
    return HeldOutScores(
        splits=len(samples),
        dim=fitted_dim,
        vectors=coordinates[:, :fitted_dim],
        own=_intervals(of_widths),
        fixed=dict(zip(names, _intervals(of_fixed), strict=True)),
        best=[names[i] for i in (first, *(i for i in others if low[i] <= 0))],
        one_number=_interval(cross_validated_choice(by_number)),
        tau=float(taus[least_number]),
        power=float(powers[least_number]),
        gain=_interval(half_sample_interval(least - fitted)) if fitted_dim else None,
        equal=_interval(half_sample_interval(equal)),
        over_equal=_interval(half_sample_interval(equal - least)),
    )


@jax.jit
def _equal_stress(halves: SplitHalfGeometry) -> jax.Array:
    """Scaled stress of distances that are all equal, on each half, `[splits, 2]`."""

    def against(geometry: SplitHalfGeometry) -> jax.Array:
        distances = geometry.distances
        equal = distances._replace(values=1.0 - jnp.eye(len(distances.values)))
        return jaxpe.scaled_stress(equal, distances).stress

    return jax.lax.map(lambda split: jax.lax.map(against, split), halves)


def _interval(statistic: HeldOut) -> Interval:
    return Interval(*map(float, (statistic.mean, statistic.low, statistic.high)))


def _intervals(statistic: HeldOut) -> list[Interval]:
    ends = np.stack([statistic.mean, statistic.low, statistic.high], axis=-1).tolist()
    return [Interval(*each) for each in ends]
