"""Rotated documents: the null hypothesis that position has no effect.

A null conditions on what it must not explain: lengths, what ends a document, and how neighbours
depend. Shuffles and blocks of tokens were tried as well (`experiments/beyond/position_truth.py`).
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Integer, UInt32

from jaxpe._core.arrays import ArrayLike, rounded_size
from jaxpe.geometry.checks import check_each
from jaxpe.geometry.counts.position_counts import document_labels, ids_and_mask, is_excluded


def rotate_within_documents(
    key: Array,
    ids: Integer[ArrayLike, "documents n"],
    mask: Bool[ArrayLike, "documents n"] | None = None,
    *,
    exclude: Sequence[int] = (),
    groups: Integer[ArrayLike, " documents"] | None = None,
    ended: Bool[ArrayLike, " documents"] | None = None,
) -> Integer[Array, "documents n"]:
    """Rotate each document's counted tokens by a random offset; its last token stays.

    This draws from the null hypothesis "given its length and its last token, a document is
    stationary": position tells nothing about the other tokens. The last token stays because it may
    be what ended the document, as a full stop ends a sentence. Tokens keep their neighbours, so a
    null corpus varies as much as the documents do. A shuffle has the same mean, but of tokens that
    repeat the one before with probability 0.5 it finds dimensions of position in 15 % of corpora
    without any, a rotation in 3 % (`experiments/beyond/position_truth.py`). Masked and excluded
    tokens stay. Copies of a document, and documents of a group, have one offset, as a share of
    their length: ten copies are one piece of evidence before and after.

    Args:
        key: PRNG key of the offsets.
        ids, mask, exclude, groups: arguments of `count_tokens`.
        ended: documents that end with their last token. Default: those with no token in the last
            column; a row that fills all columns counts as cut, and its last token moves.

    >>> key = jax.random.key(0)
    >>> rotate_within_documents(key, np.array([[3, 1, 2]])).tolist()
    [[1, 2, 3]]
    >>> rotate_within_documents(key, np.array([[3, 1, 2, 9]]), ended=np.array([True])).tolist()
    [[2, 3, 1, 9]]
    """
    ids, mask = ids_and_mask(ids, mask)
    counted = jnp.asarray(mask) & ~is_excluded(ids, exclude)
    moves = moving_tokens(counted, ended_documents(mask, ended))
    source = rotated_positions(key, moves, document_labels(ids, mask, groups))
    return jnp.take_along_axis(jnp.asarray(ids), source, axis=1)


def ended_documents(
    mask: Bool[ArrayLike, "documents n"], ended: Bool[ArrayLike, " documents"] | None = None
) -> Bool[ArrayLike, " documents"]:
    """Documents that end with their last token: by default, those that do not fill their row."""
    if ended is None:
        return ~mask[:, -1] if mask.shape[1] else np.ones(len(mask), bool)
    check_each("ended", ended, len(mask), "documents")
    return ended


@jax.jit
def moving_tokens(
    counted: Bool[Array, "documents n"], ended: Bool[ArrayLike, " documents"]
) -> Bool[Array, "documents n"]:
    """Counted tokens without the last one of each document that ended."""
    later = jnp.cumsum(counted[:, ::-1], axis=1, dtype=jnp.int32)[:, ::-1]
    return counted & ((later > 1) | ~jnp.asarray(ended)[:, None])


@jax.jit
def rotated_positions(
    key: Array, moves: Bool[Array, "documents n"], labels: UInt32[Array, " documents"]
) -> Int[Array, "documents n"]:
    """Position that each token of a rotated document comes from."""
    n = moves.shape[1]
    number = jnp.sum(moves, axis=1, dtype=jnp.int32)
    share = _shares(key, labels)
    offset = jnp.floor(share * number.astype(share.dtype)).astype(jnp.int32)
    column = jnp.broadcast_to(jnp.arange(n, dtype=jnp.int32), moves.shape)
    rank = jnp.cumsum(moves, axis=1, dtype=jnp.int32) - 1
    row = jnp.arange(len(moves), dtype=jnp.int32)[:, None]
    place = jnp.where(moves, rank, n)  # n lies outside, and is dropped
    of_rank = jnp.zeros(moves.shape, jnp.int32).at[row, place].set(column, mode="drop")
    turned = (rank - offset[:, None]) % jnp.maximum(number, 1)[:, None]
    return jnp.where(moves, jnp.take_along_axis(of_rank, turned, axis=1), column)


@jax.jit
def _shares(key: Array, labels: UInt32[Array, " documents"]) -> Float[Array, " documents"]:
    """Offset of each document as a share of its length, in [0, 1)."""
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, labels)
    return jax.vmap(lambda k: jax.random.uniform(k, (), jnp.float32))(keys)


def rotation_shares(key: Array, labels: UInt32[np.ndarray, " documents"]) -> np.ndarray:
    """Offsets that `rotate_within_documents` draws, as shares of the lengths, on the host."""
    padded = np.pad(labels, (0, rounded_size(len(labels)) - len(labels)))  # few compiled programs
    return np.asarray(_shares(key, padded))[: len(labels)]
