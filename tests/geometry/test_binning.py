"""Bins of positions: they cover every position once, and counting and binning commute."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import PositionCounts, count_tokens
from jaxpe.geometry import bin_counts, bin_positions, position_bins
from tests.unchecked import unchecked

RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 5, (40, 12), dtype=np.int32)
MASK = RNG.random((40, 12)) < 0.8
EDGES = position_bins(12, bins=5, spacing="log")


@pytest.mark.parametrize(("n", "bins"), [(1, 1), (7, 1), (7, 7), (10, 4), (1000, 37), (2**17, 64)])
@pytest.mark.parametrize("spacing", ["equal", "log"])
def test_bins_cover_every_position_once(n, bins, spacing):
    edges = position_bins(n, bins=bins, spacing=spacing)
    widths = np.diff(edges)
    assert edges.dtype == np.int32
    assert (edges[0], edges[-1], len(edges)) == (0, n, bins + 1)
    assert (widths >= 1).all()
    if spacing == "equal":
        assert widths.max() - widths.min() <= 1
    elif bins > 1:
        assert widths[0] == 1
        assert (np.diff(widths) >= 0).all()


def test_logarithmic_widths_grow_by_one_factor():
    widths = np.diff(position_bins(2**17, bins=64, spacing="log"))
    ratios = widths[41:] / widths[40:-1]
    assert np.ptp(ratios) < 0.02
    assert 1.1 < ratios.mean() < 1.3


@pytest.mark.parametrize("folds", [None, 3])
def test_binned_counts_are_counts_of_binned_positions(folds):
    counts = count_tokens(IDS, vocab_size=5, mask=MASK, folds=folds)
    binned = bin_counts(counts, EDGES)
    number = np.asarray(bin_positions(np.arange(12), EDGES))
    expected = np.zeros((*counts.tokens.shape[:-2], 5, 5), int)
    for position in range(12):
        expected[..., number[position], :] += np.asarray(counts.tokens)[..., position, :]
    np.testing.assert_array_equal(binned.tokens, expected)
    assert binned.tokens.dtype == counts.tokens.dtype
    assert binned.documents == counts.documents
    jitted = jax.jit(bin_counts)(counts, EDGES)
    np.testing.assert_array_equal(jitted.tokens, binned.tokens)


def test_binning_goes_with_adding_and_refining():
    one, other = (count_tokens(ids, vocab_size=5) for ids in (IDS[:20], IDS[20:]))
    together = bin_counts(one + other, EDGES)
    apart = bin_counts(one, EDGES) + bin_counts(other, EDGES)
    np.testing.assert_array_equal(together.tokens, apart.tokens)
    finer = bin_counts(one, np.array([0, 2, 5, 9, 12]))
    np.testing.assert_array_equal(
        bin_counts(finer, np.array([0, 2, 4])).tokens, bin_counts(one, np.array([0, 5, 12])).tokens
    )
    same = bin_counts(one, position_bins(12, bins=12))
    np.testing.assert_array_equal(same.tokens, one.tokens)


def test_positions_know_their_bin():
    positions = np.arange(12, dtype=np.int32)
    number = bin_positions(positions, EDGES)
    assert ((EDGES[number] <= positions) & (positions < EDGES[number + 1])).all()
    outside = jax.jit(bin_positions)(np.array([-3, 0, 12, 99]), EDGES)
    assert outside.tolist() == [-1, 0, 5, 5]
    assert bin_positions(positions.reshape(3, 4), EDGES).shape == (3, 4)
    for position in (-1, 12):
        with pytest.raises(ValueError, match=f"{position}, {position}"):
            bin_positions(np.array([position]), EDGES)


def test_a_bin_of_too_many_tokens_is_refused():
    # No cell and no position overflows, and no fold; the tokens of the first bin do.
    tokens = jnp.full((2, 4, 3), 2**28, jnp.int32)
    counts = PositionCounts(tokens, jnp.int32(2**30), jnp.int32(0))
    with pytest.raises(OverflowError, match="a bin holds 3221225472 tokens, more than int32 does"):
        bin_counts(counts, np.array([0, 2, 4]))
    wide = counts._replace(tokens=tokens.astype(jnp.int64))
    assert bin_counts(wide, np.array([0, 2, 4])).per_position.sum() == 24 * 2**28
    unsigned = counts._replace(tokens=tokens.astype(jnp.uint64))
    with unchecked():
        assert bin_counts(unsigned, np.array([0, 2, 4])).per_position.sum() == 24 * 2**28
    assert bin_counts(counts, np.arange(5)).tokens.shape == (2, 4, 3)


def test_only_integers_are_counts():
    counts = count_tokens(np.zeros((2, 3), int), vocab_size=2)
    for tokens in (counts.tokens.astype(jnp.bfloat16), counts.tokens[0]):
        with unchecked(), pytest.raises(ValueError, match="pass integers"):
            jax.jit(lambda x: bin_counts(x, np.array([0, 3])))(counts._replace(tokens=tokens))


@pytest.mark.parametrize(("cells", "expected"), [(3, 3 * 2**29), (4, 2**31 - 1), (9, 2**31 - 1)])
def test_under_jit_a_cell_stays_at_the_most(cells, expected):
    counts = PositionCounts(jnp.full((cells, 1), 2**29, jnp.int32), jnp.int32(1), jnp.int32(0))
    found = jax.jit(lambda counts: bin_counts(counts, np.array([0, cells])))(counts)
    assert found.tokens.tolist() == [[expected]]
