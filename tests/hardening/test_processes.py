"""Two processes on this machine are one run: the same bytes, and none waits for the dead.

`test_kills` kills one process, and goes on.
"""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.compilation import device_environment

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from jaxpe.cli.main import main; main()", "count"]
OPTIONS = {"tokenizer": "bytes", "length": 12, "folds": 4, "nulls": 2, "batch-size": 16}
FILES = ("counts.npz", "counts.json")


def start(*words, out):
    options = (
        f"--{name}={value}" for name, value in {**OPTIONS, "save-every": 4, "out": out}.items()
    )
    return subprocess.Popen(
        [*COMMAND, *map(str, [*words, *options])],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=device_environment(1) | {"JAXPE_CACHE_DIR": str(out.parent / "cache")},
    )


def free_address():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return f"localhost:{free.getsockname()[1]}"


def start_two(*sources, out):
    common = ("--coordinator", free_address(), "--processes", 2, "--process")
    return [start(source, *common, k, out=out) for k, source in enumerate(sources * 2) if k < 2]


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


def write_documents(folder):
    """Files of unlike sizes, so that one process ends before the other."""
    rng = np.random.default_rng(0)
    for number, size in enumerate((500, 50, 300)):
        rows = [" ".join(rng.choice(["to", "be", "or"], 5)) for _ in range(size)]
        (folder / f"{number}.txt").write_text("\n".join(rows))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folder, exit codes and messages of runs side by side.

    Of two processes one is killed, the other ends by itself, and both are started again.
    """
    folder = write_documents(tmp_path_factory.mktemp("runs"))
    shards = folder / "?.txt"
    two = start_two(shards, out=folder / "two")
    one = start(shards, out=folder / "one")
    apart = start_two(shards, "none.txt", out=folder / "a")
    wait_for_saves(two[0])
    two[1].kill()
    two[1].communicate()
    code, _ = finished(two[0], 60)
    widowed = code, (folder / "two" / "counts.json").exists()
    ends = {"one": [one], "two": start_two(shards, out=folder / "two"), "apart": apart}
    ends = {name: [*map(finished, processes)] for name, processes in ends.items()}
    return folder, ends | {"widowed": widowed}


def test_what_one_cannot_find_ends_both(runs):
    for code, errors in runs[1]["apart"]:
        assert code == 2, errors
        assert errors.startswith("jaxpe: process 1: no such file: none.txt"), errors
        assert len(errors.splitlines()) == 1, errors


def test_the_death_of_one_ends_the_other(runs):
    code, wrote_counts = runs[1]["widowed"]
    assert code != 0
    assert not wrote_counts


def test_two_processes_go_on_and_count_the_same_to_the_byte(runs):
    folder, found = runs
    assert found["one"][0][0] == 0, found["one"]
    (code, first), (other_code, second) = found["two"]
    assert code == other_code == 0, found["two"]
    assert "going on from step" in first
    assert "850 documents" in first
    assert "documents" not in second  # one of them speaks
    for name in FILES:
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes()


DISAGREE = """
import json, pathlib, sys
from jaxpe._core.errors import InputError
from jaxpe.analysis.counts import CountOptions, count_settings, count_shards
from jaxpe.analysis.counts import shards as run
from jaxpe.analysis.counts import start_processes
from jaxpe.data import find_shards, open_tokenizer

address, processes, process, folder = sys.argv[1:]
folder, odd = pathlib.Path(folder), int(process) == int(processes) - 1
start_processes(address, processes=int(processes), process=int(process))
shards = find_shards([folder / "?.txt"])
words, other_words = (open_tokenizer(vocabulary=v.split()) for v in ("to be or", "be to or"))

def count(name, *, out="counts", shards=shards, tokenizer=words, seed=0, length=6, **options):
    settings = count_settings(tokenizer, length=length, folds=4, nulls=0, seed=seed)
    options = CountOptions(sources=(), **({"batch_size": 64, "save_every": 4} | options))
    try:
        stored = count_shards(
            shards, folder / out, options, tokenizer=tokenizer, settings=settings
        )
        print(json.dumps([name, stored.documents, stored.table.tolist()]))
    except InputError as error:
        print(json.dumps([name, "error", str(error)]))

(folder / "again").mkdir(exist_ok=True)
changed = find_shards([folder / "again" / "0.txt"]) + shards[1:]
ODD = {
    "shard 0 ": {"shards": shards[::-1]},
    "shards is 5 and 4": {"shards": shards[1:]},
    "vocabulary": {"tokenizer": other_words},
    "seed": {"seed": 1},
    "length": {"length": 7},
    "save_every": {"save_every": 5},
    "batch_size": {"batch_size": 32},
    "skip_unreadable": {"skip_unreadable": True},
    "is not the folder of process 0": {"out": f"own {process}"},
    "shard 0 is 0.txt": {"shards": changed},
    "`batch_size` is 0": {"batch_size": 0},
}
for name, options in ODD.items():
    count(name, **(options if odd else {}))
count("broken.txt, line 101: byte 0xff is not UTF-8", shards=find_shards([folder / "broken.txt"]))
real, run._versions = run._versions, lambda: {**real(), "version of Unicode": f"1{odd}"}
count("version of Unicode")
run._versions = real
count("all alike")
"""


def test_processes_that_disagree_and_a_corrupt_shard_are_told_how(tmp_path):
    processes = 3
    rng = np.random.default_rng(0)
    for number, size in enumerate((200, 60, 90, 40, 10)):
        rows = [" ".join(rng.choice(["to", "be", "or"], 5)) for _ in range(size)]
        (tmp_path / f"{number}.txt").write_text("\n".join(rows))
    (tmp_path / "broken.txt").write_bytes(b"fine\n" * 100 + b"\xff")
    (tmp_path / "again").mkdir()
    text = (tmp_path / "0.txt").read_text()
    (tmp_path / "again" / "0.txt").write_text("be" + text[2:] if text[0] != "b" else "t" + text[1:])
    words = [sys.executable, "-c", DISAGREE, free_address(), str(processes)]
    started = [
        subprocess.Popen(
            [*words, str(process), str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=device_environment(1),
        )
        for process in range(processes)
    ]
    ends = [(process.communicate(timeout=300), process.returncode) for process in started]
    said = []
    for (out, errors), code in ends:
        assert code == 0, errors
        said.append([json.loads(line) for line in out.splitlines() if line.startswith('["')])
    for found in zip(*said, strict=True):
        name, what, first = found[0]
        if name == "all alike":
            assert what == 400
            assert np.sum(first) == 400 * 5
            assert all(one == found[0] for one in found)
            continue
        for _, what, message in found:
            assert what == "error", (name, found)
            assert len(message.splitlines()) == 1
            assert name in message
            if not name.startswith("broken"):
                assert re.search(f"process(es 0 and)? {processes - 1}", message), message
    assert len(said[0]) == 14
