"""Erratum 4, against truth: plug-in Hellinger geometry is mostly sampling noise.

The paper estimates every distance by plugging in relative frequencies (Algorithm 1) and reads an
"intrinsic dimension" off the rank. Here corpora are drawn from known distributions, so estimators
are judged against the true trace of B, the true squared distances and the true rank:

- plug-in: B from √μ̂;
- less the permutation null: minus the mean plug-in B of corpora permuted within documents;
- less the noise floor: minus the analytic `jaxpe.noise_floor`;
- split halves: `jaxpe.split_half_geometry`.

The rank is that of `jaxpe.significant_rank`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from matplotlib.ticker import LogLocator, NullLocator

import jaxpe
from experiments.common import (
    BLUE,
    GREEN,
    ORANGE,
    VERMILION,
    Run,
    compacted,
    log_ticks,
    main,
    mean_sd,
    new_figure,
    rms_error,
    save_figure,
    truth_of,
)
from jaxpe.data import SyntheticCorpus

SIZES = (250, 1000, 2000, 4000, 12_500, 50_000, 100_000)
FOLDS, SPLITS, NULLS = 16, 4, 20
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


def experiment(run: Run) -> dict[str, Any]:
    sizes = (250, 1000) if run.quick else SIZES
    against_truth = {}
    for name, make in MAKERS.items():
        against_truth[name] = [summary(make, n, run.quick) for n in sizes]
        print(name, recovered(against_truth[name]), flush=True)
    draw(run, against_truth)
    return {
        "corpora": against_truth,
        "rank_recovered_from": {k: recovered(rows) for k, rows in against_truth.items()},
    }


def seeds_at(documents: int, quick: bool) -> range:
    return range(1 if quick else 3 if documents >= 50_000 else 5)


def summary(make: Callable[..., SyntheticCorpus], documents: int, quick: bool) -> dict[str, Any]:
    """Traces (sd: of their errors), errors and ranks over seeds at one sample size."""
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
        traces = np.array([r[name]["trace"] for r in runs])
        error = mean_sd(traces - [r["true_trace"] for r in runs])
        row[name] = {
            "trace": {"mean": float(traces.mean()), "sd": error["sd"]},
            "rms_error": mean_sd([r[name]["rms_error"] for r in runs]),
        }
    return row


def judged(corpus: SyntheticCorpus, seed: int) -> dict[str, Any]:
    """Every estimator on one corpus, against its truth."""
    truth = truth_of(corpus.distributions)
    ids, vocab_size = compacted(corpus.ids)
    estimates, rank, plug_in_rank = estimated(ids, vocab_size, jax.random.key(seed))
    result: dict[str, Any] = {
        "true_trace": truth.trace,
        "true_rank": truth.rank,
        "rank": int(rank),
        "plug_in_rank": int(plug_in_rank),
    }
    for name, gram in estimates.items():
        result[name] = {"trace": float(np.trace(gram)), "rms_error": rms_error(gram, truth)}
    return result


def estimated(ids: np.ndarray, vocab_size: int, key: jax.Array):
    """The Gram matrix by every estimator, the significant rank and the rank of the plug-in one."""
    halving, *keys = jax.random.split(key, NULLS + 1)  # as `significant_rank` draws them
    plug_in, split, floor, plug_in_rank = _measured(ids, halving, vocab_size=vocab_size)
    null = [np.asarray(_permuted_gram(k, ids, vocab_size=vocab_size)) for k in keys]
    rank = jaxpe.significant_rank(
        ids, vocab_size=vocab_size, key=key, folds=FOLDS, splits=SPLITS, nulls=NULLS
    ).rank
    n = len(plug_in)
    centring = np.eye(n) - 1 / n
    grams = {
        "plug_in": np.asarray(plug_in),
        "minus_null": np.asarray(plug_in) - np.mean(null, axis=0),
        "minus_floor": np.asarray(plug_in) - centring @ np.diag(floor) @ centring,
        "split_half": np.asarray(split),
    }
    return grams, rank, plug_in_rank


@partial(jax.jit, static_argnames="vocab_size")
def _permuted_gram(key: jax.Array, ids: jax.Array, *, vocab_size: int) -> jax.Array:
    """The plug-in Gram matrix of documents permuted within themselves."""
    permuted = jaxpe.geometry.permute_within_documents(key, ids)
    counts = jaxpe.count_tokens(permuted, vocab_size=vocab_size)
    return jaxpe.hellinger_gram(jaxpe.positional_distributions(counts))


@partial(jax.jit, static_argnames="vocab_size")
def _measured(ids: jax.Array, key: jax.Array, *, vocab_size: int):
    counts = jaxpe.count_tokens(ids, vocab_size=vocab_size, folds=FOLDS)
    geometry = jaxpe.split_half_geometry(counts, key=key, splits=SPLITS)
    gram = jaxpe.hellinger_gram(jaxpe.positional_distributions(counts))
    rank = jaxpe.geometry.classical_mds_from_gram(gram, dim=1).rank
    return gram, geometry.gram, jaxpe.noise_floor(counts).per_position, rank


def recovered(rows: list[dict[str, Any]]) -> int | None:
    """The sample size from which on the significant rank is the true one at every seed."""
    good = [all(rank == row["true_rank"] for rank in row["rank"]) for row in rows]
    first = next((i for i in range(len(rows)) if all(good[i:])), None)
    return None if first is None else rows[first]["documents"]


def draw(run: Run, results: dict[str, list[dict[str, Any]]]) -> None:
    figure, axes = new_figure(
        "The plug-in trace follows the sample size; corrected ones stay near the truth",
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
        if rows[0]["true_rank"] > 0:
            top.set_yscale("log")
            top.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            top.yaxis.set_major_formatter("{x:g}")
            top.yaxis.set_minor_locator(NullLocator())
        else:
            top.set_yscale("symlog", linthresh=0.1)
            top.set_yticks([-0.1, 0, 0.1, 1, 10], ["−0.1", "0", "0.1", "1", "10"])
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
