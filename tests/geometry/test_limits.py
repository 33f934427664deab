"""Tolerances, keys and degrees of freedom: a test at each limit, which a careless edit fails."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.geometry import (
    Distances,
    PositionGeometry,
    PositionHalves,
    PositionStatistics,
    SplitHalfGeometry,
    classical_mds,
    distances_from_gram,
    half_sample_interval,
    mantel_correlation,
    position_intervals,
    positional_information,
    sampled_violation_rate,
    smacof,
)
from jaxpe.geometry.distances.random_pairs import draw_in_parts
from jaxpe.geometry.noise.position import null_keys

KEY = jax.random.key(0)
N = 8


def nearly_equal(spread, seed=0):
    """Distances of 1, but for symmetric noise of a given size."""
    noise = np.random.default_rng(seed).uniform(-spread, spread, (N, N))
    values = 1.0 - np.eye(N) + (noise + noise.T) * (1.0 - np.eye(N))
    return Distances(jnp.asarray(values), jnp.ones(N, bool))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_sampled_ties_are_decided_by_a_share_of_the_largest_distance(scale):
    D = nearly_equal(1e-6)
    D = D._replace(values=scale * D.values)
    drawn = {"key": KEY, "triples": 2000}
    assert sampled_violation_rate(D, **drawn).rate == 0
    assert sampled_violation_rate(D, tolerance=1e-8, **drawn).rate > 0.2


@pytest.mark.parametrize("scale", [2.0**-20, 2.0**20])
def test_smacof_stops_at_a_relative_tolerance(scale):
    D = np.asarray(nearly_equal(0.3))
    fit, scaled = (smacof(jnp.asarray(s * D), dim=2, tolerance=1e-4) for s in (1.0, scale))
    assert fit.iterations == scaled.iterations
    np.testing.assert_allclose(scaled.coordinates, scale * fit.coordinates, rtol=1e-9)


def test_distances_that_differ_in_the_ninth_digit_correlate():
    D = nearly_equal(1e-9)
    np.testing.assert_allclose(mantel_correlation(D, D), 1.0, atol=1e-6)
    np.testing.assert_array_less(abs(mantel_correlation(D, nearly_equal(1e-9, seed=1))), 0.9)
    assert mantel_correlation(D, nearly_equal(0.0)) == 0


@pytest.mark.parametrize(("splits", "t"), [(4, 2.776445), (15, 2.131450), (40, 2.131450)])
def test_intervals_have_at_most_fifteen_degrees_of_freedom(splits, t):
    interval = half_sample_interval(np.random.default_rng(0).normal(size=(splits, 2)))
    half = (interval.high - interval.mean) / interval.standard_error
    np.testing.assert_allclose(half, t, rtol=1e-6)


def test_halvings_and_every_shuffle_have_keys_of_their_own():
    halving, shuffling = null_keys(KEY, nulls=5)
    data = np.concatenate([jax.random.key_data(halving)[None], jax.random.key_data(shuffling)])
    assert len(np.unique(data, axis=0)) == 6


def test_every_part_of_a_sample_and_every_pair_of_positions_is_drawn_anew():
    uniform = lambda key, part: jax.random.uniform(key, (part,))  # noqa: E731
    sample = draw_in_parts(KEY, draw=uniform, number=16, width=2**20)  # parts of one draw
    assert len(np.unique(sample)) == 16
    column = np.random.default_rng(0).integers(0, 4, (60, 1))
    ids = np.concatenate([column[::-1], column, column], axis=1)
    drawn = {"key": KEY, "permutations": 4, "groups": np.arange(60)}
    null = np.asarray(positional_information(ids, **drawn).null)
    assert null[0, 1] != null[0, 2]


@pytest.mark.parametrize(("digits", "resolved"), [(16, False), (17, True)])
def test_squared_distances_below_sixteen_roundings_are_0(digits, resolved):
    product = 1.0 - digits * np.finfo(float).eps
    D = distances_from_gram(np.array([[1.0, product], [product, 1.0]]))
    assert bool(D[0, 1] > 0) == resolved


def test_distances_may_be_asymmetric_by_a_thousandth_of_the_largest():
    D = np.array(nearly_equal(0.0))
    D[0, 1] = 2.0
    D[1, 0] = 2.0 - 1.9e-3
    classical_mds(D, dim=1)
    D[1, 0] = 2.0 - 2.1e-3
    with pytest.raises(ValueError, match="not symmetric"):
        classical_mds(D, dim=1)


def test_deviations_of_nulls_are_of_samples():
    """Three documents of two words: a shuffle has one of two values, and two may have both."""
    ids = np.repeat([[0], [0], [1]], 6, axis=1)
    drawn = {"key": KEY, "permutations": 2, "groups": np.arange(3), "estimator": "plug-in"}
    information = positional_information(ids, **drawn)
    above = np.triu_indices(6, 1)
    null, deviation = (np.asarray(x)[above] for x in information[1:3])
    both = (null > null.min() + 1e-9) & (null < null.max() - 1e-9)
    assert both.any()
    difference = null.max() - null.min()
    np.testing.assert_allclose(deviation[both], difference / np.sqrt(2), rtol=1e-9)


def test_the_variance_of_nulls_in_intervals_is_of_samples():
    present, zero = jnp.ones(3, bool), jnp.zeros((3, 3))
    split_half = SplitHalfGeometry(zero, zero, present)
    null = jnp.stack([x * (1.0 - jnp.eye(3)) for x in (1.0, 4.0)])  # traces of 1 and 4
    geometry = PositionGeometry(*split_half, split_half, null, jnp.ones(3, jnp.int32))
    one = PositionStatistics(*(jnp.zeros((2, 2)) for _ in range(3)), jnp.zeros((2, 2, 2)))
    halves = PositionHalves(split_half, one, jax.tree.map(lambda x: jnp.stack([x, x]), one))
    error = position_intervals(geometry, halves).composition.standard_error
    np.testing.assert_allclose(error, 1.5)  # √(variance 4.5 / 2)
