"""What all commands share of the terminal: progress on standard error, and a cache of programs."""

import logging
import os
import warnings
from collections.abc import Callable, Iterable
from typing import TypeVar

import jax
from rich.console import Console
from rich.progress import track

from jaxpe._core.cache import cache_directory
from jaxpe._core.errors import require
from jaxpe._core.stored import keep_programs
from jaxpe.cli.parsing import in_flags

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

    def track(
        self, items: Iterable[Item], description: str, *, total: int | None = None
    ) -> Iterable[Item]:
        """The items, with a bar while they are consumed."""
        if not self._console.is_terminal:
            return items
        return track(items, description, total=total, console=self._console, transient=True)

    def say(self, line: str) -> None:
        """A line as it is, never wrapped."""
        line = in_flags(line, self._options)
        if self._say is not None:
            return self._say(line)
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def prepare(*extras: str) -> None:
    """Check that extras are installed, keep compiled programs, and silence logs of libraries."""
    for extra in extras:
        for module in _MODULES[extra]:
            require(module, extra=extra)
    _remember_compilations()
    # Orbax logs a traceback for every thread of a save that fails; the error is told once.
    logging.getLogger("absl").setLevel(logging.CRITICAL)


_MODULES = {
    "data": ("grain", "orbax.checkpoint"),
    "report": ("matplotlib.figure", "jinja2"),
    "train": ("flax", "optax", "orbax.checkpoint", "grain", "safetensors"),
}


def _remember_compilations() -> None:
    """Keep compiled programs between runs of the command; the second one starts faster."""
    # A cache that cannot be written only costs time, and says nothing about the run.
    warnings.filterwarnings("ignore", r"Error (reading|writing) persistent compilation cache")
    directory = cache_directory()
    if directory is None or os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    keep_programs(directory / "programs")
    jax.config.update("jax_compilation_cache_dir", str(directory / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
