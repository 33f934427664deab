"""Distances and projections: formulas, digits, singular points, masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from jaxpe.geometry import (
    Distances,
    PositionalDistributions,
    classical_mds_from_gram,
    euclidean_distances,
    fisher_rao_distances,
    hellinger_distances,
    hellinger_gram,
    toeplitz_residual,
)
from jaxpe.geometry.distances.matrices import as_distances, distances_from_gram, gram_matrix
from jaxpe.geometry.distances.points import hellinger_points
from jaxpe.geometry.distances.toeplitz import (
    circulant_projection,
    circulant_residual,
    toeplitz_projection,
)

RNG = np.random.default_rng(0)
MU = RNG.dirichlet(np.full(20, 0.3), size=7)


@jax.jit
def measured(mu):
    """Hellinger and Fisher-Rao distances, and the Gram matrix."""
    return hellinger_distances(mu).values, fisher_rao_distances(mu).values, hellinger_gram(mu)


def pairwise(X, metric=np.linalg.norm):
    return np.array([[metric(x - y) for y in X] for x in X])


def test_the_formulas_and_the_inequalities():
    p = np.concatenate([MU, np.eye(20)[:3]])
    chord, arc, gram = map(np.asarray, measured(p))
    roots = np.sqrt(p)
    np.testing.assert_allclose(chord, pairwise(roots), atol=1e-12)
    angles = 2 * np.arccos(np.clip(roots @ roots.T, 0, 1))
    np.testing.assert_allclose(arc, angles * ~np.eye(len(p), dtype=bool), atol=1e-7)
    np.testing.assert_allclose(chord, 2 * np.sin(arc / 4), atol=1e-12)  # chord of the arc d/2
    centred = roots - roots.mean(0)
    np.testing.assert_allclose(gram, centred @ centred.T, atol=1e-12)
    np.testing.assert_allclose(gram_matrix(chord), gram, atol=1e-12)
    l1 = pairwise(p, lambda x: np.abs(x).sum())
    assert (chord**2 <= l1 + 1e-12).all()
    assert (l1 <= chord * np.sqrt(4 - chord**2) + 1e-12).all()


@pytest.mark.parametrize("shift", [1e-3, 1e-7])
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


def test_nearly_equal_distributions_keep_digits_that_overlaps_lose():
    base = RNG.dirichlet(np.ones(3000))
    p = base * (1 + 1e-4 * RNG.standard_normal((40, 3000)))
    p = (p / p.sum(1, keepdims=True)).astype(np.float32)
    roots = np.sqrt(p.astype(float))
    exact = (roots - roots.mean(0)) @ (roots - roots.mean(0)).T
    for B in (hellinger_gram(p), gram_matrix(hellinger_distances(p))):
        assert np.abs(np.asarray(B, np.float64) - exact).max() < 1e-3 * np.abs(exact).max()


def test_large_inputs_are_multiplied_and_agree_with_differences():
    """More than four million differences: from inner products, where equal rows are at 0."""
    X = RNG.standard_normal((300, 50)) + 100.0
    X[3] = X[4]
    found = euclidean_distances(X).values
    exact = np.sqrt(np.maximum(((X[:, None] - X[None]) ** 2).sum(-1), 0))
    np.testing.assert_allclose(found, exact, atol=1e-10)
    assert found[3, 4] == 0
    assert np.isfinite(jax.grad(lambda X: jnp.sum(euclidean_distances(X).values))(X)).all()


@pytest.mark.parametrize("junk", [7.0, np.nan])
def test_absent_positions_take_no_part_whatever_stands_there(junk):
    keep = np.array([True, False, True, True, False, True, True])
    holed = PositionalDistributions(jnp.where(keep[:, None], MU, junk), jnp.asarray(keep))
    inner = np.ix_(keep, keep)
    for whole, part in zip(measured(holed), measured(MU[keep]), strict=True):
        expected = np.zeros((7, 7))
        expected[inner] = part
        np.testing.assert_allclose(whole, expected, atol=1e-12)
    D = np.full((7, 7), junk)
    D[inner] = hellinger_distances(MU[keep]).values
    D = Distances(jnp.asarray(D), jnp.asarray(keep))
    np.testing.assert_allclose(gram_matrix(D)[inner], hellinger_gram(MU[keep]), atol=1e-12)
    assert (as_distances(D).values[1] == 0).all()


@pytest.mark.parametrize("distance", [hellinger_distances, fisher_rao_distances])
def test_gradients_are_finite_at_zero_probabilities_and_equal_rows(distance):
    p = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0]])
    jacobian = np.asarray(jax.jit(jax.jacobian(lambda p: distance(p).values))(p))
    assert np.isfinite(jacobian).all()
    assert (jacobian[0, 1] == 0).all()  # equal rows
    if distance is hellinger_distances:  # (the arc also looks at the norms of the rows)
        assert (jacobian[:3, :3, :, 2] == 0).all()  # a word that these rows lack
    assert np.abs(jacobian[0, 2, 2, :2]).min() > 0.1


@pytest.mark.parametrize(("digits", "resolved"), [(16, False), (17, True)])
def test_squared_distances_below_sixteen_roundings_are_0(digits, resolved):
    product = 1.0 - digits * np.finfo(float).eps
    D = distances_from_gram(np.array([[1.0, product], [product, 1.0]]))
    assert bool(D[0, 1] > 0) == resolved


def test_distances_from_gram_are_those_of_the_points_and_keep_nan():
    X = RNG.standard_normal((5, 3))
    X[4] = X[3]
    B = (X - X.mean(0)) @ (X - X.mean(0)).T
    present = np.arange(5) != 2
    found = distances_from_gram(B, present=present).values
    np.testing.assert_allclose(found, pairwise(X) * np.outer(present, present), atol=1e-12)
    assert found[3, 4] == 0
    B[0, 1] = np.nan
    assert np.isnan(distances_from_gram(B, present=present).values[0, 1])


def test_derivatives_at_columns_that_are_constant():
    """They are made equal by a constant."""
    mu = MU[:1].repeat(6, axis=0)
    jacobian = jax.jit(jax.jacobian(lambda mu: hellinger_points(mu).points))(mu)
    np.testing.assert_allclose(jacobian[2, 4, 2, 4], 0.5 / np.sqrt(mu[2, 4]), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distributions_equal_up_to_rounding_are_equal(dtype):
    eps = np.finfo(dtype).eps
    rounding = 1 + eps * RNG.integers(-2, 3, (6, 20)).astype(dtype)
    mu = MU[:1].repeat(6, axis=0).astype(dtype) * rounding
    gram = hellinger_gram(mu)
    assert not np.asarray(gram).any()
    assert int(classical_mds_from_gram(gram, dim=2).rank) == 0
    mu[0, 0] *= 1 + 1000 * eps
    assert np.asarray(hellinger_distances(mu).values)[0, 1] > 0


A = RNG.standard_normal((7, 7))
PROJECTIONS = [(toeplitz_projection, toeplitz_residual), (circulant_projection, circulant_residual)]


@pytest.mark.parametrize(("project", "residual"), PROJECTIONS)
def test_projections_are_least_squares(project, residual):
    offset = np.arange(7)[None] - np.arange(7)[:, None]
    if project is circulant_projection:
        offset = offset % 7
    basis = np.stack([(offset == k).ravel() for k in np.unique(offset)], 1).astype(float)
    expected = (basis @ np.linalg.lstsq(basis, A.ravel(), rcond=None)[0]).reshape(7, 7)
    np.testing.assert_allclose(project(A), expected)
    share = ((A - expected) ** 2).sum() / (A**2).sum()
    np.testing.assert_allclose([residual(A), residual(-3 * A)], share)
    assert residual(np.zeros((7, 7))) == 0


def test_their_own_matrices_are_recognised_exactly():
    toeplitz = scipy.linalg.toeplitz([0.1, 0.7, 0.3, 0.4], [0.1, 0.9, 0.2, 0.8])
    circulant = scipy.linalg.circulant([0.1, 0.7, 0.3, 0.9])
    for dtype in (np.float32, np.float64):
        assert toeplitz_residual(toeplitz.astype(dtype)) == 0
        assert circulant_residual(circulant.astype(dtype)) == 0
        assert toeplitz_residual(circulant.astype(dtype)) == 0
    assert circulant_residual(toeplitz) > 0.01
