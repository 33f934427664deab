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


@pytest.mark.parametrize("trace_axes", [(-1,), ()])
@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_against_the_exponential_of_the_matrix(trace_axes, ridge):
    K, L, y, f, g = problem(trace_axes)
    predict = predict_mse(K, y, learning_rate=0.3, ridge=ridge, trace_axes=trace_axes)
    times = np.array([[0.0, 1.0], [5.0, 80.0]])
    out = jax.jit(predict)(times, f, g, L)
    A, B = (as_matrix(kernel, trace_axes) for kernel in (K, L))
    A_ridge = A + ridge * np.eye(N * OUTPUTS)
    for i in np.ndindex(2, 2):
        decay = scipy.linalg.expm(-0.3 * times[i] * A_ridge / y.size)
        solved = np.linalg.solve(A_ridge, (np.eye(N * OUTPUTS) - decay) @ (y - f).ravel())
        np.testing.assert_allclose(out.train[i].ravel(), f.ravel() + A @ solved, rtol=1e-9)
        np.testing.assert_allclose(out.test[i].ravel(), g.ravel() + B @ solved, rtol=1e-9)
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


def test_both_ends():
    K, L, y, f, g = problem((-1,))
    predict = predict_mse(K, y)
    start = predict(0.0, f, g, L)
    np.testing.assert_array_equal(start.train, f)
    np.testing.assert_array_equal(start.test, g)
    end, late, unending = (predict(t, f, g, L) for t in (jnp.inf, 1e9, None))
    np.testing.assert_allclose(end.train, y, rtol=1e-9)
    np.testing.assert_allclose(end.test, g + L @ np.linalg.solve(K, y - f), rtol=1e-9)
    for other in (late, unending):
        np.testing.assert_allclose(end.test, other.test, rtol=1e-9)
    assert predict(1.0, f).test is None


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
    def predicted(params):
        kernel = partial(empirical_ntk, f, params=params, trace_axes=())
        predict = predict_mse(kernel(x, None), y, learning_rate=step, ridge=ridge, trace_axes=())
        return predict(3000, f(params, x), f(params, x_test), kernel(x_test, x))

    end, out = trained(params), predicted(params)
    assert np.abs(out.train - f(params, x)).max() > 0.5
    np.testing.assert_allclose(out.train, model(end, x), atol=2e-3)
    np.testing.assert_allclose(out.test, model(end, x_test), atol=2e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rank", [1, 3])
def test_singular_kernels_are_flagged_and_finite(rank, dtype):
    K, L, y, f, g = problem((-1,), rank=rank, dtype=dtype)
    for t in (0.5, None):
        out = predict_mse(K, y)(t, f, g, L)
        assert out.singular
        assert out.rank == rank
        assert out.train.dtype == dtype
        assert np.isfinite(out.condition)
        assert out.condition < 1e4
    pseudo = np.linalg.pinv(K.astype(float), rcond=1e-5)
    np.testing.assert_allclose(out.train, f + K @ pseudo @ (y - f), rtol=0, atol=1e-4)
    np.testing.assert_allclose(out.test, g + L @ pseudo @ (y - f), rtol=0, atol=1e-3)


def test_a_kernel_of_zeros_moves_nothing():
    K, L, y, f, g = problem((-1,))
    out = predict_mse(0 * K, y)(None, f, g, 0 * L)
    np.testing.assert_array_equal(out.train, f)
    np.testing.assert_array_equal(out.test, g)
    assert (out.singular, out.rank, out.condition) == (True, 0, 1.0)
    assert max_learning_rate(0 * K) == np.inf


@pytest.mark.parametrize("trace_axes", [(-1,), ()])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(("factor", "converges"), [(0.99, True), (1.01, False)])
def test_the_largest_learning_rate(trace_axes, momentum, factor, converges):
    K, _, y, f, _ = problem(trace_axes)
    size = y.size if trace_axes else None
    bound = max_learning_rate(K, y_train_size=size, momentum=momentum)
    A, gap, velocity = as_matrix(K, trace_axes), (f - y).ravel(), 0.0
    for _ in range(3000):
        velocity = momentum * velocity - factor * float(bound) * A @ gap / y.size
        gap = gap + velocity
    top = np.abs(np.linalg.eigh(A)[1][:, -1] @ gap)
    assert (top < 1e-3) if converges else (top > 1e3)


def test_errors():
    K, L, y, f, g = problem((-1,))
    for kernel in (K[:3], K[:3, :3], K[..., None, None]):
        with pytest.raises(ValueError, match="kernel_train_train has shape"):
            predict_mse(kernel, y)
    with pytest.raises(ValueError, match="ridge must be at least 0"):
        predict_mse(K, y, ridge=-1.0)
    with pytest.raises(ValueError, match="batch cannot be among trace_axes"):
        predict_mse(K, y, trace_axes=(0,))
    with pytest.raises(ValueError, match="have no axis but the batch"):
        predict_mse(K, y[:, 0])
    predict = predict_mse(K, y)
    for t in (-1, np.array([1.0, -1.0])):
        with pytest.raises(ValueError, match="t must be at least 0, not -1"):
            predict(t, f)
    with pytest.raises(ValueError, match="fx_train_0 has shape"):
        predict(None, f[:1])
    with pytest.raises(ValueError, match="need kernel_test_train"):
        predict(None, f, g)
    with pytest.raises(ValueError, match="kernel_test_train has shape"):
        predict(None, f, g, L.T)
    with pytest.raises(ValueError, match="pass each axis twice"):
        max_learning_rate(L)
    with pytest.raises(ValueError, match=r"momentum must lie in \[0, 1\)"):
        max_learning_rate(K, momentum=1.0)


@pytest.mark.parametrize("t", [0.5, None])
def test_derivatives_where_eigenvalues_repeat(t):
    rng = np.random.default_rng(3)
    change = rng.normal(size=(4, 4))
    y, start = rng.normal(size=(4, 1)), np.zeros((4, 1))

    def along(s):
        kernel = 2.0 * np.eye(4) + s * (change + change.T)
        predict = predict_mse(kernel, y, ridge=0.1)
        return predict(t, start, start[:2], kernel[:2]).test

    slope = jax.jit(jax.jacfwd(along))(0.0)
    numerical = (along(1e-5) - along(-1e-5)) / 2e-5
    np.testing.assert_allclose(slope, numerical, rtol=1e-6, atol=1e-9)
    kernel = np.diag([1.0, 2.0, 3.0, 5.0])

    def apart(s):
        moved = kernel + s * (change + change.T)
        return predict_mse(moved, y)(t, start, start[:2], kernel[:2]).test

    second = (apart(1e-3) + apart(-1e-3) - 2 * apart(0.0)) / 1e-6
    ours = jax.jit(jax.jacfwd(jax.jacfwd(apart)))(0.0)
    np.testing.assert_allclose(ours, second, rtol=1e-4, atol=1e-6)
