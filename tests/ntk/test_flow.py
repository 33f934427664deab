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


def test_solves_its_equation():
    end = np.linalg.solve(ALPHA, B)
    for t in (0.0, 0.3, 2.0, 50.0):
        expected = end + expm(-ALPHA * t) @ (START - end)
        np.testing.assert_allclose(AT(ALPHA, B, START, t), expected, atol=1e-12)


def test_equals_the_ode_solver():
    times = np.array([0.0, 0.5, 3.0, 20.0])

    @jax.jit
    def solved(times):
        return solve_flow(lambda P: B - ALPHA @ P, START, times, rtol=1e-9, atol=1e-11)

    closed = jax.vmap(AT, in_axes=(None, None, None, 0))(ALPHA, B, START, times)
    np.testing.assert_allclose(closed, solved(times), atol=1e-8)


def test_of_a_kernel_with_coordinates():
    whole = np.einsum("ij,ce->icje", ALPHA, np.diag([1.0, 3.0]))
    found = np.asarray(AT(whole, B, START, 1.7))
    for c, factor in enumerate((1.0, 3.0)):
        alone = AT(factor * ALPHA, B[:, [c]], START[:, [c]], 1.7)
        np.testing.assert_allclose(found[:, [c]], alone, atol=1e-12)


def test_fixed_point_of_a_regular_kernel():
    end = fixed_point(ALPHA, B, START)
    np.testing.assert_allclose(end.positions, np.linalg.solve(ALPHA, B), atol=1e-10)
    np.testing.assert_allclose(end.condition, np.linalg.cond(ALPHA))
    assert (end.rank, end.singular, end.residual, end.stable) == (5, False, 0, True)


def test_a_singular_kernel_gives_the_least_solution_and_says_so():
    singular = A[:, :3] @ A[:, :3].T
    inside = singular @ RNG.normal(size=(5, 2))
    end = fixed_point(singular, inside, START)
    np.testing.assert_allclose(end.positions, np.linalg.pinv(singular) @ inside, atol=1e-9)
    assert (end.rank, end.singular, end.condition) == (3, True, np.inf)
    assert end.residual < 1e-12
    assert 0.01 < fixed_point(singular, B, START).residual < 1
    # Along the null space positions grow in proportion to time, without a division by zero.
    kernel = np.linalg.svd(singular)[0][:, 3:]
    grown = kernel.T @ (np.asarray(AT(singular, B, START, 1e3)) - START)
    np.testing.assert_allclose(grown, 1e3 * kernel.T @ B, rtol=1e-6)


def test_nothing_at_all():
    nothing = np.zeros((2, 2)), np.zeros((2, 1)), np.ones((2, 1))
    end = fixed_point(*nothing)
    assert (end.rank, end.residual, end.stable) == (0, 0, True)
    assert np.all(end.positions == 0)
    assert np.all(np.asarray(AT(*nothing, 7.0)) == 1)


def test_negative_eigenvalues_are_unstable():
    assert not fixed_point(np.diag([1.0, -1.0]), np.ones((2, 1)), np.zeros((2, 1))).stable


def test_small_times_keep_their_digits_in_float32():
    slow = 1e-4 * ALPHA, B, 0 * START
    narrow = AT(*(x.astype(np.float32) for x in slow), np.float32(1e-2))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, AT(*slow, 1e-2), rtol=1e-5)


def test_under_transforms():
    @jax.jit
    def end(scale):
        return jnp.sum(gradient_flow(scale * ALPHA, B, START).at(1.0) ** 2)

    slope = jax.jit(jax.grad(end))(1.0)
    np.testing.assert_allclose(slope, (end(1 + 1e-5) - end(1 - 1e-5)) / 2e-5, rtol=1e-5)
    many = jax.vmap(lambda b: AT(ALPHA, b, START, 1.0))(np.stack([B, 2 * B]))
    np.testing.assert_allclose(np.asarray(many)[1], AT(ALPHA, 2 * B, START, 1.0))


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"alpha has shape \(5, 5\), b \(5, 3\) and P_0 \(5, 2\)"):
        gradient_flow(ALPHA, np.zeros((5, 3)), START)
    with pytest.raises(ValueError, match=r"alpha has shape \(5, 2\)"):
        gradient_flow(B, B, START)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([], "times is empty: pass at least one"),
        ([-0.5, 1.0], "times has -0.5: pass times from 0 on"),
        ([0.0, np.nan], "times has nan"),
        ([0.0, 2.0, 1.0], "times has 2.0 before 1.0: pass them ascending"),
    ],
)
def test_times_are_checked(times, message):
    with pytest.raises(ValueError, match=message):
        solve_flow(lambda P: -P, START, np.array(times))


def network(params, x):
    return jnp.tanh(x @ params["in"]) @ params["out"]


def gap(width, *, steps=60, rate=0.5):
    """Trained in the parametrisation in which the kernel stays as the width grows."""
    rng = np.random.default_rng(1)
    params = {"in": rng.normal(size=(3, width)), "out": rng.normal(size=(width, 1))}
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 1))

    def scaled(params, x):
        return network(params, x) / np.sqrt(width)

    def loss(outputs):
        return jnp.mean((outputs - y) ** 2)

    return linearised_training(
        scaled, loss, jax.tree.map(jnp.asarray, params), x, optimizer=optax.sgd(rate), steps=steps
    )


def test_wide_networks_train_as_their_linearisation_does():
    narrow, wide = gap(16), gap(1024)
    assert narrow.losses[-1] < 0.7 * narrow.losses[0]
    assert narrow.output_distance[0] == narrow.moved[0] == 0
    assert wide.output_distance.max() < narrow.output_distance.max() / 2
    assert wide.moved[-1] < narrow.moved[-1] / 3
    assert np.abs(wide.losses - wide.linear_losses).max() < 0.02


def test_a_model_linear_in_its_parameters_has_no_gap():
    found = linearised_training(
        lambda w, x: x @ w,
        lambda y: jnp.mean((y - 1) ** 2),
        jnp.ones(3) / 2,
        RNG.normal(size=(6, 3)),
        optimizer=optax.adam(0.1),
        steps=20,
    )
    assert found.losses.shape == (21,)
    assert np.all(found.output_distance < 1e-14)
    np.testing.assert_allclose(found.losses, found.linear_losses)


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


@pytest.mark.parametrize("time", [1e-3, 0.7, 40.0, np.inf])
@pytest.mark.parametrize("kernel", ["tied", "regular"])
def test_derivatives_where_eigenvalues_repeat(time, kernel):
    """Against differences of the closed form, for a change that splits what was equal."""
    Q = np.linalg.qr(A)[0]
    alpha = Q @ TIED @ Q.T if kernel == "tied" else ALPHA
    if np.isinf(time) and kernel == "tied":
        alpha = alpha + 0.2 * np.eye(5)  # a pseudo-inverse has no derivative where ranks change
    change = RNG.normal(size=(5, 5))
    change = change + change.T

    def along(t):
        flow = gradient_flow(alpha + t * change, B, START)
        return flow.at(time) if np.isfinite(time) else flow.fixed_point().positions

    @jax.jit
    def differences():
        return (along(1e-5) - along(-1e-5)) / 2e-5, jax.jvp(along, (0.0,), (1.0,))[1]

    numerical, forwards = jax.device_get(differences())
    scale = np.abs(numerical).max()
    np.testing.assert_allclose(forwards, numerical, atol=1e-6 * scale)
    weights = RNG.normal(size=B.shape)
    backwards = jax.jit(jax.grad(lambda t: jnp.sum(weights * along(t))))(0.0)
    np.testing.assert_allclose(backwards, np.sum(weights * forwards), rtol=1e-8)


def test_derivatives_in_float32():
    """Also of eigenvalues that repeat, and no wider than what they are of."""
    alpha, b, start = (jnp.asarray(x, jnp.float32) for x in (2.0 * np.eye(5), B, START))

    @jax.jit
    def slope(alpha):
        arguments = [x.astype(alpha.dtype) for x in (b, start)]
        return jax.grad(lambda a: jnp.sum(gradient_flow(a, *arguments).at(0.7) ** 2))(alpha)

    found, wide = slope(alpha), slope(alpha.astype(jnp.float64))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, wide, rtol=1e-4, atol=1e-5)


def test_velocity_is_the_derivative_by_time():
    position, velocity = jax.jvp(lambda t: AT(ALPHA, B, START, t), (0.4,), (1.0,))
    np.testing.assert_allclose(velocity, B - ALPHA @ position, atol=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_rounding_makes_no_singular_kernel_unstable(seed):
    """Eigenvalues that are 0 come out a little below it; a flow with a negative one leaves."""
    v = np.random.default_rng(seed).standard_normal((6, 2))
    alpha, b = v @ v.T, np.ones((6, 1))
    assert np.linalg.eigvalsh(alpha)[0] < 0
    end = fixed_point(alpha, b, np.zeros((6, 1)))
    assert (end.rank, end.singular, end.stable) == (2, True, True)
    assert not fixed_point(alpha - 1e-6 * np.eye(6), b, b).stable
