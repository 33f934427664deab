"""The map and the sum of counting: a batch of documents becomes cells of tables, and cells add."""

import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, Int32, UInt32

from jaxpe.analysis.counts.settings import CountSettings
from jaxpe.data.tokens.tokenizers import Tokenizer
from jaxpe.data.tokens.vocabulary import vocabulary_occurs
from jaxpe.geometry.counts.position_counts import content_labels, fold_of_documents
from jaxpe.geometry.counts.rotations import rotate_within_documents

_MOST_DOCUMENTS, _MOST_TOKENS = 4096, 2**19  # of a batch
STRIDE = 2**31  # the number of a cell is row · STRIDE + token, for any size of the vocabulary
_WAITING = 2**22  # cells that wait for the next sum


class Cells(NamedTuple):
    """Occupied cells of tables of counts; `sum_cells` adds them.

    Attributes:
        numbers: row · 2³¹ + token, ascending, each once; rows are those of all folds of the corpus,
            then those of all folds of each null.
        counts: number of times that each was counted.
    """

    numbers: Int[np.ndarray, " cells"]
    counts: Int[np.ndarray, " cells"]


def batch_size(settings: CountSettings) -> int:
    """Most documents of a batch for `count_documents`."""
    return max(1, min(_MOST_DOCUMENTS, _MOST_TOKENS // settings.length))


def count_documents(
    texts: Any,
    groups: Sequence[str | None] | None = None,
    *,
    tokenizer: Tokenizer,
    settings: CountSettings,
) -> Cells:
    """Count a batch of documents: the map.

    The cells do not depend on the documents beside them in the batch.

    Args:
        texts: documents, at most `batch_size`, or their ids as `Tokenizer.encode` takes them.
        groups: author or source of each document, which then decides its fold; the document
            decides where it is None.
        tokenizer: tokenizer from `open_tokenizer` or `tokenizer_of_ids`.
        settings: settings of the count.

    >>> from jaxpe.analysis.counts import CountOptions
    >>> from jaxpe.analysis.counts.job import tokenizer_and_settings
    >>> options = CountOptions(sources=(), tokenizer="bytes", length=2, folds=4, nulls=0)
    >>> tokenizer, settings = tokenizer_and_settings(options)
    >>> cells = count_documents(["ab", "ab"], tokenizer=tokenizer, settings=settings)
    >>> (cells.numbers % 2**31).tolist(), cells.counts.tolist()
    ([97, 98], [2, 2])
    """
    ids, mask = tokenizer.encode(texts, length=settings.length)
    labels = None
    if groups is not None:
        names = (
            text if group is None else group for text, group in zip(texts, groups, strict=True)
        )
        labels = np.fromiter(map(_crc, names), np.uint32, len(ids))
    blocks, tokens = _blocks(ids, mask, labels, tokenizer, settings)
    counted = mask & ~np.isin(ids, settings.exclude)
    row_of_position = np.arange(settings.length)
    if settings.edges is not None:
        row_of_position = np.searchsorted(settings.edges, row_of_position, side="right") - 1
    parts = []
    # The rows of one table lie below those of the next, so that the parts are in order.
    for block, of_block in zip(blocks, tokens, strict=True):
        row = block[:, None] * settings.rows + row_of_position
        numbers = row[counted] * STRIDE + of_block[counted[:, : of_block.shape[1]]]
        parts.append(np.unique(numbers, return_counts=True))
    return Cells(*map(np.concatenate, zip(*parts, strict=True)))


def sum_cells(parts: Iterable[Cells]) -> Cells:
    """Add cells, in any order, in memory of twice the sum and the largest part.

    >>> one = Cells(np.array([1, 4]), np.array([2, 1]))
    >>> other = Cells(np.array([4]), np.array([5]))
    >>> numbers, counts = sum_cells([one, other])
    >>> numbers.tolist(), counts.tolist()
    ([1, 4], [2, 6])
    """
    total = Cells(np.zeros(0, np.int64), np.zeros(0, np.int64))
    waiting: list[Cells] = []
    for part in parts:
        waiting.append(part)
        if sum(len(x.numbers) for x in waiting) > max(_WAITING, len(total.numbers)):
            total, waiting = _added([total, *waiting]), []
    return _added([total, *waiting])


def _added(parts: Sequence[Cells]) -> Cells:
    numbers, counts = map(np.concatenate, zip(*parts, strict=True))
    order = np.argsort(numbers, kind="stable")  # which merges parts that are sorted already
    numbers, counts = numbers[order], counts[order]
    first = np.flatnonzero(np.diff(numbers, prepend=-1))
    return Cells(numbers[first], np.add.reduceat(counts, first) if len(first) else counts)


def _blocks(
    ids: Int32[np.ndarray, "documents n"],
    mask: Bool[np.ndarray, "documents n"],
    labels: UInt32[np.ndarray, " documents"] | None,
    tokenizer: Tokenizer,
    settings: CountSettings,
) -> tuple[Int[np.ndarray, "tables documents"], list[np.ndarray]]:
    """Block of rows of each document in the corpus and in each null, and the tokens there."""
    words = None
    if vocabulary_occurs(settings.tokenizer):
        words = _word_hashes(ids, tokenizer.tokens)[ids]
    ended = ~mask[:, -1]
    n = int(np.flatnonzero(mask.any(axis=0)).max(initial=0)) + 1
    # Every shape is compiled, so there is one, but for narrow batches of short documents.
    rows, n = batch_size(settings), min(1 << (n - 1).bit_length(), settings.length)

    def padded(array: np.ndarray) -> np.ndarray:
        array = array[:, :n] if array.ndim == 2 else array
        return np.pad(array, [(0, rows - len(ids)), *[(0, 0)] * (array.ndim - 1)])

    arrays = [x if x is None else padded(x) for x in (ids, mask, ended, words, labels)]
    fold, rotated = jax.tree.map(np.asarray, _folds_and_nulls(*arrays, settings=settings))
    fold = fold[: len(ids)].astype(np.int64)
    first = settings.folds + np.arange(settings.nulls) * settings.null_folds
    blocks = np.concatenate([fold[None], first[:, None] + fold % settings.null_folds])
    return blocks, [ids, *rotated[:, : len(ids)]]


@partial(jax.jit, static_argnames="settings")
def _folds_and_nulls(ids, mask, ended, words, labels, *, settings: CountSettings):
    """Fold of each document, and the documents of each null.

    Folds and rotations of words follow from their text, not from their ids, since each vocabulary
    numbers them in its own way.
    """
    copies = None if words is None else content_labels(words, mask)
    in_fold = copies if labels is None else labels
    fold = fold_of_documents(ids, mask, folds=settings.folds, groups=in_fold)

    def rotated(number):
        key = jax.random.fold_in(jax.random.key(settings.seed), number)
        return rotate_within_documents(
            key, ids, mask, exclude=settings.exclude, groups=copies, ended=ended
        )

    return fold, jax.lax.map(rotated, jnp.arange(settings.nulls, dtype=jnp.int32))


def _word_hashes(
    ids: Int32[np.ndarray, "documents n"], tokens: Sequence[str]
) -> UInt32[np.ndarray, " vocab"]:
    """Hash of the text of each token that occurs in a batch."""
    hashes = np.zeros(max(1, len(tokens)), np.uint32)  # a growing vocabulary starts empty
    used = np.flatnonzero(np.bincount(ids.reshape(-1)))[: len(tokens)]
    hashes[used] = [_crc(tokens[number]) for number in used.tolist()]
    return hashes


def _crc(text: Any) -> int:
    """CRC-32 of a text, or of token ids."""
    is_text = isinstance(text, str)
    return zlib.crc32(
        text.encode(errors="surrogatepass") if is_text else np.ascontiguousarray(text).data
    )
