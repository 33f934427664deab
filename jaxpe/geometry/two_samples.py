"""Two corpora: how far their positional geometries are apart, and whether by more than chance."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Real

from jaxpe._core.arrays import ArrayLike, dot, is_traced
from jaxpe._core.program import one_program
from jaxpe.geometry.checks import check_size
from jaxpe.geometry.counts import PositionCounts
from jaxpe.geometry.distances import centre_rows, floating, safe_sqrt
from jaxpe.geometry.mds import principal_coordinates
from jaxpe.geometry.procrustes import procrustes
from jaxpe.geometry.sparse import root_frequencies

DEFAULT_PERMUTATIONS = 999
_MOST_FOLDS = 20  # of both corpora, once they are joined
_BLOCK = 512  # words that are made dense together


class GeometryComparison(NamedTuple):
    """Two positional geometries side by side.

    Attributes:
        distance: ‖G_a − G_b‖ / √(‖G_a‖ ‖G_b‖) of the split-half Gram matrices, Frobenius norms; 0
            where they are equal, NaN where one is 0.
        p_value: share of permutations, the observed one included, whose difference is as large.
        null: float `[permutations]`, the same distance between folds dealt out at random.
        residual: residual of Procrustes, in [0, 1]: share of the second configuration of `dim`
            dimensions that the first, turned and scaled, does not explain.
        angles: float `[dim]`, principal angles between the two configurations, ascending, in
            [0, π/2].
        grams: float `[2, n, n]`, the Gram matrices, centred.
        present: bool `[n]`, positions with a token in every fold of both.
        folds: number of folds of each corpus, after they were joined.
        size_ratio: documents of a fold of one corpus over those of the other, at least 1. Far from
            1 the folds are not alike without any difference, and the p-value is too small.
    """

    distance: Float[Array, ""]
    p_value: Float[Array, ""]
    null: Float[Array, " permutations"]
    residual: Float[Array, ""]
    angles: Float[Array, " dim"]
    grams: Float[Array, "2 n n"]
    present: Bool[Array, " n"]
    folds: tuple[int, int]
    size_ratio: float


@one_program
def principal_angles(
    P: Real[ArrayLike, "n p"], Q: Real[ArrayLike, "n q"]
) -> Float[Array, " angles"]:
    """Principal angles between the column spaces of P and Q, min(p, q) of them, ascending.

    Björck and Golub (1973): with orthonormal bases U of P and V of Q, cosines are the singular
    values of Uᵀ V; where they are above √½ the angles come from the sines, the singular values of
    V − U Uᵀ V, since arc cosines lose half of the digits there. In [0, π/2]; columns that are 0 or
    dependent count as orthogonal to all others.

    >>> angles = principal_angles(np.eye(3)[:, :2], np.array([[1.0], [0.0], [1.0]]))
    >>> round(float(angles[0]), 4)                                                   # π / 4
    0.7854
    """
    P, Q = floating(P, "P"), floating(Q, "Q")
    if P.ndim != 2 or Q.ndim != 2 or P.shape[0] != Q.shape[0]:
        raise ValueError(f"P has shape {P.shape} and Q {Q.shape}: pass [n, p] and [n, q]")
    wide, narrow = (P, Q) if P.shape[1] >= Q.shape[1] else (Q, P)
    U, V = _basis(wide), _basis(narrow)
    cosines = jnp.linalg.svd(dot(U.T, V), compute_uv=False)
    sines = jnp.linalg.svd(V - dot(U, dot(U.T, V)), compute_uv=False)[::-1]
    sines = sines[: len(cosines)]
    exact = cosines**2 > 0.5
    by_sine = jnp.arcsin(jnp.clip(jnp.where(exact, sines, 0.0), 0.0, 1.0))
    return jnp.where(exact, by_sine, jnp.arccos(jnp.clip(cosines, 0.0, 1.0)))


def _basis(X: Array) -> Array:
    """An orthonormal basis of the columns; 0 in place of what depends on others."""
    U, singular, _ = jnp.linalg.svd(X, full_matrices=False)
    least = jnp.max(singular, initial=0.0) * max(X.shape) * jnp.finfo(X.dtype).eps
    return jnp.where(singular <= least, 0.0, U)  # NaN stays


def compare_geometries(
    a: PositionCounts,
    b: PositionCounts,
    *,
    key: Array,
    dim: int = 8,
    permutations: int = DEFAULT_PERMUTATIONS,
) -> GeometryComparison:
    """Distances between the positional geometries of two corpora, with a two-sample test.

    The geometry of a corpus is G = mean over folds i ≠ j of S_i S_jᵀ, centred, with S = √μ̂: as in
    `split_half_geometry`, noise of different documents cancels. Where both are samples of one
    population of documents, folds may be dealt out to the two at random; the share of such deals
    with a difference ‖G_a − G_b‖ as large as observed is the p-value. For that folds must be of
    like size: neighbouring ones are joined, until those of both corpora hold about as many
    documents, and at most 20 in all.

    Args:
        a, b: counts in folds, of one length and one vocabulary.
        key: PRNG key of the permutations.
        dim: dimensions of the configurations that Procrustes and angles compare.
        permutations: deals at random, at least 1.

    Raises:
        ValueError: counts of different shapes or without folds, or traced ones, whose sizes cannot
            be looked at.

    >>> rng = np.random.default_rng(0)
    >>> one, other = (
    ...     count_tokens(rng.integers(0, 9, (800, 6)), vocab_size=9, folds=8) for _ in range(2))
    >>> found = compare_geometries(one, other, key=jax.random.key(0), dim=2, permutations=99)
    >>> bool(found.p_value > 0.05), found.folds
    (True, (8, 8))
    """
    shapes = [counts.tokens.shape for counts in (a, b)]
    if len(shapes[0]) != 3 or len(shapes[1]) != 3 or shapes[0][1:] != shapes[1][1:]:
        raise ValueError(
            f"counts have tokens of shape {shapes[0]} and {shapes[1]}: pass [folds, n, vocab] of "
            "one length and vocabulary"
        )
    if is_traced(*a, *b):
        raise ValueError("counts are compared eagerly: how folds are joined depends on their sizes")
    check_size("permutations", permutations, each=4)
    check_size("dim", dim)
    documents = [max(int(counts.documents), 1) for counts in (a, b)]
    folds, ratio = _joining(documents, [shape[0] for shape in shapes])
    fields = _compared(a.tokens, b.tokens, key, *folds, dim=dim, permutations=permutations)
    return GeometryComparison(*fields, folds=folds, size_ratio=ratio)


def _joining(documents: list[int], folds: list[int]) -> tuple[tuple[int, int], float]:
    """Number of folds to join each corpus into, and the ratio of their sizes."""
    divisors = [[k for k in range(2, of + 1) if of % k == 0] for of in folds]
    if not all(divisors):
        raise ValueError(f"counts have {folds} folds: pass at least 2 of each")

    def quality(pair: tuple[int, int]) -> tuple[float, int]:
        sizes = [number / k for number, k in zip(documents, pair, strict=True)]
        return round(max(sizes) / min(sizes), 1), -sum(pair)

    pairs = [(k_a, k_b) for k_a in divisors[0] for k_b in divisors[1]]
    best = min([pair for pair in pairs if sum(pair) <= _MOST_FOLDS] or pairs[:1], key=quality)
    sizes = [number / k for number, k in zip(documents, best, strict=True)]
    return best, max(sizes) / min(sizes)


@one_program
def _compared(
    a: Int[Array, "folds_a n vocab"],
    b: Int[Array, "folds_b n vocab"],
    key: Array,
    k_a: int,
    k_b: int,
    *,
    dim: int,
    permutations: int,
) -> tuple[Array, ...]:
    """The arrays of a `GeometryComparison`."""
    pooled = jnp.concatenate([_joined(a, k_a), _joined(b, k_b)])
    totals = jnp.sum(pooled, axis=2)
    present = jnp.all(totals > 0, axis=0)
    products = _products(jnp.where(present[:, None], pooled, 0), totals)
    labels = (jnp.arange(k_a + k_b) < k_a).astype(products.dtype)
    keys = jax.random.split(key, permutations)
    dealt = jax.vmap(lambda key: jax.random.permutation(key, labels))(keys)
    grams = jnp.stack([_gram(products, each, present) for each in (labels, 1.0 - labels)])
    size = safe_sqrt(_norm(grams[0]) * _norm(grams[1]))

    def difference(label: Array) -> Array:
        one, other = (_gram(products, each, present) for each in (label, 1.0 - label))
        return _norm(one - other)

    observed = difference(labels)
    null = jax.lax.map(difference, dealt)
    # The same sums in another order differ in their last digits.
    as_large = null >= observed * (1.0 - 100.0 * jnp.finfo(null.dtype).eps)
    p_value = (1.0 + jnp.sum(as_large.astype(null.dtype))) / (1.0 + permutations)
    P, Q = (principal_coordinates(gram, min(dim, len(gram)))[0] for gram in grams)
    residual = procrustes(P, Q, scale=True, present=present).residual
    scale = jnp.where(size > 0, size, jnp.nan)
    return observed / scale, p_value, null / scale, residual, principal_angles(P, Q), grams, present


def _joined(tokens: Array, folds: int) -> Array:
    """Neighbouring folds as one, as many as asked for."""
    parts = tokens.reshape(folds, -1, *tokens.shape[1:])
    return jnp.sum(parts, axis=1, dtype=tokens.dtype)


def _products(pooled: Int[Array, "m n vocab"], totals: Int[Array, "m n"]) -> Array:
    """S_i S_jᵀ of all pairs of folds, `[m, m, n, n]`, by blocks of words."""
    m, n, vocab = pooled.shape
    blocks = -(-vocab // _BLOCK)
    padded = jnp.pad(pooled, ((0, 0), (0, 0), (0, blocks * _BLOCK - vocab)))
    split = jnp.moveaxis(padded.reshape(m, n, blocks, _BLOCK), 2, 0)

    def add(sums: Array, block: Array) -> tuple[Array, None]:
        roots = jax.vmap(root_frequencies)(block, totals).reshape(m * n, _BLOCK)
        return sums + dot(roots, roots.T), None

    start = jnp.zeros((m * n, m * n), float)
    return jnp.moveaxis(jax.lax.scan(add, start, split)[0].reshape(m, n, m, n), 2, 1)


def _gram(products: Array, chosen: Array, present: Array) -> Array:
    """The mean of the products of different folds among those chosen, centred."""
    number = jnp.sum(chosen)
    weight = chosen[:, None] * chosen[None, :] * (1.0 - jnp.eye(len(chosen), dtype=chosen.dtype))
    mean = jnp.tensordot(weight / (number * (number - 1.0)), products, 2, precision="highest")
    return centre_rows(centre_rows((mean + mean.T) / 2.0, present).T, present)


def _norm(gram: Array) -> Array:
    return safe_sqrt(jnp.sum(gram**2))
