"""Files of a report: a page, its numbers, `figures/*.svg` and optionally `*.png`."""

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxpe._core.files import atomic_file, remove_files
from jaxpe._core.results import result_files
from jaxpe.report.style import Rendered


def write_files(
    directory: Path,
    name: str,
    result: Any,
    page: str,
    figures: list[Rendered],
    *,
    png: bool,
    others: str = "",
    further: Mapping[str, bytes] = {},
) -> Path:
    """Write a page, the numbers and the figures, all or none; return the path of the page.

    Args:
        directory: folder of the report.
        name: stem of the files' names.
        result: the numbers; None if they are in files already.
        page: HTML.
        figures: figures of this report.
        png: whether to write figures as PNG too; otherwise PNGs of an earlier report are removed.
        others: pattern of the names of figures that an earlier report may have left.
        further: names and contents of other files of the report.

    Raises:
        InputError: the folder cannot be written.
    """
    files = {f"figures/{figure.name}.svg": figure.svg for figure in figures}
    images = {f"figures/{figure.name}.png": figure.png for figure in figures}
    files |= {path: draw() for path, draw in images.items()} if png else {}
    files |= dict(further) | ({} if result is None else result_files(result, name))
    files |= {f"{name}.html": page.encode()}
    with contextlib.ExitStack() as stack:
        # The first that is entered takes its name last, once all are on the disk: the page.
        for path, content in reversed(files.items()):
            stack.enter_context(atomic_file(directory / path)).write_bytes(content)
    remove_files(directory, [] if png else images)
    remove_other_figures(directory, others, figures)
    return directory / f"{name}.html"


def remove_other_figures(directory: Path, others: str, figures: list[Rendered]) -> None:
    """Remove figures whose names match a pattern, except the drawn ones."""
    names = re.compile(rf"({others})\.(svg|png)")
    current = {figure.name for figure in figures}
    paths = sorted((directory / "figures").glob("*"))
    stale = [path for path in paths if names.fullmatch(path.name) and path.stem not in current]
    remove_files(directory, [f"figures/{path.name}" for path in stale])
