"""Corpora from arrays of token ids."""

from typing import Any

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.data.corpora.corpus import TokenCorpus
from jaxpe.data.tokens.ragged import Ragged
from jaxpe.data.tokens.tokenizers import (
    Tokenizer,
    check_length,
    padded_corpus,
    tokenizer_of_ids,
)
from jaxpe.data.tokens.vocabulary import LARGEST_VOCABULARY


def tokens_from_ids(ids: Any, *, name: str = "ids", length: int | None = None) -> TokenCorpus:
    """Corpus from an array of token ids without padding.

    Args:
        ids: integers `[documents, n]`, none negative.
        name: name in reports and error messages.
        length: number of positions; more than `n` pads. Default: `n`, at most 128.

    Raises:
        InputError: another kind of array, or fewer than two documents.

    >>> corpus = tokens_from_ids([[3, 1, 2], [0, 1, 4]])
    >>> corpus.vocab_size, corpus.tokens[4], corpus.longest
    (5, 'id 4', 3)
    """
    try:
        array = np.asarray(ids)
    except ValueError as error:
        raise InputError(f"{name} is ragged; pad it to one integer array [documents, n]") from error
    if array.dtype.kind not in "iu" or array.ndim != 2:
        fault = f"{name} holds {array.dtype} of shape {array.shape}, not token ids"
        raise InputError(f"{fault}; pass one array of integers [documents, n]")
    documents, n = array.shape
    return corpus_from_ids(Ragged(array.reshape(-1), np.full(documents, n)), name, length=length)


def corpus_from_ids(
    ids: Ragged, name: str, *, tokenizer: Tokenizer | None = None, length: int | None
) -> TokenCorpus:
    """Corpus from documents of token ids, truncated and padded to one length as in `tokenize`.

    Args:
        ids: token ids.
        name: name in reports and error messages.
        tokenizer: tokenizer that made the ids; default: as many ids as the largest one needs.
        length: number of positions.

    Raises:
        InputError: fewer than two documents, or ids outside the vocabulary.

    >>> corpus_from_ids(Ragged(np.array([4, 2, 7]), np.array([2, 1])), "ids", length=None).ids
    array([[4, 2],
           [7, 0]], dtype=int32)
    """
    check_length(length)
    if len(ids) < 2 or not len(ids.values):
        fault = f"{name} holds {len(ids)} documents and {len(ids.values)} ids"
        raise InputError(f"{fault}; pass at least two documents, as an array [documents, n]")
    for index in (ids.values.argmax(), ids.values.argmin()):
        if tokenizer is None and not 0 <= ids.values[index] < LARGEST_VOCABULARY:
            document = np.searchsorted(np.cumsum(ids.lengths), index, side="right")
            raise InputError(
                f"{name}: id {ids.values[index]} of document {document} is not in 0 to "
                f"{LARGEST_VOCABULARY - 1:,}; renumber the tokens that occur, without padding"
            )
    tokenizer = tokenizer or tokenizer_of_ids(vocab_size=int(ids.values.max()) + 1)
    return padded_corpus(name, tokenizer, ids, length)
