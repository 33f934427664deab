"""Split halves of documents as they are, or shuffled: one program for both.

Halvings are made of tables in folds, a block of the vocabulary at a time. Words of few tokens have
no column there: see `rare_words`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Integer

from jaxpe._core.arrays import ArrayLike, dot, is_traced
from jaxpe._core.compiled import compiled
from jaxpe.geometry.counts.position_counts import fold_of_documents, permute_within_documents
from jaxpe.geometry.counts.token_lists import (
    Occurrences,
    dealt_tokens,
    listed_tokens,
    occurrences_of,
    shared_words,
)
from jaxpe.geometry.distances.matrices import centre_rows
from jaxpe.geometry.noise.rare_words import (
    MOST_RARE,
    RareWords,
    rare_products,
    rare_words,
)
from jaxpe.geometry.noise.split_half import (
    DEFAULT_SPLITS,
    SplitHalfGeometry,
    geometry_of_products,
    random_halves,
)

# Cells of a table in folds that is made at a time: beyond, memory is asked of the system each time.
_CELLS = 2**20
_TOGETHER = 4  # halvings
SETS = DEFAULT_SPLITS // _TOGETHER  # that are summed apart from one another
_LEFT_OUT = 2  # the part of a fold in neither half


class HalvableTokens(NamedTuple):
    """The counted tokens of documents, without words of a single fold; a pytree.

    Attributes:
        frequent: tokens of words that have a column.
        rare: those of the other words; None where there are none, and under `jit`.
    """

    frequent: Occurrences
    rare: RareWords | None


class Halved(NamedTuple):
    """Products of halves, of which the geometry is made.

    Attributes:
        products: float `[SETS, n, n]`, (S_A S_Bᵀ + S_B S_Aᵀ)/2, summed over the halvings of a set.
        halvings: number of halvings, of all sets.
        present: bool `[SETS, n]`, positions with a token in both halves of every halving of a set.
        per_position: documents that have a token at each position.
    """

    products: Float[Array, "sets n n"]
    halvings: Int[Array, ""]
    present: Bool[Array, "sets n"]
    per_position: Int[Array, " n"]

    @property
    def geometry(self) -> SplitHalfGeometry:
        """`split_half_geometry` of the halvings of all sets."""
        return _geometry_of_sets(self.products, self.present, self.halvings)


@compiled()
def _geometry_of_sets(products: Array, present: Array, halvings: Array) -> SplitHalfGeometry:
    whole, everywhere = jnp.sum(products, axis=0), jnp.all(present, axis=0)
    return geometry_of_products(whole, everywhere, splits=halvings)


def halvable_tokens(
    ids: Integer[ArrayLike, "documents n"],
    counted: Bool[ArrayLike, "documents n"],
    groups: Integer[ArrayLike, " documents"] | None,
    *,
    vocab_size: int,
    folds: int,
) -> HalvableTokens:
    """Tokens for `split_halves`; arguments are those of `occurrences_of`."""
    fold = fold_of_documents(ids, counted, folds=folds, groups=groups)
    if is_traced(ids, counted, fold):
        known = {"vocab_size": vocab_size, "folds": folds}
        return HalvableTokens(occurrences_of(ids, counted, groups, **known), None)
    listed = listed_tokens(ids, counted, vocab_size=vocab_size)
    shared, tokens = shared_words(listed, fold), np.bincount(listed.word, minlength=vocab_size)
    frequent, rare = shared & (tokens > MOST_RARE), shared & (tokens <= MOST_RARE)
    width = max(_CELLS // max(folds * counted.shape[1], 1), 1)
    return HalvableTokens(
        dealt_tokens(listed.of_words(frequent), fold, counted, folds=folds, block=width),
        rare_words(listed.of_words(rare)) if rare.any() else None,
    )


@compiled(static=("folds", "splits"))
def drawn_halves(key: Array, *, folds: int, splits: int) -> Int[Array, "rows folds"]:
    """`random_halves` for `split_halves`, in rows of which the last may be left out."""
    return _filled(random_halves(key, folds=folds, splits=splits), DEFAULT_SPLITS)


def in_sets(parts: Int[Array, "samples halvings folds"]) -> Int[Array, "calls rows folds"]:
    """Halvings of several samples of the documents, for few calls of `split_halves`.

    Each sample has sets of its own: `of_each` finds them in the results.
    """
    own = jax.vmap(lambda part: _filled(part, _TOGETHER))(parts)
    rows = _filled(own.reshape(-1, parts.shape[-1]), DEFAULT_SPLITS)
    return rows.reshape(-1, DEFAULT_SPLITS, parts.shape[-1])


def of_each(
    products: Float[Array, "calls sets n n"],
    present: Bool[Array, "calls sets n"],
    *,
    samples: int,
    halvings: int,
) -> tuple[Float[Array, "samples n n"], Bool[Array, "samples n"]]:
    """Products and present positions of each sample of `in_sets`, from those of the calls."""
    n, own = present.shape[-1], -(-halvings // _TOGETHER)
    products = products.reshape(-1, n, n)[: samples * own].reshape(samples, own, n, n)
    present = present.reshape(-1, n)[: samples * own].reshape(samples, own, n)
    return jnp.sum(products, axis=1), jnp.all(present, axis=1)


def _filled(parts: Int[Array, "rows folds"], multiple: int) -> Int[Array, "filled folds"]:
    """Rows that are left out behind the others: few numbers of rows, and few programs."""
    missing = -len(parts) % multiple
    return jnp.pad(parts, ((0, missing), (0, 0)), constant_values=_LEFT_OUT)


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
    parts = -(-documents // together)
    missing = parts * together - documents

    def shuffle(part: tuple[Array, Array]) -> Array:
        counted, groups = part
        places = places_of(counted)
        source = permute_within_documents(key, places, counted, groups=groups)
        row = jnp.arange(together, dtype=jnp.int32)[:, None]
        return jnp.zeros_like(places).at[row, source].set(places)

    counted = jnp.pad(counted, ((0, missing), (0, 0))).reshape(parts, together, n)
    groups = jnp.pad(groups, (0, missing)).reshape(parts, together)
    return jax.lax.map(shuffle, (counted, groups)).reshape(parts * together, n)[:documents]


@compiled()
def split_halves(
    tokens: HalvableTokens,
    places: Int[Array, "documents n"],
    parts: Int[ArrayLike, "rows folds"],
) -> Halved:
    """Products of halves of documents, of which `split_half_geometry` is made.

    Args:
        tokens: tokens of the documents, from `halvable_tokens`.
        places: where the tokens are moved to, from `places_of` or `shuffled_places`.
        parts: 0 and 1 for the folds of either half, 2 for those left out; a multiple of
            `DEFAULT_SPLITS` rows, of which the last may have no half. The first rows are of the
            first set, the next of the second, and so on in turn.
    """
    parts = jnp.asarray(parts)
    folds, chunks = parts.shape[1], _chunks_used(parts)
    parts = parts.reshape(-1, SETS, _TOGETHER, folds).swapaxes(0, 1).reshape(SETS, -1, folds)
    used = jnp.any(parts < _LEFT_OUT, axis=2)
    sizes = tokens.frequent.per_position
    halves = jnp.stack([parts == 0, parts == 1]).astype(jnp.int32)
    totals = halves @ sizes
    scale = jnp.where(totals > 0, 1.0 / jnp.sqrt(jnp.maximum(totals, 1).astype(float)), 0.0)
    halves = halves.astype(scale.dtype)
    products = _frequent_products(tokens.frequent, places, halves, scale, chunks)
    if tokens.rare is not None:
        own = halves[..., tokens.frequent.fold]
        products = products + rare_products(tokens.rare, places, own, scale)
    present = jnp.all((totals > 0) | ~used[None, ..., None], axis=(0, 2))
    products = 0.5 * (products + products.swapaxes(1, 2))
    halvings = jnp.sum(used, dtype=jnp.int32)
    return Halved(products, halvings, present, jnp.sum(sizes, axis=0))


def _chunks_used(parts: Int[Array, "rows folds"]) -> Int[Array, ""]:
    """Number of chunks of halvings up to the last that has one."""
    taken = jnp.any(parts.reshape(-1, _TOGETHER * parts.shape[1]) < _LEFT_OUT, axis=1)
    return jnp.max(jnp.where(taken, 1 + jnp.arange(len(taken), dtype=jnp.int32), 0), initial=0)


def _frequent_products(
    tokens: Occurrences,
    places: Array,
    halves: Float[Array, "2 sets splits folds"],
    scale: Float[Array, "2 sets splits n"],
    chunks: Int[Array, ""],
) -> Float[Array, "sets n n"]:
    """S_A S_Bᵀ of words with a column, summed over the first chunks of each set.

    Arguments are those of `rare_products`, and the number of chunks, which sets have in turn.
    """
    n = scale.shape[-1]
    each = [x.reshape(2, SETS, -1, _TOGETHER, x.shape[-1]) for x in (halves, scale)]

    def of_block(products: Array, table: Array) -> Array:
        flat = table.reshape(len(table), -1).astype(halves.dtype)

        def roots(half: Array, scale: Array) -> Array:
            count = dot(half, flat).reshape(len(half), n, -1)
            rows = jnp.sqrt(count) * scale[..., None]
            return jax.vmap(centre_rows)(rows, scale > 0)

        def of_chunk(number: Array, products: Array) -> Array:
            own, turn = number % SETS, number // SETS
            both = map(roots, *(x[:, own, turn] for x in each))
            found = jnp.einsum("hiw,hjw->ij", *both, precision="highest")
            return products.at[own].add(found)

        return jax.lax.fori_loop(0, chunks, of_chunk, products)

    return tokens.fold_tables(of_block, jnp.zeros((SETS, n, n), halves.dtype), places)
