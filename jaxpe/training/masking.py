"""Masked language modelling: the choice of tokens, and the tokens that replace them.

Training draws new tokens in each step, with JAX: `mask_tokens` and `loss_positions`. Analyses draw
once, with NumPy: `random_position` draws one token of each document, `random_positions` a share.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Int

from jaxpe._core.arrays import ArrayLike
from jaxpe._core.errors import InputError

_RATE = 0.15  # of Devlin et al. (2019)


class MaskedTokens(NamedTuple):
    """Masked tokens, original tokens, and positions of the loss.

    Attributes:
        ids: int `[..., n]`, tokens that the model reads.
        targets: int `[..., n]`, original tokens.
        selected: bool `[..., n]`, positions that the loss covers.
    """

    ids: Int[Array, "*batch n"]
    targets: Int[Array, "*batch n"]
    selected: Bool[Array, "*batch n"]


def mask_tokens(
    key: Array,
    ids: Int[ArrayLike, "*batch n"],
    *,
    mask: Bool[ArrayLike, "*batch n"] | None = None,
    vocab_size: int,
    mask_id: int,
    special_ids: Sequence[int] = (),
    rate: float = _RATE,
) -> MaskedTokens:
    """Token masking of BERT, Sec. 3.1 of Devlin et al. (2019).

    Each token is selected with probability `rate`. Of the selected tokens, 80 % become `mask_id`,
    10 % become a random token of the vocabulary, and 10 % stay. Padding and special tokens are
    never selected.

    Args:
        key: PRNG key, a new one for each step.
        ids: tokens.
        mask: false at padding.
        vocab_size: number of tokens that random ones are drawn from.
        mask_id: id of [MASK].
        special_ids: ids that are never selected, such as [CLS] and [SEP].
        rate: probability of selection, in [0, 1].

    >>> ids = jnp.arange(1000)[None]
    >>> masked = mask_tokens(jax.random.key(0), ids, vocab_size=1000, mask_id=0, rate=0.5)
    >>> bool((masked.ids == ids)[~masked.selected].all()), 400 < masked.selected.sum() < 600
    (True, Array(True, dtype=bool))
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"rate={rate} is not a probability: pass a number in [0, 1]")
    if not 0 <= mask_id < vocab_size:
        raise ValueError(f"mask_id={mask_id} is not in a vocabulary of {vocab_size} tokens")
    ids = jnp.asarray(ids)
    eligible = jnp.ones(ids.shape, jnp.bool_) if mask is None else jnp.asarray(mask)
    for special in special_ids:
        eligible &= ids != special
    which, how, what = jax.random.split(key, 3)
    selected = eligible & jax.random.bernoulli(which, rate, ids.shape)
    random_ids = jax.random.randint(what, ids.shape, 0, vocab_size, ids.dtype)
    share = jax.random.uniform(how, ids.shape, jnp.float32)
    replacement = jnp.where(share < 0.8, mask_id, jnp.where(share < 0.9, random_ids, ids))
    return MaskedTokens(jnp.where(selected, replacement, ids), ids, selected)


def loss_positions(
    key: Array, selected: Bool[Array, "batch n"], *, rate: float
) -> tuple[Int[Array, "batch positions"], Bool[Array, "batch positions"]]:
    """Positions of the selected tokens, equally many in every row, and which of them count.

    A fixed number keeps shapes static: three standard deviations above the expected number. A row
    with more selected tokens draws among them, by the key.

    >>> selected = jnp.arange(100)[None] % 10 == 0
    >>> positions, guessed = loss_positions(jax.random.key(0), selected, rate=0.1)
    >>> positions.shape, sorted(positions[guessed].tolist())
    ((1, 19), [0, 10, 20, 30, 40, 50, 60, 70, 80, 90])
    """
    n = selected.shape[-1]
    count = min(n, math.ceil(n * rate + 3 * math.sqrt(n * rate * (1 - rate))))
    order = jnp.where(selected, 1 + jax.random.uniform(key, selected.shape, jnp.float32), 0)
    positions = lax.top_k(order, count)[1]
    return positions, jnp.take_along_axis(selected, positions, axis=-1)


def random_position(
    text: Bool[np.ndarray, "documents n"], *, rng: np.random.Generator
) -> Int[np.ndarray, "documents 1"]:
    """One uniformly random text position of each document, int32; each document has text.

    >>> text = np.array([[False, True], [True, False]])
    >>> random_position(text, rng=np.random.default_rng(0)).tolist()
    [[1], [0]]
    """
    return np.array([[rng.choice(np.flatnonzero(row))] for row in text], np.int32).reshape(-1, 1)


def random_positions(
    text: Bool[np.ndarray, "documents n"], *, rng: np.random.Generator, rate: float = _RATE
) -> tuple[Int[np.ndarray, "documents positions"], Bool[np.ndarray, "documents positions"]]:
    """Random positions of a share `rate` of each document's text, and which of them count.

    Each document has at least one position that counts. All rows have equally many positions,
    int32; positions beyond the share of a document do not count.

    >>> text = np.array([[True, True, True, True], [False, False, True, True]])
    >>> positions, counted = random_positions(text, rng=np.random.default_rng(0), rate=0.5)
    >>> positions.shape, counted.tolist()
    ((2, 2), [[True, True], [True, False]])
    """
    drawn = np.where(text, rng.random(text.shape), 2.0)
    counts = np.maximum(1, np.round(rate * text.sum(axis=1)).astype(int))
    positions = np.argsort(drawn, axis=1).astype(np.int32)[:, : counts.max()]
    return positions, np.arange(counts.max())[None] < counts[:, None]


def masked_ids(
    ids: Int[np.ndarray, "documents n"],
    positions: Int[np.ndarray, "documents positions"],
    *,
    mask_id: int | None,
    counted: Bool[np.ndarray, "documents positions"] | None = None,
) -> Int[np.ndarray, "documents n"]:
    """Tokens with [MASK] at the positions that count; all positions count by default.

    Raises:
        InputError: `mask_id` is None, as for a vocabulary without [MASK].

    >>> masked_ids(np.array([[5, 6, 7]]), np.array([[1]]), mask_id=0).tolist()
    [[5, 0, 7]]
    """
    if mask_id is None:
        raise InputError("the vocabulary has no [MASK], which a masked language model needs")
    masked = ids.copy()
    rows = np.broadcast_to(np.arange(len(ids))[:, None], positions.shape)
    counted = np.ones(positions.shape, bool) if counted is None else counted
    masked[rows[counted], positions[counted]] = mask_id
    return masked
