"""Counts that are made again and again of the same tokens."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.geometry import (
    count_tokens,
    permute_within_documents,
    resample_documents,
    split_half_geometry,
)
from jaxpe.geometry.halving import halvable_tokens, places_of, shuffled_places, split_halves
from jaxpe.geometry.occurrences import occurrences_of
from jaxpe.geometry.rare_words import CLASSES

KEY = jax.random.key(0)
DOCUMENTS, N, VOCAB, FOLDS = 300, 7, 40, 8


@pytest.fixture(scope="module")
def corpus():
    rng = np.random.default_rng(0)
    ids = np.minimum(rng.geometric(0.15, (DOCUMENTS, N)) + np.arange(N), VOCAB) - 1
    mask = np.arange(N) < rng.integers(1, N + 1, (DOCUMENTS, 1))
    return ids.astype(np.int32), mask, np.arange(DOCUMENTS) // 2 * 2


def dense(corpus, **options):
    ids, mask, groups = corpus
    return count_tokens(ids, vocab_size=VOCAB, mask=mask, groups=groups, folds=FOLDS, **options)


def of(corpus, **options):
    return occurrences_of(*corpus, vocab_size=VOCAB, folds=FOLDS, **options)


def test_counts_are_those_of_count_tokens(corpus):
    tokens, expected = of(corpus), dense(corpus)
    counts = tokens.counts()
    found = counts.dense()
    np.testing.assert_array_equal(found.tokens[..., :VOCAB], expected.tokens)
    assert not np.any(found.tokens[..., VOCAB:])  # what rounds the vocabulary up
    assert counts.documents == expected.documents == DOCUMENTS
    merged = counts.merged().dense().tokens[:, :VOCAB]
    np.testing.assert_array_equal(merged, expected.merged().tokens)


def test_documents_count_as_often_as_asked(corpus):
    repeats = np.random.default_rng(1).integers(0, 4, DOCUMENTS).astype(np.int32)
    found = of(corpus).counts(repeats=jnp.asarray(repeats))
    expected = dense(corpus, repeats=repeats)
    np.testing.assert_array_equal(found.dense().tokens[..., :VOCAB], expected.tokens)
    np.testing.assert_array_equal(found.per_position, expected.per_position)
    assert int(found.documents) == repeats.sum()


def test_tokens_move_to_other_places(corpus):
    ids, mask, groups = corpus
    size = mask.sum(axis=1, keepdims=True)
    places = np.where(mask, size - 1 - np.arange(N), np.arange(N)).astype(np.int32)
    found = of(corpus).counts(places=jnp.asarray(places)).dense()
    reverse = dense((np.take_along_axis(ids, places, axis=1), mask, groups))
    np.testing.assert_array_equal(found.tokens[..., :VOCAB], reverse.tokens)


def test_words_of_one_fold_change_no_product_of_halves(corpus):
    few, whole = of(corpus, only_shared=True), of(corpus)
    assert np.sum(few.there) < np.sum(whole.there)
    found, expected = (split_half_geometry(t.counts(), key=KEY, splits=4) for t in (few, whole))
    np.testing.assert_allclose(found.gram, expected.gram, atol=2e-7)
    np.testing.assert_array_equal(few.counts().per_position, whole.counts().per_position)


def test_under_jit_counts_are_the_same(corpus):
    sizes = {"vocab_size": VOCAB, "folds": FOLDS}
    traced = jax.jit(lambda *c: split_half_geometry(
        occurrences_of(*c, **sizes).counts(), key=KEY, splits=4
    ))(*corpus)  # fmt: skip
    expected = split_half_geometry(dense(corpus), key=KEY, splits=4)
    np.testing.assert_allclose(traced.gram, expected.gram, atol=2e-7)


def test_no_documents_and_no_tokens():
    for shape in ((0, 3), (4, 3)):
        tokens = occurrences_of(
            np.zeros(shape, np.int32), np.zeros(shape, bool), None, vocab_size=5, folds=2
        )
        assert not np.any(tokens.counts().dense().tokens)


def test_resampled_and_shuffled_halves_are_those_of_the_counts(corpus):
    ids, mask, groups = corpus
    sizes = {"vocab_size": VOCAB, "folds": FOLDS}
    tokens = halvable_tokens(*corpus, **sizes)
    assert len(tokens.rare) == len(CLASSES)  # words of each class, and others in a table
    assert np.any(tokens.frequent.there)
    repeats, shuffling = resample_documents(KEY, len(ids), groups=groups), jax.random.key(1)
    halved = partial(split_halves, tokens, key=KEY, splits=3)
    resampled = count_tokens(ids, mask=mask, groups=groups, repeats=repeats, **sizes)
    own = permute_within_documents(shuffling, ids, mask, groups=groups)
    shuffled = count_tokens(own, mask=mask, groups=groups, **sizes)
    once = np.ones(len(ids), np.int32)
    for found, counts in (
        (halved(repeats, places_of(mask)), resampled),
        (halved(once, shuffled_places(shuffling, mask, groups)), shuffled),
    ):
        expected = split_half_geometry(counts, key=KEY, splits=3)
        close = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
        jax.tree.map(close, found.geometry, expected)
        np.testing.assert_array_equal(found.per_position, counts.merged().per_position)


def test_a_traced_table_beyond_int32_is_refused():
    ids = jax.ShapeDtypeStruct((2, 4096), jnp.int32)
    mask = jax.ShapeDtypeStruct((2, 4096), bool)
    with pytest.raises(ValueError, match="outside of jit"):
        jax.eval_shape(partial(occurrences_of, groups=None, vocab_size=50_000, folds=16), ids, mask)
