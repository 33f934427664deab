"""`jaxpe encodings`."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Literal

from jaxpe._core.json_values import to_json
from jaxpe.analysis.properties import PropertyOptions, tabulate
from jaxpe.cli.console import Lines
from jaxpe.cli.parsing import plain
from jaxpe.report.console import show
from jaxpe.report.latex import latex_table
from jaxpe.report.writing import csv_table, markdown_table, page

_WRITERS = {"markdown": markdown_table, "latex": latex_table, "csv": csv_table}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions(PropertyOptions):
    """List the positional encodings, or compute and print their properties.

    Attributes:
        form: how to print.
    """

    form: Literal["table", "markdown", "latex", "csv", "json"] = "table"


def show_properties(options: TableOptions, words: Sequence[str]) -> None:
    """Compute the properties and print them."""
    with Lines(type(options)) as lines:
        properties = tabulate(plain(options, PropertyOptions), progress=lines)
    if options.form == "json":
        print(json.dumps(to_json(properties), indent=2))
    elif options.form == "table":
        show(page(properties))
    else:
        for table in page(properties).tables:
            print(_WRITERS[options.form](table).removesuffix("\n"))
