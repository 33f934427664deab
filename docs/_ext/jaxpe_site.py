"""The Sphinx extension of this site."""

import shutil
from pathlib import Path
from typing import Any

from reference import api, gallery, names, pages, positions
from sphinx.util import logging

LOG = logging.getLogger(__name__)
SIDES: dict[Any, str] = {}


def write_sources(app: Any) -> None:
    """Documents of the reference and the galleries, before Sphinx looks for documents."""
    pages.write(Path(app.srcdir), pages.sources())
    pages.write(Path(app.srcdir), gallery.sources())
    pages.write(Path(app.srcdir), positions.sources())


def copy_notebooks(app: Any) -> None:
    """Notebooks lie beside `docs`; they are shown with the outputs that are stored in them."""
    folder = Path(app.srcdir) / "notebooks"
    folder.mkdir(exist_ok=True)
    for notebook in (Path(app.srcdir).parent / "notebooks").glob("*.ipynb"):
        place = folder / notebook.name
        if not place.exists() or place.read_bytes() != notebook.read_bytes():
            shutil.copyfile(notebook, place)


def check_names(app: Any, env: Any) -> None:
    """A warning for every public name that no page describes."""
    described = env.domains.python_domain.objects
    for path, _ in names.offered():
        if path not in described:
            LOG.warning("no page describes %s", path)


def share_navigation(app: Any, page: str, _: str, context: dict[str, Any], __: Any) -> None:
    """The list of pages at the side is made once for all pages of a folder that are not in it."""
    folder, _, _ = page.rpartition("/")
    if folder not in (pages.FOLDER, gallery.FOLDER, positions.FOLDER) or "toctree" not in context:
        return
    make = context["toctree"]

    def shared(**options: Any) -> str:
        key = folder, *sorted(options.items())
        if key not in SIDES:
            SIDES[key] = make(**options)
        return SIDES[key]

    context["toctree"] = shared


def setup(app: Any) -> dict[str, bool]:
    """Register directives."""
    app.connect("builder-inited", write_sources)
    app.connect("builder-inited", copy_notebooks)
    app.connect("html-page-context", share_navigation, priority=100)
    app.connect("env-check-consistency", check_names)
    app.add_directive("public-name", api.NamePage)
    app.add_directive("public-package", api.PackagePage)
    app.add_directive("encoding-page", gallery.EncodingPage)
    app.add_directive("encoding-gallery", gallery.Gallery)
    app.add_directive("positions-page", positions.PositionsPage)
    app.add_directive("positions-index", positions.PositionsIndex)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
