"""A training run that is killed again and again ends as one that was never interrupted."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.training.factory import assert_equal

ROOT = Path(__file__).parents[2]

KILLED = """
import os, signal, sys, threading, warnings
import numpy as np
from jaxpe.training import Checkpoints, Hook, batches, fit, read_log, train_step
from tests.training import factory

def end(*args):
    os.kill(os.getpid(), signal.SIGKILL)

def kill_once_writing(directory, step):
    def watch():
        while not any(f"{step}.orbax" in entry.name for entry in os.scandir(directory)):
            pass
        end()
    threading.Thread(target=watch, daemon=True).start()

def at(step, run):
    def running(number, *args):
        run(number, *args)
        if number == step:
            end()
    return running

def train(directory, moment, step):
    look = lambda number, state: {"seen": float(state.params["bias"][0])}
    fatal = Hook(at={step} if moment == "step" else (), run=end, ends=False)
    data = batches(factory.rows(20), batch_size=4, seed=0)
    step_once = train_step(factory.masked_loss, factory.OPTIMIZER)
    with Checkpoints(directory) as checkpoints:
        if moment == "writing":
            kill_once_writing(directory, step)
        if moment == "saved":
            checkpoints.save = at(step, checkpoints.save)
        result = fit(
            factory.state(), step_once, data, steps=12, checkpoints=checkpoints,
            checkpoint_every=4, log=directory + ".jsonl",
            hooks=[Hook(at={3, 7}, run=look), fatal],
        )
    assert result.history == read_log(directory + ".jsonl")
    np.savez(directory + ".npz", **result.state.params)

def killed(directory, moment, step):
    child = os.fork()
    if not child:
        train(directory, moment, step)
        sys.stdout.flush()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == (0 if moment == "never" else -9), (moment, step)

warnings.simplefilter("ignore")  # of forking, which is before JAX has threads
whole, often = sys.argv[1:]
killed(whole, "never", 0)
for moment, step in MOMENTS:
    killed(often, moment, step)
killed(often, "never", 0)
"""
MOMENTS = [
    ("step", 3),
    ("writing", 4),
    ("saved", 4),
    ("writing", 8),
    ("step", 11),
]


def test_a_run_killed_again_and_again_ends_as_one_that_never_was(tmp_path):
    """In a step, while a checkpoint is being written, and right after."""
    whole, often = tmp_path / "whole", tmp_path / "often"
    script = KILLED.replace("MOMENTS", repr(MOMENTS))
    result = subprocess.run(
        [sys.executable, "-c", script, whole, often],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    with np.load(f"{whole}.npz") as expected, np.load(f"{often}.npz") as actual:
        assert_equal(dict(actual), dict(expected))
    assert Path(f"{often}.jsonl").read_text() == Path(f"{whole}.jsonl").read_text()
    left = sorted(path.name for path in often.iterdir())
    assert left == ["12", "8"]
