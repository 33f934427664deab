"""Templates of self-contained pages, without external files, and what they show."""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxpe._core.errors import require
from jaxpe.report.style import Rendered
from jaxpe.report.tables import Table
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


class View(NamedTuple):
    """Contents of the page of a result, and of the files beside it.

    Attributes:
        name: stem of the files and of the template.
        shown: variables of the template beside the result and the fields of the view.
        figures: figures of this page.
        tables: title, header and rows of each table, also written as CSV and LaTeX.
        advice: steps to take.
        explained: name of the page of the site that explains.
        others: pattern of the names of figures that an earlier page may have left.
        further: names and contents of other files.
        setting: setting of the numbers, a comment in tables for LaTeX.
        absent: names of files of an earlier page that do not belong to this one.
        saved: whether the numbers are in files already.
    """

    name: str
    shown: Mapping[str, Any]
    figures: Sequence[Rendered]
    tables: Sequence[Table]
    advice: Sequence[Advice]
    explained: str
    others: str = ""
    further: Mapping[str, bytes] = {}
    setting: str = ""
    absent: Sequence[str] = ()
    saved: bool = False


def render_page(result: Any, view: View) -> str:
    """HTML of a page."""
    html = template(f"{view.name}.html.j2").render(
        result=result,
        advice=view.advice,
        explained=site_page(view.explained),
        **{"figures": view.figures, "tables": view.tables, **view.shown},
    )
    return with_contents(html)


def with_contents(html: str) -> str:
    """Page with an anchor at each section, and links to them where there are at least four.

    >>> page = "<!-- contents --><h2>Figures</h2><h2>Words</h2>"
    >>> with_contents(page)
    '<h2 id="section-1">Figures</h2><h2 id="section-2">Words</h2>'
    """
    titles: list[str] = []

    def anchored(match: re.Match[str]) -> str:
        titles.append(match[1])
        return f'<h2 id="section-{len(titles)}">{match[1]}</h2>'

    html = re.sub(r"<h2>(.*?)</h2>", anchored, html)
    links = [
        f'<a href="#section-{index}">{title}</a>' for index, title in enumerate(titles, 1)
        if title != "What to do"
    ]  # fmt: skip
    shown = f'<nav class="contents" aria-label="Contents">\n{chr(10).join(links)}\n</nav>'
    return html.replace("<!-- contents -->", shown if len(links) > 3 else "", 1)


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
