"""The main numbers of `jaxpe report` in SciPy, from ids: what it costs without JAX.

The script keeps the cells that occur: roots are sparse matrices, since 19 of 20 words are at few
positions. Documents are grouped and folded by the library's functions.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from jaxpe._core.progress import SILENT, Progress
from jaxpe.geometry.counts.position_counts import fold_of_documents

FOLDS, SPLITS, NULLS, WIDEST = 16, 8, 20, 32
HALVINGS, HALF_NULLS = 2, 4  # of each half of the documents


class Cells(NamedTuple):
    """Tokens `[cells, folds]` of each word at each position where it occurs, by position."""

    counts: np.ndarray
    position: np.ndarray
    word: np.ndarray


class Script:
    """The corpus and its numbers, in NumPy and SciPy."""

    def __init__(self, corpus: Any, groups: np.ndarray, progress: Progress = SILENT) -> None:
        self.n, self.vocab, self.progress = corpus.ids.shape[1], corpus.vocab_size, progress
        self.document, self.position = np.nonzero(corpus.mask)
        self.word = corpus.ids[self.document, self.position]
        fold = fold_of_documents(corpus.ids, corpus.mask, folds=FOLDS, groups=groups)
        self.fold, self.rng = np.asarray(fold), np.random.default_rng(0)
        order = np.argsort(self.rng.random((SPLITS, FOLDS)), axis=1)
        first = (order < FOLDS // 2).astype(np.float32)
        self.halves = np.stack([first, 1 - first], axis=1)  # [splits, 2, folds]
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
        return squared_of((products + products.T) / (2 * len(parts)))

    def of_halves(self, cells: Cells) -> np.ndarray:
        """Squared distances of both halves of the documents, `[splits, 2, n, n]`."""
        return np.array(
            [[self.split_half(cells, part) for part in both] for both in self.quarters]
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
        """Trace and rank of position, the error of the trace, and held-out stress by width."""
        table, size = self.counts(self.position), np.bincount(self.position, minlength=self.n)
        self.progress.say(": position")
        squared = self.split_half(table, self.halves)
        drawn = [self.counts(self.null_positions()) for _ in range(HALF_NULLS)]
        null = [self.split_half(cells, self.halves) for cells in drawn]
        for _ in range(NULLS - HALF_NULLS):
            null.append(self.split_half(self.counts(self.null_positions()), self.halves))
        rank = above(weighted(squared, size), np.array([weighted(x, size) for x in null]))
        traces = np.array([np.trace(centred(x)) for x in null])
        self.progress.say(": halves of the documents")
        own, shuffled = self.of_halves(table), np.array([self.of_halves(x) for x in drawn])
        error = calibrated(traces_of(own), traces_of(shuffled), traces)
        self.progress.say(": observed distances")
        S = self.roots(table, np.ones(FOLDS, np.float32))
        D2 = squared_of((S @ S.T).toarray())
        eigenvalues = np.linalg.eigvalsh(centred(D2))
        self.progress.say(": encodings, held out")
        return {
            "eigenvalues": eigenvalues,
            "trace": np.trace(centred(squared - np.mean(null, axis=0))),
            "error": error,
            "rank": rank,
            "held out": held_out(own - shuffled.mean(axis=0)),
        }


def squared_of(gram: np.ndarray) -> np.ndarray:
    own = np.diag(gram)
    return own[:, None] + own[None, :] - 2 * gram


def centred(squared: np.ndarray) -> np.ndarray:
    rows = squared - squared.mean(axis=0)
    return -0.5 * (rows - rows.mean(axis=1, keepdims=True))


def traces_of(squared: np.ndarray) -> np.ndarray:
    """Traces of the Gram matrices of squared distances `[..., n, n]`."""
    return squared.mean(axis=-1).sum(axis=-1) / 2


def calibrated(own: np.ndarray, shuffled: np.ndarray, null: np.ndarray) -> float:
    """Standard error of the trace of position, from halves less what shuffled halves say."""
    mean, more = shuffled.mean(axis=0), len(shuffled)
    h = half_sample_error(own - mean) ** 2
    h0 = np.mean([half_sample_error(x - mean) ** 2 for x in shuffled]) * more / (more - 1)
    v0 = np.var(null, ddof=1) * (1 + 1 / len(null))
    return float(np.sqrt(max(h - h0 * (1 + 1 / more), 0) + v0))


def half_sample_error(samples: np.ndarray) -> float:
    return 0.5 * float(np.sqrt(np.mean((samples[:, 0] - samples[:, 1]) ** 2)))


def weighted(squared: np.ndarray, size: np.ndarray) -> np.ndarray:
    weights = size / size.sum()
    centre = np.eye(len(size)) - weights
    root = np.sqrt(size / size.mean())
    return root[:, None] * (-0.5 * centre @ squared @ centre.T) * root


def above(gram: np.ndarray, null: np.ndarray) -> int:
    mean = null.mean(axis=0)
    largest = np.linalg.eigvalsh((null - mean) * len(null) / (len(null) - 1))[:, -1]
    return int(np.sum(np.linalg.eigvalsh(gram - mean) > largest.max()))


def held_out(squared: np.ndarray) -> list[float]:
    """Mean scaled stress of each width, of MDS of the other half; from `[splits, 2, n, n]`."""
    pairs = np.triu_indices(squared.shape[-1], 1)
    found = []
    for both in squared:
        for fitted, wanted in (both, both[::-1]):
            values, vectors = np.linalg.eigh(centred(fitted))
            P = (vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1][:, :WIDEST]
            differences = np.square(P[pairs[0]] - P[pairs[1]])  # [pairs, widths]
            delta = np.sqrt(np.cumsum(differences, axis=1))
            d = np.sqrt(np.maximum(wanted[pairs], 0))
            found.append(1 - (d @ delta) ** 2 / (np.sum(delta**2, axis=0) * np.sum(d**2)))
    return np.mean(found, axis=0).tolist()
