"""Processes of Python that answer questions: threads share one interpreter lock."""

import contextlib
import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

# `sys.path` is that of this process: `-c` alone would put the current folder first, whose files may
# have the names of modules that Python needs.
_MAIN = "import sys; sys.path[:] = sys.argv[1:]; from jaxpe._core.processes import serve; serve()"
_READY = b"jaxpe: ready\n"  # before it others may write, such as a sitecustomize.py
OWN_GROUP: dict[str, Any] = (  # an interrupt is for the process that asks
    {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}  # pyrefly: ignore
    if sys.platform == "win32"
    else {"start_new_session": True}
)


def collect_rarely() -> None:
    """Search for cycles less often, for the rest of this process.

    Imports, tracing and drawing make millions of objects that live, and with Python's own
    thresholds the searches take a tenth of the time of a report.
    """
    gc.set_threshold(100_000, 20, 100)


class Helper:
    """A process that answers questions, one after another; a context manager.

    It also ends with the process that made it, however that ends. Not of the module
    multiprocessing, which runs the user's script again in each process.

    Args:
        begin: function that the process calls first, and that returns its function of a question
            to the answer. Both, questions and answers are pickled.

    Raises:
        OSError: no process can be started, as where this Python is a part of an application.

    >>> import functools, operator
    >>> with Helper(functools.partial(operator.itemgetter, 1)) as helper:
    ...     helper.ask("abc")
    'b'
    """

    def __init__(self, begin: Callable[[], Callable[[Any], Any]]) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            raise FileNotFoundError("no executable of Python")
        self._is_ready = self._was_waited_for = False
        self._process = subprocess.Popen(
            [sys.executable, "-c", _MAIN, *filter(None, sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1"},
            **OWN_GROUP,
        )
        try:
            self._send(begin)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Helper":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def wait_until_ready(self) -> None:
        """Return once `begin` has. Raises OSError or EOFError where the process has ended."""
        assert self._process.stdout is not None
        self._was_waited_for = True
        while not self._is_ready:
            line = self._process.stdout.readline()
            if not line:
                raise EOFError("the process has ended")
            self._is_ready = line.endswith(_READY)

    def ask(self, question: Any) -> Any:
        """The answer. Raises OSError or EOFError where the process has ended."""
        self._send(question)
        self.wait_until_ready()
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)
        except OSError:
            raise
        except Exception as error:  # of a part of an answer, of any kind
            raise EOFError(str(error)) from error

    def status(self) -> int | None:
        """The exit status of the process; None where it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """End the process at once; an answer that another thread waits for does not come."""
        self._process.kill()

    def close(self) -> None:
        """Let the process end, or end it: after a second, or at once where nobody waited for it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if not self._was_waited_for:
            self.kill()
        with contextlib.suppress(OSError):  # of what it has not read
            self._process.stdin.close()
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self._process.stdout.close()

    def _send(self, value: Any) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        pickle.dump(value, pipe, pickle.HIGHEST_PROTOCOL)
        pipe.flush()


def serve() -> None:
    """Answer, as a `Helper`, what comes on standard input, until that ends."""
    into, out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed is no answer
    collect_rarely()
    with contextlib.suppress(EOFError, BrokenPipeError):
        answer = pickle.load(into)()
        out.write(_READY)
        out.flush()
        while True:
            pickle.dump(answer(pickle.load(into)), out, pickle.HIGHEST_PROTOCOL)
            out.flush()
    gc.freeze()  # a last search for cycles takes a tenth of a second
