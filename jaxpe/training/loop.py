"""Training loop: steps, records, hooks, checkpoints and interruptions."""

import contextlib
import itertools
import math
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental.multihost_utils import reached_preemption_sync_point

from jaxpe._core.errors import InputError, reason
from jaxpe._core.progress import SILENT, Progress
from jaxpe.geometry.checks import check_size
from jaxpe.training.batches import checksum
from jaxpe.training.checkpoints import Checkpoint, Checkpoints
from jaxpe.training.log import Log, Record, plain, read_log
from jaxpe.training.processes import run_on_all_processes
from jaxpe.training.step import Batch, Metrics, Step, TrainState


class NonFiniteLoss(FloatingPointError):  # noqa: N818 (named after the event)
    """A loss, gradient or update was NaN or infinite.

    Attributes:
        step: number of the step, from 1.
        state: state before that step.
    """

    def __init__(self, message: str, *, step: int):
        super().__init__(message)
        self.step = step
        self.state: TrainState | None = None


class StopTraining(Exception):  # noqa: N818 (named after the event)
    """Raised by a hook to make this step the last: `fit` saves, and returns as at its end.

    The `findings` join the record of this step, as the return value of a hook does.
    """

    def __init__(self, findings: Record | None = None):
        super().__init__("a hook ends the training")
        self.findings = findings


class Hook(NamedTuple):
    """Action during training: an evaluation, an audit of the parameters, a figure.

    Attributes:
        at: set of steps, or function of a step: `{0, 10, 100}`, `every_n_steps(100)`,
            `lambda step: step < 5`.
        run: `(step, state) -> dict`, with the state after `step` updates. The dict joins the record
            of this step; its keys must be new, such as "held_out/loss" next to "loss". The function
            must not keep the state, whose buffers the next step donates. It may raise
            `StopTraining`.
        ends: whether to run also before the first step and after the last.
    """

    at: Callable[[int], bool] | Collection[int]
    run: Callable[[int, TrainState], Record | None]
    ends: bool = True

    def due(self, step: int, *, last: int) -> bool:
        """Whether to run after `step` of `last` updates."""
        due = self.at(step) if callable(self.at) else step in self.at
        return bool(due or (self.ends and step in (0, last)))


class FitResult(NamedTuple):
    """Result of a training run.

    Attributes:
        state: state after the last step, which `StopTraining` may have set.
        history: one record per step, with Python numbers, including earlier runs from the log.
    """

    state: TrainState
    history: list[Record]


def every_n_steps(steps: int) -> Callable[[int], bool]:
    """Condition for `Hook.at` that holds at multiples of `steps`.

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
    on_record: Callable[[Record], Any] | None = None,
    progress: Progress = SILENT,
) -> FitResult:
    """Train up to `steps` updates, resuming from the newest checkpoint if there is one.

    A record `{"step": s, "loss": ..., ...}` holds the metrics of update s, and the findings of
    hooks after it. Record 0 holds the findings before the first update. Metrics are read one step
    late, so that the device never waits for the host; hooks and checkpoints do wait. A resumed run
    ends with the same parameters and records as an uninterrupted one.

    The last update is saved before any error is raised: Ctrl-C, SIGTERM, or an error of batches or
    of a hook. If a hook raised, the record of its step in the log has an "error" instead of
    findings. Resuming with the log runs the hooks of that step again.

    A resumed run draws the last batch again, and warns if it differs: other data, or another order.
    A checkpoint is on the disk when the next one is due, and when this function ends.

    Without checkpoints, a state after s > 0 steps continues, and the log keeps its lines up to s.
    The position in the data does not continue: `batches` starts at its own position.

    Several processes make the same call, each with its own rows of each batch, and with one folder.
    Process 0 writes the log. SIGTERM in one of them ends all after the same step, if the processes
    were started by `jax.distributed.initialize` or `start_processes`.

    Args:
        state: state to start from; `step` from `train_step` donates its buffers.
        step: training step, such as from `train_step`.
        batches: batches from `jaxpe.training.batches`; any iterable without checkpoints.
        steps: total number of updates, including those before a resumption.
        checkpoints: checkpoints to save to and to resume from.
        checkpoint_every: steps between checkpoints; the last step is always saved.
        log: path of the log; lines after the starting step are removed.
        hooks: hooks, which run in order.
        on_record: receives each complete record, as a dict of Python numbers; None for a number
            that is not finite. A resumed run repeats the records after its checkpoint.
        progress: receives the number of the step.

    Raises:
        NonFiniteLoss: names the step; the state before it is saved.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, when the step is done; at once after a second.
        ValueError: batches that end too early, batches that cannot be resumed although there are
            checkpoints, or a hook whose keys are in the record already.
        InputError: checkpoints of another run or other data, or an invalid log.

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
        raise ValueError("these batches cannot be resumed: pass jaxpe.training.batches(...)")
    restored = None if checkpoints is None else checkpoints.restore(state)
    state = state if restored is None else restored.state
    if restored is not None:
        _restore_position(data, restored)
    start = int(state.step)
    save_at = every_n_steps(max(steps, 1) if checkpoint_every is None else checkpoint_every)
    run = _Run(state, step, data, steps, hooks, checkpoints, save_at, on_record)
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(_deferred_signals())
        if log is not None:
            if restored or start:
                run.history = run_on_all_processes(lambda: _earlier_records(Path(log), start))
            run.repeat_hooks()
            if jax.process_index() == 0:
                run.log = stack.enter_context(Log(log, run.history))
        if not restored and (not run.history or run.history[-1]["step"] < start):
            record = run.complete_record({"step": start})
            if len(record) > 1:
                run.write(record)
        try:
            numbers = itertools.takewhile(lambda n: n <= run.last, itertools.count(start + 1))
            shown = progress.track(numbers, "training", total=max(0, steps - start))
            # Closes a progress bar before an error is printed.
            stack.callback(getattr(shown, "close", lambda: None))
            for number in shown:
                run.advance(number)
                signals.defers = True  # from now on, a signal can wait for a step to be saved
                if received := signals.agreed(number):
                    run.interrupt(number, received)
            if checkpoints is not None:
                checkpoints.wait()
        except Exception as error:
            run.rescue(error)
            raise
    return FitResult(run.state, run.history)


@dataclass
class _Run:
    """Running training: the state, and metrics that are not read yet."""

    state: TrainState
    step: Step
    data: Any
    steps: int
    hooks: Sequence[Hook]
    checkpoints: Checkpoints | None
    save_at: Callable[[int], bool]
    on_record: Callable[[Record], Any] | None
    log: Log | None = None
    history: list[Record] = field(default_factory=list)
    pending: tuple[int, Metrics] | None = None
    # Batches of the last steps, each with the position in the data before it.
    batches: dict[int, tuple[Any, Batch]] = field(default_factory=dict)

    def __post_init__(self):
        self.start, self.last = int(self.state.step), self.steps

    def repeat_hooks(self) -> None:
        """Run the hooks of the last record again, if one of them raised in an earlier run."""
        if self.history and self.history[-1]["step"] == self.start:
            record = dict(self.history[-1])
            if record.pop("error", None) is not None:
                self.history.pop()
                self.write(self.complete_record(record))

    def advance(self, number: int) -> None:
        """Make one update, and record the metrics of the previous one; of this one at a hook."""
        self.batches.pop(number - 3, None)
        position = getattr(self.data, "get_state", lambda: None)()
        try:
            batch = next(self.data)
            self.batches[number] = position, batch
            state, metrics = self.step(self.state, batch)
        except Exception as error:
            self.settle(number - 1)  # raises if the previous step was not finite, the likely cause
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
        if self.on_record is not None and jax.process_index() == 0 and "error" not in record:
            self.on_record(dict(self.history[-1]))

    def complete_record(self, record: Record) -> Record:
        """Record of a step with the findings of its hooks."""
        number = record["step"]
        # Hooks that are due come first: one may end the run, and then hooks with `ends` are due.
        for hook in sorted(self.hooks, key=lambda hook: not hook.due(number, last=self.steps)):
            if not hook.due(number, last=self.last):
                continue
            try:
                findings = hook.run(number, self.state) or {}
            except StopTraining as stop:
                self.last, findings = number, stop.findings or {}
            # Record 0 has no loss, but later records do, so the key is refused from the start.
            for name in sorted(findings.keys() & (record.keys() | {"loss", "error"})):
                raise ValueError(
                    f'a hook returns "{name}", a key that the record of step {number} uses: '
                    f'return {{"held_out/{name}": ...}}, or another new key'
                )
            record = record | findings
        return record

    def save(self, number: int) -> None:
        if self.checkpoints is not None:
            position, batch = self.batches[number]
            text = position.decode() if isinstance(position, bytes) else position
            data = {"position": text, "batch": checksum(batch)}
            self.checkpoints.save(number, self.state, data)

    def interrupt(self, number: int, signal_number: int) -> None:
        self.settle(number)
        self.save(number)
        if self.checkpoints is not None:
            self.checkpoints.wait()
        saved = "nothing is saved: pass checkpoints to be able to resume"
        if self.checkpoints is not None:
            saved = f"saved in {self.checkpoints.directory}; run it again to resume"
        message = f"Stopped after step {number} of {self.steps}; {saved}."
        if jax.process_index() == 0:
            print(message, file=sys.stderr)
        raise KeyboardInterrupt(message, signal_number)

    def rescue(self, error: Exception) -> None:
        """Save the last finite update and the position in the data after it."""
        if jax.process_count() > 1 and not isinstance(error, NonFiniteLoss):
            return  # the others may not have the error, and would not save
        try:
            self.state = self.state._replace(finite=self.state.finite | True)
            if isinstance(error, NonFiniteLoss):
                error.state = self.state
            done = int(self.state.step)  # an update that is not finite is not counted
            if self.checkpoints is not None and done > self.start:
                self.save(done)
                self.checkpoints.wait()
        except Exception as another:  # such as for buffers lost inside a step, or a full disk
            error.add_note(f"Steps since the last checkpoint are not saved: {another}")


def _earlier_records(log: Path, last: int) -> list[Record]:
    records = read_log(log) if log.exists() else []
    return [record for record in records if record["step"] <= last]


def _restore_position(data: Any, saved: Checkpoint) -> None:
    """Move batches to after the last one that was trained on, which is drawn again."""
    known = [isinstance(each, dict) and "position" in each for each in saved.data]
    if not known or not all(known):
        raise InputError(
            f"the checkpoint of step {saved.step} has no position in the data: restore it by "
            "`Checkpoints.restore`, and pass its state to `fit` without these checkpoints"
        )
    same_processes = len(saved.data) == jax.process_count()
    mine = saved.data[jax.process_index() if same_processes else 0]
    if not same_processes and any(each["position"] != mine["position"] for each in saved.data):
        raise InputError(
            f"{len(saved.data)} processes saved step {saved.step}, at different positions in the "
            f"data: resume with {len(saved.data)} processes"
        )
    position = mine["position"]
    try:
        data.set_state(position.encode() if isinstance(data.get_state(), bytes) else position)
        batch = next(data)
    except Exception as error:  # of a Grain pipeline, for the position of another one
        raise InputError(
            f"the position in the data of step {saved.step} is not one of these batches "
            f"({reason(error)}): pass the batches of that run, or other checkpoints"
        ) from error
    if same_processes and mine["batch"] != checksum(batch):
        warnings.warn(
            f"the batch of step {saved.step} is not the one that was trained on: the data, their "
            "order or their seed differ from the run that is resumed",
            stacklevel=3,
        )


def _record(number: int, metrics: Metrics) -> Record:
    """Record of an update; raises `NonFiniteLoss` if it is not finite."""
    numbers = {name: plain(value) for name, value in metrics.items()}
    if not numbers.pop("finite", numbers.get("loss", 0) is not None):
        loss, norm = (np.asarray(metrics.get(name, math.nan)) for name in ("loss", "grad_norm"))
        update = " (the optimizer's update is not)" if np.isfinite([loss, norm]).all() else ""
        raise NonFiniteLoss(
            f"not finite at step {number}: loss {loss}, gradient norm {norm}{update}. The "
            "parameters are unchanged since the step before; try a lower learning rate, a longer "
            "warm-up or a smaller clip, and inspect the batch of this step",
            step=number,
        )
    return {"step": number} | numbers


class _Signals:
    """Signal handler: the first signal requests an end, a second one raises at once.

    In several processes JAX handles SIGTERM, and lets all of them stop after the same step. Ctrl-C
    then ends a process at once.

    Attributes:
        received: number of the signal; 0 for none.
        defers: whether a step is done, so that it is saved before the end. `jaxpe.cli.interrupts`
            reads it, and ends a process that is still compiling its first step.
    """

    received = 0
    defers = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = number

    def agreed(self, step: int) -> int:
        """Number of a signal that ends the run after this step; 0 for none."""
        if jax.process_count() == 1:
            return self.received
        on = getattr(jax.config, "jax_enable_preemption_service", False)
        noticed = on and reached_preemption_sync_point(step)
        return signal.SIGTERM if noticed else 0


@contextlib.contextmanager
def _deferred_signals() -> Iterator[_Signals]:
    """Defer the first Ctrl-C or SIGTERM to the end of a step, which holds the state's buffers."""
    handler = _Signals()
    main = threading.current_thread() is threading.main_thread()
    # Schedulers and preempted machines send SIGTERM first.
    numbers = (signal.SIGINT, signal.SIGTERM) if main and jax.process_count() == 1 else ()
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield handler
    finally:
        for number, previous in before.items():
            signal.signal(number, previous or signal.SIG_DFL)  # None: not installed by Python
