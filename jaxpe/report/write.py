"""Writing of a page: `write(result, directory)`, for the result of any job."""

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxpe._core.files import output_folder
from jaxpe.report.text import Advice

# Module and function of the view of each job, imported for a result of it: some bring Flax. The
# module has `advice(result)` as well.
_VIEWS = {
    "attention": ("attention.page", "write_spectral"),
    "audit": ("audit.page", "write_audit"),
    "comparison": ("comparison", "write_comparison"),
    "corpora": ("corpora", "write_corpora"),
    "corpus": ("corpus.page", "write_corpus"),
    "extrapolation": ("extrapolation.page", "write_extrapolation"),
    "inspect": ("inspect.page", "write_inspect"),
    "inspections": ("inspections", "write_inspections"),
    "rope": ("rope.page", "write_rope"),
    "training_run": ("training_run", "write_trained"),
}


def write(
    result: Any,
    directory: str | os.PathLike[str],
    *,
    png: bool = False,
    commands: Mapping[str, str] = {},
) -> Path:
    """Write the page on a result, its numbers and its figures; return the path of the page.

    A missing folder is created. Everything is drawn and written to temporary files before any file
    takes its name, so a failed run leaves an earlier report unchanged; figures of an earlier report
    are removed. Equal results give equal bytes.

    Args:
        result: result of `jaxpe.rope`, or of a job of `jaxpe.analysis`: `corpus`, `corpora`,
            `audit`, `attention`, `extrapolation`, `inspect`, `inspections`, `training_run` or
            `comparison`.
        directory: folder for the files.
        png: whether to write figures as PNG besides SVG, which doubles the time.
        commands: command lines of next steps, by their description, for the page of a run or of
            several.

    Raises:
        InputError: a folder that cannot be written, or that another run writes into.
        MissingExtraError: without the extra `report`.
        TypeError: a result without a view.

    >>> from jaxpe.analysis.corpus import CorpusOptions, analyse
    >>> write(analyse(CorpusOptions(source="synthetic")), "report")  # doctest: +SKIP
    PosixPath('report/report.html')
    """
    module, function = _view(result)
    with output_folder(directory) as folder:
        kept = {"commands": commands} if commands else {}
        return getattr(module, function)(result, folder, png=png, **kept)


def advice(result: Any, *, commands: Mapping[str, str] = {}) -> list[Advice]:
    """Steps to take after a job, each with what to paste; chosen by numbers of the result.

    Args:
        result: result that `write` has a page for.
        commands: command lines of next steps, by their description.

    Raises:
        TypeError: a result without a view.

    >>> from jaxpe.rope import RopeOptions, explain_rope
    >>> advice(explain_rope(RopeOptions(head_dim=64, base=1e4, context=2048)))
    []
    """
    return _view(result)[0].advice(result, **({"commands": commands} if commands else {}))


def _view(result: Any) -> tuple[Any, str]:
    """Module of the view of a result, and its function that writes the page."""
    package, *names = type(result).__module__.split(".")
    job = next((name for name in names if name != "analysis"), "")
    if package != "jaxpe" or job not in _VIEWS:
        raise TypeError(
            f"{type(result).__name__} has no page: pass a result of jaxpe.analysis or jaxpe.rope "
            f"({', '.join(_VIEWS)})"
        )
    module, function = _VIEWS[job]
    return importlib.import_module(f"jaxpe.report.{module}"), function
