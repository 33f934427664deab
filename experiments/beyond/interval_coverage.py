"""Coverage and level of the intervals over seeds, texts and documents, from draws of known truth.

Shares (accuracies of seeds, needles of texts) are beta-binomial: each seed has its own probability,
whose intraclass correlation is the spread between seeds. Comparisons are of equal configurations.
States of the probe are topics with documents of their own length, or a position in noise. "old" is
what is done without the number of trials, and without correction for all pairs.
"""

import itertools
import math
from typing import Any

import jax
import numpy as np

from experiments.common import Run, main
from jaxpe.analysis.inspect.averages import Means
from jaxpe.analysis.inspect.position_probe import probe_layers
from jaxpe.analysis.intervals import lead_interval, pair_level, seed_interval, seed_mean
from jaxpe.geometry import position_decodability

MEANS, SPREADS = (0.5, 0.9, 0.99, 0.999), (0.0, 0.001, 0.01, 0.1)
TRIALS, SEEDS = (50, 200, 1000, 10_000), (3, 5, 10)
DEPTHS = 5  # needles of a text
NOMINAL = 0.95
BOTTOM, TOP = 0.92, 0.98  # coverage that is asked for


def experiment(run: Run) -> dict[str, Any]:
    draws = 500 if run.quick else 4000
    rng = np.random.default_rng(0)
    shares = coverage_of_shares(rng, draws)
    return {
        "draws": draws,
        "monte_carlo_error": math.sqrt(NOMINAL * (1 - NOMINAL) / draws),
        "shares": shares,
        "by_spread": {f"{x:g}": summary([row for row in shares if row["spread"] == x])
                      for x in SPREADS},
        "needles": coverage_of_needles(rng, draws),
        "equal_runs": level_of_runs(rng, draws),
        "equal_encodings": level_of_encodings(rng, draws // 2),
        "topics": topics(rng, 20 if run.quick else 200),
        "probe": coverage_of_probe(rng, 20 if run.quick else 300),
    }  # fmt: skip


def beta_binomial(
    rng: np.random.Generator, shape: tuple[int, ...], *, mean: float, spread: float, trials: int
) -> np.ndarray:
    """Shares of trials, whose probabilities differ with an intraclass correlation."""
    size = 1 / spread - 1 if spread else 1.0
    drawn = rng.beta(mean * size, (1 - mean) * size, shape) if spread else np.full(shape, mean)
    return rng.binomial(trials, drawn) / trials


def coverage(found: Any, truth: float) -> float:
    return float(np.mean((found.low <= truth) & (truth <= found.high)))


def both(values: np.ndarray, trials: int, truth: float) -> dict[str, dict[str, float]]:
    """Coverage without the number of trials, and with it."""
    old, new = (seed_interval(values, within=(0.0, 1.0), trials=t) for t in (math.inf, trials))
    return {"old": {"coverage": coverage(old, truth)}, "new": {"coverage": coverage(new, truth)}}


def coverage_of_shares(rng: np.random.Generator, draws: int) -> list[dict[str, Any]]:
    rows = []
    for spread, mean, trials, seeds in itertools.product(SPREADS, MEANS, TRIALS, SEEDS):
        settings = {"mean": mean, "spread": spread, "trials": trials}
        values = beta_binomial(rng, (seeds, draws), **settings)
        rows.append(settings | {"seeds": seeds} | both(values, trials, mean))
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Range of coverage, and the settings where it is too small."""
    found: dict[str, Any] = {"settings": len(rows)}
    for kind in ("old", "new"):
        values = [row[kind]["coverage"] for row in rows]
        found[kind] = {
            "low": min(values),
            "high": max(values),
            "too_small": sum(value < BOTTOM for value in values),
            "too_large": sum(value > TOP for value in values),
        }
    return found


def coverage_of_needles(rng: np.random.Generator, draws: int) -> list[dict[str, Any]]:
    """Eight texts of five needles; old: Student's by text, within bounds. Spread is by text."""
    rows = []
    for mean in (0.5, 0.9, 0.95, 0.99):
        for spread in (0.0, 0.1):
            texts = beta_binomial(rng, (8, draws), mean=mean, spread=spread, trials=DEPTHS)
            one = beta_binomial(rng, (8, draws), mean=mean, spread=spread, trials=1)
            found = {"by_length": both(texts, DEPTHS, mean), "by_depth": both(one, 1, mean)}
            rows.append({"mean": mean, "spread": spread} | found)
    return rows


def level_of_runs(rng: np.random.Generator, draws: int) -> list[dict[str, Any]]:
    """Share of pages of k equal runs on which the best one's lead over some other excludes 0.

    Losses of seeds that all runs share have what is common to a seed; the other law is skewed.
    """
    rows = []
    for law, count, seeds in itertools.product(("normal", "skewed"), (2, 5, 16), SEEDS):
        noise = rng.normal(size=(draws, count, seeds))
        losses = rng.normal(size=(draws, 1, seeds))
        losses = losses + (noise if law == "normal" else np.exp(noise))
        levels = (NOMINAL, pair_level(count))
        found = [[excludes(page, level) for level in levels] for page in losses]
        old, new = np.mean(found, axis=0).tolist()
        rows.append({"law": law, "runs": count, "seeds": seeds, "old": old, "new": new})
    return rows


def excludes(losses: np.ndarray, level: float) -> bool:
    """Whether an interval of the lead of the best of `[runs, seeds]` lies above 0."""
    best = int(losses.mean(axis=1).argmin())
    behind = np.delete(losses, best, axis=0) - losses[best]
    found = seed_mean(behind.T, level=level)
    return bool((found.mean - found.half > 0).any())


def level_of_encodings(rng: np.random.Generator, draws: int) -> list[dict[str, Any]]:
    """Share of tasks of k equal encodings on which some lead of the best is decided.

    Old: as many comparisons as encodings beside the best, and no number of trials.
    """
    rows = []
    for count, seeds in ((5, 3), (5, 5), (16, 3), (16, 5), (16, 10)):
        for mean, spread in ((0.5, 0.01), (0.9, 0.0), (0.99, 0.01), (0.999, 0.0)):
            settings = {"mean": mean, "spread": spread, "trials": 200}
            values = beta_binomial(rng, (draws, count, seeds), **settings)
            found = [decisions(page, 200) for page in values]
            old, new = np.mean(found, axis=0).tolist()
            rows.append(settings | {"encodings": count, "seeds": seeds, "old": old, "new": new})
    return rows


def decisions(accuracies: np.ndarray, trials: int) -> tuple[bool, bool]:
    """Whether the best of `[encodings, seeds]` is better than some other, before and now."""
    order = np.argsort(-accuracies.mean(axis=1), kind="stable")
    best, others = accuracies[order[0]], accuracies[order[1:]]
    before, now = 1 - (1 - NOMINAL) / len(others), pair_level(len(accuracies))
    old = seed_interval((best - others).T, within=(-1.0, 1.0), level=before)
    new = [lead_interval(best, other, trials=trials, level=now).low > 0 for other in others]
    return bool((old.low > 0).any()), any(new)


def topics(rng: np.random.Generator, corpora: int, documents: int = 64, n: int = 40) -> Any:
    """R² where a topic has longer documents and its words are all that there is.

    With rows of one length, which `jaxpe inspect` has, the topic tells nothing.
    """
    found: dict[str, list[float]] = {"new": [], "one_length": []}
    for _ in range(corpora):
        topic = rng.integers(0, 2, documents)
        lengths = np.where(
            topic == 1, rng.integers(30, n + 1, documents), rng.integers(5, 15, documents)
        )
        states = topic[:, None, None] + rng.normal(size=(documents, n, 8))
        mask = np.arange(n) < lengths[:, None]
        found["new"].append(float(position_decodability(states, mask=mask).r2))
        found["one_length"].append(float(position_decodability(states).r2))
    return {
        name: {"mean": float(np.mean(x)), "sd": float(np.std(x, ddof=1))}
        for name, x in found.items()
    }


def coverage_of_probe(rng: np.random.Generator, corpora: int, n: int = 20) -> list[dict[str, Any]]:
    """Coverage of the mean R² over corpora; old: resamples of the documents judged."""
    rows = []
    for documents, width, slope in itertools.product((16, 64), (4, 32), (0.0, 0.3, 1.0, 3.0)):
        shape = (corpora, documents, n, width)
        states = rng.normal(size=shape) + 0.5 * rng.normal(size=(*shape[:2], 1, width))
        states += slope * np.linspace(-1, 1, n)[:, None]
        new = probe_layers(states.astype(np.float32)).r2
        old = resampled(states.astype(np.float32), rng)
        found: dict[str, Any] = {"documents": documents, "width": width, "slope": slope}
        for name, means in (("old", old), ("new", new)):
            found[name] = {"coverage": coverage(means, float(means.mean.mean()))}
        rows.append(found | {"r2": float(new.mean.mean())})
    return rows


def resampled(states: np.ndarray, rng: np.random.Generator) -> Means:
    """R² of each corpus, with quantiles over resamples of the documents it is judged on."""
    found = jax.lax.map(lambda x: position_decodability(x, ridge=0.01), states)
    missed, spread = np.asarray(found.missed), np.asarray(found.spread)
    count = missed.shape[1]
    weights = rng.multinomial(count, np.full(count, 1 / count), size=1000)
    low, high = np.quantile(1 - (missed @ weights.T) / (spread @ weights.T), (0.025, 0.975), axis=1)
    return Means(np.asarray(found.r2), low, high)


if __name__ == "__main__":
    main(experiment, "interval_coverage")
