"""check_rotary: right implementations pass, faults are named, and nothing is assumed."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe.plans
from jaxpe import InputError
from jaxpe.conformance import ROTARY_CHECKS, check_rotary
from jaxpe.conformance.diagnosis import Trial
from jaxpe.conformance.faults import rotation_faults
from jaxpe.conformance.reference import plan_rotation
from jaxpe.conformance.rotary import RotaryInputs
from jaxpe.encodings import rope, rope_from_hf
from jaxpe.plans import LayerPlan, read_config, simple_plan

PLAN = simple_plan(head_dim=16, base=1e4, context=2048)
FAMILIES = Path(jaxpe.plans.__file__).with_name("families.toml")
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}


def applied(encoding, dtype=jnp.float32) -> Callable:
    """Our encoding as a callable of the check."""

    @jax.jit
    def apply(x, positions):
        return encoding.query({}, x.astype(dtype), positions)

    return apply


def plain(x, positions, *, base=1e4, turning=None, index=lambda p: p, sign=1, factor=1.0):
    """Rotation of halves in NumPy, as a port would write it."""
    turning = turning or x.shape[-1]
    half = turning // 2
    angles = index(positions)[..., None, None] * base ** (-np.arange(half) / half)
    cos, sin = factor * np.cos(angles), factor * sign * np.sin(angles)
    a, b, rest = x[..., :half], x[..., half:turning], x[..., turning:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


RIGHT = {
    "float32": (applied(rope(head_dim=16)), PLAN),
    "bfloat16": (applied(rope(head_dim=16), jnp.bfloat16), PLAN),
    "float16": (applied(rope(head_dim=16), jnp.float16), PLAN),
    "float64": (applied(rope(head_dim=16), jnp.float64), PLAN),
    "interleaved": (
        applied(rope(head_dim=16, layout="interleaved")),
        simple_plan(head_dim=16, pairing="interleaved"),
    ),
    "yarn": (
        applied(rope_from_hf({**YARN, "rope_theta": 1e4}, head_dim=16)),
        read_config(head_dim=16, base=1e4, context=2048, scaling=json.dumps(YARN)).plan()[0],
    ),
    "plain": (plain, PLAN),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_implementations_pass(name):
    result = check_rotary(*RIGHT[name])
    assert result.passed, result.text()
    assert {check.name for check in result.checks} == set(ROTARY_CHECKS)
    skipped = {check.name for check in result.checks if check.status == "not checked"}
    assert skipped == {"axes", "rerotated"}


def _index(positions):
    return np.broadcast_to(np.arange(positions.shape[1]), positions.shape)


def _padded_index(positions):
    """The index in the row where a row begins with padding."""
    padded = (positions[:, :3] == [[0, 0, 0]]).all() if positions.shape[1] > 2 else False
    return _index(positions) if padded else positions


FAULTS: dict[str, tuple[Callable, LayerPlan, str, str]] = {
    "pairing": (plain, simple_plan(head_dim=16, pairing="interleaved"), "pairing", "wanted inter"),
    "base": (lambda x, p: plain(x, p, base=5e5), PLAN, "base", "500,000"),
    "unusual base": (lambda x, p: plain(x, p, base=12345.0), PLAN, "base", "12,345"),
    "near base": (lambda x, p: plain(x, p, base=10001.0), PLAN, "base", "10,001;"),
    "base in bfloat16": (
        lambda x, p: jnp.asarray(plain(x, p, base=7e5), jnp.bfloat16), PLAN, "base", "700,000;",
    ),
    "offset": (
        lambda x, p: plain(x, p, index=lambda p: p[:, :1] + np.arange(p.shape[1])),
        PLAN, "positions ignored", "from the first of each row",
    ),
    "direction": (lambda x, p: plain(x, p, sign=-1), PLAN, "direction", "other direction"),
    "part": (lambda x, p: plain(x, p, turning=8), PLAN, "rotated part", "8 entries; wanted 16"),
    "rows": (
        lambda x, p: plain(x, p, index=lambda p: np.broadcast_to(p[:1], p.shape)),
        PLAN, "rows", "row 0",
    ),
    "index": (lambda x, p: plain(x, p, index=_index), PLAN, "positions ignored", "index"),
    "left padding": (
        lambda x, p: plain(x, p, index=_padded_index), PLAN, "padding counted", "padding",
    ),
    "clamp": (
        lambda x, p: plain(x, p, index=lambda p: np.minimum(p, 2047)), PLAN, "clamped", "2,048",
    ),
    "chunks": (
        lambda x, p: plain(x, p, index=lambda p: p % 4096 if p.shape[1] > 4096 else p),
        PLAN, "restart", "4,096",
    ),
    "bfloat16 positions": (
        lambda x, p: plain(x, p, index=lambda p: np.asarray(jnp.asarray(p, jnp.bfloat16), float)),
        PLAN, "precision", "positions are rounded to bfloat16",
    ),
    "yarn ignored": (plain, RIGHT["yarn"][1], "scaling", "no scaling; wanted yarn"),
    "factor twice": (
        lambda x, p: RIGHT["yarn"][0](x, p) * RIGHT["yarn"][1].attention_factor,
        RIGHT["yarn"][1], "attention factor", "twice",
    ),
    "factor of its own": (lambda x, p: plain(x, p, factor=1.3), PLAN, "attention factor", "1.3"),
    "pairing and factor": (
        lambda x, p: plain(x, p, factor=1.3), simple_plan(head_dim=16, pairing="interleaved"),
        "pairing", "cos and sin times 1.3; wanted 1",
    ),
    "noise": (lambda x, p: plain(x, p) + 0.01, PLAN, "unexplained", "all rows, all tokens"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(fault):
    apply, plan, name, text = FAULTS[fault]
    result = check_rotary(apply, plan)
    assert not result.passed
    assert [one.name for one in result.faults] == [name], result.text()
    assert text in result.faults[0].text
    assert "wanted [" in result.faults[0].example


def test_a_fault_in_one_check_is_named_for_it():
    """Two faults that meet in no trial are both named."""

    def apply(x, positions):
        if positions.shape[1] == 1:
            positions = positions * 0
        return plain(x, np.minimum(positions, 4095))

    names = {fault.name for fault in check_rotary(apply, PLAN).faults}
    assert names == {"decode position", "clamped"}


def test_only_the_asked_check_runs():
    calls = []

    def apply(x, positions):
        calls.append(positions.shape)
        return plain(x, positions)

    result = check_rotary(apply, PLAN, only=["rows"])
    assert result.passed
    assert len(calls) == 1
    assert check_rotary(plain, PLAN, only=None).passed
    with pytest.raises(InputError, match="no check colour; the checks are values"):
        check_rotary(plain, PLAN, only=["colour"])


def test_a_jitted_function_compiles_for_three_shapes():
    apply, plan = RIGHT["float32"]
    apply.clear_cache()
    assert check_rotary(apply, plan).passed
    assert apply._cache_size() == 3


def test_what_raises_or_has_another_shape_is_a_fault():
    def raises(x, positions):
        raise KeyError("cache")

    result = check_rotary(raises, PLAN, only=["values"])
    assert [fault.name for fault in result.faults] == ["no output"]
    assert "it raises KeyError: 'cache'" in result.faults[0].text
    cut = check_rotary(lambda x, p: x[:, :, 0], PLAN, only=["values"])
    assert "it returns the shape (2, 16, 16); wanted (2, 16, 5, 16)" in cut.text()
    nan = check_rotary(lambda x, p: x * np.nan, PLAN, only=["values"])
    assert not nan.passed


@pytest.mark.parametrize(("by", "text"), [
    (lambda old, new: new - old, None),
    (lambda old, new: old - new, "other direction"),
    (lambda old, new: old * 0, "old positions"),
    (lambda old, new: new, "not by the difference"),
    (lambda old, new: 2 * (new - old), "twice as far"),
])  # fmt: skip
def test_a_cache_that_moves(by, text):
    result = check_rotary(plain, PLAN, rerotate=lambda x, old, new: plain(x, by(old, new)))
    assert result.passed is (text is None), result.text()
    assert text is None or text in result.faults[0].text


def test_a_check_that_a_plan_lacks_is_skipped():
    result = check_rotary(plain, PLAN, only=["axes"])
    assert [(check.name, check.status) for check in result.checks] == [("axes", "not checked")]
    assert not result.passed


def test_noise_of_low_precision_is_not_named():
    """Outputs just outside the tolerance of bfloat16: many faults are as near by chance."""

    def noisy(x, positions):
        noise = np.random.default_rng(0).normal(size=x.shape)
        return jnp.asarray(plain(x, positions) + 0.07 * noise, jnp.bfloat16)

    assert [fault.name for fault in check_rotary(noisy, PLAN).faults] == ["unexplained"]


def test_checks_need_a_rotation():
    none = PLAN._replace(kind="none", frequencies=np.zeros(0), turning=0)
    with pytest.raises(InputError, match="do not rotate"):
        check_rotary(plain, none)


def test_formats():
    result = check_rotary(lambda x, p: plain(x, p, base=5e5), PLAN, only=["values", "axes"])
    value = json.loads(result.json())
    assert value["passed"] is False
    assert value["faults"][0]["name"] == "base"
    suite = ElementTree.fromstring(result.junit())
    assert [case.get("name") for case in suite.iter("testcase")] == [
        check.name for check in result.checks
    ]
    assert suite.get("failures") == "1"
    assert suite.find("testcase/failure") is not None
    assert ": failed; " in result.text().splitlines()[0]


@pytest.mark.parametrize(("kind", "fields"), [
    ("dynamic", {"factor": 4.0}),
    ("longrope", {"short_factor": [1.0] * 8, "long_factor": [1.0, 1.5, 2, 3, 5, 8, 13, 21],
                  "original_max_position_embeddings": 512}),
])  # fmt: skip
def test_scalings_by_length_are_checked_at_the_length_of_their_plan(kind, fields):
    entry = {"rope_type": kind, **fields}
    config = read_config(head_dim=16, base=1e4, context=2048, scaling=json.dumps(entry))
    for length in (256, 8192):
        plan = config.plan(length=length)[0]
        encoding = rope_from_hf(
            {**entry, "rope_theta": 1e4}, head_dim=16, max_position_embeddings=2048, length=length
        )
        result = check_rotary(applied(encoding), plan)
        assert result.passed, result.text()


def _default_plans(folder: Path) -> dict[tuple, LayerPlan]:
    """Plans of rotating layers of every model type, by what a rotation depends on."""
    plans = {}
    for model_type in tomllib.loads(FAMILIES.read_text("utf-8"))["rotary"]:
        (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
        try:
            found = read_config(folder).plan()
        except InputError:  # a type without default sizes
            continue
        for plan in found:
            if plan.turns:
                key = plan.head_dim, plan.turning, plan.place, plan.pairing, plan.sections
                plans[*key, plan.base, plan.rope_type] = plan
    return plans


def test_faults_can_be_built_for_every_model_type(tmp_path):
    plans, built = _default_plans(tmp_path), 0
    for plan in plans.values():
        positions, axes = np.array([[3, 40]]), len(plan.sections)
        positions = np.repeat(positions[..., None], axes, -1) if axes else positions
        x = np.ones((1, 2, 1, plan.head_dim))
        try:
            rotation = plan_rotation(plan)
        except InputError as error:
            assert "do not add up" in str(error)  # noqa: PT017 (transformers refuses them, too)
            continue
        for _, text, faulty in rotation_faults(plan, rotation):
            assert faulty.turn(x, positions).shape == x.shape, text
            built += 1
    assert len(plans) > 80
    assert built > 30 * len(plans)


def test_the_example_is_the_first_wrong_token_with_four_entries():
    wanted, x = np.zeros((2, 3, 1, 8)), np.zeros((2, 3, 1, 8))
    got = wanted.copy()
    got[1, 1, 0, 6], got[0, 2, 0, 0] = 0.5, 0.25
    inputs = RotaryInputs(x, np.array([[7, 8, 9], [4, 5, 6]]))
    example = Trial("values", inputs, wanted, got, np.array(0.1)).example()
    first, _, last = example.splitlines()
    assert "row 1, token 1 (position 5), head 0, entries from 4" in first
    assert np.fromstring(last.partition("[")[2].rstrip("]"), sep=" ").tolist() == [0, 0, 0.5, 0]
