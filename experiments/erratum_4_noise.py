"""Erratum 4, against truth: plug-in Hellinger geometry is mostly sampling noise.

The paper estimates every distance by plugging in relative frequencies (Algorithm 1) and reads an
"intrinsic dimension" off the rank. Here corpora are drawn from known distributions, so estimators
are judged against the true trace of B, the true squared distances and the true rank:

- plug-in: B from √μ̂;
- less the permutation null: minus the mean plug-in B of corpora permuted within documents;
- less the noise floor: minus the analytic `jaxpe.noise_floor`;
- split halves: `jaxpe.split_half_geometry`.

Also: coverage of bootstrap intervals for the split-half trace, and an estimator that was tried in
place of the plain root (a linearised root for rare words) and why it is not the default.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from common import BLUE, GREEN, ORANGE, VERMILION, Run, log_ticks, main, mean_sd
from common import new_figure, save_figure  # fmt: skip

import jaxpe
from jaxpe.data import SyntheticCorpus

SIZES = (250, 1000, 2000, 4000, 12_500, 50_000, 100_000)
FOLDS, SPLITS, NULLS = 16, 8, 20
MAKERS: dict[str, Callable[..., SyntheticCorpus]] = {
    "three_regimes": jaxpe.data.three_regimes,
    "zipf_drift": jaxpe.data.zipf_drift,
    "zipf_stationary": jaxpe.data.zipf_stationary,
}
ESTIMATORS = {
    "plug_in": ("plug-in", VERMILION),
    "minus_null": ("plug-in less permutation null", ORANGE),
    "minus_floor": ("plug-in less analytic floor", GREEN),
    "split_half": ("split halves", BLUE),
}


class Truth(NamedTuple):
    trace: float
    rank: int
    squared: np.ndarray  # [n, n]


def experiment(run: Run) -> dict[str, Any]:
    sizes = (250, 1000) if run.quick else SIZES
    against_truth = {}
    for name, make in MAKERS.items():
        against_truth[name] = [summary(make, n, run.quick) for n in sizes]
        for row in against_truth[name]:
            print(name, row["documents"], row["rank"], row["split_half"]["trace"], flush=True)
    draw(run, against_truth)
    return {
        "corpora": against_truth,
        "rank_recovered_from": {k: recovered(rows) for k, rows in against_truth.items()},
        "coverage": coverage(run.quick),
        "estimators_compared": estimators_compared(run.quick),
    }


def seeds_at(documents: int, quick: bool) -> range:
    return range(1 if quick else 3 if documents >= 50_000 else 5)


def truth_of(distributions: np.ndarray) -> Truth:
    roots = np.sqrt(distributions)
    centred = roots - roots.mean(axis=0)
    gram = centred @ centred.T
    norms = np.diag(gram)
    squared = norms[:, None] + norms[None, :] - 2 * gram
    rank = int(np.sum(np.linalg.eigvalsh(gram) > 1e-9)) if norms.max() > 1e-12 else 0
    return Truth(float(norms.sum()), rank, squared)


def summary(make: Callable[..., SyntheticCorpus], documents: int, quick: bool) -> dict[str, Any]:
    """Traces, errors and ranks over seeds at one sample size."""
    runs = [judged(make(documents=documents, seed=s), s) for s in seeds_at(documents, quick)]
    row: dict[str, Any] = {
        "documents": documents,
        "seeds": len(runs),
        "true_trace": float(np.mean([r["true_trace"] for r in runs])),
        "true_rank": runs[0]["true_rank"],
        "rank": [r["rank"] for r in runs],
        "plug_in_rank": [r["plug_in_rank"] for r in runs],
    }
    for name in ESTIMATORS:
        row[name] = {
            "trace": mean_sd([r[name]["trace"] for r in runs]),
            "rms_error": mean_sd([r[name]["rms_error"] for r in runs]),
        }
    return row


def judged(corpus: SyntheticCorpus, seed: int) -> dict[str, Any]:
    """Every estimator on one corpus, against its truth."""
    truth = truth_of(corpus.distributions)
    estimates, rank, plug_in_rank = estimated(*compacted(corpus.ids), jax.random.key(seed))
    off = ~np.eye(len(truth.squared), dtype=bool)
    result: dict[str, Any] = {
        "true_trace": truth.trace,
        "true_rank": truth.rank,
        "rank": int(rank),
        "plug_in_rank": int(plug_in_rank),
    }
    for name, gram in estimates.items():
        own = np.diag(gram)
        squared = own[:, None] + own[None, :] - 2 * np.asarray(gram)
        error = np.sqrt(np.mean((squared - truth.squared)[off] ** 2))
        result[name] = {"trace": float(np.trace(gram)), "rms_error": float(error)}
    return result


def compacted(ids: np.ndarray) -> tuple[np.ndarray, int]:
    """Ids renumbered over the words seen; words never seen change nothing and cost time.

    The vocabulary is rounded up, so that corpora of one size share a compiled program.
    """
    words, renumbered = np.unique(ids, return_inverse=True)
    return renumbered.reshape(ids.shape).astype(np.int32), -(-len(words) // 2048) * 2048


def estimated(ids: np.ndarray, vocab_size: int, key: jax.Array):
    """The Gram matrix by every estimator, the effective rank and the rank of the plug-in one."""
    halving, *keys = jax.random.split(key, NULLS + 1)
    measure = partial(_measured, vocab_size=vocab_size)
    plug_in, split, weighted, floor, plug_in_rank = measure(ids, halving)
    null = [measure(_permuted(k, ids), halving) for k in keys]
    null_mean = np.mean([np.asarray(n[0]) for n in null], axis=0)
    rank = jaxpe.rank_above_null(weighted, jnp.stack([n[2] for n in null])).rank
    n = len(plug_in)
    centring = np.eye(n) - 1 / n
    grams = {
        "plug_in": np.asarray(plug_in),
        "minus_null": np.asarray(plug_in) - null_mean,
        "minus_floor": np.asarray(plug_in) - centring @ np.diag(floor) @ centring,
        "split_half": np.asarray(split),
    }
    return grams, rank, plug_in_rank


_permuted = jax.jit(jaxpe.permute_within_documents)


@partial(jax.jit, static_argnames="vocab_size")
def _measured(ids: jax.Array, key: jax.Array, *, vocab_size: int):
    counts = jaxpe.count_tokens(ids, vocab_size=vocab_size, folds=FOLDS)
    geometry = jaxpe.split_half_geometry(counts, key=key, splits=SPLITS)
    gram = jaxpe.hellinger_gram(jaxpe.positional_distributions(counts))
    rank = jaxpe.classical_mds_from_gram(gram, dim=1).rank
    floor = jaxpe.noise_floor(counts).per_position
    return gram, geometry.gram, jaxpe.weighted_gram(geometry, counts), floor, rank


def recovered(rows: list[dict[str, Any]]) -> int | None:
    """The sample size from which on the effective rank is the true one at every seed."""
    good = [all(rank == row["true_rank"] for rank in row["rank"]) for row in rows]
    first = next((i for i in range(len(rows)) if all(good[i:])), None)
    return None if first is None else rows[first]["documents"]


def coverage(quick: bool) -> list[dict[str, Any]]:
    """How often 95 % bootstrap intervals of the split-half trace hold the true trace."""
    plan = [
        ("three_regimes", 1000, 40),
        ("three_regimes", 5000, 40),
        ("zipf_drift", 1000, 10),
        ("zipf_drift", 12_500, 10),
    ]
    if quick:
        plan = [("three_regimes", 250, 3)]
    rows = []
    for name, documents, seeds in plan:
        outcomes = [
            interval_outcome(MAKERS[name](documents=documents, seed=100 + s), s)
            for s in range(seeds)
        ]
        row = {"corpus": name, "documents": documents, "seeds": seeds}
        row |= {key: float(np.mean([o[key] for o in outcomes])) for key in outcomes[0]}
        row["sd_of_estimate"] = float(np.std([o["estimate"] for o in outcomes], ddof=1))
        rows.append(row)
        print("coverage", row, flush=True)
    return rows


def interval_outcome(corpus: SyntheticCorpus, seed: int) -> dict[str, float]:
    truth = truth_of(corpus.distributions).trace
    ids, vocab_size = compacted(corpus.ids)
    interval = _interval(ids, jax.random.key(seed), vocab_size=vocab_size)
    estimate, error = float(interval.estimate), float(interval.standard_error)
    return {
        "true_trace": truth,
        "estimate": estimate,
        "standard_error": error,
        "basic": float(interval.low <= truth <= interval.high),
        "normal": float(abs(estimate - truth) <= 1.96 * error),
    }


@partial(jax.jit, static_argnames="vocab_size")
def _interval(ids: jax.Array, key: jax.Array, *, vocab_size: int) -> jaxpe.Bootstrap:
    halving, resampling = jax.random.split(key)

    def trace(counts: jaxpe.PositionCounts) -> jax.Array:
        return jaxpe.split_half_geometry(counts, key=halving, splits=4).trace

    return jaxpe.bootstrap(
        trace, ids, vocab_size=vocab_size, key=resampling, samples=100, folds=FOLDS
    )


def estimators_compared(quick: bool) -> list[dict[str, Any]]:
    """The plain root against a linearised root for rare words, both by split halves."""
    corpora = {"smooth": smooth_drift(), "spiky": one_position_words()}
    rows = []
    for name, mu in corpora.items():
        truth = truth_of(mu)
        for documents in (2000,) if quick else (2000, 12_500, 50_000, 100_000):
            seeds = range(1 if quick else 3)
            found = [compared(mu, truth, documents, seed) for seed in seeds]
            row: dict[str, Any] = {
                "corpus": name,
                "documents": documents,
                "seeds": len(seeds),
                "true_trace": truth.trace,
            }
            for root in found[0]:
                row[root] = {
                    key: float(np.mean([f[root][key] for f in found]))
                    for key in ("trace", "rms_error")
                }
            rows.append(row)
            print("roots", row, flush=True)
    return rows


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


def compared(mu: np.ndarray, truth: Truth, documents: int, seed: int):
    """Split-half trace and error with either root, averaged over the three halvings of four quarters."""
    rng = np.random.default_rng(seed)
    quarters = np.stack([sampled(mu, documents // 4, rng) for _ in range(4)])
    pooled = quarters.sum(axis=(0, 1)) / quarters.sum()
    products = {"root": 0.0, "linearised": 0.0}
    halvings = [(0, 1), (0, 2), (0, 3)]
    for half in halvings:
        A = quarters[list(half)].sum(axis=0)
        B = quarters.sum(axis=0) - A
        for name, root in (("root", plain_root), ("linearised", linearised_root)):
            products[name] = products[name] + root(A, pooled) @ root(B, pooled).T / len(halvings)
    off = ~np.eye(len(mu), dtype=bool)
    result = {}
    for name, product in products.items():
        product = 0.5 * (product + product.T)
        own = np.diag(product)
        squared = own[:, None] + own[None, :] - 2 * product
        error = np.sqrt(np.mean((squared - truth.squared)[off] ** 2))
        trace = np.trace(product) - product.sum() / len(mu)
        result[name] = {"trace": float(trace), "rms_error": float(error)}
    return result


def sampled(mu: np.ndarray, documents: int, rng: np.random.Generator) -> np.ndarray:
    """Counts [n, vocab] of independent tokens, `documents` at every position."""
    return np.stack([rng.multinomial(documents, row) for row in mu]).astype(float)


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


def draw(run: Run, results: dict[str, list[dict[str, Any]]]) -> None:
    figure, axes = new_figure(
        "Plug-in geometry measures the sample size; split halves measure the corpus",
        rows=2,
        columns=3,
        width=9.6,
        height=5.6,
    )
    for column, (name, rows) in enumerate(results.items()):
        sizes = [row["documents"] for row in rows]
        top, bottom = axes[:, column]
        for key, (label, colour) in ESTIMATORS.items():
            mean = np.array([row[key]["trace"]["mean"] for row in rows])
            sd = np.array([row[key]["trace"]["sd"] for row in rows])
            top.plot(sizes, mean, "o-", ms=3.5, color=colour, label=label)
            top.fill_between(sizes, mean - sd, mean + sd, color=colour, alpha=0.2, lw=0)
            error = [row[key]["rms_error"]["mean"] for row in rows]
            bottom.plot(sizes, error, "o-", ms=3.5, color=colour)
        truth = rows[0]["true_trace"]
        top.axhline(truth, color="black", ls="--", lw=1.2, label="truth")
        top.set_yscale("symlog", linthresh=max(0.1, truth / 2))
        top.set(title=f"{name.replace('_', ' ')}, true rank {rows[0]['true_rank']}")
        bottom.set(yscale="log", xlabel="documents")
        for axis in (top, bottom):
            log_ticks(axis, (250, 2000, 12_500, 100_000), ("250", "2k", "12.5k", "100k"))
    axes[0, 0].set_ylabel("trace of B")
    axes[1, 0].set_ylabel("rms error of d²")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=9)
    save_figure(run, "erratum_4_noise", figure)


if __name__ == "__main__":
    main(experiment, "erratum_4_noise")
