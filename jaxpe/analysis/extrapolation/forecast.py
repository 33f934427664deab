"""Duration of a comparison: estimated by arithmetic before it, by measurements while it runs."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from jaxpe._core.progress import SILENT, Progress, duration
from jaxpe.analysis.extrapolation import kept
from jaxpe.analysis.extrapolation.presets import Suite
from jaxpe.analysis.extrapolation.variants import trained_as
from jaxpe.data import sequence_task

# Measured on two cores of a server, with small models of the presets.
_SPEED = 8e9  # floating-point operations a second
_COMPILING = 20.0  # seconds for the training of a pair
_TESTING = 6.0  # seconds for each length of a pair, compiling included

Pair = tuple[str, str, str]  # suite, task and encoding


class Forecast:
    """Tells of each pair of a task and an encoding that was run, and how long the rest will take.

    Args:
        suites: suites of the comparison.
        folder: folder for what is trained and tested; what is there already takes no time.
        progress: is told.

    >>> import tempfile
    >>> suite = Suite(name="tiny", tasks=("parity",), encodings=("rope",), length=2, steps=2)
    >>> round(Forecast([suite], Path(tempfile.mkdtemp())).left)
    44
    """

    def __init__(self, suites: Sequence[Suite], folder: Path, progress: Progress = SILENT) -> None:
        self._progress = progress
        self._expected = _expected(suites, folder)
        self._factor = 1.0  # seconds of this machine for one by arithmetic
        self._calls = 0
        if self._expected:
            count = len(self._expected)
            progress.say(
                f"{count} {'pair' if count == 1 else 'pairs'} of a task and an encoding to run: "
                f"about {duration(self.left)} on two cores; measured as it goes"
            )

    @property
    def left(self) -> float:
        """Seconds that the pairs not run yet will take."""
        return self._factor * sum(self._expected.values())

    @contextlib.contextmanager
    def pair(self, suite: Suite, task: str, name: str) -> Iterator[None]:
        """A pair while it runs; its end is told, with what is left."""
        begun = time.perf_counter()
        self._suite, self._task = suite, task
        yield
        taken = time.perf_counter() - begun
        expected = self._expected.pop((suite.name, task, name), 0.0)
        if self._calls and expected:
            self._factor = taken / expected
        left = f"; about {duration(self.left)} left" if self._expected else ""
        self._progress.say(f"{task}, {name}: {taken:.0f} s{left}")

    def chunk(self, lanes: int, steps: int, seconds: float) -> None:
        """Seconds of some steps; those of the second call, in which nothing is compiled, count."""
        self._calls += 1
        if self._calls != 2 or not self._expected:
            return
        begun = self.left
        work = _work(self._suite, self._task, lanes * steps) / _SPEED
        self._factor = seconds / work
        if not 0.5 < self.left / begun < 2:
            self._progress.say(f"measured on {steps} steps: about {duration(self.left)} in all")


def _expected(suites: Sequence[Suite], folder: Path) -> dict[Pair, float]:
    """Seconds by arithmetic of each pair that is not in the folder."""
    found: dict[Pair, float] = {}
    trained = set()
    for suite in suites:
        for task in suite.tasks:
            for name in suite.encodings:
                path = kept.path_of(folder, suite, task, trained_as(name)).with_suffix(".npz")
                if kept.path_of(folder, suite, task, name).is_file():
                    continue
                seconds = _TESTING * len(suite.lengths)
                if not path.is_file() and path not in trained:
                    steps = suite.seeds * suite.steps
                    if len(suite.rates) > 1:
                        steps += max(suite.seeds, len(suite.rates)) * suite.tuning_steps
                    seconds += _COMPILING + _work(suite, task, steps) / _SPEED
                trained.add(path)
                found[suite.name, task, name] = seconds
    return found


def _work(suite: Suite, task: str, steps: int) -> float:
    """Floating-point operations of so many steps of one model."""
    places = sequence_task(task).tokens(suite.length)
    weights = suite.layers * suite.dim * (4 * suite.dim + 2 * suite.hidden)
    mixing = 2 * suite.layers * suite.dim * places  # of places by attention, for each place
    return 6.0 * steps * suite.batch * places * (weights + mixing)
