"""Shared parts of the commands that write a page."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import rich
from rich.text import Text

from jaxpe import report
from jaxpe._core.files import output_folder
from jaxpe.cli.console import Bars
from jaxpe.cli.parsing import command_docstring, parse
from jaxpe.report.text import advice_text

# Texts of the options of figures.
FIGURE_OPTIONS = {
    "figures": "format of the figures in files, besides the SVG of the page.",
    "style": "style of the figures in files; paper: 3.25 or 6.75 inches, without titles.",
}
# The docstring of a command with the options `out`, `figures` and `style`.
page_docstring = functools.partial(command_docstring, **FIGURE_OPTIONS)


def run_to_page(
    kind: type, words: Sequence[str], job: Callable[..., Any], label: str, *shown: Callable
) -> None:
    """Run a job, write its page into the folder `out`, and print a summary.

    Args:
        kind: dataclass of the command's options, with `out`, `figures` and `style`.
        words: words of the command line.
        job: function of the options that returns the result.
        label: label of the path of the page, which is printed last.
        *shown: functions of the result that return the texts and tables to print.
    """
    started = time.perf_counter()
    options: Any = parse(kind, words)
    with output_folder(options.out):
        result = job(options, progress=Bars(kind))
        page = report.write(result, options.out, figures=options.figures, style=options.style)
    for make in shown:
        printed = make(result)
        rich.print(Text(f"\n{printed}") if isinstance(printed, str) else printed)
    print_advice(result)
    print(f"\n{label}: {page}   ({time.perf_counter() - started:.0f} s)")


def print_advice(result: Any, **commands: Any) -> None:
    """Print what to do after a job."""
    rich.print(Text(f"\nWhat to do\n{advice_text(report.advice(result, **commands))}"))
