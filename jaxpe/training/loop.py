"""The training loop: steps, records, hooks, checkpoints, and what to do when something stops it."""

import contextlib
import itertools
import math
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.checkpoints import Checkpoints
from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT, Progress
from jaxpe.training.log import Log, Record, plain
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

    What is `found` joins that step's record, as what a hook returns does.
    """

    def __init__(self, found: Record | None = None):
        super().__init__("a hook ends the training")
        self.found = found


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
        chosen = self.at(step) if callable(self.at) else step in self.at
        return bool(chosen or (self.ends and step in (0, last)))


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
    if steps < 1:
        raise ValueError(f"every_n_steps({steps}) is never: pass at least 1")
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

    A record `{"step": s, "loss": ..., ...}` holds the metrics of the s-th update and what hooks
    found after it; record 0 is what they found before the first. Metrics are read one step late, so
    that the device never waits for the host; hooks and checkpoints wait for it. A resumed run ends
    with the same parameters and records as one that was never stopped; what hooks did before the
    checkpoint is not done again.

    Whatever stops the run, the last update is saved before the error is passed on: Ctrl-C and
    SIGTERM, batches or a hook that raise. Where a hook raised, that step's record in the log has an
    "error" instead of what hooks found, and resuming with the log runs the step's hooks again.

    A state of s > 0 steps is continued without checkpoints too: the log keeps its lines up to
    s. The data do not: they start where `batches` or the iterator passed in its place is.

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
        InputError: for checkpoints of another run or other data.

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
    if restored is not None and restored[1] != start:
        raise InputError(f"the checkpoint of step {restored[1]} holds the state of step {start}")
    with contextlib.ExitStack() as stack:
        kept = start if restored or start else -1
        file = None if log is None else stack.enter_context(Log(log, step=kept))
        interrupts = stack.enter_context(_deferred_interrupts())
        save_at = every_n_steps(max(steps, 1) if checkpoint_every is None else checkpoint_every)
        run = _Run(state, step, data, steps, hooks, checkpoints, save_at, file)
        run.begin(resumed=restored is not None)
        try:
            numbers = itertools.takewhile(run.goes_on, itertools.count(start + 1))
            shown = progress.track(numbers, "training", total=max(0, steps - start))
            # A bar ends before what is said of an error.
            stack.callback(getattr(shown, "close", lambda: None))
            for number in shown:
                run.advance(number)
                interrupts.defers = True  # now there is a step to save
                if interrupts.asked:
                    run.interrupt(number, interrupts.asked)
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
    log: Log | None
    pending: tuple[int, Metrics] | None = None
    # Where the data was before each step that may still prove not finite.
    places: deque[tuple[int, Any]] = field(default_factory=lambda: deque(maxlen=2))

    def __post_init__(self):
        self.history: list[Record] = [] if self.log is None else list(self.log.kept)
        self.start, self.last = int(self.state.step), self.steps

    def goes_on(self, number: int) -> bool:
        return number <= self.last

    def begin(self, *, resumed: bool) -> None:
        """The hooks before the first step, unless the run that came here has run them."""
        known = self.history[-1] if self.history else {"step": -1}
        here = known["step"] == self.start
        if self.log is not None and here and "error" in known:
            del known["error"]
            self.history[-1] = plain(self.with_findings(known))
            self.log.mend(self.history[-1])
        elif not (resumed or here):
            record = self.with_findings({"step": self.start})
            if len(record) > 1:
                self.write(record)

    def advance(self, number: int) -> None:
        """Make one update; records the metrics of the last one, or its own if something is due."""
        self.places.append((number, self.place()))
        try:
            state, metrics = self.step(self.state, next(self.data))
        except Exception as error:
            self.settle(number - 1)  # which may not have been finite, and be what is to blame
            if not isinstance(error, StopIteration):
                raise
            raise ValueError(
                f"the batches ended after {number - 1} of {self.steps} steps: pass more epochs, "
                "or epochs=None"
            ) from None
        earlier = self.pending
        self.state, self.pending = state, (number, metrics)
        if earlier is not None:
            self.write(self.read(*earlier))
        due = any(hook.due(number, last=self.steps) for hook in self.hooks)
        if due or number == self.steps or self.save_at(number):
            self.settle(number)

    def settle(self, number: int) -> None:
        """Read what is pending, run the hooks, write the record, and then save."""
        if self.pending is None:
            return
        record = self.read(*self.pending)
        self.pending = None
        try:
            found = self.with_findings(record)
        except Exception as error:
            self.write(record | {"error": f"{type(error).__name__}: {error}"})
            raise
        self.write(found)
        if number == self.last or self.save_at(number):
            self.save(number)

    def read(self, number: int, metrics: Metrics) -> Record:
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

    def write(self, record: Record) -> None:
        self.history.append(plain(record))
        if self.log is not None:
            self.log.write(record)

    def with_findings(self, record: Record) -> Record:
        """Record of a step with the findings of hooks, also of those at the end of a run."""
        number = record["step"]
        due = [hook.due(number, last=self.steps) for hook in self.hooks]
        for hook in itertools.compress(self.hooks, due):
            record = self.joined(record, hook)
        if self.last == number < self.steps:
            for hook, ran in zip(self.hooks, due, strict=True):
                if hook.ends and not ran:
                    record = self.joined(record, hook)
        return record

    def joined(self, record: Record, hook: Hook) -> Record:
        number = record["step"]
        try:
            found = hook.run(number, self.state)
        except StopTraining as stop:
            self.last, found = number, stop.found
        found = found or {}
        # A record before the first step has no loss yet, but those after it will.
        for name in sorted(found.keys() & (record.keys() | {"loss", "error"})):
            raise ValueError(
                f'a hook returns "{name}", which in the record of step {number} is something else: '
                f'return {{"held_out/{name}": ...}}, or another name of its own'
            )
        return record | found

    def place(self) -> Any:
        return self.data.get_state() if hasattr(self.data, "get_state") else None

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
        """Save the last update that counts and the place in the data after it, to go on from."""
        try:
            self.state = self.state._replace(finite=self.state.finite | True)
            if isinstance(error, NonFiniteLoss):
                error.state = self.state
            done = int(self.state.step)  # what was not finite did not count
            if self.checkpoints is not None and done > self.start:
                places = dict(self.places)
                if done + 1 in places:
                    self.data.set_state(places[done + 1])
                self.save(done)
        except Exception as another:  # such as for buffers lost inside a step, or a full disk
            error.add_note(f"What was done since the last checkpoint is not saved: {another}")


class _Interrupts:
    """Signal handler: the first signal asks for an end, a second one raises at once.

    Attributes:
        asked: number of the signal that came, 0 where none did.
        defers: whether a step is done, which is saved before the end. `jaxpe.cli.interrupts` reads
            it, and ends a process that compiles its first step.
    """

    asked = 0
    defers = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = number


@contextlib.contextmanager
def _deferred_interrupts() -> Iterator[_Interrupts]:
    """The first Ctrl-C or SIGTERM waits for the step to end: the state's buffers are inside it."""
    handler = _Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield handler
        return
    # SIGTERM is what a machine that is taken away, or a scheduler whose time is up, sends first.
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield handler
    finally:
        for number, previous in before.items():
            signal.signal(number, previous or signal.SIG_DFL)  # None for one that is not Python's
