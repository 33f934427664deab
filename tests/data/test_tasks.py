"""Tasks 1 and 2: rows and labels follow their laws."""

import numpy as np
import pytest
from scipy import stats

from jaxpe._core.errors import InputError
from jaxpe.data import relative_distance
from jaxpe.data.tasks.positions import Examples, count_triggers

SMALL = {"rows": 4000, "vocab_size": 60, "left": 4, "between": 20, "right": 4, "length": 30}


@pytest.fixture(scope="module")
def clean() -> Examples:
    return relative_distance(**SMALL)


@pytest.fixture(scope="module")
def published() -> Examples:
    return relative_distance(**SMALL, triggers_in_filler=True)


def triggers(data: Examples) -> tuple[int, int]:
    """The words that every row has once; the first stands before the second."""
    everywhere = [w for w in range(1, data.vocab_size) if (data.ids == w).any(axis=1).all()]
    a, b = everywhere
    return (a, b) if (data.ids[0] == a).argmax() < (data.ids[0] == b).argmax() else (b, a)


def uniform(values: np.ndarray, low: int, high: int) -> float:
    """p-value of being uniform on low, ..., high."""
    counts = np.bincount(values - low, minlength=high - low + 1)
    assert len(counts) == high - low + 1
    return float(stats.chisquare(counts).pvalue)


def test_distance_is_that_of_the_two_triggers(clean):
    first, second = triggers(clean)
    at = [(clean.ids == word).argmax(axis=1) for word in (first, second)]
    np.testing.assert_array_equal(at[1] - at[0], clean.labels)
    assert ((clean.ids == first) | (clean.ids == second)).sum() == 2 * len(clean.ids)
    left, between = at[0], at[1] - at[0] - 1
    right = clean.mask.sum(axis=1) - at[1] - 1
    for values, most in ((left, 4), (between, 20), (right, 4)):
        assert uniform(values, 1, most) > 1e-4
    assert abs(np.corrcoef(left, between)[0, 1]) < 0.06
    assert clean.num_classes == 22
    assert clean.labels.min() == 2
    assert clean.labels.max() == 21


def test_segments_repeat_no_word(clean):
    pair = triggers(clean)
    for row, kept in zip(clean.ids[:300], clean.mask[:300], strict=True):
        words = row[kept]
        a, b = (int((words == word).argmax()) for word in pair)
        for segment in (words[:a], words[a + 1 : b], words[b + 1 :]):
            assert len(set(segment)) == len(segment) > 0


def test_fillers_are_uniform_over_the_words(clean):
    counts = np.bincount(clean.ids[clean.mask], minlength=60)[1:]
    filler = np.delete(counts, np.array(triggers(clean)) - 1)
    assert stats.chisquare(filler).pvalue > 1e-4


def test_rows_are_cut_and_padded():
    data = relative_distance(**(SMALL | {"length": 26}))
    assert data.ids.shape[1] == 26
    assert data.mask.all(axis=1).any()
    np.testing.assert_array_equal(data.ids == 0, ~data.mask)
    assert (np.diff(data.mask.astype(int), axis=1) <= 0).all()


def test_published_filler_makes_rows_ambiguous(clean, published):
    assert not clean.ambiguous.any()
    # A segment of s words has a given word with probability s / words: means 2.5, 10.5 and 2.5.
    expected = 1 - np.mean(
        [
            np.prod([(1 - s / 59) * (1 - s / 58) for s in sizes])
            for sizes in np.random.default_rng(0).integers(1, [5, 21, 5], (4000, 3))
        ]
    )
    assert abs(published.ambiguous.mean() - expected) < 0.03
    data = relative_distance(rows=50, triggers_in_filler=True)
    assert (data.ids.shape, data.num_classes) == ((50, 120), 72)


def test_rows_that_occur_twice_are_kept_once():
    data = relative_distance(
        rows=3000, vocab_size=5, left=1, between=2, right=1, length=6, triggers_in_filler=False
    )
    assert len(np.unique(data.ids, axis=0)) == len(data.ids) < 3000
    few = count_triggers(rows=3000, vocab_size=4, triggers=1, length=3, most=2)
    assert len(np.unique(few.ids, axis=0)) == len(few.ids) < 60


def test_counts_do_not_depend_on_the_order():
    data = count_triggers(rows=6000, vocab_size=80, triggers=9, length=30, most=25)
    assert uniform(data.labels, 0, 25) > 1e-4
    # Which words are triggers is found from the data: those of the rows that have most of them.
    often = np.bincount(data.ids[data.labels == 25].ravel(), minlength=80)
    rare = np.bincount(data.ids[data.labels == 0].ravel(), minlength=80)
    found = np.flatnonzero((often > 0) & (rare == 0))
    assert len(found) == 9
    counted = np.isin(data.ids, found)
    np.testing.assert_array_equal(counted.sum(axis=1), data.labels)
    assert stats.chisquare(counted.sum(axis=0)).pvalue > 1e-4  # of every position alike


@pytest.mark.parametrize("make", [relative_distance, count_triggers])
def test_the_seed_decides_all(make):
    a, b, c = (make(rows=50, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(a.ids, b.ids)
    assert a.ids.shape != c.ids.shape or (a.ids != c.ids).any()
    assert a.ids.dtype == a.labels.dtype == np.int32


def test_split_parts_the_rows(clean):
    train, test = clean.split(0.3, seed=5)
    assert len(train.ids) == round(0.7 * len(clean.ids))
    both = [
        (*row, label) for x in (train, test) for row, label in zip(x.ids, x.labels, strict=True)
    ]
    whole = [(*row, label) for row, label in zip(clean.ids, clean.labels, strict=True)]
    assert sorted(both) == sorted(whole)
    assert set(train.batch()) == {"ids", "mask", "labels"}


@pytest.mark.parametrize(("share", "rows"), [(0.24, 2), (0.26, 3), (0.29, 3)])
def test_the_held_out_share_is_rounded_to_the_nearest_row(clean, share, rows):
    train, test = clean.take(np.arange(10)).split(share)
    assert (len(train.ids), len(test.ids)) == (10 - rows, rows)


BAD = [
    (relative_distance, {"rows": 0}, "`rows` is 0"),
    (relative_distance, {"vocab_size": 72}, "pass 73"),
    (relative_distance, {"length": 96}, "pass 97"),
    (count_triggers, {"most": 121}, "`most=121`"),
    (count_triggers, {"triggers": 573}, "`triggers=573`"),
    (count_triggers, {"rows": 10, "seed": 2**32}, "`seed` is"),
]


@pytest.mark.parametrize(("make", "sizes", "word"), BAD)
def test_sizes_and_seeds_that_no_row_can_have(make, sizes, word):
    with pytest.raises(InputError, match=word):
        make(**sizes)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan"), float("inf"), 1e-4])
def test_shares_that_split_nothing_off(clean, share):
    with pytest.raises(InputError, match="held_out"):
        clean.take(np.arange(100)).split(share)
