"""Toeplitz matrices by their diagonals, against dense ones; the symbol; Szegő at finite size."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.test_util import check_grads

import jaxpe
from jaxpe import spectral
from jaxpe.spectral import (
    diagonal_means,
    symbol,
    symmetric_part,
    szego,
    toeplitz_matrix,
)

RNG = np.random.default_rng(0)
N = 7
A = RNG.standard_normal((N, N))
T = RNG.standard_normal(2 * N - 1)
COMPLEX = T + 1j * RNG.standard_normal(2 * N - 1)
HERMITIAN = COMPLEX + COMPLEX[::-1].conj()
CAUSAL = np.tri(N, dtype=bool)
MEANS, MATRIX = jax.jit(diagonal_means), jax.jit(toeplitz_matrix, static_argnames="n")
SYMBOL = jax.jit(symbol)
SZEGO = jax.jit(szego, static_argnames=("n", "kind"))
DTYPES = (np.float32, np.float64)


def dense(t):
    n = (len(t) + 1) // 2
    return scipy.linalg.toeplitz(t[:n][::-1], t[n - 1 :])


def test_projections_are_those_of_the_geometry():
    for name in ("toeplitz", "circulant"):
        for kind in ("projection", "residual"):
            assert getattr(spectral, f"{name}_{kind}") is getattr(jaxpe.geometry, f"{name}_{kind}")


def test_diagonal_means_are_the_diagonals_of_the_projection():
    means = MEANS(A)
    np.testing.assert_allclose(means, [A.diagonal(k).mean() for k in range(1 - N, N)], atol=1e-15)
    np.testing.assert_array_equal(MATRIX(means), spectral.toeplitz_projection(A))
    for dtype in DTYPES:
        t = T.astype(dtype)
        again = MEANS(MATRIX(t))
        np.testing.assert_array_equal(again, t)
        assert again.dtype == dtype
    np.testing.assert_allclose(MEANS(np.eye(2, dtype=int)), [0, 1, 0])


def test_entries_that_do_not_count_are_not_looked_at():
    hidden = np.where(CAUSAL, A, -np.inf)
    hidden[0, -1] = np.nan
    means = MEANS(hidden, mask=CAUSAL)
    np.testing.assert_allclose(means[:N], [A.diagonal(k).mean() for k in range(1 - N, 1)])
    np.testing.assert_array_equal(means[N:], 0)  # diagonals with no entry
    some = RNG.random((N, N)) < 0.5
    for k in range(1 - N, N):
        counted = A.diagonal(k)[some.diagonal(k)]
        expected = counted.mean() if len(counted) else 0
        np.testing.assert_allclose(MEANS(A, mask=some)[k + N - 1], expected, atol=1e-15)
    gradient = jax.grad(lambda A: jnp.sum(MEANS(A, mask=CAUSAL) ** 2))(hidden)
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[~CAUSAL], 0)


def test_batches_vmap_and_derivatives_of_diagonal_means():
    many = np.stack([A, A.T, A @ A])
    each = np.stack([MEANS(one, mask=CAUSAL) for one in many])
    np.testing.assert_allclose(MEANS(many, mask=CAUSAL), each, atol=1e-15)
    mapped = jax.jit(jax.vmap(lambda A: MEANS(A, mask=CAUSAL)))(many)
    np.testing.assert_allclose(mapped, each, atol=1e-15)
    check_grads(jax.jit(lambda A: jnp.sin(MEANS(A))), (A,), order=1)


@pytest.mark.parametrize("t", [T, COMPLEX])
def test_matrix_of_diagonals_cut_and_filled(t):
    np.testing.assert_array_equal(MATRIX(t), dense(t))
    np.testing.assert_array_equal(MATRIX(t, n=3), dense(t)[:3, :3])
    wide = MATRIX(t, n=N + 2)
    np.testing.assert_array_equal(wide[:N, :N], dense(t))
    np.testing.assert_array_equal([wide[0, -1], wide[-1, 0], wide[1, -1]], 0)
    both = MATRIX(np.stack([t, t[::-1]]), n=4)
    np.testing.assert_array_equal(both[1], np.asarray(both[0]).T)


def test_the_symbol_is_its_definition():
    omega = RNG.uniform(-4, 4, 9)
    k = np.arange(1 - N, N)
    waves = np.exp(1j * k[:, None] * omega)
    for t in (T, COMPLEX):
        np.testing.assert_allclose(SYMBOL(t, omega), t @ waves, atol=1e-12)
    for t in (T + T[::-1], HERMITIAN):
        np.testing.assert_array_equal(SYMBOL(t, omega).imag, 0)
    assert SYMBOL(T.astype(np.float32), omega).dtype == np.complex64
    both = jax.jit(jax.vmap(symbol, in_axes=(0, None)))(np.stack([T, T[::-1]]), omega)
    np.testing.assert_allclose(both, SYMBOL(np.stack([T, T[::-1]]), omega), atol=1e-12)
    np.testing.assert_allclose(both[1], np.conj(both[0]), atol=1e-12)
    np.testing.assert_allclose(SYMBOL(np.array([3.0]), omega), np.full(9, 3 + 0j))
    check_grads(jax.jit(lambda t, w: jnp.abs(SYMBOL(t, w)) ** 2), (T, omega), order=1)


def test_the_symbol_of_a_circulant_is_its_spectrum():
    """Where the diagonals wrap around, the samples at Fourier frequencies are the eigenvalues."""
    c = RNG.standard_normal(N)
    t = np.concatenate([np.zeros(N - 1), c])  # T_ij = c_{j−i}, above the diagonal only
    f = SYMBOL(t, 2 * np.pi * np.arange(N) / N)
    circulant = scipy.linalg.circulant(c).T
    F = np.exp(2j * np.pi * np.outer(np.arange(N), np.arange(N)) / N)
    np.testing.assert_allclose(circulant @ F, F * np.asarray(f)[None, :], atol=1e-12)


@pytest.mark.parametrize("kind", ["eigenvalues", "singular"])
def test_the_spectrum_approaches_the_symbol(kind):
    """The distance is of the order 1/n for a band and for a decaying symbol."""
    k = np.arange(-60, 61)
    band = np.pad([0.5, 1.0, 2.0, 1.0, 0.5], 58)
    asymmetric = np.pad([0.3, 1.0, 2.0, -1.0, 0.5], 58)
    cases = np.stack([band, 0.7 ** np.abs(k), asymmetric])
    distances = [SZEGO(cases, n=n, kind=kind).distance for n in (16, 32, 64, 128)]
    ratios = np.divide(distances[1:], distances[:-1])
    assert (ratios < 0.6).all()
    assert (ratios > 0.4).all()
    assert distances[-1].max() < 0.02


def test_szego_reports_both_sides():
    result = jax.jit(lambda t: SZEGO(t, n=8))(T)
    section = np.asarray(symmetric_part(MATRIX(T, n=8)))
    np.testing.assert_allclose(result.values, np.linalg.eigvalsh(section)[::-1])
    f = np.asarray(SYMBOL(T, np.arange(8) * np.pi / 4))
    np.testing.assert_allclose(result.samples, np.sort(f.real)[::-1])
    assert 0 < result.distance < 1
    singular = SZEGO(COMPLEX, n=5, kind="singular")
    expected = np.linalg.svd(np.asarray(MATRIX(COMPLEX, n=5)), compute_uv=False)
    np.testing.assert_allclose(singular.values, expected)
    hermitian = SZEGO(HERMITIAN, n=5)
    expected = np.linalg.eigvalsh(np.asarray(MATRIX(HERMITIAN, n=5)))
    np.testing.assert_allclose(hermitian.values, expected[::-1], atol=1e-12)


def test_a_constant_symbol_is_at_no_distance():
    for t in (np.array([0.0, 2.0, 0.0]), np.zeros(5)):
        for kind in ("eigenvalues", "singular"):
            assert SZEGO(t, n=4, kind=kind).distance == 0
    # Samples all 3, eigenvalues all 1: 2 apart, in the range of both together.
    assert SZEGO(np.array([1.0, 0.0, 1.0, 0.0, 1.0]), n=2).distance == 1


def test_szego_of_many_and_its_derivative():
    both = np.stack([T, T[::-1] + 1])
    result = jax.jit(jax.vmap(lambda t: SZEGO(t, n=5, kind="singular")))(both)
    one = SZEGO(both[1], n=5, kind="singular")
    np.testing.assert_allclose(result.distance[1], one.distance)
    np.testing.assert_allclose(SZEGO(both, n=5, kind="singular").values, result.values)
    check_grads(jax.jit(lambda t: SZEGO(t, n=5).distance), (T,), order=1)
    narrow = SZEGO(T.astype(np.float32), n=5)
    assert narrow.distance.dtype == np.float32
    np.testing.assert_allclose(narrow.distance, SZEGO(T, n=5).distance, rtol=1e-5)


def test_symmetric_parts():
    np.testing.assert_allclose(symmetric_part(A), (A + A.T) / 2)
    Z = A + 1j * A.T
    part = np.asarray(symmetric_part(np.stack([Z, A + 0j])))
    np.testing.assert_allclose(part[0], part[0].conj().T)
    x = RNG.standard_normal(N)
    np.testing.assert_allclose(x @ symmetric_part(A) @ x, x @ A @ x)


def test_what_is_refused():
    def plain(function):
        return inspect.unwrap(function)

    cases = [
        (diagonal_means, (np.ones((2, 3)),), {}, r"shape \(2, 3\): pass a square one"),
        (diagonal_means, (A,), {"mask": np.ones((N, N))}, "mask is float64, not boolean"),
        (diagonal_means, (A,), {"mask": np.ones((2, 2), bool)}, r"mask has shape \(2, 2\)"),
        (symmetric_part, (np.ones(3),), {}, r"shape \(3,\): pass a square one"),
        (toeplitz_matrix, (np.ones(4),), {}, r"shape \(4,\): pass an odd number of them"),
        (toeplitz_matrix, (T,), {"n": 0}, "n is 0: a matrix has at least one row"),
        (symbol, (T, np.ones((2, 2))), {}, r"frequencies have shape \(2, 2\): pass one axis"),
        (szego, (T,), {"n": 4, "kind": "schur"}, "kind 'schur': pass 'eigenvalues' or 'singular'"),
    ]
    for function, arguments, options, message in cases:
        with pytest.raises(ValueError, match=message):
            plain(function)(*arguments, **options)
