"""Theorem 1: its index, what it leaves open, and a transformer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.theory.audit import verdict
from jaxpe.theory.cirrincione2026.theorem_1_equivariance import theorem_1
from tests.theory.tiny import DIM, N, classifier, corpus, functions, quickly

EMBEDDINGS = np.array([0.0, 1.0, 5.0])
CYCLE, REVERSED = np.array([[1, 2, 0]]), np.array([[2, 1, 0]])
IDS = np.array([[0, 1, 2]])


def alone(ids):
    return jnp.asarray(EMBEDDINGS)[ids]


def test_the_printed_index_needs_an_involution():
    """f(t_σ)_σ(i) = f(t)_i fails for three tokens turned round, with f the identity.

    Yet the identity solves a task that depends on order: its label is the first token.
    """
    turned, back = (theorem_1(alone, IDS, order) for order in (CYCLE, REVERSED))
    for audit in (turned, back):
        assert audit.conclusions["equivariant"].lhs == 0
        assert verdict(audit) == "holds"
    assert back.measured["deviation as printed"] == 0
    # t_σ = (1, 5, 0), and its entries at σ = (1, 2, 0) are (5, 0, 1), not (0, 1, 5).
    assert turned.measured["deviation as printed"] == 5 / 5


def test_a_causal_mask_breaks_it():
    def causal(ids):
        x = alone(ids)
        logits = jnp.where(jnp.tril(jnp.ones((3, 3), bool)), x[:, None] * x[None, :], -1e30)
        return jax.nn.softmax(logits) @ x

    audit = theorem_1(causal, IDS, CYCLE)
    assert verdict(audit) == "refuted: equivariant fails"
    assert audit.conclusions["equivariant"].lhs > 0.1


def test_a_transformer():
    of, _, _ = functions(classifier(dtype=jnp.float32, param_dtype=jnp.float32))
    orders = np.stack([np.random.default_rng(k).permutation(N) for k in range(3)])
    ids = corpus()[0][:4]

    @quickly
    def audit(P):
        def hidden(ids):
            return of.apply(P, of.no_shift, ids).transformer.hidden

        return theorem_1(hidden, ids, orders)

    without = audit(jnp.zeros((N, DIM), jnp.float32))
    assert without.conclusions["equivariant"].holds
    eps = float(jnp.finfo(jnp.float32).eps)
    assert without.conclusions["equivariant"].rhs == pytest.approx(1000 * eps)
    assert np.all(without.measured["deviation as printed"] > 0.1)
    P = jnp.asarray(np.random.default_rng(0).normal(size=(N, DIM)), jnp.float32)
    assert audit(P).conclusions["equivariant"].lhs > 0.1


def test_deviations_are_relative():
    assert theorem_1(lambda ids: 0.0 * alone(ids), IDS, CYCLE).conclusions["equivariant"].lhs == 0

    def noisy(ids):
        return 1e9 * alone(ids) + jnp.arange(3.0)

    audit = theorem_1(noisy, IDS, CYCLE, tolerance=1e-6)
    assert audit.conclusions["equivariant"].holds
    np.testing.assert_allclose(audit.measured["deviation"], 2 / 5e9, rtol=1e-6)
