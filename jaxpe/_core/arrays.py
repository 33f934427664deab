"""Array types of signatures, matrix products at full precision, and sums of counts."""

import functools
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import AxisType, Mesh

ArrayLike = jax.Array | np.ndarray
Scalar = float | ArrayLike  # a number, which may be traced

F = TypeVar("F", bound=Callable[..., Any])


def is_traced(*arrays: object) -> bool:
    """Whether any value is traced, as inside jit, vmap or grad, so that its numbers are unknown."""
    return any(isinstance(array, jax.core.Tracer) for array in arrays)


def namespace(*values: object) -> Any:
    """Module for functions of options: NumPy, in float64, or jax.numpy if any is traced."""
    return jnp if is_traced(*values) else np


def checked_jit(*static: str, **checks: Any) -> Callable[[F], F]:
    """Decorator of a public function of arrays: check its arguments, then call it under `jit`.

    Checks run before `jit`, where numbers can be read. Inside a transformation they see traced
    arguments, and have to let them pass.

    Args:
        static: names of arguments that are static.
        checks: by argument, a function that raises, or returns what is passed on; or a tuple of
            the function and the names of further arguments that it takes.

    >>> def positive(x):
    ...     if not is_traced(x) and (np.asarray(x) <= 0).any():
    ...         raise ValueError("pass positive numbers")
    ...     return x
    >>> log = checked_jit(x=positive)(lambda x: jnp.log(x))
    >>> log(np.ones(1)).item()
    0.0
    """

    def decorate(function: F) -> F:
        signature, jitted = inspect.signature(function), jax.jit(function, static_argnames=static)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            given = dict(bound.arguments)
            for name, check in checks.items():
                check, *others = check if isinstance(check, tuple) else (check,)
                if name in given:
                    found = check(given[name], *(given.get(other) for other in others))
                    bound.arguments[name] = found
            return jitted(*bound.args, **bound.kwargs)

        return call  # pyrefly: ignore (of the same signature)

    return decorate


def auto_mesh(mesh: Any) -> Mesh:
    """The mesh with axes of type Auto: the compiler chooses the layout of intermediate arrays.

    `jax.make_mesh` makes axes of type Explicit, which need a layout for each operation.

    >>> auto_mesh(jax.make_mesh((1,), ("data",))).axis_types
    (Auto,)
    """
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * mesh.devices.ndim)


def dot(*matrices: ArrayLike) -> jax.Array:
    """Matrix product, from the left, at the highest precision.

    In TF32, the default on GPUs, orthogonality and derivatives are too inexact.
    """
    product = jnp.asarray(matrices[0])
    for matrix in matrices[1:]:
        product = jnp.matmul(product, matrix, precision="highest")
    return product


def rounded_size(size: int, *, steps: int = 8) -> int:
    """Next of the sizes 1 to 16, 18, 20, ..., 32, 36, ...: `steps` sizes between powers of two.

    Arrays padded to such sizes have few shapes, so compiled programs are reused. They are at most
    an eighth larger. `steps` is a power of two.

    >>> [rounded_size(size) for size in (0, 7, 17, 100, 1025)]
    [1, 7, 18, 104, 1152]
    """
    step = 1 << max(0, (max(size, 1) - 1).bit_length() - steps.bit_length())
    return -(-max(size, 1) // step) * step


def tree_add(a: Any, b: Any) -> Any:
    """Sum of two named tuples of one type, field by field: `__add__ = __radd__ = tree_add`.

    For sums over disjoint sets of documents, or over devices. Integers are counts and add by
    `add_counts`. Fields that are None stay None, and fields with an `__add__` use it. Adding 0
    changes nothing, so `sum` works.

    Raises:
        ValueError: arrays of different shapes.
        OverflowError: counts that their integer type cannot hold; if traced, they saturate.

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
    return type(a)(*(_field_sum(*fields, kind) for fields in zip(a._fields, a, b, strict=True)))


def _field_sum(name: str, x: Any, y: Any, kind: str) -> Any:
    """Sum of one field."""
    if x is None and y is None:
        return None
    if isinstance(x, tuple):
        return tree_add(x, y) if type(x).__add__ is tuple.__add__ else x + y
    if jnp.shape(x) != jnp.shape(y):
        raise ValueError(
            f"{name} of shapes {jnp.shape(x)} and {jnp.shape(y)} cannot be added: make both {kind} "
            "with one model, length and vocabulary"
        )
    if jnp.issubdtype(jnp.result_type(x), jnp.integer):
        return add_counts(x, y, f"{name} of {kind}")
    return x + y


def add_counts(a: ArrayLike, b: ArrayLike, what: str) -> Array:
    """Sum a + b of nonnegative counts, without overflow.

    Raises `OverflowError` if the integer type cannot hold a sum. If traced, the sum saturates.
    """
    a, b = _integers(a, what), _integers(b, what)
    if not jnp.issubdtype(jnp.result_type(a, b), jnp.integer):  # uint64 and a signed integer
        raise ValueError(f"{what} are counted in {a.dtype} and {b.dtype}: pass one integer type")
    total, wrapped = _pair_sum(a, b)
    if not is_traced(total) and bool(wrapped):
        exact = np.asarray(a).astype(object) + np.asarray(b).astype(object)
        _refuse(int(np.max(exact)), what, total.dtype)
    return total


def sum_counts(counts: ArrayLike, axis: int | tuple[int, ...], what: str) -> Array:
    """Sum of nonnegative counts over some axes, without overflow, as in `add_counts`."""
    counts = _integers(counts, what)
    axes = tuple(i % counts.ndim for i in ((axis,) if isinstance(axis, int) else axis))
    total, full = _axis_sum(counts, axes)
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
def _pair_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Saturating a + b, and whether any sum overflows."""
    return _saturating_add(a, b), jnp.any(a + b < a)


@partial(jax.jit, static_argnames=("axes",))
def _axis_sum(counts: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Saturating sum, and whether any sum reaches the largest integer."""
    total = lax.reduce(counts, np.zeros((), counts.dtype), _saturating_add, axes)
    most = jnp.asarray(jnp.iinfo(counts.dtype).max, counts.dtype)
    return total, jnp.any(total == most)


def _saturating_add(a: Array, b: Array) -> Array:
    total = a + b
    return jnp.where(total < a, jnp.asarray(jnp.iinfo(total.dtype).max, total.dtype), total)


def _refuse(number: int, what: str, dtype: jnp.dtype) -> None:
    raise OverflowError(
        f"{number} {what} exceed the largest {dtype}, {jnp.iinfo(dtype).max}: do not add these "
        "parts, or convert the counts to int64 (jax.enable_x64) before adding"
    )
