"""Rotations by headings, and along directions of several coordinates."""

from statistics import NormalDist

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe._core.arrays import ArrayLike, Scalar, namespace
from jaxpe.encodings.base import (
    Encoding,
    check_even,
    check_heads,
    check_positive,
    check_sizes,
    compute_dtype,
    turning_positions,
)
from jaxpe.encodings.families.rotary import Layout, rope
from jaxpe.encodings.phases import phases
from jaxpe.encodings.registry import register
from jaxpe.encodings.rotation import rotate


@register(
    "directional_rope",
    source="Zhao et al. (2025)",
    vectors="a circle",
    variant_of="rope",
)
def directional_rope(*, head_dim: int, layout: Layout = "half_split") -> Encoding:
    """DRoPE: every pair turns by the heading of an agent, in radians (Zhao et al. 2025).

    RoPE whose frequencies are all 1: a query of heading α and a key of heading β have the product
    qᵀR(β − α)k. It has the period 2π in both headings, which frequencies base^(−2k/d) break. Use
    `per_head` for heads of headings beside heads of places. `vectors`: the orbit of a vector with
    unit pairs.

    Args:
        head_dim: width of a head.
        layout: argument of `rope`.

    >>> encoding, heading = directional_rope(head_dim=4), jnp.asarray([0.5, 0.5 + 2 * np.pi])
    >>> a, b = encoding.vectors((), heading)
    >>> bool(jnp.abs(a - b).max() < 1e-5)
    True
    """
    return rope(head_dim=head_dim, base=1.0, layout=layout)


@register(
    "golden_gate",
    source="Xiong (2025)",
    vectors="orbits of a vector with unit pairs, one a head",
    coordinates=2,
    variant_of="axial_rope",
)
def golden_gate_rope(
    *,
    head_dim: int,
    num_heads: int,
    axes: int = 2,
    min_frequency: Scalar = 1e-4,
    max_frequency: Scalar = 1.0,
    zero_share: float = 0.0,
) -> Encoding:
    """Golden gate RoPE: each pair turns with the position along its own direction (Xiong 2025).

    Pair k of head h turns by ω_k u·position. The frequencies grow from min to max in equal ratios,
    ω_k = min·(max/min)^(k/(m − 1)), after a share of zeros. The directions u of all pairs, head by
    head, cover the sphere evenly: u_i ∝ Φ⁻¹(frac(i/g), frac(i/g²), ...) for i = 1, 2, ..., with the
    normal quantile Φ⁻¹ and g^(axes+1) = g + 1, the golden ratio for one axis. So logits depend on
    offsets in every direction, not along the axes alone. Pairs are (k, k + head_dim/2). Keys need
    as many heads as queries.

    `vectors`: the orbit of a vector with unit pairs, `[n, num_heads·head_dim]`, head by head.

    Args:
        head_dim: width of a head.
        num_heads: heads of queries and of keys.
        axes: coordinates of a position, `[..., n, axes]`; with 1 positions are `[..., n]`.
        min_frequency, max_frequency: slowest and fastest turn, in radians a position. The author
            has no defaults; these are about the range of `rope`.
        zero_share: share of the pairs that do not turn.

    Raises:
        ValueError: an odd head_dim, no positive frequencies, or a share outside [0, 1).

    >>> golden_gate_rope(head_dim=4, num_heads=2).vectors((), jnp.zeros((5, 2), int)).shape
    (5, 8)
    """
    check_sizes(num_heads=num_heads, axes=axes)
    check_even(head_dim=head_dim)
    check_positive(min_frequency=min_frequency, max_frequency=max_frequency)
    half = head_dim // 2
    zeros = round(zero_share * half)
    if not 0 <= zeros < half:
        raise ValueError(f"zero_share is {zero_share}: pass a share from 0 to below 1")
    steps = np.concatenate([np.zeros(zeros), np.linspace(0.0, 1.0, half - zeros)])
    turning = (np.arange(half) >= zeros).astype(float)
    omega = min_frequency * (max_frequency / min_frequency) ** steps * turning
    every_head = namespace(omega).tile(omega, num_heads)
    directions = _golden_directions(num_heads * half, axes)
    frequencies = [directions[:, a] * every_head for a in range(axes)]

    def turn(params, x: ArrayLike, positions: ArrayLike) -> Array:
        x = jnp.asarray(x)
        check_heads(x.shape, num_heads, head_dim)
        i = turning_positions(x, positions, axes=axes if axes > 1 else 0)
        i, dtype = i if axes > 1 else i[..., None], compute_dtype(x)
        turns = [phases(i[..., a], frequencies[a], dtype) for a in range(axes)]
        angles = sum(turns[1:], start=turns[0])
        angles = angles.reshape(*angles.shape[:-1], num_heads, half)
        return rotate(x, jnp.cos(angles), jnp.sin(angles), interleaved=False)

    def vectors(params, positions: ArrayLike) -> Array:
        unit = np.repeat([1.0, 0.0], half)
        n = np.shape(positions)[0]
        reference = jnp.asarray(np.tile(unit, (n, num_heads, 1)), jnp.result_type(float))
        return turn(params, reference, positions).reshape(n, num_heads * head_dim)

    return Encoding(query=turn, key=turn, vectors=vectors, rotates=True)


def _golden_directions(count: int, axes: int) -> np.ndarray:
    """Unit vectors `[count, axes]` that cover the sphere evenly: a Kronecker sequence R_axes."""
    g = 2.0
    for _ in range(60):  # g = (1 + g)^(1/(axes + 1)) contracts
        g = (1 + g) ** (1 / (axes + 1))
    fractions = np.arange(1, count + 1)[:, None] * g ** -np.arange(1.0, axes + 1) % 1.0
    normal = np.vectorize(NormalDist().inv_cdf)(fractions)
    return normal / np.linalg.norm(normal, axis=1, keepdims=True)
