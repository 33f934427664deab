"""Checked hooks of encodings of one's own: errors name the encoding and the hook."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.encodings.base import Encoding

_BROADCASTING = ("products", "bias", "mask", "value")  # results that may be smaller, or None


def checked_hooks(encoding: Encoding, name: str) -> Encoding:
    """The encoding with hooks that raise `InputError` for a wrong result or an error inside.

    Shapes and dtypes are checked, which adds nothing to a compiled program.

    Args:
        encoding: any.
        name: its name in messages.

    Raises:
        InputError: a hook that is no function.

    >>> short = checked_hooks(Encoding(vectors=lambda params, positions: jnp.ones((2, 4))), "mine")
    >>> short.vectors((), jnp.arange(3))
    Traceback (most recent call last):
    jaxpe.InputError: encoding 'mine': `vectors` returns ... [2, 4], not floating [3, 4]
    """
    hooks: dict[str, Any] = {
        hook: _checked(getattr(encoding, hook), hook, f"encoding {name!r}: `{hook}`")
        for hook in Encoding._fields
        if hook != "from_middle" and encoding.defines(hook)
    }
    return encoding._replace(**hooks)


def _checked(function: Any, hook: str, place: str) -> Callable[..., Any]:
    if not callable(function):
        raise InputError(f"{place} is {type(function).__name__}, not a function")

    def call(*args: Any) -> Any:
        try:
            result = function(*args)
        except (InputError, MemoryError):
            raise
        except Exception as error:
            raise InputError(f"{place} raises {type(error).__name__}: {error}") from error
        optional = hook in ("weights", *_BROADCASTING) and result is None
        if hook not in ("init", "context") and not optional:
            _check_array(result, hook, args, place)
        return result

    return call


def _check_array(result: Any, hook: str, args: tuple[Any, ...], place: str) -> None:
    """Raise `InputError` for a result of a wrong type, dtype or shape."""
    dtype, shape = getattr(result, "dtype", None), tuple(getattr(result, "shape", ()))
    kind, wanted = jnp.bool_ if hook == "mask" else jnp.floating, _wanted(hook, args, shape[-1:])
    missing = len(wanted) - len(shape)
    if hook in _BROADCASTING and missing >= 0:
        fits = all(own in (1, size) for own, size in zip(shape, wanted[missing:], strict=True))
    else:
        fits = shape == wanted
    if dtype is None or not fits or not jnp.issubdtype(dtype, kind):
        found = type(result).__name__ if dtype is None else f"{dtype} {list(shape)}"
        raise InputError(f"{place} returns {found}, not {kind.__name__} {list(wanted)}")


def _wanted(hook: str, args: tuple[Any, ...], width: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of a hook's result by its arguments; some may have any width."""
    shape = np.shape(args[1])
    if hook in ("embed", "query", "key"):
        return shape[:-1] + width
    if hook == "vectors":
        return shape[:1] + width
    if hook == "weights":
        return shape
    if hook == "value":
        return (*shape[:-3], shape[-2], shape[-3], *width)
    keys = np.shape(args[2])
    return (*np.broadcast_shapes(shape[:-3], keys[:-3]), shape[-2], shape[-3], keys[-3])
