"""Processes of Python that answer questions: threads share one interpreter lock."""

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

# The path of this process, which may begin with a folder that hides modules of Python's own.
_MAIN = "import sys; sys.path[:] = sys.argv[1:]; from jaxpe._core.processes import serve; serve()"


class Helper:
    """A process that answers questions, one after another; it ends with this process, too.

    Not of the module multiprocessing, which runs the user's script again in each process.

    Args:
        begin: function that the process calls first, and that returns its function of a question
            to the answer. Both, questions and answers are pickled.

    Raises:
        OSError: no process can be started, as where this Python is a part of an application.

    >>> import operator, functools
    >>> with contextlib.closing(Helper(functools.partial(operator.itemgetter, 1))) as helper:
    ...     helper.ask("abc")
    'b'
    """

    def __init__(self, begin: Callable[[], Callable[[Any], Any]]) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            raise FileNotFoundError("no executable of Python")
        self._process = subprocess.Popen(
            [sys.executable, "-c", _MAIN, *filter(None, sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            start_new_session=True,  # an interrupt is for the process that asks
        )
        self._send(begin)

    def ask(self, question: Any) -> Any:
        """The answer. Raises OSError or EOFError where the process has ended."""
        self._send(question)
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)
        except pickle.UnpicklingError as error:
            raise EOFError(str(error)) from error

    def status(self) -> int | None:
        """The exit status of the process; None where it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """End the process; an answer that another thread waits for does not come."""
        self._process.kill()

    def close(self) -> None:
        """End the process and close its pipes, which no other thread uses."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # of what it has not read
                pipe.close()
        self._process.wait()

    def _send(self, value: Any) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        pickle.dump(value, pipe, pickle.HIGHEST_PROTOCOL)
        pipe.flush()


def serve() -> None:
    """Answer, as a `Helper`, what comes on standard input, until that ends."""
    into, out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed is no answer
    answer = pickle.load(into)()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            pickle.dump(answer(pickle.load(into)), out, pickle.HIGHEST_PROTOCOL)
            out.flush()
