"""The loop: what happens in which order, what is recorded, and what stops it."""

import json

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.progress import Silent
from jaxpe.training import (
    Checkpoints,
    Hook,
    Log,
    NonFiniteLoss,
    StopTraining,
    TrainState,
    batches,
    every_n_steps,
    fit,
    read_log,
    train_step,
)
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
            return state._replace(finite=np.False_), {
                "loss": Tracked(number, events, np.nan),
                "finite": np.False_,
            }
        return counter(number), {"loss": Tracked(number, events)}

    return step


def counted(steps, events=None, **options):
    events = [] if events is None else events
    return fit(counter(0), fake_step(events), iter(range(1000)), steps=steps, **options)


def test_metrics_are_read_one_step_late():
    events = []
    counted(4, events)
    assert events == [
        *("step 1", "step 2", "read 1", "step 3", "read 2", "step 4", "read 3", "read 4")
    ]


def test_hooks_see_the_state_of_their_step_before_the_next_one():
    events = []
    hook = Hook(at={2}, run=lambda number, state: events.append(f"hook {number} {state.step}"))
    counted(4, events, hooks=[hook])
    assert events == [
        "hook 0 0",
        *("step 1", "step 2", "read 1", "read 2", "hook 2 2"),
        *("step 3", "step 4", "read 3", "read 4", "hook 4 4"),
    ]


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        ({"at": {2}}, [0, 2, 5]),
        ({"at": every_n_steps(2)}, [0, 2, 4, 5]),
        ({"at": every_n_steps(2), "ends": False}, [0, 2, 4]),
        ({"at": (), "ends": False}, []),
        ({"at": lambda step: step % 2}, [0, 1, 3, 5]),
    ],
)
def test_hooks_run_at_chosen_steps_and_the_ends(hook, expected):
    result = counted(5, hooks=[Hook(run=lambda number, state: {"seen": number}, **hook)])
    assert [r["seen"] for r in result.history if "seen" in r] == expected
    numbers = [record["step"] for record in result.history]
    assert numbers == list(range(0 if 0 in expected else 1, 6))


def test_records_hold_metrics_and_findings_in_plain_numbers(tmp_path):
    path = tmp_path / "logs" / "run.jsonl"
    hook = Hook(at=(), run=bias)
    result = fit(factory.state(), STEP, data(), steps=3, log=path, hooks=[hook])
    assert result.history == read_log(path) == json.loads(json.dumps(result.history))
    first, *_, last = result.history
    assert first == {"step": 0, "bias": [0.0, 0.0]}
    assert {"step", "loss", "grad_norm", "weight", "largest", "bias"} == set(last)
    assert last["bias"] == np.asarray(result.state.params["bias"]).tolist()
    assert len(result.history) == 4
    losses = []
    state = factory.state()
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
        if sent[-1]["step"] == fails_at:
            raise ConnectionError("no network")

    def broken(number, state):
        raise OSError("no space")

    fails_at, hook = 3, Hook(at={2}, run=bias)
    with pytest.raises(ConnectionError):
        resumed(tmp_path, hooks=[hook], on_record=send)
    fails_at = None
    sent.clear()
    result, _ = resumed(tmp_path, hooks=[hook], on_record=send)  # nothing is saved: it starts again
    assert sent == result.history == read_log(tmp_path / "log.jsonl")
    assert [record["step"] for record in sent if "bias" in record] == [0, 2, 6]
    sent.clear()
    with pytest.raises(OSError, match="no space"):
        counted(4, hooks=[Hook(at={2}, run=broken, ends=False)], on_record=send)
    assert [record["step"] for record in sent] == [1]


def test_a_run_from_the_beginning_starts_its_log_anew(tmp_path):
    hook = Hook(at=(), run=lambda number, state: {"seen": number})
    for _ in range(2):
        result = counted(2, log=tmp_path / "log.jsonl", hooks=[hook])
        assert [record["step"] for record in result.history] == [0, 1, 2]


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


@pytest.mark.parametrize(
    ("found", "step", "name"),
    [
        ([{"loss": 1.0}], 0, "loss"),  # what evaluate gives, and before any step has a loss
        ([{"step": 1}], 0, "step"),
        ([{"seen": 1}, {"other": 2, "seen": 3}], 0, "seen"),
        ([{"grad_norm": 1.0}], 2, "grad_norm"),
    ],
)
def test_a_hook_does_not_overwrite_what_the_record_has(found, step, name):
    hooks = [Hook(at={step}, run=lambda *_, f=f: f, ends=False) for f in found]
    message = rf'a hook returns "{name}".* of step {step} .*return {{"held_out/{name}": ...}}'
    with pytest.raises(ValueError, match=message):
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


def misshapen(batch):
    return batch | {"x": batch["x"][:, :2]}


def failing_hook(number):
    def fail(step, state):
        if step == number:
            raise OSError("no space")

    return [Hook(at={3}, run=bias), Hook(at={3, 5}, run=fail)]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batches": Torn}, OSError, "unreadable"),
        ({"step": lambda number: spoiled(number, misshapen)}, TypeError, "dot_general"),
        ({"step": lambda number: spoiled(number, poison)}, NonFiniteLoss, "at step 5: loss nan"),
        ({"hooks": failing_hook}, OSError, "no space"),
    ],
)
def test_after_an_error_the_run_goes_on_from_its_newest_checkpoint(
    tmp_path, options, error, message
):
    hooks = failing_hook(None)
    options = {"hooks": hooks} | {name: make(5) for name, make in options.items()}
    with pytest.raises(error, match=message) as caught:
        resumed(tmp_path, checkpoint_every=2, **options)
    if error is NonFiniteLoss:
        assert caught.value.step == 5
        assert_equal(caught.value.state, fit(factory.state(), STEP, data(), steps=4).state)
    with Checkpoints(tmp_path / "run") as checkpoints:
        assert checkpoints.latest() == 4
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
    assert result.history == read_log(tmp_path / "log.jsonl")
    first, *_, last = result.history
    assert first == {"step": 0, "end": 0}
    assert [last[name] for name in ("step", "enough", "after", "end")] == [3, 3, 3, 3]
    longer, _ = resumed(tmp_path)
    assert_equal(longer.state, fit(factory.state(), STEP, data(), steps=6).state)


def test_a_hook_may_end_the_run_before_it_begins():
    def stop(number, state):
        raise StopTraining

    assert counted(3, hooks=[Hook(at=(), run=stop)]).state.step == 0


def test_no_steps_are_no_steps():
    assert counted(0).state.step == 0


def spoiled(number, spoil):
    """The step, with another batch for the given one."""

    def step(state, batch):
        return STEP(state, spoil(batch) if state.step == number - 1 else batch)

    return step


def poison(batch):
    return {"x": np.full_like(batch["x"], np.nan), "mask": np.ones_like(batch["mask"])}


def test_a_step_whose_update_alone_is_not_finite_is_named_too():
    def step(state, batch):
        failed = state.step == 1
        finite = {"loss": 2.0, "grad_norm": 3.0, "finite": np.bool_(not failed)}
        return (state if failed else counter(state.step + 1)), finite

    message = r"step 2: loss 2\.0, gradient norm 3\.0 \(the optimizer's update is not\)\. The par"
    with pytest.raises(NonFiniteLoss, match=message):
        fit(counter(0), step, iter(range(9)), steps=4)


@pytest.mark.parametrize("last", [3, 5])
def test_a_failure_is_found_one_step_late_and_in_the_last_step_too(last):
    events = []
    with pytest.raises(NonFiniteLoss, match="not finite at step 3") as error:
        fit(counter(0), fake_step(events, fails_at=3), iter(range(9)), steps=last)
    assert error.value.state == counter(2)
    assert events.count("read 3") >= 1
    assert "step 5" not in events


def test_batches_that_end_too_early_are_an_error(tmp_path):
    log = tmp_path / "log.jsonl"
    with Checkpoints(tmp_path / "run") as checkpoints:
        options = {"steps": 7, "checkpoints": checkpoints, "log": log}
        with pytest.raises(ValueError, match="the batches ended after 5 of 7 steps: pass more ep"):
            fit(factory.state(), STEP, data(epochs=1), **options)
        longer = fit(factory.state(), STEP, data(), **options)
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
    def run(batches, steps):
        with Checkpoints(tmp_path) as checkpoints:
            return fit(factory.state(), STEP, batches, steps=steps, checkpoints=checkpoints)

    run(make(), 3)
    assert_equal(run(make(), 5).state, fit(factory.state(), STEP, make(), steps=5).state)
    with pytest.warns(UserWarning, match="the batch of step 5 is not the one that was trained on"):
        run(make(seed=9), 6)


def test_a_position_of_other_batches_is_named(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        fit(factory.state(), STEP, data(), steps=2, checkpoints=checkpoints)
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(InputError, match="not one of these"):
        fit(factory.state(), STEP, Loader(), steps=3, checkpoints=checkpoints)


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (None, "has no position in the data"),
        ([{"position": 1, "batch": ""}, {"position": 2, "batch": ""}], "resume with 2 processes"),
    ],
)
def test_a_position_that_is_not_there_is_said(tmp_path, monkeypatch, saved, message):
    monkeypatch.setattr("jaxpe.training.checkpoints.gather_values", lambda value: saved or [value])
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, factory.state())
        with pytest.raises(InputError, match=message):
            fit(factory.state(), STEP, data(), steps=3, checkpoints=checkpoints)


def test_batches_that_cannot_be_resumed_are_refused_with_checkpoints(tmp_path):
    with (
        Checkpoints(tmp_path) as checkpoints,
        pytest.raises(ValueError, match="these batches cannot be resumed"),
    ):
        fit(factory.state(), STEP, [factory.rows(4)], steps=1, checkpoints=checkpoints)


def test_never_is_no_interval():
    with pytest.raises(ValueError, match="steps must be at least 1, not 0"):
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


@pytest.mark.parametrize(
    ("line", "message"),
    [("{oops", "log.jsonl:2 is not JSON"), ("[1]", 'log.jsonl:2: not an object with a "step"')],
)
def test_another_kind_of_file_is_named_with_the_line(tmp_path, line, message):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n' + line + '\n{"step": 2}\n')
    with pytest.raises(InputError, match=message):
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


def test_progress_is_told_of_each_step(capfd):
    bar = Bar()
    counted(3, progress=bar)
    assert (bar.seen, bar.about, bar.ended) == ([1, 2, 3], ("training", 3), True)
    bar = Bar()
    fit(counter(2), fake_step([]), iter(range(9)), steps=5, progress=bar)
    assert (bar.seen, bar.about) == ([3, 4, 5], ("training", 3))
    assert capfd.readouterr() == ("", "")


def test_the_bar_ends_before_an_error_is_told():
    bar = Bar()

    def fails(number, state):
        raise OSError("no more")

    with pytest.raises(OSError, match="no more") as caught:
        counted(3, progress=bar, hooks=[Hook(at={2}, run=fails, ends=False)])
    assert bar.ended
    assert bar.seen == [1, 2]
    assert caught.value is not None  # whose traceback still holds the loop
