"""check_rotary: right implementations pass, faults are named, and nothing is assumed.

Faults of public threads are in `test_mutants.py`.
"""

import json
import tomllib
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe.plans
from jaxpe import InputError
from jaxpe.conformance import check_rotary
from jaxpe.conformance.diagnosis import Trial
from jaxpe.conformance.faults import rotation_faults
from jaxpe.conformance.reference import plan_rotation
from jaxpe.conformance.rotary import ROTARY_CHECKS, RotaryInputs
from jaxpe.encodings import rope_from_hf
from jaxpe.plans import read_config, simple_plan
from tests.conformance.ports import NONE, PLAN, rotate

FAMILIES = Path(jaxpe.plans.__file__).with_name("families.toml")
LENGTHS = {
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 512},
    "dynamic": {"factor": 4.0},
    "longrope": {
        "short_factor": [1.0] * 8, "long_factor": [1.0, 1.5, 2, 3, 5, 8, 13, 21],
        "original_max_position_embeddings": 512,
    },
}  # fmt: skip
INTERLEAVED = simple_plan(head_dim=16, pairing="interleaved")


def applied(encoding):
    return jax.jit(lambda x, positions: encoding.query({}, x, positions))


@pytest.mark.parametrize(("kind", "length"), [
    ("yarn", None), *((kind, n) for kind in ("dynamic", "longrope") for n in (256, 8192)),
])  # fmt: skip
def test_scalings_are_checked_at_the_length_of_their_plan(kind, length):
    entry = {"rope_type": kind, **LENGTHS[kind]}
    config = read_config(head_dim=16, base=1e4, context=2048, scaling=json.dumps(entry))
    encoding = rope_from_hf(
        {**entry, "rope_theta": 1e4}, head_dim=16, max_position_embeddings=2048, length=length
    )
    apply = applied(encoding)
    result = check_rotary(apply, config.plan(length=length)[0])
    assert result.passed, result.text()
    assert {check.name for check in result.checks} == set(ROTARY_CHECKS)
    skipped = {check.name for check in result.checks if check.status == "not checked"}
    assert skipped == {"axes", "rerotated"}
    assert apply._cache_size() == 3  # compiled for three shapes


def _padded_index(positions):
    """The index in the row where a row begins with padding."""
    padded = (positions[:, :3] == [[0, 0, 0]]).all() if positions.shape[1] > 2 else False
    index = np.broadcast_to(np.arange(positions.shape[1]), positions.shape)
    return index if padded else positions


def port(**options):
    return partial(rotate, **options)


def in_bfloat16(x, positions):
    return jnp.asarray(rotate(x, positions, base=7e5), jnp.bfloat16)


def noisy(x, positions):
    """Outputs just outside the tolerance of bfloat16: many faults are as near by chance."""
    noise = np.random.default_rng(0).normal(size=x.shape)
    return jnp.asarray(rotate(x, positions) + 0.07 * noise, jnp.bfloat16)


def raises(x, positions):
    raise KeyError("cache")


def two_faults(x, positions):
    """They meet in no trial, so both are named."""
    positions = positions * (positions.shape[1] > 1)
    return rotate(x, np.minimum(positions, 4095))


# Port, plan, names of its faults, and a word of the first sentence.
FAULTS = {
    "none": (rotate, PLAN, [], ""),
    "unusual base": (port(base=12345.0), PLAN, ["base"], "12,345"),
    "near base": (port(base=10001.0), PLAN, ["base"], "10,001;"),
    "base in bfloat16": (in_bfloat16, PLAN, ["base"], "700,000;"),
    "offset": (
        port(index=lambda p: p[:, :1] + np.arange(p.shape[1])), PLAN, ["positions ignored"],
        "from the first of each row",
    ),
    "left padding": (port(index=_padded_index), PLAN, ["padding counted"], "padding"),
    "chunks": (
        port(index=lambda p: p % 4096 if p.shape[1] > 4096 else p), PLAN, ["restart"], "4,096",
    ),
    "factor of its own": (port(factor=1.3), PLAN, ["attention factor"], "1.3"),
    "pairing and factor": (port(factor=1.3), INTERLEAVED, ["pairing"], "times 1.3; wanted 1"),
    "noise": (lambda x, p: rotate(x, p) + 0.01, PLAN, ["unexplained"], "all tokens"),
    "noise of low precision": (noisy, PLAN, ["unexplained"], ""),
    "two faults": (two_faults, PLAN, ["decode position", "clamped"], ""),
    "error": (raises, PLAN, ["no output"], "KeyError: 'cache'"),
    "shape": (lambda x, p: x[:, :, 0], PLAN, ["no output"], "wanted (2, 16, 5, 16)"),
    "NaN": (lambda x, p: x * np.nan, PLAN, ["NaN"], ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named(name):
    apply, plan, faults, text = FAULTS[name]
    only = ["values", "rows"] if "unexplained" in faults else None  # all hypotheses are tried
    result = check_rotary(apply, plan, only=only)
    assert result.passed == (not faults)
    assert {one.name for one in result.faults} == set(faults), result.text()
    assert not faults or text in result.faults[0].text


SMOOTHED = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [
    ("scaling", "weights of its two parts exchanged"), ("frequencies", "in 2 of 16 pairs"),
])  # fmt: skip
def test_frequencies_that_differ_are_counted_and_explained(name, text):
    """Output is float32: the slowest pairs look wrong in it, and do not count."""
    config = read_config(head_dim=32, base=5e5, context=4096, scaling=json.dumps(SMOOTHED))
    (plan,) = config.plan()
    own, unscaled = np.array(plan.frequencies), np.array(plan.unscaled)
    between = (own > unscaled / 8) & (own < unscaled)
    exchanged = np.where(between, unscaled * 9 / 8 - own, own)
    frequencies = exchanged if name == "scaling" else own * np.where(between, 1.5, 1)
    assert between.sum() == 2

    def apply(x, positions):
        angles = positions[..., None, None] * frequencies
        (a, b), cos, sin = np.split(x, 2, axis=-1), np.cos(angles), np.sin(angles)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(np.float32)

    (fault,) = check_rotary(apply, plan, only=["values"]).faults
    assert (fault.name, text in fault.text) == (name, True), fault.text


def test_only_the_asked_check_runs():
    calls = []

    def apply(x, positions):
        calls.append(positions.shape)
        return rotate(x, positions)

    assert check_rotary(apply, PLAN, only=["rows"]).passed
    assert len(calls) == 1
    lacking = check_rotary(rotate, PLAN, only=["axes"])  # one axis
    assert [(check.name, check.status) for check in lacking.checks] == [("axes", "not checked")]
    assert not lacking.passed
    with pytest.raises(InputError, match="colour"):
        check_rotary(rotate, PLAN, only=["colour"])
    with pytest.raises(InputError, match="rotate"):
        check_rotary(rotate, NONE)


@pytest.mark.parametrize(("by", "text"), [
    (lambda old, new: new - old, None),
    (lambda old, new: old - new, "other direction"),
    (lambda old, new: old * 0, "old positions"),
    (lambda old, new: new, "not by the difference"),
    (lambda old, new: 2 * (new - old), "twice as far"),
])  # fmt: skip
def test_a_cache_that_moves(by, text):
    result = check_rotary(rotate, PLAN, rerotate=lambda x, old, new: rotate(x, by(old, new)))
    assert result.passed is (text is None), result.text()
    assert text is None or text in result.faults[0].text


def test_formats():
    result = check_rotary(port(base=5e5), PLAN, only=["values", "axes"])
    value = json.loads(result.json())
    assert (value["passed"], value["faults"][0]["name"]) == (False, "base")
    suite = ElementTree.fromstring(result.junit())
    names = [case.get("name") for case in suite.iter("testcase")]
    assert names == [check.name for check in result.checks]
    assert suite.get("failures") == "1"
    assert suite.find("testcase/failure") is not None


def test_faults_can_be_built_for_every_model_type():
    plans, built = {}, 0
    for model_type in tomllib.loads(FAMILIES.read_text("utf-8"))["rotary"]:
        try:
            found = read_config({"model_type": model_type}).plan()
        except InputError:  # a type without default sizes
            continue
        for plan in (one for one in found if one.turns):
            key = plan.head_dim, plan.turning, plan.place, plan.pairing, plan.sections
            plans[*key, plan.base, plan.rope_type] = plan
    for plan in plans.values():
        positions, axes = np.array([[3, 40]]), len(plan.sections)
        positions = np.repeat(positions[..., None], axes, -1) if axes else positions
        x = np.ones((1, 2, 1, plan.head_dim))
        if axes and sum(plan.sections) != plan.turning // 2 and plan.section_order == "contiguous":
            continue  # transformers refuses them, too
        for _, text, faulty in rotation_faults(plan, plan_rotation(plan)):
            assert faulty.turn(x, positions).shape == x.shape, text
            built += 1
    assert len(plans) > 80
    assert built > 30 * len(plans)


def test_the_example_is_the_first_wrong_token_with_four_entries():
    wanted, x = np.zeros((2, 3, 1, 8)), np.zeros((2, 3, 1, 8))
    got = wanted.copy()
    got[1, 1, 0, 6], got[0, 2, 0, 0] = 0.5, 0.25
    inputs = RotaryInputs(x, np.array([[7, 8, 9], [4, 5, 6]]))
    first, _, last = Trial("values", inputs, wanted, got, np.array(0.1)).example().splitlines()
    assert "row 1, token 1 (position 5), head 0, entries from 4" in first
    assert np.fromstring(last.partition("[")[2].rstrip("]"), sep=" ").tolist() == [0, 0, 0.5, 0]
