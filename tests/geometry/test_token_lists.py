"""Token lists: counts and halves are those of the dense counts, of documents and of rotations."""

from functools import partial

import jax
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


def test_cells_hold_the_counts_of_words_in_several_folds(corpus):
    ids, options = corpus
    table = np.asarray(count_tokens(ids, **options).tokens)
    shared = np.sum(table.any(axis=1), axis=0) > 1
    assert not shared.all()
    lists = token_lists(ids, **options)
    cells, listed = lists.cells(), np.zeros((FOLDS, N, lists.words), int)
    listed[:, cells.position, cells.word] = cells.counts.T
    columns = table[..., shared].reshape(-1, shared.sum())
    order = np.lexsort((*columns, -columns.sum(axis=0)))
    own = listed.reshape(-1, lists.words)
    assert (np.diff(own.sum(axis=0)) <= 0).all()  # from the most frequent word
    np.testing.assert_array_equal(own[:, np.lexsort((*own, -own.sum(axis=0)))], columns[:, order])
    np.testing.assert_array_equal(lists.per_position, table.sum(axis=2))


@pytest.mark.parametrize("rare", [0.0, 6.0, 1e9])
@pytest.mark.parametrize("rotated", [False, True])
def test_halves_of_lists_and_of_traced_counts_are_equal(corpus, rotated, rare, monkeypatch):
    """With all words dense, some of them, and none; in blocks of a few words."""
    monkeypatch.setattr("jaxpe.geometry.noise.half_products._RARE", rare)
    monkeypatch.setattr("jaxpe.geometry.noise.half_products._CELLS", 3 * FOLDS * N)
    monkeypatch.setattr("jaxpe.geometry.noise.half_products._ROOTS", 60)
    ids, options = corpus
    estimate = partial(split_half_geometry, key=KEY, splits=3)
    own, rotating, lists = ids, jax.random.key(1), token_lists(ids, **options)
    if rotated:
        own = rotate_within_documents(rotating, ids, options["mask"], groups=options["groups"])
        lists = lists.rotated(rotating)
    counts = count_tokens(own, **options)
    expected = jax.jit(estimate)(counts)
    for geometry in (estimate(counts), estimate(lists)):
        jax.tree.map(close, geometry, expected)


def test_rotations_are_made_one_by_one(corpus):
    ids, options = corpus
    lists, keys = token_lists(ids, **options), jax.random.split(KEY, 3)
    rotations = lists.rotations(keys)
    assert len(rotations) == 3
    for key, found in zip(keys[1:], rotations[1:], strict=True):
        np.testing.assert_array_equal(found.position, lists.rotated(key).position)
    ends = lists.rotated(KEY, ends_move=True)
    rotated = rotate_within_documents(
        KEY, ids, options["mask"], groups=options["groups"], ended=np.zeros(DOCUMENTS, bool)
    )
    expected = token_lists(rotated, **options)
    np.testing.assert_array_equal(ends.cells().counts.sum(0), expected.cells().counts.sum(0))
    assert sorted(zip(ends.document, ends.position, strict=True)) == sorted(
        zip(expected.document, expected.position, strict=True)
    )


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


def test_lists_are_made_outside_of_jit_and_rotated_with_documents(corpus):
    ids, options = corpus
    lists = token_lists(ids, **options)._replace(documents=None)
    with pytest.raises(ValueError, match="no documents"):
        lists.rotated(KEY)
    with pytest.raises(ValueError, match="count_tokens"):
        jax.jit(partial(token_lists, **SIZES))(ids)
    with pytest.raises(ValueError, match="count_tokens"):
        jax.jit(lambda key: split_half_geometry(lists, key=key))(KEY)
