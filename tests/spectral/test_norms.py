"""Largest singular values against LAPACK, of matrices and of derivatives; where they are equal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.spectral import operator_norm, spectral_norm

RNG = np.random.default_rng(0)
NORM, GRADIENT = jax.jit(spectral_norm), jax.jit(jax.grad(spectral_norm))
MATRICES = RNG.standard_normal((5, 6, 4))
W, V = RNG.standard_normal((4, 6)), RNG.standard_normal((3, 4))
KEY = jax.random.key(0)


def twice(x):
    return jnp.asarray(V, x.dtype) @ jnp.tanh(jnp.asarray(W, x.dtype) @ x)


def jacobian(x):
    return V @ np.diag(1 - np.tanh(W @ np.asarray(x)) ** 2) @ W


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_norm_of_many_matrices(dtype):
    A = MATRICES.astype(dtype)
    found = NORM(A)
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found, np.linalg.norm(A, 2, axis=(1, 2)), rtol=10 * np.finfo(dtype).eps
    )
    np.testing.assert_allclose(NORM(A.swapaxes(1, 2)), found, rtol=10 * np.finfo(dtype).eps)


def test_it_is_a_norm_whatever_the_scale():
    A, B = MATRICES[0], MATRICES[1]
    assert NORM(A + B) <= NORM(A) + NORM(B)
    assert NORM(A @ B.T) <= NORM(A) * NORM(B)
    for scale in (1e-200, 1e200):
        np.testing.assert_allclose(NORM(scale * A), scale * NORM(A), rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_and_the_smallest_floats(dtype):
    """Where 1/A is below the smallest normal float, or gradients by scale above the largest."""
    big, small = np.finfo(dtype).max / 2, 2 * np.finfo(dtype).tiny
    for size in (big, small):
        A = np.zeros((6, 4), dtype)
        A[0, 0], A[1, 1] = size, size / 4
        np.testing.assert_allclose(NORM(A), size)
        np.testing.assert_allclose(GRADIENT(A), size == A, atol=1e-6)


def test_entries_that_are_no_numbers():
    A = MATRICES[0].copy()
    A[0, 0] = -np.inf
    assert NORM(A) == np.inf
    A[1, 1] = np.nan
    assert np.isnan(NORM(A))


def test_it_is_no_lower_than_any_quotient_where_values_are_close():
    """Singular values 1, 1 − 1e-6, ...: where the power method itself would take 10⁶ steps."""
    q, _ = np.linalg.qr(RNG.standard_normal((6, 6)))
    A = q * (1 - 1e-6 * np.arange(6))
    assert abs(float(NORM(A)) - 1) < 1e-8
    assert float(NORM(A)) >= 1 - 1e-14


def test_degenerate_matrices():
    assert NORM(np.zeros((3, 2))) == 0
    assert spectral_norm(np.zeros((3, 0))) == 0
    assert np.all(GRADIENT(np.zeros((6, 4))) == 0)
    # All singular values equal: the mean of their directions.
    np.testing.assert_allclose(GRADIENT(2 * np.eye(6, 4)), np.eye(6, 4) / 4, atol=1e-12)


def test_its_gradient_is_that_of_the_singular_vectors():
    u, _, v = np.linalg.svd(MATRICES[0])
    np.testing.assert_allclose(GRADIENT(MATRICES[0]), np.outer(u[:, 0], v[0]), atol=1e-6)
    direction = RNG.standard_normal((6, 4))
    _, pushed = jax.jit(lambda A, dA: jax.jvp(spectral_norm, (A,), (dA,)))(MATRICES[0], direction)
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


def test_a_derivative_without_its_matrix():
    points = RNG.standard_normal((4, 6))
    found = jax.jit(jax.vmap(lambda x, key: operator_norm(twice, x, key=key, tolerance=1e-6)))(
        points, jax.random.split(KEY, 4)
    )
    jacobians = np.stack([jacobian(x) for x in points])
    true = np.linalg.norm(jacobians, 2, axis=(1, 2))
    np.testing.assert_allclose(found.value, true, rtol=1e-8)
    assert np.all(found.residual <= 1e-6)
    assert np.all((found.iterations > 0) & (found.iterations < 500))


def test_a_derivative_in_float32():
    x = jnp.asarray(RNG.standard_normal(6), jnp.float32)
    found = jax.jit(lambda x: operator_norm(twice, x, key=KEY))(x)
    assert found.value.dtype == jnp.float32
    np.testing.assert_allclose(found.value, np.linalg.norm(jacobian(x), 2), rtol=1e-4)


def test_derivatives_of_any_scale():
    """Of a rotation, whose singular values are equal; in float32, where squares leave its range."""
    scaled = jax.jit(lambda s, x: operator_norm(lambda x: s * x[::-1], x, key=KEY))
    x = jnp.ones((2, 3), jnp.float32)
    for scale in (0.0, 1e-37, 1e-25, 3.0, 1e25, 1e38):
        found = scaled(jnp.float32(scale), x)
        np.testing.assert_allclose(found.value, scale, rtol=1e-6)
        assert found.residual <= 1e-4  # at 1e-37 products lose digits to subnormal numbers
    none = scaled(jnp.float32(0), x)
    assert (none.value, none.residual) == (0, 0)
    unknown = scaled(jnp.float32(np.nan), x)
    assert np.isnan(unknown.value)
    assert np.isnan(unknown.residual)


def test_a_first_small_residual_is_not_believed():
    """One value of 1.5 over 511 of 1: starts with little of it look finished at once."""

    @jax.jit
    @jax.vmap
    def found(key):
        return operator_norm(lambda x: x.at[0].multiply(1.5), jnp.ones(512), key=key, tolerance=0.1)

    values = found(jax.random.split(KEY, 100))
    np.testing.assert_allclose(values.value, 1.5, rtol=0.02)
    assert np.all(values.iterations >= 20)


def test_what_is_reached_is_said_where_it_stops_early():
    x = jnp.asarray(RNG.standard_normal(6))
    found = jax.jit(lambda x: operator_norm(twice, x, key=KEY, tolerance=0.0, max_iterations=3))(x)
    assert found.iterations == 3
    assert found.residual > 0
    assert found.value <= np.linalg.norm(jacobian(x), 2) * (1 + 1e-12)


def test_options_that_make_no_sense():
    with pytest.raises(ValueError, match="x is int64: pass float32 or float64"):
        operator_norm(twice, np.arange(6), key=KEY)
    with pytest.raises(ValueError, match="max_iterations must be at least 1, not 0"):
        operator_norm(twice, np.ones(6), key=KEY, max_iterations=0)
