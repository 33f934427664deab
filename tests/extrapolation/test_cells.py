"""Streams, lanes and cells, on the smallest models there are."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpe import training
from jaxpe._errors import InputError
from jaxpe.data import sequence_task
from jaxpe.extrapolation import VARIANTS, Suite, cells, streams
from jaxpe.extrapolation.cells import run_cell, trained_models
from jaxpe.extrapolation.lanes import chunk_of, trainer
from jaxpe.extrapolation.models import encoding_sizes, loss_of, model_of, scores

SUITE = Suite(
    name="tiny", tasks=("parity",), encodings=("none",), length=3, factors=(1, 2), steps=6,
    batch=4, tests=8, rates=(1e-2, 1e-3), tuning=0.5, seeds=2, dim=8, layers=1, heads=1, hidden=8,
)  # fmt: skip
SEEDS = np.arange(2)


@pytest.fixture(scope="module")
def data():
    return streams(SUITE, sequence_task("parity"))


def test_a_seed_has_its_own_rows_and_weights_and_always_the_same(data):
    batches = data.training(SEEDS, 2, 3)
    again = data.training(SEEDS, 0, 3)
    assert batches["ids"].shape == (3, 2, 4, 7)
    np.testing.assert_array_equal(batches["ids"][0], again["ids"][2])
    assert (batches["ids"][:, 0] != batches["ids"][:, 1]).any()
    assert (batches["ids"][0] != batches["ids"][1]).any()
    tests = data.tests(SEEDS, 6)
    assert tests["ids"].shape == (1, 2, 8, 10)
    keys, plain = data.weights(SEEDS)
    assert keys.shape == (2,)
    embeddings = plain["decoder"]["tokens"]["embedding"].get_value()
    assert (embeddings[0] != embeddings[1]).any()


def test_epochs_go_over_all_rows_of_a_set_in_changing_order():
    suite = dataclasses.replace(SUITE, rows=8, exact=True, tasks=("running_sum",))
    values = streams(suite, sequence_task("running_sum")).training(SEEDS, 0, 4)["values"]
    first, second = (np.asarray(values[i : i + 2, 0]).reshape(8, -1) for i in (0, 2))
    assert len(np.unique(first, axis=0)) == 8
    assert (first != second).any()
    np.testing.assert_array_equal(np.unique(first, axis=0), np.unique(second, axis=0))


def test_encodings_start_from_the_same_weights_where_shapes_allow(data):
    keys, plain = data.weights(SEEDS)

    def start(name):
        encoding = VARIANTS[name].trained(encoding_sizes(SUITE, data.task), True)
        return jax.vmap(model_of(SUITE, data.task, encoding)[1])(keys, plain)

    shared = dict(jax.tree_util.tree_leaves_with_path(plain))
    for name, own in (("t5", 1), ("none", 0)):
        params = dict(jax.tree_util.tree_leaves_with_path(jax.jit(lambda n=name: start(n))()))
        assert len(params) == len(shared) + own
        for path, leaf in shared.items():
            np.testing.assert_array_equal(params[path], leaf)


def test_lanes_train_as_single_models_do(data):
    """All seeds in one program against one seed after another, step by step."""
    sizes = encoding_sizes(SUITE, data.task)
    encoding = VARIANTS["sinusoidal"].trained(sizes, True)
    assert chunk_of(SUITE) == 3
    lanes = trainer(SUITE, data, encoding)(seeds=SEEDS, rates=np.array([1e-2, 3e-3]), steps=6)
    apply, _ = model_of(SUITE, data.task, encoding)
    batches = data.training(SEEDS, 0, 6)
    shape = training.learning_rate_schedule(peak=1.0, steps=100, warmup=5, decay="cosine")

    for lane, rate in enumerate((1e-2, 3e-3)):
        optimizer = training.adamw(lambda count, rate=rate: rate * shape(100 * count / 6.0))
        params = jax.tree.map(lambda x, lane=lane: x[lane], data.weights(SEEDS)[1])
        state = training.init_state(params, optimizer, key=jax.random.key(0))
        step = training.train_step(loss_of(data.task, apply), optimizer)
        for i in range(6):
            state, metrics = step(state, jax.tree.map(lambda x, at=(i, lane): x[at], batches))
            np.testing.assert_allclose(lanes.losses[i, lane], metrics["loss"], rtol=1e-4)
        own = jax.tree.map(lambda x, lane=lane: x[lane], lanes.params)
        gap = optax.tree.norm(jax.tree.map(jnp.subtract, own, state.params))
        assert float(gap) < 1e-3 * float(optax.tree.norm(state.params))


def test_scores_of_tokens_and_numbers():
    task = sequence_task("copy")
    labels = np.array([[5, 6, 3], [5, 7, 3]])
    scored = np.array([[False, True, True], [False, True, True]])
    said = np.array([[4, 6, 3], [5, 7, 8]])
    batch = {"labels": jnp.asarray(labels, jnp.int32), "scored": jnp.asarray(scored)}
    found = scores(task, jax.nn.one_hot(said, 9, dtype=jnp.float32), batch)
    assert float(found["accuracy"].mean) == 0.75
    assert float(found["exact"].mean) == 0.5
    lost = jax.nn.one_hot(said, 9, dtype=jnp.float32).at[1, 2].set(jnp.nan)
    assert np.isnan(scores(task, lost, batch)["accuracy"].mean)
    beside = jax.nn.one_hot(said, 9, dtype=jnp.float32).at[1, 0].set(jnp.nan)  # is not scored
    assert float(scores(task, beside, batch)["exact"].mean) == 0.5
    task = sequence_task("running_sum")
    batch = {"labels": jnp.array([[[2.0], [4.0]]]), "scored": jnp.array([[True, False]])}
    found = scores(task, jnp.array([[[3.0], [9.0]]]), batch)
    assert float(found["mse"].mean) == 1.0
    assert float(found["relative_mse"].mean) == 0.25


def test_a_cell_is_kept_and_what_is_trained_alike_is_trained_once(data, tmp_path, monkeypatch):
    said = []
    first = run_cell(SUITE, data, "rope", tmp_path, said.append)
    assert first.scores["accuracy"].shape == (2, 2)
    assert first.rate in SUITE.rates
    assert first.tuning.shape == (2,)
    assert said == [f"parity, rope: {first.seconds:.0f} s"]
    monkeypatch.setattr(cells, "trainer", None)  # from here on nothing is trained
    again = run_cell(SUITE, data, "rope", tmp_path, said.append)
    for name, values in first.scores.items():
        np.testing.assert_array_equal(again.scores[name], values.astype(float))
    assert again.lengths == first.lengths
    assert len(said) == 1
    stretched = run_cell(SUITE, data, "rope_linear", tmp_path, said.append)
    np.testing.assert_array_equal(stretched.scores["exact"][:, 0], first.scores["exact"][:, 0])
    models = trained_models(SUITE, data, "rope", tmp_path)
    assert models.losses.shape == (6, 2)

    longer = dataclasses.replace(SUITE, factors=(1, 2, 4), tests=4)  # trains nothing either
    other_data = streams(longer, data.task)
    models_again = trained_models(longer, other_data, "rope", tmp_path)
    np.testing.assert_array_equal(models_again.losses, models.losses)
    with pytest.raises(InputError, match="made with other settings"):
        run_cell(longer, other_data, "rope", tmp_path)

    other = dataclasses.replace(SUITE, steps=8)
    with pytest.raises(InputError, match="made with other settings"):
        run_cell(other, data, "rope", tmp_path)
    with pytest.raises(InputError, match="made with other settings"):
        trained_models(other, data, "rope", tmp_path)
    (tmp_path / "tiny-parity-rope.json").write_text('{"stamp": ')
    with pytest.raises(InputError, match=r"tiny-parity-rope.json is damaged: delete it"):
        run_cell(SUITE, data, "rope", tmp_path)
    path = tmp_path / "tiny-parity-rope.npz"
    whole = path.read_bytes()
    at = whole.index(b"NUMPY") + 130  # in the numbers of the first array
    flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    for damaged in (b"", whole[:4], whole[: len(whole) // 2], flipped):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"tiny-parity-rope.npz is damaged: delete it"):
            trained_models(SUITE, data, "rope", tmp_path)


def test_a_learned_table_is_undefined_beyond_its_length(data, tmp_path):
    suite = dataclasses.replace(SUITE, rates=(1e-3,))
    cell = run_cell(suite, data, "learned", tmp_path)
    assert cell.defined.tolist() == [True, False]
    assert np.isfinite(cell.scores["accuracy"][:, 0]).all()
    assert np.isnan(cell.scores["accuracy"][:, 1]).all()
    kept = json.loads((tmp_path / "tiny-parity-learned.json").read_text())
    assert kept["scores"]["accuracy"][0][1] is None
