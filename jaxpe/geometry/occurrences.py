"""Tokens one by one, of which counts are made again and again: of resamples and shuffles.

A table in folds, `[folds, n, vocab]`, is larger than the documents it is made of. Here tokens are
dealt to the blocks of `SparseCounts` once; another weight of the documents, or another order within
them, then is other numbers in the same arrays.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Int, Integer

from jaxpe._core.arrays import ArrayLike, is_traced, rounded_size
from jaxpe.geometry.counts import fold_of_documents
from jaxpe.geometry.sparse import BLOCK, SparseCounts, blocks_of, dealt

# Sizes of arrays at least, so that programs of one small corpus serve others.
_FEW_WORDS, _FEW_TOKENS = 16, 256


class Occurrences(NamedTuple):
    """The counted tokens of documents in folds; a pytree.

    Attributes:
        column: int32 `[blocks, m]`, of each token within its block of the vocabulary; sorted by
            position, column and fold where they were looked at.
        document, position: int32 `[blocks, m]`, where it stands.
        there: bool `[blocks, m]`, false on what fills up.
        columns: int32 `[vocab]`, where each word is, as in `SparseCounts`.
        fold: int32 `[documents]`.
        counted: bool `[documents, n]`, where a token is counted, of a word left out as well.
        folds: int32 `[folds]`, 0, 1, ...
    """

    column: Int[Array, "blocks m"]
    document: Int[Array, "blocks m"]
    position: Int[Array, "blocks m"]
    there: Bool[Array, "blocks m"]
    columns: Int[Array, " vocab"]
    fold: Int[Array, " documents"]
    counted: Bool[Array, "documents n"]
    folds: Int[Array, " folds"]

    def counts(
        self,
        *,
        repeats: Integer[ArrayLike, " documents"] | None = None,
        places: Int[Array, "documents n"] | None = None,
    ) -> SparseCounts:
        """Sparse counts of the documents, each so often, its tokens moved to these places.

        With `places`, a permutation of the counted places of each document, cells are in no order:
        such counts are for `split_half_geometry`, and not to be merged.
        """
        documents, n = self.counted.shape
        width = -(-self.columns.shape[0] // self.column.shape[0])
        weight = jnp.ones(documents, jnp.int32) if repeats is None else jnp.asarray(repeats)
        cells = values = jnp.zeros_like(self.column)
        if documents:
            position = self.position if places is None else places[self.document, self.position]
            cells = (self.fold[self.document] * n + position) * width + self.column
            values = jnp.where(self.there, weight[self.document], 0)
        rows = jnp.where(self.counted, weight[:, None], 0)
        per_position = jax.ops.segment_sum(rows, self.fold, len(self.folds))
        total, nothing = jnp.sum(weight, dtype=jnp.int32), jnp.asarray(0, jnp.int32)
        return SparseCounts(cells, values, self.columns, per_position, total, nothing)


def occurrences_of(
    ids: Integer[ArrayLike, "documents n"],
    counted: Bool[ArrayLike, "documents n"],
    groups: Integer[ArrayLike, " documents"] | None,
    *,
    vocab_size: int,
    folds: int,
    only_shared: bool = False,
) -> Occurrences:
    """The counted tokens of documents, in blocks of the vocabulary.

    Eagerly, sizes are rounded up, so that corpora of about one size share a program. Under `jit`,
    where words cannot be looked at, all are in one block.

    Args:
        ids: token ids in `[0, vocab_size)` where counted.
        counted: true where a token is counted.
        groups: argument of `count_tokens`.
        vocab_size, folds: sizes of the counts.
        only_shared: leave out, where words can be looked at, those of a single fold: one of two
            halves is without them, and products of the halves are 0.
    """
    fold = fold_of_documents(ids, counted, folds=folds, groups=groups)
    if is_traced(ids, counted, fold):
        document, position = jnp.indices(ids.shape, dtype=jnp.int32).reshape(2, 1, -1)
        there = jnp.reshape(counted, (1, -1))
        column = jnp.where(there, jnp.reshape(ids, (1, -1)), 0).astype(jnp.int32)
        columns = jnp.arange(vocab_size, dtype=jnp.int32)
        if blocks_of(folds * ids.shape[1], vocab_size, vocab_size) > 1:
            raise ValueError(
                f"{folds} folds x {ids.shape[1]} positions x {vocab_size} words are more than "
                "int32 counts: call it outside of jit, or pass fewer folds"
            )
        numbers = jnp.arange(folds, dtype=jnp.int32)
        everywhere = jnp.asarray(counted)
        return Occurrences(column, document, position, there, columns, fold, everywhere, numbers)
    listed = listed_tokens(ids, counted, fold, vocab_size=vocab_size, only_shared=only_shared)
    return dealt_tokens(listed, fold, counted, folds=folds)


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


def listed_tokens(
    ids: ArrayLike, counted: ArrayLike, fold: ArrayLike, *, vocab_size: int, only_shared: bool
) -> ListedTokens:
    """The counted tokens of documents; arguments are those of `occurrences_of`."""
    position, document = np.nonzero(np.asarray(counted).T)  # the rows of a table in their order
    listed = ListedTokens(position, document, np.asarray(ids)[document, position], vocab_size)
    if not only_shared:
        return listed
    own = np.asarray(fold)[document].astype(np.int64)
    seen = np.zeros((int(own.max(initial=0)) + 1, vocab_size), bool)
    seen[own, listed.word] = True
    return listed.of_words(seen.sum(axis=0) > 1)


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
    own = np.asarray(fold)
    words = rounded_size(max(vocab_size, _FEW_WORDS))
    blocks = blocks_of(folds * counted.shape[1], words, block)
    width = -(-words // blocks)
    columns = dealt(np.bincount(word, minlength=words), blocks, width)
    number, column = np.divmod(columns[word], width)
    row = number * counted.shape[1] + position
    order = np.argsort((row * width + column) * folds + own[document], kind="stable")
    sizes = np.bincount(number, minlength=blocks)
    slots = np.arange(rounded_size(int(sizes.max(initial=_FEW_TOKENS))))
    # Padding refers to the last token of its block; in a block without any, to the first of all.
    last = np.maximum(np.cumsum(sizes) - 1, 0)[:, None]
    source = np.minimum((np.cumsum(sizes) - sizes)[:, None] + slots, last)
    there = slots < sizes[:, None]
    lists = [np.append(x[order], 0)[source].astype(np.int32) for x in (column, document, position)]
    numbers = np.arange(folds, dtype=np.int32)
    arrays = (*lists, there, columns.astype(np.int32), own, np.asarray(counted), numbers)
    return jax.device_put(Occurrences(*arrays))  # pyrefly: ignore
