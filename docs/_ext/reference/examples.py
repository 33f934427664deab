"""Outputs and pages of stored results, made by each build.

`docs/example` has the results: of the built-in corpus and of a model, written by
`experiments.beyond.stdlib_report` and by `jaxpe inspect`, and a configuration. Text and figures of
the site are those of the present code.
"""

import functools
import io
import re
import textwrap
from pathlib import Path
from typing import Any

from docutils import nodes
from rich.console import Console
from sphinx.util.docutils import SphinxDirective

from jaxpe import report
from jaxpe.analysis import load_result
from jaxpe.analysis.corpus import CorpusAnalysis
from jaxpe.analysis.inspect import InspectResult
from jaxpe.plans import RopeOptions, explain_rope
from jaxpe.report.console import rich_table
from jaxpe.report.corpus.figures import FIGURES
from jaxpe.report.style import render

FOLDER = Path(__file__).parents[2] / "example"
HERO = ("map", "shares")  # figures of the front pages


@functools.cache
def result(name: str) -> Any:
    """A stored result, or the analysis of the stored configuration."""
    if name == "rope":
        return explain_rope(RopeOptions(config=str(FOLDER / "config.json")))
    kind = {"report": CorpusAnalysis, "inspect": InspectResult}[name]
    return load_result(kind, FOLDER / f"{name}.json")


def output(name: str) -> tuple[str, str]:
    """Lines of a table and a paragraph of the output of `rope`, `inspect` or `report`."""
    found = result(name)
    if name == "inspect":
        return "", report.inspect_summary(found)
    if name == "report":
        title, *rows = printed(report.summary_table(found), 100)
        return "\n".join([title, "", *rows[3:11]]), ""
    tables = report.page(found).tables
    (programs,) = (one for one in tables if one.title.startswith("What programs"))
    lines = printed(rich_table(programs), 80)
    head = next(k for k, line in enumerate(lines) if "programs" in line)
    first = found.findings[0]
    shown = [*lines[head + 2 : head + 4], *lines[head + 5 : head + 7]]
    return "\n".join(shown), f"{first.text} {first.remedy}"


def printed(table: Any, width: int) -> list[str]:
    """Lines of a table as a console of a width shows them, without the common margin."""
    page = io.StringIO()
    Console(file=page, width=width).print(table)
    return [line.rstrip() for line in textwrap.dedent(page.getvalue()).strip("\n").splitlines()]


def hero() -> dict[str, bytes]:
    """Figures of the front pages, by the name of their file in `docs/images`."""
    drawings = [drawing for drawing in FIGURES if drawing[0] in HERO]
    return {f"{one.name}.svg": one.svg for one in render(result("report"), *drawings)}


def write(source: Path, site: Path) -> None:
    """Write the pages of the results into the site, and the figures of the front pages."""
    for name in ("rope", "inspect", "report"):
        page = report.write(result(name), site / FOLDER.name)
        link = r'<a href="../\1.html">\1</a>'
        text = re.sub(
            r"<code>docs/([a-z-]+)\.md</code> in the source of jaxpe", link, page.read_text("utf-8")
        )
        page.write_text(text, "utf-8")
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
        shown = zip(output(self.arguments[0]), ("output", "output prose"), strict=True)
        return [
            nodes.literal_block(text, text, language="text", classes=kind.split())
            for text, kind in shown
            if text
        ]
