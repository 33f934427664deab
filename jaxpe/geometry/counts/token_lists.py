"""Lists of tokens by word: counts in folds without empty cells, with their documents.

A table in folds, `[folds, n, vocab]`, is larger than the documents it is made of. Frequent words
are dealt to blocks of the vocabulary, each of which becomes a dense table in turn. By Zipf's law
most words are rare: in the built-in corpus five in six have at most 12 tokens. For them pairs of
tokens are summed, which are far fewer than the cells of a column. Dense blocks for all words took
2.3 times as long there (4.0 s of CPU for the halves of a report, in place of 1.7 s).
"""

from collections.abc import Callable, Sequence
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
_PAIRS = 2**16  # pairs summed at a time
_TABLE = 2**20  # cells of a table in folds; larger blocks are allocated by the system each time
_NARROWEST = 128  # least number of columns of a table, for any number of positions
# Least sizes of arrays, so that small corpora share compiled programs.
_FEW_WORDS, _FEW_TOKENS, _FEW_PAIRS = 64, 256, 4096


class Tokens(NamedTuple):
    """A list of counted tokens.

    Attributes:
        fold, position, word: int32 `[tokens]`, where each token is counted. Words are numbered by
            block and column; rare words follow.
        count: int32 `[tokens]`, how often; 0 for what fills up, such as the last.
        document: int32 `[tokens]`, the document of each token; 0 for lists made of counts.
    """

    fold: Int[ArrayLike, " tokens"]
    position: Int[ArrayLike, " tokens"]
    word: Int[ArrayLike, " tokens"]
    count: Int[ArrayLike, " tokens"]
    document: Int[ArrayLike, " tokens"]


class Documents(NamedTuple):
    """The documents of token lists, which rotations need.

    Attributes:
        labels: uint32 `[documents]`; documents of one label are rotated alike.
        counted: bool `[documents, n]`, where a token is counted.
        ended: bool `[documents]`, documents whose last token stays.
    """

    labels: UInt32[Array, " documents"]
    counted: Bool[Array, "documents n"]
    ended: Bool[Array, " documents"]


class TokenLists(NamedTuple):
    """Counts in folds of documents, as lists of tokens by word; a pytree.

    Estimates from split halves take them instead of `PositionCounts`, in a fraction of the time.
    Words of a single fold are left out: products of halves are 0 for them.

    Attributes:
        tokens: the tokens of all words.
        blocks: int32 `[blocks, slots]`, the tokens of each block of frequent words.
        columns: int32 `[width]`, the columns of a block.
        rare: int32 `[groups, slots]`, the tokens of each group of rare words.
        pairs: int32 `[groups, 2, pairs]`, pairs of tokens of one rare word, as indices of `rare`.
        per_position: int32 `[folds, n]`, documents with a counted token at each position.
        documents: documents to rotate; None for lists made of counts.
    """

    tokens: Tokens
    blocks: Int[Array, "blocks slots"]
    columns: Int[Array, " width"]
    rare: Int[Array, "groups rare_slots"]
    pairs: Int[Array, "groups 2 pairs"]
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
        return self._replace(tokens=_rotated_tokens(self.tokens, documents, key))

    def fold_tables(self, step: Callable[..., Any], start: Any) -> Any:
        """Result of step(carry, table) over all blocks, with tables int32 `[folds, n, width]`."""
        shape, tokens = (*self.per_position.shape, len(self.columns)), self.tokens

        def body(carry: Any, block: Array) -> tuple[Any, None]:
            row = tokens.fold[block] * shape[1] + tokens.position[block]
            cell = row * shape[2] + tokens.word[block] % shape[2]
            table = jnp.zeros(shape, jnp.int32).reshape(-1)
            table = table.at[cell].add(tokens.count[block], mode="promise_in_bounds")
            return step(carry, table.reshape(shape)), None

        return jax.lax.scan(body, start, self.blocks)[0] if shape[1] else start


@jax.jit
def _rotated_tokens(tokens: Tokens, documents: Documents, key: Array) -> Tokens:
    moves = moving_tokens(documents.counted, documents.ended)
    target = rotated_positions(key, moves, documents.labels, inverse=True)
    return tokens._replace(position=target[tokens.document, tokens.position])


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
    per_position = jax.ops.segment_sum(counted.astype(jnp.int32), fold, folds)
    documents = Documents(labels, counted, jnp.asarray(ended_documents(mask, ended)))
    if is_traced(ids, counted, fold):
        return _one_block(ids, fold, documents, per_position, vocab_size)
    # Position by position, so that neighbours in a list are neighbours in a table.
    position, document = np.nonzero(np.asarray(counted).T)
    word, count = np.asarray(ids)[document, position], np.ones(len(position), np.int32)
    tokens = Tokens(np.asarray(fold)[document], position, word, count, document)
    return _split_lists(tokens, per_position, vocab_size, documents)


def _one_block(
    ids: ArrayLike, fold: Array, documents: Documents, per_position: Array, vocab_size: int
) -> TokenLists:
    """All words in one block, as they stand."""
    folds, n = per_position.shape
    if folds * n * vocab_size > INT32_MAX:
        raise ValueError(
            f"{folds} folds x {n} positions x {vocab_size} words are more than int32 counts: call "
            "it outside of jit, or pass fewer folds"
        )
    document, position = jnp.indices(ids.shape, dtype=jnp.int32)
    word = jnp.where(documents.counted, ids, 0)
    lists = jnp.broadcast_to(fold[:, None], ids.shape), position, word, documents.counted, document
    tokens = Tokens(*(jnp.pad(x.astype(jnp.int32).reshape(-1), (0, 1)) for x in lists))
    every, columns = (jnp.arange(x, dtype=jnp.int32) for x in (ids.size + 1, vocab_size))
    none = jnp.zeros((0, 2, 0), jnp.int32)
    return TokenLists(tokens, every[None, :], columns, none[:, 0], none, per_position, documents)


def listed_counts(counts: PositionCounts) -> TokenLists:
    """Token lists of counts in folds, eagerly: a token for each occupied cell."""
    table = np.asarray(counts.tokens)
    flat = np.flatnonzero(table != 0)  # booleans are searched several times faster
    fold, position, word = np.unravel_index(flat, table.shape)
    tokens = Tokens(fold, position, word, table.reshape(-1)[flat], np.zeros(len(flat), np.int32))
    return _split_lists(tokens, jnp.asarray(counts.per_position), table.shape[-1], None)


def _split_lists(
    tokens: Tokens, per_position: Array, vocab_size: int, documents: Documents | None
) -> TokenLists:
    """Lists of the frequent and rare words that occur in several folds."""
    folds, n = per_position.shape
    occurs = np.zeros((folds, vocab_size), bool)
    occurs[tokens.fold, tokens.word] = True
    number = np.bincount(tokens.word, minlength=vocab_size)
    # A word in a single fold is missing in one of two halves, so its products are 0.
    shared = occurs.sum(axis=0) > 1
    frequent = np.flatnonzero(shared & (number > MOST_RARE))
    rare = np.flatnonzero(shared & (number <= MOST_RARE))
    words, rows = rounded_size(max(len(frequent), _FEW_WORDS)), max(folds * n, 1)
    # The cells of a table have int32 indices.
    blocks = -(-words // min(max(_TABLE // rows, _NARROWEST), INT32_MAX // rows))
    width = -(-words // blocks)
    # Words are dealt to the blocks as cards, the most frequent first.
    rank, order = np.arange(len(frequent)), np.argsort(-number[frequent], kind="stable")
    names = np.zeros(vocab_size, int)
    names[frequent[order]] = rank % blocks * width + rank // blocks
    names[rare] = blocks * width + np.arange(len(rare))
    tokens = jax.tree.map(lambda x: x[shared[tokens.word]], tokens)
    tokens = tokens._replace(word=names[tokens.word])
    block = np.where(tokens.word < blocks * width, tokens.word // width, tokens.word)
    order = np.argsort(block, kind="stable")
    sizes = np.bincount(block, minlength=blocks)[:blocks]
    lists = _in_rows(sizes, len(order)), np.arange(width)
    lists += _rare_pairs(number[rare], int(sizes.sum()), len(order))
    filled = (0, rounded_size(max(len(order) + 1, _FEW_TOKENS)) - len(order))
    tokens = jax.tree.map(lambda x: np.pad(x[order].astype(np.int32), filled), tokens)
    lists = (x.astype(np.int32) for x in lists)
    tokens, in_blocks, columns, slots, pairs = jax.device_put((tokens, *lists))
    return TokenLists(tokens, in_blocks, columns, slots, pairs, per_position, documents)


def _in_rows(sizes: np.ndarray, beyond: int, *, least: int = _FEW_TOKENS) -> np.ndarray:
    """The numbers 0, 1, ... in rows of these sizes; `beyond` fills the rest, at least the end."""
    slot = np.arange(rounded_size(int(sizes.max(initial=least)) + 1))[None, :]
    first = (np.cumsum(sizes) - sizes)[:, None]
    return np.where(slot < sizes[:, None], first + slot, beyond)


def _rare_pairs(number: np.ndarray, first: int, beyond: int) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of rare words in groups, and all pairs of tokens of one word.

    Args:
        number: tokens of each rare word; they stand one word after the other.
        first: index of the first of these tokens.
        beyond: index of a token without a count.
    """
    if not len(number):
        return np.zeros((0, 0), int), np.zeros((0, 2, 0), int)
    before = np.cumsum(number**2) - number**2
    group = before // _PAIRS
    sizes = np.bincount(group, number).astype(int)
    slots = first + _in_rows(sizes, beyond - first)
    begin = (np.cumsum(number) - number) - (np.cumsum(sizes) - sizes)[group]
    word = np.repeat(np.arange(len(number)), number**2)
    one, other = np.divmod(np.arange(len(word)) - before[word], number[word])
    both = np.stack([begin[word] + one, begin[word] + other])
    places = _in_rows(np.bincount(group[word]), len(word), least=_FEW_PAIRS)
    both = np.pad(both, ((0, 0), (0, 1)), constant_values=slots.shape[1] - 1)
    return slots, np.moveaxis(both[:, places], 0, 1)
