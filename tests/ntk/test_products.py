"""The kernel as an operator equals the matrix; Lanczos' eigenvalues are those of eigh."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.ntk import empirical_ntk, lanczos_eigenvalues, ntk_vector_product, parameter_sensitivity
from tests.ntk.networks import QUICK, dense_kernel, network


@pytest.mark.parametrize("same", [True, False])
def test_the_operator_is_the_kernel(same):
    f, params, (x1, x2) = network("mlp", batches=(4, 3))
    x2 = x1 if same else x2
    dense = dense_kernel(f, x1, x2, params)
    v = jnp.asarray(np.random.default_rng(0).standard_normal((len(x2), 3)))
    apply = jax.jit(lambda p, v: ntk_vector_product(f, x1, None if same else x2, p)(v))
    np.testing.assert_allclose(apply(params, v), np.einsum("nmop,mp->no", dense, v), rtol=1e-10)


@partial(jax.jit, static_argnames=("num", "steps"), compiler_options=QUICK)
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


def test_the_derivative_of_an_eigenvalue_is_that_of_finite_differences():
    rng = np.random.default_rng(0)
    A, direction = (B + B.T for B in rng.standard_normal((2, 6, 6)))

    def values(A):
        A = jnp.asarray(A)
        return lanczos_eigenvalues(lambda v: A @ v, A[0], num=3, key=jax.random.key(0)).eigenvalues

    _, found = jax.jvp(values, (A,), (direction,))
    step = 1e-6
    expected = (values(A + step * direction) - values(A - step * direction)) / (2 * step)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("A", [np.zeros((4, 4)), np.eye(4), np.diag([1e-200, 0.0, 0.0, 1.0])])
def test_derivatives_exist_where_eigenvalues_repeat_or_vanish(A):
    """The largest alone: its derivative by A is v vᵀ, of length 1, whichever v was found."""

    def largest(A):
        return lanczos_eigenvalues(lambda v: A @ v, A[0], num=1, key=jax.random.key(0)).eigenvalues[
            0
        ]

    np.testing.assert_allclose(jnp.linalg.norm(jax.grad(largest)(jnp.asarray(A))), 1, rtol=1e-9)


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


def test_the_same_key_gives_the_same_numbers():
    A = with_eigenvalues(SPECTRA["decaying"])
    first, again = (largest(A, jax.random.key(3), num=2, steps=5) for _ in range(2))
    np.testing.assert_array_equal(first.eigenvalues, again.eigenvalues)
    other = largest(A, jax.random.key(4), num=2, steps=5)
    assert (first.eigenvalues != other.eigenvalues).any()


def test_of_a_kernel():
    f, params, (x,) = network("mlp")

    @partial(jax.jit, compiler_options=QUICK)
    def both(params):
        whole = empirical_ntk(f, x, None, params, trace_axes=())
        matvec = ntk_vector_product(f, x, None, params)
        example = jax.ShapeDtypeStruct((5, 3), jnp.float64)
        return whole, lanczos_eigenvalues(matvec, example, num=3, key=jax.random.key(0))

    whole, top = both(params)
    matrix = np.asarray(whole).transpose(0, 2, 1, 3).reshape(15, 15)
    np.testing.assert_allclose(top.eigenvalues, np.linalg.eigvalsh(matrix)[::-1][:3], rtol=1e-10)


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
    with pytest.raises(ValueError, match=r"v has shape \(3, 3\), but outputs at x2 have \(5, 3\)"):
        ntk_vector_product(f, x[:3], x, params)(jnp.ones((3, 3)))
    top = partial(lanczos_eigenvalues, lambda v: v, key=jax.random.key(0))
    for num, steps in [(0, None), (4, None), (2, 1), (2, 4)]:
        with pytest.raises(ValueError, match="1 ≤ num ≤ steps ≤ 3"):
            top(jnp.ones(3), num=num, steps=steps)
    with pytest.raises(ValueError, match="example is int64"):
        top(jnp.ones(3, int), num=1)
