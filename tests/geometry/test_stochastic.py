"""Random pairs: an estimate that keeps its promise, and a descent that reaches what SMACOF does."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe import PointCloud, classical_mds, euclidean_distances, smacof, stress
from jaxpe.geometry import sampled_stress, stochastic_mds

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 8)) / np.arange(1, 9)
D = euclidean_distances(X)
TARGETS = PointCloud(jnp.asarray(X), jnp.ones(200, bool))
START = RNG.standard_normal((200, 2))
descend = jax.jit(
    partial(stochastic_mds, dim=2, pairs=20_000), static_argnames=("init", "steps", "rate")
)


def key(number=0):
    return jax.random.key(number)


def test_comes_near_the_minimum_of_smacof_from_anywhere():
    start = classical_mds(D, dim=2).coordinates
    best = jax.jit(lambda D, init: smacof(D, dim=2, init=init))(D, start).stress
    for init in ("classical", "random"):
        fit = descend(TARGETS, key=key(), init=init)
        # Measured: 1.008 and 1.02.
        assert stress(fit.coordinates, D) < 1.05 * best
        np.testing.assert_allclose(jnp.mean(fit.coordinates, axis=0), 0.0, atol=1e-12)


def test_points_and_their_distances_are_the_same_targets():
    ours, theirs = (
        descend(targets, key=key(), init="random", steps=30) for targets in (TARGETS, D)
    )
    # The size of the start differs in the last digits of the targets' mean square.
    np.testing.assert_allclose(ours.stress.stress, theirs.stress.stress, rtol=0.02)


def test_never_worse_than_the_start_over_the_same_pairs():
    best = jax.jit(lambda D: smacof(D, dim=2, init=START, tolerance=1e-9))(D).coordinates
    fit = jax.jit(lambda P: stochastic_mds(TARGETS, dim=2, key=key(), init=P, steps=3))(best)
    assert (fit.coordinates == best).all()
    assert fit.stress == fit.initial_stress


def test_absent_positions_stay_at_0_and_have_no_say():
    present = np.arange(200) % 3 != 1
    holed = jnp.where(jnp.asarray(present)[:, None], jnp.asarray(X), jnp.nan)
    fit = descend(PointCloud(holed, jnp.asarray(present)), key=key(), init="random", steps=2000)
    assert (fit.coordinates[~present] == 0).all()
    inside = D.values[np.ix_(present, present)]
    best = smacof(inside, dim=2).stress
    assert stress(fit.coordinates[present], inside) < 1.1 * best


def test_intervals_cover_as_often_as_they_say():
    P = START + 0.0
    truth = stress(P, D)
    many = jax.jit(
        jax.vmap(lambda k: sampled_stress(P, TARGETS, key=k, pairs=400, confidence=0.9))
    )(jax.random.split(key(), 400))
    covered = np.mean((many.low <= truth) & (truth <= many.high))
    assert 0.86 < covered < 0.94
    np.testing.assert_allclose(many.stress.mean(), truth, rtol=0.01)


def test_estimates_in_parts_and_for_distances():
    # More pairs than fit one part, and a matrix on either side.
    wide = np.repeat(X, 40, axis=1)
    fit = jax.jit(lambda P, D: sampled_stress(P, D, key=key(), pairs=5000))
    by_points = fit(START, PointCloud(jnp.asarray(wide), jnp.ones(200, bool)))
    by_matrix = fit(euclidean_distances(START), euclidean_distances(wide))
    truth = stress(START, euclidean_distances(wide))
    for estimate in (by_points, by_matrix):
        assert estimate.low < truth < estimate.high


def test_degenerate_targets():
    zero = PointCloud(jnp.zeros((5, 2)), jnp.ones(5, bool))
    assert sampled_stress(START[:5], zero, key=key(), pairs=50).stress == np.inf
    assert sampled_stress(np.ones((5, 2)), zero, key=key(), pairs=50).stress == 0
    nobody = PointCloud(jnp.ones((5, 2)), jnp.zeros(5, bool))
    fit = stochastic_mds(nobody, dim=2, key=key(), init=START[:5], steps=2, pairs=50)
    assert fit.stress.stress == 0
    assert (fit.coordinates == 0).all()


def test_nan_is_said():
    broken = X.copy()
    broken[3] = np.nan
    targets = PointCloud(jnp.asarray(broken), jnp.ones(200, bool))
    fit = descend(targets, key=key(), init="random", steps=30)
    assert np.isnan(fit.stress.stress)
