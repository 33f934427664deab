"""Classical scaling and low rank: what they guarantee, and derivatives at degenerate points."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.geometry import (
    Distances,
    classical_mds,
    classical_mds_from_gram,
    euclidean_distances,
    fisher_rao_distances,
    stress,
)
from jaxpe.geometry.mds.classical import low_rank_factors
from tests.unchecked import unchecked

RNG = np.random.default_rng(0)
CORNERS = np.concatenate([np.eye(4), np.full((1, 4), 0.25), RNG.dirichlet(np.ones(4), size=4)])


def centred_gram(X):
    X = X - X.mean(0)
    return X @ X.T


def polygon(n):
    angle = 2 * np.pi * np.arange(n) / n
    return np.stack([np.cos(angle), np.sin(angle)], 1)


HEXAGON_IN_4 = np.concatenate([polygon(6), 0.5 * polygon(6)[[0, 2, 4, 1, 3, 5]]], 1)


def with_eigenvalues(values):
    V = np.linalg.qr(np.random.default_rng(5).standard_normal((len(values), len(values))))[0]
    return (V * np.asarray(values, float)) @ V.T


def by_eigh(B, dim):
    """Coordinates and eigenvalues in NumPy."""
    values, V = np.linalg.eigh(B)
    values, V = values[::-1], V[:, ::-1][:, :dim]
    V = V * np.sign(V[np.abs(V).argmax(0), range(V.shape[1])])
    return V * np.sqrt(np.maximum(values[:dim], 0)), values


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_coordinates_are_principal_axes_with_fixed_signs(scale):
    X = scale * RNG.standard_normal((7, 4))
    D = np.asarray(euclidean_distances(X).values)
    mds = classical_mds(D, dim=5)
    expected, values = by_eigh(centred_gram(X), 4)
    np.testing.assert_allclose(mds.coordinates[:, :4], expected, atol=1e-7 * scale)
    np.testing.assert_allclose(mds.eigenvalues, values, atol=1e-12 * scale**2)
    np.testing.assert_allclose(mds.gap, 0, atol=1e-12 * scale**2)
    assert mds.rank == 4
    assert (mds.coordinates[:, 4:] == 0).all()
    assert mds.negative_mass < 1e-12
    assert stress(mds.coordinates, D) < 1e-14


def test_negative_eigenvalues_are_reported_and_clipped():
    mds = classical_mds(fisher_rao_distances(CORNERS), dim=9)
    lam = np.asarray(mds.eigenvalues)
    assert lam.min() < -0.1
    np.testing.assert_allclose(mds.negative_mass, -lam[lam < 0].sum() / np.abs(lam).sum())
    assert mds.rank < 8
    assert (mds.coordinates[:, mds.rank.item() :] == 0).all()


def test_mask_equals_removal():
    keep = np.array([True, False, True, True, False, True, True])
    X = RNG.standard_normal((7, 3))
    D = jnp.asarray(np.where(np.outer(keep, keep), euclidean_distances(X).values, np.nan))
    whole = classical_mds(Distances(D, jnp.asarray(keep)), dim=2)
    expected, values = by_eigh(centred_gram(X[keep]), 2)
    np.testing.assert_allclose(whole.coordinates[keep], expected, atol=1e-12)
    assert (whole.coordinates[~keep] == 0).all()
    assert whole.rank == 3
    np.testing.assert_allclose(whole.eigenvalues[:3], values[:3])


TARGET = np.asarray(euclidean_distances(np.random.default_rng(7).standard_normal((6, 6))).values)
# Gram matrices whose derivative is hard, and how many columns are looked at.
GRAMS = {
    "generic": (centred_gram(RNG.standard_normal((6, 5))), 2),
    "hexagon": (centred_gram(polygon(6)), 2),
    "hexagon in 4": (centred_gram(HEXAGON_IN_4), 2),
    "simplex, all kept": (np.eye(6) - 1 / 6, 5),
    "equal ones above the cut": (with_eigenvalues([3, 3, 1, 0.5, 0.2, 0.1]), 2),
    "equal ones below the cut": (with_eigenvalues([3, 2, 1, 1, 1, 0.1]), 2),
    "negative": (with_eigenvalues([3, 3, 1, -1, -1, -2]), 2),
    "negative inside the width": (with_eigenvalues([3, 3, -1, -1, -2, -4]), 5),
    **{
        f"{where}, {gap}": (with_eigenvalues(np.add([3, 3, 1, 0.5, 0.5, 0.1], shift)), 2)
        for gap in (1e-3, 1e-7, 1e-12)
        for where, shift in (("kept", [gap, 0, 0, 0, 0, 0]), ("dropped", [0, 0, 0, gap, 0, 0]))
    },
}


@cache
def derivatives(dim):
    """Of functions that rotations leave alone: differences, both modes, and twice."""

    def each(B):
        P = classical_mds_from_gram(B, dim=dim).coordinates
        apart = jnp.sum(euclidean_distances(P).values ** 3)
        return jnp.stack([stress(P, TARGET), jnp.sum((P @ P.T) ** 3), apart])

    def found(B, E, along):
        h = 1e-6
        slopes = (each(B + h * along) - each(B - h * along)) / (2 * h)
        first = slopes, jax.jvp(each, (B,), (along,))[1], jax.jacrev(each)(B)
        gradient, h = jax.grad(lambda B: jnp.sum(each(B))), 1e-5
        slope = jnp.vdot(gradient(B + h * E) - gradient(B - h * E), E) / (2 * h)
        product = jax.jvp(gradient, (B,), (E,))[1]
        return first, (slope, product, jax.grad(lambda B: jnp.vdot(gradient(B), E))(B))

    return jax.jit(found)


@pytest.mark.parametrize("gram", GRAMS)
def test_derivatives_equal_finite_differences(gram):
    B, dim = GRAMS[gram]
    E = np.random.default_rng(1).standard_normal((6, 6))
    along = E = E + E.T
    if gram in ("hexagon", "simplex, all kept"):  # directions that keep the rank, as D does
        U = np.linalg.eigh(B)[1][:, -dim:]
        along = E @ U @ U.T + U @ U.T @ E - U @ U.T @ E @ U @ U.T
    (slopes, forward, gradients), (slope, product, by_reverse) = derivatives(dim)(B, E, along)
    if "1e-" not in gram:  # steps are larger than these gaps
        np.testing.assert_allclose(forward, slopes, rtol=2e-5, atol=1e-7)
    backward = np.einsum("fij,ij->f", gradients, along)
    np.testing.assert_allclose(backward, forward, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(jnp.vdot(product, E), slope, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(by_reverse, product, rtol=1e-8, atol=1e-8)


def test_second_derivatives_of_sums_of_equal_eigenvalues():
    B, E, h = with_eigenvalues([3, 3, 1, 0.5, 0.5, 0.1]), RNG.standard_normal((6, 6)), 1e-5
    f = jax.jit(jax.grad(lambda B: jnp.sum(classical_mds_from_gram(B, dim=2).eigenvalues[:2])))
    change = (f(B + h * (E + E.T)) - f(B - h * (E + E.T))) / (2 * h)
    np.testing.assert_allclose(jax.jvp(f, (B,), (E + E.T,))[1], change, atol=1e-8)


@pytest.mark.parametrize("dim", [1, 3, 8])
def test_never_nan_even_where_the_cut_splits_a_cluster(dim):
    size = lambda B: jnp.sum(classical_mds_from_gram(B, dim=dim).coordinates ** 2)  # noqa: E731
    grams = np.stack([np.eye(6) - 1 / 6, np.zeros((6, 6)), np.ones((6, 6)), -np.eye(6)])
    assert np.isfinite(jax.jit(jax.vmap(jax.grad(size)))(grams)).all()


def test_gap_and_nan():
    """The derivative is undefined where the gap is 0."""
    find = jax.jit(lambda B: [classical_mds_from_gram(B, dim=dim) for dim in (1, 2)])
    assert [mds.gap for mds in find(np.diag([2.0, 1.0, 1.0]))] == [1, 0]
    D = TARGET.copy()
    D[0, 1] = np.nan
    mds = jax.jit(lambda D: classical_mds(D, dim=2))(D)
    assert np.isnan(mds.coordinates).all()
    assert np.isnan(mds.eigenvalues).all()
    assert mds.rank == -1


def test_wrong_structure_is_refused():
    with pytest.raises(ValueError, match="dim"):
        classical_mds(TARGET, dim=0)
    with unchecked(), pytest.raises(ValueError, match="Gram"):
        classical_mds_from_gram(TARGET[:, :5], dim=1)
    for wrong in (0, 4):
        with pytest.raises(ValueError, match="rank"):
            low_rank_factors(TARGET[:, :3], rank=wrong)


@pytest.mark.parametrize(("shape", "rank"), [((7, 4), 2), ((4, 7), 1), ((4, 7), 4)])
def test_low_rank_factors_are_the_best(shape, rank):
    P = RNG.standard_normal(shape)
    factors = low_rank_factors(P, rank=rank)
    s = np.linalg.svd(P, compute_uv=False)
    error = np.linalg.norm(P - factors.A @ factors.B.T)
    np.testing.assert_allclose(error**2, (s[rank:] ** 2).sum(), atol=1e-12)
    np.testing.assert_allclose(factors.relative_error, error / np.linalg.norm(P), atol=1e-12)
    np.testing.assert_allclose(factors.B.T @ factors.B, np.eye(rank), atol=1e-12)
    assert factors.parameters == rank * sum(shape)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_derivative_of_the_product_also_at_repeated_singular_values(shape):
    rng, h = np.random.default_rng(3), 1e-6
    U, V = (np.linalg.qr(rng.standard_normal((n, 4)))[0] for n in shape)
    E = rng.standard_normal(shape)

    def f(P):
        factors = low_rank_factors(P, rank=2)
        return jnp.sum((factors.A @ factors.B.T) ** 3)

    @jax.jit
    @jax.vmap
    def found(P):
        (ahead, above), (behind, below) = (jax.value_and_grad(f)(P + s * E) for s in (h, -h))
        gradient, product = jax.jvp(jax.grad(f), (P,), (E,))
        forward = jax.jvp(f, (P,), (E,))[1]
        slopes = (ahead - behind) / (2 * h), (above - below) / (2 * h)
        return slopes, jnp.vdot(gradient, E), forward, product

    singular = np.array([[4, 3, 2, 1], [2, 2, 1, 0.5], [3, 2, 1, 1], [3, 2, 0, 0]], float)
    (slope, change), backward, forward, product = found((U * singular[:, None]) @ V.T)
    np.testing.assert_allclose(backward, slope, rtol=1e-6)
    np.testing.assert_allclose(forward, slope, rtol=1e-6)
    np.testing.assert_allclose(product, change, rtol=1e-5, atol=1e-5)


def test_low_rank_gradients_are_never_nan():
    def size(P):
        every = [low_rank_factors(P, rank=rank) for rank in (1, 3)]
        return sum(jnp.sum(factors.A) + factors.relative_error for factors in every)

    hard = np.stack([np.zeros((5, 3)), np.eye(5)[:, :3], np.ones((5, 3))])
    assert np.isfinite(jax.jit(jax.vmap(jax.grad(size)))(hard)).all()
