"""`jaxpe train` killed and interrupted goes on by the command it prints."""

import json
import shlex
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from jaxpe.training import load_run, read_log
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


def test_killed_and_resumed_is_as_if_never_stopped(films, tmp_path):
    whole, parts = (tmp_path / name for name in ("whole", "parts"))
    often = ("--evaluate-every", 5, "--checkpoint-every", 20, "--probe-at", 0, 30)
    words = (films, *SMALL_MODEL, *often, "--steps", 60, "--model.dropout", 0.2)
    never_stopped, killed = start(*words, "--out", whole), start(*words, "--out", parts)
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


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_process_goes_on_by_the_command_it_prints(films, tmp_path):
    out = tmp_path / "my run"
    process = start(
        films, *SMALL_MODEL, "--steps", 9, "--probe-at", "--out", out, stderr=subprocess.PIPE
    )
    for line in process.stdout:
        if line.startswith("learned: "):  # before it compiles the first step
            break
    while not (out / "config.json").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    about, _, line = err.splitlines()[-1].partition(": ")
    jaxpe, train, *words = shlex.split(line)
    assert about in ("To go on", "No step is saved yet. To start again")
    assert (jaxpe, train) == ("jaxpe", "train")
    start(*words).communicate()
    assert load_run(out).step == 9
    assert [record["step"] for record in read_log(out / "log.jsonl")] == list(range(10))
