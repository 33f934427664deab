"""Layout of a batch: its documents, the columns of its shards, and the positions that follow."""

import dataclasses
from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np

from jaxpe._core.errors import InputError, unknown

Order = Literal["contiguous", "zigzag", "zigzag-documents", "round-robin"]
ORDERS: tuple[Order, ...] = get_args(Order)
Shards = tuple[Order, int, int | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """Check of batches: the intended layout, by default a causal decoder, each document by itself.

    Attributes:
        first: position of the first token of a document, 0 or more; 2 for RoBERTa.
        resets: whether positions restart with each document.
        continued: whether the first document of a row may continue one of another row.
        longest: number of positions that the model has.
        trained: number of positions that are to carry loss somewhere in the stream.
        axes: number of axes of M-RoPE, 3, or 4 with the positions of text first.
        padding: side of the padding; either when absent.
        pad: id of padding.
        eos: id that ends every document.
        bos: id that begins every document.
        causal: whether queries see no later keys.
        window: number of keys that a query sees, itself included; all when absent.
        shards: order of the shards of a row, their number, and the number of this one from 0;
            None in place of the last if positions hold all shards, one after another. Positions
            alone are in this order: all other arrays are whole rows in the order of the text.
    """

    first: int = 0
    resets: bool = True
    continued: bool = False
    longest: int | None = None
    trained: int | None = None
    axes: Literal[3, 4] | None = None
    padding: Literal["left", "right"] | None = None
    pad: int | None = None
    eos: int | None = None
    bos: int | None = None
    causal: bool = True
    window: int | None = None
    shards: Shards | None = None

    def __post_init__(self):
        sizes = (self.longest, self.trained, self.window)
        if min(self.first + 1, 1, *(size for size in sizes if size is not None)) < 1:
            raise InputError("`first`: pass 0 or more; `longest`, `trained`, `window`: 1 or more")
        order, count, index = self.shards or ("contiguous", 1, 0)
        if order not in ORDERS:
            raise InputError(unknown("order of `shards`", order, ORDERS))
        if not 0 <= (index or 0) < count:
            raise InputError(f"`shards` {self.shards}: pass a number below {count} last, or None")


def number_documents(
    given: Mapping[str, np.ndarray], options: BatchOptions, shape: tuple[int, ...]
) -> tuple[np.ndarray, str]:
    """Number of each token's document in its row, from 1, with 0 at padding; and what told it.

    Args:
        given: arrays of the batch by name.
        options: intended layout.
        shape: shape of whole rows, `[batch, n]`.
    """
    ids, mask, segments = (given.get(name) for name in ("ids", "mask", "segments"))
    real, told, new = np.ones(shape, bool), "segments", np.zeros(shape, bool)
    positions = given["positions"][0]
    if mask is not None and mask.ndim == 2:
        real = mask > 0
        segments = mask if segments is None and mask.max() > 1 else segments  # as 1 1 2 2 0
    elif segments is None and ids is not None and options.pad not in (None, options.eos):
        real = ids != options.pad
    if segments is None:
        if ids is not None and (options.eos is not None or options.bos is not None):
            new = np.roll(ids == options.eos, 1, axis=1) | (ids == options.bos)
            told, guessed = "ids", _constant_ends(ids, positions)
            if mask is None and options.pad is None and guessed.any():
                real, told = ~guessed, "ids without padding"
        elif options.resets and options.shards is None:
            new, told = positions == options.first, "positions"
        segments = np.cumsum(new, axis=1)
    else:  # numbers may be from 0 if a mask or -1 tells the padding
        if mask is not None and mask.ndim == 2:
            real = real & (segments >= min(segments[real].min(initial=1), 1))
        else:
            real = real & (segments > min(segments.min(), 0))
    latest = np.maximum.accumulate(np.where(real, np.arange(shape[1]), -1), axis=1)
    latest = np.pad(latest[:, :-1], ((0, 0), (1, 0)), constant_values=-1)  # token before, if any
    before = np.take_along_axis(segments, np.maximum(latest, 0), axis=1)
    return np.cumsum(real & ((latest < 0) | (before != segments)), axis=1) * real, told


def _constant_ends(ids: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Runs of two or more tokens of one id and one position at an end of a row, as padding has."""
    result = np.zeros(ids.shape, bool)
    if ids.shape != positions.shape or ids.shape[1] < 2:  # positions of shards
        return result
    for way in (slice(None), slice(None, None, -1)):
        i, p = ids[:, way], positions[:, way]
        run = np.logical_and.accumulate((i == i[:, :1]) & (p == p[:, :1]), axis=1)
        result[:, way] |= run & run[:, 1:2]
    return result


def true_positions(
    documents: np.ndarray, got: np.ndarray, vision: np.ndarray, options: BatchOptions
) -> np.ndarray:
    """Positions that follow from the documents, `[axes, batch, n]`; 0 at padding.

    In each axis, the least position of an image is the next one of the text. The text goes on after
    the largest of all axes. Within an image, positions are as they are given. A
    document that begins within an image keeps the place in it.

    Args:
        documents: numbers of the documents in whole rows, `[batch, n]`; 0 is padding.
        got: given positions, `[axes, batch, n]`; read in images and continued documents alone.
        vision: tokens of images, bool `[batch, n]`.
        options: intended layout.
    """
    result = np.zeros((len(got), *documents.shape), np.int64)
    for row, numbers in enumerate(documents):
        bounds = numbers if options.resets else numbers > 0
        ends = np.flatnonzero(np.diff(bounds * 2 + vision[row])) + 1
        following, before = options.first, 0
        for part in np.split(np.arange(len(numbers)), ends):
            if not (number := numbers[part[0]]):
                continue
            if options.resets and number != before:
                unknown_start = options.continued and number == 1
                following = max(options.first, got[0, row, part[0]] if unknown_start else 0)
            own = np.arange(len(part))[None]
            if vision[row, part[0]]:
                cut = part[0] > 0 and vision[row, part[0] - 1]
                own = got[:, row, part]
                own = own - (own.min() if cut else own.min(axis=1, keepdims=True))
            result[:, row, part] = following + own
            following, before = following + own.max() + 1, number
    return result


def image_tokens(positions: np.ndarray, first: int = 0) -> np.ndarray:
    """Tokens that positions `[3, batch, n]` tell to be of images, bool `[batch, n]`.

    Axes differ within an image. Tokens with equal axes are of its text if they are larger than all
    positions before, or restart at `first`. An image begins with equal axes, which then stay least.

    >>> positions = np.array([[[0, 1, 1, 1, 3]], [[0, 1, 1, 2, 3]], [[0, 1, 2, 1, 3]]])
    >>> image_tokens(positions).tolist()
    [[False, True, True, True, False]]
    """
    time, least = positions[0], positions.min(axis=0)
    inside = (positions != time).any(axis=0)
    back = time[:, 1:] <= np.maximum.accumulate(positions.max(axis=0), axis=1)[:, :-1]
    for token in range(1, time.shape[1]):
        stays = back[:, token - 1] & (time[:, token] != first)
        inside[:, token] |= inside[:, token - 1] & stays
    inside[:, :-1] |= inside[:, 1:] & (least[:, 1:] == time[:, :-1])
    return inside


def shard_columns(documents: np.ndarray, shards: Shards | None) -> np.ndarray:
    """Columns of whole rows that a shard holds, or all shards one after another, `[batch, n]`."""
    order, count, index = shards or ("contiguous", 1, None)
    ranks = range(count) if index is None else (index,)
    pieces = 2 * count if order.startswith("zigzag") else count
    result = []
    for numbers in documents:
        cuts = np.flatnonzero(np.diff(numbers)) + 1 if order == "zigzag-documents" else []
        parts = np.split(np.arange(len(numbers)), cuts)
        if any(len(part) % pieces for part in parts):
            raise InputError(f"`shards`: {pieces} pieces in {order} order do not divide the tokens")
        for rank, part in ((rank, part) for rank in ranks for part in parts):
            chunks = part.reshape(pieces, -1)
            if order == "round-robin":
                chunks = part.reshape(-1, pieces).T
            result += chunks[[rank] if pieces == count else [rank, pieces - 1 - rank]].tolist()
    return np.concatenate(result).reshape(len(documents), -1)
