"""The fast counts against the definitions, triple by triple."""

import importlib
import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxpe
from jaxpe import Distances, PointCloud, euclidean_distances, monotonicity_violation_rate
from jaxpe.geometry import as_distances, as_points, is_monotone

is_monotone = jax.jit(is_monotone, static_argnames="tolerance")
monotonicity_violation_rate = jax.jit(
    monotonicity_violation_rate, static_argnames=("tolerance", "include_self")
)
TOLERANCE = 1e-5


def triples(delta, present):
    """All (i, j, k) distinct and present with |i − j| < |i − k|: how many, and how many violate."""
    n = len(delta)
    i, j, k = np.ogrid[:n, :n, :n]
    distinct = (i != j) & (i != k) & (j != k) & present[i] & present[j] & present[k]
    compared = distinct & (abs(i - j) < abs(i - k))
    slack = TOLERANCE * np.max(delta * np.outer(present, present), initial=0.0)
    return compared.sum(), (compared & (delta[:, :, None] > delta[:, None, :] + slack)).sum()


def definition_9(delta, present):
    n = len(delta)
    i, j, k = np.ogrid[:n, :n, :n]
    asked = present[i] & present[j] & present[k] & (abs(i - j) <= abs(i - k))
    slack = TOLERANCE * np.max(delta * np.outer(present, present), initial=0.0)
    return not (asked & (delta[:, :, None] > delta[:, None, :] + slack)).any()


@st.composite
def matrices(draw):
    n = draw(st.sampled_from([1, 2, 12]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    delta = abs(np.arange(n)[:, None] - np.arange(n)[None]) * draw(st.sampled_from([0.0, 1.0]))
    noise = draw(st.sampled_from([0, 1, 3, 40]))
    noise = rng.integers(0, noise + 1, (n, n)) * draw(st.sampled_from([0.1, 1.0]))
    delta = np.where(np.eye(n, dtype=bool), 0.0, delta + noise + noise.T)
    return delta, rng.random(n) < draw(st.sampled_from([0.3, 0.8, 1.0]))


@settings(max_examples=25, deadline=None)
@given(matrices())
def test_counts_equal_the_definitions(example):
    delta, present = example
    compared, violated = triples(delta, present)
    D = Distances(jnp.asarray(delta), jnp.asarray(present))
    rate = monotonicity_violation_rate(D)
    np.testing.assert_allclose(rate, violated / max(compared, 1), atol=1e-15)
    with_self = monotonicity_violation_rate(D, include_self=True)
    themselves = present.sum() * (present.sum() - 1)  # j = i, which is nearer than any k
    np.testing.assert_allclose(with_self, violated / max(compared + themselves, 1), atol=1e-15)
    assert bool(is_monotone(D)) == definition_9(delta, present)
    # A mask given by hand is the same as one carried by the distances.
    by_hand = as_distances(delta)
    np.testing.assert_allclose(monotonicity_violation_rate(by_hand, present=present), rate)
    assert is_monotone(by_hand, present=present) == is_monotone(D)


def test_shift_and_reflection_change_nothing():
    P = np.random.default_rng(0).standard_normal((12, 3))
    rate = monotonicity_violation_rate(P)
    assert 0.2 < rate < 0.8
    np.testing.assert_allclose(monotonicity_violation_rate(P[::-1]), rate)
    shifted = np.concatenate([np.full((4, 3), np.nan), P, np.full((3, 3), np.nan)])
    present = np.isfinite(shifted[:, 0])
    np.testing.assert_allclose(monotonicity_violation_rate(shifted, present=present), rate)
    np.testing.assert_allclose(monotonicity_violation_rate(1e-6 * P + 1.0), rate)


def test_holes_keep_the_ids_of_the_positions():
    P = np.array([[0.0], [9.0], [2.0], [3.0]])
    # At their own ids 0, 2, 3 there is a triple around each; at 0, 1, 2 none around the middle.
    present = np.array([True, False, True, True])
    compared, violated = triples(np.abs(P - P.T), present)
    assert compared == 3
    assert violated == 0
    assert monotonicity_violation_rate(P, present=present) == 0
    assert monotonicity_violation_rate(P) > 0


@pytest.mark.parametrize("n", [5, 40])
def test_known_encodings(n):
    line = np.arange(n, dtype=float)[:, None]
    assert bool(is_monotone(line))
    assert monotonicity_violation_rate(line) == 0
    assert not bool(is_monotone(line**2))
    assert monotonicity_violation_rate(np.ones((n, 2))) == 0  # all distances tie


def test_ties_are_not_decided_by_rounding():
    simplex = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 20)))[0]
    assert monotonicity_violation_rate(simplex) == 0
    assert bool(is_monotone(simplex))
    assert monotonicity_violation_rate(simplex, tolerance=0.0) > 0.2


@pytest.mark.parametrize("n", [2, 40])
def test_points_row_by_row_are_as_their_matrix(n, monkeypatch):
    monkeypatch.setattr("jaxpe.geometry.distances.monotonicity.TOGETHER", 3 * n)  # 3 rows
    P = np.random.default_rng(n).standard_normal((n, 3))
    present = np.arange(n) % 4 != 1
    junk = np.where(present[:, None], P, np.nan)
    cloud = PointCloud(jnp.asarray(junk), jnp.asarray(present))
    rate = jax.jit(lambda D: inspect.unwrap(jaxpe.monotonicity_violation_rate)(D))
    D = euclidean_distances(P, present=present)
    np.testing.assert_allclose(rate(cloud), rate(D), rtol=1e-12)
    line = PointCloud(jnp.arange(float(n))[:, None], jnp.asarray(present))
    assert bool(is_monotone(line))
    assert rate(line) == 0
    assert bool(is_monotone(cloud)) == bool(is_monotone(D))


def test_rows_whose_pairs_exceed_int32_are_counted_in_floats():
    from jaxpe.geometry.distances.monotonicity import _row_inversions

    n = 60_000
    i, present = jnp.asarray(0), jnp.ones(n, bool)
    falling = jnp.where(jnp.arange(n) == 0, 0.0, n - jnp.arange(n, dtype=float))
    row = jax.jit(lambda delta: _row_inversions(delta, i, present, jnp.zeros(())))
    inversions, pairs = row(falling)
    assert inversions == pairs == (n - 1) * (n - 2) / 2


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_neither_monotone_nor_a_rate(bad):
    P = np.arange(9.0)[:, None]
    P[4] = bad
    for encoding in (P, as_points(P)):
        assert np.isnan(jaxpe.monotonicity_violation_rate(encoding))
        assert not is_monotone(encoding)
        here = np.arange(9) < 4
        assert jaxpe.monotonicity_violation_rate(encoding, present=here) == 0
        assert is_monotone(encoding, present=here)


def test_numpy_masks_are_taken_without_jit():
    P, present = np.arange(6.0)[:, None], np.arange(6) != 2
    for encoding in (PointCloud(P, present), Distances(abs(P - P.T), present)):
        assert jaxpe.monotonicity_violation_rate(encoding) == 0


@pytest.mark.parametrize("include_self", [True, False])
def test_pair_by_pair_and_by_merging_the_same_is_counted(monkeypatch, include_self):
    module = importlib.import_module("jaxpe.geometry.distances.monotonicity")
    rng = np.random.default_rng(0)
    P, present = np.round(rng.normal(size=(24, 3)), 1), rng.random(24) < 0.8  # with ties
    rates = []
    for limit in (0, 24):
        monkeypatch.setattr(module, "_PAIRWISE", limit)
        # A function of its own each time: the same one would not be traced again.
        rate = partial(
            inspect.unwrap(module.monotonicity_violation_rate), include_self=include_self
        )
        rates.append(
            float(jax.jit(lambda P, present, rate=rate: rate(P, present=present))(P, present))
        )
    assert rates[0] == rates[1]
