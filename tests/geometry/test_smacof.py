"""SMACOF: the stress only falls, and reaches what it should."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpe import Distances, classical_mds, euclidean_distances, smacof, stress
from jaxpe.geometry import PositionCounts, pair_weights

RNG = np.random.default_rng(0)
D = np.asarray(euclidean_distances(RNG.standard_normal((8, 5))).values)
START = RNG.standard_normal((8, 2))
W = RNG.random((8, 8))
W = W + W.T
unchecked = inspect.unwrap(smacof)  # takes traced iteration counts, and bad input to its message
fitted = jax.jit(smacof, static_argnames=("dim", "tolerance"))


def chain_weights():
    """Only neighbours and next neighbours are compared: connected, most pairs missing."""
    offset = abs(np.arange(8)[:, None] - np.arange(8)[None])
    return (offset <= 2).astype(float)


@pytest.mark.parametrize("weights", [None, W, chain_weights()])
def test_stress_never_rises(weights):
    @jax.jit
    def after(k):
        return unchecked(D, dim=2, init=START, weights=weights, max_iterations=k, tolerance=0.0)

    fits = [after(k) for k in range(8)]
    path = np.array([fit.stress for fit in fits])
    assert (np.diff(path) < 0).all()
    np.testing.assert_allclose(path[0], stress(START, D, weights=weights))
    np.testing.assert_allclose(path[7], stress(fits[7].coordinates, D, weights=weights))
    assert [fit.iterations.item() for fit in fits] == list(range(8))
    assert not fits[3].converged


def test_guttman_step_without_weights_equals_weights_of_one():
    one, other = (fitted(D, dim=2, init=START, weights=w) for w in (None, np.ones((8, 8))))
    np.testing.assert_allclose(one.stress, other.stress, rtol=1e-9)
    distances = [euclidean_distances(fit.coordinates).values for fit in (one, other)]
    np.testing.assert_allclose(*distances, atol=1e-5)


def test_three_one_hots_on_a_line_reach_one_ninth():
    triangle = np.sqrt(2) * (1 - np.eye(3))
    assert abs(stress(classical_mds(triangle, dim=1).coordinates, triangle) - 1 / 6) < 1e-12
    starts = np.random.default_rng(1).standard_normal((6, 3, 1))
    many = jax.jit(jax.vmap(lambda X: smacof(triangle, dim=1, init=X)))(starts)
    np.testing.assert_allclose(many.stress, 1 / 9, rtol=1e-9)
    assert many.converged.all()


def test_optax_through_the_stress_reaches_the_same():
    fit = fitted(D, dim=2, init=START, tolerance=1e-12)
    optimiser = optax.lbfgs()

    @jax.jit
    def descend(P):
        value_and_grad = optax.value_and_grad_from_state(lambda P: stress(P, D))

        def step(carry, _):
            P, state = carry
            value, gradient = value_and_grad(P, state=state)
            update, state = optimiser.update(
                gradient, state, P, value=value, grad=gradient, value_fn=lambda P: stress(P, D)
            )
            return (optax.apply_updates(P, update), state), value

        return jax.lax.scan(step, (P, optimiser.init(P)), length=60)[0][0]

    start = smacof(D, dim=2, init=START, max_iterations=20).coordinates
    with jax.numpy_dtype_promotion("standard"):  # optax counts in int32 and int64
        P = descend(start)
    np.testing.assert_allclose(stress(P, D), fit.stress, rtol=1e-6)
    assert jnp.abs(jax.grad(stress)(fit.coordinates, D)).max() < 1e-5


def test_mask_equals_removal():
    keep = np.arange(8) % 3 != 1
    holed = Distances(jnp.asarray(np.where(np.outer(keep, keep), D, np.nan)), jnp.asarray(keep))
    part = D[np.ix_(keep, keep)]
    for weights in (None, W):
        whole = fitted(holed, dim=2, init=START, weights=weights)
        inner = None if weights is None else W[np.ix_(keep, keep)]
        alone = fitted(part, dim=2, init=START[keep], weights=inner)
        np.testing.assert_allclose(whole.stress, alone.stress, rtol=1e-8)
        assert whole.iterations == alone.iterations
        assert (whole.coordinates[~keep] == 0).all()


def test_rare_positions_are_fitted_in_float32_too():
    n = 64
    size = jnp.asarray(np.geomspace(1e7, 1, n).astype(np.int32))
    counts = PositionCounts(size[:, None], jnp.int32(10**7), jnp.int32(0))
    w = np.array(pair_weights(counts))
    X = np.random.default_rng(2).standard_normal((n, 3))
    target = np.asarray(euclidean_distances(X).values)
    start = X + 0.3 * np.random.default_rng(3).standard_normal((n, 3))
    fit = fitted(*(x.astype(np.float32) for x in (target,)), dim=3,
                 init=start.astype(np.float32), weights=w.astype(np.float32))  # fmt: skip
    P = np.asarray(fit.coordinates, float)
    error = np.abs(np.asarray(euclidean_distances(P).values) - target)
    assert fit.converged
    assert error[-4:].max() < 0.05  # the rarest: a truncated pseudo-inverse leaves them at 0.5


def test_exact_fit_converges_at_once():
    fit = fitted(D, dim=8)
    assert fit.converged
    assert fit.iterations <= 2
    assert fit.stress < 1e-20


@pytest.mark.parametrize("where", ["D", "init", "weights"])
def test_nan_ends_the_loop_and_is_said(where):
    broken = {"D": D.copy(), "init": START.copy(), "weights": W.copy()}
    broken[where][1, 0] = np.nan
    fit = fitted(dim=2, **broken)
    assert np.isnan(fit.stress)
    assert not fit.converged
    assert fit.iterations == 0


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"dim": 0}, "dim must be at least 1, not 0"),
        ({"dim": 2, "init": "random"}, "init is 'random': pass 'classical' or an array"),
        ({"dim": 3, "init": START}, r"init has shape \(8, 2\), not \[n, dim\] = \(8, 3\)"),
    ],
)
def test_bad_input_is_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        unchecked(D, **kwargs)
