"""Signal and noise on corpora whose true geometry is known."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from jaxpe.data import three_regimes, zipf_stationary
from jaxpe.geometry import (
    count_tokens,
    hellinger_gram,
    noise_floor,
    positional_distributions,
    significant_rank,
    split_half_geometry,
    stress,
)
from jaxpe.geometry.noise.significant_rank import rank_above_null, weighted_gram

KEY = jax.random.key(0)
LENGTH, VOCAB, DOCUMENTS = 12, 300, 3000


@partial(jax.jit, static_argnames="folds")
def counted(ids, mask, folds=16):
    return count_tokens(ids, vocab_size=VOCAB, mask=mask, folds=folds)


EVERYWHERE = np.ones((DOCUMENTS, LENGTH), bool)
split_half = jax.jit(split_half_geometry, static_argnames="splits")


@pytest.fixture(scope="module")
def stationary():
    return zipf_stationary(documents=DOCUMENTS, length=LENGTH, vocab_size=VOCAB, seed=1)


@pytest.fixture(scope="module")
def regimes():
    return three_regimes(documents=DOCUMENTS, length=LENGTH, vocab_size=VOCAB, seed=1)


@jax.jit
def plug_in_and_floor(counts):
    gram = hellinger_gram(positional_distributions(counts))
    return jnp.trace(gram), noise_floor(counts)


def test_without_signal_halves_cancel_and_the_floor_is_the_plug_in(stationary):
    counts = counted(stationary.ids, EVERYWHERE)
    plug_in, floor = plug_in_and_floor(counts)
    assert plug_in > 0.1
    np.testing.assert_allclose(floor.trace, plug_in, rtol=0.04)
    assert abs(split_half(counts, key=KEY).trace) < 0.05 * plug_in
    # A long tail of rare words and thin positions.
    mask = np.arange(DOCUMENTS)[:, None] < np.linspace(DOCUMENTS, 40, LENGTH).astype(int)[None]
    plug_in, floor = plug_in_and_floor(counted(stationary.ids, mask))
    # The floor has the variance alone; E√μ̂ also differs between thin and thick positions.
    assert 0.8 * plug_in < floor.trace < plug_in
    _, half = plug_in_and_floor(counted(stationary.ids, mask & (np.arange(LENGTH) < LENGTH // 2)))
    centred = np.sum(half.per_position) * (1 - 1 / (LENGTH // 2))  # E‖x_i − x̄‖² over those present
    np.testing.assert_allclose(half.trace, centred, rtol=1e-5)


def test_the_floor_is_the_variance_of_roots_of_poisson_counts():
    tokens = np.array([[30, 10, 2, 0], [6, 1, 1, 0], [0, 0, 0, 0]])
    counts = count_tokens(np.zeros((1, 3), int), vocab_size=4)._replace(tokens=jnp.asarray(tokens))
    k, pooled = np.arange(1, 200), tokens.sum(0) / tokens.sum()

    def variance(rate):
        log_terms = k * np.log(np.maximum(rate, 1e-30)) - rate - scipy.special.gammaln(k + 1)
        return rate - np.sum(np.sqrt(k) * np.exp(log_terms)) ** 2

    size = tokens.sum(1)[:2]
    each = np.array([[[variance(s * n * p) for p in pooled] for n in size] for s in (1, 0.5)])
    _, found = plug_in_and_floor(counts)
    per_position = each[0].sum(1) / size
    np.testing.assert_allclose(found.per_position, [*per_position, 0], rtol=1e-3)
    np.testing.assert_allclose(found.trace, per_position.sum() / 2, rtol=1e-3)
    np.testing.assert_allclose(found.squared_distances[0, 1], per_position.sum(), rtol=1e-3)
    error = np.sqrt((each[1] ** 2).sum(1)) / (0.5 * size)
    np.testing.assert_allclose(found.split_half_error, [*error, 0], rtol=1e-3)


def test_error_of_the_halves_is_as_said(stationary):
    _, said = plug_in_and_floor(counted(stationary.ids, EVERYWHERE))
    products = []
    for seed in range(24):
        ids = np.random.default_rng(seed).permuted(stationary.ids.ravel()).reshape(-1, LENGTH)
        counts = counted(ids, EVERYWHERE)
        products.append(split_half(counts, key=jax.random.key(seed), splits=1).gram)
    seen = np.sqrt(np.mean([np.diagonal(gram) ** 2 for gram in products]))
    np.testing.assert_allclose(np.mean(said.split_half_error), seen, rtol=0.15)


def test_strong_signal_is_recovered(regimes):
    truth = np.asarray(hellinger_gram(regimes.distributions))
    counts = counted(regimes.ids, EVERYWHERE)
    found = split_half(counts, key=KEY)
    # Not unbiased: E√X grows faster than √λ for words seen a few times (by 13 % in all, here).
    np.testing.assert_allclose(found.trace, np.trace(truth), rtol=0.2)
    plug_in = np.asarray(hellinger_gram(positional_distributions(counts.merged())))
    assert abs(found.trace - truth.trace()) < 0.3 * abs(plug_in.trace() - truth.trace())
    assert np.linalg.norm(found.gram - truth) < 0.7 * np.linalg.norm(plug_in - truth)
    assert stress(np.zeros((LENGTH, 1)), found.distances) == 1
    # It is consistent, and its key reproduces it.
    assert np.array_equal(found.gram, split_half(counts, key=jax.random.key(0)).gram)
    assert not np.array_equal(found.gram, split_half(counts, key=jax.random.key(1)).gram)
    B = np.asarray(found.gram)
    np.testing.assert_allclose(B.sum(0), 0, atol=1e-12)
    norms = np.diagonal(B)
    expected = norms[:, None] + norms[None] - 2 * B
    np.testing.assert_allclose(found.squared_distances, expected, atol=1e-12)
    np.testing.assert_allclose(found.eigenvalues, np.linalg.eigvalsh(B)[::-1], atol=1e-12)


def test_positions_empty_in_a_half_take_no_part(regimes):
    mask = np.ones((DOCUMENTS, LENGTH), bool)
    mask[:, 3] = False
    mask[1:, 7] = False  # one document: empty in one half of every split
    counts = counted(regimes.ids, mask)
    found = split_half(counts, key=KEY)
    assert found.present.tolist() == [i not in (3, 7) for i in range(LENGTH)]
    weighted = np.asarray(weighted_gram(found, counts))
    assert np.isfinite(weighted).all()
    assert not (found.gram[3] + found.gram[7] + weighted[7]).any()
    # A position needs tokens in both halves of every halving, not of some.
    counts = counted(regimes.ids, EVERYWHERE)
    thin = counts._replace(tokens=counts.tokens.at[2:, 1].set(0))
    expected = [i != 1 for i in range(LENGTH)]
    np.testing.assert_array_equal(split_half(thin, key=KEY).present, expected)


def test_significant_rank_with_and_without_signal(stationary, regimes):
    rank = partial(significant_rank, vocab_size=VOCAB, key=KEY, splits=4, nulls=19)
    assert rank(stationary.ids).rank <= 1
    found = rank(regimes.ids)
    assert found.rank == 2
    assert found.null_eigenvalues.shape == (19, LENGTH)
    np.testing.assert_allclose(found.threshold, found.null_eigenvalues.max())
    np.testing.assert_allclose(found.p_value, 1 / 20)


def test_copies_of_documents_are_no_evidence_of_order():
    ids = np.repeat(np.random.default_rng(0).integers(0, 60, (100, LENGTH)), 10, axis=0)
    rank = partial(significant_rank, vocab_size=60, key=KEY, splits=4, nulls=19)
    assert rank(ids).rank <= 1
    assert rank(ids, groups=np.repeat(np.arange(100), 10)).rank <= 1


@pytest.mark.parametrize(("level", "allowed"), [(0.0, 4), (0.2, 4), (0.5, 2), (0.8, 1)])
def test_rank_counts_what_few_null_corpora_reach(level, allowed):
    """A share 1 − level of 5 corpora, the documents' own among them, may be as large."""
    sizes = np.array([0.5, 2.0, 2.5, 4.0])
    null = np.zeros((4, 4, 4))
    null[:, 0, 0] = sizes
    others = (sizes.sum() - sizes) / 3
    top = np.maximum(sizes - others, 0)  # of each null less the mean of the others
    found = rank_above_null(np.diag([2.25, 9.0, 1.0, 0.1]), null, level=level)
    own = np.array([9.0, 1.0, 0.1, 0.0])
    np.testing.assert_allclose(found.threshold, np.sort(top)[-allowed], atol=1e-12)
    np.testing.assert_allclose(found.eigenvalues, own, atol=1e-12)
    assert found.rank == sum(np.sum(top >= x - 1e-9) < allowed for x in own)
    np.testing.assert_allclose(found.p_value, (1 + np.sum(top >= 9.0)) / 5)


def test_where_the_null_is_the_corpus_no_dimension_is_above_it():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((6, 3))
    gram = points @ points.T
    null = np.stack([gram] * 19) * (1 + 1e-16 * rng.standard_normal((19, 1, 1)))
    assert rank_above_null(gram, null).rank == 0
    assert rank_above_null(1.001 * gram, null).rank == 3
    assert rank_above_null(np.nan * gram, null).rank == -1
    for few, level in ((null[:18], 0.95), (null, 1.0)):
        with pytest.raises(ValueError, match="level"):
            rank_above_null(gram, few, level=level)
