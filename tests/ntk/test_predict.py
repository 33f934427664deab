"""Closed-form training against training: gradient descent, the exponential, and both ends."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from jaxpe.ntk import empirical_ntk, linearize, max_learning_rate, predict_mse
from tests.ntk.networks import network

N, M, OUTPUTS = 4, 2, 3


def problem(trace_axes, *, rank=None, dtype=float):
    """Kernels of a positive joint matrix over training and test outputs, targets and starts."""
    rng = np.random.default_rng(0)
    own = 1 if trace_axes else OUTPUTS
    rows = (N + M) * own
    root = rng.standard_normal((rows, rank or rows + 2))
    joint = (root @ root.T).reshape(N + M, own, N + M, own)
    if trace_axes:
        kernels = joint[:N, 0, :N, 0], joint[N:, 0, :N, 0]
    else:
        kernels = (joint[a, :, :N].transpose(0, 2, 1, 3) for a in (slice(N), slice(N, None)))
    y, f, g = (rng.standard_normal((size, OUTPUTS)) for size in (N, N, M))
    return [np.asarray(a, dtype) for a in (*kernels, y, f, g)]


def as_matrix(kernel, trace_axes):
    """With all outputs, repeated along those traced."""
    if trace_axes:
        return np.kron(kernel, np.eye(OUTPUTS))
    n, m = kernel.shape[:2]
    return kernel.transpose(0, 2, 1, 3).reshape(n * OUTPUTS, m * OUTPUTS)


@partial(jax.jit, static_argnames=("trace_axes", "ridge"))
def predicted(times, K, L, y, f, g, *, trace_axes=(-1,), ridge=0.0):
    return predict_mse(K, y, learning_rate=0.3, ridge=ridge, trace_axes=trace_axes)(times, f, g, L)


@pytest.mark.parametrize(("trace_axes", "ridge"), [((-1,), 0.0), ((), 0.7)])
def test_against_the_exponential_of_the_matrix(trace_axes, ridge):
    """From the start to the end, at several times at once."""
    K, L, y, f, g = problem(trace_axes)
    times = np.array([[0.0, 1.0, 5.0], [80.0, 1e9, np.inf]])
    out = predicted(times, K, L, y, f, g, trace_axes=trace_axes, ridge=ridge)
    A, B = (as_matrix(kernel, trace_axes) for kernel in (K, L))
    A_ridge = A + ridge * np.eye(N * OUTPUTS)
    for i in np.ndindex(2, 3):
        decay = scipy.linalg.expm(-0.3 * min(times[i], 1e6) * A_ridge / y.size)
        solved = np.linalg.solve(A_ridge, (np.eye(N * OUTPUTS) - decay) @ (y - f).ravel())
        np.testing.assert_allclose(out.train[i].ravel(), f.ravel() + A @ solved, rtol=1e-9)
        np.testing.assert_allclose(out.test[i].ravel(), g.ravel() + B @ solved, rtol=1e-9)
    np.testing.assert_array_equal(out.test[0, 0], g)
    assert not out.singular
    np.testing.assert_allclose(out.condition, np.linalg.cond(A_ridge), rtol=1e-9)


def test_axes_between_others_are_traced():
    """Outputs with three axes, traced over the first or the middle one, are those with it last."""
    rng = np.random.default_rng(0)
    root = rng.standard_normal((N * 4, N * 4 + 2))
    K = (root @ root.T).reshape(N, 2, 2, N, 2, 2).transpose(0, 3, 1, 4, 2, 5)
    y, f = rng.standard_normal((2, N, 2, 3, 2))  # the second is traced
    for axis in (1, 2):
        rows, start = (np.moveaxis(x, 2, axis) for x in (y, f))
        out = predict_mse(K, rows, trace_axes=(axis,))(2.0, start).train
        last = predict_mse(K, np.moveaxis(y, 2, 3), trace_axes=(3,))(2.0, np.moveaxis(f, 2, 3))
        np.testing.assert_allclose(np.moveaxis(out, axis, 3), last.train)


def test_against_gradient_descent_on_the_linearised_model():
    """Parameters moved in many small steps, as one would train them."""
    f, params, (x, x_test) = network("mlp", batches=(N, M))
    y = jnp.asarray(np.random.default_rng(0).standard_normal((N, OUTPUTS)))
    model, step, ridge = linearize(f, params), 0.01, 0.05

    def loss(p):
        moved = sum(jnp.sum((p[key] - params[key]) ** 2) for key in params)
        return 0.5 * (jnp.sum((model(p, x) - y) ** 2) + ridge * moved) / y.size

    @jax.jit
    def trained(p):
        def down(p, g):
            return p - step * g

        return jax.lax.fori_loop(0, 3000, lambda _, p: jax.tree.map(down, p, jax.grad(loss)(p)), p)

    @jax.jit
    def closed(params):
        kernel = partial(empirical_ntk, f, params=params, trace_axes=())
        predict = predict_mse(kernel(x, None), y, learning_rate=step, ridge=ridge, trace_axes=())
        return predict(3000, f(params, x), f(params, x_test), kernel(x_test, x))

    end, out = trained(params), closed(params)
    assert np.abs(out.train - f(params, x)).max() > 0.5
    np.testing.assert_allclose(out.train, model(end, x), atol=2e-3)
    np.testing.assert_allclose(out.test, model(end, x_test), atol=2e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_singular_kernels_are_flagged_and_finite(dtype):
    for rank in (1, 3, 0):
        K, L, y, f, g = problem((-1,), rank=max(rank, 1), dtype=dtype)
        K, L = (x * dtype(rank > 0) for x in (K, L))
        for t in (0.5, np.inf):
            out = predicted(np.asarray(t, dtype), K, L, y, f, g)
            assert (out.singular, out.rank) == (True, rank)
            assert out.train.dtype == dtype
            assert 1 <= out.condition < 1e4
        pseudo = np.linalg.pinv(K.astype(float), rcond=1e-5)
        np.testing.assert_allclose(out.train, f + K @ pseudo @ (y - f), rtol=0, atol=1e-4)
        np.testing.assert_allclose(out.test, g + L @ pseudo @ (y - f), rtol=0, atol=1e-3)
    assert max_learning_rate(0 * K) == np.inf


@pytest.mark.parametrize("trace_axes", [(-1,), ()])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_largest_learning_rate(trace_axes, momentum):
    """Just below it gradient descent converges, and just above it does not."""
    K, _, y, f, _ = problem(trace_axes)
    size = y.size if trace_axes else None
    bound = float(max_learning_rate(K, y_train_size=size, momentum=momentum))
    A = as_matrix(K, trace_axes)
    first = np.linalg.eigh(A)[1][:, -1]
    for factor, converges in ((0.99, True), (1.01, False)):
        gap, velocity = (f - y).ravel(), 0.0
        for _ in range(3000):
            velocity = momentum * velocity - factor * bound * A @ gap / y.size
            gap = gap + velocity
        top = np.abs(first @ gap)
        assert (top < 1e-3) if converges else (top > 1e3)


def test_errors():
    K, L, y, f, g = problem((-1,))
    predict = predict_mse(K, y)
    calls = [
        (lambda: predict_mse(K[:3], y), "kernel_train_train"),
        (lambda: predict_mse(K, y, trace_axes=(0,)), "trace_axes"),
        (lambda: predict(None, f[:1]), "fx_train_0"),
        (lambda: predict(None, f, g), "kernel_test_train"),
        (lambda: predict(None, f, g, L.T), "kernel_test_train"),
        (lambda: max_learning_rate(L), "twice"),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()


def test_derivatives_where_eigenvalues_repeat():
    rng = np.random.default_rng(3)
    change = rng.normal(size=(4, 4))
    y, start = rng.normal(size=(4, 1)), np.zeros((4, 1))
    times = np.array([0.5, np.inf])

    @jax.jit
    def along(kernel, s, ridge):
        kernel = kernel + s * (change + change.T)
        predict = predict_mse(kernel + ridge * jnp.eye(4), y)
        return predict(times, start, start[:2], kernel[:2]).test

    equal, apart = 2.0 * np.eye(4), np.diag([1.0, 2.0, 3.0, 5.0])
    slope = jax.jit(jax.jacfwd(along, argnums=1))(equal, 0.0, 0.1)
    numerical = (along(equal, 1e-5, 0.1) - along(equal, -1e-5, 0.1)) / 2e-5
    np.testing.assert_allclose(slope, numerical, rtol=1e-6, atol=1e-9)
    values = [along(apart, s, 0.0) for s in (1e-3, 0.0, -1e-3)]
    second = (values[0] + values[2] - 2 * values[1]) / 1e-6
    ours = jax.jit(jax.jacfwd(jax.jacfwd(along, argnums=1), argnums=1))(apart, 0.0, 0.0)
    np.testing.assert_allclose(ours, second, rtol=1e-4, atol=1e-6)
