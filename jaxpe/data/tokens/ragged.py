"""Sequences of ids of different lengths in one array, so that a block of them is one operation."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Int32, Integer


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
    """Sequences of ids, end to end.

    Attributes:
        values: ids of all sequences, int `[ids]`.
        lengths: number of ids of each sequence, int64 `[sequences]`, summing to all of `values`.
    """

    values: Integer[np.ndarray, " ids"]
    lengths: Int[np.ndarray, " sequences"]

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[Integer[np.ndarray, " n"]]:
        """The sequences as arrays, views of one."""
        ends = [0, *np.cumsum(self.lengths).tolist()]
        return (self.values[start:end] for start, end in itertools.pairwise(ends))

    @property
    def uniform(self) -> int | None:
        """The length of all sequences; None where they differ, or there is none."""
        first = int(self.lengths[0]) if len(self.lengths) else None
        return first if first is not None and np.all(self.lengths == first) else None

    def split(self, number: int) -> tuple["Ragged", "Ragged"]:
        """The first so many sequences, and the others; views of these."""
        at = int(self.lengths[:number].sum())
        first = Ragged(self.values[:at], self.lengths[:number])
        return first, Ragged(self.values[at:], self.lengths[number:])

    def chosen(self, keep: Bool[np.ndarray, " sequences"]) -> "Ragged":
        """The sequences that a mask chooses."""
        if keep.all():
            return self
        return Ragged(self.values[np.repeat(keep, self.lengths)], self.lengths[keep])

    def cut(self, length: int) -> "Ragged":
        """The first `length` ids of each sequence."""
        if self.lengths.max(initial=0) <= length:
            return self
        if (n := self.uniform) is not None:
            values = self.values.reshape(-1, n)[:, :length].reshape(-1)
        else:
            starts = np.cumsum(self.lengths) - self.lengths
            offset = np.arange(len(self.values)) - np.repeat(starts, self.lengths)
            values = self.values[offset < length]
        return Ragged(values, np.minimum(self.lengths, length))

    def padded(
        self, length: int
    ) -> tuple[Int32[np.ndarray, "sequences n"], Bool[np.ndarray, "sequences n"]]:
        """Ids and mask `[sequences, length]`, cut or padded with 0 at the end."""
        if self.uniform == length:
            ids = self.values.reshape(-1, length).astype(np.int32)
            return ids, np.ones(ids.shape, bool)
        # Each row is copied at once with what follows it, which takes a tenth of the time of a
        # mask over the ids, and then padding is set to 0.
        room = np.zeros(len(self.values) + length, np.int32)
        room[: len(self.values)] = self.values
        starts = np.cumsum(self.lengths) - self.lengths
        ids = np.lib.stride_tricks.sliding_window_view(room, length)[starts]
        mask = np.arange(length) < self.lengths[:, None]
        return np.multiply(ids, mask, out=ids), mask


def ragged(rows: Iterable[Any]) -> Ragged:
    """Rows of ids, arrays or lists, as `Ragged`.

    >>> ragged([[4, 2], [7]]).padded(2)[0].tolist()
    [[4, 2], [7, 0]]
    """
    if isinstance(rows, Ragged):
        return rows
    rows = list(rows)
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    if rows and all(isinstance(row, np.ndarray) for row in rows):
        return Ragged(np.concatenate(rows), lengths)
    # An array for each list would cost more than the ids in it.
    values = np.fromiter(itertools.chain.from_iterable(rows), np.int32, int(lengths.sum()))
    return Ragged(values, lengths)


def joined(parts: Sequence[Ragged]) -> Ragged:
    """The sequences of several parts, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    values = [part.values for part in parts] or [np.zeros(0, np.int32)]
    lengths = [part.lengths for part in parts] or [np.zeros(0, np.int64)]
    return Ragged(np.concatenate(values), np.concatenate(lengths))


def equally_long(values: Integer[np.ndarray, " ids"], length: int) -> Ragged:
    """Ids as sequences of one length; raises `ValueError` where the last would be shorter."""
    number, rest = divmod(len(values), length)
    if rest:
        raise ValueError(f"{len(values)} ids are no rows of {length}")
    return Ragged(values, np.full(number, length, np.int64))
