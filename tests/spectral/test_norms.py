"""Largest singular values against LAPACK, of matrices and of derivatives; where they are equal."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.spectral.norms import operator_norm, spectral_norm

RNG = np.random.default_rng(0)
NORM, GRADIENT = jax.jit(spectral_norm), jax.jit(jax.grad(spectral_norm))
MATRICES = RNG.standard_normal((5, 6, 4))
W, V = RNG.standard_normal((4, 6)), RNG.standard_normal((3, 4))
KEY = jax.random.key(0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_norm_of_many_matrices(dtype):
    A = MATRICES.astype(dtype)
    found = NORM(A)
    assert found.dtype == dtype
    rtol = 10 * np.finfo(dtype).eps
    np.testing.assert_allclose(found, np.linalg.norm(A, 2, axis=(1, 2)), rtol=rtol)
    np.testing.assert_allclose(NORM(A.swapaxes(1, 2)), found, rtol=rtol)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_and_the_smallest_floats(dtype):
    """Where 1/A is below the smallest normal float, or gradients by scale above the largest."""
    big, small = np.finfo(dtype).max / 2, 2 * np.finfo(dtype).tiny
    for size in (big, small):
        A = np.zeros((6, 4), dtype)
        A[0, 0], A[1, 1] = size, size / 4
        np.testing.assert_allclose(NORM(A), size)
        np.testing.assert_allclose(GRADIENT(A), size == A, atol=1e-6)


def test_degenerate_matrices():
    A = MATRICES[0].copy()
    A[0, 0] = -np.inf
    assert NORM(A) == np.inf
    A[1, 1] = np.nan
    assert np.isnan(NORM(A))
    assert NORM(np.zeros((6, 4))) == 0
    assert spectral_norm(np.zeros((3, 0))) == 0
    assert np.all(GRADIENT(np.zeros((6, 4))) == 0)
    # All singular values equal: the mean of their directions.
    np.testing.assert_allclose(GRADIENT(2 * np.eye(6, 4)), np.eye(6, 4) / 4, atol=1e-12)


def test_it_is_no_lower_than_any_quotient_where_values_are_close():
    """Singular values 1, 1 − 1e-6, ...: where the power method itself would take 10⁶ steps."""
    A = np.linalg.qr(RNG.standard_normal((6, 6)))[0][:, :4] * (1 - 1e-6 * np.arange(4))
    assert abs(float(NORM(A)) - 1) < 1e-8
    assert float(NORM(A)) >= 1 - 1e-14


def test_its_gradient_is_that_of_the_singular_vectors():
    u, _, v = np.linalg.svd(MATRICES[0])
    np.testing.assert_allclose(GRADIENT(MATRICES[0]), np.outer(u[:, 0], v[0]), atol=1e-6)
    direction = RNG.standard_normal((6, 4))
    _, pushed = jax.jvp(NORM, (MATRICES[0],), (direction,))
    np.testing.assert_allclose(pushed, u[:, 0] @ direction @ v[0], rtol=1e-6)


def test_its_second_derivative():
    """With A = [[2, x], [0, 1]], ‖A‖² = (t + √(t² − 16))/2 where t = ‖A‖_F² = 5 + x²."""

    def size(x):
        return spectral_norm(jnp.array([[2.0, 0.0], [0.0, 1.0]]).at[0, 1].set(x))

    def known(x):
        t = 5 + x**2
        return np.sqrt((t + np.sqrt(t**2 - 16)) / 2)

    x, h = 0.3, 1e-3
    curvature = (known(x + h) - 2 * known(x) + known(x - h)) / h**2
    np.testing.assert_allclose(jax.jit(jax.grad(jax.grad(size)))(x), curvature, rtol=1e-5)


def twice(x):
    return jnp.asarray(V, x.dtype) @ jnp.tanh(jnp.asarray(W, x.dtype) @ x)


def accurate(points, dtype, **options):
    """The norms of derivatives, those of the matrices, and how they were reached."""
    jacobians = [V @ np.diag(1 - np.tanh(W @ x) ** 2) @ W for x in points]
    true = np.linalg.norm(np.stack(jacobians), 2, axis=(1, 2))
    run = jax.jit(jax.vmap(lambda x, key: operator_norm(twice, x, key=key, **options)))
    found = run(points.astype(dtype), jax.random.split(KEY, len(points)))
    assert found.value.dtype == dtype
    return true, found


def test_a_derivative_without_its_matrix():
    """Also in float32, and of a run that stops early."""
    points = RNG.standard_normal((4, 6))
    for dtype, tolerance, rtol in ((np.float64, 1e-6, 1e-8), (np.float32, 1e-4, 1e-4)):
        true, found = accurate(points, dtype, tolerance=tolerance)
        np.testing.assert_allclose(found.value, true, rtol=rtol)
        assert np.all(found.residual <= tolerance)
        assert np.all((found.iterations > 0) & (found.iterations < 500))
    true, found = accurate(points, np.float64, tolerance=0.0, max_iterations=3)
    assert np.all((found.iterations == 3) & (found.residual > 0))
    assert np.all(found.value <= true * (1 + 1e-12))


def test_derivatives_of_any_scale():
    """Of a rotation, whose singular values are equal; in float32, where squares leave its range."""
    x = jnp.ones((2, 3), jnp.float32)

    @jax.jit
    @jax.vmap
    def scaled(s):
        return operator_norm(lambda x: s * x[::-1], x, key=KEY)

    scales = np.float32([0.0, 1e-37, 1e-25, 3.0, 1e25, 1e38, np.nan])
    found = scaled(scales)
    np.testing.assert_allclose(found.value, scales, rtol=1e-6)
    assert np.all(found.residual[:-1] <= 1e-4)  # at 1e-37 subnormal numbers lose digits
    assert np.isnan(found.residual[-1])


def test_a_first_small_residual_is_not_believed():
    """One value of 1.5 over 511 of 1: starts with little of it look finished at once."""
    find = partial(operator_norm, lambda x: x.at[0].multiply(1.5), jnp.ones(512), tolerance=0.1)
    values = jax.jit(jax.vmap(lambda key: find(key=key)))(jax.random.split(KEY, 100))
    np.testing.assert_allclose(values.value, 1.5, rtol=0.02)
    assert np.all(values.iterations >= 20)
