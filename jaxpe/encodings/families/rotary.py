"""Rotary encoding: queries and keys turn by angles that grow with position."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike, Scalar, namespace
from jaxpe.encodings.base import (
    Encoding,
    align_positions,
    as_positions,
    check_choice,
    check_heads,
    check_plain,
    check_positive,
    check_sizes,
    compute_dtype,
    expand_rank,
)
from jaxpe.encodings.families.absolute import Positions
from jaxpe.encodings.phases import phases
from jaxpe.encodings.registry import register
from jaxpe.encodings.rotation import rotate
from jaxpe.encodings.scalings import ResonanceScaling, Scaling, check_scaling
from jaxpe.plans.scaling import (
    DynamicScaling,
    Length,
    LongRopeScaling,
    ProportionalScaling,
    RopeFrequencies,
    inverse_frequencies,
    partial_rotary_factor,
    scaling_from_hf,
)

Layout = Literal["half", "interleaved"]
Turn = Callable[[Any, ArrayLike, ArrayLike], Array]


@register(
    "rope_partial",
    description="Partial RoPE: half of each head rotates",
    source="Wang & Komatsuzaki (2021)",
    vectors="orbit of a vector with unit pairs, half of them turning",
    make=lambda s: rope(head_dim=s.head_dim, fraction=_half_fraction(s.head_dim)),
)
@register("rope", source="Su et al. (2021)", vectors="orbit of a vector with unit pairs")
def rope(
    *,
    head_dim: int,
    base: Scalar = 10_000.0,
    layout: Layout = "half",
    fraction: float = 1.0,
    scaling: Scaling | None = None,
    length: Length = None,
) -> Encoding:
    """RoPE: queries and keys rotate by angles that grow with position (Su et al. 2021).

    Pair k of a query or key at position i becomes R(ω_k i)(x, y), ω_k = base^(−2k/d), so q·k
    depends on j − i alone. Phases are right to 10⁻⁶ rad at any integer position in float32. Where a
    scaling depends on a traced length they are right to 10⁻² at 10⁵: pass `length`. The gradient of
    a query is its rotation's gradient, rotated back, so no copy of the query is stored.

    `vectors`: the orbit R(i)·(1, 0, 1, 0, ...) of a vector with unit pairs, `[n, head_dim]`. Its
    distances equal the distances of the sinusoidal encoding; entries that do not rotate are
    constant.

    Args:
        head_dim: width of a head.
        base: θ of the frequencies.
        layout: pairing of the entries: (k, k + d/2), as in Hugging Face's Llama, or (2k, 2k + 1),
            as in the paper and GPT-J. Queries and keys must share it. Trained weights depend on it:
            see `convert_rotary_layout`.
        fraction: share of each head that is rotated, from the front (partial rotary;
            `partial_rotary_factor`).
        scaling: scaling of the frequencies, for contexts beyond the training length.
        length: length of the sequences, for the scalings that depend on it (dynamic, longrope).
            When None it is the largest position plus one over the whole batch, as in Hugging Face.
            Queries and keys with different largest positions then rotate differently: pass the
            length when decoding, and give padding an ordinary position.

    Raises:
        ValueError: an odd number of entries to rotate, or invalid numbers of a scaling.

    >>> e = rope(head_dim=2, base=1.0)
    >>> e.query((), jnp.ones((1, 1, 2)), jnp.asarray([np.pi / 2])).round(4).ravel().tolist()
    [-1.0, 1.0]
    """
    dim = _rotary_dim(head_dim, fraction, scaling)
    frequencies = _frequencies(dim, base, scaling, length)
    return _rotary(head_dim, dim, layout, frequencies)._replace(rotates=_fixed(scaling, length))


@register(
    "directional_rope",
    source="Zhao et al. (2025)",
    vectors="a circle",
    variant_of="rope",
)
def directional_rope(*, head_dim: int, layout: Layout = "half") -> Encoding:
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


def rope_frequencies(
    *,
    head_dim: int,
    base: Scalar = 10_000.0,
    fraction: float = 1.0,
    scaling: Scaling | None = None,
    length: Length = None,
) -> RopeFrequencies:
    """Inverse frequencies ω_k and attention factor used by `rope` with the same arguments.

    Args:
        head_dim, base, fraction, scaling, length: arguments of `rope`.

    Raises:
        ValueError: as `rope`, or a scaling that depends on the length without one.

    >>> rope_frequencies(head_dim=8, base=16.0).inverse.tolist()
    [1.0, 0.5, 0.25, 0.125]
    """
    dim = _rotary_dim(head_dim, fraction, scaling)
    return _scaled_frequencies(dim, base, scaling, length)


@register("xpos", source="Sun et al. (2022)")
def xpos(
    *,
    head_dim: int,
    base: Scalar = 10_000.0,
    layout: Layout = "half",
    scale_base: Scalar = 512.0,
    gamma: Scalar = 0.4,
    center: Scalar = 0.0,
) -> Encoding:
    """xPos: RoPE with logits that decay with distance (Sun et al. 2022).

    Queries become q·ζ^((i−c)/b), keys k·ζ^(−(j−c)/b), both rotated as in RoPE.
    ζ_k = (2k + γd)/((1 + γ)d) lies in (0, 1), so products are multiplied by ζ^((i−j)/b), at most 1
    where j ≤ i: it is meant for causal attention. Products depend on i − j alone; c only keeps the
    two factors in range. There are no position vectors.

    Floats hold the factors of |i − c| up to log(largest)·b/|log ζ_0|: 36,000 positions in float32
    and bfloat16 with the defaults, 4,500 in float16. Beyond, each hook gives NaN. Attention that
    encodes queries and keys together counts from the middle of their positions, so only their span
    is limited, to twice that number. Logits of keys that far after their query would overflow and
    are NaN. Keys in a cache are encoded alone: pass the middle of the positions in the cache as
    `center`.

    Args:
        head_dim: width of a head, even.
        base, layout: arguments of `rope`.
        scale_base: b, in positions, positive; with larger values logits decay more slowly.
        gamma: γ, positive; with larger values logits decay more slowly.
        center: c, in positions.

    >>> e = xpos(head_dim=2, scale_base=1.0, gamma=1.0)
    >>> q = e.query((), jnp.asarray([[[1.0, 0.0]]]), jnp.asarray([2]))
    >>> round(float(jnp.linalg.norm(q)), 4)  # ζ = 1/2
    0.25
    """
    _check_width(head_dim, head_dim)
    check_positive(gamma=gamma, scale_base=scale_base)  # so that ζ lies in (0, 1)
    frequencies = _frequencies(head_dim, base, None, None)
    zeta = (np.arange(0.0, head_dim, 2) + gamma * head_dim) / ((1 + gamma) * head_dim)
    rate = namespace(zeta).log(zeta) / scale_base  # of a position

    def decay(sign: int):
        def size(positions: Array, dtype: jnp.dtype, input_dtype: jnp.dtype) -> Array:
            reach = np.log(float(jnp.finfo(input_dtype).max)) / abs(rate).max()
            away = positions.astype(dtype) - center
            # NaN rather than inf or 0, which would give wrong products.
            away = jnp.where(jnp.abs(away) <= jnp.asarray(reach, dtype), away, jnp.nan)
            return jnp.exp(away[..., None] * expand_rank(sign * rate, away.ndim + 1, dtype))

        return _turn(head_dim, head_dim, layout, frequencies, size=size)

    return Encoding(query=decay(1), key=decay(-1), centered=True, rotates=True)


@register(
    "axial_rope",
    source="Heo et al. (2024)",
    vectors="orbit of a vector with unit pairs",
    coordinates=2,
)
def axial_rope(
    *,
    head_dim: int,
    axes: int = 2,
    base: Scalar = 10_000.0,
    layout: Layout = "half",
    frequencies: Sequence[float] | ArrayLike | None = None,
) -> Encoding:
    """Axial RoPE for positions with several coordinates, `[..., n, axes]`: images, video.

    Each coordinate rotates an equal share of the pairs, all with the same frequencies, so logits
    depend on the coordinates' offsets. `vectors`: the orbit of a vector with unit pairs.

    Args:
        head_dim: width of a head; a multiple of 2·axes.
        axes: coordinates of a position.
        base: θ of the frequencies base^(−2k·axes/head_dim).
        layout: argument of `rope`.
        frequencies: `[head_dim / (2·axes)]` in radians, instead of the frequencies of `base`.

    >>> grid = jnp.stack(jnp.meshgrid(jnp.arange(2), jnp.arange(3), indexing="ij"), -1)
    >>> axial_rope(head_dim=8).vectors((), grid.reshape(6, 2)).shape
    (6, 8)
    """
    check_sizes(axes=axes)
    _check_width(head_dim, head_dim, per=2 * axes)
    share = head_dim // axes
    omega = inverse_frequencies(share, base=base) if frequencies is None else frequencies
    if np.shape(omega) != (share // 2,):
        raise ValueError(f"frequencies have shape {np.shape(omega)}: pass [{share // 2}]")
    library = namespace(omega)
    tiled = RopeFrequencies(library.tile(library.asarray(omega), axes))
    axis_of = np.repeat(np.arange(axes), share // 2)
    return _rotary(head_dim, head_dim, layout, lambda _: tiled, axes=axes, axis_of=axis_of)


@register(
    "mrope",
    source="Wang et al. (2024)",
    vectors="orbit of a vector with unit pairs",
    make=lambda s: mrope(head_dim=s.head_dim, sections=_default_sections(s.head_dim // 2)),
    coordinates=3,
)
def mrope(
    *,
    head_dim: int,
    sections: Sequence[int],
    interleaved_sections: bool = False,
    base: Scalar = 10_000.0,
    layout: Layout = "half",
    fraction: float = 1.0,
    scaling: Scaling | None = None,
    length: Length = None,
) -> Encoding:
    """Multimodal RoPE for positions `[..., n, axes]` of time, height and width.

    The frequencies are as in `rope`. Section a of them follows coordinate a (Qwen2-VL, Wang et al.
    2024); with `interleaved_sections` the coordinates take turns (Qwen3-VL). Text, whose
    coordinates are equal, rotates as under `rope`. `vectors`: the orbit of a vector with unit
    pairs.

    Args:
        sections: number of frequencies of each coordinate (`mrope_section`); they sum to half of
            the entries that rotate.
        interleaved_sections: `mrope_interleaved`.
        head_dim, base, layout, fraction, scaling, length: arguments of `rope`.

    >>> mrope(head_dim=8, sections=(2, 1, 1)).vectors((), jnp.zeros((5, 3), int)).shape
    (5, 8)
    """
    dim = _rotary_dim(head_dim, fraction, scaling)
    if sum(sections) != dim // 2 or min(sections, default=0) < 0:
        raise ValueError(
            f"sections are {tuple(sections)}: pass sizes of at least 0 whose sum is {dim // 2}, "
            f"the number of frequencies that turn with head_dim={head_dim}"
        )
    frequencies = _frequencies(dim, base, scaling, length)
    axis_of = _section_axes(sections, interleaved_sections)
    rotary = _rotary(head_dim, dim, layout, frequencies, axes=len(sections), axis_of=axis_of)
    return rotary._replace(rotates=_fixed(scaling, length))


def rope_from_hf(
    parameters: Mapping[str, Any],
    *,
    head_dim: int,
    max_position_embeddings: int | None = None,
    layout: Layout = "half",
    length: Length = None,
) -> Encoding:
    """Rotary encoding from the entry of a Hugging Face configuration.

    Args:
        parameters: `rope_parameters` of the configuration. Configurations before version 5 have
            `rope_scaling`, and beside it `rope_theta` and, for some models,
            `original_max_position_embeddings` and `partial_rotary_factor`: add them to the entry.
        max_position_embeddings: entry of the configuration: L0 of "dynamic", and the source of the
            factor of yarn and longrope where the entry has none.
        head_dim, layout, length: arguments of `rope`. Hugging Face's models are half-split, except
            a few (GPT-J, GLM).

    Raises:
        ValueError: an unknown type or parameter, or a missing one.

    >>> yarn = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0,
    ...         "original_max_position_embeddings": 32768}
    >>> rope_from_hf(yarn, head_dim=128).defines("query")
    True
    """
    scaling = scaling_from_hf(parameters, max_position_embeddings=max_position_embeddings)
    if parameters.get("rope_theta") is None:
        raise ValueError(
            "the entry has no rope_theta: put in that of the configuration, as "
            '{**config.rope_scaling, "rope_theta": config.rope_theta}'
        )
    base, fraction = float(parameters["rope_theta"]), partial_rotary_factor(parameters)
    options: dict[str, Any] = {"layout": layout, "scaling": scaling, "length": length}
    sections = parameters.get("mrope_section")
    if sections is not None:
        interleaved = parameters.get("mrope_interleaved", False)
        options |= {"sections": sections, "interleaved_sections": interleaved}
    make = rope if sections is None else mrope
    return make(head_dim=head_dim, base=base, fraction=fraction, **options)


def rotary_permutation(
    *, rotary_dim: int, source: Layout, target: Layout, head_dim: int | None = None
) -> np.ndarray:
    """Indices p with x_target = x_source[..., p].

    >>> rotary_permutation(rotary_dim=4, source="interleaved", target="half").tolist()
    [0, 2, 1, 3]
    """
    _check_width(head_dim or rotary_dim, rotary_dim)
    check_choice("source", source, get_args(Layout))
    check_choice("target", target, get_args(Layout))
    indices = np.arange(head_dim or rotary_dim)
    turned = indices[:rotary_dim]
    pairs = turned.reshape(-1, 2) if source == "interleaved" else turned.reshape(2, -1).T
    indices[:rotary_dim] = (pairs if target == "interleaved" else pairs.T).ravel()
    return indices


def convert_rotary_layout(
    weight: Float[ArrayLike, "..."],
    *,
    num_heads: int,
    source: Layout,
    target: Layout,
    axis: int = -1,
    rotary_dim: int | None = None,
) -> Float[Array, "..."]:
    """Convert a query or key projection from one rotary layout to another.

    Attention logits do not change if both projections are converted.

    Args:
        weight: kernel or bias whose `axis` holds num_heads·head_dim features.
        num_heads: heads of the projection; for keys, the key heads.
        source, target: layouts the weights were trained with and will be used with.
        axis: axis of the features: −1 for a Flax kernel `[in, out]`, 0 for a torch weight
            `[out, in]`.
        rotary_dim: leading entries of each head that rotate; all when None.

    Raises:
        ValueError: an axis that does not divide into heads of whole pairs.

    >>> w = jnp.arange(8.0)
    >>> convert_rotary_layout(w, num_heads=2, source="interleaved", target="half").tolist()
    [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]
    """
    weight = jnp.asarray(weight)
    features = weight.shape[axis]
    if num_heads < 1 or features % num_heads:
        raise ValueError(f"axis {axis} has {features} features, no multiple of {num_heads} heads")
    width = features // num_heads
    within = rotary_permutation(
        rotary_dim=rotary_dim or width, source=source, target=target, head_dim=width
    )
    indices = np.arange(features).reshape(num_heads, width)[:, within].ravel()
    return jnp.take(weight, indices, axis=axis)


def rotary_orbit(
    positions: Positions,
    *,
    dim: int,
    reference: Float[ArrayLike, " dim"] | None = None,
    base: Scalar = 10_000.0,
) -> Float[Array, "n dim"]:
    """The rotary orbit R(i)·q of one reference vector q, with interleaved pairs.

    RoPE (Su et al. 2021) has no position vectors; stress uses this orbit instead. The pairs
    (q_{2k}, q_{2k+1}) turn by ω_k i. The default q has unit pairs, and for equal pair norms the
    distances are exactly the sinusoidal ones.

    Args:
        positions: `[n]`.
        dim: width of q, even.
        reference: q, `[dim]`; (1, 0, 1, 0, ...) when None.
        base: θ of the frequencies.

    >>> rotary_orbit(jnp.arange(2), dim=2).round(4).tolist()
    [[1.0, 0.0], [0.5403, 0.8415]]
    """
    encoding = rope(head_dim=dim, base=base, layout="interleaved")
    reference = np.arange(1, dim + 1) % 2 if reference is None else reference
    return _orbit(encoding.query, reference, (), positions)


def _turn(
    head_dim: int,
    rotary_dim: int,
    layout: Layout,
    frequencies: Callable[[Array], RopeFrequencies],
    *,
    axes: int = 0,
    axis_of: np.ndarray | None = None,
    size: Callable[[Array, jnp.dtype, jnp.dtype], Array] | None = None,
) -> Turn:
    """The hook that rotates heads; `axis_of` maps frequencies to coordinates."""
    check_choice("layout", layout, get_args(Layout))

    def turn(params, x: ArrayLike, positions: ArrayLike) -> Array:
        x, positions = jnp.asarray(x), as_positions(positions)
        check_heads(x.shape, head_dim=head_dim)
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise ValueError(
                f"the encoding turns floats [..., n, heads, head_dim], not {x.dtype} of {x.shape}"
            )
        if axes and (positions.ndim < 2 or positions.shape[-1] != axes):
            raise ValueError(f"positions of shape {positions.shape}: pass [..., n, {axes}]")
        positions = align_positions(positions, x.shape, after=2, axes=int(axes > 0))
        dtype = compute_dtype(x)
        omega, factor = frequencies(positions)
        angles = _angles(positions, omega, axis_of, dtype)
        amplitude = factor if size is None else factor * size(positions, dtype, x.dtype)
        cos, sin = ((f(angles) * amplitude)[..., None, :] for f in (jnp.cos, jnp.sin))
        turned = rotate(x[..., :rotary_dim], cos, sin, interleaved=layout == "interleaved")
        rest = x[..., rotary_dim:]
        return jnp.concatenate([turned, rest], axis=-1) if rest.shape[-1] else turned

    return turn


def _angles(
    positions: Array, omega: np.ndarray | Array, axis_of: np.ndarray | None, dtype: jnp.dtype
) -> Array:
    """Angles `[..., n, half]`, each frequency following its own coordinate."""
    if axis_of is None:
        return phases(positions, omega, dtype)
    # By coordinate and not in one product, which would round far integers (see `phases`).
    by_axis = (phases(positions[..., axis], omega, dtype) for axis in range(positions.shape[-1]))
    follows = [expand_rank(axis_of == axis, positions.ndim) for axis in range(positions.shape[-1])]
    return jnp.select(follows, list(by_axis))


def _frequencies(
    dim: int, base: Scalar, scaling: Scaling | None, length: Length
) -> Callable[[Array], RopeFrequencies]:
    """Frequencies as a function of the positions, which only some scalings depend on."""
    constant = _scaled_frequencies(dim, base, scaling, 1)  # raises the errors of the scaling
    if _fixed(scaling, None):
        return lambda positions: constant

    def frequencies(positions: Array) -> RopeFrequencies:
        largest = jnp.max(positions, initial=0).astype(jnp.result_type(float))
        return _scaled_frequencies(dim, base, scaling, largest + 1 if length is None else length)

    return frequencies


def _scaled_frequencies(
    dim: int, base: Scalar, scaling: Scaling | None, length: Length
) -> RopeFrequencies:
    if scaling is None:
        return RopeFrequencies(inverse_frequencies(dim, base=base))
    check_scaling(scaling)
    return scaling.frequencies(dim, base, length)


def _fixed(scaling: Scaling | None, length: Length) -> bool:
    """Whether frequencies do not depend on the largest position."""
    scaling = scaling.scaling if isinstance(scaling, ResonanceScaling) else scaling
    return length is not None or not isinstance(scaling, DynamicScaling | LongRopeScaling)


def _rotary(
    head_dim: int,
    rotary_dim: int,
    layout: Layout,
    frequencies: Callable[[Array], RopeFrequencies],
    **coordinates: Any,
) -> Encoding:
    """The encoding of a `_turn`, with the orbit of a vector of unit pairs as `vectors`."""
    turn = _turn(head_dim, rotary_dim, layout, frequencies, **coordinates)
    reference = np.zeros(head_dim)
    step = 2 if layout == "interleaved" else 1
    reference[: rotary_dim // 2 * step : step] = 1.0
    vectors = partial(_orbit, turn, reference)
    return Encoding(query=turn, key=turn, vectors=vectors, rotates=True)


def _orbit(turn: Turn, reference: ArrayLike, params: Any, positions: ArrayLike) -> Array:
    """R(i) applied to one vector, for every position."""
    if not np.ndim(positions):
        raise ValueError("positions is a single number: pass an array, [n]")
    x = jnp.asarray(reference, jnp.result_type(float))
    x = jnp.broadcast_to(x[None, None, :], (np.shape(positions)[0], 1, x.shape[0]))
    return turn(params, x, positions)[:, 0]


def _section_axes(sections: Sequence[int], interleaved: bool) -> np.ndarray:
    """Coordinate of each frequency."""
    axis_of = np.repeat(np.arange(len(sections)), sections)
    if interleaved:  # coordinate a at a, a + 3, ...; coordinate 0 fills the rest
        axis_of = np.zeros(sum(sections), int)
        for axis, size in enumerate(sections[1:], start=1):
            axis_of[axis : size * len(sections) : len(sections)] = axis
        if np.bincount(axis_of, minlength=len(sections)).tolist() != list(sections):
            raise ValueError(
                f"sections {tuple(sections)} cannot take turns: make the first longest"
            )
    return axis_of


def _rotary_dim(head_dim: int, fraction: float, scaling: Scaling | None) -> int:
    """Number of entries of a head that rotate."""
    check_plain(fraction=fraction)
    dim = int(round(head_dim * fraction, 6))  # 30/58 of 58 is not truncated to 29
    if isinstance(scaling, ProportionalScaling):
        if fraction not in (1.0, scaling.fraction):
            raise ValueError(f"fraction={fraction} beside {scaling}, which has its own: omit it")
        dim = head_dim
    _check_width(head_dim, dim)
    return dim


def _check_width(head_dim: int, rotary_dim: int, per: int = 2) -> None:
    """Raise where the entries that rotate do not divide into pairs, or into pairs for each axis."""
    if rotary_dim < per or rotary_dim % per or rotary_dim > head_dim:
        raise ValueError(
            f"{rotary_dim} of {head_dim} entries would turn: rotations act on pairs, so it must be "
            f"a multiple of {per}; change head_dim or fraction"
        )
    check_sizes(dim=rotary_dim)


def _half_fraction(head_dim: int) -> float:
    """The fraction nearest to a half that rotates whole pairs."""
    return max(2 * round(head_dim / 4), 2) / head_dim


def _default_sections(pairs: int) -> tuple[int, int, int]:
    """Sections of time, height and width, as Qwen2-VL's (16, 24, 24) of 64."""
    rest = pairs - pairs // 4
    return (pairs - 2 * (rest // 2), rest // 2, rest // 2)
