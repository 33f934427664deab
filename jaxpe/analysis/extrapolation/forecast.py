"""Forecast of the duration of a comparison, from constants and steps measured apart."""

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax

from jaxpe._core.progress import Progress, duration
from jaxpe.analysis.extrapolation.cell_files import cell_path
from jaxpe.analysis.extrapolation.presets import Suite
from jaxpe.analysis.extrapolation.variants import trained_as
from jaxpe.data import sequence_task

Pair = tuple[Suite, str, str]  # suite, task and encoding
_PAUSE = 20.0  # seconds between lines within a pair


class ProgramSeconds(NamedTuple):
    """Duration of making a program of an encoding.

    Attributes:
        trace: seconds of tracing.
        compilation: seconds of compilation, or of reading from the compilation cache.
    """

    trace: float
    compilation: float


_UNKNOWN = ProgramSeconds(float("nan"), float("nan"))
# Multiples of the seconds of the program of one update: tracing of a pair, compilation of the first
# pair with a program, both of the first pair of a task.
_PAIR, _PROGRAM, _TASK = 4.0, 2.0, 3.0


class Forecast:
    """Forecast of the seconds that the pending pairs of a task and an encoding take.

    A pair takes a constant, mostly for compilation, and a time in proportion to its work: models,
    steps, rows and tokens. Constants come from the programs of the encodings, or from the first
    call of the first pair, times the ratio that the pairs that have run show. The pace of the work
    comes from the calls after the first one; a suite without any has that of the suite before.

    Args:
        pairs: pairs in the order in which they run.
        folder: folder of their results. Pairs with a result in it take no time.
        progress: receives a line when the duration is known, and now and then within a pair.
        programs: seconds of the program of one update by encoding, if they were measured.
        pace: seconds by work, if measured.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        folder: Path,
        progress: Progress,
        *,
        programs: Mapping[str, ProgramSeconds] = {},
        pace: float = float("nan"),
    ) -> None:
        self._pending = [pair for pair in pairs if not cell_path(folder, *pair).is_file()]
        self._progress = progress
        self._programs = dict(programs)
        if programs:
            self._programs[""] = next(iter(programs.values()))
        self._known: set[tuple[str, ...]] = set()  # tasks and programs of pairs that have run
        self._calls: list[tuple[float, float]] = []  # seconds and work of this pair's calls
        self._paces: dict[str, float] = {"": pace}  # by suite
        self._constants = [0.0, 0.0]  # of pairs that have run: seconds, and as forecast
        self._last_line = time.perf_counter()
        if programs and self._pending:
            self._progress.say(f"about {duration(self.left())} for {len(self._pending)} cells")

    def call(self, pair: Pair, models: int, steps: int, seconds: float) -> None:
        """Record a call that trained so many models of a pair for so many steps."""
        suite, task, name = pair
        self._calls.append((seconds, models * steps * step_work(suite, task)))
        now, calls = time.perf_counter(), len(self._calls)
        if calls == 2 and suite.name not in self._paces:
            first = max(0.0, self._calls[0][0] - self._pace() * self._calls[0][1])
            self._programs.setdefault("", ProgramSeconds(0.12 * first, 0.65 * first))
        if calls >= 2:
            new, self._paces[suite.name] = suite.name not in self._paces, self._pace()
            if new or now - self._last_line > _PAUSE:
                self._last_line = now
                left = duration(max(0.0, self.left() - sum(spent for spent, _ in self._calls)))
                self._progress.say(f"{task}, {name}: about {left} left in all")

    def finish(self, pair: Pair, seconds: float) -> None:
        """End a pair that took so many seconds."""
        if len(self._calls) > 1:
            spent = max(0.0, seconds - self._pace() * self._work(pair))
            self._constants[0] += spent
            self._constants[1] += self._constant(pair, self._known)
        self._known |= {*_parts(pair)}
        self._calls = []
        self._pending = [other for other in self._pending if other != pair]

    def left(self) -> float:
        """Seconds that the pending pairs take; NaN before anything is measured."""
        constants, work, known = 0.0, 0.0, set(self._known)
        latest = next(reversed(self._paces.values()))
        for pair in self._pending:
            constants += self._constant(pair, known)
            work += self._work(pair) * self._paces.get(pair[0].name, latest)
            known |= {*_parts(pair)}
        spent, expected = self._constants
        return work + constants * (spent / expected if expected else 1.0)

    def _constant(self, pair: Pair, known: set[tuple[str, ...]]) -> float:
        """Constant of a pair after pairs of known tasks and programs."""
        own = self._programs.get(pair[2]) or self._programs.get("", _UNKNOWN)
        task, program = _parts(pair)
        cached = program in known and _has_cache()
        total = _PAIR * own.trace + (0.0 if cached else _PROGRAM * own.compilation)
        shared = 0.5 if _shares_models(pair) else 1.0
        return shared * total + (0.0 if task in known else _TASK * sum(own))

    def _pace(self) -> float:
        """Seconds by work of this pair's calls, of which one or two compile."""
        return statistics.median_low(seconds / work for seconds, work in self._calls)

    def _work(self, pair: Pair) -> float:
        """Work of the choice of the rate, the training and the tests of a pair."""
        suite, task, _ = pair
        rows = suite.seeds * suite.tests / (3 * suite.batch)  # without gradients
        work = rows * sum(step_work(suite, task, factor) for factor in suite.factors)
        if _shares_models(pair):
            return work
        tuned = suite.tuning_steps * max(suite.seeds, len(suite.rates)) * (len(suite.rates) > 1)
        return work + (suite.seeds * suite.steps + tuned) * step_work(suite, task)


def _parts(pair: Pair) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The task of a pair, and its program, which tasks of equal sizes share."""
    suite, name, task = pair[0], pair[2], sequence_task(pair[1])
    sizes = str((task.kind, task.causal, task.vocab_size, task.tokens(suite.length)))
    return (suite.name, pair[1]), (suite.name, name, sizes)


def _shares_models(pair: Pair) -> bool:
    """Whether a pair tests the models of another pair of its suite."""
    suite, _, name = pair
    return trained_as(name) != name and trained_as(name) in suite.encodings


def step_work(suite: Suite, task: str, factor: int = 1) -> float:
    """Multiplications of a model for a batch, at a multiple of the training length."""
    tokens = sequence_task(task).tokens(factor * suite.length)
    weights = suite.dim * (4 * suite.dim + 2 * suite.hidden + 2 * tokens)
    return float(suite.batch * suite.layers * tokens * weights)


def _has_cache() -> bool:
    """Whether programs are kept by JAX's compilation cache."""
    return jax.config.jax_compilation_cache_dir is not None  # pyrefly: ignore
