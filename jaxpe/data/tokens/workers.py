"""Tokenization in several processes, since Python runs one thread at a time in a process."""

import functools
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Int32

from jaxpe.data.tokens.tokenizers import Tokenizer, open_tokenizer
from jaxpe.data.tokens.vocabulary import add_occurring, vocabulary_occurs

AHEAD = 2  # batches in progress per process
_SENT = 2**20  # characters of text per message to a process

_Result = TypeVar("_Result")
Encoded = tuple[Int32[np.ndarray, "documents n"], Bool[np.ndarray, "documents n"]]


def runs_in_python(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer runs in Python, so that processes help; others already use all cores."""
    return tokenizer.name == "bytes" or vocabulary_occurs(tokenizer.name)


class TokenizerPool:
    """Processes that encode batches of texts; a context manager.

    Args:
        tokenizer: tokenizer of words, characters or bytes.
        length: positions to keep.
        processes: number of processes.

    >>> with TokenizerPool(open_tokenizer("bytes"), length=2, processes=1) as pool:
    ...     pool.submit(["ab", "c"]).result()[0].tolist()
    [[97, 98], [99, 0]]
    """

    def __init__(self, tokenizer: Tokenizer, *, length: int, processes: int):
        tokens = list(tokenizer.tokens) if vocabulary_occurs(tokenizer.name) else None
        self.processes = processes
        self._pool = _pool(processes, tokenizer.name, tokens, length)

    def __enter__(self) -> "TokenizerPool":
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def submit(self, texts: Any) -> "Future[Encoded]":
        """Encode texts in one of the processes."""
        return self._pool.submit(_encode, texts)


def count_words(
    documents: Iterable[str], *, tokenizer: str, length: int | None, processes: int
) -> Counter[str]:
    """Counts of words or characters, in several processes.

    >>> sorted(count_words(["to be", "or to"], tokenizer="words", length=None, processes=1).items())
    [('be', 1), ('or', 1), ('to', 2)]
    """
    total: Counter[str] = Counter()
    count = functools.partial(_word_counts, tokenizer, length)
    with _pool(processes) as pool:
        try:
            submitted = (pool.submit(count, texts) for texts in _batches(documents))
            for counts in _ordered_results(submitted, AHEAD * processes):
                total.update(counts)
        except BaseException:  # an interrupt must not wait for work in progress
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return total


def _pool(processes: int, *work: Any) -> ProcessPoolExecutor:
    # Not forked: a fork would copy the threads of JAX and tokenizers in the middle of their work.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(processes, context, initializer=_start, initargs=work)


def _start(name: str | None = None, tokens: list[str] | None = None, length: int = 0) -> None:
    """Prepare a process: leave interrupts to its parent, and open the tokenizer once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch_parent, daemon=True).start()
    if name is not None:
        global _encode_texts
        tokenizer = open_tokenizer(name, vocabulary=tokens)
        _encode_texts = functools.partial(tokenizer.encode, length=length)


def _watch_parent() -> None:
    # A pool does not notice that its parent was killed, and would wait for ever.
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


_encode_texts: Callable[[list[str]], Encoded]  # set in each process of the pool


def _encode(texts: list[str]) -> Encoded:
    return _encode_texts(texts)


def _word_counts(tokenizer: str, length: int | None, texts: list[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    add_occurring(counts, texts, tokenizer=tokenizer, length=length)
    return counts


def _ordered_results(futures: Iterable["Future[_Result]"], ahead: int) -> Iterator[_Result]:
    """Results in order, with at most `ahead` futures in progress."""
    waiting: deque[Future[_Result]] = deque()
    for future in futures:
        waiting.append(future)
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _batches(documents: Iterable[str]) -> Iterator[list[str]]:
    """Lists of texts, large enough to be worth sending to a process."""
    texts, size = list[str](), 0
    for text in documents:
        texts.append(text)
        size += len(text)
        if size > _SENT:
            yield texts
            texts, size = [], 0
    if texts:
        yield texts
