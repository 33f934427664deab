"""JSON from outside: read within limits, checked against a type; errors name the faulty value."""

import dataclasses
import functools
import inspect
import json
import math
import os
import reprlib
import stat
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard, Union

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.files import content_hash

_LARGEST_FLOAT = 1e300  # no field needs a larger number
_LISTED = 10  # unknown fields that a message names at most
_NOT_FINITE = {None: math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NAMES = {math.inf: "Infinity", -math.inf: "-Infinity"}
_WORDS = {
    float: "a finite number", int: "an integer", str: "a string", bool: "true or false",
    Path: "a path", types.NoneType: "null",
}  # fmt: skip
# Types of fields. A large array goes into the .npz. Timings differ between runs, so they are left
# out: equal options give equal files.
LargeArray = Annotated[np.ndarray, "large"]
Seconds = Annotated[dict[str, float], "seconds"]
LARGEST_FILE = 2**29  # bytes; ten times the vocabulary of a large model


def read_json(
    path: str | os.PathLike[str], *, remedy: str, largest: int = LARGEST_FILE
) -> dict[str, Any]:
    """JSON object in a file.

    Raises `InputError`, which ends with the remedy, for anything but a regular file of at most
    `largest` bytes with a JSON object in UTF-8.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "config.json"
    >>> _ = path.write_text("[" * 100_000)
    >>> read_json(path, remedy="write it again")
    Traceback (most recent call last):
    jaxpe.InputError: .../config.json is not JSON (nested too deeply); write it again
    """
    value = parse_json(read_small(path, remedy=remedy, largest=largest), where=path, remedy=remedy)
    if not isinstance(value, dict):
        raise InputError(f"{path} is not a JSON object (a {type(value).__name__}); {remedy}")
    return value


def parse_json(text: str | bytes, *, where: str | os.PathLike[str], remedy: str) -> Any:
    """Value of JSON text; raises `InputError`, which begins with `where`, for other text."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise InputError(f"{where} is not JSON (nested too deeply); {remedy}") from error
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are of this kind
        raise InputError(f"{where} is not JSON ({error}); {remedy}") from error


def read_small(path: str | os.PathLike[str], *, remedy: str, largest: int = LARGEST_FILE) -> bytes:
    """Bytes of a regular file of at most `largest` bytes; raises `InputError` for another."""
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode):
            raise InputError(f"{path} is not a regular file; {remedy}")
        if about.st_size > largest:
            raise InputError(f"{path} has {about.st_size:,} bytes, more than {largest:,}; {remedy}")
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}; {remedy}") from error


def to_json(value: Any, arrays: dict[str, np.ndarray] | None = None, path: str = "") -> Any:
    """Result or configuration as plain JSON values, which `from_json` reads back.

    Named tuples and dataclasses become objects, and arrays become nested lists. A complex array
    becomes an object of `real` and `imaginary`. NaN becomes null, and ±∞ the strings "Infinity" and
    "-Infinity".

    Args:
        value: named tuple, dataclass or array, or a `dict`, `list` or `tuple` of such values.
        arrays: dictionary to move fields of the type `LargeArray` to, under their paths; fields of
            the type `Seconds` are then left out.
        path: beginning of these paths.

    >>> from typing import NamedTuple
    >>> class Fit(NamedTuple):
    ...     stress: float
    ...     distances: np.ndarray
    >>> to_json(Fit(math.nan, np.eye(2)))
    {'stress': None, 'distances': [[1.0, 0.0], [0.0, 1.0]]}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if is_named(value):
        hints, fields = type_hints(type(value)) if arrays is not None else {}, {}
        for name, item in value._asdict().items():
            if arrays is not None and hints[name] == LargeArray:
                arrays[path + name] = np.asarray(item)
            elif hints.get(name) != Seconds:
                fields[name] = to_json(item, arrays, f"{path}{name}/")
        return fields
    if isinstance(value, Mapping):
        return {str(name): to_json(x, arrays, f"{path}{name}/") for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(x, arrays, f"{path}{index}/") for index, x in enumerate(value)]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _NAMES.get(value)
    array = np.asarray(value)  # of NumPy or JAX
    if np.iscomplexobj(array):
        return {"real": to_json(array.real), "imaginary": to_json(array.imag)}
    return to_json(array.tolist())


def is_named(value: Any) -> TypeGuard[Any]:
    """Whether a value is a named tuple."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def seal(values: dict[str, Any]) -> str:
    """Hash of JSON values, independent of their order and layout; a `content_hash`.

    >>> seal({"a": 1, "b": [2]}) == seal({"b": [2], "a": 1})
    True
    """
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return content_hash(text.encode()).hexdigest()


def from_json(kind: Any, value: Any, *, where: str, finite: bool = True) -> Any:
    """JSON value as a value of a type, such as a dataclass or a NamedTuple.

    Absent fields have their defaults. A number must be finite, an integer is not accepted as a
    boolean, and a float may be written as an integer.

    Args:
        kind: `bool`, `int`, `float`, `str`, `Path`, None, `Literal`, a union, `tuple`, `list`,
            `dict` with string keys, `np.ndarray`, or a dataclass or NamedTuple of such fields.
        value: value from `json.loads`.
        where: name of the value in error messages.
        finite: whether floats must be finite; if not, null is NaN, as `to_json` writes it.

    Raises:
        InputError: a value of another type, or an unknown or missing field; the message names it.

    >>> from typing import NamedTuple
    >>> class Sizes(NamedTuple):
    ...     dim: int
    ...     rates: tuple[float, ...] = (0.1,)
    >>> from_json(Sizes, {"dim": 8, "rates": [1, 0.5]}, where="sizes")
    Sizes(dim=8, rates=(1.0, 0.5))
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)

    def read(kind: Any, item: Any, at: str = "") -> Any:
        return from_json(kind, item, where=where + at, finite=finite)

    if kind is Any:
        return value
    if origin is Annotated:
        return read(arguments[0], value)
    if kind is np.ndarray:
        return _array(value, where)
    if origin in (Union, types.UnionType):
        return _union(arguments, value, read)
    if origin is Literal:
        return _checked(value, value in arguments, " or ".join(map(repr, arguments)), where)
    if origin in (tuple, list):
        values = _checked(value, isinstance(value, list), "a list", where)
        repeated = origin is list or arguments[1:] == (Ellipsis,)
        kinds = arguments[:1] * len(values) if repeated else arguments
        _checked(value, len(kinds) == len(values), f"a list of {len(kinds)}", where)
        pairs = enumerate(zip(kinds, values, strict=True))
        return origin(read(each, item, f"[{index}]") for index, (each, item) in pairs)
    if origin is dict:
        items = _checked(value, isinstance(value, dict), "an object", where)
        return {name: read(arguments[1], item, f".{name}") for name, item in items.items()}
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        hints = _record_hints(kind, value, where)
        return kind(**{name: read(hints[name], item, f".{name}") for name, item in value.items()})
    named = value is None or isinstance(value, str)
    if kind is float and not finite and named and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    return _plain(kind or types.NoneType, value, where)


def _plain(kind: Any, value: Any, where: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float:
        right = is_number and abs(value) <= _LARGEST_FLOAT  # false for NaN
    else:
        right = isinstance(value, str if kind is Path else kind) and (kind is not int or is_number)
    _checked(value, right, _WORDS[kind], where)
    return kind(value) if kind in (float, Path) else value


def _array(value: Any, where: str) -> np.ndarray:
    """Array from nested lists; a complex array from {"real": ..., "imaginary": ...}."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, dict) and value.keys() == {"real", "imaginary"}:
        return _array(value["real"], where) + 1j * _array(value["imaginary"], where)
    try:
        array = np.array(value, dtype=object)
        if all(isinstance(x, bool | int | float) for x in array.ravel()):
            return np.array(value)
        return np.array([_NOT_FINITE.get(x, x) for x in array.ravel()], float).reshape(array.shape)
    except (TypeError, ValueError) as error:
        raise _wrong(value, "an array of numbers", where) from error


def _union(kinds: tuple[Any, ...], value: Any, read: Callable[[Any, Any], Any]) -> Any:
    if value is None and types.NoneType in kinds:
        return None  # null is NaN only for a plain float
    problems = []
    for kind in kinds:
        try:
            return read(kind, value)
        except InputError as error:
            problems.append(error)
    # For `X | None`, the message about X is more useful than the one about null.
    raise problems[0]


def _record_hints(kind: Any, value: Any, where: str) -> dict[str, Any]:
    """Types of the fields of a record, which has all that it needs and no other."""
    _checked(value, isinstance(value, dict), "an object", where)
    hints, parameters = type_hints(kind), inspect.signature(kind).parameters.values()
    if unknown := sorted(value.keys() - hints.keys()):
        raise InputError(
            f"{where} has unknown fields {', '.join(map(reprlib.repr, unknown[:_LISTED]))}; was it "
            "written by another version of jaxpe?"
        )
    required = {one.name for one in parameters if one.default is one.empty}
    if missing := sorted(required - value.keys()):
        raise InputError(f"{where} lacks {', '.join(map(repr, missing))}")
    return hints


@functools.cache
def type_hints(kind: Any) -> dict[str, Any]:
    """Types of the fields of a dataclass or NamedTuple, with their annotations."""
    return typing.get_type_hints(kind, include_extras=True)


def _checked(value: Any, right: bool, wanted: str, where: str) -> Any:
    if not right:
        raise _wrong(value, wanted, where)
    return value


def _wrong(value: Any, wanted: str, where: str) -> InputError:
    return InputError(f"{where} is {reprlib.repr(value)}, not {wanted}")
