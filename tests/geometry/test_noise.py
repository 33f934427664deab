"""Signal and noise on corpora whose true geometry is known."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import (
    Distances,
    count_tokens,
    hellinger_gram,
    noise_floor,
    positional_distributions,
    significant_rank,
    split_half_geometry,
    stress,
)
from jaxpe.data import three_regimes, zipf_stationary
from jaxpe.geometry import (
    rank_above_null,
    weighted_gram,
)

KEY = jax.random.key(0)
LENGTH, VOCAB, DOCUMENTS = 12, 300, 3000


@partial(jax.jit, static_argnames="folds")
def counted(ids, mask=None, folds=16):
    return count_tokens(ids, vocab_size=VOCAB, mask=mask, folds=folds)


split_half = jax.jit(split_half_geometry, static_argnames="splits")


@pytest.fixture(scope="module")
def stationary():
    return zipf_stationary(documents=DOCUMENTS, length=LENGTH, vocab_size=VOCAB, seed=1)


@pytest.fixture(scope="module")
def regimes():
    return three_regimes(documents=DOCUMENTS, length=LENGTH, vocab_size=VOCAB, seed=1)


@jax.jit
def plug_in_trace(counts):
    return jnp.trace(hellinger_gram(positional_distributions(counts)))


def test_without_signal_halves_cancel_and_the_floor_is_the_plug_in(stationary):
    counts = counted(stationary.ids)
    plug_in, floor = plug_in_trace(counts), jax.jit(noise_floor)(counts)
    assert plug_in > 0.1
    np.testing.assert_allclose(floor.trace, plug_in, rtol=0.04)
    assert abs(split_half(counts, key=KEY).trace) < 0.05 * plug_in


def test_floor_covers_a_long_tail_of_rare_words_and_thin_positions(stationary):
    mask = np.arange(DOCUMENTS)[:, None] < np.linspace(DOCUMENTS, 40, LENGTH).astype(int)[None]
    counts = counted(stationary.ids, mask)
    floor, plug_in = jax.jit(noise_floor)(counts).trace, plug_in_trace(counts)
    # The floor has the variance alone; E√μ̂ also differs between thin and thick positions.
    assert 0.8 * plug_in < floor < plug_in
    half = jax.jit(noise_floor)(counted(stationary.ids, mask & (np.arange(LENGTH) < LENGTH // 2)))
    centred = np.sum(half.per_position) * (1 - 1 / (LENGTH // 2))  # E‖x_i − x̄‖² over those present
    np.testing.assert_allclose(half.trace, centred, rtol=1e-5)


def test_error_of_the_halves_is_as_said(stationary):
    counts = counted(stationary.ids)
    said = jax.jit(noise_floor)(counts).split_half_error
    products = []
    for seed in range(40):
        ids = np.random.default_rng(seed).permuted(stationary.ids.ravel()).reshape(-1, LENGTH)
        products.append(split_half(counted(ids), key=jax.random.key(seed), splits=1).gram)
    seen = np.sqrt(np.mean([np.diagonal(gram) ** 2 for gram in products]))
    np.testing.assert_allclose(np.mean(said), seen, rtol=0.15)


def test_strong_signal_is_recovered(regimes):
    truth = np.asarray(hellinger_gram(regimes.distributions))
    counts = counted(regimes.ids)
    geometry = split_half(counts, key=KEY)
    # Not unbiased: E√X grows faster than √λ for words seen a few times (by 13 % in all, here).
    np.testing.assert_allclose(geometry.trace, np.trace(truth), rtol=0.2)
    assert abs(geometry.trace - np.trace(truth)) < 0.3 * abs(plug_in_trace(counts) - truth.trace())
    error = lambda B: np.linalg.norm(np.asarray(B) - truth)  # noqa: E731
    assert error(geometry.gram) < 0.7 * error(
        hellinger_gram(positional_distributions(counts.merged()))
    )
    assert isinstance(geometry.distances, Distances)
    P = np.zeros((LENGTH, 1))
    assert stress(P, geometry.distances) == 1


def test_geometry_is_consistent_and_its_key_reproduces_it(regimes):
    counts = counted(regimes.ids)
    one, same, other = (split_half(counts, key=jax.random.key(k)) for k in (0, 0, 1))
    assert np.array_equal(one.gram, same.gram)
    assert not np.array_equal(one.gram, other.gram)
    B, squared = np.asarray(one.gram), np.asarray(one.squared_distances)
    np.testing.assert_allclose(B.sum(0), 0, atol=1e-12)
    norms = np.diagonal(B)
    np.testing.assert_allclose(squared, norms[:, None] + norms[None] - 2 * B, atol=1e-12)
    np.testing.assert_allclose(one.eigenvalues, np.linalg.eigvalsh(B)[::-1], atol=1e-12)


def test_positions_empty_in_a_half_take_no_part(regimes):
    mask = np.ones((DOCUMENTS, LENGTH), bool)
    mask[:, 3] = False
    mask[1:, 7] = False  # one document: empty in one half of every split
    geometry = split_half(counted(regimes.ids, mask), key=KEY)
    assert geometry.present.tolist() == [i not in (3, 7) for i in range(LENGTH)]
    assert (geometry.gram[3] == 0).all()
    assert (geometry.gram[7] == 0).all()
    weighted = np.asarray(weighted_gram(geometry, counted(regimes.ids, mask)))
    assert np.isfinite(weighted).all()
    assert (weighted[7] == 0).all()


def test_significant_rank_with_and_without_signal(stationary, regimes):
    rank = jax.jit(partial(significant_rank, vocab_size=VOCAB, key=KEY, splits=4, nulls=19))
    assert rank(stationary.ids).rank <= 1
    found = rank(regimes.ids)
    assert found.rank == 2
    assert found.null_eigenvalues.shape == (19, LENGTH)
    np.testing.assert_allclose(found.threshold, found.null_eigenvalues.max())
    np.testing.assert_allclose(found.p_value, 1 / 20)


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


def test_copies_of_documents_are_no_evidence_of_order():
    rng = np.random.default_rng(0)
    ids = np.repeat(rng.integers(0, 60, (100, LENGTH)), 10, axis=0)
    rank = partial(significant_rank, vocab_size=60, splits=4, nulls=19)
    assert rank(ids, key=KEY).rank <= 1
    assert rank(ids, key=KEY, groups=np.repeat(np.arange(100), 10)).rank <= 1


def test_nan_is_no_rank():
    assert rank_above_null(np.full((2, 2), np.nan), np.zeros((19, 2, 2))).rank == -1


def test_a_position_with_tokens_in_few_folds_is_absent():
    """It needs tokens in both halves of every halving, and not of some."""
    counts = counted(jnp.asarray(np.random.default_rng(0).integers(0, 9, (64, 3))), folds=8)
    thin = counts._replace(tokens=counts.tokens.at[2:, 1].set(0))
    np.testing.assert_array_equal(split_half(counts, key=KEY, splits=8).present, True)
    np.testing.assert_array_equal(split_half(thin, key=KEY, splits=8).present, [True, False, True])
