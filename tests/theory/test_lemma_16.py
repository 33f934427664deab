"""Lemma 16: three constants, sharper ones, and where the published ones fail."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe.theory.cirrincione2026.lemma_16_lipschitz_constants import lemma_16
from jaxpe.theory.gradients import PositionGradients
from tests.theory.tiny import DIM, VOCAB, N, corpus, flax_case, layer_of, quickly, random_layer

RNG = np.random.default_rng(0)
TRUE = ("(10)", "(10) by the radius", "(11) of mean logits", "(11) halved")


def nothing(heads, n, dim):
    return PositionGradients(*(jnp.zeros((heads, n, n)),) * 2, *(jnp.zeros((n, dim)),) * 3)


def true_ones_hold(audit):
    return all((audit.conclusions | audit.instead)[name].holds for name in TRUE)


def of_layer(layer, ids, bound=1.0):
    gradients, mu, _, q, k = layer.case(ids)
    v, o = layer.value[:, None], jnp.eye(layer.value.shape[0])[None]
    audit = lemma_16(gradients, mu, layer.embeddings, q, k, v, o, gradient_bound=bound)
    return audit, gradients


def test_weights_are_no_function_of_mean_embeddings():
    """Words ±1 at one position and 0 at the other: ē = 0 for both, L_A = 0, and E A_00 ≠ E A_10."""
    layer = layer_of(
        [[1.0], [-1.0], [0.0]], [[1.0]], [[1.0]], [[0.0]], lambda rows, ids: rows[0, 0]
    )
    audit, gradients = of_layer(layer, [[0, 2], [1, 2]])
    np.testing.assert_allclose(gradients.weights[0, :, 0], [np.e / (1 + np.e), 0.5])
    weights = audit.conclusions["(11) of weights"]
    assert not weights.holds
    assert weights.rhs == 0
    np.testing.assert_allclose(weights.lhs, (np.e / (1 + np.e) - 0.5) / 2**0.5)
    assert true_ones_hold(audit)


def test_the_published_slope_of_delta_vanishes_with_m_and_delta_does_not():
    """[CLS] = 0 and a word 1, M = 0.01, loss −log σ(h): 0.067 ≤ 0.002 is claimed."""

    def read(rows, ids):
        return -jax.nn.log_sigmoid(rows[0, 0])

    layer = layer_of([[0.0], [1.0], [0.0]], [[0.01]], [[1.0]], [[1.0]], read)
    bound = 1 / (1 + np.exp(0.5))  # |∂loss/∂h| at h = ½
    audit, gradients = of_layer(layer, [[0, 1]], bound)
    np.testing.assert_allclose(gradients.delta[0], [[bound / 4, -bound / 4], [0, 0]], atol=1e-15)
    published = audit.conclusions["(12)"]
    assert not published.holds
    np.testing.assert_allclose(published.lhs, bound / 4 / 2**0.5)
    np.testing.assert_allclose(published.rhs, bound / 4 * 0.01 * 6**0.5)
    other = audit.instead["(12) of one layer"]  # an equality here: 2r = 1 and the d_H is √2
    assert other.holds
    np.testing.assert_allclose([other.lhs, other.rhs], bound / 4 / 2**0.5)


def test_classifiers_of_one_layer_keep_to_the_other_bound():
    """δ_0j = A_0j(1 − A_0j)⟨∂loss/∂h, (x_j − x̄)W_V⟩, for any weights."""
    ids, _ = corpus()
    w = jnp.asarray(RNG.normal(size=3))

    def read(rows, ids):
        return jax.nn.softplus(rows[0] @ w)

    @quickly
    def slopes_of_losses(layer):
        def of(ids):
            h = layer.rows(jnp.zeros((N, 3)), jnp.zeros((1, N, N)), ids)[0]
            return jnp.linalg.norm(jax.grad(lambda h: read(h[None], ids))(h))

        return jnp.max(jax.vmap(of)(ids))

    shares = []
    for seed, scale in ((0, 0.1), (1, 1.0), (2, 2.0)):
        layer = random_layer(read, seed=seed, scale=scale)
        audit, gradients = of_layer(layer, ids, slopes_of_losses(layer))
        assert np.all(gradients.delta[0, 1:] == 0)
        held = audit.instead["(12) of one layer"]
        assert held.holds
        shares.append(held.lhs / held.rhs)
        assert true_ones_hold(audit)
    assert max(shares) > 0.02


def test_constants_of_means():
    """For many corpora and embeddings."""
    shares = []
    for _ in range(10):
        mu = RNG.dirichlet(np.full(VOCAB, 0.2), N)
        embeddings = 3 + RNG.normal(size=(VOCAB, DIM))
        q, k = 0.2 * RNG.normal(size=(2, DIM, 2, 4))
        given = mu, embeddings, q, k, q, np.zeros((2, 4, DIM))
        audit = lemma_16(nothing(2, N, DIM), *given, gradient_bound=1.0)
        assert true_ones_hold(audit)
        measured = audit.measured
        assert measured["slope of means"] <= measured["2r"] < measured["2‖E‖∞"] / 2
        np.testing.assert_allclose(measured["L_e"] / measured["2‖E‖∞"], (VOCAB / 2) ** 0.5)
        halved = audit.instead["(11) halved"]
        shares.append(halved.lhs / halved.rhs)
    assert max(shares) > 0.01


def test_the_radius_is_reached_and_that_of_the_best_centre():
    """Two disjoint words: ‖ē_0 − ē_1‖ = 2r. A regular triangle and a point inside: r = 1."""
    W, o = jnp.zeros((2, 1, 1)), jnp.zeros((1, 1, 2))
    angles = 2 * np.pi * np.arange(3) / 3
    corners = 5 + np.stack([np.cos(angles), np.sin(angles)], axis=1)
    embeddings = np.concatenate([corners, [[5.1, 5.3]], [[-99.0, 0.0]]])
    mu = np.array([[1, 0, 0, 0, 0], [0, 1, 1, 1, 0]]) / np.array([[1], [3]])
    for rows, centred in ((mu, True), (np.eye(2, 5), False)):
        audit = lemma_16(nothing(1, 2, 2), rows, embeddings, W, W, W, o, gradient_bound=1.0)
        if centred:
            assert 2 <= audit.measured["2r"] < 2.03
            assert audit.measured["2‖E‖∞"] == 198
    reached = audit.instead["(10) by the radius"]
    np.testing.assert_allclose(reached.lhs, reached.rhs, rtol=1e-2)


def test_a_transformer():
    found, mu, means, of = flax_case("classifier")
    audit = lemma_16(found, mu, of.embeddings, *of.projections, gradient_bound=1.0)
    assert true_ones_hold(audit)
    measured, (query, key, value, output) = audit.measured, of.projections
    norms = np.linalg.norm(np.einsum("dhc,ehc->hde", query, key), 2, axis=(1, 2))
    size = np.linalg.norm(means, axis=1).max()
    np.testing.assert_allclose(measured["L_A"], norms * size * measured["L_e"] / 2)
    values = np.linalg.norm(np.einsum("dhc,hce->hde", value, output), 2, axis=(1, 2))
    np.testing.assert_allclose(measured["L_g"], values * size * measured["L_A"] / 4)
