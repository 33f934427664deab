"""`jaxpe count` beyond memory: peak memory, exactness, dependent documents.

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
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxpe
from experiments.common import Run, main
from jaxpe.analysis.corpus import CorpusResult, analyse_counts, analyse_tokens
from jaxpe.analysis.counts import StoredCounts, merge, read_counts
from jaxpe.analysis.counts.stored import counts_file
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


def equality(documents: int, folder: Path) -> dict[str, Any]:
    """Streamed counts and nulls against `count_tokens` on all documents at once, and other cuts."""
    shards = write_shards(folder / "shards", documents)
    whole = counted(shards, folder / "whole", "--workers", "0")
    settings, tokenizer = whole.header.settings, open_tokenizer("bytes")
    texts = [document.text for shard in find_shards(shards) for document in shard.documents()]
    ids, mask = tokenizer.encode(texts, length=settings.length)
    count = functools.partial(jaxpe.count_tokens, vocab_size=settings.vocab_size, mask=mask)
    counts = count(ids, folds=settings.folds)
    equal = [
        np.array_equal(counts.tokens, whole.table),
        len(texts) == whole.header.documents,
    ]
    for number, null in enumerate(whole.nulls):
        key = jax.random.fold_in(jax.random.key(settings.seed), number)
        moved = jaxpe.geometry.rotate_within_documents(key, ids, mask)
        equal.append(np.array_equal(count(moved).tokens, null.sum(axis=0)))
    return {
        "documents": len(texts),
        "to_the_bit": all(equal),
        "tables_compared": len(equal) - 1,
        "identical": {
            name: counts_file(out).read_bytes() == counts_file(folder / "whole").read_bytes()
            for name, out in other_ways(shards, folder)
        },
        "other_shards": same_tables(whole, of_other_shards(texts, folder)),
    }


def other_ways(shards: list[str], folder: Path) -> Iterator[tuple[str, Path]]:
    """The same shards by other processes, machines and orders, and after interruptions."""
    two, reverse, again = (folder / name for name in ("two", "reverse", "again"))
    counted(shards, two, "--workers", "2")
    yield "two processes", two
    counted(shards[::-1], reverse, "--workers", "0")
    yield "another order", reverse
    parts = [folder / f"part {part}" for part in range(3)]
    for part, out in enumerate(parts):
        counted(shards, out, "--part", str(part), "--parts", "3")
    merge(parts[::-1], folder / "merged")
    yield "three parts, merged", folder / "merged"
    # A killed count has the files of some shards, and no counts.
    shutil.copytree(two, again)
    counts_file(again).unlink()
    for file in sorted((again / "shards").iterdir())[::2]:
        file.unlink()
    counted(shards, again)
    yield "resumed", again


def of_other_shards(texts: Sequence[Any], folder: Path) -> StoredCounts:
    """The same documents in 7 shards, shuffled."""
    order = np.random.default_rng(0).permutation(len(texts))
    (folder / "other").mkdir()
    for shard in range(7):
        lines = "".join(f"{texts[number]}\n" for number in order[shard::7])
        (folder / "other" / f"{shard}.txt").write_text(lines)
    return counted([str(folder / "other")], folder / "others")


def counted(sources: Sequence[str], out: Path, *options: str) -> StoredCounts:
    """Counts of a fresh process."""
    measured([*sources, *NULLS, *options, "--out", str(out)], out.parent)
    return read_counts(out)


def same_tables(one: StoredCounts, other: StoredCounts) -> bool:
    return np.array_equal(one.table, other.table) and np.array_equal(one.nulls, other.nulls)


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
        measured([str(table), *length, *options, "--out", str(out)], folder)
        found[name] = about_noise(analyse_counts(read_counts(out)))
    return found


def about_noise(analysis: CorpusResult) -> dict[str, Any]:
    noise = analysis.intervals["noise_share"].estimate
    return {"dimensions": analysis.position.significant_rank, "noise": noise}


def streaming_counts(run: Run) -> dict[str, Any]:
    """All of it, in a scratch folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return {
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, {jax.default_backend()}",
            "memory": memory(folder, quick=run.quick),
            "equality": equality(20_000 if run.quick else 100_000, folder),
            "pieces": pieces(folder),
        }


if __name__ == "__main__":
    main(streaming_counts, "streaming_counts")
