"""Representations that fit a console: of results and corpora whose fields are long."""

from typing import Any

_MOST = 6  # items of a list that are shown
_LONGEST = 80  # characters of a value that are shown


def short_repr(value: Any) -> str:
    """A named tuple with its arrays as dtype and shape, and long lists and texts cut.

    >>> from typing import NamedTuple
    >>> class Corpus(NamedTuple):
    ...     name: str
    ...     ids: np.ndarray
    ...     tokens: list[str]
    >>> short_repr(Corpus("two", np.zeros((2, 3), np.int32), ["a"] * 1000))
    "Corpus(name='two', ids=int32[2, 3], tokens=[1,000 items])"
    """
    fields = zip(value._fields, tuple(value), strict=True)
    inside = ", ".join(f"{name}={_short(field)}" for name, field in fields)
    return f"{type(value).__name__}({inside})"


def _short(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]" if value.ndim else str(value)
    if hasattr(value, "_fields"):
        return short_repr(value)
    if isinstance(value, list | tuple | dict) and len(value) > _MOST:
        left, right = ("{", "}") if isinstance(value, dict) else ("[", "]")
        return f"{left}{len(value):,} items{right}"
    if isinstance(value, list | tuple):
        left, right = "()" if isinstance(value, tuple) else "[]"
        return f"{left}{', '.join(map(_short, value))}{right}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name!r}: {_short(item)}' for name, item in value.items())}}}"
    text = getattr(value, "__name__", None) if callable(value) else None
    text = repr(value) if text is None else text
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
