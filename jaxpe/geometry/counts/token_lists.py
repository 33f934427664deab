"""Tokens one by one, of which counts are made again and again: of shuffles.

A table in folds, `[folds, n, vocab]`, is larger than the documents it is made of. Here tokens are
dealt to blocks of the vocabulary once; another order within the documents then is other numbers in
the same arrays.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Int, Integer

from jaxpe._core.arrays import ArrayLike, is_traced, rounded_size
from jaxpe.geometry.counts.position_counts import fold_of_documents
from jaxpe.geometry.counts.sparse import BLOCK, blocks_of, dealt

# Sizes of arrays at least, so that programs of one small corpus serve others.
_FEW_WORDS, _FEW_TOKENS = 16, 256
_CHUNK = 2**14  # tokens that are added to a table at a time


class Occurrences(NamedTuple):
    """The counted tokens of documents in folds, in the order of the blocks; a pytree.

    Attributes:
        cell: int32 `[slots]`, fold·n·width + column: index of each token's fold and word in the
            table of its block, at position 0.
        document, position: int32 `[slots]`, where it stands.
        there: bool `[slots]`, false on what is not counted.
        bounds: int32 `[blocks + 1]`, where each block begins, and where the last ends.
        columns: int32 `[vocab]`, where each word is, block·width + column.
        fold: int32 `[documents]`.
        counted: bool `[documents, n]`, where a token is counted, of a word left out as well.
        folds: int32 `[folds]`, 0, 1, ...
    """

    cell: Int[Array, " slots"]
    document: Int[Array, " slots"]
    position: Int[Array, " slots"]
    there: Bool[Array, " slots"]
    bounds: Int[Array, " bounds"]
    columns: Int[Array, " vocab"]
    fold: Int[Array, " documents"]
    counted: Bool[Array, "documents n"]
    folds: Int[Array, " folds"]

    @property
    def width(self) -> int:
        """Columns of a block."""
        return -(-self.columns.shape[0] // (self.bounds.shape[0] - 1))

    @property
    def per_position(self) -> Int[Array, "folds n"]:
        """Number of documents with a counted token at each position."""
        rows = self.counted.astype(jnp.int32)
        return jax.ops.segment_sum(rows, self.fold, len(self.folds))

    def fold_tables(
        self,
        step: Callable[..., Any],
        start: Any,
        places: Int[Array, "documents n"] | None = None,
    ) -> Any:
        """Result of step(carry, table) over all blocks of the vocabulary, each dense in its turn.

        Args:
            step: function of the carry and of a table, int32 `[folds, n, width]`.
            start: first carry.
            places: where the tokens are moved to, a permutation of the counted places of each
                document.
        """
        documents, n = self.counted.shape
        tables = len(self.folds)
        listed = self.cell, self.document, self.position, self.there
        chunk = _chunk_of(self.cell.shape[0])
        inside = {"mode": "promise_in_bounds"}  # tokens outside the vocabulary are not counted

        def add(begin: Array, end: Array, table: Array) -> Array:
            cell, document, position, there = (
                jax.lax.dynamic_slice(x, (begin,), (chunk,)) for x in listed
            )
            moved = position if places is None else places.at[document, position].get(**inside)
            own = there & (begin + jnp.arange(chunk, dtype=jnp.int32) < end)
            return table.at[cell + moved * self.width].add(own.astype(jnp.int32), **inside)

        def body(carry: Any, bounds: tuple[Array, Array]) -> tuple[Any, None]:
            begin, end = bounds
            table = jnp.zeros(tables * n * self.width, jnp.int32)
            if documents * n:
                chunks = -((begin - end) // chunk)
                table = jax.lax.fori_loop(
                    0, chunks, lambda i, table: add(begin + i * chunk, end, table), table
                )
            return step(carry, table.reshape(tables, n, self.width)), None

        return jax.lax.scan(body, start, (self.bounds[:-1], self.bounds[1:]))[0]


def _chunk_of(slots: int) -> int:
    """Tokens that are added at a time: what `_slots_for` leaves behind the last token."""
    return min(_CHUNK, slots // 2)


def _slots_for(tokens: int) -> int:
    """Slots for so many tokens, so that a chunk that begins with any of them is inside."""
    return tokens + min(_CHUNK, tokens)


def occurrences_of(
    ids: Integer[ArrayLike, "documents n"],
    counted: Bool[ArrayLike, "documents n"],
    groups: Integer[ArrayLike, " documents"] | None,
    *,
    vocab_size: int,
    folds: int,
) -> Occurrences:
    """The counted tokens of documents, in blocks of the vocabulary.

    Eagerly, sizes are rounded up, so that corpora of about one size share a program. Under `jit`,
    where words cannot be looked at, all are in one block.

    Args:
        ids: token ids in `[0, vocab_size)` where counted.
        counted: true where a token is counted.
        groups: argument of `count_tokens`.
        vocab_size, folds: sizes of the counts.
    """
    fold = fold_of_documents(ids, counted, folds=folds, groups=groups)
    if is_traced(ids, counted, fold):
        return _traced(ids, counted, fold, vocab_size=vocab_size, folds=folds)
    listed = listed_tokens(ids, counted, vocab_size=vocab_size)
    return dealt_tokens(listed, fold, counted, folds=folds)


def _traced(
    ids: ArrayLike, counted: ArrayLike, fold: Array, *, vocab_size: int, folds: int
) -> Occurrences:
    """All words in one block, as they stand."""
    if blocks_of(folds * ids.shape[1], vocab_size, vocab_size) > 1:
        raise ValueError(
            f"{folds} folds x {ids.shape[1]} positions x {vocab_size} words are more than int32 "
            "counts: call it outside of jit, or pass fewer folds"
        )
    there = jnp.asarray(counted)
    document, position = jnp.indices(ids.shape, dtype=jnp.int32)
    column = jnp.where(there, ids, 0).astype(jnp.int32)
    cell = fold[:, None] * (ids.shape[1] * vocab_size) + column
    behind = (0, _slots_for(ids.size) - ids.size)
    lists = [jnp.pad(x.reshape(-1), behind) for x in (cell, document, position, there)]
    bounds = jnp.array([0, ids.size], jnp.int32)
    columns, numbers = (jnp.arange(size, dtype=jnp.int32) for size in (vocab_size, folds))
    return Occurrences(*lists, bounds, columns, fold, there, numbers)  # pyrefly: ignore


class ListedTokens(NamedTuple):
    """Counted tokens, in the order of their positions.

    Attributes:
        position, document, word: integers `[tokens]`; words are numbered from 0.
        words: number of words.
    """

    position: np.ndarray
    document: np.ndarray
    word: np.ndarray
    words: int

    def of_words(self, kept: np.ndarray) -> "ListedTokens":
        """The tokens of some words, bool `[words]`, which are numbered anew."""
        own, number = kept[self.word], np.cumsum(kept) - 1
        return ListedTokens(
            self.position[own], self.document[own], number[self.word[own]], int(kept.sum())
        )


def listed_tokens(ids: ArrayLike, counted: ArrayLike, *, vocab_size: int) -> ListedTokens:
    """The counted tokens of documents; arguments are those of `occurrences_of`."""
    position, document = np.nonzero(np.asarray(counted).T)
    return ListedTokens(position, document, np.asarray(ids)[document, position], vocab_size)


def shared_words(listed: ListedTokens, fold: ArrayLike) -> Bool[np.ndarray, " words"]:
    """Mask of the words that several folds have.

    Of a word in a single fold one of two halves has none, and products of the halves are 0.
    """
    own = np.asarray(fold)[listed.document].astype(np.int64)
    seen = np.zeros((int(own.max(initial=0)) + 1, listed.words), bool)
    seen[own, listed.word] = True
    return seen.sum(axis=0) > 1


def dealt_tokens(
    listed: ListedTokens,
    fold: ArrayLike,
    counted: ArrayLike,
    *,
    folds: int,
    block: int = BLOCK,
) -> Occurrences:
    """Tokens in blocks of at most so many words, on the device."""
    position, document, word, vocab_size = listed
    words = rounded_size(max(vocab_size, _FEW_WORDS))
    blocks = blocks_of(folds * counted.shape[1], words, block)
    width = -(-words // blocks)
    columns = dealt(np.bincount(word, minlength=words), blocks, width)
    block_of, column_of = np.divmod(columns, width)
    number = block_of.astype(np.min_scalar_type(blocks))[word]  # few bits are sorted soonest
    order = np.argsort(number, kind="stable")
    bounds = np.append(0, np.cumsum(np.bincount(number, minlength=blocks)))
    slots = _slots_for(rounded_size(max(len(word), _FEW_TOKENS)))

    def laid_out(values: np.ndarray) -> np.ndarray:
        laid = np.zeros(slots, np.int32)
        laid[: len(order)] = values[order]
        return laid

    first = np.asarray(fold) * np.int32(counted.shape[1] * width)  # cell of each document's fold
    cell = first[document] + column_of.astype(np.int32)[word]
    lists = [laid_out(x) for x in (cell, document, position)]
    there, numbers = np.arange(slots) < len(order), np.arange(folds, dtype=np.int32)
    places = bounds.astype(np.int32), columns.astype(np.int32)
    arrays = (*lists, there, *places, np.asarray(fold), np.asarray(counted), numbers)
    return jax.device_put(Occurrences(*arrays))  # pyrefly: ignore
