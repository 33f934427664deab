"""Position geometry: split halves of the documents less rotated documents.

The variance observed between positions has three parts. *Sampling noise* cancels in products of
disjoint halves. *Composition* is which documents reach a position, how many, and what ends them:
long documents have other words, and roots of thin counts are biased (E√X is below √λ). Rotating
each document by a random offset, its last token in place, keeps lengths, words, ends and
neighbours. It destroys every other effect of position, so rotated documents show composition alone.
The rest is *position*.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Integer

from jaxpe._core.arrays import ArrayLike, is_traced, namespace
from jaxpe._core.progress import SILENT, Progress
from jaxpe.geometry.checks import as_present, check_size, sized
from jaxpe.geometry.counts.position_counts import (
    PositionCounts,
    checked_ids,
    content_labels,
    count_tokens,
)
from jaxpe.geometry.counts.rotations import rotate_within_documents
from jaxpe.geometry.counts.token_lists import token_lists
from jaxpe.geometry.distances.matrices import gram_from_squared, pair_mask
from jaxpe.geometry.noise.half_products import (
    DEFAULT_FOLDS,
    FoldedCounts,
    fold_count,
    half_products,
)
from jaxpe.geometry.noise.split_half import (
    DEFAULT_SPLITS,
    SplitHalfGeometry,
    geometry_from_products,
    random_halves,
)

DEFAULT_NULLS = 20


class PositionGeometry(NamedTuple):
    """Geometry of position: split halves of the documents less rotated documents.

    Attributes:
        gram: float `[n, n]`, centred, B − mean of B over rotations; not positive semidefinite.
        squared_distances: float `[n, n]`, likewise; negative where noise exceeds the signal.
        present: bool `[n]`, positions with a token in both halves of every split.
        split_half: geometry of position and composition together.
        null: float `[nulls, n, n]`, split-half squared distances of each rotated corpus.
        per_position: int `[n]`, documents with a token at each position.
    """

    gram: Float[Array, "n n"]
    squared_distances: Float[Array, "n n"]
    present: Bool[Array, " n"]
    split_half: SplitHalfGeometry
    null: Float[Array, "nulls n n"]
    per_position: Int[Array, " n"]

    eigenvalues = SplitHalfGeometry.eigenvalues
    trace = SplitHalfGeometry.trace
    distances = SplitHalfGeometry.distances

    @property
    def composition(self) -> Float[Array, ""]:
        """Variance between positions due to composition, which rotated documents show as well."""
        return self.split_half.trace - self.trace


def position_geometry(
    ids: Integer[ArrayLike, "documents n"],
    *,
    vocab_size: int,
    key: Array,
    mask: Bool[ArrayLike, "documents n"] | None = None,
    exclude: Sequence[int] = (),
    groups: Integer[ArrayLike, " documents"] | None = None,
    ended: Bool[ArrayLike, " documents"] | None = None,
    folds: int = DEFAULT_FOLDS,
    splits: int = DEFAULT_SPLITS,
    nulls: int = DEFAULT_NULLS,
    progress: Progress = SILENT,
) -> PositionGeometry:
    """Hellinger geometry of position: split halves less the mean over rotated documents.

    B_position = B − E[B of rotations]. The null hypothesis is: given its length and its last token,
    a document is stationary. Each position then has the same law in documents and rotations, so
    B_position has mean 0 for any lengths, words and number of documents. With an effect, it
    describes the documents that reach each position, at this number of documents (see
    `split_half_geometry` on rare words). The rotations of a document contain the words of its
    positions too. So an effect is understated if most documents are short. The tokens that end
    documents are composition: their effect is seen in positions counted from the end.

    Args:
        ids, vocab_size, mask, exclude, folds: arguments of `count_tokens`.
        key: PRNG key for halves and rotations.
        groups: labels of documents that are not independent, as in `count_tokens`; by default
            equal documents are one group.
        ended: documents whose last token stays, as in `rotate_within_documents`.
        splits: halvings averaged over, for documents and rotations alike.
        nulls: rotated corpora, at least 2; the variance of the result has a part 1/nulls.
        progress: shown by rotated corpus; ignored where arguments are traced.

    >>> rng = np.random.default_rng(0)
    >>> ids = rng.integers(0, 50, (4000, 6)); ids[:, 0] = rng.integers(0, 25, 4000)
    >>> geometry = position_geometry(ids, vocab_size=50, key=jax.random.key(0))
    >>> np.round(geometry.eigenvalues[:2], 1).tolist()
    [0.5, 0.0]
    """
    ids, mask = checked_ids(ids, mask, vocab_size, exclude)
    check_size("nulls", nulls, least=2, each=4 * ids.shape[1] ** 2)
    check_size("splits", splits)
    if not ids.shape[1]:
        raise ValueError(f"ids have shape {ids.shape}: pass documents of at least one position")
    # Labels before the rotation: copies stay in one fold, in the corpus and in the null.
    groups = content_labels(ids, mask) if groups is None else groups
    documents = {"mask": mask, "exclude": exclude, "groups": groups}
    halving, rotating = null_keys(key, nulls=nulls)
    if not is_traced(ids, mask, groups, ended, key):
        tokens = token_lists(ids, vocab_size=vocab_size, folds=folds, ended=ended, **documents)
        corpora = tokens, tokens.rotations(rotating)
        return position_geometry_from_counts(
            *corpora, key=halving, splits=splits, progress=progress
        )
    parts = random_halves(halving, folds=folds, splits=splits)

    def counted(ids: ArrayLike) -> PositionCounts:
        return count_tokens(ids, vocab_size=vocab_size, folds=folds, **documents)

    def rotated(key: Array) -> tuple[ArrayLike, ArrayLike]:
        moved = rotate_within_documents(key, ids, ended=ended, **documents)
        return half_products(counted(moved), parts)

    counts, null = counted(ids), jax.lax.map(rotated, rotating)
    per_position = jnp.sum(counts.per_position, axis=0)
    return _position_from_products(half_products(counts, parts), null, per_position)


def position_geometry_from_counts(
    counts: FoldedCounts,
    nulls: Sequence[FoldedCounts],
    *,
    key: Array,
    splits: int = DEFAULT_SPLITS,
    progress: Progress = SILENT,
) -> PositionGeometry:
    """Position geometry from counts in folds, for corpora whose documents are no longer available.

    Args:
        counts: counts in at least two folds.
        nulls: counts of at least two rotated corpora in the same folds: of
            `rotate_within_documents`, or from `jaxpe count`.
        key: PRNG key that draws the halves.
        splits: halvings averaged over.
        progress: shown by rotated corpus.

    >>> ids = np.random.default_rng(0).integers(0, 9, (400, 3))
    >>> rotations = [rotate_within_documents(jax.random.key(k), ids) for k in range(4)]
    >>> counts, *nulls = [
    ...     count_tokens(each, vocab_size=9, folds=4, groups=np.arange(400))
    ...     for each in (ids, *rotations)]
    >>> geometry = position_geometry_from_counts(counts, nulls, key=jax.random.key(0))
    >>> bool(abs(geometry.trace) < 0.02)
    True
    """
    folds = fold_count(counts)
    check_size("the number of nulls", len(nulls), least=2)  # to see how they vary
    check_size("splits", splits, each=folds)
    parts = random_halves(key, folds=folds, splits=splits)

    def products(number: int, null: FoldedCounts) -> tuple[ArrayLike, ArrayLike]:
        if fold_count(null) != folds:
            raise ValueError(
                f"nulls[{number}] is in {fold_count(null)} folds, the counts in {folds}: pass "
                "regroup_folds(counts, folds=...) of the same number"
            )
        return half_products(null, parts)

    shown = progress.track(nulls, "rotated documents", total=len(nulls))
    null = [products(*numbered) for numbered in enumerate(shown)]
    xp = namespace(*jax.tree.leaves(null))
    stacked = jax.tree.map(lambda *each: xp.stack(each), *null)
    own, per_position = half_products(counts, parts), counts.per_position.sum(axis=0)
    return _position_from_products(own, stacked, per_position)


@jax.jit
def _position_from_products(
    own: tuple[ArrayLike, ArrayLike], null: tuple[ArrayLike, ArrayLike], per_position: ArrayLike
) -> PositionGeometry:
    """Position geometry of products of halves `[1, n, n]`, and of each rotated corpus."""
    split_half = geometry_from_products(own[0][0], own[1][0])
    squared = jax.lax.map(lambda x: geometry_from_products(x[0][0], x[1][0]), null)
    return position_part(split_half, squared.squared_distances, per_position=per_position)


def checked_position(geometry: PositionGeometry) -> PositionGeometry:
    """A position geometry in floats; raises where arrays that are read do not fit."""
    null = sized(geometry.null, "null", "nulls n n")
    n, half = null.shape[1], geometry.split_half
    if not n or len(null) < 2:
        raise ValueError(
            f"the geometry has {n} positions and {len(null)} nulls: pass one of at least one "
            "position and two nulls"
        )
    squared = sized(half.squared_distances, "split_half.squared_distances", f"{n} {n}")
    return geometry._replace(
        present=as_present(geometry.present, n),
        split_half=half._replace(squared_distances=squared),
        null=null,
        per_position=sized(geometry.per_position, "per_position", f"{n}"),
    )


@jax.jit
def position_part(
    split_half: SplitHalfGeometry, null: Float[Array, "nulls n n"], *, per_position: ArrayLike
) -> PositionGeometry:
    """Split-half geometry less the mean of rotated corpora, given their squared distances."""
    position = without_composition(split_half, jnp.mean(null, axis=0))
    return PositionGeometry(*position, split_half, null, jnp.asarray(per_position))


def without_composition(
    split_half: SplitHalfGeometry, rotated: Float[Array, "n n"]
) -> SplitHalfGeometry:
    """Split-half geometry less the mean squared distances of rotated documents."""
    squared = split_half.squared_distances - rotated
    squared = jnp.where(pair_mask(split_half.present), squared, 0.0)
    gram = gram_from_squared(squared, split_half.present)
    return SplitHalfGeometry(gram, squared, split_half.present)


@partial(jax.jit, static_argnames="nulls")
def null_keys(key: Array, *, nulls: int = DEFAULT_NULLS) -> tuple[Array, Array]:
    """PRNG keys of the halvings, which all corpora share, and of the rotated corpora."""
    keys = jax.random.split(key, nulls + 1)
    return keys[0], keys[1:]
