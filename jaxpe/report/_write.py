"""The output folder: `report.html`, `report.json`, `figures/*.svg` and `figures/*.png`."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jaxpe._errors import InputError
from jaxpe.report._figures import Rendered, render_figures
from jaxpe.report._page import render_page
from jaxpe.report.analysis import Analysis


def write_report(analysis: Analysis, directory: str | os.PathLike[str]) -> Path:
    """Write the page, the numbers and the figures into `directory`; return the page's path.

    The folder is made where it is missing. Everything is drawn before anything is written, each
    file is replaced whole and the page comes last, so a failed run leaves no half page. The same
    analysis gives the same bytes.

    Raises `InputError` where the folder cannot be written, `ValueError` where the analysis holds a
    NaN or an infinity that `to_json` lets through, and `MissingExtraError` without the extra
    `report`.
    """
    directory = prepare_directory(directory)
    figures = render_figures(analysis)
    page = render_page(analysis, figures).encode()
    return write_files(directory, figures, {"report.json": _json(analysis), "report.html": page})


def write_files(directory: Path, figures: list[Rendered], files: dict[str, bytes]) -> Path:
    """Write figures and then files into `directory`, each replaced whole; return the last's path.

    Raises `InputError` where the folder cannot be written.
    """
    drawn = {f"figures/{figure.name}.svg": figure.svg for figure in figures}
    drawn |= {f"figures/{figure.name}.png": figure.png for figure in figures}
    with _writing(directory):
        for name, content in (drawn | files).items():
            _replace(directory / name, content)
    return directory / list(files)[-1]


def prepare_directory(directory: str | os.PathLike[str]) -> Path:
    """Make the folder and write to it once, so that a long run does not fail at its end.

    Raises `InputError` where it cannot be written.
    """
    directory = Path(directory)
    with _writing(directory):
        (directory / "figures").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    return directory


@contextlib.contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write the report into {directory} ({error.strerror}): "
            "pass a folder that you may write to"
        ) from error


def _json(analysis: Analysis) -> bytes:
    return (json.dumps(analysis.to_json(), indent=2, allow_nan=False) + "\n").encode()


def _replace(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
