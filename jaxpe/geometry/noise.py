"""Signal and sampling noise: which part of a positional geometry would a second sample repeat?

Plug-in Hellinger distances are mostly noise: with K words and N documents they are inflated by
about (K − 1)/4 · (1/N_i + 1/N_j), so equal distributions look far apart. Products between two
disjoint halves of the documents have no such term, because independent noise cancels in
expectation.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Integer, PyTree

from jaxpe._core.arrays import ArrayLike, is_traced
from jaxpe._core.compiled import compiled
from jaxpe.geometry.counts import (
    PositionCounts,
    content_labels,
    count_tokens,
    permute_within_documents,
    sum_counts,
)
from jaxpe.geometry.distances import (
    Distances,
    centre_rows,
    floating,
    gram_from_squared,
    pair_mask,
    safe_sqrt,
    square_matrix,
)
from jaxpe.geometry.sparse import SparseCounts, column_totals, fold_tables, root_frequencies

DEFAULT_FOLDS = 16


class SplitHalfGeometry(NamedTuple):
    """Geometry of the positions from products between disjoint halves of the documents.

    Attributes:
        gram: float `[n, n]`, centred; not positive semidefinite: its negative eigenvalues show
            the size of the noise that is left.
        squared_distances: float `[n, n]`; may be negative.
        eigenvalues: float `[n]` of the Gram matrix, descending (absent positions add zeros).
        present: bool `[n]`, positions with a token in both halves of every split.
    """

    gram: Float[Array, "n n"]
    squared_distances: Float[Array, "n n"]
    eigenvalues: Float[Array, " n"]
    present: Bool[Array, " n"]

    @property
    def trace(self) -> Float[Array, ""]:
        """Total squared distance to the centroid; may be negative without signal."""
        return jnp.trace(self.gram)

    @property
    def distances(self) -> Distances:
        """√ of the squared distances, negative ones as 0: the targets that stress compares with."""
        return Distances(safe_sqrt(self.squared_distances), self.present)


class NoiseFloor(NamedTuple):
    """What sampling alone adds to the plug-in geometry, from the counts.

    Attributes:
        per_position: float `[n]`, E‖√μ̂_i − E√μ̂_i‖²; about (K − 1) / (4 N_i), less for rare words.
        squared_distances: float `[n, n]`, the sum over the two positions.
        trace: float, what the trace of the plug-in Gram matrix gains.
        split_half_error: float `[n]`, standard error of the squared norm of position i from a
            single split into halves, where there is no signal; averaging over splits lowers it.
    """

    per_position: Float[Array, " n"]
    squared_distances: Float[Array, "n n"]
    trace: Float[Array, ""]
    split_half_error: Float[Array, " n"]


class SignificantRank(NamedTuple):
    """Dimensions of the split-half geometry that stand above a null without positional order.

    Attributes:
        rank: int, leading eigenvalues above the threshold, by more than rounding; −1 where these
            are NaN.
        eigenvalues: float `[n]`, of the corpus' weighted Gram matrix less the null's mean.
        null_eigenvalues: float `[nulls, n]`, of each null corpus less the mean of the others.
        threshold: the `level` quantile of the null's largest eigenvalue.
    """

    rank: Int[Array, ""]
    eigenvalues: Float[Array, " n"]
    null_eigenvalues: Float[Array, "nulls n"]
    threshold: Float[Array, ""]


class Jackknife(NamedTuple):
    """A statistic and its interval over folds of documents (each field shaped as the statistic).

    Attributes:
        estimate: the statistic of all counts.
        low, high: ends of the interval.
        standard_error: of the statistic, from leaving out one fold at a time.
        samples: the statistic without each fold, leading axis `[folds]`.
    """

    estimate: PyTree
    low: PyTree
    high: PyTree
    standard_error: PyTree
    samples: PyTree


class Bootstrap(NamedTuple):
    """A statistic and its interval over resampled documents (each field shaped as the statistic).

    Attributes:
        estimate: the statistic of the corpus.
        low, high: ends of the interval.
        standard_error: standard deviation over resamples.
        samples: the statistic of every resample, leading axis `[samples]`.
    """

    estimate: PyTree
    low: PyTree
    high: PyTree
    standard_error: PyTree
    samples: PyTree


def split_half_geometry(
    counts: PositionCounts | SparseCounts, *, key: Array, splits: int = 16
) -> SplitHalfGeometry:
    """Noise-cancelling Hellinger geometry (S_A S_Bᵀ + S_B S_Aᵀ)/2, averaged over random halves.

    S_A = √μ̂ of one half of the folds, S_B of the other. The noise of disjoint documents is
    independent and cancels in expectation, also between positions of one document.

    It is not exactly unbiased, because E√X is not √λ for a word that a half sees λ times at a
    position. Contrasts in words with λ below about 0.4 are understated (to a fifth in squares at
    λ = 0.05), with λ between 0.5 and 5 overstated (at most by 44 % in squares, near λ = 1.2). On
    text of known truth with 20,000 words the trace was 40 % below it at 250 documents, 7 % below
    at 12,500 and 7 % above at 100,000 (`experiments/erratum_4_noise.py`).

    Args:
        counts: counts kept in at least two folds (`count_tokens(..., folds=16)`). Sparse ones
            give the same halves, in O(n²) memory.
        key: PRNG key that draws the halves.
        splits: random halvings averaged over.

    >>> rng = np.random.default_rng(0)
    >>> counts = count_tokens(rng.integers(0, 50, (4000, 6)), vocab_size=50, folds=8)
    >>> geometry = split_half_geometry(counts, key=jax.random.key(0))
    >>> bool(abs(geometry.trace) < 0.01)                 # no signal: the plug-in trace is 0.015
    True
    """
    folds = _folds_of(counts)
    if splits < 1:
        raise ValueError(f"splits must be at least 1, not {splits}")
    halves = _halves(key, folds=folds, splits=splits)
    if isinstance(counts, SparseCounts):
        return _geometry_of_products(*_products_of_sparse_halves(counts, halves))
    products, occupied = _products_of_halves(counts.tokens, counts.merged().tokens, halves)
    present = jnp.all(occupied, axis=0)
    return _geometry_of_products(jnp.mean(products, axis=0), present)


def noise_floor(counts: PositionCounts | SparseCounts) -> NoiseFloor:
    """Analytic size of the sampling noise in the plug-in geometry: its variance.

    What E√μ̂ differs by between thinly and thickly sampled positions comes on top (15 % more on
    text without signal whose positions held from 3,000 documents down to 40). The pooled
    frequencies are observed ones, which miss words never seen: about 1.5 % of the noise on Zipf
    text with 20,000 words.

    Tokens are taken as Poisson with the pooled frequency p_v of the word, so a position with N_i
    tokens has noise Σ_v Var √X / N_i, X ~ Poisson(N_i p_v). Var √X is λ for rare words and tends
    to 1/4 for frequent ones, which gives the textbook (K − 1) / (4 N_i) with K the effective
    support. Documents are taken as independent.

    >>> rng = np.random.default_rng(0)
    >>> counts = count_tokens(rng.integers(0, 50, (4000, 6)), vocab_size=50)
    >>> round(noise_floor(counts).per_position[0].item() * 4 * 4000 / 50, 1)
    1.0
    """
    merged = counts.merged()
    size = merged.per_position.astype(float)
    pooled = _pooled(merged)
    safe = jnp.maximum(size, 1.0)
    variance, squares = _variances(safe, pooled)
    present = size > 0
    per_position = jnp.where(present, variance / safe, 0.0)
    pairs = jnp.where(pair_mask(present), per_position[:, None] + per_position[None, :], 0.0)
    count = jnp.maximum(jnp.sum(present.astype(size.dtype)), 1.0)
    return NoiseFloor(
        per_position,
        pairs,
        jnp.sum(per_position) * (1.0 - 1.0 / count),
        jnp.where(present, jnp.sqrt(squares) / (0.5 * safe), 0.0),
    )


def significant_rank(
    ids: Integer[ArrayLike, "documents n"],
    *,
    vocab_size: int,
    key: Array,
    mask: Bool[ArrayLike, "documents n"] | None = None,
    exclude: Sequence[int] = (),
    groups: Integer[ArrayLike, " documents"] | None = None,
    folds: int = DEFAULT_FOLDS,
    splits: int = 16,
    nulls: int = 20,
    level: float = 0.95,
) -> SignificantRank:
    """How many dimensions of position a second sample would repeat.

    The null permutes the tokens within each document. Counted are the eigenvalues of
    W^½ (B − B₀) W^½ above the `level` quantile of the largest that null corpora reach against one
    another. B is the split-half Gram matrix and B₀ its mean over the null: permuting keeps lengths
    and words, so B₀ holds what is not order (late positions come from long documents, which have
    their own words). W is the number of documents at each position over their mean. Noise goes as
    1/N_i, so this gives every position the same noise, and a few thin positions do not drown the
    rest; weights leave the true rank as it is.

    Args:
        ids, vocab_size, mask, exclude, folds, groups: as in `count_tokens`.
        key: PRNG key for halves and permutations.
        splits: halvings averaged over, for corpus and null alike.
        nulls: permuted corpora.
        level: quantile of the null's largest eigenvalue.

    >>> rng = np.random.default_rng(0)
    >>> ids = rng.integers(0, 50, (4000, 6)); ids[:, 0] = rng.integers(0, 25, 4000)
    >>> significant_rank(ids, vocab_size=50, key=jax.random.key(0)).rank.item()
    1
    """
    if nulls < 2:
        raise ValueError(f"nulls must be at least 2, to see how they vary, not {nulls}")
    # Labels before the shuffle: copies stay in one fold, in the corpus and in the null.
    groups = content_labels(ids, mask) if groups is None else groups
    options: dict[str, Any] = {
        "vocab_size": vocab_size,
        "exclude": tuple(map(int, exclude)),
        "folds": folds,
        "splits": splits,
    }
    halving, *keys = jax.random.split(key, nulls + 1)
    gram = _weighted_gram_of(halving, ids, mask, groups, **options)
    ids, mask = jnp.asarray(ids), None if mask is None else jnp.asarray(mask)
    null_grams = _null_grams(jnp.stack(keys), halving, ids, mask, groups, **options)
    return rank_above_null(gram, null_grams, level=level)


def weighted_gram(
    geometry: SplitHalfGeometry, counts: PositionCounts | SparseCounts
) -> Float[Array, "n n"]:
    """W^½ B W^½ with B centred at the weighted mean and W = diag(N_i / mean N).

    The Gram matrix that `significant_rank` judges. With equally many documents at every position it
    is the plain one.

    >>> rng = np.random.default_rng(0)
    >>> counts = count_tokens(rng.integers(0, 9, (400, 3)), vocab_size=9, folds=4)
    >>> geometry = split_half_geometry(counts, key=jax.random.key(0))
    >>> bool(jnp.allclose(weighted_gram(geometry, counts), geometry.gram))
    True
    """
    size = jnp.where(geometry.present, counts.merged().per_position, 0).astype(float)
    mean = jnp.sum(size) / jnp.maximum(jnp.sum(size > 0), 1).astype(size.dtype)
    weights = size / jnp.maximum(mean, 1.0)
    gram = gram_from_squared(geometry.squared_distances, geometry.present, weights=weights)
    root = jnp.sqrt(weights)
    return root[:, None] * gram * root[None, :]


def rank_above_null(
    gram: Float[ArrayLike, "n n"],
    null_grams: Float[ArrayLike, "nulls n n"],
    *,
    level: float = 0.95,
) -> SignificantRank:
    """Dimensions in which a Gram matrix exceeds its null, given the null's Gram matrices.

    An eigenvalue counts that is above the threshold by more than the rounding of the matrices:
    where shuffling changes nothing, differences are nothing else.

    >>> null = np.array([[[0.1, 0.0], [0.0, 0.0]], [[0.2, 0.0], [0.0, 0.0]]])
    >>> rank_above_null(np.diag([3.0, 0.05]), null).rank.item()
    1
    """
    gram, null_grams = square_matrix(gram, "gram"), floating(null_grams, "null_grams")
    if null_grams.ndim != 3 or null_grams.shape[1:] != gram.shape or not gram.size:
        raise ValueError(
            f"gram has shape {gram.shape}, null_grams {null_grams.shape}: pass [n, n] of at least "
            "one position and [nulls, n, n]"
        )
    nulls = null_grams.shape[0]
    if not 0.0 <= level <= 1.0:
        raise ValueError(f"level must lie in [0, 1], not {level}")
    if nulls < 2:
        raise ValueError(f"{nulls} null corpora: at least two are needed to see how they vary")
    mean = jnp.mean(null_grams, axis=0)
    # x_k − mean of the others = (x_k − mean) · nulls / (nulls − 1)
    contrasts = (null_grams - mean[None]) * (nulls / (nulls - 1))
    eigenvalues = jnp.linalg.eigvalsh(gram - mean)[::-1]
    null_eigenvalues = jnp.linalg.eigvalsh(contrasts)[:, ::-1]
    threshold = jnp.quantile(null_eigenvalues[:, 0], level)
    largest = jnp.maximum(jnp.linalg.norm(gram), jnp.linalg.norm(mean))
    rounding = 16.0 * float(jnp.finfo(gram.dtype).eps) * largest
    rank = jnp.sum(eigenvalues > threshold + rounding)
    rank = jnp.where(jnp.isnan(eigenvalues[0]) | jnp.isnan(threshold), -1, rank)
    return SignificantRank(rank, eigenvalues, null_eigenvalues, threshold)


def bootstrap(
    statistic: Callable[[PositionCounts], Any],
    ids: Integer[ArrayLike, "documents n"],
    *,
    vocab_size: int,
    key: Array,
    mask: Bool[ArrayLike, "documents n"] | None = None,
    exclude: Sequence[int] = (),
    groups: Integer[ArrayLike, " documents"] | None = None,
    folds: int | None = DEFAULT_FOLDS,
    samples: int = 200,
    confidence: float = 0.95,
) -> Bootstrap:
    """Interval for any statistic of the counts, by resampling documents with replacement.

    The copies of a document share its fold, so a split-half statistic keeps its halves
    independent in every resample. The interval is θ̂ ± z standard errors. It is about what the
    statistic tends to: a bias of the statistic itself stays. On corpora of known truth it held the
    mean of the split-half trace in 95 to 100 % of draws; the basic interval (`basic_interval` of
    the samples) in 25 to 100 %, because resampling adds a bias of its own.

    Args:
        statistic: a traceable function of `PositionCounts` (in folds) to a pytree of floats.
        ids, vocab_size, mask, exclude, groups, folds: as in `count_tokens`.
        key: PRNG key.
        samples: resamples.
        confidence: coverage of the interval, in (0, 1).

    >>> ids = np.arange(500)[:, None] % 2
    >>> share = lambda counts: counts.merged().tokens[0, 0] / counts.documents
    >>> interval = bootstrap(share, ids, vocab_size=2, key=jax.random.key(0))
    >>> bool(interval.low < 0.5 < interval.high), round(interval.standard_error.item(), 2)
    (True, 0.02)
    """
    _check_confidence(confidence)
    if groups is not None:
        _refuse_foreign_groups(groups, len(ids))
    options: dict[str, Any] = {
        "vocab_size": vocab_size,
        "exclude": tuple(map(int, exclude)),
        "folds": folds,
    }
    grouping = None if folds is None else groups
    counts = count_tokens(ids, mask=mask, groups=grouping, **options)
    arrays = (None if x is None else jnp.asarray(x) for x in (ids, mask, groups))
    keys = jax.random.split(key, samples)
    draws = _of_resamples(keys, *arrays, statistic=statistic, **options)
    return normal_interval(statistic(counts), draws, confidence=confidence)


def resample_documents(
    key: Array, documents: int, *, groups: Integer[ArrayLike, " documents"] | None = None
) -> Int[Array, " documents"]:
    """How often each document is drawn in a Poisson bootstrap resample.

    Independent Poisson(1) counts stand for multinomial ones (Hanley and MacGibbon 2006), so that
    no document needs to know of the others. The documents of a group, labelled in
    `[0, documents)`, are drawn together.

    >>> resample_documents(jax.random.key(0), 4, groups=np.array([0, 0, 2, 2])).tolist()
    [0, 0, 1, 1]
    """
    if documents < 0:
        raise ValueError(f"documents must be at least 0, not {documents}")
    drawn = jax.random.poisson(key, 1.0, (documents,), dtype=jnp.int32)
    if groups is None:
        return drawn
    _refuse_foreign_groups(groups, documents)
    return drawn[jnp.asarray(groups)]


def jackknife(
    statistic: Callable[[PositionCounts], Any],
    counts: PositionCounts,
    *,
    confidence: float = 0.95,
) -> Jackknife:
    """Interval for any statistic of the counts from their folds alone, without the documents.

    Delete-a-group jackknife (Kott 2001): with F folds and θ_f the statistic without fold f, the
    variance is (F − 1)/F · Σ (θ_f − θ̄)², and the interval θ̂ ± t · standard error with Student's t
    of F − 1 degrees of freedom. For statistics of split halves it is too wide, since leaving out a
    fold draws the halves anew: on simulated corpora 1.2 times the true spread for a trace over 16
    splits, 1.5 for a violation rate. As for `bootstrap`, a bias of the statistic itself stays.
    Documents of one fold are judged as one, so copies of a document are one piece of evidence.

    Args:
        statistic: a traceable function of `PositionCounts` (in folds) to a pytree of floats.
        counts: in at least three folds (`documents` in what the statistic is given is that of all
            folds times (F − 1)/F, rounded: counts do not tell the documents of a fold).
        confidence: coverage of the interval, in (0, 1).

    >>> ids = np.random.default_rng(0).integers(0, 2, (500, 1))
    >>> counts = count_tokens(ids, vocab_size=2, folds=16, groups=np.arange(500))
    >>> share = lambda counts: counts.merged().tokens[0, 0] / counts.merged().per_position[0]
    >>> interval = jackknife(share, counts)
    >>> round(interval.standard_error.item(), 2)                     # √(0.5 · 0.5 / 500) = 0.022
    0.02
    """
    _check_confidence(confidence)
    folds = _folds_of(counts)
    if folds < 3:
        raise ValueError(f"counts have {folds} folds: a jackknife needs at least three")
    estimate = statistic(counts)
    samples = _without_each_fold(counts, statistic=statistic)
    spread = math.sqrt(folds - 1)  # of θ_f about their mean: (F − 1)/F · Σ is (F − 1) · variance
    error = jax.tree.map(lambda draws: spread * _deviation(draws), samples)
    t = _student_quantile(0.5 * (1.0 + confidence), folds - 1)
    return Jackknife(estimate, *_around(estimate, error, t), error, samples)


def _student_quantile(level: float, freedom: int) -> float:
    """Of Student's t, from the normal one (Abramowitz and Stegun 26.7.5)."""
    z = statistics.NormalDist().inv_cdf(level)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


def normal_interval(estimate: PyTree, samples: PyTree, *, confidence: float = 0.95) -> Bootstrap:
    """The interval θ̂ ± z·(standard deviation of the resampled statistics).

    >>> interval = normal_interval(jnp.float32(1.0), jnp.float32([0.0, 2.0]))
    >>> round(interval.low.item(), 2), round(interval.high.item(), 2)
    (-0.96, 2.96)
    """
    _check_confidence(confidence)
    estimate, samples = _in_floats(estimate, samples)
    z = statistics.NormalDist().inv_cdf(0.5 * (1.0 + confidence))
    error = jax.tree.map(_deviation, samples)
    return Bootstrap(estimate, *_around(estimate, error, z), error, samples)


def _check_confidence(confidence: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie strictly between 0 and 1, not {confidence}")


def _in_floats(estimate: PyTree, samples: PyTree) -> tuple[PyTree, PyTree]:
    """Both as floats of 32 bits or more, of which every statistic has a sample."""
    estimate = jax.tree.map(lambda x: floating(x, "estimate"), estimate)
    samples = jax.tree.map(lambda x: floating(x, "samples"), samples)
    for leaf in jax.tree.leaves(samples):
        if not leaf.shape[:1] or not leaf.shape[0]:
            raise ValueError(f"samples have shape {leaf.shape}: pass [samples, ...], at least one")
    return estimate, samples


def _deviation(draws: Float[Array, "samples ..."]) -> Float[Array, "..."]:
    """The standard deviation, with derivative 0 where all draws are equal."""
    return safe_sqrt(jnp.var(draws, axis=0))


def _around(estimate: PyTree, error: PyTree, width: float) -> tuple[PyTree, PyTree]:
    """So many standard errors to either side of an estimate."""
    low = jax.tree.map(lambda theta, e: theta - width * e, estimate, error)
    high = jax.tree.map(lambda theta, e: theta + width * e, estimate, error)
    return low, high


def basic_interval(estimate: PyTree, samples: PyTree, *, confidence: float = 0.95) -> Bootstrap:
    """The basic bootstrap interval [2θ̂ − q_high, 2θ̂ − q_low] from resampled statistics.

    >>> interval = basic_interval(jnp.float32(1.0), jnp.float32([0.0, 1.0, 3.0]), confidence=0.98)
    >>> round(interval.low.item(), 2), round(interval.high.item(), 2)
    (-0.96, 1.98)
    """
    _check_confidence(confidence)
    estimate, samples = _in_floats(estimate, samples)
    tail = 0.5 * (1.0 - confidence)

    def reflected(level: float) -> PyTree:
        return jax.tree.map(
            lambda theta, draws: 2.0 * theta - jnp.quantile(draws, level, axis=0), estimate, samples
        )

    error = jax.tree.map(_deviation, samples)
    return Bootstrap(estimate, reflected(1.0 - tail), reflected(tail), error, samples)


@compiled(static=("folds", "splits"))
def _halves(key: Array, *, folds: int, splits: int) -> Bool[Array, "splits folds"]:
    """Random halves of the folds."""

    def half(split_key: Array) -> Array:
        return jax.random.permutation(split_key, folds) < folds // 2

    return jax.lax.map(half, jax.random.split(key, splits))


@compiled()
def _products_of_halves(tokens: Array, whole: Array, halves: Array) -> tuple[Array, Array]:
    """Cross-half products [splits, n, n], and the positions in both halves."""

    def halve(chosen: Array) -> tuple[Array, Array]:
        # In integers: a rounded half, subtracted from the whole, would leave negative counts.
        half = sum_counts(jnp.where(chosen[:, None, None], tokens, 0), 0, "tokens of a cell")
        A, in_A = _root_frequencies(half)
        B, in_B = _root_frequencies(whole - half)
        # Any vector may be subtracted, centring removes it again; the mean keeps the products
        # small, so that float32 has digits left for them, and 0 where all positions are alike.
        A, B = centre_rows(A, in_A), centre_rows(B, in_B)
        product = jnp.matmul(A, B.T, precision="highest")
        return 0.5 * (product + product.T), in_A & in_B

    return jax.lax.map(halve, halves)


@compiled()
def _variances(sizes: Array, pooled: Array) -> tuple[Array, Array]:
    """Σ_v Var √X for so many tokens of frequencies `pooled`, and Σ_v (Var √X)² for half as many."""

    def of_position(n_i: Array) -> tuple[Array, Array]:
        full = _variance_of_root_poisson(n_i * pooled)
        half = _variance_of_root_poisson(0.5 * n_i * pooled)
        return jnp.sum(full), jnp.sum(half**2)

    return jax.lax.map(of_position, sizes)


def _weighted_gram_of(
    halving: Array, ids: ArrayLike, mask: Any, groups: Any, *, splits: int, **options: Any
) -> Array:
    """The Gram matrix that `significant_rank` judges, of documents."""
    counts = count_tokens(ids, mask=mask, groups=groups, **options)
    return weighted_gram(split_half_geometry(counts, key=halving, splits=splits), counts)


@compiled(static=("vocab_size", "exclude", "folds", "splits"))
def _null_grams(
    keys: Array, halving: Array, ids: Array, mask: Any, groups: ArrayLike, **options: Any
) -> Float[Array, "nulls n n"]:
    """The same of permuted documents."""

    def null_gram(null_key: Array) -> Array:
        shuffled = permute_within_documents(
            null_key, ids, mask, exclude=options["exclude"], groups=groups
        )
        return _weighted_gram_of(halving, shuffled, mask, groups, **options)

    return jax.lax.map(null_gram, keys)


@compiled("statistic", static=("vocab_size", "exclude", "folds"))
def _of_resamples(
    keys: Array,
    ids: Any,
    mask: Any,
    groups: Any,
    *,
    statistic: Callable[[PositionCounts], Any],
    folds: int | None,
    **options: Any,
) -> Any:
    """A statistic of every resample."""
    grouping = None if folds is None else groups

    def resampled(sample_key: Array) -> Any:
        repeats = resample_documents(sample_key, len(ids), groups=groups)
        return statistic(
            count_tokens(ids, mask=mask, groups=grouping, repeats=repeats, folds=folds, **options)
        )

    return jax.lax.map(resampled, keys)


@compiled("statistic")
def _without_each_fold(
    counts: PositionCounts, *, statistic: Callable[[PositionCounts], Any]
) -> Any:
    """A statistic of the counts without each of their folds."""
    folds = counts.tokens.shape[0]
    fewer = counts.documents - counts.documents // folds  # a product may exceed int32

    def without(fold: Array) -> Any:
        kept = jnp.arange(folds - 1)
        kept = jnp.where(kept >= fold, kept + 1, kept)
        return statistic(counts._replace(tokens=counts.tokens[kept], documents=fewer))

    return jax.lax.map(without, jnp.arange(folds))


def _refuse_foreign_groups(groups: ArrayLike, documents: int) -> None:
    """Raise for labels that are the index of no document."""
    groups = jnp.asarray(groups)
    if groups.shape != (documents,) or not jnp.issubdtype(groups.dtype, jnp.integer):
        raise ValueError(
            f"groups is {groups.dtype} of shape {groups.shape}: pass one integer for each of "
            f"{documents} documents"
        )
    if not is_traced(groups) and not jnp.all((groups >= 0) & (groups < documents)):
        raise ValueError(
            f"groups have labels outside [0, {documents}): label each group by the index of one "
            "of its documents"
        )


@jax.jit
def _products_of_sparse_halves(counts: SparseCounts, halves: Array) -> tuple[Array, Array]:
    """Cross-half products [n, n], averaged over the halvings, and the positions in all of them."""
    n = counts.per_position.shape[-1]

    def split(carry: tuple[Array, Array], chosen: Array) -> tuple[tuple[Array, Array], None]:
        products, present = carry
        part = chosen.astype(jnp.int32)
        totals = jnp.zeros((2, n), jnp.int32).at[part].add(counts.per_position)

        def add(products: Array, table: Array) -> Array:
            A, B = (
                centre_rows(root_frequencies(half, total), total > 0)
                for half, total in zip(table, totals, strict=True)
            )
            return products + jnp.matmul(A, B.T, precision="highest")

        products = fold_tables(add, products, counts, part=part, parts=2)
        return (products, present & jnp.all(totals > 0, axis=0)), None

    start = jnp.zeros((n, n)), jnp.ones(n, bool)
    (products, present), _ = jax.lax.scan(split, start, halves)
    return (0.5 / len(halves)) * (products + products.T), present


def _folds_of(counts: PositionCounts | SparseCounts) -> int:
    shape = counts.shape if isinstance(counts, SparseCounts) else counts.tokens.shape
    if len(shape) != 3 or shape[0] < 2:
        raise ValueError(
            f"counts have shape {shape}: split halves need at least two folds; "
            f"pass count_tokens(..., folds={DEFAULT_FOLDS})"
        )
    return shape[0]


def _pooled(counts: PositionCounts | SparseCounts) -> Array:
    """Frequencies of the words over all positions, [vocab]; of sparse counts [blocks, width]."""
    if isinstance(counts, SparseCounts):
        totals = column_totals(counts)
    else:
        totals = jnp.sum(counts.merged().tokens.astype(float), axis=0)
    return totals / jnp.maximum(jnp.sum(totals), 1.0)


def _root_frequencies(cells: Array) -> tuple[Array, Array]:
    """√μ̂ of counts [n, vocab], and which positions have any."""
    total = jnp.sum(cells, axis=1, dtype=cells.dtype)
    return root_frequencies(cells, total), total > 0


def _geometry_of_products(products: Array, present: Array) -> SplitHalfGeometry:
    """Squared distances and centred Gram matrix from averaged cross-half products."""
    own = jnp.diagonal(products)
    squared = own[:, None] + own[None, :] - 2.0 * products
    squared = jnp.where(pair_mask(present), squared, 0.0)
    gram = gram_from_squared(squared, present)
    return SplitHalfGeometry(gram, squared, jnp.linalg.eigvalsh(gram)[::-1], present)


def _variance_of_root_poisson(rate: Array) -> Array:
    """Var √X for X ~ Poisson(rate), by interpolation in log rate."""
    log_rate, variance = _root_poisson_table()
    low, high = float(np.exp(log_rate[0])), float(np.exp(log_rate[-1]))
    inside = jnp.interp(
        jnp.log(jnp.clip(rate, low, high)),
        jnp.asarray(log_rate, rate.dtype),
        jnp.asarray(variance, rate.dtype),
    )
    # Below the table Var √X = λ − λ² to the digits kept; above it is 1/4 + 3/(32 λ).
    return jnp.where(rate < low, rate, jnp.where(rate > high, 0.25, inside))


def _root_poisson_table() -> tuple[np.ndarray, np.ndarray]:
    """log λ and Var √X for X ~ Poisson(λ), λ in [1e-4, 200], from the series."""
    log_rate = np.linspace(np.log(1e-4), np.log(200.0), 400)
    rate = np.exp(log_rate)[:, None]
    x = np.arange(1.0, 400.0)[None, :]
    log_factorial = np.cumsum(np.log(x), axis=1)
    mean_root = np.sum(np.sqrt(x) * np.exp(x * np.log(rate) - rate - log_factorial), axis=1)
    return log_rate, rate[:, 0] - mean_root**2
