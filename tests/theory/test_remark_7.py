"""Toeplitz, circulant, cosines and sinusoids: what follows from stationarity and what does not."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import euclidean_distances, sinusoidal_vectors
from jaxpe.theory.cirrincione2026.remark_7_stationarity import (
    remark_7,
    stationary_squared_distances,
    unexplained_by_offset,
)

N, DIM = 32, 4
audit_of = jax.jit(remark_7, static_argnames=("dim", "tolerance"))


def test_of_a_stationary_corpus_b_is_not_circulant():
    """The smoother the corpus, the less circulant is B."""
    audits = [
        audit_of(stationary_squared_distances(N, scale=float(scale)), dim=DIM)
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


@pytest.mark.parametrize("scale", [N / 16, N / 4, N, 4 * N])
def test_of_a_stationary_corpus_each_vector_is_one_sinusoid(scale):
    """R² of the best a + b cos ωi + c sin ωi, for the first 8 eigenvectors of B."""
    squared = np.asarray(stationary_squared_distances(N, scale=float(scale)))
    H = np.eye(N) - 1 / N
    vectors = np.linalg.eigh(-H @ squared @ H / 2)[1][:, ::-1][:, :8]
    angles = np.linspace(0, np.pi, 1000)[1:, None] * np.arange(N)
    bases = np.stack([np.ones_like(angles), np.cos(angles), np.sin(angles)], axis=-1)
    fitted = np.linalg.qr(bases)[0].swapaxes(1, 2) @ vectors  # [frequencies, 3, 8]
    assert (fitted**2).sum(axis=1).max(axis=0).min() > 0.997


def test_of_a_stationary_corpus_sinusoids_have_the_variance_and_not_the_directions():
    measured = [
        audit_of(stationary_squared_distances(N, scale=N * share), dim=16).measured
        for share in (1 / 16, 1 / 4, 1.0, 4.0)
    ]
    stress = [float(m["scaled_stress_sinusoidal"]) for m in measured]
    np.testing.assert_allclose([min(stress), max(stress)], [0.026, 0.066], atol=5e-4)
    assert max(m["scaled_stress_mds"] for m in measured) < 0.0035
    variance = [float(m["variance_in_span"]) for m in measured]
    np.testing.assert_allclose([min(variance), max(variance)], [0.637, 0.921], atol=5e-4)
    np.testing.assert_allclose([m["overlap"] for m in measured], 0.436, atol=2e-3)
    np.testing.assert_allclose(measured[0]["overlap_random"], 0.226, atol=5e-4)


def test_brownian_motion_has_the_cosines_exactly():
    measured = audit_of(stationary_squared_distances(N, scale=1e9), dim=DIM).measured
    np.testing.assert_allclose(measured["cosine_share"], 1, atol=1e-6)


def test_on_a_ring_all_of_it_holds_but_the_frequencies():
    angle = 2 * np.pi * np.arange(N) / N
    ring = np.stack(
        [np.cos(angle), np.sin(angle), 0.5 * np.cos(2 * angle), 0.5 * np.sin(2 * angle)], 1
    )
    audit = audit_of(np.asarray(euclidean_distances(ring).values) ** 2, dim=DIM)
    for name in ("B circulant", "Fourier eigenvectors"):
        assert audit.conclusions[name].holds
        assert audit.conclusions[name].lhs < 1e-12
    assert not audit.conclusions["Vaswani's span"].holds


def test_its_own_distances_are_spanned_by_the_encoding():
    vectors = sinusoidal_vectors(jnp.arange(N), dim=DIM)
    audit = audit_of(np.asarray(euclidean_distances(vectors).values) ** 2, dim=DIM)
    assert audit.conclusions["Vaswani's span"].holds
    np.testing.assert_allclose(audit.measured["principal_cosines"], 1, atol=1e-6)
    np.testing.assert_allclose(audit.measured["variance_in_span"], 1)
    assert audit.measured["scaled_stress_sinusoidal"] < 1e-12


def test_a_random_span_overlaps_as_said():
    points = np.random.default_rng(0).standard_normal((200, N, DIM))
    squared = ((points[:, :, None] - points[:, None]) ** 2).sum(-1)
    measured = jax.jit(jax.vmap(lambda d2: remark_7(d2, dim=DIM).measured))(squared)
    np.testing.assert_allclose(measured["overlap"].mean(), measured["overlap_random"][0], rtol=0.05)
    np.testing.assert_allclose((measured["principal_cosines"] ** 2).mean(1), measured["overlap"])
    np.testing.assert_allclose(measured["overlap_random"], DIM / (N - 1))


def test_shares_are_those_of_a_projection():
    points = np.random.default_rng(1).standard_normal((N, DIM))
    squared = ((points[:, None] - points[None]) ** 2).sum(-1)
    measured = audit_of(squared, dim=DIM).measured
    v = np.linalg.eigh((points - points.mean(0)) @ (points - points.mean(0)).T)[1][:, -1]
    shares = []
    for k in range(1, N // 2 + 1):
        angle = 2 * np.pi * k * np.arange(N) / N
        pair = np.linalg.qr(np.stack([np.cos(angle), np.sin(angle)], 1))[0][
            :, : 1 if 2 * k == N else 2
        ]
        shares.append(((pair.T @ v) ** 2).sum())
    np.testing.assert_allclose(measured["fourier_share"][0], max(shares))


def test_float32_agrees():
    squared = np.asarray(stationary_squared_distances(N, scale=float(N)))
    one, other = (audit_of(squared.astype(t), dim=DIM) for t in (np.float32, np.float64))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


def test_constant_distances_are_stationary():
    assert unexplained_by_offset(2 * (1 - np.eye(9))) == 0
    audit = audit_of(2 * (1 - np.eye(N)), dim=DIM)
    assert audit.hypotheses["stationary"].holds
    assert audit.conclusions["B circulant"].lhs < 1e-24
    nothing = audit_of(np.zeros((N, N)), dim=DIM)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(nothing))


@pytest.mark.parametrize("dim", [3, 0, 32])
def test_odd_and_too_wide_are_refused(dim):
    with pytest.raises(ValueError, match=rf"even and lie in \[2, 31\] for 32 positions, not {dim}"):
        inspect.unwrap(remark_7)(np.zeros((N, N)), dim=dim)


def test_sst2_is_neither_stationary_nor_circulant(data_dir):
    from jaxpe import count_tokens, hellinger_distances, positional_distributions
    from jaxpe.data import load_tokens

    corpus = load_tokens(
        "sst2",
        tokenizer=data_dir / "bert-base-uncased" / "vocab.txt",
        special=True,
        length=N + 2,
        data_dir=data_dir,
    )
    counts = count_tokens(
        corpus.ids[:, 1:-1],
        vocab_size=corpus.vocab_size,
        mask=corpus.mask[:, 1:-1],
        exclude=corpus.exclude,
    )
    D = hellinger_distances(positional_distributions(counts, empty="error")).values
    audit = audit_of(D**2, dim=DIM)
    assert not audit.hypotheses["stationary"].holds
    assert not audit.conclusions["B circulant"].holds
