"""Erratum 4, a negative finding: a linearised root for rare words does not replace the root.

Split halves are biased because E√x ≠ √E x for words seen a few times. Where fewer than four tokens
are expected, √p(1 + x/λ)/2 (λ = N·p, p pooled over positions) is linear in the counts, so that its
products are unbiased to first order around p. Compared with the plain root, by the trace and the
squared distances, on a smooth drift and on a corpus where 5 % of the words live at one position.
"""

from typing import Any

import jax
import numpy as np

from experiments import common


def experiment(run: common.Run) -> dict[str, Any]:
    rows = []
    for name, mu in (("smooth", smooth_drift()), ("spiky", one_position_words())):
        truth = common.truth_of(mu)
        for documents in (2000,) if run.quick else (2000, 12_500, 50_000, 100_000):
            seeds = range(1 if run.quick else 3)
            found = [compared(mu, truth, documents, seed) for seed in seeds]
            mean = jax.tree.map(lambda *values: float(np.mean(values)), *found)
            row = {"corpus": name, "documents": documents, "true_trace": truth.trace}
            rows.append(row | mean)
    return {"rows": rows}


def smooth_drift(length: int = 48, vocab_size: int = 20_000) -> np.ndarray:
    """Zipf times a smooth log-normal factor of position; true trace about 0.8."""
    rng = np.random.default_rng(0)
    t = (np.arange(length) + 0.5) / length
    waves = np.cos(np.pi * np.outer(t, np.arange(1, 4)))
    factor = np.exp(0.2365 * waves @ rng.standard_normal((3, vocab_size)))
    mu = factor / np.arange(1, vocab_size + 1)
    return mu / mu.sum(axis=1, keepdims=True)


def one_position_words(length: int = 48, vocab_size: int = 20_000) -> np.ndarray:
    """The same, but 5 % of the words live at one single position each."""
    rng = np.random.default_rng(1)
    mu = smooth_drift(length, vocab_size)
    chosen = rng.choice(vocab_size, vocab_size // 20, replace=False)
    home = rng.integers(length, size=len(chosen))
    mass = mu[:, chosen].sum(axis=0)
    mu[:, chosen] = 0.0
    mu[home, chosen] = mass
    return mu / mu.sum(axis=1, keepdims=True)


def compared(
    mu: np.ndarray, truth: common.Truth, documents: int, seed: int
) -> dict[str, dict[str, float]]:
    """Split-half trace and error with either root, over three halvings of four quarters."""
    rng = np.random.default_rng(seed)
    # Counts [4, n, vocab] of independent tokens.
    quarters = np.stack([[rng.multinomial(documents // 4, row) for row in mu] for _ in range(4)])
    pooled = quarters.sum(axis=(0, 1)) / quarters.sum()
    products = {name: np.zeros((len(mu), len(mu))) for name in ROOTS}
    halvings = [(0, 1), (0, 2), (0, 3)]
    for half in halvings:
        A = quarters[list(half)].sum(axis=0)
        B = quarters.sum(axis=0) - A
        for name, root in ROOTS.items():
            products[name] += root(A, pooled) @ root(B, pooled).T / len(halvings)
    result = {}
    for name, product in products.items():
        product = 0.5 * (product + product.T)
        trace = np.trace(product) - product.sum() / len(mu)
        result[name] = {"trace": float(trace), "rms_error": common.rms_error(product, truth)}
    return result


def plain_root(counts: np.ndarray, pooled: np.ndarray) -> np.ndarray:
    return np.sqrt(counts / counts.sum(axis=1, keepdims=True))


def linearised_root(counts: np.ndarray, pooled: np.ndarray) -> np.ndarray:
    """√p(1 + x/λ)/2 where λ = N p < 4 is expected, elsewhere (√x + 1/(8√x))/√N."""
    size = counts.sum(axis=1, keepdims=True)
    expected = size * pooled[None, :]
    safe = np.maximum(counts, 1.0)
    usual = np.where(counts > 0, (np.sqrt(safe) + 1 / (8 * np.sqrt(safe))) / np.sqrt(size), 0.0)
    linear = np.sqrt(pooled) * (1 + counts / np.where(expected > 0, expected, 1.0)) / 2
    return np.where(expected < 4, linear, usual)


ROOTS = {"root": plain_root, "linearised": linearised_root}


if __name__ == "__main__":
    common.main(experiment, "erratum_4_roots")
