"""SIGINT and SIGTERM end a command within two seconds, whatever it is doing."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from jaxpe._core.files import discard_unfinished

GRACE_S = 1.2  # for a command to close what it has open, before the process ends all the same
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def prompt_exit(message: Callable[[], str] = str) -> Iterator[None]:
    """End the process with status 128 + signal soon after SIGINT or SIGTERM.

    Python runs signal handlers in the main thread between two of its instructions. One of them,
    such as compiling, may take many seconds, and libraries catch exceptions. So a thread learns of
    the signal from the operating system, through a socket, and ends the process after `GRACE_S`.
    The interpreter's own shutdown is left out: it waits for threads at work, and crashes in some.

    A signal that is ignored stays so, as `nohup` has it. A handler with the attribute `defers` is
    trusted with the first signal: training finishes and saves its step.

    Args:
        message: function that returns a last line for standard error, or "".
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _imports(frame):
            _end(number, message)
        received.append(number)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    for number, handler in before.items():
        if handler not in (signal.SIG_IGN, None):
            signal.signal(number, interrupt)
    descriptor = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(receiver, message), daemon=True).start()
    try:
        yield
    except BaseException:
        if received:  # and a library may have made another exception of it
            _end(received[0], message)
        raise
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None for one that is not Python's
        sender.close()


def _watch(receiver: socket.socket, message: Callable[[], str]) -> None:
    """End the process a while after a signal, at once after a second one."""
    with receiver:
        while number := _next_signal(receiver):
            receiver.settimeout(GRACE_S)
            try:
                if not (again := _next_signal(receiver)):
                    return  # the context was left
            except TimeoutError:
                again = 0
            # Looked at after the grace, in which training may have come to a step that it saves.
            if again or not getattr(signal.getsignal(number), "defers", False):
                _end(number, message)
            receiver.settimeout(None)


def _next_signal(receiver: socket.socket) -> int:
    """Number of the next signal that ends a command; 0 where the context is left."""
    while content := receiver.recv(1):
        if content[0] in _SIGNALS:
            return content[0]
    return 0


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being imported: one in C may crash on an exception, or drop it."""
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def _end(number: int, message: Callable[[], str]) -> None:
    """End the process at once, without a file that is not whole."""
    with contextlib.suppress(Exception):
        discard_unfinished()
        if text := message():
            print(text, file=sys.stderr)
        if sys.stderr.isatty():
            print("\033[?25h", end="", file=sys.stderr)  # shows the cursor that a bar has hidden
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    os._exit(128 + number)
