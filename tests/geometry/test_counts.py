"""Counts against a plain loop, and the laws that shards, folds and resamples rest on."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe import PositionCounts, count_tokens, positional_distributions
from jaxpe.geometry import (
    content_labels,
    fold_of_documents,
    pad_documents,
    pair_weights,
    rotate_within_documents,
)
from tests.unchecked import unchecked

VOCAB = 7
# Without the type checks of the tests, as users call it.
count_unchecked = inspect.unwrap(count_tokens)


@pytest.fixture
def corpus():
    rng = np.random.default_rng(0)
    return rng.integers(0, VOCAB, (40, 6), dtype=np.int32), rng.random((40, 6)) < 0.7


def by_loop(ids, mask, exclude=(), repeats=None):
    tokens = np.zeros((ids.shape[1], VOCAB), int)
    for d, document in enumerate(ids):
        for i, token in enumerate(document):
            if mask[d, i] and token not in exclude:
                tokens[i, token] += 1 if repeats is None else repeats[d]
    return tokens


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("exclude", [(), (0,), (2, 6)])
@pytest.mark.parametrize("repeated", [False, True])
def test_counts_equal_a_loop(corpus, exclude, repeated):
    ids, mask = corpus
    repeats = np.arange(40, dtype=np.int32) % 3 if repeated else None
    counts = count_tokens(
        ids, vocab_size=VOCAB, mask=mask, exclude=exclude, repeats=repeats, folds=4
    )
    assert np.array_equal(counts.merged().tokens, by_loop(ids, mask, exclude, repeats))
    assert counts.documents == (40 if repeats is None else int(repeats.sum()))
    assert np.array_equal(counts.merged().per_position, counts.merged().tokens.sum(-1))


@pytest.mark.parametrize("folds", [None, 3])
def test_shards_add_to_the_whole_and_order_is_irrelevant(corpus, folds):
    ids, mask = corpus

    def count(rows):
        return count_tokens(ids[rows], vocab_size=VOCAB, mask=mask[rows], folds=folds)

    whole = count(slice(None))
    assert same(count(slice(0, 13)) + count(slice(13, 40)), whole)
    assert same(count(np.random.default_rng(1).permutation(40)), whole)
    assert whole.merged().tokens.shape == (6, VOCAB)


def test_folds_hold_duplicates_groups_and_padding_together(corpus):
    ids, mask = corpus
    alone = fold_of_documents(ids, mask, folds=5)
    assert np.array_equal(fold_of_documents(ids[::-1], mask[::-1], folds=5), alone[::-1])
    junk = np.where(mask, ids, 6)
    assert np.array_equal(fold_of_documents(junk, mask, folds=5), alone)
    wider = np.pad(ids, ((0, 0), (0, 3))), np.pad(mask, ((0, 0), (0, 3)))
    assert np.array_equal(fold_of_documents(*wider, folds=5), alone)
    groups = np.arange(40, dtype=np.int32) // 4
    by_group = np.asarray(fold_of_documents(ids, folds=5, groups=groups)).reshape(10, 4)
    assert (by_group == by_group[:, :1]).all()
    assert len(set(by_group[:, 0])) > 1


def test_a_document_that_ends_in_0_is_no_copy_of_the_one_without():
    ids, mask = np.array([[5, 0], [5, 0]]), np.array([[True, True], [True, False]])
    one, other = content_labels(ids, mask)
    assert one != other


def test_folds_are_even():
    ids = np.arange(8000, dtype=np.int32).reshape(4000, 2)
    sizes = np.bincount(fold_of_documents(ids, folds=16), minlength=16)
    assert ((sizes - 250) ** 2 / 250).sum() < 37.7  # chi-square, 15 degrees, 0.1 %


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64])
@pytest.mark.parametrize("vocab_size", [120, 256, 70_000])
def test_every_integer_dtype_counts_the_same(dtype, vocab_size):
    ids = np.array([[0, 100, 44], [1, 2, 119]], dtype)
    for count in (count_tokens, jax.jit(count_tokens, static_argnames=("vocab_size", "exclude"))):
        counts = count(ids, vocab_size=vocab_size, exclude=(119, 256)[: 1 + (vocab_size > 256)])
        assert np.argwhere(np.asarray(counts.tokens)).tolist() == [
            [0, 0], [0, 1], [1, 2], [1, 100], [2, 44]
        ]  # fmt: skip
        assert counts.dropped == 0


@pytest.mark.parametrize("bad", [-1, -VOCAB, VOCAB, 2**31 - 1, -(2**31), 2**32 + 1])
def test_under_jit_foreign_ids_are_dropped_and_counted_never_wrapped(bad):
    ids = np.array([[0, bad], [bad, 1], [2, 3]])
    mask = np.array([[True, True], [False, True], [True, True]])
    counts = jax.jit(lambda i, m: count_tokens(i, vocab_size=VOCAB, mask=m))(ids, mask)
    assert counts.dropped == 1
    assert np.array_equal(counts.tokens, by_loop(np.where(ids == bad, 0, ids), mask & (ids != bad)))


def test_masked_ids_are_never_looked_at(corpus):
    ids, mask = corpus
    junk = np.where(mask, ids, -99)
    assert same(*(count_tokens(x, vocab_size=VOCAB, mask=mask, folds=3) for x in (ids, junk)))


@pytest.mark.parametrize(
    ("ids", "kwargs", "message"),
    [
        ([[1, 2], [3]], {}, "documents of different lengths: pass pad_documents"),
        (np.ones((2, 2)), {}, "ids are float64"),
        (np.full((2, 2), np.nan), {}, "ids are float64"),
        (np.ones(3, int), {}, r"ids are int64 \(3,\): pass integers \[documents, n\]"),
        (np.array([[0, 1], [2, -1]]), {}, r"id -1 at document 1, position 1 is outside \[0, 7\)"),
        (np.array([[0, 7], [2, 1]]), {}, r"id 7 at document 0, position 1 is outside \[0, 7\)"),
        (
            np.ones((2, 2), int),
            {"mask": np.ones((2, 3), bool)},
            r"mask is bool \(2, 3\): pass bool of shape \(2, 2\)",
        ),
        (np.ones((2, 2), int), {"mask": np.ones((2, 2), int)}, "mask is int64"),
        (np.ones((2, 2), int), {"vocab_size": 0}, "vocab_size must be at least 1, not 0"),
        (np.ones((2, 2), int), {"folds": 0}, "folds must be at least 1, not 0"),
    ],
)
def test_bad_ids_are_refused_with_what_to_do(ids, kwargs, message):
    with pytest.raises(ValueError, match=message):
        count_unchecked(ids, **{"vocab_size": VOCAB, **kwargs})


def test_padding_keeps_empty_documents_and_cuts_long_ones():
    ids, mask = pad_documents([[1, 2, 3], [], [4]], length=2)
    assert ids.tolist() == [[1, 2], [0, 0], [4, 0]]
    assert mask.tolist() == [[True, True], [False, False], [True, False]]


def test_rotation_keeps_order_ends_and_everything_that_is_not_counted(corpus):
    ids, mask = corpus
    moved = np.asarray(rotate_within_documents(jax.random.key(0), ids, mask, exclude=(3,)))
    counted = mask & (ids != 3)
    assert np.array_equal(moved[~counted], ids[~counted])
    assert not np.array_equal(moved, ids)
    for before, after, own, full in zip(ids, moved, counted, mask[:, -1], strict=True):
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


def test_offsets_of_a_group_are_one_share_of_their_lengths():
    ids, mask = pad_documents([list(range(8)), list(range(4))], length=9)
    first = [
        np.argmax(rotate_within_documents(k, ids, mask, groups=np.array([1, 1])) == 0, axis=1)
        for k in jax.random.split(jax.random.key(0), 30)
    ]  # of 7 and 3 moving tokens
    shares = np.stack(first) / np.array([7, 3])
    assert np.ptp(shares) > 0.5
    assert np.abs(shares[:, 0] - shares[:, 1]).max() <= 1 / 3 + 1e-9


@pytest.mark.parametrize("empty", ["drop", "uniform", "zero"])
@pytest.mark.parametrize("smoothing", [0.0, 0.5])
def test_empty_positions_follow_the_policy(empty, smoothing):
    cells = np.array([[3, 1], [0, 0]])
    mu = positional_distributions(cells, empty=empty, smoothing=smoothing)
    expected = {"drop": [0, 0], "uniform": [0.5, 0.5], "zero": [0, 0]}[empty]
    assert mu.probabilities[1].tolist() == expected
    assert mu.present.tolist() == [True, empty != "drop"]
    np.testing.assert_allclose(mu.probabilities[0], (cells[0] + smoothing) / (4 + 2 * smoothing))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"empty": "error"}, r"1 of 2 positions hold no token \(the first is 1\)"),
        ({"empty": "keep"}, "empty is 'keep': pass 'drop'"),
        ({"smoothing": -1.0}, "smoothing must be finite and at least 0, not -1.0"),
    ],
)
def test_bad_policies_are_refused(kwargs, message):
    with unchecked(), pytest.raises(ValueError, match=message):
        positional_distributions(np.array([[3, 1], [0, 0]]), **kwargs)
    with pytest.raises(ValueError, match="needs concrete counts"):
        jax.jit(lambda c: positional_distributions(c, empty="error"))(np.ones((2, 2), int))


def test_pair_weights_are_harmonic_and_reach_one():
    ids, mask = pad_documents([[0, 1], [1], [2]])
    weights = pair_weights(count_tokens(ids, vocab_size=3, mask=mask))
    np.testing.assert_allclose(weights, np.array([[1.5, 0.75], [0.75, 0.5]]) / 1.5)
    assert pair_weights(count_tokens(ids[:1], vocab_size=3)).max() == 1
    assert pair_weights(count_tokens(ids[:, :0], vocab_size=3)).shape == (0, 0)
    assert (pair_weights(count_tokens(ids, vocab_size=3, mask=mask & False)) == 0).all()


def test_information_optimal_encoding_ignores_the_names_of_words(corpus):
    ids, mask = corpus
    renamed = np.random.default_rng(2).permutation(VOCAB)[ids]

    @jax.jit
    def encoded(ids):
        return jaxpe.information_optimal_encoding(ids, vocab_size=VOCAB, dim=3, mask=mask)

    one, other = encoded(ids), encoded(renamed)
    np.testing.assert_allclose(one.distances.values, other.distances.values, atol=1e-12)
    np.testing.assert_allclose(one.stress, other.stress, atol=1e-12)
    np.testing.assert_allclose(one.mds.eigenvalues, other.mds.eigenvalues, atol=1e-12)


def test_copies_and_groups_are_rotated_alike():
    key = jax.random.key(3)
    copies = rotate_within_documents(key, np.tile(np.arange(6), (4, 1)))
    assert (copies == copies[:1]).all()
    pair = np.array([[0, 1, 2, 3, 4, 5], [10, 11, 12, 13, 14, 15]])
    together = rotate_within_documents(key, pair, groups=np.array([1, 1]))
    assert (together[0] + 10 == together[1]).all()
    apart = rotate_within_documents(key, pair)
    assert not (apart[0] + 10 == apart[1]).all()


@pytest.mark.parametrize("folds", [None, 3])
@pytest.mark.parametrize("cuts", [(), (0, 1, 39), (20,)])
def test_documents_added_in_any_batches_are_those_of_the_whole(corpus, folds, cuts):
    (ids, mask), options = corpus, {"exclude": (2,)}
    repeats = np.arange(40, dtype=np.int32) % 3
    options |= {"vocab_size": VOCAB, "folds": folds}
    counts = sum(
        count_tokens(ids[rows], mask=mask[rows], repeats=repeats[rows], **options)
        for rows in np.split(np.arange(40), cuts)
    )
    whole = count_tokens(ids, mask=mask, repeats=repeats, **options)
    assert same(counts, whole)


MOST = 2**31 - 1


def counts_of(tokens, documents=1, dropped=0):
    return PositionCounts(jnp.asarray(tokens, jnp.int32), jnp.int32(documents), jnp.int32(dropped))


@pytest.mark.parametrize(
    ("counts", "number"),
    [
        (counts_of([[1]], documents=MOST), "4294967294 documents"),
        (counts_of([[2**30, 7]]), "2147483648 tokens"),
        (counts_of([[1]], dropped=2**30), "2147483648 dropped"),
    ],
)
def test_counts_that_do_not_fit_are_refused_and_stay_at_the_most_under_jit(counts, number):
    with pytest.raises(OverflowError, match=number):
        counts + counts
    with pytest.raises(OverflowError, match=number):
        sum([counts, counts])
    found = jax.jit(lambda a, b: a + b)(counts, counts)
    for before, after in zip(counts, found, strict=True):
        exact = 2 * np.asarray(before, np.int64)
        np.testing.assert_array_equal(after, np.minimum(exact, MOST))


def test_counts_at_the_limit_are_no_overflow():
    half = counts_of([[2**30 - 1, 0]], documents=2**30 - 1)
    one = counts_of([[1, 0]])
    counts = sum([half, half, one])
    assert counts.documents == MOST
    assert counts.tokens.tolist() == [[MOST, 0]]
    assert counts.per_position.tolist() == counts.merged().per_position.tolist() == [MOST]


def test_counts_of_other_shapes_and_integers_are_refused():
    flat = counts_of([1, 2])
    with unchecked():
        for read in (lambda: flat.merged(), lambda: flat.per_position):
            with pytest.raises(ValueError, match=r"shape \(2,\): pass integers \[n, vocab\]"):
                read()
        unsigned = counts_of([[1]])._replace(tokens=jnp.ones((1, 1), jnp.uint64))
        with jax.numpy_dtype_promotion("standard"), pytest.raises(ValueError, match="one integer"):
            unsigned + counts_of([[1]])


@pytest.mark.parametrize(
    ("property_", "tokens", "number"),
    [
        ("merged", np.full((3, 1, 2), 2**30), "3221225472 tokens of a cell in all folds"),
        ("per_position", np.full((2, 5), 2**30), "5368709120 tokens of a position"),
    ],
)
def test_sums_over_folds_and_words_do_not_wrap(property_, tokens, number):
    def summed(counts):
        found = getattr(counts, property_)
        return found().tokens if callable(found) else found

    with pytest.raises(OverflowError, match=number):
        summed(counts_of(tokens))
    assert (jax.jit(summed)(counts_of(tokens)) == MOST).all()


@pytest.mark.parametrize(
    ("repeats", "error", "message"),
    [
        ([MOST, 1], OverflowError, "2147483648 documents"),
        ([2**32 + 1, 1], OverflowError, "4294967298 documents"),
        ([2**63 - 1, 2**63 - 1], OverflowError, "18446744073709551614 documents"),
        ([-3, 1], ValueError, "repeats must be at least 0; one is -3"),
        ([0.5, 1.0], ValueError, "repeats is float64"),
        ([[1, 1]], ValueError, r"repeats is int64 of shape \(1, 2\)"),
    ],
)
def test_repeats_that_cannot_be_counted_are_refused(repeats, error, message):
    with pytest.raises(error, match=message):
        count_unchecked(np.array([[0], [0]]), vocab_size=1, repeats=np.array(repeats))


@pytest.mark.parametrize(
    ("repeats", "kept"),
    [
        ([5, MOST, MOST, MOST, 7], [5, MOST - 5, 0, 0, 0]),
        ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5]),
        ([-4, 0, MOST, 1, -1], [0, 0, MOST, 0, 0]),
        ([MOST] * 5, [MOST, 0, 0, 0, 0]),
    ],
)
def test_under_jit_documents_beyond_the_most_are_not_counted(repeats, kept):
    ids = np.arange(5)[:, None]
    found = jax.jit(lambda x: count_tokens(ids, vocab_size=5, repeats=x))(np.array(repeats))
    assert found.tokens.tolist() == [kept]
    assert found.documents == sum(kept)


@pytest.mark.parametrize("token", [-1, 2, 2**40])
def test_what_is_excluded_is_a_token(token):
    """A wrong id would exclude nothing, without a word."""
    ids = np.array([[0, 1]], np.uint8)
    with pytest.raises(ValueError, match=rf"`exclude` holds {token}, outside \[0, 2\)"):
        count_tokens(ids, vocab_size=2, exclude=(0, token))


def test_stacked_corpora_count_as_each_alone():
    rng = np.random.default_rng(0)
    shapes = ((5, 3), (2, 6), (7, 1))
    corpora = [(rng.integers(0, VOCAB, s), rng.random(s) < 0.8) for s in shapes]
    stacked = jaxpe.geometry.stack_corpora(corpora)
    assert stacked.ids.shape == (3, 7, 6)

    @jax.jit
    @jax.vmap
    def count(ids, mask, repeats):
        return count_tokens(ids, vocab_size=VOCAB, mask=mask, repeats=repeats)

    together = count(*stacked)
    for number, (ids, mask) in enumerate(corpora):
        alone = count_tokens(ids, vocab_size=VOCAB, mask=mask)
        n = ids.shape[1]
        np.testing.assert_array_equal(together.tokens[number, :n], alone.tokens)
        assert not together.tokens[number, n:].any()
        assert together.documents[number] == alone.documents
