"""ALiBi, T5, KERPLE, FIRE and CoPE: their formulas, entry by entry, and laws of their own.

What all encodings of pairs have in common is in `test_pairs.py`.
"""

import functools
import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxpe import alibi, cope, euclidean_distances, fire, kerple, t5
from jaxpe.encodings import alibi_line, alibi_slopes, t5_buckets
from jaxpe.encodings.attention import attend

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


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (1, [2.0**-8]),
        (2, [2.0**-4, 2.0**-8]),
        (8, [2.0**-h for h in range(1, 9)]),
        (12, [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625,
              0.70710678, 0.35355338, 0.17677669, 0.08838835]),
    ],
)  # fmt: skip
def test_alibi_slopes(heads, slopes):
    np.testing.assert_allclose(alibi_slopes(heads), slopes, rtol=1e-7)


@pytest.mark.parametrize("heads", [1, 12])
def test_alibi_is_minus_slope_times_distance(heads):
    bias = bias_at(alibi(num_heads=heads), (), np.arange(5), heads)
    distance = np.abs(np.arange(5)[:, None] - np.arange(5))
    np.testing.assert_array_equal(bias, -alibi_slopes(heads)[:, None, None] * distance)


@pytest.mark.parametrize("heads", [1, 4])
def test_alibi_vectors_have_the_biases_as_distances(heads):
    encoding = alibi(num_heads=heads)
    points = encoding.vectors((), PLACES)
    assert points.shape == (N, heads)
    expected = -bias_at(encoding, (), PLACES, heads)
    np.testing.assert_allclose(
        euclidean_distances(points).values, np.linalg.norm(expected, axis=0), rtol=1e-12
    )
    line = alibi_line(PLACES, slope=alibi_slopes(heads)[0])
    np.testing.assert_array_equal(points[:, :1], line)


def test_causal_alibi_is_linear_and_the_same_to_a_causal_softmax():
    symmetric = bias_at(alibi(num_heads=HEADS), (), PLACES)
    linear = bias_at(alibi(num_heads=HEADS, causal=True), (), PLACES)
    past = PLACES[None, :] <= PLACES[:, None]
    np.testing.assert_array_equal(linear[:, past], symmetric[:, past])
    np.testing.assert_array_equal(linear[:, ~past], -symmetric[:, ~past])

    i = np.arange(N)
    q, k, v = (normal(seed, N, HEADS, HEAD_DIM) for seed in range(3))
    where = {"q_positions": i, "k_positions": i, "mask": np.tri(N, dtype=bool)}
    outputs = [
        attend(alibi(num_heads=HEADS, causal=causal), (), q, k, v, **where)
        for causal in (False, True)
    ]
    np.testing.assert_allclose(*outputs, atol=1e-14)


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
    steep = jax.tree.map(lambda p: p - 50.0, params)
    assert (bias_at(encoding, steep, PLACES) <= 0).all()


def test_alibi_is_differentiable_in_given_slopes():
    def total(slopes):
        x = blank()
        return alibi(num_heads=HEADS, slopes=slopes).bias((), x, x, PLACES, PLACES).sum()

    distances = np.abs(PLACES[:, None] - PLACES).sum()
    np.testing.assert_allclose(jax.jit(jax.grad(total))(jnp.ones(HEADS)), [-distances] * HEADS)


# T5


def rounded_buckets(offsets, *, num_buckets, max_distance, bidirectional):
    """The formula with its logarithm in float32, as it is written everywhere else."""
    first = np.zeros_like(offsets)
    if bidirectional:
        num_buckets //= 2
        first, distance = (offsets > 0) * num_buckets, np.abs(offsets)
    else:
        distance = np.maximum(-offsets, 0)
    exact = num_buckets // 2
    logs = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact))
    logs = logs / np.float32(math.log(max_distance / exact)) * np.float32(num_buckets - exact)
    wide = np.minimum(exact + logs.astype(int), num_buckets - 1)
    return first + np.where(distance < exact, distance, wide)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (320, 800), (6, 50)])
def test_t5_buckets(num_buckets, max_distance, bidirectional):
    options = {
        "num_buckets": num_buckets,
        "max_distance": max_distance,
        "bidirectional": bidirectional,
    }
    offsets = np.arange(-1000, 1001)
    buckets = jax.jit(functools.partial(t5_buckets, **options))
    ours = np.asarray(buckets(offsets))
    np.testing.assert_array_equal(ours, rounded_buckets(offsets, **options))
    as_floats = buckets(offsets.astype(np.float32))
    np.testing.assert_array_equal(ours, as_floats)
    assert ours.min() == 0
    assert ours.max() == num_buckets - 1
    far = buckets(np.array([-(10**6), 10**6]))
    np.testing.assert_array_equal(far, ours[[0, -1]])


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


def test_t5_gradient_is_the_sum_over_the_pairs_of_a_bucket():
    encoding = t5(num_heads=HEADS, num_buckets=8, max_distance=20)
    params = {"table": normal(0, 8, HEADS)}
    cotangent = np.asarray(normal(1, HEADS, N, N))

    def total(params):
        return jnp.sum(encoding.bias(params, blank(), blank(), PLACES, PLACES) * cotangent)

    expected = np.zeros((8, HEADS))
    buckets = np.asarray(t5_buckets(PLACES[None] - PLACES[:, None], num_buckets=8, max_distance=20))
    for i in range(N):
        for j in range(N):
            expected[buckets[i, j]] += cotangent[:, i, j]
    np.testing.assert_allclose(jax.jit(jax.grad(total))(params)["table"], expected, atol=1e-12)


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
    assert ((r1 > 0) & (r1 < (2 if kind == "log" else 1))).all()
    assert ((r2 > 0) & (r2 < (1 if kind == "log" else 2))).all()
    bias = bias_at(encoding, params, PLACES)
    for h in range(HEADS):
        for a, i in enumerate(PLACES):
            for b, j in enumerate(PLACES):
                x = abs(int(i) - int(j))
                expected = r1[h] * (math.log(1 + r2[h] * x) if kind == "log" else x ** r2[h])
                assert bias[h, a, b] == pytest.approx(-expected, rel=1e-12)


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


@pytest.mark.parametrize("kind", ["log", "power"])
@pytest.mark.parametrize("shift", [-30.0, 3.0])
def test_kerple_falls_and_has_derivatives_everywhere(kind, shift):
    encoding = kerple(num_heads=HEADS, kind=kind)
    params = jax.tree.map(lambda p: p + shift, encoding.init(jax.random.key(0)))
    i = jnp.arange(4.0)

    def total(params, i):
        return jnp.sum(encoding.bias(params, blank(4), blank(4), i, i) ** 2)

    from_first = bias_at(encoding, params, np.arange(4))[:, 0]
    assert (np.diff(from_first, axis=-1) <= 0).all()
    for leaf in jax.tree.leaves(jax.jit(jax.grad(total, argnums=(0, 1)))(params, i)):
        assert np.isfinite(leaf).all()


# FIRE


def explicit_fire(params, i, j):
    """One entry, for every head."""
    p = {name: np.asarray(value) for name, value in params.items()}
    c, threshold = math.exp(p["log_c"]), math.exp(p["log_threshold"])
    x = math.log(c * abs(i - j) + 1) / math.log(c * max(threshold, i) + 1)
    hidden = np.maximum(x * p["weight_in"] + p["bias_in"], 0)
    return hidden @ p["weight_out"] + p["bias_out"]


@pytest.mark.parametrize("threshold", [4.5, 512.0])
def test_fire_is_its_formula(threshold):
    encoding = fire(num_heads=HEADS, threshold=threshold, hidden=5)
    params = encoding.init(jax.random.key(0))
    i = np.append(PLACES, -3)
    bias = bias_at(encoding, params, i)
    for a in range(len(i)):
        for b in range(len(i)):
            expected = explicit_fire(params, int(i[a]), int(i[b]))
            np.testing.assert_allclose(bias[:, a, b], expected, atol=1e-12)


def test_fire_has_derivatives_at_the_first_position():
    encoding = fire(num_heads=HEADS)
    params = encoding.init(jax.random.key(0))
    i = jnp.array([-2.0, 0.0, 1.0, 600.0])

    def total(params, i):
        return jnp.sum(encoding.bias(params, blank(4), blank(4), i, i) ** 2)

    for leaf in jax.tree.leaves(jax.jit(jax.grad(total, argnums=(0, 1)))(params, i)):
        assert np.isfinite(leaf).all()
        assert np.abs(leaf).max() > 0


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


@pytest.mark.parametrize("max_positions", [1, 3, 16])
def test_cope_is_its_formula(max_positions):
    encoding = cope(head_dim=HEAD_DIM, max_positions=max_positions)
    table = normal(0, max_positions, HEAD_DIM)
    q, k = normal(1, 5, HEADS, HEAD_DIM), normal(2, 9, HEADS, HEAD_DIM)
    i, j = np.array([4, 5, 6, 7, 8]), np.arange(9)
    bias = jax.jit(lambda q, k: encoding.bias({"table": table}, q, k, i, j))(q, k)
    expected = explicit_cope(*map(np.asarray, (table, q, k)), i, j)
    np.testing.assert_allclose(bias, expected, atol=1e-12)


def test_cope_is_causal_and_differentiable_in_everything():
    encoding = cope(head_dim=HEAD_DIM, max_positions=4)
    i = np.arange(N)
    table = normal(0, 4, HEAD_DIM)
    q, k = normal(1, N, HEADS, HEAD_DIM), normal(2, N, HEADS, HEAD_DIM)

    def total(table, q, k):
        return jnp.sum(encoding.bias({"table": table}, q, k, i, i) ** 2)

    check_grads(jax.jit(total), (table, q, k), order=1, modes=("fwd", "rev"))
    for gradient in jax.jit(jax.grad(total, argnums=(0, 1, 2)))(table, q, k):
        assert np.abs(gradient).max() > 1e-3
    row = 3

    @jax.jit
    @jax.grad
    def of_row_by(k):
        return jnp.sum(encoding.bias({"table": table}, q, k, i, i)[:, row] ** 2)

    of_row = np.asarray(of_row_by(k))
    assert not of_row[row + 1 :].any()
    assert of_row[: row + 1].any()


# Errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: alibi(num_heads=0), "num_heads must be at least 1, not 0"),
        (
            lambda: inspect.unwrap(alibi)(num_heads=3, slopes=np.ones(2)),
            r"\(2,\).* shape \(3,\)",
        ),
        (lambda: alibi(num_heads=2, slopes=-1.0), "slopes must be at least 0, not"),
        (
            lambda: alibi(num_heads=2, slopes=np.array([1.0, 0.0]), learnable=True),
            "slopes must be positive to be learned",
        ),
        (lambda: t5(num_heads=2, num_buckets=7), "num_buckets is 7: pass an even number from 4"),
        (
            lambda: t5_buckets(np.arange(3), num_buckets=32, max_distance=8),
            "max_distance is 8, but the first 8 distances .* pass at least 9",
        ),
        (lambda: fire(num_heads=2, c=0.0), "c must be positive, not 0.0"),
        (
            lambda: bias_at(cope(head_dim=8, max_positions=4), {}, np.arange(3)),
            "built for head_dim=8, .* pass head_dim=4",
        ),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
