"""One hostile input, tried in a process of its own, and what came of it.

Processes are forked from one that has imported the library and has not started JAX, so that an
attempt takes as long as its work.
"""

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from jaxpe._core.errors import InputError

Verdict = Literal["answered", "right", "slow", "wrong"]
_WRONG_RESULT = 99  # exit status of a result that is not right
_MOST_BYTES = 2**31  # beyond what the imports take
_LINES = 12  # of standard error: progress, and one line about the fault


class Attempt(NamedTuple):
    """A hostile input and what is done with it.

    - `family`: the kind of input.
    - `about`: what it is.
    - `call`: does it, in a folder of its own; an `AssertionError` says that a result is not right.
    - `refused`: whether only a refusal is right.
    - `limit_s`: seconds after which it is stopped, and called slow.
    """

    family: str
    about: str
    call: Callable[[Path], object]
    refused: bool = False
    limit_s: float = 60.0


class Outcome(NamedTuple):
    """What came of an attempt.

    - `verdict`: "answered" by one line and exit status 2 (1 for NaN), "right" as a result, "slow",
      or "wrong": a traceback, a signal, another result, too much memory, a result where none is.
    - `seconds`, `bytes`: time and memory it took.
    - `said`: what it printed on standard error.
    """

    attempt: Attempt
    verdict: Verdict
    seconds: float
    bytes: int
    said: str


class _Running(NamedTuple):
    attempt: Attempt
    folder: TemporaryDirectory
    said: Path
    started: float


def command(*words: object) -> None:
    """`jaxpe ...`, as typed; ends as the command ends."""
    from jaxpe.cli import main as cli

    sys.argv = ["jaxpe", *map(str, words)]
    cli.main()


def outcomes(attempts: Iterable[Attempt], *, workers: int | None = None) -> Iterator[Outcome]:
    """Try all of them, one a processor at a time unless told; in the order in which they end."""
    workers = workers or os.cpu_count() or 1
    running: dict[int, _Running] = {}
    waiting = iter(attempts)
    finished = False
    while running or not finished:
        while len(running) < workers and not finished:
            attempt = next(waiting, None)
            finished = attempt is None
            if attempt is not None:
                pid, started = _start(attempt)
                running[pid] = started
        yield from _ended(running)


def outcome(attempt: Attempt) -> Outcome:
    """Try one."""
    return next(outcomes([attempt], workers=1))


def _start(attempt: Attempt) -> tuple[int, _Running]:
    folder = TemporaryDirectory(prefix="hostile-")
    said = Path(folder.name) / ".said"
    work = Path(folder.name) / "work"
    work.mkdir()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os._exit(_child(attempt, work, said))
    return pid, _Running(attempt, folder, said, time.monotonic())


def _child(attempt: Attempt, work: Path, said: Path) -> int:
    os.setpgid(0, 0)
    os.chdir(work)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    null = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, null), (1, null), (2, descriptor)):
        os.dup2(source, target)
    # The terminal is taken to be of UTF-8, whatever runs this.
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    code = _called(attempt, work)
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    return code


def _called(attempt: Attempt, work: Path) -> int:
    try:
        attempt.call(work)
    except InputError as error:  # from a reader; a command makes the same of it
        print(f"jaxpe: {error}", file=sys.stderr)
        return 2
    except SystemExit as stop:
        return int(stop.code or 0)
    except AssertionError:
        traceback.print_exc()
        return _WRONG_RESULT
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _ended(running: dict[int, _Running]) -> Iterator[Outcome]:
    """Those that have ended, or took too long; waits a moment where there is none."""
    for pid in list(running):
        one = running[pid]
        seconds = time.monotonic() - one.started
        slow = seconds > one.attempt.limit_s
        if slow:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        found, status, usage = os.wait4(pid, 0 if slow else os.WNOHANG)
        if found:
            del running[pid]
            yield _judged(one, status, slow, seconds, usage.ru_maxrss * 1024)
    time.sleep(0.005)


def _judged(one: _Running, status: int, slow: bool, seconds: float, used: int) -> Outcome:
    said = one.said.read_text(encoding="utf-8", errors="replace") if one.said.exists() else ""
    one.folder.cleanup()
    verdict: Verdict = "wrong"
    code = os.waitstatus_to_exitcode(status)
    if slow:
        verdict = "slow"
    elif used > _MOST_BYTES:
        said += f"\n(took {used / 1e9:.1f} GB)"
    elif code == 0 and not one.attempt.refused:
        verdict = "right"
    elif code in (1, 2) and _one_line(said):  # 1 is a training that came to NaN
        verdict = "answered"
    return Outcome(one.attempt, verdict, seconds, used, f"{said}(exit status {code})")


def _one_line(said: str) -> bool:
    """Whether the fault is told in one line at the end, or by the parser of options."""
    lines = [line for line in said.splitlines() if line.strip()]
    if "Traceback" in said or not lines:
        return False
    if lines[0].startswith("╭"):  # the box of the parser of options
        return True
    told = [line for line in lines if line.startswith("jaxpe: ")]
    return len(told) == 1 and lines[-1] == told[0] and len(lines) <= _LINES
