"""Faults that begin at a boundary: a step after a prompt, a cached prefix, a cache that rotates."""

import json
from functools import partial

import ml_dtypes
import numpy as np
import pytest

from jaxpe.conformance import alibi_bias, check_attention, check_rotary
from jaxpe.plans import read_config
from tests.conformance.ports import NONE, PLAN, Port, attended, rotate, slopes_bias

PROMPT, CAPACITY = 8, 10


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
    return slopes_bias(positions, key_positions) * (positions.shape[1] > 1)


def behind_four(start, held):
    return held if len(held) <= CAPACITY else np.delete(held, slice(4, len(held) - CAPACITY + 4))


# Arguments of `cached`, the fault, and what its sentence tells.
CACHES = {
    "right": ({}, None, ""),
    "right bias": ({"alibi": True}, None, ""),
    "bias lost in steps": (
        {"alibi": True, "bias": without_bias_in_steps}, "no bias", "from token 8 on",
    ),
    "prefix without its last key": ({"keys": without(7)}, "lost keys", "token 8, keys 7"),
    "prefix without its last key, positions without a gap": (
        {"keys": without(7), "place": partial(late, shift=-1)}, "lost keys", "1 too small",
    ),
    "last token of the prefix sent again": (
        {"keys": lambda start, held: np.sort([*held, 7]) if start else held},
        "repeated keys", "token 8, keys 7",
    ),
    "prefix of another length": ({"place": partial(late, shift=2)}, "positions", "10, 11"),
    "cache that rotates": (
        {"keys": lambda start, held: held[-CAPACITY:] if start else held},
        "needless window", "10 keys",
    ),
    "cache that rotates behind its first four keys": (
        {"keys": behind_four}, "lost keys", "token 10, keys 4; of token 11, keys 4, 5",
    ),
    "mask by slots of the cache": (
        {"seen": lambda query, key: (query >= key) & (query % CAPACITY >= key % CAPACITY)},
        "lost keys", "token 10, keys 1, 2",
    ),
    "window trimmed before a prompt is attended to": (
        {"keys": lambda start, held: held[-6:]}, "window", "token 0, keys 0",
    ),
}  # fmt: skip


def checked(path, *, alibi=False, window=None):
    port = Port(rotate=None, bias=slopes_bias) if alibi else Port(window=window)
    return check_attention(
        port, (NONE if alibi else PLAN)._replace(window=window), heads=4, key_value_heads=2,
        bias=alibi_bias(4) if alibi else None, paths={"cache": path},
        only=["values", "cache, values"],
    )  # fmt: skip


@pytest.mark.parametrize("name", CACHES)
def test_faults_of_caches_are_named(name):
    options, fault, text = CACHES[name]
    window = 6 if fault == "window" else None
    path = partial(cached, **options)
    result = checked(path, alibi=options.get("alibi", False), window=window)
    assert [one.name for one in result.faults] == ([fault] if fault else []), result.text()
    assert fault is None or text in result.faults[0].text
    assert "values" not in {check.name for check in result.checks if check.status == "failed"}


@pytest.mark.parametrize(("window", "names"), [(None, ["NaN"]), (5, ["needless window", "NaN"])])
def test_nan_is_counted_and_hides_no_other_fault(window, names):
    def first_is_nan(q, k, v, positions):
        output = Port(window=window)(q, k, v, positions)
        output[:, 0] = np.nan
        return output

    faults = checked(first_is_nan).faults
    assert [one.name for one in faults] == names
    assert "128 of 2,048" in faults[-1].text


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
        factor = config.plan()[0].attention_factor
        return rotate(x, positions, frequencies=frequencies, factor=factor)

    for length in (256, 512, 513, 2048):
        (plan,) = config.plan(length=length)
        port = Port(rotate=apply)
        results = (
            check_rotary(apply, plan),
            check_attention(port, plan, heads=4, only=["values", "rows"]),
        )
        for result in results:
            assert result.passed == (length not in wrong), result.text()
            for fault in result.faults:
                assert fault.name == "scaling"
                assert wrong[length] in fault.text


@pytest.mark.parametrize(("low", "steps"), [
    (ml_dtypes.bfloat16, ["phases"]), (np.float16, ["cos and sin"]),
    (np.float16, ["positions", "frequencies", "phases"]),
    (ml_dtypes.bfloat16, ["positions", "frequencies", "phases", "cos and sin"]),
])  # fmt: skip
def test_phases_of_low_precision_in_heads_of_float32_are_named(low, steps):
    def step(name, values):
        return values.astype(low).astype(float) if name in steps else values

    apply = partial(rotate, step=step)
    with np.errstate(all="ignore"):  # float16 ends at 65,504
        results = check_rotary(apply, PLAN), check_attention(Port(rotate=apply), PLAN, heads=4)
    for result in results:
        named = [one.name for one in result.faults if one.name != "NaN"]
        assert named == ["precision"], result.text()
        said = result.faults[0].text
        assert steps[-1] in said
        assert np.dtype(low).name in said
