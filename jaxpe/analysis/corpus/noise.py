"""What of the geometry is signal: split halves, dimensions above the null, intervals."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.arrays import rounded_size
from jaxpe._core.progress import Clock, Progress
from jaxpe.analysis.corpus.result import Interval
from jaxpe.data import TokenCorpus
from jaxpe.geometry import (
    Bootstrap,
    Jackknife,
    PositionCounts,
    SignificantRank,
    SparseCounts,
    SplitHalfGeometry,
    rank_above_null,
    weighted_gram,
)
from jaxpe.geometry.noise import DEFAULT_FOLDS
from jaxpe.geometry.occurrences import occurrences_of


class Noise(NamedTuple):
    """The rank (None without a null), statistics and intervals."""

    rank: SignificantRank | None
    estimate: dict[str, jax.Array]
    intervals: dict[str, Interval]


def noise_of_documents(
    corpus: TokenCorpus,
    groups: np.ndarray,
    keys: jax.Array,
    *,
    splits: int,
    samples: int,
    progress: Progress,
    clock: Clock,
) -> Noise:
    """Rank above the permutation null, and bootstrap intervals; keys of halvings, null, draws."""
    documents = {"vocab_size": corpus.vocab_size, "mask": corpus.mask, "groups": groups}
    rank = jaxpe.significant_rank(
        corpus.ids, key=keys[1], splits=splits, progress=progress, **documents
    )
    clock.lap("permutation null")
    statistics = partial(noise_statistics, key=keys[0], splits=splits)
    if not samples:
        tokens = occurrences_of(
            corpus.ids, corpus.mask, groups, vocab_size=corpus.vocab_size, folds=DEFAULT_FOLDS
        )
        return Noise(rank, jax.jit(lambda tokens: statistics(tokens.counts()))(tokens), {})
    found = jaxpe.bootstrap(
        statistics,
        corpus.ids,
        key=keys[2],
        samples=samples,
        sparse=True,
        progress=progress,
        **documents,
    )
    clock.lap("bootstrap")
    return Noise(rank, found.estimate, _intervals(found))


def noise_of_counts(
    counts: PositionCounts,
    nulls: np.ndarray,
    used: np.ndarray,
    key: jax.Array,
    *,
    splits: int,
    progress: Progress,
    clock: Clock,
) -> Noise:
    """The same from counts in folds of the words that occur, where the documents are gone.

    Intervals come from the folds. The null corpora `[nulls, folds, n, vocab]`, of all words, have
    few folds, so corpus and null are both halved in these when dimensions are judged.
    """
    split = partial(jaxpe.split_half_geometry, key=key, splits=splits)
    weighted = jax.jit(lambda counts: weighted_gram(split(counts), counts))
    grams = [
        weighted(counts._replace(tokens=jnp.asarray(null[..., used])))
        for null in progress.track(nulls, "permutation null")
    ]
    rank = None
    if grams:
        rank = rank_above_null(weighted(_regrouped(counts, nulls.shape[1])), jnp.stack(grams))
    clock.lap("permutation null")
    statistics = partial(noise_statistics, key=key, splits=splits)
    found = jaxpe.jackknife(statistics, counts, progress=progress)
    clock.lap("jackknife")
    return Noise(rank, found.estimate, _intervals(found))


def noise_statistics(
    counts: PositionCounts | SparseCounts, *, key: jax.Array, splits: int
) -> dict[str, jax.Array]:
    """What the intervals are about, plug-in and corrected on the same positions."""
    geometry = jaxpe.split_half_geometry(counts, key=key, splits=splits)
    plug_in_trace = jnp.trace(_plug_in_gram(counts, geometry.present))
    rate = jaxpe.monotonicity_violation_rate(geometry.distances)
    # A triple needs three positions, and an order distances that differ.
    comparable = (jnp.sum(geometry.present) > 2) & jnp.any(geometry.squared_distances > 0)
    return {
        "split_half_trace": geometry.trace,
        "noise_share": 1.0 - geometry.trace / plug_in_trace,
        "split_half_violation_rate": jnp.where(comparable, rate, jnp.nan),
    }


def _plug_in_gram(counts: PositionCounts | SparseCounts, present: jax.Array) -> jax.Array:
    """The plug-in Gram matrix of these positions alone."""
    if isinstance(counts, SparseCounts):
        kept = jnp.where(present, counts.per_position, 0)  # a position without tokens is absent
        return jaxpe.hellinger_gram(counts._replace(per_position=kept))
    return jaxpe.hellinger_gram(jaxpe.positional_distributions(counts)._replace(present=present))


def _regrouped(counts: PositionCounts, folds: int) -> PositionCounts:
    """The same counts in fewer folds: fold f goes to f modulo their number."""
    tokens = counts.tokens
    parts = tokens.reshape(-1, folds, *tokens.shape[1:])
    return counts._replace(tokens=jnp.sum(parts, axis=0, dtype=tokens.dtype))


def _intervals(found: Bootstrap | Jackknife) -> dict[str, Interval]:
    """Those that are defined, rates within their range."""
    intervals = {}
    for name, value in found.estimate.items():
        low, high = float(found.low[name]), float(found.high[name])
        if name == "split_half_violation_rate":
            low, high = max(low, 0.0), min(high, 1.0)
        if math.isfinite(low + high):
            intervals[name] = Interval(float(value), low, high)
    return intervals


def compacted(corpus: TokenCorpus) -> tuple[TokenCorpus, np.ndarray]:
    """The same corpus over the words that are counted, and which these are, bool `[vocab]`."""
    counted = corpus.mask & ~np.isin(corpus.ids, corpus.exclude)
    used = np.zeros(corpus.vocab_size, bool)
    used[corpus.ids[counted]] = True
    renumbered = np.cumsum(used, dtype=np.int32) - 1
    compact = corpus._replace(
        ids=np.where(counted, renumbered[corpus.ids], 0).astype(np.int32),
        mask=counted,
        vocab_size=rounded_size(int(used.sum())),  # words that never occur, few sizes of arrays
        exclude=(),
        tokens=[corpus.tokens[token] for token in np.flatnonzero(used)],
    )
    return compact, used


def rare_positions(
    per_position: np.ndarray,
    geometry: SplitHalfGeometry,
    error: np.ndarray,
    rank: SignificantRank | None,
) -> np.ndarray:
    """Positions with tokens whose own noise hides a signal of typical size, as indices.

    Not judged at all, or with a standard error of the squared distance to the centroid above half
    of its mean over positions. Without any signal there is no size to compare with.
    """
    judged = np.asarray(geometry.present)
    typical = float(np.trace(np.asarray(geometry.gram))) / max(judged.sum(), 1)
    signal = rank is not None and int(rank.rank) > 0
    hidden = (2.0 * error > typical) if signal else np.zeros_like(judged)
    return np.flatnonzero((per_position > 0) & (~judged | hidden))
