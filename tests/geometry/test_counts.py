"""Counts against a plain loop, and the laws that shards, folds and resamples rest on."""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import geometry
from jaxpe.geometry import (
    PositionCounts,
    count_tokens,
    positional_distributions,
    rotate_within_documents,
)
from jaxpe.geometry.counts.binning import position_bins
from jaxpe.geometry.counts.cohorts import cohort_of
from jaxpe.geometry.counts.position_counts import (
    content_labels,
    fold_of_documents,
    pad_documents,
    regroup_folds,
)
from jaxpe.geometry.distances.stress import pair_weights
from tests.unchecked import unchecked

VOCAB, MOST = 7, 2**31 - 1
# Without the type checks of the tests, as users call it.
count_unchecked = inspect.unwrap(count_tokens)
RNG = np.random.default_rng(0)
IDS, MASK = RNG.integers(0, VOCAB, (40, 6), dtype=np.int32), RNG.random((40, 6)) < 0.7
REPEATS = np.arange(40, dtype=np.int32) % 3


def by_loop(ids, mask, exclude=(), repeats=None):
    tokens = np.zeros((ids.shape[1], VOCAB), int)
    for d, document in enumerate(ids):
        for i, token in enumerate(document):
            if mask[d, i] and token not in exclude:
                tokens[i, token] += 1 if repeats is None else repeats[d]
    return tokens


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(("exclude", "repeats"), [((), None), ((2, 6), REPEATS)])
def test_counts_equal_a_loop(exclude, repeats):
    options = {"vocab_size": VOCAB, "mask": MASK, "exclude": exclude, "repeats": repeats}
    counts = count_tokens(IDS, folds=4, **options)
    expected = by_loop(IDS, MASK, exclude, repeats)
    assert np.array_equal(counts.merged().tokens, expected)
    assert counts.documents == (40 if repeats is None else int(repeats.sum()))
    assert np.array_equal(counts.merged().per_position, expected.sum(-1))
    junk = np.where(MASK, IDS, -99)
    assert same(counts, count_tokens(junk, folds=4, **options))


@pytest.mark.parametrize("folds", [None, 3])
def test_shards_add_to_the_whole_in_any_order(folds):
    def count(rows):
        options = {"vocab_size": VOCAB, "folds": folds, "exclude": (2,)}
        return count_tokens(IDS[rows], mask=MASK[rows], repeats=REPEATS[rows], **options)

    order = np.random.default_rng(1).permutation(40)
    whole = count(np.arange(40))
    assert same(sum(map(count, np.split(order, 2))), whole)
    assert same(count(order), whole)


def test_folds_hold_duplicates_groups_and_padding_together():
    alone = fold_of_documents(IDS, MASK, folds=5)
    assert np.array_equal(fold_of_documents(IDS[::-1], MASK[::-1], folds=5), alone[::-1])
    assert np.array_equal(fold_of_documents(np.where(MASK, IDS, 6), MASK, folds=5), alone)
    wider = np.pad(IDS, ((0, 0), (0, 3))), np.pad(MASK, ((0, 0), (0, 3)))
    assert np.array_equal(fold_of_documents(*wider, folds=5), alone)
    groups = np.arange(40, dtype=np.int32) // 4
    by_group = np.asarray(fold_of_documents(IDS, folds=5, groups=groups)).reshape(10, 4)
    assert (by_group == by_group[:, :1]).all()
    assert len(set(by_group[:, 0])) > 1
    one, other = content_labels(np.array([[5, 0], [5, 0]]), np.array([[1, 1], [1, 0]], bool))
    assert one != other  # a document that ends in 0 is no copy of the one without


def test_folds_are_even():
    ids = np.arange(8000, dtype=np.int32).reshape(4000, 2)
    sizes = np.bincount(fold_of_documents(ids, folds=16), minlength=16)
    assert ((sizes - 250) ** 2 / 250).sum() < 37.7  # chi-square, 15 degrees, 0.1 %


@pytest.mark.parametrize(
    ("dtype", "vocab_size"), [(np.int8, 120), (np.uint8, 256), (np.uint32, 70_000)]
)
def test_every_integer_dtype_counts_the_same(dtype, vocab_size):
    ids = np.array([[0, 100, 44], [1, 2, 119]], dtype)
    counts = count_tokens(ids, vocab_size=vocab_size, exclude=(119, 256)[: 1 + (vocab_size > 256)])
    expected = [[0, 0], [0, 1], [1, 2], [1, 100], [2, 44]]
    assert np.argwhere(np.asarray(counts.tokens)).tolist() == expected


def test_under_jit_foreign_ids_are_dropped_and_counted_never_wrapped():
    count = jax.jit(lambda i, m: count_tokens(i, vocab_size=VOCAB, mask=m))
    mask = np.array([[True, True], [False, True], [True, True]])
    for bad in (-1, -VOCAB, VOCAB, 2**31 - 1, -(2**31), 2**32 + 1):
        ids = np.array([[0, bad], [bad, 1], [2, 3]])
        counts = count(ids, mask)
        assert counts.dropped == 1
        expected = by_loop(np.where(ids == bad, 0, ids), mask & (ids != bad))
        assert np.array_equal(counts.tokens, expected)


ONES = np.ones((2, 2), int)


@pytest.mark.parametrize(
    ("ids", "kwargs", "error", "word"),
    [
        ([[1, 2], [3]], {}, ValueError, "pad_documents"),
        (np.ones((2, 2)), {}, ValueError, "ids"),
        (np.ones(3, int), {}, ValueError, "ids"),
        (np.array([[0, 1], [2, -1]]), {}, ValueError, "id -1"),
        (np.array([[0, 7], [2, 1]]), {}, ValueError, "id 7"),
        (ONES, {"mask": np.ones((2, 3), bool)}, ValueError, "mask"),
        (ONES, {"mask": ONES}, ValueError, "mask"),
        (ONES, {"exclude": (7,)}, ValueError, "exclude"),
        (ONES, {"repeats": np.array([-3, 1])}, ValueError, "repeats"),
        (ONES, {"repeats": np.array([0.5, 1.0])}, ValueError, "repeats"),
        (ONES, {"repeats": np.array([MOST, 1])}, OverflowError, "2147483648"),
        (ONES, {"repeats": np.array([2**63 - 1] * 2)}, OverflowError, str(2**64 - 2)),
    ],
)  # fmt: skip
def test_wrong_documents_are_refused(ids, kwargs, error, word):
    with pytest.raises(error, match=word):
        count_unchecked(ids, **{"vocab_size": VOCAB, **kwargs})


def test_padding_keeps_empty_documents_and_cuts_long_ones():
    ids, mask = pad_documents([[1, 2, 3], [], [4]], length=2)
    assert ids.tolist() == [[1, 2], [0, 0], [4, 0]]
    assert mask.tolist() == [[True, True], [False, False], [True, False]]


def test_rotation_keeps_order_ends_and_everything_that_is_not_counted():
    moved = np.asarray(rotate_within_documents(jax.random.key(0), IDS, MASK, exclude=(3,)))
    counted = MASK & (IDS != 3)
    assert np.array_equal(moved[~counted], IDS[~counted])
    assert not np.array_equal(moved, IDS)
    for before, after, own, full in zip(IDS, moved, counted, MASK[:, -1], strict=True):
        before, after = before[own].tolist(), after[own].tolist()
        if not full and before:
            assert after.pop() == before.pop()
        assert after in [before[k:] + before[:k] for k in range(max(len(before), 1))]


@pytest.mark.parametrize(("ended", "orders"), [(None, 4), (True, 3)])
def test_offsets_are_uniform(ended, orders):
    ids = np.tile(np.arange(5, dtype=np.int32), (12_000, 1))
    mask = np.arange(5)[None, :] != np.full((12_000, 1), 2)
    options = {"groups": np.arange(12_000), "ended": ended and np.ones(12_000, bool)}
    moved = np.asarray(rotate_within_documents(jax.random.key(1), ids, mask, **options))
    number = np.unique(moved @ 5 ** np.arange(5), return_counts=True)[1]
    assert len(number) == orders
    mean = 12_000 / orders
    assert ((number - mean) ** 2 / mean).sum() < 16.3  # chi-square, 3 degrees, 0.1 %


def test_copies_and_groups_are_rotated_alike():
    key = jax.random.key(3)
    copies = rotate_within_documents(key, np.tile(np.arange(6), (2, 1)))
    assert (copies == copies[:1]).all()
    pair = np.array([[0, 1, 2, 3, 4, 5], [10, 11, 12, 13, 14, 15]])
    together = rotate_within_documents(key, pair, groups=np.array([1, 1]))
    assert (together[0] + 10 == together[1]).all()
    apart = rotate_within_documents(key, pair)
    assert not (apart[0] + 10 == apart[1]).all()


def test_offsets_of_a_group_are_one_share_of_their_lengths():
    ids, mask = pad_documents([list(range(8)), list(range(4))], length=9)
    rotate = partial(rotate_within_documents, groups=np.array([1, 1]))
    moved = jax.vmap(lambda key: rotate(key, ids, mask))(jax.random.split(jax.random.key(0), 30))
    shares = np.argmax(np.asarray(moved) == 0, axis=2) / np.array([7, 3])  # moving tokens
    assert np.ptp(shares) > 0.5
    assert np.abs(shares[:, 0] - shares[:, 1]).max() <= 1 / 3 + 1e-9


@pytest.mark.parametrize("empty", ["drop", "uniform", "zero"])
def test_empty_positions_follow_the_policy(empty):
    cells = np.array([[3, 1], [0, 0]])
    for smoothing in (0.0, 0.5):
        mu = positional_distributions(cells, empty=empty, smoothing=smoothing)
        assert mu.probabilities[1].tolist() == [0.5 * (empty == "uniform")] * 2
        assert mu.present.tolist() == [True, empty != "drop"]
        expected = (cells[0] + smoothing) / (4 + 2 * smoothing)
        np.testing.assert_allclose(mu.probabilities[0], expected)


def test_bad_policies_are_refused():
    for word, kwargs in (
        ("positions", {"empty": "error"}),
        ("empty", {"empty": "keep"}),
        *(("smoothing", {"smoothing": wrong}) for wrong in (-1.0, np.nan, np.inf)),
    ):
        with unchecked(), pytest.raises(ValueError, match=word):
            positional_distributions(np.array([[3, 1], [0, 0]]), **kwargs)
    with pytest.raises(ValueError, match="concrete"):
        jax.jit(lambda c: positional_distributions(c, empty="error"))(ONES)


def test_pair_weights_are_harmonic_and_reach_one():
    ids, mask = pad_documents([[0, 1], [1], [2]])
    weights = pair_weights(count_tokens(ids, vocab_size=3, mask=mask))
    np.testing.assert_allclose(weights, np.array([[1.5, 0.75], [0.75, 0.5]]) / 1.5)
    assert pair_weights(count_tokens(ids[:, :0], vocab_size=3)).shape == (0, 0)
    assert (pair_weights(count_tokens(ids, vocab_size=3, mask=mask & False)) == 0).all()


def test_information_optimal_encoding_ignores_the_names_of_words():
    encoded = jax.jit(
        lambda ids: geometry.information_optimal_encoding(ids, vocab_size=VOCAB, dim=3, mask=MASK)
    )
    one, other = encoded(IDS), encoded(np.random.default_rng(2).permutation(VOCAB)[IDS])
    for get in (lambda x: x.distances.values, lambda x: x.stress, lambda x: x.mds.eigenvalues):
        np.testing.assert_allclose(get(one), get(other), atol=1e-12)


def counts_of(tokens, documents=1, dropped=0):
    return PositionCounts(jnp.asarray(tokens, jnp.int32), jnp.int32(documents), jnp.int32(dropped))


@pytest.mark.parametrize(
    "counts",
    [
        counts_of([[1, 1]], documents=MOST),
        counts_of([[2**30, 7]]),
        counts_of([[1, 1]], dropped=2**30),
    ],
)
def test_counts_that_do_not_fit_are_refused_and_stay_at_the_most_under_jit(counts):
    for add in (lambda: counts + counts, lambda: sum([counts, counts])):
        with pytest.raises(OverflowError):
            add()
    found = jax.jit(lambda a, b: a + b)(counts, counts)
    for before, after in zip(counts, found, strict=True):
        exact = 2 * np.asarray(before, np.int64)
        np.testing.assert_array_equal(after, np.minimum(exact, MOST))


def test_counts_at_the_limit_are_no_overflow():
    half = counts_of([[2**30 - 1, 0]], documents=2**30 - 1)
    counts = sum([half, half, counts_of([[1, 0]])])
    assert counts.documents == MOST
    assert counts.tokens.tolist() == [[MOST, 0]]
    assert counts.per_position.tolist() == counts.merged().per_position.tolist() == [MOST]


def test_sums_over_folds_and_words_do_not_wrap():
    for summed, tokens in (
        (lambda counts: counts.merged().tokens, np.full((3, 1, 2), 2**30)),
        (lambda counts: counts.per_position, np.full((2, 5), 2**30)),
    ):
        with pytest.raises(OverflowError):
            summed(counts_of(tokens))
        assert (jax.jit(summed)(counts_of(tokens)) == MOST).all()


def test_under_jit_documents_beyond_the_most_are_not_counted():
    ids = np.arange(5)[:, None]
    count = jax.jit(lambda x: count_tokens(ids, vocab_size=5, repeats=x))
    for repeats, kept in (
        ([5, MOST, MOST, MOST, 7], [5, MOST - 5, 0, 0, 0]),
        ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5]),
        ([-4, 0, MOST, 1, -1], [0, 0, MOST, 0, 0]),
        ([MOST] * 5, [MOST, 0, 0, 0, 0]),
    ):
        found = count(np.array(repeats))
        assert found.tokens.tolist() == [kept]
        assert found.documents == sum(kept)


def test_stacked_corpora_count_as_each_alone():
    shapes = ((5, 3), (2, 6), (7, 1))
    corpora = [(RNG.integers(0, VOCAB, s), RNG.random(s) < 0.8) for s in shapes]
    stacked = geometry.stack_corpora(corpora)
    assert stacked.ids.shape == (3, 7, 6)
    together = jax.jit(
        jax.vmap(lambda x, m, r: count_tokens(x, vocab_size=VOCAB, mask=m, repeats=r))
    )(*stacked)
    for number, (ids, mask) in enumerate(corpora):
        expected = np.zeros((6, VOCAB), int)
        expected[: ids.shape[1]] = by_loop(ids, mask)
        np.testing.assert_array_equal(together.tokens[number], expected)
        assert together.documents[number] == len(ids)


def test_cohorts_are_documents_that_reach_every_position():
    mask = np.arange(5) < RNG.integers(1, 6, (40, 1))
    np.testing.assert_array_equal(cohort_of(mask), mask.all(axis=1))
    wider = np.pad(mask, ((0, 0), (0, 2)))  # positions without any document say nothing
    np.testing.assert_array_equal(cohort_of(wider), mask.all(axis=1))


def test_regrouped_folds_hold_the_same_documents():
    counts = count_tokens(IDS, vocab_size=VOCAB, folds=4)
    table = np.asarray(counts.tokens)
    found = regroup_folds(counts, folds=2)
    np.testing.assert_array_equal(found.tokens, np.stack([table[0::2].sum(0), table[1::2].sum(0)]))
    for folds in (3, 0):
        with pytest.raises(ValueError, match="folds"):
            regroup_folds(counts, folds=folds)


@pytest.mark.parametrize("spacing", ["equal", "log"])
def test_bins_cover_every_position_once(spacing):
    for n, bins in ((1, 1), (7, 1), (7, 7), (10, 4), (1000, 37), (2**17, 64)):
        edges = position_bins(n, bins=bins, spacing=spacing)
        widths = np.diff(edges)
        assert (edges[0], edges[-1], len(edges)) == (0, n, bins + 1)
        assert (widths >= 1).all()
        if spacing == "equal":
            assert widths.max() - widths.min() <= 1
        elif bins > 1:
            assert widths[0] == 1
            assert (np.diff(widths) >= 0).all()
    if spacing == "log":  # widths grow by one factor
        ratios = widths[41:] / widths[40:-1]
        assert np.ptp(ratios) < 0.02
        assert 1.1 < ratios.mean() < 1.3
    for wrong in (0, 8):
        with pytest.raises(ValueError, match="bins"):
            position_bins(7, bins=wrong, spacing=spacing)
