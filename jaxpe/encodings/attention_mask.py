"""Masks of attention that are made of numbers of single tokens, not of pairs."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings.base import Encoding, Params, as_mask, expand_rank


class AttentionMask(NamedTuple):
    """Keys that a query may attend to, from numbers of single tokens: memory n, not n².

    A query attends to a valid key of its segment whose order is at most its own. A field that is
    None excludes nothing.

    Attributes:
        q_order, k_order: `[..., n_q]` and `[..., n_k]`, such as indices in a row: causality.
        q_segments, k_segments: documents of packed rows, and chunks.
        k_valid: `[..., n_k]`, false on padding and on unused slots of a cache.

    >>> i = jnp.arange(3)
    >>> AttentionMask(q_order=i, k_order=i).pairs()[0].astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """

    q_order: Int[ArrayLike, "... n_q"] | None = None
    k_order: Int[ArrayLike, "... n_k"] | None = None
    q_segments: Int[ArrayLike, "... n_q"] | None = None
    k_segments: Int[ArrayLike, "... n_k"] | None = None
    k_valid: Bool[ArrayLike, "... n_k"] | None = None

    def pairs(self) -> Bool[Array, "... 1 n_q n_k"] | None:
        """The mask of every pair, true where a query may attend; None for all."""

        def rows(x: ArrayLike) -> Array:
            return jnp.asarray(x)[..., None, :, None]

        def columns(x: ArrayLike) -> Array:
            return jnp.asarray(x)[..., None, None, :]

        parts = []
        if self.q_order is not None and self.k_order is not None:
            parts.append((rows(self.q_order), columns(self.k_order), jnp.greater_equal))
        if self.q_segments is not None and self.k_segments is not None:
            parts.append((rows(self.q_segments), columns(self.k_segments), jnp.equal))
        tests = [compare(*_one_rank(a, b)) for a, b, compare in parts]
        if self.k_valid is not None:
            tests.append(columns(as_mask(self.k_valid)))
        return combined_masks(*tests)


# True where a query may attend: an array of pairs, numbers of single tokens, or a function of the
# positions of queries `[..., n_q, 1]` and keys `[..., 1, n_k]`.
Mask = ArrayLike | AttentionMask | Callable[[Array, Array], Array]


def split_mask(mask: AttentionMask) -> tuple[AttentionMask, AttentionMask]:
    """The numbers of queries, and the numbers of keys."""
    return (
        mask._replace(k_order=None, k_segments=None, k_valid=None),
        mask._replace(q_order=None, q_segments=None),
    )


def joined_mask(queries: AttentionMask, keys: AttentionMask) -> AttentionMask:
    """The mask of numbers of queries and numbers of keys.

    >>> mask = AttentionMask(q_order=jnp.arange(2), k_order=jnp.arange(3))
    >>> joined_mask(*split_mask(mask)).pairs().shape
    (1, 2, 3)
    """
    fields = zip(queries, keys, strict=True)
    return AttentionMask(*(k if q is None else q for q, k in fields))


def combined_masks(*masks: Array | None) -> Array | None:
    """Pairs that all masks allow, each an array `[..., n_q, n_k]` or None for all pairs.

    >>> combined_masks(None, None) is None
    True
    """
    result = None
    for mask in masks:
        if mask is not None:
            result = mask if result is None else jnp.logical_and(*_one_rank(result, mask))
    return result


def encoded_mask(
    encoding: Encoding,
    params: Params,
    q: Float[ArrayLike, "... n_q heads width"],
    k: Float[ArrayLike, "... n_k groups width"],
    mask: Mask | None = None,
    *,
    q_positions: ArrayLike,
    k_positions: ArrayLike,
) -> Bool[Array, "..."] | None:
    """Mask of the keys that a query may attend to, by `mask` and by the encoding; None for all.

    Arguments as in `attend`.

    >>> x, i = jnp.zeros((2, 1, 2)), jnp.arange(2)
    >>> positions = {"q_positions": i, "k_positions": i}
    >>> mask = encoded_mask(Encoding(), (), x, x, lambda i, j: j <= i, **positions)
    >>> mask[0].astype(int).tolist()
    [[1, 0], [1, 1]]
    """
    if isinstance(mask, AttentionMask):
        mask = mask.pairs()
    elif callable(mask):
        i, j = jnp.asarray(q_positions), jnp.asarray(k_positions)
        mask = mask(*_one_rank(i[..., None, :, None], j[..., None, None, :]))
    mask = None if mask is None else as_mask(mask)
    return combined_masks(mask, encoding.mask(params, q, k, q_positions, k_positions))


def _one_rank(a: Array, b: Array) -> tuple[Array, Array]:
    ndim = max(a.ndim, b.ndim)
    return expand_rank(a, ndim), expand_rank(b, ndim)
