"""`jaxpe count` beyond memory: peak memory and time.

Text is generated: words of one to four syllables by Zipf's law, 8 to 12 in a document, in shards of
.txt and .jsonl.gz. Every count is a fresh process of the command. Linux; 0.7 GB of disk.
"""

import functools
import gzip
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.common import Run, main
from jaxpe.analysis.counts import read_counts

WORDS, SHARDS, CHUNK = 5000, 16, 100_000
SYLLABLES = ("ka", "to", "mi", "re", "su", "lo", "ne", "pa", "di", "vo", "be", "chi", "gro", "sti")
BYTES = ("--tokenizer", "bytes", "--length", "48", "--folds", "4", "--seed", "7")
COUNT = (sys.executable, "-c", "from jaxpe.cli.main import main; main()", "count")
# Linux hands the peak of a process on to what it starts, so a small process starts this one.
MEASURE = """
import json, os, sys, time
start = time.perf_counter()
_, status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
seconds = time.perf_counter() - start
about = {"peak_mb": used.ru_maxrss / 1024, "cpu": used.ru_utime + used.ru_stime, "wall": seconds}
print(json.dumps(about))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def vocabulary() -> list[str]:
    """Words by frequency, the frequent ones short: their number, written in syllables."""
    words = ("".join(w) for k in itertools.count(1) for w in itertools.product(SYLLABLES, repeat=k))
    return list(itertools.islice(words, WORDS))


@functools.cache
def word_bytes() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Letters of all words with a space behind each, where each begins, its length, its CDF."""
    texts = [f"{word} ".encode() for word in vocabulary()]
    lengths = np.array([len(text) for text in texts])
    starts = np.cumsum(lengths) - lengths
    letters = np.frombuffer(b"".join(texts), np.uint8)
    share = np.cumsum(1 / np.arange(1, WORDS + 1))
    return letters, starts, lengths, share / share[-1]


def text_of(documents: int, seed: tuple[int, ...]) -> bytes:
    """So many lines of text."""
    letters, starts, lengths, share = word_bytes()
    rng = np.random.default_rng(seed)
    last = np.cumsum(rng.integers(8, 13, documents)) - 1
    words = np.searchsorted(share, rng.random(last[-1] + 1))
    sizes = lengths[words]
    ends = np.cumsum(sizes)
    text = letters[np.repeat(starts[words] - ends + sizes, sizes) + np.arange(ends[-1])]
    text[ends[last] - 1] = ord("\n")
    return text.tobytes()


def write_shards(folder: Path, documents: int, *, shards: int = SHARDS) -> list[str]:
    """Shards of a corpus, every fourth as .jsonl.gz; returns their paths."""
    folder.mkdir()
    for shard in range(shards):
        own = documents * (shard + 1) // shards - documents * shard // shards
        zipped = shard % 4 == 3
        path = folder / (f"{shard:02d}.jsonl.gz" if zipped else f"{shard:02d}.txt")
        with gzip.open(path, "wb", 1) if zipped else open(path, "wb") as file:
            for start in range(0, own, CHUNK):
                text = text_of(min(CHUNK, own - start), (documents, shard, start))
                file.write(as_json_lines(text) if zipped else text)
    return sorted(map(str, folder.iterdir()))


def as_json_lines(text: bytes) -> bytes:
    return b"".join(b'{"text": "%s"}\n' % line for line in text.splitlines())


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Memory is given back as it is by default; all share what they compile."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    return own | {"JAXPE_CACHE_DIR": str(folder / "cache")} | more


def measured(arguments: Sequence[str], folder: Path) -> dict[str, float]:
    """Peak memory and time of a fresh process that counts."""
    command = [sys.executable, "-S", "-c", MEASURE, *COUNT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(folder))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def memory(folder: Path, *, quick: bool) -> dict[str, Any]:
    """Peak memory of a fresh process against the number of documents."""
    sizes = (10_000, 40_000) if quick else (100_000, 1_000_000, 10_000_000)
    words = folder / "words.txt"
    words.write_text("\n".join(vocabulary()) + "\n")
    tokenizers = {
        "bytes": (*BYTES, "--nulls", "0"),
        "words": ("--vocab", str(words), "--length", "12", "--folds", "4", "--nulls", "0"),
    }
    rows: dict[str, dict[int, Any]] = {name: {} for name in tokenizers}
    for documents in (1000, *sizes):  # the smallest compiles, and is not looked at
        shards = write_shards(folder / "many", documents)
        for name, options in tokenizers.items():
            if name == "words" and documents == max(sizes):
                continue
            out = folder / "counts"
            row = measured([*shards, *options, "--workers", "0", "--out", str(out)], folder)
            assert read_counts(out).header.documents == documents
            if documents in sizes:
                rows[name][documents] = row | {"documents_a_second": documents / row["wall"]}
            shutil.rmtree(out)
        shutil.rmtree(folder / "many")
    peaks = {name: [run["peak_mb"] for run in runs.values()] for name, runs in rows.items()}
    return {
        name: {"runs": runs, "largest_over_smallest": max(peaks[name]) / min(peaks[name])}
        for name, runs in rows.items()
    }


def streaming_counts(run: Run) -> dict[str, Any]:
    """All of it, in a scratch folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return {
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, {jax.default_backend()}",
            "memory": memory(folder, quick=run.quick),
        }


if __name__ == "__main__":
    main(streaming_counts, "streaming_counts")
