"""ALiBi, T5, KERPLE, FIRE and CoPE: their formulas, entry by entry, and laws of their own.

What all encodings of pairs have in common is in `test_pairs.py`.
"""

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxpe.encodings import alibi, alibi_line, cope, fire, kerple, t5
from jaxpe.encodings.families.bias import alibi_slopes, t5_buckets
from jaxpe.geometry import euclidean_distances

N, HEADS, HEAD_DIM = 7, 3, 4
PLACES = np.array([0, 3, 4, 9, 2, 700, 25])


def blank(n=N, heads=HEADS, dtype=jnp.float64):
    return jax.device_put(np.zeros((n, heads, HEAD_DIM), dtype))


def normal(seed, *shape):
    return jax.device_put(np.random.default_rng(seed).standard_normal(shape))


def bias_at(encoding, params, i, heads=HEADS, dtype=jnp.float64):
    x = blank(len(i), heads, dtype)
    return np.asarray(jax.jit(lambda params, x: encoding.bias(params, x, x, i, i))(params, x))


# ALiBi


@pytest.mark.parametrize("heads", [1, 3])
def test_alibi_is_minus_slope_times_distance(heads):
    """Points on a line have it as distances; causal biases change the sign of later keys."""
    encoding = alibi(num_heads=heads)
    bias = bias_at(encoding, (), PLACES, heads)
    offsets = PLACES[:, None] - PLACES
    np.testing.assert_array_equal(bias, -alibi_slopes(heads)[:, None, None] * np.abs(offsets))
    linear = bias_at(alibi(num_heads=heads, causal=True), (), PLACES, heads)
    np.testing.assert_array_equal(linear, np.where(offsets >= 0, bias, -bias))
    distances = euclidean_distances(encoding.vectors((), PLACES)).values
    np.testing.assert_allclose(distances, np.linalg.norm(bias, axis=0), rtol=1e-12)
    line = alibi_line(PLACES, slope=alibi_slopes(heads)[0])
    np.testing.assert_array_equal(encoding.vectors((), PLACES)[:, :1], line)


@pytest.mark.parametrize("causal", [False, True])
def test_alibi_tells_near_positions_apart_far_out_in_bfloat16(causal):
    encoding = alibi(num_heads=1, slopes=1.0, causal=causal)
    for start in (1000, 10**6):
        with jax.enable_x64(False):
            bias = bias_at(encoding, (), np.arange(start, start + 4), 1, jnp.bfloat16)
        assert bias.dtype == np.float32
        np.testing.assert_array_equal(bias[0, -1], [-3, -2, -1, 0])


def test_alibi_has_parameters_only_if_asked():
    assert jax.tree.leaves(alibi(num_heads=HEADS).init(jax.random.key(0))) == []
    encoding = alibi(num_heads=HEADS, learnable=True)
    params = encoding.init(jax.random.key(0))
    fixed = alibi(num_heads=HEADS)
    np.testing.assert_allclose(
        bias_at(encoding, params, PLACES), bias_at(fixed, (), PLACES), rtol=1e-14
    )
    np.testing.assert_allclose(
        encoding.vectors(params, PLACES), fixed.vectors((), PLACES), rtol=1e-14
    )


# T5


def test_t5_buckets_of_an_odd_half():
    """18 buckets, 9 of each sign, of which 4 are exact: T5's own loop, in float64."""

    def bucket(offset):
        distance, first = abs(offset), 9 if offset > 0 else 0
        if distance < 4:
            return first + distance
        wide = 4 + int(math.log(distance / 4) / math.log(100 / 4) * (9 - 4))
        return first + min(wide, 8)

    offsets = np.arange(-120, 121)
    found = t5_buckets(offsets, num_buckets=18, max_distance=100)
    np.testing.assert_array_equal(found, [bucket(int(offset)) for offset in offsets])


def test_a_whole_power_begins_its_t5_bucket():
    """Buckets from 4, 8, 16, 32 and 64 on: the last is 64.00000000000001 by the formula."""
    found = t5_buckets(-np.array([31, 32, 63, 64]), num_buckets=18, max_distance=128)
    assert found.tolist() == [6, 7, 7, 8]


def test_fractional_offsets_fall_between_whole_ones():
    offsets = np.linspace(-200, 200, 6401)  # sixteenths
    buckets = np.asarray(t5_buckets(offsets))
    distance, side = np.abs(offsets), offsets > 0
    for ahead in (False, True):
        # Numbers grow with the distance, from 0: also within a step of the query.
        own = buckets[side == ahead][np.argsort(distance[side == ahead])]
        assert (np.diff(own) >= 0).all()
        assert own[0] == 0
    np.testing.assert_array_equal(
        t5_buckets(np.array([-0.5, 0.5, 0.99])), np.zeros(3)
    )  # the bucket of "0 ahead" is nobody's


# KERPLE


@pytest.mark.parametrize("kind", ["log", "power"])
def test_kerple_is_its_formula(kind):
    encoding = kerple(num_heads=HEADS, kind=kind)
    params = encoding.init(jax.random.key(0))
    names = ("log_r1", "log_r2" if kind == "log" else "logit_r2")
    assert set(params) == set(names)
    r1 = np.exp(params["log_r1"])
    raw = np.asarray(params[names[1]])
    r2 = np.exp(raw) if kind == "log" else 2 / (1 + np.exp(-raw))
    x = np.abs(PLACES[:, None] - PLACES)
    r1, r2 = r1[:, None, None], r2[:, None, None]
    expected = r1 * (np.log(1 + r2 * x) if kind == "log" else x**r2)
    np.testing.assert_allclose(bias_at(encoding, params, PLACES), -expected, rtol=1e-12)

    @jax.jit
    @jax.grad
    def slopes(both):
        return jnp.sum(encoding.bias(both[0], blank(), blank(), both[1], both[1]) ** 2)

    for shift in (-30.0, 3.0):  # also at distance 0
        moved = jax.tree.map(lambda p, s=shift: p + s, params)
        for leaf in jax.tree.leaves(slopes((moved, PLACES + 0.0))):
            assert np.isfinite(leaf).all()


def test_kerple_starts_in_the_published_ranges():
    """r1 up to 2 and r2 up to 1 for the logarithm, r1 up to 1 and r2 up to 2 for the power."""
    log = kerple(num_heads=2000).init(jax.random.key(0))
    power = kerple(num_heads=2000, kind="power").init(jax.random.key(0))
    drawn = {
        2.0: (jnp.exp(log["log_r1"]), 2 * jax.nn.sigmoid(power["logit_r2"])),
        1.0: (jnp.exp(log["log_r2"]), jnp.exp(power["log_r1"])),
    }
    for most, values in drawn.items():
        for r in values:
            assert 0.01 * most <= r.min() < 0.02 * most
            assert 0.99 * most < r.max() <= most
            np.testing.assert_allclose(r.mean(), 0.505 * most, rtol=0.05)


# FIRE


def explicit_fire(params, i, j):
    """One entry, for every head."""
    p = {name: np.asarray(value) for name, value in params.items()}
    c, threshold = math.exp(p["log_c"]), math.exp(p["log_threshold"])
    x = math.log(c * abs(i - j) + 1) / math.log(c * max(threshold, i) + 1)
    hidden = np.maximum(x * p["weight_in"] + p["bias_in"], 0)
    return hidden @ p["weight_out"] + p["bias_out"]


def test_fire_is_its_formula():
    encoding = fire(num_heads=HEADS, threshold=4.5, hidden=5)
    params = encoding.init(jax.random.key(0))
    i = np.append(PLACES, -3)
    bias = bias_at(encoding, params, i)
    for a in range(len(i)):
        for b in range(len(i)):
            expected = explicit_fire(params, int(i[a]), int(i[b]))
            np.testing.assert_allclose(bias[:, a, b], expected, atol=1e-12)


def test_fire_is_finite_where_its_normaliser_underflows():
    encoding = fire(num_heads=HEADS, threshold=1e-30, c=1e-9)
    i = np.arange(3, dtype=np.int32)

    with jax.enable_x64(False):
        x = blank(3, dtype=jnp.float32)
        params = encoding.init(jax.random.key(0))

        @jax.jit
        def found(params):
            bias, back = jax.vjp(lambda p: encoding.bias(p, x, x, i, i), params)
            return bias, back(jnp.ones_like(bias))

        leaves = jax.tree.leaves(found(params))
    for leaf in leaves:
        assert np.isfinite(leaf).all()


# CoPE


def explicit_cope(table, q, k, i, j):
    """Entry by entry, with the count as a sum of gates."""
    n_q, heads, width = q.shape
    bias = np.zeros((heads, n_q, len(k)))
    for h in range(heads):
        for a in range(n_q):
            for b in range(len(k)):
                if j[b] > i[a]:
                    continue
                counted = [m for m in range(b, len(k)) if j[m] <= i[a]]
                gates = [1 / (1 + math.exp(-q[a, h] @ k[m, h] / width**0.5)) for m in counted]
                p = min(sum(gates), len(table) - 1)
                low, high = math.floor(p), math.ceil(p)
                below, above = q[a, h] @ table[low], q[a, h] @ table[high]
                bias[h, a, b] = (1 - (p - low)) * below + (p - low) * above
    return bias


@pytest.mark.parametrize("max_positions", [1, 3])
def test_cope_is_its_formula(max_positions):
    encoding = cope(head_dim=HEAD_DIM, max_positions=max_positions)
    table = normal(0, max_positions, HEAD_DIM)
    q, k = normal(1, 5, HEADS, HEAD_DIM), normal(2, 9, HEADS, HEAD_DIM)
    i, j = np.array([4, 5, 6, 7, 8]), np.arange(9)
    bias = jax.jit(lambda q, k: encoding.bias({"table": table}, q, k, i, j))(q, k)
    expected = explicit_cope(*map(np.asarray, (table, q, k)), i, j)
    np.testing.assert_allclose(bias, expected, atol=1e-12)


def test_cope_is_causal():
    """By the gradient of a row, beside differences."""
    encoding, i, row = cope(head_dim=HEAD_DIM, max_positions=4), np.arange(N), 3
    table = normal(0, 4, HEAD_DIM)
    q, k = normal(1, N, HEADS, HEAD_DIM), normal(2, N, HEADS, HEAD_DIM)

    @jax.jit
    def total(k):
        return jnp.sum(encoding.bias({"table": table}, q, k, i, i)[:, row] ** 2)

    check_grads(total, (k,), order=1, modes=("rev",))
    of_row = np.asarray(jax.grad(total)(k))
    assert not of_row[row + 1 :].any()
    assert of_row[: row + 1].any()


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: alibi(num_heads=0), "num_heads"),
        (lambda: inspect.unwrap(alibi)(num_heads=3, slopes=np.ones(2)), "shape"),
        (lambda: alibi(num_heads=2, slopes=-1.0), "slopes"),
        (lambda: t5(num_heads=2, num_buckets=7), "num_buckets"),
        (lambda: t5_buckets(np.arange(3), num_buckets=32, max_distance=8), "max_distance"),
        (lambda: fire(num_heads=2, c=0.0), "positive"),
        (lambda: bias_at(cope(head_dim=8, max_positions=4), {}, np.arange(3)), "head_dim"),
    ],
)
def test_bad_input_is_refused(call, word):
    with pytest.raises(ValueError, match=word):
        call()
