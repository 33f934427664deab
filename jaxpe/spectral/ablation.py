"""Ablation of attention heads, and how far their effect is concentrated in one of them.

A score is a function of gates `[layers, heads]`, factors of the heads' outputs before the output
projection: `lambda gates: accuracy(apply(params, ids, gates=gates).logits)` with `jaxpe.nn`.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int32

from jaxpe._core.arrays import ArrayLike, tree_add
from jaxpe._core.jaxprs import used_arguments
from jaxpe.encodings.base import as_mask, compute_dtype, expand_rank
from jaxpe.geometry.checks import check_size
from jaxpe.geometry.distances.matrices import floating


class Ablation(NamedTuple):
    """Scores of the whole model and without each head, and the drop, score − ablated.

    Attributes:
        score: score of the whole model.
        ablated: scores `[layers, heads]` without each head.
        drop: score less `ablated`.
    """

    score: Float[Array, "*outputs"]
    ablated: Float[Array, "layers heads *outputs"]
    drop: Float[Array, "layers heads *outputs"]


class Deposit(NamedTuple):
    """Distribution of the drops over heads; drops within noise count as 0.

    Attributes:
        largest_share: largest share of one head in the sum of drops, in [0, 1]: 1 is a deposit in
            one head, 1/heads an even spread, 0 if no head has a drop.
        entropy: entropy of the shares, over the logarithm of the number of heads: 0 is one head, 1
            is even; 1 if no head has a drop.
        largest_drop: largest drop in units of the score; negative where every ablation helps.
        total_drop: the sum of the drops that count.
        layer, head: layer and head of the largest drop, the first of equal ones.
    """

    largest_share: Float[Array, "*batch"]
    entropy: Float[Array, "*batch"]
    largest_drop: Float[Array, "*batch"]
    total_drop: Float[Array, "*batch"]
    layer: Int32[Array, "*batch"]
    head: Int32[Array, "*batch"]


class HeadSums(NamedTuple):
    """Sums of head outputs over tokens; they add, so corpora can be streamed.

    Attributes:
        total: `[layers, heads, width]`, or `[layers, n, heads, width]` by position.
        count: number of tokens, `[]` or `[n]`, int32. Larger numbers raise `OverflowError` where
            sums are added eagerly; under `jit` it stops at 2³¹ − 1.
    """

    total: Float[Array, "layers *n heads width"]
    count: Int32[Array, "*n"]

    __add__ = __radd__ = tree_add

    @property
    def mean(self) -> Float[Array, "layers *n heads width"]:
        """Mean output of each head, to fill closed gates with; 0 without tokens."""
        count = jnp.maximum(self.count, 1)[..., None, None]
        return self.total / expand_rank(count, self.total.ndim, self.total.dtype)


@partial(jax.jit, static_argnames=("score", "layers", "heads", "batch_size"))
def ablate_heads(
    score: Callable[[Array], Array], *, layers: int, heads: int, batch_size: int | None = None
) -> Ablation:
    """Head ablation: the score without each head, all heads in one vmapped pass.

    Args:
        score: `gates [layers, heads] -> array`, pure, compiled once for the same function; gates
            of 1 are the whole model. Close over `gate_fill` for mean ablation.
        layers, heads: number of layers of the model, and of heads in each layer.
        batch_size: heads at a time, if all together do not fit in memory.

    Raises:
        ValueError: a score that does not depend on its gates.

    >>> worth = jnp.array([[3.0, 1.0]])
    >>> result = ablate_heads(lambda gates: jnp.sum(gates * worth), layers=1, heads=2)
    >>> result.drop.tolist()
    [[3.0, 1.0]]
    """
    check_size("layers", layers)
    check_size("heads", heads)
    dtype = jnp.result_type(float)
    opened = jnp.ones((layers, heads), dtype)
    if not any(used_arguments(score, opened)):
        raise ValueError(
            "the score does not depend on its gates: pass them to the model, as "
            "apply(params, ids, gates=gates); a model without gates cannot be ablated here"
        )
    closed = 1 - jnp.eye(layers * heads, dtype=dtype).reshape(-1, layers, heads)
    gates = jnp.concatenate([opened[None], closed])
    scores = jax.lax.map(score, gates, batch_size=batch_size or len(gates))
    ablated = scores[1:].reshape(layers, heads, *scores.shape[1:])
    return Ablation(scores[0], ablated, scores[0][None, None] - ablated)


@partial(jax.jit, static_argnames="noise")
def deposit(drop: Float[ArrayLike, "..."], *, noise: float = 0.0) -> Deposit:
    """Concentration of the drops `[..., layers, heads]` of ablated heads.

    With s_h the share of head h in the sum of all drops above `noise`: the largest share, and
    −Σ s_h log s_h / log H over all H heads of all layers (Pielou's evenness). Shares of pure noise
    are far from even: with 12 heads the largest is 0.37 on average. NaN stays NaN.

    Args:
        drop: drops of an `Ablation`; without the two axes it raises `ValueError`.
        noise: drops up to it count as 0; about two standard errors of the score.

    >>> result = deposit(np.array([[0.6, 0.0], [0.2, -0.1]]))
    >>> round(result.largest_share.item(), 2), result.layer.item(), result.head.item()
    (0.75, 0, 0)
    """
    drop = floating(drop, "drop")
    if drop.ndim < 2 or 0 in drop.shape[-2:]:
        raise ValueError(f"drop has shape {drop.shape}: pass [..., layers, heads], of some heads")
    heads = drop.shape[-1]
    flat = drop.reshape(*drop.shape[:-2], drop.shape[-2] * heads)
    costs = jnp.where(flat <= max(noise, 0.0), 0, flat)
    total = jnp.sum(costs, axis=-1)
    nothing = total == 0
    shares = costs / jnp.where(nothing, 1, total)[..., None]
    # 0·log 0 = 0, with a derivative that is not NaN.
    terms = jnp.where(shares == 0, 0, shares * jnp.log(jnp.where(shares == 0, 1, shares)))
    evenness = -jnp.sum(terms, axis=-1) / jnp.log(max(costs.shape[-1], 2))
    evenness, largest = jnp.where(nothing, 1, evenness), jnp.max(shares, axis=-1)
    first = jnp.divmod(jnp.argmax(flat, axis=-1).astype(jnp.int32), heads)
    return Deposit(largest, evenness, jnp.max(flat, axis=-1), total, *first)


def sum_heads(
    heads: Float[ArrayLike, "..."], mask: ArrayLike | None = None, *, by_position: bool = False
) -> HeadSums:
    """Sums of traced head outputs over tokens that are not masked, float32 or wider.

    Args:
        heads: outputs of the heads of a trace, `TransformerOutput.heads`, `[layers, ..., n, heads,
            width]`.
        mask: `[..., n]`, false on padding.
        by_position: sums for each position, or one for all.

    >>> sums = sum_heads(jnp.ones((2, 5, 3, 4, 6)), np.ones((5, 3), bool))
    >>> (sums + sums).mean.shape, sums.count.item()
    ((2, 4, 6), 15)
    """
    heads = jnp.asarray(heads)
    if heads.ndim < 4:
        raise ValueError(f"heads have shape {heads.shape}: pass [layers, ..., n, heads, width]")
    heads = heads.astype(compute_dtype(heads))
    lead = heads.shape[1:-2]
    valid = jnp.broadcast_to(as_mask(np.array(True) if mask is None else mask), lead)
    over = tuple(range(len(lead) - int(by_position)))
    total = jnp.sum(jnp.where(valid[None, ..., None, None], heads, 0), axis=[a + 1 for a in over])
    return HeadSums(total, jnp.sum(valid, axis=over, dtype=jnp.int32))
