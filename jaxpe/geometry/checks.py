"""Checks of arguments: invalid numbers raise an error eagerly, and become NaN inside `jit`.

A public function checks its distances, distributions and weights in its first lines, and then calls
a jitted function of arrays. Inside `jit`, `vmap` and `grad` numbers cannot be read: the functions
`nan_unless_...` turn invalid ones into NaN.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool

from jaxpe._core.arrays import ArrayLike, Scalar, is_traced
from jaxpe._core.errors import InputError
from jaxpe._core.memory import available_bytes, check_bytes

_MOST_CHECKED = 4096**2  # matrices with more entries are not checked
_ROUNDING = 1e-3  # allowed deviation, as a share of the largest distance
# Distances from ‖x‖² + ‖y‖² − 2x·y in float32 have a nonzero diagonal, but a small one. A matrix
# of inner products has its largest entries on the diagonal, and is refused.
_DIAGONAL = 0.05
_NEGATIVE = -1e-6  # least probability, after subtractions
_SUM = 1e-2  # rounding error of a sum over a vocabulary of 1e6 in float32
_FEW = 2**24  # numbers that always fit in memory
_MOST = 2**31  # numbers of one array


def host_floats(x: Any) -> Any:
    """Arrays with NumPy's integers as floats, because `jit` would cut them to 32 bits."""
    if isinstance(x, np.ndarray):
        return x.astype(float) if x.dtype.kind in "iu" else x
    return jax.tree.map(host_floats, x) if isinstance(x, tuple) else x


def checked_distances(D: Any, *dtypes: Any) -> Any:
    """`host_floats` of distances; raises where a number is no distance, or its square no float.

    Points, traced numbers and more than 4,096 positions are not checked.

    Args:
        D: distances.
        dtypes: of arrays that the distances are cast to.
    """
    values, present = _parts(D, "values")
    if np.size(values) > _MOST_CHECKED:
        return host_floats(D)
    if not isinstance(D, tuple):
        check_numeric(D, "the matrix of distances")
    elif present is not None and not is_traced(values, present):  # absent ones are not checked
        both = np.asarray(present)[..., None] & np.asarray(present)
        values = np.where(both, values, 0) if both.shape == np.shape(values) else values
    matrix = _square(values)
    if matrix is None:
        return host_floats(D)
    largest, least = float(matrix.max()), float(matrix.min())
    diagonal = float(np.diagonal(matrix).max())
    if largest < np.inf:
        _check_magnitude("distances", largest, matrix.dtype, *dtypes)
    for wrong, message in (
        (
            not largest < np.inf,
            f"the largest of the distances is {largest}: mark positions without distances as "
            "absent, Distances(values, present)",
        ),
        (
            least < -_ROUNDING * largest,
            f"distances have negative entries, as low as {least:.3g}: of a split-half geometry "
            "pass .distances, not .squared_distances",
        ),
        (
            diagonal > _DIAGONAL * largest,
            f"the diagonal of distances reaches {diagonal:.3g}, not 0: set it to 0 if this is "
            "rounding; of inner products pass distances_from_gram(B)",
        ),
    ):
        if wrong:
            raise InputError(message)
    checked_symmetric(matrix, "distances")
    return host_floats(D)


def checked_targets(D: Any, P: Any) -> Any:
    """`checked_distances` of targets, a matrix or points, that are cast to the dtype of P."""
    encoding = getattr(P, "values", _points(P))
    dtypes = (encoding.dtype,) if hasattr(encoding, "dtype") else ()
    if isinstance(D, tuple) and hasattr(D, "points"):
        return checked_encoding(D, *dtypes) if np.size(D.points) <= _MOST_CHECKED else D
    return checked_distances(D, *dtypes)


def checked_encoding(P: Any, *dtypes: Any) -> Any:
    """`checked_distances` of an encoding's distances; of points, the magnitude is checked."""
    if isinstance(P, tuple) and hasattr(P, "values"):
        return checked_distances(P, *dtypes)
    points = _points(P)
    if not isinstance(points, tuple):
        check_numeric(points, "points")
    points = _concrete_numbers(points, getattr(P, "present", None))
    if points is not None and points.size:
        _check_magnitude("coordinates", float(np.abs(points).max()), points.dtype, *dtypes)
    return host_floats(P)


def _points(P: Any) -> Any:
    """The vectors of a result with coordinates or points; other arguments as they are."""
    return getattr(P, "coordinates", getattr(P, "points", P))


def _check_magnitude(name: str, largest: float, *dtypes: Any) -> None:
    """Raise for numbers whose squares are 0, inf or without digits in one of the dtypes."""
    # JAX has float64 only if enabled.
    wide = all(jax.dtypes.canonicalize_dtype(dtype) == np.float64 for dtype in dtypes)
    limits = jnp.finfo(jnp.float64 if wide else jnp.float32)
    most = (float(limits.max) * float(limits.eps)) ** 0.5
    if 0 < largest < np.inf and not 1 / most < largest < most:
        raise InputError(
            f"{name} reach {largest:.3g}, too large or too small to be squared in {limits.dtype}: "
            f"divide them by {largest:.0e}"
        )


def checked_symmetric(X: Any, name: str = "inner products") -> Any:
    """`host_floats` of a matrix; raises where it is not symmetric. NaN is let through."""
    matrix = _square(X)
    difference = np.max(np.abs(matrix - matrix.T)) if matrix is not None else 0.0
    if matrix is not None and difference > _ROUNDING * np.abs(matrix).max():
        raise InputError(
            f"{name} are not symmetric: [i, j] and [j, i] differ by up to {difference:.3g}. Pass "
            "(X + X.T) / 2 where this is intended"
        )
    return host_floats(X)


def nan_unless_distances(values: Array) -> Array:
    """Distances under `jit`, NaN where they are none; rows of absent positions are 0."""
    if not values.size:
        return values
    largest, uneven = jnp.max(values), jnp.max(jnp.abs(values - values.T))
    wrong = jnp.maximum(uneven, -jnp.min(values)) > _ROUNDING * largest
    wrong |= jnp.max(jnp.diagonal(values)) > _DIAGONAL * largest
    return jnp.where(~wrong & (largest < jnp.inf), values, jnp.nan)


def check_distributions(mu: Any) -> None:
    """Raise for rows that are no distributions; traced numbers pass."""
    rows = _concrete_numbers(*_parts(mu, "probabilities"), ndim=2)
    if rows is None:
        return
    sums, least = rows.sum(axis=1, dtype=float), rows.min(axis=1)
    wrong = np.flatnonzero(~_is_distribution(sums, least))
    if wrong.size:
        raise InputError(
            f"{len(wrong)} of {len(sums)} rows are no distributions: the first sums to "
            f"{sums[wrong[0]]:.6g}, its least entry is {float(least[wrong[0]]):.3g}. Of counts "
            "pass positional_distributions(counts)"
        )


def nan_unless_distributions(probabilities: Array) -> Array:
    """Distributions under `jit`, NaN in the rows that are none."""
    least = jnp.min(probabilities, axis=-1, initial=0)
    valid = _is_distribution(jnp.sum(probabilities, axis=-1), least)
    return jnp.where(valid[..., None], probabilities, jnp.nan)


def _is_distribution(sums: Any, least: Any) -> Any:
    """Mask of rows that sum to 1, or are 0 as under the policy "zero"; False for NaN."""
    return (least >= _NEGATIVE) & ((abs(sums - 1.0) <= _SUM) | (sums == 0))


def checked_counts(counts: Any, name: str = "counts") -> Any:
    """Counts or a tolerance; raises for a negative number, NaN or inf. Traced numbers pass."""
    numbers = _concrete_numbers(counts, as_floats=False)  # spares large integer tables a pass
    if numbers is not None and not (numbers.min() >= 0 and numbers.max() < np.inf):
        wrong = numbers.min() if not numbers.min() >= 0 else numbers.max()
        raise InputError(f"{name} must be finite and at least 0, not {wrong}")
    return counts


def checked_weights(weights: Any) -> Any:
    """Weights of pairs, or documents per position; raises where one is negative or all are 0.

    Documents may be NaN, for positions that are absent.
    """
    numbers = None if np.size(weights) > _MOST_CHECKED else _concrete_numbers(weights)
    if numbers is not None:
        checked_counts(numbers[~np.isnan(numbers)] if numbers.ndim == 1 else numbers, "weights")
        checked_symmetric(numbers, "weights")
        if not numbers.any() and numbers.shape[-1] > 1:  # one position has no pair
            raise InputError("weights are all 0: pass None, for pairs that weigh the same")
    return host_floats(weights)


def as_weights(weights: Any, *shapes: tuple[int, ...], dtype: Any) -> Array:
    """`nan_unless_weights` of weights that have one of the shapes."""
    weights = floating(weights, "weights").astype(dtype)
    if weights.shape not in shapes:
        raise InputError(
            f"weights have shape {weights.shape}: pass {' or '.join(map(str, shapes))}"
        )
    return nan_unless_weights(weights)


def nan_unless_weights(weights: Array) -> Array:
    """Weights under `jit`, NaN where one is negative or all are 0."""
    none = jnp.all(weights == 0) & (weights.shape[-1] > 1)
    return jnp.where(jnp.any(weights < 0) | none, jnp.nan, weights)


def _parts(x: Any, field: str) -> tuple[Any, Any]:
    """The array of a result and its mask of positions; an array has no mask."""
    if not isinstance(x, tuple):
        return x, None
    return getattr(x, field, None), getattr(x, "present", None)


def _concrete_numbers(
    x: Any, present: Any = None, *, ndim: int | None = None, as_floats: bool = True
) -> np.ndarray | None:
    """Numbers of the positions present; None where they are traced, or checked elsewhere."""
    if x is None or isinstance(x, tuple) or is_traced(x, present):
        return None
    if isinstance(x, jax.Array) and not x.is_fully_addressable:  # a part is in other processes
        return None
    numbers = np.asarray(x)
    if present is not None and np.shape(present) == numbers.shape[:1]:
        numbers = numbers[np.asarray(present)]
    numeric = numbers.dtype.kind in "bfiuV" and numbers.size > 0
    if not numeric or (ndim is not None and numbers.ndim != ndim):
        return None
    return numbers if numbers.dtype.kind in ("f" if as_floats else "fiu") else numbers.astype(float)


def _square(x: Any) -> np.ndarray | None:
    """The numbers of a square matrix; None where they are traced or too many to check."""
    numbers = None if np.size(x) > _MOST_CHECKED else _concrete_numbers(x, ndim=2)
    return None if numbers is None or numbers.shape[0] != numbers.shape[1] else numbers


def check_size(name: str, value: Any, *, least: int = 1, each: int = 1) -> None:
    """Raise unless a size is an integer, large enough, and fits in memory.

    Args:
        name: argument.
        value: number of something.
        least: smallest number allowed.
        each: numbers in memory for one of them.

    >>> check_size("dim", 0)
    Traceback (most recent call last):
    jaxpe.InputError: dim must be at least 1, not 0
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        why = ", because it decides a shape" if is_traced(value) else ""
        raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}{why}")
    value = int(value)  # products of NumPy integers overflow
    if value < least:
        raise InputError(f"{name} must be at least {least}, not {value}")
    if value * each > _FEW:
        itemsize = jnp.result_type(float).itemsize
        limit = min(available_bytes() or _MOST * itemsize, _MOST * itemsize)
        needed = value * each * itemsize
        check_bytes(needed, what=f"`{name}={value}`", remedy="pass less", limit=limit)


def check_confidence(confidence: float) -> None:
    """Raise unless a number lies strictly between 0 and 1."""
    if not isinstance(confidence, float | np.floating) or not 0.0 < confidence < 1.0:
        raise InputError(f"confidence must lie strictly between 0 and 1, not {confidence!r}")


def as_present(present: Bool[ArrayLike, " n"] | None, n: int) -> Bool[Array, " n"]:
    """The mask of positions that take part, bool `[n]`; all positions for None."""
    if present is None:
        return jnp.ones(n, bool)
    present = jnp.asarray(present)
    check_each("present", present, n, "positions")
    return present


def check_each(name: str, values: Any, n: int, what: str, *, kind: Any = jnp.bool_) -> None:
    """Raise unless there is a boolean, or an integer, for each of n positions or documents."""
    if values.shape != (n,) or not jnp.issubdtype(values.dtype, kind):
        noun = "bool" if kind is jnp.bool_ else "integer"
        raise ValueError(
            f"{name} is {values.dtype} of shape {values.shape}: pass one {noun} for each of {n} "
            f"{what}"
        )


def numbers(x: Any, name: str) -> Array:
    """A JAX array; `InputError` for arguments without numbers, such as text or None."""
    check_numeric(x, name)
    # JAX compiles a program for each shape that `jnp.asarray` takes from NumPy.
    return jax.device_put(x) if isinstance(x, np.ndarray) else jnp.asarray(x)


def check_numeric(x: Any, name: str) -> None:
    """Raise for arguments without numbers, such as text, None or a result instead of an array."""
    is_concrete = not isinstance(x, jax.Array) and not is_traced(*jax.tree.leaves(x))
    if hasattr(x, "_fields") or (is_concrete and np.asarray(x).dtype.kind not in "biufcV"):
        raise InputError(f"{name} is {type(x).__name__}: pass real numbers")


def floating(x: Scalar, name: str = "the array") -> Array:
    """A real array as floats of 32 bits or more; `ValueError` for one that is not real.

    Integers become the default float, because they would truncate the arrays they meet. 16-bit
    floats become float32: float16 overflows in sums, bfloat16 has too few digits, and neither has
    decompositions.
    """
    x = numbers(host_floats(x), name)
    if jnp.issubdtype(x.dtype, jnp.floating):
        return x if x.dtype.itemsize >= 4 else x.astype(jnp.float32)
    if not (jnp.issubdtype(x.dtype, jnp.integer) or x.dtype == bool):
        raise ValueError(f"{name} is {x.dtype}: pass real numbers")
    return x.astype(float)


def sized(x: Scalar, name: str, shape: str) -> Array:
    """`floating` of an array that must have this shape: numbers, and names of other sizes.

    Sizes of one name are equal.

    >>> sized(np.ones((3, 2)), "samples", "splits 2").shape
    (3, 2)
    >>> sized(np.ones((3, 2)), "B", "n n")
    Traceback (most recent call last):
    ValueError: B has shape (3, 2): pass [n, n]
    """
    x, words = floating(x, name), shape.split()
    names: dict[str, int] = {}
    expected = tuple(
        int(word) if word.isdecimal() else names.setdefault(word, size)
        for word, size in zip(words, x.shape, strict=False)
    )
    if x.shape != expected or len(words) != x.ndim:
        raise ValueError(f"{name} has shape {x.shape}: pass [{', '.join(words)}]")
    return x
