"""Training loop: steps, records, hooks, checkpoints and interruptions."""

import contextlib
import itertools
import math
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.checkpoints import Checkpoints
from jaxpe._core.progress import SILENT, Progress
from jaxpe.geometry.checks import check_size
from jaxpe.training.log import Log, Record, plain, read_log
from jaxpe.training.step import Batch, Metrics, Step, TrainState


class NonFiniteLoss(FloatingPointError):  # noqa: N818 (said as it is)
    """A loss, gradient or update was NaN or infinite at `step`, counted from 1.

    `state` is that before it.
    """

    def __init__(self, message: str, *, step: int):
        super().__init__(message)
        self.step = step
        self.state: TrainState | None = None


class StopTraining(Exception):  # noqa: N818 (said as it is)
    """Raised by a hook to make this step the last: `fit` saves, and returns as at its end.

    The `findings` join the record of that step, like what a hook returns.
    """

    def __init__(self, findings: Record | None = None):
        super().__init__("a hook ends the training")
        self.findings = findings


class Hook(NamedTuple):
    """Action during training: an evaluation, an audit of the parameters, a figure.

    Attributes:
        at: steps, or which steps: `every_n_steps(100)`, `{0, 10, 100}`, `lambda step: step < 5`.
        run: `(step, state) -> dict` with the state after `step` updates; what it returns joins
            that step's record, under keys of its own ("held_out/loss", where the record has a
            "loss"). It must not keep the state, whose buffers the next step takes. It may raise
            `StopTraining`.
        ends: whether also before the first step and after the last.
    """

    at: Callable[[int], bool] | Collection[int]
    run: Callable[[int, TrainState], Record | None]
    ends: bool = True

    def due(self, step: int, *, last: int) -> bool:
        """Whether to run after `step` of `last` updates."""
        due = self.at(step) if callable(self.at) else step in self.at
        return bool(due or (self.ends and step in (0, last)))


class FitResult(NamedTuple):
    """The end of a training run.

    Attributes:
        state: after the last step, which `StopTraining` may have made an earlier one.
        history: a record a step, of Python's numbers, with those of earlier runs from the log.
    """

    state: TrainState
    history: list[Record]


def every_n_steps(steps: int) -> Callable[[int], bool]:
    """The multiples of `steps`, for `Hook.at`.

    >>> [step for step in range(7) if every_n_steps(3)(step)]
    [0, 3, 6]
    """
    check_size("steps", steps)
    return lambda step: step % steps == 0


def fit(
    state: TrainState,
    step: Step,
    batches: Iterable[Batch],
    *,
    steps: int,
    checkpoints: Checkpoints | None = None,
    checkpoint_every: int | None = None,
    log: str | Path | None = None,
    hooks: Sequence[Hook] = (),
    progress: Progress = SILENT,
) -> FitResult:
    """Train up to `steps` updates, resuming from the newest checkpoint if there is one.

    A record `{"step": s, "loss": ..., ...}` holds the metrics of update s and what hooks return
    after it. Record 0 holds what they return before the first update. Metrics are read one step
    late, so that the device never waits for the host; hooks and checkpoints wait for it. A resumed
    run ends with the same parameters and records as an uninterrupted one.

    Whatever stops the run, the last update is saved before the error is passed on: Ctrl-C,
    SIGTERM, batches or a hook that raise. If a hook raised, the record of its step in the log has
    an "error" instead of findings. Resuming with the log runs the hooks of that step again.

    A state of s > 0 steps continues without checkpoints too: the log keeps its lines up to s. The
    data do not: they start where `batches`, or the iterator passed in its place, is.

    Args:
        state: state to start from; its buffers are given away to `step`, from `train_step`.
        batches: batches from `batches`; anything iterable where there are no checkpoints.
        steps: updates in all, those before a resumption included.
        checkpoints: place to save to and to resume from.
        checkpoint_every: steps between checkpoints; there is one at the end in any case.
        log: JSON-lines file, without lines after the step started from.
        hooks: run in order.
        progress: shows which step it is at.

    Raises:
        NonFiniteLoss: names the step; the state before it has been saved.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, once the step is done; at a second one at once.
        ValueError: where the batches end too early, or cannot be resumed although there are
            checkpoints, or a hook finds what the record has already.
        InputError: for checkpoints of another run or other data, or a log that is none.

    >>> from jaxpe.training import MeanMetric, batches, init_state, train_step
    >>> import optax
    >>> loss = lambda w, batch, key: (MeanMetric(((w - batch["x"]) ** 2).sum(), jnp.array(2.0)), {})
    >>> state = init_state(jnp.array(0.0), optax.sgd(0.5), key=jax.random.key(0))
    >>> data = batches({"x": np.ones(4)}, batch_size=2, seed=0)
    >>> result = fit(state, train_step(loss, optax.sgd(0.5)), data, steps=3)
    >>> result.state.params.item(), [record["loss"] for record in result.history]
    (1.0, [1.0, 0.0, 0.0])
    """
    data = iter(batches)
    if checkpoints is not None and not hasattr(data, "get_state"):
        raise ValueError("these batches cannot be resumed: pass those of jaxpe.training.batches")
    restored = None if checkpoints is None else checkpoints.restore(state, data)
    state = state if restored is None else restored[0]
    start = int(state.step)
    save_at = every_n_steps(max(steps, 1) if checkpoint_every is None else checkpoint_every)
    run = _Run(state, step, data, steps, hooks, checkpoints, save_at)
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(_deferred_signals())
        if log is not None:
            if Path(log).exists() and (restored or start):
                run.history = [record for record in read_log(log) if record["step"] <= start]
            run.repeat_hooks()
            run.log = stack.enter_context(Log(log, run.history))
        if not restored and (not run.history or run.history[-1]["step"] < start):
            record = run.complete_record({"step": start})
            if len(record) > 1:
                run.write(record)
        try:
            numbers = itertools.takewhile(lambda n: n <= run.last, itertools.count(start + 1))
            shown = progress.track(numbers, "training", total=max(0, steps - start))
            # A bar ends before an error is printed.
            stack.callback(getattr(shown, "close", lambda: None))
            for number in shown:
                run.advance(number)
                signals.defers = True  # there is a step to save from now on
                if signals.received:
                    run.interrupt(number, signals.received)
        except Exception as error:
            run.rescue(error)
            raise
    return FitResult(run.state, run.history)


@dataclass
class _Run:
    """A run under way: the state, and the metrics not yet read."""

    state: TrainState
    step: Step
    data: Any
    steps: int
    hooks: Sequence[Hook]
    checkpoints: Checkpoints | None
    save_at: Callable[[int], bool]
    log: Log | None = None
    history: list[Record] = field(default_factory=list)
    pending: tuple[int, Metrics] | None = None
    # Positions in the data before each step that may still turn out not to be finite.
    positions: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self):
        self.start, self.last = int(self.state.step), self.steps

    def repeat_hooks(self) -> None:
        """Run the hooks of the last record again, if one of them raised in an earlier run."""
        if self.history and self.history[-1]["step"] == self.start:
            record = dict(self.history[-1])
            if record.pop("error", None) is not None:
                self.history[-1] = plain(self.complete_record(record))

    def advance(self, number: int) -> None:
        """Make one update; record the metrics of the one before, or its own if a hook is due."""
        self.positions.pop(number - 2, None)
        self.positions[number] = getattr(self.data, "get_state", lambda: None)()
        try:
            state, metrics = self.step(self.state, next(self.data))
        except Exception as error:
            self.settle(number - 1)  # a step that was not finite may be the cause
            if not isinstance(error, StopIteration):
                raise
            raise ValueError(
                f"the batches ended after {number - 1} of {self.steps} steps: pass more epochs, "
                "or epochs=None"
            ) from None
        earlier, self.state, self.pending = self.pending, state, (number, metrics)
        if earlier is not None:
            self.write(_record(*earlier))
        due = any(hook.due(number, last=self.steps) for hook in self.hooks)
        if due or number == self.steps or self.save_at(number):
            self.settle(number)

    def settle(self, number: int) -> None:
        """Read the pending metrics, run the hooks, write the record, and then save."""
        if self.pending is None:
            return
        record = _record(*self.pending)
        self.pending = None
        try:
            findings = self.complete_record(record)
        except Exception as error:
            self.write(record | {"error": f"{type(error).__name__}: {error}"})
            raise
        self.write(findings)
        if number == self.last or self.save_at(number):
            self.save(number)

    def write(self, record: Record) -> None:
        self.history.append(plain(record))
        if self.log is not None:
            self.log.write(record)

    def complete_record(self, record: Record) -> Record:
        """Record of a step with the findings of its hooks."""
        number = record["step"]
        # A hook that is due may end the run, and then those of the end of a run are due too.
        for hook in sorted(self.hooks, key=lambda hook: not hook.due(number, last=self.steps)):
            if not hook.due(number, last=self.last):
                continue
            try:
                findings = hook.run(number, self.state) or {}
            except StopTraining as stop:
                self.last, findings = number, stop.findings or {}
            # A record before the first step has no loss yet, but those after it will.
            for name in sorted(findings.keys() & (record.keys() | {"loss", "error"})):
                raise ValueError(
                    f'a hook returns "{name}", which in the record of step {number} is something '
                    f'else: return {{"held_out/{name}": ...}}, or another name of its own'
                )
            record = record | findings
        return record

    def save(self, number: int) -> None:
        if self.checkpoints is not None:
            self.checkpoints.save(number, self.state, self.data)

    def interrupt(self, number: int, signal_number: int) -> None:
        self.settle(number)
        self.save(number)
        saved = "nothing is saved: pass checkpoints to be able to resume"
        if self.checkpoints is not None:
            saved = f"saved in {self.checkpoints.directory}, where the same call resumes"
        message = f"Stopped after step {number} of {self.steps}; {saved}."
        print(message, file=sys.stderr)
        raise KeyboardInterrupt(message, signal_number)

    def rescue(self, error: Exception) -> None:
        """Save the last finite update and the position in the data after it."""
        try:
            self.state = self.state._replace(finite=self.state.finite | True)
            if isinstance(error, NonFiniteLoss):
                error.state = self.state
            done = int(self.state.step)  # an update that is not finite is not counted
            if self.checkpoints is not None and done > self.start:
                if done + 1 in self.positions:
                    self.data.set_state(self.positions[done + 1])
                self.save(done)
        except Exception as another:  # such as for buffers lost inside a step, or a full disk
            error.add_note(f"What was done since the last checkpoint is not saved: {another}")


def _record(number: int, metrics: Metrics) -> Record:
    """Record of an update; raises where it is not finite."""
    numbers = {name: plain(value) for name, value in metrics.items()}
    if not numbers.pop("finite", numbers.get("loss", 0) is not None):
        loss, norm = (np.asarray(metrics.get(name, math.nan)) for name in ("loss", "grad_norm"))
        update = " (the optimizer's update is not)" if np.isfinite([loss, norm]).all() else ""
        raise NonFiniteLoss(
            f"not finite at step {number}: loss {loss}, gradient norm {norm}{update}. The "
            "parameters are those before it; try a lower learning rate, a longer warm-up or a "
            "smaller clip, and inspect the batch of that step",
            step=number,
        )
    return {"step": number} | numbers


class _Signals:
    """Signal handler: the first signal asks for an end, a second one raises at once.

    Attributes:
        received: number of the signal; 0 for none.
        defers: whether a step is done, which is saved before the end. `jaxpe.cli.interrupts` reads
            it, and ends a process that compiles its first step.
    """

    received = 0
    defers = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = number


@contextlib.contextmanager
def _deferred_signals() -> Iterator[_Signals]:
    """Make the first Ctrl-C or SIGTERM wait for the step, which holds the buffers of the state."""
    handler = _Signals()
    main = threading.current_thread() is threading.main_thread()
    # Schedulers and machines that are taken away send SIGTERM first.
    numbers = (signal.SIGINT, signal.SIGTERM) if main else ()
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield handler
    finally:
        for number, previous in before.items():
            signal.signal(number, previous or signal.SIG_DFL)  # None for one that is not Python's
