"""Encodings of released models are of the plans that `jaxpe rope` shows, for all that load."""

import json

import jax
import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.encodings import LayerPattern
from jaxpe.nn.checkpoints.architecture import ARCHITECTURES
from jaxpe.nn.checkpoints.encodings import plan_encoding, read_plans
from jaxpe.plans import read_config, simple_plan
from jaxpe.plans.families import find_family
from jaxpe.plans.programs.base import QueryScaling
from tests.plans.agreement import classes

TYPES = classes()["types"]
LOADED = [name for name in ARCHITECTURES if name in TYPES and find_family(name).kind == "rotary"]
POSITIONS = np.array([0, 1, 7, 1000, 2047])


def turned(x, plan, i):
    """Entries of the head after the rotation of the plan, in float64."""
    ends = np.arange(plan.turning).reshape(2, -1) if plan.pairing == "half" else None
    if plan.rope_type == "proportional":  # pairs over the whole head
        ends = np.arange(plan.head_dim).reshape(2, -1)[:, : plan.turning // 2]
    a, b = np.arange(plan.turning).reshape(-1, 2).T if ends is None else ends
    angles = i[:, None] * np.asarray(plan.frequencies)
    cos, sin = (plan.attention_factor * f(angles) for f in (np.cos, np.sin))
    out = x.copy()
    out[:, a], out[:, b] = x[:, a] * cos - x[:, b] * sin, x[:, b] * cos + x[:, a] * sin
    return out


def sees(plan, i):
    """Whether the query at each position sees the key at each, by the window of the plan."""
    back = i[:, None] - i
    return np.abs(back) < plan.window if plan.window is not None else np.ones(back.shape, bool)


@pytest.mark.parametrize("name", LOADED)
def test_rotations_and_windows_are_those_of_the_plan(name):
    compared = 0
    for case in TYPES[name]["cases"].values():
        try:
            plans = read_config(case.get("input", {})).plan()
            encoding = plan_encoding(plans)
        except InputError:  # refused, or a table
            continue
        for plan in plans:
            layer = plan.layers[-1]
            one = encoding.at(layer) if isinstance(encoding, LayerPattern) else encoding
            params = one.init(jax.random.key(0))
            x = np.random.default_rng(0).normal(size=(len(POSITIONS), max(plan.head_dim, 2)))
            if plan.turns and plan.reach > POSITIONS[-1] and "dynamic" not in plan.rope_type:
                found = one.query(params, x[:, None].astype(np.float32), POSITIONS)[:, 0]
                wanted = turned(x, plan, POSITIONS)
                if plan.rope_type != "longrope":  # whose list depends on the text
                    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)
            heads = x[:, None].astype(np.float32)
            seen = sees(plan, POSITIONS)
            if one.defines("mask"):
                mask = np.asarray(one.mask(params, heads, heads, POSITIONS, POSITIONS))
                np.testing.assert_array_equal(mask, np.broadcast_to(seen, mask.shape))
            else:
                assert seen.all()
            compared += 1
    assert compared


@pytest.mark.parametrize("offset", [0, 1])
def test_queries_grow_as_the_plan_says(offset):
    plan, i, x = simple_plan(head_dim=2, layers=(0,)), np.arange(9), np.ones((9, 1, 2), np.float32)
    growing = plan._replace(query_scaling=QueryScaling(0.1, 4.0, offset, "all"))
    encodings = plan_encoding([plan]), plan_encoding([growing])
    plain, found = (np.asarray(e.query(e.init(jax.random.key(0)), x, i)) for e in encodings)
    factor = 1 + 0.1 * np.log1p((i + offset) // 4)
    np.testing.assert_allclose(found, factor[:, None, None] * plain, rtol=1e-6)


@pytest.mark.parametrize(("name", "base"), [("cohere", 500_000.0), ("cohere2", 10_000.0)])
def test_a_file_without_a_base_has_that_of_the_class(name, base, tmp_path):
    fields = {"model_type": name, "num_hidden_layers": 4, "vocab_size": 9}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    plans = read_plans(tmp_path / "config.json", ARCHITECTURES[name])
    assert {plan.base for plan in plans if plan.turns} == {base}
