"""Corpora from arrays of token ids."""

from typing import Any

import numpy as np
from jaxtyping import Integer

from jaxpe._core.errors import InputError
from jaxpe._core.memory import check_bytes
from jaxpe.data.corpora.corpus import TokenCorpus
from jaxpe.data.formats.token_files import map_npy
from jaxpe.data.tokens.ragged import Ragged
from jaxpe.data.tokens.tokenizers import check_length, id_corpus, tokenizer_of_ids
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
    check_length(length)
    array = _id_matrix(ids, name)
    documents, n = array.shape
    rows = Ragged(array.reshape(-1), np.full(documents, n))
    return id_corpus(name, rows, tokenizer_of_ids(vocab_size=int(array.max()) + 1), length=length)


def read_ids(path: str, *, length: int | None) -> TokenCorpus:
    """Read token ids `[documents, n]` from a `.npy` file."""
    array = map_npy(path)
    size = array.size * array.itemsize
    check_bytes(2 * size, what=path, remedy="pass fewer documents, or a smaller integer type")
    return tokens_from_ids(np.array(array), name=path, length=length)


def _id_matrix(ids: Any, name: str) -> Integer[np.ndarray, "documents n"]:
    """Array of valid ids; raises `InputError` for anything else."""
    try:
        array = np.asarray(ids)
    except ValueError as error:
        raise InputError(f"{name} is ragged; pad it to one integer array [documents, n]") from error
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} holds {array.dtype}, not token ids; pass one array of integers")
    if array.ndim != 2:
        raise InputError(f"{name} has shape {array.shape}; pass ids of shape [documents, n]")
    if len(array) < 2 or array.shape[1] == 0:
        raise InputError(
            f"{name} has shape {array.shape}; pass at least two documents of one token"
        )
    for index in (array.argmax(), array.argmin()):
        row, column = divmod(int(index), array.shape[1])
        if not 0 <= array[row, column] < LARGEST_VOCABULARY:
            raise InputError(
                f"{name}: id {array[row, column]} at row {row}, position {column} is not in 0 to "
                f"{LARGEST_VOCABULARY - 1:,}; renumber the tokens that occur, without padding"
            )
    return array
