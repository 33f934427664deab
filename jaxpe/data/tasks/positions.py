"""Synthetic tasks that depend on position, as token ids and labels.

Random numbers are NumPy's, so that the seed of a model does not change its training data.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

from jaxpe._core.errors import InputError
from jaxpe._core.options import check_range
from jaxpe.data.corpora.seeds import generator

PADDING = 0  # words are 1, 2, ...


class Examples(NamedTuple):
    """Rows of a classification task, with one label each.

    Attributes:
        ids: token ids; words are 1 to vocab_size − 1, padding is 0.
        mask: false on padding.
        labels: correct answers, below `num_classes`.
        ambiguous: whether each row has more than one reading.
        vocab_size: ids are below it.
        num_classes: labels are below it.
    """

    ids: Int32[np.ndarray, "rows n"]
    mask: Bool[np.ndarray, "rows n"]
    labels: Int32[np.ndarray, " rows"]
    ambiguous: Bool[np.ndarray, " rows"]
    vocab_size: int
    num_classes: int

    def take(self, rows: np.ndarray) -> "Examples":
        """Select rows by index or by a boolean mask."""
        arrays = ("ids", "mask", "labels", "ambiguous")
        return self._replace(**{name: getattr(self, name)[rows] for name in arrays})

    def split(self, held_out: float = 0.3, *, seed: int = 0) -> tuple["Examples", "Examples"]:
        """Split into training and held-out rows, drawn by the seed.

        Raises:
            InputError: a share that leaves one of the two empty.

        >>> train, test = count_triggers(rows=100, length=10, most=8).split(0.3)
        >>> len(train.ids), len(test.ids)
        (70, 30)
        """
        rows = len(self.ids)
        train_rows = rows - round(rows * held_out) if 0 < held_out < 1 else 0
        if not 0 < train_rows < rows:
            raise InputError(
                f"`held_out={held_out}` of {rows} rows leaves one part empty: pass a share between "
                "0 and 1"
            )
        order = generator(seed).permutation(rows)
        return self.take(np.sort(order[:train_rows])), self.take(np.sort(order[train_rows:]))

    def batch(self) -> dict[str, np.ndarray]:
        """Arrays by name, as `jaxpe.training.batches` takes them."""
        return {"ids": self.ids, "mask": self.mask, "labels": self.labels}


def relative_distance(
    *,
    rows: int = 100_000,
    vocab_size: int = 574,
    left: int = 25,
    between: int = 70,
    right: int = 25,
    length: int = 120,
    triggers_in_filler: bool = False,
    seed: int = 0,
) -> Examples:
    """Task 1: the distance between two trigger words; defaults of arXiv:2505.13027.

    A row is filler, trigger w1, filler, trigger w2, filler, cut at `length`. Fillers have
    U{1..left}, U{1..between} and U{1..right} words, drawn without replacement within a segment. The
    label is the distance of the triggers: the number of words between them plus 1. The ordered pair
    (w1, w2) is drawn once for the data. Repeated rows are dropped.

    Args:
        rows: number of rows to draw; fewer are returned if some are equal.
        vocab_size: number of ids, padding (0) included.
        left: largest number of words before w1.
        between: largest number of words between.
        right: largest number of words after w2.
        length: length of a row.
        triggers_in_filler: draw fillers from all words, as the published code does. In about 20 %
            of its rows a trigger occurs more than once; these rows are `ambiguous`. In a fifth of
            them, only one w1 is before a w2. Smaller vocabularies have more.
        seed: random seed of the data.

    Raises:
        InputError: sizes that contradict each other.

    >>> data = relative_distance(rows=50, vocab_size=40, left=3, between=8, right=3, length=16)
    >>> data.ids.shape, data.num_classes, data.ambiguous.any().item()
    ((50, 16), 10, False)
    """
    _check(rows=rows, left=left, between=between, right=right)
    needed = max(left, between, right) + (0 if triggers_in_filler else 2)
    if vocab_size - 1 < needed:
        raise InputError(
            f"`vocab_size={vocab_size}` has {vocab_size - 1} words; segments of "
            f"{max(left, between, right)} different words need {needed}: pass {needed + 1} or more"
        )
    if length < left + between + 2:
        raise InputError(
            f"`length={length}` may cut off the second trigger: pass {left + between + 2} or more"
        )
    rng = generator(seed)
    words = np.arange(1, vocab_size, dtype=np.int32)
    triggers = rng.choice(words, 2, replace=False)
    fillers = words if triggers_in_filler else np.setdiff1d(words, triggers)
    sizes = [rng.integers(1, most + 1, (rows, 1)) for most in (left, between, right)]
    segments = [_distinct_words(rng, fillers, rows, most) for most in (left, between, right)]
    ids = _segment_rows(segments, sizes, triggers, length)
    labels = sizes[1][:, 0].astype(np.int32) + 1
    ids, first = _unique_rows(ids)
    twice = np.isin(ids, triggers).sum(axis=1) > 2
    return Examples(ids, ids != PADDING, labels[first], twice, vocab_size, between + 2)


def count_triggers(
    *,
    rows: int = 50_000,
    vocab_size: int = 574,
    triggers: int = 30,
    length: int = 120,
    most: int = 100,
    seed: int = 0,
) -> Examples:
    """Task 2: the number of trigger words; defaults of arXiv:2505.13027.

    A row has c ~ U{0..most} words drawn with replacement from the triggers, and the rest from the
    other words, in random order. The label is c, which does not depend on the order. The triggers
    are drawn once for the data.

    Args:
        rows: number of rows to draw; repeated rows are dropped.
        vocab_size: number of ids, including padding (0), which no row has.
        triggers: number of trigger words.
        length: length of every row.
        most: largest number of triggers in a row.
        seed: random seed of the data.

    Raises:
        InputError: sizes that contradict each other.

    >>> data = count_triggers(rows=50, vocab_size=40, triggers=5, length=12, most=10)
    >>> data.num_classes, data.mask.all().item()
    (11, True)
    """
    _check(rows=rows, triggers=triggers, most=most)
    if most > length:
        raise InputError(f"`most={most}` triggers do not fit a row of `length={length}`")
    if triggers >= vocab_size - 1:
        raise InputError(f"`triggers={triggers}` are all of the {vocab_size - 1} words: pass fewer")
    rng = generator(seed)
    words = rng.permutation(np.arange(1, vocab_size, dtype=np.int32))
    counts = rng.integers(0, most + 1, (rows, 1))
    counted = rng.choice(words[:triggers], (rows, length))
    others = rng.choice(words[triggers:], (rows, length))
    ids = np.where(np.arange(length) < counts, counted, others)
    ids, first = _unique_rows(rng.permuted(ids, axis=1))
    labels, never = counts[first, 0].astype(np.int32), np.zeros(len(ids), bool)
    return Examples(ids, ids != PADDING, labels, never, vocab_size, most + 1)


def _segment_rows(
    segments: list[np.ndarray], sizes: list[np.ndarray], triggers: np.ndarray, length: int
) -> Int32[np.ndarray, "rows length"]:
    """Rows of filler, trigger, filler, trigger, filler, and padding."""
    position = np.arange(length)[None]
    ids = np.full((len(segments[0]), length), PADDING, np.int32)
    start = np.zeros_like(sizes[0])
    for number, (segment, size) in enumerate(zip(segments, sizes, strict=True)):
        index = np.clip(position - start, 0, segment.shape[1] - 1)
        inside = (position >= start) & (position < start + size)
        ids = np.where(inside, np.take_along_axis(segment, index, axis=1), ids)
        start = start + size
        if number < len(triggers):
            ids = np.where(position == start, triggers[number], ids)
            start = start + 1
    return ids


def _distinct_words(
    rng: np.random.Generator, words: np.ndarray, rows: int, count: int
) -> Int32[np.ndarray, "rows count"]:
    """Random words without repeats in each row, in blocks of rows to save memory."""
    block = 10_000
    parts = [
        rng.permuted(np.tile(words, (min(block, rows - start), 1)), axis=1)[:, :count]
        for start in range(0, rows, block)
    ]
    return np.concatenate(parts)


def _unique_rows(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First occurrences of distinct rows, and their indices, in order."""
    first = np.sort(np.unique(ids, axis=0, return_index=True)[1])
    return ids[first], first


def _check(**sizes: int) -> None:
    for name, size in sizes.items():
        check_range(name, size, least=1)
