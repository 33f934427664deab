"""Distances: the inequalities they obey, their digits, their singular points, their masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import (
    Distances,
    PointCloud,
    PositionalDistributions,
    classical_mds,
    entropy_rank,
    euclidean_distances,
    fisher_rao_distances,
    hellinger_distances,
    hellinger_gram,
    min_separation,
    monotonicity_violation_rate,
    procrustes,
    stress,
)
from jaxpe.geometry import as_distances, distances_from_gram, gram_matrix, sum_over_pairs
from jaxpe.geometry.distances import matrices as module

hellinger_distances, fisher_rao_distances, hellinger_gram, gram_matrix = map(
    jax.jit, (hellinger_distances, fisher_rao_distances, hellinger_gram, gram_matrix)
)


def mu(n=7, vocab=20, concentration=0.3, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(vocab, concentration), size=n)


def test_hellinger_bounds_and_total_variation():
    p = np.concatenate([mu(), np.eye(20)[:3]])
    d = np.asarray(hellinger_distances(p).values)
    l1 = np.abs(p[:, None] - p[None]).sum(-1)
    assert d.max() <= np.sqrt(2) * (1 + 1e-15)
    assert (d**2 <= l1 + 1e-12).all()
    assert (l1 <= d * np.sqrt(4 - d**2) + 1e-12).all()
    assert (d[:, None, :] <= d[:, :, None] + d[None] + 1e-12).all()


def test_fisher_rao_is_the_arccos_of_the_overlap():
    p = np.concatenate([mu(), np.eye(20)[:3]])
    d = np.asarray(fisher_rao_distances(p).values)
    overlap = np.sqrt(p) @ np.sqrt(p).T
    off = ~np.eye(len(p), dtype=bool)
    np.testing.assert_allclose(d[off], 2 * np.arccos(np.clip(overlap, 0, 1))[off], atol=1e-7)
    chord = np.asarray(hellinger_distances(p).values)
    np.testing.assert_allclose(chord, 2 * np.sin(d / 4), atol=1e-12)  # chord of the arc d/2
    assert (np.diagonal(d) == 0).all()


@pytest.mark.parametrize("shift", [1e-3, 1e-5, 1e-7])
def test_fisher_rao_keeps_its_digits_near_zero(shift):
    p, q = np.array([0.3, 0.7]), np.array([0.3 + shift, 0.7 - shift])
    # On two words √μ is a point of the circle, at angle asin √μ_1, so d = 2 |θ_p − θ_q|.
    x, y = (np.arctan2(np.sqrt(r[0].astype(np.longdouble)), np.sqrt(r[1].astype(np.longdouble)))
            for r in (p, q))  # fmt: skip
    exact = float(2 * abs(x - y))
    d = fisher_rao_distances(np.stack([p, q])).values[0, 1]
    assert abs(d - exact) <= 1e-15 / shift * exact + 1e-15
    p32 = np.stack([p, q]).astype(np.float32)
    exact32 = fisher_rao_distances(p32.astype(np.float64)).values[0, 1]
    assert abs(float(fisher_rao_distances(p32).values[0, 1]) - float(exact32)) <= 2e-7


def test_gram_from_distances_equals_gram_from_roots_and_is_positive_semidefinite():
    B = hellinger_gram(mu())
    np.testing.assert_allclose(gram_matrix(hellinger_distances(mu())), B, atol=1e-12)
    np.testing.assert_allclose(B.sum(0), 0, atol=1e-12)
    assert np.linalg.eigvalsh(B).min() > -1e-14


def test_fisher_rao_is_not_euclidean():
    corners = np.concatenate([np.eye(4), np.full((1, 4), 0.25), mu(4, 4)])
    assert np.linalg.eigvalsh(gram_matrix(fisher_rao_distances(corners))).min() < -0.1


def test_nearly_equal_distributions_keep_digits_that_overlaps_lose():
    rng = np.random.default_rng(0)
    base = rng.dirichlet(np.ones(3000))
    p = base * (1 + 1e-4 * rng.standard_normal((40, 3000)))
    p = (p / p.sum(1, keepdims=True)).astype(np.float32)
    exact = np.asarray(hellinger_gram(p.astype(np.float64)))

    def error(B):
        return np.abs(np.asarray(B, np.float64) - exact).max() / np.abs(exact).max()

    assert error(hellinger_gram(p)) < 1e-3
    assert error(gram_matrix(hellinger_distances(p))) < 1e-3
    overlap = np.sqrt(p) @ np.sqrt(p).T
    rough = np.sqrt(np.maximum(2 - 2 * overlap, 0)) * (1 - np.eye(40, dtype=np.float32))
    assert error(gram_matrix(rough)) > 0.1


def test_products_agree_with_differences(monkeypatch):
    X = np.random.default_rng(0).standard_normal((9, 5)) + 100.0
    X[3] = X[4]
    slow = euclidean_distances(X).values
    monkeypatch.setattr(module, "_DIFFERENCES", 0)
    untraced = euclidean_distances.__wrapped__  # the jitted one knows these shapes

    def products(X):
        return untraced(X).values

    fast = products(X)
    np.testing.assert_allclose(fast, slow, atol=1e-10)
    assert not np.array_equal(fast, slow)
    assert fast[3, 4] == 0
    assert np.isfinite(jax.grad(lambda X: jnp.sum(products(X)))(X)).all()


def test_permuting_words_changes_nothing_and_permuting_positions_permutes():
    p, rng = mu(), np.random.default_rng(3)
    words, places = rng.permutation(20), rng.permutation(7)
    for distance in (hellinger_distances, fisher_rao_distances):
        d = np.asarray(distance(p).values)
        np.testing.assert_allclose(distance(p[:, words]).values, d, atol=1e-12)
        np.testing.assert_allclose(distance(p[places]).values, d[places][:, places], atol=1e-12)


@pytest.mark.parametrize("junk", [0.0, 7.0, np.nan])
def test_absent_positions_take_no_part_whatever_stands_there(junk):
    keep = np.array([True, False, True, True, False, True])
    p = mu(6)
    holed = PositionalDistributions(jnp.where(keep[:, None], p, junk), jnp.asarray(keep))
    inner = np.ix_(keep, keep)
    for function in (hellinger_distances, fisher_rao_distances, hellinger_gram):
        whole, part = function(holed), function(p[keep])
        whole, part = (x.values if isinstance(x, Distances) else x for x in (whole, part))
        whole = np.array(whole)
        np.testing.assert_allclose(whole[inner], part, atol=1e-12)
        whole[inner] = 0
        assert (whole == 0).all()
    D = np.full((6, 6), junk)
    D[inner] = hellinger_distances(p[keep]).values
    B = np.asarray(gram_matrix(Distances(jnp.asarray(D), jnp.asarray(keep))))
    np.testing.assert_allclose(B[inner], hellinger_gram(p[keep]), atol=1e-12)
    assert (as_distances(Distances(jnp.asarray(D), jnp.asarray(keep))).values[1] == 0).all()


@pytest.mark.parametrize("distance", [hellinger_distances, fisher_rao_distances])
def test_gradients_are_finite_at_zero_probabilities_and_equal_rows(distance):
    p = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0]])
    jacobian = np.asarray(jax.jit(jax.jacobian(lambda p: distance(p).values))(p))
    assert np.isfinite(jacobian).all()
    assert (jacobian[0, 1] == 0).all()  # equal rows
    if distance is hellinger_distances:  # (the arc also looks at the norms of the rows)
        assert (jacobian[:3, :3, :, 2] == 0).all()  # a word that these rows lack
    assert np.abs(jacobian[0, 2, 2, :2]).min() > 0.1


@pytest.mark.parametrize("distance", [hellinger_distances, fisher_rao_distances])
def test_gradient_along_the_simplex(distance):
    p = mu(4, 6, 5.0)
    tangent = np.random.default_rng(1).standard_normal(p.shape)
    tangent -= tangent.mean(1, keepdims=True)

    def f(p):
        return jnp.sum(distance(p).values ** 3)

    h = 1e-6
    slope = (f(p + h * tangent) - f(p - h * tangent)) / (2 * h)
    np.testing.assert_allclose(jnp.vdot(jax.jit(jax.grad(f))(p), tangent), slope, rtol=1e-6)


def test_nan_stays_nan():
    p = mu(4)
    p[1, 0] = np.nan
    for distance in (hellinger_distances, fisher_rao_distances):
        d = np.asarray(distance(p).values)
        assert np.isnan(d[1, [0, 2, 3]]).all()


def test_distances_from_gram_equal_those_of_the_points_and_keep_nan():
    X = np.random.default_rng(0).standard_normal((5, 3))
    X[4] = X[3]
    B = (X - X.mean(0)) @ (X - X.mean(0)).T
    d = distances_from_gram(B).values
    np.testing.assert_allclose(d, euclidean_distances(X).values, atol=1e-12)
    assert d[3, 4] == 0
    present = np.arange(5) != 2
    assert (distances_from_gram(B, present=present).values[2] == 0).all()
    B[0, 1] = np.nan
    assert np.isnan(distances_from_gram(B).values[0, 1])


def test_integers_become_floats_before_they_are_cut():
    """`jax.jit` keeps 32 bits of the integers of NumPy: 2**32 would be 0."""
    P = np.array([[0, 0], [3, 4], [6, 9]]) * 2**32
    D = np.abs(P[:, :1] - P[:, 0])
    calls = {
        "points": lambda P, D: euclidean_distances(P).values,
        "matrix": lambda P, D: as_distances(D).values,
        "stress": lambda P, D: stress(P, D),
        "encoding": lambda P, D: stress(Distances(D, np.ones(3, bool)), D + D),
        "cloud": lambda P, D: stress(P[:, :1], PointCloud(P, np.ones(3, bool))),
        "separation": lambda P, D: min_separation(P),
        "rate": lambda P, D: monotonicity_violation_rate(P),
        "mds": lambda P, D: classical_mds(D, dim=1).coordinates,
        "rank": lambda P, D: entropy_rank(P),
        "procrustes": lambda P, D: procrustes(P, P[::-1]).aligned,
        "pairs": lambda P, D: sum_over_pairs(lambda d: d, P),
    }
    with jax.enable_x64(False):
        for name, call in calls.items():
            found, expected = call(P, D), call(P.astype(float), D.astype(float))
            np.testing.assert_array_equal(found, expected, err_msg=name)
            assert np.any(np.asarray(found)) or name == "rate", name


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 2)])
def test_distances_of_a_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"matrix of distances has shape .* pass \[n, n\]"):
        as_distances(np.ones(shape))
