"""Learned rotations, for positions of one or several coordinates."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpe._core.arrays import ArrayLike, Scalar
from jaxpe.encodings.base import (
    Encoding,
    Params,
    check_head_dim,
    check_heads,
    check_positive,
    check_sizes,
    compute_dtype,
    expand_rank,
    turning_positions,
)
from jaxpe.encodings.registry import register
from jaxpe.encodings.rotation import rotate
from jaxpe.encodings.tables import check_tables, normal_params
from jaxpe.plans.scaling import inverse_frequencies

# Terms of the series, and squarings enough for any position below 2³¹.
_TERMS, _SQUARINGS = 14, 40


@register(
    "mixed_rope",
    source="Heo et al. (2024)",
    vectors="orbits of a vector with unit pairs, one a head, at its initial frequencies",
    coordinates=2,
)
def mixed_rope(
    *, head_dim: int, num_heads: int, axes: int = 2, base: Scalar | None = None
) -> Encoding:
    """RoPE-Mixed: angles ω_x·x + ω_y·y of frequencies learned by head (Heo et al. 2024).

    Pair (2k, 2k + 1) of head h turns by Σ_a frequencies[a, h, k]·position_a, so logits depend on
    the coordinates' offsets. At first, with μ_k = base^(−4k/head_dim) and one angle φ a head,
    uniform in [0, 2π), ω_x is (μ cos φ, −μ sin φ) and ω_y is (μ sin φ, μ cos φ), each half of the
    pairs (RoPE-ViT; timm). With one coordinate, ω_k = base^(−2k/head_dim): RoPE whose frequencies
    are learned. Keys need as many heads as queries, because each head has its own frequencies.

    `vectors`: the orbit of a vector with unit pairs, `[n, num_heads·head_dim]`, the heads side by
    side. Parameters: `frequencies` `[axes, num_heads, head_dim / 2]`, in radians a position. Phases
    are float32 products, off by about 1e-7 of the angle.

    Args:
        head_dim: width of a head; a multiple of 2·axes.
        num_heads: heads of queries and of keys.
        axes: coordinates of a position, 1 or 2; with 1 positions are `[..., n]`.
        base: θ of the initial frequencies; 10 for two coordinates and 10,000 for one when None.

    Raises:
        ValueError: sizes that do not fit, positions of another number of coordinates, or an array
            of another number of heads.

    >>> grid = jnp.stack(jnp.meshgrid(jnp.arange(2), jnp.arange(3), indexing="ij"), -1)
    >>> encoding = mixed_rope(head_dim=4, num_heads=2)
    >>> params = encoding.init(jax.random.key(0))
    >>> encoding.query(params, jnp.ones((6, 2, 4)), grid.reshape(6, 2)).shape
    (6, 2, 4)
    """
    check_sizes(num_heads=num_heads)
    if axes not in (1, 2) or head_dim < 1 or head_dim % (2 * axes):
        raise ValueError(
            f"axes={axes} and head_dim={head_dim}: pass 1 or 2 axes, and a head_dim that is a "
            "multiple of 2·axes"
        )
    base = (10.0 if axes == 2 else 10_000.0) if base is None else base
    size = inverse_frequencies(head_dim // axes, base=base)
    shape = (axes, num_heads, head_dim // 2)

    def init(key):
        dtype = jnp.result_type(float)
        if axes == 1:
            return {"frequencies": jnp.broadcast_to(jnp.asarray(size, dtype), shape)}
        angle = jax.random.uniform(key, (num_heads, 1), dtype, maxval=2 * np.pi)
        cos, sin = (f(angle) * jnp.asarray(size, dtype)[None] for f in (jnp.cos, jnp.sin))
        halves = jnp.stack([jnp.stack([cos, -sin], axis=1), jnp.stack([sin, cos], axis=1)])
        return {"frequencies": halves.reshape(shape)}

    def turn(params, x: ArrayLike, positions: ArrayLike) -> Array:
        x = jnp.asarray(x)
        check_heads(x.shape, num_heads, head_dim)
        check_tables(params, frequencies=shape)
        i = _coordinates(positions, x, axes)
        omega = params["frequencies"].astype(i.dtype)
        angles = sum(i[..., a, None, None] * expand_rank(omega[a], x.ndim) for a in range(axes))
        return rotate(x, jnp.cos(angles), jnp.sin(angles), interleaved=True)

    def vectors(params, positions: ArrayLike) -> Array:
        n = np.shape(positions)[0]
        reference = np.tile([1.0, 0.0], (n, num_heads, head_dim // 2))
        turned = turn(params, jnp.asarray(reference, jnp.result_type(float)), positions)
        return turned.reshape(n, num_heads * head_dim)

    return Encoding(init=init, query=turn, key=turn, vectors=vectors, rotates=True)


@register(
    "liere",
    source="Ostmeier et al. (2024)",
    coordinates=2,
    make=lambda s: liere(head_dim=s.head_dim, block=_block(s.head_dim), extent=float(s.length)),
)
def liere(
    *,
    head_dim: int,
    block: int,
    axes: int = 2,
    num_heads: int | None = None,
    extent: Scalar = 1.0,
) -> Encoding:
    """LieRE: learned rotations exp(Σ_a x_a A_a), A_a = U_a − U_aᵀ (Ostmeier et al. 2024).

    Queries and keys rotate. U_a is upper triangular and learned, in blocks along the head; x is
    position/extent. Where the A_a commute, as with one coordinate or blocks of 2, logits depend on
    the coordinates' offsets alone. Otherwise they depend on positions too, because R(x)ᵀR(y) is not
    R(y − x). There are no position vectors: see `encoding_distances`.

    Parameters: `upper` `[axes, heads or 1, head_dim / block, block·(block − 1)/2]`, the entries of
    U row by row. They are uniform in [0, 2π) at first, as in the authors' code, where a coordinate
    runs from 0 to 1 over an image. The exponential of each block is computed at each position, in
    float32 or wider: time and memory n·head_dim·block and more.

    Args:
        head_dim: width of a head, a multiple of the block.
        block: width of the blocks, from 2 (RoPE with learned frequencies) to head_dim.
        axes: coordinates of a position, at least 1; with 1 positions are `[..., n]`.
        num_heads: heads with their own rotations, for queries and keys alike; all heads share one
            set when None.
        extent: coordinate that counts as 1, such as the patches along an image.

    Raises:
        ValueError: sizes that do not fit, positions of another number of coordinates, or an array
            of another number of heads.

    >>> encoding = liere(head_dim=4, block=2, axes=1)
    >>> params = {"upper": jnp.full((1, 1, 2, 1), -np.pi / 2)}
    >>> abs(encoding.query(params, jnp.eye(4)[:1, None], jnp.ones(1))).round(4).ravel().tolist()
    [0.0, 1.0, 0.0, 0.0]
    """
    blocks, entries = _block_sizes(head_dim, block, axes, num_heads, extent)
    shape = (axes, num_heads or 1, blocks, entries)

    def init(key):
        upper = jax.random.uniform(key, shape, jnp.result_type(float), maxval=2 * np.pi)
        return {"upper": upper}

    def generators(params):
        check_tables(params, upper=shape)
        return params["upper"]

    rotation = _block_rotation(init, generators, head_dim, block, num_heads, extent)
    return rotation._replace(rotates=axes == 1 or block == 2)  # else R(x)R(y) is not R(x + y)


@register(
    "comrope",
    source="Yu et al. (2025)",
    coordinates=2,
    make=lambda s: comrope(
        head_dim=s.head_dim, block=_block(s.head_dim), num_heads=s.num_heads, extent=float(s.length)
    ),
)
def comrope(
    *,
    head_dim: int,
    block: int,
    axes: int = 2,
    num_heads: int | None = None,
    extent: Scalar = 1.0,
) -> Encoding:
    """ComRoPE-LD: learned rotations exp((Σ_a θ_a x_a)(P − Pᵀ)) that commute (Yu et al. 2025).

    The generators θ_a(P − Pᵀ) of a block are multiples of one another (linearly dependent). So they
    commute, and logits depend on the coordinates' offsets alone. x = position/extent. There are no
    position vectors: see `encoding_distances`.

    Parameters: `upper` `[heads or 1, head_dim / block, block·(block − 1)/2]`, the entries of P − Pᵀ
    above the diagonal, row by row, N(0, 2) at first, like differences of the authors' N(0, 1)
    entries; `multipliers` θ `[axes, head_dim / block]`, N(0, 1) at first, which all heads share.
    The exponential of each block is computed at each position, in float32 or wider.

    Args:
        head_dim: width of a head, a multiple of the block.
        block: width of the blocks, from 2 to head_dim; the paper's best have width 8.
        axes: coordinates of a position, at least 1; with 1 positions are `[..., n]`.
        num_heads: heads with their own P, for queries and keys alike, as published; all heads share
            one when None.
        extent: coordinate that counts as 1, such as the patches along an image.

    Raises:
        ValueError: sizes that do not fit, positions of another number of coordinates, or an array
            of another number of heads.

    >>> encoding = comrope(head_dim=4, block=4)
    >>> params = encoding.init(jax.random.key(0))
    >>> turned = encoding.query(params, jnp.eye(4)[:, None], jnp.ones((4, 2)))[:, 0]
    >>> bool(jnp.abs(turned @ turned.T - jnp.eye(4)).max() < 1e-5)
    True
    """
    blocks, entries = _block_sizes(head_dim, block, axes, num_heads, extent)
    shape = (num_heads or 1, blocks, entries)

    def init(key):
        return normal_params(key, upper=(2**0.5, shape), multipliers=(1.0, (axes, blocks)))

    def generators(params):
        check_tables(params, upper=shape, multipliers=(axes, blocks))
        return params["multipliers"][:, None, :, None] * params["upper"][None]

    return _block_rotation(init, generators, head_dim, block, num_heads, extent)


def _block_rotation(
    init: Callable[[Array], Params],
    generators: Callable[[Params], Array],
    head_dim: int,
    block: int,
    num_heads: int | None,
    extent: Scalar,
) -> Encoding:
    """The encoding of exp(Σ_a x_a A_a) in blocks; generators are the A_a above the diagonal."""
    # JAX keeps what it makes of 64-bit indices, and then fails with and without `enable_x64`.
    rows, columns = (index.astype(np.int32) for index in np.triu_indices(block, 1))

    def turn(params, x: ArrayLike, positions: ArrayLike) -> Array:
        x = jnp.asarray(x)
        check_head_dim(x.shape, head_dim)
        if num_heads is not None:
            check_heads(x.shape, num_heads)
        upper = generators(params)
        i = _coordinates(positions, x, upper.shape[0]) / extent
        summed = jnp.einsum("...na,ahke->...nhke", i, upper.astype(i.dtype))
        empty = jnp.zeros((*summed.shape[:-1], block, block), i.dtype)
        skew = empty.at[..., rows, columns].set(summed)
        R = _exponential(skew - skew.mT)
        parts = x.astype(i.dtype).reshape(*x.shape[:-1], head_dim // block, block)
        R = jnp.broadcast_to(R, (*parts.shape, block))
        turned = jnp.einsum("...ij,...j->...i", R, parts, precision="highest")
        return turned.reshape(x.shape).astype(x.dtype)

    return Encoding(init=init, query=turn, key=turn, rotates=True)


@jax.jit
def _exponential(A: Array) -> Array:
    """exp(A) of skew matrices `[..., b, b]`: the series of A/2ⁿ, norm below 1/4, squared n times.

    It equals `jax.scipy.linalg.expm` to rounding, but is a rotation for any size of A. It compiles
    in a fifth of the time, because `expm` computes five approximations for a batch.
    """
    product = partial(jnp.matmul, precision="highest")
    norm = jnp.max(jnp.sum(jnp.abs(lax.stop_gradient(A)), axis=-1), axis=-1)
    times = jnp.ceil(jnp.log2(jnp.maximum(norm, 0.25))) + 2
    A = A * jnp.exp2(-times)[..., None, None]
    unit = jnp.broadcast_to(jnp.eye(A.shape[-1], dtype=A.dtype), A.shape)

    def add_term(R: Array, k: Array) -> tuple[Array, None]:
        return unit + product(A, R) / k, None

    def square(R: Array) -> Array:
        squared = product(R, R)
        # A step of Newton's iteration for the polar factor: the loss of orthogonality by rounding
        # would double with each squaring.
        return 1.5 * squared - 0.5 * product(squared, product(squared.mT, squared))

    @jax.checkpoint  # stores one matrix a step for the derivative, not all intermediate ones
    def square_where_needed(R: Array, k: Array) -> tuple[Array, None]:
        # Most matrices need few squarings; the rest of the loop does nothing.
        squared = lax.cond(jnp.any(k < times), square, lambda R: R, R)
        return jnp.where((k < times)[..., None, None], squared, R), None

    R, _ = lax.scan(add_term, unit, jnp.arange(_TERMS, 0, -1, dtype=A.dtype))
    return lax.scan(square_where_needed, R, jnp.arange(_SQUARINGS, dtype=A.dtype))[0]


def _coordinates(positions: ArrayLike, x: Array, axes: int) -> Array:
    """Positions as floats `[..., n, axes]`, aligned with heads; `[..., n]` for one axis."""
    coordinates = turning_positions(x, positions, axes=axes if axes > 1 else 0)
    floats = coordinates.astype(compute_dtype(x))
    return floats if axes > 1 else floats[..., None]


def _block_sizes(
    head_dim: int, block: int, axes: int, num_heads: int | None, extent: Scalar
) -> tuple[int, int]:
    """Number of blocks and of entries above the diagonal of one."""
    check_sizes(head_dim=head_dim, axes=axes, num_heads=1 if num_heads is None else num_heads)
    if block < 2 or head_dim % block:
        raise ValueError(
            f"block={block} does not divide head_dim={head_dim} into rotations: pass a divisor of "
            "at least 2"
        )
    check_positive(extent=extent)
    return head_dim // block, block * (block - 1) // 2


def _block(head_dim: int) -> int:
    """Block width: 8, or the largest smaller one that divides a head."""
    return next(b for b in (8, 4, 2, head_dim) if head_dim % b == 0)
