"""Effective rank of points: the formula, what leaves it alone, and its singular points."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe import Distances, euclidean_distances

entropy_rank = jax.jit(jaxpe.entropy_rank)
RNG = np.random.default_rng(0)
P = RNG.standard_normal((6, 3)) * np.array([[1.0, 2.0, 3.0]])
ROTATION = np.linalg.qr(RNG.standard_normal((3, 3)))[0]
CROSS = np.concatenate([np.eye(3), -np.eye(3)])


def test_the_formula():
    s = np.linalg.svd(P - P.mean(0), compute_uv=False)
    share = s / s.sum()
    np.testing.assert_allclose(entropy_rank(P), np.exp(-(share * np.log(share)).sum()))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_equal_singular_values_count_each(rank):
    np.testing.assert_allclose(entropy_rank(CROSS * (np.arange(3) < rank)[None, :]), rank)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_isometries_and_scale_leave_it_alone(scale):
    moved = scale * (P @ ROTATION + np.array([[5.0, -1.0, 0.3]]))
    np.testing.assert_allclose(entropy_rank(moved), entropy_rank(P))
    wide = np.pad(P, ((0, 0), (0, 4)))
    np.testing.assert_allclose(entropy_rank(wide), entropy_rank(P))


def test_distances_have_the_rank_of_their_points():
    np.testing.assert_allclose(entropy_rank(euclidean_distances(P)), entropy_rank(P))
    alien = np.abs(RNG.standard_normal((6, 6)))
    alien = alien + alien.T - np.diag(2 * np.diagonal(alien))
    negative = np.linalg.eigvalsh(jaxpe.geometry.gram_matrix(alien))
    s = np.sqrt(negative[negative > 1e-9])
    share = s / s.sum()
    assert negative.min() < -0.1
    expected = np.exp(-(share * np.log(share)).sum())
    np.testing.assert_allclose(entropy_rank(jaxpe.geometry.as_distances(alien)), expected)


@pytest.mark.parametrize("junk", [0.0, np.nan])
def test_mask_equals_removal(junk):
    keep = np.array([False, True, True, True, False, True])
    expected = entropy_rank(P[keep])
    holed = np.where(keep[:, None], P, junk)
    np.testing.assert_allclose(entropy_rank(holed, present=keep), expected)
    D = euclidean_distances(P).values
    np.testing.assert_allclose(entropy_rank(Distances(D, jnp.asarray(keep))), expected)
    np.testing.assert_allclose(entropy_rank(jaxpe.geometry.as_distances(D), present=keep), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 / 3])
def test_points_that_coincide_have_rank_0_and_no_derivative(dtype, value):
    points = np.full((6, 3), value, dtype)
    assert entropy_rank(points) == 0
    assert (jax.jit(jax.grad(jaxpe.entropy_rank))(points) == 0).all()
    assert entropy_rank(P.astype(dtype), present=np.arange(6) == 4) == 0
    assert entropy_rank(P.astype(dtype), present=np.zeros(6, bool)) == 0
    assert entropy_rank(jaxpe.geometry.as_distances(np.zeros((6, 6), dtype))) == 0


def test_nan_stays():
    points = P.copy()
    points[2, 1] = np.nan
    assert np.isnan(entropy_rank(points))


def slope_and_difference(points, step=1e-5):
    direction = np.random.default_rng(1).standard_normal(points.shape)
    slope = np.vdot(jax.jit(jax.grad(jaxpe.entropy_rank))(points), direction)
    ends = [float(entropy_rank(points + sign * step * direction)) for sign in (1, -1)]
    return slope, (ends[0] - ends[1]) / (2 * step)


@pytest.mark.parametrize(
    "points",
    [CROSS * np.array([[1.0, 1.0, 2.0]]), P[:3], RNG.standard_normal((4, 7))],
    ids=["repeated singular values", "as many points as axes", "fewer points than axes"],
)
def test_derivative_equals_differences(points):
    slope, difference = slope_and_difference(points)
    assert abs(difference) > 1e-3
    np.testing.assert_allclose(slope, difference, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_derivative_is_finite_where_singular_values_are_0(dtype):
    flat = (P * np.array([[1.0, 1.0, 0.0]])).astype(dtype)
    gradient = jax.jit(jax.grad(jaxpe.entropy_rank))(flat)
    assert gradient.dtype == dtype
    assert np.isfinite(gradient).all()
    # Along the plane it is that of the plane alone; out of it, where there is none, 0.
    within = jax.jit(jax.grad(jaxpe.entropy_rank))(flat[:, :2])
    np.testing.assert_allclose(gradient[:, :2], within, atol=1e-5)
    assert (np.abs(gradient[:, 2]) < 1e-6).all()
