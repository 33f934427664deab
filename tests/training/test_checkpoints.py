"""Checkpoints: whole or not there; a damaged one is passed over and said so; killed runs go on."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxpe._core import checkpoints
from jaxpe._core.errors import InputError
from jaxpe.training import Checkpoints, adamw, batches, init_state
from tests.training import factory
from tests.training.factory import assert_equal

ROOT = Path(__file__).parents[2]


def flax_state(seed):
    params = nnx.split(nnx.Linear(3, 2, rngs=nnx.Rngs(seed)), nnx.Param)[1]
    return init_state(params, adamw(0.1), key=jax.random.key(seed))


def data():
    return iter(batches(factory.rows(20), batch_size=4, seed=0))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Checkpoints of steps 5 and 7, their data at the same batch; to be copied before damage."""
    directory = tmp_path_factory.mktemp("run")
    place = data()
    with Checkpoints(directory) as checkpoints:
        done = 0
        for step in (3, 5, 7):
            for _ in range(step - done):
                next(place)
            done = step
            checkpoints.save(step, flax_state(step), place)
    return directory


@pytest.fixture
def run(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "run"))


def damage(directory, how):
    arrays = list((directory / "state" / "d").iterdir())
    everything = [path for path in directory.rglob("*") if path.is_file()]
    chosen = [directory / "seal.json"] if "seal" in how else arrays
    chosen = everything if how == "emptied" else chosen
    assert chosen
    for path in chosen:
        content = bytearray(path.read_bytes())
        if how == "missing":
            path.unlink()
        elif how.startswith("seal "):
            path.write_text(how.removeprefix("seal "))
        elif how == "rewritten seal":
            seal = json.loads(content)
            path.write_text(json.dumps(seal | {"config": {"seed": 1}}))
        elif how == "flipped":
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        else:
            path.write_bytes(content[: 0 if how == "emptied" else len(content) // 2])


def test_state_and_data_come_back_as_they_were(saved):
    place = data()
    with Checkpoints(saved) as checkpoints:
        assert checkpoints.latest() == 7
        state, step = checkpoints.restore(flax_state(0), place)
    assert step == 7
    assert_equal(state, flax_state(7))
    assert isinstance(state.params, nnx.State)
    expected = data()
    for _ in range(7):
        next(expected)
    assert_equal(next(place), next(expected))
    assert sorted(path.name for path in saved.iterdir()) == ["5", "7"]  # 3 went


SEALS = ("cut seal", "seal {}", "seal []", "seal 1", "rewritten seal")


@pytest.mark.parametrize("how", ["truncated", "flipped", "missing", "emptied", *SEALS])
def test_a_damaged_checkpoint_is_set_aside_and_said_so(run, how):
    damage(run / "7", how)
    place = data()
    with Checkpoints(run) as checkpoints:
        with pytest.warns(UserWarning, match=r"step 7 cannot be used: .*; going on from step 5"):
            state, step = checkpoints.restore(flax_state(0), place)
        assert step == checkpoints.latest() == 5
        assert_equal(state, flax_state(5))
        assert place.get_state() == {"next_index": 5}
        assert (run / "unreadable-7-1").is_dir()
        checkpoints.save(6, flax_state(6), place)
        checkpoints.save(7, flax_state(7), place)  # is written again, and not taken for the old
    with Checkpoints(run) as checkpoints:
        assert_equal(checkpoints.restore(flax_state(0), place)[0], flax_state(7))


def resealed(directory, change):
    """A checkpoint that something changed and sealed again, every checksum right."""
    path = directory / "seal.json"
    seal = json.loads(path.read_text())
    del seal["checksum"]
    change(directory, seal)
    if seal["files"] == "again":
        seal["files"] = checkpoints._checksums(directory)
    path.write_text(json.dumps(seal | {"checksum": checkpoints._checksum(seal)}))


@pytest.mark.parametrize(
    "seal",
    [
        {"files": []}, {"files": {"a": "b"}}, {"leaves": None}, {"leaves": {"w": 3}},
        {"config": []}, {"config": None}, {"data": 3}, {"colour": "red"},
    ],
    ids=str,
)  # fmt: skip
def test_a_seal_of_other_types_is_damage(run, seal):
    resealed(run / "7", lambda directory, fields: fields.update(seal))
    warned = pytest.warns(UserWarning, match=r"step 7 cannot be used")
    with Checkpoints(run) as checkpoints, warned:
        assert checkpoints.restore(flax_state(0), data())[1] == 5


def scrambled(directory, seal):
    for path in (directory / "state").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[::-1])
    seal["files"] = "again"


def emptied(directory, seal):
    shutil.rmtree(directory / "state")
    seal["files"] = "again"


def moved_far(directory, seal):
    for path in (directory / "data").rglob("process_0*"):
        path.write_text('{"next_index": "far"}')
    seal["files"] = "again"


@pytest.mark.parametrize("change", [scrambled, emptied, moved_far])
def test_what_was_sealed_and_cannot_be_read_is_one_error(run, change):
    resealed(run / "7", change)
    refused = pytest.raises(InputError, match=r"step 7 cannot be read")
    with Checkpoints(run) as checkpoints, refused:
        checkpoints.restore(flax_state(0), data())


def test_orbax_files_that_say_nonsense_are_one_error(run):
    path = run / "7" / "_CHECKPOINT_METADATA"
    fields = json.loads(path.read_text())
    numbers = {name: 10**30 for name, value in fields.items() if isinstance(value, int)}
    assert numbers
    path.write_text(json.dumps(fields | numbers))
    with pytest.raises(InputError, match="checkpoints cannot be read"):
        Checkpoints(run)


@pytest.mark.parametrize("target", ["/dev/zero", "nowhere"])
def test_links_are_not_followed(run, target):
    path = run / "7" / "_CHECKPOINT_METADATA"
    path.unlink()
    path.symlink_to(target)
    with pytest.raises(InputError, match="_CHECKPOINT_METADATA is no regular file"):
        Checkpoints(run)


def test_whoever_only_reads_sets_nothing_aside(run):
    damage(run / "7", "flipped")
    (run / "9").mkdir()
    (run / "8.orbax-checkpoint-tmp").mkdir()
    before = sorted(path.name for path in run.iterdir())
    warned = pytest.warns(UserWarning, match=r"step 7 cannot be used: .*; going on from step 5")
    with Checkpoints(run, read_only=True) as checkpoints, warned:
        assert checkpoints.restore(flax_state(0))[1] == 5
    assert sorted(path.name for path in run.iterdir()) == before


def test_with_none_that_can_be_read_there_is_no_silent_start_from_scratch(run):
    for step in ("5", "7"):
        damage(run / step, "truncated")
    with (
        Checkpoints(run) as checkpoints,
        pytest.raises(
            InputError, match=r"no checkpoint is whole \(step 7: state/d/\w+ is damaged\)"
        ),
    ):
        checkpoints.restore(flax_state(0), data())
    assert (run / "7").is_dir()  # and nothing was moved


def test_what_was_never_completed_is_no_checkpoint(run):
    for step in ("5", "7"):
        (run / step / "seal.json").unlink()
    with Checkpoints(run) as checkpoints:
        with pytest.warns(UserWarning, match=r"killed while writing it.*; starting from the begin"):
            assert checkpoints.restore(flax_state(0), data()) is None
        assert checkpoints.latest() is None


def test_the_latest_is_the_newest_completed_one(run):
    (run / "7" / "seal.json").unlink()
    with Checkpoints(run) as checkpoints:
        assert checkpoints.latest() == 5


def test_a_new_directory_has_nothing(tmp_path):
    with Checkpoints(tmp_path / "new") as checkpoints:
        assert checkpoints.latest() is None
        assert checkpoints.restore(flax_state(0)) is None


def other_shape():
    params = nnx.split(nnx.Linear(3, 4, rngs=nnx.Rngs(0)), nnx.Param)[1]
    return init_state(params, adamw(0.1), key=jax.random.key(0))


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (other_shape, r"array opt_state/1/0/mu/bias/value was float\d+\[2\] and now is .*\[4\]"),
        (
            lambda: flax_state(0)._replace(step=jnp.float32(0)),
            r"step 7 is of another run: array step was int32\[\] and now is float32\[\]",
        ),
        (
            lambda: flax_state(0)._replace(params={}),
            r"array params/bias/value was float\d+\[2\] and now is absent",
        ),
    ],
)
def test_another_structure_is_named_and_nothing_is_touched(saved, like, message):
    with Checkpoints(saved) as checkpoints, pytest.raises(InputError, match=message):
        checkpoints.restore(like(), data())
    assert sorted(path.name for path in saved.iterdir()) == ["5", "7"]


def test_another_configuration_is_refused(tmp_path):
    state = {"w": jnp.ones(2)}
    with Checkpoints(tmp_path, config={"seed": 0, "rate": 0.1}) as checkpoints:
        checkpoints.save(1, state)
    with Checkpoints(tmp_path, config={"seed": 0, "rate": 0.1}) as checkpoints:
        assert checkpoints.restore(state)[1] == 1
    with (
        Checkpoints(tmp_path, config={"seed": 0, "rate": 0.2}) as checkpoints,
        pytest.raises(InputError, match=r"setting rate was 0\.1 and now is 0\.2"),
    ):
        checkpoints.restore(state)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "the data's seed was 0 and now is 1"),
        ({"batch_size": 5}, "the data's batch_size was 4 and now is 5"),
        ({"rows": 24}, r"the data's array mask was bool\[20\], .* and now is bool\[24\], CRC"),
        ({"flip": 3}, r"the data's array x was float32\[20, 3\], CRC-32 (\w+) and now is "),
        (
            {"lengths": np.ones(20, int), "buckets": (1,)},
            r"the data's buckets was absent and now is \[1\]",
        ),
    ],
)
def test_other_data_are_refused(saved, changes, message):
    arrays = factory.rows(changes.pop("rows", 20))
    if "flip" in changes:
        arrays["x"][changes.pop("flip"), 0] *= -1
    other = iter(batches(arrays, **{"batch_size": 4, "seed": 0, "trim": ()} | changes))
    with Checkpoints(saved) as checkpoints:
        with pytest.raises(InputError, match=message):
            checkpoints.restore(flax_state(0), other)
        assert checkpoints.restore(flax_state(0))[1] == 7  # whose data do not matter here


def test_data_that_are_mapped_are_known_too(tmp_path):
    def mapped(seed):
        data = batches(factory.rows(20), batch_size=4, seed=seed)
        return iter(data.map(lambda batch: batch))

    state = {"w": jnp.ones(2)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, mapped(0))
        assert checkpoints.restore(state, mapped(0))[1] == 1
        with pytest.raises(InputError, match="the data's seed was 0 and now is 1"):
            checkpoints.restore(state, mapped(1))


def test_a_place_in_the_data_that_was_not_saved_is_missed(tmp_path):
    state = {"w": jnp.ones(2)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state)
        with pytest.raises(InputError, match="step 1 was saved without data: restore it without"):
            checkpoints.restore(state, data())


def given_away():
    state = {"w": jnp.ones(2)}
    state["w"].delete()
    return state


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (lambda: {"w": jnp.ones(2), "rate": 0.1}, r"rate is 0\.1: pass an array"),
        (lambda: 3, "the state is 3: pass an array"),
        (given_away, "the buffer of w was given away"),
    ],
)
def test_what_is_no_array_is_refused_before_anything_is_written(tmp_path, state, message):
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(ValueError, match=message):
            checkpoints.save(1, state())
        assert checkpoints.latest() is None
    assert list(tmp_path.iterdir()) == []


def test_a_single_checkpoint_is_not_enough(tmp_path):
    with pytest.raises(ValueError, match="keep=1 must be at least 2"):
        Checkpoints(tmp_path, keep=1)


KILLED = """
import os, signal, sys, threading, warnings
import numpy as np
from jaxpe.training import Checkpoints, Hook, batches, fit, read_log, train_step
from tests.training import factory

def end(*args):
    os.kill(os.getpid(), signal.SIGKILL)

def kill_once_writing(directory, step):
    def watch():
        while not any(f"{step}.orbax" in entry.name for entry in os.scandir(directory)):
            pass
        end()
    threading.Thread(target=watch, daemon=True).start()

def at(step, run, *, first):
    def running(number, *args):
        if first and number == step:
            end()
        run(number, *args)
        if number == step:
            end()
    return running

def train(directory, moment, step):
    look = lambda number, state: {"seen": float(state.params["bias"][0])}
    fatal = Hook(at={step} if moment == "step" else (), run=end, ends=False)
    data = batches(factory.rows(20), batch_size=4, seed=0)
    step_once = train_step(factory.masked_loss, factory.OPTIMIZER)
    with Checkpoints(directory) as checkpoints:
        if moment == "writing":
            kill_once_writing(directory, step)
        if moment == "sealing":
            checkpoints._seal = at(step, checkpoints._seal, first=True)
        if moment == "saved":
            checkpoints.save = at(step, checkpoints.save, first=False)
        result = fit(
            factory.state(), step_once, data, steps=12, checkpoints=checkpoints,
            checkpoint_every=4, log=directory + ".jsonl",
            hooks=[Hook(at={3, 7}, run=look), fatal],
        )
    assert result.history == read_log(directory + ".jsonl")
    np.savez(directory + ".npz", **result.state.params)

def killed(directory, moment, step):
    child = os.fork()
    if not child:
        train(directory, moment, step)
        sys.stdout.flush()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == (0 if moment == "never" else -9), (moment, step)

warnings.simplefilter("ignore")  # of forking, which is before JAX has threads
whole, often = sys.argv[1:]
killed(whole, "never", 0)
for moment, step in MOMENTS:
    killed(often, moment, step)
killed(often, "never", 0)
"""
MOMENTS = [
    ("step", 3),
    ("writing", 4),
    ("sealing", 4),
    ("saved", 4),
    ("writing", 8),
    ("sealing", 8),
    ("step", 11),
]


def test_a_run_killed_again_and_again_ends_as_one_that_never_was(tmp_path):
    """In a step, while a checkpoint is being written, before it counts, and right after."""
    whole, often = tmp_path / "whole", tmp_path / "often"
    script = KILLED.replace("MOMENTS", repr(MOMENTS))
    result = subprocess.run(
        [sys.executable, "-c", script, whole, often],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    with np.load(f"{whole}.npz") as expected, np.load(f"{often}.npz") as actual:
        assert_equal(dict(actual), dict(expected))
    assert Path(f"{often}.jsonl").read_text() == Path(f"{whole}.jsonl").read_text()
    left = sorted(path.name for path in often.iterdir())
    assert left == ["12", "8", "unreadable-4-1", "unreadable-8-1"]
