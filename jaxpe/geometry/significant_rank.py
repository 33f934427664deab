"""Dimensions of position that a second sample would repeat: parallel analysis of the geometry.

Parallel analysis (Horn 1965) keeps the components whose eigenvalues exceed those of data without
structure. Here the data without structure are the documents themselves, their tokens permuted, and
the eigenvalues are of the split-half Gram matrix, in which sampling noise cancels.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Integer

from jaxpe._core.arrays import ArrayLike
from jaxpe._core.compiled import compiled
from jaxpe._core.progress import SILENT, Progress
from jaxpe.geometry.checks import check_size
from jaxpe.geometry.counts import (
    PositionCounts,
    _checked_ids,
    content_labels,
    counted_tokens,
)
from jaxpe.geometry.distances import floating, gram_from_squared, square_matrix
from jaxpe.geometry.halving import (
    HalvableTokens,
    Halved,
    drawn_halves,
    halvable_tokens,
    places_of,
    shuffled_places,
    split_halves,
)
from jaxpe.geometry.noise import (
    DEFAULT_FOLDS,
    DEFAULT_SPLITS,
    SplitHalfGeometry,
)
from jaxpe.geometry.repeated import map_items
from jaxpe.geometry.sparse import SparseCounts

DEFAULT_NULLS = 20
DEFAULT_LEVEL = 0.95


class SignificantRank(NamedTuple):
    """Eigenvalues of the split-half geometry against those of permuted documents.

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


def significant_rank(
    ids: Integer[ArrayLike, "documents n"],
    *,
    vocab_size: int,
    key: Array,
    mask: Bool[ArrayLike, "documents n"] | None = None,
    exclude: Sequence[int] = (),
    groups: Integer[ArrayLike, " documents"] | None = None,
    folds: int = DEFAULT_FOLDS,
    splits: int = DEFAULT_SPLITS,
    nulls: int = DEFAULT_NULLS,
    level: float = DEFAULT_LEVEL,
    progress: Progress = SILENT,
) -> SignificantRank:
    """Number of dimensions of position that a second sample would repeat: parallel analysis.

    Not the rank of the plug-in geometry (`classical_mds`), which sampling noise fills, nor its
    effective rank (`entropy_rank`), which says how evenly it is filled.

    As in Horn (1965), eigenvalues are held against those of data without structure; these come from
    a permutation null, the tokens of each document in random order. Counted are the eigenvalues of
    W^½ (B − B₀) W^½ above the `level` quantile of the largest that null corpora reach against one
    another. B is the split-half Gram matrix and B₀ its mean over the null: permuting keeps lengths
    and words, so B₀ holds what is not order (late positions come from long documents, which have
    their own words). W is the number of documents at each position over their mean. Noise goes as
    1/N_i, so this gives every position the same noise, and a few thin positions do not drown the
    rest; weights leave the true rank as it is.

    Args:
        ids, vocab_size, mask, exclude, folds: arguments of `count_tokens`.
        key: PRNG key for halves and permutations.
        groups: labels of documents that are not independent, as in `count_tokens`; of a
            `TokenCorpus`, `corpus.groups()` finds near-copies and pieces of other documents.
        splits: halvings averaged over, for corpus and null alike.
        nulls: permuted corpora.
        level: quantile of the null's largest eigenvalue.
        progress: shown by null corpus; ignored where arguments are traced.

    >>> rng = np.random.default_rng(0)
    >>> ids = rng.integers(0, 50, (4000, 6)); ids[:, 0] = rng.integers(0, 25, 4000)
    >>> significant_rank(ids, vocab_size=50, key=jax.random.key(0)).rank.item()
    1
    """
    ids, mask = _checked_ids(ids, mask, vocab_size, exclude)
    check_size("nulls", nulls, least=2, each=4 * ids.shape[1] ** 2)
    check_size("splits", splits)
    if not ids.shape[1]:
        raise ValueError(f"ids have shape {ids.shape}: pass documents of at least one position")
    # Labels before the shuffle: copies stay in one fold, in the corpus and in the null.
    groups = content_labels(ids, mask) if groups is None else groups
    counted = counted_tokens(ids, mask, vocab_size=vocab_size, exclude=exclude)
    tokens = halvable_tokens(ids, counted, groups, vocab_size=vocab_size, folds=folds)
    common: dict[str, Any] = {"splits": splits, "level": level}
    keys = null_keys(key, nulls=nulls)
    return rank_of_tokens(tokens, counted, groups, keys=keys, progress=progress, **common)


def rank_of_tokens(
    tokens: HalvableTokens,
    counted: Bool[ArrayLike, "documents n"],
    groups: Integer[ArrayLike, " documents"],
    *,
    keys: tuple[Array, Array],
    splits: int,
    level: float = DEFAULT_LEVEL,
    progress: Progress,
) -> SignificantRank:
    """`significant_rank` of tokens from `halvable_tokens`, and of keys from `null_keys`."""
    halving, of_nulls = keys
    once = np.ones(counted.shape[0], np.int32)

    parts = drawn_halves(halving, folds=len(tokens.frequent.folds), splits=splits)

    def gram(tokens: HalvableTokens, places: Array) -> Array:
        return _gram_of_halves(split_halves(tokens, once, places, parts))

    def of_null(key: Array, tokens: HalvableTokens, counted: ArrayLike, groups: ArrayLike) -> Array:
        return gram(tokens, shuffled_places(key, counted, groups))

    shown = {"progress": progress, "description": "permutation null"}
    null_grams = map_items(of_null, of_nulls, tokens, counted, groups, **shown)
    own = gram(tokens, places_of(counted))
    return rank_above_null(own, null_grams, level=level)


@compiled(static=("nulls",))
def null_keys(key: Array, *, nulls: int = DEFAULT_NULLS) -> tuple[Array, Array]:
    """Keys of the halvings, which every corpus shares, and of the null corpora."""
    keys = jax.random.split(key, nulls + 1)
    return keys[0], keys[1:]


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
    return _weighted_gram(geometry, counts.merged().per_position)


@compiled()
def _gram_of_halves(found: Halved) -> Array:
    return _weighted_gram(found.geometry, found.per_position)


@compiled()
def _weighted_gram(geometry: SplitHalfGeometry, per_position: Array) -> Array:
    size = jnp.where(geometry.present, per_position, 0).astype(float)
    mean = jnp.sum(size) / jnp.maximum(jnp.sum(size > 0), 1).astype(size.dtype)
    weights = size / jnp.maximum(mean, 1.0)
    gram = gram_from_squared(geometry.squared_distances, geometry.present, weights=weights)
    root = jnp.sqrt(weights)
    return root[:, None] * gram * root[None, :]


def rank_above_null(
    gram: Float[ArrayLike, "n n"],
    null_grams: Float[ArrayLike, "nulls n n"],
    *,
    level: float = DEFAULT_LEVEL,
) -> SignificantRank:
    """Dimensions in which a Gram matrix exceeds its null, given the null's Gram matrices.

    The threshold is the `level` quantile, in [0, 1], of the largest eigenvalue of each null matrix
    less the mean of the others. An eigenvalue counts that is above it by more than the rounding of
    the matrices: where shuffling changes nothing, differences are nothing else.

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
    if not 0.0 <= level <= 1.0:
        raise ValueError(f"level must lie in [0, 1], not {level}")
    if len(null_grams) < 2:
        raise ValueError(
            f"null_grams has {len(null_grams)}: pass at least two, to see how they vary"
        )
    return _above_null(gram, null_grams, level=level)


@compiled(static=("level",))
def _above_null(gram: Array, null_grams: Array, *, level: float) -> SignificantRank:
    """`rank_above_null` of arrays that were looked at."""
    nulls = len(null_grams)
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
