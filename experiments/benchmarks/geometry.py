"""Algorithm 1 with its stress, from ids: jaxpe against SciPy/scikit-learn and plain NumPy.

Run `python -m experiments.benchmarks.geometry [--rounds N] [--quick] [--save]` with IMDB in
JAXPE_DATA_DIR. Every pipeline starts from int32 ids and a
mask [25000, 256] and ends with the stress of Eq. (4), which is to be 0 at full width. scikit-learn
is left out where it is not installed.
"""

import importlib
import os
from functools import partial
from pathlib import Path

import jax
import numpy as np
from scipy.spatial.distance import pdist, squareform

import jaxpe
from experiments.benchmarks import _contest as contest
from jaxpe.data import load_tokens


def load(quick: bool) -> tuple[str, np.ndarray, np.ndarray, int]:
    """IMDB as BERT reads it, special tokens masked; if quick, few random ids."""
    if quick:
        ids = np.random.default_rng(0).zipf(1.3, (1_000, 32)) % 30_522
        return "random ids", ids.astype(np.int32), np.ones(ids.shape, bool), 30_522
    vocabulary = Path(os.environ["JAXPE_DATA_DIR"]) / "bert-base-uncased" / "vocab.txt"
    corpus = load_tokens("imdb", tokenizer=vocabulary, special=True, length=256)
    mask = corpus.mask & ~np.isin(corpus.ids, corpus.exclude)
    mask[:, [0, -1]] = False  # positions of [CLS] and [SEP]: the same for every pipeline
    return "imdb", corpus.ids, mask, corpus.vocab_size


def roots(ids: np.ndarray, mask: np.ndarray, vocab_size: int, dtype: type) -> np.ndarray:
    """√μ of the occupied positions, by bincount: the same first step for both peers."""
    n = ids.shape[1]
    flat = (ids + np.arange(n, dtype=np.int32)[None, :] * vocab_size)[mask]
    counts = np.bincount(flat, minlength=n * vocab_size).reshape(n, vocab_size).astype(dtype)
    counts = counts[counts.any(axis=1)]
    return np.sqrt(counts / counts.sum(axis=1, keepdims=True))


def with_scikit_learn(ids: np.ndarray, mask: np.ndarray, vocab_size: int) -> float:
    distances = pdist(roots(ids, mask, vocab_size, np.float64))
    mds = importlib.import_module("sklearn.manifold").ClassicalMDS(
        n_components=ids.shape[1] - 3, metric="precomputed"
    )
    fitted = pdist(mds.fit_transform(squareform(distances)))
    return float(np.sum((fitted - distances) ** 2) / np.sum(distances**2))


def numpy_distances(x: np.ndarray) -> np.ndarray:
    gram = x @ x.T
    norms = np.diagonal(gram)
    return np.sqrt(np.maximum(norms[:, None] + norms[None, :] - 2 * gram, 0))


def with_numpy(ids: np.ndarray, mask: np.ndarray, vocab_size: int) -> float:
    x = roots(ids, mask, vocab_size, np.float32)
    x -= x.mean(axis=0)
    distances = numpy_distances(x)
    eigenvalues, vectors = np.linalg.eigh(x @ x.T)
    fitted = numpy_distances(vectors * np.sqrt(np.maximum(eigenvalues, 0)))
    return float(np.sum((fitted - distances) ** 2) / np.sum(distances**2))


def main() -> None:
    options = contest.options_of(__doc__, rounds=7)
    name, ids, mask, vocab_size = load(options.quick)
    encode = partial(jaxpe.information_optimal_encoding, vocab_size=vocab_size, dim=ids.shape[1])
    program = jax.jit(lambda ids, mask: encode(ids, mask=mask).stress)
    runs: contest.Contestants = {
        "jaxpe": lambda: float(program(ids, mask)),
        "numpy": lambda: with_numpy(ids, mask, vocab_size),
    }
    if contest.installed("scikit-learn"):
        runs["scipy and scikit-learn"] = lambda: with_scikit_learn(ids, mask, vocab_size)
    stress = {pipeline: run() for pipeline, run in runs.items()}
    assert max(stress.values()) < 1e-6, f"full-width MDS must be an isometry: {stress}"
    info = contest.machine("scikit-learn")
    seconds = contest.measure(runs, options.rounds, warm_up=0)
    over = contest.ratios(seconds, "jaxpe")
    result = {
        "machine": info,
        "corpus": f"{name} {ids.shape[0]:,} x {ids.shape[1]}",
        "rounds": options.rounds,
        "seconds": contest.medians(seconds),
        "speedup_of_jaxpe": {pipeline: ratio["median"] for pipeline, ratio in over.items()},
        "over_jaxpe": over,
        "stress": stress,
    }
    contest.finish("geometry", options, result)


if __name__ == "__main__":
    main()
