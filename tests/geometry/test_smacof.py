"""SMACOF: the stress only falls, and reaches what it should."""

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.geometry import (
    Distances,
    PositionCounts,
    classical_mds,
    euclidean_distances,
    smacof,
    stress,
)
from jaxpe.geometry.distances.stress import pair_weights
from tools.parity.make_sklearn import problems

RNG = np.random.default_rng(0)
D = np.asarray(euclidean_distances(RNG.standard_normal((8, 5))).values)
START = RNG.standard_normal((8, 2))
W = RNG.random((8, 8))
W = W + W.T
# Only neighbours and next neighbours are compared: connected, most pairs missing.
CHAIN = (abs(np.arange(8)[:, None] - np.arange(8)[None]) <= 2).astype(float)
ALIKE = np.ones((8, 8))
fitted = jax.jit(smacof, static_argnames="dim")


@jax.jit
def fits(targets, present, init, weights):
    """Fits of eight points in two dimensions, with weights."""
    D = Distances(targets, present)
    return smacof(D, dim=2, init=init, weights=weights, tolerance=1e-4)


everywhere = np.ones(8, bool)


def test_stress_never_rises():
    @partial(jax.vmap, in_axes=(0, None))
    @partial(jax.vmap, in_axes=(None, 0))
    def after(weights, k):
        options = {"weights": weights, "max_iterations": k, "tolerance": 0.0}
        return smacof(D, dim=2, init=START, **options)

    paths = jax.jit(after)(np.stack([ALIKE, W, CHAIN]), np.arange(8, dtype=np.int32))
    assert (np.diff(paths.stress, axis=1) <= 0).all()
    assert (paths.stress[:, 7] < 0.5 * paths.stress[:, 0]).all()
    assert (np.asarray(paths.iterations) == np.arange(8)).all()
    assert not paths.converged[:, 3].any()
    for k, weights in enumerate((None, W, CHAIN)):
        np.testing.assert_allclose(paths.stress[k, 0], stress(START, D, weights=weights))
        last = stress(paths.coordinates[k, 7], D, weights=weights)
        np.testing.assert_allclose(paths.stress[k, 7], last)
    plain = jax.jit(lambda: smacof(D, dim=2, init=START, max_iterations=7, tolerance=0.0))()
    np.testing.assert_allclose(plain.coordinates, paths.coordinates[0, 7], rtol=1e-6)


MINIMA = json.loads((Path(__file__).parents[1] / "parity" / "minima.json").read_text())
# On a line every order of the points has a minimum, and equal eigenvalues leave the start open.
SEVERAL_STARTS = ("cube, 1", "two parties, 2", "8 one-hots, 2")


STARTS = 24


@jax.jit
@jax.vmap
def fit_of_problem(D, present, dim, number):
    """Up to 16 points and 4 dimensions, from the classical start or a random one."""
    targets = Distances(D, present)
    init = jnp.where(jnp.arange(4) < dim, classical_mds(targets, dim=4).coordinates, 0.0)
    key = jax.random.fold_in(jax.random.key(0), number)
    random = jnp.where(jnp.any(init != 0, axis=0), jax.random.normal(key, init.shape), 0.0)
    return smacof(targets, dim=4, init=jnp.where(number > 0, random, init))


@pytest.fixture(scope="module")
def minima():
    """Fits from the classical start, and the best of several where one is not enough, by name."""
    rows, names = [], []
    for name, (D, dim) in problems().items():
        padded, present = np.pad(D, (0, 16 - len(D))), np.arange(16) < len(D)
        for number in range(STARTS if name in SEVERAL_STARTS else 1):
            rows.append((padded, present, dim, number))
            names.append(name)
    fits = jax.device_get(fit_of_problem(*map(np.array, zip(*rows, strict=True))))
    found = {}
    for name in problems():
        here = np.flatnonzero(np.array(names) == name)
        best = here[np.argmin(fits.stress[here])]
        found[name] = [jax.tree.map(lambda x, k=k: x[k], fits) for k in (here[0], best)]
    return found


@pytest.mark.parametrize("name", problems())
def test_minima_are_those_of_other_packages(name, minima):
    """Guttman transforms alone end at saddles of the square and the octahedron."""
    one, best = minima[name]
    expected = min(MINIMA[name])
    np.testing.assert_allclose(best.stress, expected, rtol=1e-5)
    if name not in SEVERAL_STARTS:
        np.testing.assert_allclose(one.stress, expected, rtol=1e-5)
    D, dim = problems()[name]
    for fit in (one, best):  # converged means that a Guttman transform hardly moves it
        assert fit.converged
        P = fit.coordinates[: len(D)]
        assert not P[:, dim:].any()  # columns of 0 stay 0
        apart = P[:, None] - P[None]
        delta = np.linalg.norm(apart, axis=-1)
        pull = np.where(delta > 0, 1 - D / np.where(delta > 0, delta, 1), 0)[..., None]
        move = (pull * apart).sum(1) / len(D)
        assert np.linalg.norm(move) <= 1.01e-5 * np.linalg.norm(P)


def test_three_one_hots_on_a_line_reach_one_ninth():
    triangle = np.sqrt(2) * (1 - np.eye(3))
    starts = np.random.default_rng(1).standard_normal((6, 3, 1))
    many = jax.jit(jax.vmap(lambda X: smacof(triangle, dim=1, init=X)))(starts)
    np.testing.assert_allclose(many.stress, 1 / 9, rtol=1e-9)
    assert many.converged.all()


def test_a_minimum_stays_and_the_scale_of_the_distances_is_no_matter():
    fit = fits(D, everywhere, START, ALIKE)
    again = fits(D, everywhere, fit.coordinates, ALIKE)
    assert again.converged
    assert again.iterations == 0
    np.testing.assert_array_equal(again.coordinates, fit.coordinates)
    for scale in (2.0**-20, 2.0**20):
        scaled = fits(scale * D, everywhere, scale * START, ALIKE)
        assert scaled.iterations == fit.iterations
        np.testing.assert_allclose(scaled.coordinates, scale * fit.coordinates, rtol=1e-6)


def test_points_in_one_place_are_pushed_apart_and_exact_fits_converge_at_once():
    fit = fits(D, everywhere, np.ones((8, 2)), ALIKE)
    assert fit.converged
    np.testing.assert_allclose(fit.initial_stress, 1.0)
    assert fit.stress < 0.2
    exact = fitted(D, dim=8)
    assert exact.converged
    assert exact.iterations <= 2
    assert exact.stress < 1e-20


@pytest.mark.parametrize("weights", [ALIKE, W])
def test_mask_equals_removal(weights):
    keep = np.arange(8) % 3 != 1
    holed, part = np.where(np.outer(keep, keep), D, np.nan), np.ix_(keep, keep)
    whole = fits(holed, keep, START, weights)
    alone = fits(D[part], keep[keep], START[keep], weights[part])
    np.testing.assert_allclose(whole.stress, alone.stress, rtol=1e-8)
    assert whole.iterations == alone.iterations
    assert (whole.coordinates[~keep] == 0).all()


def test_rare_positions_are_fitted_in_float32_too():
    n = 64
    size = jnp.asarray(np.geomspace(1e7, 1, n).astype(np.int32))
    counts = PositionCounts(size[:, None], jnp.int32(10**7), jnp.int32(0))
    X = np.random.default_rng(2).standard_normal((n, 3))
    target = np.asarray(euclidean_distances(X).values)
    start = X + 0.3 * np.random.default_rng(3).standard_normal((n, 3))
    narrow = (np.asarray(x, np.float32) for x in (target, start, pair_weights(counts)))
    fit = jax.jit(lambda D, X, w: smacof(D, dim=3, init=X, weights=w))(*narrow)
    P = np.asarray(fit.coordinates, float)
    error = np.abs(np.asarray(euclidean_distances(P).values) - target)
    assert fit.converged
    assert error[-4:].max() < 0.05  # the rarest: a truncated pseudo-inverse leaves them at 0.5


@pytest.mark.parametrize("where", ["targets", "init", "weights"])
@pytest.mark.parametrize("wrong", [np.nan, -1.0])
def test_wrong_numbers_end_the_loop_and_are_said(where, wrong):
    given = {"targets": D.copy(), "init": START.copy(), "weights": W.copy()}
    given[where][1, 0] = np.nan if where == "init" else wrong
    fit = fits(given["targets"], everywhere, given["init"], given["weights"])
    assert np.isnan(fit.stress)
    assert not fit.converged
    assert fit.iterations == 0
