"""Procrustes undoes what it should, and nothing more."""

import jax
import numpy as np
import pytest
import scipy.spatial

from jaxpe.geometry import principal_angles
from jaxpe.geometry.mds.procrustes import procrustes

RNG = np.random.default_rng(0)
P, Q = RNG.standard_normal((2, 9, 3))
R = np.linalg.qr(RNG.standard_normal((3, 3)))[0]
SHIFT = np.array([3.0, -1.0, 2.0])
match = jax.jit(procrustes, static_argnames=("translate", "scale"))


def test_rotation_and_translation_are_undone():
    there = P @ R + SHIFT
    fit = match(P, there)
    assert fit.residual < 1e-24
    np.testing.assert_allclose(fit.rotation, R)
    np.testing.assert_allclose(fit.aligned, there)
    assert match(P, there, translate=False).residual > 0.1
    assert match(P, 4 * there).residual > 0.1
    sized = match(P, 4 * there, scale=True)
    assert sized.residual < 1e-24
    np.testing.assert_allclose(sized.scale, 4)


def test_against_scipy():
    fit = match(P, Q, scale=True)
    np.testing.assert_allclose(fit.residual, scipy.spatial.procrustes(Q, P)[2])
    centred = [X - X.mean(0) for X in (P, Q)]
    turned = scipy.linalg.orthogonal_procrustes(*centred)[0]
    fit = match(P, Q)
    np.testing.assert_allclose(fit.rotation, turned)
    np.testing.assert_allclose(
        fit.residual, ((centred[0] @ turned - centred[1]) ** 2).sum() / (centred[1] ** 2).sum()
    )
    np.testing.assert_allclose(
        ((fit.aligned - Q) ** 2).sum() / (centred[1] ** 2).sum(), fit.residual
    )


def test_no_other_rotation_is_better():
    fit = match(P, Q, translate=False)
    size = (Q**2).sum()
    for _ in range(20):
        other = np.linalg.qr(RNG.standard_normal((3, 3)))[0]
        assert ((P @ other - Q) ** 2).sum() / size >= fit.residual
    near = fit.rotation @ scipy.linalg.expm(0.01 * np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 0]]))
    assert ((P @ near - Q) ** 2).sum() / size > fit.residual


def test_configurations_without_columns_have_derivatives():
    empty = jax.grad(lambda P: match(P, Q[:, :0]).residual)(P[:, :0])
    assert empty.shape == (9, 0)
    assert jax.jit(jax.grad(lambda P: principal_angles(P, Q[:0]).sum()))(P[:0]).shape == (0, 3)


def test_widths_may_differ():
    wide = np.pad(P, ((0, 0), (0, 2))) @ np.linalg.qr(RNG.standard_normal((5, 5)))[0]
    assert match(P, wide).residual < 1e-24
    assert match(wide, P).residual < 1e-24
    assert match(P[:, :1], wide).aligned.shape == (9, 5)


def test_absent_positions_take_no_part():
    present = np.arange(9) % 4 != 1
    holed = np.where(present[:, None], P, np.nan)
    whole, part = match(holed, Q, present=present), match(P[present], Q[present])
    np.testing.assert_allclose(whole.residual, part.residual)
    np.testing.assert_allclose(whole.aligned[present], part.aligned)
    assert (whole.aligned[~present] == 0).all()


def test_points_all_in_one_place():
    one = np.ones((9, 3))
    assert match(one, one).residual == 0
    centred = P - P.mean(0)
    np.testing.assert_allclose(match(P, one).residual, (centred**2).sum())
    np.testing.assert_allclose(match(one, P).residual, 1)
    assert match(P, one, scale=True).scale == 0


@pytest.mark.parametrize("scale", [False, True])
def test_derivative_of_the_residual(scale):
    value = jax.jit(lambda P, Q: procrustes(P, Q, scale=scale).residual)
    steps = 1e-6 * RNG.standard_normal((2, 9, 3))
    gradients = jax.grad(value, argnums=(0, 1))(P, Q)
    difference = value(P + steps[0], Q + steps[1]) - value(P - steps[0], Q - steps[1])
    predicted = 2 * sum(np.sum(g * step) for g, step in zip(gradients, steps, strict=True))
    np.testing.assert_allclose(predicted, difference, rtol=1e-5)


@pytest.mark.parametrize("scale", [False, True])
def test_derivatives_of_the_match_and_second_ones_of_the_residual(scale):
    step, h = RNG.standard_normal(P.shape), 1e-6
    slope = jax.jit(jax.grad(lambda P: procrustes(P, Q, scale=scale).residual))
    for f in (slope, lambda P: match(P, Q, scale=scale)):
        moved = jax.jvp(f, (P,), (step,))[1]
        above, below = (jax.tree.leaves(f(P + t * step)) for t in (h, -h))
        for tangent, *values in zip(jax.tree.leaves(moved), above, below, strict=True):
            np.testing.assert_allclose(
                tangent, (values[0] - values[1]) / (2 * h), rtol=1e-6, atol=1e-8
            )


def test_derivatives_are_finite_where_singular_values_are_equal():
    """By the envelope theorem the best rotation is constant in the residual's first derivative."""
    square = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    moved = 1.5 * square + np.array([[0.3, -0.2]])
    gradient = jax.grad(lambda P: procrustes(P, moved).residual)(square)
    step = 1e-6 * np.random.default_rng(0).standard_normal(square.shape)
    change = procrustes(square + step, moved).residual - procrustes(square - step, moved).residual
    np.testing.assert_allclose(np.vdot(gradient, step), change / 2, rtol=1e-4, atol=1e-12)
