"""Theorem 4: a minimiser with equal positions, the step of the proof, and what is empty."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpe.theory.audit import verdict
from jaxpe.theory.cirrincione2026.theorem_4_separation import theorem_4
from tests.theory.tiny import (
    DIM,
    EXACT,
    N,
    classifier,
    distributions,
    examples,
    functions,
    layer_of,
    mean_embeddings,
    quickly,
)

ONE = jnp.ones((1, 1, 1))
PAIR = np.array([[0, 1]])


def swap_tokens(example, order):
    return example[0][order], example[1]


def test_targets_at_positions_refute_it():
    """Two words, one layer, d = 1, targets y = f(t) at P = 0: all hypotheses, and P* = 0.

    The loss is 0 at P = 0, so that is a global minimiser; its rows are equal.
    """
    layer = layer_of([[1.0], [-1.0]], [[1.0]], [[1.0]], [[0.5]], None)
    ids, P = jnp.array([[0, 1]]), jnp.zeros((2, 1))
    targets = jax.vmap(lambda ids: layer.rows(P, jnp.zeros((1, 2, 2)), ids))(ids)

    def loss(P, example):
        ids, y = example
        return jnp.sum((layer.rows(P, jnp.zeros((1, 2, 2)), ids) - y) ** 2)

    def at(swap):
        given = (ids, targets), layer.embeddings, ONE, ONE
        return theorem_4(loss, P, *given, swaps=PAIR, swap=swap)

    audit = at(swap_tokens)
    assert verdict(audit) == "refuted: separated fails"
    assert audit.measured["gradient"] == 0
    assert audit.measured["losses"][0] > 0 == loss(P, (ids[0], targets[0]))
    # Exchanging rows of P, the other reading, changes nothing: (H2) is what fails then.
    assert verdict(at(None)) == "does not apply: H2 fails; separated fails"


def test_a_causal_mask_refutes_it_for_one_label_a_sequence():
    """A model without positions that reads the order of two words off a causal mask."""
    embeddings = jnp.array([1.0, 3.0])
    ids, labels = jnp.array([[0, 1]]), jnp.array([[2.0, 1.5]])

    def causal(x):  # uniform attention backwards
        return jnp.cumsum(x) / jnp.arange(1.0, 3.0)

    def loss(P, example):  # two layers, read at the last row
        once = causal(embeddings[example[0]] + P[:, 0])
        return jnp.sum((jnp.stack([once, causal(once)])[:, 1] - example[1]) ** 2)

    given = (ids, labels), embeddings[:, None], ONE, ONE
    audit = theorem_4(loss, jnp.zeros((2, 1)), *given, swaps=PAIR, swap=swap_tokens)
    assert verdict(audit) == "refuted: separated fails"


def test_for_one_label_a_sequence_the_swap_is_the_conclusion():
    """Exchanging tokens and exchanging rows of P are one thing, which equal rows do not notice.

    And what one order gains at P the other loses at P exchanged: (H2) cannot hold at every P.
    """
    of, loss, _ = functions(classifier(**EXACT))
    rows = examples()
    swaps = np.array([[1, 2], [2, 4], [3, 4]])
    means = mean_embeddings(distributions(rows["ids"]), of.embeddings)
    weights = means, of.projections.query, of.projections.key

    @quickly
    def at(P, rows):
        def of_example(P, example):
            return loss(P, of.no_shift, example)

        return theorem_4(of_example, P, rows, *weights, swaps=swaps, scales=(1.0, 1e6))

    P, order = of.vectors.at[4].set(of.vectors[3]), np.array([0, 2, 1, 3, 4])
    found = at(P, rows)
    moved = rows | {"ids": rows["ids"][:, order]}
    by_tokens = at(P, moved).measured["losses"][0] - found.measured["losses"][0]
    changes = found.measured["changes"]
    np.testing.assert_allclose(by_tokens, changes[0], atol=1e-14)
    assert np.abs(changes[:2]).min() > 1e-4
    np.testing.assert_allclose(changes[2], 0, atol=1e-15)
    for part in (found.hypotheses["H2"], found.conclusions["separated"]):
        assert not part.holds
    # A norm after the sum: the loss of t·P stays where it is.
    assert not found.hypotheses["coercive"].holds
    assert found.hypotheses["H1"].holds & found.hypotheses["H3"].holds
    exchanged = at(P[order], rows).measured["changes"]
    np.testing.assert_allclose(exchanged[0], -changes[0], atol=1e-14)


P, X = jnp.array([[1.0], [2.0]]), jnp.ones((1, 1))


def test_coercivity_along_a_ray():
    """Powers and logarithms grow; what saturates, falls or stays does not."""
    growing = [lambda r: r**2, lambda r: r**0.1, lambda r: jnp.log(1 + r)]
    bounded = [lambda r: 1 - 1 / r, lambda r: 1 / r, lambda r: 1.0 + 0 * r]

    def at(which):
        def loss(P, x):
            return lax.switch(which, growing + bounded, jnp.linalg.norm(P))

        return theorem_4(loss, P, X, P, ONE, ONE, swaps=PAIR)

    found = quickly(jax.vmap(at))(np.arange(6))
    assert found.hypotheses["coercive"].holds.tolist() == [True] * 3 + [False] * 3
    losses = [5 * 100.0**k for k in range(7)]
    np.testing.assert_allclose(found.measured["losses"][0], losses)


def test_swaps_gradient_and_degenerate_input():
    """Of P = (1, 2), d = 1 and M = `query`."""

    def loss(P, x):
        return 3 * P[0, 0] + P[1, 0]

    def measure(means=P, query=ONE, **options):
        return theorem_4(loss, P, X, means, query, ONE, swaps=PAIR, **options)

    audit = measure()
    assert audit.measured["changes"].tolist() == [2.0]
    assert audit.hypotheses["H2"].rhs == 2
    assert audit.measured["gradient"] == 3
    assert audit.conclusions["separated"].rhs == 1
    flat = measure(means=0 * P + 1)
    assert not flat.hypotheses["H1"].holds
    assert flat.hypotheses["H3"].rhs == 0
    assert not flat.hypotheses["H3"].holds
    no_scores = measure(query=0 * ONE)
    assert no_scores.hypotheses["H3"].rhs == 0
    assert no_scores.hypotheses["H1"].holds
    assert np.isinf(measure(present=np.array([True, False])).conclusions["separated"].rhs)


def test_degeneracy_by_its_definition():
    rng = np.random.default_rng(0)
    means, (q, k) = rng.normal(size=(N, DIM)), rng.normal(size=(2, DIM, 2, 3))
    audit = theorem_4(lambda P, x: jnp.sum(P**2), jnp.ones((N, 1)), X, means, q, k, swaps=PAIR)
    i, j = np.triu_indices(N, 1)
    difference = means[i] - means[j]

    def least(M):
        size = np.linalg.norm(M, 2) * np.linalg.norm(difference, axis=1)
        return (np.linalg.norm(difference @ M.T, axis=1) / size).min()

    M = np.einsum("dhc,ehc->hde", q, k)
    np.testing.assert_allclose(audit.measured["H3 by head"], [least(m) for m in M])
    np.testing.assert_allclose(audit.measured["H3 of rows by head"], [least(m.T) for m in M])
    np.testing.assert_allclose(audit.measured["H3 of all heads"], least(M.sum(axis=0)))
    np.testing.assert_allclose(audit.hypotheses["H3"].rhs, min(least(m) for m in M))
    np.testing.assert_allclose(audit.hypotheses["H1"].rhs, np.linalg.norm(difference, axis=1).min())
