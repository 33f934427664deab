"""Coverage and level of the intervals over seeds, texts and documents, from draws of known truth.

Shares (accuracies of seeds, needles of texts) are beta-binomial: each seed has its own probability,
whose intraclass correlation is the spread between seeds. Comparisons are of equal configurations.
States of the probe are topics with documents of their own length, or a position in noise. "old" is
what the package did until it was measured here.
"""

import math
from typing import Any

import jax
import numpy as np

from experiments.common import Run, main
from jaxpe import position_decodability
from jaxpe.analysis.extrapolation import lead_interval, pair_level, seed_interval, seed_mean
from jaxpe.analysis.inspect import Means, probe_layers

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


def covered(found: Any, truth: float) -> dict[str, float]:
    """Coverage, mean width, and share of intervals without width."""
    width = found.high - found.low
    return {
        "coverage": float(np.mean((found.low <= truth) & (truth <= found.high))),
        "width": float(width.mean()),
        "no_width": float(np.mean(width < 1e-9)),
    }


def coverage_of_shares(rng: np.random.Generator, draws: int) -> list[dict[str, Any]]:
    """Old: without the number of trials."""
    rows = []
    for spread, mean, trials, seeds in np.array(
        np.meshgrid(SPREADS, MEANS, TRIALS, SEEDS, indexing="ij")
    ).reshape(4, -1).T.tolist():  # fmt: skip
        settings = {"mean": mean, "spread": spread, "trials": int(trials)}
        values = beta_binomial(rng, (int(seeds), draws), **settings)
        old = seed_interval(values, within=(0.0, 1.0))
        new = seed_interval(values, within=(0.0, 1.0), trials=int(trials))
        rows.append(settings | {"seeds": int(seeds), "old": covered(old, mean),
                                "new": covered(new, mean)})  # fmt: skip
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
            row: dict[str, Any] = {"mean": mean, "spread": spread}
            for name, values, trials in (("by_length", texts, DEPTHS), ("by_depth", one, 1)):
                old = seed_interval(values, within=(0.0, 1.0))
                new = seed_interval(values, within=(0.0, 1.0), trials=trials)
                row[name] = {"old": covered(old, mean), "new": covered(new, mean)}
            rows.append(row)
    return rows


def level_of_runs(rng: np.random.Generator, draws: int) -> list[dict[str, Any]]:
    """Share of pages of k equal runs on which the best one's lead over some other excludes 0.

    Losses of seeds that all runs share have what is common to a seed; the other law is skewed.
    """
    rows = []
    for law in ("normal", "skewed"):
        for count in (2, 5, 16):
            for seeds in SEEDS:
                noise = rng.normal(size=(draws, count, seeds))
                losses = rng.normal(size=(draws, 1, seeds)) + (
                    noise if law == "normal" else np.exp(noise)
                )
                found = [
                    [excludes(page, level) for level in (NOMINAL, pair_level(count))]
                    for page in losses
                ]
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
    """R² where a topic has longer documents and its words are all that there is; old: raw places.

    With rows of one length, which `jaxpe inspect` has, the topic tells nothing.
    """
    found: dict[str, list[float]] = {"old": [], "new": [], "one_length": []}
    for _ in range(corpora):
        topic = rng.integers(0, 2, documents)
        lengths = np.where(
            topic == 1, rng.integers(30, n + 1, documents), rng.integers(5, 15, documents)
        )
        states = topic[:, None, None] + rng.normal(size=(documents, n, 8))
        mask = np.arange(n) < lengths[:, None]
        found["old"].append(raw_r2(states, mask))
        found["new"].append(float(position_decodability(states, mask=mask).r2))
        found["one_length"].append(float(position_decodability(states).r2))
    return {
        name: {"mean": float(np.mean(x)), "sd": float(np.std(x, ddof=1))}
        for name, x in found.items()
    }


def raw_r2(states: np.ndarray, mask: np.ndarray) -> float:
    """R² of least squares of the position from the start, fitted to even rows, of odd ones."""
    places = np.broadcast_to(np.arange(mask.shape[1], dtype=float), mask.shape)
    (x, t), (y, truth) = ((states[k::2][mask[k::2]], places[k::2][mask[k::2]]) for k in (0, 1))
    slopes, *_ = np.linalg.lstsq(np.c_[x, np.ones(len(x))], t, rcond=None)
    missed = truth - np.c_[y, np.ones(len(y))] @ slopes
    return float(1 - (missed**2).sum() / ((truth - truth.mean()) ** 2).sum())


def coverage_of_probe(rng: np.random.Generator, corpora: int, n: int = 20) -> list[dict[str, Any]]:
    """Coverage of the mean R² over corpora; old: resamples of the documents judged."""
    rows = []
    for documents in (16, 64):
        for width in (4, 32):
            for slope in (0.0, 0.3, 1.0, 3.0):
                shape = (corpora, documents, n, width)
                states = rng.normal(size=shape) + 0.5 * rng.normal(size=(*shape[:2], 1, width))
                states += slope * np.linspace(-1, 1, n)[:, None]
                new = probe_layers(states.astype(np.float32)).r2
                old = resampled(states.astype(np.float32), rng)
                row: dict[str, Any] = {"documents": documents, "width": width, "slope": slope}
                for name, found in (("old", old), ("new", new)):
                    row[name] = covered(found, float(found.mean.mean()))
                rows.append(row | {"r2": float(new.mean.mean())})
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
