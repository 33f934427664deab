"""Erratum 4, against truth: plug-in Hellinger geometry is mostly sampling noise.

Corpora are drawn from known distributions, so that estimators are judged against the true trace of
B, the true squared distances and the true rank:

- plug-in: B from √μ̂;
- less the permutation null: minus the mean plug-in B of corpora permuted within documents;
- less the noise floor: minus the analytic `jaxpe.geometry.noise_floor`;
- split halves: `jaxpe.geometry.split_half_geometry`.

The rank is that of `jaxpe.geometry.significant_rank`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

import jaxpe
from experiments import common
from jaxpe.data.corpora.synthetic import SyntheticCorpus

SIZES = (250, 1000, 2000, 4000, 12_500, 50_000, 100_000)
FOLDS, SPLITS, NULLS = 16, 4, 20
MAKERS = (jaxpe.data.three_regimes, jaxpe.data.zipf_drift, jaxpe.data.zipf_stationary)
ESTIMATORS = {
    "plug_in": "plug-in",
    "minus_null": "less permutation null",
    "minus_floor": "less analytic floor",
    "split_half": "split halves",
}


def experiment(run: common.Run) -> dict[str, Any]:
    sizes = SIZES[:2] if run.quick else SIZES
    found = {make.__name__: [summary(make, n, run.quick) for n in sizes] for make in MAKERS}
    draw(run, found)
    recovered = {name: recovered_from(rows) for name, rows in found.items()}
    return {"corpora": found, "rank_recovered_from": recovered}


def summary(make: Callable[..., SyntheticCorpus], documents: int, quick: bool) -> dict[str, Any]:
    """Traces (sd: of their errors), errors and ranks over seeds at one sample size."""
    seeds = 1 if quick else 3 if documents >= 50_000 else 5
    runs = [judged(make(documents=documents, seed=s), s) for s in range(seeds)]
    truth = [r["true_trace"] for r in runs]
    row: dict[str, Any] = {
        "documents": documents,
        "seeds": seeds,
        "true_trace": float(np.mean(truth)),
        "true_rank": runs[0]["true_rank"],
        "rank": [r["rank"] for r in runs],
        "plug_in_rank": [r["plug_in_rank"] for r in runs],
    }
    for name in ESTIMATORS:
        traces = np.array([r[name]["trace"] for r in runs])
        sd = common.mean_sd(traces - truth)["sd"]
        row[name] = {
            "trace": {"mean": float(traces.mean()), "sd": sd},
            "rms_error": common.mean_sd([r[name]["rms_error"] for r in runs]),
        }
    return row


def judged(corpus: SyntheticCorpus, seed: int) -> dict[str, Any]:
    """Every estimator on one corpus, against its truth."""
    truth = common.truth_of(corpus.distributions)
    ids, vocab_size = common.compacted(corpus.ids)
    key = jax.random.key(seed)
    halving, *keys = jax.random.split(key, NULLS + 1)  # as `significant_rank` draws them
    plug_in, split, floor, plug_in_rank = measured(ids, halving, vocab_size=vocab_size)
    null = [np.asarray(rotated_gram(k, ids, vocab_size=vocab_size)) for k in keys]
    rank = jaxpe.geometry.significant_rank(
        ids, vocab_size=vocab_size, key=key, folds=FOLDS, splits=SPLITS, nulls=NULLS
    ).rank
    plug_in = np.asarray(plug_in)
    centring = np.eye(len(plug_in)) - 1 / len(plug_in)
    grams = {
        "plug_in": plug_in,
        "minus_null": plug_in - np.mean(null, axis=0),
        "minus_floor": plug_in - centring @ np.diag(floor) @ centring,
        "split_half": np.asarray(split),
    }
    return {
        "true_trace": truth.trace,
        "true_rank": truth.rank,
        "rank": int(rank),
        "plug_in_rank": int(plug_in_rank),
    } | {
        name: {"trace": float(np.trace(gram)), "rms_error": common.rms_error(gram, truth)}
        for name, gram in grams.items()
    }


@partial(jax.jit, static_argnames="vocab_size")
def rotated_gram(key: jax.Array, ids: jax.Array, *, vocab_size: int) -> jax.Array:
    """The plug-in Gram matrix of rotated documents."""
    rotated = jaxpe.geometry.rotate_within_documents(key, ids)
    counts = jaxpe.geometry.count_tokens(rotated, vocab_size=vocab_size)
    return jaxpe.geometry.hellinger_gram(jaxpe.geometry.positional_distributions(counts))


@partial(jax.jit, static_argnames="vocab_size")
def measured(ids: jax.Array, key: jax.Array, *, vocab_size: int):
    counts = jaxpe.geometry.count_tokens(ids, vocab_size=vocab_size, folds=FOLDS)
    geometry = jaxpe.geometry.split_half_geometry(counts, key=key, splits=SPLITS)
    gram = jaxpe.geometry.hellinger_gram(jaxpe.geometry.positional_distributions(counts))
    rank = jaxpe.geometry.classical_mds_from_gram(gram, dim=1).rank
    return gram, geometry.gram, jaxpe.geometry.noise_floor(counts).per_position, rank


def recovered_from(rows: list[dict[str, Any]]) -> int | None:
    """The sample size from which on the significant rank is the true one at every seed."""
    good = [all(rank == row["true_rank"] for rank in row["rank"]) for row in rows]
    return next((row["documents"] for i, row in enumerate(rows) if all(good[i:])), None)


def draw(run: common.Run, results: dict[str, list[dict[str, Any]]]) -> None:
    title = "The plug-in trace follows the sample size; corrected ones stay near the truth"
    figure, axes = common.new_figure(title, columns=3, width=9.6, height=3.4)
    for axis, (name, rows) in zip(axes[0], results.items(), strict=True):
        sizes = [row["documents"] for row in rows]
        for key, label in ESTIMATORS.items():
            mean = [row[key]["trace"]["mean"] for row in rows]
            sd = [row[key]["trace"]["sd"] for row in rows]
            axis.errorbar(sizes, mean, sd, fmt="o-", ms=3.5, label=label)
        axis.axhline(rows[0]["true_trace"], color="black", ls="--", lw=1.2, label="truth")
        axis.set_yscale("symlog", linthresh=0.1)
        axis.set(title=name.replace("_", " "), xlabel="documents")
        common.log_ticks(axis, (250, 2000, 12_500, 100_000), ("250", "2k", "12.5k", "100k"))
    axes[0, 0].set_ylabel("trace of B")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=9)
    common.save_figure(run, "erratum_4_noise", figure)


if __name__ == "__main__":
    common.main(experiment, "erratum_4_noise")
