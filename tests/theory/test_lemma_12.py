"""Lemma 12: the steps that fail, what holds instead, and the constant."""

import jax.numpy as jnp
import numpy as np

from jaxpe.geometry import hellinger_distances
from jaxpe.theory.cirrincione2026.lemma_12_masked_forcing import lemma_12
from jaxpe.theory.gradients import PositionGradients
from tests.theory.tiny import flax_case, layer_of

RNG = np.random.default_rng(0)
ONE = np.ones((1, 1, 1))
VALID = ("D_KL ≤ g(max μ_i/μ_j) d_H²", "slope in i", "slope in k")
TRIANGLE = "D_KL(i‖k) − D_KL(j‖k) ≤ D_KL(i‖j)"


def of_distributions(mu):
    """Of one program: 6 positions, the last one again, and 5 words, some that never occur."""
    mu = np.asarray(mu)
    rows = np.zeros((6, 5), mu.dtype)
    rows[:, : mu.shape[1]] = mu[np.minimum(np.arange(6), len(mu) - 1)]
    none = jnp.zeros((6, 1), mu.dtype)
    given = PositionGradients(*(jnp.zeros((1, 6, 6), mu.dtype),) * 2, *(none,) * 3)
    return lemma_12(given, rows, none, ONE, ONE)


def test_divergences_have_no_triangle_inequality_and_are_unbounded():
    """(1/2, 1/2), (1/4, 3/4), (1/16, 15/16): 0.546 ≤ 0.144, or 0.131 for j and i exchanged."""
    audit = of_distributions([[1 / 2, 1 / 2], [1 / 4, 3 / 4], [1 / 16, 15 / 16]])
    worst = audit.conclusions[TRIANGLE]
    assert not worst.holds
    # What holds instead, of m = 1/16: slopes of 2 log(1/m) and 2/√m.
    sides = [audit.instead[name].rhs for name in VALID[1:]]
    np.testing.assert_allclose(sides, [8 * np.log(2), 8])
    back = np.log(1 / 2) / 4 + 3 * np.log(3 / 2) / 4
    far = np.log(8) / 2 + np.log(8 / 15) / 2
    near = np.log(4) / 4 + 3 * np.log(4 / 5) / 4
    np.testing.assert_allclose([worst.lhs, worst.rhs], [far - near, back])
    rare = of_distributions([[0.5, 0.5], [1 - 1e-6, 1e-6]])
    bound = rare.conclusions["D_KL ≤ 2√2 d_H"]
    assert not bound.holds
    assert bound.lhs > 6 > 4 > bound.rhs
    assert all(rare.instead[name].holds for name in VALID)
    assert np.isinf(of_distributions(np.eye(2)).conclusions["D_KL ≤ 2√2 d_H"].lhs)


def test_what_holds_instead():
    for vocab, concentration in ((2, 0.1), (5, 0.1), (5, 10.0)):
        for _ in range(5):
            mu = RNG.dirichlet(np.full(vocab, concentration), 6) + 1e-9
            audit = of_distributions(mu / mu.sum(axis=1, keepdims=True))
            assert all(audit.instead[name].holds for name in VALID)
    near = of_distributions(0.5 + 1e-4 * np.array([[0, 0], [1, -1], [-1, 1]])).instead
    # Near (1/2, 1/2) the first is sharp: D_KL is 2 d_H².
    np.testing.assert_allclose(near[VALID[0]].lhs, near[VALID[0]].rhs, rtol=1e-3)
    # Equal distributions but for rounding, in float32.
    rows = np.full((6, 5), 0.2, np.float32) + RNG.uniform(-1e-7, 1e-7, (6, 5)).astype(np.float32)
    rounded = of_distributions(rows / rows.sum(1, keepdims=True)).instead
    assert all(comparison.holds for comparison in rounded.values())


def test_without_scores_the_published_constant_is_zero_and_the_forcing_is_not():
    """M = 0: p_i acts through values and residual stream alone, and 1.4 ≤ 0 is claimed."""
    layer = layer_of([[1.0], [0.0]], [[0.0]], [[0.0]], [[0.0]], lambda rows, ids: jnp.sum(rows**2))
    gradients, mu, means, q, k = layer.case([[0, 1]])
    audit = lemma_12(gradients, mu, means, q, k)
    for name in ("(A2)", "(A2) with n"):
        assert not audit.conclusions[name].holds
        assert audit.conclusions[name].rhs == 0
    # b = (−2, 0) and d_H = √2.
    np.testing.assert_allclose(audit.measured["C_b"], 2 / 2**0.5)


def test_a_transformer():
    found, mu, means, of = flax_case("masked_lm")
    query, key = of.projections.query, of.projections.key
    audit = lemma_12(found, mu, means, query, key)
    i, j = np.triu_indices(len(means), 1)
    d = np.asarray(hellinger_distances(mu).values)[i, j]
    largest = (np.linalg.norm(found.forcing[i] - found.forcing[j], axis=1) / d).max()
    np.testing.assert_allclose(audit.measured["C_b"], largest)
    M = np.einsum("dhc,ehc->hde", query, key)
    size = np.linalg.norm(M, 2, axis=(1, 2)).sum() * np.linalg.norm(means, axis=1).max()
    np.testing.assert_allclose(audit.measured["published"], 4 * 2**0.5 * size / 2)
    np.testing.assert_allclose(audit.measured["published with n"], 5 * audit.measured["published"])
    assert audit.conclusions["(A2)"].holds
    assert audit.measured["m"] == 0
