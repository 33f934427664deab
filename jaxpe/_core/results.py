"""Results on disk: what is small as JSON, large arrays in an .npz beside it."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from jaxpe._core.array_files import npz_arrays, npz_bytes
from jaxpe._core.errors import InputError
from jaxpe._core.json_values import from_json, is_named, read_json, to_json, type_hints

# Types of fields. A large array goes into the .npz. Seconds are of a run and not of its result,
# and left out: the same options give the same files.
LargeArray = Annotated[np.ndarray, "large"]
Seconds = Annotated[dict[str, float], "seconds"]

_REMEDY = "pass the .json file that a job of jaxpe wrote, with its .npz beside it"


def result_files(result: Any, name: str) -> dict[str, bytes]:
    """Names and contents of the files that a result is saved as: the same result, the same bytes.

    >>> from typing import NamedTuple
    >>> class Fit(NamedTuple):
    ...     stress: float
    ...     distances: LargeArray
    >>> files = result_files(Fit(0.5, np.eye(2)), "fit")
    >>> sorted(files), files["fit.json"]
    (['fit.json', 'fit.npz'], b'{\\n  "stress": 0.5\\n}\\n')
    """
    arrays: dict[str, np.ndarray] = {}
    values = _without_large(result, "", arrays)
    files = {f"{name}.json": (json.dumps(values, indent=2, allow_nan=False) + "\n").encode()}
    if arrays:
        files[f"{name}.npz"] = npz_bytes(arrays)
    return files


def load_result(kind: type, path: str | os.PathLike[str]) -> Any:
    """A saved result.

    Args:
        kind: type of the result, such as `jaxpe.analysis.corpus.CorpusAnalysis`.
        path: path of its JSON file.

    Raises:
        InputError: a file that is missing or damaged, or of another kind of result.

    >>> import tempfile
    >>> from typing import NamedTuple
    >>> class Fit(NamedTuple):
    ...     stress: float
    ...     distances: LargeArray
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, content in result_files(Fit(float("nan"), np.eye(2)), "fit").items():
    ...     _ = (folder / name).write_bytes(content)
    >>> load_result(Fit, folder / "fit.json")
    Fit(stress=nan, distances=array([[1., 0.],
           [0., 1.]]))
    """
    path = Path(path)
    values = read_json(path, remedy=_REMEDY)
    for name, array in _unpacked(path.with_suffix(".npz")).items():
        _put(values, name.split("/"), array, place=path)
    return from_json(kind, values, place=str(path), finite=False)


def _without_large(value: Any, place: str, arrays: dict[str, np.ndarray]) -> Any:
    """Plain values, with the large arrays moved to `arrays` by their place."""
    if is_named(value):
        hints, plain = type_hints(type(value)), {}
        for name, item in value._asdict().items():
            if hints[name] == LargeArray:
                arrays[place + name] = np.asarray(item)
            elif hints[name] != Seconds:
                plain[name] = _without_large(item, f"{place}{name}/", arrays)
        return plain
    if isinstance(value, Mapping):
        return {str(k): _without_large(item, f"{place}{k}/", arrays) for k, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_large(item, f"{place}{i}/", arrays) for i, item in enumerate(value)]
    return to_json(value)


def _unpacked(path: Path) -> dict[str, np.ndarray]:
    return npz_arrays(path, place=str(path), remedy=_REMEDY) if path.exists() else {}


def _put(values: Any, steps: list[str], array: np.ndarray, *, place: Path) -> None:
    """Set the value at a place in nested objects and lists."""
    try:
        for step in steps[:-1]:
            values = values[int(step)] if isinstance(values, list) else values[step]
        values[steps[-1]] = array
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise InputError(f"{place} has no place for the array {'/'.join(steps)!r:.100}") from error


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
