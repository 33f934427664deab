"""The Sphinx extension of this site."""

import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from reference import api, catalogue, examples, names, options, pages, positions
from sphinx.util import logging

from jaxpe import encodings

LOG = logging.getLogger(__name__)
SIDES: dict[Any, str] = {}
WIDE = 6  # columns of a table
CODE = 92  # characters that a page shows at 1,280 pixels


def write_sources(app: Any) -> None:
    """Documents of the reference and of released models, before Sphinx looks for documents."""
    pages.write(Path(app.srcdir), pages.sources())
    pages.write(Path(app.srcdir), positions.sources())
    pages.write(Path(app.srcdir), options.sources())
    examples.write(Path(app.srcdir), Path(app.outdir))


def copy_notebooks(app: Any) -> None:
    """Notebooks lie beside `docs`; they are shown with the outputs that are stored in them."""
    folder = Path(app.srcdir) / "notebooks"
    folder.mkdir(exist_ok=True)
    for notebook in (Path(app.srcdir).parent / "notebooks").glob("*.ipynb"):
        place = folder / notebook.name
        if not place.exists() or place.read_bytes() != notebook.read_bytes():
            shutil.copyfile(notebook, place)


def prepare_tables(app: Any, doctree: nodes.document) -> None:
    """Tables of many columns wrap and are wide; encodings lead to the pages of their functions."""
    entries = {entry.name: entry for entry in encodings.catalogue()}
    for table in doctree.findall(nodes.table):
        if next(table.findall(nodes.tgroup))["cols"] >= WIDE:
            table["classes"] += ["wrapped", "wide"]
        if app.env.docname == "encodings":
            for row in table.findall(nodes.row):
                name = next(row.findall(nodes.literal), None)
                if name is not None and name.astext() in entries:
                    name.replace_self(catalogue.function_link(entries[name.astext()]))


def check_text(app: Any, doctree: nodes.document) -> None:
    """A warning for a number that is NaN in a table, and for code that a page cuts off."""
    page = app.env.docname
    for entry in doctree.findall(nodes.entry):
        if re.search(r"\bnan\b", entry.astext(), re.IGNORECASE):
            LOG.warning("%s: a table has NaN: %s", page, entry.astext()[:60])
    for block in doctree.findall(nodes.literal_block):
        widest = max(map(len, block.astext().splitlines() or [""]))
        if widest > CODE and block["language"] in ("python", "python3", "pycon", "sh"):
            LOG.warning("%s: a line of code has %d characters, not %d", page, widest, CODE)


def check_names(app: Any, env: Any) -> None:
    """A warning for every public name that no page describes."""
    described = env.domains.python_domain.objects
    for path in names.paths():
        if path not in described:
            LOG.warning("no page describes %s", path)


def share_navigation(app: Any, page: str, _: str, context: dict[str, Any], __: Any) -> None:
    """The list of pages at the side is made once for all pages of a folder that are not in it."""
    folder, _, _ = page.rpartition("/")
    if folder not in (pages.FOLDER, positions.FOLDER) or "toctree" not in context:
        return
    make = context["toctree"]

    def shared(**options: Any) -> str:
        key = folder, *sorted(options.items())
        if key not in SIDES:
            SIDES[key] = make(**options)
        return SIDES[key]

    context["toctree"] = shared


def write_inline_math(translator: Any, node: nodes.math) -> None:
    """MathML, which browsers show without a script from elsewhere."""
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def write_math_block(translator: Any, node: nodes.math_block) -> None:
    """MathML of a formula that stands by itself."""
    formula = tex2mathml(node.astext(), as_block=True)
    translator.body.append(f'<div class="formula">{formula}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register directives."""
    app.connect("builder-inited", write_sources)
    app.connect("builder-inited", copy_notebooks)
    app.connect("doctree-read", prepare_tables)
    app.connect("doctree-read", check_text)
    app.connect("html-page-context", share_navigation, priority=100)
    app.connect("env-check-consistency", check_names)
    app.add_html_math_renderer("mathml", (write_inline_math, None), (write_math_block, None))
    app.add_directive("public-name", api.NamePage)
    app.add_directive("public-package", api.PackagePage)
    app.add_directive("encoding-catalogue", catalogue.Catalogue)
    app.add_directive("command-page", options.CommandPage)
    app.add_directive("positions-page", positions.PositionsPage)
    app.add_directive("positions-index", positions.PositionsIndex)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
