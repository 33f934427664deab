"""Training in two processes: the run of one, and none waits for the dead."""

import dataclasses
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxpe.training import load_config, load_run, read_log, train
from tests.compilation import device_environment

ROOT = Path(__file__).parents[2]
# In place of a cluster manager, which `--distributed` asks for the other processes.
MAIN = (
    "import jax, sys; address, process = sys.argv.pop(), int(sys.argv.pop()); "
    "jax.distributed.initialize(address, 2, process, heartbeat_timeout_seconds=30); "
    "from jaxpe.cli.main import main; main()"
)
TRAIN = (
    "--length=4", "--model.dim=8", "--model.layers=1", "--model.heads=2", "--batch-size=8",
    "--steps=100000", "--evaluate-every=100000", "--probe-at", "--decay=constant", "--warmup=0",
    "--fsdp=2",
)  # fmt: skip


def two(out, *words):
    """Two processes of one device each: of several, one may wait for the other until JAX aborts."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    command = [sys.executable, "-c", MAIN, "train", *map(str, words), f"--out={out}"]
    return [
        subprocess.Popen(
            [*command, str(process), address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=device_environment(1),
        )
        for process in range(2)
    ]


def ended(processes):
    ends = [process.communicate(timeout=300)[1] for process in processes]
    return [process.returncode for process in processes], ends


def wait_for_step(log, step, processes):
    while all(process.poll() is None for process in processes):
        lines = log.read_text().splitlines() if log.exists() else []
        if lines and json.loads(lines[-1])["step"] >= step:
            return
        time.sleep(0.1)
    pytest.fail(str(ended(processes)))


def test_two_make_the_steps_of_one_and_end_together(films, tmp_path):
    """A signal to one ends both after one step, a death ends the other."""
    out, log = tmp_path / "run", tmp_path / "run" / "log.jsonl"
    processes = two(out, *TRAIN, films)
    wait_for_step(log, 3, processes)
    processes[1].send_signal(signal.SIGTERM)
    codes, errors = ended(processes)
    assert codes == [143, 143], errors
    assert all("To go on: jaxpe train" in error for error in errors)
    history = read_log(log)
    saved = max(int(path.name) for path in (out / "checkpoints").iterdir())
    alone = dataclasses.replace(load_config(out), out=tmp_path / "alone", resume=False, fsdp=1)
    with jax.enable_x64(False):
        assert history[-1]["step"] == saved == load_run(out).step  # by one process
        one = train(dataclasses.replace(alone, steps=3)).history
    for mine, theirs in zip(one[1:], history[1:4], strict=True):
        np.testing.assert_allclose(mine["loss"], theirs["loss"], rtol=1e-5)

    processes = two(out, "--resume")
    wait_for_step(log, saved + 3, processes)
    processes[1].kill()
    codes, _ = ended(processes)
    assert codes[0] != 0
    assert codes[1] == -signal.SIGKILL
