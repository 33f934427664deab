"""α and b of the flow on positions, against their definitions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.ntk import (
    positional_fisher,
    positional_forcing,
    positional_ntk,
    positional_ntk_product,
)
from tests.unchecked import unchecked

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
    """Jᵀ H J by its definition, example by example, `[n, d, n, d]`."""

    @jax.jit
    @jax.vmap
    def parts(example):
        J = jax.jacfwd(attention)(P, example).reshape(CLASSES, N * D)
        return J, jax.hessian(loss)(attention(P, example), example)

    J, H = map(np.asarray, parts(EXAMPLES))
    return (np.einsum("eoi,eop,epj->ij", J, H, J) / COUNT).reshape(N, D, N, D)


@pytest.fixture(scope="module")
def whole():
    return dense(cross_entropy)


@pytest.fixture(scope="module")
def trace(whole):
    return np.einsum("icjc->ij", whole) / D


@pytest.mark.parametrize("batch_size", [1, 4, 50])
def test_kernel_and_products_are_the_gauss_newton_matrix(whole, trace, batch_size):
    where = attention, cross_entropy, P, EXAMPLES
    found = positional_ntk(*where, blocks="full", batch_size=batch_size)
    np.testing.assert_allclose(found, whole, atol=1e-12)
    found = positional_ntk(*where, batch_size=batch_size)
    np.testing.assert_allclose(found, trace, atol=1e-12)
    V = RNG.normal(size=(N, D))
    product = positional_ntk_product(*where, batch_size=batch_size)(V)
    np.testing.assert_allclose(product, np.einsum("icje,je->ic", whole, V), atol=1e-12)


def test_of_a_squared_loss_is_the_tangent_kernel_of_positions():
    found = positional_ntk(attention, squared, P, EXAMPLES)
    np.testing.assert_allclose(found, np.einsum("icjc->ij", dense(squared)) / D, atol=1e-12)


def test_sampled_targets_are_unbiased_for_cross_entropy(trace):
    @jax.jit
    @jax.vmap
    def estimate(key):
        return positional_fisher(attention, P, EXAMPLES, key=key, samples=16, batch_size=11)

    found = estimate(jax.random.split(jax.random.key(0), 100))
    error = found.std(axis=0) / 10
    assert np.all(np.abs(found.mean(axis=0) - trace) < 5 * error)
    assert np.all(error < 0.02 * np.abs(trace).max())
    assert np.linalg.eigvalsh(found[0]).min() > 0


def test_targets_of_every_example_are_drawn_for_themselves():
    """The error of a mean over 16 equal examples is a quarter of one example's."""
    keys = jax.random.split(jax.random.key(0), 100)

    def error(copies):
        examples = jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x)[:1], copies, axis=0), EXAMPLES)
        draw = partial(positional_fisher, attention, P, examples, samples=1, batch_size=copies)
        return jax.jit(jax.vmap(lambda key: draw(key=key)))(keys).std(axis=0).max()

    assert 0.15 < error(16) / error(1) < 0.4


@pytest.mark.parametrize("batch_size", [4, 11])
def test_forcing_is_the_gradient_of_the_expected_loss(batch_size):
    def expected(P):
        return jnp.mean(jax.vmap(lambda e: cross_entropy(attention(P, e), e))(EXAMPLES))

    b = positional_forcing(attention, cross_entropy, P, EXAMPLES, batch_size=batch_size)
    np.testing.assert_allclose(b, -np.asarray(jax.jit(jax.grad(expected))(P)), atol=1e-14)


def test_gradients_pass_through_the_kernel():
    @jax.jit
    def trace(scale):
        return jnp.trace(positional_ntk(attention, squared, scale * P, EXAMPLES))

    slope = jax.jit(jax.grad(trace))(1.0)
    step = 1e-5
    np.testing.assert_allclose(slope, (trace(1 + step) - trace(1 - step)) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: positional_ntk(attention, lambda y, e: y, P, EXAMPLES), "scalar"),
        (lambda: positional_ntk(attention, squared, np.ones((N, D), int), EXAMPLES), "int64"),
        (lambda: positional_forcing(attention, squared, P, EXAMPLES | {"y": W}), "leading"),
        (lambda: positional_ntk_product(attention, squared, P, EXAMPLES)(np.zeros(3)), "V has"),
        (lambda: positional_ntk(attention, squared, P, {"x": [[1.0, 2.0], [3.0, 4.0]]}), "arrays"),
        (lambda: positional_ntk(attention, squared, P, EXAMPLES, blocks="diag"), "blocks"),
        (lambda: positional_ntk(attention, squared, P, EXAMPLES, batch_size=0), "batch_size"),
    ],
)
def test_bad_input(call, message):
    with unchecked(), pytest.raises(ValueError, match=message):
        call()
