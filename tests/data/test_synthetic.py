"""Synthetic corpora: the geometry they promise, and samples that come from it."""

import numpy as np
import pytest

from jaxpe._core import memory
from jaxpe._core.errors import InputError
from jaxpe.data import three_regimes, zipf_drift, zipf_stationary


def centred_eigenvalues(mu):
    roots = np.sqrt(mu)
    roots = roots - roots.mean(0)
    return np.linalg.eigvalsh(roots @ roots.T)[::-1]


def frequencies(ids, vocab_size):
    return np.stack([np.bincount(column, minlength=vocab_size) for column in ids.T]) / len(ids)


GENERATORS = [three_regimes, zipf_drift, zipf_stationary]


@pytest.mark.parametrize("make", GENERATORS)
@pytest.mark.parametrize("topics", [1, 7])
def test_samples_follow_the_distributions(make, topics):
    corpus = make(documents=10_000, vocab_size=50, document_topics=topics)
    np.testing.assert_allclose(corpus.distributions.sum(1), 1)
    assert corpus.ids.dtype == np.int32
    errors = frequencies(corpus.ids, 50) - corpus.distributions
    deviation = np.sqrt(corpus.distributions / 10_000)
    assert np.abs(errors / deviation).max() < 5


@pytest.mark.parametrize("make", GENERATORS)
def test_deterministic_and_the_seed_matters(make):
    a, b, c = (make(documents=50, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(a.ids, b.ids)
    assert (a.ids != c.ids).any()
    more = make(documents=60, seed=3)
    np.testing.assert_array_equal(a.distributions, more.distributions)


def test_three_regimes_have_rank_two_and_hard_boundaries():
    mu = three_regimes(documents=1).distributions
    values = centred_eigenvalues(mu)
    assert values[1] > 0.1
    assert abs(values[2]) < 1e-12
    changes = np.flatnonzero(np.abs(np.diff(mu, axis=0)).max(1))
    assert changes.tolist() == [10, 20]


def test_three_regimes_match_the_published_share_of_two_eigenvalues():
    shares = []
    for seed in range(10):
        values = centred_eigenvalues(frequencies(three_regimes(seed=seed).ids, 200))
        shares.append(values[:2].sum() / values.sum())
    assert abs(np.mean(shares) - 0.799) < 0.025


@pytest.mark.parametrize("rank", [2, 3, 6])
def test_drift_has_the_rank_it_says(rank):
    mu = zipf_drift(documents=1, rank=rank).distributions
    values = centred_eigenvalues(mu)
    assert values[rank - 1] > 0.05
    assert abs(values[rank]) < 1e-12
    assert abs(values.sum() - 0.8) < 0.02
    steps = np.linalg.norm(np.diff(np.sqrt(mu), axis=0), axis=1)
    assert steps.max() < 0.2 * np.linalg.norm(np.sqrt(mu[0]) - np.sqrt(mu[-1])) + 0.06


def test_stationary_has_no_geometry():
    assert np.abs(centred_eigenvalues(zipf_stationary(documents=1).distributions)).max() < 1e-15


def test_topics_make_the_tokens_of_a_document_dependent():
    def agreement(topics):
        ids = zipf_stationary(documents=4000, vocab_size=300, document_topics=topics).ids
        return (ids[:, :-1] == ids[:, 1:]).mean()

    assert agreement(20) > 1.5 * agreement(1)


BAD = [
    (three_regimes, {"documents": 0}),
    (three_regimes, {"length": 2}),
    (three_regimes, {"separation": float("nan")}),
    (zipf_stationary, {"vocab_size": 2}),
    (zipf_stationary, {"seed": 2**32}),
    (zipf_drift, {"rank": 1}),
    (zipf_drift, {"rank": 48}),
    (zipf_drift, {"document_topics": 0}),
    (zipf_drift, {"strength": 0.9}),
    (zipf_drift, {"strength": float("nan")}),
]


@pytest.mark.parametrize(("make", "options"), BAD)
def test_bad_parameters(make, options):
    with pytest.raises(InputError, match=f"`{next(iter(options))}` is"):
        make(**options)


def test_what_does_not_fit_memory_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 10**9)
    with pytest.raises(InputError, match="needs"):
        zipf_stationary(documents=2 * 10**9)
