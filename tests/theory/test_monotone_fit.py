"""Monotone regression against SciPy's, and its laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from jaxpe.theory import explained_by_chance, monotone_fit

fit = jax.jit(monotone_fit)


@pytest.mark.parametrize("seed", range(4))
def test_equals_scipy(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=60)
    y = x**3 + rng.normal(size=60) * rng.choice([0.1, 10.0])
    order = np.argsort(x)
    found = fit(x, y)
    up = isotonic_regression(y[order]).x
    down = isotonic_regression(y[order], increasing=False).x
    np.testing.assert_allclose(found.increasing[order], up, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.decreasing[order], down, rtol=1e-12, atol=1e-12)
    explained = 1 - np.sum((y[order] - up) ** 2) / np.sum((y - y.mean()) ** 2)
    np.testing.assert_allclose(found.explained_increasing, explained)


def test_equal_x_have_equal_values():
    x, y = jnp.array([1.0, 0.0, 1.0, 0.0]), jnp.array([4.0, 1.0, 8.0, 3.0])
    assert fit(x, y).increasing.tolist() == [6, 2, 6, 2]
    assert fit(x, y).decreasing.tolist() == [4, 4, 4, 4]


def test_monotone_and_constant_data_are_explained_whole():
    x = jnp.linspace(0.0, 1.0, 9)
    assert fit(x, jnp.exp(x)).explained_increasing == 1
    assert fit(x, -x).explained_decreasing == 1
    assert fit(x, -x).explained_increasing < 1e-12
    constant = fit(x, jnp.full(9, 0.1))
    assert constant.explained_increasing == constant.explained_decreasing == 1


@pytest.mark.parametrize("scale", [1e-18, 1e18])
def test_explained_shares_do_not_depend_on_the_scale(scale):
    x, noise = np.random.default_rng(0).normal(size=(2, 30))
    y = x + noise
    expected = fit(x, y).explained_increasing
    np.testing.assert_allclose(fit(x, scale * y).explained_increasing, expected, rtol=1e-9)


def test_float32():
    x = np.random.default_rng(0).normal(size=40).astype(np.float32)
    found = fit(x, x * x)
    assert found.increasing.dtype == jnp.float32
    wide = fit(x.astype(float), (x * x).astype(float))
    np.testing.assert_allclose(found.increasing, wide.increasing, rtol=1e-5)


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"x has shape \(3,\) and y \(2,\)"):
        monotone_fit(jnp.zeros(3), jnp.zeros(2))


def test_chance_is_what_unrelated_matrices_reach():
    rng = np.random.default_rng(0)

    def symmetric():
        values = rng.standard_normal((12, 12))
        return jnp.asarray(values + values.T)

    x = symmetric()
    up, down = jax.jit(explained_by_chance)(x, x, key=jax.random.key(0))
    assert 0 < up < 0.5
    assert 0 < down < 0.5
    others = jnp.stack([symmetric() for _ in range(100)])
    i, j = np.triu_indices(12, 1)
    found = jax.jit(jax.vmap(lambda y: fit(x[i, j], y[i, j]).explained_increasing))(others)
    assert np.mean(found > up) < 0.15  # 5 % are expected, with an error of 2 %
    with pytest.raises(ValueError, match=r"two of the same \[n, n\]"):
        explained_by_chance(x, jnp.zeros((3, 3)), key=jax.random.key(0))
    with pytest.raises(ValueError, match="level is"):
        explained_by_chance(x, x, key=jax.random.key(0), level=1.0)
