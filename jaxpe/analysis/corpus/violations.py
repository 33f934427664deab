"""Violation rates of a report: of the corpus, of resamples and of encodings, by one program."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.compiled import compiled
from jaxpe.geometry import SplitHalfGeometry


@compiled()
def violation_rate(D: jaxpe.Distances) -> jax.Array:
    """`monotonicity_violation_rate`."""
    return jaxpe.monotonicity_violation_rate(D)


def violation_rates(encodings: Iterable[np.ndarray], present: jax.Array) -> list[jax.Array]:
    """Violation rate of each encoding, of vectors `[n, d]`."""
    return [violation_rate(_distances(P, present)) for P in encodings]


def is_comparable(geometry: SplitHalfGeometry) -> jax.Array:
    """Whether it has a rate: a triple needs three positions, an order distances that differ."""
    return (jnp.sum(geometry.present) > 2) & jnp.any(geometry.squared_distances > 0)


@compiled()
def _distances(P: jax.Array | np.ndarray, present: jax.Array) -> jaxpe.Distances:
    return jaxpe.euclidean_distances(P, present=present)
