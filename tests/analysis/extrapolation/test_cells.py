"""Streams, lanes and cells, on the smallest models there are."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpe import training
from jaxpe._core.errors import InputError
from jaxpe._core.files import locked_folder
from jaxpe._core.json_values import to_json
from jaxpe._core.results import result_files
from jaxpe.analysis import load_result
from jaxpe.analysis.extrapolation import (
    ExtrapolationCell,
    ExtrapolationOptions,
    ExtrapolationResult,
    Streams,
    Suite,
    cells,
    check_memory,
    extrapolate_suites,
    preset,
    streams,
    suites_of,
    variant,
)
from jaxpe.analysis.extrapolation.batched_training import chunk_of, trainer
from jaxpe.analysis.extrapolation.cell_files import (
    Trained,
    read_models,
    settings_hash,
    write_cell,
    write_models,
)
from jaxpe.analysis.extrapolation.cells import run_cell, trained_models
from jaxpe.analysis.extrapolation.intervals import seed_means
from jaxpe.analysis.extrapolation.memory import needed_bytes
from jaxpe.analysis.extrapolation.models import build_loss, encoding_sizes, functional_model, scores
from jaxpe.analysis.extrapolation.streams import chance
from jaxpe.data import sequence_task
from tests.conftest import small_disk

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
    tests = data.tests(SEEDS, (6,))
    assert tests["ids"].shape == (1, 1, 2, 8, 10)
    shorter, longer = data.tests(SEEDS, (3, 6))["ids"][:, 0, :, 0, :4]
    assert (shorter != longer).any()
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
        encoding = variant(name).trained(encoding_sizes(SUITE, data.task), True)
        return jax.vmap(functional_model(SUITE, data.task, encoding)[1])(keys, plain)

    shared = dict(jax.tree_util.tree_leaves_with_path(plain))
    for name, own in (("t5", 1), ("none", 0)):
        params = dict(jax.tree_util.tree_leaves_with_path(jax.jit(lambda n=name: start(n))()))
        assert len(params) == len(shared) + own
        for path, leaf in shared.items():
            np.testing.assert_array_equal(params[path], leaf)


def test_lanes_train_as_single_models_do(data):
    """All seeds in one program against one seed after another, step by step."""
    sizes = encoding_sizes(SUITE, data.task)
    encoding = variant("sinusoidal").trained(sizes, True)
    assert chunk_of(SUITE) == 3
    lanes = trainer(SUITE, data, encoding)(seeds=SEEDS, rates=np.array([1e-2, 3e-3]), steps=6)
    apply, _ = functional_model(SUITE, data.task, encoding)
    batches = data.training(SEEDS, 0, 6)
    shape = training.learning_rate_schedule(peak=1.0, steps=100, warmup=5, decay="cosine")

    for lane, rate in enumerate((1e-2, 3e-3)):
        optimizer = training.adamw(lambda count, rate=rate: rate * shape(100 * count / 6.0))
        params = jax.tree.map(lambda x, lane=lane: x[lane], data.weights(SEEDS)[1])
        state = training.init_state(params, optimizer, key=jax.random.key(0))
        step = training.train_step(build_loss(data.task, apply), optimizer)
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


def test_an_answer_that_ignores_the_input_says_the_most_frequent_token_of_each_place():
    labels = np.array([[0, 4, 3], [0, 4, 3], [0, 5, 3], [7, 4, 3]])  # the answer begins at place 1
    rows = {"labels": labels, "scored": np.arange(3) * np.ones((4, 1), int) > 0}
    made_up = Streams(sequence_task("parity"), None, lambda *_: rows, None)  # pyrefly: ignore
    assert chance(SUITE, made_up) == (3 + 4) / 8
    assert chance(SUITE, made_up._replace(task=sequence_task("running_sum"))) == 0


def test_a_cell_is_kept_and_what_is_trained_alike_is_trained_once(data, tmp_path, monkeypatch):
    first = run_cell(SUITE, data, "rope", tmp_path)
    assert first.scores["accuracy"].shape == (2, 2)
    assert first.rate in SUITE.rates
    assert first.tuning.shape == (2,)
    monkeypatch.setattr(cells, "trainer", None)  # from here on nothing is trained
    again = run_cell(SUITE, data, "rope", tmp_path)
    for name, values in first.scores.items():
        np.testing.assert_array_equal(again.scores[name], values)
    assert again.lengths == first.lengths
    stretched = run_cell(SUITE, data, "rope_linear", tmp_path)
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
    with pytest.raises(InputError, match=r"tiny-parity-rope\.json is not JSON .*delete it"):
        run_cell(SUITE, data, "rope", tmp_path)
    path = tmp_path / "tiny-parity-rope.npz"
    whole = path.read_bytes()
    at = whole.index(b"NUMPY") + 130  # in the numbers of the first array
    flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    for damaged in (b"", whole[:4], whole[: len(whole) // 2], flipped):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"tiny-parity-rope\.npz.* delete it"):
            trained_models(SUITE, data, "rope", tmp_path)


def test_a_learned_table_is_undefined_beyond_its_length(data, tmp_path):
    suite = dataclasses.replace(SUITE, rates=(1e-3,))
    cell = run_cell(suite, data, "learned", tmp_path)
    assert cell.defined.tolist() == [True, False]
    assert np.isfinite(cell.scores["accuracy"][:, 0]).all()
    assert np.isnan(cell.scores["accuracy"][:, 1]).all()
    kept = json.loads((tmp_path / "tiny-parity-learned.json").read_text())
    assert kept["cell"]["scores"]["accuracy"][0][1] is None


@pytest.fixture(scope="module")
def cell():
    """A result of the suite, as if it had been tested."""
    scores = {name: np.full((2, 2), 0.5) for name in ("accuracy", "exact")}
    return ExtrapolationCell(
        suite="tiny", task="parity", encoding="rope", metric="accuracy", lengths=(3, 6),
        scores=scores, summary=seed_means(scores, tests=SUITE.tests),
        defined=np.array([True, False]), rate=1e-2, rates=SUITE.rates,
        tuning=np.array([0.7, np.nan]), loss=np.array([0.6, np.nan]),
        seconds={"training": 1.5}, tests=SUITE.tests,
    )  # fmt: skip


def test_a_cell_comes_back_from_its_file(data, cell, tmp_path):
    path = tmp_path / "tiny-parity-rope.json"
    write_cell(path, settings_hash(SUITE, "parity", "rope"), cell)
    read = run_cell(SUITE, data, "rope", tmp_path)
    for name, value in cell._asdict().items():
        np.testing.assert_equal(getattr(read, name), value)


@pytest.mark.parametrize(
    "changes",
    [{"scores": []}, {"lengths": "36"}, {"rate": "0.01"}, {"seconds": None}, {"colour": "red"}],
    ids=str,
)
def test_a_cell_of_other_types_is_refused(data, cell, tmp_path, changes):
    stamp = settings_hash(SUITE, "parity", "rope")
    values = {"stamp": stamp, "cell": to_json(cell) | changes}
    (tmp_path / "tiny-parity-rope.json").write_text(json.dumps(values))
    with pytest.raises(InputError, match=r"tiny-parity-rope\.json"):
        run_cell(SUITE, data, "rope", tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, "\xff", "{}"])
def test_what_is_no_cell_is_refused(data, tmp_path, text):
    (tmp_path / "tiny-parity-rope.json").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=r"tiny-parity-rope\.json"):
        run_cell(SUITE, data, "rope", tmp_path)


LIKE = {"w": jax.ShapeDtypeStruct((3, 2), np.float32)}
ARRAYS = {
    "stamp": np.array("a stamp"),
    "rate": np.array(1e-2),
    "tuning": np.array([0.7, np.nan]),
    "losses": np.full((6, 2), 0.5),
    "seconds": np.array(2.0),
    "params['w']": np.ones((2, 3, 2), np.float32),
}


def read(path):
    return read_models(path, "a stamp", LIKE)


def test_models_that_were_kept_come_back(tmp_path):
    np.savez(tmp_path / "m.npz", **ARRAYS)
    found = read(tmp_path / "m.npz")
    assert (found.rate, found.seconds, found.losses.shape) == (1e-2, 2.0, (6, 2))
    np.testing.assert_array_equal(found.params["w"], ARRAYS["params['w']"])


@pytest.mark.parametrize(
    "changes",
    [
        {"params['w']": np.ones((2, 3, 3), np.float32)},
        {"params['w']": np.ones((2, 3), np.float32)},
        {"rate": np.ones(2)},
        {"seconds": np.array("now")},
        {"stamp": np.array([1])},
    ],
    ids=lambda changes: f"{next(iter(changes))} {next(iter(changes.values())).dtype}",
)
def test_models_of_another_suite_are_refused(tmp_path, changes):
    np.savez(tmp_path / "m.npz", **ARRAYS | changes)
    with pytest.raises(InputError, match=r"m\.npz"):
        read(tmp_path / "m.npz")


def test_a_full_disk_leaves_neither_models_nor_a_part_of_them(tmp_path):
    trained = Trained({"w": np.ones((2, 30, 20))}, 1e-2, [0.7], np.ones((6, 2)), 1.0)
    with small_disk(1000), pytest.raises(InputError, match=r"m\.npz"):
        write_models(tmp_path / "m.npz", "a stamp", trained)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_run_writes_into_is_left_alone(tmp_path):
    with locked_folder(tmp_path), pytest.raises(InputError, match="another run is writing"):
        extrapolate_suites([SUITE], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock"]


@pytest.mark.parametrize("field", ["length", "batch", "seeds", "steps", "layers", "hidden"])
def test_larger_suites_need_more(field):
    larger = dataclasses.replace(SUITE, **{field: 1000 * getattr(SUITE, field)})
    least = needed_bytes(SUITE)
    assert needed_bytes(larger) > 2 * least
    check_memory([SUITE], limit=least)
    with pytest.raises(InputError, match=rf"tiny, .*`{field}`" if field in OPTIONS else "tiny, "):
        check_memory([SUITE, larger], limit=least)


OPTIONS = ("length", "batch", "seeds", "steps")


@pytest.mark.parametrize(
    ("name", "gigabytes"), [("quick", 1), ("smoke", 1), ("paper", 4), ("full", 64)]
)
def test_presets_fit_the_hosts_that_they_are_for(name, gigabytes):
    check_memory(preset(name), limit=gigabytes * 10**9)


def test_options_take_the_place_of_a_presets():
    own = {"length": 2, "factors": (1, 2), "steps": 2, "batch": 4, "seeds": 2}
    options = ExtrapolationOptions(tasks=("parity",), encodings=("none", "learned"), **own)
    (suite,) = suites_of(options)
    assert (suite.name, suite.lengths, suite.encodings) == ("strings", (2, 4), options.encodings)
    assert suites_of(ExtrapolationOptions()) == preset("quick")


def test_a_result_comes_back_from_its_files(tmp_path):
    suite = dataclasses.replace(SUITE, encodings=("none", "learned"), steps=2, tests=4)
    found = extrapolate_suites([suite], tmp_path)
    assert found.seconds["whole"] > 0
    assert set(found.mean_reciprocal_rank["tiny"]) == {"none", "learned"}
    again = extrapolate_suites([suite], tmp_path)
    np.testing.assert_equal(to_json(again.cells), to_json(found.cells))
    for name, content in result_files(found, "extrapolation").items():
        (tmp_path / name).write_bytes(content)
    loaded = load_result(ExtrapolationResult, tmp_path / "extrapolation.json")
    assert loaded.suites == found.suites
    # Seconds are of a run, and not of its result.
    alike = found._replace(
        cells=tuple(cell._replace(seconds={}) for cell in found.cells), seconds={}
    )
    assert_same(loaded, alike)
    assert result_files(loaded, "x") == result_files(again, "x")


def assert_same(found, expected):
    """Values of the same type and shape, and equal, NaN to NaN."""
    assert type(found) is type(expected) or np.shape(found) == np.shape(expected) == ()
    if isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, tuple | list):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for name, other in expected.items():
            assert_same(found[name], other)
    else:
        assert found == expected
