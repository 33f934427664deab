"""Context extension of rotary encodings: ReRoPE, SelfExtend, dual chunk attention.

All three extend a trained model without training. Near pairs of query and key are rotated as in
training, far pairs by positions with offsets that occurred in training.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxpe._core.arrays import ArrayLike, Scalar, is_traced
from jaxpe.encodings.attention_terms import dot_products
from jaxpe.encodings.base import (
    Encoding,
    Params,
    align_positions,
    check_acts_by,
    check_plain,
    check_sizes,
    position_offsets,
    vector_dtype,
)
from jaxpe.encodings.families.rotary import rope
from jaxpe.encodings.registry import register


class _Band(NamedTuple):
    """Positions by which a band of offsets is rotated.

    Attributes:
        q, k: positions of queries `[..., n_q]` and of keys `[..., n_k]`.
        where: `[..., 1, n_q, n_k]`, the pairs of the band; later bands override earlier ones.
    """

    q: Array
    k: Array
    where: Array | bool = True


@register(
    "rerope_leaky",
    description="Leaky ReRoPE: offsets grow slower beyond a window (Su 2023)",
    source="Su (2023)",
    variant_of="rerope",
    make=lambda s: rerope(rope(head_dim=s.head_dim), window=s.window, leak=1 / 16),
)
@register(
    "rerope", source="Su (2023)", make=lambda s: rerope(rope(head_dim=s.head_dim), window=s.window)
)
def rerope(
    encoding: Encoding,
    *,
    window: int,
    leak: Scalar = 0.0,
    causal: bool = False,
) -> Encoding:
    """ReRoPE: offsets are clipped at a window, or grow slower beyond it (Su 2023).

    Let d = i − j. Below the window w products do not change. Beyond it the offset is sign(d)·(w +
    leak·(|d| − w)): w for every far key if leak is 0 (ReRoPE), and otherwise the rotations of
    position interpolation (leaky ReRoPE, whose scaling factor is 1/leak). It is exact: a far pair
    is rotated by its own positions, as in the author's code (bojone/rerope). That code is causal;
    in this one, keys after the query mirror the keys before it.

    It computes products of three rotations of queries and keys, or two if `causal`. `vectors` are
    not defined, because points at these distances need not exist. The author also multiplies
    queries by max(1, ln(i + 1)/ln L): chain it with `ssmax`.

    Args:
        encoding: an encoding that rotates queries and keys by position, such as `rope`.
        window: w, offset from which distances are clipped; at least 1, below the training length. A
            window beyond the largest offset changes nothing.
        leak: growth of far offsets, in [0, 1). Where it is not 0, positions become floats.
        causal: whether keys after the query are masked, so their products are not computed.

    Raises:
        ValueError: an encoding that does more than rotate queries and keys, or options out of
            range.

    >>> near = rerope(jaxpe.encodings.rope(head_dim=2, base=1.0), window=2)
    >>> q, i = jnp.asarray([[[1.0, 0.0]]] * 4), jnp.arange(4)  # products are cos of the offset
    >>> jnp.arccos(near.products((), q, q, i, i)[0, :, 0]).round(4).tolist()
    [0.0, 1.0, 2.0, 2.0]
    """
    check_sizes(window=window)
    if not (is_traced(leak >= 0) or 0 <= leak < 1):
        raise ValueError(f"leak is {leak}: pass the growth of far offsets, at least 0 and below 1")

    def bands(i: Array, j: Array, behind: Array) -> list[_Band]:
        if not is_traced(leak == 0) and leak == 0:  # integers, whose phases are exact far out
            q, k, stretch = jnp.zeros_like(i), jnp.zeros_like(j), window
        else:
            q, k = (x.astype(vector_dtype(x)) * leak for x in (i, j))
            stretch = window * (1 - leak)
        later = [] if causal else [_Band(q - stretch, k, behind <= -window)]
        return [_Band(i, j), _Band(q + stretch, k, behind >= window), *later]

    return _banded_encoding(encoding, bands)


@register(
    "self_extend",
    source="Jin et al. (2024)",
    make=lambda s: self_extend(rope(head_dim=s.head_dim), window=2 * -(-s.window // 2), group=2),
)
def self_extend(encoding: Encoding, *, window: int, group: int, causal: bool = False) -> Encoding:
    """SelfExtend: far positions are shared by groups of neighbours (Jin et al. 2024).

    Offsets d = i − j below the window w do not change. Beyond it a query rotates as at ⌊i/G⌋ + w −
    w/G and a key as at ⌊j/G⌋, so the offset is near w + (d − w)/G. A context of G·(L − w) + w
    positions then needs only offsets below L. Keys after the query, which the authors' code
    (datamllab/LongLM) masks, mirror the keys before it.

    Groups begin at multiples of G, so products change when all positions move by less than a group.
    Packed and cached rows are right, because positions are explicit. There are no position vectors.

    Args:
        encoding: an encoding that rotates queries and keys by position, such as `rope`.
        window: w, offset from which groups are used; a multiple of the group. A window beyond the
            largest offset changes nothing.
        group: G, number of positions that share a rotation, at least 1.
        causal: whether keys after the query are masked, so their products are not computed.

    Raises:
        ValueError: an encoding that does more than rotate queries and keys, or options out of
            range.

    >>> from jaxpe import encodings
    >>> near = self_extend(encodings.rope(head_dim=2, base=1.0), window=2, group=2)
    >>> q, i = jnp.asarray([[[1.0, 0.0]]] * 4), jnp.arange(4)  # products are cos of the offset
    >>> jnp.arccos(near.products((), q, q, i, i)[0, 3]).round(4).tolist()
    [2.0, 2.0, 1.0, 0.0]
    """
    check_sizes(window=window, group=group)
    if window % group:
        raise ValueError(
            f"window={window} is no multiple of group={group}: the offsets of groups would not "
            f"continue those of neighbours; pass window={group * -(-window // group)}"
        )

    def bands(i: Array, j: Array, behind: Array) -> list[_Band]:
        shift = window - window // group
        q, k = i // group, j // group
        later = [] if causal else [_Band(q - shift, k, behind <= -window)]
        return [_Band(i, j), _Band(q + shift, k, behind >= window), *later]

    return _banded_encoding(encoding, bands)


@register(
    "dual_chunk",
    source="An et al. (2024)",
    make=lambda s: dual_chunk(rope(head_dim=s.head_dim), chunk=s.window, local=s.window // 4),
)
def dual_chunk(encoding: Encoding, *, chunk: int, local: int, causal: bool = False) -> Encoding:
    """Dual chunk attention: positions count from the start of a chunk (An et al. 2024).

    Chunks are c = chunk − local positions long; a key rotates as at j mod c. A query rotates as at
    i mod c for keys of its own chunk, and as at min(2c − 1, chunk) for chunks before the previous
    one. For the previous chunk it rotates as at min(i mod c + c, chunk), so offsets below `local`
    do not change. This is the authors' code (HKUNLP/ChunkLlama), and no offset exceeds `chunk`.
    Keys after the query, which that code masks, mirror the keys before it.

    Products change when all positions move by less than a chunk. Packed and cached rows are right,
    because positions are explicit. There are no position vectors. It computes five products of
    rotations, or three if `causal`.

    Args:
        encoding: an encoding that rotates queries and keys by position, such as `rope`.
        chunk: largest offset that is used, below the training length; the authors take three
            quarters of it.
        local: offsets that do not change across the end of a chunk, at least 0 and below `chunk`;
            the authors take a sixteenth of the training length.
        causal: whether keys after the query are masked, so their products are not computed.

    Raises:
        ValueError: an encoding that does more than rotate queries and keys, or options out of
            range.

    >>> from jaxpe import encodings
    >>> near = dual_chunk(encodings.rope(head_dim=2, base=1.0), chunk=3, local=1)
    >>> q, i = jnp.asarray([[[1.0, 0.0]]] * 6), jnp.arange(6)  # products are cos of the offset
    >>> jnp.arccos(near.products((), q, q, i, i)[0, 5]).round(4).tolist()
    [3.0, 2.0, 3.0, 2.0, 1.0, 0.0]
    """
    check_sizes(chunk=chunk)
    check_plain(local=local)
    if not 0 <= local < chunk:
        raise ValueError(f"local is {local}: pass at least 0 and less than chunk={chunk}")
    length = chunk - local
    last = min(2 * length - 1, chunk)

    def bands(i: Array, j: Array, behind: Array) -> list[_Band]:
        q, k = i % length, j % length
        chunks = (i // length)[..., None, :, None] - (j // length)[..., None, None, :]

        def following(positions: Array) -> Array:
            return jnp.minimum(positions + length, chunk)

        bands = [
            _Band(q, k),
            _Band(following(q), k, chunks == 1),
            _Band(jnp.full_like(q, last), k, chunks > 1),
        ]
        if not causal:
            bands.append(_Band(q, following(k), chunks == -1))
            bands.append(_Band(q, jnp.full_like(k, last), chunks < -1))
        return bands

    return _banded_encoding(encoding, bands)


def _banded_encoding(
    encoding: Encoding, bands: Callable[[Array, Array, Array], list[_Band]]
) -> Encoding:
    """An encoding's products, with each pair rotated by the positions of its band.

    `bands` takes positions of queries and of keys, and the offsets i − j `[..., 1, n_q, n_k]`.
    """
    check_acts_by(encoding, "query", "key", such_as="rope(head_dim=64)")

    def products(
        params: Params, q: ArrayLike, k: ArrayLike, q_positions: ArrayLike, k_positions: ArrayLike
    ) -> Array:
        q, k = jnp.asarray(q), jnp.asarray(k)
        i = align_positions(q_positions, q.shape, after=2)
        j = align_positions(k_positions, k.shape, after=2)

        def turned(band: _Band) -> Array:
            return dot_products(encoding.query(params, q, band.q), encoding.key(params, k, band.k))

        near, *others = bands(i, j, -position_offsets(q, k, i, j))
        result = turned(near)
        for band in others:
            result = jnp.where(band.where, turned(band), result)
        return result

    return Encoding(init=encoding.init, products=products)
