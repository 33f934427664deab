"""Sparse counts: occupied cells alone, for long texts and large vocabularies."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Integer

from jaxpe._core.arrays import ArrayLike, is_traced, sum_counts, tree_add
from jaxpe.geometry.checks import check_size
from jaxpe.geometry.counts.position_counts import _INT32_MAX, PositionCounts, scatter_add

# Columns that are made dense together: enough for a matrix product to run at full speed.
BLOCK = 1024


class SparseCounts(NamedTuple):
    """`PositionCounts` without its empty cells; a pytree of static shapes that adds.

    The vocabulary is cut into blocks, each of which is made dense in turn. Tokens are dealt to the
    blocks in the order of how many cells they occupy, so that all blocks hold about as many.
    `hellinger_gram`, `hellinger_distances`, `split_half_geometry` and `noise_floor` take them,
    without a table `[n, vocab]` at any time. `sparse_counts` and `sparse_counts_from_cells` make
    them, eagerly; `dense()` goes back.

    `a + b` merges the counts of two disjoint sets of documents. The number of occupied cells is a
    shape, so this is done eagerly, too; equal cells become one. What int32 does not hold, at any
    position over all folds, raises `OverflowError`.

    Attributes:
        cells: int32 `[blocks, m]`, (fold·n + position)·width + column; sorted by position, column
            and fold. Padding repeats the last cell of a block and counts nothing.
        counts: int32 `[blocks, m]`.
        columns: int32 `[vocab]`, where each token is, block·width + column.
        per_position: int32 `[n]` or `[folds, n]`, documents with a counted token there.
        documents: int32 scalar.
        dropped: int32 scalar, as in `PositionCounts`.
    """

    cells: Int[Array, "blocks m"]
    counts: Int[Array, "blocks m"]
    columns: Int[Array, " vocab"]
    per_position: Int[Array, "*folds n"]
    documents: Int[Array, ""]
    dropped: Int[Array, ""]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the dense table: `(n, vocab)` or `(folds, n, vocab)`."""
        return (*self.per_position.shape, self.columns.shape[0])

    @property
    def width(self) -> int:
        """Columns of a block."""
        return -(-self.columns.shape[0] // self.cells.shape[0])

    def __add__(self, other: "SparseCounts") -> "SparseCounts":  # pyrefly: ignore
        if self.shape != other.shape:
            raise ValueError(
                f"counts of shape {self.shape} and {other.shape} do not add: count both with the "
                "same length, vocab_size and folds"
            )
        if is_traced(*self, *other):
            raise ValueError("sparse counts add eagerly: their size depends on their values")
        parts = [occupied_cells(self), occupied_cells(other)]
        flat, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        documents = int(self.documents) + int(other.documents)
        dropped = int(self.dropped) + int(other.dropped)
        width = max(self.width, other.width)
        return _laid_out(flat, counts, self.shape, documents, dropped, width)

    __radd__ = tree_add  # of the 0 that `sum` starts from

    def dense(self) -> PositionCounts:
        """Dense counts, with all empty cells."""
        rows, columns = jnp.divmod(self.cells, self.width)
        slots = columns + self.width * jnp.arange(len(self.cells), dtype=jnp.int32)[:, None]
        vocab = self.shape[-1]
        # Every place has a token but for the last columns of a vocabulary that the blocks exceed.
        token = jnp.zeros(len(self.cells) * self.width, jnp.int32)
        token = token.at[self.columns].set(jnp.arange(vocab, dtype=jnp.int32))
        empty = jnp.zeros(self.shape, jnp.int32)
        tokens = scatter_add(empty, rows, token[slots], self.counts)
        return PositionCounts(tokens, self.documents, self.dropped)

    def merged(self) -> "SparseCounts":
        """Counts with the folds summed: each cell occurs once, before the padding."""
        if self.per_position.ndim == 1:
            return self
        cells = self.cells % (self.per_position.shape[-1] * self.width)
        cells, counts, used = jax.vmap(_once)(cells, self.counts)
        if not is_traced(used):
            m = max(int(jnp.max(used)), 1)
            cells, counts = cells[:, :m], counts[:, :m]
        sizes = sum_counts(self.per_position, 0, "tokens of a position in all folds")
        return self._replace(cells=cells, counts=counts, per_position=sizes)


def sparse_counts(counts: PositionCounts, *, block: int = BLOCK) -> SparseCounts:
    """Sparse counts: the occupied cells. Eager, because their number is a shape.

    Args:
        counts: counts of any folds.
        block: columns of the table that are made dense together, at most.

    >>> counts = count_tokens(np.array([[0, 1], [0, 2]]), vocab_size=3)
    >>> sparse = sparse_counts(counts)
    >>> sparse.counts.tolist(), sparse.dense().tokens.tolist()
    ([[2, 1, 1]], [[2, 0, 0], [0, 1, 1]])
    """
    if is_traced(*counts):
        raise ValueError("sparse counts are made eagerly: their size depends on the counts")
    tokens = np.asarray(counts.tokens)
    if tokens.ndim not in (2, 3):
        raise ValueError(f"counts have tokens of shape {tokens.shape}: pass [n, vocab] or in folds")
    flat, (documents, dropped) = np.flatnonzero(tokens), map(int, counts[1:])
    return _laid_out(flat, tokens.reshape(-1)[flat], tokens.shape, documents, dropped, block)


def sparse_counts_from_cells(
    positions: Integer[ArrayLike, " cells"],
    tokens: Integer[ArrayLike, " cells"],
    counts: Integer[ArrayLike, " cells"],
    *,
    length: int,
    vocab_size: int,
    documents: int,
    fold: Integer[ArrayLike, " cells"] | None = None,
    folds: int | None = None,
    block: int = BLOCK,
) -> SparseCounts:
    """Sparse counts from lists of cells, in any order; counts of equal cells add.

    Args:
        positions: positions in `[0, length)`.
        tokens: token ids in `[0, vocab_size)`.
        counts: counts at least 0.
        length, vocab_size, folds: sizes of the table, as in `empty_counts`.
        documents: number of documents counted.
        fold: fold of each cell, in `[0, folds)`; with `folds` alone.
        block: argument of `sparse_counts`.

    >>> ones = np.ones(3, np.int32)
    >>> table = sparse_counts_from_cells(
    ...     np.array([0, 0, 1]), np.array([2, 2, 0]), ones, length=2, vocab_size=3, documents=2
    ... )
    >>> table.dense().tokens.tolist()
    [[0, 0, 2], [1, 0, 0]]
    """
    if (fold is None) != (folds is None):
        raise ValueError("pass fold, of each cell, and folds, their number, or neither")
    shape = (length, vocab_size) if folds is None else (folds, length, vocab_size)
    index = {"positions": positions, "tokens": tokens}
    index = index if fold is None else {"fold": fold, **index}
    if is_traced(counts, *index.values()):
        raise ValueError("sparse counts are made eagerly: their size depends on the counts")
    counts = np.asarray(counts)
    _check_integers("counts", counts)
    for (name, values), size in zip(index.items(), shape, strict=True):
        _refuse_foreign(name, np.asarray(values), counts.shape, size)
    if counts.min(initial=0) < 0:
        raise ValueError(f"counts must be at least 0; one is {counts.min()}")
    if documents < 0:
        raise ValueError(f"documents must be at least 0, not {documents}")
    if counts.max(initial=0) > _INT32_MAX:
        _refuse_more(int(counts.max()), "tokens of a cell")
    counts = counts.astype(np.int64)
    axes = [np.asarray(values, np.int64) for values in index.values()]
    return _laid_out(np.ravel_multi_index(axes, shape), counts, shape, documents, 0, block)


def fold_tables(
    step: Callable[..., Any],
    start: Any,
    counts: SparseCounts,
    *,
    part: Int[Array, " folds"] | None = None,
    parts: int = 1,
) -> Any:
    """Result of step(carry, table) over all blocks of the vocabulary, each dense in its turn.

    A table is int32 `[parts, n, width]`, the folds summed into the parts that `part` says.
    """
    *folds, n = counts.per_position.shape
    size = n * counts.width
    part = jnp.zeros(folds or 1, jnp.int32) if part is None else part

    def body(carry: Any, block: tuple[Array, Array]) -> tuple[Any, None]:
        cells, values = block
        fold, cell = jnp.divmod(cells, size)
        table = jnp.zeros(parts * size, jnp.int32).at[part[fold] * size + cell].add(values)
        return step(carry, table.reshape(parts, n, counts.width)), None

    return jax.lax.scan(body, start, (counts.cells, counts.counts))[0]


def column_totals(counts: SparseCounts) -> Float[Array, "blocks width"]:
    """Number of times that each token occurs at all positions, by blocks."""
    empty = jnp.zeros(counts.width)
    columns = counts.cells % counts.width
    return jax.vmap(lambda at, c: empty.at[at].add(c))(columns, counts.counts.astype(float))


def root_frequencies(
    table: Int[Array, "n width"], total: Int[Array, " n"]
) -> Float[Array, "n width"]:
    """√μ̂ from counts and the total of each position; rows without any are 0."""
    size = jnp.maximum(total, 1).astype(float)
    return jnp.sqrt(table.astype(float) / size[:, None])


def _check_integers(name: str, values: np.ndarray) -> None:
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
        raise ValueError(
            f"{name} is {values.dtype} of shape {values.shape}: pass one integer for each cell"
        )


def _refuse_more(number: int, what: str) -> None:
    raise OverflowError(f"{number} {what} are more than int32 holds, 2**31 - 1: keep parts apart")


def _refuse_foreign(name: str, values: np.ndarray, shape: tuple[int, ...], size: int) -> None:
    _check_integers(name, values)
    if values.shape != shape:
        raise ValueError(f"{name} has shape {values.shape}, counts have {shape}: one for each cell")
    if values.size and (values.min() < 0 or values.max() >= size):
        raise ValueError(f"{name} lies in [{values.min()}, {values.max()}], not in [0, {size})")


def occupied_cells(counts: SparseCounts) -> tuple[np.ndarray, np.ndarray]:
    """Flat indices into the dense table, int64, and the counts of these cells."""
    blocks, width, vocab = len(counts.cells), counts.width, counts.shape[-1]
    token = np.zeros(blocks * width, np.int64)
    token[np.asarray(counts.columns)] = np.arange(vocab)
    values = np.asarray(counts.counts)
    block, slot = np.nonzero(values)
    row, column = np.divmod(np.asarray(counts.cells)[block, slot], width)
    return row.astype(np.int64) * vocab + token[block * width + column], values[block, slot]


def _laid_out(
    flat: np.ndarray,
    counts: np.ndarray,
    shape: tuple[int, ...],
    documents: int,
    dropped: int,
    block: int,
) -> SparseCounts:
    """Sparse counts from flat indices into the dense table, in any order."""
    *folds, n, vocab = shape
    if vocab < 1:
        raise ValueError(f"counts have shape {shape}: pass counts with at least one token")
    tables = int(np.prod(folds, dtype=np.int64))
    blocks = block_count(tables * n, vocab, block)
    width = -(-vocab // blocks)
    flat, counts = _without_repeats(flat[counts > 0], counts[counts > 0])
    row, token = np.divmod(flat, vocab)
    per_position = np.bincount(row, weights=counts, minlength=tables * n)  # each cell is less
    largest = int(per_position.reshape(-1, n).sum(axis=0).max(initial=0))
    numbers = {"tokens of a position": largest, "documents": documents, "dropped tokens": dropped}
    for what, number in numbers.items():
        if number > _INT32_MAX:
            _refuse_more(number, what)
    columns = dealt_columns(np.bincount(token, minlength=vocab), blocks, width)
    number, column = np.divmod(columns[token], width)
    fold, position = np.divmod(row, n)
    order = np.argsort(((number * n + position) * width + column) * tables + fold)
    source, filled = _padded(np.bincount(number, minlength=blocks))
    cells = np.append((row * width + column)[order], 0)[source]  # the last for blocks without any
    values = np.where(filled, np.append(counts[order], 0)[source], 0)
    arrays = cells, values, columns, per_position.reshape(*folds, n), documents, dropped
    return SparseCounts(*(jnp.asarray(np.asarray(array, np.int32)) for array in arrays))


def _padded(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slots [blocks, m] for so many cells: which of a list each holds, and whether it is its."""
    # Padding refers to the last cell of the block; without any, past the end of the list.
    slots = np.arange(max(int(sizes.max()), 1))[None, :]
    last = np.maximum(sizes - 1, 0)[:, None]
    source = (np.cumsum(sizes) - sizes)[:, None] + np.minimum(slots, last)
    return np.where(sizes[:, None] > 0, source, int(sizes.sum())), slots < sizes[:, None]


def block_count(rows: int, vocab: int, block: int) -> int:
    """Number of blocks: as wide as asked for, but no wider than int32 indices reach."""
    check_size("block", block)
    widest = _INT32_MAX // max(rows, 1)
    if widest < 1:
        raise ValueError(f"{rows} positions in all folds are more than int32 counts")
    return -(-vocab // min(block, widest))


def _without_repeats(flat: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted indices, each once, with the sum of the counts at each index."""
    if np.all(flat[1:] > flat[:-1]):
        return flat, counts.astype(np.int64)
    order = np.argsort(flat)
    flat, counts = flat[order], counts[order].astype(np.int64)
    first = np.flatnonzero(np.diff(flat, prepend=-1))
    return flat[first], np.add.reduceat(counts, first)


def dealt_columns(occupied: np.ndarray, blocks: int, width: int) -> np.ndarray:
    """Column of each token: tokens are dealt to the blocks as cards, fullest columns first."""
    order = np.argsort(-occupied, kind="stable")
    rank = np.arange(len(order))
    columns = np.empty(len(order), np.int64)
    columns[order] = rank % blocks * width + rank // blocks
    return columns


def _once(cells: Array, counts: Array) -> tuple[Array, Array, Array]:
    """Sorted cells without repeats, the sum of counts in each, and the number of cells."""
    first = jnp.diff(cells, prepend=jnp.asarray([-1], cells.dtype)) != 0
    slot = jnp.cumsum(first, dtype=jnp.int32) - 1
    once = jnp.full_like(cells, cells[-1]).at[slot].set(cells)
    return once, jnp.zeros_like(counts).at[slot].add(counts), slot[-1] + 1
