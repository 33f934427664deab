"""Batches as a pure function of (seed, index), so that a resumed run continues exactly.

With length bucketing, rows of similar length share a batch, which is cut to the shortest bucket
that holds it. Sentences with 13 tokens on average are then not padded to the longest, of 66.
"""

import functools
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxpe._core.errors import require
from jaxpe.geometry.checks import check_size

Batch = dict[str, np.ndarray]

_TOKENS = ("ids", "mask", "segments", "positions", "token_types")
# Batches whose rows are sorted by length together. Of a whole epoch, a document would nearly always
# meet the same few documents of its length.
_WINDOW = 64


def batches(
    arrays: Mapping[str, np.ndarray],
    *,
    batch_size: int,
    seed: int,
    epochs: int | None = None,
    lengths: np.ndarray | None = None,
    buckets: Sequence[int] | None = None,
    share: tuple[int, int] = (0, 1),
) -> Any:
    """Shuffled batches for training, as a Grain `IterDataset`.

    Each epoch is a permutation of the rows, from (seed, epoch). Rows that do not fill a batch are
    left out of the epoch. With lengths and buckets, windows of 64 batches are sorted by length and
    cut into batches, which are shuffled over the epoch. Arrays of tokens (ids, mask,
    segments, positions, token_types) are cut along axis 1 to the smallest bucket that holds the
    longest row, so each bucket compiles once.

    Args:
        arrays: arrays `[rows, ...]` by name.
        batch_size: rows per batch.
        seed: seed of the permutations.
        epochs: number of epochs; None for an endless iteration.
        lengths: number of tokens of each row, `[rows]`; padding is after the tokens.
        buckets: ascending lengths to cut to; the last holds the longest row.
        share: number of one of several equal parts of each batch, and the number of parts; in
            several processes `(jax.process_index(), jax.process_count())`.

    Returns:
        an iterable of dicts of arrays. Its iterators have `get_state` and `set_state`.

    Raises:
        ValueError: arrays with different numbers of rows, fewer rows than a batch, or buckets that
            do not hold every row.

    >>> data = batches({"x": np.arange(6)}, batch_size=2, seed=0, epochs=2)
    >>> seen = [batch["x"] for batch in data]
    >>> len(seen), sorted(np.concatenate(seen[:3]).tolist())
    (6, [0, 1, 2, 3, 4, 5])
    """
    grain = require("grain", extra="train")
    rows = _Rows(arrays, batch_size, lengths, buckets, share)
    source = _Shuffled(rows, seed, epochs)
    # Gathering rows is faster than passing them between threads.
    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    return grain.MapDataset.source(source).to_iter_dataset(options)


def in_order(
    arrays: Mapping[str, np.ndarray],
    *,
    batch_size: int,
    lengths: np.ndarray | None = None,
    buckets: Sequence[int] | None = None,
    share: tuple[int, int] = (0, 1),
) -> list[Batch]:
    """Batches with every row once, in order, for evaluation.

    All batches have `batch_size` rows. The last batch is filled with copies of the last row, for
    which the array `valid`, bool `[batch]`, is false.

    Args:
        arrays, batch_size, lengths, buckets, share: arguments of `batches`.

    Raises:
        ValueError: as in `batches`, except for fewer rows than a batch.

    >>> [batch["valid"].tolist() for batch in in_order({"x": np.arange(3)}, batch_size=2)]
    [[True, True], [True, False]]
    """
    rows = _Rows(arrays, batch_size, lengths, buckets, share)
    count = -(-rows.count // batch_size)
    return [
        rows.take(np.minimum(numbers, rows.count - 1)) | {"valid": rows.part(numbers) < rows.count}
        for numbers in np.arange(count * batch_size).reshape(count, batch_size)
    ]


class _Rows:
    """Arrays with equally many rows, and the lengths to cut a choice of rows to."""

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        batch_size: int,
        lengths: Any,
        buckets: Any,
        share: tuple[int, int],
    ):
        check_size("batch_size", batch_size)
        number, shares = share
        if not 0 <= number < shares or batch_size % shares:
            raise ValueError(
                f"share={share} with batch_size={batch_size}: pass (number, shares), "
                "with a number from 0 below the shares, which divide the batch"
            )
        self.arrays = {name: np.asarray(array) for name, array in arrays.items()}
        counts = {name: len(array) for name, array in self.arrays.items()}
        if len(set(counts.values())) != 1:
            raise ValueError(f"arrays must have equally many rows; these have {counts}")
        if (lengths is None) != (buckets is None):
            raise ValueError("lengths and buckets go together: pass both or neither")
        self.count, self.batch_size, self.share = next(iter(counts.values())), batch_size, share
        self.lengths: Any = None if lengths is None else np.asarray(lengths)
        if lengths is not None:
            self.buckets = np.asarray(buckets)
            self._check_lengths()

    def part(self, rows: np.ndarray) -> np.ndarray:
        """Rows of a batch that are in this share of it."""
        return np.split(rows, self.share[1])[self.share[0]]

    def take(self, rows: np.ndarray) -> Batch:
        batch = {name: array[self.part(rows)] for name, array in self.arrays.items()}
        if self.lengths is None:
            return batch
        width = self.buckets[np.searchsorted(self.buckets, self.lengths[rows].max())]
        return batch | {name: batch[name][:, :width] for name in _TOKENS if name in batch}

    def _check_lengths(self) -> None:
        if self.lengths.shape != (self.count,):
            raise ValueError(f"lengths have shape {self.lengths.shape} for {self.count} rows")
        longest = self.lengths.max(initial=0)
        if (np.diff(self.buckets) <= 0).any() or self.buckets.max(initial=-1) < longest:
            raise ValueError(
                f"buckets {self.buckets.tolist()} must ascend, and the last must hold the longest "
                f"row, with {longest} tokens"
            )
        mask = self.arrays.get("mask")
        if mask is None or mask.ndim < 2:
            return
        beyond = np.argwhere(mask & (np.arange(mask.shape[1]) >= self.lengths[:, None]))
        if len(beyond):  # it would be cut off silently
            row, position = beyond[0]
            raise ValueError(
                f"row {row} has a token at position {position} by its mask, beyond its length of "
                f"{self.lengths[row]}: move padding after the tokens"
            )


class _Shuffled:
    """Random-access source of batches for Grain, over finitely or infinitely many epochs."""

    def __init__(self, rows: _Rows, seed: int, epochs: int | None):
        if rows.batch_size > rows.count:
            raise ValueError(f"batch_size={rows.batch_size} exceeds the {rows.count} rows")
        if epochs is not None and epochs < 1:
            raise ValueError(f"epochs={epochs} must be at least 1, or None to repeat endlessly")
        self.rows, self.seed = rows, seed
        self.per_epoch = rows.count // rows.batch_size
        self.length = sys.maxsize if epochs is None else epochs * self.per_epoch
        self.plan = functools.lru_cache(maxsize=1)(self._plan)

    def __len__(self):
        return self.length

    def __getitem__(self, index) -> Batch:
        epoch, number = divmod(int(index), self.per_epoch)
        return self.rows.take(self.plan(epoch)[number])

    def __repr__(self):
        return f"batches of {self.rows.batch_size} from {self.rows.count} rows, seed {self.seed}"

    def _plan(self, epoch: int) -> np.ndarray:
        """Rows of each batch of an epoch, `[batches, batch_size]`."""
        random, size = np.random.default_rng((self.seed, epoch)), self.rows.batch_size
        order = random.permutation(self.rows.count)[: self.per_epoch * size]
        if self.rows.lengths is None:
            return order.reshape(-1, size)
        window = np.arange(len(order)) // (_WINDOW * size)
        by_length = order[np.lexsort((self.rows.lengths[order], window))]
        return random.permutation(by_length.reshape(-1, size))


def checksum(batch: Any) -> str:
    """Checksum of the arrays of a batch that this process holds.

    >>> checksum({"x": np.arange(3)}) == checksum({"x": jnp.arange(3)})
    True
    """
    total = 0
    for leaf in jax.tree.leaves(batch):
        parts = [part.data for part in getattr(leaf, "addressable_shards", ())] or [leaf]
        for part in map(np.ascontiguousarray, parts):
            # The bytes of an object array are addresses, which differ between processes.
            plain = repr(part.tolist()).encode() if part.dtype.hasobject else part.tobytes()
            total = zlib.crc32(plain, total)
    return f"{total:08x}"
