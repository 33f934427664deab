"""Violation rates of a report: of the plug-in distances and of encodings, by one program."""

from collections.abc import Iterable

import jax
import numpy as np

import jaxpe
from jaxpe._core.compiled import compiled


@compiled()
def violation_rate(D: jaxpe.Distances) -> jax.Array:
    """`monotonicity_violation_rate`."""
    return jaxpe.monotonicity_violation_rate(D)


def violation_rates(encodings: Iterable[np.ndarray], present: jax.Array) -> list[jax.Array]:
    """Violation rate of each encoding, of vectors `[n, d]`."""
    return [violation_rate(_distances(P, present)) for P in encodings]


@compiled()
def _distances(P: jax.Array | np.ndarray, present: jax.Array) -> jaxpe.Distances:
    return jaxpe.euclidean_distances(P, present=present)
