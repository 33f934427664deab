"""Faults of positions in batches, as the positions that faulty programs compute."""

from collections.abc import Iterator
from typing import NamedTuple

import ml_dtypes
import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.conformance.batch_layout import ORDERS, BatchOptions, shard_columns


class Axis(NamedTuple):
    """Positions of one axis.

    Attributes:
        got: positions, `[batch, n]`.
        true: right positions, `[batch, n]`.
        running: positions that run on over documents, `[batch, n]`.
        whole: numbers of the documents and right positions of whole rows, `[2, batch, length]`.
        columns: columns of the positions in whole rows, `[batch, n]`.
    """

    got: np.ndarray
    true: np.ndarray
    running: np.ndarray
    whole: np.ndarray
    columns: np.ndarray


def hypotheses(
    axis: Axis, options: BatchOptions
) -> Iterator[tuple[str, str, np.ndarray, np.ndarray | bool]]:
    """Name, detail, positions `[batch, n]` and possible rows `[batch]` of faults, in order."""
    got, true, running, whole, columns = axis
    first, (rows, n) = options.first, got.shape
    documents = np.take_along_axis(whole[0], columns, axis=1)
    wrong = (got != true) & (documents > 0)
    bad, several = wrong.any(axis=1), whole[0].max(axis=1) > 1
    for kind in (ml_dtypes.bfloat16, np.float16):
        yield "rounded", np.dtype(kind).name, true.astype(kind).astype(int), True
    cells = np.tile(np.arange(n), (rows, 1))
    if options.shards:
        for order in ORDERS:
            try:
                other = shard_columns(whole[0], (order, *options.shards[1:]))
            except InputError:  # an order that these lengths do not allow
                continue
            yield "shard order", order, np.take_along_axis(whole[1], other, axis=1), True
        size = n if options.shards[2] is not None else n // options.shards[1]
        yield "shard local", "", cells % size + first, True
    counted = np.cumsum(whole[0] > 0, axis=1) + first - 1
    for other in (running, columns + first, np.take_along_axis(counted, columns, axis=1)):
        yield "not reset", "", other, several
    yield "padding counted", "", columns + first, (whole[0] == 0).any(axis=1)
    yield "rows alike", "", np.tile(got[:1], (rows, 1)), ~bad[:1]
    shift = np.take_along_axis(got - true, np.argmax(wrong, axis=1)[:, None], axis=1)
    only_first = several & ~(wrong & (documents > 1)).any(axis=1)
    uneven = len(np.unique(shift[bad])) > 1
    yield "continued", "", true + shift, (shift[:, 0] > 0) & (only_first | uneven)
    new = np.diff(documents, axis=1, prepend=-1) != 0
    start, restart = (
        np.maximum.accumulate(np.where(at, cells, 0), axis=1) for at in (new, new | (got == first))
    )
    before = np.take_along_axis(got, np.maximum(start - 1, 0), axis=1)  # end of the last document
    follows = (np.take_along_axis(got, start, axis=1) > before) | (start == 0) | ~wrong
    late = follows.all(axis=1) & ~(wrong & (documents == 1)).any(axis=1)
    yield "not reset", "", true + np.take_along_axis(got - true, start, axis=1), late
    yield "first position", f"{first + shift[bad][0, 0]}, not {first}", true + shift, True
    for step, side in ((-1, "next"), (1, "previous")):
        moved, edge = np.roll(true, step, axis=1), min(step, 0)
        moved[:, edge] = got[:, edge]
        yield "shifted", f"to the {side} token", moved, True
    yield "constant", "", np.take_along_axis(got, start, axis=1), True
    period = max(int(got.max()) + 1 - first, 1)
    yield "chunks", f"of {period:,}", (true - first) % period + first, True
    yield "restart", "", cells - restart + first, True


def name_rows(axis: Axis, options: BatchOptions) -> dict[int, tuple[str, str]]:
    """Name and detail of the fault of each row with wrong positions.

    A hypothesis explains a row if it gives all positions of the documents with a wrong one.
    """
    got, true, _, whole, columns = axis
    documents = np.take_along_axis(whole[0], columns, axis=1)
    wrong = (got != true) & (documents > 0)
    if not wrong.any():
        return {}
    cells = documents + (documents.max() + 1) * np.arange(len(got))[:, None]
    other = ~np.isin(cells, np.unique(cells[wrong]))
    named: dict[int, tuple[str, str]] = {}
    for name, detail, expected, possible in hypotheses(axis, options):
        explained = ((expected == got) | other).all(axis=1) & possible & wrong.any(axis=1)
        for row in np.flatnonzero(explained).tolist():
            named.setdefault(row, (name, detail))
    for row in np.flatnonzero(wrong.any(axis=1)).tolist():
        at = int(np.argmax(wrong[row]))
        step = int(got[row, at] - got[row, at - 1]) if at else 2
        named.setdefault(row, ("gap" if step > 1 else "order" if step else "repeat", ""))
    return named
