"""The numbers of `jaxpe report` beside a script of them in SciPy, on the standard library.

Run `python -m experiments.benchmarks.numpy_report [--save] [--rounds 3]`. From ids to: counts,
Hellinger distances, MDS, split halves, null corpora with the rank and the geometry of position,
and its trace's interval from halves of the documents. The script keeps the cells that occur: roots
are sparse matrices, since 19 of 20 words are at few positions. jaxpe computes encodings and widths
besides. Both group documents and fold them by the library's functions; jaxpe's programs are
compiled, as in the second run of a command.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

import jaxpe
from experiments.benchmarks import _contest as contest
from jaxpe.analysis.corpus import analyse_tokens
from jaxpe.analysis.corpus.documents import compacted
from jaxpe.data import load_tokens
from jaxpe.geometry.counts.position_counts import fold_of_documents

FOLDS, SPLITS, NULLS = 16, 8, 20
HALVINGS, HALF_NULLS = 2, 4  # of each half of the documents


class Cells(NamedTuple):
    """Tokens `[cells, folds]` of each word at each position where it occurs, by position."""

    counts: np.ndarray
    position: np.ndarray
    word: np.ndarray


class Plain:
    """The corpus and its numbers, in NumPy and SciPy."""

    def __init__(self, corpus: Any, groups: np.ndarray) -> None:
        self.n, self.vocab = corpus.ids.shape[1], corpus.vocab_size
        self.document, self.position = np.nonzero(corpus.mask)
        self.word = corpus.ids[self.document, self.position]
        self.fold = np.asarray(
            fold_of_documents(corpus.ids, corpus.mask, folds=FOLDS, groups=groups)
        )
        self.groups, self.rng = groups, np.random.default_rng(0)
        order = np.argsort(self.rng.random((SPLITS, FOLDS)), axis=1)
        first = (order < FOLDS // 2).astype(np.float32)
        self.halves = np.stack([first, 1 - first], axis=1)
        self.quarters = [[self.halvings_of(own > 0) for own in half] for half in self.halves]

    def halvings_of(self, half: np.ndarray) -> np.ndarray:
        """Random halves of half of the folds, `[halvings, 2, folds]`."""
        found = np.zeros((HALVINGS, 2, FOLDS), np.float32)
        for parts in found:
            order = self.rng.permutation(np.flatnonzero(half))
            parts[0, order[: len(order) // 2]] = 1
            parts[1, order[len(order) // 2 :]] = 1
        return found

    def counts(self, position: np.ndarray) -> Cells:
        """Tokens of each fold, in the cells that occur."""
        cell, at = np.unique(position * self.vocab + self.word, return_inverse=True)
        folded = np.bincount(at * FOLDS + self.fold[self.document], minlength=FOLDS * len(cell))
        where = divmod(cell.astype(np.int32), self.vocab)
        return Cells(folded.reshape(-1, FOLDS).astype(np.float32), *where)

    def roots(self, cells: Cells, folds: np.ndarray) -> csr_array:
        """Roots of the frequencies in some folds, `[n, vocab]`."""
        counts = cells.counts @ folds
        kept = np.flatnonzero(counts)
        counts, row, word = counts[kept], cells.position[kept], cells.word[kept]
        size = np.bincount(row, counts, minlength=self.n)
        start = np.searchsorted(row, np.arange(self.n + 1)).astype(np.int32)
        return csr_array((np.sqrt(counts / size[row]), word, start), shape=(self.n, self.vocab))

    def split_half(self, cells: Cells, parts: np.ndarray) -> np.ndarray:
        """Squared distances, negative ones among them, of halvings `[halvings, 2, folds]`."""
        products = np.zeros((self.n, self.n))
        for half in parts:
            first, second = (self.roots(cells, own) for own in half)
            products += (first @ second.T).toarray()
        products = (products + products.T) / (2 * len(parts))
        own = np.diag(products)
        return own[:, None] + own[None, :] - 2 * products

    def traces_of_halves(self, cells: Cells) -> np.ndarray:
        """Traces of both halves of the documents, `[splits, 2]`."""
        return np.array(
            [[np.trace(centred(self.split_half(cells, part))) for part in both]
             for both in self.quarters]
        )  # fmt: skip

    def null_positions(self) -> np.ndarray:
        """Positions of the tokens of rotated documents; the last token stays, unless it was cut."""
        size = np.bincount(self.document)
        moving = size - (size < self.n)
        offset = (self.rng.random(len(size)) * moving).astype(int)[self.document]
        moving = moving[self.document]
        turned = (self.position + offset) % np.maximum(moving, 1)
        return np.where(self.position < moving, turned, self.position)

    def report(self) -> dict[str, Any]:
        table = self.counts(self.position)
        S = self.roots(table, np.ones(FOLDS, np.float32))
        gram = (S @ S.T).toarray()
        own = np.diag(gram)
        D = np.sqrt(np.maximum(own[:, None] + own[None, :] - 2 * gram, 0))
        squared = self.split_half(table, self.halves)
        size = np.bincount(self.position, minlength=self.n)
        null, of_halves = [], []
        for number in range(NULLS):
            drawn = self.counts(self.null_positions())
            null.append(self.split_half(drawn, self.halves))
            if number < HALF_NULLS:
                of_halves.append(self.traces_of_halves(drawn))
        position = squared - np.mean(null, axis=0)
        rank = above(weighted(squared, size), np.array([weighted(x, size) for x in null]))
        own = self.traces_of_halves(table)
        traces = np.array([np.trace(centred(x)) for x in null])
        return {
            "plug-in eigenvalues": np.linalg.eigvalsh(centred(D**2)),
            "rate": violation_rate(D),
            "position": np.trace(centred(position)),
            "error": calibrated(own, np.array(of_halves), traces),
            "rank": rank,
        }


def calibrated(own: np.ndarray, shuffled: np.ndarray, null: np.ndarray) -> float:
    """Standard error of the trace of position, from halves less what shuffled halves say."""
    mean, more = shuffled.mean(axis=0), len(shuffled)
    h = half_sample_error(own - mean) ** 2
    h0 = np.mean([half_sample_error(x - mean) ** 2 for x in shuffled]) * more / (more - 1)
    v0 = np.var(null, ddof=1) * (1 + 1 / len(null))
    return float(np.sqrt(max(h - h0 * (1 + 1 / more), 0) + v0))


def half_sample_error(samples: np.ndarray) -> float:
    return 0.5 * float(np.sqrt(np.mean((samples[:, 0] - samples[:, 1]) ** 2)))


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
    return int(np.sum(np.linalg.eigvalsh(gram - mean) > largest.max()))


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


def cost(run: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock and of the CPU."""
    clock, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - clock, time.process_time() - cpu


def main() -> None:
    options = contest.options_of(__doc__, rounds=3)
    corpus = load_tokens("stdlib")
    compact, _ = compacted(corpus)
    results: dict[str, Any] = {}

    def keep(name: str, report: Any) -> None:
        results[name] = report

    runs: contest.Contestants = {
        "scipy": lambda: keep("scipy", Plain(compact, compact.groups()).report()),
        "jaxpe": lambda: keep("jaxpe", analyse_tokens(corpus)),
    }
    info = contest.machine("scipy")
    taken = {name: partial(cost, run) for name, run in runs.items()}
    times = contest.take_turns(taken, options.rounds, warm_up=1)  # [rounds, clock and CPU]
    plain, found = results["scipy"], results["jaxpe"]
    D = jaxpe.Distances(found.observed.distances, found.observed.present)
    result = {
        "machine": info,
        "tokens": int(compact.mask.sum()),
        "seconds": {name: float(np.median(of[:, 0])) for name, of in times.items()},
        "cpu_seconds": {name: float(np.median(of[:, 1])) for name, of in times.items()},
        "ratio": (times["jaxpe"][:, 0] / times["scipy"][:, 0]).tolist(),
        "rank": {"scipy": plain["rank"], "jaxpe": found.position.significant_rank},
        "position trace": {"scipy": plain["position"], "jaxpe": found.position.trace},
        "violation rate": {
            "scipy": plain["rate"],
            "jaxpe": float(jaxpe.monotonicity_violation_rate(D)),
        },
    }
    contest.finish("numpy_report", options, result)


if __name__ == "__main__":
    main()
