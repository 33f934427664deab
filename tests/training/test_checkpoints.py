"""Checkpoints: whole or not there; a damaged one is refused."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxpe._core.checkpoints import newest_checkpoint
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


def scrambled(directory):
    for path in (directory / "state").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[::-1])


def emptied(directory):
    shutil.rmtree(directory / "state")


def moved_far(directory):
    for path in (directory / "data").rglob("process_0*"):
        path.write_text('{"next_index": "far"}')


@pytest.mark.parametrize("damage", [scrambled, emptied, moved_far])
def test_a_damaged_checkpoint_is_one_error_and_the_one_before_can_be_used(run, damage):
    damage(run / "7")
    refused = pytest.raises(InputError, match=r"step 7 cannot be read")
    with Checkpoints(run) as checkpoints, refused:
        checkpoints.restore(flax_state(0), data())
    shutil.rmtree(run / "7")
    place = data()
    with Checkpoints(run) as checkpoints:
        state, step = checkpoints.restore(flax_state(0), place)
        assert step == checkpoints.latest() == newest_checkpoint(run) == 5
        assert_equal(state, flax_state(5))
        assert place.get_state() == {"next_index": 5}


def test_metadata_that_say_nonsense_are_one_error(run):
    path = run / "7" / "_CHECKPOINT_METADATA"
    fields = json.loads(path.read_text())
    numbers = {name: 10**30 for name, value in fields.items() if isinstance(value, int)}
    assert numbers
    path.write_text(json.dumps(fields | numbers))
    with pytest.raises(InputError, match="checkpoints cannot be read"):
        Checkpoints(run)


def test_reading_takes_no_unfinished_checkpoint_away(run):
    (run / "8.orbax-checkpoint-tmp").mkdir()
    before = sorted(path.name for path in run.iterdir())
    with Checkpoints(run, read_only=True) as checkpoints:
        assert checkpoints.restore(flax_state(0))[1] == 7
    assert sorted(path.name for path in run.iterdir()) == before


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
        (given_away, "the buffer of w"),
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
