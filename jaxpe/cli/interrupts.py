"""Exit at once at SIGINT or SIGTERM, whatever the command is doing."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

from jaxpe._core.files import discard_unfinished

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def prompt_exit(message: Callable[[], str] = str) -> Iterator[None]:
    """End the process with status 128 + signal at SIGINT or SIGTERM.

    Python runs signal handlers in the main thread, between two instructions; an instruction such as
    compiling may take many seconds, and libraries may catch the exception of a handler. Therefore a
    thread receives the signal from the operating system through a socket, and ends the process. The
    interpreter's shutdown is skipped: it waits for running threads, and some of them crash in it.

    An ignored signal stays ignored, as under `nohup`. Of several processes, SIGTERM stays with JAX:
    its handler, unknown to Python, lets all of them save the same step.

    Args:
        message: function that returns the last line for standard error, or "".
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    jax = sys.modules.get("jax")  # not imported: `jaxpe --help` does without
    several = jax is not None and jax.distributed.is_initialized()
    signals = (signal.SIGINT,) if several else _SIGNALS
    before = {number: signal.getsignal(number) for number in signals}
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    for number, handler in before.items():
        if handler not in (signal.SIG_IGN, None):
            signal.signal(number, lambda *_: None)  # the thread does what is to be done
    descriptor = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(receiver, message), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: not installed by Python
        sender.close()


def _watch(receiver: socket.socket, message: Callable[[], str]) -> None:
    """End the process at a signal."""
    with receiver:
        while content := receiver.recv(1):  # empty when the context ends
            if (number := content[0]) in _SIGNALS:
                _end(number, message)


def _end(number: int, message: Callable[[], str]) -> None:
    """End the process and its children immediately, leaving no incomplete file."""
    with contextlib.suppress(Exception):
        multiprocessing = sys.modules.get("multiprocessing")  # slow to import
        for child in multiprocessing.active_children() if multiprocessing else ():
            child.kill()
        discard_unfinished()
        if text := message():
            print(text, file=sys.stderr)
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)  # the line of progress
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    os._exit(128 + number)
