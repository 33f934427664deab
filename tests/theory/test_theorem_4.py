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


def test_targets_at_positions_refute_it():
    """Two words, one layer, d = 1, targets y = f(t) at P = 0: all hypotheses, and P* = 0.

    The loss is 0 at P = 0, so that is a global minimiser; its rows are equal.
    """
    layer = layer_of([[1.0], [-1.0]], [[1.0]], [[1.0]], [[0.5]], None)
    ids = jnp.array([[0, 1]])
    targets = jax.vmap(lambda ids: layer.rows(jnp.zeros((2, 1)), jnp.zeros((1, 2, 2)), ids))(ids)

    def loss(P, example):
        ids, y = example
        return jnp.sum((layer.rows(P, jnp.zeros((1, 2, 2)), ids) - y) ** 2)

    def swap_tokens(example, order):
        return example[0][order], example[1]

    def at(P, swap):
        given = (ids, targets), layer.embeddings, ONE, ONE
        return theorem_4(loss, P, *given, swaps=PAIR, swap=swap)

    P = jnp.zeros((2, 1))
    audit, other = quickly(lambda P: (at(P, swap_tokens), at(P, None)))(P)
    assert verdict(audit) == "refuted: separated fails"
    assert audit.measured["gradient"] == 0
    assert audit.measured["losses"][0] > 0 == loss(P, (ids[0], targets[0]))
    # Exchanging rows of P, the other reading, changes nothing: (H2) is what fails then.
    assert verdict(other) == "not claimed: H2 fails; separated fails"


def test_the_first_of_two_words_refutes_it():
    """One label a sequence, read at the first row, and a ridge: least at P = 0, where p_0 = p_1.

    Words are ±1 and independent, 1 in 3 of 4 cases at the first place and in 1 of 4 at the second.
    Values are 0, so that row 0 is E(t_0) + p_0.
    """
    layer = layer_of([[1.0], [-1.0]], [[1.0]], [[1.0]], [[0.0]], None)
    ids = jnp.array([[a, b] for a in (0, 0, 0, 1) for b in (0, 1, 1, 1)])
    labels = layer.embeddings[ids[:, 0], 0]

    def loss(P, example):
        ids, label = example
        row = layer.rows(P, jnp.zeros((1, 2, 2)), ids)[0, 0]
        return (row - label) ** 2 + 1e-3 * jnp.sum(P**2)

    def swap_tokens(example, order):
        return example[0][order], example[1]

    given = (ids, labels), jnp.array([[0.5], [-0.5]]), ONE, ONE
    at = quickly(lambda P: theorem_4(loss, P, *given, swaps=PAIR, swap=swap_tokens))
    audit = at(jnp.zeros((2, 1)))
    assert verdict(audit) == "refuted: separated fails"
    np.testing.assert_allclose(audit.measured["changes"], 4 * 10 / 16)
    assert audit.measured["gradient"] == 0


def test_a_causal_mask_refutes_it_for_one_label_a_sequence():
    """A model without positions that reads the order of two words off a causal mask."""
    embeddings = jnp.array([1.0, 3.0])
    ids, labels = jnp.array([[0, 1]]), jnp.array([[2.0, 1.5]])

    def causal(x):  # uniform attention backwards
        return jnp.cumsum(x) / jnp.arange(1.0, 3.0)

    def loss(P, example):  # two layers, read at the last row
        once = causal(embeddings[example[0]] + P[:, 0])
        return jnp.sum((jnp.stack([once, causal(once)])[:, 1] - example[1]) ** 2)

    def swap_tokens(example, order):
        return example[0][order], example[1]

    given = (ids, labels), embeddings[:, None], ONE, ONE
    at = quickly(lambda P: theorem_4(loss, P, *given, swaps=PAIR, swap=swap_tokens))
    assert verdict(at(jnp.zeros((2, 1)))) == "refuted: separated fails"


def test_the_last_step_of_the_proof():
    """Σ_k E[c_k] ē_k = 0 with c_0 ≠ c_1, ē_0 ≠ ē_1 and M = 1, for a δ whose rows sum to 0."""
    delta = np.array([[5, -5], [-1, 1]]) / 8
    c = delta[0] - delta[1] + delta[:, 0] - delta[:, 1]
    mean = np.array([1.0, 2.0])
    np.testing.assert_array_equal(c, [2, -1])
    assert c @ mean == 0


def test_for_one_label_a_sequence_the_swap_is_the_conclusion():
    """Exchanging tokens and exchanging rows of P are one thing, which equal rows do not notice.

    And what one order gains at P the other loses at P exchanged: (H2) cannot hold at every P.
    """
    of, loss, _ = functions(classifier(**EXACT))
    rows = examples()
    swaps = np.array([[1, 2], [2, 4], [3, 4]])
    means = mean_embeddings(distributions(rows["ids"]), of.embeddings)
    q, k = of.projections.query, of.projections.key

    def at(P, rows):
        return theorem_4(
            lambda P, example: loss(P, of.no_shift, example),
            P,
            rows,
            means,
            q,
            k,
            swaps=swaps,
            scales=(1.0, 1e6),
        )

    at = quickly(at)
    P = of.vectors.at[4].set(of.vectors[3])
    found = at(P, rows)
    moved = rows | {"ids": rows["ids"][:, [0, 2, 1, 3, 4]]}
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
    exchanged = at(P[np.array([0, 2, 1, 3, 4])], rows).measured["changes"]
    np.testing.assert_allclose(exchanged[0], -changes[0], atol=1e-14)


def measure(loss, means=((1.0,), (2.0,)), query=ONE, **options):
    """Of P = (1, 2), d = 1 and M = `query`."""
    at = quickly(
        lambda P, x, means: theorem_4(loss, P, x, means, query, ONE, swaps=PAIR, **options)
    )
    return at(jnp.array([[1.0], [2.0]]), jnp.ones((1, 1)), jnp.asarray(means))


def test_coercivity_along_a_ray():
    """Powers and logarithms grow; what saturates, falls or stays does not."""
    growing = [lambda r: r**2, lambda r: r**0.1, lambda r: jnp.log(1 + r)]
    bounded = [lambda r: 1 - 1 / r, lambda r: 1 / r, lambda r: 1.0 + 0 * r]

    def at(which):
        def loss(P, x):
            return lax.switch(which, growing + bounded, jnp.linalg.norm(P))

        P, x = jnp.array([[1.0], [2.0]]), jnp.ones((1, 1))
        return theorem_4(loss, P, x, P, ONE, ONE, swaps=PAIR)

    found = quickly(jax.vmap(at))(np.arange(6))
    assert found.hypotheses["coercive"].holds.tolist() == [True] * 3 + [False] * 3
    losses = [5 * 100.0**k for k in range(7)]
    np.testing.assert_allclose(found.measured["losses"][0], losses)


def test_swaps_and_gradient():
    audit = measure(lambda P, x: 3 * P[0, 0] + P[1, 0])
    assert audit.measured["changes"].tolist() == [2.0]
    assert audit.hypotheses["H2"].rhs == 2
    assert audit.measured["gradient"] == 3
    assert audit.conclusions["separated"].rhs == 1


def test_degeneracy_by_its_definition():
    rng = np.random.default_rng(0)
    means, (q, k) = rng.normal(size=(N, DIM)), rng.normal(size=(2, DIM, 2, 3))
    P, x = jnp.ones((N, 1)), jnp.ones((1, 1))

    def of_head(means, q, k):
        return theorem_4(lambda P, x: jnp.sum(P**2), P, x, means, q, k, swaps=PAIR)

    audit = quickly(of_head)(means, q, k)
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


def test_degenerate_input_is_said_to_be():
    flat = measure(lambda P, x: jnp.sum(P**2), means=((1.0,), (1.0,)))
    assert not flat.hypotheses["H1"].holds
    assert flat.hypotheses["H3"].rhs == 0
    assert not flat.hypotheses["H3"].holds
    no_scores = measure(lambda P, x: jnp.sum(P**2), query=0 * ONE)
    assert no_scores.hypotheses["H3"].rhs == 0
    assert no_scores.hypotheses["H1"].holds
    one = measure(lambda P, x: jnp.sum(P**2), present=np.array([True, False]))
    assert np.isinf(one.conclusions["separated"].rhs)
