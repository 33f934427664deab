"""Commands that are killed at random moments and started again must end as if nothing had been.

found = killed_and_resumed(
    lambda folder: ["jaxpe", "count", "corpus.txt", "--out", folder],
    tmp_path, kills=20, seed=0, same=same_files("counts.npz"),
)
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).parents[2]
JAXPE = (sys.executable, "-m", "jaxpe")  # stands for `jaxpe`


class Run(NamedTuple):
    """How a command ended.

    - `code`: its exit code, -9 where it was killed.
    - `output`: all that it printed, errors among it.
    - `seconds`: from when its work began.
    """

    code: int
    output: str
    seconds: float


class KillTest(NamedTuple):
    """What was tried: kills that hit, folders whose result was compared, and every run."""

    kills: int
    compared: int
    runs: list[Run]


def run_killed(
    command: Sequence[object],
    after: float | None = None,
    *,
    begins: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 600,
) -> Run:
    """Run a command, and kill it (SIGKILL, with all of its children) after so many seconds.

    Args:
        command: words, the first of which may be `jaxpe`.
        after: seconds; None: it may run to its end.
        begins: a pattern of the first line it prints when the work has begun, which is when time
            starts to count; from the start when absent.
        env: environment variables to set.
        timeout: seconds after which a run that is not killed is an error.
    """
    words = [str(word) for word in command]
    words[:1] = JAXPE if words[0] == "jaxpe" else words[:1]
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    )
    lines, began, moment = [], threading.Event(), [time.perf_counter()]
    if begins is None:
        began.set()

    def read() -> None:
        for line in process.stdout:
            lines.append(line)
            if not began.is_set() and re.search(str(begins), line):
                moment[0] = time.perf_counter()
                began.set()
        began.set()  # it ended without having begun

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        if after is None:
            process.wait(timeout)
        else:
            if not began.wait(timeout):
                raise AssertionError(f"no line like {begins!r} in {timeout} s: {''.join(lines)}")
            process.wait(after)
    except subprocess.TimeoutExpired:
        if after is None:
            raise AssertionError(f"not done in {timeout} s: {''.join(lines)}") from None
    finally:
        seconds = time.perf_counter() - moment[0]
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join()
        process.stdout.close()
    return Run(process.returncode, "".join(lines), seconds)


def killed_and_resumed(
    command: Callable[[Path], Sequence[object]],
    folder: Path,
    *,
    kills: int,
    seed: int,
    same: Callable[[Path, Path], None],
    begins: str | None = None,
    again: Callable[[Path], Sequence[object]] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 600,
) -> KillTest:
    """Kill a command so many times at random moments, each time start it again, compare the ends.

    A first run is left alone and shows how long the work takes; kills come at moments drawn evenly
    from that time. A run that is done before its kill is compared, and another folder is begun.

    Args:
        command: the words of the command that writes into a folder, as for `run_killed`.
        folder: for the folders of the runs.
        kills: how many must hit.
        seed: of the moments.
        same: is given the folder of the undisturbed run and that of a killed one, and raises where
            they differ; `same_files` makes one.
        begins: as for `run_killed`.
        again: the command that goes on in a folder where something is, if it is another.
        env, timeout: as for `run_killed`.

    Raises:
        AssertionError: a run failed, the results differ, or too many runs ended before their kill.
    """
    rng = np.random.default_rng(seed)
    limits = {"env": env, "timeout": timeout}
    whole, number, hit, compared = folder / "whole", 0, 0, 0
    runs = [_finished(run_killed(command(whole), begins=begins, **limits))]
    killed, words = folder / "killed-0", command
    while hit < kills:
        moment = rng.uniform(0, runs[0].seconds)
        runs.append(run_killed(words(killed), moment, begins=begins, **limits))
        if runs[-1].code == -signal.SIGKILL:
            hit += 1
            words = (again or command) if killed.exists() else command
            continue
        _finished(runs[-1])
        same(whole, killed)
        number, compared = number + 1, compared + 1
        assert number <= 2 * kills + 5, f"{number} runs were done before they were killed"
        killed, words = folder / f"killed-{number}", command
    runs.append(_finished(run_killed(words(killed), begins=begins, **limits)))
    same(whole, killed)
    return KillTest(hit, compared + 1, runs)


def _finished(run: Run) -> Run:
    assert run.code == 0, run.output
    return run


def same_files(*names: str) -> Callable[[Path, Path], None]:
    """Raises where the files of these names are not equal to the byte in two folders."""

    def same(one: Path, other: Path) -> None:
        different = [
            name for name in names if (one / name).read_bytes() != (other / name).read_bytes()
        ]
        assert not different, f"{', '.join(different)} differ in {one} and {other}"

    return same
