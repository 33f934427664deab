"""Classical scaling: what it guarantees, and its derivative at generic and degenerate points."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import (
    Distances,
    classical_mds,
    euclidean_distances,
    fisher_rao_distances,
    hellinger_distances,
    stress,
)
from jaxpe.geometry import classical_mds_from_gram, low_rank_factors
from tests.unchecked import unchecked

RNG = np.random.default_rng(0)
CORNERS = np.concatenate([np.eye(4), np.full((1, 4), 0.25), RNG.dirichlet(np.ones(4), size=4)])


def centred_gram(X):
    X = X - X.mean(0)
    return X @ X.T


def polygon(n):
    angle = 2 * np.pi * np.arange(n) / n
    return np.stack([np.cos(angle), np.sin(angle)], 1)


def with_eigenvalues(values):
    V = np.linalg.qr(np.random.default_rng(5).standard_normal((len(values), len(values))))[0]
    return (V * np.asarray(values, float)) @ V.T


def symmetric(n, seed=1):
    E = np.random.default_rng(seed).standard_normal((n, n))
    return E + E.T


@pytest.mark.parametrize("dim", [5, 6, 9])
def test_isometry_at_full_rank(dim):
    mu = RNG.dirichlet(np.ones(9), size=6)
    D = hellinger_distances(mu)
    mds = classical_mds(D, dim=dim)
    assert mds.coordinates.shape == (6, dim)
    np.testing.assert_allclose(euclidean_distances(mds.coordinates).values, D.values, atol=1e-7)
    assert stress(mds.coordinates, D) < 1e-14
    assert mds.rank == 5
    assert mds.negative_mass < 1e-12
    assert (mds.coordinates[:, 5:] == 0).all()


def test_coordinates_are_centred_principal_axes_with_fixed_signs():
    P = np.asarray(classical_mds(euclidean_distances(RNG.standard_normal((7, 4))), dim=3)[0])
    np.testing.assert_allclose(P.sum(0), 0, atol=1e-12)
    inner = P.T @ P
    np.testing.assert_allclose(inner, np.diag(np.diagonal(inner)), atol=1e-12)
    assert (np.diff(np.diagonal(inner)) < 0).all()
    assert (P[np.abs(P).argmax(0), range(3)] > 0).all()


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_the_rank_does_not_depend_on_the_scale(scale):
    X = np.random.default_rng(0).standard_normal((6, 2))
    D = scale * np.asarray(euclidean_distances(X).values)
    found = classical_mds(D, dim=3)
    assert found.rank == 2
    np.testing.assert_allclose(euclidean_distances(found.coordinates).values, D, atol=1e-6 * scale)


def test_negative_eigenvalues_are_reported_and_clipped():
    mds = classical_mds(fisher_rao_distances(CORNERS), dim=9)
    lam = np.asarray(mds.eigenvalues)
    assert lam.min() < -0.1
    np.testing.assert_allclose(mds.negative_mass, -lam[lam < 0].sum() / np.abs(lam).sum())
    assert mds.rank < 8
    assert (mds.coordinates[:, mds.rank.item() :] == 0).all()


def test_mask_equals_removal():
    keep = np.array([True, False, True, True, False, True, True])
    D = np.asarray(euclidean_distances(RNG.standard_normal((7, 3))).values)
    whole = classical_mds(Distances(jnp.asarray(D), jnp.asarray(keep)), dim=2)
    part = classical_mds(D[np.ix_(keep, keep)], dim=2)
    np.testing.assert_allclose(whole.coordinates[keep], part.coordinates, atol=1e-12)
    assert (whole.coordinates[~keep] == 0).all()
    assert whole.rank == part.rank
    np.testing.assert_allclose(whole.eigenvalues[:3], part.eigenvalues[:3])


TARGET = np.asarray(euclidean_distances(np.random.default_rng(7).standard_normal((6, 6))).values)
FUNCTIONS = {
    "stress": lambda P: stress(P, TARGET[: len(P), : len(P)]),
    "inner": lambda P: jnp.sum((P @ P.T) ** 3),
    "distances": lambda P: jnp.sum(euclidean_distances(P).values ** 3),
}
GRAMS = {
    "generic": (centred_gram(RNG.standard_normal((6, 5))), 2),
    "hexagon": (centred_gram(polygon(6)) + 0.0, 2),
    "hexagon in 4": (
        centred_gram(np.concatenate([polygon(6), 0.5 * polygon(6)[[0, 2, 4, 1, 3, 5]]], 1)), 2,
    ),
    "simplex, all kept": (np.eye(6) - 1 / 6, 5),
    "equal ones above the cut": (with_eigenvalues([3, 3, 1, 0.5, 0.2, 0.1]), 2),
    "equal ones below the cut": (with_eigenvalues([3, 2, 1, 1, 1, 0.1]), 2),
    "negative": (with_eigenvalues([3, 3, 1, -1, -1, -2]), 3),
    "negative inside the width": (with_eigenvalues([3, 3, -1, -1, -2, -4]), 4),
}  # fmt: skip


@cache
def first_derivatives(dim):
    """Differences, and derivatives in both modes, of every function of the coordinates."""

    def f(B):
        P = classical_mds_from_gram(B, dim=dim).coordinates
        return jnp.stack([function(P) for function in FUNCTIONS.values()])

    @jax.jit
    def derivatives(B, E):
        h = 1e-6
        slopes = (f(B + h * E) - f(B - h * E)) / (2 * h)
        return slopes, jax.jvp(f, (B,), (E,))[1], jax.jacrev(f)(B)

    return derivatives


@pytest.mark.parametrize("gram", GRAMS)
def test_derivatives_equal_finite_differences(gram):
    B, dim = GRAMS[gram]
    E = symmetric(len(B))
    if gram in ("hexagon", "simplex, all kept"):  # directions that keep the rank, as D does
        U = np.linalg.eigh(B)[1][:, -dim:]
        E = E @ U @ U.T + U @ U.T @ E - U @ U.T @ E @ U @ U.T
    slopes, forward, gradients = first_derivatives(dim)(B, E)
    np.testing.assert_allclose(forward, slopes, rtol=2e-5, atol=1e-7)
    backward = np.einsum("fij,ij->f", gradients, E)
    np.testing.assert_allclose(backward, forward, rtol=1e-9, atol=1e-9)


def test_hexagon_through_its_distances():
    D = euclidean_distances(polygon(6)).values
    E, h = symmetric(6, 3), 1e-6

    @jax.jit
    def f(D):
        return FUNCTIONS["stress"](classical_mds(D, dim=2).coordinates)

    slope = (f(D + h * E) - f(D - h * E)) / (2 * h)
    np.testing.assert_allclose(jnp.vdot(jax.jit(jax.grad(f))(D), E), slope, rtol=1e-5)


NEARLY_EQUAL = {
    f"{where}, {gap}": (with_eigenvalues(np.add([3, 3, 1, 0.5, 0.5, 0.1], shift)), 3)
    for gap in (1e-3, 1e-7, 1e-12)
    for where, shift in (("kept", [gap, 0, 0, 0, 0, 0]), ("dropped", [0, 0, 0, gap, 0, 0]))
}


@cache
def second_derivatives(dim):
    """Differences of gradients, and second derivatives in three orders of the modes."""

    def f(B):
        P = classical_mds_from_gram(B, dim=dim).coordinates
        return sum(function(P) for function in FUNCTIONS.values())

    @jax.jit
    def derivatives(B, E):
        h = 1e-5
        slopes = jnp.vdot(jax.grad(f)(B + h * E) - jax.grad(f)(B - h * E), E) / (2 * h)
        product = jax.jvp(jax.grad(f), (B,), (E,))[1]
        by_reverse = jax.grad(lambda B: jnp.vdot(jax.grad(f)(B), E))(B)
        return slopes, product, by_reverse, jax.jacfwd(jax.jacfwd(lambda t: f(B + t * E)))(0.0)

    return derivatives


@pytest.mark.parametrize("gram", GRAMS | NEARLY_EQUAL)
def test_second_derivatives_equal_differences_of_gradients(gram):
    B, dim = (GRAMS | NEARLY_EQUAL)[gram]
    E = symmetric(len(B))
    slopes, product, by_reverse, forward = second_derivatives(dim)(B, E)
    np.testing.assert_allclose(jnp.vdot(product, E), slopes, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(by_reverse, product, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(forward, jnp.vdot(product, E), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_hessian_of_the_stress_of_distributions(kind):
    logits = jax.random.normal(jax.random.key(1), (2, 5, 6)).astype(kind)

    def f(logits):
        D = hellinger_distances(jax.nn.softmax(logits, -1))
        return stress(classical_mds(D, dim=2).coordinates, D)

    @jax.jit
    @jax.vmap
    def derivatives(x):
        columns = jnp.eye(x.size, dtype=x.dtype).reshape(-1, *x.shape)
        products = jax.vmap(jax.linearize(jax.grad(f), x)[1])(columns)
        return jax.hessian(f)(x), products.reshape(*x.shape, *x.shape)

    hessians, products = derivatives(logits)
    h, step = 1e-5, np.random.default_rng(0).standard_normal(logits.shape)
    gradient = jax.jit(jax.vmap(jax.grad(f)))
    exact = np.asarray(logits, float)
    change = (gradient(exact + h * step) - gradient(exact - h * step)) / (2 * h)
    tolerance = 1e-6 if kind == np.float64 else 1e-3
    for hessian in (hessians, products):
        product = np.einsum("bijkl,bkl->bij", hessian, step)
        np.testing.assert_allclose(product, change, rtol=tolerance, atol=tolerance)


def test_second_derivatives_of_sums_of_equal_eigenvalues():
    B, E, h = with_eigenvalues([3, 3, 1, 0.5, 0.5, 0.1]), symmetric(6), 1e-5
    f = jax.grad(lambda B: jnp.sum(classical_mds_from_gram(B, dim=2).eigenvalues[:2]))
    change = (f(B + h * E) - f(B - h * E)) / (2 * h)
    np.testing.assert_allclose(jax.jvp(f, (B,), (E,))[1], change, atol=1e-8)


@pytest.mark.parametrize("dim", [1, 2, 3, 8])
@pytest.mark.parametrize("B", [np.eye(6) - 1 / 6, np.zeros((6, 6)), np.ones((6, 6)), -np.eye(6)])
def test_never_nan_even_where_the_cut_splits_a_cluster(B, dim):
    size = lambda B: jnp.sum(classical_mds_from_gram(B, dim=dim).coordinates ** 2)  # noqa: E731
    gradient = jax.jit(jax.grad(size))(B)
    assert np.isfinite(gradient).all()


def test_gap_tells_where_the_derivative_is_undefined():
    assert classical_mds_from_gram(np.diag([2.0, 1.0, 1.0]), dim=2).gap == 0
    assert classical_mds_from_gram(np.diag([2.0, 1.0, 1.0]), dim=1).gap == 1


def test_nan_stays_nan():
    D = TARGET.copy()
    D[0, 1] = np.nan
    mds = jax.jit(lambda D: classical_mds(D, dim=2))(D)
    assert np.isnan(mds.coordinates).all()
    assert np.isnan(mds.eigenvalues).all()


def test_wrong_structure_is_refused():
    with pytest.raises(ValueError, match="dim must be at least 1, not 0"):
        classical_mds(TARGET, dim=0)
    with unchecked(), pytest.raises(ValueError, match=r"the Gram matrix has shape \(6, 5\)"):
        classical_mds_from_gram(TARGET[:, :5], dim=1)
    with pytest.raises(ValueError, match=r"rank must lie in \[1, 3\] for shape \(6, 3\), not 4"):
        low_rank_factors(TARGET[:, :3], rank=4)
    with jax.enable_x64(False), pytest.raises(ValueError, match="too small to be squared"):
        low_rank_factors(np.float32(1e-30) * TARGET.astype(np.float32), rank=2)


@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize("shape", [(7, 4), (4, 7)])
def test_low_rank_factors_are_the_best(shape, rank):
    P = np.random.default_rng(2).standard_normal(shape)
    factors = low_rank_factors(P, rank=rank)
    s = np.linalg.svd(P, compute_uv=False)
    error = np.linalg.norm(P - factors.A @ factors.B.T)
    np.testing.assert_allclose(error**2, (s[rank:] ** 2).sum(), atol=1e-12)
    np.testing.assert_allclose(factors.relative_error, error / np.linalg.norm(P), atol=1e-12)
    np.testing.assert_allclose(factors.B.T @ factors.B, np.eye(rank), atol=1e-12)


@pytest.mark.parametrize(
    ("rank", "parameters"), [(1, 160), (2, 320), (3, 480), (7, 1120), (31, 4960)]
)
def test_parameter_counts_of_the_paper(rank, parameters):
    assert low_rank_factors(np.ones((32, 128)), rank=rank).parameters == parameters


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
@pytest.mark.parametrize("s", [[4, 3, 2, 1], [2, 2, 1, 0.5], [3, 2, 1, 1], [3, 2, 0, 0]])
def test_derivative_of_the_product_also_at_repeated_singular_values(shape, s):
    rng = np.random.default_rng(3)
    U, V = (np.linalg.qr(rng.standard_normal((n, 4)))[0] for n in shape)
    P, E, h = (U * np.asarray(s, float)) @ V.T, rng.standard_normal(shape), 1e-6

    @jax.jit
    def f(P):
        factors = low_rank_factors(P, rank=2)
        return jnp.sum((factors.A @ factors.B.T) ** 3)

    slope = (f(P + h * E) - f(P - h * E)) / (2 * h)
    np.testing.assert_allclose(jnp.vdot(jax.jit(jax.grad(f))(P), E), slope, rtol=1e-6)
    np.testing.assert_allclose(
        jax.jit(lambda P, E: jax.jvp(f, (P,), (E,))[1])(P, E), slope, rtol=1e-6
    )
    product = jax.jit(lambda P, E: jax.jvp(jax.grad(f), (P,), (E,))[1])(P, E)
    change = (jax.grad(f)(P + h * E) - jax.grad(f)(P - h * E)) / (2 * h)
    np.testing.assert_allclose(product, change, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("P", [np.zeros((5, 3)), np.eye(5)[:, :3], np.ones((5, 3))])
def test_low_rank_gradients_are_never_nan(P):
    for rank in (1, 3):
        gradient = jax.grad(lambda P, r=rank: jnp.sum(low_rank_factors(P, rank=r).A) +
                            low_rank_factors(P, rank=r).relative_error)(P)  # fmt: skip
        assert np.isfinite(gradient).all()
