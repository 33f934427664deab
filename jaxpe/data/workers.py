"""Tokenizing in several processes: one alone runs Python in one thread at a time."""

import contextlib
import os
import pickle
import queue
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Int32

from jaxpe._core.errors import InputError
from jaxpe.data.tokenizers import Tokenizer, open_tokenizer
from jaxpe.data.vocabulary import add_occurring, vocabulary_occurs

_AHEAD = 2  # batches for each worker that wait or are under way
_SENT = 2**20  # characters of the texts that a process is sent at once
_SIZE = 8  # bytes that say how long a message is
# The path of this process, which may begin with a folder that hides modules of Python's own.
_MAIN = "import sys; sys.path[:] = sys.argv[1:]; from jaxpe.data.workers import serve; serve()"

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
        # Not of the module multiprocessing, which runs the user's script again in each process.
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", _MAIN, *filter(None, sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"JAX_PLATFORMS": "cpu"},
                start_new_session=True,  # an interrupt is for the process that reads
            )
            for _ in range(number)
        ]
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(number, "tokenizing")
        for process in self._processes:
            _send(_pipes(process)[0], work)
            self._idle.put(process)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            with contextlib.suppress(OSError):
                _pipes(process)[0].close()
            _pipes(process)[1].close()
            process.wait()

    @property
    def ahead(self) -> int:
        """Batches that are under way at once."""
        return _AHEAD * len(self._processes)

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
        """Answer of a process that is idle."""
        process = self._idle.get()
        try:
            return _answer_of(process, question)
        finally:
            self._idle.put(process)


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
        for process in self._processes:
            whole.update(_answer_of(process, None))
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


def serve() -> None:
    """Answer, as a worker, what comes on standard input, until that ends."""
    into, out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed is no answer
    answer = _received(into).begin()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            _send(out, answer(_received(into)))


def _answer_of(process: "subprocess.Popen[bytes]", question: Any) -> Any:
    into, out = _pipes(process)
    try:
        _send(into, question)
        return _received(out)
    except (OSError, EOFError) as error:
        raise RuntimeError(
            f"a process that tokenizes ended (status {process.poll()}); memory may be short: "
            "pass `workers=0` to tokenize in this process"
        ) from error


def _pipes(process: "subprocess.Popen[bytes]") -> tuple[Any, Any]:
    return process.stdin, process.stdout


def _send(pipe: BinaryIO, value: Any) -> None:
    content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    pipe.write(len(content).to_bytes(_SIZE, "little"))
    pipe.write(content)
    pipe.flush()


def _received(pipe: BinaryIO) -> Any:
    size = _exactly(pipe.read, _SIZE)
    return pickle.loads(_exactly(pipe.read, int.from_bytes(size, "little")))


def _exactly(read: Callable[[int], bytes], size: int) -> bytes:
    content = read(size)
    if len(content) < size:
        raise EOFError
    return content
