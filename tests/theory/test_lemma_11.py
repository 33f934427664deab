"""Lemma 11: rows of δ sum to 0, and D_KL does not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxpe.geometry import PositionalDistributions
from jaxpe.theory.audit import verdict
from jaxpe.theory.cirrincione2026.lemma_11_masked_gradient import lemma_11
from jaxpe.theory.divergences import kl_divergences
from jaxpe.theory.gradients import PositionGradients, position_gradients
from tests.theory.tiny import DIM, VOCAB, N, flax_case, quickly

RNG = np.random.default_rng(0)
ALL = jnp.ones(N, bool)


def audit_of(delta, mu, weights=None, present=ALL):
    """Of one program: two heads, N positions and VOCAB words, filled up with zeros."""
    delta = jnp.broadcast_to(jnp.asarray(delta, float), (2, N, N))
    weights = jnp.full((2, N, N), 1 / N) if weights is None else jnp.asarray(weights)
    rows = jnp.zeros((N, VOCAB)).at[:, : np.shape(mu)[1]].set(mu)
    given = PositionGradients(delta, weights, *(jnp.zeros((N, DIM)),) * 3)
    return lemma_11(given, PositionalDistributions(rows, jnp.asarray(present)))


def test_two_words_in_two_orders_refute_it_at_every_temperature():
    """Orders ab (3 of 4) and ba, a word masked: A_ij = μ_i(t_j) exactly, and D_KL is 0 or 0.55.

    Rows of δ sum to 0, those of D_KL to 0.55, so that one entry is off by 0.27 at least. Weights
    are those of Eq. (1): words fill coordinates 0 and 1, [MASK] none, and p_i 2 and 3, with the log
    odds of μ_i. P is small and M large, as A.1 asks for.
    """
    mu, small = np.array([[0.75, 0.25], [0.25, 0.75]]), 1e-3
    words = np.array([[0, 1], [0, 1], [0, 1], [1, 0]]).repeat(2, axis=0)
    place = np.tile([0, 1], 4)
    shown = np.where(np.arange(2) == place[:, None], 2, words)
    E = jnp.zeros((3, 4)).at[:2, :2].set(np.eye(2))
    M = jnp.zeros((4, 4)).at[2:, :2].set(np.eye(2) / small)
    P = jnp.zeros((2, 4)).at[:, 2:].set(small * np.log(mu / mu[:, ::-1]))

    def attention(P, example):
        x = E[example[0]] + P
        logits = (x @ M @ x.T)[None]
        return logits, jax.nn.softmax(logits)

    def at(temperature):
        def loss(P, shift, example):
            shown, words, place = example
            weights = jax.nn.softmax(attention(P, example)[0] + shift)[0]
            h = (weights @ (E[shown] + P))[place, :2]
            return -jax.nn.log_softmax(h / temperature)[words[place]]

        gradients = position_gradients(loss, attention, P, (shown, words, place))
        return gradients.delta, lemma_11(gradients, mu, temperature=0.0)

    delta, found = quickly(jax.vmap(at))(np.array([1.0, 0.3, 0.1]))
    np.testing.assert_allclose(found.measured["ε_suff"], 0, atol=1e-12)
    assert found.hypotheses["ε_suff"].holds.all()
    assert not found.conclusions["(7)"].holds.any()
    assert np.all(found.conclusions["(7)"].lhs >= 0.2746)
    np.testing.assert_allclose(found.measured["least error"], np.log(3) / 4)
    np.testing.assert_allclose(delta.sum(axis=-1), 0, atol=1e-14)
    assert found.instead["rows sum to 0"].holds.all()


def test_no_row_that_sums_to_zero_is_nearer():
    """The least error is reached: by D_KL minus the mean of its row."""
    mu = RNG.dirichlet(np.ones(4), N)
    kl = np.asarray(kl_divergences(mu))
    audit = audit_of(kl - kl.mean(axis=1, keepdims=True), mu)
    np.testing.assert_allclose(audit.conclusions["(7)"].lhs, kl.mean(axis=1).max())
    np.testing.assert_allclose(audit.measured["least error"], kl.mean(axis=1).max())


def test_likeness_by_its_definitions():
    """Of the positions present."""
    for size in (N, N - 1):
        present = np.arange(N) < size
        mu = RNG.dirichlet(np.full(6, 0.5), N) * present[:, None]
        delta, weights = RNG.normal(size=(2, 2, N, N))
        audit = audit_of(delta, mu, weights, present)
        off = ~np.eye(size, dtype=bool)
        kl = np.asarray(kl_divergences(mu[:size]))
        for head in range(2):
            own, D = delta[head, :size, :size][off], kl[off]
            factor = own @ D / (D @ D)
            expected = {
                "pearson": stats.pearsonr(own, D)[0],
                "rank correlation": stats.spearmanr(own, D)[0],
                "residual": np.linalg.norm(own - factor * D) / np.linalg.norm(own),
            }
            for name, value in expected.items():
                np.testing.assert_allclose(audit.measured[name][head], value)
        worst = np.abs(delta[:, :size, :size] - kl).max()
        np.testing.assert_allclose(audit.conclusions["(7)"].lhs, worst)
        overlap = (mu @ mu.T)[:size, :size]
        epsilon = np.abs(weights[:, :size, :size] - overlap).max()
        np.testing.assert_allclose(audit.measured["ε_suff"].max(), epsilon)


def test_infinite_divergences_are_left_out_and_smoothed():
    mu = np.array([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.0, 0.5, 0.5], [0, 0, 1], [0, 0, 1]])
    audit = audit_of(np.ones((N, N)), mu)
    # 0 and 1 of each other; of what is only word 2, by one another and by 2.
    assert audit.measured["finite pairs"] == pytest.approx(6 / 20)
    assert np.isinf(audit.conclusions["(7)"].lhs)
    kl = kl_divergences(0.99 * mu + 0.01 * mu.mean(axis=0))
    least = np.abs((1 - kl).mean(axis=1)).max()  # some entry of the row is off by its mean
    np.testing.assert_allclose(audit.measured["least error smoothed"], least)


def test_an_absent_position_takes_what_a_row_has_too_little():
    """δ = D_KL on the positions present, and the rest of each row on [CLS]: no error is left."""
    mu = np.array([[0.0, 0.0], [0.5, 0.5], [0.2, 0.8], [0.9, 0.1], [0.4, 0.6]])
    delta = np.zeros((N, N))
    delta[1:, 1:] = kl_divergences(mu[1:])
    delta[1:, 0] = -delta[1:].sum(axis=1)
    audit = audit_of(delta, mu, present=np.arange(N) > 0)
    assert audit.measured["least error"] < 1e-12
    assert audit.conclusions["(7)"].lhs < 1e-12
    assert audit.instead["rows sum to 0"].holds


def test_multiples_and_what_is_constant():
    mu = RNG.dirichlet(np.ones(4), N)
    twice = audit_of(-2 * np.asarray(kl_divergences(mu)), mu)
    assert twice.conclusions["(7) up to a factor"].holds
    np.testing.assert_allclose(twice.measured["rank correlation"], -1)
    audit = audit_of(np.full((N, N), 0.1), mu)
    for name in ("pearson", "rank correlation", "pearson smoothed"):
        assert np.all(audit.measured[name] == 0)
    nothing = audit_of(np.zeros((N, N)), np.tile(RNG.dirichlet(np.ones(4)), (N, 1)))
    assert nothing.conclusions["(7)"].holds
    assert np.all(nothing.measured["residual"] == 1)


def test_a_transformer():
    found, mu, _, _ = flax_case("masked_lm")
    cold = lemma_11(found, mu, temperature=0.9)
    assert cold.hypotheses["τ < 1"].holds
    assert cold.hypotheses["τ < 1"].lhs.item() == pytest.approx(0.9)
    audit = lemma_11(found, mu)
    assert not audit.hypotheses["τ < 1"].holds
    assert audit.instead["rows sum to 0"].holds
    assert verdict(audit).startswith("does not apply: ε_suff, τ < 1 fail; (7)")
    with pytest.raises(ValueError, match="smoothing"):
        lemma_11(found, mu, smoothing=1.0)
