"""Corollary 15: three families, a loss that ignores order, and corpora of which it is true."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.theory.audit import verdict
from jaxpe.theory.cirrincione2026.corollary_15_loss_families import corollary_15
from jaxpe.theory.gradients import position_gradients
from tests.theory.tiny import N, distributions, flax_case, random_layer
from tests.unchecked import unchecked


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
    gradients = position_gradients(loss, attention, P, ids)
    np.testing.assert_allclose(gradients.forcing[:, 0], [-4, 0])
    audit = corollary_15(gradients, distributions(ids, vocab=2), family="agnostic")
    assert verdict(audit) == "refuted: b_i = b_j fails"
    assert audit.conclusions["b_i = b_j"].lhs == 4


def test_it_is_true_of_corpora_that_shifts_leave_as_they_were():
    """A layer whose mean row is the outcome: rows of b agree if each text comes in every shift.

    Attention weights of a row sum to 1 and those of a column need not: δ is not symmetric.
    """
    layer = random_layer(lambda rows, ids: jnp.sum(jnp.tanh(jnp.sum(rows, axis=0))))
    texts = np.array([[0, 3, 5, 1, 1], [2, 7, 3, 8, 4]] * N)
    shifts = np.stack([np.roll(text, k // 2) for k, text in enumerate(texts)])
    for ids, cyclic in ((texts, False), (shifts, True)):
        gradients, mu, *_ = layer.case(ids)
        conclusions = corollary_15(gradients, mu, family="agnostic").conclusions
        assert conclusions["b_i = b_j"].holds == cyclic
        assert not conclusions["g symmetric"].holds
        assert np.abs(gradients.forcing).max() > 1e-2
    assert not corollary_15(*layer.case(texts)[:2], family="agnostic").conclusions["L_g = 0"].holds


def test_a_transformer():
    gradients, mu, *_ = flax_case("masked_lm")
    masked = corollary_15(gradients, mu, family="masked")
    # Words absent from a position: (i) is about distributions away from zero.
    assert masked.hypotheses["away from zero"].rhs == 0
    assert verdict(masked) == "does not apply: away from zero fails; D_KL ≤ 2√2 d_H fails"
    # (i) has no unit: a loss a thousand times as large has a thousand times the slope.
    scaled = corollary_15(jax.tree.map(lambda x: 1000 * x, gradients), mu, family="masked")
    assert not scaled.conclusions["L_g ≤ 2√2"].holds
    labels = corollary_15(gradients, mu, family="classification")
    assert verdict(labels) == "holds; not checked: positional frequencies"
    slopes = labels.measured["slopes in i"]
    np.testing.assert_allclose(labels.conclusions["L_g finite"].lhs, slopes.max())
    with unchecked(), pytest.raises(ValueError, match="mlm"):
        corollary_15(gradients, mu, family="mlm")
