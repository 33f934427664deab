"""Corpora that come as token ids."""

from typing import Any

import numpy as np

from jaxpe._errors import InputError
from jaxpe.data._types import TokenCorpus

DEFAULT_LENGTH = 128
# `tokens` and the counts are as long as the vocabulary: an id in the billions is a hash, not an id.
LARGEST_VOCABULARY = 10_000_000


def tokens_from_ids(ids: Any, *, name: str = "ids", length: int | None = None) -> TokenCorpus:
    """A `TokenCorpus` from an array of ids that fills every position.

    Args:
        ids: integers `[documents, n]`, none negative.
        name: what reports and error messages call it.
        length: positions to keep; more than `n` pads. Default: `n`, at most 128.

    Raises:
        InputError: `ids` is not such an array, or holds fewer than two documents.

    >>> corpus = tokens_from_ids([[3, 1, 2], [0, 1, 4]])
    >>> corpus.vocab_size, corpus.tokens[4], corpus.longest
    (5, 'id 4', 3)
    """
    array = _checked(_as_array(ids, name), name)
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
    return resized(corpus, min(DEFAULT_LENGTH, n) if length is None else length)


def read_ids(path: str, *, length: int | None) -> TokenCorpus:
    """Token ids `[documents, n]` from a `.npy` file."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read as an array of numbers: {error}; "
            "save one rectangular integer array [documents, n] with numpy.save"
        ) from error
    return tokens_from_ids(array, name=path, length=length)


def check_length(length: int | None, *, special: int = 0) -> None:
    """Refuse a length that leaves no two positions, or none beside the special tokens."""
    least = max(2, special + 1)
    if length is not None and length < least:
        raise InputError(f"length is {length}; pass at least {least}")


def resized(corpus: TokenCorpus, length: int) -> TokenCorpus:
    """The same documents cut or padded to `length` positions."""
    check_length(length)
    extra = ((0, 0), (0, max(0, length - corpus.ids.shape[1])))
    return corpus._replace(
        ids=np.pad(corpus.ids[:, :length], extra), mask=np.pad(corpus.mask[:, :length], extra)
    )


def _as_array(ids: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(ids)
    except ValueError as error:
        raise InputError(f"{name} is ragged; pad it to one integer array [documents, n]") from error
    if array.dtype == object:
        raise InputError(f"{name} holds objects; pass one integer array [documents, n]")
    return array


def _checked(array: np.ndarray, name: str) -> np.ndarray:
    if not np.issubdtype(array.dtype, np.integer):
        nan = " with NaN" if array.dtype.kind == "f" and np.isnan(array).any() else ""
        raise InputError(f"{name} holds {array.dtype}{nan}, not token ids; pass integers")
    if array.ndim != 2:
        raise InputError(
            f"{name} has shape {array.shape}; pass ids of shape [documents, n], two axes"
        )
    if len(array) < 2 or array.shape[1] == 0:
        raise InputError(
            f"{name} has shape {array.shape}; pass at least two documents of one token"
        )
    _check_range(array, name)
    return array


def _check_range(array: np.ndarray, name: str) -> None:
    for index, fault in (
        (array.argmin(), "negative; token ids count from 0, and rows are filled, not padded"),
        (array.argmax(), f"not below {LARGEST_VOCABULARY:,}; renumber the tokens that occur"),
    ):
        row, column = divmod(int(index), array.shape[1])
        value = int(array[row, column])
        if not 0 <= value < LARGEST_VOCABULARY:
            raise InputError(f"{name}: id {value} at row {row}, position {column} is {fault}")
