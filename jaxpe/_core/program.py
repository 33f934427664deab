"""A public function called eagerly as one program, not as one for each operation in it."""

import dataclasses
import functools
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

# Beyond so many values that are no arrays, such as a list of numbers, nothing is compiled.
_MOST_VALUES = 64


def one_program(function: F) -> F:
    """Decorator: `jax.jit` with every argument static that is no array.

    An eager operation of new shapes takes about 40 ms to lower and compile on a CPU; a function of
    fifty takes seconds. The decorated function takes arrays and plain values, and never reads the
    numbers of an array; `compiled` is for functions that take a caller's functions. Results may
    hold plain values, too. Each new plain value among the arguments compiles another program. A
    call that does not fit (a function among the arguments, integers that 32 bits do not hold) runs
    undecorated.

    >>> @one_program
    ... def shifted(x, *, by: int = 1):
    ...     return x + by, by
    >>> shifted(np.arange(2.0), by=3)[0].tolist(), shifted(np.arange(2.0), by=3)[1]
    ([3.0, 4.0], 3)
    """

    def of_arrays(form: _Form, *arrays: Any) -> Any:
        args, kwargs = form.arguments(arrays)
        return jax.tree.map(_as_constant, function(*args, **kwargs))

    of_arrays.__name__ = of_arrays.__qualname__ = function.__name__
    program = jax.jit(of_arrays, static_argnums=0)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = jax.tree.flatten((args, kwargs))
        arrays = [leaf for leaf in leaves if _is_array(leaf)]
        values = [_ARRAY if _is_array(leaf) else (type(leaf), leaf) for leaf in leaves]
        if len(values) - len(arrays) > _MOST_VALUES or not all(map(_fits, leaves)):
            return function(*args, **kwargs)
        form = _Form(structure, tuple(values))
        results = program(form, *arrays)
        return jax.tree.map(_without_constant, results, is_leaf=_is_constant)

    return run  # pyrefly: ignore


_ARRAY = "array"


class _Form(NamedTuple):
    """Structure of the arguments, and their values with types in place of arrays."""

    structure: Any
    values: tuple[Any, ...]

    def arguments(self, arrays: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        rest = iter(arrays)
        leaves = [next(rest) if value is _ARRAY else value[1] for value in self.values]
        return self.structure.unflatten(leaves)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Constant:
    """A plain value among the results of a program."""

    value: Hashable


def _as_constant(leaf: Any) -> Any:
    return leaf if _is_array(leaf) else _Constant(leaf)


def _is_constant(leaf: Any) -> bool:
    return isinstance(leaf, _Constant)


def _without_constant(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, _Constant) else leaf


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray)


def _fits(leaf: Any) -> bool:
    """Whether a value can be an argument or a constant of a program."""
    if isinstance(leaf, jax.core.Tracer):
        return True
    if isinstance(leaf, jax.Array | np.ndarray):
        if jnp.issubdtype(leaf.dtype, jnp.integer) and leaf.dtype.itemsize == 8 and leaf.size:
            known = np.asarray(leaf)
            return bool(known.min() >= -(2**31) and known.max() < 2**31)
        return isinstance(leaf, jax.Array) or leaf.dtype.kind in "biufcV"
    return isinstance(leaf, Hashable) and (isinstance(leaf, type) or not callable(leaf))
