"""Inequalities between divergences: they hold, they are sharp, and the published ones are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.geometry import PositionalDistributions, hellinger_distances
from jaxpe.theory.divergences import (
    kl_constant,
    kl_divergences,
    kl_lower_bound,
    kl_ratio,
    total_variation,
    total_variation_bound,
)

RNG = np.random.default_rng(0)


def adversaries(n=200, vocab=4):
    """Distributions of all kinds: spread, spiked, near each other, nearly disjoint."""
    sharp = 10.0 ** RNG.uniform(-3, 1, (n, 1))
    mu = RNG.gamma(np.broadcast_to(sharp, (n, vocab))) + 10.0 ** RNG.uniform(-12, -1, (n, vocab))
    mu[1::2] = mu[::2] * np.exp(
        10.0 ** RNG.uniform(-6, 0, (n // 2, 1)) * RNG.normal(size=(n // 2, vocab))
    )
    two = RNG.random(n) < 0.5
    mu[two, 2:] = 1e-14 * mu[two, 2:]
    return mu / mu.sum(1, keepdims=True)


MU = adversaries()
KL, VARIATION, D = map(np.asarray, (kl_divergences(MU), total_variation(MU),
                                    hellinger_distances(MU).values))  # fmt: skip


def test_they_equal_their_definitions():
    p = MU[:20]
    obvious = (p[:, None] * np.log(p[:, None] / p[None])).sum(-1)
    np.testing.assert_allclose(KL[:20, :20], obvious, atol=1e-12)
    np.testing.assert_allclose(VARIATION[:20, :20], abs(p[:, None] - p[None]).sum(-1), atol=1e-14)


def test_kl_of_near_distributions_keeps_its_digits():
    p = np.full(1000, 1e-3)
    step = p * np.where(np.arange(1000) % 2, 1, -1)
    np.testing.assert_allclose(kl_divergences(np.stack([p, p + 1e-7 * step]))[0, 1], 0.5e-14,
                               rtol=1e-6)  # fmt: skip
    coarse = np.stack([p, p + 1e-4 * step]).astype(np.float32)
    np.testing.assert_allclose(kl_divergences(coarse)[0, 1], 0.5e-8, rtol=1e-2)


def test_support_decides_what_is_finite():
    mu, inf = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), np.inf
    for dtype in (np.float32, np.float64):
        value = kl_divergences(mu.astype(dtype))
        assert value.dtype == dtype
        expected = [[0, inf, inf], [np.log(2), 0, inf], [inf, inf, 0]]
        np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_absent_positions_take_no_part():
    present = np.array([True, False, True])
    mu = np.array([[0.5, 0.5], [0.0, 0.0], [0.25, 0.75]])
    for pairwise in (kl_divergences, total_variation):
        whole = pairwise(PositionalDistributions(jnp.asarray(mu), jnp.asarray(present)))
        np.testing.assert_allclose(whole[::2, ::2], pairwise(mu[::2]))
        assert not np.any(whole[1])
        assert not np.any(whole[:, 1])


def test_derivatives():
    p = RNG.dirichlet(np.full(5, 3.0), 3)
    gradient = jax.jit(jax.grad(lambda p: jnp.sum(kl_divergences(p))))(p)
    # d/dp_i of Σ_j D(i‖j) + D(j‖i), the rows kept free of their sum: log(p_i/p_j) and 1 − p_j/p_i.
    expected = (np.log(p[:, None] / p[None]) + 1 - p[None] / p[:, None]).sum(1)
    np.testing.assert_allclose(gradient, expected, rtol=1e-9)
    assert np.isfinite(jax.grad(lambda p: jnp.sum(total_variation(p)))(jnp.eye(3))).all()
    points = jnp.array([0.0, 0.5, 1.0, 2.0, 9.0])
    assert np.isfinite(jax.jit(jax.vmap(jax.grad(kl_ratio)))(points)).all()


def test_total_variation_lies_between_its_bounds():
    bound = np.asarray(total_variation_bound(D))
    assert (bound * (1 + 1e-9) >= VARIATION).all()
    assert (bound <= 2 * D).all()
    assert (D**2 <= VARIATION * (1 + 1e-9)).all()
    share = np.linspace(0.0, 1.0, 9)[:, None]  # reached by (s, 1 − s) and (1 − s, s)
    pairs = np.stack([share[:, 0], 1 - share[:, 0]], axis=1)
    variation, d = total_variation(pairs), hellinger_distances(pairs).values
    reached = np.arange(9), np.arange(9)[::-1]
    np.testing.assert_allclose(variation[reached], total_variation_bound(d)[reached], atol=1e-12)


def test_kl_lies_between_its_bounds():
    ratio = MU[:, None] / MU[None]
    least = np.broadcast_to(MU.min(-1)[None], (len(MU),) * 2)
    tolerance = 1e-13 + 1e-9 * KL
    assert (kl_ratio(ratio.max(-1)) * D**2 + tolerance >= KL).all()
    assert (kl_ratio(ratio.min(-1)) * D**2 <= KL + tolerance).all()
    assert (kl_lower_bound(D) >= D**2).all()
    assert (kl_lower_bound(D) <= KL + tolerance).all()
    assert (kl_constant(least, D) * D**2 + tolerance >= KL).all()
    assert (kl_constant(least, D) <= kl_constant(least) * (1 + 1e-9)).all()


@pytest.mark.parametrize("ratio", [1.5, 1e4])
def test_the_constant_of_the_ratio_cannot_be_lowered(ratio):
    rare = 1e-9 / ratio
    pair = np.array([[ratio * rare, 1 - ratio * rare], [rare, 1 - rare]])
    reached = kl_divergences(pair)[0, 1] / hellinger_distances(pair).values[0, 1] ** 2
    np.testing.assert_allclose(reached, kl_ratio(ratio), rtol=1e-4)


def test_kl_ratio_increases_and_sharpens_yang_and_barron():
    x = np.concatenate([np.geomspace(1e-12, 1e12, 4001), 1 + np.linspace(-0.9, 0.9, 1001)])
    x = np.unique(x)
    value = np.asarray(kl_ratio(x))
    assert (np.diff(value) > 0).all()
    assert (value[x >= 1] <= 2 + np.log(x[x >= 1]) + 1e-14).all()
    assert (value > 1).all()
    np.testing.assert_allclose(kl_ratio(x.astype(np.float32)), value, rtol=2e-5)
    assert np.isnan(kl_ratio(-1.0))
    assert kl_ratio(0.0) == 1


def test_published_bounds_fail():
    """D_KL ≤ 2√2 d_H of Corollary 15, D_KL(i‖k) − D_KL(j‖k) ≤ D_KL(i‖j) of Lemma 12."""
    pairs = np.array([[1, 0], [2**-8, 1 - 2**-8], [0.98, 0.02], [0.02, 0.98]])
    kl, d = np.asarray(kl_divergences(pairs)), np.asarray(hellinger_distances(pairs).values)
    np.testing.assert_allclose(kl[0, 1], 8 * np.log(2))
    np.testing.assert_allclose([kl[2, 3], 8**0.5 * d[2, 3]], [3.736, 3.394], atol=5e-4)
    thirds = kl_divergences(np.array([[1 / 2, 1 / 2], [1 / 4, 3 / 4], [1 / 16, 15 / 16]]))
    np.testing.assert_allclose(thirds[0, 1], np.log(4 / 3) / 2)
    assert thirds[0, 2] - thirds[1, 2] > 3.7 * thirds[0, 1]
