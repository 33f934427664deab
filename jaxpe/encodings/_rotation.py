"""The rotation of pairs, one primitive: its transpose is the rotation back."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir


def rotate(x: Array, cos: Array, sin: Array, *, interleaved: bool) -> Array:
    """Turn the pairs of x `[..., n, heads, dim]` by angles given as cos and sin `[..., dim/2]`.

    All of one rank; axes of cos and sin before the last may be 1. The arithmetic is that of cos,
    the result has the dtype of x. Pairs are (x_2k, x_2k+1) when interleaved, else (x_k, x_k+dim/2).

    The map is linear in x and its matrix orthogonal (up to a factor in cos and sin), so the
    cotangent of x is the cotangent of the result, rotated back: L̇x = R(−φ) L̇y. A primitive says
    so once, for reverse and forward mode, vmap and higher orders (a custom VJP would forbid
    forward mode, which linearisation needs). Nothing of x is kept, unless the angles are
    differentiated too.
    """
    return _rotate_p.bind(x, _computed_once(cos), _computed_once(sin), interleaved=interleaved)


def _computed_once(table: Array) -> Array:
    """The table `[..., n, heads, half]`, kept out of the loop that reads it.

    XLA on CPU folds cosines into the loop over batch and heads that multiplies by them, where they
    are computed again for each: the rotation becomes 8 to 20 times slower. It removes
    optimisation barriers before it fuses, but does not fold through a gather.
    """
    rows = jnp.arange(table.shape[-3])
    return table.at[..., rows, :, :].get(mode="promise_in_bounds")


def _rotated(x: Array, cos: Array, sin: Array, *, interleaved: bool) -> Array:
    first, second = _pairs(x.astype(cos.dtype), interleaved)
    if interleaved and x.dtype != cos.dtype:
        # (a + ib)·e^{iφ}: where 16-bit numbers are widened, XLA on CPU does this fastest.
        z = lax.complex(first, second) * lax.complex(cos, sin)
        return jnp.stack([z.real, z.imag], axis=-1).reshape(x.shape).astype(x.dtype)
    # Two halves with zeros for the other, added, are one loop; putting them together is two.
    half = x.shape[-1] // 2
    places = ((0, 1, 1), (1, 0, 1)) if interleaved else ((0, half, 0), (half, 0, 0))
    halves = (first * cos - second * sin, second * cos + first * sin)
    left, right = (_padded(y, *place) for y, place in zip(halves, places, strict=True))
    return (left + right).astype(x.dtype)


def _pairs(x: Array, interleaved: bool) -> tuple[Array, Array]:
    """First and second entries of the pairs, each `[..., dim/2]`."""
    if interleaved:
        pairs = x.reshape(*x.shape[:-1], -1, 2)
        return pairs[..., 0], pairs[..., 1]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def _padded(x: Array, low: int, high: int, between: int) -> Array:
    """Zeros before, behind and between the entries of the last axis."""
    widths = [(0, 0, 0)] * (x.ndim - 1) + [(low, high, between)]
    return lax.pad(x, jnp.zeros((), x.dtype), widths)


def _jvp(primals, tangents, *, interleaved):
    """The map is linear in x and linear in (cos, sin)."""
    x, cos, sin = primals
    dx, dcos, dsin = tangents
    bind = partial(_rotate_p.bind, interleaved=interleaved)
    out = bind(x, cos, sin)
    terms = []
    if not isinstance(dx, ad.Zero):
        terms.append(bind(dx, cos, sin))
    if not (isinstance(dcos, ad.Zero) and isinstance(dsin, ad.Zero)):
        terms.append(bind(x, ad.instantiate_zeros(dcos), ad.instantiate_zeros(dsin)))
    return out, sum(terms[1:], start=terms[0])


def _transpose(ct, x, cos, sin, *, interleaved):
    if ad.is_undefined_primal(x):
        return _rotate_p.bind(ct, cos, -sin, interleaved=interleaved), None, None
    # Linear in (cos, sin) too: their cotangents are the dot and the cross product of the pairs.
    aval = cos.aval if ad.is_undefined_primal(cos) else cos
    (a, b), (ga, gb) = (_pairs(y.astype(aval.dtype), interleaved) for y in (x, ct))
    return None, _summed_to(a * ga + b * gb, aval.shape), _summed_to(a * gb - b * ga, aval.shape)


def _summed_to(x: Array, shape: tuple[int, ...]) -> Array:
    """Sum over the axes that were broadcast from 1."""
    axes = tuple(i for i, (a, b) in enumerate(zip(x.shape, shape, strict=True)) if a != b)
    return jnp.sum(x, axis=axes, keepdims=True)


def _batch(args, axes, *, interleaved):
    moved = [
        jnp.expand_dims(arg, 0) if axis is None else jnp.moveaxis(arg, axis, 0)
        for arg, axis in zip(args, axes, strict=True)
    ]
    if axes[0] is None:
        size = next(arg.shape[a] for arg, a in zip(args, axes, strict=True) if a is not None)
        moved[0] = jnp.broadcast_to(moved[0], (size, *moved[0].shape[1:]))
    return _rotate_p.bind(*moved, interleaved=interleaved), 0


_rotate_p = Primitive("rotate_pairs")
_rotate_p.def_impl(jax.jit(_rotated, static_argnames="interleaved"))
_rotate_p.def_abstract_eval(lambda x, cos, sin, *, interleaved: x)
mlir.register_lowering(_rotate_p, mlir.lower_fun(_rotated, multiple_results=False))
ad.primitive_jvps[_rotate_p] = _jvp
ad.primitive_transposes[_rotate_p] = _transpose
batching.primitive_batchers[_rotate_p] = _batch
