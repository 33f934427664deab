"""The kernel as an operator equals the matrix; Lanczos' eigenvalues are those of eigh."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.ntk import lanczos_eigenvalues, ntk_vector_product, parameter_sensitivity
from tests.ntk.networks import dense_kernel, network


def test_the_operator_is_the_kernel():
    f, params, (x1, x2) = network("mlp", batches=(4, 3))
    rng = np.random.default_rng(0)
    for other in (None, x2):
        inputs = x1 if other is None else other
        v = jnp.asarray(rng.standard_normal((len(inputs), 3)))
        found = ntk_vector_product(f, x1, other, params)(v)
        expected = np.einsum("nmop,mp->no", dense_kernel(f, x1, inputs, params), v)
        np.testing.assert_allclose(found, expected, rtol=1e-10)


@partial(jax.jit, static_argnames=("num", "steps"))
def largest(A, key, *, num, steps=None):
    return lanczos_eigenvalues(lambda v: A @ v, A[0], num=num, key=key, steps=steps)


def with_eigenvalues(values, dtype=float):
    values = np.asarray(values, dtype)
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((len(values), len(values))))[0]
    return jnp.asarray((Q * values) @ Q.T, dtype)


SPECTRA = {
    "decaying": 1.0 / np.arange(1, 41) ** 2,
    "of both signs": np.linspace(-3, 2, 40),
    "repeated": np.repeat([4.0, 1.0, 0.0, -1.0], 10),
    "of rank one": np.eye(40)[0],
    "multiple of the identity": np.full(40, 2.5),
    "zero": np.zeros(40),
}


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_all_eigenvalues_after_all_steps(name, dtype, tolerance):
    found = largest(with_eigenvalues(SPECTRA[name], dtype), jax.random.key(1), num=40, steps=40)
    assert found.eigenvalues.dtype == dtype
    expected = np.sort(SPECTRA[name])[::-1]
    np.testing.assert_allclose(found.eigenvalues, expected, atol=tolerance * 10)
    np.testing.assert_allclose(found.residuals, 0, atol=tolerance * 10)


def test_an_eigenvalue_lies_within_each_residual():
    values = 1.0 / np.arange(1, 101)
    found = largest(with_eigenvalues(values), jax.random.key(0), num=12, steps=24)
    assert found.residuals[0] < 1e-6
    assert found.residuals[-1] > 1e-5
    for value, residual in zip(*found, strict=True):
        assert np.abs(values - value).min() <= residual + 1e-12
    assert (np.diff(found.eigenvalues) <= 0).all()


def test_derivatives_of_eigenvalues():
    """Of finite differences; and where they repeat or vanish, of length 1: v vᵀ, for some v."""
    rng = np.random.default_rng(0)
    A, direction = (B + B.T for B in rng.standard_normal((2, 6, 6)))

    @jax.jit
    def values(A):
        return largest(A, jax.random.key(0), num=3).eigenvalues

    _, found = jax.jvp(values, (A,), (direction,))
    step = 1e-6
    expected = (values(A + step * direction) - values(A - step * direction)) / (2 * step)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    slope = jax.jit(jax.grad(lambda A: largest(A, jax.random.key(0), num=1).eigenvalues[0]))
    for degenerate in (np.zeros(6), np.ones(6), np.array([1e-200, 0, 0, 0, 0, 1.0])):
        np.testing.assert_allclose(np.linalg.norm(slope(np.diag(degenerate))), 1, rtol=1e-9)


def test_sensitivity_estimates_the_norm_of_the_jacobian():
    f, params, (x,) = network("mlp")
    params["unused"] = jnp.ones(2)

    def one(key):
        return parameter_sensitivity(f, params, x, key=key)

    norms = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 2000))
    J = jax.jit(jax.jacrev(f))(params, x)
    for name in params:
        exact = np.sum(np.asarray(J[name]) ** 2)
        np.testing.assert_allclose(np.mean(norms[name] ** 2), exact, rtol=0.1)
    assert (norms["unused"] == 0).all()


def test_errors():
    f, params, (x,) = network("mlp")
    with pytest.raises(ValueError, match="x2"):
        ntk_vector_product(f, x[:3], x, params)(jnp.ones((3, 3)))
    with pytest.raises(ValueError, match="int64"):
        lanczos_eigenvalues(lambda v: v, jnp.ones(3, int), num=1, key=jax.random.key(0))
