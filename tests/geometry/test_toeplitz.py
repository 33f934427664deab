"""Projections are projections, and know their matrices."""

import jax
import numpy as np
import pytest
import scipy.linalg

from jaxpe.geometry.distances.toeplitz import (
    circulant_projection,
    circulant_residual,
    toeplitz_projection,
    toeplitz_residual,
)

RNG = np.random.default_rng(0)
A = RNG.standard_normal((7, 7))
CASES = [(toeplitz_projection, toeplitz_residual), (circulant_projection, circulant_residual)]


def projection_by_basis(A, members):
    """Least squares onto the span of 0/1 matrices."""
    basis = np.stack([member.ravel() for member in members], 1).astype(float)
    return (basis @ np.linalg.lstsq(basis, A.ravel(), rcond=None)[0]).reshape(A.shape)


def test_they_are_the_least_squares_projections():
    n = len(A)
    offset = np.arange(n)[None] - np.arange(n)[:, None]
    diagonals = [offset == k for k in range(1 - n, n)]
    wrapped = [offset % n == k for k in range(n)]
    for function, members in ((toeplitz_projection, diagonals), (circulant_projection, wrapped)):
        np.testing.assert_allclose(jax.jit(function)(A), projection_by_basis(A, members))


@pytest.mark.parametrize(("project", "residual"), CASES)
def test_a_projection_is_idempotent_and_orthogonal(project, residual):
    inside = np.asarray(project(A))
    np.testing.assert_allclose(project(inside), inside, rtol=1e-14)
    np.testing.assert_allclose(np.sum(inside * (A - inside)), 0, atol=1e-12)
    share = residual(A)
    np.testing.assert_allclose(share, 1 - (inside**2).sum() / (A**2).sum())
    np.testing.assert_allclose(residual(-3 * A), share)
    assert residual(np.zeros((3, 3))) == 0


def test_their_own_matrices_are_recognised_exactly():
    toeplitz = scipy.linalg.toeplitz([0.1, 0.7, 0.3, 0.4], [0.1, 0.9, 0.2, 0.8])
    circulant = scipy.linalg.circulant([0.1, 0.7, 0.3, 0.9])
    for dtype in (np.float32, np.float64):
        assert toeplitz_residual(toeplitz.astype(dtype)) == 0
        assert circulant_residual(circulant.astype(dtype)) == 0
        assert toeplitz_residual(circulant.astype(dtype)) == 0
    assert toeplitz_projection(A.astype(np.float32)).dtype == np.float32
    assert circulant_residual(toeplitz) > toeplitz_residual(toeplitz)
    assert toeplitz_residual(A) < circulant_residual(A)


def test_fourier_vectors_diagonalise_the_circulant():
    F = np.fft.fft(np.eye(7)) / np.sqrt(7)
    spectrum = F.conj() @ np.asarray(circulant_projection(A)) @ F
    np.testing.assert_allclose(spectrum, np.diag(np.diag(F.conj() @ A @ F)), atol=1e-12)
