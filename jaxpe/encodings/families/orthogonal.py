"""Position vectors from orthogonal functions: polynomials, cosines, wavelets, harmonics.

Legendre polynomials and wavelets as encodings were proposed by Li (2025, arXiv:2506.06398), who
names Chebyshev polynomials and spherical harmonics as next steps.
"""

import math
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from jaxpe._core.arrays import ArrayLike, Scalar, is_traced
from jaxpe._core.errors import require
from jaxpe.encodings.base import (
    Encoding,
    as_positions,
    check_choice,
    check_sizes,
    expand_rank,
    vector_dtype,
)
from jaxpe.encodings.families.absolute import Mode, Positions, fixed_vectors, from_vectors
from jaxpe.encodings.phases import phases
from jaxpe.encodings.registry import register
from jaxpe.encodings.tables import take
from jaxpe.geometry.distances.matrices import floating, safe_sqrt

PositionMap = Literal["tanh", "clipped", "log"]

# Least energy of a unit-norm wavelet on the positions; smaller tails are rounding and noise.
LEAST_ENERGY = 1e-2


@register(
    "legendre_log",
    description="Legendre polynomials of the logarithm of the position, added (Li 2025)",
    source="Li (2025)",
    vectors="P_k of the logarithm of positions",
    make=lambda s: legendre(dim=s.dim, length=s.length, position_map="log"),
)
@register(
    "legendre_clipped",
    description="Legendre polynomials of the position clipped at T, added (Li 2025)",
    source="Li (2025)",
    vectors="P_k of positions mapped linearly to [−1, 1]",
    make=lambda s: legendre(dim=s.dim, length=s.length, position_map="clipped"),
)
@register("legendre", source="Li (2025)", vectors="P_k of tanh(i/L)")
def legendre(
    *,
    dim: int,
    length: int,
    position_map: PositionMap = "tanh",
    s: Scalar | None = None,
    normalized: bool = False,
    scale: Scalar = 1.0,
    mode: Mode = "add",
) -> Encoding:
    """Legendre polynomials of tanh of the position, added (Li 2025).

    `vectors` are scale·`legendre_vectors`.

    Args:
        dim, length, s, normalized: arguments of `legendre_vectors`.
        position_map: map of the positions to [−1, 1], an argument of `legendre_vectors`.
        scale, mode: arguments of `sinusoidal`.

    >>> encoding = legendre(dim=2, length=3, position_map="clipped")
    >>> encoding.vectors((), jnp.arange(3)).tolist()
    [[1.0, -1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    options = {"position_map": position_map, "s": s, "normalized": normalized, "length": length}
    return fixed_vectors(legendre_vectors, scale=scale, mode=mode, dim=dim, **options)


@register(
    "chebyshev",
    source="jaxpe",
    vectors="T_k of positions mapped linearly to [−1, 1]",
    make=lambda s: chebyshev(dim=s.dim, length=s.length, position_map="clipped"),
)
def chebyshev(
    *,
    dim: int,
    length: int,
    position_map: PositionMap = "tanh",
    s: Scalar | None = None,
    scale: Scalar = 1.0,
    mode: Mode = "add",
) -> Encoding:
    """Chebyshev polynomials of the position, added.

    `vectors` are scale·`chebyshev_vectors`.

    Args:
        dim, length, position_map, s: arguments of `chebyshev_vectors`.
        scale, mode: arguments of `sinusoidal`.

    >>> encoding = chebyshev(dim=3, length=3, position_map="clipped")
    >>> encoding.vectors((), jnp.arange(3)).tolist()
    [[1.0, -1.0, 1.0], [1.0, 0.0, -1.0], [1.0, 1.0, 1.0]]
    """
    options = {"dim": dim, "length": length, "position_map": position_map, "s": s}
    return fixed_vectors(chebyshev_vectors, scale=scale, mode=mode, **options)


@register("cosine", source="Ahmed et al. (1974)", vectors="orthonormal DCT-II basis")
def cosine(*, dim: int, length: int, scale: Scalar = 1.0, mode: Mode = "add") -> Encoding:
    """Cosine encoding: the orthonormal DCT-II basis, added.

    `vectors` are scale·`cosine_vectors`.

    Args:
        dim, length: arguments of `cosine_vectors`.
        scale, mode: arguments of `sinusoidal`.

    >>> encoding = cosine(dim=3, length=3)
    >>> euclidean_distances(encoding.vectors((), jnp.arange(3))).values[0].round(3).tolist()
    [0.0, 1.414, 1.414]
    """
    return fixed_vectors(cosine_vectors, scale=scale, mode=mode, dim=dim, length=length)


@register("wavelet", source="Li (2025)", vectors="Daubechies-4 wavelets, rows of unit length")
def wavelet(
    *, dim: int, length: int, order: int = 4, scale: Scalar = 1.0, mode: Mode = "add"
) -> Encoding:
    """Daubechies wavelets, added (Li 2025).

    `vectors` are scale·`wavelet_vectors`.

    Args:
        dim, length, order: arguments of `wavelet_vectors`.
        scale, mode: arguments of `sinusoidal`.

    >>> encoding = wavelet(dim=2, length=2, order=1)
    >>> encoding.vectors((), jnp.arange(2)).round(3).tolist()
    [[0.707, 0.707], [0.707, -0.707]]
    """
    basis = wavelet_basis(dim, length, order)
    return from_vectors(lambda _, i: _wavelet_rows(basis, i), scale=scale, mode=mode)


@register(
    "spherical_harmonics",
    source="jaxpe",
    vectors="real Y_lm of places on a sphere",
    make=lambda s: spherical_harmonics(dim=s.dim, rows=s.length, columns=s.length),
    coordinates=2,
)
def spherical_harmonics(
    *, dim: int, rows: int, columns: int, scale: Scalar = 1.0, mode: Mode = "add"
) -> Encoding:
    """Spherical harmonics of places on a sphere, added: maps, panoramas.

    Positions are `[..., n, 2]`, row and column; `vectors` are scale·`spherical_harmonic_vectors`.

    Args:
        dim, rows, columns: arguments of `spherical_harmonic_vectors`.
        scale, mode: arguments of `sinusoidal`.

    >>> encoding = spherical_harmonics(dim=1, rows=2, columns=4)
    >>> np.round(encoding.vectors((), jnp.array([[0, 0], [1, 3]])).tolist(), 3).tolist()
    [[0.282], [0.282]]
    """

    def vectors(_, positions):
        return spherical_harmonic_vectors(positions, dim=dim, rows=rows, columns=columns)

    return from_vectors(vectors, scale=scale, mode=mode, coordinates=2)


def legendre_vectors(
    positions: Positions,
    *,
    dim: int,
    length: int,
    position_map: PositionMap = "tanh",
    s: Scalar | None = None,
    normalized: bool = False,
) -> Float[Array, "*batch n dim"]:
    """Legendre polynomials P_k(x(i)), k < dim, of positions mapped to [−1, 1].

    Args:
        positions: `[..., n]`.
        dim: polynomials, from P_0 = 1 on.
        length: L: the map covers the positions 0..L − 1 (1 counts as 2).
        position_map: "tanh": x = tanh(i/s), as proposed; positions ≥ 0 reach only [0, 1), and
            0.76 at i = s. "clipped": x = 2i/(L − 1) − 1, clipped: all positions ≥ L − 1 are equal.
            "log": x = 2·log(1 + i)/log L − 1, clipped.
        s: positions to a unit of tanh, L when None; of "log", x = 2·log(1 + i/s)/log(1 + (L − 1)/s)
            − 1, 1 when None.
        normalized: multiply by √((2k + 1)/2), which makes them orthonormal on [−1, 1].

    Near x = ±1 the distance to ±1 is computed directly: P_k would magnify the rounding of 1 − x up
    to k²/2 times.

    >>> legendre_vectors(jnp.arange(3), dim=3, length=3, position_map="clipped").tolist()
    [[1.0, -1.0, 1.0], [1.0, 0.0, -0.5], [1.0, 1.0, 1.0]]
    """
    x = _mapped_positions(positions, length, position_map, s)
    return _legendre(*x, dim, normalized)


def chebyshev_vectors(
    positions: Positions,
    *,
    dim: int,
    length: int,
    position_map: PositionMap = "tanh",
    s: Scalar | None = None,
) -> Float[Array, "*batch n dim"]:
    """Chebyshev polynomials T_k(x(i)) = cos(k arccos x), k < dim, of positions mapped to [−1, 1].

    Args:
        positions: `[..., n]`.
        dim: polynomials, from T_0 = 1 on.
        length, position_map, s: arguments of `legendre_vectors`.

    >>> chebyshev_vectors(jnp.arange(3), dim=3, length=3, position_map="clipped").tolist()
    [[1.0, -1.0, 1.0], [1.0, 0.0, -1.0], [1.0, 1.0, 1.0]]
    """
    return _chebyshev(*_mapped_positions(positions, length, position_map, s), dim)


def legendre_polynomials(
    x: Float[ArrayLike, "*batch"], *, dim: int, normalized: bool = False
) -> Float[Array, "*batch dim"]:
    """P_0(x), ..., P_{dim−1}(x) by (k + 1) P_{k+1} = (2k + 1) x P_k − k P_{k−1}.

    |P_k| ≤ 1 on [−1, 1], P_k(±1) = (±1)^k; outside they grow. `normalized` multiplies by
    √((2k + 1)/2), so that ∫ P_j P_k dx over [−1, 1] is 1 for j = k, else 0.

    >>> legendre_polynomials(np.array([0.5]), dim=3).tolist()
    [[1.0, 0.5, -0.125]]
    """
    return _legendre(*_split(floating(x)), dim, normalized)


def chebyshev_polynomials(x: Float[ArrayLike, "*batch"], *, dim: int) -> Float[Array, "*batch dim"]:
    """T_0(x), ..., T_{dim−1}(x) by T_{k+1} = 2x T_k − T_{k−1}; |T_k| ≤ 1 on [−1, 1].

    >>> chebyshev_polynomials(np.array([0.5]), dim=4).tolist()
    [[1.0, 0.5, -0.5, -1.0]]
    """
    return _chebyshev(*_split(floating(x)), dim)


def cosine_vectors(positions: Positions, *, dim: int, length: int) -> Float[Array, "*batch n dim"]:
    """Orthonormal DCT-II: √(2/L) cos(π(i + ½)k/L), k < dim, with √(1/L) for k = 0.

    Ahmed, Natarajan & Rao (1974). For dim = L rows and columns over positions 0..L − 1 are
    orthonormal, so all distances are √2; fewer columns keep the slow cosines. Columns from L on are
    0. Beyond L − 1 the vectors run backwards (L equals L − 1), with period 2L.

    Args:
        positions: `[..., n]`.
        dim: functions.
        length: L, number of positions that the functions cover.

    >>> cosine_vectors(jnp.arange(2), dim=3, length=2).round(3).tolist()
    [[0.707, 0.707, 0.0], [0.707, -0.707, 0.0]]
    """
    check_sizes(dim=dim, length=length)
    k = np.arange(dim)
    used = k < length
    frequencies = np.pi * np.where(used, k, 0) / length
    amplitudes = np.sqrt(np.where(k == 0, 1, 2) * used / length)
    # i + ½ as a phase and half a step: far integers stay exact.
    angles = phases(positions, frequencies, vector_dtype(positions))
    angles = angles + expand_rank(frequencies / 2, angles.ndim, angles.dtype)
    return jnp.cos(angles) * expand_rank(amplitudes, angles.ndim, angles.dtype)


def spherical_harmonic_vectors(
    positions: Int[ArrayLike, "..."] | Float[ArrayLike, "..."], *, dim: int, rows: int, columns: int
) -> Float[Array, "*batch n dim"]:
    """Real orthonormal spherical harmonics Y_lm by l, then m = −l ... l: the first `dim`.

    Row i has colatitude π(i + ½)/rows, column j longitude 2πj/columns. For dim = (L + 1)² products
    are a function of the angle γ between two places: Σ (2l + 1) P_l(cos γ)/4π, l ≤ L.

    Args:
        positions: `[..., n, 2]`, row and column.
        dim: functions.
        rows: rows from pole to pole.
        columns: columns once around.

    >>> vectors = spherical_harmonic_vectors(jnp.array([[0, 0]]), dim=4, rows=1, columns=4)
    >>> np.round(vectors.tolist(), 2).tolist()
    [[0.28, 0.0, 0.0, 0.49]]
    """
    check_sizes(dim=dim, rows=rows, columns=columns)
    positions, dtype = as_positions(positions), vector_dtype(positions)
    if positions.ndim < 2 or positions.shape[-1] != 2:
        raise ValueError(f"positions have shape {positions.shape}: pass [..., n, 2] (row, column)")
    degree = np.sqrt(np.arange(dim)).astype(int)
    order = np.arange(dim) - degree * (degree + 1)
    m = np.arange(degree[-1] + 1)
    angle = phases(positions[..., 0], np.array([np.pi / rows]), dtype) + np.pi / (2 * rows)
    turns = phases(positions[..., 1], 2 * np.pi * m / columns, dtype)
    legendre = _associated_legendre(jnp.cos(angle), jnp.sin(angle), m)[..., degree, abs(order)]
    waves = jnp.concatenate([jnp.cos(turns), jnp.sin(turns)], axis=-1)
    waves = waves[..., abs(order) + len(m) * (order < 0)]
    return legendre * waves * expand_rank(np.where(order == 0, 1, 2) ** 0.5, angle.ndim, dtype)


# With m in one array: P_mm = √((2m + 1)/2m) y P_{m−1,m−1}, and for m < l
#     c_l P_lm = x P_{l−1,m} − c_{l−1} P_{l−2,m},    c_l = √((l² − m²)/(4l² − 1)).
def _associated_legendre(x: Array, y: Array, m: np.ndarray) -> Array:
    """Orthonormal P_lm at x = cos θ, y = sin θ `[..., 1]`: `[..., l, m]`, l as m."""
    sizes = np.sqrt(np.cumprod(np.r_[1, 1 + 1 / (2 * m[1:])]) / (4 * np.pi))
    powers = jnp.cumprod(jnp.concatenate([jnp.ones_like(y)] + [y] * (len(m) - 1), -1), axis=-1)
    diagonal = powers * expand_rank(sizes, y.ndim, y.dtype)
    values = [jnp.zeros_like(diagonal), jnp.where(expand_rank(m, y.ndim) == 0, diagonal, 0)]
    for l in m[1:]:  # noqa: E741
        c = [np.sqrt(np.maximum(k**2 - m**2, 0) / max(4 * k**2 - 1, 1)) for k in (l - 1, l)]
        before, last = expand_rank(c[0], y.ndim, y.dtype), np.where(m < l, c[1], 1)
        new = (x * values[-1] - before * values[-2]) / expand_rank(last, y.ndim, y.dtype)
        order = expand_rank(m, y.ndim)
        values.append(jnp.where(order < l, new, jnp.where(order == l, diagonal, 0)))
    return jnp.stack(values[1:], axis=-2)


def wavelet_vectors(
    positions: Positions, *, dim: int, length: int, order: int = 4
) -> Float[Array, "*batch n dim"]:
    """Daubechies wavelets ψ_{j,k}(p) = 2^(−j/2) ψ(2^(−j) p − k) and scaling functions, unit rows.

    Daubechies (1988). With J = ⌈log₂ length⌉ the columns are φ_{J,k}, then ψ_{j,k} for j = J, J −
    1, ... (0 and below if `dim` is large), down to the scale where a support holds one position.
    Shifts k need an energy Σ_p ψ_{j,k}(p)² above 1/100 on positions 0..length − 1. Functions with
    more positions in their support come first (ties: more energy, then coarse before fine, then by
    k). `dim` functions are kept, and columns beyond are 0. Each row is then divided by its norm.
    Rows are distinct, except for Haar with dim < length, and nearly equal where dim is small.

    The filters come from PyWavelets (extra "wavelet"); between dyadic points φ and ψ are
    interpolated linearly, also in gradients with respect to positions. At integer positions they
    are exact for length ≤ 4,096.

    Rows are 0 where every support has ended: from (2·order − 1)·2^J on at the latest, and from
    −(2·order − 2)·2^J down. Well before, few functions remain and rows become nearly equal.

    Args:
        positions: `[..., n]`.
        dim: functions.
        length: number of positions that the functions cover.
        order: N of dbN, 1 (Haar) to 38: N vanishing moments, supports [0, 2N − 1].

    Raises:
        MissingExtraError: without PyWavelets.
        ValueError: all functions are 0 at some position, as a single one (dim=1) may be.

    >>> wavelet_vectors(jnp.arange(4), dim=4, length=4, order=1)[0].round(3).tolist()
    [0.5, 0.5, 0.707, 0.0]
    """
    return _wavelet_rows(wavelet_basis(dim, length, order), positions)


def _mapped_positions(
    positions: ArrayLike, length: int, position_map: str, s: Scalar | None
) -> tuple[Array, Array]:
    """Positions in [−1, 1], as the sign of x and 1 − |x|, which keeps its relative precision."""
    check_sizes(length=length)
    check_choice("position_map", position_map, get_args(PositionMap))
    if s is not None and (position_map == "clipped" or not (is_traced(s > 0) or s > 0)):
        raise ValueError(f"s={s} must be positive, and goes with position_map='tanh' or 'log'")
    positions, dtype = as_positions(positions), vector_dtype(positions)
    last = max(length - 1, 1)
    if position_map == "tanh":
        t = positions.astype(dtype) / _unit(float(length) if s is None else s, dtype)
        sign = jnp.where(t < 0, -1.0, 1.0).astype(dtype)
        return sign, 2 * jax.nn.sigmoid(-2 * sign * t)
    before = positions <= 0
    # Outside of 0..last nothing depends on the position, so the derivative is 0. At both ends the
    # derivative is the inner one.
    inside = (positions >= 0) & (positions <= last)
    i = jnp.where(inside, positions, 0)
    to_end = (last - i).astype(dtype)
    i = i.astype(dtype)
    if position_map == "clipped":
        low, high = i / last, to_end / last
    else:
        unit = _unit(1.0 if s is None else s, dtype)
        whole = (jnp if is_traced(unit) else math).log1p(last / unit)
        low = jnp.log1p(i / unit) / whole
        high = -jnp.log1p(-to_end / (last + unit)) / whole
    lower = jnp.where(inside, low < high, before)
    sign = jnp.where(lower, -1.0, 1.0).astype(dtype)
    return sign, jnp.where(inside, 2 * jnp.where(lower, low, high), 0)


def _unit(s: Scalar, dtype: jnp.dtype) -> Scalar:
    return jnp.asarray(s, dtype) if is_traced(s) else float(s)


def _split(x: Array) -> tuple[Array, Array]:
    """The sign of x and 1 − |x|."""
    sign = jnp.where(x < 0, -1.0, 1.0).astype(x.dtype)
    return sign, 1 - sign * x


# The recurrences P_{k+1} = (1 + a_k)·x·P_k − a_k·P_{k−1} (Legendre: a_k = k/(k + 1), Chebyshev:
# a_k = 1, and a_0 = 0) are run on differences d_k = P_{k+1} − P_k at |x|, with rest = 1 − |x|:
#     d_k = a_k d_{k−1} − (1 + a_k)·rest·P_k,    P_{k+1} = P_k + d_k,
# which does not lose rest where it is small (Reinsch). Then P_k(−x) = (−1)^k P_k(x).
@jax.jit
def _recurrence(sign: Array, rest: Array, a: Array) -> Array:
    """Polynomials P_0..P_{len(a)} at sign·(1 − rest), along a new last axis."""

    def step(carry, a_k):
        d, p = carry
        d = a_k * d - (1 + a_k) * rest * p
        return (d, p + d), p + d

    one = jnp.ones_like(rest)
    values = lax.scan(step, (jnp.zeros_like(rest), one), a.astype(rest.dtype))[1]
    values = jnp.moveaxis(jnp.concatenate([one[None], values]), 0, -1)
    odd = expand_rank(np.arange(len(a) + 1) % 2, values.ndim, values.dtype) == 1
    return jnp.where(odd, sign[..., None] * values, values)


def _legendre(sign: Array, rest: Array, dim: int, normalized: bool) -> Array:
    check_sizes(dim=dim)
    k = np.arange(dim)
    values = _recurrence(sign, rest, jnp.asarray(k[:-1] / (k[:-1] + 1)))
    sizes = np.sqrt(k + 0.5) if normalized else np.ones(dim)
    return values * expand_rank(sizes, values.ndim, values.dtype)


def _chebyshev(sign: Array, rest: Array, dim: int) -> Array:
    check_sizes(dim=dim)
    return _recurrence(sign, rest, jnp.asarray(np.minimum(np.arange(dim - 1.0), 1.0)))


class WaveletBasis(NamedTuple):
    """Functions 2^(−j/2) f(2^(−j) p − k), one a column, f = φ (row 0 of the table) or ψ (row 1)."""

    row: np.ndarray
    j: np.ndarray
    k: np.ndarray
    unused: int  # columns of 0
    table: np.ndarray  # φ and ψ on [0, width] in steps of 2^−level, float64
    width: int
    level: int


def wavelet_basis(dim: int, length: int, order: int) -> WaveletBasis:
    """The functions of `wavelet_vectors`, chosen and tabulated."""
    check_sizes(dim=dim, length=length)
    if not 1 <= order <= 38:
        raise ValueError(f"order must lie in [1, 38] (db1 to db38), not {order}")
    filters = require("pywt", extra="wavelet").Wavelet(f"db{order}")
    width, coarsest = 2 * order - 1, (length - 1).bit_length()
    level = min(max(coarsest, 10), 12)
    table = _daubechies(np.asarray(filters.rec_lo), np.asarray(filters.rec_hi), level)
    scaling, wavelets = _translates(table[0], coarsest, length, width), np.zeros((4, 0))
    # At the finest scale every support holds one position; finer ones would repeat its columns.
    for j in range(coarsest, -width.bit_length() - 1 if width > 1 else -1, -1):
        wavelets = np.concatenate([wavelets, _translates(table[1], j, length, width)], axis=1)
        most_at_next = width * 2.0 ** (j - 1)
        if (wavelets[0] >= most_at_next).sum() + scaling.shape[1] >= dim:
            break
    columns = np.concatenate([_coverage_order(scaling), _coverage_order(wavelets)], axis=1)
    _, _, j, k = columns[:, :dim]
    row = (np.arange(len(k)) >= scaling.shape[1]).astype(np.int32)
    _check_covered(table[row], j, k, length, width)
    return WaveletBasis(row, j, k, dim - len(k), table, width, level)


def _translates(function: np.ndarray, j: int, length: int, width: int) -> np.ndarray:
    """Rows coverage, energy, j, k of the shifts with energy on positions 0..length − 1.

    A support is 2^j (k, k + width), because φ and ψ are 0 at both ends; Haar's (width 1) is 2^j [k,
    k + 1). The energy is the sum of squares over the positions in it.
    """
    step = 2.0**j
    k = np.arange(1 - width, math.ceil(length / step))
    first = np.maximum(np.ceil(step * k) if width == 1 else np.floor(step * k) + 1, 0)
    last = np.minimum(np.ceil(step * (k + width)) - 1, length - 1)
    coverage, energy = last - first + 1, np.zeros(len(k))
    # Along wide supports a few thousand samples are enough.
    stride = max(1, int(coverage.max()) // 4096)
    grid = np.linspace(0, width, len(function))
    for offset in range(0, int(coverage.max()), stride):
        p = first + offset
        value = np.interp(p / step - k, grid, function)
        energy += np.where(p <= last, stride / step * value**2, 0)
    rows = np.stack([coverage, energy, np.full(len(k), float(j)), k])
    return rows[:, (coverage > 0) & (energy > LEAST_ENERGY)]


def _check_covered(
    functions: np.ndarray, j: np.ndarray, k: np.ndarray, length: int, width: int
) -> None:
    """Raise where all functions vanish at a position, which then has no row of unit length."""
    missing, grid = np.arange(length), np.linspace(0, width, functions.shape[1])
    for values, scale, shift in zip(functions, 2.0**-j, k, strict=True):
        at_missing = np.interp(missing * scale - shift, grid, values, left=0, right=0)
        missing = missing[np.abs(at_missing) < 1e-6]
    if missing.size:
        raise ValueError(
            f"the {len(k)} wavelets of order={(width + 1) // 2} for length={length} are all 0 at "
            f"position {missing[0]}: pass a larger dim, a lower order or a longer length"
        )


def _coverage_order(rows: np.ndarray) -> np.ndarray:
    """Order of the functions: most positions, then most energy, then coarse to fine, then shift."""
    coverage, energy, j, k = rows
    # Rounded, so that equal energies are a tie on every machine.
    return rows[:, np.lexsort((k, -j, -energy.round(9), -coverage))]


def _daubechies(low: np.ndarray, high: np.ndarray, level: int) -> np.ndarray:
    """φ and ψ `[2, width·2^level + 1]` at multiples of 2^−level, exact up to rounding.

    From φ(x) = √2 Σ low_n φ(2x − n) and ψ(x) = √2 Σ high_n φ(2x − n): at integers φ is the
    eigenvector of that equation to eigenvalue 1 with Σφ = 1 (for Haar it is 1 at 0); each pass then
    halves the step. (`wavefun` of PyWavelets iterates the filters instead, which shifts and
    smooths.)
    """
    width = len(low) - 1
    phi = np.array([1.0, 0.0])
    if width > 1:
        n = np.arange(1, width)
        taps = np.pad(low, width)[2 * n[:, None] - n[None, :] + width]
        system = np.vstack([np.sqrt(2.0) * taps - np.eye(width - 1), np.ones(width - 1)])
        inner = np.linalg.lstsq(system, np.append(np.zeros(width - 1), 1.0), rcond=None)[0]
        phi = np.pad(inner, 1)
    for _ in range(level - 1):
        phi = _refined_scaling_function(phi, low)
    return np.stack([_refined_scaling_function(phi, low), _refined_scaling_function(phi, high)])


def _refined_scaling_function(phi: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """√2 Σ taps_n φ(2x − n) at half the step of φ."""
    width = len(taps) - 1
    per_unit = (len(phi) - 1) // width
    out = np.zeros(2 * width * per_unit + 1)
    for n, tap in enumerate(taps):
        out[n * per_unit : n * per_unit + len(phi)] += np.sqrt(2.0) * tap * phi
    return out


def _wavelet_rows(basis: WaveletBasis, positions: ArrayLike) -> Array:
    """Values of the functions at positions, each row divided by its norm."""
    p = as_positions(positions).astype(vector_dtype(positions))[..., None]
    per_unit = 2**basis.level
    end = basis.width * per_unit
    at = p * expand_rank(2.0**-basis.j, p.ndim, p.dtype) - expand_rank(basis.k, p.ndim, p.dtype)
    at = at * per_unit
    inside = (at >= 0) & (at < end)
    cell = jnp.clip(jnp.floor(at), 0, end - 1).astype(jnp.int32)
    index = cell + expand_rank(basis.row * (end + 1), cell.ndim, cell.dtype)
    table = jnp.asarray(basis.table.ravel(), p.dtype)
    values = take(table, index)
    if basis.width > 1:
        values = values + (at - cell.astype(p.dtype)) * (take(table, index + 1) - values)
    values = jnp.where(inside, values * expand_rank(2.0 ** (-basis.j / 2), p.ndim, p.dtype), 0)
    values = jnp.pad(values, [(0, 0)] * (p.ndim - 1) + [(0, basis.unused)])
    return _unit_rows(values)


def _unit_rows(x: Array) -> Array:
    """x / ‖x‖ along the last axis, 0 for rows of zeros, without underflow of the squares."""
    largest = lax.stop_gradient(jnp.max(jnp.abs(x), axis=-1, keepdims=True))
    x = x / jnp.where(largest > 0, largest, 1)
    norm = safe_sqrt(jnp.sum(x**2, axis=-1, keepdims=True))
    return x / jnp.where(norm > 0, norm, 1)
