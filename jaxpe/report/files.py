"""Files of a report: a page, its numbers, `figures/*.svg` and `figures/*.png`."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from jaxpe._core.folders import remove_files, writing
from jaxpe.report.style import Rendered

_ENDINGS = ("svg", "png")


def write_files(directory: Path, figures: list[Rendered], files: dict[str, bytes]) -> Path:
    """Write figures and files into `directory`, all or none; return the path of the last file.

    Raises `InputError` where the folder cannot be written.
    """
    drawn = {
        f"figures/{figure.name}.{end}": getattr(figure, end)
        for figure in figures
        for end in _ENDINGS
    }
    with contextlib.ExitStack() as whole:
        # The first that is entered takes its name last, once all are on the disk: the page.
        for name, content in reversed((drawn | files).items()):
            whole.enter_context(writing(directory / name)).write_bytes(content)
    return directory / list(files)[-1]


def remove_other_figures(directory: Path, possible: Iterable[str], drawn: list[Rendered]) -> None:
    """Take away figures that an earlier report drew and this one has none for.

    Args:
        directory: of the report.
        possible: names of all figures that a report of this kind may have.
        drawn: those of this report.

    Raises:
        InputError: the folder cannot be written.
    """
    others = set(possible) - {figure.name for figure in drawn}
    remove_files(directory, [f"figures/{x}.{end}" for x in sorted(others) for end in _ENDINGS])
