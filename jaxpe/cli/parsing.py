"""Options of a job from the words of a command line, and messages with flags for arguments."""

import dataclasses
import re
import shlex
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from jaxpe._core.errors import require
from jaxpe._core.options import parse_length

Options = TypeVar("Options")
_LENGTHS = {f"--{name}": name for name in ("length", "longest", "context")}
_ARGUMENT = re.compile(r"`([a-z_][a-z_.]*)(?:=([^`]*))?`")


def parse(kind: type[Options], words: Sequence[str], *, default: Options | None = None) -> Options:
    """Options from the words of a command line; `--help` prints the help and exits."""
    tyro = require("tyro", extra="report")
    prog = f"jaxpe {kind.__module__.rpartition('.')[2]}"
    defaults = {} if default is None else {"default": default}
    return tyro.cli(kind, args=_words_in_digits(words), prog=prog, **defaults)


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


def command_docstring(options: type, **more: str) -> str:
    """Docstring of a command: the job's options, with a line for each additional option."""
    lines = [f"    {name}: {text}" for name, text in more.items()]
    return "\n".join([(options.__doc__ or "").rstrip(), *(f"    {line}" for line in lines), "    "])


def plain(options: Any, kind: Callable[..., Options]) -> Options:
    """Options of a job from the options of its command, which has more."""
    fields = dataclasses.fields(typing.cast(Any, kind))
    return kind(**{field.name: getattr(options, field.name) for field in fields})


def flag_message(message: str, options: type) -> str:
    """Message of the library with arguments in backticks replaced by flags, if they are options.

    >>> @dataclasses.dataclass
    ... class Sizes:
    ...     head_dim: int = 4
    >>> flag_message("`head_dim` is 3: pass `head_dim=4`, or another `encoding`", Sizes)
    '--head-dim is 3: pass --head-dim 4, or another `encoding`'
    """
    names = _names(options)

    def flag(match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        if name not in names:
            return match[0]
        if names[name]:  # a positional argument has no flag
            return name if value is None else value
        return " ".join(_flag(name, *([] if value is None else [value])))

    return _ARGUMENT.sub(flag, message)


def command_line(options: Any, **changes: Any) -> str:
    """Command line that sets options, quoted for a shell; defaults are left out.

    Args:
        options: options of a command, which is named after their module.
        **changes: changes of the options.

    >>> from pathlib import Path
    >>> from jaxpe.cli.train import Command
    >>> command_line(Command(source="my films.tsv"), steps=40, out=Path("run"), special=True)
    "jaxpe train 'my films.tsv' --special --steps 40"
    """
    options = dataclasses.replace(options, **changes)
    default, positional = _flat(type(options)), _names(type(options))
    words = ["jaxpe", type(options).__module__.rpartition(".")[2]]
    for name, value in sorted(_flat(options).items(), key=lambda item: not positional[item[0]]):
        if value == default[name]:
            continue
        values = value if isinstance(value, tuple) else (value,)
        words += values if positional[name] else _flag(name, *values)
    return shlex.join(map(str, words))


def _flag(name: str, *values: Any) -> list[str]:
    """Words of the command line for an option."""
    written = name.replace("_", "-")
    if [str(value) for value in values] in (["True"], ["False"]):
        return [f"--{written}" if str(values[0]) == "True" else f"--no-{written}"]
    return [f"--{written}", *map(str, values)]


def _flat(options: Any, prefix: str = "") -> dict[str, Any]:
    """Values of options by name, nested names with a dot; for a class, its defaults."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name, dataclasses.MISSING)
        nested = dataclasses.is_dataclass(value)
        values |= _flat(value, f"{prefix}{field.name}.") if nested else {prefix + field.name: value}
    return values


def _names(options: type, prefix: str = "") -> Mapping[str, bool]:
    """Names of the options, nested names with a dot, and whether each option is positional."""
    from tyro.conf import Positional

    positional = typing.get_args(Positional[int])[1:]
    names: dict[str, bool] = {}
    for name, kind in typing.get_type_hints(options, include_extras=True).items():
        names[prefix + name] = typing.get_args(kind)[1:] == positional
        if dataclasses.is_dataclass(kind):
            names |= _names(typing.cast(type, kind), f"{prefix}{name}.")
    return names
