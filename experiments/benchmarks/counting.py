"""What counting costs beside the tokenizer and beside memory, and the same bytes from all engines.

Run `python -m experiments.benchmarks.counting [--quick] [--only PART ...] [--save]`. Rates are
tokens a CPU second of all processes and threads, so that other work changes them little:

- `tokenizers`: `count_shards` of IMDB beside its tokenizer alone on the same texts, and beside that
  with `json.loads` of its lines, which any program that reads them does.
- `ids`: ready ids in a memory map beside `np.bincount` of the same cells, which is bound by memory.
- `cores`: words, their vocabulary and ready ids on one core and on two, by the clock.
- `engines`: one process, two of JAX, four tasks of datatrove and four workers of Beam on IMDB and
  on generated documents: the hash of `counts.npz`. An engine that is not installed is left out.
- `merge`: a thousand folders, the peak of what is allocated beside that of reading two of them.

Needs JAXPE_DATA_DIR. It ends with an error where engines differ.
"""

import contextlib
import dataclasses
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks import _contest as contest
from jaxpe._core.files import file_hash
from jaxpe.analysis import counts as counting
from jaxpe.analysis.counts import CountedShard, CountOptions, StoredCounts, count_settings
from jaxpe.data import find_shards, load_corpus, open_tokenizer, tokenizer_of_ids, vocabulary_of

LENGTH, FOLDS, BATCH, IDS = 256, 16, 4096, 8192
PORT = 29517
# Documents come once, and so often: no more cells are in use then, as in a corpus that is large.
TIMES = {"words": 12, "bytes": 20, "wordpiece": 3, "bpe": 3, "ids": 6, "cores": 16}
ROUNDS = 2
MAIN = "from jaxpe.cli.main import main; main()"
Found = dict[str, Any]


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def measured(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock, and of CPU."""
    cpu = cpu_seconds()
    clock = contest.seconds_of(work)
    return clock, cpu_seconds() - cpu


def started(*commands: Sequence[str]) -> None:
    """Python processes that run side by side, and must succeed."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    running = [subprocess.Popen([sys.executable, *words], env=environment) for words in commands]
    codes = [process.wait() for process in running]
    if any(codes):
        raise SystemExit(f"failed: {commands[0]}")


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
        paths = [written(folder / f"{name} {which}", own[which]) for which in range(2)]

        def alone(which: int, opened: Any = opened, own: Any = own) -> None:
            for start in range(0, len(own[which]), BATCH):
                opened.rows(own[which][start : start + BATCH], LENGTH)

        def parsed(which: int, paths: Any = paths) -> None:
            with open(paths[which][0], "rb") as lines:
                for line in lines:
                    json.loads(line)

        references = {"alone": alone, "json": parsed}
        found[name] = compared(folder / name, opened, references, paths, quick)
        found[name]["ratio_with_json"] = found[name]["ratio"] + found[name].pop("json_ratio")
    return found


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
    tokens = [0, 0]

    def counted(which: int) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            stored = counting.count_shards(
                find_shards(sizes[which]), place, options, tokenizer=opened, settings=settings
            )
        tokens[which] = int(stored.table.sum(dtype=np.int64))

    folder.mkdir(parents=True)
    counted(0)
    ways = {**references, "count": counted}
    seconds: dict[str, list[list[float]]] = {name: [[], []] for name in ways}
    for _ in range(1 if quick else ROUNDS):
        for which in range(2):
            for name, work in ways.items():
                seconds[name][which].append(measured(partial(work, which))[1])
    least = {name: [min(found) for found in both] for name, both in seconds.items()}
    growing = {name: many - few for name, (few, many) in least.items()}
    more_tokens, whole = tokens[1] - tokens[0], growing["count"]
    return {
        "reference": more_tokens / growing["alone"],
        "count": more_tokens / whole,
        "ratio": growing["alone"] / whole,
        **{f"{name}_ratio": growing[name] / whole for name in references if name != "alone"},
        "fixed_cpu_seconds": least["count"][0] - whole * tokens[0] / more_tokens,
        "cpu_seconds": least,
    }


def known_tokenizers(texts: list[str]) -> dict[str, Any]:
    """Words, bytes, WordPiece and BPE, as far as their files are here."""
    vocabulary = vocabulary_of(texts, length=LENGTH, max_vocab=30_000)
    found = {"words": open_tokenizer(vocabulary=vocabulary), "bytes": open_tokenizer("bytes")}
    wordpiece = Path(os.environ["JAXPE_DATA_DIR"]) / "bert-base-uncased" / "vocab.txt"
    models = Path(os.environ.get("JAXPE_MODELS_DIR", "."))
    bpe = models / "SmolLM2-135M-Instruct" / "tokenizer.json"
    files = {"wordpiece": wordpiece, "bpe": bpe}
    return found | {name: open_tokenizer(path) for name, path in files.items() if path.is_file()}


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
    for name, number in zip(("once", "often"), (1, times), strict=True):
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
        # [rounds, size, cores, clock and CPU]
        taken = [
            [[on_cores(n, name, [*map(str, paths), *flags]) for n in (1, 2)] for paths in sizes]
            for _ in range(1 if quick else ROUNDS)
        ]
        least = np.min(taken, axis=0)
        growing = least[1] - least[0]
        (clock, cpu), (clock_of_two, cpu_of_two) = growing
        found[name] = {
            "seconds": {"1": clock, "2": clock_of_two},
            "cpu_seconds": {"1": cpu, "2": cpu_of_two},
            "ratio": clock / clock_of_two,
            "ratio_with_start": least[1, 0, 0] / least[1, 1, 0],
        }
    return found


def on_cores(number: int, what: str, words: list[str]) -> tuple[float, float]:
    """Seconds of `jaxpe count` on so many cores, by the clock and of CPU."""
    own = sorted(os.sched_getaffinity(0))[:number]
    script = f"import os, sys; os.sched_setaffinity(0, eval(sys.argv.pop(1))); {MAIN}"
    flags = [f"--length={LENGTH}", f"--folds={FOLDS}", "--nulls=0", f"--batch-size={BATCH}"]
    with tempfile.TemporaryDirectory() as out:
        command = ["-c", script, repr(own), "count", *words, *flags, f"--out={out}/counts"]
        if what != "ready ids":
            each = [[*command, f"--workers={0 if number == 1 else number}"]]
        elif number == 1:
            each = [command]
        else:
            together = [f"--processes={number}", f"--coordinator=localhost:{PORT}"]
            each = [[*command, f"--process={k}", *together] for k in range(number)]
        return measured(partial(started, *each))


# The same bytes.


def engines(folder: Path, quick: bool) -> Found:
    """Hashes of the tables by engine."""
    number = 2_000 if quick else 1_000_000
    pairs = np.random.default_rng(0).zipf(1.5, (2, number)).clip(max=10_000).tolist()
    generated = [f"{a} {b} {a % 7} {b % 5}" for a, b in zip(*pairs, strict=True)]
    found: Found = {}
    for name, texts in {"imdb": texts_of(quick), "generated": generated}.items():
        own = folder / name
        paths = written(own / "rows", texts, parts=4)
        vocab = own / "vocabulary.json"
        vocab.write_text(json.dumps(vocabulary_of(texts, length=64, max_vocab=5_000)))
        options = CountOptions(
            sources=tuple(map(str, paths)), vocab=vocab, length=64, folds=8, nulls=2
        )
        hashes: dict[str, str] = {}
        for number, (engine, (needs, run)) in enumerate(ENGINES.items()):
            if importlib.util.find_spec(needs):
                run(options, own / f"engine-{number}")
                hashes[engine] = file_hash(own / f"engine-{number}" / "counts.npz")
        if len(set(hashes.values())) != 1:
            raise SystemExit(f"{name}: the engines differ: {hashes}")
        found[name] = {"documents": len(texts), **hashes}
    return found


def two_processes(options: CountOptions, out: Path) -> None:
    """Two processes of JAX on this machine."""
    flags = {name: getattr(options, name) for name in ("vocab", "length", "folds", "nulls")}
    flags |= {"coordinator": f"localhost:{PORT}", "processes": 2, "out": out}
    words = ["-c", MAIN, "count", *map(str, options.sources)]
    words += [f"--{name}={value}" for name, value in flags.items()]
    started(*([*words, f"--process={k}"] for k in range(2)))


def datatrove_tasks(options: CountOptions, out: Path) -> None:
    """Four tasks on two workers, in a process of their own, since datatrove forks."""
    script = "import sys; from experiments.benchmarks.counting import run_datatrove; "
    script += "run_datatrove(*sys.argv[1:])"
    rows = Path(options.sources[0]).parent
    parts = out.with_name("parts")
    started(["-c", script, str(rows), str(options.vocab), str(parts)])
    counting.merge(sorted(parts.iterdir()), out)


def run_datatrove(rows: str, vocab: str, parts: str) -> None:
    from datatrove import executor  # pyrefly: ignore
    from datatrove.pipeline import readers  # pyrefly: ignore

    from jaxpe.analysis.engines import CountPositions

    options = CountOptions(sources=(), vocab=Path(vocab), length=64, folds=8, nulls=2)
    pipeline = [readers.JsonlReader(rows), CountPositions(options, Path(parts))]
    executor.LocalPipelineExecutor(
        pipeline=pipeline, tasks=4, workers=2, logging_dir=f"{parts}-logs"
    ).run()


def beam_workers(options: CountOptions, out: Path) -> None:
    """DirectRunner with four workers."""
    import apache_beam as beam  # pyrefly: ignore
    from apache_beam.options.pipeline_options import PipelineOptions  # pyrefly: ignore

    from jaxpe.analysis.engines import count_positions

    arguments = ["--direct_num_workers=4", "--direct_running_mode=multi_threading"]
    pattern = str(Path(options.sources[0]).parent / "*.jsonl")
    with beam.Pipeline("DirectRunner", options=PipelineOptions(arguments)) as pipeline:
        texts = (
            pipeline | beam.io.ReadFromText(pattern) | beam.Map(lambda row: json.loads(row)["text"])
        )
        count_positions(texts, dataclasses.replace(options, sources=(), batch_size=1024), out)


ENGINES: dict[str, tuple[str, Callable[[CountOptions, Path], Any]]] = {
    "one process": ("jaxpe", counting.count),
    "two processes of JAX": ("jaxpe", two_processes),
    "datatrove, 4 tasks": ("datatrove", datatrove_tasks),
    "Beam, 4 workers": ("apache_beam", beam_workers),
}


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
        counting.write_counts(stored, folder / f"{part:04}")
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
    assert counting.read_counts(folder / "sum").documents == 8 * number
    return {
        "folders": number,
        "table_bytes": int(table.nbytes),
        "peaks": peaks,
        "ratio": peaks["all"] / peaks["two"],
    }


PARTS = {
    "tokenizers": tokenizers, "ids": ids, "cores": cores, "engines": engines, "merge": merging,
}  # fmt: skip


def main() -> None:
    options = contest.options_of(__doc__, only=tuple(PARTS))
    path = contest.RESULTS / "benchmark_counting.json"
    found: Found = json.loads(path.read_text()) if options.save and path.exists() else {}
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            found[name] = PARTS[name](Path(folder), options.quick)
    contest.finish("counting", options, found | {"machine": contest.machine()})


if __name__ == "__main__":
    main()
