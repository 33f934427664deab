"""SIGINT and SIGTERM end a process also in C that Python cannot interrupt."""

import os
import signal
import subprocess
import sys

import pytest

from tests.hardening import interrupted

SIGNALS = [signal.SIGINT, signal.SIGTERM]
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


def started(path, work: str, *, before: str = "", **options) -> subprocess.Popen[str]:
    script = SCRIPT.format(before=before, work=work)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", script, path], **streams, **options)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    "work",
    [
        pytest.param(LONG, id="in C"),
        pytest.param(DROPS, id="dropped"),
        pytest.param(COLLECTS, id="garbage collector"),
        pytest.param("ready(); time.sleep(600)", id="in Python"),
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


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="processes are found in /proc")
@pytest.mark.parametrize(("words", "number"), [
    (("report", "stdlib"), signal.SIGINT),
    (("count", "{out}/../?.txt", "--workers", 2), signal.SIGTERM),
])  # fmt: skip
def test_an_interrupted_command_ends_soon_and_leaves_nothing(tmp_path, words, number):
    """`python -m tests.hardening.interrupted 60` interrupts every command at random moments."""
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"to be {name} or not to be\n" * 50_000)
    words = (*words, "--out", "{out}")
    one = interrupted.interrupted(words[0], words, tmp_path / "out", 2.5, number)
    assert not [fault for fault in one.faults if "took" not in fault]  # a machine may be busy
