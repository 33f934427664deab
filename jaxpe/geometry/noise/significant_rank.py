"""Parallel analysis: the number of dimensions of position that a second sample would repeat.

Parallel analysis (Horn 1965) keeps the components with larger eigenvalues than data without
structure. These data are the rotated documents. The eigenvalues belong to the split-half Gram
matrix, in which sampling noise cancels.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Integer

from jaxpe._core.arrays import ArrayLike
from jaxpe.geometry.checks import sized
from jaxpe.geometry.counts.position_counts import PositionCounts
from jaxpe.geometry.distances.matrices import gram_from_squared
from jaxpe.geometry.noise.position import PositionGeometry, checked_position, position_geometry
from jaxpe.geometry.noise.split_half import SplitHalfGeometry

DEFAULT_LEVEL = 0.95


class SignificantRank(NamedTuple):
    """Result of parallel analysis: the rank, and eigenvalues of documents and of rotated ones.

    Attributes:
        rank: int, number of leading eigenvalues above the threshold by more than rounding; −1 for
            NaN.
        eigenvalues: float `[n]`, of the corpus' weighted Gram matrix less the null's mean.
        null_eigenvalues: float `[nulls, n]`, of each null corpus less the mean of the others.
        threshold: largest eigenvalue that a fraction 1 − level of the nulls + 1 corpora reaches.
        p_value: p-value of the largest eigenvalue, (b + 1)/(nulls + 1) with b null corpora at
            least as large.
    """

    rank: Int[Array, ""]
    eigenvalues: Float[Array, " n"]
    null_eigenvalues: Float[Array, "nulls n"]
    threshold: Float[Array, ""]
    p_value: Float[Array, ""]


def significant_rank(
    ids: Integer[ArrayLike, "documents n"], *, level: float = DEFAULT_LEVEL, **options: Any
) -> SignificantRank:
    """Number of dimensions of position that a second sample would repeat: parallel analysis.

    The rank of the plug-in geometry (`classical_mds`) counts dimensions of sampling noise as well.
    Its effective rank (`entropy_rank`) tells how evenly they are filled.

    As in Horn (1965), eigenvalues are compared with data without structure: null corpora of rotated
    documents, in which neighbours stay together and the last token in place. An eigenvalue of W^½
    B_position W^½ (`position_geometry`) counts if p = (b + 1)/(nulls + 1) ≤ 1 − level. b is the
    number of null corpora, each less the mean of the others, whose largest eigenvalue is as large.
    W is the number of documents at each position over their mean. Noise goes as 1/N_i, so W gives
    every position the same noise, and a few thin positions do not drown the rest. Weights do not
    change the true rank.

    Args:
        ids: token ids.
        level: 1 less the probability of a rank above 0 where position has no effect, that is, where
            documents are stationary given their length and last token.
        options: arguments of `position_geometry`: `vocab_size`, `key` and, if wanted, `mask`,
            `exclude`, `groups`, `ended`, `folds`, `splits`, `nulls` and `progress`. At least
            level/(1 − level) nulls are needed, 19 at a level of 0.95. For a `TokenCorpus`,
            `corpus.groups()` finds near-copies and pieces of other documents.

    >>> rng = np.random.default_rng(0)
    >>> ids = rng.integers(0, 50, (4000, 6)); ids[:, 0] = rng.integers(0, 25, 4000)
    >>> significant_rank(ids, vocab_size=50, key=jax.random.key(0)).rank.item()
    1
    """
    return position_rank(position_geometry(ids, **options), level=level)


@partial(jax.jit, static_argnames="level")
def position_rank(geometry: PositionGeometry, *, level: float = DEFAULT_LEVEL) -> SignificantRank:
    """`significant_rank` of a position geometry.

    Args:
        geometry: geometry of all documents, from `position_geometry`.
        level: argument of `significant_rank`.

    >>> ids = np.random.default_rng(0).integers(0, 9, (400, 3))
    >>> geometry = position_geometry(ids, vocab_size=9, key=jax.random.key(0))
    >>> position_rank(geometry).rank.item()
    0
    """
    geometry = checked_position(geometry)
    weighted = partial(_weighted_gram, geometry.present, geometry.per_position)
    nulls = jax.lax.map(weighted, geometry.null)
    return rank_above_null(weighted(geometry.split_half.squared_distances), nulls, level=level)


def weighted_gram(geometry: SplitHalfGeometry, counts: PositionCounts) -> Float[Array, "n n"]:
    """W^½ B W^½ with B centred at the weighted mean and W = diag(N_i / mean N).

    `significant_rank` takes its eigenvalues. With equally many documents at every position it is B
    itself.

    >>> rng = np.random.default_rng(0)
    >>> counts = count_tokens(rng.integers(0, 9, (400, 3)), vocab_size=9, folds=4)
    >>> geometry = split_half_geometry(counts, key=jax.random.key(0))
    >>> bool(jnp.allclose(weighted_gram(geometry, counts), geometry.gram))
    True
    """
    size = counts.merged().per_position
    return _weighted_gram(geometry.present, size, geometry.squared_distances)


@jax.jit
def _weighted_gram(present: Array, per_position: Array, squared: Array) -> Array:
    size = jnp.where(present, per_position, 0).astype(squared.dtype)
    mean = jnp.sum(size) / jnp.maximum(jnp.sum(size > 0), 1).astype(size.dtype)
    weights = size / jnp.maximum(mean, 1.0)
    gram = gram_from_squared(squared, present, weights=weights)
    root = jnp.sqrt(weights)
    return root[:, None] * gram * root[None, :]


@partial(jax.jit, static_argnames="level")
def rank_above_null(
    gram: Float[ArrayLike, "n n"],
    null_grams: Float[ArrayLike, "nulls n n"],
    *,
    level: float = DEFAULT_LEVEL,
) -> SignificantRank:
    """Dimensions in which a Gram matrix exceeds its null, given the null's Gram matrices.

    An eigenvalue counts where at most (1 − level)(nulls + 1) − 1 null matrices, each less the mean
    of the others, have one as large. It must be larger by more than rounding: where rotating
    changes nothing, differences are rounding errors.

    >>> null = np.array([[[0.1, 0.0], [0.0, 0.0]], [[0.2, 0.0], [0.0, 0.0]]])
    >>> rank_above_null(np.diag([3.0, 0.05]), null, level=0.6).rank.item()
    1
    """
    gram = sized(gram, "gram", "n n")
    null_grams = sized(null_grams, "null_grams", f"nulls {len(gram)} {len(gram)}")
    if not gram.size:
        raise ValueError("gram has shape (0, 0): pass at least one position")
    if not 0.0 <= level < 1.0:
        raise ValueError(f"level must lie in [0, 1), not {level}")
    allowed = math.floor((1.0 - level) * (len(null_grams) + 1) + 1e-9)  # 0.05 · 20 < 1 in floats
    if len(null_grams) < 2 or not allowed:
        least = 2 if allowed else math.ceil(1.0 / (1.0 - level) - 1e-9) - 1
        raise ValueError(
            f"{len(null_grams)} null corpora cannot show significance at level {level}: pass at "
            f"least {least}"
        )
    nulls = len(null_grams)
    mean = jnp.mean(null_grams, axis=0)
    # x_k − mean of the others = (x_k − mean) · nulls / (nulls − 1)
    contrasts = (null_grams - mean[None]) * (nulls / (nulls - 1))
    eigenvalues = jnp.linalg.eigvalsh(gram - mean)[::-1]
    null_eigenvalues = jnp.linalg.eigvalsh(contrasts)[:, ::-1]
    threshold = jnp.sort(null_eigenvalues[:, 0])[nulls - min(allowed, nulls)]
    largest = jnp.maximum(jnp.linalg.norm(gram), jnp.linalg.norm(mean))
    rounding = 16.0 * float(jnp.finfo(gram.dtype).eps) * largest
    rank = jnp.sum(eigenvalues > threshold + rounding)
    rank = jnp.where(jnp.isnan(eigenvalues[0]) | jnp.isnan(threshold), -1, rank)
    above = jnp.sum(null_eigenvalues[:, 0] + rounding >= eigenvalues[0])
    p_value = (1.0 + above.astype(gram.dtype)) / (nulls + 1)
    return SignificantRank(rank, eigenvalues, null_eigenvalues, threshold, p_value)
