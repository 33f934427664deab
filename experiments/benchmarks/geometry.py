"""Algorithm 1 with its stress, from ids: jaxpe against SciPy/scikit-learn and plain NumPy.

Run `python -m experiments.benchmarks.geometry` (needs scikit-learn, and JAXPE_DATA_DIR with IMDB;
without it, random ids of the same size). Every pipeline starts from int32 ids and a mask
[25000, 256] and ends with coordinates and the stress of Eq. (4). The rounds of the pipelines
alternate, warmed up, in one process; printed are medians, their ratios, and that all agree.
"""

import importlib
import json
import os
import platform
import sys
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np
from scipy.spatial.distance import pdist, squareform

import jaxpe
from experiments.benchmarks._machine import write_result
from jaxpe.data import load_tokens

ROUNDS = 7
OUT = Path(__file__).parent.parent / "results" / "benchmark_geometry.json"


def load() -> tuple[str, np.ndarray, np.ndarray, int]:
    """IMDB as BERT reads it, special tokens masked; or random ids of its size."""
    folder = os.environ.get("JAXPE_DATA_DIR")
    if folder is None:
        ids = np.random.default_rng(0).zipf(1.3, (25_000, 256)) % 30_522
        return "random ids", ids.astype(np.int32), np.ones(ids.shape, bool), 30_522
    vocabulary = Path(folder) / "bert-base-uncased" / "vocab.txt"
    corpus = load_tokens("imdb", tokenizer=vocabulary, special=True, length=256)
    mask = corpus.mask & ~np.isin(corpus.ids, corpus.exclude)
    mask[:, [0, -1]] = False  # positions of [CLS] and [SEP]: the same for every pipeline
    return "imdb", corpus.ids, mask, corpus.vocab_size


def roots(ids: np.ndarray, mask: np.ndarray, vocab_size: int, dtype) -> np.ndarray:
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


def _numpy_distances(x: np.ndarray) -> np.ndarray:
    gram = x @ x.T
    norms = np.diagonal(gram)
    return np.sqrt(np.maximum(norms[:, None] + norms[None, :] - 2 * gram, 0))


def with_numpy(ids: np.ndarray, mask: np.ndarray, vocab_size: int) -> float:
    x = roots(ids, mask, vocab_size, np.float32)
    x -= x.mean(axis=0)
    distances = _numpy_distances(x)
    eigenvalues, vectors = np.linalg.eigh(x @ x.T)
    fitted = _numpy_distances(vectors * np.sqrt(np.maximum(eigenvalues, 0)))
    return float(np.sum((fitted - distances) ** 2) / np.sum(distances**2))


def with_jaxpe(vocab_size: int):
    encode = partial(jaxpe.information_optimal_encoding, vocab_size=vocab_size, dim=256)
    compiled = jax.jit(lambda ids, mask: encode(ids, mask=mask).stress)
    return lambda ids, mask, vocab_size: float(compiled(ids, mask))


def main() -> None:
    name, ids, mask, vocab_size = load()
    pipelines = {
        "jaxpe": with_jaxpe(vocab_size),
        "numpy": with_numpy,
        "scipy and scikit-learn": with_scikit_learn,
    }
    seconds: dict[str, list[float]] = {pipeline: [] for pipeline in pipelines}
    stress = {}
    for round_number in range(ROUNDS + 1):
        for pipeline, run in pipelines.items():
            start = time.perf_counter()
            stress[pipeline] = run(ids, mask, vocab_size)
            if round_number:  # the first warms up: compilation, page faults
                seconds[pipeline].append(time.perf_counter() - start)
    medians = {pipeline: float(np.median(times)) for pipeline, times in seconds.items()}
    result = {
        "corpus": f"{name} {ids.shape[0]:,} x {ids.shape[1]}",
        "device": f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores, {platform.machine()}",
        "rounds": ROUNDS,
        "seconds": medians,
        "speedup_of_jaxpe": {p: medians[p] / medians["jaxpe"] for p in pipelines if p != "jaxpe"},
        "stress": stress,
    }
    print(json.dumps(result, indent=2))
    assert max(stress.values()) < 1e-6, "a pipeline is wrong: full-width MDS must be an isometry"
    if "--save" in sys.argv:
        write_result(OUT, result)


if __name__ == "__main__":
    main()
