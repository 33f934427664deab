"""Sums over all pairs of positions, tile by tile, without a matrix of pairs."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, PyTree, Real

from jaxpe._core.arrays import ArrayLike, dot
from jaxpe.geometry.checks import check_size, host_floats
from jaxpe.geometry.distances.matrices import (
    centre_rows,
    distances_from_products,
    inner_products,
    safe_sqrt,
)
from jaxpe.geometry.distances.points import PointCloud, as_points

# Largest number of positions with a stored matrix of distances (64 MB in float32).
DENSE = 4096
_ROWS = 64  # rows of distances computed at a time

Cloud = PointCloud | Real[ArrayLike, "n _"]
# Elementwise: an array of distances for each cloud and `args` in; a number, an array or a pytree of
# them out.
Term = Callable[..., PyTree]


class _Blocks(NamedTuple):
    """Positions cut into blocks; every array is `[blocks, block, ...]`."""

    points: tuple[Array, ...]
    norms: tuple[Array, ...]
    present: Array
    sizes: Array | None

    def at(self, k: Array) -> "_Blocks":
        """Block k."""
        return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, k, keepdims=False), self)

    def following(self, k: Array, *, number: int) -> "_Blocks":
        """Blocks k, k + 1, ..., cyclically."""
        return jax.tree.map(lambda x: jnp.roll(x, -k, axis=0)[:number], self)


def sum_over_pairs(
    term: Term,
    *clouds: Cloud,
    args: tuple[Any, ...] = (),
    weights: Real[ArrayLike, " n"] | None = None,
    per_position: bool = False,
    block: int | None = None,
) -> PyTree[Array]:
    """Σ_{i<j} w_ij · term(δ_ij, d_ij, ...) over the pairs present in all clouds, in O(n·k) memory.

    Distances are computed tile by tile, and again for a derivative, so no matrix `[n, n]` is ever
    stored. They are computed as in `distances_from_gram`, in the dtype of the first cloud. Sums are
    taken in stages, so that float32 keeps its digits. It works under `jit`, `vmap` and derivatives,
    also with respect to arrays that `term` closes over.

    Args:
        term: elementwise function of the distances, one array for each cloud. Returns an array, a
            number or a pytree of them. Outside the pairs it is called with distances of 1. Compiled
            once for the same function, so pass arrays that change as `args`.
        clouds: points `[n, k]`, or a `PointCloud` where positions are absent.
        args: more arguments of `term`, after the distances.
        weights: documents per position N ≥ 0, such as `counts.per_position`, which give each pair
            its weight as in `pair_weights`. 1 when absent.
        per_position: sum over the partners j ≠ i of each position i instead, `[n]`; takes twice
            the time.
        block: rows and columns of a tile. When absent 512 on CPU, where a tile then stays in the
            cache, and 4,096 elsewhere.

    Raises:
        ValueError: no cloud, or clouds or weights of different numbers of positions.

    >>> P, X = np.array([[0.0], [1.0], [3.0]]), np.array([[0.0], [2.0], [6.0]])
    >>> sum_over_pairs(lambda delta, d: (delta - d) ** 2, P, X).item()
    14.0
    """
    blocks = _blocks(host_floats(clouds), weights, block)
    rows = _sums(blocks, *args, term=term, ordered=per_position)
    n = len(as_points(clouds[0]).present)
    return jax.tree.map(lambda x: x.reshape(-1)[:n], rows) if per_position else _total(rows)


@jax.jit
def _total(rows: PyTree[Array]) -> PyTree[Array]:
    """Sum in stages, so that float32 keeps its digits."""
    return jax.tree.map(lambda x: jnp.sum(jnp.sum(x, axis=1)), rows)


def smallest_distance(cloud: Cloud) -> Float[Array, ""]:
    """Minimum of ‖x_i − x_j‖ over i ≠ j, inf without a pair; differentiable at one pair.

    From differences, because inner products lose distances that are small beside the norms.
    """
    points, present = as_points(cloud)
    if not len(points):
        return jnp.full((), jnp.inf, points.dtype)
    fixed, numbers = PointCloud(jax.lax.stop_gradient(points), present), jnp.arange(len(points))

    def nearest(i: Array) -> tuple[Array, Array]:
        paired = present & present[i] & (numbers != i)
        row = jnp.where(paired, rows_by_differences(fixed, i[None])[0], jnp.inf)
        return jnp.min(row), jnp.argmin(row)

    distances, partners = jax.lax.map(nearest, numbers, batch_size=_ROWS)
    i = jnp.argmin(distances)
    paired = distances[i] != jnp.inf
    difference = jnp.where(paired, points[i] - points[partners[i]], 0.0)
    return jnp.where(paired, safe_sqrt(jnp.sum(difference**2)), jnp.inf)


def rows_by_differences(cloud: PointCloud, rows: Int[Array, " rows"]) -> Float[Array, "rows n"]:
    """Exact rows of distances, by differences; a derivative takes `[k, rows, n]` memory."""
    points, present = cloud
    both = present[rows][:, None] & present[None, :]
    return jnp.where(both, safe_sqrt(_squared_differences(points[rows], points)), 0.0)


def trust_in_pairs(a: Array, b: Array) -> Array:
    """a·b / (a + b), the inverse of 1/a + 1/b; 0 where both are."""
    total = a + b
    return a * b / jnp.where(total > 0, total, 1.0)


@partial(jax.jit, static_argnames=("term", "ordered"))
def _sums(blocks: _Blocks, *args: Any, term: Term, ordered: bool) -> PyTree[Array]:
    """Sum of the weighted term over partners of each position: a pytree of `[blocks, block]`."""
    # Strip by strip: block a is paired with itself, a + 1, a + 2, ... cyclically. Half a round is
    # enough for all pairs, in strips of equal length; for `ordered` pairs it takes the whole round.
    count, size = blocks.present.shape
    i, j = jnp.arange(size)[:, None], jnp.arange(size)[None, :]
    off_diagonal = i != j if ordered else i < j
    partners = count if ordered else count // 2 + 1

    def strip(a: Array) -> PyTree[Array]:
        rows = blocks.at(a)

        def tile(step: Array, columns: _Blocks) -> PyTree[Array]:
            # With an even number of blocks, opposite blocks would be paired twice.
            first = ordered | (2 * step < count) | (2 * a < count)
            apart = off_diagonal | (step > 0)
            both = rows.present[:, None] & columns.present[None, :]
            counted = both & apart & first
            sides = zip(rows.points, columns.points, rows.norms, columns.norms, strict=True)
            distance_arrays = [
                distances_from_products(dot(x, y.T), x_norms, y_norms, counted)
                for x, y, x_norms, y_norms in sides
            ]
            # 1 off the pairs, where any term is harmless.
            distance_arrays = [jnp.where(counted, delta, 1.0) for delta in distance_arrays]
            weights: Array | float = 1.0
            if rows.sizes is not None and columns.sizes is not None:
                weights = trust_in_pairs(rows.sizes[:, None], columns.sizes[None, :])

            def summed(x: ArrayLike | float | int) -> Array:
                x = jnp.broadcast_to(jnp.asarray(x, distance_arrays[0].dtype), counted.shape)
                return jnp.sum(jnp.where(counted, x * weights, 0.0), axis=1)

            return jax.tree.map(summed, term(*distance_arrays, *args))

        steps = jnp.arange(partners)
        met = (steps, blocks.following(a, number=partners))
        # A derivative computes each tile again; stored, the tiles would be the matrix.
        tiles = jax.lax.map(lambda x: jax.checkpoint(tile, prevent_cse=False)(*x), met)
        return jax.tree.map(lambda x: jnp.sum(x, axis=0), tiles)

    return jax.lax.map(jax.checkpoint(strip, prevent_cse=False), jnp.arange(count))


@partial(jax.jit, static_argnames="block")
def _blocks(
    clouds: tuple[Cloud, ...], weights: Real[ArrayLike, " n"] | None, block: int | None
) -> _Blocks:
    """Centred points of all clouds, what goes with them, and padding that is not present."""
    if not clouds:
        raise ValueError("no points: pass one cloud [n, k] or more, whose distances term is of")
    if block is not None:
        check_size("block", block)
    points, presences = zip(*map(as_points, clouds), strict=True)
    n, dtype = len(points[0]), points[0].dtype
    for other in presences:
        if len(other) != n:
            raise ValueError(f"clouds have {n} and {len(other)} positions: pass equal numbers")
    present = jnp.all(jnp.stack(presences), axis=0)
    sizes = None if weights is None else _relative_sizes(weights, present, dtype)
    block = block or (512 if jax.default_backend() == "cpu" else 4096)
    count = max(1, -(-n // block))
    size = max(1, -(-n // count))

    def cut(x: Array) -> Array:
        padding = [(0, count * size - n)] + [(0, 0)] * (x.ndim - 1)
        return jnp.pad(x, padding).reshape(count, size, *x.shape[1:])

    centred = [centre_rows(x.astype(dtype), present) for x in points]
    norms = tuple(cut(_squared_norms(x)) for x in centred)
    sizes = None if sizes is None else cut(sizes)
    return _Blocks(tuple(map(cut, centred)), norms, cut(present), sizes)


def _relative_sizes(weights: Real[ArrayLike, " n"], present: Array, dtype) -> Array:
    """Documents per position, scaled so that a pair of the largest is trusted by 1."""
    weights = jnp.asarray(weights).astype(dtype)
    if weights.shape != present.shape:
        raise ValueError(
            f"weights have shape {weights.shape}: pass documents per position, "
            f"[n] = {present.shape}; pair weights [n, n] need Distances as targets"
        )
    weights = jnp.where(present, weights, 0.0)
    largest = jnp.max(weights)
    return 2.0 * weights / jnp.where(largest > 0, largest, 1.0)


@jax.jit
def _squared_differences(x: Float[Array, "n k"], y: Float[Array, "m k"]) -> Float[Array, "n m"]:
    """‖x_i − y_j‖², one column after the other."""

    def add(total: Array, column: tuple[Array, Array]) -> tuple[Array, None]:
        a, b = column
        return total + (a[:, None] - b[None, :]) ** 2, None

    return jax.lax.scan(add, jnp.zeros((len(x), len(y)), x.dtype), (x.T, y.T))[0]


@jax.jit
def _squared_norms(x: Float[Array, "n k"]) -> Float[Array, " n"]:
    """‖x_i‖², rounded as the inner products are, so that equal points cancel to the last digit."""
    n, size = x.shape[0], max(1, min(x.shape[0], 128))
    blocks = jnp.pad(x, ((0, -n % size), (0, 0))).reshape(-(-n // size), size, x.shape[1])
    diagonal = jnp.eye(size, dtype=bool)
    norms = jax.lax.map(
        lambda y: jnp.sum(jnp.where(diagonal, inner_products(y), 0.0), axis=1), blocks
    )
    return norms.reshape(-1)[:n]
