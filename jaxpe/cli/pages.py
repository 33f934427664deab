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
from jaxpe.cli.parsing import described, parse

# The docstring of a command with the options `out` and `png`.
described_page = functools.partial(described, png="whether figures are written as PNG beside SVG.")


def run_to_page(
    kind: type, words: Sequence[str], job: Callable[..., Any], label: str, *shown: Callable
) -> None:
    """Run a job as words ask, write its page into the folder `out`, and print it.

    `shown` make the texts and tables that are printed before the labelled path of the page.
    """
    started = time.perf_counter()
    options: Any = parse(kind, words)
    with output_folder(options.out):
        result = job(options, progress=Bars(kind))
        page = report.write(result, options.out, png=options.png)
    for make in shown:
        printed = make(result)
        rich.print(Text(f"{printed}\n") if isinstance(printed, str) else printed)
    print(f"{label}: {page}   ({time.perf_counter() - started:.0f} s)")
