"""`jaxpe encodings`."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Literal

import rich
from tyro.conf import Positional

from jaxpe.analysis import to_json
from jaxpe.analysis.properties import PropertyOptions, tabulate
from jaxpe.cli.console import Bars
from jaxpe.cli.parsing import command_docstring, parse
from jaxpe.report import property_table, property_text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(PropertyOptions):
    __doc__ = command_docstring(PropertyOptions, form="how to print.")
    names: Positional[tuple[str, ...]] = ()
    form: Literal["table", "markdown", "latex", "csv", "json"] = "table"


def run(words: Sequence[str]) -> None:
    """Compute the properties and print them."""
    options = parse(Command, words)
    properties = tabulate(options, progress=Bars(Command))
    if options.form == "json":
        print(json.dumps(to_json(properties), indent=2))
    elif options.form != "table":
        print(property_text(properties, form=options.form).removesuffix("\n"))
    else:
        rich.print(property_table(properties))
        if options.about == "names":
            print("Computed: --about overview, expressiveness, generalisation, extrapolation, cost")
