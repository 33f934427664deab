"""Toeplitz, circulant, cosines and sinusoids: what follows from stationarity and what does not."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe.encodings import sinusoidal_vectors
from jaxpe.geometry import euclidean_distances
from jaxpe.theory.cirrincione2026.remark_7_stationarity import (
    remark_7,
    stationary_squared_distances,
    unexplained_by_offset,
)

N, DIM = 32, 4


def squared(points):
    return np.asarray(euclidean_distances(points).values) ** 2


def test_of_a_stationary_corpus_b_is_not_circulant():
    """The smoother the corpus, the less circulant is B."""
    audits = [
        remark_7(stationary_squared_distances(N, scale=float(scale)), dim=DIM)
        for scale in (N / 16, N / 4, N, 1e6 * N)
    ]
    for audit in audits:
        assert audit.hypotheses["stationary"].holds
        assert audit.hypotheses["stationary"].lhs < 1e-24
    circulant = [float(audit.conclusions["B circulant"].lhs) for audit in audits]
    np.testing.assert_allclose(circulant, [0.026, 0.161, 0.380, 0.496], atol=5e-4)
    smooth = audits[2]
    assert not any(conclusion.holds for conclusion in smooth.conclusions.values())
    np.testing.assert_allclose(smooth.measured["cosine_share"], 1, atol=5e-3)
    fourier = smooth.measured["fourier_share"]
    np.testing.assert_allclose(fourier, [0.767, 1.0, 0.579, 1.0], atol=5e-3)
    # In the limit, Brownian motion, cosines are exact.
    np.testing.assert_allclose(audits[3].measured["cosine_share"], 1, atol=1e-6)


def test_of_a_stationary_corpus_sinusoids_have_the_variance_and_not_the_directions():
    measured = [
        remark_7(stationary_squared_distances(N, scale=N * share), dim=16).measured
        for share in (1 / 16, 1 / 4, 1.0, 4.0)
    ]
    stress = [float(m["scaled_stress_sinusoidal"]) for m in measured]
    np.testing.assert_allclose([min(stress), max(stress)], [0.026, 0.066], atol=5e-4)
    assert max(m["scaled_stress_mds"] for m in measured) < 0.0035
    variance = [float(m["variance_in_span"]) for m in measured]
    np.testing.assert_allclose([min(variance), max(variance)], [0.637, 0.921], atol=5e-4)
    np.testing.assert_allclose([m["overlap"] for m in measured], 0.436, atol=2e-3)
    np.testing.assert_allclose(measured[0]["overlap_random"], 0.226, atol=5e-4)


def test_where_its_conclusions_hold():
    """On a ring all but the frequencies; its own distances are spanned by the encoding."""
    angle = 2 * np.pi * np.arange(N) / N
    waves = [np.cos(angle), np.sin(angle), 0.5 * np.cos(2 * angle), 0.5 * np.sin(2 * angle)]
    audit = remark_7(squared(np.stack(waves, 1)), dim=DIM)
    for name in ("B circulant", "Fourier eigenvectors"):
        assert audit.conclusions[name].holds
        assert audit.conclusions[name].lhs < 1e-12
    assert not audit.conclusions["Vaswani's span"].holds
    audit = remark_7(squared(sinusoidal_vectors(jnp.arange(N), dim=DIM)), dim=DIM)
    assert audit.conclusions["Vaswani's span"].holds
    np.testing.assert_allclose(audit.measured["principal_cosines"], 1, atol=1e-6)
    np.testing.assert_allclose(audit.measured["variance_in_span"], 1)
    assert audit.measured["scaled_stress_sinusoidal"] < 1e-12


def test_random_points_by_their_definitions():
    """Overlaps of a random span, and the best projection on a Fourier pair."""
    points = np.random.default_rng(0).standard_normal((200, N, DIM))
    d2 = ((points[:, :, None] - points[:, None]) ** 2).sum(-1)
    measured = jax.jit(jax.vmap(lambda d2: remark_7(d2, dim=DIM).measured))(d2)
    np.testing.assert_allclose(measured["overlap"].mean(), measured["overlap_random"][0], rtol=0.05)
    np.testing.assert_allclose((measured["principal_cosines"] ** 2).mean(1), measured["overlap"])
    np.testing.assert_allclose(measured["overlap_random"], DIM / (N - 1))
    centred = points[0] - points[0].mean(0)
    v = np.linalg.eigh(centred @ centred.T)[1][:, -1]
    angles = 2 * np.pi * np.arange(1, N // 2 + 1)[:, None] * np.arange(N) / N
    pairs = np.linalg.qr(np.stack([np.cos(angles[:-1]), np.sin(angles[:-1])], -1))[0]
    last = (np.cos(angles[-1]) @ v) ** 2 / N
    best = max(*((pairs.swapaxes(1, 2) @ v) ** 2).sum(1), last)
    np.testing.assert_allclose(measured["fourier_share"][0, 0], best)


def test_float32_and_constant_distances():
    smooth = np.asarray(stationary_squared_distances(N, scale=float(N)))
    one, other = (remark_7(smooth.astype(t), dim=DIM) for t in (np.float32, np.float64))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    assert unexplained_by_offset(2 * (1 - np.eye(9))) == 0
    audit = remark_7(2 * (1 - np.eye(N)), dim=DIM)
    assert audit.hypotheses["stationary"].holds
    assert audit.conclusions["B circulant"].lhs < 1e-24
    nothing = remark_7(np.zeros((N, N)), dim=DIM)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(nothing))
