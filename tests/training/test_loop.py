"""The loop: what happens in which order, what is recorded, and what stops it."""

import json

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.progress import Silent
from jaxpe.training import (
    Checkpoints,
    Hook,
    NonFiniteLoss,
    StopTraining,
    batches,
    every_n_steps,
    fit,
    read_log,
    train_step,
)
from jaxpe.training.log import Log
from jaxpe.training.step import TrainState
from tests.training import factory
from tests.training.factory import assert_equal

STEP = train_step(factory.masked_loss, factory.OPTIMIZER)


def data(seed=0, **options):
    return batches(factory.rows(20), batch_size=4, seed=seed, **options)


def bias(number, state):
    return {"bias": state.params["bias"]}


def counter(step):
    """A state that only counts; a step on it costs nothing."""
    return TrainState(step, (), (), None, np.True_)


class Tracked:
    """A metric that tells when it is read."""

    shape = ()

    def __init__(self, name, events, value=1.0):
        self.name, self.events, self.value = name, events, value

    def __array__(self, dtype=None, copy=None):
        self.events.append(f"read {self.name}")
        return np.asarray(self.value)


def fake_step(events, *, fails_at=None):
    def step(state, batch):
        number = state.step + 1
        events.append(f"step {number}")
        if number == fails_at or not state.finite:
            loss = Tracked(number, events, np.nan)
            return state._replace(finite=np.False_), {"loss": loss, "finite": np.False_}
        return counter(number), {"loss": Tracked(number, events)}

    return step


def counted(steps, events=None, **options):
    events = [] if events is None else events
    return fit(counter(0), fake_step(events), iter(range(1000)), steps=steps, **options)


def test_metrics_are_read_one_step_late_and_hooks_see_the_state_of_their_step():
    events = []
    hook = Hook(at={2}, run=lambda number, state: events.append(f"hook {number} {state.step}"))
    counted(4, events, hooks=[hook])
    assert events == [
        "hook 0 0",
        *("step 1", "step 2", "read 1", "read 2", "hook 2 2"),
        *("step 3", "step 4", "read 3", "read 4", "hook 4 4"),
    ]


@pytest.mark.parametrize(
    ("at", "ends", "expected"),
    [
        ({2}, True, [0, 2, 5]),
        (every_n_steps(2), False, [0, 2, 4]),
        ((), False, []),
        (lambda step: step % 2, True, [0, 1, 3, 5]),
    ],
)
def test_hooks_run_at_chosen_steps_and_the_ends(at, ends, expected):
    hook = Hook(at=at, ends=ends, run=lambda number, state: {"seen": number})
    history = counted(5, hooks=[hook]).history
    assert [r["seen"] for r in history if "seen" in r] == expected
    assert [record["step"] for record in history] == list(range(0 if 0 in expected else 1, 6))


def test_records_hold_metrics_and_findings_in_plain_numbers(tmp_path):
    path = tmp_path / "logs" / "run.jsonl"
    result = fit(factory.state(), STEP, data(), steps=3, log=path, hooks=[Hook(at=(), run=bias)])
    assert result.history == read_log(path) == json.loads(json.dumps(result.history))
    first, *_, last = result.history
    assert first == {"step": 0, "bias": [0.0, 0.0]}
    assert {"step", "loss", "grad_norm", "weight", "largest", "bias"} == set(last)
    assert last["bias"] == np.asarray(result.state.params["bias"]).tolist()
    losses, state = [], factory.state()
    for batch, _ in zip(data(), range(3), strict=False):
        state, metrics = STEP(state, batch)
        losses.append(float(metrics["loss"]))
    assert [record["loss"] for record in result.history[1:]] == losses
    assert_equal(result.state, state)


def test_a_resumed_run_ends_as_one_that_never_stopped(tmp_path):
    seen = []

    def look(number, state):
        seen.append(number)
        return bias(number, state)

    def run(name, steps):
        with Checkpoints(tmp_path / name) as checkpoints:
            options = {"checkpoints": checkpoints, "checkpoint_every": 4}
            hooks = [Hook(at=every_n_steps(2), run=look, ends=False)]
            log = tmp_path / f"{name}.jsonl"
            return fit(factory.state(), STEP, data(), steps=steps, log=log, hooks=hooks, **options)

    whole = run("whole", 10)
    seen.clear()
    for steps in (3, 4, 10, 10):
        parts = run("parts", steps)
    assert seen == [0, 2, 4, 6, 8, 10]
    assert_equal(parts.state, whole.state)
    assert parts.history == whole.history
    assert (tmp_path / "parts.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()
    for name in ("whole", "parts"):
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["10", "8"]


def test_complete_records_are_sent_and_what_the_receiver_does_to_them_stays_there(tmp_path):
    sent = []

    def send(record):
        sent.append(dict(record))
        record.clear()

    result, _ = resumed(tmp_path, hooks=[Hook(at={2}, run=bias)], on_record=send)
    assert sent == result.history == read_log(tmp_path / "log.jsonl")
    assert [record["step"] for record in sent if "bias" in record] == [0, 2, 6]


def test_a_state_that_has_made_steps_goes_on_in_its_log_without_checkpoints(tmp_path):
    hook = Hook(at=every_n_steps(2), run=bias)

    def run(state, batches, steps, name):
        return fit(state, STEP, batches, steps=steps, log=tmp_path / name, hooks=[hook])

    whole = run(factory.state(), data(), 6, "whole")
    place = iter(data())
    first = run(factory.state(), place, 4, "parts")
    second = run(first.state, place, 6, "parts")
    assert_equal(second.state, whole.state)
    assert second.history == whole.history
    assert (tmp_path / "parts").read_text() == (tmp_path / "whole").read_text()
    # A log of its own begins with what the hooks find in the state it starts from.
    late = run(fit(factory.state(), STEP, data(), steps=4).state, data(), 5, "late")
    assert [(r["step"], "bias" in r) for r in late.history] == [(4, True), (5, True)]
    # One from the beginning starts its log anew.
    assert run(factory.state(), data(), 2, "whole").history == whole.history[:3]


@pytest.mark.parametrize(("name", "step"), [("loss", 0), ("step", 0), ("seen", 0), ("loss", 2)])
def test_a_hook_does_not_overwrite_what_the_record_has(name, step):
    hooks = [Hook(at={step}, run=lambda *_, f=f: {f: 1}, ends=False) for f in ("seen", name)]
    with pytest.raises(ValueError, match=rf'"{name}".* step {step} '):
        fit(factory.state(), STEP, data(), steps=3, hooks=hooks)


def resumed(tmp_path, *, hooks=(), step=STEP, batches=None, steps=6, **options):
    """One call of a run in a folder; what is compared is its log and its last state."""
    with Checkpoints(tmp_path / "run") as checkpoints:
        options |= {"checkpoints": checkpoints, "log": tmp_path / "log.jsonl", "hooks": hooks}
        result = fit(factory.state(), step, batches or data(), steps=steps, **options)
        return result, checkpoints.latest()


class Torn:
    """Batches that can be resumed, one of which cannot be read."""

    def __init__(self, number):
        self.place, self.number, self.read = iter(data()), number, 0
        self.get_state, self.set_state = self.place.get_state, self.place.set_state

    def __iter__(self):
        return self

    def __next__(self):
        self.read += 1
        batch = next(self.place)  # so that the place is beyond the step that is made
        if self.read == self.number:
            raise OSError("unreadable")
        return batch


def poisoned(number):
    """The step, with a batch that is not finite for the given one."""

    def step(state, batch):
        if state.step == number - 1:
            batch = {"x": np.full_like(batch["x"], np.nan), "mask": np.ones_like(batch["mask"])}
        return STEP(state, batch)

    return step


def failing_hook(number):
    def fail(step, state):
        if step == number:
            raise OSError("no space")

    return [Hook(at={3}, run=bias), Hook(at={3, 5}, run=fail)]


@pytest.mark.parametrize(
    ("name", "make"), [("batches", Torn), ("step", poisoned), ("hooks", failing_hook)]
)
def test_after_an_error_the_run_goes_on_from_its_newest_checkpoint(tmp_path, name, make):
    hooks, error = failing_hook(None), NonFiniteLoss if name == "step" else OSError
    with pytest.raises(error) as caught:
        resumed(tmp_path, checkpoint_every=2, **{"hooks": hooks, name: make(5)})
    if error is NonFiniteLoss:
        assert caught.value.step == 5
        assert_equal(caught.value.state, fit(factory.state(), STEP, data(), steps=4).state)
    result, _ = resumed(tmp_path, checkpoint_every=2, hooks=hooks)
    whole = fit(factory.state(), STEP, data(), steps=6, hooks=hooks)
    assert_equal(result.state, whole.state)
    assert result.history == whole.history == read_log(tmp_path / "log.jsonl")


def test_a_hook_may_end_the_run_whose_end_is_then_there(tmp_path):
    def enough(number, state):
        raise StopTraining({"enough": number})

    hooks = [
        Hook(at=(), run=lambda number, state: {"end": number}),
        Hook(at={3}, run=enough, ends=False),
        Hook(at={3}, run=lambda number, state: {"after": number}, ends=False),
        Hook(at={5}, run=lambda number, state: {"never": number}, ends=False),
    ]
    result, latest = resumed(tmp_path, hooks=hooks)
    assert result.state.step == latest == 3
    first, *_, last = result.history
    assert first == {"step": 0, "end": 0}
    assert [last[name] for name in ("step", "enough", "after", "end")] == [3, 3, 3, 3]
    longer, _ = resumed(tmp_path)
    assert_equal(longer.state, fit(factory.state(), STEP, data(), steps=6).state)
    assert counted(3, hooks=[Hook(at=(), run=enough)]).state.step == counted(0).state.step == 0


@pytest.mark.parametrize("last", [3, 5])
def test_a_failure_is_found_one_step_late_and_in_the_last_step_too(last):
    events = []
    with pytest.raises(NonFiniteLoss, match="step 3") as error:
        fit(counter(0), fake_step(events, fails_at=3), iter(range(9)), steps=last)
    assert error.value.state == counter(2)
    assert "step 5" not in events


def test_batches_that_end_too_early_are_an_error(tmp_path):
    with pytest.raises(ValueError, match="epochs"):
        resumed(tmp_path, steps=7, batches=data(epochs=1))
    longer, _ = resumed(tmp_path, steps=7)
    assert_equal(longer.state, fit(factory.state(), STEP, data(), steps=7).state)


class Loader:
    """Batches with a position in bytes, as of Grain's `DataLoader`."""

    def __init__(self, seed=0):
        self.seed, self.number = seed, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.number += 1
        return factory.rows(4, seed=self.seed + self.number)

    def get_state(self):
        return str(self.number).encode()

    def set_state(self, state):
        self.number = int(state)


@pytest.mark.parametrize("make", [data, Loader])
def test_another_order_of_the_data_is_warned_of(tmp_path, make):
    resumed(tmp_path, batches=make(), steps=3)
    whole = fit(factory.state(), STEP, make(), steps=5)
    assert_equal(resumed(tmp_path, batches=make(), steps=5)[0].state, whole.state)
    with pytest.warns(UserWarning, match="step 5"):
        resumed(tmp_path, batches=make(seed=9), steps=6)
    other = Loader() if make is data else data()
    with pytest.raises(InputError, match="position"):
        resumed(tmp_path, batches=other, steps=7)


@pytest.mark.parametrize("saved", [None, [{"position": n, "batch": ""} for n in (1, 2)]])
def test_a_position_that_is_not_there_is_said(tmp_path, monkeypatch, saved):
    monkeypatch.setattr("jaxpe.training.checkpoints.gather_values", lambda value: saved or [value])
    with Checkpoints(tmp_path / "run") as checkpoints:
        checkpoints.save(1, factory.state())
    with pytest.raises(InputError, match="position"):
        resumed(tmp_path)
    with pytest.raises(ValueError, match="resumed"):
        resumed(tmp_path, batches=[factory.rows(4)])
    with pytest.raises(ValueError, match="steps"):
        every_n_steps(0)


def test_a_log_drops_what_comes_again_and_a_line_cut_short(tmp_path):
    path = tmp_path / "log.jsonl"
    with Log(path) as log:
        for step in range(5):
            log.write({"step": step, "loss": np.float32(step)})
    path.write_text(path.read_text() + '{"step": 5, "lo')
    assert [record["step"] for record in read_log(path)] == [0, 1, 2, 3, 4]
    with Log(path, read_log(path)[:3]) as log:
        log.write({"step": 3, "loss": float("inf")})
    assert read_log(path)[-1] == {"step": 3, "loss": None}
    assert [record["step"] for record in read_log(path)] == [0, 1, 2, 3]
    assert list(tmp_path.iterdir()) == [path]
    for line in ("{oops", "[1]"):
        path.write_text('{"step": 1}\n' + line + '\n{"step": 2}\n')
        with pytest.raises(InputError, match="jsonl:2"):
            read_log(path)


class Bar(Silent):
    """Progress that notes what is shown, and when its bar ends."""

    def __init__(self):
        self.seen, self.about, self.ended = [], None, False

    def track(self, items, description, *, total=None):
        self.about = (description, total)
        try:
            for item in items:
                self.seen.append(item)
                yield item
        finally:
            self.ended = True


def test_progress_is_told_of_each_step_and_ends_before_an_error_is_told():
    def fails(number, state):
        raise OSError("no more")

    bar = Bar()
    fit(counter(2), fake_step([]), iter(range(9)), steps=5, progress=bar)
    assert (bar.seen, bar.about, bar.ended) == ([3, 4, 5], ("training", 3), True)
    bar = Bar()
    with pytest.raises(OSError, match="no more") as caught:
        counted(3, progress=bar, hooks=[Hook(at={2}, run=fails, ends=False)])
    assert bar.ended
    assert bar.seen == [1, 2]
    assert caught.value is not None  # whose traceback still holds the loop
