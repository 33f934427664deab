"""Lemma 14: the second argument, the parts that are left out, and what the bound holds of."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe.geometry import Distances, hellinger_distances
from jaxpe.theory.audit import verdict
from jaxpe.theory.cirrincione2026.lemma_14_lipschitz_forcing import lemma_14
from jaxpe.theory.gradients import PositionGradients, forcing_of_means
from tests.theory.tiny import DIM, N, flax_case, layer_of, quickly

RNG = np.random.default_rng(0)


def of_case(gradients, mu, means, query, key):
    return lemma_14(gradients, hellinger_distances(mu), means, query, key)


def test_the_second_argument_is_needed():
    """Uniform attention, so δ_ij = h_j for all i: no slope in i, and b_0 ≠ b_1 all the same.

    Embeddings (1, 0) and (2, 0), and M with one entry above the diagonal: x M xᵀ = 0 for them, but
    x M ≠ 0. What goes through logits alone refutes the lemma.
    """
    weights = [[1.0], [0.0]], [[0.0], [1.0]], np.eye(2)
    layer = layer_of([[1.0, 0.0], [2.0, 0.0]], *weights, lambda rows, ids: jnp.sum(rows))
    gradients, mu, means, q, k = layer.case([[0, 1]])
    np.testing.assert_allclose(gradients.delta[0], [[-0.25, 0.25]] * 2)
    # −Σ_k δ_ki x_k M = −h_i (3, 0) M
    np.testing.assert_allclose(gradients.through_logits, [[0, 0.75], [0, -0.75]], atol=1e-15)
    audit = of_case(gradients, mu, means, q, k)
    assert verdict(audit).startswith("refuted: (A2) fails")
    assert audit.measured["predicted by i alone"] == 0
    np.testing.assert_allclose(audit.measured["C_b of logits"], 1.5 / 2**0.5)
    assert audit.conclusions["(A2) of logits"].holds  # with both arguments: 4 · (1/√8) · 2


def test_values_and_residual_stream_are_left_out():
    """M = 0: predicted b_i = b_j, measured −2 E(t_i)."""
    layer = layer_of([[1.0], [0.0]], [[0.0]], [[0.0]], [[0.0]], lambda rows, ids: jnp.sum(rows**2))
    gradients, mu, means, q, k = layer.case([[0, 1]])
    audit = of_case(gradients, mu, means, q, k)
    assert not audit.conclusions["(A2) both arguments"].holds
    assert audit.measured["predicted"] == 0
    np.testing.assert_allclose(gradients.forcing[:, 0], [-2, 0])
    assert (audit.measured["size of logits"], audit.measured["size of the rest"]) == (0, 1)


def test_the_bound_holds_of_the_formula():
    """For any δ at all, with both slopes; positions absent do not count."""

    def at(key):
        keys = jax.random.split(key, 4)
        delta = jax.random.normal(keys[0], (2, N, N))
        q, k = jax.random.normal(keys[1], (2, DIM, 2, 3))
        means = jax.random.normal(keys[2], (N, DIM))
        points = jax.random.normal(keys[3], (N, 2))
        d = jnp.linalg.norm(points[:, None] - points[None], axis=-1)
        b = jnp.zeros((N, DIM))
        given = PositionGradients(delta, delta, b, b, b)
        return lemma_14(given, Distances(d, jnp.arange(N) < N - 1), means, q, k)

    found = quickly(jax.vmap(at))(jax.random.split(jax.random.key(0), 50))
    formula = found.instead["(A2) of the formula"]
    assert formula.holds.all()
    assert np.max(formula.lhs / formula.rhs) > 0.1


def test_equal_distributions_need_equal_gradients():
    D, b, one = np.zeros((N, N)), jnp.zeros((N, DIM)), np.ones((DIM, 1, 1))
    delta = jnp.asarray(RNG.normal(size=(1, N, N)))
    for size, holds in ((1, False), (0, True)):
        given = PositionGradients(size * delta, delta, b, b, b)
        audit = lemma_14(given, D, b + 1.0, one, one)
        assert audit.hypotheses["(9)"].holds == audit.hypotheses["(8)"].holds == holds
    assert verdict(audit) == "holds"


def test_a_transformer():
    found, mu, means, of = flax_case("classifier")
    query, key = of.projections.query, of.projections.key
    audit = of_case(found, mu, means, query, key)
    measured = audit.measured
    # Parts over pairs, as they are defined.
    i, j = np.triu_indices(N, 1)
    gap = np.asarray(found.through_logits - forcing_of_means(found.delta, means, query, key))
    parts = found.forcing, found.through_logits, found.forcing - found.through_logits, gap
    b, logits, rest, gap = (np.asarray(x)[i] - np.asarray(x)[j] for x in parts)
    whole = np.sum(b**2)
    np.testing.assert_allclose(measured["share of logits"], np.sum(b * logits) / whole)
    np.testing.assert_allclose(measured["size of logits"] ** 2, np.sum(logits**2) / whole)
    np.testing.assert_allclose(measured["size of the rest"] ** 2, np.sum(rest**2) / whole)
    correlation = np.sum(gap**2) / np.sum(logits**2)
    np.testing.assert_allclose(measured["correlation"] ** 2, correlation)
    # The larger part is left out.
    assert measured["size of logits"] < measured["size of the rest"]
    slopes = np.maximum(measured["slopes in i"], measured["slopes in j"])
    norms = np.linalg.norm(np.einsum("dhc,ehc->hde", query, key), 2, axis=(1, 2))
    size = np.linalg.norm(means, axis=1).max()
    np.testing.assert_allclose(measured["predicted"], 2 * N * size * np.sum(slopes * norms) / 2)
