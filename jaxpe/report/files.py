"""Files of a report: a page, its numbers, `figures/*.svg` and `figures/*.png`."""

import contextlib
from pathlib import Path

from jaxpe._core.folders import writing
from jaxpe.report.style import Rendered


def write_files(directory: Path, figures: list[Rendered], files: dict[str, bytes]) -> Path:
    """Write figures and files into `directory`, all or none; return the path of the last file.

    Raises `InputError` where the folder cannot be written.
    """
    drawn = {f"figures/{figure.name}.svg": figure.svg for figure in figures}
    drawn |= {f"figures/{figure.name}.png": figure.png for figure in figures}
    with contextlib.ExitStack() as whole:
        # The first that is entered takes its name last, once all are on the disk: the page.
        for name, content in reversed((drawn | files).items()):
            whole.enter_context(writing(directory / name)).write_bytes(content)
    return directory / list(files)[-1]
