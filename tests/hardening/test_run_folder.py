"""The folder of a run: two processes that want it, and a full disk."""

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxpe._core.errors import InputError
from jaxpe.training import Checkpoints, Hook, batches, fit, load_run, read_log, train_step
from tests.compilation import quick_compilation
from tests.conftest import small_disk
from tests.training import factory
from tests.training.factory import assert_equal

ROOT = Path(__file__).parents[2]

AT_ONCE = """
import sys
import time
from pathlib import Path
from jaxpe._core.errors import InputError
from jaxpe.training import run
from tests.training.test_folder import asked, not_evaluated, not_trained
run.train_step, run.evaluate = not_trained, not_evaluated
print("ready", flush=True)
sys.stdin.readline()
try:
    run.train(asked(sys.argv[1], Path(sys.argv[2])))
    print("trained")
except InputError as error:
    print(f"refused: {error}")
"""


def test_of_two_processes_that_train_into_one_folder_one_does(films, tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-c", AT_ONCE, films, out]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, cwd=ROOT, **pipes) for _ in range(2)]
    assert [one.stdout.readline() for one in both] == ["ready\n"] * 2
    for one in both:
        one.stdin.write("go\n")
        one.stdin.flush()
    refused, trained = sorted(one.communicate()[0] for one in both)
    assert trained == "trained\n"
    assert refused.startswith("refused: ")
    assert any(words in refused for words in ("another run is writing", "already holds a run"))
    assert load_run(out).step == 2
    assert [record["step"] for record in read_log(out / "log.jsonl")] == [0, 1, 2]


def resumed(folder, *, steps, log=None, hooks=()):
    data = batches(factory.rows(20), batch_size=4, seed=0)
    step = train_step(factory.masked_loss, factory.OPTIMIZER)
    with Checkpoints(folder) as checkpoints:
        return fit(
            factory.state(), step, data, steps=steps, checkpoints=checkpoints,
            checkpoint_every=4, log=log, hooks=hooks,
        )  # fmt: skip


def fill_disk(folder, log):
    """Train until there is no room for the second checkpoint; prints the error."""
    with contextlib.ExitStack() as disk:

        def fill(*_):
            while not (Path(folder) / "4").exists():  # written meanwhile
                time.sleep(0.01)
            disk.enter_context(small_disk(0))

        fills = Hook(at={6}, run=fill, ends=False)
        try:
            with quick_compilation():  # as in the process of the tests, to the bit
                resumed(Path(folder), steps=10, log=log, hooks=[fills])
        except InputError as error:
            print(error)


@pytest.mark.parametrize("log", [None, "log.jsonl"])
def test_a_full_disk_is_one_error_and_what_was_saved_before_goes_on(tmp_path, log):
    whole, full = tmp_path / "whole", tmp_path / "full"
    logs = [None if log is None else folder / log for folder in (whole, full)]
    expected = resumed(whole, steps=10, log=logs[0])
    # In a process of its own: threads of a save that failed go on, and warn, after its error.
    words = f"from tests.hardening.test_run_folder import fill_disk; fill_disk({str(full)!r}, "
    words += f"{None if log is None else str(logs[1])!r})"
    done = subprocess.run(
        [sys.executable, "-c", words],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "JAX_ENABLE_X64": "1"},
    )
    assert re.search(r"cannot (save|write) .*full", done.stdout), done.stderr
    assert "4" in {path.name for path in full.iterdir()}
    found = resumed(full, steps=10, log=logs[1])
    assert_equal(found.state, expected.state)
    if log is not None:
        assert logs[0].read_bytes() == logs[1].read_bytes()
