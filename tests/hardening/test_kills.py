"""Counts that were killed and go on are those of a run that never was killed."""

import os
import signal
import subprocess
import time
import uuid

import numpy as np
import pytest

from tests.hardening import interrupted
from tests.hardening.kills import JAXPE, ROOT, killed_and_resumed, run_killed, same_files

OPTIONS = ("--tokenizer", "bytes", "--length", 64, "--folds", 4, "--nulls", 20)


def count_command(folder, *, shards, rows):
    """Command that counts random documents in a folder."""
    rng = np.random.default_rng(0)
    for number in range(shards):
        lines = [" ".join(rng.choice(["to", "be", "or"], 20)) for _ in range(rows)]
        (folder / f"{number}.txt").write_text("\n".join(lines))
    return lambda out: ["jaxpe", "count", folder / "?.txt", *OPTIONS, "--out", out]


def killed_count(folder, *, kills):
    return killed_and_resumed(
        count_command(folder, shards=6, rows=2000),
        folder,
        kills=kills,
        seed=0,
        same=same_files("counts.npz"),
        env={"JAX_PLATFORMS": "cpu"},
    )


def test_killed_at_random_moments(tmp_path):
    found = killed_count(tmp_path, kills=2)
    assert found.kills == 2
    assert found.compared >= 1


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="processes are found in /proc")
def test_processes_end_with_the_command_and_their_shards_stay(tmp_path):
    command, out = count_command(tmp_path, shards=9, rows=2000), tmp_path / "out"
    words = [*command(out), "--workers", "2"]
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [*JAXPE, *map(str, words[1:])],
        cwd=ROOT,
        env={**os.environ, interrupted.MARK: mark},
        start_new_session=True,
    )
    until = time.monotonic() + 120
    while not any(out.glob("shards/[!.]*")) and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)  # to the command alone
    process.wait()
    until = time.monotonic() + 30
    while interrupted.processes_with(mark) and time.monotonic() < until:
        time.sleep(0.05)
    assert not interrupted.processes_with(mark)
    assert not (out / "counts.npz").exists()
    shards = {path: path.stat().st_mtime_ns for path in out.glob("shards/[!.]*")}
    assert shards
    for again in (words, command(tmp_path / "whole")):
        assert run_killed(again).code == 0
    same_files("counts.npz")(out, tmp_path / "whole")
    assert {path: path.stat().st_mtime_ns for path in shards} == shards
