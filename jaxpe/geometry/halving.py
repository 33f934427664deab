"""Split halves of documents as they are, shuffled, or resampled: one program for all of it.

The tokens are scattered once, into a table by folds, and all halvings are made from it. Words of
few tokens have no column there: see `rare_words`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Integer

from jaxpe._core.arrays import ArrayLike, dot, is_traced
from jaxpe._core.compiled import compiled
from jaxpe.geometry.counts import fold_of_documents, permute_within_documents
from jaxpe.geometry.distances import centre_rows
from jaxpe.geometry.noise import (
    SplitHalfGeometry,
    geometry_of_products,
    random_halves,
    split_half_geometry,
)
from jaxpe.geometry.occurrences import Occurrences, dealt_tokens, listed_tokens, occurrences_of
from jaxpe.geometry.rare_words import MOST_RARE, RareWords, rare_products, rare_words
from jaxpe.geometry.sparse import SparseCounts, fold_tables

# Cells of a table in folds that is made at a time: beyond, memory is asked of the system each time.
_CELLS = 2**20
_TOGETHER = 8  # halvings


class HalvableTokens(NamedTuple):
    """The counted tokens of documents, without words of a single fold; a pytree.

    Attributes:
        frequent: tokens of words that have a column.
        rare: those of the other words, by classes.
    """

    frequent: Occurrences
    rare: tuple[RareWords, ...]


Tokens = HalvableTokens | Occurrences


class Halved(NamedTuple):
    """The geometry, and how many documents have a token at each position, `[n]`."""

    geometry: SplitHalfGeometry
    per_position: Int[Array, " n"]


def halvable_tokens(
    ids: Integer[ArrayLike, "documents n"],
    counted: Bool[ArrayLike, "documents n"],
    groups: Integer[ArrayLike, " documents"] | None,
    *,
    vocab_size: int,
    folds: int,
) -> Tokens:
    """Tokens for `split_halves`; arguments are those of `occurrences_of`.

    Under `jit`, where words cannot be told apart, they are `Occurrences`.
    """
    fold = fold_of_documents(ids, counted, folds=folds, groups=groups)
    if is_traced(ids, counted, fold):
        return occurrences_of(ids, counted, groups, vocab_size=vocab_size, folds=folds)
    listed = listed_tokens(ids, counted, fold, vocab_size=vocab_size, only_shared=True)
    tokens = np.bincount(listed.word, minlength=listed.words)
    width = max(_CELLS // max(folds * counted.shape[1], 1), 1)
    frequent = listed.of_words(tokens > MOST_RARE)
    return HalvableTokens(
        dealt_tokens(frequent, fold, counted, folds=folds, block=width), rare_words(listed)
    )


@compiled()
def places_of(counted: Bool[ArrayLike, "documents n"]) -> Int[Array, "documents n"]:
    """The places of tokens that stay where they are."""
    return jnp.broadcast_to(jnp.arange(counted.shape[1], dtype=jnp.int32), counted.shape)


@compiled()
def shuffled_places(
    key: Array, counted: Bool[ArrayLike, "documents n"], groups: Integer[ArrayLike, " documents"]
) -> Int[Array, "documents n"]:
    """The place that `permute_within_documents` moves the token of each place to."""
    documents, n = counted.shape
    together = min(max(_CELLS // (4 * max(n, 1)), 1), max(documents, 1))
    missing = -documents % together

    def shuffle(part: tuple[Array, Array]) -> Array:
        counted, groups = part
        places = places_of(counted)
        source = permute_within_documents(key, places, counted, groups=groups)
        row = jnp.arange(together, dtype=jnp.int32)[:, None]
        return jnp.zeros_like(places).at[row, source].set(places)

    counted = jnp.pad(counted, ((0, missing), (0, 0))).reshape(-1, together, n)
    groups = jnp.pad(groups, (0, missing)).reshape(-1, together)
    return jax.lax.map(shuffle, (counted, groups)).reshape(-1, n)[:documents]


@compiled(static=("splits",))
def split_halves(
    tokens: Tokens,
    repeats: Integer[ArrayLike, " documents"],
    places: Int[Array, "documents n"],
    key: Array,
    *,
    splits: int,
) -> Halved:
    """`split_half_geometry` of documents.

    Args:
        tokens: tokens of the documents, from `halvable_tokens`.
        repeats: how often each document counts.
        places: where the tokens are moved to, from `places_of` or `shuffled_places`.
        key: PRNG key of the halves.
        splits: halvings averaged over.
    """
    if isinstance(tokens, Occurrences):
        counts = tokens.counts(repeats=repeats, places=places)
        per_position = jnp.sum(counts.per_position, axis=0)
        return Halved(split_half_geometry(counts, key=key, splits=splits), per_position)
    counts = tokens.frequent.counts(repeats=repeats, places=places)
    half = random_halves(key, folds=len(counts.per_position), splits=splits)
    halves = jnp.stack([half, 1 - half])
    totals = halves @ counts.per_position
    scale = jnp.where(totals > 0, 1.0 / jnp.sqrt(jnp.maximum(totals, 1).astype(float)), 0.0)
    parts, weight = halves.astype(scale.dtype), jnp.asarray(repeats).astype(scale.dtype)
    products = _frequent_products(counts, parts, scale) + rare_products(
        tokens.rare, weight, places, parts[..., tokens.frequent.fold], scale
    )
    products = 0.5 * (products + products.T)
    geometry = geometry_of_products(products, jnp.all(totals > 0, axis=(0, 1)), splits=splits)
    return Halved(geometry, jnp.sum(counts.per_position, axis=0))


def _frequent_products(
    counts: SparseCounts, parts: Float[Array, "2 splits folds"], scale: Float[Array, "2 splits n"]
) -> Float[Array, "n n"]:
    """S_A S_Bᵀ of counts in folds, summed over halvings; parts and scale as in `rare_products`."""
    n, splits = scale.shape[-1], parts.shape[1]
    missing = -splits % min(splits, _TOGETHER)  # halvings of nothing fill up the last few
    together = [
        jnp.pad(x, ((0, 0), (0, missing), (0, 0))).reshape(
            2, -1, min(splits, _TOGETHER), x.shape[2]
        )
        for x in (parts, scale)
    ]
    chunks = [x.swapaxes(0, 1) for x in together]

    def of_block(products: Array, table: Array) -> Array:
        flat = table.reshape(len(table), -1).astype(parts.dtype)

        def roots(part: Array, scale: Array) -> Array:
            count = dot(part, flat).reshape(len(part), n, -1)
            rows = jnp.sqrt(count) * scale[..., None]
            return jax.vmap(centre_rows)(rows, scale > 0)

        def of_chunk(products: Array, chunk: list[Array]) -> tuple[Array, None]:
            both = map(roots, *chunk)
            added = jnp.einsum("hiw,hjw->ij", *both, precision="highest")
            return products + added, None

        return jax.lax.scan(of_chunk, products, chunks)[0]

    folds = jnp.arange(parts.shape[-1], dtype=jnp.int32)
    start = jnp.zeros((n, n), parts.dtype)
    return fold_tables(of_block, start, counts, part=folds, parts=len(folds))
