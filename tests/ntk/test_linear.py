"""Taylor expansions: exact for polynomials of their degree, and of their order everywhere else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.ntk import linearize, taylor_expand
from tests.ntk.networks import network


def polynomial(params, x, *, scale=1.0):
    """Of degree 3 in all parameters together."""
    product = x @ params["w"] * (params["b"] ** 2)[None]
    return {"y": scale * (product + params["b"][None] ** 3 - 1.0)}


def point(seed):
    rng = np.random.default_rng(seed)
    return {"w": jnp.asarray(rng.standard_normal((2, 3))), "b": jnp.asarray(rng.standard_normal(3))}


def test_polynomials_are_exact_at_their_degree():
    x = jnp.asarray([[1.0, 2.0], [-1.0, 0.5]])
    start, end = (polynomial(point(k), x, scale=2.0)["y"] for k in (0, 1))
    for degree in range(5):
        expanded = taylor_expand(polynomial, point(0), degree=degree)(point(1), x, scale=2.0)["y"]
        assert np.allclose(expanded, end, rtol=1e-10) == (degree >= 3)
        assert np.allclose(expanded, start) == (degree == 0)


@pytest.mark.parametrize("degree", [1, 2])
def test_the_error_falls_with_the_next_power(degree):
    f, params, (x,) = network("mlp")
    other = network("mlp", seed=1)[1]
    expanded = linearize(f, params) if degree == 1 else taylor_expand(f, params, degree=degree)

    @jax.jit
    def error(t):
        moved = jax.tree.map(lambda a, b: a + t * b, params, other)
        return jnp.abs(expanded(moved, x) - f(moved, x)).max()

    np.testing.assert_allclose(error(1e-2) / error(1e-3), 10.0 ** (degree + 1), rtol=0.2)


def test_errors():
    with pytest.raises(ValueError, match="degree"):
        taylor_expand(polynomial, point(0), degree=-1)
    with pytest.raises(ValueError, match="floating"):
        linearize(polynomial, {"n": jnp.ones(2, int)})
