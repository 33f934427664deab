"""The fast counts against the definitions, triple by triple."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import geometry
from jaxpe.geometry import Distances, PointCloud
from jaxpe.geometry.distances.matrices import as_distances
from jaxpe.geometry.distances.monotonicity import is_monotone
from jaxpe.geometry.distances.points import as_points

TOLERANCE = 1e-5


def triples(delta, present):
    """Comparable triples of distinct positions, violations, and whether Definition 9 holds."""
    where = np.flatnonzero(present)
    delta, n = delta[np.ix_(where, where)], len(where)
    near = np.abs(where[:, None] - where[None])
    slack, (i, j, k) = TOLERANCE * delta.max(initial=0.0), np.ogrid[:n, :n, :n]
    above = delta[:, :, None] > delta[:, None, :] + slack
    distinct = (i != j) & (i != k) & (j != k) & (near[:, :, None] < near[:, None, :])
    holds = not (above & (near[:, :, None] <= near[:, None, :])).any()
    return distinct.sum(), (distinct & above).sum(), holds


@jax.jit
def found(encoding):
    rate = geometry.monotonicity_violation_rate
    return rate(encoding), rate(encoding, include_self=True), is_monotone(encoding)


@pytest.mark.parametrize("n", [2, 12, 130, 260])
def test_counts_equal_the_definitions(n):
    """Pair by pair, some rows at a time, and beyond 256 positions by merging; with ties."""
    line = np.arange(float(n))[:, None]
    for seed in range(25 if n < 100 else 1):
        rng = np.random.default_rng(seed)
        noise = rng.choice([0, 1, 3, 40])
        points = rng.choice([0.0, 1.0]) * line + rng.integers(0, noise + 1, (n, 2)) * 0.1
        present = rng.random(n) < rng.choice([0.3, 0.8, 1.0])
        delta = np.linalg.norm(points[:, None] - points[None], axis=-1)
        compared, violated, holds = triples(delta, present)
        expected = [violated / max(compared, 1)]
        themselves = present.sum() * (present.sum() - 1)  # j = i, which is nearer than any k
        expected += [violated / max(compared + themselves, 1), holds]
        points = jnp.asarray(np.where(present[:, None], points, np.nan))
        for encoding in (
            Distances(jnp.asarray(delta), jnp.asarray(present)),
            PointCloud(points, jnp.asarray(present)),
        ):
            np.testing.assert_allclose(found(encoding), expected, atol=1e-15)


def test_masks_given_by_hand_are_those_of_the_encoding():
    P = np.array([[0.0], [9.0], [2.0], [3.0]])
    # At their own ids 0, 2, 3 there is a triple around each; at 0, 1, 2 none around the middle.
    present = np.array([True, False, True, True])
    for encoding in (P, as_points(P), as_distances(np.abs(P - P.T)), PointCloud(P, present)):
        rate = partial(geometry.monotonicity_violation_rate, encoding, present=present)
        assert rate() == 0
        assert is_monotone(encoding, present=present) == triples(np.abs(P - P.T), present)[2]
    assert geometry.monotonicity_violation_rate(P) > 0


@pytest.mark.parametrize("n", [12, 260])
def test_known_encodings(n):
    line = np.stack([np.arange(n), np.zeros(n)], axis=1)
    for points, rate, monotone in ((line, 0, True), (line**2, None, False), (0 * line, 0, True)):
        found_rate, _, found_monotone = found(as_points(points))
        assert rate in (None, found_rate)
        assert found_monotone == monotone


def test_ties_are_not_decided_by_rounding():
    simplex = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 20)))[0]
    assert [float(x) for x in found(simplex)] == [0, 0, 1]
    assert geometry.monotonicity_violation_rate(simplex, tolerance=0.0) > 0.2


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_neither_monotone_nor_a_rate(bad):
    P = np.arange(9.0)[:, None]
    P[4] = bad
    for encoding in (P, as_points(P)):
        assert np.isnan(geometry.monotonicity_violation_rate(encoding))
        assert not is_monotone(encoding)
        here = np.arange(9) < 4
        assert geometry.monotonicity_violation_rate(encoding, present=here) == 0
        assert is_monotone(encoding, present=here)
