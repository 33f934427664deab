"""Compiled once, also where the caller does not compile.

An eager loop (`lax.map`, `scan`, `while_loop`) over a function that the call makes is traced and
compiled at each call. Whatever has such a loop is a function of its own, decorated with `compiled`.
"""

import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax

F = TypeVar("F", bound=Callable[..., Any])


def compiled(*functions: str, static: Sequence[str] = ()) -> Callable[[F], F]:
    """Decorator: `jax.jit`, where some keyword arguments are functions.

    Such an argument is a callable, a tuple of them and of plain values (an `Encoding`, a
    transformation of Optax) or None. It is told by its identity, so it must be pure. As a static
    argument `jax.jit` would keep it to the end of the process, with every program made of it;
    would refuse one without a hash; and would write arrays that it closes over into the program.
    Here a program goes with its functions, and those arrays are arguments. A callable that cannot
    be referred to weakly is compiled at each call.

    Args:
        functions: names of those arguments; all keyword-only.
        static: names of keyword-only arguments that are values with a hash.

    >>> @compiled("f", static=("times",))
    ... def repeated(x, *, f, times):
    ...     return jax.lax.fori_loop(0, times, lambda _, x: f(x), x)
    >>> repeated(jnp.array(2.0), f=jnp.square, times=2).item()
    16.0
    """

    def decorate(core: F) -> F:
        if not functions:
            return jax.jit(core, static_argnames=tuple(static))  # pyrefly: ignore
        programs: dict[Any, Callable[..., Any]] = {}

        @functools.wraps(core)
        def run(*arrays: Any, **options: Any) -> Any:
            if jax.config.jax_disable_jit:  # pyrefly: ignore
                return core(*arrays, **options)
            given = {name: options.pop(name) for name in functions}
            key = tuple(map(_identity, given.values()))
            if key not in programs:
                try:
                    look_up = _references(given, lambda _: programs.pop(key, None))
                except TypeError:
                    strong = {name: lambda value=value: value for name, value in given.items()}
                    return _program(core, strong, static)(*arrays, **options)
                programs[key] = _program(core, look_up, static)
            return programs[key](*arrays, **options)

        return run  # pyrefly: ignore

    return decorate


@compiled("function")
def _result(*arrays: Any, function: Callable[..., Any]) -> Any:
    return function(*arrays)


def one_call(function: Callable[..., Any], *arrays: Any, **choices: Any) -> Any:
    """`function(*arrays, **choices)` as one program, of which the choices are constants.

    For functions of this package that are called once in a job, some hundred operations each.

    >>> one_call(jnp.linalg.norm, np.array([3.0, 4.0])).item()
    5.0
    """
    return _result(*arrays, function=functools.partial(function, **choices))


def _program(
    core: Callable[..., Any], functions: dict[str, Callable[..., Any]], static: Sequence[str]
) -> Callable[..., Any]:
    """`core` of these functions as a program, to which what they close over is an argument."""

    def of_arrays(*arrays: Any, **options: Any) -> Any:
        return core(*arrays, **options, **{name: get() for name, get in functions.items()})

    of_arrays.__name__ = of_arrays.__qualname__ = core.__name__
    traced = jax.jit(of_arrays, static_argnames=tuple(static))

    @functools.cache
    def evaluation(jaxpr: Any) -> Callable[..., list[Any]]:
        def evaluate(consts: Any, *leaves: Any) -> list[Any]:
            return jax.core.eval_jaxpr(jaxpr, consts, *leaves)

        evaluate.__name__ = evaluate.__qualname__ = core.__name__
        return jax.jit(evaluate)

    def program(*arrays: Any, **options: Any) -> Any:
        found = traced.trace(*arrays, **options)
        if not found.jaxpr.consts:
            return traced(*arrays, **options)
        leaves = jax.tree.leaves(arrays)
        out = evaluation(found.jaxpr.jaxpr)(found.jaxpr.consts, *leaves)
        return jax.tree.unflatten(found.out_tree, out)

    return program


# Of a tuple, beside the functions in it.
_PLAIN = bool | int | float | str | None


def _identity(value: Any) -> Any:
    """Key of a function. A bound method is a new object at each access, its parts are not."""
    if isinstance(value, _PLAIN):
        return type(value), value
    if _is_plain_tuple(value):
        return tuple(map(_identity, value))
    if inspect.ismethod(value):
        return id(value.__self__), id(value.__func__)
    return id(value)


def _is_plain_tuple(value: Any) -> bool:
    """Whether a value is a tuple or named tuple that can be rebuilt from its parts."""
    return type(value) is tuple or (isinstance(value, tuple) and hasattr(value, "_make"))


def _references(value: Any, forget: Callable[[Any], Any]) -> Any:
    """Functions that give the values while they live, and do not keep them alive."""
    if isinstance(value, dict):
        return {name: _references(part, forget) for name, part in value.items()}
    if _is_plain_tuple(value):
        parts = [_references(part, forget) for part in value]
        make = getattr(type(value), "_make", tuple)
        return lambda: make(part() for part in parts)
    if isinstance(value, _PLAIN):
        return lambda: value
    if inspect.ismethod(value):
        return weakref.WeakMethod(value, forget)
    return weakref.ref(value, forget)
