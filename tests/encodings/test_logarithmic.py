"""Positions on a logarithmic scale."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxpe import encodings, geometry
from jaxpe.encodings import log_position, power_positions, warp_positions

ROWS = np.arange(50)


def test_powers_are_those_of_the_formula():
    """The same for negative positions, with the other sign."""
    power = 0.25
    expected = ((1 + ROWS / 0.3) ** power - 1) / power
    np.testing.assert_allclose(power_positions(ROWS, tau=0.3, power=power), expected, rtol=2e-6)
    odd = power_positions(-ROWS, tau=0.3, power=power)
    np.testing.assert_allclose(-odd, expected, rtol=2e-6)


def test_the_logarithm_is_the_limit_of_powers():
    with jax.enable_x64(True):
        exact = np.log1p(ROWS / 0.1)
        np.testing.assert_allclose(power_positions(ROWS), exact, rtol=1e-15)
        for power in (1e-9, 1e-3, -2e-3, 0.08, -1.5, 2.0):
            expected = np.expm1(power * exact) / power
            np.testing.assert_allclose(power_positions(ROWS, power=power), expected, rtol=1e-13)


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_it_is_differentiable_in_both_parameters(power):
    with jax.enable_x64(True):
        positions = jnp.asarray([0.5, 3.0, 40.0])
        check_grads(
            lambda i, tau, a: power_positions(i, tau=tau, power=a),
            (positions, jnp.asarray(0.2), jnp.asarray(power)),
            order=2,
            rtol=1e-4,
        )
        at_0 = jax.grad(lambda i: power_positions(i[None], tau=0.2, power=power)[0])(0.0)
        assert at_0 == pytest.approx(5)


def test_distances_are_those_of_one_number():
    encoding = log_position(dim=6, length=50, tau=2.0)
    vectors = np.asarray(encoding.vectors((), ROWS))
    assert np.linalg.matrix_rank(vectors) == 1
    assert np.abs(vectors).max() == pytest.approx(1, abs=1e-6)
    assert np.abs(vectors.sum(axis=1)).max() == 0  # a norm that subtracts the mean keeps it
    w = np.log1p(ROWS / 2.0)
    expected = np.abs(w[:, None] - w) * 6**0.5 / w[-1]
    distances = geometry.euclidean_distances(vectors).values
    np.testing.assert_allclose(distances, expected, atol=1e-5)


def test_all_parameters_are_learned():
    encoding = log_position(dim=4, length=9, learned=True)
    params = encoding.init(jax.random.key(0))
    fixed = log_position(dim=4, length=9)
    np.testing.assert_allclose(encoding.vectors(params, ROWS), fixed.vectors((), ROWS), rtol=1e-6)
    loss = lambda p: jnp.sum(encoding.vectors(p, jnp.arange(9)) ** 2)  # noqa: E731
    slopes = jax.device_get(jax.grad(loss)(params))
    assert slopes.keys() == {"direction", "log_tau", "power"}
    assert all(np.all(slope != 0) for slope in slopes.values())


def test_a_warped_encoding_keeps_its_ends_and_grows_slowly_beyond():
    line = warp_positions(encodings.alibi(num_heads=1), length=512)
    ends = np.ravel(line.vectors((), np.array([0, 511, 4 * 512]))) * 2**8
    np.testing.assert_allclose(ends, [0, 511, 511 * 1.162], rtol=1e-3)


def test_a_warped_bias_sees_differences_of_moved_positions():
    encoding = warp_positions(encodings.alibi(num_heads=1), length=8, tau=1.0)
    q = np.zeros((8, 1, 2), np.float32)
    bias = np.asarray(encoding.bias((), q, q, ROWS[:8], ROWS[:8]))[0]
    moved = 7 * np.log1p(ROWS[:8]) / np.log1p(7)
    np.testing.assert_allclose(bias, -np.abs(moved[:, None] - moved) / 2**8, atol=1e-6)
    with pytest.raises(ValueError, match="tau"):
        warp_positions(encoding, length=8, tau=float("nan"))
