"""Intervals of means over seeds: within bounds, and as wide as they say."""

import numpy as np
import pytest
from scipy import stats

from jaxpe.analysis.intervals import (
    lead_interval,
    pair_level,
    score_interval,
    seed_interval,
    seed_mean,
)

DRAWS = 10_000


def coverage(found, mean):
    return float(np.mean((found.low <= mean) & (mean <= found.high)))


@pytest.mark.parametrize("seeds", [3, 10])
@pytest.mark.parametrize(("a", "b", "least"), [(19, 1, 0.92), (9.5, 0.5, 0.9), (1, 1, 0.94)])
def test_of_draws_near_an_end_the_mean_is_covered(a, b, least, seeds):
    values = np.random.default_rng(0).beta(a, b, (seeds, DRAWS))
    found, student = seed_interval(values, within=(0.0, 1.0)), seed_interval(values)
    assert least < coverage(found, a / (a + b)) < 0.97
    assert coverage(found, a / (a + b)) >= coverage(student, a / (a + b))
    assert found.low.min() >= 0
    assert found.high.max() <= 1


def test_without_bounds_it_is_students_and_bounds_may_be_any():
    values = np.random.default_rng(0).normal(size=(4, 3))
    found = seed_interval(values)
    half = stats.t.ppf(0.975, 3) * values.std(axis=0, ddof=1) / 2
    np.testing.assert_allclose(found.high - found.mean, half)
    np.testing.assert_allclose(found.mean - found.low, half)
    values = np.array([0.7, 0.9, 1.0])
    found = seed_interval(values, within=(0.0, 1.0))
    other = seed_interval(1 - 2 * values, within=(-1.0, 1.0))
    np.testing.assert_allclose(other.low, 1 - 2 * found.high)
    np.testing.assert_allclose(other.high, 1 - 2 * found.low)
    one = seed_interval(np.full((1, 1), 0.3), within=(0.0, 1.0))
    assert np.isnan([one.low, one.high]).all()


@pytest.mark.parametrize("seeds", [3, 10])
@pytest.mark.parametrize(("mean", "spread"), [(0.5, 0.01), (0.99, 0), (0.999, 0.001)])
def test_shares_of_trials_are_covered_and_have_a_width(mean, spread, seeds):
    """Without the number of trials 0.999 of 50 is covered in 13, 20 and 38 % of cases."""
    rng, size = np.random.default_rng(0), 1 / max(spread, 1e-9) - 1
    for trials in (50, 1000):
        drawn = rng.beta(mean * size, (1 - mean) * size, (seeds, DRAWS // 2))
        values = rng.binomial(trials, drawn) / trials
        found = seed_interval(values, within=(0.0, 1.0), trials=trials)
        assert 0.915 < coverage(found, mean) < 0.999
        assert (found.high - found.low).min() > 1 / (seeds * trials)


def test_shares_have_wilsons_interval_where_seeds_differ_no_more_than_trials():
    found = seed_interval(np.full(3, 0.98), within=(0.0, 1.0), trials=50)
    expected = stats.binomtest(147, 150).proportion_ci(method="wilson")
    np.testing.assert_allclose((found.low, found.high), expected)


def test_a_lead_of_shares_is_newcombes_where_seeds_agree():
    found = lead_interval(np.full(2, 56 / 70), np.full(2, 42 / 70), trials=35, level=0.95)
    low, high = stats.binomtest(56, 70).proportion_ci(method="wilson")
    under, over = stats.binomtest(42, 70).proportion_ci(method="wilson")
    np.testing.assert_allclose(found.low, 0.2 - np.hypot(0.8 - low, over - 0.6))
    np.testing.assert_allclose(found.high, 0.2 + np.hypot(high - 0.8, 0.6 - under))


def test_the_best_of_equal_ones_is_decided_at_the_level():
    """With the level of k − 1 comparisons and without trials it is in 10 to 20 % of cases."""
    values = np.random.default_rng(0).binomial(200, 0.9, (300, 16, 10)) / 200
    best = values[np.arange(300), values.mean(axis=2).argmax(axis=1)]
    worst = values[np.arange(300), values.mean(axis=2).argmin(axis=1)]
    pairs = zip(best, worst, strict=True)
    found = [lead_interval(a, b, trials=200, level=pair_level(16)).low > 0 for a, b in pairs]
    assert np.mean(found) < 0.05
    apart = lead_interval(np.array([0.9, 0.91, 0.92]), np.full(3, 0.2), trials=200, level=0.999)
    assert apart.low > 0


def test_errors_that_agree_to_rounding_have_no_interval():
    for spread, known in ((1e-8, False), (1e-4, True)):
        found = score_interval(1e9 * (1 + spread * np.arange(3.0)), trials=None)
        assert np.isfinite(found.low) == known


@pytest.mark.parametrize("count", [2, 16])
def test_intervals_of_all_pairs_hold_together(count):
    """Each at 95 %, the best of 16 equal means leads another in three cases of four."""
    values = np.random.default_rng(0).normal(size=(5, count, 2500))
    any_pair = np.zeros(values.shape[2], bool)
    for k in range(count):
        lead = seed_mean(values - values[:, [k]], level=pair_level(count))
        any_pair |= (lead.mean - lead.half > 0).any(axis=0)
    assert 0.01 < any_pair.mean() < 0.06
