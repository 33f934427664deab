"""Effective rank, Procrustes and angles of configurations: formulas, and singular points."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.spatial

from jaxpe.geometry import Distances, entropy_rank, euclidean_distances, procrustes
from jaxpe.geometry.distances.matrices import as_distances
from jaxpe.geometry.noise.two_samples import principal_angles

RNG = np.random.default_rng(0)
P, Q = RNG.standard_normal((2, 9, 3))
PRESENT = np.arange(9) % 4 != 1
R = np.linalg.qr(RNG.standard_normal((3, 3)))[0]
SHIFT = np.array([3.0, -1.0, 2.0])
CROSS = np.concatenate([np.eye(3), -np.eye(3)])


def number(s):
    share = s[s > 0] / s.sum()
    return np.exp(-(share * np.log(share)).sum())


def test_the_rank_is_its_formula():
    expected = number(np.linalg.svd(P - P.mean(0), compute_uv=False))
    wide = np.pad(1e6 * (P @ R + SHIFT), ((0, 0), (0, 4)))
    for same in (P, wide, euclidean_distances(P)):
        np.testing.assert_allclose(entropy_rank(same), expected)
    for rank in (1, 2, 3):
        np.testing.assert_allclose(entropy_rank(CROSS * (np.arange(3) < rank)[None, :]), rank)
    alien = np.abs(RNG.standard_normal((6, 6)))
    alien = (alien + alien.T) * (1 - np.eye(6))
    H = np.eye(6) - 1 / 6
    values = np.linalg.eigvalsh(-0.5 * H @ alien**2 @ H)
    assert values.min() < -0.1  # negative eigenvalues do not count
    found = entropy_rank(as_distances(alien))
    np.testing.assert_allclose(found, number(np.sqrt(np.maximum(values, 0))))


def test_absent_positions_have_no_rank():
    expected = number(np.linalg.svd(P[PRESENT] - P[PRESENT].mean(0), compute_uv=False))
    holed = np.where(PRESENT[:, None], P, np.nan)
    D = euclidean_distances(P).values
    np.testing.assert_allclose(entropy_rank(holed, present=PRESENT), expected)
    np.testing.assert_allclose(entropy_rank(Distances(D, jnp.asarray(PRESENT))), expected)
    assert np.isnan(entropy_rank(holed))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_points_that_coincide_have_rank_0_and_no_derivative(dtype):
    find = jax.jit(jax.value_and_grad(entropy_rank))
    for value in (0.0, 0.1, 1e6 / 3):
        rank, slope = find(np.full((6, 3), value, dtype))
        assert rank == 0
        assert (slope == 0).all()
    assert entropy_rank(P.astype(dtype), present=np.arange(9) == 4) == 0
    assert entropy_rank(as_distances(np.zeros((6, 6), dtype))) == 0
    # In a plane the derivative is that of the plane alone; out of it, where there is none, 0.
    plane = np.concatenate([P[:6, :2], np.zeros((6, 1))], 1).astype(dtype)
    _, gradient = find(plane)
    np.testing.assert_allclose(gradient[:, :2], find(plane[:, :2])[1], atol=1e-5)
    assert (np.abs(gradient[:, 2]) < 1e-6).all()


@pytest.mark.parametrize(
    "points",
    [CROSS * np.array([[1.0, 1.0, 2.0]]), P[:3], RNG.standard_normal((4, 7))],
    ids=["repeated singular values", "as many points as axes", "fewer points than axes"],
)
def test_derivatives_of_the_rank_equal_differences(points):
    E, h = RNG.standard_normal(points.shape), 1e-5
    ahead, behind = (
        number(np.linalg.svd(x - x.mean(0), compute_uv=False)[: len(points) - 1])
        for x in (points + h * E, points - h * E)
    )
    slope = np.vdot(jax.grad(entropy_rank)(points), E)
    np.testing.assert_allclose(slope, (ahead - behind) / (2 * h), rtol=1e-5)


def test_rotation_translation_and_scale_are_undone():
    there = P @ R + SHIFT
    fit = procrustes(P, there)
    assert fit.residual < 1e-24
    np.testing.assert_allclose(fit.rotation, R)
    np.testing.assert_allclose(fit.aligned, there)
    assert procrustes(P, there, translate=False).residual > 0.1
    assert procrustes(P, 4 * there).residual > 0.1
    sized = procrustes(P, 4 * there, scale=True)
    assert sized.residual < 1e-24
    np.testing.assert_allclose(sized.scale, 4)
    wide = np.pad(P, ((0, 0), (0, 2))) @ np.linalg.qr(RNG.standard_normal((5, 5)))[0]
    for one, other in ((P, wide), (wide, P)):  # widths may differ
        assert procrustes(one, other).residual < 1e-24


def test_procrustes_against_scipy_and_without_absent_positions():
    np.testing.assert_allclose(
        procrustes(P, Q, scale=True).residual, scipy.spatial.procrustes(Q, P)[2]
    )
    there = np.where(PRESENT[:, None], P, np.nan)
    fit = procrustes(there, Q, present=PRESENT)
    centred = [X[PRESENT] - X[PRESENT].mean(0) for X in (P, Q)]
    turned = scipy.linalg.orthogonal_procrustes(*centred)[0]
    np.testing.assert_allclose(fit.rotation, turned)
    missed, size = ((centred[0] @ turned - centred[1]) ** 2).sum(), (centred[1] ** 2).sum()
    np.testing.assert_allclose(fit.residual, missed / size)
    np.testing.assert_allclose(((fit.aligned[PRESENT] - Q[PRESENT]) ** 2).sum(), missed)
    assert (fit.aligned[~PRESENT] == 0).all()


def test_points_all_in_one_place():
    one, size = np.ones((9, 3)), ((P - P.mean(0)) ** 2).sum()
    np.testing.assert_allclose(
        [procrustes(*pair).residual for pair in ((one, one), (P, one), (one, P))], [0, size, 1]
    )
    assert procrustes(P, one, scale=True).scale == 0


@pytest.mark.parametrize("scale", [False, True])
def test_derivatives_of_the_match_and_second_ones_of_the_residual(scale):
    """Also where singular values are equal; the envelope theorem spares those of the rotation."""
    square = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    h = 1e-6
    for X, Y in ((P, Q), (square, 1.5 * square + np.array([[0.3, -0.2]]))):
        step = np.random.default_rng(0).standard_normal(X.shape)

        @jax.jit
        def found(t, X=X, Y=Y, step=step):
            def fit(t):
                P = X + t * step
                slope = jax.grad(lambda P: procrustes(P, Y, scale=scale).residual)(P)
                return procrustes(P, Y, scale=scale), jnp.vdot(slope, step)

            return jax.jvp(fit, (t,), (1.0,))

        (_, (tangents, second)), (above, slope), (below, before) = (
            found(0.0), found(h)[0], found(-h)[0],
        )  # fmt: skip
        np.testing.assert_allclose(second, (slope - before) / (2 * h), rtol=1e-4, atol=1e-8)
        for tangent, *values in zip(*map(jax.tree.leaves, (tangents, above, below)), strict=True):
            change = (values[0] - values[1]) / (2 * h)
            np.testing.assert_allclose(tangent, change, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("width", [1, 2])
def test_angles_are_those_of_scipy(width):
    X, Y = RNG.normal(size=(6, 2)), RNG.normal(size=(6, width))
    expected = np.sort(scipy.linalg.subspace_angles(X, Y))
    np.testing.assert_allclose(principal_angles(X, Y), expected, atol=1e-12)


def test_small_angles_keep_their_digits_and_dependent_columns_are_orthogonal():
    X = np.eye(6)[:, :2]
    np.testing.assert_allclose(principal_angles(X, X + 1e-7 * np.eye(6)[:, 2:4]), 1e-7, rtol=1e-6)
    dependent = np.ones((6, 2)) * np.eye(6)[:, :1]
    np.testing.assert_allclose(principal_angles(X, dependent), [0.0, np.pi / 2], atol=1e-12)
    tilted = dependent + 0.5 * np.eye(6)[:, 2:3]
    np.testing.assert_allclose(principal_angles(tilted, X[:, :1]), [np.arctan(0.5)])
    for pair in ((X, tilted), (tilted, X)):
        angles = principal_angles(*pair)
        np.testing.assert_allclose(angles, [np.arctan(0.5), np.pi / 2], atol=1e-12)
    for size, angle in ((0.0, np.pi / 2), (1e-300, 0.0)):
        assert principal_angles(X[:, :1], size * X[:, :1]) == angle
    assert jax.grad(lambda P: principal_angles(P, X[:0]).sum())(X[:0]).shape == (0, 2)


def test_derivatives_of_angles_between_orthonormal_columns():
    """Their singular values are all equal, but the spaces have derivatives."""
    X, Y, step = np.eye(5)[:, :2], *RNG.normal(size=(2, 5, 2))
    f, h = jax.jit(jax.value_and_grad(lambda P: jnp.sum(principal_angles(P, Y) ** 2))), 1e-6
    moved = jax.jvp(f, (X,), (step,))[1]
    for tangent, above, below in zip(moved, f(X + h * step), f(X - h * step), strict=True):
        np.testing.assert_allclose(tangent, (above - below) / (2 * h), rtol=1e-6)
    P, Q = (RNG.normal(size=(6, 2)).astype(np.float32) for _ in range(2))
    slope = jax.jit(jax.grad(lambda P: jnp.sum(principal_angles(P, Q))))
    for scale in np.float32([1e-30, 1e30]):
        np.testing.assert_allclose(scale * slope(scale * P), slope(P), rtol=1e-4, atol=1e-5)
