"""Tokens to counts: how often each token stands at each position.

All statistics start from counts. Counts add, so shards, machines and days merge with `+`. In folds
of documents, they suffice for split halves and resampling without the text.
"""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Int, Integer, UInt32

from jaxpe._core.arrays import ArrayLike, is_traced, namespace, sum_counts, tree_add
from jaxpe._core.errors import InputError
from jaxpe.geometry.checks import check_each, check_size

INT32_MAX = 2**31 - 1


class PositionCounts(NamedTuple):
    """Number of times that each token occurs at each position; a pytree that adds.

    Attributes:
        tokens: int32 `[n, vocab]`, or `[folds, n, vocab]` when documents are kept in folds.
        documents: int32 scalar, the documents counted (repeats included).
        dropped: int32 scalar, the tokens left out because their id is outside the vocabulary.
            Always 0 for counts made eagerly, where such an id is an error.

    `a + b` merges the counts of two disjoint sets of documents. A cell never exceeds `documents`,
    so int32 holds 2³¹ − 1 documents. No count wraps: larger counts raise `OverflowError`. Under
    `jit`, which cannot raise, sums stop at 2³¹ − 1 and further documents are not counted.
    """

    tokens: Int[Array, "*folds n vocab"]
    documents: Int[Array, ""]
    dropped: Int[Array, ""]

    __add__ = __radd__ = tree_add

    @property
    def per_position(self) -> Int[Array, "*folds n"]:
        """Documents with a counted token at each position (one token a document and position)."""
        return sum_counts(checked_tokens(self), -1, "tokens of a position")

    def merged(self) -> "PositionCounts":
        """Counts with the folds summed: tokens `[n, vocab]`."""
        if checked_tokens(self).ndim == 2:
            return self
        return self._replace(tokens=sum_counts(self.tokens, 0, "tokens of a cell in all folds"))


def checked_tokens(counts: PositionCounts) -> ArrayLike:
    """The table of tokens; raises unless it holds integers `[n, vocab]` or `[folds, n, vocab]`."""
    tokens = counts.tokens
    if tokens.ndim not in (2, 3) or not jnp.issubdtype(tokens.dtype, jnp.integer):
        raise ValueError(
            f"tokens are {tokens.dtype} of shape {tokens.shape}: pass integers [n, vocab] or "
            "[folds, n, vocab]"
        )
    return tokens


def count_tokens(
    ids: Integer[ArrayLike, "documents n"],
    *,
    vocab_size: int,
    mask: Bool[ArrayLike, "documents n"] | None = None,
    exclude: Sequence[int] = (),
    folds: int | None = None,
    groups: Integer[ArrayLike, " documents"] | None = None,
    repeats: Integer[ArrayLike, " documents"] | None = None,
) -> PositionCounts:
    """Count every token at every position.

    Args:
        ids: integer ids in `[0, vocab_size)`, one row a document.
        vocab_size: number of tokens in the vocabulary.
        mask: False where a document has no token (padding); all True when absent. Ids there are
            ignored, whatever they are. `pad_documents` makes both from ragged lists.
        exclude: ids of the vocabulary that are never counted, such as [CLS], [SEP] and [PAD].
        folds: keep counts apart in this many folds; each document falls into one by a hash of its
            content, so equal documents share a fold and the folds do not depend on order.
        groups: group of each document, used with `folds`: documents of one group (the same author,
            the same source) share a fold. Use it where documents are not independent.
        repeats: number of times that each document counts (a bootstrap resample), at least 0; once
            when absent.

    Ids outside the vocabulary in `exclude` raise `ValueError`. Eagerly, such ids in `ids` and
    negative repeats raise it too, and more than 2³¹ − 1 documents raise `OverflowError`. Under
    `jit` or `vmap`, where values cannot be read, such ids are left out and counted in `dropped`.
    Negative repeats are then 0, and further documents are left out.

    >>> counts = count_tokens(np.array([[0, 1], [0, 2]]), vocab_size=3)
    >>> counts.tokens.tolist()
    [[2, 0, 0], [0, 1, 1]]
    >>> (counts + counts).documents.item()
    4
    """
    if groups is not None and folds is None:
        raise ValueError("groups only decide the folds: pass folds too, such as folds=16")
    ids, mask = checked_ids(ids, mask, vocab_size, exclude)
    length = max(ids.shape[1], 1)
    check_size("vocab_size", vocab_size, each=length)
    if folds is not None:
        check_size("folds", folds, each=length * vocab_size)
    weight = _weights(len(ids), repeats)
    return _counted(ids, mask, weight, groups, vocab_size, tuple(exclude), folds)


@partial(jax.jit, static_argnames=("vocab_size", "exclude", "folds"))
def _counted(
    ids: Array, mask: Array, weight: Array, groups: Array | None, vocab_size, exclude, folds
) -> PositionCounts:
    """Counts of checked documents; with the tokens outside the vocabulary."""
    length = ids.shape[1]
    inside = (ids >= 0) & (ids < vocab_size)
    counted = counted_tokens(ids, mask, vocab_size, exclude)
    row, shape = jnp.arange(length, dtype=jnp.int32)[None, :], (length, vocab_size)
    if folds is not None:
        fold = fold_of_documents(ids, mask, folds=folds, groups=groups)
        row, shape = fold[:, None] * length + row, (folds, *shape)
    # One flat index is several times faster on CPU than a pair. Other tokens get an index past the
    # end, which mode="drop" ignores; a negative index would wrap.
    size = math.prod(shape)
    index = jnp.where(counted, row * vocab_size + ids.astype(jnp.int32), size)
    weights = jnp.broadcast_to(weight[:, None], ids.shape)
    tokens = jnp.zeros(size, jnp.int32).at[index].add(weights, mode="drop").reshape(shape)
    outside = jnp.where(mask & ~inside, weight[:, None], 0)
    dropped = sum_counts(outside, (0, 1), "dropped tokens")
    return PositionCounts(tokens, jnp.sum(weight, dtype=jnp.int32), dropped)


@partial(jax.jit, static_argnums=(2, 3), inline=True)
def counted_tokens(
    ids: Integer[ArrayLike, "documents n"],
    mask: Bool[ArrayLike, "documents n"],
    vocab_size: int,
    exclude: tuple[int, ...],
) -> Bool[Array, "documents n"]:
    """Mask of the counted tokens: of the vocabulary, and neither masked nor excluded."""
    ids = jnp.asarray(ids)
    return jnp.asarray(mask) & (ids >= 0) & (ids < vocab_size) & ~is_excluded(ids, exclude)


def _weights(documents: int, repeats) -> ArrayLike:
    """Weight of each document; traced ones are cut where int32 could not hold their sum."""
    if repeats is None:
        return np.ones(documents, np.int32)
    check_labels("repeats", repeats, documents)
    if is_traced(repeats):
        limits = (0, min(INT32_MAX, int(jnp.iinfo(repeats.dtype).max)))
        weight = jnp.clip(repeats, *(jnp.asarray(x, repeats.dtype) for x in limits))
        return _truncated_weights(weight.astype(jnp.uint32))
    values = np.asarray(repeats)
    if values.min(initial=0) < 0:
        raise ValueError(f"repeats must be at least 0; one is {values.min()}")
    total = sum(values.tolist())
    if total > INT32_MAX:
        raise OverflowError(
            f"{total} documents, repeats included, are more than int32 counts hold, "
            f"{INT32_MAX}: count in parts and keep them apart"
        )
    return values.astype(np.int32)


def _truncated_weights(weight: UInt32[Array, " documents"]) -> Int[Array, " documents"]:
    """Weights whose sum is at most 2³¹ − 1: the last ones are cut, then 0."""
    before = jnp.cumsum(weight, dtype=jnp.uint32) - weight
    most = np.uint32(INT32_MAX)
    # A sum passes `most` before it wraps around, since every weight is less than half of the range.
    full = lax.cummax((before > most).astype(jnp.int32)) > 0
    return jnp.where(full, 0, jnp.minimum(weight, most - before)).astype(jnp.int32)


def fold_of_documents(
    ids: Integer[ArrayLike, "documents n"],
    mask: Bool[ArrayLike, "documents n"] | None = None,
    *,
    folds: int,
    groups: Integer[ArrayLike, " documents"] | None = None,
) -> Int[Array, " documents"]:
    """The fold in `[0, folds)` of each document, from a hash of its content (or of its group).

    A multilinear hash over uint32 with the finaliser of MurmurHash3; equal documents share a fold.

    >>> fold_of_documents(np.array([[5, 7], [5, 7]]), folds=4).tolist()
    [1, 1]
    """
    return jnp.asarray(fold_of_labels(document_labels(ids, mask, groups), folds))


def fold_of_labels(
    labels: UInt32[ArrayLike, " documents"], folds: int
) -> Int[ArrayLike, " documents"]:
    """The fold of each label, by the finaliser of MurmurHash3; on the host unless traced."""
    check_size("folds", folds)
    hashed = labels
    for shift, multiplier in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        hashed = (hashed ^ (hashed >> np.uint32(shift))) * np.uint32(multiplier)
    return (hashed % np.uint32(folds)).astype(jnp.int32)


def content_labels(
    ids: Integer[ArrayLike, "documents n"], mask: Bool[ArrayLike, "documents n"] | None = None
) -> UInt32[Array, " documents"]:
    """A hash of each document's content, equal for equal documents: labels for `groups`.

    >>> labels = content_labels(np.array([[5, 7], [5, 7], [7, 5]]))
    >>> bool(labels[0] == labels[1]), bool(labels[0] == labels[2])
    (True, False)
    """
    return jnp.asarray(document_labels(ids, mask, None))


def document_labels(ids, mask, groups) -> UInt32[ArrayLike, " documents"]:
    """Labels of the documents: their groups, else their content; on the host unless traced.

    Numbers of documents differ between corpora, so JAX would compile these sums for each.
    """
    xp = namespace(ids, mask, groups)
    if groups is not None:
        check_labels("groups", groups, len(ids))
        return xp.asarray(groups).astype(np.uint32) * np.uint32(0x9E3779B1)
    ids, mask = ids_and_mask(ids, mask)
    rng = np.random.default_rng(0x6A617870)
    odd = rng.integers(0, 2**31, ids.shape[1], dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    words = xp.where(mask, xp.asarray(ids).astype(np.uint32) + np.uint32(1), np.uint32(0))
    return xp.sum(words * odd[None, :], axis=1, dtype=np.uint32)


def pad_documents(
    documents: Sequence[Sequence[int]], *, length: int | None = None
) -> tuple[Int[np.ndarray, "documents n"], Bool[np.ndarray, "documents n"]]:
    """Ragged lists of ids as one padded array and its mask, cut at `length` (default: longest).

    >>> ids, mask = pad_documents([[4, 2], [7]])
    >>> ids.tolist(), mask.tolist()
    ([[4, 2], [7, 0]], [[True, True], [True, False]])
    """
    if not len(documents):
        raise ValueError("no documents: pass at least one list of ids")
    rows = [np.asarray(each, None if len(each) else int) for each in documents]
    for number, row in enumerate(rows):
        if row.ndim != 1 or not np.issubdtype(row.dtype, np.integer):
            raise ValueError(
                f"document {number} is {row.dtype} of shape {row.shape}: pass a flat list of ints"
            )
    length = max(map(len, rows)) if length is None else length
    check_size("length", length, least=0, each=4 * len(rows))
    sizes = np.minimum([len(row) for row in rows], length)
    mask = np.arange(length)[None, :] < sizes[:, None]
    ids = np.zeros(mask.shape, np.int32)
    ids[mask] = np.concatenate([row[:length] for row in rows])
    return ids, mask


class StackedCorpora(NamedTuple):
    """Corpora of different sizes in arrays of one shape, for `jax.vmap`.

    Attributes:
        ids: int32 `[corpora, documents, n]`, 0 where there is no token.
        mask: mask, where there is one.
        repeats: int32 `[corpora, documents]`, 1 for a document and 0 for what fills up; with it
            `count_tokens` counts the documents of each corpus alone.
    """

    ids: Int[np.ndarray, "corpora documents n"]
    mask: Bool[np.ndarray, "corpora documents n"]
    repeats: Int[np.ndarray, "corpora documents"]


def stack_corpora(
    corpora: Sequence[tuple[Integer[ArrayLike, "..."], Bool[ArrayLike, "..."] | None]],
) -> StackedCorpora:
    """Corpora of different sizes, padded to the largest and stacked.

    Args:
        corpora: pairs of ids `[documents, n]` and a mask of their shape, or None.

    Raises:
        ValueError: no corpus, ids that are no matrix of integers, or a mask of another shape.

    >>> stacked = stack_corpora([
    ...     (np.array([[1, 2], [2, 2]]), None), (np.array([[0, 1, 1]]), None)])
    >>> count = lambda ids, mask, repeats: count_tokens(
    ...     ids, vocab_size=3, mask=mask, repeats=repeats)
    >>> counts = jax.vmap(count)(*stacked)
    >>> counts.documents.tolist(), counts.tokens.shape
    ([2, 1], (2, 3, 3))
    """
    if not len(corpora):
        raise ValueError("no corpora: pass at least one pair of ids and a mask")
    pairs = [tuple(map(np.asarray, ids_and_mask(*corpus))) for corpus in corpora]
    largest = np.max([ids.shape for ids, _ in pairs], axis=0)

    def stacked(arrays: Iterable[np.ndarray]) -> np.ndarray:
        filled = [
            np.pad(x, [(0, m - k) for m, k in zip(largest, x.shape, strict=False)]) for x in arrays
        ]
        return np.stack(filled)

    return StackedCorpora(
        stacked(np.where(mask, ids, 0).astype(np.int32) for ids, mask in pairs),
        stacked(mask for _, mask in pairs),
        stacked(np.ones(len(ids), np.int32) for ids, _ in pairs),
    )


def regroup_folds(counts: PositionCounts, *, folds: int) -> PositionCounts:
    """Counts in fewer folds: fold f is added to fold f modulo their number.

    Raises:
        ValueError: counts whose number of folds is no multiple of `folds`.

    >>> counts = count_tokens(np.zeros((5, 2), int), vocab_size=3, folds=8)
    >>> regroup_folds(counts, folds=4).tokens.shape
    (4, 2, 3)
    """
    tokens = counts.tokens
    check_size("folds", folds)
    if tokens.ndim != 3 or tokens.shape[0] % folds:
        raise ValueError(f"counts have shape {tokens.shape}: pass a divisor of their folds")
    parts = tokens.reshape(tokens.shape[0] // folds, folds, *tokens.shape[1:])
    return counts._replace(tokens=sum_counts(parts, 0, "tokens of a cell"))


def checked_ids(
    ids, mask, vocab_size: int, exclude: Sequence[int] = ()
) -> tuple[ArrayLike, ArrayLike]:
    """Ids and mask as arrays of one shape; raises for ids or masks that cannot be meant."""
    check_size("vocab_size", vocab_size)
    beyond = [token for token in exclude if not 0 <= token < vocab_size]
    if beyond:
        raise InputError(
            f"`exclude` holds {beyond[0]}, outside [0, {vocab_size}): pass ids of the vocabulary, "
            "or none"
        )
    ids, mask = ids_and_mask(ids, mask)
    values = None if is_traced(ids, mask) else np.asarray(ids)
    # Two passes without a temporary array settle the common case of valid ids.
    if values is not None and values.size and not (values.min() >= 0 and values.max() < vocab_size):
        bad = np.argwhere(((values < 0) | (values >= vocab_size)) & np.asarray(mask))
        if len(bad):
            raise ValueError(
                f"id {values[tuple(bad[0])]} at document {bad[0][0]}, position {bad[0][1]} is "
                f"outside [0, {vocab_size}): raise vocab_size, or mask padding with mask=False"
            )
    # Host arrays stay on the host: the jitted functions that follow transfer them.
    return _wide_ids(ids), mask


def ids_and_mask(ids, mask) -> tuple[ArrayLike, ArrayLike]:
    """Integers `[documents, n]` and booleans of that shape, all True for None."""
    if isinstance(ids, list | tuple):
        try:
            ids = np.asarray(ids)
        except ValueError as error:
            raise ValueError(
                "documents of different lengths: pass pad_documents(documents) as ids and mask"
            ) from error
    if not jnp.issubdtype(ids.dtype, jnp.integer) or ids.ndim != 2:
        raise ValueError(f"ids are {ids.dtype} {ids.shape}: pass integers [documents, n]")
    if ids.shape[0] > INT32_MAX:
        raise OverflowError(f"more than {INT32_MAX} documents: count in parts and add")
    mask = np.ones(ids.shape, bool) if mask is None else mask
    mask = np.asarray(mask) if isinstance(mask, list | tuple) else mask
    if mask.dtype != bool or mask.shape != ids.shape:
        raise ValueError(f"mask is {mask.dtype} {mask.shape}: pass bool of shape {ids.shape}")
    return ids, mask


def check_labels(name: str, values: ArrayLike, documents: int) -> None:
    """Raise unless there is an integer for each document."""
    values = values if hasattr(values, "dtype") else np.asarray(values)
    check_each(name, values, documents, "documents", kind=jnp.integer)


def _wide_ids(ids: ArrayLike) -> ArrayLike:
    """Ids of at least 32 bits: in uint8 a vocabulary of 256 would wrap to 0."""
    return ids.astype(jnp.int32) if jnp.iinfo(ids.dtype).bits < 32 else ids


def is_excluded(ids: ArrayLike, exclude: Sequence[int]) -> Array:
    """Mask of the ids that are among a few excluded ones."""
    ids = jnp.asarray(_wide_ids(ids))
    limits = jnp.iinfo(ids.dtype)  # exclusions beyond them match no id
    among = [token for token in exclude if limits.min <= token <= limits.max]
    return jnp.isin(ids, jnp.asarray(among, ids.dtype))
