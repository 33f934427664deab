"""Token lists: counts and halves are those of the dense counts, of documents and of rotations."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.geometry import (
    count_tokens,
    rotate_within_documents,
    significant_rank,
    split_half_geometry,
    token_lists,
)

KEY = jax.random.key(0)
DOCUMENTS, N, VOCAB, FOLDS = 300, 7, 40, 8
SIZES = {"vocab_size": VOCAB, "folds": FOLDS}
close = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)


@pytest.fixture(scope="module")
def corpus():
    rng = np.random.default_rng(0)
    ids = np.minimum(rng.geometric(0.15, (DOCUMENTS, N)) + np.arange(N), VOCAB) - 1
    mask = np.arange(N) < rng.integers(1, N + 1, (DOCUMENTS, 1))
    return ids.astype(np.int32), {"mask": mask, "groups": np.arange(DOCUMENTS) // 2 * 2, **SIZES}


def sorted_columns(table):
    """Columns of a table in folds, in an order that does not depend on how words are numbered."""
    columns = np.asarray(table).reshape(-1, np.shape(table)[-1]).T
    return sorted(map(tuple, columns[columns.any(axis=1)].tolist()))


def listed_table(lists):
    """All columns of the frequent and of the rare words."""
    blocks = len(lists.blocks)
    start = jnp.array(0), jnp.zeros((blocks, FOLDS, N, len(lists.columns)), jnp.int32)
    step = lambda carry, table: (carry[0] + 1, carry[1].at[carry[0]].set(table))  # noqa: E731
    number, tables = lists.fold_tables(step, start)
    assert number == blocks
    tokens = jax.tree.map(np.asarray, lists.tokens)
    rare = np.zeros((FOLDS, N, tokens.word.max() + 1), np.int32)
    listed = np.asarray(lists.rare).ravel()
    np.add.at(rare, tuple(x[listed] for x in tokens[:3]), tokens.count[listed])
    return np.concatenate([*tables, rare], axis=-1)


@pytest.mark.parametrize("narrowest", [40, 7, 1])
def test_lists_hold_the_counts_of_words_in_several_folds(corpus, narrowest, monkeypatch):
    """In one block of the vocabulary, in several, and in one for each word."""
    monkeypatch.setattr("jaxpe.geometry.counts.token_lists._TABLE", 0)
    monkeypatch.setattr("jaxpe.geometry.counts.token_lists._NARROWEST", narrowest)
    monkeypatch.setattr("jaxpe.geometry.counts.token_lists._PAIRS", 200)
    ids, options = corpus
    table = np.asarray(count_tokens(ids, **options).tokens)
    shared = np.sum(table.any(axis=1), axis=0) > 1
    assert not shared.all()
    lists = token_lists(ids, **options)
    assert sorted_columns(listed_table(lists)) == sorted_columns(table[..., shared])
    np.testing.assert_array_equal(lists.per_position, table.sum(axis=2))


@pytest.mark.parametrize("rotated", [False, True])
def test_halves_of_lists_and_counts_traced_or_not_are_equal(corpus, rotated):
    ids, options = corpus
    estimate = partial(split_half_geometry, key=KEY, splits=3)
    own, rotating = ids, jax.random.key(1)
    if rotated:
        own = rotate_within_documents(rotating, ids, options["mask"], groups=options["groups"])
    counts = count_tokens(own, **options)
    expected = jax.jit(estimate)(counts)

    def listed(ids):
        lists = token_lists(ids, **options)
        return estimate(lists.rotated(rotating) if rotated else lists)

    for geometry in (estimate(counts), listed(ids), jax.jit(listed)(ids)):
        jax.tree.map(close, geometry, expected)


def test_no_documents_and_no_tokens():
    for shape in ((0, 3), (4, 3)):
        empty = np.zeros(shape, np.int32), {"vocab_size": 5, "mask": np.zeros(shape, bool)}
        lists = token_lists(empty[0], **empty[1], folds=2).rotated(KEY)
        geometry = split_half_geometry(lists, key=KEY)
        assert not geometry.present.any()
        assert not geometry.gram.any()


@pytest.mark.parametrize("traced", [False, True])
def test_no_documents_have_no_dimension_and_no_positions_are_refused(traced):
    rank = partial(significant_rank, vocab_size=5, key=KEY, splits=2, nulls=19)
    rank = jax.jit(rank) if traced else rank
    assert rank(np.zeros((0, 3), np.int32)).rank == 0
    for documents in (0, 3):
        with pytest.raises(ValueError, match="one position"):
            rank(np.zeros((documents, 0), np.int32))


def test_a_traced_table_beyond_int32_is_refused():
    ids = jax.ShapeDtypeStruct((2, 4096), jnp.int32)
    with pytest.raises(ValueError, match="outside of jit"):
        jax.eval_shape(partial(token_lists, vocab_size=50_000, folds=16), ids)


def test_lists_of_counts_cannot_be_rotated(corpus):
    ids, options = corpus
    lists = token_lists(ids, **options)._replace(documents=None)
    with pytest.raises(ValueError, match="no documents"):
        lists.rotated(KEY)
