"""Words of few tokens, one by one: products of halves that need no columns of a table.

By Zipf's law most words are rare: three quarters of those of the built-in corpus have at most 16
tokens. A column of a table costs as much for them as for any other; the pairs of their tokens are
far fewer than the cells.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from jaxpe._core.arrays import rounded_size
from jaxpe.geometry.occurrences import ListedTokens

# Most tokens of the words of each class. Pairs grow as the square, so classes are narrow; beyond
# the last, columns are cheaper (measured on a CPU).
CLASSES = (3, 6, 10, 16)
MOST_RARE = CLASSES[-1]
_PAIRS = 2**17  # that are made at a time
_FEW = 64  # words of a class at least, so that programs of one small corpus serve others


class RareWords(NamedTuple):
    """The tokens of words that have at most so many; a pytree.

    Attributes:
        document, position: int32 `[blocks, slots, words]`, where each token of a word stands;
            empty slots repeat the last token.
        there: bool `[blocks, slots, words]`, false in empty slots.
    """

    document: Int[Array, "blocks slots words"]
    position: Int[Array, "blocks slots words"]
    there: Bool[Array, "blocks slots words"]


def rare_words(listed: ListedTokens) -> tuple[RareWords, ...]:
    """Words of at most `MOST_RARE` tokens, by classes; eagerly, the numbers rounded up."""
    tokens = np.bincount(listed.word, minlength=listed.words)
    order = np.argsort(listed.word, kind="stable")
    first = np.cumsum(tokens) - tokens
    classes = []
    for fewer, most in zip((0, *CLASSES), CLASSES, strict=False):
        own = np.flatnonzero((tokens > fewer) & (tokens <= most))
        classes.append(_in_slots(listed, order, first[own], tokens[own], most))
    return tuple(classes)


def _in_slots(
    listed: ListedTokens, order: np.ndarray, first: np.ndarray, tokens: np.ndarray, slots: int
) -> RareWords:
    """Words that begin at these places of the order, as many tokens each, in so many slots."""
    words = rounded_size(max(len(first), _FEW), steps=4)
    blocks = -(-words * slots**2 // _PAIRS)
    missing = blocks * -(-words // blocks) - len(first)
    first, tokens = (np.pad(x, (0, missing)) for x in (first, tokens))
    slot = np.arange(slots)[:, None]
    source = np.append(order, 0)[first + np.minimum(slot, np.maximum(tokens - 1, 0))]
    places = [np.append(x, 0)[source] for x in (listed.document, listed.position)]
    arrays = [*places, slot < tokens]
    types = np.int32, np.int32, bool
    laid = [
        np.ascontiguousarray(x.reshape(slots, blocks, -1).swapaxes(0, 1), dtype)
        for x, dtype in zip(arrays, types, strict=True)
    ]
    return RareWords(*map(jax.device_put, laid))


def rare_products(
    classes: Sequence[RareWords],
    weight: Float[Array, " documents"],
    places: Int[Array, "documents n"],
    halves: Float[Array, "2 splits documents"],
    scale: Float[Array, "2 splits n"],
) -> Float[Array, "n n"]:
    """S_A S_Bᵀ of rare words alone, summed over halvings.

    Args:
        classes: words from `rare_words`.
        weight: number of times that each document counts.
        places: where tokens are moved to, as in `Occurrences.counts`.
        halves: 1 for the documents of each half of each halving, else 0.
        scale: 1/√N of each half at each position.
    """
    n = scale.shape[-1]

    def add(products: Array, words: RareWords) -> tuple[Array, None]:
        document, there = words.document, words.there
        position = places[document, words.position]
        own = jnp.where(there, weight[document], 0.0)
        same = position[:, None] == position[None, :]
        earlier = jnp.tril(jnp.ones((len(document),) * 2, bool), k=-1)
        # A cell's root is that of its first token; the cell of a padded word has weight 0.
        cell = same & ~jnp.any(same & earlier[..., None], axis=1, keepdims=True)

        def roots(half: Array, scale: Array) -> Array:  # of one halving
            counts = half[document] * own
            slots = range(len(document))
            summed = sum(jnp.where(cell[:, slot], counts[slot][None], 0.0) for slot in slots)
            return jnp.sqrt(summed) * scale[position]

        first, second = map(jax.vmap(roots), halves, scale)
        pairs = jnp.sum(first[:, :, None] * second[:, None], axis=0)
        return products.at[position[:, None] * n + position[None]].add(pairs), None

    products = jnp.zeros(n * n, weight.dtype)
    for words in classes:
        products = jax.lax.scan(add, products, words)[0]
    return products.reshape(n, n)
