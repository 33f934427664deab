"""`jaxpe count` in tokens a CPU second, beside the tokenizer alone and `np.bincount` on ready ids.

Run `python experiments/benchmarks/counting.py [--save] [--rounds 3] [--documents 25000]`. Reviews
of IMDB, 256 tokens of each, as words, bytes and BERT's word pieces. All read the same file. The
tokenizer alone gives ids and masks in batches and is the ceiling; counting adds 16 folds, labels of
documents and saving. CPU seconds of the whole process, compiling left out by a first run. A job has
a fixed cost (tables of all words in all folds made, gathered and saved), so the rate of one more
token is given too, from the same file once and four times.
"""

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxpe.analysis.counts import CountOptions, count, read_counts
from jaxpe.data import Tokenizer, load_corpus, open_tokenizer

OUT = Path(__file__).resolve().parents[1] / "results" / "benchmark_counting.json"
LENGTH, COPIES = 256, 4


def cpu(f: Callable[[], Any]) -> float:
    """CPU seconds of the process and its children."""

    def used() -> float:
        return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])

    begun = used()
    f()
    return used() - begun


def batches(texts: list[str]) -> Iterator[list[str]]:
    """As counting reads them."""
    return (texts[k : k + 4096] for k in range(0, len(texts), 4096))


def alone(texts: list[str], tokenizer: Tokenizer) -> int:
    """Tokens of all texts, cut at the length, as ids and masks."""
    return sum(int(tokenizer.encode(part, length=LENGTH)[1].sum()) for part in batches(texts))


def measured(name: str, path: Path, texts: list[str], rounds: int) -> dict[str, Any]:
    """Tokens a CPU second of counting, with and without null corpora, and of its parts."""
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"tokenizer": name, "length": LENGTH}
        once, copies = (str(path),), [Path(folder) / f"copy-{k}.txt" for k in range(COPIES)]
        for number, copy in enumerate(copies):  # shards that are the same would be refused
            copy.write_text(f"copy {number}\n{path.read_text()}")
        own = None
        if name == "words":
            count(CountOptions(sources=once, **options, nulls=0), Path(folder) / "first")
            options["vocab"] = Path(folder) / "first" / "vocabulary.json"
            own = read_counts(Path(folder) / "first").tokens
        tokenizer = open_tokenizer(name, vocabulary=own)
        encoded = [tokenizer.encode(part, length=LENGTH) for part in batches(texts)]
        ids, mask = (np.concatenate(of) for of in zip(*encoded, strict=True))
        cells = (np.nonzero(mask)[1] * len(tokenizer.tokens) + ids[mask]).astype(np.int64)
        tokens = int(mask.sum())
        runs: dict[str, list[float]] = {}

        def counting(sources: tuple[str, ...], nulls: int) -> float:
            run = CountOptions(sources=sources, **options, nulls=nulls)
            out = Path(tempfile.mkdtemp(dir=folder))
            return cpu(lambda: count(run, out / "counts"))

        def note(what: str, rate: float) -> None:
            runs.setdefault(what, []).append(rate)

        for _ in range(rounds + 1):  # the first compiles
            note("tokenizer alone", tokens / cpu(lambda: alone(texts, tokenizer)))
            for nulls in (0, 20):
                one = counting(once, nulls)
                note(f"count, {nulls} nulls", tokens / one)
                if not nulls:
                    more = counting(tuple(map(str, copies)), nulls) - one
                    note("count, one more token", (COPIES - 1) * tokens / more)
            note("np.bincount of ready cells", tokens / cpu(lambda: np.bincount(cells)))
    rates = {what: statistics.median(of[1:]) for what, of in runs.items()}
    ceiling = rates["tokenizer alone"]
    return {
        "tokens": tokens,
        "tokens a CPU second": rates,
        "of the ceiling": {what: rate / ceiling for what, rate in rates.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--documents", type=int, default=25_000)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    data = Path(os.environ["JAXPE_DATA_DIR"])
    tokenizers = {
        "words": "words",
        "bytes": "bytes",
        "BERT": str(next(data.glob("bert-base-uncased/vocab.txt"))),
    }
    texts = [" ".join(text.split()) for text in load_corpus("imdb").documents[: options.documents]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reviews.txt"
        path.write_text("\n".join(texts) + "\n")
        result = {
            label: measured(name, path, texts, options.rounds) for label, name in tokenizers.items()
        }
    print(json.dumps(result, indent=1))
    if options.save:
        OUT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
