"""Lists of tokens: counts in folds without empty cells, with their documents, on the host.

A table in folds, `[folds, n, vocab]`, is larger than the documents it is made of. By Zipf's law
most words are rare: in the built-in corpus five in six have at most 12 tokens. Lists are NumPy
arrays, because their sizes are new with every corpus, and nothing differentiates them.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Integer, UInt32

from jaxpe._core.arrays import ArrayLike, is_traced
from jaxpe.geometry.counts.position_counts import (
    PositionCounts,
    checked_ids,
    document_labels,
    fold_of_labels,
)
from jaxpe.geometry.counts.rotations import ended_documents, rotation_shares


class Cells(NamedTuple):
    """The occupied cells of a table of words and positions, by word and then by position.

    Attributes:
        word, position: int `[cells]`.
        counts: float32 `[cells, folds]`.
    """

    word: Int[np.ndarray, " cells"]
    position: Int[np.ndarray, " cells"]
    counts: Float[np.ndarray, "cells folds"]


class Documents(NamedTuple):
    """The documents of token lists, which rotations need.

    Attributes:
        labels: uint32 `[documents]`; documents of one label are rotated alike.
        counted: bool `[documents, n]`, where a token is counted.
        ended: bool `[documents]`, documents whose last token stays.
    """

    labels: UInt32[np.ndarray, " documents"]
    counted: Bool[np.ndarray, "documents n"]
    ended: Bool[np.ndarray, " documents"]


class TokenLists(NamedTuple):
    """Counts in folds of documents, as a list of tokens.

    Estimates from split halves take them instead of `PositionCounts`, in a fraction of the time.
    Words of a single fold are left out: products of halves are 0 for them.

    Attributes:
        fold, position, word: int `[tokens]`, where each token is counted. Words are numbered from
            the most frequent one; tokens stand by word.
        count: int `[tokens]`, how often.
        document: int `[tokens]`, the document of each token; 0 for lists made of counts.
        per_position: int32 `[folds, n]`, documents with a counted token at each position.
        documents: documents to rotate; None for lists made of counts.
    """

    fold: Int[np.ndarray, " tokens"]
    position: Int[np.ndarray, " tokens"]
    word: Int[np.ndarray, " tokens"]
    count: Int[np.ndarray, " tokens"]
    document: Int[np.ndarray, " tokens"]
    per_position: Int[np.ndarray, "folds n"]
    documents: Documents | None

    @property
    def words(self) -> int:
        """Number of words in the lists."""
        return int(self.word[-1]) + 1 if len(self.word) else 0

    def rotated(self, key: jax.Array, *, ends_move: bool = False) -> "TokenLists":
        """Token lists of rotated documents, as `rotate_within_documents` rotates them.

        Args:
            key: PRNG key of the offsets.
            ends_move: rotate the last token of each document, too: the null of positions counted
                from the end, where the token that ends a document is an effect.

        >>> lists = token_lists(np.array([[0, 1], [1, 0]]), vocab_size=2, folds=2)
        >>> lists.rotated(jax.random.key(0)).per_position.sum().item()
        4
        """
        (rotated,) = self.rotations([key], ends_move=ends_move)
        return rotated

    def rotations(
        self, keys: Sequence[jax.Array] | jax.Array, *, ends_move: bool = False
    ) -> "Rotations":
        """Token lists of rotated documents, one for each PRNG key, made when they are asked for."""
        return Rotations(self, keys, ends_move=ends_move)

    def chosen(self, tokens: slice | np.ndarray) -> "TokenLists":
        """Lists of some of the tokens, as they stand."""
        fields = ("fold", "position", "word", "count", "document")
        return self._replace(**{name: getattr(self, name)[tokens] for name in fields})

    def cells(self) -> Cells:
        """The occupied cells, with their counts in each fold."""
        folds, n = self.per_position.shape
        cell, at = np.unique(self.word.astype(np.int64) * n + self.position, return_inverse=True)
        counts = np.zeros((len(cell), folds), np.float32)
        np.add.at(counts, (at, self.fold), self.count)
        word, position = (x.astype(np.int32) for x in np.divmod(cell, n))
        return Cells(word, position, counts)


class Rotations(Sequence[TokenLists]):
    """Rotated documents, each made when it is asked for: all at once may not fit in memory."""

    def __init__(
        self, lists: TokenLists, keys: Sequence[jax.Array] | jax.Array, *, ends_move: bool
    ) -> None:
        documents = lists.documents
        if documents is None:
            raise ValueError("lists of counts have no documents: pass token_lists(ids, ...)")
        counted, ended = documents.counted, documents.ended & (not ends_move)
        later = np.cumsum(counted[:, ::-1], axis=1, dtype=np.int32)[:, ::-1]
        moves = counted & ((later > 1) | ~ended[:, None])
        self._lists, self._keys, self._labels = lists, list(keys), documents.labels
        # Of the tokens that move, the columns, document by document; and where each listed one is.
        self._number = moves.sum(axis=1, dtype=np.int32)
        self._columns = np.nonzero(moves)[1].astype(np.int32)
        rank = (np.cumsum(moves, axis=1, dtype=np.int32) - 1)[lists.document, lists.position]
        self._moved = np.flatnonzero(moves[lists.document, lists.position]).astype(np.int32)
        self._rank = rank[self._moved]

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            some = copy(self)
            some._keys = self._keys[at]
            return some
        document, first = self._lists.document[self._moved], np.cumsum(self._number) - self._number
        share = rotation_shares(self._keys[at], self._labels)
        offset = np.floor(share * self._number.astype(share.dtype)).astype(np.int32)
        turned, number = self._rank + offset[document], self._number[document]
        turned -= number * (turned >= number)
        position = self._lists.position.copy()
        position[self._moved] = self._columns[first[document] + turned]
        return self._lists._replace(position=position)


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

    Args:
        ids, vocab_size, mask, exclude, folds, groups: arguments of `count_tokens`.
        ended: argument of `rotate_within_documents`.

    Raises:
        ValueError: as `count_tokens`; arguments that are traced, as inside `jit`.

    >>> lists = token_lists(np.array([[0, 1], [0, 2]] * 20), vocab_size=3, folds=4)
    >>> split_half_geometry(lists, key=jax.random.key(0)).gram.shape
    (2, 2)
    """
    if is_traced(ids, mask, groups, ended):
        raise ValueError(
            "token lists have sizes that depend on the documents: inside jit pass "
            f"count_tokens(ids, ..., folds={folds})"
        )
    ids, mask = map(np.asarray, checked_ids(ids, mask, vocab_size, exclude))
    labels = np.asarray(document_labels(ids, mask, groups))
    counted = mask & ~np.isin(ids, exclude)
    documents = Documents(labels, counted, np.asarray(ended_documents(mask, ended)))
    fold = np.asarray(fold_of_labels(labels, folds))
    document, position = (x.astype(np.int32) for x in np.nonzero(counted))
    cell = fold[document] * ids.shape[1] + position
    per_position = np.bincount(cell, minlength=folds * ids.shape[1]).astype(np.int32)
    count, word = np.ones(len(document), np.int32), ids[document, position]
    tokens = fold[document], position, word, count, document
    return _shared_words(*tokens, per_position.reshape(folds, -1), documents)


def listed_counts(counts: PositionCounts) -> TokenLists:
    """Token lists of counts in folds: a token for each occupied cell."""
    table = np.asarray(counts.tokens)
    flat = np.flatnonzero(table != 0)  # booleans are searched several times faster
    fold, position, word = (x.astype(np.int32) for x in np.unravel_index(flat, table.shape))
    tokens = fold, position, word, table.reshape(-1)[flat], np.zeros(len(flat), np.int32)
    return _shared_words(*tokens, np.asarray(counts.per_position), None)


def _shared_words(
    fold: np.ndarray,
    position: np.ndarray,
    word: np.ndarray,
    count: np.ndarray,
    document: np.ndarray,
    per_position: np.ndarray,
    documents: Documents | None,
) -> TokenLists:
    """Lists of the words that occur in several folds, by word."""
    folds, vocab_size = len(per_position), int(word.max(initial=-1)) + 1
    occurs = np.zeros((folds, vocab_size), bool)
    occurs[fold, word] = True
    # A word in a single fold is missing in one of two halves, so its products are 0.
    number = np.where(occurs.sum(axis=0) > 1, np.bincount(word, minlength=vocab_size), 0)
    names = np.empty(vocab_size, np.int32)
    names[np.argsort(-number, kind="stable")] = np.arange(vocab_size, dtype=np.int32)
    word, kept = names[word], number[word] > 0
    order = np.flatnonzero(kept)
    order = order[np.argsort(word[order], kind="stable")]
    lists = TokenLists(fold, position, word, count, document, per_position, documents)
    return lists.chosen(order)
