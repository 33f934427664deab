"""Known faults of rotations and positions, as what each does to the reference."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import ml_dtypes
import numpy as np

from jaxpe.conformance.reference import Rotation, entry_pairs
from jaxpe.rope import LayerPlan

# Bases of released models: a port may have another model's.
BASES = (1e4, 5e4, 1e5, 1.5e5, 1.6e5, 5e5, 1e6, 5e6, 8e6, 1e7, 1e8, 1e9)
_LOW = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
_PARTNERS = {"half": "i with i + {}", "interleaved": "2i with 2i + 1"}

RotationFault = tuple[str, str, Rotation]  # name, predicate of the heads, rotation


def rotation_faults(plan: LayerPlan, rotation: Rotation) -> list[RotationFault]:
    """Faults of a rotation: pairing, rotated part, frequencies, factor and axes."""
    tables = (_pairing_faults, _part_faults, _frequency_faults, _axis_faults)
    return [row for table in tables for row in table(plan, rotation)]


def _pairing_faults(plan: LayerPlan, rotation: Rotation) -> Iterator[RotationFault]:
    half, first = len(rotation.pairs), int(rotation.pairs.min())
    width = plan.head_dim if plan.rope_type == "proportional" else plan.turning
    own = plan.pairing or "half"
    other = "interleaved" if own == "half" else "half"
    pairs = entry_pairs(width, first, other)[:half]
    names = {name: text.format(width // 2) for name, text in _PARTNERS.items()}
    wanted = f"wanted {own}, entry {names[own]}"
    yield (
        "pairing",
        f"are paired {other}, entry {names[other]}; {wanted}",
        rotation._replace(pairs=pairs),
    )
    reordered = f"are paired {own}, as wanted, but written in the order of {other}"
    yield "output layout", reordered, rotation._replace(written=pairs)
    yield (
        "output layout",
        f"are paired {other} and written in the order of {own}; {wanted}",
        rotation._replace(pairs=pairs, written=rotation.pairs),
    )
    table = entry_pairs(2 * half, 0, own)
    table = table // 2 if own == "half" else table % half
    yield (
        "table layout",
        f"have cos and sin in the order of {other}, and pairs in the order of {own}",
        rotation._replace(frequencies=rotation.frequencies[:, 0][table]),
    )
    lacking = "have sin with the same sign in both entries of a pair; one needs a minus"
    yield "sign", lacking, rotation._replace(signs=(1, 1))
    yield "sign", lacking, rotation._replace(signs=(-1, -1))
    yield "direction", "rotate in the other direction", rotation._replace(signs=(1, -1))


def _part_faults(plan: LayerPlan, rotation: Rotation) -> Iterator[RotationFault]:
    """Faults of the rotated part of the head."""
    head, turning, half = plan.head_dim, plan.turning, len(rotation.pairs)
    kind, first = plan.pairing or "half", int(rotation.pairs.min())

    def part(width: int, start: int, over: int) -> Rotation:
        pairs = entry_pairs(width, start, kind)
        powers = plan.base ** (-2 * np.arange(len(pairs)) / over)
        both, axes = np.stack([powers] * 2, 1), np.zeros(len(pairs), int)
        return rotation._replace(pairs=pairs, frequencies=both, axes=axes)

    wanted = f"wanted {turning} of {head}"
    if turning < head:
        whole = f"rotate all {head} entries; {wanted}"
        yield "rotated part", whole, part(head, 0, head)
        yield "rotated part", whole, part(head, 0, turning)
        pairs = entry_pairs(head, 0, kind)[:half]
        yield (
            "pair distance",
            f"pair over the whole head of {head}; wanted pairs inside {turning} entries",
            rotation._replace(pairs=pairs),
        )
        by_head = part(turning, first, head)
        text = f"pair over the whole head of {head}, with frequencies of its width"
        yield "pair distance", text, by_head._replace(pairs=pairs)
        if plan.rope_type != "proportional":
            yield "frequency width", f"have powers over {head} entries", by_head
            shifted = rotation.pairs + (0 if first else head - turning) - first
            text = f"rotate the {'first' if first else 'last'} {turning} entries of the head"
            yield "rotated part", text, rotation._replace(pairs=shifted)
        else:
            narrow = "pair inside the rotated part; wanted pairs over the whole head"
            yield "pair distance", narrow, rotation._replace(pairs=entry_pairs(turning, 0, kind))
            yield "rotated part", narrow, part(turning, 0, turning)
    for width in {turning // 2, turning // 4} - {0}:
        if width % 2 == 0:
            yield "rotated part", f"rotate {width} entries; {wanted}", part(width, first, width)


def _frequency_faults(plan: LayerPlan, rotation: Rotation) -> Iterator[RotationFault]:
    """Faults of frequencies and of the factor on cos and sin."""
    own, factor, half = rotation.frequencies, rotation.factor, len(rotation.pairs)
    unscaled = np.stack([plan.unscaled] * 2, 1) if len(plan.unscaled) == half else own

    def changed(frequencies: np.ndarray, factor: float = factor) -> Rotation:
        return rotation._replace(frequencies=frequencies, factor=factor)

    ratio = own / unscaled
    if not np.allclose(ratio, 1):
        kind = plan.rope_type
        yield "scaling", f"have no scaling; wanted {kind}", changed(unscaled, 1.0)
        yield "scaling", f"have no scaling of frequencies; wanted {kind}", changed(unscaled)
        yield "scaling", f"have the scaling ({kind}) twice", changed(own * ratio)
        linear = f"have linear scaling, all frequencies divided by {1 / ratio.min():.4g}"
        yield "scaling", f"{linear}; wanted {kind}", changed(unscaled * ratio.min())
        yield "scaling", f"{linear}; wanted {kind}", changed(unscaled * ratio.min(), 1.0)
    if factor != 1:
        for power, how in ((0, "is absent"), (2, "applies twice"), (-1, "divides")):
            text = f"lack a right attention factor: {factor:.4g} on cos and sin {how}"
            yield "attention factor", text, changed(own, factor**power)
    for divisor in (2.0, 4.0, 8.0, 16.0, 32.0):
        yield "scaling", f"have all frequencies divided by {divisor:g}", changed(own / divisor)
    exponents = -2 * np.arange(half)[:, None] / plan.turning
    for base in BASES:
        if abs(base / plan.base - 1) > 1e-6:
            text = f"have base {base:,.0f}; wanted {plan.base:,.0f}"
            yield "base", text, changed(ratio * base**exponents)
            yield "base", text, changed(np.repeat(base**exponents, 2, 1), 1.0)
    yield (
        "frequency exponent",
        f"have frequencies θ^(−k/{plan.turning}); wanted θ^(−2k/{plan.turning})",
        changed(np.repeat(plan.base ** (exponents / 2), 2, 1)),
    )
    yield "frequency order", "have the frequencies in reverse order", changed(own[::-1])
    yield "rotated twice", "are rotated twice", changed(own * 2, factor**2)
    yield "not rotated", "are not rotated", changed(own * 0, 1.0)
    for name, dtype in _LOW.items():
        low = own.astype(dtype).astype(np.float64)
        yield "precision", f"have frequencies rounded to {name}", changed(low)
        all_low = rotation._replace(phase_dtype=dtype)
        yield "precision", f"have phases computed in {name}", all_low
        tables = rotation._replace(table_dtype=dtype)
        yield "precision", f"have cos and sin rounded to {name}", tables


def _axis_faults(plan: LayerPlan, rotation: Rotation) -> Iterator[RotationFault]:
    """Faults of the axes of multimodal positions."""
    count = len(plan.sections)
    if not count:
        return
    half = np.arange(len(rotation.axes))
    block = np.repeat(np.arange(count), plan.sections)
    interleaved = np.zeros_like(half)
    for axis in range(1, count):
        interleaved[(half % count == axis) & (half < count * plan.sections[axis])] = axis
    wanted = f"wanted {plan.section_order or 'contiguous'} sections {plan.sections}"
    for text, axes in (
        ("rotate all pairs by the first axis", half * 0),
        ("have contiguous sections", block),
        ("have interleaved sections", interleaved),
        ("have axes that alternate over all pairs", half % count),
        ("have the sections in reverse order of axes", count - 1 - rotation.axes),
        ("have height and width exchanged", np.array([0, *range(count - 1, 0, -1)])[rotation.axes]),
        ("have the sections rotated by one axis", (rotation.axes + 1) % count),
    ):
        if len(axes) == len(half) and not np.array_equal(axes, rotation.axes):
            yield "sections", f"{text}; {wanted}", rotation._replace(axes=axes)


class PositionFault(NamedTuple):
    """Positions in a faulty implementation.

    Attributes:
        name: name of the fault.
        text: sentence for it.
        positions: faulty positions from right ones, both `[batch, n]`.
        within: name and sentence by check, for a fault that shows in this check alone.
    """

    name: str
    text: str
    positions: Callable[[np.ndarray], np.ndarray]
    within: Mapping[str, tuple[str, str]] = {}


def _index(p: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.arange(p.shape[1]), p.shape)


def _rounded(dtype: type) -> Callable[[np.ndarray], np.ndarray]:
    return lambda p: p.astype(np.float64).astype(dtype).astype(np.float64)


_INDEX_WITHIN = {
    "packed": ("positions never reset", "positions do not restart at the second document"),
    "left padding": ("padding counted", "padding on the left is counted as positions"),
    "decode": ("decode position", "each decoded token has position 0"),
    "shards": ("local positions", "each shard counts its positions from 0"),
}
POSITION_FAULTS = (
    PositionFault("position zero", "all positions are 0", lambda p: p * 0, _INDEX_WITHIN),
    PositionFault(
        "positions ignored", "the index in the row is used; positions are ignored", _index,
        _INDEX_WITHIN,
    ),
    PositionFault(
        "rows", "all rows have the positions of row 0", lambda p: np.broadcast_to(p[:1], p.shape)
    ),
    PositionFault("rows", "rows have each other's positions", lambda p: p[::-1]),
    PositionFault(
        "rows", "all rows have the largest position of the batch",
        lambda p: np.broadcast_to(p.max(axis=0), p.shape),
    ),
    PositionFault(
        "rows", "positions run on from one row of the batch to the next",
        lambda p: np.arange(p.size).reshape(p.shape),
    ),
    PositionFault(
        "rows", "positions of a row follow on the row before, with its length added",
        lambda p: p + np.arange(len(p))[:, None] * p.shape[1],
    ),
    *(
        PositionFault("shift", f"positions are {abs(s)} too {'large' if s > 0 else 'small'}",
                      lambda p, s=s: p + s)
        for s in (1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6, 7, -7, 8, -8)
    ),
    PositionFault("local positions", "positions count from the first of the call",
                  lambda p: p - p[:, :1], _INDEX_WITHIN),
    PositionFault("last position", "all tokens have the position of the last",
                  lambda p: np.broadcast_to(p[:, -1:], p.shape)),
    PositionFault("reversed", "positions run backwards", lambda p: p[:, ::-1]),
    PositionFault("overflow", "positions overflow 16 bits", lambda p: (p + 2**15) % 2**16 - 2**15),
    *(
        PositionFault("precision", f"positions are rounded to {name}", _rounded(dtype))
        for name, dtype in _LOW.items()
    ),
)  # fmt: skip


def moved_positions(fault: PositionFault, positions: np.ndarray) -> np.ndarray:
    """Faulty positions, `[batch, n]` or `[batch, n, axes]`, each axis by itself."""
    if positions.ndim == 2:
        return fault.positions(positions)
    return np.stack([fault.positions(one) for one in np.moveaxis(positions, -1, 0)], -1)


def position_faults(plan: LayerPlan, largest: int) -> list[PositionFault]:
    """Faults of positions, with those that have a length: chunks, and tables that end.

    Args:
        plan: plan of the layer.
        largest: largest position of the trials.
    """
    lengths = {2**k for k in range(1, largest.bit_length())} | {plan.trained, plan.reach}
    rows = list(POSITION_FAULTS)
    for m in sorted(one for one in lengths if 1 < one <= largest):
        rows += [
            PositionFault("restart", f"positions restart at each chunk of {m:,}", _chunks(m)),
            PositionFault("wrapped", f"positions are taken modulo {m:,}", lambda p, m=m: p % m),
            PositionFault(
                "clamped", f"positions from {m:,} on are {m - 1:,}",
                lambda p, m=m: np.minimum(p, m - 1),
            ),
        ]  # fmt: skip
    return rows


def _chunks(m: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda p: np.where(p.shape[1] > m, _index(p) % m, p)
