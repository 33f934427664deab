"""What counting costs beside the tokenizer and beside memory, and the same bytes from all engines.

Run `python -m experiments.benchmarks.counting [--quick] [--only PART] [--save]`. Rates are tokens a
CPU second of all processes and threads, so that other work on the machine changes them little:

- `tokenizers`: `count_shards` of IMDB beside its tokenizer alone on the same texts, and beside that
  with `json.loads` of its lines, which any program that reads them does; with datatrove installed
  its own token counter beside them.
- `ids`: ready ids in a memory map beside `np.bincount` of the same cells, which is bound by memory.
- `cores`: words, their vocabulary and ready ids on one core and on two, by the clock.
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
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks._machine import CORES, write_result
from jaxpe._core.files import file_hash
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

OUT = Path(__file__).parent.parent / "results" / "benchmark_counting.json"
LENGTH, FOLDS, BATCH, IDS = 256, 16, 4096, 8192
PORT = 29517
# Documents come once, and so often: no more cells are in use then, as in a corpus that is large.
SIZES = ("once", "often")
TIMES = {"words": 12, "bytes": 20, "wordpiece": 3, "bpe": 3, "ids": 6, "cores": 16}
PARTS = ("tokenizers", "ids", "cores", "engines", "merge")
ROUNDS = 2
Found = dict[str, Any]


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


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
    found: Found = {}
    for name, opened in known_tokenizers(texts).items():
        own = texts, texts * TIMES[name]
        paths = [written(folder / f"{name} {size}", own[k]) for k, size in enumerate(SIZES)]

        def alone(which: int, opened: Any = opened, own: Any = own) -> None:
            for start in range(0, len(own[which]), BATCH):
                opened.rows(own[which][start : start + BATCH], LENGTH)

        references = {"alone": alone, "json": lambda which, paths=paths: parsed(*paths[which])}
        found[name] = compared(folder / name, opened, references, paths, quick)
        found[name]["ratio_with_json"] = found[name]["ratio"] + found[name].pop("json_ratio")
        if name == "bpe" and importlib.util.find_spec("datatrove"):
            seconds = datatrove_counter(name, texts)
            found[name]["datatrove_tokens_counter_cpu_seconds"] = seconds
        print(name, json.dumps(found[name]), flush=True)
    return found


def parsed(path: Path) -> None:
    """Lines of JSON as any program reads them."""
    with open(path, "rb") as lines:
        for line in lines:
            json.loads(line)


def compared(
    folder: Path,
    opened: Any,
    references: dict[str, Callable[..., None]],
    sizes: Sequence[list[Path]],
    quick: bool,
) -> Found:
    """Tokens a CPU second of references and of counting, of what documents take that come again.

    What does not grow with them (compiling, cells that are met first, writing the tables) is told
    apart. References are given the number of the size, 0 or 1.
    """
    settings = count_settings(opened, length=LENGTH, folds=FOLDS, nulls=0)
    options = CountOptions(sources=(), batch_size=BATCH, workers=0)
    counting: Any = {"tokenizer": opened, "settings": settings}
    tokens = [0, 0]

    def counted(which: int) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            stored = count_shards(find_shards(sizes[which]), place, options, **counting)
        tokens[which] = int(stored.table.sum(dtype=np.int64))

    folder.mkdir(parents=True)
    counted(0)
    ways = {**references, "count": counted}
    seconds: dict[str, list[list[float]]] = {name: [[], []] for name in ways}
    for _ in range(1 if quick else ROUNDS):
        for which in range(2):
            for name, work in ways.items():
                seconds[name][which].append(measured(lambda: work(which))[0])  # noqa: B023
    best = {name: [min(found) for found in both] for name, both in seconds.items()}
    growing = {name: many - few for name, (few, many) in best.items()}
    more_tokens = tokens[1] - tokens[0]
    whole = growing["count"]
    return {
        "tokens": more_tokens,
        "reference": more_tokens / growing["alone"],
        "count": more_tokens / whole,
        "ratio": growing["alone"] / whole,
        **{f"{name}_ratio": growing[name] / whole for name in references if name != "alone"},
        "fixed_cpu_seconds": best["count"][0] - whole * tokens[0] / more_tokens,
        "cpu_seconds": best,
    }


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
    bpe = models / "SmolLM2-135M-Instruct" / "tokenizer.json"
    files = {"wordpiece": wordpiece, "bpe": bpe}
    return {name: path for name, path in files.items() if path.is_file()}


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
    words, paths = ready_ids(folder, TIMES["ids"], quick)
    fold = np.random.default_rng(1).integers(0, FOLDS, len(words))
    cells = ((fold[:, None] * LENGTH + np.arange(LENGTH)) * IDS + words).reshape(-1)
    cells = [cells, np.tile(cells, TIMES["ids"])]

    def alone(which: int) -> None:
        np.bincount(cells[which], minlength=FOLDS * LENGTH * IDS)

    opened = tokenizer_of_ids(vocab_size=IDS)
    return compared(folder / "counts", opened, {"alone": alone}, paths, quick)


def ready_ids(folder: Path, times: int, quick: bool) -> tuple[np.ndarray, Sequence[list[Path]]]:
    """Rows of ids by Zipf's law, and files of them once and so often, two for each time."""
    rng = np.random.default_rng(0)
    documents = 10_000 if quick else 160_000
    words = np.minimum(rng.zipf(1.2, (documents, LENGTH)), IDS - 1).astype("<u2")
    paths: list[list[Path]] = []
    for name, number in zip(SIZES, (1, times), strict=True):
        paths.append([folder / f"{name} {part}.npy" for part in range(2 * number)])
        for part, path in enumerate(paths[-1]):
            np.save(path, words[part % 2 :: 2])
    return words, paths


# One core and two.


def cores(folder: Path, quick: bool) -> Found:
    """Seconds on one core and on two, of documents that come again.

    Words and their vocabulary are counted in one process on one core, and with one that tokenizes
    for each core on two; ready ids by one process of JAX for each core. Rounds take turns. By the
    clock other work on the machine counts; CPU seconds say how much more two cores have to do.
    """
    texts = texts_of(quick)
    text = [written(folder / "once", texts), written(folder / "often", texts * TIMES["cores"])]
    vocab = folder / "vocabulary.json"
    vocab.write_text(json.dumps(vocabulary_of(texts, length=LENGTH, max_vocab=30_000)))
    _, matrices = ready_ids(folder, TIMES["cores"], quick)
    ways: dict[str, tuple[Sequence[list[Path]], list[str]]] = {
        "words": (text, [f"--vocab={vocab}"]),
        "vocabulary and words": (text, ["--max-vocab=30000"]),
        "ready ids": (matrices, ["--tokenizer=ids", f"--vocab-size={IDS}"]),
    }
    found: Found = {}
    for name, (sizes, flags) in ways.items():
        # Of each number of cores, size and round: seconds by the clock, and of CPU.
        taken: dict[int, list[list[tuple[float, float]]]] = {number: [[], []] for number in (1, 2)}
        for _ in range(1 if quick else ROUNDS):
            for which, paths in enumerate(sizes):
                for number, both in taken.items():
                    both[which].append(on_cores(number, name, [*map(str, paths), *flags]))
        least = {number: np.min(both, axis=1) for number, both in taken.items()}
        growing = {number: (often - once).tolist() for number, (once, often) in least.items()}
        (clock, cpu), (clock_of_two, cpu_of_two) = growing[1], growing[2]
        found[name] = {
            "seconds": {number: clock for number, (clock, _) in growing.items()},
            "cpu_seconds": {number: cpu for number, (_, cpu) in growing.items()},
            "ratio": clock / clock_of_two,
            "ratio_with_start": least[1][1, 0] / least[2][1, 0],
            "of_free_cores": 2 * cpu / cpu_of_two,
            "whole": {number: both.tolist() for number, both in least.items()},
        }
        print(name, json.dumps(found[name]), flush=True)
    return found | {"cores": CORES}


def on_cores(number: int, what: str, words: list[str]) -> tuple[float, float]:
    """Seconds of `jaxpe count` on so many cores, by the clock and of CPU."""
    own = sorted(os.sched_getaffinity(0))[:number]
    script = "import os, sys; os.sched_setaffinity(0, eval(sys.argv.pop(1))); "
    script += "from jaxpe.cli.main import main; main()"
    flags = [f"--length={LENGTH}", f"--folds={FOLDS}", "--nulls=0", f"--batch-size={BATCH}"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    with tempfile.TemporaryDirectory() as out:
        command = ["count", *words, *flags, f"--out={out}/counts"]
        if what == "ready ids":
            together = [f"--processes={number}", f"--coordinator=localhost:{PORT}"]
            each = [[*command, f"--process={k}", *together] for k in range(number)]
            each = [command] if number == 1 else each
        else:
            each = [[*command, f"--workers={0 if number == 1 else number}"]]

        def run() -> bool:
            started = [
                subprocess.Popen([sys.executable, "-c", script, repr(own), *one], env=environment)
                for one in each
            ]
            codes = [process.wait() for process in started]
            return any(codes)

        cpu, clock, failed = measured(run)
        if failed:
            raise SystemExit(f"{what} on {number} cores failed")
        return clock, cpu


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
            hashed = file_hash(out / "counts.npz")
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
        "nulls": options.nulls, "coordinator": f"localhost:{PORT}", "processes": 2, "out": out,
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
    script = "import sys; from experiments.benchmarks.counting import run_datatrove; "
    script += "run_datatrove(*sys.argv[1:])"
    words = [sys.executable, "-c", script]
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
