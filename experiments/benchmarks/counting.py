"""Costs of counting beside the tokenizer and beside memory.

Run `python -m experiments.benchmarks.counting [--quick] [--only PART ...] [--save]`. Rates are
tokens a CPU second of all processes and threads, so that other work changes them little:

- `tokenizers`: a count of IMDB beside its tokenizer alone on the same texts, and beside that with
  `json.loads` of its lines, which any program that reads them does.
- `ids`: ready ids in a matrix beside `np.bincount` of the same cells, which is bound by memory.
- `merge`: a thousand folders with full tables, and the peak of what is allocated beside a merge of
  two of them.
- `adding`: what is allocated for each cell while `sum_cells` adds many.

Needs JAXPE_DATA_DIR.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks import _contest as contest
from jaxpe.analysis import counts as counting
from jaxpe.analysis.counts import CountOptions
from jaxpe.analysis.counts.cells import Cells, sum_cells
from jaxpe.analysis.counts.job import tokenizer_and_settings
from jaxpe.analysis.counts.stored import CountedShard, CountHeader, StoredCounts, write_counts
from jaxpe.data import load_corpus, open_tokenizer

DOCUMENTS, LENGTH, FOLDS, BATCH, IDS = 10_000, 256, 16, 4096, 8192
# Documents come once, and so often: no more cells are in use then, as in a corpus that is large.
TIMES = {"words": 12, "bytes": 20, "wordpiece": 3, "bpe": 3, "ids": 6}
ROUNDS = 2
Found = dict[str, Any]


def started(*words: str) -> str:
    """Output of a Python process, which must succeed."""
    environment = contest.by_default() | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", *words]
    return subprocess.run(command, env=environment, check=True, stdout=-1, text=True).stdout


def texts_of(quick: bool) -> list[str]:
    """Documents of IMDB."""
    return load_corpus("imdb").documents[: 500 if quick else DOCUMENTS]


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
    for name, tokenizer in known_tokenizers().items():
        opened, own = open_tokenizer(tokenizer), (texts, texts * TIMES[name])
        paths = [written(folder / f"{name} {which}", own[which]) for which in range(2)]

        def alone(which: int, opened: Any = opened, own: Any = own) -> None:
            for start in range(0, len(own[which]), BATCH):
                opened.rows(own[which][start : start + BATCH], LENGTH)

        def parsed(which: int, paths: Any = paths) -> None:
            with open(paths[which][0], "rb") as lines:
                for line in lines:
                    json.loads(line)

        references = {"alone": alone, "json": parsed}
        found[name] = compared(references, paths, quick, tokenizer=str(tokenizer))
        found[name]["ratio_with_json"] = found[name]["ratio"] + found[name].pop("json_ratio")
    return found


def known_tokenizers() -> dict[str, str | Path]:
    """Words, bytes, WordPiece and BPE, as far as their files are on this machine."""
    wordpiece = Path(os.environ["JAXPE_DATA_DIR"]) / "bert-base-uncased" / "vocab.txt"
    models = Path(os.environ.get("JAXPE_MODELS_DIR", "."))
    bpe = models / "SmolLM2-135M-Instruct" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    files = {"wordpiece": wordpiece, "bpe": bpe}
    return {"words": "words", "bytes": "bytes"} | {k: v for k, v in files.items() if v.is_file()}


def compared(
    references: dict[str, Callable[..., None]],
    sizes: Sequence[list[Path]],
    quick: bool,
    **options: Any,
) -> Found:
    """Tokens a CPU second of references and of counting, of what documents take that come again.

    What does not grow with them (compiling, cells that are met first, writing the tables) is told
    apart. References are given the number of the size, 0 or 1.
    """
    tokens = [0, 0]

    def counted(which: int) -> None:
        sources = tuple(map(str, sizes[which]))
        shared: Any = {"length": LENGTH, "folds": FOLDS, "nulls": 0, "workers": 0}
        with tempfile.TemporaryDirectory() as out:
            stored = counting.count(CountOptions(sources=sources, **shared, **options), out)
        tokens[which] = int(stored.table.sum(dtype=np.int64))

    counted(0)
    ways = {**references, "count": counted}
    seconds: dict[str, list[list[float]]] = {name: [[], []] for name in ways}
    for _ in range(1 if quick else ROUNDS):
        for which in range(2):
            for name, work in ways.items():
                seconds[name][which].append(contest.cost(partial(work, which))[1])
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


# Ready ids.


def ids(folder: Path, quick: bool) -> Found:
    """Tokens a CPU second of ready ids, and of `np.bincount` of their cells."""
    words, paths = ready_ids(folder, TIMES["ids"], quick)
    fold = np.random.default_rng(1).integers(0, FOLDS, len(words))
    cells = ((fold[:, None] * LENGTH + np.arange(LENGTH)) * IDS + words).reshape(-1)
    cells = [cells, np.tile(cells, TIMES["ids"])]

    def alone(which: int) -> None:
        np.bincount(cells[which], minlength=FOLDS * LENGTH * IDS)

    return compared({"alone": alone}, paths, quick, tokenizer="ids", vocab_size=IDS)


def ready_ids(folder: Path, times: int, quick: bool) -> tuple[np.ndarray, Sequence[list[Path]]]:
    """Rows of ids by Zipf's law, and two files of them, with each row once and so often."""
    rng = np.random.default_rng(0)
    documents = 10_000 if quick else 160_000
    words = np.minimum(rng.zipf(1.2, (documents, LENGTH)), IDS - 1).astype("<u2")
    paths = [[folder / f"{name} {part}.npy" for part in range(2)] for name in ("once", "often")]
    for number, both in zip((1, times), paths, strict=True):
        for part, path in enumerate(both):
            np.save(path, np.tile(words[part::2], (number, 1)))
    return words, paths


# A thousand folders.


def merging(folder: Path, quick: bool) -> Found:
    """Peak memory of a merge of many folders beside that of two, in fresh processes.

    Every cell is in use in every folder, so that the sums differ in nothing but their folders.
    """
    number = 20 if quick else 1_000
    options = CountOptions(sources=(), tokenizer="bytes", length=64, folds=FOLDS, nulls=0)
    opened, settings = tokenizer_and_settings(options)
    shape = (settings.rows, settings.vocab_size)
    nulls = np.zeros((0, settings.null_folds, *shape), np.int32)
    rng = np.random.default_rng(0)
    for part in range(number):
        table = rng.integers(1, 5, (FOLDS, *shape), np.int32)
        shards = (CountedShard(f"{part}", 1, f"{part:032x}", 8),)
        header = CountHeader(8, settings, shards, None, (), list(opened.tokens))
        write_counts(StoredCounts(table, nulls, header), folder / f"{part:04}")
    script = (
        "import sys, tracemalloc; from pathlib import Path\n"
        "from jaxpe.analysis.counts import merge\n"
        "parts = sorted(f for f in Path(sys.argv[1]).iterdir() if f.name.isdecimal())\n"
        "merge(parts[:2], sys.argv[1] + '/of two before ' + sys.argv[2]); tracemalloc.start()\n"
        "merge(parts[: int(sys.argv[2])], f'{sys.argv[1]}/sum of {sys.argv[2]}')\n"
        "print(tracemalloc.get_traced_memory()[1])"
    )
    peaks = {}
    for name, folders in (("two", 2), ("all", number)):
        peaks[name] = int(started(script, str(folder), str(folders)))
        merged = counting.read_counts(folder / f"sum of {folders}")
        assert merged.header.documents == 8 * folders
    cells = FOLDS * settings.rows * settings.vocab_size
    return {
        "folders": number,
        "table_bytes": 4 * cells,
        "peaks": peaks,
        "ratio": peaks["all"] / peaks["two"],
        "bytes_a_cell": (peaks["all"] - 4 * cells) / cells,
    }


def adding(folder: Path, quick: bool) -> Found:
    """Peak memory of the sum of the cells of a shard, which are more than those that wait."""
    cells, rng = 10_000 if quick else 8_000_000, np.random.default_rng(0)
    numbers = (np.unique(rng.integers(0, cells, 300_000)) for _ in range(120))
    tracemalloc.start()
    total = sum_cells(Cells(x, np.ones_like(x)) for x in numbers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"cells": len(total.numbers), "bytes_a_cell": peak / len(total.numbers)}


PARTS = {
    "tokenizers": tokenizers, "ids": ids, "merge": merging, "adding": adding,
}  # fmt: skip


def main() -> None:
    options = contest.options_of(__doc__, only=tuple(PARTS))
    found = contest.earlier("counting", options)
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            found[name] = PARTS[name](Path(folder), options.quick)
    contest.finish("counting", options, found | {"machine": contest.machine()})


if __name__ == "__main__":
    main()
