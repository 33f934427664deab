"""Options from the words of a command line, and messages with flags for arguments."""

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union

from jaxpe._core.errors import require
from jaxpe._core.options import parse_length

Options = TypeVar("Options")
_LENGTHS = {f"--{name}": name for name in ("length", "longest", "context")}
_ARGUMENT = re.compile(r"`([a-z_][a-z_.]*)(?:=([^`]*))?`")
_NAMES = {str: "TEXT", Path: "PATH", int: "INT", float: "FLOAT"}


def parse(
    kind: type[Options], words: Sequence[str], *, example: str = "", default: Any = None
) -> Options:
    """Options from the words of a command line; `--help` prints the help and exits.

    Args:
        kind: dataclass of the options of a command, named after it.
        words: the words.
        example: example of the help.
        default: options whose values are the defaults.
    """
    tyro = require("tyro", extra="cli")
    about = (kind.__doc__ or "").partition("\n    Attributes:")[0].strip()
    about = re.sub(r"\n *", "\n", about) + f"\n\nExample: {example}" * bool(example)
    defaults = {} if default is None else {"default": default}
    prog = f"jaxpe {kind.__name__}"
    return tyro.cli(kind, args=_words_in_digits(words), prog=prog, description=about, **defaults)


def option(name: str, hint: Any, *, positional: bool) -> Any:
    """Type of an option with what a help shows: its values without None, and its default."""
    from tyro.conf import Positional, arg

    if isinstance(hint, types.UnionType):  # of which tyro would import `typeguard`
        hint = Union[typing.get_args(hint)]  # type: ignore  # noqa: UP007
    metavar = name.upper() if positional else _metavar(hint)
    if positional and "tuple" in str(hint):
        metavar += " ..."
    shown = None if hint is bool else metavar
    made = Annotated[hint, arg(metavar=shown, help_behavior_hint=_default)]  # type: ignore
    return Positional[made] if positional else made


def _metavar(hint: Any) -> str:
    """Text in a help on what may be passed.

    >>> _metavar(int | Literal["middle"] | None), _metavar(tuple[str, ...])
    ('INT|{middle}', 'TEXT ...')
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "{" + ",".join(str(x) for x in arguments if x is not None) + "}"
    if origin is tuple:
        return " ".join("..." if x is Ellipsis else _metavar(x) for x in arguments)
    if origin in (Union, types.UnionType):
        kinds = dict.fromkeys(_metavar(x) for x in arguments if x is not types.NoneType)
        several = [name for name in kinds if name.endswith(" ...")]
        return "|".join(name for name in kinds if f"{name} ..." not in several)
    return _NAMES.get(hint, getattr(hint, "__name__", str(hint)).upper())


def _default(label: str) -> str:
    return "" if label in ("None", "False", "", "''") else f"(default: {label})"


def _words_in_digits(words: Sequence[str]) -> list[str]:
    """Words with lengths such as 128k written in digits."""
    parsed = []
    for before, word in zip(("", *words), words, strict=False):
        flag, _, value = word.rpartition("=")
        name = _LENGTHS.get(flag or before)
        # "None" and negative numbers are left to tyro.
        if name is not None and value != "None" and not value.startswith("-"):
            length = parse_length(name, value)
            word = f"{flag}={length}" if flag else str(length)
        parsed.append(word)
    return parsed


def plain(options: Any, kind: type[Options]) -> Options:
    """Options of another class that has some of their fields, such as of the job of a command."""
    hints = typing.get_type_hints(kind)
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(kind)}  # type: ignore
    nested = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    return kind(**values | {name: plain(values[name], nested[name]) for name in nested})


def with_flags(value: Any, options: type) -> Any:
    """Message of the library with arguments in backticks replaced by flags, if they are options.

    Args:
        value: text, or a page or list of texts, with numbers and functions between them.
        options: dataclass of the options of a command.

    >>> @dataclasses.dataclass
    ... class Sizes:
    ...     head_dim: int = 4
    >>> with_flags("`head_dim` is 3: pass `head_dim=4`, or another `encoding`", Sizes)
    '--head-dim is 3: pass --head-dim 4, or another `encoding`'
    >>> with_flags("leave it out: `head_dim=()`", Sizes)  # no value of several
    'leave it out: --head-dim'
    """
    if isinstance(value, list | tuple):
        items = [with_flags(item, options) for item in value]
        return value._make(items) if hasattr(value, "_make") else type(value)(items)
    if not isinstance(value, str):
        return value
    names = _names(options)

    def flag(match: re.Match[str]) -> str:
        name, given = match[1], match[2]
        if name not in names:
            return match[0]
        if names[name]:  # a positional argument has no flag
            return name if given is None else given
        written = name.replace("_", "-")
        if given in ("True", "False"):
            return f"--{'no-' * (given == 'False')}{written}"
        return f"--{written}" if given in (None, "()") else f"--{written} {given}"

    return _ARGUMENT.sub(flag, value)


@functools.cache
def _names(options: type, prefix: str = "") -> dict[str, bool]:
    """Names of the options, nested names with a dot, and whether each option is positional."""
    from tyro.conf import Positional

    marker = typing.get_args(Positional[int])[1]
    names: dict[str, bool] = {}
    for name, kind in typing.get_type_hints(options, include_extras=True).items():
        names[prefix + name] = marker in typing.get_args(kind)[1:]
        if dataclasses.is_dataclass(kind):
            names |= _names(typing.cast(type, kind), f"{prefix}{name}.")
    return names
