"""Exit within two seconds of SIGINT or SIGTERM, whatever the command is doing."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from jaxpe._core.files import discard_unfinished

GRACE_S = 1.2  # seconds for a command to close its files before the process ends
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def prompt_exit(message: Callable[[], str] = str) -> Iterator[None]:
    """End the process with status 128 + signal soon after SIGINT or SIGTERM.

    Python runs signal handlers in the main thread, between two instructions. An instruction such as
    compiling may take many seconds, and libraries may catch the exception of a handler. Therefore a
    thread receives the signal from the operating system through a socket, and ends the process
    after `GRACE_S`. The interpreter's shutdown is skipped: it waits for running threads, and some
    of them crash in it.

    An ignored signal stays ignored, as under `nohup`. A handler whose attribute `defers` is true
    takes the first signal itself: training finishes and saves its step.

    Args:
        message: function that returns the last line for standard error, or "".
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
    unraisable = sys.unraisablehook

    def end_if_lost(lost: "sys.UnraisableHookArgs") -> None:
        """Exceptions of finalizers and of callbacks of the garbage collector go no further."""
        if received and lost.exc_type is KeyboardInterrupt:
            _end(received[0], message)
        unraisable(lost)

    sys.unraisablehook = end_if_lost
    descriptor = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(receiver, message), daemon=True).start()
    try:
        yield
    except BaseException:
        if received:  # a library may have replaced the KeyboardInterrupt by another exception
            _end(received[0], message)
        raise
    finally:
        signal.set_wakeup_fd(descriptor)
        sys.unraisablehook = unraisable
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: not installed by Python
        sender.close()


def _watch(receiver: socket.socket, message: Callable[[], str]) -> None:
    """End the process `GRACE_S` after a signal, or immediately after a second one."""
    with receiver:
        while number := _next_signal(receiver):
            receiver.settimeout(GRACE_S)
            try:
                if not (again := _next_signal(receiver)):
                    return  # the context was left
            except TimeoutError:
                again = 0
            # Read after the grace period, in which training may have completed its first step.
            if again or not getattr(signal.getsignal(number), "defers", False):
                _end(number, message)
            receiver.settimeout(None)


def _next_signal(receiver: socket.socket) -> int:
    """Number of the next SIGINT or SIGTERM; 0 when the context ends."""
    while content := receiver.recv(1):
        if content[0] in _SIGNALS:
            return content[0]
    return 0


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being imported: a C extension may crash on an exception, or lose it."""
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def _end(number: int, message: Callable[[], str]) -> None:
    """End the process immediately, leaving no incomplete file."""
    with contextlib.suppress(Exception):
        discard_unfinished()
        if text := message():
            print(text, file=sys.stderr)
        if sys.stderr.isatty():
            print("\033[?25h", end="", file=sys.stderr)  # show the cursor, which bars hide
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    os._exit(128 + number)
