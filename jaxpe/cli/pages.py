"""Shared parts of the commands that write a page."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import rich

from jaxpe import report
from jaxpe._core.files import output_folder
from jaxpe.cli.console import Bars
from jaxpe.cli.parsing import parse


def run_to_page(
    kind: type, words: Sequence[str], job: Callable[..., Any], label: str, *shown: Callable
) -> None:
    """Run a job as words ask, write its page into the folder `out`, and print it.

    `shown` make of the result what is printed before the path of the page, which has a label.
    """
    started = time.perf_counter()
    options: Any = parse(kind, words)
    with output_folder(options.out):
        found = job(options, progress=Bars(kind))
        page = report.write(found, options.out, png=options.png)
    for make in shown:
        rich.print(make(found))
    print(f"{label}: {page}   ({time.perf_counter() - started:.0f} s)")
