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
)
from jaxpe.geometry.counts.token_lists import token_lists

KEY = jax.random.key(0)
DOCUMENTS, N, VOCAB, FOLDS = 300, 24, 400, 8
SIZES = {"vocab_size": VOCAB, "folds": FOLDS}
RNG = np.random.default_rng(0)
# Words of at most three tokens, an eighth of the positions, are multiplied as sparse rows.
IDS = np.minimum((RNG.pareto(0.7, (DOCUMENTS, N)) + np.arange(N)).astype(np.int32), VOCAB - 1)
MASK = np.arange(N) < RNG.integers(1, N + 1, (DOCUMENTS, 1))
OPTIONS = {"mask": MASK, "groups": np.arange(DOCUMENTS) // 2 * 2, **SIZES}


@pytest.fixture(scope="module")
def lists():
    return token_lists(IDS, **OPTIONS)


def rotated(key, **ended):
    return rotate_within_documents(key, IDS, MASK, groups=OPTIONS["groups"], **ended)


def table_of(lists):
    """Counts `[folds, n, words]`, and their columns in an order of their own."""
    cells = lists.cells()
    table = np.zeros((FOLDS, N, lists.words), int)
    table[:, cells.position, cells.word] = cells.counts.T
    return table


def sorted_columns(table):
    columns = table.reshape(-1, table.shape[-1])
    return columns[:, np.lexsort(columns)]


def test_cells_hold_the_counts_of_words_in_several_folds(lists):
    table = np.asarray(count_tokens(IDS, **OPTIONS).tokens)
    shared = np.sum(table.any(axis=1), axis=0) > 1
    number = table[..., shared].sum(axis=(0, 1))
    assert not shared.all()
    assert number.min() <= 3 < number.max()
    listed = table_of(lists)
    assert (np.diff(listed.sum(axis=(0, 1))) <= 0).all()  # from the most frequent word
    np.testing.assert_array_equal(sorted_columns(listed), sorted_columns(table[..., shared]))
    np.testing.assert_array_equal(lists.per_position, table.sum(axis=2))


@pytest.mark.parametrize("turned", [False, True])
def test_halves_of_lists_of_counts_and_of_traced_counts_are_equal(lists, turned):
    estimate = partial(split_half_geometry, key=KEY, splits=3)
    key = jax.random.key(1)
    counts = count_tokens(rotated(key) if turned else IDS, **OPTIONS)
    expected = jax.jit(estimate)(counts)
    for found in (estimate(counts), estimate(lists.rotated(key) if turned else lists)):
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12), found, expected)


@pytest.mark.parametrize("size", [1, 60])
def test_blocks_of_words_add_to_the_whole(lists, size, monkeypatch):
    """Of frequent words, and of rare ones: sizes that memory sets, here those of a few words."""
    whole = split_half_geometry(lists, key=KEY, splits=3)
    monkeypatch.setattr("jaxpe.geometry.noise.half_products._CELLS", size * FOLDS * N)
    monkeypatch.setattr("jaxpe.geometry.noise.half_products._ROOTS", size * 6)
    in_blocks = split_half_geometry(lists, key=KEY, splits=3)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-14), in_blocks, whole)


def test_rotations_are_made_one_by_one(lists):
    keys = jax.random.split(KEY, 3)
    rotations = lists.rotations(keys)
    assert len(rotations) == 3
    for key, found in zip(keys[1:], rotations[1:], strict=True):
        np.testing.assert_array_equal(found.position, lists.rotated(key).position)
    ends = lists.rotated(KEY, ends_move=True)
    expected = token_lists(rotated(KEY, ended=np.zeros(DOCUMENTS, bool)), **OPTIONS)
    np.testing.assert_array_equal(*(sorted_columns(table_of(x)) for x in (ends, expected)))


def test_no_documents_and_no_tokens():
    for shape in ((0, 3), (4, 3)):
        empty = token_lists(
            np.zeros(shape, np.int32), vocab_size=5, mask=np.zeros(shape, bool), folds=2
        )
        geometry = split_half_geometry(empty.rotated(KEY), key=KEY)
        assert not geometry.present.any()
        assert not geometry.gram.any()
    rank = partial(significant_rank, vocab_size=5, key=KEY, splits=2, nulls=19)
    for find in (rank, jax.jit(rank)):
        assert find(np.zeros((0, 3), np.int32)).rank == 0
        with pytest.raises(ValueError, match="one position"):
            find(np.zeros((3, 0), np.int32))


def test_lists_are_made_outside_of_jit_and_rotated_with_documents(lists):
    without = lists._replace(documents=None)
    with pytest.raises(ValueError, match="documents"):
        without.rotated(KEY)
    with pytest.raises(ValueError, match="count_tokens"):
        jax.jit(partial(token_lists, **SIZES))(IDS)
    with pytest.raises(ValueError, match="count_tokens"):
        jax.jit(lambda key: split_half_geometry(without, key=key))(KEY)
