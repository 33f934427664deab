"""The fast counts against the definitions, triple by triple."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpe import (
    Distances,
    as_distances,
    euclidean_distances,
    is_monotone,
    monotonicity_violation_rate,
)

is_monotone, monotonicity_violation_rate = map(
    partial(jax.jit, static_argnames="tolerance"), (is_monotone, monotonicity_violation_rate)
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
    n = draw(st.sampled_from([1, 2, 7, 40]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    delta = abs(np.arange(n)[:, None] - np.arange(n)[None]) * draw(st.sampled_from([0.0, 1.0]))
    noise = draw(st.sampled_from([0, 1, 3, 40]))
    noise = rng.integers(0, noise + 1, (n, n)) * draw(st.sampled_from([0.1, 1.0]))
    delta = np.where(np.eye(n, dtype=bool), 0.0, delta + noise + noise.T)
    return delta, rng.random(n) < draw(st.sampled_from([0.3, 0.8, 1.0]))


@settings(max_examples=60, deadline=None)
@given(matrices())
def test_counts_equal_the_definitions(example):
    delta, present = example
    compared, violated = triples(delta, present)
    D = Distances(jnp.asarray(delta), jnp.asarray(present))
    rate = monotonicity_violation_rate(D)
    np.testing.assert_allclose(rate, violated / max(compared, 1), atol=1e-15)
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


def test_nan_is_neither_a_rate_nor_monotone():
    P = np.arange(5.0)[:, None]
    P[2] = np.nan
    assert np.isnan(monotonicity_violation_rate(P))
    assert not bool(is_monotone(P))
    assert np.isnan(monotonicity_violation_rate(euclidean_distances(P)))
