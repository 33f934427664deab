"""Counts that are made again and again of the same tokens."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.geometry import (
    count_tokens,
    permute_within_documents,
    significant_rank,
    split_half_geometry,
)
from jaxpe.geometry.counts.position_counts import fold_of_documents
from jaxpe.geometry.counts.token_lists import (
    dealt_tokens,
    listed_tokens,
    occurrences_of,
    shared_words,
)
from jaxpe.geometry.noise.halves import (
    drawn_halves,
    halvable_tokens,
    places_of,
    shuffled_places,
    split_halves,
)

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


def table_of(tokens, places=None):
    """All blocks beside each other, the columns in the order of the words."""
    blocks, n = len(tokens.bounds) - 1, tokens.counted.shape[1]
    start = jnp.array(0), jnp.zeros((blocks, FOLDS, n, tokens.width), jnp.int32)

    def step(carry, table):
        number, tables = carry
        return number + 1, tables.at[number].set(table)

    number, tables = tokens.fold_tables(step, start, places)
    assert number == blocks
    return np.concatenate(tables, axis=-1)[..., np.asarray(tokens.columns)[:VOCAB]]


def of(corpus, **options):
    return occurrences_of(*corpus, vocab_size=VOCAB, folds=FOLDS, **options)


@pytest.fixture(params=[40, 7, 1], ids="{} columns".format)
def tokens(corpus, request):
    """Tokens in one block of the vocabulary, in several, and in one for each word."""
    ids, mask, groups = corpus
    fold = fold_of_documents(ids, mask, folds=FOLDS, groups=groups)
    listed = listed_tokens(ids, mask, vocab_size=VOCAB)
    return dealt_tokens(listed, fold, mask, folds=FOLDS, block=request.param)


def test_counts_are_those_of_count_tokens(corpus, tokens):
    expected = dense(corpus)
    np.testing.assert_array_equal(table_of(tokens), expected.tokens)
    per_position = jnp.sum(expected.tokens, axis=2)
    np.testing.assert_array_equal(tokens.per_position, per_position)


def test_lists_longer_than_a_chunk_count_the_same(corpus, monkeypatch):
    monkeypatch.setattr("jaxpe.geometry.occurrences._CHUNK", 32)
    np.testing.assert_array_equal(table_of(of(corpus)), dense(corpus).tokens)


def test_tokens_move_to_other_places(corpus, tokens):
    ids, mask, groups = corpus
    size = mask.sum(axis=1, keepdims=True)
    places = np.where(mask, size - 1 - np.arange(N), np.arange(N)).astype(np.int32)
    reverse = dense((np.take_along_axis(ids, places, axis=1), mask, groups))
    np.testing.assert_array_equal(table_of(tokens, jnp.asarray(places)), reverse.tokens)


def test_words_of_one_fold_are_left_out_of_halves(corpus):
    ids, mask, groups = corpus
    fold = fold_of_documents(ids, mask, folds=FOLDS, groups=groups)
    whole = listed_tokens(ids, mask, vocab_size=VOCAB)
    shared = shared_words(whole, fold)
    table = np.asarray(dense(corpus).tokens)
    np.testing.assert_array_equal(shared, np.sum(table.any(axis=1), axis=0) > 1)
    assert not shared.all()


def test_under_jit_counts_are_the_same(corpus):
    mask = corpus[1]
    sizes = {"vocab_size": VOCAB, "folds": FOLDS}
    parts = drawn_halves(KEY, folds=FOLDS, splits=4)

    @jax.jit
    def traced(*corpus):
        return split_halves(halvable_tokens(*corpus, **sizes), places_of(mask), parts)

    expected = split_half_geometry(dense(corpus), key=KEY, splits=4)
    np.testing.assert_allclose(traced(*corpus).geometry.gram, expected.gram, atol=1e-12)


def test_no_documents_and_no_tokens():
    for shape in ((0, 3), (4, 3)):
        tokens = occurrences_of(
            np.zeros(shape, np.int32), np.zeros(shape, bool), None, vocab_size=5, folds=2
        )
        zero = jnp.zeros((), jnp.int32)
        total = lambda carry, table: carry + jnp.sum(table, dtype=jnp.int32)  # noqa: E731
        assert tokens.fold_tables(total, zero) == 0


def test_halves_of_documents_and_of_shuffles_are_those_of_the_counts(corpus):
    ids, mask, groups = corpus
    sizes = {"vocab_size": VOCAB, "folds": FOLDS}
    tokens = halvable_tokens(*corpus, **sizes)
    assert np.any(tokens.rare.there)  # and other words in a table
    assert np.any(tokens.frequent.there)
    shuffling = jax.random.key(1)
    halved = partial(split_halves, tokens, parts=drawn_halves(KEY, folds=FOLDS, splits=3))
    own = permute_within_documents(shuffling, ids, mask, groups=groups)
    shuffled = count_tokens(own, mask=mask, groups=groups, **sizes)
    for found, counts in (
        (halved(places_of(mask)), dense(corpus)),
        (halved(shuffled_places(shuffling, mask, groups)), shuffled),
    ):
        expected = split_half_geometry(counts, key=KEY, splits=3)
        close = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
        jax.tree.map(close, found.geometry, expected)
        np.testing.assert_array_equal(found.per_position, counts.merged().per_position)


@pytest.mark.parametrize("traced", [False, True])
def test_no_documents_have_no_dimension_and_no_positions_are_refused(traced):
    rank = partial(significant_rank, vocab_size=5, key=KEY, splits=2, nulls=19)
    rank = jax.jit(rank) if traced else rank
    assert rank(np.zeros((0, 3), np.int32)).rank == 0
    for documents in (0, 3):
        with pytest.raises(ValueError, match="at least one position"):
            rank(np.zeros((documents, 0), np.int32))


def test_a_traced_table_beyond_int32_is_refused():
    ids = jax.ShapeDtypeStruct((2, 4096), jnp.int32)
    mask = jax.ShapeDtypeStruct((2, 4096), bool)
    with pytest.raises(ValueError, match="outside of jit"):
        jax.eval_shape(partial(occurrences_of, groups=None, vocab_size=50_000, folds=16), ids, mask)
