"""Time that the rest of a comparison takes, from the steps and pairs that were timed."""

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from jaxpe._core.progress import SILENT, Progress, duration
from jaxpe.analysis.extrapolation import cell_files
from jaxpe.analysis.extrapolation.presets import Suite
from jaxpe.analysis.extrapolation.variants import trained_as
from jaxpe.data import sequence_task

Pair = tuple[str, str, str]  # suite, task and encoding


class Forecast:
    """Lines on each pair of a task and an encoding that was run, and on the time that is left.

    A pair takes fixed seconds (compiling, testing) and seconds for each operation of its steps.
    Both are measured, in each suite anew, since models of other sizes have another speed. The first
    pair of a task has fixed seconds of its own: it compiles what later pairs share.

    Args:
        suites: suites of the comparison.
        folder: folder for what is trained and tested; what is there already takes no time.
        progress: receiver of the lines.

    >>> import tempfile
    >>> suite = Suite(name="tiny", tasks=("parity",), encodings=("rope",), length=2, steps=2)
    >>> Forecast([suite], Path(tempfile.mkdtemp())).left is None  # nothing is timed
    True
    """

    def __init__(self, suites: Sequence[Suite], folder: Path, progress: Progress = SILENT) -> None:
        self._progress = progress
        self._operations = _operations(suites, folder)  # of pairs that are not finished
        self._begin(suites[0].name if suites else "")
        if count := len(self._operations):
            pairs = "pair" if count == 1 else "pairs"
            progress.say(f"{count} {pairs} of a task and an encoding to run")

    def _begin(self, suite: str) -> None:
        """Start of a suite, of which nothing is measured."""
        self._suite, self._told = suite, False
        self._tasks: set[str] = set()
        self._fixed: dict[bool, list[float]] = {True: [], False: []}  # by whether its task is new
        self._seconds = self._timed = 0.0  # of calls that compile nothing: seconds, operations

    @property
    def left(self) -> float | None:
        """Seconds that this suite will take; None while more than half of them are a guess."""
        tasks = [task for suite, task, _ in self._operations if suite == self._suite]
        new = len(set(tasks) - self._tasks)
        known, guessed = self._stepping(), 0.0
        for first, count in ((True, new), (False, len(tasks) - new)):
            if measured := self._fixed[first]:
                known += count * fmean(measured)
            elif count:
                guessed += count * fmean(self._fixed[not first] or [math.inf])
        return known + guessed if guessed <= known else None

    def _stepping(self) -> float:
        """Seconds that the steps of this suite will take; 0 where all calls compiled something."""
        left = sum(work for pair, work in self._operations.items() if pair[0] == self._suite)
        return self._speed * left

    @property
    def _speed(self) -> float:
        return self._seconds / self._timed if self._timed else 0.0

    @contextlib.contextmanager
    def pair(self, suite: Suite, task: str, name: str) -> Iterator[None]:
        """A pair while it runs; its end is told, with what is left."""
        if suite.name != self._suite:
            self._begin(suite.name)
        first = task not in self._tasks
        self._tasks.add(task)
        self._running, self._lanes = (suite, task, name), set[int]()
        self._begun, self._done = time.perf_counter(), 0.0
        yield
        taken = time.perf_counter() - self._begun
        self._operations.pop((suite.name, task, name), None)
        self._fixed[first].append(max(0.0, taken - self._speed * self._done))
        self._say(f"{taken:.0f} s", self.left)

    def chunk(self, lanes: int, steps: int, seconds: float) -> None:
        """Seconds of some steps; the first call with so many lanes compiles, and is not timed."""
        suite, task, name = self._running
        pair, work = (suite.name, task, name), _work(suite, task, lanes * steps)
        self._done += work
        if pair not in self._operations:
            return
        self._operations[pair] -= work
        if lanes in self._lanes:
            self._seconds, self._timed = self._seconds + seconds, self._timed + work
        self._lanes.add(lanes)
        fixed = time.perf_counter() - self._begun - self._speed * self._done
        fixed *= sum(pair[0] == self._suite for pair in self._operations)
        if not self._told and fixed <= (stepping := self._stepping()):
            self._told = True
            self._say(f"measured on {steps} steps", stepping + fixed)

    def _say(self, text: str, left: float | None) -> None:
        """A line on the pair that runs, with the number that are left, and their seconds."""
        suite, task, name = self._running
        if count := len(self._operations):
            here = sum(pair[0] == suite.name for pair in self._operations)
            text += f"; {count} {'pair' if count == 1 else 'pairs'} left"
            if here and left is not None:
                of = "" if here == count else f" for {here} of them"
                text += f", about {duration(left)}{of}"
        self._progress.say(f"{task}, {name}: {text}")


def _operations(suites: Sequence[Suite], folder: Path) -> dict[Pair, float]:
    """Floating-point operations of training each pair that is not in the folder."""
    found: dict[Pair, float] = {}
    trained = set()
    for suite in suites:
        for task in suite.tasks:
            for name in suite.encodings:
                path = cell_files.path_of(folder, suite, task, trained_as(name)).with_suffix(".npz")
                if cell_files.path_of(folder, suite, task, name).is_file():
                    continue
                steps = 0
                if not path.is_file() and path not in trained:
                    steps = suite.seeds * suite.steps
                    if len(suite.rates) > 1:
                        steps += max(suite.seeds, len(suite.rates)) * suite.tuning_steps
                trained.add(path)
                found[suite.name, task, name] = _work(suite, task, steps)
    return found


def _work(suite: Suite, task: str, steps: int) -> float:
    """Floating-point operations of so many steps of one model."""
    places = sequence_task(task).tokens(suite.length)
    weights = suite.layers * suite.dim * (4 * suite.dim + 2 * suite.hidden)
    mixing = 2 * suite.layers * suite.dim * places  # of places by attention, for each place
    return 6.0 * steps * suite.batch * places * (weights + mixing)
