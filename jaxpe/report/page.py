"""Templates of self-contained pages, without scripts or external files."""

import base64
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxpe._core.errors import require
from jaxpe.report.files import write_files
from jaxpe.report.style import Rendered
from jaxpe.report.text import Advice, number, percent, site_page, visible


def template(name: str) -> Any:
    """A template of this folder. Raises `MissingExtraError` without the extra `report`."""
    jinja2 = require("jinja2", extra="report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("jaxpe", "report/templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "percent": percent,
        "visible": visible,
        "data_uri": _data_uri,
    }
    return environment.get_template(name)


def write_page(
    folder: Path,
    name: str,
    result: Any,
    figures: list[Rendered],
    shown: Mapping[str, Any],
    *,
    png: bool,
    others: str = "",
) -> Path:
    """Fill in the template of a page, and write it with its numbers and figures.

    Args:
        folder, name, result, figures, png, others: arguments of `write_files`.
        shown: what the template shows beside the result and the figures.
    """
    page = template(f"{name}.html.j2").render(result=result, figures=figures, **shown)
    return write_files(folder, name, result, page, figures, png=png, others=others)


def decision(steps: list[Advice], site: str) -> dict[str, Any]:
    """Variables of a template: steps to take, and address of the page that explains."""
    return {"advice": steps, "explained": site_page(site)}


def term_links(terms: Mapping[str, str]) -> Callable[[str], Any]:
    """A function that escapes text and links the first occurrence of each term to its definition.

    Args:
        terms: the `id` of the definition on the page, by term.

    >>> link = term_links({"stress": "stress"})
    >>> str(link("stress < 1")), str(link("stress"))
    ('<a href="#stress">stress</a> &lt; 1', 'stress')
    """
    markupsafe = require("markupsafe", extra="report")
    waiting = dict(terms)
    pattern = re.compile("|".join(map(re.escape, sorted(terms, key=len, reverse=True))))

    def linked(match: re.Match[str]) -> str:
        anchor = waiting.pop(match[0], None)
        return match[0] if anchor is None else f'<a href="#{anchor}">{match[0]}</a>'

    return lambda text: markupsafe.Markup(pattern.sub(linked, str(markupsafe.escape(text))))


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
