"""Array types of signatures, products that accelerators do not round, and sums of counts."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

ArrayLike = jax.Array | np.ndarray


def is_traced(*arrays: object) -> bool:
    """Whether any value is abstract, as inside jit, vmap or grad: its numbers are unknown."""
    return any(isinstance(array, jax.core.Tracer) for array in arrays)


def dot(*matrices: ArrayLike) -> jax.Array:
    """The matrix product, from the left, at the highest precision: TF32 is too coarse.

    Neither orthogonality nor a derivative survives it.
    """
    product = jnp.asarray(matrices[0])
    for matrix in matrices[1:]:
        product = jnp.matmul(product, matrix, precision="highest")
    return product


def rounded_size(size: int, *, steps: int = 8) -> int:
    """The next of the sizes 1 to 16, 18, 20, ..., 32, 36, ...: eight between powers of two.

    Arrays that are filled up to such sizes have few shapes, at most an eighth larger, so that
    programs of one serve others. With fewer steps, a power of two, there are fewer.

    >>> [rounded_size(size) for size in (0, 7, 17, 100, 1025)]
    [1, 7, 18, 104, 1152]
    """
    step = 1 << max(0, (max(size, 1) - 1).bit_length() - steps.bit_length())
    return -(-max(size, 1) // step) * step


def tree_add(a: Any, b: Any) -> Any:
    """The sum of two named tuples of one type, field by field: `__add__ = __radd__ = tree_add`.

    Sums over two disjoint sets of documents, or of devices, add so. Integers are counts and add by
    `add_counts`; fields that are None stay so; those that say themselves how they add, do. Adds the
    0 that `sum` starts from, too.

    Raises:
        ValueError: for arrays of different shapes.
        OverflowError: eagerly, for counts beyond their integers; traced, they stay at the largest.

    >>> from typing import NamedTuple
    >>> class Sums(NamedTuple):
    ...     total: Array
    ...     count: Array
    ...     __add__ = __radd__ = tree_add
    >>> total = sum([Sums(jnp.array(1.5), jnp.array(1)), Sums(jnp.array(2.0), jnp.array(3))])
    >>> total.total.item(), total.count.item()
    (3.5, 4)
    """
    if isinstance(b, int) and b == 0:
        return a
    if type(a) is not type(b):
        return NotImplemented
    kind = type(a).__name__
    return type(a)(*(_added(*of, kind) for of in zip(a._fields, a, b, strict=True)))


def _added(name: str, x: Any, y: Any, kind: str) -> Any:
    """x + y of one field."""
    if x is None and y is None:
        return None
    if isinstance(x, tuple):
        return tree_add(x, y) if type(x).__add__ is tuple.__add__ else x + y
    if jnp.shape(x) != jnp.shape(y):
        raise ValueError(
            f"{name} of shape {jnp.shape(x)} and {jnp.shape(y)} do not add: make both {kind} of "
            "one model, or with one length and vocabulary"
        )
    if jnp.issubdtype(jnp.result_type(x), jnp.integer):
        return add_counts(x, y, f"{name} of {kind}")
    return x + y


def add_counts(a: ArrayLike, b: ArrayLike, what: str) -> Array:
    """a + b of counts that are not negative; what is too much is refused, or stays at the most.

    Raises `OverflowError` eagerly, for a sum beyond the integers. When traced it is their largest.
    """
    a, b = _integers(a, what), _integers(b, what)
    total, wrapped = _sum_of_two(a, b)
    if not is_traced(total) and bool(wrapped):
        exact = np.asarray(a).astype(object) + np.asarray(b).astype(object)
        _refuse(int(np.max(exact)), what, total.dtype)
    return total


def sum_counts(counts: ArrayLike, axis: int | tuple[int, ...], what: str) -> Array:
    """The sum of counts that are not negative over some axes, as careful as `add_counts`."""
    counts = _integers(counts, what)
    axes = tuple(i % counts.ndim for i in ((axis,) if isinstance(axis, int) else axis))
    total, full = _sum_over(counts, axes)
    if not is_traced(total) and bool(full):
        most = int(jnp.iinfo(counts.dtype).max)
        largest = int(np.asarray(counts).sum(axis=axes, dtype=np.uint64).max())
        if largest > most:
            _refuse(largest, what, counts.dtype)
    return total


def _integers(counts: ArrayLike, what: str) -> Array:
    counts = jnp.asarray(counts)
    if not jnp.issubdtype(counts.dtype, jnp.integer):
        raise ValueError(f"{what} are counted in {counts.dtype}: pass integers")
    return counts


@jax.jit
def _sum_of_two(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b, at most what the integers hold, and whether anything is beyond that."""
    return _saturating_add(a, b), jnp.any(a + b < a)


@partial(jax.jit, static_argnames=("axes",))
def _sum_over(counts: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """The sum, at most what the integers hold, and whether anything comes to that."""
    total = lax.reduce(counts, np.zeros((), counts.dtype), _saturating_add, axes)
    most = jnp.asarray(jnp.iinfo(counts.dtype).max, counts.dtype)
    return total, jnp.any(total == most)


def _saturating_add(a: Array, b: Array) -> Array:
    total = a + b
    return jnp.where(total < a, jnp.asarray(jnp.iinfo(total.dtype).max, total.dtype), total)


def _refuse(number: int, what: str, dtype: jnp.dtype) -> None:
    raise OverflowError(
        f"{number} {what} are more than {dtype} holds, {jnp.iinfo(dtype).max}: keep the parts "
        "apart, or convert the counts to int64 (jax.enable_x64) before adding"
    )
