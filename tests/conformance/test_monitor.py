"""The monitor's numbers against direct computations; rows with and without a sink."""

import gc
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.conformance import PositionMonitor
from jaxpe.conformance.monitor import positional_score, semantic_score
from jaxpe.conformance.reference import Inputs, layer_attention
from jaxpe.plans import simple_plan

PLAN = simple_plan(head_dim=8, base=100.0, context=64)
WHOLE = {"rows": 99, "heads": 99, "queries": 999}  # no sampling


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def softmax(logits):
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def causal_weights(logits):
    """Weights `[1, heads, n, n]` of logits `[heads, n, n]`."""
    allowed = np.tri(logits.shape[-1], dtype=bool)
    return softmax(np.where(allowed, logits, -np.inf))[None]


def numbers_of(*, plan=PLAN, causal=True, **arrays):
    monitor = PositionMonitor(plan, name="x", causal=causal, **WHOLE)
    return {name.removeprefix("x/"): value for name, value in monitor.look(0, **arrays).items()}


def shares(numbers):
    return {name: x for name, x in numbers.items() if name.startswith(("attention", "sinks"))}


def reference_weights(q, k, plan, segments, *, causal=True):
    """Weights by the reference in float64: its output for values that are unit vectors."""
    batch, n, heads = q.shape[:3]
    order = np.broadcast_to(np.arange(n), (batch, n))
    values = np.broadcast_to(np.eye(n)[:, None], (batch, n, k.shape[2], n))
    inputs = Inputs(q, k, values, order, order, segments, segments, order, order)
    attention = layer_attention(plan, heads, k.shape[2], causal=causal)
    return attention(inputs).swapaxes(1, 2)


PLANS = {
    "half": PLAN,
    "interleaved": simple_plan(head_dim=8, base=100.0, pairing="interleaved"),
    "part": simple_plan(head_dim=4, base=100.0)._replace(head_dim=8),
    "last": simple_plan(head_dim=4, base=100.0)._replace(head_dim=8, place="last"),
    "window": PLAN._replace(window=5),
    "factors": PLAN._replace(attention_factor=1.4, logit_factor=0.7),
    "none": PLAN._replace(kind="none", turning=0, frequencies=np.zeros(0)),
}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", PLANS)
def test_weights_of_a_plan_are_those_of_the_reference(name, causal):
    plan = PLANS[name] if causal else PLANS[name]._replace(two_sided=True)
    q, k = drawn(2, 24, 4, 8), drawn(2, 24, 2, 8, seed=1)
    segments = np.repeat([1, 2], 12) * np.ones((2, 1), int)
    weights = reference_weights(q, k, plan, segments, causal=causal)
    found = numbers_of(plan=plan, causal=causal, queries=q, keys=k, segments=segments)
    wanted = numbers_of(plan=plan, causal=causal, weights=weights, segments=segments)
    assert shares(found) == pytest.approx(wanted, abs=1e-6)
    assert sum(x for label, x in wanted.items() if "offset" in label) == pytest.approx(1)


def test_chunks_and_scaled_queries_change_the_weights():
    q, k = drawn(1, 32, 2, 8), drawn(1, 32, 2, 8, seed=1)
    chunked = PLAN._replace(name="chunked_attention", window=8)
    documents = np.repeat(np.arange(1, 5), 8)
    assert shares(numbers_of(plan=chunked, queries=q, keys=k)) == pytest.approx(
        shares(numbers_of(queries=q, keys=k, segments=documents))
    )


def test_a_previous_token_head_looks_at_distance_one():
    weights = np.eye(32, k=-1)[None, None]
    weights[..., 0, 0] = 1
    found = numbers_of(weights=weights)
    assert found["attention_share/offset_1"] == pytest.approx(31 / 32)
    assert found["attention_share/offset_8-15"] == 0
    assert found["sinks/heads"] == 0


def test_padding_is_left_out():
    q, k, loss = drawn(1, 40, 2, 8), drawn(1, 40, 2, 8, seed=1), drawn(1, 40)
    mask = np.arange(40) < 30
    short = numbers_of(queries=q[:, :30], keys=k[:, :30], losses=loss[:, :30])
    padded = numbers_of(queries=q, keys=k, losses=loss, segments=mask)
    scores = {name for name in short if "scores" in name}  # of random keys
    assert {name: padded[name] for name in short if name not in scores} == pytest.approx(
        {name: short[name] for name in short if name not in scores}, abs=1e-6
    )
    assert numbers_of(queries=q, keys=k, losses=loss, segments=0 * mask) == {}


def without_sink(seed, n=256, heads=4):
    """Attention by content, by distance, to the previous token and to one random key."""
    rng = np.random.default_rng(seed)
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    logits = {
        "uniform": np.zeros((heads, n, n)),
        "random": rng.normal(size=(heads, n, n)),
        "peaked": 3 * rng.normal(size=(heads, n, n)),
        "local": -0.5 * distance + rng.normal(size=(heads, n, n)),
        "previous": -50.0 * (distance != 1) + 0 * rng.normal(size=(heads, n, n)),
        "one key": 1e3 * rng.normal(size=(heads, n, n)),
    }
    return {name: causal_weights(values) for name, values in logits.items()}


@pytest.mark.parametrize("queries", [16, 64, 999])
def test_no_alarm_without_a_sink(queries):
    monitor = PositionMonitor(PLAN, rows=9, heads=9, queries=queries)
    found = {
        (seed, name): monitor.look(0, weights=weights)["position/sinks/heads"]
        for seed in range(5)
        for name, weights in without_sink(seed).items()
    }
    assert [case for case, heads in found.items() if heads] == []


@pytest.mark.parametrize(("n", "found"), [(26, None), (27, 1.0)])
def test_a_key_needs_eight_queries_that_see_twenty_keys(n, found):
    weights = np.tri(n) / 99  # of 27 queries, the last eight see 20 keys or more
    weights[:, 0] = 1
    assert numbers_of(weights=weights[None, None]).get("sinks/heads") == found


@pytest.mark.parametrize("position", [0, 5, 100])
@pytest.mark.parametrize("kind", ["random", "peaked", "local"])
def test_a_planted_sink_is_found(position, kind):
    weights = without_sink(0)[kind].copy()
    weights[:, 0] *= 0.6
    weights[:, 0, position:, position] += 0.4
    weights /= weights.sum(-1, keepdims=True)
    found = PositionMonitor(PLAN, heads=9).look(0, weights=weights)
    assert found["position/sinks/heads"] == 1 / 4
    assert found["position/sinks/position"] == position
    assert 0.05 < found["position/sinks/share"] < 0.12
    expected = found["position/sinks/share"] if position else 0
    assert found["position/sinks/share_after_first"] == expected


def test_short_rows_say_nothing_of_sinks():
    assert not [name for name in numbers_of(weights=np.eye(12)[None, None]) if "sinks" in name]


def test_energy_is_in_the_band_of_its_frequency():
    plan = simple_plan(head_dim=8, base=1e4, context=6000)  # 955, 95.5, 9.5 and 0.95 rounds
    q = np.zeros((1, 9, 1, 8))
    q[..., 1] = q[..., 5] = 3  # the second frequency
    q[..., 3] = 1  # the last one
    found = numbers_of(plan=plan, queries=q, keys=q)
    assert found["band_energy/rounds_10-100"] == pytest.approx(18 / 19)
    assert found["band_energy/rounds_under_1"] == pytest.approx(1 / 19)


# rope-profiler 0.1.0, `score_activations` for these queries and keys, by the length of the window.
SCORES = {
    2: (0.9301495319719316, 0.12469245968627458),
    40: (0.8602699216005248, 0.13051693195928613),
    257: (0.7076711147430483, 0.13143904521734756),
}


@pytest.mark.parametrize("window", SCORES)
def test_scores_are_those_of_the_authors_package(window):
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(3, 16)), rng.normal(size=(8, 16))
    frequencies = 1e4 ** (-np.arange(6) / 6)
    plan = simple_plan(head_dim=12)._replace(head_dim=16)
    q, k = PositionMonitor(plan)._pairs(q) / 4, PositionMonitor(plan)._pairs(k)
    products = q[:, None] * k.conj()
    differences = (products[:, ::2] - products[:, 1::2]).reshape(-1, 10)
    semantic = semantic_score(differences, np.pad(frequencies, (0, 4)), window)
    positional = positional_score(products[..., :6], frequencies, window)
    assert (semantic, positional) == pytest.approx(SCORES[window], abs=1e-12)


def test_scores_of_enumerated_offsets():
    """Semantic: mean and spread over all offsets. Positional: changes over all offsets."""
    window, frequencies = 50, np.array([1.0, 0.1, 0.0])
    d = drawn(7, 3) + 1j * drawn(7, 3, seed=1)
    values = (d @ np.exp(1j * np.outer(frequencies, np.arange(window)))).real
    z = np.sign(values[:, 0]) * values.mean(-1) / values.std(-1)
    assert semantic_score(d, frequencies, window) == pytest.approx(
        np.mean([NormalDist().cdf(one) for one in z])
    )
    changes = np.abs(np.diff(values)).mean(-1) / np.linalg.norm(d, axis=-1)
    assert positional_score(d, frequencies, window) == pytest.approx(changes.mean())


def test_what_is_not_defined_is_seen():
    found = numbers_of(queries=np.zeros((1, 40, 2, 8)), keys=np.zeros((1, 40, 2, 8)))
    assert np.isnan(found["scores/semantic"])
    assert found["attention_share/offset_0"] > 0
    assert np.isnan(numbers_of(losses=np.full((1, 4), np.nan))["loss/position_0"])


def test_loss_by_position():
    losses = np.arange(16.0) * np.ones((3, 1))
    found = numbers_of(losses=losses)
    assert found["loss/position_1"] == 1
    assert found["loss/position_8-15"] == pytest.approx(np.mean(np.arange(8, 16)))
    packed = numbers_of(losses=losses, positions=np.tile(np.arange(8), 2))
    assert packed["loss/position_0"] == 4
    assert "loss/position_8-15" not in packed


def test_the_sample_has_the_numbers_of_the_whole():
    """Every second head and every fourth query."""
    q = np.repeat(np.repeat(drawn(1, 16, 1, 8), 4, 1), 4, 2)  # grouped: two heads of keys
    k = np.repeat(drawn(1, 64, 1, 8, seed=1), 2, 2)
    weights = reference_weights(q, k, PLAN, np.ones((1, 64), int))[:, ::2, 3::4]
    found = PositionMonitor(PLAN, heads=2, queries=16).look(0, queries=q, keys=k)
    distance = np.abs(np.arange(64)[3::4, None] - np.arange(64))
    near = weights[:, :, distance == 1].sum() / weights.sum()
    assert found["position/attention_share/offset_1"] == pytest.approx(near, abs=1e-6)


@pytest.mark.parametrize(
    ("heads", "key_heads", "most"), [(8, 8, 3), (8, 2, 4), (8, 1, 2), (6, 2, 4)]
)
def test_query_heads_get_their_own_keys(heads, key_heads, most):
    q, k = drawn(1, 20, heads, 8), drawn(1, 20, key_heads, 8, seed=1)
    weights = reference_weights(q, k, PLAN, np.ones((1, 20), int))
    monitor = PositionMonitor(PLAN, heads=most)
    wanted = monitor.look(0, weights=weights)
    found = monitor.look(0, queries=q, keys=k)
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, abs=1e-6)


def test_arrays_of_jax_in_half_precision():
    q, k = (jnp.asarray(drawn(2, 32, 2, 8, seed=seed), jnp.bfloat16) for seed in (0, 1))
    exact = numbers_of(queries=np.asarray(q, float), keys=np.asarray(k, float))
    assert numbers_of(queries=q, keys=k) == pytest.approx(exact, abs=1e-6)


def test_numbers_go_to_the_logger_at_steps_that_are_due():
    logged = []
    monitor = PositionMonitor(PLAN, every=10, log=lambda numbers, step: logged.append(step))
    for step in range(21):
        if monitor.due(step):
            monitor.look(step, losses=np.ones((1, 4)))
    assert logged == [0, 10, 20]


def test_nothing_is_held_on_the_device_between_looks():
    monitor = PositionMonitor(PLAN)
    q, k, losses = jnp.ones((2, 64, 4, 8)), jnp.ones((2, 64, 2, 8)), jnp.ones((2, 64))
    monitor.look(0, queries=q, keys=k, losses=losses)
    gc.collect()
    before, state = {id(array) for array in jax.live_arrays()}, dict(vars(monitor))
    monitor.look(1, queries=q, keys=k, losses=losses)
    gc.collect()
    assert {id(array) for array in jax.live_arrays()} == before
    assert vars(monitor) == state


Q = np.ones((2, 8, 4, 8))


@pytest.mark.parametrize(
    "arrays",
    [
        {"queries": Q},
        {"keys": Q},
        {"queries": Q, "keys": Q[:, :7]},
        {"queries": Q, "keys": Q[:, :, :3]},
        {"queries": Q[0], "keys": Q[0]},
        {"queries": Q[..., :6], "keys": Q[..., :6]},
        {"weights": np.ones((2, 4, 8, 7))},
        {"weights": np.ones((2, 4, 8, 8)), "positions": np.arange(7)},
        {"losses": np.ones((2, 8)), "segments": np.ones((3, 8))},
    ],
)
def test_shapes_that_do_not_fit_are_refused(arrays):
    with pytest.raises(InputError):
        numbers_of(**arrays)


def test_layers_with_a_bias_need_weights():
    with pytest.raises(InputError, match="weights"):
        numbers_of(plan=PLAN._replace(kind="bias"), queries=Q, keys=Q)
    assert numbers_of(plan=PLAN._replace(kind="bias"), weights=np.ones((1, 1, 8, 8)) / 8)


@pytest.mark.parametrize("size", ["every", "rows", "heads", "queries"])
def test_sizes_are_positive(size):
    with pytest.raises(InputError, match="at least 1"):
        PositionMonitor(PLAN, **{size: 0})


def test_the_order_of_tokens_does_not_matter():
    """Shards in zigzag order see what the whole row sees."""
    q, k = np.random.default_rng(5).normal(size=(2, 2, 64, 4, 8))
    order = np.r_[0:16, 48:64, 16:48]
    monitor = PositionMonitor(simple_plan(head_dim=8, base=1e4), queries=64)
    whole = monitor.look(0, queries=q, keys=k)
    positions = np.tile(order, (2, 1))
    sharded = monitor.look(0, queries=q[:, order], keys=k[:, order], positions=positions)
    for name in whole:
        if "attention_share" in name or "sinks" in name:
            assert sharded[name] == pytest.approx(whole[name], abs=1e-6)


def test_tokens_without_loss_are_left_out():
    losses = np.full((2, 7), 2.0)
    losses[1, 3:] = np.nan
    monitor = PositionMonitor(simple_plan(head_dim=8))
    found = monitor.look(0, losses=losses, positions=np.arange(8))
    assert set(found.values()) == {2.0}
    with pytest.raises(InputError, match="not \\(2, 7\\)"):
        monitor.look(0, losses=losses, positions=np.arange(12))
