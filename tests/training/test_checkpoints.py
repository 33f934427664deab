"""Checkpoints: whole or not there; a damaged one is refused."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from orbax.checkpoint import v1 as ocp

from jaxpe._core.errors import InputError
from jaxpe.training import Checkpoints, adamw, init_state
from tests.training.factory import assert_equal


def flax_state(seed):
    params = nnx.split(nnx.Linear(3, 2, rngs=nnx.Rngs(seed)), nnx.Param)[1]
    return init_state(params, adamw(0.1), key=jax.random.key(seed))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Checkpoints of steps 5 and 7, their data at the same batch; to be copied before damage."""
    directory = tmp_path_factory.mktemp("run")
    with Checkpoints(directory) as checkpoints:
        for step in (3, 5, 7):
            checkpoints.save(step, flax_state(step), {"next": step})
    return directory


@pytest.fixture
def run(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "run"))


def test_state_and_data_come_back_as_they_were(saved):
    with Checkpoints(saved) as checkpoints:
        assert checkpoints.latest() == 7
        state, step, data = checkpoints.restore(flax_state(0))
    assert (step, data) == (7, [{"next": 7}])
    assert_equal(state, flax_state(7))
    assert isinstance(state.params, nnx.State)
    assert sorted(path.name for path in saved.iterdir()) == ["5", "7"]  # 3 went


def scrambled(directory):
    for path in (directory / "state").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[::-1])


def emptied(directory):
    shutil.rmtree(directory / "state")


@pytest.mark.parametrize("damage", [scrambled, emptied])
def test_a_damaged_checkpoint_is_one_error_and_the_one_before_can_be_used(run, damage):
    damage(run / "7")
    refused = pytest.raises(InputError, match="step 7")
    with Checkpoints(run) as checkpoints, refused:
        checkpoints.restore(flax_state(0))
    shutil.rmtree(run / "7")
    with Checkpoints(run) as checkpoints:
        state, step, data = checkpoints.restore(flax_state(0))
        assert step == checkpoints.latest() == 5
        assert_equal(state, flax_state(5))
        assert data == [{"next": 5}]


def test_metadata_that_say_nonsense_are_one_error(run):
    path = run / "7" / "_CHECKPOINT_METADATA"
    fields = json.loads(path.read_text())
    numbers = {name: 10**30 for name, value in fields.items() if isinstance(value, int)}
    assert numbers
    path.write_text(json.dumps(fields | numbers))
    with pytest.raises(InputError, match="cannot be read"):
        Checkpoints(run)


def test_reading_takes_no_unfinished_checkpoint_away(run):
    (run / "8.orbax-checkpoint-tmp").mkdir()
    before = sorted(path.name for path in run.iterdir())
    with Checkpoints(run, read_only=True) as checkpoints:
        assert checkpoints.restore(flax_state(0))[1] == 7
    assert sorted(path.name for path in run.iterdir()) == before


def test_a_device_in_the_folder_is_refused(run):
    """Orbax would read it without an end."""
    (run / "7" / "state" / "more").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="more is not a regular file"):
        Checkpoints(run)


def test_another_structure_is_named_and_nothing_is_touched(saved):
    other = nnx.split(nnx.Linear(3, 4, rngs=nnx.Rngs(0)), nnx.Param)[1]
    state = flax_state(0)
    for wrong, like in (
        ("mu/bias", init_state(other, adamw(0.1), key=jax.random.key(0))),
        ("step", state._replace(step=jnp.float32(0))),
        ("params/bias", state._replace(params={})),
    ):
        with Checkpoints(saved) as checkpoints, pytest.raises(InputError, match=wrong):
            checkpoints.restore(like)
    assert sorted(path.name for path in saved.iterdir()) == ["5", "7"]


def test_another_configuration_is_refused(tmp_path):
    state = {"w": jnp.ones(2)}
    with Checkpoints(tmp_path, config={"seed": 0, "rate": 0.1}) as checkpoints:
        checkpoints.save(1, state)
    with Checkpoints(tmp_path, config={"seed": 0, "rate": 0.1}) as checkpoints:
        assert checkpoints.restore(state)[1] == 1
    with (
        Checkpoints(tmp_path, config={"seed": 0, "rate": 0.2}) as checkpoints,
        pytest.raises(InputError, match="rate"),
    ):
        checkpoints.restore(state)


def test_a_policy_of_orbax_keeps_what_it_says(tmp_path):
    policies = ocp.training.preservation_policies
    keep = policies.AnyPreservationPolicy([policies.LatestN(1), policies.EveryNSteps(2)])
    with Checkpoints(tmp_path, keep=keep) as checkpoints:
        for step in range(1, 6):
            checkpoints.save(step, {"w": jnp.ones(2)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "4", "5"]


def test_buffers_may_be_donated_while_the_disk_is_written(tmp_path):
    add = jax.jit(lambda state: {"w": state["w"] + 1}, donate_argnums=0)
    state = {"w": jnp.zeros(2**20)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state)
        for _ in range(9):
            state = add(state)
        assert not checkpoints.restore(state).state["w"].any()
