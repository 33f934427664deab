"""Theorem 1: its index, what it leaves open, and a transformer."""

import itertools

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


def audit_of(f, orders=CYCLE, **options):
    return quickly(lambda ids: theorem_1(f, ids, orders, **options))(IDS)


def alone(ids):
    return jnp.asarray(EMBEDDINGS)[ids]


def test_the_printed_index_needs_an_involution():
    """f(t_σ)_σ(i) = f(t)_i fails for three tokens turned round, with f the identity."""
    turned, back = (audit_of(alone, order) for order in (CYCLE, REVERSED))
    for audit in (turned, back):
        assert audit.conclusions["equivariant"].lhs == 0
        assert verdict(audit) == "holds"
    assert back.measured["deviation as printed"] == 0
    # t_σ = (1, 5, 0), and its entries at σ = (1, 2, 0) are (5, 0, 1), not (0, 1, 5).
    assert turned.measured["deviation as printed"] == 5 / 5


def test_a_task_that_reads_one_position_is_order_sensitive_and_solved():
    """The label is the first token; f commutes with permutations, and its first row is right."""
    assert audit_of(alone).conclusions["equivariant"].holds
    for order in ([0, 1, 2], [1, 2, 0]):
        assert alone(IDS[0][order])[0] == EMBEDDINGS[IDS[0][order]][0]
    assert alone(IDS[0])[0] != alone(IDS[0][CYCLE[0]])[0]


def test_copying_notices_every_permutation_and_is_solved():
    """Each place asks for its own token: the loss is 0, and above 0 for every other order."""
    wanted = EMBEDDINGS[IDS[0]]
    for order in itertools.permutations(range(3)):
        loss = np.sum((np.asarray(alone(IDS[0][list(order)])) - wanted) ** 2)
        assert (loss > 0) == (order != (0, 1, 2))


def test_a_causal_mask_breaks_it():
    def causal(ids):
        x = alone(ids)
        logits = jnp.where(jnp.tril(jnp.ones((3, 3), bool)), x[:, None] * x[None, :], -1e30)
        return jax.nn.softmax(logits) @ x

    audit = audit_of(causal)
    assert verdict(audit) == "refuted: equivariant fails"
    assert audit.conclusions["equivariant"].lhs > 0.1


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_transformer(dtype):
    of, _, _ = functions(classifier(dtype=dtype, param_dtype=dtype))
    orders = np.stack([np.random.default_rng(k).permutation(N) for k in range(3)])

    def audit(P, ids):
        def hidden(ids):
            return of.apply(P, of.no_shift, ids).transformer.hidden

        return theorem_1(hidden, ids, orders)

    audit = quickly(audit)
    ids = corpus()[0][:4]
    without = audit(jnp.zeros((N, DIM), dtype), ids)
    assert without.conclusions["equivariant"].holds
    eps = float(jnp.finfo(dtype).eps)
    assert without.conclusions["equivariant"].rhs == pytest.approx(1000 * eps)
    assert np.all(without.measured["deviation as printed"] > 0.1)
    P = jnp.asarray(np.random.default_rng(0).normal(size=(N, DIM)), dtype)
    assert audit(P, ids).conclusions["equivariant"].lhs > 0.1


def test_deviations_are_relative():
    audit = audit_of(lambda ids: 0.0 * alone(ids))
    assert audit.conclusions["equivariant"].lhs == 0
    noisy = audit_of(lambda ids: 1e9 * alone(ids) + jnp.arange(3.0), tolerance=1e-6)
    assert noisy.conclusions["equivariant"].holds
    np.testing.assert_allclose(noisy.measured["deviation"], 2 / 5e9, rtol=1e-6)


def test_pooled_outputs_are_refused():
    with pytest.raises(ValueError, match=r"f gives \(\) for 3 tokens: pass a function with one"):
        theorem_1(lambda ids: jnp.sum(alone(ids)), IDS, CYCLE)
