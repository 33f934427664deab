"""Two processes on this machine are one run: the same bytes, and none waits for the dead."""

import os
import random
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from jaxpe._errors import InputError
from jaxpe.counting import start_processes

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from jaxpe.cli import main; main()", "count"]
OPTIONS = {"tokenizer": "bytes", "length": 12, "folds": 4, "nulls": 2, "batch-size": 16}
FILES = ("counts.npz", "counts.json")
DEAD_AFTER = 60  # seconds until the others notice


def start(*words, out):
    options = (
        f"--{name}={value}" for name, value in {**OPTIONS, "save-every": 4, "out": out}.items()
    )
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    environment["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    environment["JAXPE_CACHE_DIR"] = str(out.parent / "cache")
    return subprocess.Popen(
        [*COMMAND, *map(str, [*words, *options])],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    )


def start_two(source, *, out):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    common = (source, "--coordinator", address, "--processes", 2, "--process")
    return [start(*common, number, out=out) for number in (0, 1)]


def finished(process, timeout=300):
    _, errors = process.communicate(timeout=timeout)
    return process.returncode, errors


def wait_for_saves(process, number=3):
    """Until so many states are on the disk: progress is told before each."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if sum("documents," in line for line in lines) > number:
            return
    raise AssertionError("".join(lines))


def kill(*processes):
    for process in processes:
        process.kill()
        process.communicate()


def assert_same(a, b):
    for name in FILES:
        assert (a / name).read_bytes() == (b / name).read_bytes()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folder, exit codes and what was said of runs side by side: some killed and started again."""
    folder, rng = tmp_path_factory.mktemp("runs"), np.random.default_rng(0)
    for number, size in enumerate((500, 50, 300)):  # so that one process ends before the other
        rows = [" ".join(rng.choice(["to", "be", "or"], 5)) for _ in range(size)]
        (folder / f"{number}.txt").write_text("\n".join(rows))
    (folder / "broken.txt").write_bytes(b"fine\n" * 100 + b"\xff")
    shards = folder / "?.txt"
    one, killed = start(shards, out=folder / "one"), start(shards, out=folder / "killed")
    two = start_two(shards, out=folder / "two")
    wait_for_saves(killed)
    time.sleep(0.3 * random.random())
    kill(killed)
    wait_for_saves(two[0])
    kill(two[1])
    broken = start_two(folder / "broken.txt", out=folder / "broken")
    again = start(shards, out=folder / "killed")
    widowed = finished(two[0], DEAD_AFTER)
    assert not (folder / "two" / FILES[1]).exists()
    two = start_two(shards, out=folder / "two")
    found = {"one": [one], "again": [again], "two": two, "broken": broken}
    ends = {name: [*map(finished, processes)] for name, processes in found.items()}
    return folder, ends | {"widowed": [widowed]}


def test_killed_at_any_moment_it_goes_on(runs):
    folder, found = runs
    assert found["one"][0][0] == 0, found["one"]
    ((code, errors),) = found["again"]
    assert code == 0, errors
    # Killed inside saving, it first says which checkpoint it sets aside.
    assert re.search(r"^going on from step \d+", errors, re.MULTILINE), errors
    assert_same(folder / "one", folder / "killed")


def test_the_death_of_one_ends_the_other(runs):
    ((code, errors),) = runs[1]["widowed"]
    assert code != 0, errors


def test_two_processes_go_on_and_count_the_same_to_the_byte(runs):
    folder, found = runs
    (code, first), (other_code, second) = found["two"]
    assert code == other_code == 0, found["two"]
    assert "going on from step" in first
    assert "850 documents" in first
    assert "documents" not in second  # one of them speaks
    assert_same(folder / "one", folder / "two")


def test_a_corrupt_shard_ends_both_and_is_named(runs):
    for code, errors in runs[1]["broken"]:
        assert code == 2, errors
        assert "broken.txt, line 101: byte 0xff is not UTF-8" in errors
        assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"processes": 2}, "coordinator, processes and process go together"),
        ({"coordinator": "localhost:1", "process": 0}, "go together"),
        ({"coordinator": "localhost:1", "processes": 2, "process": 2}, "a number from 0 to 1"),
        ({"coordinator": "localhost:1", "processes": 2, "process": -1}, "a number from 0 to 1"),
        ({"coordinator": "localhost:1", "processes": 0, "process": 0}, "pass at least 1"),
    ],
)
def test_processes_refused(options, message):
    coordinator = options.pop("coordinator", None)
    with pytest.raises(InputError, match=message):
        start_processes(coordinator, **options)
