"""Ragged arrays: sequences of ids of different lengths, end to end in one array."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Integer


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
    """Ragged array: sequences of ids, end to end.

    Attributes:
        values: ids of all sequences, int `[ids]`.
        lengths: number of ids of each sequence, int64 `[sequences]`; their sum is `len(values)`.
    """

    values: Integer[np.ndarray, " ids"]
    lengths: Int[np.ndarray, " sequences"]

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[Integer[np.ndarray, " n"]]:
        """Iterate over the sequences, as views of `values`."""
        ends = [0, *np.cumsum(self.lengths).tolist()]
        return (self.values[start:end] for start, end in itertools.pairwise(ends))

    def split(self, number: int) -> tuple["Ragged", "Ragged"]:
        """First `number` sequences and the rest, as views."""
        at = int(self.lengths[:number].sum())
        first = Ragged(self.values[:at], self.lengths[:number])
        return first, Ragged(self.values[at:], self.lengths[number:])

    def chosen(self, keep: Bool[np.ndarray, " sequences"]) -> "Ragged":
        """Select sequences by a mask."""
        if keep.all():
            return self
        return Ragged(self.values[np.repeat(keep, self.lengths)], self.lengths[keep])

    def padded(
        self, length: int
    ) -> tuple[Integer[np.ndarray, "sequences n"], Bool[np.ndarray, "sequences n"]]:
        """Ids and mask `[sequences, length]`, cut or padded with 0 at the end."""
        mask = np.arange(length) < self.lengths[:, None]
        first = int(self.lengths[0]) if len(self) else 0
        if first >= length and np.all(self.lengths == first):  # a matrix, often a memory map
            return self.values.reshape(-1, first)[:, :length].copy(), mask
        # Each row is copied together with the ids after it, which are then set to 0. This takes a
        # tenth of the time of assigning through a mask.
        values = np.concatenate([self.values, np.zeros(length, self.values.dtype)])
        starts = np.cumsum(self.lengths) - self.lengths
        ids = np.lib.stride_tricks.sliding_window_view(values, length)[starts]
        return np.multiply(ids, mask, out=ids), mask


def ragged(rows: Iterable[Any]) -> Ragged:
    """Ragged array from rows of ids, which are arrays or lists.

    >>> ragged([[4, 2], [7]]).padded(2)[0].tolist()
    [[4, 2], [7, 0]]
    """
    if isinstance(rows, Ragged):
        return rows
    rows = list(rows)
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    if rows and all(isinstance(row, np.ndarray) for row in rows):
        return Ragged(np.concatenate(rows), lengths)
    # One iterator over all lists is faster than an array per list.
    values = np.fromiter(itertools.chain.from_iterable(rows), np.int32, int(lengths.sum()))
    return Ragged(values, lengths)


def joined(parts: Sequence[Ragged]) -> Ragged:
    """Concatenate ragged arrays."""
    values = [part.values for part in parts] or [np.zeros(0, np.int32)]
    lengths = [part.lengths for part in parts] or [np.zeros(0, np.int64)]
    return Ragged(np.concatenate(values), np.concatenate(lengths))
