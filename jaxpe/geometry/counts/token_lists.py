"""Lists of tokens by word: counts in folds without empty cells, with their documents.

A table in folds, `[folds, n, vocab]`, is larger than the documents it is made of. Frequent words
are dealt to blocks of the vocabulary, each of which becomes a dense table in turn. By Zipf's law
most words are rare: in the built-in corpus five in six have at most 12 tokens. For them pairs of
tokens are summed, which are far fewer than the cells of a column.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Int, Integer, UInt32

from jaxpe._core.arrays import ArrayLike, is_traced, rounded_size
from jaxpe.geometry.counts.position_counts import (
    INT32_MAX,
    PositionCounts,
    checked_ids,
    counted_tokens,
    document_labels,
    fold_of_labels,
)
from jaxpe.geometry.counts.rotations import ended_documents, moving_tokens, rotated_positions

# Pairs grow as the square of the tokens; for more tokens columns are cheaper (measured on a CPU).
MOST_RARE = 12
_RARE_PAIRS = 2**17  # pairs computed at a time
_TABLE = 2**20  # cells of a table in folds; larger blocks are allocated by the system each time
_NARROWEST = 128  # least number of columns of a table, for any number of positions
_CHUNK = 2**14  # tokens added to a table at a time
# Least sizes of arrays, so that small corpora share compiled programs.
_FEW_WORDS, _FEW_RARE, _FEW_TOKENS = 16, 64, 256


class FrequentWords(NamedTuple):
    """Tokens of words that have a column in a table, block by block of the vocabulary.

    Attributes:
        fold, position, column: int32 `[slots]`, where each token is counted.
        count: int32 `[slots]`, how often; 0 in slots that fill up.
        bounds: int32 `[blocks + 1]`, where each block begins, and where the last ends.
        columns: int32 `[words]`, column of each word, block·width + column.
    """

    fold: Int[Array, " slots"]
    position: Int[Array, " slots"]
    column: Int[Array, " slots"]
    count: Int[Array, " slots"]
    bounds: Int[Array, " bounds"]
    columns: Int[Array, " words"]

    @property
    def width(self) -> int:
        """Columns of a block."""
        return -(-self.columns.shape[0] // (self.bounds.shape[0] - 1))

    def fold_tables(self, step: Callable[..., Any], start: Any, *, folds: int, length: int) -> Any:
        """Result of step(carry, table) over all blocks, with tables int32 `[folds, n, width]`."""
        chunk = _chunk_size(self.fold.shape[0])
        inside = {"mode": "promise_in_bounds"}  # tokens outside the vocabulary are not listed

        def add(begin: Array, end: Array, table: Array) -> Array:
            fold, position, column, count = (
                jax.lax.dynamic_slice(x, (begin,), (chunk,)) for x in self[:4]
            )
            before_end = begin + jnp.arange(chunk, dtype=jnp.int32) < end
            cell = (fold * length + position) * self.width + column
            return table.at[cell].add(jnp.where(before_end, count, 0), **inside)

        def body(carry: Any, bounds: tuple[Array, Array]) -> tuple[Any, None]:
            begin, end = bounds
            table = jnp.zeros(folds * length * self.width, jnp.int32)
            if chunk and length:
                chunks = -((begin - end) // chunk)
                table = jax.lax.fori_loop(
                    0, chunks, lambda i, table: add(begin + i * chunk, end, table), table
                )
            return step(carry, table.reshape(folds, length, self.width)), None

        return jax.lax.scan(body, start, (self.bounds[:-1], self.bounds[1:]))[0]


class RareWords(NamedTuple):
    """Tokens of words that have at most `MOST_RARE`, a column of slots for each word.

    Attributes:
        fold, position: int32 `[blocks, slots, words]`, where each token is counted; empty slots
            repeat the last token.
        count: int32 `[blocks, slots, words]`, how often; 0 in empty slots.
    """

    fold: Int[Array, "blocks slots words"]
    position: Int[Array, "blocks slots words"]
    count: Int[Array, "blocks slots words"]


class Documents(NamedTuple):
    """The documents of token lists, which rotations need.

    Attributes:
        frequent, rare: int32, document of each token; as `position` of the lists.
        labels: uint32 `[documents]`; documents of one label are rotated alike.
        counted: bool `[documents, n]`, where a token is counted.
        ended: bool `[documents]`, documents whose last token stays.
    """

    frequent: Int[Array, " slots"]
    rare: Int[Array, "blocks slots words"] | None
    labels: UInt32[Array, " documents"]
    counted: Bool[Array, "documents n"]
    ended: Bool[Array, " documents"]


class TokenLists(NamedTuple):
    """Counts in folds of documents, as lists of tokens by word; a pytree.

    Estimates from split halves take them instead of `PositionCounts`, in a fraction of the time.
    Words of a single fold are left out: products of halves are 0 for them.

    Attributes:
        frequent: tokens of frequent words.
        rare: tokens of rare words; None where there are none, and under `jit`.
        per_position: int32 `[folds, n]`, documents with a counted token at each position.
        documents: documents to rotate; None for lists made of counts.
    """

    frequent: FrequentWords
    rare: RareWords | None
    per_position: Int[Array, "folds n"]
    documents: Documents | None

    def rotated(self, key: Array, *, ends_move: bool = False) -> "TokenLists":
        """Token lists of rotated documents, as `rotate_within_documents` rotates them.

        Args:
            key: PRNG key of the offsets.
            ends_move: rotate the last token of each document, too: the null of positions counted
                from the end, where the token that ends a document is an effect.

        >>> lists = token_lists(np.array([[0, 1], [1, 0]]), vocab_size=2, folds=2)
        >>> lists.rotated(jax.random.key(0)).per_position.sum().item()
        4
        """
        if self.documents is None:
            raise ValueError("lists of counts have no documents: pass token_lists(ids, ...)")
        if not self.documents.counted.size:
            return self
        documents = self.documents
        if ends_move:
            documents = documents._replace(ended=jnp.zeros_like(documents.ended))
        frequent, rare = _rotated_lists(self.frequent, self.rare, documents, key)
        return self._replace(frequent=frequent, rare=rare)


@jax.jit
def _rotated_lists(
    frequent: FrequentWords, rare: RareWords | None, documents: Documents, key: Array
) -> tuple[FrequentWords, RareWords | None]:
    moves = moving_tokens(documents.counted, documents.ended)
    target = rotated_positions(key, moves, documents.labels, inverse=True)
    frequent = frequent._replace(position=target[documents.frequent, frequent.position])
    if rare is not None:
        rare = rare._replace(position=target[documents.rare, rare.position])
    return frequent, rare


def token_lists(
    ids: Integer[ArrayLike, "documents n"],
    *,
    vocab_size: int,
    folds: int,
    mask: Bool[ArrayLike, "documents n"] | None = None,
    exclude: Sequence[int] = (),
    groups: Integer[ArrayLike, " documents"] | None = None,
    ended: Bool[ArrayLike, " documents"] | None = None,
) -> TokenLists:
    """List the tokens of documents by word, for split halves of documents and their rotations.

    Under `jit`, where words cannot be read, all are in one block.

    Args:
        ids, vocab_size, mask, exclude, folds, groups: arguments of `count_tokens`.
        ended: argument of `rotate_within_documents`.

    >>> lists = token_lists(np.array([[0, 1], [0, 2]] * 20), vocab_size=3, folds=4)
    >>> split_half_geometry(lists, key=jax.random.key(0)).gram.shape
    (2, 2)
    """
    ids, mask = checked_ids(ids, mask, vocab_size, exclude)
    labels = document_labels(ids, mask, groups)
    fold = fold_of_labels(labels, folds)
    counted = counted_tokens(ids, mask, vocab_size, tuple(exclude))
    per_position = _sums_of_folds(counted, fold, folds)
    ended = jnp.asarray(ended_documents(mask, ended))
    if is_traced(ids, counted, fold):
        return _one_block(ids, fold, (labels, counted, ended), per_position, vocab_size)
    position, document = np.nonzero(np.asarray(counted).T)
    cells = _Cells(
        np.asarray(fold)[document],
        position,
        np.asarray(ids)[document, position],
        np.ones(len(position), np.int32),
        document,
    )
    lists, frequent_documents, rare_documents = _split_lists(cells, per_position, vocab_size)
    documents = Documents(frequent_documents, rare_documents, labels, counted, ended)  # pyrefly: ignore
    return lists._replace(documents=documents)


@partial(jax.jit, static_argnums=2, inline=True)
def _sums_of_folds(counted: Array, fold: Array, folds: int) -> Array:
    """Number of counted tokens of each fold at each position."""
    return jax.ops.segment_sum(counted.astype(jnp.int32), fold, folds)


def _one_block(
    ids: ArrayLike,
    fold: Array,
    documents: tuple[Array, Array, Array],
    per_position: Array,
    vocab_size: int,
) -> TokenLists:
    """All words in one block, as they stand; labels, counted and ended are of the documents."""
    (_, counted, _), (folds, n) = documents, per_position.shape
    if block_count(folds * n, vocab_size, vocab_size) > 1:
        raise ValueError(
            f"{folds} folds x {n} positions x {vocab_size} words are more than int32 counts: call "
            "it outside of jit, or pass fewer folds"
        )
    document, position = jnp.indices(ids.shape, dtype=jnp.int32)
    column = jnp.where(counted, ids, 0)
    lists = (jnp.broadcast_to(fold[:, None], ids.shape), position, column, counted, document)
    filled = (0, _slots(ids.size) - ids.size)
    lists = [jnp.pad(x.astype(jnp.int32).reshape(-1), filled) for x in lists]
    bounds = jnp.array([0, ids.size], jnp.int32)
    columns = jnp.arange(vocab_size, dtype=jnp.int32)
    frequent = FrequentWords(*lists[:4], bounds, columns)  # pyrefly: ignore
    return TokenLists(frequent, None, per_position, Documents(lists[4], None, *documents))


def listed_counts(counts: PositionCounts) -> TokenLists:
    """Token lists of counts in folds, eagerly: a token for each occupied cell."""
    tokens = np.asarray(counts.tokens)
    flat = np.flatnonzero(tokens != 0)  # booleans are searched several times faster
    fold, position, word = np.unravel_index(flat, tokens.shape)
    cells = _Cells(fold, position, word, tokens.reshape(-1)[flat])
    return _split_lists(cells, jnp.asarray(counts.per_position), tokens.shape[-1])[0]


class _Cells(NamedTuple):
    """Occupied cells of a table, and the document of each token, `[tokens]`."""

    fold: np.ndarray
    position: np.ndarray
    word: np.ndarray
    count: np.ndarray
    document: np.ndarray | None = None

    def chosen(self, words: np.ndarray) -> tuple["_Cells", int]:
        """Tokens of the words in a mask `[words]`, numbered anew, and the number of words."""
        chosen, number = words[self.word], np.cumsum(words) - 1
        cells = jax.tree.map(lambda x: x[chosen], self)
        return cells._replace(word=number[cells.word]), int(words.sum())


def _split_lists(
    cells: _Cells, per_position: Array, vocab_size: int
) -> tuple[TokenLists, Array | None, Array | None]:
    """Lists of the frequent and rare words that occur in several folds, and their documents."""
    folds, n = per_position.shape
    occurs = np.zeros((folds, vocab_size), bool)
    occurs[cells.fold, cells.word] = True
    number = np.bincount(cells.word, minlength=vocab_size)
    # A word in a single fold is missing in one of two halves, so its products are 0.
    shared = occurs.sum(axis=0) > 1
    rare = shared & (number <= MOST_RARE)
    frequent, document = _frequent(*cells.chosen(shared & ~rare), folds=folds, length=n)
    slots, rare_document = _rare(*cells.chosen(rare)) if rare.any() else (None, None)
    return TokenLists(frequent, slots, per_position, None), document, rare_document


def _frequent(
    cells: _Cells, words: int, *, folds: int, length: int
) -> tuple[FrequentWords, Array | None]:
    words = rounded_size(max(words, _FEW_WORDS))
    rows = max(folds * length, 1)
    blocks = block_count(rows, words, max(_TABLE // rows, _NARROWEST))
    width = -(-words // blocks)
    columns = dealt_columns(np.bincount(cells.word, minlength=words), blocks, width)
    block, column = np.divmod(columns, width)
    number = block.astype(np.min_scalar_type(blocks))[cells.word]  # few bits sort fastest
    order = np.argsort(number, kind="stable")
    bounds = np.append(0, np.cumsum(np.bincount(number, minlength=blocks)))
    slots = _slots(rounded_size(max(len(order), _FEW_TOKENS)))

    def laid_out(values: np.ndarray) -> np.ndarray:
        filled = np.zeros(slots, np.int32)
        filled[: len(order)] = values[order]
        return filled

    lists = cells.fold, cells.position, column[cells.word], cells.count
    arrays = [*map(laid_out, lists), bounds.astype(np.int32), columns.astype(np.int32)]
    document = None if cells.document is None else jnp.asarray(laid_out(cells.document))
    return FrequentWords(*jax.device_put(arrays)), document


def _rare(cells: _Cells, words: int) -> tuple[RareWords, Array | None]:
    """Rare words in columns of `MOST_RARE` slots, cut into blocks of about `_RARE_PAIRS` pairs."""
    number = np.bincount(cells.word, minlength=words)
    order = np.argsort(cells.word, kind="stable")
    rounded = rounded_size(max(words, _FEW_RARE), steps=4)
    blocks = -(-rounded * MOST_RARE**2 // _RARE_PAIRS)
    missing = blocks * -(-rounded // blocks) - words
    first, number = (np.pad(x, (0, missing)) for x in (np.cumsum(number) - number, number))
    slot = np.arange(MOST_RARE)[:, None]
    source = np.append(order, 0)[first + np.minimum(slot, np.maximum(number - 1, 0))]

    def laid_out(slots: np.ndarray) -> np.ndarray:
        slots = slots.astype(np.int32).reshape(MOST_RARE, blocks, -1)
        return np.ascontiguousarray(slots.swapaxes(0, 1))

    count = np.where(slot < number, cells.count[source], 0)
    arrays = [laid_out(x) for x in (cells.fold[source], cells.position[source], count)]
    document = None if cells.document is None else jnp.asarray(laid_out(cells.document[source]))
    return RareWords(*jax.device_put(arrays)), document


def _chunk_size(slots: int) -> int:
    """Tokens added at a time, which is also the room that `_slots` leaves after the last token."""
    return min(_CHUNK, slots // 2)


def _slots(tokens: int) -> int:
    """Slots for so many tokens, with room for a chunk that begins at the last of them."""
    return tokens + min(_CHUNK, tokens)


def block_count(rows: int, vocab: int, block: int) -> int:
    """Number of blocks: as wide as asked for, but no wider than int32 indices reach."""
    widest = INT32_MAX // max(rows, 1)
    if widest < 1:
        raise ValueError(f"{rows} positions in all folds are more than int32 counts")
    return -(-vocab // min(block, widest))


def dealt_columns(occupied: np.ndarray, blocks: int, width: int) -> np.ndarray:
    """Column of each token: tokens are dealt to the blocks as cards, fullest columns first."""
    order = np.argsort(-occupied, kind="stable")
    rank = np.arange(len(order))
    columns = np.empty(len(order), np.int64)
    columns[order] = rank % blocks * width + rank // blocks
    return columns
