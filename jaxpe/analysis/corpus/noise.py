"""Signal and noise of the geometry: split halves, dimensions above the null, intervals."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.arrays import ArrayLike, rounded_size
from jaxpe._core.compiled import compiled
from jaxpe._core.progress import Clock, Progress
from jaxpe.analysis.corpus.result import Interval, resampled_splits
from jaxpe.analysis.corpus.violations import is_comparable, violation_rate
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
from jaxpe.geometry.distances import centre_rows, hellinger_roots
from jaxpe.geometry.halving import (
    HalvableTokens,
    Halved,
    first_halves,
    places_of,
    split_halves,
)
from jaxpe.geometry.intervals import drawn_documents, student_interval
from jaxpe.geometry.noise import DEFAULT_FOLDS
from jaxpe.geometry.occurrences import Occurrences, occurrences_of
from jaxpe.geometry.repeated import map_items
from jaxpe.geometry.significant_rank import rank_of_tokens
from jaxpe.geometry.sparse import fold_tables, root_frequencies

_RATE = "split_half_violation_rate"


class Noise(NamedTuple):
    """The rank (None without a null), statistics and intervals."""

    rank: SignificantRank | None
    estimate: dict[str, jax.Array]
    intervals: dict[str, Interval]
    seconds: dict[str, float]


def noise_of_documents(
    corpus: TokenCorpus,
    groups: np.ndarray,
    tokens: HalvableTokens,
    halved: Callable[[], Halved],
    parts: jax.Array,
    keys: tuple[jax.Array, jax.Array],
    draws: jax.Array,
    *,
    splits: int,
    progress: Progress,
) -> Noise:
    """Rank above the permutation null, and bootstrap intervals; keys of the null, and of resamples.

    What `significant_rank` and `bootstrap` of `noise_statistics` give, by their programs; tokens
    and parts are those that `halvable_tokens` and `drawn_halves` make, `halved` what `split_halves`
    makes of them.
    """
    clock = Clock()
    known: dict[str, Any] = {"vocab_size": corpus.vocab_size, "folds": DEFAULT_FOLDS}
    every = occurrences_of(corpus.ids, corpus.mask, groups, **known)
    rank = rank_of_tokens(tokens, corpus.mask, groups, keys=keys, splits=splits, progress=progress)
    clock.lap("permutation null")
    places, few = places_of(corpus.mask), first_halves(parts, resampled_splits(splits))

    def resampled(key: jax.Array) -> dict[str, jax.Array]:
        repeats = drawn_documents(key, groups, documents=len(groups))
        return _statistics_of(split_halves(tokens, repeats, places, few), every, repeats)

    estimate = _statistics_of(halved(), every, np.ones(len(groups), np.int32))
    if not len(draws):
        return Noise(rank, estimate, {}, clock.laps)
    found = map_items(resampled, draws, progress=progress, description="bootstrap")
    intervals = _intervals(student_interval(estimate, found))
    clock.lap("bootstrap")
    return Noise(rank, estimate, intervals, clock.laps)


def _statistics_of(halved: Halved, tokens: Occurrences, repeats: ArrayLike) -> dict[str, Any]:
    """`_statistics` of documents."""
    found, D, comparable = _traces_of(halved, tokens, repeats)
    rate = violation_rate(D)
    return found | {_RATE: rate if comparable else jax.device_put(np.full_like(rate, np.nan))}


@compiled()
def _traces_of(
    halved: Halved, tokens: Occurrences, repeats: ArrayLike
) -> tuple[dict[str, jax.Array], jaxpe.Distances, jax.Array]:
    geometry = halved.geometry
    sizes = jnp.sum(tokens.per_position(repeats), axis=0)
    fold = partial(tokens.fold_tables, repeats=repeats, merged=True)
    found = _traces(geometry, _plug_in_trace(fold, sizes, geometry.present))
    return found, geometry.distances, is_comparable(geometry)


def noise_of_counts(
    counts: PositionCounts,
    nulls: np.ndarray,
    used: np.ndarray,
    key: jax.Array,
    *,
    splits: int,
    progress: Progress,
) -> Noise:
    """The same from counts in folds of the words that occur, where the documents are gone.

    Intervals come from the folds. The null corpora `[nulls, folds, n, vocab]`, of all words, have
    few folds, so corpus and null are both halved in these when dimensions are judged.
    """
    clock = Clock()
    weighted = partial(_weighted, key=key, splits=splits)
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
    return Noise(rank, found.estimate, _intervals(found), clock.laps)


@compiled(static=("splits",))
def _weighted(counts: PositionCounts, *, key: jax.Array, splits: int) -> jax.Array:
    return weighted_gram(jaxpe.split_half_geometry(counts, key=key, splits=splits), counts)


def noise_statistics(
    counts: PositionCounts | SparseCounts, *, key: jax.Array, splits: int
) -> dict[str, jax.Array]:
    """Statistics that the intervals are for, plug-in and corrected on the same positions."""
    geometry = jaxpe.split_half_geometry(counts, key=key, splits=splits)
    if isinstance(counts, SparseCounts):
        size = jnp.sum(jnp.atleast_2d(counts.per_position), axis=0)
        fold = partial(fold_tables, counts=counts)
        return _statistics(geometry, _plug_in_trace(fold, size, geometry.present))
    roots = hellinger_roots(jaxpe.positional_distributions(counts))[0]
    return _statistics(geometry, _squares(roots, geometry.present))


def _statistics(geometry: SplitHalfGeometry, plug_in_trace: jax.Array) -> dict[str, jax.Array]:
    """Statistics, given the trace of the plug-in geometry of the same positions."""
    rate = jaxpe.monotonicity_violation_rate(geometry.distances)
    found = _traces(geometry, plug_in_trace)
    return found | {_RATE: jnp.where(is_comparable(geometry), rate, jnp.nan)}


def _traces(geometry: SplitHalfGeometry, plug_in_trace: jax.Array) -> dict[str, jax.Array]:
    return {
        "split_half_trace": geometry.trace,
        "noise_share": 1.0 - geometry.trace / plug_in_trace,
    }


def _plug_in_trace(
    fold: Callable[..., jax.Array], size: jax.Array, present: jax.Array
) -> jax.Array:
    """Trace of the plug-in Gram matrix of these positions alone, from a fold over tables."""

    def add(total: jax.Array, table: jax.Array) -> jax.Array:
        return total + _squares(root_frequencies(table[0], size), present)

    return fold(step=add, start=jnp.zeros(()))


def _squares(roots: jax.Array, present: jax.Array) -> jax.Array:
    return jnp.sum(centre_rows(roots, present) ** 2)


def _regrouped(counts: PositionCounts, folds: int) -> PositionCounts:
    """The same counts in fewer folds: fold f goes to f modulo their number."""
    tokens = counts.tokens
    parts = tokens.reshape(-1, folds, *tokens.shape[1:])
    return counts._replace(tokens=jnp.sum(parts, axis=0, dtype=tokens.dtype))


def _intervals(found: Bootstrap | Jackknife) -> dict[str, Interval]:
    """Intervals with finite ends; those of rates are cut to [0, 1]."""
    intervals = {}
    for name, value in found.estimate.items():
        low, high = float(found.low[name]), float(found.high[name])
        if name == _RATE:
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
