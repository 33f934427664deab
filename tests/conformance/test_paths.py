"""Faults that begin at a boundary: a step after a prompt, a cached prefix, a cache that rotates."""

import json
from collections.abc import Callable
from functools import partial

import ml_dtypes
import numpy as np
import pytest

from jaxpe.conformance import alibi_bias, check_attention, check_rotary
from jaxpe.plans import read_config, simple_plan

PLAN = simple_plan(head_dim=16, base=1e4, context=2048)
NONE = PLAN._replace(kind="none", turning=0, frequencies=np.zeros(0), unscaled=np.zeros(0))
PROMPT, CAPACITY = 8, 10


def rotate(x, positions, frequencies=None, factor=1.0, step=lambda name, values: values):
    half = x.shape[-1] // 2
    frequencies = 1e4 ** (-np.arange(half) / half) if frequencies is None else frequencies
    frequencies = step("frequencies", frequencies)
    angles = step("phases", step("positions", positions * 1.0)[..., None, None] * frequencies)
    cos, sin = (step("cos and sin", factor * f(angles)) for f in (np.cos, np.sin))
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attended(q, k, v, seen, bias=0.0):
    k, v = (np.repeat(x, q.shape[2] // x.shape[2], 2) for x in (k, v))
    logits = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1]) + bias
    weights = np.where(seen[..., None, :, :], np.exp(logits - logits.max()), 0)
    weights = weights / np.maximum(weights.sum(-1, keepdims=True), 1e-30)
    return np.einsum("bhqk,bkhd->bqhd", weights, v).astype(np.float32)


def slopes_bias(positions, key_positions):
    offsets = np.abs(positions[:, :, None] - key_positions[:, None])
    return -(2.0 ** (-2 * np.arange(1, 5)))[:, None, None] * offsets[:, None]


def whole(q, k, v, positions, *, alibi=False, window=2**30, rotate=rotate):
    offsets = positions[:, :, None] - positions[:, None]
    bias = slopes_bias(positions, positions) if alibi else 0.0
    q, k = (q, k) if alibi else (rotate(q, positions), rotate(k, positions))
    return attended(q, k, v, (offsets >= 0) & (offsets < window), bias)


def cached(
    q, k, v, positions, *,
    keys=lambda start, held: held, seen=lambda query, key: query >= key,
    place=lambda positions: positions, alibi=False, bias=slopes_bias,
):  # fmt: skip
    """A prompt at once, then token by token; `keys` are those that the cache holds."""
    outputs, start = [], 0
    own = place(positions)
    turned, rotated = (q, k) if alibi else (rotate(q, own), rotate(k, own))
    for stop in (PROMPT, *range(PROMPT + 1, q.shape[1] + 1)):
        now, held = np.arange(start, stop), keys(start, np.arange(stop))
        logits = bias(positions[:, now], positions[:, held]) if alibi else 0.0
        pairs = seen(now[:, None], held)[None]
        outputs.append(attended(turned[:, now], rotated[:, held], v[:, held], pairs, logits))
        start = stop
    return np.concatenate(outputs, axis=1)


def late(positions, shift):
    return positions + shift * (np.arange(positions.shape[1]) >= PROMPT)


def without(key):
    return lambda start, held: held[held != key] if start else held


def without_bias_in_steps(positions, key_positions):
    bias = slopes_bias(positions, key_positions)
    return bias if positions.shape[1] > 1 else bias * 0


ALIBI = {"alibi": True}
CACHES: dict[str, tuple[Callable, str, str]] = {
    "bias lost in steps": (
        partial(cached, alibi=True, bias=without_bias_in_steps), "no bias", "from token 8 on",
    ),
    "prefix without its last key": (
        partial(cached, keys=without(7)), "lost keys", "token 8, keys 7",
    ),
    "prefix without its last key, positions without a gap": (
        partial(cached, keys=without(7), place=partial(late, shift=-1)),
        "lost keys", "1 too small",
    ),
    "last token of the prefix sent again": (
        partial(cached, keys=lambda start, held: np.sort([*held, 7]) if start else held),
        "repeated keys", "token 8, keys 7",
    ),
    "prefix of another length": (
        partial(cached, place=partial(late, shift=2)), "positions", "10, 11",
    ),
    "cache that rotates": (
        partial(cached, keys=lambda start, held: held[-CAPACITY:] if start else held),
        "needless window", "10 keys",
    ),
    "cache that rotates behind its first four keys": (
        partial(cached, keys=lambda start, held: held if len(held) <= CAPACITY else np.delete(
            held, slice(4, len(held) - CAPACITY + 4))),
        "lost keys", "token 10, keys 4; of token 11, keys 4, 5",
    ),
    "mask by slots of the cache": (
        partial(cached, seen=lambda query, key: (query >= key) & (
            query % CAPACITY >= key % CAPACITY)),
        "lost keys", "token 10, keys 1, 2",
    ),
}  # fmt: skip


def checked(path, **plan):
    alibi = path.keywords.get("alibi", False) if isinstance(path, partial) else False
    return check_attention(
        partial(whole, alibi=alibi, window=plan.get("window") or 2**30),
        (NONE if alibi else PLAN)._replace(**plan),
        heads=4, key_value_heads=2, bias=alibi_bias(4) if alibi else None,
        paths={"cache": path}, only=["values", "cache, values"],
    )  # fmt: skip


@pytest.mark.parametrize("name", CACHES)
def test_faults_of_caches_are_named(name):
    path, fault, text = CACHES[name]
    result = checked(path)
    assert [one.name for one in result.faults] == [fault], result.text()
    assert text in result.faults[0].text
    assert "values" not in {check.name for check in result.checks if check.status == "failed"}


@pytest.mark.parametrize("alibi", [False, True])
def test_right_caches_pass(alibi):
    assert checked(partial(cached, alibi=alibi)).passed


def test_a_window_that_is_trimmed_before_a_prompt_is_attended_to():
    path = partial(cached, keys=lambda start, held: held[-6:])
    result = checked(path, window=6)
    assert [one.name for one in result.faults] == ["window"]
    assert "token 0, keys 0" in result.faults[0].text


def test_nan_is_counted():
    def first_is_nan(q, k, v, positions):
        output = whole(q, k, v, positions)
        output[:, 0] = np.nan
        return output

    result = checked(first_is_nan)
    assert [one.name for one in result.faults] == ["NaN"]
    assert "128 of 2,048 outputs are NaN: all rows, tokens 0 of 16" in result.faults[0].text
    assert "inf" not in result.text()


def test_nan_hides_no_other_fault():
    def lost(q, k, v, positions):
        output = whole(q, k, v, positions, window=5)
        output[0, 0] = np.nan
        return output

    assert [one.name for one in checked(lost).faults] == ["needless window", "NaN"]


LISTS = {"short_factor": [1.0] * 8, "long_factor": [1.0, 1.5, 2, 3, 5, 8, 13, 21]}
ENTRY = {"rope_type": "longrope", **LISTS, "original_max_position_embeddings": 512}


@pytest.mark.parametrize(("is_long", "wrong"), [
    (lambda n: n > 512, {}),
    (lambda n: True, {256: "longer than 512;", 512: "longer than 512;"}),
    (lambda n: False, {513: "up to 512 positions;", 2048: "up to 512 positions;"}),
    (lambda n: n >= 512, {512: "longer than 512;"}),
])  # fmt: skip
def test_lists_of_longrope(is_long, wrong):
    config = read_config(head_dim=16, base=1e4, context=2048, scaling=json.dumps(ENTRY))

    def apply(x, positions):
        name = "long_factor" if is_long(positions.max() + 1) else "short_factor"
        frequencies = 1e4 ** (-np.arange(8) / 8) / ENTRY[name]
        return rotate(x, positions, frequencies, config.plan()[0].attention_factor)

    for length in (256, 512, 513, 2048):
        (plan,) = config.plan(length=length)
        results = (
            check_rotary(apply, plan),
            check_attention(partial(whole, rotate=apply), plan, heads=4, only=["values", "rows"]),
        )
        for result in results:
            assert result.passed == (length not in wrong), result.text()
            for fault in result.faults:
                assert fault.name == "scaling"
                assert wrong[length] in fault.text


ROUNDED = [
    ["phases"], ["cos and sin"], ["positions", "frequencies", "phases"],
    ["positions", "frequencies", "phases", "cos and sin"],
]  # fmt: skip


@pytest.mark.parametrize("steps", ROUNDED)
@pytest.mark.parametrize("low", [ml_dtypes.bfloat16, np.float16])
def test_phases_of_low_precision_in_heads_of_float32_are_named(steps, low):
    def step(name, values):
        return values.astype(low).astype(float) if name in steps else values

    apply = partial(rotate, step=step)
    attend = partial(whole, rotate=apply)
    with np.errstate(all="ignore"):  # float16 ends at 65,504
        results = check_rotary(apply, PLAN), check_attention(attend, PLAN, heads=4)
    for result in results:
        named = [one.name for one in result.faults if one.name != "NaN"]
        assert named == ["precision"], result.text()
        said = result.faults[0].text
        assert steps[-1] in said
        assert f"rounded to {np.dtype(low).name}" in said
