"""Rotary encodings with learned or mixed waves: PoPE, FoPE and learned frequencies."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpe._core.arrays import Scalar, namespace
from jaxpe.encodings.base import (
    Encoding,
    align_positions,
    check_heads,
    check_plain,
    check_sizes,
    compute_dtype,
    expand_rank,
)
from jaxpe.encodings.phases import phases
from jaxpe.encodings.registry import register
from jaxpe.encodings.rotation import rotate
from jaxpe.encodings.tables import normal_params
from jaxpe.plans.scaling import inverse_frequencies


@register("pope", source="Gopalakrishnan et al. (2025)")
def pope(*, num_heads: int, head_dim: int, base: Scalar = 10_000.0) -> Encoding:
    """PoPE: polar coordinates, magnitudes of content and angles of position.

    Gopalakrishnan et al. (2025). Entry c of a query is softplus(q_c)·e^{iθ_c i}, of a key
    softplus(k_c)·e^{i(θ_c j + δ_hc)}, so that logits are
    Σ_c softplus(q_c) softplus(k_c) cos(θ_c (i − j) − δ_hc)/√head_dim, θ_c = base^(−c/head_dim).
    Queries and keys become twice as wide, cosines before sines; the scale stays 1/√head_dim.

    Parameters: `phase` δ `[heads, head_dim]`, 0 at first, used within [−2π, 0].

    Args:
        num_heads: key heads.
        head_dim: width of a head.
        base: θ of the frequencies, of which there are head_dim.

    >>> encoding = pope(num_heads=1, head_dim=2)
    >>> params = encoding.init(jax.random.key(0))
    >>> key = encoding.key(params, jnp.zeros((1, 1, 2)), jnp.zeros(1, int))
    >>> np.asarray(key).round(3).tolist()
    [[[0.693, 0.693, 0.0, 0.0]]]
    """
    check_sizes(num_heads=num_heads, head_dim=head_dim)
    frequencies = base ** (-np.arange(head_dim) / head_dim)

    def init(key):
        return {"phase": jnp.zeros((num_heads, head_dim), jnp.result_type(float))}

    def polar(x, positions, shift):
        check_heads(x.shape, head_dim=head_dim)
        dtype = compute_dtype(x)
        size = jax.nn.softplus(x.astype(dtype))
        angles = phases(align_positions(positions, x.shape, after=2), frequencies, dtype)
        angles = angles[..., None, :]
        angles = angles if shift is None else angles + expand_rank(shift, angles.ndim, dtype)
        waves = size * jnp.cos(angles), size * jnp.sin(angles)
        return jnp.concatenate(waves, axis=-1).astype(x.dtype)

    def query(params, q, positions):
        return polar(jnp.asarray(q), positions, None)

    def key(params, k, positions):
        k = jnp.asarray(k)
        check_heads(k.shape, num_heads)
        return polar(k, positions, jnp.clip(params["phase"], -2 * np.pi, 0.0))

    return Encoding(init=init, query=query, key=key)


@register("fope", source="Hua et al. (2024)")
def fope(
    *,
    num_heads: int,
    head_dim: int,
    length: int,
    base: Scalar = 10_000.0,
    stddev: Scalar = 0.3,
    learnable: bool = False,
) -> Encoding:
    """FoPE: RoPE whose rotations are sums of waves Σ_D cos(ω_D i) C_h[D, c] (Hua et al. 2024).

    Sines likewise. Frequencies below 2π/length, which complete no rotation in training, are
    dropped; their entries get cosine and sine 1. C = I + stddev·Xavier-normal, separately for sines
    and cosines. It is no rotation: logits depend on positions, not on offsets alone.

    Parameters: `cosines` and `sines` `[heads, kept, kept]`, without a gradient unless `learnable`.

    Args:
        num_heads: heads of queries and keys.
        head_dim: width of a head, even.
        length: positions of training.
        base: θ of the frequencies.
        stddev: factor on the random part of C.
        learnable: whether C is trained.

    >>> encoding = fope(num_heads=1, head_dim=4, length=8, stddev=0.0)
    >>> params = encoding.init(jax.random.key(0))
    >>> encoding.query(params, jnp.ones((1, 1, 4)), jnp.zeros(1, int)).tolist()
    [[[1.0, 0.0, 1.0, 2.0]]]
    """
    check_sizes(num_heads=num_heads, head_dim=head_dim, length=length)
    check_plain(base=base)  # it decides how many frequencies are kept
    frequencies = inverse_frequencies(head_dim, base=base)
    turning = frequencies[frequencies >= 2 * np.pi / length]
    size, half = len(turning), head_dim // 2
    shape = (num_heads, size, size)

    def init(key):
        dtype = jnp.result_type(float)
        spread = stddev * (2 / (2 * size)) ** 0.5 if size else 0.0
        parts = normal_params(key, cosines=(spread, shape), sines=(spread, shape))
        return {name: jnp.eye(size, dtype=dtype)[None] + part for name, part in parts.items()}

    def turn(params, x, positions):
        x = jnp.asarray(x)
        check_heads(x.shape, num_heads, head_dim)
        dtype = compute_dtype(x)
        angles = phases(align_positions(positions, x.shape, after=2), turning, dtype)

        def mixed(waves: Array, name: str) -> Array:
            matrix = params[name] if learnable else lax.stop_gradient(params[name])
            waves_by_head = jnp.einsum("...nD,hDc->...nhc", waves, matrix.astype(dtype))
            rest = [(0, 0)] * (waves_by_head.ndim - 1) + [(0, half - size)]
            return jnp.pad(waves_by_head, rest, constant_values=1)

        cos, sin = mixed(jnp.cos(angles), "cosines"), mixed(jnp.sin(angles), "sines")
        return rotate(x, cos, sin, interleaved=False)

    return Encoding(init=init, query=turn, key=turn)


@register("grape_m", source="Zhang et al. (2025)")
def grape_multiplicative(*, head_dim: int, base: Scalar = 10_000.0) -> Encoding:
    """GRAPE-M: RoPE with learned frequencies ω = exp(a) (Zhang et al. 2025).

    This is the commuting form, in the coordinate planes (k, k + head_dim/2). It starts as `rope`.

    Parameters: `log_frequencies` a `[head_dim/2]`.

    Args:
        head_dim: width of a head, even.
        base: θ of the frequencies at first.

    >>> encoding = grape_multiplicative(head_dim=2)
    >>> params = {"log_frequencies": jnp.log(jnp.asarray([np.pi]))}
    >>> encoding.query(params, jnp.ones((1, 1, 2)), jnp.ones(1, int)).round(3).tolist()
    [[[-1.0, -1.0]]]
    """
    start = inverse_frequencies(head_dim, base=base)
    start = namespace(start).log(start)

    def init(key):
        return {"log_frequencies": jnp.asarray(start, jnp.result_type(float))}

    def turn(params, x, positions):
        x = jnp.asarray(x)
        check_heads(x.shape, head_dim=head_dim)
        dtype = compute_dtype(x)
        omega = jnp.exp(params["log_frequencies"].astype(dtype))
        angles = phases(align_positions(positions, x.shape, after=2), omega, dtype)[..., None, :]
        return rotate(x, jnp.cos(angles), jnp.sin(angles), interleaved=False)

    return Encoding(init=init, query=turn, key=turn, rotates=True)
