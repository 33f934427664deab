"""Held-out scores of encodings: MDS of the other half of the documents, and fixed encodings."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.arrays import ArrayLike
from jaxpe.analysis.corpus.result import POWERS, TAUS, HeldOutScores, Interval
from jaxpe.analysis.corpus.vectors import EncodingVectors, columns
from jaxpe.encodings import power_positions
from jaxpe.geometry import cross_validated_mds, held_out_stress
from jaxpe.geometry.noise.cross_validation import (
    HeldOut,
    cross_validated_choice,
    half_sample_interval,
)
from jaxpe.geometry.noise.split_half import SplitHalfGeometry

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
    fitted_dim = min(rank, WIDEST, halves.present.shape[-1])
    fixed = [each for each in encodings if len(each.vectors) == 1]
    widest, names = max(x.vectors.shape[-1] for x in fixed), [x.entry.name for x in fixed]
    table = np.array([columns(x.vectors[0], widest) for x in fixed])
    taus, powers = (x.ravel() for x in np.meshgrid(TAUS, POWERS))
    # Encodings of a model do not compete. The least mean comes first; rounding decides no tie.
    competes = np.array([x.entry.family != "model" for x in fixed])
    widths = np.asarray(max(fitted_dim, 1))
    found = jax.device_get(_statistics(halves, table, competes, widths, taus, powers))
    first, *others = np.argsort(found.order, kind="stable")[: competes.sum()]
    least_number = int(np.argmin(found.by_number.mean))
    return HeldOutScores(
        splits=len(found.equal.samples),
        dim=fitted_dim,
        vectors=coordinates[:, :fitted_dim],
        own=_intervals(found.own),
        fixed=dict(zip(names, _intervals(found.fixed), strict=True)),
        best=[names[i] for i in (first, *(i for i in others if found.worse.low[i] <= 0))],
        one_number=_interval(found.one_number),
        tau=float(taus[least_number]),
        power=float(powers[least_number]),
        gain=_interval(found.gain) if fitted_dim else None,
        equal=_interval(found.equal),
        over_equal=_interval(found.over_equal),
    )


class _Statistics(NamedTuple):
    """Held-out stress, `[splits, 2]` of each.

    Attributes:
        own: MDS of the other half, by width.
        fixed: fixed encodings.
        order: mean of those that compete, rounded; infinite for others.
        worse: differences of stress, of each fixed encoding to the best one.
        gain: difference of stress, of the best one to MDS at the fitted width.
        by_number, one_number: one number for each position, by parameters and at the best ones.
        equal, over_equal: distances that are all equal, and their difference to the best one.
    """

    own: HeldOut
    fixed: HeldOut
    order: jax.Array
    worse: HeldOut
    gain: HeldOut
    by_number: HeldOut
    one_number: HeldOut
    equal: HeldOut
    over_equal: HeldOut


@jax.jit
def _statistics(
    halves: SplitHalfGeometry,
    fixed: ArrayLike,
    competes: ArrayLike,
    width: ArrayLike,
    taus: ArrayLike,
    powers: ArrayLike,
) -> _Statistics:
    """All statistics of halves, in one program."""
    n = halves.present.shape[-1]
    number = jax.vmap(lambda tau, power: power_positions(jnp.arange(n), tau=tau, power=power))
    by_number = held_out_stress(number(taus, powers)[..., None], halves)
    own, of_fixed = cross_validated_mds(halves, dim=min(WIDEST, n)), held_out_stress(fixed, halves)
    order = jnp.where(competes, jnp.round(of_fixed.mean, 6), jnp.inf)
    least, equal = of_fixed.samples[..., jnp.argmin(order)], _equal_stress(halves)
    return _Statistics(
        own=own,
        fixed=of_fixed,
        order=order,
        worse=half_sample_interval(of_fixed.samples - least[..., None]),
        gain=half_sample_interval(least - own.samples[..., width - 1]),
        by_number=by_number,
        one_number=cross_validated_choice(by_number.samples),
        equal=half_sample_interval(equal),
        over_equal=half_sample_interval(equal - least),
    )


def _equal_stress(halves: SplitHalfGeometry) -> jax.Array:
    """Scaled stress of distances that are all equal, on each half, `[splits, 2]`."""

    def against(geometry: SplitHalfGeometry) -> jax.Array:
        distances = geometry.distances
        equal = distances._replace(values=1.0 - jnp.eye(len(distances.values)))
        return jaxpe.geometry.scaled_stress(equal, distances).stress

    return jax.lax.map(lambda split: jax.lax.map(against, split), halves)


def _interval(statistic: HeldOut) -> Interval:
    return Interval(*map(float, (statistic.mean, statistic.low, statistic.high)))


def _intervals(statistic: HeldOut) -> list[Interval]:
    ends = np.stack([statistic.mean, statistic.low, statistic.high], axis=-1).tolist()
    return [Interval(*each) for each in ends]
