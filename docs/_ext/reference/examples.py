"""Outputs and pages of stored results, made by each build.

`docs/example` has the results: of the built-in corpus and of a model, written by
`experiments.beyond.stdlib_report` and by `jaxpe inspect`, and a configuration. Text and figures of
the site are those of the present code.
"""

import functools
import io
import textwrap
from pathlib import Path
from typing import Any

from docutils import nodes
from rich.console import Console
from sphinx.util.docutils import SphinxDirective

from jaxpe import report
from jaxpe.analysis import load_result
from jaxpe.analysis.corpus import CorpusResult
from jaxpe.analysis.inspect import InspectResult
from jaxpe.plans import RopeOptions, explain_rope
from jaxpe.report.console import rich_table
from jaxpe.report.drawing import image
from jaxpe.report.findings import findings_table

FOLDER = Path(__file__).parents[2] / "example"
HERO = ("map", "shares")  # figures of the front pages
SHOWN = 8  # findings of a front page


@functools.cache
def result(name: str) -> Any:
    """A stored result, or the analysis of the stored configuration."""
    if name == "rope":
        return explain_rope(RopeOptions(config=str(FOLDER / "config.json")))
    kind = {"report": CorpusResult, "inspect": InspectResult}[name]
    return load_result(kind, FOLDER / f"{name}.json")


def output(name: str) -> str:
    """First findings of the output of `rope`, `inspect` or `report`."""
    found = report.page(result(name))
    table = rich_table(findings_table(found.findings[:SHOWN], ""))
    return "\n".join([found.title, found.about, "", *printed(table, 100)])


def printed(table: Any, width: int) -> list[str]:
    """Lines of a table as a console of a width shows them, without the common margin."""
    page = io.StringIO()
    Console(file=page, width=width).print(table)
    return [line.rstrip() for line in textwrap.dedent(page.getvalue()).strip("\n").splitlines()]


def hero() -> dict[str, bytes]:
    """Figures of the front pages, by the name of their file in `docs/images`."""
    figures = report.page(result("report")).figures
    return {f"{one.name}.svg": image(one) for one in figures if one.name in HERO}


def write(source: Path, site: Path) -> None:
    """Write the pages of the results into the site, and the figures of the front pages."""
    for name in ("rope", "inspect", "report"):
        report.write(result(name), site / FOLDER.name)
    for name, content in hero().items():
        place = source / "images" / name
        if not place.exists() or place.read_bytes() != content:
            place.write_bytes(content)


class Output(SphinxDirective):
    """Output of a command on an example."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the block."""
        self.env.note_dependency(str(FOLDER))
        text = output(self.arguments[0])
        return [nodes.literal_block(text, text, language="text", classes=["output"])]
