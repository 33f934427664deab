"""Batches: every row once an epoch, cut to a bucket, and the same again after a resumption."""

import itertools
from functools import partial

import numpy as np
import pytest

from jaxpe.training import batches, in_order
from jaxpe.training.batches import checksum

ROWS, WIDTH, SIZE = 1003, 32, 8
BUCKETS = (8, 16, 32)
PER_EPOCH = ROWS // SIZE


def corpus():
    random = np.random.default_rng(0)
    lengths = np.minimum(random.geometric(0.12, ROWS), WIDTH)
    mask = np.arange(WIDTH) < lengths[:, None]
    ids = np.where(mask, random.integers(1, 50, (ROWS, WIDTH)), 0)
    return {"ids": ids, "mask": mask, "row": np.arange(ROWS), "other": ids + 1}, lengths


ARRAYS, LENGTHS = corpus()


def bucketed(**options):
    return batches(
        ARRAYS, batch_size=SIZE, lengths=LENGTHS, buckets=BUCKETS, **({"seed": 0} | options)
    )


def plain(**options):
    return batches(ARRAYS, batch_size=SIZE, **({"seed": 0} | options))


KINDS = {"plain": plain, "bucketed": bucketed}


def rows_of(data, count=None):
    return np.array([batch["row"] for batch in itertools.islice(data, count)])


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_has_every_row_once_but_for_a_tail_and_each_is_another_order(kind):
    rows = rows_of(KINDS[kind](epochs=3))
    assert rows.shape == (3 * PER_EPOCH, SIZE)
    epochs = rows.reshape(3, -1)
    for epoch in epochs:
        assert len(set(epoch)) == PER_EPOCH * SIZE
    assert len(set(epochs.ravel())) == ROWS  # the tail is another one each epoch
    assert all((a != b).mean() > 0.9 for a, b in itertools.combinations(epochs, 2))


def test_batches_are_a_function_of_the_seed():
    first, again, other = (rows_of(plain(seed=seed), 2 * PER_EPOCH) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    for part in (slice(PER_EPOCH), slice(PER_EPOCH, None)):  # nor a later epoch of the other one
        assert (first[part] != other[:PER_EPOCH]).mean() > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_an_iterator_goes_on_exactly_where_its_state_says(kind):
    data = KINDS[kind]()
    ahead = iter(data)
    rows_of(ahead, PER_EPOCH - 3)
    place = ahead.get_state()
    expected = rows_of(ahead, 6)  # over the end of the epoch
    resumed = iter(KINDS[kind]())
    resumed.set_state(place)
    np.testing.assert_array_equal(rows_of(resumed, 6), expected)
    ahead.set_state(place)  # also backwards
    np.testing.assert_array_equal(rows_of(ahead, 6), expected)


def test_rows_stay_whole_and_nothing_but_padding_is_cut():
    for batch in bucketed(epochs=1):
        rows, width = batch["row"], batch["ids"].shape[1]
        assert width == min(b for b in BUCKETS if b >= LENGTHS[rows].max())
        for name in ("ids", "mask"):
            np.testing.assert_array_equal(batch[name], ARRAYS[name][rows, :width])
            assert not ARRAYS[name][rows, width:].any()
        np.testing.assert_array_equal(batch["other"], ARRAYS["other"][rows])


def test_sorting_inside_windows_saves_most_of_the_padding_and_keeps_batches_shuffled():
    widths = np.array([batch["ids"].shape[1] for batch in bucketed(epochs=1)])
    unsorted = [
        min(b for b in BUCKETS if b >= LENGTHS[rows].max()) for rows in rows_of(plain(epochs=1))
    ]
    assert widths.mean() < 0.6 * np.mean(unsorted)
    changes = (np.diff(widths) != 0).mean()
    assert changes > 0.4  # sorted over the epoch, there were four


def test_evaluation_sees_every_row_once_in_order():
    seen = list(in_order(ARRAYS, batch_size=SIZE, lengths=LENGTHS, buckets=BUCKETS))
    assert len(seen) == PER_EPOCH + 1
    rows = np.concatenate([batch["row"][batch["valid"]] for batch in seen])
    np.testing.assert_array_equal(rows, np.arange(ROWS))
    assert {batch["ids"].shape[0] for batch in seen} == {SIZE}
    assert {batch["ids"].shape[1] for batch in seen} <= set(BUCKETS)
    whole = in_order(ARRAYS, batch_size=ROWS)
    assert len(whole) == 1
    assert whole[0]["valid"].all()
    np.testing.assert_array_equal(whole[-1]["ids"], ARRAYS["ids"])


def test_the_checksum_is_of_the_contents():
    words = np.array(["a", "bc", "d", "e"], dtype=object)
    assert checksum({"w": words}) == checksum({"w": words.copy()}) != checksum({"w": words[::-1]})
    x = np.arange(8).reshape(4, 2)
    assert checksum(x[:, ::-1]) == checksum(x[:, ::-1].copy()) != checksum(x)


@pytest.mark.parametrize("options", [{}, {"lengths": LENGTHS, "buckets": BUCKETS}])
def test_shares_of_several_processes_are_the_batches_of_one(options):
    def both(make, number, shares):
        return list(itertools.islice(make(ARRAYS, share=(number, shares), **options), 30))

    for make in (partial(batches, batch_size=SIZE, seed=0), partial(in_order, batch_size=SIZE)):
        halves = [both(make, number, 2) for number in range(2)]
        for whole, *parts in zip(both(make, 0, 1), *halves, strict=True):
            for name, array in whole.items():
                joined = np.concatenate([part[name] for part in parts])
                np.testing.assert_array_equal(array, joined)


def test_rows_without_tokens_fit_the_smallest_bucket():
    arrays = {"ids": np.zeros((4, 6), int), "mask": np.zeros((4, 6), bool)}
    data = batches(arrays, batch_size=2, seed=0, epochs=1, lengths=np.zeros(4, int), buckets=(3, 6))
    assert [batch["ids"].shape for batch in data] == [(2, 3), (2, 3)]


def test_wrong_arguments_are_named():
    one = {"batch_size": 1}
    ragged = {"a": np.ones(3), "b": np.ones(4)}
    short = {"lengths": np.maximum(LENGTHS - 1, 0), "buckets": BUCKETS}
    for wrong, call in (
        ("rows", partial(batches, ragged, batch_size=1, seed=0)),
        ("epochs", partial(plain, epochs=0)),
        ("batch_size", partial(batches, ARRAYS, batch_size=ROWS + 1, seed=0)),
        ("batch_size", partial(in_order, ARRAYS, batch_size=0)),
        ("share", partial(plain, share=(2, 2))),
        ("share", partial(plain, share=(0, 3))),
        ("lengths and buckets", partial(in_order, ARRAYS, **one, buckets=(8,))),
        ("buckets", partial(in_order, ARRAYS, **one, lengths=LENGTHS, buckets=(8, 16))),
        ("buckets", partial(in_order, ARRAYS, **one, lengths=LENGTHS, buckets=(32, 16))),
        ("lengths", partial(in_order, ARRAYS, **one, lengths=LENGTHS[:9], buckets=BUCKETS)),
        ("row 0", partial(in_order, ARRAYS, **one, **short)),
    ):
        with pytest.raises(ValueError, match=wrong):
            call()
