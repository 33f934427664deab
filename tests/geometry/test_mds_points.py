"""Classical scaling without the matrix: every method against the eigendecomposition of it."""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import euclidean_distances
from jaxpe.geometry import classical_mds_from_gram, classical_mds_from_points, principal_eigenpairs
from jaxpe.geometry.distances.points import PointCloud, hellinger_points
from jaxpe.geometry.mds import from_points
from jaxpe.geometry.mds.gauge import gauged_coordinates
from jaxpe.geometry.mds.krylov import orthonormal
from tests.geometry.test_mds import polygon

METHODS = ("dense", "krylov")
RNG = np.random.default_rng(0)
N, K = 60, 20


def centred_gram(X):
    X = X - X.mean(0)
    return X @ X.T


def with_eigenvalues(values):
    values = np.asarray(values, float)
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((len(values),) * 2))[0]
    return (Q * values) @ Q.T


def decaying(n, k):
    """Points with principal axes of lengths 2^−j: all methods see the leading ones alike."""
    return RNG.standard_normal((n, k)) * 0.5 ** np.arange(k)


@partial(jax.jit, static_argnames=("dim", "method"))
def _scaling(cloud, *, dim, method):
    return classical_mds_from_points(cloud, dim=dim, method=method, tolerance=1e-10)


def scaling(X, *, dim, method, present=None):
    present = np.ones(len(X), bool) if present is None else present
    return _scaling(PointCloud(jnp.asarray(X), jnp.asarray(present)), dim=dim, method=method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(N, K), (K, N)])
def test_every_method_equals_the_matrix(method, shape):
    X = decaying(*shape)
    found = scaling(X, dim=3, method=method)
    exact = classical_mds_from_gram(centred_gram(X), dim=3)
    np.testing.assert_allclose(found.coordinates, exact.coordinates, atol=1e-9)
    np.testing.assert_allclose(found.eigenvalues, exact.eigenvalues[:3], rtol=1e-12)
    np.testing.assert_allclose(found.trace, exact.eigenvalues.sum())
    assert found.converged
    assert (found.residuals < 1e-10).all()
    assert found.method == method


@pytest.mark.parametrize(
    ("shape", "method"),
    [((100_000, 64), "dense"), ((300, 30_000), "dense"), ((8192, 30_000), "krylov")],
)
def test_the_choice_is_by_sizes(shape, method):
    find = partial(classical_mds_from_points, dim=64)
    assert jax.eval_shape(find, jax.ShapeDtypeStruct(shape, np.float32)).method == method


@pytest.mark.parametrize("method", METHODS)
def test_residuals_are_true_ones(method):
    X = RNG.standard_normal((200, 150))
    found = jax.jit(lambda X: classical_mds_from_points(X, dim=3, method=method))(X)
    B, values = centred_gram(X), np.asarray(found.eigenvalues)
    V = np.asarray(found.coordinates) / np.sqrt(values)
    expected = np.linalg.norm(B @ V - V * values, axis=0) / values[0]
    np.testing.assert_allclose(found.residuals, expected, atol=1e-13)
    assert found.converged == (expected <= 1e-5).all()


def test_an_operator_that_is_not_symmetric_does_not_converge():
    found = principal_eigenpairs(lambda Y: jnp.concatenate([-Y[100:], Y[:100]]), 200, dim=1)
    assert not found.converged
    assert found.residuals > 0.01


@pytest.mark.parametrize("method", METHODS)
def test_absent_positions_are_as_if_removed(method):
    X, present = decaying(N, K), RNG.random(N) < 0.7
    X[~present] = np.nan
    whole = scaling(X, dim=3, method=method, present=present)
    part = classical_mds_from_gram(centred_gram(X[present]), dim=3)
    np.testing.assert_allclose(whole.coordinates[present], part.coordinates, atol=1e-9)
    assert (whole.coordinates[~present] == 0).all()
    np.testing.assert_allclose(whole.trace, part.eigenvalues.sum())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("shape", [(N, K), (K, N)])
def test_columns_beyond_the_rank_are_zeros(method, rank, shape):
    X = np.zeros(shape)
    X[:, :rank] = decaying(len(X), rank)
    found = scaling(X, dim=3, method=method)
    np.testing.assert_allclose(found.coordinates @ found.coordinates.T, centred_gram(X), atol=1e-12)
    assert (found.coordinates[:, rank:] == 0).all()
    assert found.converged


@pytest.mark.parametrize(("method", "n"), [("dense", 1), *((method, 5) for method in METHODS)])
def test_fewer_points_than_columns(method, n):
    X = RNG.standard_normal((n, 3))
    found = scaling(X, dim=7, method=method)
    assert found.coordinates.shape == (n, 7)
    np.testing.assert_allclose(found.coordinates @ found.coordinates.T, centred_gram(X), atol=1e-12)
    assert found.converged


@pytest.mark.parametrize("method", METHODS)
def test_nan_stays_nan(method):
    X = decaying(N, K)
    X[3, 1] = np.nan
    found = scaling(X, dim=3, method=method)
    assert np.isnan(found.coordinates).all()
    assert np.isnan(found.eigenvalues).all()
    assert not found.converged


# Eigenvalues of a symmetric matrix of 130 rows, more than its Krylov basis, or of 60.
SPECTRA = {
    "one eigenvalue": np.ones(130),
    "25 copies of the largest": np.r_[np.full(25, 3.0), np.linspace(2, 0, 105)],
    "25 copies below": np.r_[4.0, np.full(25, 3.0), np.linspace(2, 0, 104)],
    "rank 3": np.r_[3.0, 2, 1, np.zeros(127)],
    "nearly flat": 1 + 1e-3 * np.linspace(1, 0, 130),
    "many digits": np.geomspace(1, 1e-14, 130),
    "indefinite": np.r_[3.0, 2, 1, -np.linspace(0.1, 9, 127)],
    "negative": -np.linspace(1, 2, 130),
    "zero": np.zeros(130),
    "few rows": np.r_[3.0, 2, 1, -np.linspace(0.1, 9, 57)],
}


@partial(jax.jit, static_argnames=("dim", "tolerance"))
def eigenpairs(B, *, dim, tolerance=1e-8):
    multiply = partial(jnp.matmul, B, precision="highest")
    return principal_eigenpairs(multiply, len(B), dim=dim, tolerance=tolerance, dtype=B.dtype)


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize(("dtype", "accuracy"), [(np.float64, 1e-13), (np.float32, 1e-5)])
def test_eigenpairs_of_every_spectrum(spectrum, dtype, accuracy):
    values, dim = SPECTRA[spectrum], 20
    B = with_eigenvalues(values).astype(dtype)
    found = eigenpairs(B, dim=dim, tolerance=max(1e-8, 100 * float(np.finfo(dtype).eps)))
    assert found.converged
    V, scale = np.asarray(found.vectors), max(abs(values[0]), 1e-30)
    np.testing.assert_allclose(found.eigenvalues, values[:dim], atol=accuracy * max(abs(values)))
    np.testing.assert_allclose(V.T @ V, np.eye(dim), atol=10 * np.finfo(dtype).eps)
    residuals = np.linalg.norm(B @ V - V * np.asarray(found.eigenvalues), axis=0) / scale
    np.testing.assert_allclose(found.residuals, residuals, atol=100 * np.finfo(dtype).eps)


def test_copies_that_no_start_sees_are_found_at_last():
    """Ten of one eigenvalue for a block of eight: all residuals are small before they are found."""
    values = np.r_[np.full(10, 3.0), np.linspace(2.5, 0, 190)]
    found = eigenpairs(with_eigenvalues(values), dim=9, tolerance=1e-6)
    assert found.converged
    np.testing.assert_allclose(found.eigenvalues, 3.0, rtol=1e-12)


def test_dependent_columns_are_replaced_not_normalised():
    V = np.linalg.qr(RNG.standard_normal((30, 6)))[0]
    Y = np.concatenate([V[:, :2], V[:, :2] @ RNG.standard_normal((2, 2)), np.zeros((30, 1))], 1)
    dependent = jnp.asarray(Y), jnp.asarray(V)
    found = orthonormal(*dependent, jnp.asarray(RNG.standard_normal((30, 5))))
    whole = np.concatenate([V, found], 1)
    np.testing.assert_allclose(whole.T @ whole, np.eye(11), atol=1e-14)


def test_in_float32_on_a_spectrum_of_sampling_noise():
    """Words that drift with position, a few hundred a position: beyond the signal it is flat."""
    t = np.linspace(0, 1, 700)[:, None]
    drift = np.cos(np.pi * t * np.arange(1, 4)) @ RNG.standard_normal((3, 900))
    mu = np.exp(drift) / np.arange(1, 901)
    counts = RNG.poisson(500 * mu / mu.sum(1, keepdims=True)).astype(float)
    mu = counts / counts.sum(1, keepdims=True)
    found = classical_mds_from_points(
        hellinger_points(mu.astype(np.float32)), dim=20, method="krylov"
    )
    exact = np.linalg.eigvalsh(centred_gram(np.sqrt(mu)))[::-1]
    assert exact[20] > 0.98 * exact[19]
    assert found.converged
    values = np.asarray(found.eigenvalues, float)
    np.testing.assert_allclose(values / exact[0], exact[:20] / exact[0], atol=1e-5)


def test_memory_grows_with_the_points_not_with_the_pairs():
    X = jax.ShapeDtypeStruct((32_768, 2_000), np.float32)

    def f(X):
        return jnp.sum(classical_mds_from_points(X, dim=16, method="krylov").coordinates ** 3)

    used = jax.jit(jax.grad(f)).lower(X).compile().memory_analysis().temp_size_in_bytes
    assert used < 4 * (4 * 32_768 * 2_000)


# Points whose derivative is hard, and how many columns are looked at.
POINTS = {
    "wide": (RNG.standard_normal((6, 9)), 2),
    "high": (RNG.standard_normal((9, 5)), 2),
    "hexagon in 4": (
        np.concatenate([polygon(6), 0.5 * polygon(6)[[0, 2, 4, 1, 3, 5]]], 1), 2,
    ),
    "all kept": (RNG.standard_normal((7, 3)), 5),
    "simplex, all kept": (np.eye(6), 5),
}  # fmt: skip


def invariant(P):
    """A function of coordinates that rotations leave alone."""
    return jnp.sum((P @ P.T) ** 3) + jnp.sum(euclidean_distances(P).values ** 3)


@pytest.mark.parametrize(
    ("points", "method"),
    [(points, "dense") for points in POINTS] + [("hexagon in 4", "krylov")],
)
def test_derivative_equals_that_of_the_matrix_and_finite_differences(points, method):
    X, dim = POINTS[points]
    E, h = np.random.default_rng(3).standard_normal(X.shape), 1e-6

    @jax.jit
    def by_matrix(X):
        centred = X - X.mean(0, keepdims=True)
        return invariant(classical_mds_from_gram(centred @ centred.T, dim=dim).coordinates)

    @jax.jit
    def f(X):
        return invariant(scaling(X, dim=dim, method=method).coordinates)

    @jax.jit
    def derivatives(X, E):
        return *jax.value_and_grad(f)(X), jax.jvp(f, (X,), (E,))[1]

    value, gradient, forward = derivatives(X, E)
    expected, expected_gradient = jax.jit(jax.value_and_grad(by_matrix))(X)
    np.testing.assert_allclose(value, expected)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-8, atol=1e-8)
    slope = (by_matrix(X + h * E) - by_matrix(X - h * E)) / (2 * h)
    np.testing.assert_allclose(jnp.vdot(gradient, E), slope, rtol=2e-6)
    np.testing.assert_allclose(forward, jnp.vdot(gradient, E), rtol=1e-10)


def test_derivative_without_any_known_eigenvectors_beyond_the_cut():
    """Conjugate gradients alone, in a dense tail right below the cut."""
    X = RNG.standard_normal((40, 30))
    X = X - X.mean(0)
    values, V = np.linalg.eigh(X @ X.T)
    values, V = jnp.asarray(values[::-1][:3]), jnp.asarray(V[:, ::-1][:, :3])

    def f(X):
        P = gauged_coordinates(lambda X, Y: X @ (X.T @ Y), 3, X, V, values)[0]
        return jnp.sum((P @ P.T) ** 3)

    def by_matrix(X):
        return jnp.sum((lambda P: (P @ P.T) ** 3)(classical_mds_from_gram(X @ X.T, dim=3)[0]))

    expected = jax.jit(jax.grad(by_matrix))(X)
    np.testing.assert_allclose(jax.jit(jax.grad(f))(X), expected, rtol=1e-8, atol=1e-6)


@partial(jax.jit, static_argnames=("dim", "method"))
def slope_of_cubes(X, *, dim, method):
    return jax.grad(lambda X: jnp.sum(scaling(X, dim=dim, method=method).coordinates ** 3))(X)


@pytest.mark.parametrize(("dim", "method"), [(1, "dense"), (3, "dense"), (1, "krylov")])
@pytest.mark.parametrize("X", [np.eye(12), np.zeros((12, 12)), np.ones((12, 12))])
def test_gradients_are_finite_where_the_cut_splits_equal_eigenvalues(X, dim, method):
    assert np.isfinite(slope_of_cubes(X, dim=dim, method=method)).all()


def test_finite_also_where_more_are_equal_than_are_known():
    V = jnp.eye(40)[:, :2]
    f = lambda B: jnp.sum(  # noqa: E731
        gauged_coordinates(lambda B, Y: B @ Y, 2, B, V, jnp.ones(2))[0] ** 3
    )
    assert np.isfinite(jax.jit(jax.grad(f))(np.eye(40))).all()


@pytest.mark.parametrize("method", ["dense", "krylov"])
def test_second_derivatives_where_eigenvalues_repeat(method):
    X, dim = POINTS["hexagon in 4"]
    E, h = np.random.default_rng(3).standard_normal(X.shape), 1e-5

    @jax.jit
    def gradient(X):
        return jax.grad(lambda X: invariant(scaling(X, dim=dim, method=method).coordinates))(X)

    change = (gradient(X + h * E) - gradient(X - h * E)) / (2 * h)
    np.testing.assert_allclose(jax.jvp(gradient, (X,), (E,))[1], change, rtol=1e-5, atol=1e-5)


def test_wrong_structure_is_refused():
    X = np.eye(4)
    with pytest.raises(ValueError, match="dim must be at least 1, not 0"):
        classical_mds_from_points(X, dim=0)
    with pytest.raises(ValueError, match="unknown method 'lanczos'"):
        inspect.unwrap(classical_mds_from_points)(X, dim=1, method="lanczos")


def test_products_block_by_block_are_those_of_the_whole(monkeypatch):
    X, Y = map(jnp.asarray, (decaying(N, K), RNG.standard_normal((N, 3))))

    def loss(X, Y):
        return jnp.sum(from_points.gram_product(X, Y) ** 2)

    whole = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(X, Y)
    monkeypatch.setattr(from_points, "_ROWS", 8)  # seven blocks, and four rows
    in_blocks = jax.jit(jax.value_and_grad(lambda *xs: loss(*xs), argnums=(0, 1)))(X, Y)
    np.testing.assert_allclose(from_points.gram_product(X, Y), X @ (X.T @ Y), atol=1e-12)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-10), in_blocks, whole)
