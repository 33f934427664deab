"""Gradient flow in closed form, against an ODE solver and against descent in small steps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.linalg import expm

from jaxpe.ntk import gradient_flow, linearised_training, solve_flow

AT = jax.jit(lambda alpha, b, start, time: gradient_flow(alpha, b, start).at(time))
FIXED_POINT = jax.jit(lambda alpha, b, start: gradient_flow(alpha, b, start).fixed_point())


def fixed_point(*args):
    return jax.device_get(FIXED_POINT(*args))


RNG = np.random.default_rng(0)
A = RNG.normal(size=(5, 5))
ALPHA = A @ A.T / 5 + 0.1 * np.eye(5)
B, START = RNG.normal(size=(5, 2)), RNG.normal(size=(5, 2))


def test_solves_its_equation_as_the_ode_solver_does():
    end = np.linalg.solve(ALPHA, B)
    times = np.array([0.0, 0.3, 2.0, 50.0])
    expected = [end + expm(-ALPHA * t) @ (START - end) for t in times]
    np.testing.assert_allclose([AT(ALPHA, B, START, t) for t in times], expected, atol=1e-12)
    solved = jax.jit(
        lambda: solve_flow(lambda P: B - ALPHA @ P, START, times, rtol=1e-9, atol=1e-11)
    )()
    np.testing.assert_allclose(solved, expected, atol=1e-8)


def test_of_a_kernel_with_coordinates():
    whole = np.einsum("ij,ce->icje", ALPHA, np.diag([1.0, 3.0]))
    found = np.asarray(AT(whole, B, START, 1.7))
    for c, factor in enumerate((1.0, 3.0)):
        alone = np.asarray(AT(factor * ALPHA, B, START, 1.7))
        np.testing.assert_allclose(found[:, c], alone[:, c], atol=1e-12)


def test_fixed_points_of_regular_and_singular_kernels():
    end = fixed_point(ALPHA, B, START)
    np.testing.assert_allclose(end.positions, np.linalg.solve(ALPHA, B), atol=1e-10)
    np.testing.assert_allclose(end.condition, np.linalg.cond(ALPHA))
    assert (end.rank, end.singular, end.residual, end.stable) == (5, False, 0, True)
    singular = A[:, :3] @ A[:, :3].T
    inside = singular @ RNG.normal(size=(5, 2))
    end = fixed_point(singular, inside, START)
    np.testing.assert_allclose(end.positions, np.linalg.pinv(singular) @ inside, atol=1e-9)
    assert (end.rank, end.singular, end.condition) == (3, True, np.inf)
    assert end.residual < 1e-12
    # Along the null space positions grow in proportion to time, without a division by zero.
    kernel = np.linalg.svd(singular)[0][:, 3:]
    lost = np.linalg.norm(kernel.T @ B) / np.linalg.norm(B)
    np.testing.assert_allclose(fixed_point(singular, B, START).residual, lost)
    grown = kernel.T @ (np.asarray(AT(singular, B, START, 1e3)) - START)
    np.testing.assert_allclose(grown, 1e3 * kernel.T @ B, rtol=1e-6)
    nothing = fixed_point(0 * ALPHA, 0 * B, START)
    assert (nothing.rank, nothing.residual, nothing.stable) == (0, 0, True)
    assert not fixed_point(np.diag([1.0, 1, 1, 1, -1]), B, START).stable


@pytest.mark.parametrize("seed", range(4))
def test_rounding_makes_no_singular_kernel_unstable(seed):
    """Eigenvalues that are 0 come out a little below it; a flow with a negative one leaves."""
    v = np.random.default_rng(seed).standard_normal((5, 2))
    alpha = v @ v.T
    assert np.linalg.eigvalsh(alpha)[0] < 0
    end = fixed_point(alpha, B, START)
    assert (end.rank, end.singular, end.stable) == (2, True, True)
    assert not fixed_point(alpha - 1e-6 * np.eye(5), B, START).stable


def test_small_times_keep_their_digits_in_float32():
    slow = 1e-4 * ALPHA, B, 0 * START
    narrow = AT(*(x.astype(np.float32) for x in slow), np.float32(1e-2))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, AT(*slow, 1e-2), rtol=1e-5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: gradient_flow(ALPHA, np.zeros((5, 3)), START),
        lambda: gradient_flow(B, B, START),
        lambda: solve_flow(lambda P: -P, START, np.array([])),
        lambda: solve_flow(lambda P: -P, START, np.array([-0.5, 1.0])),
        lambda: solve_flow(lambda P: -P, START, np.array([0.0, np.nan])),
        lambda: solve_flow(lambda P: -P, START, np.array([0.0, 2.0, 1.0])),
    ],
)
def test_shapes_and_times_are_checked(call):
    with pytest.raises(ValueError, match="pass"):
        call()


def gap(width, *, steps=60, rate=0.5):
    """Trained in the parametrisation in which the kernel stays as the width grows."""
    rng = np.random.default_rng(1)
    params = {"in": rng.normal(size=(3, width)), "out": rng.normal(size=(width, 1))}
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 1))

    def scaled(params, x):
        return jnp.tanh(x @ params["in"]) @ params["out"] / np.sqrt(width)

    def loss(outputs):
        return jnp.mean((outputs - y) ** 2)

    return linearised_training(
        scaled, loss, jax.tree.map(jnp.asarray, params), x, optimizer=optax.sgd(rate), steps=steps
    )


def test_wide_networks_train_as_their_linearisation_does():
    narrow, wide = gap(16), gap(1024)
    assert narrow.losses.shape == (61,)
    assert narrow.losses[-1] < 0.7 * narrow.losses[0]
    assert narrow.output_distance[0] == narrow.moved[0] == 0
    assert wide.output_distance.max() < narrow.output_distance.max() / 2
    assert wide.moved[-1] < narrow.moved[-1] / 3
    assert np.abs(wide.losses - wide.linear_losses).max() < 0.02


def test_distances_are_absolute_from_a_start_at_0():
    found = linearised_training(
        lambda w, x: jnp.sin(x * w),  # the first step is to w = 0.2
        lambda y: jnp.mean((y - 1) ** 2),
        jnp.zeros(()),
        jnp.ones(3),
        optimizer=optax.sgd(0.1),
        steps=1,
    )
    np.testing.assert_allclose(found.moved, [0, 0.2])
    np.testing.assert_allclose(found.output_distance, [0, np.sqrt(3) * (0.2 - np.sin(0.2))])


TIED = np.diag([2.0, 2.0, 0.5, 0.0, 3.0])  # and rotated, so that no entry is special
CHANGE = A + A.T


@jax.jit
def differences(alpha, time, weights):
    """By finite differences, forwards and backwards, at a time and at the fixed point."""

    def along(t):
        flow = gradient_flow(alpha + t * CHANGE, B, START)
        return jnp.stack([flow.at(time), flow.fixed_point().positions])

    _, forwards = jax.jvp(along, (0.0,), (1.0,))
    backwards = jax.vmap(jax.grad(lambda t, w: jnp.sum(w * along(t))), (None, 0))(0.0, weights)
    return (along(1e-5) - along(-1e-5)) / 2e-5, forwards, backwards


@pytest.mark.parametrize("time", [1e-3, 0.7, 40.0])
@pytest.mark.parametrize("kernel", ["tied", "regular"])
def test_derivatives_where_eigenvalues_repeat(time, kernel):
    """Against differences of the closed form, for a change that splits what was equal."""
    Q = np.linalg.qr(A)[0]
    alpha = Q @ TIED @ Q.T if kernel == "tied" else ALPHA
    weights = np.stack([RNG.normal(size=(2, 5, 2)) * np.eye(2)[k][:, None, None] for k in (0, 1)])
    # A pseudo-inverse has no derivative where ranks change: the fixed point needs a regular one.
    for matrix, ends in ((alpha, [0]), (alpha + 0.2 * np.eye(5), [0, 1])):
        numerical, forwards, backwards = map(np.asarray, differences(matrix, time, weights))
        for k in ends:
            scale = np.abs(numerical[k]).max()
            np.testing.assert_allclose(forwards[k], numerical[k], atol=1e-6 * scale)
            expected = np.sum(weights[k, k] * forwards[k])
            np.testing.assert_allclose(backwards[k], expected, rtol=1e-8)


def test_velocity_is_the_derivative_by_time():
    position, velocity = jax.jvp(lambda t: AT(ALPHA, B, START, t), (0.4,), (1.0,))
    np.testing.assert_allclose(velocity, B - ALPHA @ position, atol=1e-10)
