"""Words of few tokens, one by one: products of halves that need no columns of a table.

By Zipf's law most words are rare: five in six of those of the built-in corpus have at most 12
tokens. A column of a table costs as much for them as for any other; the pairs of their tokens are
far fewer than the cells.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from jaxpe._core.arrays import rounded_size
from jaxpe.geometry.counts.token_lists import ListedTokens

# Pairs grow as the square of the tokens: beyond, columns are cheaper. Measured on a CPU; classes of
# words with fewer tokens save little and take long to compile.
MOST_RARE = 12
_PAIRS = 2**17  # that are made at a time
_FEW = 64  # words at least, so that programs of one small corpus serve others


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


def rare_words(listed: ListedTokens) -> RareWords:
    """Words of at most `MOST_RARE` tokens; eagerly, the number of words rounded up."""
    tokens = np.bincount(listed.word, minlength=listed.words)
    order = np.argsort(listed.word, kind="stable")
    words = rounded_size(max(len(tokens), _FEW), steps=4)
    blocks = -(-words * MOST_RARE**2 // _PAIRS)
    missing = blocks * -(-words // blocks) - len(tokens)
    first, tokens = (np.pad(x, (0, missing)) for x in (np.cumsum(tokens) - tokens, tokens))
    slot = np.arange(MOST_RARE)[:, None]
    source = np.append(order, 0)[first + np.minimum(slot, np.maximum(tokens - 1, 0))]

    def laid_out(values: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(values.reshape(MOST_RARE, blocks, -1).swapaxes(0, 1))

    places = [np.append(x, 0)[source].astype(np.int32) for x in (listed.document, listed.position)]
    return RareWords(*jax.device_put([laid_out(x) for x in (*places, slot < tokens)]))


def rare_products(
    words: RareWords,
    places: Int[Array, "documents n"],
    halves: Float[Array, "2 sets splits documents"],
    scale: Float[Array, "2 sets splits n"],
) -> Float[Array, "sets n n"]:
    """S_A S_Bᵀ of rare words alone, summed over the halvings of each set.

    Args:
        words: those that `rare_words` lays out.
        places: where tokens are moved to, as in `Occurrences.fold_tables`.
        halves: 1 for the documents of each half of each halving, else 0.
        scale: 1/√N of each half at each position.
    """
    sets, n = scale.shape[1], scale.shape[-1]
    product = partial(jnp.einsum, precision="highest")
    if not places.size:
        return jnp.zeros((sets, n, n), scale.dtype)

    def add(products: Array, block: RareWords) -> tuple[Array, None]:
        document, there = block.document, block.there
        position = places[document, block.position]
        own = there.astype(scale.dtype)
        same = position[:, None] == position[None, :]
        earlier = jnp.tril(jnp.ones((len(document),) * 2, bool), k=-1)
        # A cell's root is that of its first token; the cell of a padded word has weight 0.
        cell = same & ~jnp.any(same & earlier[..., None], axis=1, keepdims=True)
        weights = jnp.where(cell, own[None], 0.0)
        counts = product("iuw,axhuw->axhiw", weights, halves[..., document])
        first, second = jnp.sqrt(counts) * scale[..., position]
        pairs = product("xhiw,xhjw->xijw", first, second)
        place = position[:, None] * n + position[None]
        return products.at[place].add(jnp.moveaxis(pairs, 0, -1)), None

    products = jnp.zeros((n * n, sets), scale.dtype)
    return jax.lax.scan(add, products, words)[0].T.reshape(sets, n, n)
