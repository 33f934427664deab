"""Tolerances, keys and degrees of freedom: a test at each limit, which a careless edit fails."""

from functools import partial

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
    count_tokens,
    disjoint_geometries,
    distances_from_gram,
    gaussian_information,
    half_sample_interval,
    low_rank_factors,
    mantel_correlation,
    position_bins,
    position_decodability,
    position_intervals,
    positional_information,
    rank_above_null,
    rotate_within_documents,
    smacof,
    split_half_geometry,
    variance_shares,
)
from jaxpe.geometry.checks import (
    check_confidence,
    check_distributions,
    checked_distances,
    nan_unless_distances,
    nan_unless_distributions,
)
from jaxpe.geometry.noise.position import null_keys
from jaxpe.geometry.noise.position_intervals import _calibrated_estimate

KEY = jax.random.key(0)
N = 8


def nearly_equal(spread, seed=0):
    """Distances of 1, but for symmetric noise of a given size."""
    noise = np.random.default_rng(seed).uniform(-spread, spread, (N, N))
    values = 1.0 - np.eye(N) + (noise + noise.T) * (1.0 - np.eye(N))
    return Distances(jnp.asarray(values), jnp.ones(N, bool))


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


def test_halvings_and_every_rotation_have_keys_of_their_own():
    halving, rotating = null_keys(KEY, nulls=5)
    data = np.concatenate([jax.random.key_data(halving)[None], jax.random.key_data(rotating)])
    assert len(np.unique(data, axis=0)) == 6


def test_every_pair_of_positions_is_drawn_anew():
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
    """Three documents of two words: a rotation has one of two values, and two may have both."""
    ids = np.repeat([[0], [0], [1]], 6, axis=1)
    drawn = {"key": KEY, "permutations": 2, "groups": np.arange(3), "estimator": "plug-in"}
    information = positional_information(ids, **drawn)
    above = np.triu_indices(6, 1)
    null, deviation = (np.asarray(x)[above] for x in information[1:3])
    both = (null > null.min() + 1e-9) & (null < null.max() - 1e-9)
    assert both.any()
    difference = null.max() - null.min()
    np.testing.assert_allclose(deviation[both], difference / np.sqrt(2), rtol=1e-9)


IDS = np.random.default_rng(1).integers(0, 9, (16, 6))


def folded(folds):
    return count_tokens(IDS, vocab_size=9, folds=folds)


EVEN, ODD = folded(8), folded(6)
DRAWS = {
    "halves": lambda key: split_half_geometry(EVEN, key=key, splits=2),
    "halves of halves": lambda key: disjoint_geometries(EVEN, key=key, splits=2, halvings=2),
    "and orders": lambda key: disjoint_geometries(ODD, key=key, splits=2, halvings=2),
    "permutations": lambda key: positional_information(IDS, permutations=2, key=key),
    "documents": lambda key: rotate_within_documents(key, IDS),
}


@pytest.mark.parametrize("name", DRAWS)
def test_no_key_is_used_twice(name):
    with jax.debug_key_reuse(True):
        jax.make_jaxpr(jax.jit(DRAWS[name]))(KEY)


def changed(at, value, base):
    values = base.copy()
    for index in at:
        values[index] = value
    return values


ONES = 1.0 - np.eye(3)


# Of a largest distance of 1, and of distributions of two words.
@pytest.mark.parametrize(
    ("check", "repaired", "values", "allowed"),
    [
        (checked_distances, nan_unless_distances, changed(at, value, ONES), allowed)
        for at, value, allowed in (
            ([(1, 1)], 0.049, True),
            ([(1, 1)], 0.051, False),
            ([(0, 1), (1, 0)], -0.9e-3, True),
            ([(0, 1), (1, 0)], -1.1e-3, False),
            ([(0, 1)], 1 - 0.9e-3, True),
            ([(0, 1)], 1 - 1.1e-3, False),
        )
    ]
    + [
        (check_distributions, nan_unless_distributions, np.array([[0.5, 0.5], row]), allowed)
        for row, allowed in (
            ([0.0, 0.0], True),
            ([0.5, 0.509], True),
            ([0.5, 0.511], False),
            ([0.5, 0.489], False),
            ([1.0, -0.9e-6], True),
            ([1.0, -1.1e-6], False),
        )
    ],
)
def test_deviations_that_are_rounding_and_that_are_not(check, repaired, values, allowed):
    """Known values raise, and traced ones give NaN, at the same limits."""
    assert np.isfinite(repaired(jnp.asarray(values))).all() == allowed
    if allowed:
        check(values)
    else:
        with pytest.raises(ValueError, match=r"[Pp]ass|set it to 0"):
            check(values)


@pytest.mark.parametrize("confidence", [0.0, 1.0])
def test_confidence_is_strictly_between_0_and_1(confidence):
    check_confidence(0.5)
    with pytest.raises(ValueError, match="confidence"):
        check_confidence(confidence)


def half_samples(difference, shape=()):
    """Samples of six splits whose halves differ: a variance of difference² / 4."""
    return jnp.asarray(np.broadcast_to([0.0, difference], (*shape, 6, 2)))


@pytest.mark.parametrize(
    ("null", "halves", "rotated", "signal", "error", "t"),
    [
        # The documents alone: six splits, each of one degree of freedom.
        ([1.0, 1.0, 1.0], 2.0, [0.0, 0.0], 1.0, 1.0, 2.446912),
        ([1.0, 1.0, 1.0], 2.0, [0.0, 0.0], 0.5, 0.5, 2.446912),
        # The nulls alone: variance 1, and a third of it for their mean; two degrees of freedom.
        ([1.0, 2.0, 3.0], 0.0, [0.0, 0.0], 1.0, (4 / 3) ** 0.5, 4.302653),
        # Halves of nulls differ by −2 and 2: h0 = 2 and 1.5 of it exceed h = 1, of which a tenth
        # is left; at least four degrees of freedom.
        ([1.0, 1.0, 1.0], 2.0, [-2.0, 2.0], 1.0, 0.1**0.5, 2.776445),
        # Both: the quantiles in proportion to the variances 1 and 4/3.
        ([1.0, 2.0, 3.0], 2.0, [0.0, 0.0], 1.0, (7 / 3) ** 0.5, (3 * 2.446912 + 4 * 4.302653) / 7),
    ],
)
def test_intervals_of_position_from_their_variances(null, halves, rotated, signal, error, t):
    found = _calibrated_estimate(
        jnp.asarray(5.0),
        jnp.asarray(null),
        half_samples(halves),
        jnp.stack([half_samples(x) for x in rotated]),
        part="position",
        confidence=0.95,
        signal=signal,
    )
    np.testing.assert_allclose(found.value, 5.0 - np.mean(null))
    np.testing.assert_allclose(found.standard_error, error)
    np.testing.assert_allclose((found.high - found.value) / error, t, rtol=1e-6)
    np.testing.assert_allclose((found.value - found.low) / error, t, rtol=1e-6)


def of_traces(position, nulls, halves):
    """A geometry of two positions with these traces, and halves of it that differ by as much."""
    present, matrix = jnp.ones(2, bool), jnp.asarray(1.0 - np.eye(2))  # its trace is 1/2
    split_half = SplitHalfGeometry(matrix, 2 * position * matrix, present)
    null = jnp.stack([2 * x * matrix for x in nulls])
    geometry = PositionGeometry(*split_half, split_half, null, jnp.ones(2, jnp.int32))
    one = PositionStatistics(half_samples(halves), *[half_samples(0.0)] * 2, jnp.zeros((6, 2, 1)))
    none = jax.tree.map(lambda x: jnp.zeros((2, *x.shape)), one)
    return geometry, PositionHalves(split_half, one, none)


def test_shares_of_the_variance_and_their_errors():
    """Of 10 observed, 4 are left in halves and 1 of these in nulls: 6, 1 and 3 tenths.

    Halves have the variance 1: it counts as the square of what is no noise for the noise, and of
    all but its own share for the others. Nulls have the variance 0.
    """
    found = variance_shares(*of_traces(4.0, [1.0, 1.0, 1.0], 2.0), 10.0)
    np.testing.assert_allclose([x.value for x in found], [0.6, 0.1, 0.3])
    errors = [0.6 / 10, 0.0, 0.7 / 10]
    np.testing.assert_allclose([x.standard_error for x in found], errors, atol=1e-12)
    half = [x.high - x.value for x in found]
    np.testing.assert_allclose(half, 2.446912 * np.array(errors), rtol=1e-6, atol=1e-12)


def test_the_variance_of_nulls_in_intervals_is_of_samples():
    present, zero = jnp.ones(3, bool), jnp.zeros((3, 3))
    split_half = SplitHalfGeometry(zero, zero, present)
    null = jnp.stack([x * (1.0 - jnp.eye(3)) for x in (1.0, 4.0)])  # traces of 1 and 4
    geometry = PositionGeometry(*split_half, split_half, null, jnp.ones(3, jnp.int32))
    one = PositionStatistics(*(jnp.zeros((2, 2)) for _ in range(3)), jnp.zeros((2, 2, 2)))
    halves = PositionHalves(split_half, one, jax.tree.map(lambda x: jnp.stack([x, x]), one))
    error = position_intervals(geometry, halves).composition.standard_error
    np.testing.assert_allclose(error, 1.5)  # √(variance 4.5 / 2)


GRAM, POINTS = np.eye(N), np.random.default_rng(2).normal(size=(30, 4))
# What computes, options at the limit of what is allowed, and options just beyond.
OPTIONS = [
    (partial(disjoint_geometries, key=KEY), {"counts": folded(4)}, {"counts": folded(3)}),
    (partial(split_half_geometry, key=KEY), {"counts": folded(2)}, {"counts": folded(1)}),
    # Significant at 0.95: one of 20 corpora, of which 19 are nulls.
    (
        partial(rank_above_null, GRAM),
        {"null_grams": np.stack([GRAM] * 19)},
        {"null_grams": np.stack([GRAM] * 18)},
    ),
    (
        partial(rank_above_null, GRAM, np.stack([GRAM] * 19)),
        {"level": 0.0},
        {"level": -1e-9},
    ),
    (partial(rank_above_null, GRAM, np.stack([GRAM] * 9)), {"level": 0.9}, {"level": 1.0}),
    (
        partial(gaussian_information, Y=POINTS[:7, 2:]),
        {"X": POINTS[:7, :3]},  # 3 + 2 + 2 samples
        {"X": POINTS[:7]},
    ),
    (partial(position_bins, 5), {"bins": 5}, {"bins": 6}),
    (partial(position_bins, 5), {"bins": 1}, {"bins": 0}),
    (partial(low_rank_factors, POINTS), {"rank": 4}, {"rank": 5}),
    (position_decodability, {"hidden": np.ones((2, 1, 1))}, {"hidden": np.ones((1, 1, 1))}),
    (
        partial(position_decodability, np.ones((2, 1, 1))),
        {"ridge": np.finfo(float).eps / 100},
        {"ridge": np.finfo(float).eps / 101},
    ),
    (
        partial(positional_information, permutations=0),
        {"ids": IDS[:2]},
        {"ids": IDS[:1]},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("compute", "allowed", "refused"), OPTIONS)
def test_options_at_and_beyond_their_limits(compute, allowed, refused):
    jax.eval_shape(partial(compute, **allowed))
    with pytest.raises(ValueError, match=r"pass|must|cannot|need"):
        compute(**refused)
