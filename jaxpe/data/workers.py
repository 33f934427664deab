"""Tokenizing in several processes: one alone runs Python in one thread at a time."""

import contextlib
import os
import pickle
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

from jaxpe._core.errors import InputError
from jaxpe.data.tokenizers import Tokenizer, open_tokenizer
from jaxpe.data.vocabulary import vocabulary_occurs

_AHEAD = 2  # batches for each worker that wait or are under way
_SIZE = 8  # bytes that say how long a message is
# The path of this process, which may begin with a folder that hides modules of Python's own.
_MAIN = "import sys; sys.path[:] = sys.argv[1:]; from jaxpe.data.workers import serve; serve()"

Encoded = tuple[Int32[np.ndarray, "documents n"], Bool[np.ndarray, "documents n"]]


class _Work(NamedTuple):
    """First message to a worker: the tokenizer, by name and vocabulary."""

    name: str
    tokens: list[str] | None
    length: int


def in_python(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer runs in Python, so that processes help; others use all cores."""
    return tokenizer.name == "bytes" or vocabulary_occurs(tokenizer.name)


class Workers:
    """Processes that encode batches of texts, in the order in which these come.

    A context manager, at whose end the processes end; they also end with the process that made
    them, however it ends.

    Args:
        tokenizer: of words, characters or bytes.
        length: positions to keep.
        number: of processes.

    >>> with Workers(open_tokenizer("bytes"), length=2, number=1) as workers:
    ...     [ids.tolist() for ids, _ in workers.encoded([["ab", "c"], ["d"]])]
    [[[97, 98], [99, 0]], [[100, 0]]]
    """

    def __init__(self, tokenizer: Tokenizer, *, length: int, number: int):
        tokens = list(tokenizer.tokens) if vocabulary_occurs(tokenizer.name) else None
        self._length, self.number = length, number
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
        work = _Work(tokenizer.name, tokens, length)
        for process in self._processes:
            _send(_pipes(process)[0], work)
            self._idle.put(process)

    def __enter__(self) -> "Workers":
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

    def submit(self, texts: list[str]) -> "Future[Encoded]":
        """The ids and mask of texts, once they are made."""
        return self._threads.submit(self._encode, texts)

    def encoded(self, batches: Iterable[list[str]]) -> Iterator[Encoded]:
        """The ids and mask of each batch, in order."""
        waiting: deque[Future[Encoded]] = deque()
        for texts in batches:
            waiting.append(self.submit(texts))
            if len(waiting) > self.ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    @property
    def ahead(self) -> int:
        """Batches that are under way at once."""
        return _AHEAD * self.number

    def _encode(self, texts: list[str]) -> Encoded:
        process = self._idle.get()
        try:
            into, out = _pipes(process)
            _send(into, texts)
            ids, lengths, problem = _received(out)
        except (OSError, EOFError) as error:
            raise RuntimeError(
                f"a process that tokenizes ended (status {process.poll()}); memory may be short: "
                "pass `workers=0` to tokenize in this process"
            ) from error
        finally:
            self._idle.put(process)
        if problem:
            raise InputError(problem)
        return ids.astype(np.int32), np.arange(self._length) < lengths[:, None]


def serve() -> None:
    """Run a worker: encode texts from standard input until it ends."""
    into, out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed is no answer
    work = _received(into)
    tokenizer = open_tokenizer(work.name, vocabulary=work.tokens)
    smallest = np.min_scalar_type(len(tokenizer.tokens))
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            _send(out, _answer(tokenizer, _received(into), work.length, smallest))


def _answer(tokenizer: Tokenizer, texts: list[str], length: int, dtype: Any) -> Sequence[Any]:
    """Ids, lengths, and what is wrong with a text."""
    try:
        ids, mask = tokenizer.encode(texts, length=length)
    except InputError as error:
        return None, None, str(error)
    return ids.astype(dtype), mask.sum(axis=1), ""


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
