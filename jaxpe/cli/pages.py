"""Shared parts of the commands that write a page."""

import datetime
import functools
import hashlib
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import rich
from rich.text import Text

from jaxpe import report
from jaxpe._core.files import atomic_file, output_folder
from jaxpe.cli.console import Bars
from jaxpe.cli.parsing import command_docstring, parse
from jaxpe.report.text import advice_text

_LARGEST_HASHED = 1 << 30  # bytes
# Texts of the options of figures.
FIGURE_OPTIONS = {
    "figures": "format of the figures in files, besides the SVG of the page.",
    "style": "style of the figures in files; paper: 3.25 or 6.75 inches, without a title.",
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
        write_methods(result, options, words)
    for make in shown:
        printed = make(result)
        rich.print(Text(f"\n{printed}") if isinstance(printed, str) else printed)
    print_advice(result)
    print(f"\n{label}: {page}   ({time.perf_counter() - started:.0f} s)")


def write_methods(result: Any, options: Any, words: Sequence[str]) -> None:
    """Write methods.md and .tex, with command, date and hashes of the data, and references.bib."""
    # These import JAX, which `jaxpe rope` does not need.
    from jaxpe.data.corpora.sources import source_paths
    from jaxpe.data.formats.table import content_files
    from jaxpe.report.methods import methods, methods_latex, references

    name = type(options).__module__.rpartition(".")[2]
    sources = source_paths(options.source) if getattr(options, "source", None) else []
    files = [Path(file) for source in sources for file in content_files(source)]
    text = methods(
        result,
        command=shlex.join(["jaxpe", name, *words]),
        date=datetime.date.today().isoformat(),
        inputs=[file_identity(file) for file in files if file.is_file()],
    )
    written = {"methods.md": f"{text}\n", "methods.tex": f"{methods_latex(text)}\n"}
    for file, content in (written | {"references.bib": references(result)}).items():
        with atomic_file(options.out / file) as part:
            part.write_text(content, "utf-8")


def file_identity(path: Path) -> str:
    """Name of a file with its SHA-256, or with its size if it is large."""
    size = path.stat().st_size
    if size > _LARGEST_HASHED:
        return f"{path.name} ({size:,} bytes)"
    with path.open("rb") as file:
        return f"{path.name} (sha256 {hashlib.file_digest(file, 'sha256').hexdigest()})"


def print_advice(result: Any, **commands: Any) -> None:
    """Print what to do after a job."""
    console = rich.get_console()
    for line in f"\nWhat to do\n{advice_text(report.advice(result, **commands))}".splitlines():
        # A command that was broken into lines would be pasted as two.
        console.print(Text(line), soft_wrap=line.startswith(" "))
