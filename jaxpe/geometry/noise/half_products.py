"""Products of the roots of disjoint halves, of tables in JAX and of token lists on the host."""

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from jaxpe._core.arrays import ArrayLike, dot, is_traced
from jaxpe.geometry.counts.position_counts import PositionCounts
from jaxpe.geometry.counts.token_lists import TokenLists, listed_counts
from jaxpe.geometry.distances.matrices import centre_rows

DEFAULT_FOLDS = 16

FoldedCounts = PositionCounts | TokenLists

# Words with at most an eighth as many tokens as positions are multiplied as sparse rows. On a CPU
# this was fastest at 128 positions (16 to 30 tokens) and at 256 (30), with 28 four to six were.
_RARE = 1 / 8
_CELLS = 2**20  # cells of a dense table in folds; larger blocks fall out of the processor's cache
_ROOTS = 2**22  # roots of sparse rows at a time


def fold_count(counts: FoldedCounts) -> int:
    """Number of folds that counts are kept in; raises for fewer than two, or no positions."""
    listed = isinstance(counts, TokenLists)
    shape, axes = (counts.per_position.shape, 2) if listed else (counts.tokens.shape, 3)
    if len(shape) != axes or shape[0] < 2 or not shape[1]:
        raise ValueError(
            f"counts have shape {shape}: split halves need at least two folds and "
            f"one position; pass count_tokens(..., folds={DEFAULT_FOLDS})"
        )
    return shape[0]


def half_products(
    counts: FoldedCounts, parts: Int[ArrayLike, "samples halvings folds"]
) -> tuple[Float[ArrayLike, "samples n n"], Bool[ArrayLike, "samples n"]]:
    """Noise-corrected products (S_A S_Bᵀ + S_B S_Aᵀ)/2, averaged over the halvings of each sample.

    Centring removes any vector that is subtracted from all rows of S. Subtracting the mean of the
    positions keeps products small, so float32 loses fewer digits. Concrete counts are listed, and
    multiplied on the host; of traced ones the whole table is.

    Args:
        counts: counts in folds.
        parts: 0 for the folds of one half, 1 for the other; other folds are left out.

    Returns:
        The products, and the positions with a token in both halves of every halving.
    """
    halvings = parts.shape[1]
    if is_traced(parts, *jax.tree.leaves(counts)):
        if isinstance(counts, TokenLists):
            raise ValueError("token lists are on the host: inside jit pass count_tokens(ids, ...)")
        products, present = _table_products(counts, jnp.asarray(parts))
    else:
        lists = counts if isinstance(counts, TokenLists) else listed_counts(counts)
        products, present = _listed_products(lists, np.asarray(parts))
    return 0.5 * (products + products.mT) / halvings, present


def _table_products(
    counts: PositionCounts, parts: Int[Array, "samples halvings folds"]
) -> tuple[Float[Array, "samples n n"], Bool[Array, "samples n"]]:
    """S_A S_Bᵀ of a table, summed over halvings."""
    samples, halvings, folds = parts.shape
    tokens = jnp.asarray(counts.tokens)
    totals = jnp.stack([parts == 0, parts == 1], axis=2).astype(jnp.int32) @ counts.per_position
    flat = tokens.reshape(folds, -1).astype(float)

    def add_halving(products: Array, row: tuple[Array, ...]) -> tuple[Array, None]:
        sample, part, total = row
        halves = jnp.stack([part == 0, part == 1]).astype(flat.dtype)
        scale = jnp.where(total > 0, 1.0 / jnp.sqrt(jnp.maximum(total, 1).astype(float)), 0.0)
        roots = jnp.sqrt(dot(halves, flat).reshape(2, *tokens.shape[1:])) * scale[..., None]
        A, B = jax.vmap(centre_rows)(roots, total > 0)
        return products.at[sample].add(dot(A, B.T)), None

    sample = jnp.repeat(jnp.arange(samples, dtype=jnp.int32), halvings)
    rows = sample, parts.reshape(-1, folds), totals.reshape(-1, *totals.shape[2:])
    start = jnp.zeros((samples, tokens.shape[1], tokens.shape[1]), flat.dtype)
    return jax.lax.scan(add_halving, start, rows)[0], jnp.all(totals > 0, axis=(1, 2))


def _listed_products(
    lists: TokenLists, parts: Int[np.ndarray, "samples halvings folds"]
) -> tuple[Float[np.ndarray, "samples n n"], Bool[np.ndarray, "samples n"]]:
    """S_A S_Bᵀ of token lists, summed over halvings: frequent words dense, rare ones sparse."""
    samples, halvings, folds = parts.shape
    n = lists.per_position.shape[1]
    halves = np.stack([parts == 0, parts == 1], axis=2).reshape(-1, folds)
    dtype = jax.dtypes.canonicalize_dtype(float)
    totals = halves.astype(np.int64) @ lists.per_position
    scale = np.where(totals > 0, 1 / np.sqrt(np.maximum(totals, 1)), 0).astype(dtype)
    halves = halves.astype(dtype)
    number = np.bincount(lists.word)
    frequent = int(np.count_nonzero(number > _RARE * n))
    rare = int(number[:frequent].sum())
    products = np.zeros((samples, n, n), dtype)
    for roots in _dense_roots(lists, halves, frequent):
        _centre_and_scale(roots, scale)
        A, B = np.moveaxis(roots.reshape(samples, halvings, 2, n, -1), 2, 0)
        products += (A @ B.mT).sum(axis=1)
    _add_sparse(products, lists.chosen(slice(rare, None)), halves, scale)
    return products, np.all((totals > 0).reshape(samples, -1, n), axis=1)


def _centre_and_scale(
    roots: Float[np.ndarray, "halves n words"], scale: Float[np.ndarray, "halves n"]
) -> None:
    """Roots over √N, less their mean over the positions with tokens, in place."""
    present = scale > 0
    roots *= scale[..., None]
    weight = present / np.maximum(present.sum(axis=1, keepdims=True), 1)
    roots -= weight[:, None].astype(roots.dtype) @ roots
    roots[~present] = 0


def _dense_roots(
    lists: TokenLists, halves: Float[np.ndarray, "halves folds"], words: int
) -> Iterator[Float[np.ndarray, "halves n words"]]:
    """√counts of the first words in each half, some words at a time."""
    folds, n = lists.per_position.shape
    width = max(_CELLS // (folds * n), 1)
    for first in range(0, words, width):
        last = min(first + width, words)
        begin, end = np.searchsorted(lists.word, (first, last))
        fold, position, word, count = (x[begin:end] for x in lists[:4])
        shape = folds, n, last - first
        cell = (fold * n + position) * shape[2] + word - first
        table = np.bincount(cell, count, minlength=folds * n * shape[2]).astype(halves.dtype)
        cells = halves @ table.reshape(folds, -1)
        yield np.sqrt(cells, out=cells).reshape(-1, *shape[1:])


def _add_sparse(
    products: Float[np.ndarray, "samples n n"],
    lists: TokenLists,
    halves: Float[np.ndarray, "halves folds"],
    scale: Float[np.ndarray, "halves n"],
) -> None:
    """Add S_A S_Bᵀ of rare words, as one sparse product of a sample over words and halvings."""
    samples, n, _ = products.shape
    word, position, counts = lists.cells()
    for begin, end in _word_blocks(word, max(_ROOTS // len(halves), 1)):
        place, column = position[begin:end], word[begin:end] - word[begin]
        roots = np.sqrt(halves @ counts[begin:end].T.astype(halves.dtype)) * scale[:, place]
        for product, both in zip(products, roots.reshape(samples, -1, 2, len(place)), strict=True):
            A, B = (_sparse_rows(both[:, half], place, column, n) for half in range(2))
            product += (A @ B.T).toarray()


def _sparse_rows(
    values: Float[np.ndarray, "halvings cells"], place: np.ndarray, column: np.ndarray, n: int
) -> Any:
    """Values of cells as a sparse matrix `[n, halvings × columns]`."""
    from scipy.sparse import csr_array  # comes with JAX

    halving, cell = np.nonzero(values)
    words = int(column[-1]) + 1
    index = place[cell], halving * words + column[cell]
    return csr_array((values[halving, cell], index), shape=(n, len(values) * words))


def _word_blocks(word: np.ndarray, cells: int) -> Iterator[tuple[int, int]]:
    """Ranges of about as many cells that hold whole words."""
    first = np.flatnonzero(np.diff(word, prepend=-1))
    starts = first[np.unique(first // cells, return_index=True)[1]].tolist()
    yield from itertools.pairwise([*starts, len(word)])
