"""JSON from outside: read within limits, and made into typed values with the place of a fault."""

import dataclasses
import functools
import hashlib
import json
import os
import reprlib
import stat
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union

from jaxpe._errors import InputError

_LARGEST_FLOAT = 1e300  # beyond the precision that any number is used in
_LISTED = 10  # unknown fields that a message names
LARGEST_FILE = 2**29  # bytes; the vocabularies of large models take a tenth of it


def read_json(
    path: str | os.PathLike[str], *, remedy: str, largest: int = LARGEST_FILE
) -> dict[str, Any]:
    """The JSON object that a file holds.

    Args:
        path: of the file.
        remedy: what to pass or do instead, at the end of the message.
        largest: bytes that are read at most.

    Raises:
        InputError: no regular file, larger than the limit, not UTF-8, not JSON, nested too deeply,
            or no object.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "config.json"
    >>> _ = path.write_text("[" * 100_000)
    >>> read_json(path, remedy="write it again")
    Traceback (most recent call last):
    jaxpe._errors.InputError: .../config.json is not JSON (nested too deeply); write it again
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


def seal(value: Any) -> str:
    """A hash of JSON values, however their text is laid out: BLAKE2b, 32 hexadecimal digits.

    >>> seal({"a": 1, "b": [2]}) == seal({"b": [2], "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def from_json(kind: Any, value: Any, *, place: str) -> Any:
    """A value of JSON as a value of a type: a dataclass, a NamedTuple, or what their fields are.

    Fields that are absent take their default. Numbers are finite, an integer is no truth value,
    and a float may be written as an integer.

    Args:
        kind: the type: `bool`, `int`, `float`, `str`, `Path`, None, `Literal`, a union, `tuple`,
            `list`, `dict` with text for keys, a dataclass or NamedTuple of these.
        value: from `json.loads`.
        place: what the message calls the value.

    Raises:
        InputError: a value of another type, a field that is unknown or missing, by its place.

    >>> from typing import NamedTuple
    >>> class Sizes(NamedTuple):
    ...     dim: int
    ...     rates: tuple[float, ...] = (0.1,)
    >>> from_json(Sizes, {"dim": 8, "rates": [1, 0.5]}, place="sizes")
    Sizes(dim=8, rates=(1.0, 0.5))
    >>> from_json(Sizes, {"dim": "8"}, place="sizes")
    Traceback (most recent call last):
    jaxpe._errors.InputError: sizes.dim is '8', not an integer
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _union(arguments, value, place)
    if origin is Literal:
        if value not in arguments or isinstance(value, bool):
            raise _wrong(value, " or ".join(map(repr, arguments)), place)
        return value
    if origin in (tuple, list):
        return _sequence(origin, arguments, value, place)
    if origin is dict:
        items = _checked(dict, value, "an object", place).items()
        return {key: from_json(arguments[1], item, place=f"{place}.{key}") for key, item in items}
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        return _record(kind, value, place)
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


def _union(kinds: tuple[Any, ...], value: Any, place: str) -> Any:
    problems = []
    for kind in kinds:
        try:
            return from_json(kind, value, place=place)
        except InputError as error:
            problems.append(error)
    # Of `X | None` the message on X says more.
    raise problems[0]


def _sequence(kind: Any, arguments: tuple[Any, ...], value: Any, place: str) -> Any:
    values = _checked(list, value, "a list", place)
    kinds: tuple[Any, ...] = arguments
    if kind is list or arguments[1:] == (Ellipsis,):
        kinds = arguments[:1] * len(values)
    if len(kinds) != len(values):
        raise _wrong(value, f"a list of {len(kinds)}", place)
    pairs = enumerate(zip(kinds, values, strict=True))
    return kind(from_json(each, item, place=f"{place}[{i}]") for i, (each, item) in pairs)


def _record(kind: Any, value: Any, place: str) -> Any:
    fields: Mapping[str, Any] = _checked(dict, value, "an object", place)
    hints = _hints(kind)
    if unknown := sorted(fields.keys() - hints.keys()):
        raise InputError(
            f"{place} has unknown fields {', '.join(map(reprlib.repr, unknown[:_LISTED]))}; was it "
            "written by another version of jaxpe?"
        )
    if missing := sorted(_required(kind) - fields.keys()):
        raise InputError(f"{place} lacks {', '.join(map(repr, missing))}")
    made = {
        name: from_json(hints[name], item, place=f"{place}.{name}") for name, item in fields.items()
    }
    return kind(**made)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


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
