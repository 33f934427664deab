"""Sequences in one array: every operation on a block is that on its sequences one by one."""

import numpy as np
import pytest

from jaxpe.data.tokens.ragged import joined, ragged

ROWS = ([3, 1, 2], [5], [], [7, 7, 7, 7], [9, 8])


def lists(block):
    return [row.tolist() for row in block]


def test_lists_and_arrays_become_the_same_block():
    arrays = [np.array(row, np.uint16) for row in ROWS]
    assert lists(ragged(ROWS)) == lists(ragged(arrays)) == [*ROWS]
    assert ragged(arrays).values.dtype == np.uint16
    assert lists(ragged([])) == []


def test_parts_are_joined_and_chosen():
    block = joined([ragged(ROWS[:2]), ragged(ROWS[2:])])
    assert lists(block) == [*ROWS]
    assert lists(joined([])) == []
    keep = np.array([True, False, True, False, True])
    assert lists(block.chosen(keep)) == [ROWS[0], ROWS[2], ROWS[4]]
    assert [lists(part) for part in block.split(2)] == [[*ROWS[:2]], [*ROWS[2:]]]


@pytest.mark.parametrize("length", [1, 2, 4, 6])
@pytest.mark.parametrize("rows", [ROWS, ([1, 2, 3], [4, 5, 6]), ()], ids=["ragged", "equal", "no"])
def test_padded(rows, length):
    ids, mask = ragged(rows).padded(length)
    assert (ids.shape, ids.dtype) == ((len(rows), length), np.int32)
    assert [own[there].tolist() for own, there in zip(ids, mask, strict=True)] == [
        row[:length] for row in rows
    ]
    assert not ids[~mask].any()
