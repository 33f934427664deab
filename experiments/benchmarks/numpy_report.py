"""The numbers of `jaxpe report` beside a plain NumPy script of them, on the standard library.

Run `python experiments/benchmarks/numpy_report.py [--save] [--rounds 3]`. From ids to: counts,
Hellinger distances, MDS, split halves, the permutation null with its rank, and bootstrap intervals
of three statistics. jaxpe computes encodings and widths besides. Both are given the groups of
documents and their folds; jaxpe's programs are compiled, as in the second run of a command.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from _machine import write_result  # pyrefly: ignore
from scipy.special import stdtrit

from jaxpe.analysis.corpus import analyse_tokens
from jaxpe.analysis.corpus.noise import compacted
from jaxpe.data import load_tokens
from jaxpe.geometry.counts import fold_of_documents

OUT = Path(__file__).resolve().parents[1] / "results" / "benchmark_numpy_report.json"
FOLDS, SPLITS, NULLS, RESAMPLES = 16, 8, 20, 20
FEW = 4  # halvings of a resample
T = float(stdtrit(RESAMPLES - 1, 0.975))


class Plain:
    """The corpus and its numbers, in NumPy."""

    def __init__(self, corpus: Any, groups: np.ndarray) -> None:
        self.n, self.vocab = corpus.ids.shape[1], corpus.vocab_size
        self.document, self.position = np.nonzero(corpus.mask)
        self.word = corpus.ids[self.document, self.position]
        self.fold = np.asarray(
            fold_of_documents(corpus.ids, corpus.mask, folds=FOLDS, groups=groups)
        )
        self.lengths = corpus.mask.sum(axis=1)
        self.groups, self.rng = groups, np.random.default_rng(0)
        order = np.argsort(self.rng.random((SPLITS, FOLDS)), axis=1)
        self.halves = (order < FOLDS // 2).astype(np.float32)

    def counts(self, position: np.ndarray, repeats: np.ndarray | None = None) -> np.ndarray:
        """`[folds, n, vocab]`."""
        cell = (self.fold[self.document] * self.n + position) * self.vocab + self.word
        weights = None if repeats is None else repeats[self.document].astype(np.float32)
        size = FOLDS * self.n * self.vocab
        table = np.bincount(cell, weights=weights, minlength=size)
        return table.astype(np.float32).reshape(FOLDS, self.n, self.vocab)

    def split_half(self, table: np.ndarray, halvings: int = SPLITS) -> np.ndarray:
        """Squared distances, negative ones among them."""
        flat = table.reshape(FOLDS, -1)
        products = np.zeros((self.n, self.n))
        for half in self.halves[:halvings]:
            first = (half @ flat).reshape(self.n, self.vocab)
            second = ((1 - half) @ flat).reshape(self.n, self.vocab)
            products += roots(first) @ roots(second).T
        products = (products + products.T) / (2 * halvings)
        own = np.diag(products)
        return own[:, None] + own[None, :] - 2 * products

    def shuffled(self) -> np.ndarray:
        """Positions, in each document in random order."""
        noise = self.rng.random(len(self.document)) + self.document
        return self.position[np.argsort(noise, kind="stable")]

    def report(self) -> dict[str, Any]:
        table = self.counts(self.position)
        S = roots(table.sum(axis=0))
        gram = S @ S.T
        own = np.diag(gram)
        D = np.sqrt(np.maximum(own[:, None] + own[None, :] - 2 * gram, 0))
        squared, size = self.split_half(table), table.sum(axis=(0, 2))
        null = [weighted(self.split_half(self.counts(self.shuffled())), size) for _ in range(NULLS)]
        found = weighted(squared, size)
        drawn = []
        for _ in range(RESAMPLES):
            own = self.counts(self.position, self.rng.poisson(1, len(self.groups))[self.groups])
            drawn.append(self.statistics(own, FEW))
        return {
            "plug-in eigenvalues": np.linalg.eigvalsh(centred(D**2)),
            "rate": violation_rate(D),
            "statistics": self.statistics(table),
            "errors": np.std(drawn, axis=0, ddof=1),
            "rank": above(found, np.array(null)),
        }

    def statistics(self, table: np.ndarray, halvings: int = SPLITS) -> np.ndarray:
        squared, S = self.split_half(table, halvings), roots(table.sum(axis=0))
        trace, plug_in = np.trace(centred(squared)), np.sum((S - S.mean(axis=0)) ** 2)
        rate = violation_rate(np.sqrt(np.maximum(squared, 0)))
        return np.array([trace, 1 - trace / plug_in, rate])


def roots(table: np.ndarray) -> np.ndarray:
    S = np.sqrt(table / np.maximum(table.sum(axis=1, keepdims=True), 1))
    return S - S.mean(axis=0)


def centred(squared: np.ndarray) -> np.ndarray:
    rows = squared - squared.mean(axis=0)
    return -0.5 * (rows - rows.mean(axis=1, keepdims=True))


def weighted(squared: np.ndarray, size: np.ndarray) -> np.ndarray:
    weights = size / size.sum()
    centre = np.eye(len(size)) - weights
    root = np.sqrt(size / size.mean())
    return root[:, None] * (-0.5 * centre @ squared @ centre.T) * root


def above(gram: np.ndarray, null: np.ndarray) -> int:
    mean = null.mean(axis=0)
    largest = np.linalg.eigvalsh((null - mean) * len(null) / (len(null) - 1))[:, -1]
    return int(np.sum(np.linalg.eigvalsh(gram - mean) > np.quantile(largest, 0.95)))


def violation_rate(D: np.ndarray) -> float:
    """Share of triples |i − j| < |i − k| whose distances are the other way round."""
    n = len(D)
    wrong = total = 0
    offset = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    for i in range(n):
        nearer = offset[i][:, None] < offset[i][None, :]
        nearer[i] = False
        wrong += np.sum(nearer & (D[i][:, None] > D[i][None, :]))
        total += np.sum(nearer)
    return wrong / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    corpus = load_tokens("stdlib")
    compact, _ = compacted(corpus)
    analyse_tokens(corpus)  # compiles
    seconds: dict[str, list[float]] = {"numpy": [], "jaxpe": []}
    for _ in range(options.rounds):
        begun = time.perf_counter()
        plain = Plain(compact, compact.groups()).report()
        seconds["numpy"].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        found = analyse_tokens(corpus)
        seconds["jaxpe"].append(time.perf_counter() - begun)
    pairs = zip(seconds["jaxpe"], seconds["numpy"], strict=True)
    result = {
        "tokens": int(compact.mask.sum()),
        "seconds": {name: statistics.median(of) for name, of in seconds.items()},
        "ratio jaxpe/numpy": [ours / theirs for ours, theirs in pairs],
        "rank": {"numpy": plain["rank"], "jaxpe": found.split_half.significant_rank},
        "split-half trace": {
            "numpy": float(plain["statistics"][0]), "jaxpe": found.split_half.trace
        },
        "its standard error": {
            "numpy": float(plain["errors"][0]),
            "jaxpe": (found.intervals["split_half_trace"].high - found.split_half.trace) / T,
        },
        "order violated": {
            "numpy": float(plain["statistics"][2]), "jaxpe": found.split_half.violation_rate
        },
    }  # fmt: skip
    print(json.dumps(result, indent=1))
    if options.save:
        write_result(OUT, result)


if __name__ == "__main__":
    main()
