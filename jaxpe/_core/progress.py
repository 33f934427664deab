"""Progress of long functions, and the time of their stages."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar, runtime_checkable

Item = TypeVar("Item")


@runtime_checkable  # beartype checks it in tests
class Progress(Protocol):
    """Receiver of progress, which every function that takes long accepts as `progress=`.

    Any object with these two methods is one; the command line passes bars on standard error.
    """

    def track(
        self, items: Iterable[Item], description: str, *, total: int | None = None
    ) -> Iterable[Item]:
        """The same items, shown as they are consumed.

        Args:
            items: what is iterated over.
            description: what is done with each.
            total: number of items, where it is known and `items` has no length.
        """
        ...

    def say(self, line: str) -> None:
        """Show a line of text."""
        ...


class Silent:
    """Progress that shows nothing: the default everywhere.

    >>> list(Silent().track([1, 2], "halving"))
    [1, 2]
    """

    def track(
        self, items: Iterable[Item], description: str, *, total: int | None = None
    ) -> Iterable[Item]:
        """The items as they came."""
        return items

    def say(self, line: str) -> None:
        """Nothing."""


SILENT = Silent()


def duration(seconds: float) -> str:
    """Seconds, minutes, hours or days, as exact as an estimate is.

    >>> duration(40.0), duration(230.0), duration(3e4), duration(1e6)
    ('40 seconds', '4 minutes', '8 hours', '12 days')
    """
    units = (("seconds", 1, 90), ("minutes", 60, 5400), ("hours", 3600, 172_800))
    name, size, _ = next((unit for unit in units if seconds < unit[2]), ("days", 86_400, 0))
    return f"{seconds / size:.0f} {name}"


class Clock:
    """Seconds of each stage, by name, in `laps`.

    Args:
        progress: receiver of the stages.

    >>> clock = Clock()
    >>> clock.lap("reading")
    >>> with clock.stage("writing"):
    ...     pass
    >>> list(clock.laps)
    ['reading', 'writing']
    """

    def __init__(self, progress: Progress = SILENT) -> None:
        self.laps: dict[str, float] = {}
        self._progress = progress
        self._begun = self._last = time.perf_counter()

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A stage that is shown while it runs."""
        steps = iter(self._progress.track((None,), name))
        next(steps)
        yield
        next(steps, None)
        self.lap(name)

    def total(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self._begun

    def lap(self, name: str) -> None:
        """End the stage that ran until now; a stage that is named again adds to it."""
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._last
        self._last = now
