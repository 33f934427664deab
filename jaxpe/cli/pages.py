"""Commands that write a page: the job, its files, and what the console says."""

import datetime
import hashlib
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxpe._core.files import output_folder
from jaxpe.cli.commands import COMMANDS, load
from jaxpe.cli.console import Lines
from jaxpe.cli.parsing import plain, with_flags
from jaxpe.report import console, writing

_LARGEST_HASHED = 1 << 30  # bytes


def run_to_page(options: Any, words: Sequence[str]) -> None:
    """Run the job of a command, write its page into the folder `out`, and print it.

    Args:
        options: options of the command, of the class that `options_class` makes.
        words: words of the command line, for the paragraph of methods.
    """
    started = time.monotonic()
    command = COMMANDS[type(options).__name__]
    given = plain(options, load(command.options))
    with output_folder(options.out), Lines(type(options)) as lines:
        result = load(command.job)(given, progress=lines)
        for _ in lines.track((None,), "writing the page"):
            write(result, options, words)
    show(result, options, options.out, started)


def write(result: Any, options: Any, words: Sequence[str], **style: Any) -> Path:
    """Write the page of a result, with the command, the date and the hashes of the data."""
    style = style or {"figures": options.figures, "style": options.style}
    return writing.write(result, options.out, run=run_sentences(options, words), **style)


def show(result: Any, options: Any, out: Path | None, started: float) -> None:
    """Print the page of a result, its path and the seconds since the start."""
    page = writing.page(result)
    console.show(with_flags(page, type(options)))
    if out is not None:
        seconds = time.monotonic() - started
        print(f"\nPage: {out / page.name}.html   ({seconds:.0f} s)")


def run_sentences(options: Any, words: Sequence[str]) -> list[str]:
    """Sentences on a run for its paragraph of methods: command, date, and hashes of the data."""
    said = [
        f"Command: `{shlex.join(['jaxpe', type(options).__name__, *words])}`.",
        f"Date: {datetime.date.today().isoformat()}.",
    ]
    if getattr(options, "source", None):
        from jaxpe.data.corpora.sources import source_paths
        from jaxpe.data.formats.table import content_files

        files = [Path(x) for source in source_paths(options.source) for x in content_files(source)]
        if named := [file_identity(file) for file in files if file.is_file()]:
            said.append(f"Data: {', '.join(named)}.")
    return said


def file_identity(path: Path) -> str:
    """Name of a file with its SHA-256, or with its size if it is large."""
    size = path.stat().st_size
    if size > _LARGEST_HASHED:
        return f"{path.name} ({size:,} bytes)"
    with path.open("rb") as file:
        return f"{path.name} (sha256 {hashlib.file_digest(file, 'sha256').hexdigest()})"
