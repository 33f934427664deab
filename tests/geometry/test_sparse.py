"""Sparse counts: the same numbers as dense ones, and the laws of counts."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import (
    PositionCounts,
    count_tokens,
    hellinger_distances,
    hellinger_gram,
    noise_floor,
    positional_distributions,
    sparse_counts,
    split_half_geometry,
)
from jaxpe.geometry import (
    SparseCounts,
    classical_mds_from_counts,
    classical_mds_from_gram,
    sparse_counts_from_cells,
    weighted_gram,
)
from tests.unchecked import unchecked

VOCAB, LENGTH, FOLDS = 37, 12, 4
KEY = jax.random.key(3)
BLOCKS = (1, 5, 37, 100)  # one column; not a divisor; the whole vocabulary; more than that
from_cells = inspect.unwrap(sparse_counts_from_cells)  # without the type checks of the tests


def counted(seed, documents=80, folds=FOLDS):
    """Rare words, common words, and a position that no document reaches."""
    rng = np.random.default_rng(seed)
    ids = np.minimum(rng.zipf(1.4, (documents, LENGTH)), VOCAB) - 1
    ids = (ids + np.arange(LENGTH)[None, :] // 4) % VOCAB
    mask = np.broadcast_to(np.arange(LENGTH) != 7, ids.shape)
    return count_tokens(ids, vocab_size=VOCAB, mask=mask, folds=folds)


COUNTS = counted(0)
SPARSE = sparse_counts(COUNTS, block=5)
dense, merged = jax.jit(SparseCounts.dense), jax.jit(SparseCounts.merged)


@jax.jit
def geometry_of(counts):
    """All that takes dense and sparse counts alike."""
    mu = counts if isinstance(counts, SparseCounts) else positional_distributions(counts)
    halves = split_half_geometry(counts, key=KEY, splits=3)
    return {
        "gram": hellinger_gram(mu),
        "distances": hellinger_distances(mu),
        "halves": halves,
        "weighted": weighted_gram(halves, counts),
        "noise": noise_floor(counts),
    }


def same(a, b):
    return jax.tree.all(jax.tree.map(np.array_equal, a, b))


def close(actual, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), actual, expected
    )


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("folds", [None, FOLDS])
def test_sparse_counts_are_the_dense_ones(block, folds):
    counts = counted(0, folds=folds)
    sparse = sparse_counts(counts, block=block)
    assert same(dense(sparse), counts)
    assert sparse.shape == counts.tokens.shape
    assert np.array_equal(sparse.per_position, counts.per_position)
    assert sparse.width <= block
    assert (np.asarray(sparse.counts) > 0).sum() == (np.asarray(counts.tokens) > 0).sum()


@pytest.mark.parametrize("block", BLOCKS)
def test_merging_holds_each_cell_once(block):
    sparse, whole = sparse_counts(COUNTS, block=block), COUNTS.merged()
    short = sparse.merged()
    there = np.asarray(short.counts) > 0
    assert there.sum() == (np.asarray(whole.tokens) > 0).sum()
    assert there.any(axis=0).all()  # no slot is left over, but under jit
    assert same(dense(short), whole)
    assert same(dense(merged(sparse)), whole)
    assert short.merged() is short


def test_blocks_hold_about_as_many_cells_each():
    columns = np.minimum(np.random.default_rng(0).zipf(1.1, 40_000), 1000) - 1
    positions = np.arange(40_000) % 200
    ones = np.ones(40_000, np.int32)
    sparse = sparse_counts_from_cells(
        positions, columns, ones, length=200, vocab_size=1000, documents=200, block=50
    )
    assert sparse.cells.shape[0] == 20
    occupied = (np.asarray(sparse.counts) > 0).sum(axis=1)
    assert occupied.max() - occupied.min() <= 200  # the cells of one column at most


def test_shards_add_to_the_whole_in_any_layout():
    parts = [counted(seed) for seed in range(3)]
    sparse = [
        sparse_counts(part, block=block) for part, block in zip(parts, (5, 8, 37), strict=True)
    ]
    whole = sum(parts)
    assert same(dense(sum(sparse)), whole)
    # Equal cells are one: the sum is laid out as if counted at once.
    assert same(sum(sparse), sparse_counts(whole))


def test_cells_come_in_any_order_and_add():
    fold, positions, tokens = np.nonzero(COUNTS.tokens)
    counts = np.asarray(COUNTS.tokens)[fold, positions, tokens]
    split = np.concatenate([counts - counts // 2, counts // 2])
    order = np.random.default_rng(1).permutation(len(split))
    fold, positions, tokens = (np.tile(x, 2)[order] for x in (fold, positions, tokens))
    sparse = sparse_counts_from_cells(
        positions,
        tokens,
        split[order],
        length=LENGTH,
        vocab_size=VOCAB,
        documents=80,
        fold=fold,
        folds=FOLDS,
    )
    assert same(sparse, sparse_counts(COUNTS))


@pytest.mark.parametrize("block", [5, VOCAB])
def test_geometry_is_that_of_dense_counts(block):
    found, expected = geometry_of(sparse_counts(COUNTS, block=block)), geometry_of(COUNTS)
    close(found, expected)
    assert found["distances"].present.tolist() == [i != 7 for i in range(LENGTH)]


def test_gram_does_not_depend_on_folds():
    close(hellinger_gram(sparse_counts(counted(0, folds=None))), geometry_of(COUNTS)["gram"])


def test_scaling_has_the_eigenpairs_of_the_dense_geometry():
    found = classical_mds_from_counts(SPARSE, dim=LENGTH + 2, tolerance=1e-10)
    expected = classical_mds_from_gram(geometry_of(COUNTS)["gram"], dim=LENGTH + 2)
    assert found.converged
    np.testing.assert_allclose(found.eigenvalues[:LENGTH], expected.eigenvalues, atol=1e-10)
    np.testing.assert_allclose(found.trace, expected.eigenvalues.sum(), rtol=1e-9)
    P, Q = np.asarray(found.coordinates), np.asarray(expected.coordinates)
    np.testing.assert_allclose(P[:, :3], Q[:, :3], atol=1e-7)
    np.testing.assert_allclose(P @ P.T, Q @ Q.T, atol=1e-9)
    assert (P[7] == 0).all()
    assert (P[:, LENGTH - 2 :] == 0).all()  # eleven positions span ten dimensions
    assert found.present.tolist() == [i != 7 for i in range(LENGTH)]


def test_counts_of_nothing():
    nothing = counted(0, documents=0)
    sparse = sparse_counts(nothing, block=5)
    assert sparse.cells.shape == (8, 1)
    assert same(dense(sparse), nothing)
    assert same(sparse + sparse, sparse)
    assert same(sparse + SPARSE, SPARSE)
    geometry = geometry_of(sparse)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(geometry))
    found = classical_mds_from_counts(sparse, dim=2)
    assert not np.any(found.coordinates)
    assert found.trace == 0
    assert not found.present.any()


def test_a_block_is_no_wider_than_indices_reach():
    cell = np.array([2_000_000]), np.array([99_999]), np.array([3])
    sparse = sparse_counts_from_cells(*cell, length=2_000_001, vocab_size=100_000, documents=3)
    assert sparse.width * 2_000_001 < 2**31
    assert int(sparse.cells.max()) // sparse.width == 2_000_000
    assert sparse.per_position[-1] == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": np.array([0, 5])}, r"tokens lies in \[0, 5\], not in \[0, 5\)"),
        ({"positions": np.array([-1, 0])}, r"positions lies in \[-1, 0\], not in \[0, 3\)"),
        ({"positions": np.array([0])}, "positions has shape .* one for each cell"),
        ({"counts": np.array([1, -2])}, "counts must be at least 0; one is -2"),
        (
            {"fold": np.array([0, 1])},
            "pass fold, of each cell, and folds, their number, or neither",
        ),
        ({"folds": 2}, "pass fold, of each cell, and folds, their number, or neither"),
        ({"fold": np.array([0, 2]), "folds": 2}, r"fold lies in \[0, 2\], not in \[0, 2\)"),
        ({"block": 0}, "block must be at least 1, not 0"),
        ({"length": 2**31}, "are more than int32 counts"),
    ],
)
def test_bad_cells_are_refused(change, message):
    arrays = {"positions": np.array([0, 1]), "tokens": np.array([0, 1]), "counts": np.ones(2, int)}
    options = {"length": 3, "vocab_size": 5, "documents": 2}
    arrays |= {name: value for name, value in change.items() if name in arrays}
    options |= {name: value for name, value in change.items() if name not in arrays}
    with pytest.raises(ValueError, match=message):
        from_cells(*arrays.values(), **options)


def test_too_many_documents_are_refused():
    ones = np.zeros(2, int), np.arange(2), np.full(2, 2**30)
    with pytest.raises(OverflowError, match="2147483648 tokens of a position"):
        sparse_counts_from_cells(*ones, length=1, vocab_size=2, documents=2)
    one = (np.zeros(1, int), np.zeros(1, int), np.ones(1, int))
    with pytest.raises(OverflowError, match="4294967296 documents"):
        sparse_counts_from_cells(*one, length=1, vocab_size=2, documents=2**32)
    with pytest.raises(OverflowError, match="9223372036854775813 tokens of a cell"):
        sparse_counts_from_cells(
            *one[:2], np.array([2**63 + 5], np.uint64), length=1, vocab_size=2, documents=1
        )


def test_what_the_folds_hold_together_must_fit():
    folds = PositionCounts(jnp.full((3, 1, 1), 2**30, jnp.int32), jnp.int32(5), jnp.int32(0))
    with pytest.raises(OverflowError, match="3221225472 tokens of a position"):
        sparse_counts(folds)
    dropped = sparse_counts(COUNTS._replace(dropped=jnp.int32(2**31 - 1)))
    with pytest.raises(OverflowError, match="4294967294 dropped tokens"):
        dropped + dropped


def test_cells_are_integers():
    with unchecked(), pytest.raises(ValueError, match="counts is float64"):
        sparse_counts_from_cells(
            np.zeros(1, int), np.zeros(1, int), np.array([0.5]), length=1, vocab_size=2, documents=1
        )


def test_bad_counts_are_refused():
    sparse = sparse_counts(COUNTS)
    with pytest.raises(ValueError, match="do not add: count both with the same length"):
        sparse + sparse_counts(COUNTS.merged())
    with pytest.raises(TypeError, match=r"unsupported operand .* 'SparseCounts'"):
        1 + sparse
    with pytest.raises(ValueError, match="sparse counts add eagerly"):
        jax.jit(lambda a: a + a)(sparse)
    with pytest.raises(ValueError, match="are made eagerly"):
        jax.jit(sparse_counts)(COUNTS)
    with pytest.raises(ValueError, match="are made eagerly"):
        jax.jit(lambda x: sparse_counts_from_cells(x, x, x, length=1, vocab_size=1, documents=1))(
            jnp.zeros(1, jnp.int32)
        )
    with pytest.raises(ValueError, match=r"shape \(12, 37\): split halves need at least two folds"):
        split_half_geometry(sparse.merged(), key=KEY)
    with pytest.raises(ValueError, match="dim must be at least 1"):
        classical_mds_from_counts(sparse, dim=0)
