"""Odd files in place of sources, and odd surroundings of commands that are fine themselves."""

import contextlib
import gzip
import io
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.hardening.attempts import Attempt, command
from tests.hardening.families import QUICK, Materials

Prepare = Callable[[Path], object]


def _bomb(path: Path) -> None:
    """A gigabyte of NULs in a megabyte, without a line's end."""
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(1024):
            file.write(bytes(2**20))


def _socket(path: Path) -> None:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as one:
        one.bind(str(path))


def _latin(path: Path) -> None:
    path.write_bytes("für\nfür sich\n".encode("latin-1"))


# In place of a file: its name, and what makes it.
ODD_FILES: tuple[tuple[str, Callable[[Path], object]], ...] = (
    ("pipe.txt", os.mkfifo),
    ("pipe.npy", os.mkfifo),
    ("pipe.tsv.gz", os.mkfifo),
    ("pipe.json", os.mkfifo),
    ("zero.txt", lambda path: path.symlink_to("/dev/zero")),
    ("zero.jsonl", lambda path: path.symlink_to("/dev/zero")),
    ("zero.npy", lambda path: path.symlink_to("/dev/zero")),
    ("zero.json", lambda path: path.symlink_to("/dev/zero")),
    ("zero.gguf", lambda path: path.symlink_to("/dev/zero")),
    ("full.csv", lambda path: path.symlink_to("/dev/full")),
    ("loop.txt", lambda path: path.symlink_to(path.name)),
    ("broken.txt", lambda path: path.symlink_to("nowhere")),
    ("socket.txt", _socket),
    ("folder.txt", lambda path: path.mkdir()),
    ("folder", lambda path: path.mkdir()),
    ("bomb.txt.gz", _bomb),
    ("bomb.jsonl.gz", _bomb),
    ("empty.txt", lambda path: path.touch()),
    ("empty.npy", lambda path: path.touch()),
    ("empty.json", lambda path: path.touch()),
    ("latin.txt", _latin),
    ("nameless", lambda path: path.write_text("a b\nc d\n")),
    ("two\nlines.txt", lambda path: path.write_bytes(b"\xff\n")),
    ("gone.txt", lambda path: None),
    ("--5", lambda path: None),
    ("-", lambda path: None),
    ("", lambda path: None),
    (".", lambda path: None),
    ("/", lambda path: None),
    ("/proc/self/mem", lambda path: None),
    ("http://example.org/a.txt", lambda path: None),
    ("a" * 5000, lambda path: None),
)  # fmt: skip


def _uses(materials: Materials) -> dict[str, Callable[[str], tuple[object, ...]]]:
    """Every place of a command where a path may stand."""
    films, out = materials.films, ("--out", "out")
    return {
        "report": lambda odd: ("report", odd, *QUICK["report"], *out),
        "report --counts": lambda odd: ("report", f"--counts={odd}", *out),
        "report --tokenizer": lambda odd: ("report", films, f"--tokenizer={odd}", *out),
        "count": lambda odd: ("count", odd, *QUICK["count"], *out),
        "count --vocab": lambda odd: ("count", films, f"--vocab={odd}", *QUICK["count"], *out),
        "merge": lambda odd: ("merge", materials.counts, odd, *out),
        "audit": lambda odd: ("audit", odd, *QUICK["audit"], *out),
        "audit --model": lambda odd: ("audit", films, f"--model={odd}", *QUICK["audit"], *out),
        "inspect": lambda odd: ("inspect", odd, films, *out),
        "train": lambda odd: ("train", odd, *QUICK["train"], *out),
        "train --pretrained": lambda odd: ("train", films, f"--pretrained={odd}", *out),
        "train --resume": lambda odd: ("train", "--resume", f"--out={odd}"),
    }


def sources(materials: Materials, *, seed: int, number: int) -> Iterator[Attempt]:
    """Odd files wherever a command takes a path; none of them is a corpus or a model."""
    uses = _uses(materials)
    pairs = [(use, odd) for odd in ODD_FILES for use in uses]
    for index in range(min(number, len(pairs))):
        # A stride that has no divisor with the number of pairs visits all of them.
        use, (name, make) = pairs[(index * 101 + seed) % len(pairs)]
        attempt = partial(_at_odd_file, name, make, uses[use])
        yield Attempt("odd files", f"{use} {name[:30]!r}", attempt, limit_s=30)


def _at_odd_file(
    name: str, make: Prepare, words: Callable[[str], tuple[object, ...]], work: Path
) -> None:
    if name and "/" not in name and len(name) < 200:
        make(work / name)
    command(*words(name))


def _without_input(work: Path) -> None:
    os.close(0)
    sys.stdin = None


def _without_output(work: Path) -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def _closed_pipe(work: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, 1)


def _ascii_terminal(work: Path) -> None:
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), "ascii")
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), "ascii", line_buffering=True)


def _full_disk(size: int, work: Path) -> None:
    """No file grows beyond so many bytes."""
    # What programs are compiled stays out of the cache of the other attempts, cut as it is.
    os.environ["JAXPE_CACHE_DIR"] = str(work / "cache")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _occupied(work: Path) -> None:
    (work / "out").write_text("a file")


def _cache_is_a_file(work: Path) -> None:
    (work / "cache").write_text("a file")
    os.environ["JAXPE_CACHE_DIR"] = str(work / "cache")


def _data_nowhere(work: Path) -> None:
    os.environ["JAXPE_DATA_DIR"] = str(work / "nowhere")


def _locked(work: Path) -> None:
    from jaxpe._core.files import locked_folder

    lock = locked_folder(work / "out")
    lock.__enter__()
    sys.modules["lock of this attempt"] = lock  # held until the process ends


SURROUNDINGS: dict[str, Prepare] = {
    "no standard input": _without_input,
    "standard output full": _without_output,
    "standard output closed": _closed_pipe,
    "an ASCII terminal": _ascii_terminal,
    "files of at most 500 bytes": partial(_full_disk, 500),
    "files of at most 5,000 bytes": partial(_full_disk, 5000),
    "files of at most 20,000 bytes": partial(_full_disk, 20_000),
    "files of at most 300,000 bytes": partial(_full_disk, 300_000),
    "a file in place of the folder": _occupied,
    "a cache that is a file": _cache_is_a_file,
    "no data folder": _data_nowhere,
    "a folder that another run writes into": _locked,
}


def surroundings(materials: Materials, *, seed: int, number: int) -> Iterator[Attempt]:
    """Commands that are fine, where the disk, the terminal or the folder is not."""
    films, out = materials.films, ("--out", "out")
    words: dict[str, tuple[object, ...]] = {
        name: (name, films, *QUICK[name], *out) for name in ("report", "count", "audit")
    }
    words |= {
        "train": ("train", films, *QUICK["train"], *out),
        "extrapolate": ("extrapolate", *QUICK["extrapolate"], *out),
        "encodings": ("encodings", *QUICK["encodings"]),
        "merge": ("merge", materials.counts, materials.counts, *out),
        "report -": ("report", "-", *QUICK["report"], *out),
        "sst2": ("report", "sst2", *QUICK["report"], *out),
        "--version": ("--version",),
        "nothing": (),
    }
    pairs = [(name, where) for where in SURROUNDINGS for name in words]
    for index in range(min(number, len(pairs))):
        name, where = pairs[(index * 59 + seed) % len(pairs)]
        attempt = partial(_surrounded, SURROUNDINGS[where], words[name])
        yield Attempt("surroundings", f"{name} with {where}", attempt, limit_s=180)


def _surrounded(prepare: Prepare, words: tuple[object, ...], work: Path) -> None:
    prepare(work)
    try:
        command(*words)
    finally:
        left = [str(path) for path in work.rglob("*") if ".part" in path.name]
        assert not left, f"half a file is left: {left}"
