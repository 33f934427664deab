"""Suites, presets and variants: what is compared with what."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.analysis.extrapolation import PRESETS, VARIANTS, Suite, extrapolate, preset
from jaxpe.analysis.extrapolation.variants import defined_at, trained_as, unknown
from jaxpe.data import SEQUENCE_TASKS, sequence_task
from jaxpe.encodings import EncodingSizes

SUITE = Suite(name="tiny", tasks=("copy",), encodings=("none",), length=4)
SIZES = EncodingSizes(8, 2, 4, 6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": ("cpoy",)}, "unknown task 'cpoy': did you mean 'copy'"),
        ({"encodings": ("ropee",)}, "unknown encoding 'ropee': did you mean 'rope'"),
        ({"tasks": ()}, "tasks are none"),
        ({"encodings": ("rope", "rope")}, "pass each one once"),
        ({"seeds": 0}, "seeds is 0; pass at least 1"),
        ({"heads": 3}, "dim=64 does not split into 3 heads"),
        ({"rows": 8}, "rows=8 are less than a batch of 64"),
        ({"factors": (2, 4)}, "pass 1 and then larger ones"),
        ({"factors": (1, 4, 2)}, "pass 1 and then larger ones"),
        ({"rates": ()}, "pass positive rates"),
        ({"tuning": 0.0}, "a share of the steps"),
        ({"seed": -1}, "seed is -1"),
        ({"steps": 1}, "steps is 1"),
        ({"tests": 150}, "tests=150: pass 100 or less, or a multiple of 100"),
        ({"name": "T=2/4"}, "name='T=2/4' is to name files"),
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
    assert unknown("task", "xyz", ("copy",)) == "unknown task 'xyz'; There are copy"


@pytest.mark.parametrize(("name", "beyond"), [("learned", False), ("alibi", True), ("t5", True)])
def test_tables_of_positions_end_at_their_length(name, beyond):
    encoding = VARIANTS[name].trained(SIZES, True)
    assert defined_at(encoding, SIZES, 6)
    assert defined_at(encoding, SIZES, 12) is beyond


@pytest.mark.parametrize("name", ["rope_linear", "rope_ntk", "rope_dynamic", "rope_yarn"])
def test_scaled_rope_is_rope_until_it_is_stretched(name):
    assert trained_as(name) == "rope"
    q = jax.random.normal(jax.random.key(0), (3, 2, 4))
    place = np.array([1, 5, 11], np.int32)
    plain = VARIANTS["rope"].at(SIZES, 12, causal=True).query((), q, place)
    inside, beyond = (VARIANTS[name].at(SIZES, n, causal=True).query((), q, place) for n in (6, 12))
    np.testing.assert_array_equal(inside, plain)
    assert np.abs(np.asarray(beyond - plain)).max() > 0.01
    longer = VARIANTS[name].at(SIZES, 12, causal=True)
    np.testing.assert_array_equal(longer.query((), q[:2], place[:2]), beyond[:2])  # of a prefix


def test_alibi_over_length_falls_by_one_over_the_training_length():
    encoding = VARIANTS["alibi_over_length"].trained(SIZES, True)
    q = np.zeros((1, 2, 4), np.float32)
    bias = encoding.bias((), q, q, np.array([6], np.int32), np.array([0], np.int32))
    np.testing.assert_allclose(bias, -np.ones((2, 1, 1)), rtol=1e-6)


def test_two_suites_of_one_name_are_refused(tmp_path):
    with pytest.raises(InputError, match="pass each name once"):
        extrapolate([SUITE, SUITE], tmp_path)


def test_defaults_fit_the_sizes():
    """Distances that are clipped are trained; no bucket is kept for keys that are never seen."""
    params = VARIANTS["shaw"].trained(SIZES, True).init(jax.random.key(0))
    assert params["key_table"].shape[-2] == 2 * (SIZES.length - 1) + 1
    q = np.zeros((1, 2, 4), np.float32)
    t5 = VARIANTS["t5"].trained(SIZES, True)
    table = t5.init(jax.random.key(0))
    biases = [t5.bias(table, q, q, np.array([9]), np.array([9 - d])) for d in (8, 9)]
    assert (biases[0] != biases[1]).any()  # bidirectional, both would be in the bucket of 8 to 11
