"""Toeplitz matrices by their diagonals, against dense ones; the symbol; Szegő at finite size."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.test_util import check_grads

from jaxpe.geometry.distances.toeplitz import toeplitz_projection
from jaxpe.spectral import diagonal_means, symbol, szego, toeplitz_matrix
from jaxpe.spectral.toeplitz import symmetric_part

RNG = np.random.default_rng(0)
N = 7
A = RNG.standard_normal((N, N))
T = RNG.standard_normal(2 * N - 1)
COMPLEX = T + 1j * RNG.standard_normal(2 * N - 1)
HERMITIAN = COMPLEX + COMPLEX[::-1].conj()
CAUSAL = np.tri(N, dtype=bool)


def dense(t):
    n = (len(t) + 1) // 2
    return scipy.linalg.toeplitz(t[:n][::-1], t[n - 1 :])


def test_diagonal_means_are_the_diagonals_of_the_projection():
    means = diagonal_means(A)
    np.testing.assert_allclose(means, [A.diagonal(k).mean() for k in range(1 - N, N)], atol=1e-15)
    np.testing.assert_array_equal(toeplitz_matrix(means), toeplitz_projection(A))
    for dtype in (np.float32, np.float64):
        t = T.astype(dtype)
        np.testing.assert_array_equal(diagonal_means(toeplitz_matrix(t)), t)


def test_entries_that_do_not_count_are_not_looked_at():
    hidden = np.where(CAUSAL, A, -np.inf)
    hidden[0, -1] = np.nan
    means = diagonal_means(hidden, mask=CAUSAL)
    np.testing.assert_allclose(means[:N], [A.diagonal(k).mean() for k in range(1 - N, 1)])
    np.testing.assert_array_equal(means[N:], 0)  # diagonals with no entry
    some = RNG.random((N, N)) < 0.5
    counted = [A.diagonal(k)[some.diagonal(k)] for k in range(1 - N, N)]
    expected = [x.mean() if len(x) else 0 for x in counted]
    np.testing.assert_allclose(diagonal_means(A, mask=some), expected, atol=1e-15)
    gradient = jax.grad(lambda A: jnp.sum(diagonal_means(A, mask=CAUSAL) ** 2))(hidden)
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[~CAUSAL], 0)


def test_matrix_of_diagonals_cut_and_filled():
    for t in (T, COMPLEX):
        np.testing.assert_array_equal(toeplitz_matrix(t), dense(t))
        np.testing.assert_array_equal(toeplitz_matrix(t, n=3), dense(t)[:3, :3])
        wide = toeplitz_matrix(t, n=N + 2)
        np.testing.assert_array_equal(wide[:N, :N], dense(t))
        np.testing.assert_array_equal([wide[0, -1], wide[-1, 0], wide[1, -1]], 0)


def test_the_symbol_is_its_definition():
    omega = RNG.uniform(-4, 4, 9)
    waves = np.exp(1j * np.arange(1 - N, N)[:, None] * omega)
    both = np.stack([T, T[::-1]])
    for t in (T, COMPLEX, both):
        np.testing.assert_allclose(symbol(t, omega), t @ waves, atol=1e-12)
    for t in (T + T[::-1], HERMITIAN):
        np.testing.assert_array_equal(symbol(t, omega).imag, 0)


def test_the_spectrum_approaches_the_symbol():
    """The distance is of the order 1/n for a band and for a decaying symbol."""
    k = np.arange(-60, 61)
    band = np.pad([0.5, 1.0, 2.0, 1.0, 0.5], 58)
    asymmetric = np.pad([0.3, 1.0, 2.0, -1.0, 0.5], 58)
    cases = np.stack([band, 0.7 ** np.abs(k), asymmetric])
    for kind in ("eigenvalues", "singular"):
        near, far = (szego(cases, n=n, kind=kind).distance for n in (64, 128))
        assert ((far / near > 0.4) & (far / near < 0.6)).all()
        assert far.max() < 0.02


def test_szego_reports_both_sides():
    result = szego(T, n=5)
    section = np.asarray(symmetric_part(toeplitz_matrix(T, n=5)))
    np.testing.assert_allclose(result.values, np.linalg.eigvalsh(section)[::-1])
    f = np.asarray(symbol(T, np.arange(5) * np.pi / 2.5))
    np.testing.assert_allclose(result.samples, np.sort(f.real)[::-1])
    width = np.ptp([*result.values, *result.samples])
    apart = np.abs(result.values - result.samples).mean()
    np.testing.assert_allclose(result.distance, apart / width)
    singular = szego(COMPLEX, n=5, kind="singular")
    expected = np.linalg.svd(np.asarray(toeplitz_matrix(COMPLEX, n=5)), compute_uv=False)
    np.testing.assert_allclose(singular.values, expected)
    hermitian = szego(HERMITIAN, n=5)
    expected = np.linalg.eigvalsh(np.asarray(toeplitz_matrix(HERMITIAN, n=5)))
    np.testing.assert_allclose(hermitian.values, expected[::-1], atol=1e-12)
    check_grads(jax.jit(lambda t: szego(t, n=5).distance), (T,), order=1)


def test_a_constant_symbol_is_at_no_distance():
    for kind in ("eigenvalues", "singular"):
        for t in ([0.0, 0.0, 2.0, 0.0, 0.0], np.zeros(5)):
            assert szego(np.asarray(t), n=2, kind=kind).distance == 0
    # Samples all 3, eigenvalues all 1: 2 apart, in the range of both together.
    assert szego(np.array([1.0, 0.0, 1.0, 0.0, 1.0]), n=2).distance == 1


def test_what_is_refused():
    cases = [
        (diagonal_means, (np.ones((2, 3)),), {}, "square"),
        (diagonal_means, (A,), {"mask": np.ones((N, N))}, "mask"),
        (toeplitz_matrix, (np.ones(4),), {}, "odd"),
        (toeplitz_matrix, (T,), {"n": 0}, "n is 0"),
        (symbol, (T, np.ones((2, 2))), {}, "frequencies"),
        (szego, (T,), {"n": 4, "kind": "schur"}, "schur"),
    ]
    for function, arguments, options, message in cases:
        with pytest.raises(ValueError, match=message):
            inspect.unwrap(function)(*arguments, **options)
