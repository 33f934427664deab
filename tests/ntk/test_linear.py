"""Taylor expansions: exact for polynomials of their degree, and of their order everywhere else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.ntk import linearize, taylor_expand
from tests.ntk.networks import network


def polynomial(params, x):
    """Of degree 3 in all parameters together."""
    return {"y": x @ params["w"] * (params["b"] ** 2)[None] + params["b"][None] ** 3 - 1.0}


def point(seed):
    rng = np.random.default_rng(seed)
    return {"w": jnp.asarray(rng.standard_normal((2, 3))), "b": jnp.asarray(rng.standard_normal(3))}


@pytest.mark.parametrize("degree", range(5))
def test_polynomials_are_exact_at_their_degree(degree):
    x = jnp.asarray([[1.0, 2.0], [-1.0, 0.5]])
    expanded = jax.jit(taylor_expand(polynomial, point(0), degree=degree))(point(1), x)["y"]
    exact = np.allclose(expanded, polynomial(point(1), x)["y"], rtol=1e-10)
    assert exact == (degree >= 3)
    if degree == 0:
        np.testing.assert_allclose(expanded, polynomial(point(0), x)["y"])


def test_a_model_linear_in_its_parameters_is_itself():
    def f(params, x, *, scale):
        return scale * (jnp.tanh(x) @ params)

    rng = np.random.default_rng(0)
    x, old, new = (jnp.asarray(rng.standard_normal(s)) for s in ((4, 3), (3, 2), (3, 2)))
    linear = linearize(f, old)
    np.testing.assert_allclose(linear(new, x, scale=2.0), f(new, x, scale=2.0), rtol=1e-12)


@pytest.mark.parametrize("degree", [1, 2])
def test_the_error_falls_with_the_next_power(degree):
    f, params, (x,) = network("mlp")
    other = network("mlp", seed=1)[1]
    expanded = jax.jit(taylor_expand(f, params, degree=degree))

    def error(t):
        moved = jax.tree.map(lambda a, b: a + t * b, params, other)
        return np.abs(expanded(moved, x) - f(moved, x)).max()

    np.testing.assert_allclose(error(1e-2) / error(1e-3), 10.0 ** (degree + 1), rtol=0.2)


def test_linearize_keeps_float32():
    f, params, (x,) = network("mlp", dtype=jnp.float32)
    assert linearize(f, params)(params, x).dtype == jnp.float32
    np.testing.assert_allclose(linearize(f, params)(params, x), f(params, x), rtol=1e-6)


def test_errors():
    with pytest.raises(ValueError, match="degree must be at least 0, not -1"):
        taylor_expand(polynomial, point(0), degree=-1)
    with pytest.raises(ValueError, match=r"params\['n'\] is int64, not floating"):
        linearize(polynomial, {"n": jnp.ones(2, int)})
