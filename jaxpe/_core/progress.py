"""Progress of long computations, and the duration of their stages."""

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar, runtime_checkable

Item = TypeVar("Item")


@runtime_checkable  # beartype checks it in tests
class Progress(Protocol):
    """Receiver of progress: any object with these two methods.

    Every long computation accepts one as `progress=`. The command line shows bars on standard
    error.
    """

    def track(
        self, items: Iterable[Item], description: str, *, total: int | None = None
    ) -> Iterable[Item]:
        """Yield the items unchanged, and show progress as they are consumed.

        Args:
            items: items of the iteration.
            description: description of the iteration.
            total: number of items, if it is known and `items` has no length.
        """
        ...

    def say(self, line: str) -> None:
        """Show a line of text."""
        ...


class Silent:
    """Progress that shows nothing, the default of every function.

    >>> list(Silent().track([1, 2], "halving"))
    [1, 2]
    """

    def track(
        self, items: Iterable[Item], description: str, *, total: int | None = None
    ) -> Iterable[Item]:
        """Yield the items unchanged, without progress."""
        return items

    def say(self, line: str) -> None:
        """Show nothing."""


SILENT = Silent()


def duration(seconds: float) -> str:
    """Duration in rounded seconds, minutes, hours or days, for an estimate.

    >>> duration(40.0), duration(230.0), duration(3e4), duration(1e6)
    ('40 seconds', '4 minutes', '8 hours', '12 days')
    """
    units = (("seconds", 1, 90), ("minutes", 60, 5400), ("hours", 3600, 172_800))
    name, size, _ = next((unit for unit in units if seconds < unit[2]), ("days", 86_400, 0))
    return f"{seconds / size:.0f} {name}"


class Clock:
    """Clock of named stages; `laps` has the seconds of each.

    Args:
        progress: receiver of the stages.
        stages: number of them; `stage` announces none without it.

    >>> clock = Clock(stages=2)
    >>> clock.lap("reading")
    >>> with clock.stage("writing"):
    ...     pass
    >>> list(clock.laps)
    ['reading', 'writing']
    """

    def __init__(self, progress: Progress = SILENT, *, stages: int = 0) -> None:
        self.laps: dict[str, float] = {}
        self.progress = progress
        self._stages, self._numbers = stages, itertools.count(1)
        self._begun = self._last = time.perf_counter()

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Context of a stage: a line says its number, name and the seconds so far."""
        if self._stages:
            at = f"stage {next(self._numbers)} of {self._stages}: {name}"
            self.progress.say(f"{at} ({self.total():.0f} s so far)")
        yield
        self.lap(name)

    def total(self) -> float:
        """Seconds since the clock was created."""
        return time.perf_counter() - self._begun

    def lap(self, name: str) -> None:
        """End the current stage and name it; stages of one name add up."""
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._last
        self._last = now
