"""Corollary 15: three families, a loss that ignores order, and corpora of which it is true."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import hellinger_distances
from jaxpe.theory.audit import verdict
from jaxpe.theory.cirrincione2026.corollary_15_loss_families import corollary_15
from jaxpe.theory.divergences import kl_divergences
from jaxpe.theory.gradients import PositionGradients, position_gradients
from tests.theory.tiny import N, distributions, flax_case, layer_of, quickly, random_layer
from tests.unchecked import unchecked

audit_of = quickly(lambda gradients, mu: corollary_15(gradients, mu, family="agnostic"))


def test_a_loss_that_ignores_order_has_different_forcing():
    """(Σ_j φ(E(t_j) + p_j))² with φ(x) = x², words 1 and 0: g = 0, b = −4 S E(t_i) = (−4, 0)."""
    ids = np.array([[0, 1]])
    embeddings = jnp.array([[1.0], [0.0]])

    def loss(P, shift, ids):
        return jnp.sum((embeddings[ids] + P) ** 2) ** 2

    def attention(P, ids):
        return jnp.zeros((1, 2, 2)), jnp.full((1, 2, 2), 0.5)

    P = jnp.zeros((2, 1))
    np.testing.assert_allclose(loss(P, None, ids[0]), loss(P, None, ids[0][::-1]))
    gradients = quickly(lambda P: position_gradients(loss, attention, P, ids))(P)
    np.testing.assert_allclose(gradients.forcing[:, 0], [-4, 0])
    audit = audit_of(gradients, distributions(ids, vocab=2))
    assert verdict(audit) == "refuted: b_i = b_j fails"
    assert audit.conclusions["b_i = b_j"].lhs == 4


def test_a_loss_that_ignores_order_at_every_p_has_no_symmetric_g():
    """M = 0 and the square of the sum of all rows: b_0 = b_1, and g(0, 1) = −g(1, 0)."""
    layer = layer_of(
        [[1.0], [0.0]], [[0.0]], [[0.0]], [[1.0]], lambda rows, ids: jnp.sum(rows) ** 2
    )
    P, shift = jnp.array([[0.3], [-2.0]]), jnp.zeros((1, 2, 2))
    one, other = (layer.loss(P, shift, jnp.array(ids)) for ids in ([0, 1], [1, 0]))
    np.testing.assert_allclose(one, other)
    gradients, mu, *_ = layer.case([[0, 1]])
    np.testing.assert_allclose(gradients.delta[0], [[1, -1], [1, -1]])
    audit = audit_of(gradients, mu)
    assert audit.conclusions["b_i = b_j"].holds
    assert not audit.conclusions["g symmetric"].holds


def test_the_bound_of_masked_words_fails_away_from_zero():
    """(0.98, 0.02) and its reverse: D_KL is 3.74, and 2√2 d_H is 3.39.

    They are of two words in two orders, where μ_i(t_j) has rows that sum to 1, as attention has: by
    Lemma 11's test A_ij = μ_i(t_j) is attained, so ε_suff is 0.
    """
    mu = np.array([[0.98, 0.02], [0.02, 0.98]])
    for words in ([0, 1], [1, 0]):
        np.testing.assert_allclose(mu[:, words].sum(axis=1), 1)
    kl, d = kl_divergences(mu)[0, 1], hellinger_distances(mu).values[0, 1]
    np.testing.assert_allclose([kl, 8**0.5 * d], [3.736, 3.394], atol=5e-4)


@pytest.mark.parametrize("orders", ["cyclic", "as they are"])
def test_it_is_true_of_corpora_that_shifts_leave_as_they_were(orders):
    """A layer whose mean row is the outcome: rows of b agree if each text comes in every shift."""
    layer = random_layer(lambda rows, ids: jnp.sum(jnp.tanh(jnp.sum(rows, axis=0))))
    texts = np.array([[0, 3, 5, 1, 1], [2, 7, 3, 8, 4]])
    if orders == "cyclic":
        texts = np.concatenate([np.roll(texts, k, axis=1) for k in range(N)])
    gradients, mu, *_ = layer.case(texts)
    same = audit_of(gradients, mu).conclusions["b_i = b_j"]
    assert same.holds == (orders == "cyclic")
    assert np.abs(gradients.forcing).max() > 1e-2


def test_a_symmetric_g_is_not_given_either():
    """Attention weights of a row sum to 1 and those of a column need not: δ is not symmetric."""
    layer = random_layer(lambda rows, ids: jnp.sum(jnp.tanh(jnp.sum(rows, axis=0))))
    texts = np.array([[0, 3, 5, 1, 1], [2, 7, 3, 8, 4]])
    gradients, mu, *_ = layer.case(texts)
    audit = audit_of(gradients, mu)
    assert not audit.conclusions["g symmetric"].holds
    assert not audit.conclusions["L_g = 0"].holds


def test_a_transformer():
    gradients, mu, *_ = flax_case("masked_lm")
    masked = quickly(lambda g, mu: corollary_15(g, mu, family="masked"))(gradients, mu)
    assert masked.conclusions["L_g ≤ 2√2"].holds
    assert not masked.conclusions["D_KL ≤ 2√2 d_H"].holds
    # Words absent from a position: (i) is about distributions away from zero.
    assert masked.hypotheses["away from zero"].rhs == 0
    assert verdict(masked) == "not claimed: away from zero fails; D_KL ≤ 2√2 d_H fails"
    gradients, mu, *_ = flax_case("classifier")
    labels = quickly(lambda g, mu: corollary_15(g, mu, family="classification"))(gradients, mu)
    assert labels.conclusions["L_g finite"].holds
    assert verdict(labels) == "holds; not checked: positional frequencies"
    slopes = labels.measured["slopes in i"]
    np.testing.assert_allclose(labels.conclusions["L_g finite"].lhs, slopes.max())


def test_a_bound_of_nothing_in_particular():
    """(i) has no unit: a loss a thousand times as large has a thousand times the slope."""
    gradients, mu, *_ = flax_case("masked_lm")
    scaled = PositionGradients(*(1000 * x for x in gradients))
    audit = quickly(lambda g, mu: corollary_15(g, mu, family="masked"))(scaled, mu)
    assert not audit.conclusions["L_g ≤ 2√2"].holds


def test_families():
    gradients, mu, *_ = flax_case("classifier")
    message = "family is 'mlm': pass 'masked', 'classification' or"
    with unchecked(), pytest.raises(ValueError, match=message):
        corollary_15(gradients, mu, family="mlm")
