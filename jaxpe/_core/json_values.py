"""JSON from outside: read within limits, and made into typed values with the place of a fault."""

import dataclasses
import functools
import json
import math
import os
import reprlib
import stat
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard, Union

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.files import content_hash

_LARGEST_FLOAT = 1e300  # beyond the precision that any number is used in
_LISTED = 10  # unknown fields that a message names
_NOT_FINITE = {None: math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NAMES = {math.inf: "Infinity", -math.inf: "-Infinity"}
LARGEST_FILE = 2**29  # bytes; the vocabularies of large models take a tenth of it


def read_json(
    path: str | os.PathLike[str], *, remedy: str, largest: int = LARGEST_FILE
) -> dict[str, Any]:
    """The JSON object that a file holds.

    Raises `InputError`, with the remedy at its end, for no regular file, one larger than so many
    bytes, not UTF-8, not JSON, nested too deeply, or no object.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "config.json"
    >>> _ = path.write_text("[" * 100_000)
    >>> read_json(path, remedy="write it again")
    Traceback (most recent call last):
    jaxpe.InputError: .../config.json is not JSON (nested too deeply); write it again
    """
    value = parse_json(read_small(path, remedy=remedy, largest=largest), place=path, remedy=remedy)
    if not isinstance(value, dict):
        raise InputError(f"{path} is not a JSON object (a {type(value).__name__}); {remedy}")
    return value


def parse_json(text: str | bytes, *, place: str | os.PathLike[str], remedy: str) -> Any:
    """The value of JSON text; raises `InputError` with the place where it is none."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise InputError(f"{place} is not JSON (nested too deeply); {remedy}") from error
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are of this kind
        raise InputError(f"{place} is not JSON ({error}); {remedy}") from error


def read_small(path: str | os.PathLike[str], *, remedy: str, largest: int = LARGEST_FILE) -> bytes:
    """The bytes of a regular file that is not larger than a limit; raises `InputError`."""
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode):
            raise InputError(f"{path} is not a regular file; {remedy}")
        if about.st_size > largest:
            raise InputError(
                f"{path} has {about.st_size:,} bytes and may have {largest:,}; {remedy}"
            )
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}; {remedy}") from error


def to_json(value: Any) -> Any:
    """A result or configuration as plain values that `from_json` reads back.

    Named tuples and dataclasses become objects, arrays nested lists, complex ones an object of
    `real` and `imaginary`; NaN becomes null, ±∞ the strings "Infinity" and "-Infinity".

    Args:
        value: named tuple, dataclass, array, or `dict`, `list` and `tuple` of these.

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
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(name): to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
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
    """A hash of JSON values, whatever the order of their names.

    >>> seal({"a": 1, "b": [2]}) == seal({"b": [2], "a": 1})
    True
    """
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return content_hash(text.encode()).hexdigest()


def from_json(kind: Any, value: Any, *, place: str, finite: bool = True) -> Any:
    """A value of JSON as a value of a type: a dataclass, a NamedTuple, or what their fields are.

    Fields that are absent take their default. Numbers are finite, an integer is no truth value, and
    a float may be written as an integer.

    Args:
        kind: `bool`, `int`, `float`, `str`, `Path`, None, `Literal`, a union, `tuple`, `list`,
            `dict` with text for keys, `np.ndarray`, a dataclass or NamedTuple of these.
        value: value from `json.loads`.
        place: what the message calls the value.
        finite: whether floats must be finite; else null is NaN, as `to_json` writes it.

    Raises:
        InputError: a value of another type, a field that is unknown or missing, by its place.

    >>> from typing import NamedTuple
    >>> class Sizes(NamedTuple):
    ...     dim: int
    ...     rates: tuple[float, ...] = (0.1,)
    >>> from_json(Sizes, {"dim": 8, "rates": [1, 0.5]}, place="sizes")
    Sizes(dim=8, rates=(1.0, 0.5))
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin is Annotated:
        return from_json(arguments[0], value, place=place, finite=finite)
    if kind is np.ndarray:
        return _array(value, place)
    if origin in (Union, types.UnionType):
        return _union(arguments, value, place, finite)
    if origin is Literal:
        if value not in arguments or isinstance(value, bool):
            raise _wrong(value, " or ".join(map(repr, arguments)), place)
        return value
    if origin in (tuple, list):
        return _sequence(origin, arguments, value, place, finite)
    if origin is dict:
        items = _checked(dict, value, "an object", place)
        return _fields(dict.fromkeys(items, arguments[1]), items, place, finite)
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        return _record(kind, value, place, finite)
    named = value is None or isinstance(value, str)
    if kind is float and not finite and named and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    return _plain(kind, value, place)


def _plain(kind: Any, value: Any, place: str) -> Any:
    if kind is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not abs(value) <= _LARGEST_FLOAT:  # which NaN is not either
            raise _wrong(value, "a finite number", place)
        return float(value)
    if kind is int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong(value, "an integer", place)
        return value
    if kind in (None, types.NoneType):
        return _checked(types.NoneType, value, "null", place)
    if kind is Path:
        return Path(_checked(str, value, "a path", place))
    return _checked(kind, value, {str: "a string", bool: "true or false"}[kind], place)


def _array(value: Any, place: str) -> np.ndarray:
    """An array from nested lists; of complex numbers from {"real": ..., "imaginary": ...}."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, dict) and value.keys() == {"real", "imaginary"}:
        return _array(value["real"], place) + 1j * _array(value["imaginary"], place)
    try:
        array = np.array(value, dtype=object)
        if all(isinstance(x, bool | int | float) for x in array.ravel()):
            return np.array(value)
        return np.array([_NOT_FINITE.get(x, x) for x in array.ravel()], float).reshape(array.shape)
    except (TypeError, ValueError) as error:
        raise _wrong(value, "an array of numbers", place) from error


def _union(kinds: tuple[Any, ...], value: Any, place: str, finite: bool) -> Any:
    if value is None and types.NoneType in kinds:
        return None  # and not the NaN that null is for a float alone
    problems = []
    for kind in kinds:
        try:
            return from_json(kind, value, place=place, finite=finite)
        except InputError as error:
            problems.append(error)
    # For `X | None` the message on X is the more useful one.
    raise problems[0]


def _sequence(kind: Any, arguments: tuple[Any, ...], value: Any, place: str, finite: bool) -> Any:
    values = _checked(list, value, "a list", place)
    repeated = kind is list or arguments[1:] == (Ellipsis,)
    kinds = arguments[:1] * len(values) if repeated else arguments
    if len(kinds) != len(values):
        raise _wrong(value, f"a list of {len(kinds)}", place)
    return kind(
        from_json(each, item, place=f"{place}[{i}]", finite=finite)
        for i, (each, item) in enumerate(zip(kinds, values, strict=True))
    )


def _record(kind: Any, value: Any, place: str, finite: bool) -> Any:
    fields: Mapping[str, Any] = _checked(dict, value, "an object", place)
    hints = type_hints(kind)
    if unknown := sorted(fields.keys() - hints.keys()):
        raise InputError(
            f"{place} has unknown fields {', '.join(map(reprlib.repr, unknown[:_LISTED]))}; was it "
            "written by another version of jaxpe?"
        )
    if missing := sorted(_required(kind) - fields.keys()):
        raise InputError(f"{place} lacks {', '.join(map(repr, missing))}")
    return kind(**_fields(hints, fields, place, finite))


def _fields(
    kinds: Mapping[str, Any], values: Mapping[str, Any], place: str, finite: bool
) -> dict[str, Any]:
    return {
        name: from_json(kinds[name], item, place=f"{place}.{name}", finite=finite)
        for name, item in values.items()
    }


@functools.cache
def type_hints(kind: Any) -> dict[str, Any]:
    """The types of the fields of a dataclass or NamedTuple, with their annotations."""
    return typing.get_type_hints(kind, include_extras=True)


def _required(kind: Any) -> set[str]:
    if not dataclasses.is_dataclass(kind):
        return set(kind._fields) - kind._field_defaults.keys()
    missing = dataclasses.MISSING
    return {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is missing and field.default_factory is missing
    }


def _checked(kind: Any, value: Any, name: str, place: str) -> Any:
    if not isinstance(value, kind):
        raise _wrong(value, name, place)
    return value


def _wrong(value: Any, wanted: str, place: str) -> InputError:
    return InputError(f"{place} is {reprlib.repr(value)}, not {wanted}")
