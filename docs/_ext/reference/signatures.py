"""Annotations as they are written, for signatures of the reference.

At run time `Float[Array, "n d"]` prints as `jaxtyping.Float[jaxlib._jax.Array, 'n d']`, and one of
`ArrayLike` as a union of two such types.
"""

import functools
import types
from typing import Any, ForwardRef, Literal, TypeVar, Union, get_args, get_origin

import jax
import jaxtyping
import numpy as np


def written(annotation: Any) -> str:
    """An annotation as one writes it.

    >>> from jaxtyping import Float
    >>> written(Float[jax.Array | np.ndarray, "n d"] | None)
    'Float[ArrayLike, "n d"] | None'
    """
    if annotation is None or annotation is type(None):
        return "None"
    if annotation is jax.Array:
        return "Array"
    if isinstance(annotation, str):
        return str(annotation)
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    if isinstance(annotation, TypeVar):
        return annotation.__name__
    if annotation is Ellipsis:
        return "..."
    if isinstance(annotation, list):
        return f"[{', '.join(map(written, annotation))}]"
    if annotation is jaxtyping.PyTree:
        return "PyTree"
    if _is_kind(annotation, "PyTree"):
        return f"PyTree[{written(annotation.leaftype)}]"
    if _is_shaped(annotation):
        return _shaped_text(annotation)
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " | ".join(_alternatives(parts))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, parts))}]"
    if origin is not None and parts:
        return f"{_name(origin)}[{', '.join(map(written, parts))}]"
    return _name(annotation)


def _is_shaped(annotation: Any) -> bool:
    return _is_kind(annotation, "AbstractArray") or _is_kind(annotation, "PyTree")


def _is_kind(annotation: Any, name: str) -> bool:
    """Whether it is a type of jaxtyping of this kind."""
    return isinstance(annotation, type) and issubclass(annotation, getattr(jaxtyping, name))


def _shaped_text(annotation: Any) -> str:
    array = written(annotation.array_type)
    return f'{annotation.dtype.__name__}[{array}, "{annotation.dim_str}"]'


def _alternatives(parts: tuple[Any, ...]) -> list[str]:
    """Each once; an array of JAX or of NumPy is `ArrayLike`, as it is in `jaxpe._core.arrays`."""
    texts = [written(part) for part in parts]
    merged: dict[str, None] = {}
    for text in texts:
        array, other = _either_array(text)
        if other in texts:
            merged[array] = None
        else:
            merged[text] = None
    return list(merged)


def _either_array(text: str) -> tuple[str, str | None]:
    """The text with `ArrayLike`, and with the other of the two arrays that it stands for."""
    for own, other in (("Array", "ndarray"), ("ndarray", "Array")):
        if text == own:
            return "ArrayLike", other
        if f"[{own}, " in text:
            return text.replace(f"[{own}, ", "[ArrayLike, "), text.replace(own, other, 1)
    return text, None


@functools.cache
def _name(value: Any) -> str:
    if value is np.ndarray:
        return "ndarray"
    name = getattr(value, "__qualname__", None) or getattr(value, "_name", None) or repr(value)
    return name.rpartition(".")[2] if "<" not in name else name
