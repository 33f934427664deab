"""The output folder: `report.html`, `report.json`, `figures/*.svg` and `figures/*.png`."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path

from jaxpe._errors import InputError
from jaxpe._folders import claimed, writing
from jaxpe.report._figures import Rendered, render_figures
from jaxpe.report._page import render_page
from jaxpe.report.analysis import Analysis

_held: ContextVar[frozenset[str]] = ContextVar("_held", default=frozenset())


def write_report(analysis: Analysis, directory: str | os.PathLike[str]) -> Path:
    """Write the page, the numbers and the figures into `directory`; return the page's path.

    The folder is made where it is missing. Everything is drawn and written beside its place before
    any file takes its name, so a failed run leaves the report that was there. The same analysis
    gives the same bytes.

    Raises `InputError` where the folder cannot be written or another run writes into it,
    `ValueError` where the analysis holds a NaN or an infinity that `to_json` lets through, and
    `MissingExtraError` without the extra `report`.
    """
    with output_folder(directory) as folder:
        figures = render_figures(analysis)
        page = render_page(analysis, figures).encode()
        return write_files(folder, figures, {"report.json": _json(analysis), "report.html": page})


@contextlib.contextmanager
def output_folder(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """The folder of a report, made and written to once, with other runs kept out.

    Whoever has it may ask for it again, as a command does that then calls `write_report`.

    Raises `InputError` where it cannot be written or another run writes into it.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with output_folder(folder), output_folder(folder) as again:
    ...     sorted(path.name for path in again.iterdir())
    ['.lock', 'figures']
    """
    directory = Path(directory)
    place = os.path.realpath(directory)
    if place in _held.get():
        yield directory
        return
    with claimed(directory):
        with _writing(directory):
            (directory / "figures").mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory) as file:
                file.write(b"1")
        before = _held.set(_held.get() | {place})
        try:
            yield directory
        finally:
            _held.reset(before)


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


def remove_files(directory: Path, names: Iterable[str]) -> None:
    """Take away files of `directory` that are there.

    Raises `InputError` where the folder cannot be written.
    """
    with _writing(directory):
        for name in names:
            (directory / name).unlink(missing_ok=True)


@contextlib.contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write the report into {directory} ({error.strerror or error}): make room, or "
            "pass a folder that you may write to"
        ) from error


def _json(analysis: Analysis) -> bytes:
    return (json.dumps(analysis.to_json(), indent=2, allow_nan=False) + "\n").encode()
