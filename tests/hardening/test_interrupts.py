"""SIGINT and SIGTERM end a process also in C that Python cannot interrupt, and its children."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from jaxpe.analysis import counts as counting
from jaxpe.analysis.counts.stored import is_counted

# A function in C of some minutes, which does not look at signals.
LONG = "ready(); hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"
# Drops every exception, as a callback of a weak reference does.
DROPS = "exec('while True:\\n try: ready(), time.sleep(9)\\n except BaseException: pass')"
# Python drops exceptions of such a callback itself, and prints them. JAX has one.
COLLECTS = "gc.callbacks.append(lambda *_: (ready(), time.sleep(9))); gc.collect()"
SCRIPT = """
import gc, hashlib, signal, sys, time
from jaxpe._core.files import atomic_file
from jaxpe.cli.interrupts import prompt_exit
def ready():
    print("ready", flush=True)
{before}
with prompt_exit(lambda: "To go on: again"), atomic_file(sys.argv[1]) as part:
    part.write_text("a part of it")
    {work}
"""


def started(path, work: str, *, before: str = "") -> subprocess.Popen[str]:
    script = SCRIPT.format(before=before, work=work)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", script, path], **streams)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    ("work", "number"),
    [
        pytest.param(LONG, signal.SIGTERM, id="in C"),
        pytest.param(DROPS, signal.SIGINT, id="dropped"),
        pytest.param(COLLECTS, signal.SIGTERM, id="garbage collector"),
    ],
)
def test_a_signal_ends_a_process_that_leaves_no_part_of_a_file(tmp_path, work, number):
    path = tmp_path / "whole.json"
    path.write_text("[]")
    process = started(path, work)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert said == "To go on: again\n"
    assert [file.name for file in tmp_path.iterdir()] == ["whole.json"]
    assert path.read_text() == "[]"


def test_a_signal_that_is_ignored_stays_so(tmp_path):
    work = "ready(); signal.raise_signal(signal.SIGINT); print('on', flush=True)"
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    process = started(tmp_path / "a", work, before=ignored)
    assert process.stdout.read() == "on\n"
    process.communicate(timeout=30)
    assert process.returncode == 0


def with_mark(mark: str) -> list[int]:
    """Processes that have the mark in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="processes are found in /proc")
def test_processes_end_with_the_command_and_their_shards_stay(tmp_path):
    for shard in range(6):
        text = "\n".join(f"to be {shard} or not {row}" for row in range(1000))
        (tmp_path / f"{shard}.txt").write_text(text)
    settings = {"tokenizer": "bytes", "length": 64, "folds": 4, "nulls": 8}
    options = [x for name, value in settings.items() for x in (f"--{name}", str(value))]
    out, mark = tmp_path / "out", uuid.uuid4().hex
    words = ["count", str(tmp_path / "?.txt"), *options, "--workers", "2", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "jaxpe", *words],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "JAXPE_TEST_MARK": mark},
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 120
    while not any(out.glob("shards/[!.]*")) and time.monotonic() < until:
        time.sleep(0.01)
    process.kill()  # the command alone
    process.wait()
    until = time.monotonic() + 30
    while with_mark(mark) and time.monotonic() < until:
        time.sleep(0.05)
    assert not with_mark(mark)
    assert not is_counted(out)
    shards = {path: path.stat().st_mtime_ns for path in out.glob("shards/[!.]*")}
    assert shards
    counts = counting.CountOptions(sources=(str(tmp_path / "?.txt"),), **settings)
    for place in (out, tmp_path / "whole"):
        counting.count(counts, place)
    assert (out / "counts.npz").read_bytes() == (tmp_path / "whole" / "counts.npz").read_bytes()
    assert {path: path.stat().st_mtime_ns for path in shards} == shards
