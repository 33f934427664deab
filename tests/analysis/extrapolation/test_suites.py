"""Suites, presets and variants: what is compared with what."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxpe
from jaxpe._core.errors import InputError, unknown
from jaxpe._core.progress import duration
from jaxpe.analysis.extrapolation import (
    PRESETS,
    ExtrapolationOptions,
    Suite,
    extrapolate,
    extrapolate_suites,
    preset,
    suites_of,
    variant,
    variant_names,
)
from jaxpe.analysis.extrapolation.cell_files import cell_path
from jaxpe.analysis.extrapolation.forecast import Forecast
from jaxpe.analysis.extrapolation.presets import preset_suites
from jaxpe.analysis.extrapolation.variants import _self_extend, defined_at, trained_as
from jaxpe.data import SEQUENCE_TASKS, sequence_task
from jaxpe.encodings import EncodingSizes

SUITE = Suite(name="tiny", tasks=("copy",), encodings=("none",), length=4)
SIZES = EncodingSizes(8, 2, 4, 6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": ("cpoy",)}, "unknown task 'cpoy': did you mean 'copy'"),
        ({"encodings": ("ropee",)}, "unknown encoding 'ropee': did you mean 'rope'"),
        ({"tasks": ()}, "`tasks` are none"),
        ({"encodings": ("rope", "rope")}, "pass each one once"),
        ({"seeds": 0}, "`seeds` is 0; pass at least 1"),
        ({"heads": 3}, "`dim=64` does not split into 3 heads"),
        ({"rows": 8}, "`rows=8` are less than a batch of 64"),
        ({"factors": (2, 4)}, "pass 1 and then larger ones"),
        ({"factors": (1, 4, 2)}, "pass 1 and then larger ones"),
        ({"rates": ()}, "pass positive `rates`"),
        ({"tuning": 0.0}, "a share of the steps"),
        ({"seed": -1}, "`seed` is -1"),
        ({"steps": 1}, "`steps` is 1"),
        ({"tests": 150}, "`tests=150`: pass 100 or less, or a multiple of 100"),
        ({"name": "T=2/4"}, "`name='T=2/4'` is to name files"),
        ({"tasks": ("running_sum", "copy")}, "tasks of numbers and of tokens: pass a suite for"),
    ],
)
def test_bad_suites_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(SUITE, **change)


def test_presets_name_tasks_and_encodings_of_one_kind_of_data_each():
    for suites in PRESETS.values():
        for suite in suites:
            assert len({sequence_task(task).kind for task in suite.tasks}) == 1
    with pytest.raises(InputError, match="unknown preset 'papr': did you mean 'paper'"):
        preset("papr")


def test_paper_holds_what_the_sources_compare():
    table, source = preset("paper")
    assert {"sinusoidal", "alibi", "wavelet", "legendre"} <= set(table.encodings)
    assert (table.layers, table.heads, table.norm, table.rows, table.tests) == (
        2, 1, "none", 10_000, 1000,
    )  # fmt: skip
    assert table.steps * table.batch == 20 * table.rows  # 20 epochs
    assert table.seeds >= 5
    assert table.lengths[:3] == (16, 32, 64)
    assert set(source.tasks) == set(SEQUENCE_TASKS) - {"running_sum", "running_sum_causal"}


def test_a_name_with_no_near_one_gets_the_list():
    said = unknown("task", "xyz", ("copy", "scan"))
    assert "'xyz'" in said
    assert "did you mean" not in said
    assert "; there are copy, scan" in said
    assert "? There are copy, scan" in unknown("task", "cpoy", ("copy", "scan"))


def test_variants_are_those_of_the_catalogue_and_more():
    names = variant_names()
    assert len(set(names)) == len(names)
    assert {"rope", "alibi", "none", "rope_yarn", "alibi_over_length"} < set(names)
    for name in names:
        assert variant(name).trained(SIZES, True) is not None
    # Positions in a plane and what is made from a corpus mean nothing to a task of one sequence.
    for name, why in (("mrope", "coordinates"), ("information_optimal", "from a corpus")):
        assert name not in names
        with pytest.raises(InputError, match=why):
            variant(name)


def test_an_encoding_of_ones_own_is_compared(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "import jaxpe\n\ndef halved(sizes):\n"
        "    return jaxpe.alibi(num_heads=sizes.num_heads, slopes=0.5)\n\n"
        "def late(sizes):\n    def bias(params, q, *others):\n"
        "        return None if q.shape[-3] == 8 else [][0]\n    return jaxpe.Encoding(bias=bias)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    suite = dataclasses.replace(
        SUITE, encodings=("mine:halved", "alibi"), length=2, factors=(1, 2), steps=2, batch=4,
        tests=4, rates=(1e-3,), seeds=1, dim=8, heads=2, layers=1,
    )  # fmt: skip
    found = extrapolate_suites([suite], tmp_path / "out")
    assert [cell.encoding for cell in found.cells] == ["mine:halved", "alibi"]
    (kept,) = (tmp_path / "out").glob("tiny-copy-mine.halved-*.json")
    with (tmp_path / "mine.py").open("a") as module:  # after a change its cells are made again
        module.write("# changed\n")
    assert cell_path(kept.parent, suite, "copy", "mine:halved") != kept
    assert cell_path(kept.parent, suite, "copy", "alibi").is_file()
    with pytest.raises(InputError, match=r"'mine:late' fails: IndexError: .*mine\.py, line 8\)"):
        extrapolate_suites([dataclasses.replace(suite, encodings=("mine:late",))], tmp_path / "b")
    with pytest.raises(InputError, match="nowhere"):
        dataclasses.replace(SUITE, encodings=("nowhere:halved",))


class Lines:
    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)

    def track(self, items, description, *, total=None):
        return items


@pytest.mark.parametrize("steps", [200, 20_000])
def test_the_forecast_does_not_multiply_constants_by_steps(steps, tmp_path):
    """Pairs of 60 s, then 27 s for programs, and 0.01 s a step; 10 and 10 steps are timed."""
    suite = dataclasses.replace(SUITE, encodings=("none", "alibi", "t5"), steps=steps, tests=2)
    pairs, progress = [(suite, "copy", name) for name in suite.encodings], Lines()
    (tmp_path / "tiny-copy-t5.json").touch()  # has run
    forecast = Forecast(pairs, tmp_path, progress)
    assert np.isnan(forecast.left())
    forecast.call(pairs[0], 3, 10, 15 + 0.1)
    forecast.call(pairs[0], 3, 10, 0.1)
    training = 0.01 * 1.25 * steps
    assert 0.93 < forecast.left() / (60 + 27 + 2 * training) < 1.07
    assert progress.lines == [f"copy, none: about {duration(forecast.left() - 15.2)} left in all"]
    forecast.finish(pairs[0], 60 + training)
    assert 0.93 < forecast.left() / (27 + training) < 1.07
    forecast.finish(pairs[1], 27 + training)
    assert forecast.left() == 0


class Tiny(nnx.Module):
    """A model without layers: logits from the embedding of a token and of an encoded position."""

    def __init__(self, suite, task, encoding, key):
        rngs = nnx.Rngs(key)
        self.embedding = nnx.Embed(task.vocab_size, suite.dim, rngs=rngs)
        self.out = nnx.Linear(suite.dim, task.vocab_size + suite.layers - 1, rngs=rngs)
        self.encoding = nnx.static(encoding)

    def __call__(self, ids, *, mask):
        x = self.embedding(ids)
        return self.out(self.encoding.embed((), x, jnp.arange(ids.shape[1], dtype=jnp.int32)))


def test_a_model_of_ones_own_is_trained_and_tested(tmp_path):
    options = ExtrapolationOptions(
        tasks=("copy",), encodings=("sinusoidal",), seeds=2, steps=2, length=2, factors=(1, 2),
        batch=4,
    )  # fmt: skip
    suites = [
        dataclasses.replace(one, layers=1, rates=(1e-2,), tests=4) for one in suites_of(options)
    ]
    (cell,) = extrapolate_suites(suites, tmp_path, model_factory=Tiny).cells
    assert cell.scores["accuracy"].shape == (2, 2)
    models = np.load(next(tmp_path.glob("*.npz")))
    shapes = {models[name].shape for name in models if name.startswith("params")}
    assert shapes == {(2, 36), (2, 32, 36), (2, 36, 32)}  # of two seeds
    with pytest.raises(InputError, match="was made with other settings"):
        extrapolate_suites(suites, tmp_path)
    with pytest.raises(InputError, match=r"logits of the model are .* 37\): return .* 36\)"):
        extrapolate(dataclasses.replace(options, seeds=3), tmp_path / "other", model_factory=Tiny)


@pytest.mark.parametrize(("name", "beyond"), [("learned", False), ("alibi", True), ("t5", True)])
def test_tables_of_positions_end_at_their_length(name, beyond):
    encoding = variant(name).trained(SIZES, True)
    assert defined_at(encoding, SIZES, 6)
    assert defined_at(encoding, SIZES, 12) is beyond


@pytest.mark.parametrize("name", ["rope_linear", "rope_ntk", "rope_dynamic", "rope_yarn"])
def test_scaled_rope_is_rope_until_it_is_stretched(name):
    assert trained_as(name) == "rope"
    q = jax.random.normal(jax.random.key(0), (3, 2, 4))
    place = np.array([1, 5, 11], np.int32)
    plain = variant("rope").at(SIZES, 12, causal=True).query((), q, place)
    inside, beyond = (variant(name).at(SIZES, n, causal=True).query((), q, place) for n in (6, 12))
    np.testing.assert_array_equal(inside, plain)
    assert np.abs(np.asarray(beyond - plain)).max() > 0.01
    longer = variant(name).at(SIZES, 12, causal=True)
    np.testing.assert_array_equal(longer.query((), q[:2], place[:2]), beyond[:2])  # of a prefix


@pytest.mark.parametrize("name", ["rerope", "rerope_leaky", "self_extend", "dual_chunk"])
def test_mapped_offsets_are_those_of_training(name):
    """One of two frequencies is 1/100: offsets are a hundred times the angle of a product."""
    assert trained_as(name) == "rope"
    sizes = SIZES._replace(head_dim=4, length=9)
    assert not variant(name).at(sizes, 9, causal=True).defines("products")
    encoding = variant(name).at(sizes, 24, causal=True)
    q = np.broadcast_to(np.float64([0, 1, 0, 0]), (24, sizes.num_heads, 4))
    i = np.arange(24, dtype=np.int32)
    products = np.asarray(encoding.products((), q, q, i, i))[0]
    found = 100 * np.arccos(np.clip(products, -1, 1))
    near = np.abs(i[:, None] - i) <= 1
    np.testing.assert_allclose(found[near], np.abs(i[:, None] - i)[near], atol=1e-5)
    assert 3.99 < found[23, 0] < 8.01  # the farthest; of RoPE, 23
    assert found[np.tril_indices(24)].max() < 8.01


def test_the_smallest_groups_reach_the_tested_length(monkeypatch):
    """A window w and groups g of 9 positions reach g (9 − w) + w."""
    chosen = []
    change = lambda rope, *, window, group: chosen.append((window, group)) or rope  # noqa: E731
    monkeypatch.setattr("jaxpe.encodings.self_extend", change)
    for length in (14, 15, 21, 22, 24, 25, 26):
        _self_extend(jaxpe.identity(), 9, length)
    assert chosen == [(4, 2), (3, 3), (3, 3), (4, 4), (4, 4), (5, 5), (5, 5)]


def test_alibi_over_length_falls_by_one_over_the_training_length():
    encoding = variant("alibi_over_length").trained(SIZES, True)
    q = np.zeros((1, 2, 4), np.float32)
    bias = encoding.bias((), q, q, np.array([6], np.int32), np.array([0], np.int32))
    np.testing.assert_allclose(bias, -np.ones((2, 1, 1)), rtol=1e-6)


def test_two_suites_of_one_name_are_refused(tmp_path):
    with pytest.raises(InputError, match="pass each name once"):
        extrapolate_suites([SUITE, SUITE], tmp_path)


def test_defaults_fit_the_sizes():
    """Distances that are clipped are trained; no bucket is kept for keys that are never seen."""
    params = variant("shaw").trained(SIZES, True).init(jax.random.key(0))
    assert params["key_table"].shape[-2] == 2 * (SIZES.length - 1) + 1
    q = np.zeros((1, 2, 4), np.float32)
    t5 = variant("t5").trained(SIZES, True)
    table = t5.init(jax.random.key(0))
    biases = [t5.bias(table, q, q, np.array([9]), np.array([9 - d])) for d in (8, 9)]
    assert (biases[0] != biases[1]).any()  # bidirectional, both would be in the bucket of 8 to 11


def test_settings_take_the_place_of_a_presets():
    sums, strings = preset_suites(
        "paper", encodings=("rope", "none"), steps=5, factors=(1, 3), seed=None
    )
    for suite, own in zip((sums, strings), preset("paper"), strict=True):
        assert (suite.tasks, suite.seed, suite.name) == (own.tasks, own.seed, own.name)
        assert suite.encodings == ("rope", "none")
        assert (suite.steps, suite.lengths) == (5, (own.length, 3 * own.length))
    assert preset_suites("smoke") == preset("smoke")


def test_tasks_go_to_the_suite_that_has_them_or_their_kind():
    def tasks(*names):
        return {suite.name: suite.tasks for suite in preset_suites("smoke", tasks=names)}

    assert tasks("parity") == {"strings": ("parity",)}
    assert tasks("sort", "running_sum", "copy") == {
        "running sums": ("running_sum",),
        "strings": ("sort", "copy"),
    }
    quick = preset_suites("quick", tasks=("running_sum", "copy"))  # which has no numbers of its own
    assert [(suite.name, suite.tasks) for suite in quick] == [
        ("strings", ("copy",)), ("running sums", ("running_sum",)),
    ]  # fmt: skip
    with pytest.raises(InputError, match="did you mean 'scan'"):
        tasks("copy", "scna")
