"""Tokenizing in several processes: one alone runs Python in one thread at a time."""

import contextlib
import queue
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Int32

from jaxpe._core.errors import InputError
from jaxpe._core.processes import Helper
from jaxpe.data.tokens.tokenizers import Tokenizer, open_tokenizer
from jaxpe.data.tokens.vocabulary import add_occurring, vocabulary_occurs

_AHEAD = 2  # batches for each worker that wait or are under way
_SENT = 2**20  # characters of the texts that a process is sent at once

_Result = TypeVar("_Result")
Encoded = tuple[Int32[np.ndarray, "documents n"], Bool[np.ndarray, "documents n"]]


class _Encoding(NamedTuple):
    """Work of a process: ids of texts, by the name and the vocabulary of a tokenizer."""

    name: str
    tokens: list[str] | None
    length: int

    def begin(self) -> Callable[[list[str]], Sequence[Any]]:
        """A function of texts to their ids, lengths, and what is wrong with a text."""
        tokenizer = open_tokenizer(self.name, vocabulary=self.tokens)
        smallest = np.min_scalar_type(len(tokenizer.tokens))

        def answer(texts: list[str]) -> Sequence[Any]:
            try:
                ids, mask = tokenizer.encode(texts, length=self.length)
            except InputError as error:
                return None, None, str(error)
            return ids.astype(smallest), mask.sum(axis=1), ""

        return answer


class _Occurring(NamedTuple):
    """Work of a process: how often words or characters occur in all texts that it is given."""

    name: str
    length: int | None

    def begin(self) -> Callable[[list[str] | None], Counter[str] | None]:
        """A function of texts; of None it returns what occurred in all before."""
        counts: Counter[str] = Counter()

        def answer(texts: list[str] | None) -> Counter[str] | None:
            if texts is None:
                return counts
            add_occurring(counts, texts, tokenizer=self.name, length=self.length)
            return None

        return answer


def in_python(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer runs in Python, so that processes help; others use all cores."""
    return tokenizer.name == "bytes" or vocabulary_occurs(tokenizer.name)


class _Processes:
    """Processes that do one kind of work; a context manager, at whose end they end.

    They also end with the process that made them, however it ends.
    """

    def __init__(self, work: _Encoding | _Occurring, number: int):
        with contextlib.ExitStack() as stack:
            self._helpers = [stack.enter_context(Helper(work.begin)) for _ in range(number)]
            self._open = stack.pop_all()
        self._idle: queue.SimpleQueue[Helper] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(number, "tokenizing")
        for helper in self._helpers:
            self._idle.put(helper)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        for helper in self._helpers:
            helper.kill()
        self._threads.shutdown(cancel_futures=True)
        self._open.close()

    @property
    def ahead(self) -> int:
        """Batches that are under way at once."""
        return _AHEAD * len(self._helpers)

    def in_order(
        self, batches: Iterable[list[str]], submit: Callable[[list[str]], "Future[_Result]"]
    ) -> Iterator[_Result]:
        """The result of each batch, in order."""
        waiting: deque[Future[_Result]] = deque()
        for texts in batches:
            waiting.append(submit(texts))
            if len(waiting) > self.ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _asked(self, question: Any) -> Any:
        """Answer of a helper that is idle."""
        helper = self._idle.get()
        try:
            return _answer_of(helper, question)
        finally:
            self._idle.put(helper)


class Workers(_Processes):
    """Processes that encode batches of texts, in the order in which these come.

    A context manager, at whose end the processes end; they also end with the process that made
    them, however it ends.

    Args:
        tokenizer: tokenizer of words, characters or bytes.
        length: positions to keep.
        number: number of processes.

    >>> with Workers(open_tokenizer("bytes"), length=2, number=1) as workers:
    ...     [ids.tolist() for ids, _ in workers.encoded([["ab", "c"], ["d"]])]
    [[[97, 98], [99, 0]], [[100, 0]]]
    """

    def __init__(self, tokenizer: Tokenizer, *, length: int, number: int):
        tokens = list(tokenizer.tokens) if vocabulary_occurs(tokenizer.name) else None
        super().__init__(_Encoding(tokenizer.name, tokens, length), number)
        self._length = length

    def submit(self, texts: list[str]) -> "Future[Encoded]":
        """The ids and mask of texts, once they are made."""
        return self._threads.submit(self._encode, texts)

    def encoded(self, batches: Iterable[list[str]]) -> Iterator[Encoded]:
        """The ids and mask of each batch, in order."""
        return self.in_order(batches, self.submit)

    def _encode(self, texts: list[str]) -> Encoded:
        ids, lengths, problem = self._asked(texts)
        if problem:
            raise InputError(problem)
        return ids.astype(np.int32), np.arange(self._length) < lengths[:, None]


class _Counters(_Processes):
    """Processes that count what occurs."""

    def add(self, batches: Iterable[list[str]]) -> None:
        for _ in self.in_order(batches, lambda texts: self._threads.submit(self._asked, texts)):
            pass

    def total(self) -> Counter[str]:
        """Number of times that each occurred in all batches."""
        whole: Counter[str] = Counter()
        for helper in self._helpers:
            whole.update(_answer_of(helper, None))
        return whole


def occurring(
    documents: Iterable[str], *, tokenizer: str, length: int | None, workers: int
) -> Counter[str]:
    """Number of times that each word or character occurs, counted in so many processes.

    >>> sorted(occurring(["to be", "or to"], tokenizer="words", length=None, workers=1).items())
    [('be', 1), ('or', 1), ('to', 2)]
    """
    with _Counters(_Occurring(tokenizer, length), workers) as counters:
        counters.add(_batches(documents))
        return counters.total()


def _batches(documents: Iterable[str]) -> Iterator[list[str]]:
    """Lists of texts that are worth sending, and not too large."""
    texts, size = list[str](), 0
    for text in documents:
        texts.append(text)
        size += len(text)
        if size > _SENT:
            yield texts
            texts, size = [], 0
    if texts:
        yield texts


def _answer_of(helper: Helper, question: Any) -> Any:
    try:
        return helper.ask(question)
    except (OSError, EOFError) as error:
        raise RuntimeError(
            f"a process that tokenizes ended (status {helper.status()}); memory may be short: "
            "pass `workers=0` to tokenize in this process"
        ) from error
