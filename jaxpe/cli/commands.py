"""The table of commands, and the class of the options of each."""

import dataclasses
import functools
import importlib
import tomllib
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxpe._core.options import Output
from jaxpe.cli.parsing import option

_field: Any = dataclasses.field  # of which either default may be missing


class Command(NamedTuple):
    """A command of `jaxpe`, an entry of commands.toml.

    Attributes:
        group: heading in the list of commands.
        about: what it does, for the list of commands.
        example: command line that a person may paste.
        options: dataclass of its options, as module:name.
        job: function of the options that returns a result with a page, as module:name.
        run: instead of `job`, function of the options, and of the words of the command line, that
            shows everything itself.
        positional: options without a flag.
        out: default of `--out` of a command with a job.
        extras: extras of `pip install` that it needs.
        jax: whether it imports JAX, but for a help.
        small_programs: whether its programs take longer to compile than to run.
    """

    group: str
    about: str
    example: str
    options: str
    job: str = ""
    run: str = ""
    positional: Sequence[str] = ()
    out: str = ""
    extras: Sequence[str] = ()
    jax: bool = True
    small_programs: bool = False


_TABLE = Path(__file__).with_name("commands.toml").read_text("utf-8")
COMMANDS = {name: Command(**entry) for name, entry in tomllib.loads(_TABLE).items()}


def load(path: str) -> Any:
    """Object of a module, named as module:name."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


@functools.cache
def options_class(name: str) -> type:
    """Dataclass of all options of a command: those of its job, and the files of its page."""
    command = COMMANDS[name]
    kind = load(command.options)
    defaults = {"out": Path(command.out)} if command.out else {}
    return _for_help(kind, name, command.positional, (Output,) if command.job else (), defaults)


def _for_help(
    kind: type, name: str, positional: Sequence[str], bases: tuple[type, ...], defaults: dict
) -> type:
    """A subclass whose fields say how a help shows them; nested options too."""
    fields: list[Any] = []
    for base in (kind, *bases):
        hints = typing.get_type_hints(base, include_extras=True)
        for field in dataclasses.fields(base):
            hint, default = hints[field.name], defaults.pop(field.name, field.default)
            made: Any = _field(
                default=default, default_factory=field.default_factory, metadata=field.metadata
            )
            if dataclasses.is_dataclass(hint):
                hint = _for_help(typing.cast(type, hint), hint.__name__, (), (), {})
                made = hint()
            else:
                hint = option(field.name, hint, positional=field.name in positional)
            fields.append((field.name, hint, made))
    made = dataclasses.make_dataclass(name, fields, bases=(*bases, kind), kw_only=True, frozen=True)
    made.__doc__ = kind.__doc__
    return made
