"""Expected δ, the parts of the forcing, and Lipschitz constants, against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe.theory.gradients import (
    forcing_of_means,
    mean_embeddings,
    position_gradients,
    product_norms,
    score_norms,
)
from jaxpe.theory.lipschitz import head_slopes, largest_ratio, vector_slope
from tests.theory.tiny import (
    N,
    corpus,
    distributions,
    flax_case,
    quickly,
    random_layer,
)

RNG = np.random.default_rng(0)


def read(rows, ids):
    return jnp.sum(jnp.tanh(rows) ** 2)


def test_rows_of_delta_sum_to_zero_for_every_model():
    for kind in ("classifier", "masked_lm"):
        delta = flax_case(kind)[0].delta
        assert np.abs(delta).max() > 1e-3
        np.testing.assert_allclose(delta.sum(axis=-1), 0, atol=1e-14)


def test_forcing_through_logits_is_the_formula_of_each_example():
    """b = −E Σ_k (δ_ik x_k Mᵀ + δ_ki x_k M)/√d_k where Eq. (1) holds, with δ and x of an example.

    With the means of both in place of that it is another vector: what correlates them is gone.
    """
    layer = random_layer(read)
    ids, _ = corpus()
    P = jnp.zeros((N, 3))
    q, k = layer.query[:, None], layer.key[:, None]

    def of_corpus(ids):
        return position_gradients(layer.loss, layer.attention, P, ids)

    def of_example(row):
        found = of_corpus(row[None])
        return found.through_logits, forcing_of_means(found.delta, layer.embeddings[row], q, k)

    exact, formula = quickly(jax.vmap(of_example))(ids)
    np.testing.assert_allclose(exact, formula, atol=1e-13)
    whole = quickly(of_corpus)(ids)
    np.testing.assert_allclose(whole.through_logits, exact.mean(axis=0), atol=1e-14)
    means = mean_embeddings(distributions(ids), layer.embeddings)
    np.testing.assert_allclose(
        whole.by_means, forcing_of_means(whole.delta, means, q, k), atol=1e-14
    )
    gap = np.linalg.norm(whole.by_means - whole.through_logits)
    assert gap > 0.1 * np.linalg.norm(whole.through_logits)


def test_the_formula_in_a_transformer():
    found, _, means, of = flax_case("classifier")
    by_means = forcing_of_means(found.delta, means, of.projections.query, of.projections.key)
    np.testing.assert_allclose(found.by_means, by_means, atol=1e-14)


def test_parts_of_the_forcing_by_stopping_gradients():
    """Through the logits alone: P stopped everywhere else."""
    layer = random_layer(read)
    ids, _ = corpus()
    P = jnp.asarray(RNG.normal(size=(N, 3)))

    def loss(inside, outside, ids):
        logits = layer.attention(inside, ids)[0][0]
        x = layer.embeddings[ids] + outside
        return read(x + jax.nn.softmax(logits) @ (x @ layer.value), ids)

    def expected(inside, outside):
        return jnp.mean(jax.vmap(lambda ids: loss(inside, outside, ids))(jnp.asarray(ids)))

    through, rest = quickly(jax.grad(expected, argnums=(0, 1)))(P, P)
    found = quickly(lambda P, ids: position_gradients(layer.loss, layer.attention, P, ids))(P, ids)
    np.testing.assert_allclose(found.through_logits, -through, atol=1e-14)
    np.testing.assert_allclose(found.forcing, -through - rest, atol=1e-14)


def test_batches_change_nothing():
    layer = random_layer(read)
    ids, _ = corpus()
    found = [
        quickly(
            lambda P, ids, size=size: position_gradients(
                layer.loss, layer.attention, P, ids, batch_size=size
            )
        )(jnp.zeros((N, 3)), ids)
        for size in (5, 12)
    ]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-15)


def test_padding():
    """δ of what is masked is 0, weights are of queries with a token, means of pairs with both."""
    layer = random_layer(read)
    ids, _ = corpus()
    occupied = np.arange(N) < np.arange(len(ids))[:, None] % 3 + 3

    def masked(P, row):
        logits = layer.attention(P, row[0])[0]
        weights = jax.nn.softmax(jnp.where(row[1][None, None, :], logits, -1e30))
        return logits, weights

    def loss(P, shift, row):
        ids, here = row
        logits = layer.attention(P, ids)[0] + shift
        weights = jax.nn.softmax(jnp.where(here[None, None, :], logits, -1e30))[0]
        x = layer.embeddings[ids] + P
        return jnp.sum(jnp.where(here[:, None], jnp.tanh(weights @ x), 0.0))

    rows = (jnp.asarray(ids), jnp.asarray(occupied))
    P = jnp.zeros((N, 3))
    found = quickly(lambda P, rows: position_gradients(loss, masked, P, rows, occupied=rows[1]))(
        P, rows
    )
    np.testing.assert_allclose(found.weights.sum(axis=-1), 1)
    last = jax.vmap(lambda row: masked(P, row)[1])(rows)[occupied[:, -1]].mean(axis=0)
    np.testing.assert_allclose(found.weights[0, -1], last[0, -1])
    shifts = jnp.zeros((1, N, N))
    delta = jax.grad(loss, argnums=1)
    deltas = quickly(jax.vmap(lambda row: delta(P, shifts, row)))(rows)[:, 0]
    both = occupied[:, :, None] & occupied[:, None, :]  # symmetric
    assert np.all(np.asarray(deltas)[~both] == 0)
    # E δ_ij of pairs there, times the mean embedding of j in those examples.
    x, M = np.asarray(layer.embeddings)[ids], np.asarray(layer.query @ layer.key.T) / 2**0.5
    delta, expected = np.asarray(found.delta[0]), np.zeros((N, 3))
    for i in range(N):
        for k in range(N):
            mean = x[both[:, i, k], k].mean(axis=0)
            expected[i] -= delta[i, k] * mean @ M.T + delta[k, i] * mean @ M
    np.testing.assert_allclose(found.by_means, expected, atol=1e-14)


def test_absent_positions_have_no_mean():
    mu = jaxpe.PositionalDistributions(np.full((2, 3), np.nan), np.zeros(2, bool))
    assert np.all(mean_embeddings(mu, np.ones((3, 2))) == 0)


def test_norms_of_products():
    q, k = RNG.normal(size=(2, 6, 3, 2))
    dense = [np.linalg.norm(q[:, h] @ k[:, h].T, 2) for h in range(3)]
    np.testing.assert_allclose(score_norms(q, k), dense)
    # Heads wider than the model.
    v, o = RNG.normal(size=(2, 1, 4)), RNG.normal(size=(1, 4, 2))
    np.testing.assert_allclose(product_norms(v, o), [np.linalg.norm(v[:, 0] @ o[0], 2)])


vectors, heads = quickly(vector_slope), quickly(lambda K, D: head_slopes(K, D))
columns = quickly(lambda K, D: head_slopes(K, D, columns=True))


def test_slopes_are_the_largest_quotients():
    x, K = RNG.normal(size=(N, 2)), RNG.normal(size=(2, N, N))
    D = np.abs(RNG.normal(size=(N, N)))
    D = np.triu(D, 1) + np.triu(D, 1).T
    i, j = np.triu_indices(N, 1)
    largest = (np.linalg.norm(x[i] - x[j], axis=1) / D[i, j]).max()
    np.testing.assert_allclose(vectors(x, D), largest)
    by_rows = (np.abs(K[:, i] - K[:, j]).max(axis=-1) / D[i, j]).max(axis=-1)
    np.testing.assert_allclose(heads(K, D), by_rows)
    by_columns = (np.abs(K[:, :, i] - K[:, :, j]).max(axis=1) / D[i, j]).max(axis=-1)
    np.testing.assert_allclose(columns(K, D), by_columns)


def test_nothing_over_nothing_is_nothing():
    where = np.ones(2, bool)
    assert largest_ratio(np.zeros(2), np.array([0.0, 1.0]), where=where) == 0
    assert largest_ratio(np.array([1e-30, 0.0]), np.zeros(2), where=where) == np.inf
    # Equal up to rounding, at distance 0.
    x = np.zeros((N, 2)) + 0.3
    x[0] = 0.1 + 0.2
    assert x[0, 0] != x[1, 0]
    assert vectors(x, np.zeros((N, N))) == 0
    assert vectors(x + 1e-9 * np.eye(N)[:, :2], np.zeros((N, N))) == np.inf
    K = np.broadcast_to(x[:, :1], (2, N, N))
    assert np.all(heads(K, np.zeros((N, N))) == 0)


def test_absent_positions_have_no_slope():
    D = jaxpe.Distances(jnp.where(jnp.eye(3) == 1, 0.0, 1.0), jnp.array([True, True, False]))
    assert vectors(np.array([[0.0], [1.0], [9.0]]), D) == 1
    K = np.array([[[0.0, 1.0, 50.0], [2.0, 1.0, 0.0], [70.0, 0.0, 0.0]]])
    assert heads(K, D).item() == 2
    assert columns(K, D).item() == 1


def test_attention_of_another_shape_is_refused():
    layer = random_layer(read)
    ids, _ = corpus()
    with pytest.raises(ValueError, match=r"attention gives \[\(5, 5\), \(5, 5\)\] for one example"):
        position_gradients(
            layer.loss,
            lambda P, ids: tuple(x[0] for x in layer.attention(P, ids)),
            jnp.zeros((N, 3)),
            ids,
        )
