"""`jaxpe train` killed and interrupted goes on by the command it prints."""

import json
import shlex
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from jaxpe.training import load_run
from tests.hardening.families import SMALL_MODEL
from tests.training.factory import assert_equal


@pytest.fixture
def interruptible():
    """SIGINT as in a foreground job: a shell has its background jobs, and theirs, ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def start(*words: object, **options: Any) -> subprocess.Popen:
    command = [sys.executable, "-c", "from jaxpe.cli.main import main; main()", "train"]
    options |= {"stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([*command, *map(str, words)], **options)


@pytest.mark.usefixtures("interruptible")
def test_interrupted_killed_and_resumed_is_as_if_never_stopped(films, tmp_path):
    """It goes on by the command it prints."""
    whole, parts = tmp_path / "whole", tmp_path / "in parts"
    often = ("--evaluate-every", 5, "--checkpoint-every", 20, "--probe-at", 0, 30)
    words = (films, *SMALL_MODEL, *often, "--steps", 60, "--model.dropout", 0.2)
    interrupted = start(*words, "--out", parts, stderr=subprocess.PIPE)
    for line in interrupted.stdout:
        if line.startswith("learned: "):  # before it compiles the first step
            break
    while not (parts / "config.json").exists():
        time.sleep(0.01)
    interrupted.send_signal(signal.SIGINT)
    _, err = interrupted.communicate()
    assert interrupted.returncode == 130
    about, _, line = err.splitlines()[-1].partition(": ")
    jaxpe, train, *again = shlex.split(line)
    assert about in ("To go on", "No step is saved yet. To start again")
    assert (jaxpe, train) == ("jaxpe", "train")
    never_stopped, killed = start(*words, "--out", whole), start(*again)
    for line in killed.stdout:
        if line.startswith("step     45 "):  # the checkpoint of step 20 is on the disk
            break
    killed.kill()
    killed.communicate()
    assert killed.returncode < 0
    assert not (parts / "summary.json").exists()
    last = (parts / "log.jsonl").read_text().split("\n")[-2]
    assert 44 <= json.loads(last)["step"] < 60
    resumed = start("--resume", "--out", parts)
    _, printed = (process.communicate()[0] for process in (never_stopped, resumed))
    assert never_stopped.returncode == resumed.returncode == 0
    assert "step     10 " not in printed  # it went on, it did not start again
    assert "step     60 " in printed
    assert (parts / "log.jsonl").read_bytes() == (whole / "log.jsonl").read_bytes()
    loaded = [load_run(path) for path in (parts, whole)]
    assert_equal(*(run.params for run in loaded))
    assert [run.step for run in loaded] == [60, 60]
