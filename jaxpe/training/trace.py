"""Profile of a few training steps."""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import jax

from jaxpe.training.step import Batch, Metrics, Step, TrainState

_FIRST, _LAST = 5, 8  # calls that are profiled; the calls before them compile


@contextlib.contextmanager
def traced_steps(step: Step, folder: Path | None) -> Iterator[Step]:
    """Training step whose calls 5 to 8 in this context are profiled by `jax.profiler`.

    Args:
        step: training step.
        folder: folder of the profile; None for no profile.
    """
    if folder is None:
        yield step
        return
    calls, profile = itertools.count(1), contextlib.ExitStack()

    def traced(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        number = next(calls)
        if number in (_FIRST, _LAST + 1):
            jax.block_until_ready(state.step)  # earlier steps still run on the device
            profile.close()
        if number == _FIRST:
            profile.enter_context(jax.profiler.trace(folder))
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            return step(state, batch)

    with profile:
        yield traced
