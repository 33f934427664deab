"""Monotone regression against SciPy's, and its laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from jaxpe.theory import explained_by_chance, monotone_fit


def test_equals_scipy():
    """At any scale; entries that do not count are left out."""
    for seed, scale in ((0, 1.0), (1, 1e-18), (2, 1e18)):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=60)
        y = scale * (x**3 + rng.normal(size=60) * rng.choice([0.1, 10.0]))
        where = np.arange(60) % 7 > 0
        found = monotone_fit(x, y, where=where)
        order = np.flatnonzero(where)[np.argsort(x[where])]
        own = y[order]
        up = isotonic_regression(own).x
        down = isotonic_regression(own, increasing=False).x
        np.testing.assert_allclose(found.increasing[order], up, rtol=1e-12, atol=1e-12 * scale)
        np.testing.assert_allclose(found.decreasing[order], down, rtol=1e-12, atol=1e-12 * scale)
        explained = 1 - np.sum((own - up) ** 2) / np.sum((own - own.mean()) ** 2)
        np.testing.assert_allclose(found.explained_increasing, explained)
        narrow = monotone_fit(x.astype(np.float32), (y / scale).astype(np.float32), where=where)
        assert narrow.increasing.dtype == jnp.float32
        np.testing.assert_allclose(narrow.increasing[order], up / scale, rtol=1e-4, atol=1e-5)


def test_equal_x_have_equal_values():
    x, y = jnp.array([1.0, 0.0, 1.0, 0.0]), jnp.array([4.0, 1.0, 8.0, 3.0])
    found = monotone_fit(x, y)
    assert found.increasing.tolist() == [6, 2, 6, 2]
    assert found.decreasing.tolist() == [4, 4, 4, 4]


def test_monotone_and_constant_data_are_explained_whole():
    x = jnp.linspace(0.0, 1.0, 9)
    assert monotone_fit(x, jnp.exp(x)).explained_increasing == 1
    falling = monotone_fit(x, -x)
    assert falling.explained_decreasing == 1
    assert falling.explained_increasing < 1e-12
    constant = monotone_fit(x, jnp.full(9, 0.1))
    assert constant.explained_increasing == constant.explained_decreasing == 1


def test_chance_is_what_unrelated_matrices_reach():
    A = np.random.default_rng(0).standard_normal((101, 12, 12))
    x, *others = A + A.swapaxes(1, 2)
    up, down = explained_by_chance(x, x, key=jax.random.key(0))
    assert 0 < up < 0.5
    assert 0 < down < 0.5
    i, j = np.triu_indices(12, 1)
    fits = jax.jit(jax.vmap(lambda y: monotone_fit(x[i, j], y[i, j]).explained_increasing))
    assert np.mean(fits(np.stack(others)) > up) < 0.15  # 5 % are expected, with an error of 2 %


def test_bad_input():
    x = np.eye(3)
    with pytest.raises(ValueError, match="shape"):
        monotone_fit(jnp.zeros(3), jnp.zeros(2))
    with pytest.raises(ValueError, match="shape"):
        explained_by_chance(x, jnp.zeros((2, 2)), key=jax.random.key(0))
