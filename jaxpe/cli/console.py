"""Terminal of all commands: progress on standard error, and a cache of programs."""

import contextlib
import importlib
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from pathlib import Path
from typing import TypeVar

import jax
from rich.console import Console
from rich.progress import (
    BarColumn,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress
from rich.text import Text

from jaxpe._core import images
from jaxpe._core.cache import cache_directory
from jaxpe._core.stored import compiling, keep_programs
from jaxpe.cli.parsing import in_flags

_READING = 0.8  # seconds that small corpora take to be read

Item = TypeVar("Item")


class Bars:
    """Progress as bars on standard error where it is a terminal, and lines.

    Args:
        options: dataclass of the command's options, whose names lines show as flags.
        quiet: show nothing, as all processes of a run but the first.
        say: a function that shows a line; on standard error when None.
    """

    def __init__(
        self, options: type, *, quiet: bool = False, say: Callable[[str], None] | None = None
    ) -> None:
        self._options = options
        self._console = Console(stderr=True, quiet=quiet)
        self._say = say
        self._lock = threading.Lock()
        self._display: RichProgress | None = None

    def track(
        self, items: Iterable[Item], description: str, *, total: int | None = None
    ) -> Iterable[Item]:
        """The items, with a bar while they are consumed; stages side by side have one each."""
        if not self._console.is_terminal:
            return items
        if total is None and isinstance(items, Sized):
            total = len(items)
        return self._shown(items, description, total)

    def _shown(self, items: Iterable[Item], description: str, total: int | None) -> Iterator[Item]:
        with self._lock:
            if self._display is None:
                self._display = _display(self._console)
                self._display.start()
            bars, bar = self._display, self._display.add_task(description, total=total)
        try:
            for item in items:
                yield item
                bars.advance(bar)
        finally:
            with self._lock:
                bars.remove_task(bar)
                if not bars.tasks:  # a line between bars would be written over
                    bars.stop()
                    self._display = None

    def say(self, line: str) -> None:
        """A line as it is, never wrapped."""
        line = in_flags(line, self._options)
        if self._say is not None:
            return self._say(line)
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _display(console: Console) -> RichProgress:
    """Bars, each with what is being compiled, how far it is and how long it will take."""
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    return RichProgress(
        *columns, TimeRemainingColumn(), _Compiling(), console=console, transient=True
    )


class _Compiling(ProgressColumn):
    """Says while programs are compiled, which may take longer than running them."""

    def render(self, task: Task) -> Text:
        return Text("compiling ..." if compiling() else "", style="dim")


def prepare() -> None:
    """Keep compiled programs, and silence logs of libraries."""
    _remember_compilations()
    # Orbax logs a traceback for every thread of a save that fails; the error is printed once.
    logging.getLogger("absl").setLevel(logging.CRITICAL)


@contextlib.contextmanager
def importing_drawing() -> Iterator[None]:
    """Import what draws in the background, once numbers are computed; nothing where others draw.

    To import it holds the interpreter lock for a third of a second, which reading needs, too.
    """
    if not images.draws_here():
        yield
        return
    timer = threading.Timer(_READING, _import_drawing)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _import_drawing() -> None:
    with contextlib.suppress(Exception):  # whatever is wrong, drawing says it
        images.import_matplotlib()
        importlib.import_module("jinja2")


def _remember_compilations() -> None:
    """Keep compiled programs between runs: the second one neither traces nor compiles them.

    Where `JAX_COMPILATION_CACHE_DIR` says, else in the user's cache folder: `programs` of at most
    `jaxpe._core.stored.LIMIT` bytes, and JAX's own cache of the others.
    """
    # A cache that cannot be written costs time and does not affect the result.
    warnings.filterwarnings("ignore", r"Error (reading|writing) persistent compilation cache")
    if given := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        if "://" not in given:
            keep_programs(Path(given) / "programs")
        return
    if (directory := cache_directory()) is None:
        return
    keep_programs(directory / "programs")
    jax.config.update("jax_compilation_cache_dir", str(directory / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
