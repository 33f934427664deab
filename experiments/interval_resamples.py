"""How many resamples, of how many halvings, do the intervals of a report need?

Nothing is published to compare with. Documents are drawn from one known law again and again, and
each draw has four intervals of the statistics that a report gives intervals for: of 40 bootstrap
resamples with all 8 halvings (z, as reports had them); of 20 of these (Student's t); of 20 with the
first 4 halvings (t, as reports have them); and of a jackknife that empties one of 16 folds at a
time and keeps the halves as they are (t). An interval that is as good with less work covers the
statistic's mean as often, and is hardly longer.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import Run, main  # pyrefly: ignore
from scipy.special import stdtrit

import jaxpe
from jaxpe.analysis.corpus.noise import noise_statistics
from jaxpe.analysis.corpus.result import resampled_splits
from jaxpe.geometry.intervals import DEFAULT_SAMPLES

FOLDS, SPLITS, SAMPLES = 16, 8, 40
FEW, FEW_SPLITS = DEFAULT_SAMPLES, resampled_splits(SPLITS)
PLAN = ((1000, 240), (5000, 240))
Z = float(stdtrit(np.inf, 0.975))


def experiment(run: Run) -> dict[str, Any]:
    rows = []
    for documents, draws in ((200, 3),) if run.quick else PLAN:
        corpus = jaxpe.data.three_regimes(documents=documents, seed=100)
        law = np.asarray(corpus.distributions, float)
        rng = np.random.default_rng(7)
        ids = [drawn(law, documents, rng) for _ in range(draws)]
        found = [_found(own, jax.random.key(i), words=law.shape[1]) for i, own in enumerate(ids)]
        estimates, *of = [
            {key: np.array([values[key] for values in part]) for key in part[0]}
            for part in zip(*jax.device_get(found), strict=True)
        ]
        for statistic, values in estimates.items():
            own = [part[statistic] for part in of]
            known = {"documents": documents, "draws": draws, "statistic": statistic}
            rows.append(known | compared(values, *own))
            print(rows[-1], flush=True)
    return {"rows": rows}


def drawn(law: np.ndarray, documents: int, rng: np.random.Generator) -> np.ndarray:
    """Documents whose tokens are independent, from the distribution `[n, words]` of each place."""
    uniform = rng.random((documents, len(law)))
    edges = np.cumsum(law / law.sum(axis=1, keepdims=True), axis=1)[:, :-1]
    columns = [np.searchsorted(own, uniform[:, i]) for i, own in enumerate(edges)]
    return np.stack(columns, axis=1).astype(np.int32)


@partial(jax.jit, static_argnames="words")
def _found(ids: jax.Array, key: jax.Array, *, words: int) -> tuple[Any, ...]:
    """The statistics, resamples of all and of few halvings, and statistics without each fold."""
    halving, resampling = jax.random.split(key)
    sizes = {"vocab_size": words, "folds": FOLDS}

    def resampled(splits: int) -> Any:
        own = partial(noise_statistics, key=halving, splits=splits)
        return jaxpe.bootstrap(own, ids, key=resampling, samples=SAMPLES, **sizes)

    statistics = partial(noise_statistics, key=halving, splits=SPLITS)
    whole, few = resampled(SPLITS), resampled(FEW_SPLITS)
    counts = jaxpe.count_tokens(ids, **sizes)
    folds = jnp.arange(FOLDS)

    def without(fold: jax.Array) -> Any:
        kept = jnp.where((folds == fold)[:, None, None], 0, counts.tokens)
        return statistics(counts._replace(tokens=kept))

    return whole.estimate, whole.samples, few.samples, jax.lax.map(without, folds)


def compared(
    estimates: np.ndarray, samples: np.ndarray, halved: np.ndarray, without: np.ndarray
) -> dict[str, Any]:
    """Coverage of the mean, and error and half length in units of the spread over draws."""
    mean, spread = estimates.mean(), estimates.std(ddof=1)
    t = float(stdtrit(FEW - 1, 0.975))
    errors = {
        "bootstrap": (samples.std(axis=1), Z),
        "few": (samples[:, :FEW].std(axis=1, ddof=1), t),
        "report": (halved[:, :FEW].std(axis=1, ddof=1), t),
        "jackknife": (without.std(axis=1) * np.sqrt(FOLDS - 1), float(stdtrit(FOLDS - 1, 0.975))),
    }
    return {"spread": float(spread)} | {
        kind: {
            "coverage": float(np.mean(np.abs(estimates - mean) <= width * error)),
            "error": float(np.sqrt(np.mean(error**2)) / spread),
            "half_length": float(np.mean(width * error) / spread),
        }
        for kind, (error, width) in errors.items()
    }


if __name__ == "__main__":
    main(experiment, "interval_resamples")
