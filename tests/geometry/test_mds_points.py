"""Classical scaling without the matrix: every method against the eigendecomposition of it."""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.geometry import PointCloud, classical_mds_from_gram, euclidean_distances
from jaxpe.geometry.mds.from_points import classical_mds_from_points
from jaxpe.geometry.mds.krylov import principal_eigenpairs
from tests.geometry.test_mds import HEXAGON_IN_4, by_eigh, centred_gram

METHODS = ("dense", "krylov")
RNG = np.random.default_rng(0)
MANY, FEW = 100, 20  # more rows than a Krylov basis, and fewer


def decaying(n, k):
    """Points with principal axes of lengths 2^−j: all methods see the leading ones alike."""
    return RNG.standard_normal((n, k)) * 0.5 ** np.arange(k)


@partial(jax.jit, static_argnames=("dim", "method"))
@partial(jax.vmap, in_axes=(0, 0, None, None))
def scaling(X, present, dim, method):
    cloud = PointCloud(X, present)
    return classical_mds_from_points(cloud, dim=dim, method=method, tolerance=1e-10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(MANY, FEW), (FEW, MANY)])
def test_every_method_equals_the_matrix(method, shape):
    """Of all positions, of some, of points of rank 2 and 0, and with a NaN."""
    X = np.stack([decaying(*shape)] * 5)
    present = np.ones(X.shape[:2], bool)
    present[1] = RNG.random(shape[0]) < 0.7
    X[1][~present[1]] = np.nan
    X[2, :, 2:], X[3], X[4, 3, 1] = 0, 0, np.nan
    found = scaling(X, present, 3, method)
    for k, rank in enumerate((3, 3, 2, 0)):
        here = present[k]
        expected, values = by_eigh(centred_gram(X[k][here]), 3)
        P = np.asarray(found.coordinates[k])
        np.testing.assert_allclose(P[here][:, :rank], expected[:, :rank], atol=1e-9)
        assert (P[~here] == 0).all()
        assert (P[:, rank:] == 0).all()
        np.testing.assert_allclose(found.eigenvalues[k], values[:3], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.trace[k], values.sum(), atol=1e-12)
    assert found.converged.tolist() == [True] * 4 + [False]
    assert (found.residuals[:4] < 1e-10).all()
    assert found.method == method
    assert np.isnan(found.coordinates[4]).all()
    assert np.isnan(found.eigenvalues[4]).all()


@pytest.mark.parametrize(
    ("shape", "method"),
    [((100_000, 64), "dense"), ((300, 30_000), "dense"), ((8192, 30_000), "krylov")],
)
def test_the_choice_is_by_sizes(shape, method):
    find = partial(classical_mds_from_points, dim=64)
    assert jax.eval_shape(find, jax.ShapeDtypeStruct(shape, np.float32)).method == method


@pytest.mark.parametrize("method", METHODS)
def test_residuals_are_true_ones(method):
    X = RNG.standard_normal((MANY, 90))
    found = jax.jit(lambda X: classical_mds_from_points(X, dim=3, method=method))(X)
    B, values = centred_gram(X), np.asarray(found.eigenvalues)
    V = np.asarray(found.coordinates) / np.sqrt(values)
    expected = np.linalg.norm(B @ V - V * values, axis=0) / values[0]
    np.testing.assert_allclose(found.residuals, expected, atol=1e-13)
    assert found.converged == (expected <= 1e-5).all()


def test_an_operator_that_is_not_symmetric_does_not_converge():
    found = principal_eigenpairs(lambda Y: jnp.concatenate([-Y[50:], Y[:50]]), 100, dim=1)
    assert not found.converged
    assert found.residuals > 0.01


@pytest.mark.parametrize(("method", "n"), [("dense", 1), ("dense", 5), ("krylov", 5)])
def test_fewer_points_than_columns(method, n):
    X = RNG.standard_normal((n, 3))
    found = classical_mds_from_points(X, dim=7, method=method)
    assert found.coordinates.shape == (n, 7)
    np.testing.assert_allclose(found.coordinates @ found.coordinates.T, centred_gram(X), atol=1e-12)
    assert found.converged


def test_many_rows_are_multiplied_in_blocks():
    """Whose eigenvalues have derivatives 2 X v vᵀ."""
    X = decaying(2500, 8)
    find = jax.jit(
        jax.value_and_grad(
            lambda X: (lambda mds: (jnp.sum(mds.eigenvalues), mds))(
                classical_mds_from_points(X, dim=2)
            ),
            has_aux=True,
        )
    )
    (total, mds), gradient = find(X)
    centred = X - X.mean(0)
    _, s, Vt = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(total, (s[:2] ** 2).sum())
    np.testing.assert_allclose(np.abs(mds.coordinates), np.abs(centred @ Vt[:2].T), atol=1e-9)
    assert mds.residuals.max() < 1e-12
    np.testing.assert_allclose(gradient, 2 * centred @ Vt[:2].T @ Vt[:2], atol=1e-9)


# Eigenvalues of a symmetric matrix of 130 rows, more than its Krylov basis.
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
}
Q = np.linalg.qr(np.random.default_rng(0).standard_normal((130, 130)))[0]


@partial(jax.jit, static_argnames=("dim", "tolerance"))
def eigenpairs(B, *, dim, tolerance=1e-8):
    multiply = partial(jnp.matmul, B, precision="highest")
    return principal_eigenpairs(multiply, len(B), dim=dim, tolerance=tolerance, dtype=B.dtype)


@pytest.mark.parametrize(("dtype", "accuracy"), [(np.float64, 1e-13), (np.float32, 1e-5)])
def test_eigenpairs_of_every_spectrum(dtype, accuracy):
    for name, values in SPECTRA.items():
        B = ((Q * values) @ Q.T).astype(dtype)
        found = eigenpairs(B, dim=20, tolerance=max(1e-8, 100 * float(np.finfo(dtype).eps)))
        assert found.converged, name
        V, scale = np.asarray(found.vectors), max(abs(values[0]), 1e-30)
        close = partial(np.testing.assert_allclose, err_msg=name)
        close(found.eigenvalues, values[:20], atol=accuracy * max(abs(values)))
        close(V.T @ V, np.eye(20), atol=10 * np.finfo(dtype).eps)
        residuals = np.linalg.norm(B @ V - V * np.asarray(found.eigenvalues), axis=0) / scale
        close(found.residuals, residuals, atol=100 * np.finfo(dtype).eps)


def test_copies_that_no_start_sees_are_found_at_last():
    """Ten of one eigenvalue for a block of eight: all residuals are small before they are found."""
    B = (Q * np.r_[np.full(10, 3.0), np.linspace(2.5, 0, 120)]) @ Q.T
    found = eigenpairs(B, dim=9, tolerance=1e-6)
    assert found.converged
    np.testing.assert_allclose(found.eigenvalues, 3.0, rtol=1e-12)


def test_memory_grows_with_the_points_not_with_the_pairs():
    X = jax.ShapeDtypeStruct((32_768, 2_000), np.float32)

    def f(X):
        return jnp.sum(classical_mds_from_points(X, dim=16, method="krylov").coordinates ** 3)

    used = jax.jit(jax.grad(f)).lower(X).compile().memory_analysis().temp_size_in_bytes
    assert used < 4 * (4 * 32_768 * 2_000)


# Points whose derivative is hard, and how many columns are looked at.
POINTS = {
    "hexagon in 4": (HEXAGON_IN_4, 2),
    "all kept": (RNG.standard_normal((7, 3)), 5),
    "simplex, all kept": (np.eye(6), 5),
    "a dense tail below the cut": (RNG.standard_normal((MANY, 30)), 3),
}


def invariant(P):
    """A function of coordinates that rotations leave alone."""
    return jnp.sum((P @ P.T) ** 3) + jnp.sum(euclidean_distances(P).values ** 3)


@pytest.mark.parametrize(
    ("points", "method"),
    [(points, "dense") for points in POINTS if "tail" not in points]
    + [("hexagon in 4", "krylov"), ("a dense tail below the cut", "krylov")],
)
def test_derivatives_equal_those_of_the_matrix(points, method):
    X, dim = POINTS[points]
    E, h = np.random.default_rng(3).standard_normal(X.shape), 1e-5

    def by_matrix(X):
        centred = X - X.mean(0, keepdims=True)
        return invariant(classical_mds_from_gram(centred @ centred.T, dim=dim).coordinates)

    def f(X):
        options = {"dim": dim, "method": method, "tolerance": 1e-10}
        return invariant(classical_mds_from_points(X, **options).coordinates)

    @jax.jit
    def derivatives(X):
        expected, change = jax.jvp(jax.grad(by_matrix), (X,), (E,))
        gradient, second = jax.jvp(jax.grad(f), (X,), (E,))
        return expected, gradient, jax.jvp(f, (X,), (E,))[1], change, second

    expected, gradient, forward, change, second = derivatives(X)
    size = np.abs(expected).max()
    np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-8 * size)
    np.testing.assert_allclose(forward, np.vdot(gradient, E), rtol=1e-9)
    np.testing.assert_allclose(second, change, rtol=1e-5, atol=1e-6 * np.abs(change).max())
    if "tail" not in points:
        value = jax.jit(by_matrix)
        slope = (value(X + h * E) - value(X - h * E)) / (2 * h)
        np.testing.assert_allclose(forward, slope, rtol=1e-6)


@pytest.mark.parametrize(("dim", "method"), [(1, "dense"), (3, "dense"), (2, "krylov")])
def test_gradients_are_finite_where_the_cut_splits_equal_eigenvalues(dim, method):
    n = MANY if method == "krylov" else 12
    slopes = jax.jit(jax.grad(
        lambda X: jnp.sum(classical_mds_from_points(X, dim=dim, method=method).coordinates ** 3)
    ))  # fmt: skip
    for X in (np.eye(n), np.zeros((n, n)), np.ones((n, n))):
        assert np.isfinite(slopes(X)).all()


def test_wrong_structure_is_refused():
    with pytest.raises(ValueError, match="dim"):
        classical_mds_from_points(np.eye(4), dim=0)
    with pytest.raises(ValueError, match="lanczos"):
        inspect.unwrap(classical_mds_from_points)(np.eye(4), dim=1, method="lanczos")
