"""Writing of a page: `write(result, directory)`, for the result of any job."""

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxpe._core.files import output_folder
from jaxpe.report.files import write_files
from jaxpe.report.style import FigureFormat, FigureStyle
from jaxpe.report.text import Advice

if TYPE_CHECKING:
    import matplotlib.figure

# Module of the view of each job, imported for a result of it: some bring Flax. It has
# `view(result)` and `advice(result)`; some take the command lines of next steps as well.
_VIEWS = {
    "attention": "attention.page",
    "audit": "audit.page",
    "bench": "bench.page",
    "comparison": "comparison",
    "corpora": "corpora",
    "corpus": "corpus.page",
    "extrapolation": "extrapolation.page",
    "inspect": "inspect.page",
    "inspections": "inspections",
    "rope": "rope.page",
    "training_run": "training_run",
}


def write(
    result: Any,
    directory: str | os.PathLike[str],
    *,
    figures: FigureFormat = "svg",
    style: FigureStyle = "screen",
    commands: Mapping[str, str] = {},
) -> Path:
    """Write the page on a result, its numbers, tables and figures; return the path of the page.

    Tables are written as CSV and as LaTeX with the rules of booktabs, into `tables`.

    A missing folder is created. Everything is drawn and written to temporary files before any file
    takes its name, so a failed run leaves an earlier report unchanged; figures of an earlier report
    are removed. Equal results give equal bytes.

    Args:
        result: result of `jaxpe.plans`, or of a job of `jaxpe.analysis`: `corpus`, `corpora`,
            `audit`, `attention`, `bench`, `extrapolation`, `inspect`, `inspections`,
            `training_run` or `comparison`.
        directory: folder for the files.
        figures: format of the figures in files, besides the SVG of the page.
        style: "paper" for files in the width of one or two columns (3.25 and 6.75 inches), with
            text of 8 points that stays text, dashes beside colours, and no title; panels keep their
            names.
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
    module, kept = _module(result), {"commands": commands} if commands else {}
    with output_folder(directory) as folder:
        view = module.view(result, **kept)
        return write_files(folder, result, view, figures=figures, style=style)


def figures(result: Any, *, style: FigureStyle = "screen") -> dict[str, "matplotlib.figure.Figure"]:
    """Figures of the page on a result, by name, to change and to save.

    Args:
        result: result that `write` has a page for.
        style: "paper" for the width of one or two columns and no title, as in `write`.

    Raises:
        MissingExtraError: without the extra `report`.
        TypeError: a result without a view.

    >>> from jaxpe.plans import RopeOptions, explain_rope
    >>> drawn = figures(explain_rope(RopeOptions(head_dim=64, base=1e4, context=2048)))
    >>> {name: figure.axes[0].get_ylabel() for name, figure in drawn.items()}
    {'wavelengths': 'wavelength, positions', 'precision': 'error, radians'}
    """
    return {each.name: each.figure(style) for each in _module(result).view(result).figures}


def advice(result: Any, *, commands: Mapping[str, str] = {}) -> list[Advice]:
    """Steps to take after a job, each with what to paste; chosen by numbers of the result.

    Args:
        result: result that `write` has a page for.
        commands: command lines of next steps, by their description.

    Raises:
        TypeError: a result without a view.

    >>> from jaxpe.plans import RopeOptions, explain_rope
    >>> advice(explain_rope(RopeOptions(head_dim=64, base=1e4, context=2048)))
    []
    """
    return _module(result).advice(result, **({"commands": commands} if commands else {}))


def _module(result: Any) -> Any:
    """Module of the view of a result."""
    return importlib.import_module(f"jaxpe.report.{_VIEWS[job_name(result)]}")


def job_name(result: Any) -> str:
    """Name of the job of a result, a key of the table of views.

    Raises:
        TypeError: a result without a view.

    >>> from jaxpe.plans import RopeOptions, explain_rope
    >>> job_name(explain_rope(RopeOptions(head_dim=64, base=1e4, context=2048)))
    'rope'
    """
    package, *names = type(result).__module__.split(".")
    job = next((name for name in names if name != "analysis"), "")
    job = "rope" if job == "plans" else job
    if package != "jaxpe" or job not in _VIEWS:
        raise TypeError(
            f"{type(result).__name__} has no page: pass a result of jaxpe.analysis or jaxpe.plans "
            f"({', '.join(_VIEWS)})"
        )
    return job
