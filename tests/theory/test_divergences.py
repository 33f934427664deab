"""Inequalities between divergences: they hold, they are sharp, and the published ones are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import PositionalDistributions, hellinger_distances
from jaxpe.theory.divergences import (
    kl_constant,
    kl_divergences,
    kl_lower_bound,
    kl_ratio,
    total_variation,
    total_variation_bound,
)

RNG = np.random.default_rng(0)
kl, l1 = jax.jit(kl_divergences), jax.jit(total_variation)
ratio_of = jax.jit(kl_ratio)
hellinger = jax.jit(lambda mu: hellinger_distances(mu).values)


def adversaries(n=400, vocab=4):
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


def off_diagonal(x):
    return np.asarray(x)[~np.eye(len(x), dtype=bool)]


def test_kl_equals_its_definition():
    p = MU[:20]
    obvious = (p[:, None] * np.log(p[:, None] / p[None])).sum(-1)
    np.testing.assert_allclose(kl(MU)[:20, :20], obvious, atol=1e-12)
    np.testing.assert_allclose(l1(MU)[:20, :20], abs(p[:, None] - p[None]).sum(-1), atol=1e-14)


def test_kl_of_near_distributions_keeps_its_digits():
    p = np.full(1000, 1e-3)
    q = p * (1 + 1e-7 * np.where(np.arange(1000) % 2, 1, -1))
    both = np.stack([p, q])
    np.testing.assert_allclose(kl(both)[0, 1], 0.5e-14, rtol=1e-6)
    coarse = np.stack([p, p + 1e-4 * (q - p) / 1e-7]).astype(np.float32)
    np.testing.assert_allclose(kl(coarse)[0, 1], 0.5e-8, rtol=1e-2)


def test_support_decides_what_is_finite():
    mu = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    inf = np.inf
    for dtype in (np.float32, np.float64):
        value = kl(mu.astype(dtype))
        assert value.dtype == dtype
        np.testing.assert_allclose(
            value, [[0, inf, inf], [np.log(2), 0, inf], [inf, inf, 0]], rtol=1e-6
        )


def test_absent_positions_take_no_part():
    present = np.array([True, False, True])
    mu = np.array([[0.5, 0.5], [0.0, 0.0], [0.25, 0.75]])
    for pairwise in (kl_divergences, total_variation):
        whole = pairwise(PositionalDistributions(jnp.asarray(mu), jnp.asarray(present)))
        np.testing.assert_allclose(whole[::2, ::2], pairwise(mu[::2]))
        assert (whole[1] == 0).all()
        assert (whole[:, 1] == 0).all()


def test_derivative_and_vmap():
    mu = jnp.asarray(RNG.dirichlet(np.full(5, 3.0), (2, 3)))
    np.testing.assert_allclose(jax.vmap(kl)(mu)[1], kl(mu[1]))
    gradient = jax.jit(jax.grad(lambda p: jnp.sum(kl_divergences(p))))(mu[0])
    p = np.asarray(mu[0])
    # d/dp_i of Σ_j D(i‖j) + D(j‖i), the rows kept free of their sum: log(p_i/p_j) and 1 − p_j/p_i.
    expected = (np.log(p[:, None] / p[None]) + 1 - p[None] / p[:, None]).sum(1)
    np.testing.assert_allclose(gradient, expected, rtol=1e-9)
    assert np.isfinite(jax.grad(lambda p: jnp.sum(l1(p)))(jnp.eye(3))).all()


def test_total_variation_lies_between_its_bounds():
    d, variation = off_diagonal(hellinger(MU)), off_diagonal(l1(MU))
    bound = np.asarray(total_variation_bound(d))
    assert (variation <= bound * (1 + 1e-9)).all()
    assert (bound <= 2 * d).all()
    assert (d**2 <= variation * (1 + 1e-9)).all()
    share = np.linspace(0.0, 1.0, 9)
    for s in share:
        pair = np.array([[s, 1 - s], [1 - s, s]])
        np.testing.assert_allclose(
            l1(pair)[0, 1], total_variation_bound(hellinger(pair)[0, 1]), atol=1e-12
        )


def test_kl_lies_between_its_bounds():
    d, divergence = off_diagonal(hellinger(MU)), off_diagonal(kl(MU))
    ratio = MU[:, None] / MU[None]
    low, high = off_diagonal(ratio.min(-1)), off_diagonal(ratio.max(-1))
    least = off_diagonal(np.broadcast_to(MU.min(-1)[None], (len(MU),) * 2))
    tolerance = 1e-13 + 1e-9 * divergence
    assert (divergence <= kl_ratio(high) * d**2 + tolerance).all()
    assert (kl_ratio(low) * d**2 <= divergence + tolerance).all()
    assert (d**2 <= kl_lower_bound(d)).all()
    assert (kl_lower_bound(d) <= divergence + tolerance).all()
    assert (divergence <= kl_constant(least, d) * d**2 + tolerance).all()
    assert (kl_constant(least, d) <= kl_constant(least) * (1 + 1e-9)).all()


@pytest.mark.parametrize("ratio", [1.5, 10.0, 1e4])
def test_the_constant_of_the_ratio_cannot_be_lowered(ratio):
    rare = 1e-9 / ratio
    pair = np.array([[ratio * rare, 1 - ratio * rare], [rare, 1 - rare]])
    reached = kl(pair)[0, 1] / hellinger(pair)[0, 1] ** 2
    np.testing.assert_allclose(reached, kl_ratio(ratio), rtol=1e-4)


def test_kl_ratio_increases_and_sharpens_yang_and_barron():
    x = np.concatenate([np.geomspace(1e-12, 1e12, 4001), 1 + np.linspace(-0.9, 0.9, 1001)])
    x = np.unique(x)
    value = np.asarray(ratio_of(x))
    assert (np.diff(value) > 0).all()
    assert (value[x >= 1] <= 2 + np.log(x[x >= 1]) + 1e-14).all()
    assert (value > 1).all()
    single = ratio_of(x.astype(np.float32))
    np.testing.assert_allclose(single, value, rtol=2e-5)
    assert np.isnan(kl_ratio(-1.0))
    assert kl_ratio(0.0) == 1
    assert np.isfinite(
        jax.jit(jax.vmap(jax.grad(kl_ratio)))(jnp.array([0.0, 0.5, 1.0, 2.0, 9.0]))
    ).all()


def test_kl_is_not_bounded_by_the_hellinger_distance():
    """Corollary 15 (i) uses D_KL ≤ 2√2 d_H."""
    pair = np.array([[1.0, 0.0], [2.0**-8, 1 - 2.0**-8]])
    np.testing.assert_allclose(kl(pair)[0, 1], 8 * np.log(2))
    np.testing.assert_allclose(hellinger(pair)[0, 1] ** 2, 2 - 2 / 16)
    assert kl(pair)[0, 1] > 4 > 2 * np.sqrt(2) * hellinger(pair)[0, 1]


def test_kl_has_no_triangle_inequality():
    """Lemma 12 uses |D_KL(i‖k) − D_KL(j‖k)| ≤ D_KL(i‖j)."""
    D = kl(np.array([[1 / 2, 1 / 2], [1 / 4, 3 / 4], [1 / 16, 15 / 16]]))
    np.testing.assert_allclose(D[0, 1], np.log(4 / 3) / 2)
    np.testing.assert_allclose(D[0, 2], np.log(64 / 15) / 2)
    np.testing.assert_allclose(D[1, 2], np.log(4) / 4 + 3 * np.log(4 / 5) / 4)
    assert D[0, 2] - D[1, 2] > 3.7 * D[0, 1]


def test_the_vocabulary_plays_no_part_in_the_total_variation():
    """Lemma 16 uses √(2|V|) d_H, which is √(|V|/2) times 2 d_H: at 8 words, twice."""
    mu = RNG.dirichlet(np.full(8, 0.1), 50)
    d, variation = off_diagonal(hellinger(mu)), off_diagonal(l1(mu))
    assert (variation <= 2 * d).all()
    np.testing.assert_allclose(np.sqrt(2 * 8) * d, 2 * 2 * d)
