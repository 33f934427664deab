"""Rotation of pairs, whose derivative is the reverse rotation."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax


@partial(jax.jit, static_argnames="interleaved", inline=True)
def rotate(x: Array, cos: Array, sin: Array, *, interleaved: bool) -> Array:
    """Turn the pairs of x `[..., n, heads, dim]` by angles given as cos and sin `[..., dim/2]`.

    All have one rank; axes of cos and sin before the last may be 1. It computes in the dtype of cos
    and returns the dtype of x. Pairs are (x_2k, x_2k+1) when interleaved, else (x_k, x_k+dim/2).

    The map is linear in x and its matrix orthogonal (up to a factor in cos and sin). So the
    cotangent of x is the cotangent of the result, rotated back: L̇x = R(−φ) L̇y. JAX's transpose of
    this code is exactly that, in as many loops, and stores only cos and sin; x is stored only if
    the angles are differentiated too. A custom rule would gain nothing: `jax.custom_vjp` would
    forbid forward mode, and a primitive is no faster and would need rules for meshes.
    """
    cos, sin = _hoisted_table(cos), _hoisted_table(sin)
    wide, half = x.astype(cos.dtype), x.shape[-1] // 2
    if interleaved:  # not [..., 0::2], whose transpose is a slow scatter of zeros
        pairs = lax.split(wide.reshape(*x.shape[:-1], half, 2), (1, 1), axis=x.ndim)
        first, second = (part[..., 0] for part in pairs)
    else:
        first, second = wide[..., :half], wide[..., half:]
    if interleaved and x.dtype != cos.dtype:
        # (a + ib)·e^{iφ}: where 16-bit numbers are widened, XLA on CPU does this fastest.
        z = lax.complex(first, second) * lax.complex(cos, sin)
        return jnp.stack([z.real, z.imag], axis=-1).reshape(x.shape).astype(x.dtype)
    # Adding two halves padded with zeros is one loop; concatenating them is two.
    paddings = ((0, 1, 1), (1, 0, 1)) if interleaved else ((0, half, 0), (half, 0, 0))
    halves = (first * cos - second * sin, second * cos + first * sin)
    left, right = (_padded(y, *padding) for y, padding in zip(halves, paddings, strict=True))
    return (left + right).astype(x.dtype)


def _hoisted_table(table: Array) -> Array:
    """The table `[..., n, heads, half]`, computed outside the loop that reads it.

    XLA on CPU fuses cosines into the loop over batch and heads, and recomputes them for each: the
    rotation becomes 8 to 20 times slower. It removes optimisation barriers before it fuses, but
    does not fuse through a gather. On other backends a gather would cost time, above all where n is
    sharded.
    """

    def gathered(table: Array) -> Array:
        rows, sharding = jnp.arange(table.shape[-3]), jax.typeof(table).sharding
        return table.at[..., rows, :, :].get(
            mode="promise_in_bounds", out_sharding=None if sharding.mesh.empty else sharding
        )

    return lax.platform_dependent(table, cpu=gathered, default=lambda table: table)


def _padded(x: Array, low: int, high: int, between: int) -> Array:
    """Zeros before, after and between the entries of the last axis."""
    widths = [(0, 0, 0)] * (x.ndim - 1) + [(low, high, between)]
    return lax.pad(x, jnp.zeros((), x.dtype), widths)
