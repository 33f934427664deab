"""Progress of all commands on standard error."""

import dataclasses
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from jaxpe._core.progress import duration
from jaxpe.cli.parsing import with_flags

Item = TypeVar("Item")
_PAUSE, _REDRAW = 20.0, 0.5  # seconds between lines, and between changes of one on a terminal
_CLEAR = "\r\033[K"


@dataclasses.dataclass
class _Task:
    """An iteration that is going on."""

    description: str
    total: int | None
    begun: float = 0.0
    done: int = 0

    def text(self) -> str:
        """Progress, and the time that is left."""
        if self.total == 1 or not self.done:
            return self.description
        if not self.total:
            return f"{self.description}: {self.done:,}"
        left = (time.monotonic() - self.begun) / self.done * (self.total - self.done)
        return f"{self.description}: {self.done:,} of {self.total:,}, about {duration(left)} left"


class Lines:
    """Progress as one line on a terminal, which changes; elsewhere a line a stage, and each 20 s.

    A stage is an iteration of one item.

    Args:
        options: dataclass of the command's options; lines show their names as flags.
        say: function that shows a line that stays; None for standard error.

    >>> with Lines(Options) as lines:  # doctest: +SKIP
    ...     for item in lines.track(items, "stage 2 of 3: distances"): ...
    """

    def __init__(self, options: type, *, say: Callable[[str], None] | None = None) -> None:
        self._options, self._say = options, say
        self._terminal = sys.stderr.isatty()
        self._begun = self._last = time.monotonic()
        self._tasks: list[_Task] = []
        self._ended = threading.Event()
        self._reminder = threading.Thread(target=self._remind, daemon=True)

    def __enter__(self) -> "Lines":
        self._reminder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._reminder.join()
        self._clear()

    def track(
        self, items: Iterable[Item], description: str, *, total: int | None = None
    ) -> Iterator[Item]:
        """Yield the items, and show how far it is while they are consumed; may be nested."""
        if total is None and isinstance(items, Sized):
            total = len(items)
        task = _Task(description, total, time.monotonic())
        self._tasks.append(task)
        try:
            if total == 1:
                self._show()
            for item in items:
                yield item
                task.done += 1
        finally:
            self._tasks.remove(task)

    def say(self, line: str) -> None:
        """Show a line that stays, without wrapping it."""
        self._clear()
        self._last = time.monotonic()
        line = with_flags(line, self._options)
        self._say(line) if self._say else print(line, file=sys.stderr, flush=True)

    def _remind(self) -> None:
        """Show what is going on, from a thread of its own: a stage may be one long computation."""
        pause = _REDRAW if self._terminal else _PAUSE
        while not self._ended.wait(max(self._last + pause - time.monotonic(), 0.01)):
            if time.monotonic() - self._last >= pause:
                self._show()

    def _show(self) -> None:
        doing = "; ".join(task.text() for task in list(self._tasks)) or "working"
        line = f"{time.monotonic() - self._begun:4.0f} s  {doing}"
        if not self._terminal:
            return self.say(line)
        self._last = time.monotonic()
        width = shutil.get_terminal_size().columns - 1
        print(f"{_CLEAR}{line[:width]}", end="", file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._terminal:
            print(_CLEAR, end="", file=sys.stderr, flush=True)
