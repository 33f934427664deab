"""SMACOF: the stress only falls, and reaches what it should."""

import inspect
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpe import Distances, classical_mds, euclidean_distances, smacof, stress
from jaxpe.geometry import PositionCounts, pair_weights
from tools.parity.make_sklearn import problems

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
    assert (np.diff(path) <= 0).all()
    assert path[7] < 0.5 * path[0]
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


MINIMA = json.loads((Path(__file__).parents[1] / "parity" / "minima.json").read_text())
# On a line every order of the points has a minimum, and equal eigenvalues leave the start open.
SEVERAL_STARTS = ("cube, 1", "two parties, 2", "8 one-hots, 2")


@jax.jit
@jax.vmap
def fits_of_problems(D, present, dim):
    """Problems of up to 16 points and 4 dimensions, as one program."""
    targets = Distances(D, present)
    init = jnp.where(jnp.arange(4) < dim, classical_mds(targets, dim=4).coordinates, 0.0)
    random = jax.random.normal(jax.random.key(0), (23, *init.shape), init.dtype)
    starts = jnp.concatenate([init[None], jnp.where(jnp.any(init != 0, axis=0), random, 0.0)])
    several = jax.vmap(lambda start: smacof(targets, dim=4, init=start))(starts)
    best = jnp.argmin(several.stress)
    return smacof(targets, dim=4, init=init), jax.tree.map(lambda x: x[best], several)


@pytest.fixture(scope="module")
def minima():
    """Fits from the classical start, and the best of several, by name."""
    sizes = [len(D) for D, _ in problems().values()]
    targets = np.stack([np.pad(D, (0, 16 - len(D))) for D, _ in problems().values()])
    dims = np.array([dim for _, dim in problems().values()])
    fits = fits_of_problems(targets, np.arange(16) < np.array(sizes)[:, None], dims)
    each = [jax.tree.map(lambda x, i=i: np.asarray(x[i]), fits) for i in range(len(sizes))]
    return dict(zip(problems(), each, strict=True))


@pytest.mark.parametrize("name", problems())
def test_minima_are_those_of_other_packages(name, minima):
    """Guttman transforms alone end at saddles of the square and the octahedron."""
    one, best = minima[name]
    expected = min(MINIMA[name])
    np.testing.assert_allclose(best.stress, expected, rtol=1e-5)
    if name not in SEVERAL_STARTS:
        np.testing.assert_allclose(one.stress, expected, rtol=1e-5)
    assert one.converged
    assert best.converged


@pytest.mark.parametrize("name", problems())
def test_converged_means_a_small_gradient(name, minima):
    D, dim = problems()[name]
    for fit in minima[name]:
        P = fit.coordinates[: len(D)]
        assert not P[:, dim:].any()  # columns of 0 stay 0
        gradient = jax.grad(stress)(jnp.asarray(P), D)
        move = gradient * (D**2).sum() / (4 * len(D))  # of a Guttman transform
        assert np.linalg.norm(move) <= 1.01e-5 * np.linalg.norm(P)


def test_a_minimum_stays_where_it_is():
    fit = fitted(D, dim=2, init=START, tolerance=1e-9)
    again = fitted(D, dim=2, init=fit.coordinates)
    assert again.converged
    assert again.iterations == 0
    np.testing.assert_array_equal(again.coordinates, fit.coordinates)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_scale_of_the_distances_is_no_matter(scale):
    one, other = (fitted(x * D, dim=2, init=x * START) for x in (1.0, scale))
    np.testing.assert_allclose(other.stress, one.stress, rtol=1e-9)
    np.testing.assert_allclose(other.coordinates / scale, one.coordinates, rtol=1e-4, atol=1e-6)


def test_points_in_one_place_are_pushed_apart():
    fit = fitted(D, dim=2, init=np.ones((8, 2)))
    assert fit.converged
    np.testing.assert_allclose(fit.initial_stress, 1.0)
    assert fit.stress < 0.2


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
@pytest.mark.parametrize("wrong", [np.nan, -1.0])
def test_wrong_numbers_end_the_loop_and_are_said(where, wrong):
    broken = {"D": D.copy(), "init": START.copy(), "weights": W.copy()}
    broken[where][1, 0] = np.nan if where == "init" else wrong
    fit = fitted(dim=2, **broken)
    assert np.isnan(fit.stress)
    assert not fit.converged
    assert fit.iterations == 0
