"""`jaxpe count` beyond memory: peak memory, exactness, kills, devices.

Text is generated: words of one to four syllables by Zipf's law, 8 to 12 in a document, in shards of
.txt and .jsonl.gz. Every count is a fresh process of the command. Last, SST-2, whose documents are
pieces of one another. Linux; 0.7 GB of disk.
"""

import functools
import gzip
import itertools
import json
import os
import platform
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxpe
from experiments.common import Run, main
from jaxpe.analysis.corpus import CorpusAnalysis, analyse_counts, analyse_tokens
from jaxpe.analysis.counts import read_counts
from jaxpe.data import find_shards, load_corpus, load_tokens, open_tokenizer

WORDS, SHARDS, CHUNK = 5000, 16, 100_000
SYLLABLES = ("ka", "to", "mi", "re", "su", "lo", "ne", "pa", "di", "vo", "be", "chi", "gro", "sti")
BYTES = ("--tokenizer", "bytes", "--length", "48", "--folds", "4", "--seed", "7")
NULLS = (*BYTES, "--nulls", "2")
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


def start(arguments: Sequence[str], folder: Path, **more: str) -> subprocess.Popen[str]:
    env, pipe = environment(folder, **more), subprocess.PIPE
    return subprocess.Popen([*COUNT, *arguments], stdout=pipe, stderr=pipe, text=True, env=env)


def finish(*processes: subprocess.Popen[str]) -> None:
    """Wait for processes, of which one that fails ends the experiment."""
    for process in processes:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors[-2000:]


def measured(arguments: Sequence[str], folder: Path) -> dict[str, float]:
    """Peak memory and time of a fresh process that counts."""
    command = [sys.executable, "-S", "-c", MEASURE, *COUNT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(folder))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def same_files(one: Path, other: Path) -> bool:
    """Whether both files of two counts are the same, byte for byte."""
    names = ("counts.npz", "counts.json")
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


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
            row = measured([*shards, *options, "--out", str(out)], folder)
            assert read_counts(out).documents == documents
            if documents in sizes:
                rows[name][documents] = row | {"documents_a_second": documents / row["wall"]}
            shutil.rmtree(out)
        shutil.rmtree(folder / "many")
    peaks = {name: [run["peak_mb"] for run in runs.values()] for name, runs in rows.items()}
    return {
        name: {"runs": runs, "largest_over_smallest": max(peaks[name]) / min(peaks[name])}
        for name, runs in rows.items()
    }


def equality(shards: list[str], whole: Path) -> dict[str, Any]:
    """Streamed counts and nulls against `count_tokens` on all documents at once."""
    stored = read_counts(whole)
    settings, tokenizer = stored.settings, open_tokenizer("bytes")
    texts = [document.text for shard in find_shards(shards) for document in shard.documents()]
    ids, mask = tokenizer.encode(texts, length=settings.length)
    count = functools.partial(jaxpe.count_tokens, vocab_size=settings.vocab_size, mask=mask)
    counts = count(ids, folds=settings.folds)
    equal = [np.array_equal(counts.tokens, stored.table), len(texts) == stored.documents]
    for number, null in enumerate(stored.nulls):
        key = jax.random.fold_in(jax.random.key(settings.seed), number)
        moved = jaxpe.geometry.rotate_within_documents(key, ids, mask)
        equal.append(np.array_equal(count(moved).tokens, null.sum(axis=0)))
    return {"documents": len(texts), "to_the_bit": all(equal), "tables_compared": len(equal) - 1}


def kills(shards: list[str], folder: Path, *, times: int) -> dict[str, Any]:
    """kill -9 at random moments, each time resumed; at the end the same bytes as undisturbed."""
    whole, out = folder / "undisturbed", folder / "killed"
    options = [*shards, *NULLS, "--batch-size", "192", "--save-every", "4"]
    finish(start([*options, "--out", str(whole)], folder))
    rng = random.Random(0)
    saving = 0
    for number in range(times):
        process = start([*options, "--out", str(out)], folder)
        assert process.stderr is not None
        lines = list(itertools.islice(process.stderr, max(0, rng.randint(-2, 9))))
        time.sleep((0.08 if lines else 2.5) * rng.random())
        process.kill()
        process.communicate()
        assert process.returncode == -9, f"ended after {number} kills: make the run longer"
        saving += bool(lines) and is_saving(out / "state")
    finish(start([*options, "--out", str(out)], folder))
    return {"kills": times, "saving": saving, "identical": same_files(whole, out)}


def is_saving(state: Path) -> bool:
    """Whether a checkpoint lies there unfinished: not renamed yet, or without its seal."""
    steps = [path for path in state.iterdir() if path.is_dir()] if state.is_dir() else []
    return any(
        not path.name.startswith("unreadable") and not (path / "seal.json").is_file()
        for path in steps
    )


def devices(shards: list[str], folder: Path) -> dict[str, Any]:
    """Eight virtual devices in one process, one device in each of two: the same bytes."""
    whole, eight, two = (folder / name for name in ("undisturbed", "eight", "two"))
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    finish(start([*shards, *NULLS, "--out", str(eight)], folder, **flags))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [*shards, *NULLS, "--out", str(two), "--coordinator", f"127.0.0.1:{port}"]
    options += ["--processes", "2", "--process"]
    finish(*[start([*options, str(number)], folder) for number in (0, 1)])
    return {
        "eight_devices_identical": same_files(whole, eight),
        "two_processes_identical": same_files(whole, two),
    }


def pieces(folder: Path) -> dict[str, Any]:
    """SST-2, made of pieces of its own sentences: with the sentence as a group, and without."""
    home = Path(os.environ.get("JAXPE_DATA_DIR", "."))
    if not (home / "sst2" / "train.tsv").is_file():
        return {"corpus": "not measured: JAXPE_DATA_DIR names no folder with sst2/train.tsv"}
    texts, tokens = load_corpus("sst2").documents, load_tokens("sst2")
    sentences = tokens.groups().tolist()
    table = folder / "sst2.jsonl"
    with open(table, "w", encoding="utf-8") as file:
        for text, sentence in zip(texts, sentences, strict=True):
            file.write(json.dumps({"text": text, "sentence": sentence}) + "\n")
    found = {"documents": about_noise(analyse_tokens(tokens))}
    for name, options in (("copies", ()), ("sentences", ("--group-field", "sentence"))):
        length = ("--length", str(tokens.ids.shape[1]))
        out = folder / name
        finish(start([str(table), *length, *options, "--out", str(out)], folder))
        found[name] = about_noise(analyse_counts(read_counts(out)))
    return found


def about_noise(analysis: CorpusAnalysis) -> dict[str, Any]:
    noise = analysis.intervals["noise_share"].estimate
    return {"dimensions": analysis.position.significant_rank, "noise": noise}


def streaming_counts(run: Run) -> dict[str, Any]:
    """All of it, in a scratch folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        times, documents = (3, 20_000) if run.quick else (20, 100_000)
        result: dict[str, Any] = {
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, {jax.default_backend()}",
            "memory": memory(folder, quick=run.quick),
        }
        shards = write_shards(folder / "shards", documents)
        result["kills"] = kills(shards, folder, times=times)
        result["equality"] = equality(shards, folder / "undisturbed")
        result["devices"] = devices(shards, folder)
        return result | {"pieces": pieces(folder)}


if __name__ == "__main__":
    main(streaming_counts, "streaming_counts")
