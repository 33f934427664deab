"""One number for each position: the propositions of `position-is-a-fading-start` in the results."""

import jax
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from jaxpe import geometry
from jaxpe.encodings import power_positions


@pytest.mark.parametrize("seed", range(2))
def test_stress_is_bounded_by_the_spread_of_slopes(seed):
    """Proposition 1: at most ((M − m)/(M + m))² where m|x_i − x_j| ≤ d_ij ≤ M|x_i − x_j|."""
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.random(20))
    curve = np.stack([x, 0.3 * rng.random() * np.sin(x), 0.1 * rng.normal(size=20)], axis=1)
    distances = geometry.euclidean_distances(curve.astype(np.float32))
    apart = ~np.eye(20, dtype=bool)
    slopes = np.asarray(distances.values)[apart] / np.abs(x[:, None] - x)[apart]
    m, M = slopes.min(), slopes.max()
    stress = float(geometry.scaled_stress(x[:, None].astype(np.float32), distances).stress)
    assert 0 < stress <= ((M - m) / (M + m)) ** 2


@pytest.mark.parametrize(("a", "tau"), [(0.5, 1.0), (0.25, 0.1)])
def test_powers_are_boundaries_of_many_ranges(a, tau):
    """Proposition 2: the mean of exp(−u·i) over rates u of Gamma(b, τ) is (1 + i/τ)^(−b)."""
    rates = scipy.stats.gamma(a, scale=1 / tau)
    for i in (0.0, 1.0, 7.0, 60.0):
        # By quantiles: the density is infinite at 0 for a < 1.
        mean = scipy.integrate.quad(lambda q, i=i: np.exp(-i * rates.ppf(q)), 0, 1, limit=200)[0]
        with jax.enable_x64(True):
            number = 1 - a * float(power_positions(np.array([i]), tau=tau, power=-a)[0])
        assert mean == pytest.approx(number, rel=1e-6)
        assert number == pytest.approx((1 + i / tau) ** -a, rel=1e-12)


def stress_of(mu, x):
    with jax.enable_x64(True):
        distances = geometry.hellinger_distances(mu)
        stress = geometry.scaled_stress(np.asarray(x)[:, None], distances).stress
    return np.asarray(distances.values), float(stress)


def bound(kappa):
    return ((kappa - 1) / (kappa + 1)) ** 2


def kappa_of_separate_laws(q_0):
    half = np.arcsin(np.sqrt(q_0)) / 2
    return half / np.sin(half) / np.sqrt(1 - q_0)


def kappa_of_similar_laws(q_0, R):
    return np.sqrt((1 + (R - 1) * q_0) / (1 - q_0))


STARTS = pytest.mark.parametrize(("q_0", "tau", "b"), [(0.1, 1.0, 1.0), (0.9, 0.1, 0.5)])


@STARTS
def test_a_fading_share_of_a_separate_law_is_one_number(q_0, tau, b):
    """Proposition 3, first case: chords of a great circle, and the stress of (1 + i/τ)^(−b/2)."""
    i = np.arange(64)
    q = q_0 * (1 + i / tau) ** -b
    rest, start = np.random.default_rng(0).dirichlet(np.ones(30), 2)
    mu = np.concatenate([(1 - q)[:, None] * rest, q[:, None] * start], axis=1)
    distances, stress = stress_of(mu, (1 + i / tau) ** (-b / 2))
    theta = np.arcsin(np.sqrt(q))
    np.testing.assert_allclose(
        distances, 2 * np.abs(np.sin((theta[:, None] - theta) / 2)), atol=1e-7
    )
    assert stress <= bound(kappa_of_separate_laws(q_0))


@STARTS
def test_a_fading_share_of_a_similar_law_is_one_number(q_0, tau, b):
    """Proposition 3, second case: the stress of (1 + i/τ)^(−b)."""
    i = np.arange(64)
    q = (q_0 * (1 + i / tau) ** -b)[:, None]
    rest = np.random.default_rng(0).dirichlet(np.ones(30))
    start = rest * np.exp(3.0 * np.random.default_rng(1).normal(size=30))
    start /= start.sum()
    stress = stress_of((1 - q) * rest + q * start, (1 + i / tau) ** -b)[1]
    assert stress <= bound(kappa_of_similar_laws(q_0, (start / rest).max()))
