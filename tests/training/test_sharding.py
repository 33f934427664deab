"""Meshes of eight devices make the steps of one, and each device holds less."""

import subprocess
import sys
from pathlib import Path

import jax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from jaxpe import encodings, nn
from jaxpe.training import Checkpoints, init_state, train_step
from tests.compilation import device_environment
from tests.training import factory
from tests.training.factory import assert_equal

ROOT = Path(__file__).parents[2]


def test_eight_devices_make_the_steps_of_one(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "tests.training.sharded", str(tmp_path)],
        env=device_environment(8),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") == 2


MODELS = {
    "decoder": {"num_kv_heads": 2, "activation": "swiglu", "tie_embeddings": False},
    "latent": {"latent": nn.LatentSizes(key_value_rank=6, rotary_dim=2, query_rank=4)},
}


@pytest.mark.parametrize("name", MODELS)
def test_matrices_are_divided_by_their_names(name):
    """Axes of size 1 stay in the specifications, so one device shows the rules."""
    config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=2, num_heads=4, **MODELS[name])
    encoding = encodings.rope(head_dim=2 if name == "latent" else 4)

    def make(rngs):
        return nn.CausalLM(nn.Decoder(config, encoding=encoding, rngs=rngs), rngs=rngs)

    model = jax.eval_shape(lambda: nn.functionalize(nn.init_model(make, seed=0))[1])
    rules = nn.partition_rules(model, jax.make_mesh((1, 1), ("fsdp", "model")))
    found = {
        jax.tree_util.keystr(path, simple=True, separator="/").removesuffix("/value"): tuple(
            axis[0] if axis and len(axis) == 1 else axis for axis in sharding.spec
        )
        for path, sharding in jax.tree_util.tree_leaves_with_path(rules)
    }
    for name, spec in found.items():
        matrix = name.endswith(("kernel", "embedding"))
        assert ("fsdp" in str(spec)) == matrix, name
    assert found["decoder/layers/attention/output/kernel"] == (None, "model", "fsdp")
    assert found["decoder/layers/attention/key/kernel"] == (None, "fsdp", "model")
    assert found["decoder/tokens/embedding"] == (("model", "fsdp"), None)
    assert found["decoder/final_norm/scale"] == ()


def test_a_state_that_is_divided_by_its_user_stays_so():
    mesh = jax.make_mesh((1,), ("data",))
    divided = NamedSharding(mesh, PartitionSpec("data"))
    params = jax.device_put(factory.params(), {"kernel": divided, "bias": divided})
    state = init_state(params, factory.OPTIMIZER, key=jax.random.key(0), mesh=mesh)
    step = train_step(factory.quiet_loss, factory.OPTIMIZER, mesh=mesh)
    state, _ = step(state, factory.rows(4))
    moments = state.opt_state[0].mu
    for leaf in (*state.params.values(), *moments.values()):
        assert leaf.sharding.spec == divided.spec
    one = train_step(factory.quiet_loss, factory.OPTIMIZER)(factory.state(), factory.rows(4))[0]
    assert_equal(state.params, one.params)


def test_a_run_on_a_mesh_of_one_device_resumes(tmp_path):
    mesh = jax.make_mesh((1, 1), ("fsdp", "model"))
    step = train_step(factory.quiet_loss, factory.OPTIMIZER, mesh=mesh)
    options = {"key": jax.random.key(0), "mesh": mesh}
    with Checkpoints(tmp_path) as checkpoints:
        state, _ = step(init_state(factory.params(), factory.OPTIMIZER, **options), factory.rows(4))
        checkpoints.save(1, state)
        restored = checkpoints.restore(state).state
    assert restored.key.sharding == state.key.sharding
    assert_equal(step(restored, factory.rows(4))[0], step(state, factory.rows(4))[0])
