"""What counting costs beside the tokenizer and beside memory, and the same bytes from all engines.

Run `python experiments/benchmarks/counting.py [--quick] [--only PART] [--save]`. Rates are tokens a
CPU second of all processes and threads, so that other work on the machine changes them little:

- `tokenizers`: `count_shards` of IMDB beside its tokenizer alone on the same texts; with datatrove
  installed its own token counter beside them.
- `ids`: ready ids in a memory map beside `np.bincount` of the same cells, which is bound by memory.
- `cores`: words by one process and by two, by the clock.
- `engines`: one process, two of JAX, four tasks of datatrove and four workers of Beam on IMDB and
  on generated documents: the hash of `counts.npz`. An engine that is not installed is left out.
- `merge`: a thousand folders, the peak of what is allocated beside that of reading two of them.

Needs JAXPE_DATA_DIR. It ends with an error where engines differ.
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _machine import CORES, write_result  # pyrefly: ignore

from jaxpe._core.hashing import hash_of_file
from jaxpe.analysis.counts import (
    CountedShard,
    CountOptions,
    StoredCounts,
    count,
    count_settings,
    count_shards,
    merge,
    read_counts,
    write_counts,
)
from jaxpe.data import (
    find_shards,
    load_corpus,
    open_tokenizer,
    tokenizer_of_ids,
    vocabulary_of,
)
from jaxpe.data.token_files import Stream

OUT = Path(__file__).parent.parent / "results" / "benchmark_counting.json"
LENGTH, FOLDS, BATCH = 256, 16, 4096
PARTS = ("tokenizers", "ids", "cores", "engines", "merge")
ROUNDS = 2
Found = dict[str, Any]


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def measured(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """CPU seconds, seconds by the clock, and what the work returns."""
    cpu, clock = cpu_seconds(), time.perf_counter()
    result = work()
    return cpu_seconds() - cpu, time.perf_counter() - clock, result


def texts_of(quick: bool) -> list[str]:
    """Documents of IMDB."""
    return load_corpus("imdb").documents[: 500 if quick else 10_000]


def written(folder: Path, texts: list[str], parts: int = 1) -> list[Path]:
    """Documents as so many files of JSON lines, document k in file k modulo their number."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{part}.jsonl" for part in range(parts)]
    for part, path in enumerate(paths):
        rows = (json.dumps({"text": text}) for text in texts[part::parts])
        path.write_text("".join(f"{row}\n" for row in rows))
    return paths


# What the tokenizer costs, and what all of counting does.


def tokenizers(folder: Path, quick: bool) -> Found:
    """Tokens a CPU second of each tokenizer alone and of the whole count."""
    texts = texts_of(quick)
    few, many = written(folder / "few", texts[: len(texts) // 5]), written(folder / "many", texts)
    found: Found = {}
    for name, opened in known_tokenizers(texts).items():

        def alone(paths: list[Path], opened: Any = opened) -> int:
            own = texts if paths is many else texts[: len(texts) // 5]
            batches = (own[start : start + BATCH] for start in range(0, len(own), BATCH))
            return sum(
                min(len(row), LENGTH) for batch in batches for row in opened.rows(batch, LENGTH)
            )

        found[name] = compared(folder / name, opened, alone, (few, many), quick)
        if name == "bpe" and importlib.util.find_spec("datatrove"):
            seconds = datatrove_counter(name, texts)
            found[name]["datatrove_tokens_counter_cpu_seconds"] = seconds
        print(name, json.dumps(found[name]), flush=True)
    return found


def compared(
    folder: Path,
    opened: Any,
    alone: Callable[[list[Path]], int],
    sizes: tuple[list[Path], list[Path]],
    quick: bool,
    **more: Any,
) -> Found:
    """Tokens a CPU second alone and counted, each by what the larger files take beyond the few.

    What does not grow with the documents (compiling, writing the tables) is told apart.
    """
    settings = count_settings(opened, length=LENGTH, folds=FOLDS, nulls=0)
    options: Any = {"tokenizer": opened, "settings": settings, "batch_size": BATCH, **more}

    def counted(paths: list[Path], place: Path) -> int:
        stored = count_shards(find_shards(paths), place, **options)
        return int(stored.table.sum(dtype=np.int64))

    counted(sizes[0], folder / "warm")
    seconds: dict[str, list[float]] = {name: [] for name in ("alone 0", "alone 1", "0", "1")}
    tokens = [0, 0]
    for number in range(1 if quick else ROUNDS):
        for which, paths in enumerate(sizes):
            place = folder / f"{number} {which}"
            seconds[f"alone {which}"].append(measured(lambda: alone(paths))[0])  # noqa: B023
            used, _, tokens[which] = measured(lambda: counted(paths, place))  # noqa: B023
            seconds[str(which)].append(used)
    best = {name: min(found) for name, found in seconds.items()}
    more_tokens = tokens[1] - tokens[0]
    reference, whole = best["alone 1"] - best["alone 0"], best["1"] - best["0"]
    fixed = best["0"] - whole * tokens[0] / more_tokens
    return {**rates(more_tokens, reference, whole), "fixed_cpu_seconds": fixed, "cpu_seconds": best}


def known_tokenizers(texts: list[str]) -> dict[str, Any]:
    """Words, bytes, WordPiece and BPE, as far as their files are here."""
    vocabulary = vocabulary_of(texts, length=LENGTH, max_vocab=30_000)
    found = {"words": open_tokenizer(vocabulary=vocabulary), "bytes": open_tokenizer("bytes")}
    for name, path in tokenizer_files().items():
        found[name] = open_tokenizer(path)
    return found


def tokenizer_files() -> dict[str, Path]:
    wordpiece = Path(os.environ["JAXPE_DATA_DIR"]) / "bert-base-uncased" / "vocab.txt"
    models = Path(os.environ.get("JAXPE_MODELS_DIR", "."))
    bpe = models / "SmolLM2-135M-Instruct"
    files = {"wordpiece": wordpiece, "bpe": bpe}
    return {name: path for name, path in files.items() if path.is_file()}


def rates(tokens: int, reference: float, whole: float) -> Found:
    return {
        "tokens": tokens,
        "reference": tokens / reference,
        "count": tokens / whole,
        "ratio": reference / whole,
    }


def datatrove_counter(name: str, texts: list[str]) -> float:
    """CPU seconds of datatrove's TokensCounter on the same texts, whole."""
    data, tokens = (
        importlib.import_module(f"datatrove.{of}") for of in ("data", "pipeline.tokens")
    )
    step = tokens.TokensCounter(str(tokenizer_files()[name]))
    documents = [data.Document(text=text, id=str(number)) for number, text in enumerate(texts)]
    return measured(lambda: sum(1 for _ in step.run(iter(documents))))[0]


# Ready ids.


def ids(folder: Path, quick: bool) -> Found:
    """Tokens a CPU second of ready ids, and of `np.bincount` of their cells."""
    rng = np.random.default_rng(0)
    documents, vocab = (2_000 if quick else 160_000), 8_192
    words = np.minimum(rng.zipf(1.2, (documents, LENGTH)), vocab - 1).astype("<u2")
    sizes = []
    for name, rows in (("few", words[: documents // 5]), ("many", words)):
        np.save(folder / f"{name}.npy", rows)
        sizes.append([folder / f"{name}.npy"])
    fold = rng.integers(0, FOLDS, documents)
    cells = (fold[:, None] * LENGTH + np.arange(LENGTH)) * vocab + words

    def alone(paths: list[Path]) -> int:
        own = cells if paths is sizes[1] else cells[: documents // 5]
        return int(np.bincount(own.reshape(-1), minlength=FOLDS * LENGTH * vocab).sum())

    opened = tokenizer_of_ids(vocab_size=vocab)
    stream = Stream(None, LENGTH, vocab)
    return compared(folder / "counts", opened, alone, (sizes[0], sizes[1]), quick, stream=stream)


# Two processes that tokenize.


def cores(folder: Path, quick: bool) -> Found:
    """Documents a second by the clock with one and with two processes that tokenize."""
    texts = texts_of(quick)
    (path,) = written(folder, texts)
    opened = open_tokenizer(vocabulary=vocabulary_of(texts, length=LENGTH, max_vocab=30_000))
    settings = count_settings(opened, length=LENGTH, folds=FOLDS, nulls=0)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    cpu: dict[int, list[float]] = {1: [], 2: []}
    for number in range(1 if quick else ROUNDS):
        for workers in seconds:
            out = folder / f"{workers} {number}"
            options = {"settings": settings, "batch_size": 1024, "workers": workers}
            used, clock, _ = measured(
                lambda: count_shards(find_shards([path]), out, tokenizer=opened, **options)  # noqa: B023
            )
            seconds[workers].append(clock)
            cpu[workers].append(used)
    best = {workers: min(found) for workers, found in seconds.items()}
    return {
        "seconds": best,
        "cpu_seconds": {workers: min(found) for workers, found in cpu.items()},
        "ratio": best[1] / best[2],
        "cores": CORES,
    }


# The same bytes.


def engines(folder: Path, quick: bool) -> Found:
    """Hashes of the tables by engine."""
    generated = [f"{a} {b} {a % 7} {b % 5}" for a, b in pairs(2_000 if quick else 1_000_000)]
    corpora = {"imdb": texts_of(quick), "generated": generated}
    found: Found = {}
    for name, texts in corpora.items():
        own = folder / name
        paths = written(own / "rows", texts, parts=4)
        vocab = own / "vocabulary.json"
        vocab.write_text(json.dumps(vocabulary_of(texts, length=64, max_vocab=5_000)))
        options = CountOptions(
            sources=tuple(map(str, paths)), vocab=vocab, length=64, folds=8, nulls=2
        )
        found[name] = {"documents": len(texts)}
        for number, (engine, run) in enumerate(ENGINES.items()):
            if engine in NEEDS and not importlib.util.find_spec(NEEDS[engine]):
                continue
            out = run(options, own / f"engine-{number}")
            hashed = hash_of_file(out / "counts.npz")
            found[name][engine] = hashed
            print(name, engine, hashed, flush=True)
        if len({found[name][engine] for engine in ENGINES if engine in found[name]}) != 1:
            raise SystemExit(f"{name}: the engines differ: {found[name]}")
    return found


def pairs(number: int) -> list[tuple[int, int]]:
    rng = np.random.default_rng(0)
    return [*zip(*rng.zipf(1.5, (2, number)).clip(max=10_000).tolist(), strict=True)]


def one_process(options: CountOptions, out: Path) -> Path:
    count(options, out)
    return out


def two_processes(options: CountOptions, out: Path) -> Path:
    """Two processes of JAX on this machine."""
    flags = {
        "vocab": options.vocab, "length": options.length, "folds": options.folds,
        "nulls": options.nulls, "coordinator": "localhost:29517", "processes": 2, "out": out,
    }  # fmt: skip
    words = [sys.executable, "-m", "jaxpe.cli", "count", *options.sources]
    words = [sys.executable, "-c", "from jaxpe.cli.main import main; main()", *words[3:]]
    words += [f"--{name}={value}" for name, value in flags.items()]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    started = [subprocess.Popen([*words, f"--process={k}"], env=environment) for k in range(2)]
    if any(process.wait() for process in started):
        raise SystemExit("a process of JAX failed")
    return out


def datatrove_tasks(options: CountOptions, out: Path) -> Path:
    """Four tasks on two workers, in a process of their own, since datatrove forks."""
    # At the end of the path: a script beside this one has the name of a module of Python's own.
    script = "import sys; sys.path.append(sys.argv.pop(1)); import counting; "
    script += "counting.run_datatrove(*sys.argv[1:])"
    words = [sys.executable, "-c", script, str(Path(__file__).parent)]
    words += [str(Path(options.sources[0]).parent), str(options.vocab), str(out)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    merge(sorted((out / "parts").iterdir()), out / "all")
    return out / "all"


def run_datatrove(rows: str, vocab: str, out: str) -> None:
    executor = importlib.import_module("datatrove.executor")
    readers = importlib.import_module("datatrove.pipeline.readers")

    from jaxpe.analysis.engines import CountPositions

    options = CountOptions(sources=(), vocab=Path(vocab), length=64, folds=8, nulls=2)
    pipeline = [readers.JsonlReader(rows), CountPositions(options, Path(out) / "parts")]
    executor.LocalPipelineExecutor(
        pipeline=pipeline, tasks=4, workers=2, logging_dir=f"{out}/logs"
    ).run()


def beam_workers(options: CountOptions, out: Path) -> Path:
    """DirectRunner with four workers."""
    beam = importlib.import_module("apache_beam")
    of = importlib.import_module("apache_beam.options.pipeline_options").PipelineOptions

    from jaxpe.analysis.engines import count_positions

    arguments = ["--direct_num_workers=4", "--direct_running_mode=multi_threading"]
    pattern = str(Path(options.sources[0]).parent / "*.jsonl")
    with beam.Pipeline("DirectRunner", options=of(arguments)) as pipeline:
        texts = (
            pipeline | beam.io.ReadFromText(pattern) | beam.Map(lambda row: json.loads(row)["text"])
        )
        count_positions(texts, dataclasses.replace(options, sources=(), batch_size=1024), out)
    return out


ENGINES: dict[str, Callable[[CountOptions, Path], Path]] = {
    "one process": one_process,
    "two processes of JAX": two_processes,
    "datatrove, 4 tasks": datatrove_tasks,
    "Beam, 4 workers": beam_workers,
}
NEEDS = {"datatrove, 4 tasks": "datatrove", "Beam, 4 workers": "apache_beam"}


# A thousand folders.


def merging(folder: Path, quick: bool) -> Found:
    """Peak memory of a merge beside that of reading two of its folders, in fresh processes."""
    number = 20 if quick else 1_000
    opened = open_tokenizer("bytes")
    settings = count_settings(opened, length=LENGTH, folds=FOLDS, nulls=0)
    table = np.zeros((FOLDS, settings.rows, settings.vocab_size), np.int32)
    rng = np.random.default_rng(0)
    for part in range(number):
        table[:] = 0
        own = rng.integers(0, settings.vocab_size, (8, settings.rows))
        np.add.at(table, (np.arange(8)[:, None], np.arange(settings.rows), own), 1)
        shard = CountedShard(f"{part}", 1, f"{part:032x}", 8)
        nulls = np.zeros((0, settings.null_folds, *table.shape[1:]), np.int32)
        stored = StoredCounts(table, nulls, 8, settings, list(opened.tokens), (shard,))
        write_counts(stored, folder / f"{part:04}")
    peaks = {}
    for what, script in (
        ("two", "parts = [read_counts(f) for f in folders[:2]]"),
        ("all", "merge(folders, sys.argv[1] + '/sum')"),
    ):
        code = (
            "import sys, tracemalloc; from pathlib import Path\n"
            "from jaxpe.analysis.counts import merge, read_counts\n"
            "folders = sorted(f for f in Path(sys.argv[1]).iterdir() if f.name.isdecimal())\n"
            "read_counts(folders[0]); tracemalloc.start()\n"
            f"{script}\nprint(tracemalloc.get_traced_memory()[1])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder)], check=True, capture_output=True, text=True
        )
        peaks[what] = int(done.stdout)
    assert read_counts(folder / "sum").documents == 8 * number
    return {
        "folders": number,
        "table_bytes": int(table.nbytes),
        "peaks": peaks,
        "ratio": peaks["all"] / peaks["two"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    parts = dict(zip(PARTS, (tokenizers, ids, cores, engines, merging), strict=True))
    found: Found = {}
    if options.save and OUT.exists():
        found = json.loads(OUT.read_text())
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            load = os.getloadavg()[0]
            found[name] = parts[name](Path(folder), options.quick)
            found[name]["load_average"] = load
        print(name, json.dumps(found[name], indent=1), flush=True)
        if options.save:
            write_result(OUT, found)


if __name__ == "__main__":
    main()
