"""The statistics of a report: corrected geometry, rank above the null, intervals."""

import math
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.progress import Clock
from jaxpe.analysis.corpus.result import Interval
from jaxpe.data import Progress, TokenCorpus, containment_groups
from jaxpe.geometry import PositionCounts, SplitHalfGeometry
from jaxpe.geometry.noise import DEFAULT_FOLDS

FOLDS = DEFAULT_FOLDS
NULLS = 20


class Noise(NamedTuple):
    """What is signal: the corrected geometry, its rank, and intervals."""

    geometry: SplitHalfGeometry
    groups: int
    rank: jaxpe.geometry.SignificantRank
    estimate: dict[str, jax.Array]
    intervals: dict[str, Interval]


def measure_noise(
    corpus: TokenCorpus,
    keys: jax.Array,
    splits: int,
    bootstrap: int,
    progress: Progress,
    clock: Clock,
) -> Noise:
    """Split-half geometry, its rank above the permutation null, and bootstrap intervals.

    The steps of `significant_rank` and `bootstrap`, one by one, so that progress can be shown.
    """
    ids, mask = corpus.ids, corpus.mask
    groups = containment_groups(ids, mask)
    clock.lap("grouping")
    # The corpus goes in as arguments: XLA would spend minutes folding it as a constant.
    count = partial(
        jax.jit(partial(jaxpe.count_tokens, vocab_size=corpus.vocab_size, folds=FOLDS)),
        mask=mask,
        groups=groups,
    )
    split = jax.jit(partial(jaxpe.split_half_geometry, key=keys[0], splits=splits))
    weighted = jax.jit(jaxpe.geometry.weighted_gram)
    permute = partial(jax.jit(jaxpe.geometry.permute_within_documents), mask=mask, groups=groups)
    counts = count(ids)
    geometry = split(counts)
    clock.lap("split halves")

    null = []
    for key in progress(jax.random.split(keys[1], NULLS), "permutation null", total=NULLS):
        permuted = count(permute(key, ids))
        null.append(weighted(split(permuted), permuted))
        del permuted  # as large as the counts: never two of them
    rank = jaxpe.geometry.rank_above_null(weighted(geometry, counts), jnp.stack(null))
    clock.lap("permutation null")

    statistics = jax.jit(lambda counts: _statistics(counts, split(counts)))
    estimate = statistics(counts)
    draws: list[dict[str, jax.Array]] = []
    for key in progress(jax.random.split(keys[2], bootstrap), "bootstrap", total=bootstrap):
        repeats = jaxpe.geometry.resample_documents(key, len(ids), groups=groups)
        draws.append(statistics(count(ids, repeats=repeats)))
    clock.lap("bootstrap")
    intervals = _intervals(estimate, draws)
    return Noise(geometry, len(np.unique(groups)), rank, estimate, intervals)


def noise_of_counts(
    counts: PositionCounts,
    nulls: Iterable[PositionCounts],
    keys: jax.Array,
    splits: int,
    clock: Clock,
) -> Noise:
    """The same from counts alone, where the documents are gone.

    Intervals come from the folds. Null corpora have few folds, so corpus and null are both halved
    in these when dimensions are judged.
    """
    split = jax.jit(partial(jaxpe.split_half_geometry, key=keys[0], splits=splits))
    weighted = jax.jit(lambda counts: jaxpe.geometry.weighted_gram(split(counts), counts))
    geometry = split(counts)
    clock.lap("split halves")
    null = [(weighted(permuted), permuted.tokens.shape[0]) for permuted in nulls]
    rank = _unjudged(len(geometry.present))
    if null:
        grams, folds = zip(*null, strict=True)
        rank = jaxpe.geometry.rank_above_null(
            weighted(regrouped(counts, folds[0])), jnp.stack(grams)
        )
    clock.lap("permutation null")
    statistics = jax.jit(lambda counts: _statistics(counts, split(counts)))
    found = jaxpe.jackknife(statistics, counts)
    clock.lap("jackknife")
    intervals = _as_intervals(found)
    return Noise(geometry, int(counts.documents), rank, found.estimate, intervals)


def regrouped(counts: PositionCounts, folds: int) -> PositionCounts:
    """The same counts in fewer folds: fold f goes to f modulo their number."""
    tokens = counts.tokens
    parts = tokens.reshape(-1, folds, *tokens.shape[1:])
    return counts._replace(tokens=jnp.sum(parts, axis=0, dtype=tokens.dtype))


def _unjudged(n: int) -> jaxpe.geometry.SignificantRank:
    """No rank, for want of a null."""
    nothing = jnp.full(n, jnp.nan)
    return jaxpe.geometry.SignificantRank(
        jnp.int32(-1), nothing, nothing[None], jnp.float32(jnp.nan)
    )


def _statistics(counts: PositionCounts, geometry: SplitHalfGeometry) -> dict[str, jax.Array]:
    """What the intervals are about, plug-in and corrected on the same positions."""
    mu = jaxpe.positional_distributions(counts)._replace(present=geometry.present)
    plug_in_trace = jnp.trace(jaxpe.hellinger_gram(mu))
    rate = jaxpe.monotonicity_violation_rate(geometry.distances)
    # A triple needs three positions, and an order distances that differ.
    comparable = (jnp.sum(geometry.present) > 2) & jnp.any(geometry.squared_distances > 0)
    return {
        "split_half_trace": geometry.trace,
        "noise_share": 1.0 - geometry.trace / plug_in_trace,
        "split_half_violation_rate": jnp.where(comparable, rate, jnp.nan),
    }


def _intervals(estimate: dict, draws: list[dict]) -> dict[str, Interval]:
    """95 % intervals around the estimates; none where undefined."""
    if not draws:
        return {}
    samples = jax.tree.map(lambda *values: jnp.stack(values), *draws)
    return _as_intervals(jaxpe.geometry.normal_interval(estimate, samples))


def _as_intervals(
    found: jaxpe.geometry.Bootstrap | jaxpe.geometry.Jackknife,
) -> dict[str, Interval]:
    """Those that are defined, rates within their range."""
    intervals = {}
    for name, value in found.estimate.items():
        low, high = float(found.low[name]), float(found.high[name])
        if name == "split_half_violation_rate":
            low, high = max(low, 0.0), min(high, 1.0)
        if math.isfinite(low + high):
            intervals[name] = Interval(float(value), low, high)
    return intervals


def compacted(corpus: TokenCorpus) -> TokenCorpus:
    """The same corpus over the words that are counted alone; what is excluded is masked."""
    counted = corpus.mask & ~np.isin(corpus.ids, corpus.exclude)
    used = np.zeros(corpus.vocab_size, bool)
    used[corpus.ids[counted]] = True
    renumbered = np.cumsum(used, dtype=np.int32) - 1
    return corpus._replace(
        ids=np.where(counted, renumbered[corpus.ids], 0).astype(np.int32),
        mask=counted,
        vocab_size=int(used.sum()),
        exclude=(),
        tokens=[corpus.tokens[token] for token in np.flatnonzero(used)],
    )


def rare_positions(
    counts: PositionCounts, geometry: SplitHalfGeometry, rank: jax.Array
) -> np.ndarray:
    """Positions with tokens whose own noise hides a signal of typical size.

    Not judged at all, or with a standard error of the squared distance to the centroid above half
    of its mean over positions. Without any signal there is no size to compare with.
    """
    judged = np.asarray(geometry.present)
    occupied = np.asarray(counts.per_position) > 0
    error = np.asarray(jaxpe.noise_floor(counts).split_half_error)
    typical = float(geometry.trace) / max(judged.sum(), 1)
    hidden = (2.0 * error > typical) if int(rank) > 0 else np.zeros_like(judged)
    return occupied & (~judged | hidden)
