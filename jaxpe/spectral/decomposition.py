"""Logit decomposition: attention logits as sums over content and position, and over rotary pairs.

Shapes as in `jaxpe.encodings.base`: queries and keys `[..., n, heads, head_dim]`, logits
`[..., heads, n_q, n_k]`.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from jaxpe._core.arrays import ArrayLike, tree_add
from jaxpe.encodings.attention_terms import Keys, Queries
from jaxpe.encodings.base import (
    Encoding,
    Params,
    as_mask,
    centered_positions,
    check_inner_products,
    check_queries_and_keys,
    compute_dtype,
    expand_rank,
    repeat_heads,
)
from jaxpe.encodings.families.rotary import Layout, rotary_permutation
from jaxpe.geometry.distances.toeplitz import unexplained_share
from jaxpe.spectral.toeplitz import diagonal_means, square, toeplitz_matrix


class LogitParts(NamedTuple):
    """Logits of queries and keys that are content plus position, term by term.

    The first half of a name is the query's part, the second the key's: content_position is
    scale·⟨content of the query, position of the key⟩. The bias is the encoding's bias for whole
    queries and keys; it may depend on content.

    Attributes:
        content_content: content of the query with content of the key.
        content_position: content of the query with position of the key.
        position_content: position of the query with content of the key.
        position_position: position of the query with position of the key.
        bias: bias of the encoding.
    """

    content_content: Float[Array, "... heads n_q n_k"]
    content_position: Float[Array, "... heads n_q n_k"]
    position_content: Float[Array, "... heads n_q n_k"]
    position_position: Float[Array, "... heads n_q n_k"]
    bias: Float[Array, "... heads n_q n_k"]

    @property
    def total(self) -> Float[Array, "... heads n_q n_k"]:
        """The logits: the sum of the parts."""
        first, *others = map(jnp.asarray, self)
        return sum(others, start=first)


class PairLogits(NamedTuple):
    """Logits of encoded queries and keys, pair by pair.

    Attributes:
        logits: scale·(q_x k_x + q_y k_y) of each pair.
        rest: scale·⟨q, k⟩ over the entries in no pair.
        bias: logits that the encoding adds.
    """

    logits: Float[Array, "... heads pairs n_q n_k"]
    rest: Float[Array, "... heads n_q n_k"]
    bias: Float[Array, "... heads n_q n_k"]

    @property
    def total(self) -> Float[Array, "... heads n_q n_k"]:
        """The logits: the sum over pairs, the rest and the bias."""
        return jnp.sum(self.logits, axis=-3) + self.rest + self.bias


class PartMeans(NamedTuple):
    """Averages over documents; 0 at pairs (i, j) that no document has.

    Attributes:
        parts, squares: mean and mean square of each part.
        total_squares: mean square of the logits.
        counts: documents that have both tokens; means are 0 where it is 0.
    """

    parts: LogitParts
    squares: LogitParts
    total_squares: Float[Array, "... heads n n"]
    counts: Int[Array, "... n n"]


class PartSums(NamedTuple):
    """Sums over documents, a pytree that adds: `a + b` merges sums of disjoint documents.

    Sums keep the dtype of the logits. In float32 the relative error of a mean grows with the number
    of batches added, by about 10⁻⁷ for each at worst.

    Attributes:
        parts, squares: sum, and sum of squares, of each part.
        total_squares: sum of squares of the logits.
        counts: int32, documents with a token at both positions; larger numbers raise
            `OverflowError` where sums are added eagerly, and stop at 2³¹ − 1 under `jit`.
    """

    parts: LogitParts
    squares: LogitParts
    total_squares: Float[Array, "... heads n n"]
    counts: Int[Array, "... n n"]

    __add__ = __radd__ = tree_add

    def means(self) -> PartMeans:
        """The averages."""
        documents = jnp.maximum(self.counts, 1)[..., None, :, :]

        def mean(sums):
            return jax.tree.map(lambda x: x / documents.astype(x.dtype), sums)

        parts, squares, total = mean(self.parts), mean(self.squares), mean(self.total_squares)
        return PartMeans(parts, squares, total, self.counts)


class ToeplitzShares(NamedTuple):
    """Share of each part in the logits, and its Toeplitz residual.

    The parts are not orthogonal, so shares need not add up to 1. All are means with equal weights
    over the pairs (i, j) that any document has. A part also varies around its mean over documents,
    so `mean_share` is at most `share`.

    Attributes:
        share: mean square of each part over the mean square of the logits, `[..., heads]`.
        mean_share: share of the part's mean over documents, likewise.
        residual: share of this mean that no Toeplitz matrix explains, in [0, 1]. All are 0 where
            they would be 0/0.
    """

    share: LogitParts
    mean_share: LogitParts
    residual: LogitParts


def logit_parts(
    encoding: Encoding,
    params: Params,
    q_content: Queries,
    q_position: Queries,
    k_content: Keys,
    k_position: Keys,
    *,
    q_positions: ArrayLike,
    k_positions: ArrayLike,
    scale: float | ArrayLike | None = None,
) -> LogitParts:
    """Logits of queries and keys that are content plus position, term by term.

    The sum is `attention_logits` of q_content + q_position and k_content + k_position, for any
    encoding. The part of position is hook(whole) − hook(content), which for a linear hook, such as
    a rotary one, is hook(position). Products are at the highest precision, in float32 or wider.

    Args:
        encoding, params: encoding and parameters whose hooks `query`, `key` and `bias` act.
        q_content: content part of the queries `[..., n_q, heads, head_dim]`, unencoded.
        k_content: keys; query heads share them evenly where there are fewer.
        q_position, k_position: position parts of queries and keys.
        q_positions, k_positions: `[..., n_q]`, or `[..., n_q, coordinates]`; the same for keys.
        scale: scale of the products, 1/√head_dim when None.

    Raises:
        ValueError: content and position of different shapes.

    >>> one = jnp.ones((1, 1, 1))
    >>> i = jnp.arange(1)
    >>> parts = logit_parts(Encoding(), (), one, 2 * one, 3 * one, one,
    ...                     q_positions=i, k_positions=i)
    >>> [part.item() for part in parts], parts.total.item()
    ([3.0, 1.0, 6.0, 2.0, 0.0], 12.0)
    """
    check_inner_products(encoding)
    i, j = centered_positions(encoding, q_positions, k_positions)
    check_queries_and_keys(jnp.asarray(q_content), jnp.asarray(k_content))
    q, *q_parts = _encoded_parts(encoding.query, params, "q", q_content, q_position, i)
    k, *k_parts = _encoded_parts(encoding.key, params, "k", k_content, k_position, j)
    k_parts = [repeat_heads(part, q.shape[-2]) for part in k_parts]
    scale = _scale(scale, q, jnp.shape(q_content)[-1])
    bias = encoding.bias(params, q, k, q_positions, k_positions)
    cc, cp, pc, pp = (scale * _products(a, b) for a in q_parts for b in k_parts)
    return LogitParts(cc, cp, pc, pp, _full_bias(bias, cc))


def pair_logits(
    encoding: Encoding,
    params: Params,
    q: Queries,
    k: Keys,
    *,
    q_positions: ArrayLike,
    k_positions: ArrayLike,
    layout: Layout = "half",
    rotary_dim: int | None = None,
    scale: float | ArrayLike | None = None,
) -> PairLogits:
    """Logits pair by pair: the contribution of each pair of entries, under any rotary encoding.

    The sum is `attention_logits`. The hooks encode queries and keys before they are split.

    Args:
        encoding, params: encoding and parameters whose hooks act.
        q: queries, unencoded.
        k: keys; query heads share them evenly where there are fewer.
        q_positions, k_positions: `[..., n_q]`, or `[..., n_q, coordinates]`; the same for keys.
        layout: pairing of the entries, as in the encoding.
        rotary_dim: leading entries that are paired, even; all when None.
        scale: 1/√head_dim when None.

    >>> x, i = jnp.ones((2, 1, 4)), jnp.arange(2)
    >>> parts = pair_logits(Encoding(), (), x, x, q_positions=i, k_positions=i)
    >>> parts.logits[0, :, 0, 1].tolist(), parts.total[0, 0, 1].item()
    ([1.0, 1.0], 2.0)
    """
    q, k = _wide_heads(q), _wide_heads(k)
    check_queries_and_keys(q, k)
    check_inner_products(encoding)
    i, j = centered_positions(encoding, q_positions, k_positions)
    width = q.shape[-1]
    q, k = encoding.query(params, q, i), encoding.key(params, k, j)
    scale = _scale(scale, q, width)
    products, rest = _pair_products(q, k, q.shape[-1] if rotary_dim is None else rotary_dim, layout)
    bias = encoding.bias(params, q, k, q_positions, k_positions)
    return PairLogits(scale * products, scale * rest, _full_bias(bias, rest))


@partial(jax.jit, static_argnames="causal")
def sum_parts(
    parts: LogitParts, mask: Bool[ArrayLike, "... n"] | None = None, *, causal: bool = False
) -> PartSums:
    """Sums of the parts of self-attention logits over documents, for each pair of positions.

    All axes before the heads are documents. Layers are summed apart under `vmap`.

    Args:
        parts: result of `logit_parts`, n_q = n_k.
        mask: true at tokens, `[..., n]`, broadcasting against the documents; all when None. Logits
            elsewhere, even NaN, are never read.
        causal: whether pairs with j > i are left out.

    Raises:
        ValueError: logits that are not square, parts of different shapes, or a mask that does not
            fit or is not boolean.

    >>> x, i = jnp.ones((3, 2, 1, 1)), jnp.arange(2)
    >>> parts = logit_parts(Encoding(), (), x, x, x, x, q_positions=i, k_positions=i)
    >>> sums = sum_parts(parts, np.array([[True, True], [True, False], [True, True]]))
    >>> sums.counts.tolist(), sums.means().parts.total[0].tolist()
    ([[3, 2], [2, 2]], [[4.0, 4.0], [4.0, 4.0]])
    """
    *documents, _heads, _, n = square(parts.content_content).shape
    shapes = [jnp.shape(part) for part in parts]
    if len(set(shapes)) > 1:
        raise ValueError(f"parts have shapes {shapes}: pass results of one `logit_parts`")
    mask = jnp.ones(n, bool) if mask is None else as_mask(mask)
    mask = jnp.broadcast_to(mask, (*documents, n))
    valid_pairs = mask[..., :, None] & mask[..., None, :]
    if causal:
        valid_pairs &= expand_rank(jnp.tri(n, dtype=bool), valid_pairs.ndim)
    axes = tuple(range(len(documents)))

    def clear(x):  # before squaring, or numbers that are not finite return through derivatives
        return jnp.where(valid_pairs[..., None, :, :], x, jnp.zeros((), x.dtype))

    parts = jax.tree.map(clear, parts)
    return PartSums(
        parts=jax.tree.map(lambda x: jnp.sum(x, axis=axes), parts),
        squares=jax.tree.map(lambda x: jnp.sum(x**2, axis=axes), parts),
        total_squares=jnp.sum(parts.total**2, axis=axes),
        counts=jnp.sum(valid_pairs, axis=axes, dtype=jnp.int32),
    )


@jax.jit
def toeplitz_shares(means: PartMeans) -> ToeplitzShares:
    """Share of each part in the mean squared logits of each head, and its Toeplitz residual.

    Pairs that no document has are left out. A constant added to a row of logits counts, although
    softmax ignores it.

    Args:
        means: averages over documents, `sum_parts(...).means()`.

    >>> x, i = jnp.ones((1, 3, 1, 1)), jnp.arange(3)
    >>> parts = logit_parts(Encoding(), (), x, 0 * x, x, 0 * x, q_positions=i, k_positions=i)
    >>> shares = toeplitz_shares(sum_parts(parts).means())
    >>> shares.share.content_content.tolist(), shares.residual.content_content.tolist()
    ([1.0], [0.0])
    """
    valid_pairs = jnp.broadcast_to((means.counts > 0)[..., None, :, :], means.total_squares.shape)
    size = jnp.sum(means.total_squares, axis=(-2, -1))

    def share(squares):
        return jnp.sum(squares, axis=(-2, -1)) / jnp.where(size == 0, 1.0, size)

    def residual(mean):
        nearest = toeplitz_matrix(diagonal_means(mean, mask=valid_pairs))
        nearest = jnp.where(valid_pairs, nearest, jnp.zeros((), nearest.dtype))
        return jnp.vectorize(unexplained_share, signature="(n,n),(n,n)->()")(mean, nearest)

    return ToeplitzShares(
        jax.tree.map(share, means.squares),
        jax.tree.map(lambda mean: share(mean**2), means.parts),
        jax.tree.map(residual, means.parts),
    )


def _encoded_parts(
    hook: Callable[[Params, ArrayLike, ArrayLike], Array],
    params: Params,
    name: str,
    content: ArrayLike,
    position: ArrayLike,
    positions: ArrayLike,
) -> tuple[Array, Array, Array]:
    """The encoded whole, its part of content, and its part of position."""
    if jnp.shape(content) != jnp.shape(position):
        raise ValueError(
            f"{name}_content has shape {jnp.shape(content)}, {name}_position "
            f"{jnp.shape(position)}: pass both [..., n, heads, head_dim]"
        )
    content, position = _wide_heads(content), _wide_heads(position)
    encoded = hook(params, content + position, positions)
    alone = hook(params, content, positions)
    return encoded, alone, encoded - alone


def _wide_heads(x: ArrayLike) -> Array:
    """Queries or keys in float32 or wider."""
    x = jnp.asarray(x)
    if x.ndim < 3 or not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            f"queries and keys are floats [..., n, heads, head_dim], not {x.dtype} of {x.shape}"
        )
    return x.astype(compute_dtype(x))


def _scale(scale: float | ArrayLike | None, q: Array, width: int) -> Array:
    """The scale in the dtype of q; when None, 1/√head_dim of the unencoded heads."""
    return jnp.asarray(width**-0.5 if scale is None else scale, q.dtype)


def _products(q: Array, k: Array) -> Float[Array, "... heads n_q n_k"]:
    return jnp.einsum("...qhd,...khd->...hqk", q, k, precision="highest")


def _full_bias(bias: Array | None, logits: Array) -> Float[Array, "... heads n_q n_k"]:
    """The bias in the shape of the logits; 0 without a bias."""
    if bias is None:
        return jnp.zeros_like(logits)
    return jnp.broadcast_to(expand_rank(bias, logits.ndim, logits.dtype), logits.shape)


def _pair_products(q: Array, k: Array, rotary_dim: int, layout: Layout) -> tuple[Array, Array]:
    """Products of each pair of entries, and of the entries in no pair."""
    order = rotary_permutation(
        rotary_dim=rotary_dim, source=layout, target="half", head_dim=q.shape[-1]
    )
    half = rotary_dim // 2
    q, k = (jnp.take(x, order, axis=-1) for x in (q, repeat_heads(k, q.shape[-2])))

    def pairs(x: Array) -> Array:
        return jnp.stack([x[..., :half], x[..., half:rotary_dim]], axis=-1)

    products = jnp.einsum("...qhpc,...khpc->...hpqk", pairs(q), pairs(k), precision="highest")
    return products, _products(q[..., rotary_dim:], k[..., rotary_dim:])
