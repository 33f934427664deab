"""Forecast of the duration of a comparison, from constants and steps measured apart."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from jaxpe._core.progress import Progress, duration
from jaxpe.analysis.extrapolation.cell_files import cell_path
from jaxpe.analysis.extrapolation.presets import Suite
from jaxpe.analysis.extrapolation.variants import trained_as
from jaxpe.data import sequence_task

Pair = tuple[Suite, str, str]  # suite, task and encoding


class Forecast:
    """Forecast of the seconds that the pending pairs of a task and an encoding take.

    A pair takes a constant, mostly for compilation, and a time in proportion to its work: models,
    steps, rows and tokens. Both are measured on the pairs of a suite that have run. Before its
    first pair they are taken from the suite before.

    Args:
        pairs: pairs in the order in which they run.
        folder: folder of their results. Pairs with a result in it take no time.
        progress: receives a line when the first steps of a suite are measured.
    """

    def __init__(self, pairs: Sequence[Pair], folder: Path, progress: Progress) -> None:
        self._pending = [pair for pair in pairs if not cell_path(folder, *pair).is_file()]
        self._progress = progress
        self._tasks: set[str] = set()  # of pairs that have run
        self._calls: list[tuple[float, float]] = []  # seconds and work of this pair's calls
        self._measured: dict[str, tuple[float, float]] = {}  # constant and pace, by suite

    def call(self, pair: Pair, models: int, steps: int, seconds: float) -> None:
        """Record a call that trained so many models of a pair for so many steps."""
        self._calls.append((seconds, models * steps * _step_work(*pair[:2])))
        if len(self._calls) == 2 and pair[0].name not in self._measured:
            pace = self._pace()
            compilation = self._calls[0][0] - pace * self._calls[0][1]
            # The initial weights and the tests are compiled, too.
            self._measured[pair[0].name] = max(0.0, 2 * compilation), pace
            left = self.left() - sum(spent for spent, _ in self._calls)
            self._progress.say(f"{pair[0].name}: about {duration(max(0.0, left))} left in all")

    def finish(self, pair: Pair, seconds: float) -> None:
        """End a pair that took so many seconds."""
        if len(self._calls) > 1:
            pace, (suite, task, _) = self._pace(), pair
            constant = max(0.0, seconds - pace * self._work(pair))
            if task not in self._tasks:  # its first pair compiles what all pairs share
                constant = min(constant, self._measured[suite.name][0])
            self._measured[suite.name] = constant, pace
            self._tasks.add(task)
        self._calls = []
        self._pending = [other for other in self._pending if other != pair]

    def left(self) -> float:
        """Seconds that the pending pairs take; NaN before anything is measured."""
        total, last = 0.0, (float("nan"), float("nan"))
        last = next(reversed(self._measured.values()), last)
        for pair in self._pending:
            constant, pace = self._measured.get(pair[0].name, last)
            total += constant * (0.5 if _shares_models(pair) else 1.0) + pace * self._work(pair)
        return total

    def _pace(self) -> float:
        """Seconds by work of this pair's calls, of which one or two compile."""
        return statistics.median_low(seconds / work for seconds, work in self._calls)

    def _work(self, pair: Pair) -> float:
        """Work of the choice of the rate, the training and the tests of a pair."""
        suite, task, _ = pair
        rows = suite.seeds * suite.tests / (3 * suite.batch)  # without gradients
        work = rows * sum(_step_work(suite, task, factor) for factor in suite.factors)
        if _shares_models(pair):
            return work
        tuned = suite.tuning_steps * max(suite.seeds, len(suite.rates)) * (len(suite.rates) > 1)
        return work + (suite.seeds * suite.steps + tuned) * _step_work(suite, task)


def _shares_models(pair: Pair) -> bool:
    """Whether a pair tests the models of another pair of its suite."""
    suite, _, name = pair
    return trained_as(name) != name and trained_as(name) in suite.encodings


def _step_work(suite: Suite, task: str, factor: int = 1) -> float:
    """Multiplications of a model for a batch, at a multiple of the training length."""
    tokens = sequence_task(task).tokens(factor * suite.length)
    weights = suite.dim * (4 * suite.dim + 2 * suite.hidden + 2 * tokens)
    return float(suite.batch * suite.layers * tokens * weights)
