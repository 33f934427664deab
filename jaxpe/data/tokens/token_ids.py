"""Corpora from arrays of token ids."""

from typing import Any

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.memory import check_bytes
from jaxpe._core.options import Choice, check_range
from jaxpe.data.corpora.corpus import TokenCorpus
from jaxpe.data.formats.token_files import map_npy

DEFAULT_LENGTH = 128
# Counts are as long as the vocabulary; an id in the billions is a hash, not an id.
LARGEST_VOCABULARY = 10_000_000
_CELL = 2 * (4 + 1)  # bytes of an id and its mask, twice during construction


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
    array = _valid_array(_id_array(ids, name), name)
    documents, n = array.shape
    vocab_size = int(array.max()) + 1
    corpus = TokenCorpus(
        name=name,
        tokenizer="ids",
        ids=array.astype(np.int32),
        mask=np.ones((documents, n), bool),
        vocab_size=vocab_size,
        exclude=(),
        tokens=[f"id {i}" for i in range(vocab_size)],
        longest=n,
    )
    if length is None:
        length, choice = _default_length(n)
        corpus = corpus._replace(choices=(choice,))
    return resized(corpus, length)


def _default_length(n: int) -> tuple[int, Choice]:
    """Default length: all positions of the rows, up to a maximum."""
    length = min(DEFAULT_LENGTH, n)
    why = "length of the rows" if length == n else f"the largest default; rows have {n:,}"
    return length, Choice("length", f"{length}", why, "pass a number of positions as `length`")


def read_ids(path: str, *, length: int | None) -> TokenCorpus:
    """Read token ids `[documents, n]` from a `.npy` file."""
    array = map_npy(path)
    size = array.size * array.itemsize
    check_bytes(2 * size, what=path, remedy="pass fewer documents, or a smaller integer type")
    return tokens_from_ids(np.array(array), name=path, length=length)


def check_length(length: int | None, *, special: int = 0) -> None:
    """Raise `InputError` for a length below 2, or without room for text and special tokens."""
    check_range("length", length, least=max(2, special + 1))


def check_table(documents: int, length: int) -> None:
    """Raise `InputError` if ids and mask do not fit into memory."""
    check_bytes(
        documents * length * _CELL,
        what=f"length {length:,} of {documents:,} documents",
        remedy="pass a smaller `length`, or fewer documents",
    )


def resized(corpus: TokenCorpus, length: int) -> TokenCorpus:
    """Cut or pad the documents to `length` positions."""
    check_length(length)
    check_table(len(corpus.ids), length)
    extra = ((0, 0), (0, max(0, length - corpus.ids.shape[1])))
    cut, width = corpus.cut, corpus.ids.shape[1]
    if length < width or corpus.longest <= width:  # else some were cut before
        cut = np.any(corpus.mask[:, length:], axis=1)
    ids, mask = (np.pad(x[:, :length], extra) for x in (corpus.ids, corpus.mask))
    return corpus._replace(ids=ids, mask=mask, cut=cut)


def _id_array(ids: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(ids)
    except ValueError as error:
        raise InputError(f"{name} is ragged; pad it to one integer array [documents, n]") from error
    if array.dtype == object:
        raise InputError(f"{name} holds objects; pass one integer array [documents, n]")
    return array


def _valid_array(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype.kind not in "iu":
        nan = " with NaN" if array.dtype.kind == "f" and np.isnan(array).any() else ""
        raise InputError(f"{name} holds {array.dtype}{nan}, not token ids; pass integers")
    if array.ndim != 2:
        raise InputError(f"{name} has shape {array.shape}; pass ids of shape [documents, n]")
    if len(array) < 2 or array.shape[1] == 0:
        raise InputError(
            f"{name} has shape {array.shape}; pass at least two documents of one token"
        )
    _check_range(array, name)
    return array


def _check_range(array: np.ndarray, name: str) -> None:
    if array.min() < 0:
        index = int(array.argmin())
        fault = "negative; token ids count from 0, and rows are filled, not padded"
    elif array.max() >= LARGEST_VOCABULARY:
        index = int(array.argmax())
        fault = f"not below {LARGEST_VOCABULARY:,}; renumber the tokens that occur"
    else:
        return
    row, column = divmod(index, array.shape[1])
    raise InputError(f"{name}: id {array[row, column]} at row {row}, position {column} is {fault}")
