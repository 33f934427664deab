"""Pages of the commands: every option with its type, default and meaning, from the dataclasses."""

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from tyro.conf import Positional

from jaxpe.cli.commands import COMMANDS, options_class
from reference import docstrings, nodes_of
from reference.pages import described_fields, stub
from reference.signatures import written

FOLDER = "commands"
POSITIONAL = typing.get_args(Positional[int])[1]


class Option(NamedTuple):
    """An option of a command.

    Attributes:
        flag: flag, or the name of a positional argument in capitals.
        kind: type of the value.
        default: value when it is absent, as on the command line; None for a required option.
        text: meaning.
    """

    flag: str
    kind: str
    default: str | None
    text: str


def sources() -> Iterator[tuple[str, str]]:
    """Names of the documents, and their text."""
    for name in COMMANDS:
        yield f"{FOLDER}/{name}", stub(f"jaxpe {name}", "command-page", name)


def options(kind: type, prefix: str = "") -> Iterator[Option]:
    """Options of a command, positional arguments first; nested ones have a dot in their name."""
    said = {name: text for name, _, text in described_fields(kind)}
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    for field in sorted(fields, key=lambda field: not _is_positional(hints[field.name])):
        value = hints[field.name]
        if dataclasses.is_dataclass(value):
            yield from options(typing.cast(type, value), f"{prefix}{field.name}.")
            continue
        positional = _is_positional(value)
        value = typing.get_args(value)[0]  # without what its help shows
        flag = f"--{prefix}{field.name}".replace("_", "-")
        if positional:
            flag = field.name.upper()
        elif value is bool:
            flag = f"{flag}, --no-{prefix}{field.name}".replace("_", "-")
        if not said[field.name]:
            raise ValueError(f"{kind.__module__}: the docstring does not describe `{field.name}`")
        yield Option(flag, _kind(value), _default(field), said[field.name])


def _is_positional(hint: Any) -> bool:
    return POSITIONAL in typing.get_args(hint)[1:]


def _kind(value: Any) -> str:
    """Type as on the command line, where choices are words and absent options are None."""
    text = re.sub(r"Literal\[(.*?)\]", lambda found: found[1].replace("'", ""), written(value))
    return re.sub(r"tuple\[(\w+), \.\.\.\]", r"\1 ...", text.replace(" | None", ""))


def _default(field: dataclasses.Field) -> str | None:
    value = field.default
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if value is dataclasses.MISSING:
        return None
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


class CommandPage(SphinxDirective):
    """Page of a command: what it does, how it is called, and its options."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the page."""
        name = self.arguments[0]
        kind, example = options_class(name), COMMANDS[name].example
        parsed = docstrings.parse(inspect.getdoc(kind) or "")
        found = list(options(kind))
        words = [one.flag for one in found if not one.flag.startswith("--")]
        usage = " ".join(["jaxpe", name, *words, "[OPTIONS]"])
        rows = [(one.flag, one.kind, f"{one.text} {_said(one)}") for one in found]
        return [
            *nodes_of.body(docstrings.Docstring(parsed.body, {}), "jaxpe"),
            nodes.literal_block(usage, usage, language="text"),
            nodes.literal_block(example, example, language="sh"),
            nodes_of.definitions(rows, "jaxpe", ids=name),
        ]


def _said(option: Option) -> str:
    if option.default is None:
        return "Required."
    return f"Default: `{option.default}`." if option.default not in ("", "None") else ""
