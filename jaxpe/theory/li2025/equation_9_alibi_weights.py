"""Li (2025), Eq. (9): how far do attention weights move when ALiBi sees longer sequences?"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Real

from jaxpe._core.arrays import ArrayLike
from jaxpe.theory.audit import Audit, all_less_equal


# With fixed m, old weights become e^u/(Z + Z_new) = (1 − ρ) e^u/Z. Where logits also change by δ
# within a range r, the total variation between softmaxes is at most tanh(r/4): among those whose
# ratio lies within [a, a eʳ] it is largest for two values, each with half of the change of logits.
@partial(jax.jit, static_argnames="length")
def equation_9(
    content: Float[ArrayLike, "rows n"],
    distances: Real[ArrayLike, "rows n"],
    *,
    slope: Float[ArrayLike, ""] | float,
    length: int,
    mask: Bool[ArrayLike, "rows n"] | None = None,
) -> Audit:
    """Compare weights over the keys within the training length with weights over all keys.

    Li (2025), Eq. (9); reproduced under a stated reading. The rows belong to single queries in
    sequences longer than in training. Their training counterpart has only the keys nearer than T.
    L_α = ¼ throughout. Conclusions:

    "(9) of one bias": each key alone moved from Δ to the largest distance of its row, which holds.
    "(9) at Δ' = Δ": keys nearer than T, right side 0. "(9) beyond T": keys at Δ' ≥ T against the
    weight that a key of the same s has at Δ = T − 1 in training, right side m(Δ' − T + 1)/4. "(9)
    with m = c/n'": keys nearer than T, with m = c/T in training and c/n' on all, right side c/4, n'
    − 1 the largest distance. Instead, "by new keys": keys nearer than T, the change is at most ρα;
    "by new keys and m": with m = c/n', at most ρ + tanh(|m − c/n'| D/4), D the largest distance
    below T in the row.

    Measured, by row: `share of new keys` ρ, `share with m = c/n'`, and `largest change` of a weight
    of training.

    Args:
        content: logits without biases.
        distances: |i − j| of each key, the query's own 0 included.
        slope: m.
        length: T; every row has a key nearer than that.
        mask: keys that are allowed; all when None.

    >>> audit = equation_9(jnp.zeros((1, 8)), jnp.arange(8.0)[None], slope=0.1, length=4)
    >>> by_new_keys = audit.instead["by new keys"]
    >>> audit.conclusions["(9) at Δ' = Δ"].holds.item(), by_new_keys.holds.item()
    (False, True)
    """
    content, dtype = jnp.asarray(content), content.dtype
    distances, m = jnp.asarray(distances, dtype), jnp.asarray(slope, dtype)
    allowed = jnp.ones(content.shape, bool) if mask is None else jnp.asarray(mask)
    near = allowed & (distances < length)
    farthest = jnp.max(jnp.where(allowed, distances, 0), axis=1, keepdims=True)
    m_far = m * length / (farthest + 1)
    trained = _softmax(content - m * distances, near)
    longer, flatter = (_softmax(content - slope * distances, allowed) for slope in (m, m_far))
    new, new_flatter = (_sum(jnp.where(near, 0, x)) for x in (longer, flatter))
    change, flat_change = jnp.abs(longer - trained), jnp.abs(flatter - trained)
    compare = partial(all_less_equal, noise=64 * float(jnp.finfo(dtype).eps))
    compare_near = partial(compare, where=near)
    moved = m * (farthest - distances)
    at_end = content - m * (length - 1)
    end_change = jnp.abs(longer - _exchanged(trained, content, m * distances, at_end, near))
    reach = jnp.max(jnp.where(near, distances, 0), axis=1, keepdims=True)
    within = jnp.tanh(jnp.abs(m - m_far) * reach / 4)
    farther = m * (distances - (length - 1)) / 4
    conclusions = {
        "(9) of one bias": compare_near(_lowering(trained, moved), moved / 4),
        "(9) at Δ' = Δ": compare_near(change, 0.0),
        "(9) beyond T": compare(end_change, farther, where=allowed & ~near),
        "(9) with m = c/n'": compare_near(flat_change, m * length / 4),
    }
    instead = {
        "by new keys": compare_near(change, new * trained),
        "by new keys and m": compare_near(flat_change, new_flatter + within),
    }
    measured = {
        "share of new keys": new[:, 0],
        "share with m = c/n'": new_flatter[:, 0],
        "largest change": jnp.max(jnp.where(near, change, 0), axis=1),
    }
    return Audit({}, conclusions, measured, instead)


def _softmax(logits: Array, where: Array) -> Array:
    return jax.nn.softmax(jnp.where(where, logits, -jnp.inf), axis=-1)


def _sum(x: Array) -> Array:
    return jnp.sum(x, axis=-1, keepdims=True)


def _lowering(weights: Array, down: Array) -> Array:
    """Change of each weight when its own logit alone is lowered by `down`."""
    lowered = weights * jnp.exp(-down)
    return jnp.abs(lowered / (1 - weights + lowered) - weights)


def _exchanged(trained: Array, content: Array, bias: Array, logits: Array, near: Array) -> Array:
    """The weight of a key with these logits that replaces the farthest key nearer than T."""
    top = jnp.max(jnp.where(near, content - bias, -jnp.inf), axis=-1, keepdims=True)
    far = jnp.argmax(jnp.where(near, bias, -jnp.inf), axis=-1, keepdims=True)
    total = _sum(jnp.where(near, jnp.exp(content - bias - top), 0))
    rest = total * (1 - jnp.take_along_axis(trained, far, axis=-1))
    return jax.nn.sigmoid(logits - top - jnp.log(jnp.maximum(rest, jnp.finfo(rest.dtype).tiny)))
