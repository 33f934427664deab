"""Queries scaled by position, so that attention keeps its sharpness in long contexts."""

import jax.numpy as jnp
import numpy as np

from jaxpe._core.arrays import Scalar, is_traced
from jaxpe.encodings.base import (
    Encoding,
    align_positions,
    check_heads,
    check_sizes,
    compute_dtype,
    expand_rank,
    scaled,
)
from jaxpe.encodings.registry import register


@register("ssmax", source="Nakanishi (2025)")
def ssmax(*, num_heads: int, scale: Scalar = 0.43, length: int | None = None) -> Encoding:
    """Scalable softmax: queries times s_h·ln n, n being the number of keys a query sees.

    Nakanishi (2025). In a decoder n = i + 1; the logits of position 0, which has a single key, are
    0. An encoder sees its whole length: pass it as `length`.

    Parameters: `scale` s `[heads]`.

    Args:
        num_heads: query heads.
        scale: s at first.
        length: n for all positions; i + 1 when None.

    >>> q, i = jnp.ones((3, 1, 2)), jnp.arange(3)
    >>> scaled = ssmax(num_heads=1).query({"scale": jnp.ones(1)}, q, i)
    >>> np.asarray(scaled[:, 0, 0]).round(3).tolist()
    [0.0, 0.693, 1.099]
    """
    check_sizes(num_heads=num_heads, **({} if length is None else {"length": length}))

    def query(params, q, positions):
        check_heads(q.shape, num_heads)
        dtype = compute_dtype(q)
        if length is None:
            i = align_positions(positions, q.shape, after=2).astype(dtype)
            n = jnp.log(jnp.maximum(i + 1, 1))[..., None]
        else:
            n = jnp.full((1,) * (q.ndim - 1), np.log(length), dtype)
        factor = n * expand_rank(params["scale"], n.ndim, dtype)
        return scaled(q, factor[..., None])

    def init(key):
        return {"scale": jnp.full(num_heads, scale, jnp.result_type(float))}

    return Encoding(init=init, query=query)


@register(
    "ministral_scaling",
    description="Position temperature of Ministral 3: queries scaled in steps",
    source="Mistral AI (2025), Ministral 3",
    make=lambda s: position_temperature(period=s.window, first=0),
)
@register(
    "llama4_scaling",
    description="Position temperature of Llama 4: queries scaled in steps",
    source="Meta (2025), Llama 4",
    make=lambda s: position_temperature(period=s.window),
)
def position_temperature(*, scale: Scalar = 0.1, period: int = 8192, first: int = 1) -> Encoding:
    """Position temperature: queries times 1 + scale·ln(1 + ⌊(i + first)/period⌋).

    Llama 4 uses it in its layers without RoPE, with first = 1 and a period of 8,192. Ministral 3
    uses first = 0 and the original context as the period.

    Args:
        scale: a, growth of the factor; at least 0.
        period: number of positions with the same factor.
        first: added to positions, 0 or 1.

    >>> q, i = jnp.ones((3, 1, 1)), jnp.asarray([0, 8191, 3 * 8192])
    >>> np.asarray(position_temperature().query((), q, i)).ravel().round(4).tolist()
    [1.0, 1.0693, 1.1386]
    """
    check_sizes(period=period)
    if not is_traced(scale < 0) and scale < 0:
        raise ValueError(f"scale={scale} would turn attention round: pass at least 0")

    def query(params, q, positions):
        dtype = compute_dtype(q)
        i = align_positions(positions, q.shape, after=2)
        turns = jnp.floor_divide(i + jnp.asarray(first, i.dtype), jnp.asarray(period, i.dtype))
        growth = jnp.log1p(jnp.maximum(turns, 0).astype(dtype))  # none before the first position
        return scaled(q, 1 + scale * growth[..., None, None])

    return Encoding(query=query)
