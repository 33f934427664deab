"""α and b of the flow on positions, against their definitions."""

from functools import partial

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from jaxpe.ntk import (
    positional_fisher,
    positional_forcing,
    positional_ntk,
    positional_ntk_product,
)

N, D, CLASSES, COUNT = 4, 3, 5, 11
RNG = np.random.default_rng(0)
W = RNG.normal(size=(D, CLASSES))
P = 0.3 * RNG.normal(size=(N, D))
EXAMPLES = {"x": RNG.normal(size=(COUNT, N, D)), "y": RNG.integers(0, CLASSES, COUNT)}


def attention(P, example):
    x = example["x"] + P
    return jnp.sum(jax.nn.softmax(x @ x.T) @ jnp.tanh(x @ W), axis=0)


def cross_entropy(outputs, example):
    return -jax.nn.log_softmax(outputs)[example["y"]]


def squared(outputs, example):
    return jnp.sum(outputs**2) / 2


def dense(loss):
    """Jᵀ H J by its definition, example by example."""

    @jax.jit
    def parts(P, example):
        J = jax.jacfwd(attention)(P, example).reshape(CLASSES, N * D)
        return J, jax.hessian(loss)(attention(P, example), example)

    total = 0
    for k in range(COUNT):
        J, H = map(np.asarray, parts(P, {name: x[k] for name, x in EXAMPLES.items()}))
        total = total + J.T @ H @ J
    return total / COUNT


@pytest.fixture(scope="module")
def alpha():
    return jax.jit(lambda P: positional_ntk(attention, cross_entropy, P, EXAMPLES, blocks="full"))(
        P
    )


def test_is_the_gauss_newton_matrix(alpha):
    np.testing.assert_allclose(alpha.reshape(N * D, N * D), dense(cross_entropy), atol=1e-12)


def test_of_a_squared_loss_is_the_tangent_kernel_of_positions():
    found = positional_ntk(attention, squared, P, EXAMPLES)
    whole = dense(squared).reshape(N, D, N, D)
    np.testing.assert_allclose(found, np.einsum("icjc->ij", whole) / D, atol=1e-12)


def test_block_trace_and_products_agree_with_the_whole(alpha):
    trace = positional_ntk(attention, cross_entropy, P, EXAMPLES)
    np.testing.assert_allclose(trace, np.einsum("icjc->ij", alpha) / D, atol=1e-14)
    product = jax.jit(positional_ntk_product(attention, cross_entropy, P, EXAMPLES))
    V = RNG.normal(size=(N, D))
    np.testing.assert_allclose(product(V), np.einsum("icje,je->ic", alpha, V), atol=1e-13)


def test_is_symmetric_and_positive_for_a_convex_loss(alpha):
    matrix = alpha.reshape(N * D, N * D)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-14)
    assert np.linalg.eigvalsh(matrix).min() > 0


@pytest.mark.parametrize("batch_size", [1, 4, 11, 50])
def test_batches_change_nothing(batch_size):
    found = positional_ntk(attention, cross_entropy, P, EXAMPLES, batch_size=batch_size)
    whole = positional_ntk(attention, cross_entropy, P, EXAMPLES)
    np.testing.assert_allclose(found, whole, atol=1e-14)
    b = positional_forcing(attention, cross_entropy, P, EXAMPLES, batch_size=batch_size)
    np.testing.assert_allclose(b, positional_forcing(attention, cross_entropy, P, EXAMPLES))


def test_sampled_targets_are_unbiased_for_cross_entropy():
    @jax.jit
    def estimate(key):
        return positional_fisher(attention, P, EXAMPLES, key=key, samples=16, batch_size=11)

    found = jax.vmap(estimate)(jax.random.split(jax.random.key(0), 100))
    truth = positional_ntk(attention, cross_entropy, P, EXAMPLES)
    error = found.std(axis=0) / 10
    assert np.all(np.abs(found.mean(axis=0) - truth) < 5 * error)
    assert np.all(error < 0.02 * np.abs(truth).max())
    assert np.linalg.eigvalsh(found[0]).min() > 0


def test_targets_of_every_example_are_drawn_for_themselves():
    """The error of a mean over 16 equal examples is a quarter of one example's."""
    keys = jax.random.split(jax.random.key(0), 100)

    def error(copies):
        examples = jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x)[:1], copies, axis=0), EXAMPLES)
        draw = partial(positional_fisher, attention, P, examples, samples=1, batch_size=copies)
        return jax.jit(jax.vmap(lambda key: draw(key=key)))(keys).std(axis=0).max()

    assert 0.15 < error(16) / error(1) < 0.4


def test_forcing_is_the_gradient_of_the_expected_loss():
    def expected(P):
        losses = jax.vmap(lambda e: cross_entropy(attention(P, e), e))(
            jax.tree.map(jnp.asarray, EXAMPLES)
        )
        return jnp.mean(losses)

    b = positional_forcing(attention, cross_entropy, P, EXAMPLES)
    np.testing.assert_allclose(b, -np.asarray(jax.jit(jax.grad(expected))(P)), atol=1e-14)


def test_a_loss_that_is_not_convex_gives_negative_directions():
    def saddle(outputs, example):
        return outputs[0] ** 2 - outputs[1] ** 2

    whole = positional_ntk(attention, saddle, P, EXAMPLES, blocks="full").reshape(N * D, N * D)
    assert np.linalg.eigvalsh(whole).min() < -1e-3


def test_gradients_pass_through_the_kernel():
    def trace(scale):
        return jnp.trace(positional_ntk(attention, squared, scale * P, EXAMPLES))

    slope = jax.grad(trace)(1.0)
    step = 1e-5
    np.testing.assert_allclose(slope, (trace(1 + step) - trace(1 - step)) / (2 * step), rtol=1e-6)


def test_many_tables_at_once():
    tables = np.stack([P, 2 * P])
    found = jax.vmap(lambda P: positional_ntk(attention, squared, P, EXAMPLES))(tables)
    np.testing.assert_allclose(found[1], positional_ntk(attention, squared, 2 * P, EXAMPLES))


def test_float32():
    examples = {"x": EXAMPLES["x"].astype(np.float32), "y": EXAMPLES["y"]}

    def narrow(P, example):
        x = example["x"] + P
        return jnp.sum(jax.nn.softmax(x @ x.T) @ jnp.tanh(x @ W.astype(np.float32)), axis=0)

    found = positional_ntk(narrow, cross_entropy, P.astype(np.float32), examples)
    assert found.dtype == jnp.float32
    whole = positional_ntk(attention, cross_entropy, P, EXAMPLES)
    np.testing.assert_allclose(found, whole, atol=1e-5)


def test_bad_input():
    with pytest.raises(ValueError, match=r"loss gives \(5,\) for one example, not a scalar"):
        positional_ntk(attention, lambda y, e: y, P, EXAMPLES)
    with pytest.raises(ValueError, match=r"P is int64\[4, 3\]: pass position vectors"):
        positional_ntk(attention, cross_entropy, np.ones((N, D), int), EXAMPLES)
    with pytest.raises(ValueError, match=r"examples have leading axes \[\(10,\), \(11,\)\]"):
        positional_forcing(attention, cross_entropy, P, EXAMPLES | {"y": EXAMPLES["y"][:10]})
    with pytest.raises(ValueError, match=r"V has shape \(3,\), but P has \(4, 3\)"):
        positional_ntk_product(attention, cross_entropy, P, EXAMPLES)(np.zeros(3))
    with pytest.raises(ValueError, match=r"axes \[\(\)\]: pass arrays \(not lists of numbers\)"):
        positional_ntk(attention, cross_entropy, P, {"x": [[1.0, 2.0], [3.0, 4.0]]})


def test_options_are_checked(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # it would be first
    key = jax.random.key(0)
    with pytest.raises(ValueError, match=r"blocks is 'diag', not one of \('trace', 'full'\)"):
        positional_ntk(attention, squared, P, EXAMPLES, blocks="diag")
    with pytest.raises(ValueError, match="batch_size must be at least 1, not 0"):
        positional_ntk(attention, squared, P, EXAMPLES, batch_size=0)
    with pytest.raises(ValueError, match="samples must be at least 1, not 0"):
        positional_fisher(attention, P, EXAMPLES, key=key, samples=0)
