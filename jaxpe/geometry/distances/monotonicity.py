"""Monotonicity violation rate: exact counts over all triples, in O(n² log² n)."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, PyTree

from jaxpe._core.arrays import ArrayLike, Scalar, checked_jit
from jaxpe.geometry.checks import checked_counts, checked_encoding
from jaxpe.geometry.distances.matrices import Distances
from jaxpe.geometry.distances.pairs import rows_by_differences
from jaxpe.geometry.distances.points import PointCloud
from jaxpe.geometry.distances.stress import Configuration, distances_or_points

TOGETHER = 2**20  # numbers processed at a time
# Positions up to which pairs are compared one by one. Merge sort took 0.41 s of CPU for 8 × 256
# positions, pairs 0.24 s, and it compiled four times as long.
_PAIRWISE = 256
_TOLERANCE = 1e-5

_tolerance = partial(checked_counts, name="tolerance")

# Of the distances of one position to all, its number, and more arrays.
RowFunction = Callable[..., PyTree]


@checked_jit("include_self", encoding=checked_encoding, tolerance=_tolerance)
def monotonicity_violation_rate(
    encoding: Configuration,
    *,
    present: Bool[ArrayLike, " n"] | None = None,
    tolerance: Scalar = _TOLERANCE,
    include_self: bool = False,
) -> Float[Array, ""]:
    """Share of triples (i, j, k), |i − j| < |i − k|, with δ_ij > δ_ik; in [0, 1].

    All three positions are distinct unless `include_self`.

    0 for a monotone encoding, about 0.5 for a random one (Section 6.6 of Cirrincione 2026).
    Exact: every triple of present positions is counted, by sorting. The result is piecewise
    constant, so its derivative is 0. Without a comparable triple it is 0; with NaN or inf it is
    NaN.

    The distances of a `PointCloud`, and of more than 4,096 points, are computed some rows at a
    time, in O(n·d) memory. The time still grows as n².

    Args:
        encoding: coordinates `[n, d]`, a `PointCloud`, or `Distances` (pass `as_distances(D)` for
            a plain matrix).
        present: positions that take part; by default the positions of the encoding.
        tolerance: δ_ij > δ_ik must hold by more than this share of the largest distance. Ties are
            common (equal distributions) and must not be decided by rounding: on SST-2 with the
            paper's uniform rows, a tolerance of 0 on float64 coordinates gives 25 to 35 % depending
            on the machine, instead of 22 %.
        include_self: whether triples with j = i count, as Section 6.6 of the paper has it. They are
            never violated, so the rate is smaller: 22.05 % instead of 22.40 % on SST-2.

    >>> monotonicity_violation_rate(np.array([[0.0], [1.0], [2.0]])).item()
    0.0
    """
    encoding = distances_or_points(encoding, present)
    present, slack = encoding.present, tolerance * _largest(encoding)
    n = len(present)
    row_counts, numbers = (_row_violations, n * n) if n <= _PAIRWISE else (_row_inversions, n)
    inversions, triples = _map_rows(encoding, present, slack, f=row_counts, numbers=numbers)
    # Integers are exact for each row; the sum over rows may exceed int32.
    inversions = jnp.sum(jnp.where(present, inversions, 0).astype(slack.dtype))
    triples = jnp.sum(jnp.where(present, triples, 0).astype(slack.dtype))
    if include_self:  # 0 = |i − i| < |i − k| for every k ≠ i
        count = jnp.sum(present, dtype=slack.dtype)
        triples = triples + count * (count - 1)
    rate = jnp.where(triples > 0, inversions / jnp.maximum(triples, 1.0), 0.0)
    return jnp.where(jnp.isfinite(slack), rate, jnp.nan)


@checked_jit(encoding=checked_encoding, tolerance=_tolerance)
def is_monotone(
    encoding: Configuration,
    *,
    present: Bool[ArrayLike, " n"] | None = None,
    tolerance: Scalar = _TOLERANCE,
) -> Bool[Array, ""]:
    """Definition 9: δ_ij ≤ δ_ik for every triple with |i − j| ≤ |i − k| (equality included).

    So positions at equal offsets must lie at equal distances; the violation rate (strict offsets)
    does not require it. j = i is included (0 ≤ δ_ik). `tolerance` is a share of the largest
    distance. False with NaN or inf. Points are treated as in `monotonicity_violation_rate`.

    >>> line = np.arange(4.0)[:, None]
    >>> bool(is_monotone(line)), bool(is_monotone(line**2))
    (True, False)
    """
    encoding = distances_or_points(encoding, present)
    largest = _largest(encoding)
    monotone = _map_rows(encoding, encoding.present, tolerance * largest, f=_is_monotone_row)
    return jnp.all(monotone) & jnp.isfinite(largest)


@partial(jax.jit, static_argnames=("f", "numbers"))
def _map_rows(
    encoding: Distances | PointCloud, *others: Array, f: RowFunction, numbers: int = 0
) -> PyTree[Array]:
    """f(δ_i, i, *others) of the distances of every position i, some rows at a time.

    Args:
        encoding: source of the distances.
        others: further arguments of f.
        f: function of one row.
        numbers: size of the largest array in f; the number of positions when 0.
    """

    def distances(i: Array) -> Array:
        if isinstance(encoding, Distances):
            return encoding.values[i]
        return rows_by_differences(encoding, i)

    n = len(encoding.present)
    together = max(1, min(n, TOGETHER // (numbers or n)))
    number = -(-n // together)
    # The last row fills up the last batch.
    batches = jnp.minimum(jnp.arange(number * together), n - 1).reshape(number, together)
    each = jax.vmap(lambda delta, i: f(delta, i, *others))
    results = jax.lax.map(lambda i: each(distances(i), i), batches)
    return jax.tree.map(lambda x: x.reshape(-1)[:n], results)


def _largest(encoding: Distances | PointCloud) -> Array:
    return jnp.max(_map_rows(encoding, f=_row_maximum))


def _row_maximum(delta: Array, i: Array) -> Array:
    return jnp.max(delta)


def _is_monotone_row(delta: Array, i: Array, present: Array, slack: Array) -> Array:
    # Largest and smallest distance at each offset; then a running maximum along offsets.
    offset, both = jnp.abs(jnp.arange(len(present)) - i), present & present[i]
    unmet = jnp.full(len(present), jnp.inf, delta.dtype)
    greatest = jnp.zeros_like(delta).at[offset].max(jnp.where(both, delta, 0.0))
    smallest = unmet.at[offset].min(jnp.where(both, delta, jnp.inf))
    return jnp.all(jax.lax.cummax(greatest) <= smallest + slack)


def _row_violations(delta: Array, i: Array, present: Array, slack: Array) -> tuple[Array, Array]:
    """Violations and comparable pairs (j, k) for one i, pair by pair."""
    n, offset = len(delta), jnp.abs(jnp.arange(len(delta)) - i)
    others = present & (offset > 0)
    near, far = jnp.where(others, offset, n), jnp.where(others, offset, -1)
    comparable = near[:, None] < far[None, :]
    violated = comparable & (delta[:, None] > delta[None, :] + slack)
    return jnp.sum(violated, dtype=jnp.int32), jnp.sum(comparable, dtype=jnp.int32)


def _row_inversions(delta: Array, i: Array, present: Array, slack: Array) -> tuple[Array, Array]:
    """Violations and pairs for one i by merge sort, in n log n; slower for few positions."""
    # The other positions are sorted by offset, and equal offsets by distance. Then the inversions
    # of the list are exactly the violations, because equal offsets never invert.
    n = len(delta)
    # int32 while the pairs of a row fit; otherwise floats, which are nearly exact.
    number = jnp.dtype(jnp.int32 if n * (n - 1) < 2**31 else delta.dtype)
    offset = jnp.abs(jnp.arange(n) - i)
    others = present & (offset > 0)
    order = jnp.lexsort((delta, jnp.where(others, offset, n)))
    listed = jnp.where(others[order], delta[order], jnp.inf)
    mirror = 2 * i - jnp.arange(n)
    mirrored = (mirror >= 0) & (mirror < n) & present[jnp.clip(mirror, 0, n - 1)]
    equal_offsets = jnp.sum(others & mirrored) // 2
    count = jnp.sum(others).astype(number)
    pairs = count * (count - 1) // 2 - equal_offsets.astype(number)
    return _inversions(listed, slack, number), pairs


def _inversions(values: Array, slack: Array, number) -> Array:
    """Pairs a < b with values[a] > values[b] + slack, counted by bottom-up merging."""
    size = 1 << (len(values) - 1).bit_length()
    values = jnp.pad(values, (0, size - len(values)), constant_values=jnp.inf)
    total = jnp.zeros((), number)
    width = 1
    while width < size:
        left, right = jnp.split(values.reshape(-1, 2 * width), 2, axis=1)
        not_above = jax.vmap(lambda a, b: jnp.searchsorted(a, b, side="right"))(left, right + slack)
        total = total + jnp.sum(width - not_above, dtype=number)
        values = jnp.sort(values.reshape(-1, 2 * width), axis=1).reshape(-1)
        width *= 2
    return total
