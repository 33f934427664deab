"""Training in two processes: the run of one, and none waits for the dead."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.compilation import device_environment
from tests.training.sharded import assert_same_losses, resumed, trained

ROOT = Path(__file__).parents[2]
# In place of a cluster manager, which `--distributed` asks for the other processes.
MAIN = (
    "import jax, sys; address, process = sys.argv.pop(), int(sys.argv.pop()); "
    "jax.distributed.initialize(address, 2, process, heartbeat_timeout_seconds=30); "
    "from jaxpe.cli.main import main; main()"
)
TRAIN = (
    "-c", MAIN, "train", "--length=4", "--model.dim=8",
    "--model.layers=1", "--model.heads=2", "--batch-size=8", "--steps=100000",
    "--evaluate-every=100000", "--probe-at", "--tensor=2",
)  # fmt: skip


def free_address():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return f"localhost:{free.getsockname()[1]}"


def started(*words, devices=2):
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=device_environment(devices),
    )


def ended(*processes):
    ends = [process.communicate(timeout=300)[1] for process in processes]
    return [process.returncode for process in processes], ends


def test_two_processes_make_the_steps_of_one_which_goes_on(tmp_path):
    """Losses are those of one device, which goes on."""
    words = ("-m", "tests.training.sharded", tmp_path, free_address(), 2)
    codes, errors = ended(*(started(*words, process) for process in range(2)))
    assert codes == [0, 0], errors
    losses = trained(steps=6)[1]
    assert_same_losses(tmp_path, 2, losses)
    resumed(tmp_path / "processes", None, losses)


def two(out, *words, devices=2):
    address = free_address()
    return [started(*words, f"--out={out}", k, address, devices=devices) for k in range(2)]


def wait_for_step(log, step, processes):
    while all(process.poll() is None for process in processes):
        lines = log.read_text().splitlines() if log.exists() else []
        if lines and json.loads(lines[-1])["step"] >= step:
            return
        time.sleep(0.1)
    pytest.fail(str(ended(*processes)))


def test_a_signal_to_one_ends_both_after_one_step_and_a_death_ends_the_other(films, tmp_path):
    out, log = tmp_path / "run", tmp_path / "run" / "log.jsonl"
    processes = two(out, *TRAIN, films)
    wait_for_step(log, 3, processes)
    processes[1].send_signal(signal.SIGTERM)
    codes, errors = ended(*processes)
    assert codes == [143, 143], errors
    saved = max(int(path.name) for path in (out / "checkpoints").iterdir())
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()][-1] == saved
    assert all("To go on: jaxpe train" in error for error in errors)

    # Of two devices of a process one may wait for the other, which waits for the dead process,
    # until JAX aborts.
    processes = two(out, *TRAIN[:3], "--resume", "--tensor=1", "--fsdp=2", devices=1)
    wait_for_step(log, saved + 3, processes)
    processes[1].kill()
    codes, errors = ended(*processes)
    assert codes[0] != 0
    assert codes[1] == -signal.SIGKILL
