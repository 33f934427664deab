"""Erratum 4, intervals: do bootstrap intervals of the split-half trace hold the true trace?

Nothing is published to compare with. Corpora of known geometry are drawn at many seeds; a 95 %
interval comes from 100 resamples of the documents, either the basic one or the estimate ± 1.96
bootstrap standard errors, as `jaxpe.bootstrap` gives it. An interval can only hold what its
estimator tends to, so both are also asked whether they hold the truth times the estimator's mean
inflation.
"""

from functools import partial
from typing import Any

import jax
import numpy as np
from common import Run, compacted, main, truth_of  # pyrefly: ignore

import jaxpe
from jaxpe.data import SyntheticCorpus

FOLDS, SPLITS, SAMPLES = 16, 4, 100
MAKERS = {"three_regimes": jaxpe.data.three_regimes, "zipf_drift": jaxpe.data.zipf_drift}
PLAN = (
    ("three_regimes", 1000, 40),
    ("three_regimes", 5000, 40),
    ("zipf_drift", 1000, 10),
    ("zipf_drift", 12_500, 8),
)


def experiment(run: Run) -> dict[str, Any]:
    rows = []
    for name, documents, seeds in (("three_regimes", 250, 3),) if run.quick else PLAN:
        outcomes = [
            interval_outcome(MAKERS[name](documents=documents, seed=100 + s), s)
            for s in range(seeds)
        ]
        row: dict[str, Any] = {"corpus": name, "documents": documents, "seeds": seeds}
        for key in ("true_trace", "estimate", "standard_error"):
            row[key] = float(np.mean([o[key] for o in outcomes]))
        for kind in ("basic", "normal"):
            row[kind] = float(np.mean([covers(o, kind, o["true_trace"]) for o in outcomes]))
        # What the estimator tends to on each corpus: the truth times the mean inflation.
        inflation = row["estimate"] / row["true_trace"]
        for kind in ("basic", "normal"):
            row[f"{kind}_of_expectation"] = float(
                np.mean([covers(o, kind, inflation * o["true_trace"]) for o in outcomes])
            )
        errors = [o["estimate"] - o["true_trace"] for o in outcomes]
        row["sd_of_error"] = float(np.std(errors, ddof=1))
        rows.append(row)
        print(row, flush=True)
    return {"coverage": rows}


def interval_outcome(corpus: SyntheticCorpus, seed: int) -> dict[str, float]:
    truth = truth_of(corpus.distributions).trace
    ids, vocab_size = compacted(corpus.ids)
    interval = _interval(ids, jax.random.key(seed), vocab_size=vocab_size)
    basic = jaxpe.geometry.basic_interval(interval.estimate, interval.samples)
    estimate, error = float(interval.estimate), float(interval.standard_error)
    return {
        "true_trace": truth,
        "estimate": estimate,
        "standard_error": error,
        "low": float(basic.low),
        "high": float(basic.high),
    }


def covers(outcome: dict[str, float], kind: str, value: float) -> bool:
    if kind == "basic":
        return outcome["low"] <= value <= outcome["high"]
    return abs(outcome["estimate"] - value) <= 1.96 * outcome["standard_error"]


@partial(jax.jit, static_argnames="vocab_size")
def _interval(ids: jax.Array, key: jax.Array, *, vocab_size: int) -> jaxpe.geometry.Bootstrap:
    halving, resampling = jax.random.split(key)

    def trace(counts: jaxpe.PositionCounts) -> jax.Array:
        return jaxpe.split_half_geometry(counts, key=halving, splits=SPLITS).trace

    return jaxpe.bootstrap(
        trace, ids, vocab_size=vocab_size, key=resampling, samples=SAMPLES, folds=FOLDS
    )


if __name__ == "__main__":
    main(experiment, "erratum_4_coverage")
