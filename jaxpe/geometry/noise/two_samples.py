"""Two-sample test of positional geometries: Procrustes, principal angles, permutations of folds."""

import math
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammainc, gammaincc
from jaxtyping import Bool, Float, Int, Real

from jaxpe._core.arrays import ArrayLike, dot
from jaxpe.geometry.checks import check_size, sized
from jaxpe.geometry.counts.position_counts import PositionCounts
from jaxpe.geometry.distances.matrices import centre_rows, safe_sqrt
from jaxpe.geometry.mds.classical import principal_coordinates, row_space
from jaxpe.geometry.mds.procrustes import procrustes

DEFAULT_PERMUTATIONS = 999
_MOST_FOLDS = 10  # folds of a corpus after joining
_FEWEST_NULL_FOLDS = 4  # null folds of a corpus; fewer allow only a few deals
MOST_NULLS = 8  # null corpora whose mean is subtracted
_DEALS = 1000  # different deals, from which p-values are counted
_BLOCK = 512  # words in a dense block


class GeometryComparison(NamedTuple):
    """Two-sample test of positional geometries, with their Procrustes residual and angles.

    Attributes:
        distance: ‖G_a − G_b‖ / √(‖G_a‖ ‖G_b‖) of the split-half Gram matrices, Frobenius norms; 0
            where they are equal, NaN where one is 0.
        p_value: share of the deals of folds, including the observed one, whose difference is as
            large. With fewer than 1,000 possible deals, the tail of the Pearson type III
            distribution with the mean, variance and skewness of the deals.
        null: float `[permutations]`, the same distance between folds dealt out at random.
        residual: Procrustes residual, in [0, 1]: share of the second configuration, in `dim`
            dimensions, that the first does not explain after rotation and scaling.
        angles: float `[dim]`, principal angles between the two configurations, ascending, in
            [0, π/2].
        grams: float `[2, n, n]`, the Gram matrices, centred.
        present: bool `[n]`, positions with a token in every fold of both.
        folds: number of folds of each corpus, after joining.
        tokens: tokens of a fold that were compared, over all positions, after thinning.
        of_position: whether null corpora were subtracted, so that position alone is compared.
    """

    distance: Float[Array, ""]
    p_value: Float[Array, ""]
    null: Float[Array, " permutations"]
    residual: Float[Array, ""]
    angles: Float[Array, " dim"]
    grams: Float[Array, "2 n n"]
    present: Bool[np.ndarray, " n"]
    folds: int
    tokens: int
    of_position: bool


@jax.jit
def principal_angles(
    P: Real[ArrayLike, "n p"], Q: Real[ArrayLike, "n q"]
) -> Float[Array, " angles"]:
    """Principal angles between the column spaces of P and Q, min(p, q) of them, ascending.

    Björck and Golub (1973): with orthonormal bases U of P and V of Q, cosines are the singular
    values of Uᵀ V; above √½ the angles come from the sines, the singular values of V − U Uᵀ V,
    because arc cosines lose half of the digits near 1. Angles are in [0, π/2]; columns that are 0
    or dependent count as orthogonal to all others.

    >>> angles = principal_angles(np.eye(3)[:, :2], np.array([[1.0], [0.0], [1.0]]))
    >>> round(float(angles[0]), 4)                                                   # π / 4
    0.7854
    """
    P = sized(P, "P", "n p")
    Q = sized(Q, "Q", f"{len(P)} q")
    wide, narrow = (P, Q) if P.shape[1] >= Q.shape[1] else (Q, P)
    U, V = _basis(wide), _basis(narrow)
    cosines = jnp.linalg.svd(dot(U.T, V), compute_uv=False)
    sines = jnp.linalg.svd(V - dot(U, dot(U.T, V)), compute_uv=False)[::-1]
    # A column of zeros has no sine; its angle is the last, of the cosine 0.
    sines = jnp.roll(sines[: len(cosines)], -jnp.sum(~V.any(axis=0)))
    exact = cosines**2 > 0.5
    by_sine = jnp.arcsin(jnp.clip(jnp.where(exact, sines, 0.0), 0.0, 1.0))
    return jnp.where(exact, by_sine, jnp.arccos(jnp.clip(cosines, 0.0, 1.0)))


def _basis(X: Array) -> Array:
    """An orthonormal basis of the columns; 0 instead of dependent columns."""
    singular = jnp.linalg.svd(jax.lax.stop_gradient(X), compute_uv=False)
    U = row_space(X.T, len(singular))  # has a derivative where singular values are equal
    least = jnp.max(singular, initial=0.0) * max(X.shape) * jnp.finfo(X.dtype).eps
    return jnp.where(singular <= least, 0.0, U)  # NaN stays


def compare_geometries(
    a: PositionCounts,
    b: PositionCounts,
    *,
    key: Array,
    dim: int = 8,
    permutations: int = DEFAULT_PERMUTATIONS,
    nulls: tuple[Int[ArrayLike, "nulls _ n vocab"], Int[ArrayLike, "nulls _ n vocab"]]
    | None = None,
) -> GeometryComparison:
    """Two-sample test of the positional geometries of two corpora, by permutations of folds.

    The geometry of a corpus is G = mean over folds i ≠ j of S_i S_jᵀ, centred, with S = √μ̂: as in
    `split_half_geometry`, noise of different documents cancels. If both are samples of one
    population, folds may be dealt to the two at random. The p-value is the share of such deals with
    a difference ‖G_a − G_b‖ as large as observed.

    This needs comparable folds. √μ̂ has a bias where counts are thin. So every fold is thinned, by
    draws without replacement, to the least number of tokens of any fold at each position. Both
    corpora are joined to equally many folds, at most 10 each. Folds must be independent, with
    copies and documents of one author in one fold (`count_tokens(groups=...)`).

    Corpora of the same words may have different geometries because different documents reach late
    positions. With `nulls`, counts of rotated documents, position alone is compared: products of
    folds less the mean product of rotated documents, which move with their folds.

    Args:
        a, b: counts in folds, of one length and one vocabulary.
        key: PRNG key of the thinning and the permutations.
        dim: dimensions of the configurations that Procrustes and angles compare.
        permutations: deals at random, at least 1.
        nulls: counts of rotated documents of a and of b, `[nulls, null folds, n, vocab]`: fold f
            of the counts in null fold f modulo their number. They are used if both corpora have at
            least 4 null folds.

    Raises:
        ValueError: counts of different shapes, without folds, with numbers of folds that share no
            divisor above 1, or traced ones, whose sizes cannot be read.

    >>> rng = np.random.default_rng(0)
    >>> one, other = (
    ...     count_tokens(rng.integers(0, 9, (800, 6)), vocab_size=9, folds=8) for _ in range(2))
    >>> found = compare_geometries(one, other, key=jax.random.key(0), dim=2, permutations=99)
    >>> bool(found.p_value > 0.05), found.folds
    (True, 8)
    """
    shapes = [counts.tokens.shape for counts in (a, b)]
    if len(shapes[0]) != 3 or len(shapes[1]) != 3 or shapes[0][1:] != shapes[1][1:]:
        raise ValueError(
            f"counts have tokens of shape {shapes[0]} and {shapes[1]}: pass [folds, n, vocab] of "
            "one length and vocabulary"
        )
    check_size("permutations", permutations, each=4)
    check_size("dim", dim)
    tables = [np.asarray(counts.tokens) for counts in (a, b)]
    null_tables = [np.asarray(each)[:MOST_NULLS] for each in nulls or ()]
    folds = _common_folds(len(table) for table in tables)
    few = _common_folds(each.shape[1] for each in null_tables)
    if null_tables and few >= _FEWEST_NULL_FOLDS and all(len(t) % few == 0 for t in tables):
        folds = few
    else:
        null_tables = []
    if not folds:
        raise ValueError(
            f"counts have {shapes[0][0]} and {shapes[1][0]} folds, which cannot be joined to "
            "equally many: pass counts with an even number of folds"
        )
    seed, deals = jax.random.split(key)
    joined = [_joined_folds(table, folds) for table in tables]
    size = np.min([table.sum(axis=2) for table in joined], axis=(0, 1))
    draws = np.asarray(jax.random.key_data(seed)).tolist()

    def products(both: list[np.ndarray], number: int) -> Array:
        # Equal draws for both, so that a corpus has distance 0 to itself.
        thin = [_sampled(np.random.default_rng([*draws, number]), each, size) for each in both]
        return _products(jnp.asarray(np.concatenate(thin)), jnp.asarray(size))

    between, count = products(joined, 0), min(map(len, null_tables), default=0)
    for null in range(count):
        rotated = [_joined_folds(table[null], folds) for table in null_tables]
        between = between - products(rotated, 1 + null) / count
    fields = _comparison(between, size > 0, deals, folds, dim=dim, permutations=permutations)
    return GeometryComparison(
        *fields, present=size > 0, folds=folds, tokens=int(size.sum()), of_position=count > 0
    )


@jax.jit
def holm_adjusted(p_values: Float[ArrayLike, " tests"]) -> Float[Array, " tests"]:
    """Holm's (1979) adjusted p-values: rejecting below α keeps the family-wise error at α.

    The k-th smallest of m is multiplied by m − k + 1; larger ones are at least as large as it, and
    at most 1. Tests that are NaN do not count.

    >>> holm_adjusted(np.array([0.01, 0.04, 0.03])).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    p = sized(p_values, "p_values", "tests")
    order = jnp.argsort(p)  # NaN last
    count = jnp.sum(~jnp.isnan(p), dtype=p.dtype)
    factor = count - jnp.arange(len(p), dtype=p.dtype)
    sorted_p = p[order]
    raised = jax.lax.cummax(jnp.where(jnp.isnan(sorted_p), 0.0, sorted_p * factor))
    adjusted = jnp.where(jnp.isnan(sorted_p), jnp.nan, jnp.minimum(raised, 1.0))
    return jnp.zeros_like(p).at[order].set(adjusted)


def _common_folds(numbers: Iterable[int]) -> int:
    """The largest common divisor of numbers of folds, up to a limit; 0 below 2."""
    common = math.gcd(*numbers)
    return max((k for k in range(2, _MOST_FOLDS + 1) if common % k == 0), default=0)


def _joined_folds(table: np.ndarray, folds: int) -> np.ndarray:
    """Counts in `folds` folds: folds f, f + folds, ... are added."""
    return table.reshape(-1, folds, *table.shape[1:]).sum(axis=0)


def _sampled(rng: np.random.Generator, tables: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Thinned tables `[folds, n, vocab]`: tokens of each position drawn without replacement."""
    thin = np.zeros(tables.shape, np.int32)
    for fold, position in np.ndindex(tables.shape[:2]):
        row = tables[fold, position]
        words = np.flatnonzero(row)
        count = row[words]
        if count.sum() > size[position]:
            count = rng.multivariate_hypergeometric(count, size[position], method="marginals")
        thin[fold, position, words] = count
    return thin


@partial(jax.jit, static_argnames=("folds", "dim", "permutations"))
def _comparison(
    products: Float[Array, "m m n n"],
    present: Bool[Array, " n"],
    key: Array,
    folds: int,
    *,
    dim: int,
    permutations: int,
) -> tuple[Array, ...]:
    """The arrays of a `GeometryComparison`."""
    labels = (jnp.arange(2 * folds) < folds).astype(products.dtype)
    keys = jax.random.split(key, permutations)
    dealt = jax.vmap(lambda key: jax.random.permutation(key, labels))(keys)
    grams = jnp.stack([_gram(products, _pairs(x), present) for x in (labels, 1.0 - labels)])
    size = jnp.sqrt(jnp.linalg.norm(grams[0]) * jnp.linalg.norm(grams[1]))

    def difference(label: Array) -> Array:
        return jnp.linalg.norm(_gram(products, _pairs(label) - _pairs(1.0 - label), present))

    observed = difference(labels)
    null = jax.lax.map(difference, dealt)
    # Equal sums in another order differ in their last digits.
    as_large = null >= observed * (1.0 - 100.0 * jnp.finfo(null.dtype).eps)
    p_value = (1.0 + jnp.sum(as_large.astype(null.dtype))) / (1.0 + permutations)
    if math.comb(2 * folds, folds) // 2 < _DEALS:
        p_value = jnp.where(observed > 0, _pearson_tail(observed**2, null**2), p_value)
    P, Q = (principal_coordinates(gram, min(dim, len(gram)))[0] for gram in grams)
    residual = procrustes(P, Q, scale=True, present=present).residual
    scale = jnp.where(size > 0, size, jnp.nan)
    return observed / scale, p_value, null / scale, residual, principal_angles(P, Q), grams


def _pearson_tail(observed: Array, null: Array) -> Array:
    """Tail probability of the Pearson type III distribution with the moments of `null`."""
    # Three moments describe permutation distributions of quadratic forms (Mielke and Berry 2007).
    # At a skewness of 0, the normal distribution, the shape would be infinite.
    centred = null - jnp.mean(null)
    deviation = safe_sqrt(jnp.mean(centred**2))
    skewness = jnp.mean(centred**3) / jnp.maximum(deviation, jnp.finfo(null.dtype).tiny) ** 3
    steep = jnp.where(jnp.abs(skewness) < 1e-2, 1e-2, skewness)
    z = (observed - jnp.mean(null)) / jnp.where(deviation > 0, deviation, 1.0)
    shape = 4.0 / steep**2
    at = jnp.maximum(shape + 2.0 * z / steep, 0.0)
    return jnp.where(steep > 0, gammaincc(shape, at), gammainc(shape, at))


@jax.jit
def _products(tables: Int[Array, "m n vocab"], size: Int[Array, " n"]) -> Float[Array, "m m n n"]:
    """S_i S_jᵀ of all pairs of folds, which have `size` tokens at each position."""
    m, n, vocab = tables.shape
    total, blocks = jnp.maximum(size, 1).astype(float), -(-vocab // _BLOCK)
    padded = jnp.pad(tables, ((0, 0), (0, 0), (0, blocks * _BLOCK - vocab)))
    split = jnp.moveaxis(padded.reshape(m, n, blocks, _BLOCK), 2, 0)

    def add(sums: Array, block: Array) -> tuple[Array, None]:
        roots = jnp.sqrt(block.astype(float) / total[None, :, None]).reshape(m * n, _BLOCK)
        return sums + dot(roots, roots.T), None

    start = jnp.zeros((m * n, m * n), float)
    return jnp.moveaxis(jax.lax.scan(add, start, split)[0].reshape(m, n, m, n), 2, 1)


def _pairs(chosen: Float[Array, " m"]) -> Float[Array, "m m"]:
    """Weights of the mean over pairs of different folds among those chosen."""
    number = jnp.sum(chosen)
    weight = chosen[:, None] * chosen[None, :] * (1.0 - jnp.eye(len(chosen), dtype=chosen.dtype))
    return weight / (number * (number - 1.0))


def _gram(products: Array, weight: Array, present: Array) -> Array:
    """A weighted sum of the products of folds, centred."""
    mean = jnp.tensordot(weight, products, 2, precision="highest")
    return centre_rows(centre_rows((mean + mean.T) / 2.0, present).T, present)
