"""Lemma 12: the steps that fail, what holds instead, and the constant."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe import hellinger_distances
from jaxpe.theory.cirrincione2026.lemma_12_masked_forcing import lemma_12
from jaxpe.theory.gradients import PositionGradients
from tests.theory.tiny import flax_case, layer_of, quickly

RNG = np.random.default_rng(0)
ONE = np.ones((1, 1, 1))
VALID = ("D_KL ≤ g(max μ_i/μ_j) d_H²", "slope in i", "slope in k")
TRIANGLE = "D_KL(i‖k) − D_KL(j‖k) ≤ D_KL(i‖j)"
audit_of = quickly(lemma_12)


def of_distributions(mu):
    """Of one program: 6 positions, the last one again, and 5 words, some that never occur."""
    mu = np.asarray(mu)
    rows = np.zeros((6, 5))
    rows[:, : mu.shape[1]] = mu[np.minimum(np.arange(6), len(mu) - 1)]
    given = PositionGradients(*(jnp.zeros((1, 6, 6)),) * 2, *(jnp.zeros((6, 1)),) * 3)
    return audit_of(given, rows, jnp.zeros((6, 1)), ONE, ONE)


def test_divergences_have_no_triangle_inequality():
    """(1/2, 1/2), (1/4, 3/4), (1/16, 15/16): 0.546 ≤ 0.144, or 0.131 for j and i exchanged."""
    audit = of_distributions([[1 / 2, 1 / 2], [1 / 4, 3 / 4], [1 / 16, 15 / 16]])
    worst = audit.conclusions
    assert not worst[TRIANGLE].holds
    # What holds instead, of m = 1/16: slopes of 2 log(1/m) and 2/√m.
    sides = [audit.instead[name].rhs for name in VALID[1:]]
    np.testing.assert_allclose(sides, [8 * np.log(2), 8])
    back = np.log(1 / 2) / 4 + 3 * np.log(3 / 2) / 4
    far = np.log(8) / 2 + np.log(8 / 15) / 2
    near = np.log(4) / 4 + 3 * np.log(4 / 5) / 4
    np.testing.assert_allclose(worst[TRIANGLE].rhs, back)
    np.testing.assert_allclose(worst[TRIANGLE].lhs, far - near)
    assert (far - near).round(3) == 0.546


def test_divergences_are_unbounded():
    audit = of_distributions([[0.5, 0.5], [1 - 1e-6, 1e-6]])
    worst = audit.conclusions
    assert not worst["D_KL ≤ 2√2 d_H"].holds
    assert worst["D_KL ≤ 2√2 d_H"].lhs > 6 > 4 > worst["D_KL ≤ 2√2 d_H"].rhs
    assert all(audit.instead[name].holds for name in VALID)
    disjoint = of_distributions(np.eye(2)).conclusions
    assert np.isinf(disjoint["D_KL ≤ 2√2 d_H"].lhs)


def test_what_holds_instead():
    for vocab, concentration in ((2, 0.1), (5, 0.1), (5, 10.0)):
        for _ in range(5):
            mu = RNG.dirichlet(np.full(vocab, concentration), 6) + 1e-9
            audit = of_distributions(mu / mu.sum(axis=1, keepdims=True))
            assert all(audit.instead[name].holds for name in VALID)
    near = of_distributions(0.5 + 1e-4 * np.array([[0, 0], [1, -1], [-1, 1]])).instead
    # Near (1/2, 1/2) the first is sharp: D_KL is 2 d_H².
    np.testing.assert_allclose(near[VALID[0]].lhs, near[VALID[0]].rhs, rtol=1e-3)


def test_without_scores_the_published_constant_is_zero_and_the_forcing_is_not():
    """M = 0: p_i acts through values and residual stream alone, and 1.4 ≤ 0 is claimed."""
    layer = layer_of([[1.0], [0.0]], [[0.0]], [[0.0]], [[0.0]], lambda rows, ids: jnp.sum(rows**2))
    gradients, mu, means, q, k = layer.case([[0, 1]])
    audit = audit_of(gradients, mu, means, q, k)
    for name in ("(A2)", "(A2) with n"):
        assert not audit.conclusions[name].holds
        assert audit.conclusions[name].rhs == 0
    # b = (−2, 0) and d_H = √2.
    np.testing.assert_allclose(audit.measured["C_b"], 2 / 2**0.5)


def test_a_near_copy_refutes_every_constant():
    """Four words of almost equal frequency, and a third one that is the first again, 9 times in 10.

    Attention is almost uniform, so ε_suff as a supremum over all sequences and pairs is 0.008, at
    every τ. Mean embeddings differ, and M = 0.01 I. Positions 0 and 1 have almost equal
    distributions and different forcings: their quotient is 600 times n C_b at τ = 0.1, more where τ
    is less, and grows without bound as the distributions approach.
    """
    words, n, size = 4, 4, 0.01
    ids = np.indices((words,) * n).reshape(n, -1).T
    E = jnp.eye(words + 1)  # the last is [MASK]
    masked = np.stack([np.where(np.arange(n) == j, words, ids) for j in range(n)])

    def weights(x):
        return jax.nn.softmax(size * x @ x.swapaxes(1, 2) / (words + 1) ** 0.5, axis=-1)

    @jax.jit
    @jax.grad
    def gradient(P, probability, tau):
        losses = 0.0
        for j in range(n):
            x = E[masked[j]] + P[None]
            h = (weights(x) @ x)[:, j, :words]
            log_p = jax.nn.log_softmax(h / tau)[np.arange(len(ids)), ids[:, j]]
            losses -= jnp.sum(probability * log_p) / n
        return losses

    def over_published(apart, tau):
        tilt = 1 + apart * np.arange(n)[:, None] * np.array([1, -1, 1, -1])
        drawn = tilt * [0.2575, 0.2525, 0.2475, 0.2425]
        drawn /= drawn.sum(axis=1, keepdims=True)
        third = 0.9 * (ids[:, 2] == ids[:, 0]) + 0.1 * drawn[2, ids[:, 2]]
        probability = drawn[0, ids[:, 0]] * drawn[1, ids[:, 1]] * third * drawn[3, ids[:, 3]]
        mu = np.einsum("s,siv->iv", probability, np.eye(words)[ids])
        over_j = mu.T[ids].swapaxes(1, 2)  # μ_i(t_j)
        epsilon = max(np.abs(weights(E[rows]) - over_j).max() for rows in (ids, *masked))
        assert epsilon < 0.009
        assert np.diff(np.sort(mu, axis=1)).min() > 0.004  # what the threshold of τ depends on
        means = mu @ np.asarray(E)[:words]
        between = np.linalg.norm(means[:, None] - means, axis=-1)[np.triu_indices(n, 1)]
        assert between.min() > 0.05 * apart
        b = -np.asarray(gradient(jnp.zeros((n, words + 1)), probability, tau))
        quotient = np.linalg.norm(b[0] - b[1]) / hellinger_distances(mu).values[0, 1]
        largest = np.linalg.norm(means, axis=1).max()
        return quotient / (4 * 2**0.5 * largest * size / (words + 1) ** 0.5)

    assert over_published(1e-4, 0.1) > 600 * n
    assert over_published(1e-4, 0.01) > 6000 * n
    assert over_published(1e-4, 0.001) > 60_000 * n
    assert over_published(1e-6, 0.1) > 60_000 * n


def test_a_transformer():
    found, mu, means, of = flax_case("masked_lm")
    query, key = of.projections.query, of.projections.key
    audit = audit_of(found, mu, means, query, key)
    i, j = np.triu_indices(len(means), 1)
    d = np.asarray(hellinger_distances(mu).values)[i, j]
    largest = (np.linalg.norm(found.forcing[i] - found.forcing[j], axis=1) / d).max()
    np.testing.assert_allclose(audit.measured["C_b"], largest)
    M = np.einsum("dhc,ehc->hde", query, key)
    size = np.linalg.norm(M, 2, axis=(1, 2)).sum() * np.linalg.norm(means, axis=1).max()
    np.testing.assert_allclose(audit.measured["published"], 4 * 2**0.5 * size / 2)
    np.testing.assert_allclose(audit.measured["published with n"], 5 * audit.measured["published"])
    assert audit.conclusions["(A2)"].holds
    assert not audit.conclusions["D_KL ≤ 2√2 d_H"].holds
    assert audit.measured["m"] == 0


def test_rounding_refutes_nothing():
    """Equal distributions but for rounding, in float32."""
    rows = np.full((6, 5), 0.2, np.float32) + RNG.uniform(-1e-7, 1e-7, (6, 5)).astype(np.float32)
    none = jnp.zeros((6, 1), jnp.float32)
    given = PositionGradients(*(jnp.zeros((1, 6, 6), jnp.float32),) * 2, none, none, none)
    audit = audit_of(given, rows / rows.sum(1, keepdims=True), none, ONE, ONE)
    assert all(comparison.holds for comparison in audit.instead.values())
