"""Training loop: steps, records, hooks and checkpoints."""

import contextlib
import math
import signal
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
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
from jaxpe.training.processes import wait_for_all
from jaxpe.training.step import Batch, Metrics, Step, TrainState


class NonFiniteLoss(FloatingPointError):  # noqa: N818 (named after the event)
    """A loss, gradient or update was NaN or infinite.

    Args:
        message: text of the error.
        step: number of the step, from 1; an attribute of the error.
        state: state before that step; likewise.
    """

    def __init__(self, message: str, *, step: int, state: TrainState | None = None):
        super().__init__(message)
        self.step, self.state = step, state


class StopTraining(Exception):  # noqa: N818 (named after the event)
    """Raised by a hook to make this step the last: `fit` saves it, and returns as at its end.

    Before the first step there is nothing to save.

    Args:
        findings: dict that joins the record of this step, as the return value of a hook does; None
            for nothing.
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
        """Whether to run after a step.

        Args:
            step: number of updates so far.
            last: number of updates at the end of the training.
        """
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

    Args:
        steps: number of steps, at least 1.

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

    After an error or Ctrl-C, the same call resumes from the newest checkpoint. The log keeps the
    records up to it, and the hooks of later steps run again.

    A resumed run draws the last batch again, and warns if it differs: other data, or another order.
    A checkpoint is on the disk when the next one is due, and when this function ends.

    Without checkpoints, a state after s > 0 steps continues, and the log keeps its lines up to s.
    The position in the data does not continue: `batches` starts at its own position.

    Several processes make the same call, each with its own rows of each batch, and with one folder.
    Process 0 writes the log. SIGTERM in one of them ends all after the same step, which is saved,
    if the processes were started by `jax.distributed.initialize`.

    Args:
        state: state to start from; `step` from `train_step` donates its buffers.
        step: training step, such as from `train_step`.
        batches: batches from `jaxpe.training.batches`; any iterable without checkpoints.
        steps: total number of updates, including those before a resumption.
        checkpoints: checkpoints to save to and to resume from.
        checkpoint_every: steps between checkpoints; the last step is always saved.
        log: path of the log; lines after the starting step are removed.
        hooks: hooks, which run in order; those that `StopTraining` makes due come after the others.
        on_record: receives each complete record, as a dict of Python numbers; None for a number
            that is not finite. A resumed run repeats the records after its checkpoint.
        progress: receives the number of the step.

    Raises:
        NonFiniteLoss: names the step, and has the state before it.
        KeyboardInterrupt: after SIGTERM in one of several processes.
        ValueError: batches that end too early, batches that cannot be resumed although there are
            checkpoints, or a hook whose keys are in the record already.
        InputError: checkpoints of another run or other data, or an invalid log.

    >>> from jaxpe.training import batches, init_state, train_step
    >>> from jaxpe.training.losses import MeanMetric
    >>> import optax
    >>> loss = lambda w, batch, key: (
    ...     MeanMetric(((w - batch["x"]) ** 2).sum(), jnp.array(2.0)), {})
    >>> state = init_state(jnp.array(0.0), optax.sgd(0.5), key=jax.random.key(0))
    >>> data = batches({"x": np.ones(4)}, batch_size=2, seed=0)
    >>> result = fit(state, train_step(loss, optax.sgd(0.5)), data, steps=3)
    >>> result.state.params.item(), [record["loss"] for record in result.history]
    (1.0, [1.0, 0.0, 0.0])
    """
    data: Any = iter(batches)
    if checkpoints is not None and not hasattr(data, "get_state"):
        raise ValueError("these batches cannot be resumed: pass jaxpe.training.batches(...)")
    restored = None if checkpoints is None else checkpoints.restore(state)
    if restored is not None:
        state = restored.state
        _restore_position(data, restored)
    start, last = int(state.step), steps
    saves = every_n_steps(max(steps, 1) if checkpoint_every is None else checkpoint_every)
    resumes = log is not None and (restored or start) and Path(log).exists()
    history = [record for record in read_log(log) if record["step"] <= start] if resumes else []
    with _recorder(log, history, on_record) as write, contextlib.ExitStack() as stack:
        if restored is None and (not history or history[-1]["step"] < start):
            due = [hook.due(start, last=last) for hook in hooks]
            record, last = _with_findings({"step": start}, hooks, due, state, last)
            if len(record) > 1:
                write(record)
        pending: tuple[int, Metrics] | None = None
        shown = progress.track(range(start + 1, last + 1), "training", total=max(last - start, 0))
        stack.callback(getattr(shown, "close", lambda: None))  # before an error is printed
        for number in shown:
            position = None if checkpoints is None else data.get_state()
            if (batch := next(data, None)) is None:
                raise ValueError(
                    f"the batches ended after {number - 1} of {steps} steps: pass more epochs"
                )
            state, metrics = step(state, batch)
            if pending is not None:
                write(_record(*pending, state))
            pending = number, metrics
            preempted = _is_preempted(number)
            is_saved = preempted or number == last or saves(number)
            due = [hook.due(number, last=last) for hook in hooks]
            if is_saved or any(due):
                record, last = _with_findings(_record(*pending, state), hooks, due, state, last)
                pending = None
                write(record)
            if checkpoints is not None and (is_saved or number == last):
                text = position.decode() if isinstance(position, bytes) else position
                checkpoints.save(number, state, {"position": text, "batch": checksum(batch)})
            if number == last:
                break
            if preempted:
                raise KeyboardInterrupt(f"SIGTERM after step {number}", signal.SIGTERM)
        if checkpoints is not None:
            checkpoints.wait()
    return FitResult(state, history)


def _with_findings(
    record: Record, hooks: Sequence[Hook], due: Sequence[bool], state: TrainState, last: int
) -> tuple[Record, int]:
    """Record of a step with the findings of its hooks, and the last step, which they may set."""
    number = record["step"]
    # Hooks that are due come first: one may end the run, and then hooks with `ends` are due.
    for hook, is_due in sorted(zip(hooks, due, strict=True), key=lambda pair: not pair[1]):
        if not is_due and not (hook.ends and number == last):
            continue
        try:
            findings = hook.run(number, state) or {}
        except StopTraining as stop:
            last, findings = number, stop.findings or {}
        # Record 0 has no loss, but later records do, so the key is refused from the start.
        for name in sorted(findings.keys() & (record.keys() | {"loss"})):
            raise ValueError(
                f'a hook returns "{name}", a key that the record of step {number} uses: '
                f'return {{"held_out/{name}": ...}}, or another new key'
            )
        record = record | findings
    return record, last


@contextlib.contextmanager
def _recorder(
    path: str | Path | None, history: list[Record], on_record: Callable[[Record], Any] | None
) -> Iterator[Callable[[Record], None]]:
    """Function that appends a record to the history, to the log and to what `on_record` gets."""
    first = jax.process_index() == 0
    wait_for_all()  # before the first process writes the log again
    own = path is not None and first
    with Log(path, history) if own else contextlib.nullcontext() as log:

        def write(record: Record) -> None:
            history.append(plain(record))
            if log is not None:
                log.write(record)
            if on_record is not None and first:
                on_record(dict(history[-1]))

        yield write


def _is_preempted(step: int) -> bool:
    """Whether one of several processes received SIGTERM; true after the same step in all."""
    on = getattr(jax.config, "jax_enable_preemption_service", False)
    return bool(jax.process_count() > 1 and on and reached_preemption_sync_point(step))


def _restore_position(data: Any, saved: Checkpoint) -> None:
    """Move batches to after the last one that was trained on, which is drawn again."""
    if not saved.data or not all("position" in (each or ()) for each in saved.data):
        raise InputError(
            f"the checkpoint of step {saved.step} has no position in the data: restore it by "
            "`Checkpoints.restore`, and pass its state to `fit` without these checkpoints"
        )
    same_processes = len(saved.data) == jax.process_count()
    mine = saved.data[jax.process_index() if same_processes else 0]
    position = mine["position"]
    if not same_processes and any(each["position"] != position for each in saved.data):
        raise InputError(
            f"{len(saved.data)} processes saved step {saved.step}, at different positions in the "
            f"data: resume with {len(saved.data)} processes"
        )
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


def _record(number: int, metrics: Metrics, state: TrainState) -> Record:
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
            state=state._replace(finite=state.finite | True),  # unchanged since the step before
        )
    return {"step": number} | numbers
