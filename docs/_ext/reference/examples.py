"""Outputs and pages of stored results, made by each build.

`docs/example` has the results: of the built-in corpus and of a model, stored by
`tools/store_examples.py`, and a configuration. Text and figures of the site are those of the
present code.
"""

import functools
import io
import textwrap
from pathlib import Path
from typing import Any

from rich.console import Console

from jaxpe.analysis import load_result
from jaxpe.analysis.corpus import CorpusResult
from jaxpe.analysis.inspect import InspectResult
from jaxpe.plans import RopeOptions, explain_rope
from jaxpe.report import writing
from jaxpe.report.console import rich_table
from jaxpe.report.drawing import image
from jaxpe.report.findings import findings_table

FOLDER = Path(__file__).parents[2] / "example"
HERO = ("map", "shares")  # figures of the front pages


@functools.cache
def result(name: str) -> Any:
    """A stored result, or the analysis of the stored configuration."""
    if name == "rope":
        return explain_rope(RopeOptions(config=str(FOLDER / "config.json")))
    kind = {"report": CorpusResult, "inspect": InspectResult}[name]
    return load_result(kind, FOLDER / f"{name}.json")


def output(name: str, width: int = 78) -> tuple[str, str]:
    """Findings at the top of `rope`, `inspect` or `report`, and the first step to take."""
    page = writing.page(result(name))
    rows = printed(rich_table(findings_table(page.lead, "")), width)
    return "\n".join(rows), next((step.todo for step in page.steps), "")


def printed(table: Any, width: int) -> list[str]:
    """Lines of a table as a console of a width shows them, without the common margin."""
    page = io.StringIO()
    Console(file=page, width=width).print(table)
    return [line.rstrip() for line in textwrap.dedent(page.getvalue()).strip("\n").splitlines()]


def hero() -> dict[str, bytes]:
    """Figures of the front pages, by the name of their file in `docs/images`."""
    figures = writing.page(result("report")).figures
    return {f"{one.name}.svg": image(one) for one in figures if one.name in HERO}


def write(source: Path, site: Path) -> None:
    """Write the pages of the results into the site, and the figures of the front pages."""
    for name in ("rope", "inspect", "report"):
        writing.write(result(name), site / FOLDER.name)
    for name, content in hero().items():
        place = source / "images" / name
        if not place.exists() or place.read_bytes() != content:
            place.write_bytes(content)
