"""Intervals of means over seeds: within bounds, and as wide as they say."""

import numpy as np
import pytest

from jaxpe.analysis.extrapolation import seed_interval, seed_mean

DRAWS = 20_000


def coverage(found, mean):
    return float(np.mean((found.low <= mean) & (mean <= found.high)))


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize(
    ("a", "b", "least"), [(19, 1, 0.92), (9.5, 0.5, 0.9), (95, 5, 0.94), (1, 1, 0.94)]
)
def test_of_draws_near_an_end_the_mean_is_covered(a, b, least, seeds):
    values = np.random.default_rng(0).beta(a, b, (seeds, DRAWS))
    found, student = seed_interval(values, within=(0.0, 1.0)), seed_interval(values)
    assert least < coverage(found, a / (a + b)) < 0.97
    assert coverage(found, a / (a + b)) >= coverage(student, a / (a + b))
    assert found.low.min() >= 0
    assert found.high.max() <= 1
    assert a != 19 or student.high.max() > 1


def test_without_bounds_it_is_students():
    values = np.random.default_rng(0).normal(size=(4, 3))
    found, halves = seed_interval(values), seed_mean(values)
    np.testing.assert_allclose(found.high - found.mean, halves.half)
    np.testing.assert_allclose(found.mean - found.low, halves.half)
    narrow = seed_interval(0.5 + 1e-4 * values, within=(0.0, 1.0))
    np.testing.assert_allclose(narrow.high - narrow.mean, 1e-4 * halves.half, rtol=1e-2)


def test_ends_are_of_any_bounds_and_mirrored():
    values = np.array([0.7, 0.9, 1.0])
    found = seed_interval(values, within=(0.0, 1.0))
    other = seed_interval(1 - 2 * values, within=(-1.0, 1.0))
    np.testing.assert_allclose(other.low, 1 - 2 * found.high)
    np.testing.assert_allclose(other.high, 1 - 2 * found.low)


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_seeds_that_agree_have_no_width_and_one_seed_no_interval(value):
    agreed = seed_interval(np.full((3, 1), value), within=(0.0, 1.0))
    np.testing.assert_allclose(agreed.low, agreed.high, atol=1e-9)
    one = seed_interval(np.full((1, 1), value), within=(0.0, 1.0))
    assert one.mean == value
    assert np.isnan([one.low, one.high]).all()
