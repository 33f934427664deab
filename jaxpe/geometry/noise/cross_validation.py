"""Cross-validation: encodings fitted to one half of the documents and tested on the other."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from jaxpe._core.arrays import ArrayLike, namespace
from jaxpe._core.progress import SILENT, Progress
from jaxpe.geometry.checks import check_confidence, check_size, floating, sized
from jaxpe.geometry.distances.matrices import safe_sqrt
from jaxpe.geometry.distances.nearness import PositionStatistics, position_statistics
from jaxpe.geometry.distances.stress import scaled_stress
from jaxpe.geometry.mds.classical import classical_mds_from_gram
from jaxpe.geometry.noise.half_products import FoldedCounts, fold_count, half_products
from jaxpe.geometry.noise.position import without_composition
from jaxpe.geometry.noise.split_half import SplitHalfGeometry, geometry_from_products

DEFAULT_SPLITS = 16
DEFAULT_HALVINGS = 4
DEFAULT_HALF_NULLS = 4
_MOST_FREEDOM = 15  # degrees of freedom of 16 folds, for any number of splits


class HeldOut(NamedTuple):
    """A statistic of halves of the documents with its interval, such as a held-out stress.

    Attributes:
        mean: float `[...]`, mean over both halves of every split: the expectation for half as many
            documents.
        standard_error: float `[...]`, standard error of the mean, for other documents of the same
            kind.
        low, high: float `[...]`, ends of the interval.
        samples: float `[splits, 2, ...]`, the value of each half.
    """

    mean: Float[Array, "..."]
    standard_error: Float[Array, "..."]
    low: Float[Array, "..."]
    high: Float[Array, "..."]
    samples: Float[Array, "splits 2 ..."]


class PositionHalves(NamedTuple):
    """Position geometries of disjoint halves, and the statistics behind intervals.

    Attributes:
        position: geometries `[splits, 2, ...]`, less the rotated documents of the same half.
        documents: statistics of each half before subtraction, `[splits, 2]`.
        null: statistics of the rotated halves, `[nulls, splits, 2]`.
    """

    position: SplitHalfGeometry
    documents: PositionStatistics
    null: PositionStatistics


def disjoint_geometries(
    counts: FoldedCounts,
    *,
    key: Array,
    splits: int = DEFAULT_SPLITS,
    halvings: int = DEFAULT_HALVINGS,
) -> SplitHalfGeometry:
    """Noise-corrected geometries of two disjoint halves of the documents, for several splits.

    Each half of the folds is halved again, and its geometry is `split_half_geometry` of these
    quarters, averaged over `halvings`. An encoding fitted to one half can be tested on the other,
    which shares no document with it.

    Args:
        counts: counts in at least four folds, or token lists. With an odd number of folds, each
            split leaves one out, in turn.
        key: PRNG key that draws the halves.
        splits: random splits into two halves.
        halvings: halvings of each half.

    Returns:
        Geometries with leading axes `[splits, 2]`, `present` in both halves.

    Raises:
        ValueError: fewer than four folds, splits or halvings below 1.

    >>> rng = np.random.default_rng(0)
    >>> counts = count_tokens(rng.integers(0, 50, (4000, 6)), vocab_size=50, folds=8)
    >>> disjoint_geometries(counts, key=jax.random.key(0), splits=3).gram.shape
    (3, 2, 6, 6)
    """
    return _geometries(*_quarter_products(counts, key=key, splits=splits, halvings=halvings))


def _quarter_products(
    counts: FoldedCounts, *, key: Array, splits: int, halvings: int
) -> tuple[Float[ArrayLike, "splits 2 n n"], Bool[ArrayLike, "splits 2 n"]]:
    """Products of quarters of the documents, and the positions present in both halves."""
    folds = fold_count(counts)
    if folds < 4:
        raise ValueError(f"counts have {folds} folds: halves of halves need at least four")
    for name, number in (("splits", splits), ("halvings", halvings)):
        check_size(name, number, each=folds)
    parts = _random_quarters(key, folds=folds, splits=splits, halvings=halvings)
    products, present = half_products(counts, parts)
    products, present = (x.reshape(splits, 2, *x.shape[1:]) for x in (products, present))
    return products, present & present[:, ::-1]


@jax.jit
def _geometries(
    products: Float[Array, "splits 2 n n"], present: Bool[Array, "splits 2 n"]
) -> SplitHalfGeometry:
    return _map_halves(lambda half: geometry_from_products(*half), (products, present))


def disjoint_position_geometries(
    counts: FoldedCounts,
    nulls: Sequence[FoldedCounts],
    *,
    key: Array,
    splits: int = DEFAULT_SPLITS,
    halvings: int = DEFAULT_HALVINGS,
    progress: Progress = SILENT,
) -> PositionHalves:
    """Position geometries of disjoint halves: each half less its own rotated documents.

    Args:
        counts: counts in at least four folds, or token lists.
        nulls: counts of at least two rotated corpora, in the same folds.
        key: PRNG key that draws the halves.
        splits: random splits, of which no more than folds − 1 are used.
        halvings: halvings of each half.
        progress: shown by corpus.

    >>> ids = np.random.default_rng(0).integers(0, 9, (400, 3))
    >>> tokens = token_lists(ids, vocab_size=9, folds=4, groups=np.arange(400))
    >>> nulls = [tokens.rotated(jax.random.key(k)) for k in range(2)]
    >>> disjoint_position_geometries(tokens, nulls, key=jax.random.key(0)).position.gram.shape
    (3, 2, 3, 3)
    """
    check_size("the number of nulls", len(nulls), least=2)
    sizes = {"splits": min(splits, fold_count(counts) - 1), "halvings": halvings}
    corpora = progress.track(chain([counts], nulls), "held-out halves", total=1 + len(nulls))
    products = [_quarter_products(each, key=key, **sizes) for each in corpora]
    xp = namespace(*jax.tree.leaves(products))
    return _position_halves(*(xp.stack(each) for each in zip(*products, strict=True)))


@jax.jit
def _position_halves(
    products: Float[Array, "corpora splits 2 n n"], present: Bool[Array, "corpora splits 2 n"]
) -> PositionHalves:
    """Geometries of halves less the mean of rotated halves, from products of their quarters."""
    corpora = jax.lax.map(lambda each: _geometries(*each), (products, present))
    halves = jax.tree.map(lambda x: x[0], corpora)
    mean = jnp.mean(corpora.squared_distances[1:], axis=0)
    position = _map_halves(lambda half: without_composition(*half), (halves, mean))

    def statistics(geometries: SplitHalfGeometry) -> PositionStatistics:
        of_half = lambda half: position_statistics(half.squared_distances, half.present)  # noqa: E731
        return _map_halves(of_half, geometries)

    every = jax.lax.map(statistics, corpora)
    documents, null = (jax.tree.map(lambda x, at=at: x[at], every) for at in (0, slice(1, None)))
    return PositionHalves(position, documents, null)


@partial(jax.jit, static_argnames=("folds", "splits", "halvings"))
def _random_quarters(
    key: Array, *, folds: int, splits: int, halvings: int
) -> Int[Array, "halves halvings folds"]:
    """The quarter of each fold in each half of a split, 0 or 1; 2 for folds of the other half."""
    half = folds // 2

    def quarters(key: Array, order: Array) -> Array:
        inner = jax.random.split(key)
        rank = jax.lax.map(lambda k: jax.random.permutation(k, half), inner)  # compiles fastest
        part = (rank >= folds // 4).astype(jnp.int32) + 2 * jnp.arange(2, dtype=jnp.int32)[:, None]
        return jnp.full(folds, 4, jnp.int32).at[order[: 2 * half]].set(part.reshape(-1))

    def split(item: tuple[Array, Array]) -> Array:
        order, key = item
        return jax.lax.map(lambda k: quarters(k, order), jax.random.split(key, halvings))

    first, rest = jax.random.split(key)
    orders = fold_orders(first, folds=folds, splits=splits)
    quarter = jax.lax.map(split, (orders, jax.random.split(rest, splits)))[:, None]
    own = quarter // 2 == jnp.arange(2, dtype=jnp.int32)[None, :, None, None]
    return jnp.where(own, quarter % 2, 2).astype(jnp.int32).reshape(2 * splits, halvings, folds)


@partial(jax.jit, static_argnames=("folds", "splits"))
def fold_orders(key: Array, *, folds: int, splits: int) -> Int[Array, "splits folds"]:
    """An order of the folds for each split, whose first and second half are the two halves.

    Few splits of 2, 4, 8, ... folds are balanced half-samples (McCarthy 1969): the signs of two
    splits are orthogonal, as rows of a Hadamard matrix, so each split adds a degree of freedom.
    Other splits are random.
    """
    if folds & (folds - 1) or splits >= folds:
        keys = jax.random.split(key, splits)
        return jax.lax.map(lambda k: jax.random.permutation(k, folds), keys)
    rows, columns = np.arange(1, splits + 1)[:, None], np.arange(folds)[None, :]
    signs = np.bitwise_count(rows & columns) % 2
    order = np.argsort(signs, axis=1, kind="stable").astype(np.int32)
    return jax.random.permutation(key, folds)[order].astype(jnp.int32)


@partial(jax.jit, static_argnames="confidence")
def held_out_stress(
    P: Float[ArrayLike, "*encodings n d"], halves: SplitHalfGeometry, *, confidence: float = 0.95
) -> HeldOut:
    """Held-out scaled stress of fixed encodings, against each half of the documents.

    Args:
        P: position vectors, of one encoding or of several.
        halves: geometries from `disjoint_geometries`.
        confidence: coverage of the interval, in (0, 1).

    >>> rng = np.random.default_rng(0)
    >>> ids = rng.binomial(20, np.linspace(0.2, 0.8, 6), (4000, 6))
    >>> counts = count_tokens(ids, vocab_size=21, folds=8)
    >>> halves = disjoint_geometries(counts, key=jax.random.key(0))
    >>> found = held_out_stress(np.arange(6.0)[:, None], halves)
    >>> bool(found.low <= found.mean <= found.high < 0.05)
    True
    """
    vectors = jnp.asarray(P)
    single = vectors.reshape(math.prod(vectors.shape[:-2]), *vectors.shape[-2:])

    def against(geometry: SplitHalfGeometry) -> Array:
        return jax.lax.map(lambda P: scaled_stress(P, geometry.distances).stress, single)

    samples = _map_halves(against, halves).reshape(*halves.present.shape[:2], *vectors.shape[:-2])
    return _stress_interval(samples, confidence)


@partial(jax.jit, static_argnames=("dim", "confidence"))
def cross_validated_mds(
    halves: SplitHalfGeometry, *, dim: int, confidence: float = 0.95
) -> HeldOut:
    """Scaled stress of classical MDS of one half of the documents against the other half.

    The coordinates are the principal ones of the corrected Gram matrix of a half. So neither the
    fit nor the test is inflated as plug-in distances are. Dimensions beyond the signal fit the
    noise of one half, and raise the stress against the other.

    Args:
        halves: geometries from `disjoint_geometries`.
        dim: the widest encoding; all widths from 1 to dim are scored.
        confidence: coverage of the interval, in (0, 1).

    Returns:
        Stress by width, fields `[dim]`, samples `[splits, 2, dim]`: first the encoding of the
        second half against the first half, then the reverse.

    >>> rng = np.random.default_rng(0)
    >>> ids = rng.binomial(20, np.linspace(0.2, 0.8, 6), (4000, 6))
    >>> counts = count_tokens(ids, vocab_size=21, folds=8)
    >>> halves = disjoint_geometries(counts, key=jax.random.key(0))
    >>> np.round(cross_validated_mds(halves, dim=4).mean, 2).tolist()
    [0.07, 0.0, 0.0, 0.0]
    """
    swapped = jax.tree.map(lambda x: x[:, ::-1], halves)
    widths = jnp.arange(1, dim + 1)

    def against(pair: tuple[SplitHalfGeometry, SplitHalfGeometry]) -> Array:
        fitted, geometry = pair
        mds = classical_mds_from_gram(fitted.gram, dim=dim, present=fitted.present)

        def at(width: Array) -> Array:
            P = jnp.where(jnp.arange(dim) < width, mds.coordinates, 0.0)
            return scaled_stress(P, geometry.distances).stress

        return jax.lax.map(at, widths)

    return _stress_interval(_map_halves(against, (swapped, halves)), confidence)


@partial(jax.jit, static_argnames="confidence")
def cross_validated_choice(
    samples: Float[ArrayLike, "splits 2 members"], *, confidence: float = 0.95
) -> HeldOut:
    """Held-out stress of the member of a family that is best on the other half.

    Args:
        samples: stress of each member on each half, `samples` of `held_out_stress`.
        confidence: coverage of the interval, in (0, 1).

    >>> members = np.array([[[0.1, 0.3], [0.2, 0.5]], [[0.1, 0.2], [0.4, 0.1]]])
    >>> cross_validated_choice(members).samples.round(1).tolist()
    [[0.1, 0.2], [0.2, 0.4]]
    """
    values = sized(samples, "samples", "splits 2 members")
    if not values.size:
        raise ValueError(f"samples have shape {values.shape}: pass at least one split and member")
    chosen = jnp.argmin(values, axis=2)[:, ::-1, None]
    best = jnp.take_along_axis(values, chosen, axis=2)[..., 0]
    return _stress_interval(best, confidence)


@partial(jax.jit, static_argnames="confidence")
def half_sample_interval(
    samples: Float[ArrayLike, "splits 2 ..."], *, confidence: float = 0.95
) -> HeldOut:
    """Half-sample interval of a statistic, from its values on both halves of several splits.

    The standard error is half the root mean square, over splits, of the difference between the two
    halves. For a mean over documents this is exactly the standard error over all documents
    (McCarthy 1969, balanced half-samples). The interval is mean ± t · standard error, with
    Student's t at one degree of freedom a split, at most 15 (16 folds). For differences between
    encodings pass the difference of their `samples`.

    Args:
        samples: values on each half, from `held_out_stress` or `cross_validated_mds`.
        confidence: coverage of the interval, in (0, 1).

    >>> found = half_sample_interval(np.array([[0.1, 0.3], [0.3, 0.1], [0.1, 0.3]]))
    >>> round(found.mean.item(), 2), round(found.standard_error.item(), 2)
    (0.2, 0.1)
    """
    check_confidence(confidence)
    values = floating(samples, "samples")
    if values.ndim < 2 or values.shape[1] != 2 or not len(values):
        raise ValueError(f"samples have shape {values.shape}: pass [splits, 2, ...]")
    mean = jnp.mean(values, axis=(0, 1))
    error = safe_sqrt(half_sample_variance(values))
    t = students_t(len(values), confidence)
    return HeldOut(mean, error, mean - t * error, mean + t * error, values)


def half_sample_variance(samples: Float[Array, "splits 2 ..."]) -> Float[Array, "..."]:
    """Variance of a mean over documents, from its values on both halves of several splits."""
    return 0.25 * jnp.mean((samples[:, 0] - samples[:, 1]) ** 2, axis=0)


def students_t(splits: int, confidence: float) -> float:
    """Student's t: half the length of an interval from so many splits, in standard errors."""
    from scipy.special import stdtrit  # comes with JAX; saves start-up time

    return float(stdtrit(min(splits, _MOST_FREEDOM), 0.5 * (1.0 + confidence)))


def _map_halves(f: Callable[[Any], Any], halves: Any) -> Any:
    """`f` of every half, `[splits, 2, ...]`."""
    return jax.lax.map(lambda split: jax.lax.map(f, split), halves)


def _stress_interval(samples: Array, confidence: float) -> HeldOut:
    """Interval of a stress, which lies in [0, 1]."""
    found = half_sample_interval(samples, confidence=confidence)
    return found._replace(low=jnp.maximum(found.low, 0.0), high=jnp.minimum(found.high, 1.0))
