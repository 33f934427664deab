"""Progress of all commands on standard error."""

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from jaxpe._core.progress import duration
from jaxpe.cli.parsing import flag_message

Item = TypeVar("Item")
_PAUSE = 20.0  # seconds between lines of progress without a terminal


class Bars:
    """Progress as lines, and as bars if standard error is a terminal.

    Args:
        options: dataclass of the command's options; lines show their names as flags.
        quiet: whether to show nothing, as in all processes of a run except the first.
        say: function that shows a line; None for standard error.
    """

    def __init__(
        self, options: type, *, quiet: bool = False, say: Callable[[str], None] | None = None
    ) -> None:
        self._options = options
        self._console = Console(stderr=True, quiet=quiet)
        self._say = say
        self._display: RichProgress | None = None
        self._last_line = 0.0

    def track(
        self, items: Iterable[Item], description: str, *, total: int | None = None
    ) -> Iterable[Item]:
        """Yield the items, with a bar while they are consumed; nested iterations have several.

        Without a terminal, a line now and then says how far it is.
        """
        if total is None and isinstance(items, Sized):
            total = len(items)
        shown = self._shown if self._console.is_terminal else self._lines
        return shown(items, description, total)

    def _lines(self, items: Iterable[Item], description: str, total: int | None) -> Iterator[Item]:
        begun = time.monotonic()
        for done, item in enumerate(items):
            now = time.monotonic()
            if done and now - max(begun, self._last_line) > _PAUSE:
                self._last_line = now
                left = (
                    f", about {duration((now - begun) / done * (total - done))} left"
                    if total
                    else ""
                )
                self.say(f"{description}: {done:,}{f' of {total:,}' if total else ''}{left}")
            yield item

    def _shown(self, items: Iterable[Item], description: str, total: int | None) -> Iterator[Item]:
        if self._display is None:
            columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
            self._display = RichProgress(
                *columns, TimeRemainingColumn(), console=self._console, transient=True
            )
            self._display.start()
        bars, bar = self._display, self._display.add_task(description, total=total)
        try:
            for item in items:
                yield item
                bars.advance(bar)
        finally:
            bars.remove_task(bar)
            if not bars.tasks:  # a bar that stays would overwrite lines
                bars.stop()
                self._display = None

    def say(self, line: str) -> None:
        """Show a line, without wrapping it."""
        line = flag_message(line, self._options)
        if self._say is not None:
            return self._say(line)
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
