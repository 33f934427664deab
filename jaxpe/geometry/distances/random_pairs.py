"""Random positions, a part at a time, so that many draws take little memory."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, PyTree

from jaxpe.geometry.distances.matrices import Distances, safe_sqrt
from jaxpe.geometry.distances.points import PointCloud

# Numbers processed at a time: distances of some rows, or coordinates of some draws.
TOGETHER = 2**20


@partial(jax.jit, static_argnames=("draw", "number", "width"))
def draw_in_parts(
    key: Array, *sources: Any, draw: Callable[..., PyTree[Array]], number: int, width: int
) -> PyTree[Array]:
    """Draws of `draw(key, part, *sources)`, in parts of about `TOGETHER / width`."""
    part = min(number, max(1, TOGETHER // width))
    keys = jax.random.split(key, -(-number // part))
    draws = jax.lax.map(lambda key: draw(key, part, *sources), keys)
    return jax.tree.map(lambda x: x.reshape(-1)[:number], draws)


def draw_positions(
    key: Array, present: Bool[Array, " n"], shape: tuple[int, ...]
) -> Int[Array, "..."]:
    """Independent positions, uniform over the present ones; any position where none is present."""
    if not len(present):
        raise ValueError("there are no positions to draw: pass at least one")
    first = jnp.argsort(~present).astype(jnp.int32)
    count = jnp.maximum(jnp.sum(present), 1)
    return first[jax.random.randint(key, shape, 0, count, dtype=jnp.int32)]


def distances_at(
    D: Distances | PointCloud, i: Int[Array, " pairs"], j: Int[Array, " pairs"]
) -> Float[Array, " pairs"]:
    """Distances of pairs of positions, of points by their differences; 0 where one is absent."""
    both = D.present[i] & D.present[j]
    if isinstance(D, Distances):
        return jnp.where(both, D.values[i, j], 0.0)
    difference = jnp.where(both[:, None], D.points[i] - D.points[j], 0.0)
    return safe_sqrt(jnp.sum(difference**2, axis=-1))


def coordinate_count(D: Distances | PointCloud) -> int:
    """Numbers behind one distance, at least 1."""
    return 1 if isinstance(D, Distances) else max(D.points.shape[1], 1)
