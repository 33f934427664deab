"""Expected δ, the parts of the forcing, and Lipschitz constants, against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import geometry
from jaxpe.theory.gradients import (
    forcing_of_means,
    mean_embeddings,
    position_gradients,
    product_norms,
    score_norms,
)
from jaxpe.theory.lipschitz import head_slopes, largest_ratio, vector_slope
from tests.theory.tiny import N, corpus, distributions, flax_case, quickly, random_layer

RNG = np.random.default_rng(0)


def read(rows, ids):
    return jnp.sum(jnp.tanh(rows) ** 2)


LAYER = random_layer(read)
IDS, _ = corpus()


def test_rows_of_delta_sum_to_zero_for_every_model():
    """And the formula in a transformer."""
    for kind in ("classifier", "masked_lm"):
        found, _, means, of = flax_case(kind)
        assert np.abs(found.delta).max() > 1e-3
        np.testing.assert_allclose(found.delta.sum(axis=-1), 0, atol=1e-14)
        if kind == "classifier":
            q, k = of.projections.query, of.projections.key
            by_means = forcing_of_means(found.delta, means, q, k)
            np.testing.assert_allclose(found.by_means, by_means, atol=1e-14)


def test_forcing_through_logits_is_the_formula_of_each_example():
    """b = −E Σ_k (δ_ik x_k Mᵀ + δ_ki x_k M)/√d_k where Eq. (1) holds, with δ and x of an example.

    With the means of both in place of that it is another vector: what correlates them is gone.
    """
    P = jnp.zeros((N, 3))
    q, k = LAYER.query[:, None], LAYER.key[:, None]

    def of_example(row):
        found = position_gradients(LAYER.loss, LAYER.attention, P, row[None])
        return found.through_logits, forcing_of_means(found.delta, LAYER.embeddings[row], q, k)

    exact, formula = quickly(jax.vmap(of_example))(IDS)
    np.testing.assert_allclose(exact, formula, atol=1e-13)
    for batch_size in (5, 12):
        whole = position_gradients(LAYER.loss, LAYER.attention, P, IDS, batch_size=batch_size)
        np.testing.assert_allclose(whole.through_logits, exact.mean(axis=0), atol=1e-14)
        means = mean_embeddings(distributions(IDS), LAYER.embeddings)
        by_means = forcing_of_means(whole.delta, means, q, k)
        np.testing.assert_allclose(whole.by_means, by_means, atol=1e-14)
    gap = np.linalg.norm(whole.by_means - whole.through_logits)
    assert gap > 0.1 * np.linalg.norm(whole.through_logits)


def test_parts_of_the_forcing_by_stopping_gradients():
    """Through the logits alone: P stopped everywhere else."""
    P = jnp.asarray(RNG.normal(size=(N, 3)))

    def expected(inside, outside):
        def loss(ids):
            logits = LAYER.attention(inside, ids)[0][0]
            x = LAYER.embeddings[ids] + outside
            return read(x + jax.nn.softmax(logits) @ (x @ LAYER.value), ids)

        return jnp.mean(jax.vmap(loss)(jnp.asarray(IDS)))

    through, rest = quickly(jax.grad(expected, argnums=(0, 1)))(P, P)
    found = position_gradients(LAYER.loss, LAYER.attention, P, IDS)
    np.testing.assert_allclose(found.through_logits, -through, atol=1e-14)
    np.testing.assert_allclose(found.forcing, -through - rest, atol=1e-14)


def test_padding():
    """δ of what is masked is 0, weights are of queries with a token, means of pairs with both."""
    occupied = np.arange(N) < np.arange(len(IDS))[:, None] % 3 + 3

    def masked(P, row, shift=0.0):
        logits = LAYER.attention(P, row[0])[0] + shift
        return logits, jax.nn.softmax(jnp.where(row[1][None, None, :], logits, -1e30))

    def loss(P, shift, row):
        x = LAYER.embeddings[row[0]] + P
        return jnp.sum(jnp.where(row[1][:, None], jnp.tanh(masked(P, row, shift)[1][0] @ x), 0.0))

    rows, P = (jnp.asarray(IDS), jnp.asarray(occupied)), jnp.zeros((N, 3))
    found = position_gradients(loss, masked, P, rows, occupied=rows[1])
    np.testing.assert_allclose(found.weights.sum(axis=-1), 1)
    last = jax.vmap(lambda row: masked(P, row)[1])(rows)[occupied[:, -1]].mean(axis=0)
    np.testing.assert_allclose(found.weights[0, -1], last[0, -1])
    # E δ_ij of pairs there, times the mean embedding of j in those examples.
    both = occupied[:, :, None] & occupied[:, None, :]  # symmetric
    x, M = np.asarray(LAYER.embeddings)[IDS], np.asarray(LAYER.query @ LAYER.key.T) / 2**0.5
    delta, expected = np.asarray(found.delta[0]), np.zeros((N, 3))
    for i, k in np.ndindex(N, N):
        mean = x[both[:, i, k], k].mean(axis=0)
        expected[i] -= delta[i, k] * mean @ M.T + delta[k, i] * mean @ M
    np.testing.assert_allclose(found.by_means, expected, atol=1e-14)


def test_absent_positions_have_no_mean():
    mu = geometry.PositionalDistributions(np.full((2, 3), np.nan), np.zeros(2, bool))
    assert np.all(mean_embeddings(mu, np.ones((3, 2))) == 0)


def test_norms_of_products():
    q, k = RNG.normal(size=(2, 6, 3, 2))
    dense = [np.linalg.norm(q[:, h] @ k[:, h].T, 2) for h in range(3)]
    np.testing.assert_allclose(score_norms(q, k), dense)
    # Heads wider than the model.
    v, o = RNG.normal(size=(2, 1, 4)), RNG.normal(size=(1, 4, 2))
    np.testing.assert_allclose(product_norms(v, o), [np.linalg.norm(v[:, 0] @ o[0], 2)])


def test_slopes_are_the_largest_quotients():
    """Absent positions have none."""
    x, K = RNG.normal(size=(N, 2)), RNG.normal(size=(2, N, N))
    d = np.abs(RNG.normal(size=(N, N)))
    d = np.triu(d, 1) + np.triu(d, 1).T
    for size in (N, N - 1):
        present = np.arange(N) < size
        D, own = geometry.Distances(jnp.asarray(d), jnp.asarray(present)), K[:, :size, :size]
        i, j = np.triu_indices(size, 1)
        largest = (np.linalg.norm(x[i] - x[j], axis=1) / d[i, j]).max()
        np.testing.assert_allclose(vector_slope(x, D), largest)
        by_rows = (np.abs(own[:, i] - own[:, j]).max(axis=-1) / d[i, j]).max(axis=-1)
        np.testing.assert_allclose(head_slopes(K, D), by_rows)
        by_columns = (np.abs(own[:, :, i] - own[:, :, j]).max(axis=1) / d[i, j]).max(axis=-1)
        np.testing.assert_allclose(head_slopes(K, D, columns=True), by_columns)


def test_nothing_over_nothing_is_nothing():
    where, D = np.ones(2, bool), np.zeros((N, N))
    assert largest_ratio(np.zeros(2), np.array([0.0, 1.0]), where=where) == 0
    assert largest_ratio(np.array([1e-30, 0.0]), np.zeros(2), where=where) == np.inf
    # Equal up to rounding, at distance 0.
    x = np.zeros((N, 2)) + 0.3
    x[0] = 0.1 + 0.2
    assert x[0, 0] != x[1, 0]
    assert vector_slope(x, D) == 0
    assert vector_slope(x + 1e-9 * np.eye(N)[:, :2], D) == np.inf
    assert np.all(head_slopes(np.broadcast_to(x[:, :1], (2, N, N)), D) == 0)


def test_attention_of_another_shape_is_refused():
    def attention(P, ids):
        return tuple(x[0] for x in LAYER.attention(P, ids))

    with pytest.raises(ValueError, match="attention"):
        position_gradients(LAYER.loss, attention, jnp.zeros((N, 3)), IDS)
