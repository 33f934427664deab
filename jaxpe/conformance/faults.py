"""Known faults of rotations and positions, as what each does to the reference."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from jaxpe.conformance.diagnosis import Hypothesis, Trial
from jaxpe.conformance.reference import STEPS, Rotation, entry_pairs, section_axes
from jaxpe.plans.result import LayerPlan
from jaxpe.plans.scaling import LongRopeScaling

_LOW = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}

Changes = tuple[str, str, dict[str, Any]]  # name, sentence or predicate, changed fields
PositionFault = tuple[str, str, Callable[[np.ndarray], Any]]  # name, sentence, faulty positions


def rotation_faults(plan: LayerPlan, rotation: Rotation) -> list[tuple[str, str, Rotation]]:
    """Name, predicate of the heads, and rotation of each fault; some may be no fault of a plan."""
    tables = (_pairing_faults, _part_faults, _frequency_faults, _rounding_faults, _axis_faults)
    return [
        (name, text, rotation._replace(**changes))
        for table in tables
        for name, text, changes in table(plan, rotation)
    ]


def _pairing_faults(plan: LayerPlan, rotation: Rotation) -> list[Changes]:
    half, own = len(rotation.pairs), plan.pairing or "half"
    width = plan.head_dim if plan.rope_type == "proportional" else plan.turning
    other = "interleaved" if own == "half" else "half"
    pairs = entry_pairs(width, int(rotation.pairs.min()), other)[:half]
    names = {"half": f"i with i + {width // 2}", "interleaved": "2i with 2i + 1"}
    wanted = f"wanted {own}, entry {names[own]}"
    table = entry_pairs(2 * half, 0, own)
    table = table // 2 if own == "half" else table % half
    same_sign = "have sin with the same sign in both entries of a pair; one needs a minus"
    return [
        ("pairing", f"are paired {other}, entry {names[other]}; {wanted}", {"pairs": pairs}),
        ("output layout", f"are paired {own}, as wanted, but written in the order of {other}",
         {"written": pairs}),
        ("output layout", f"are paired {other} and written in the order of {own}; {wanted}",
         {"pairs": pairs, "written": rotation.pairs}),
        ("table layout",
         f"have cos and sin in the order of {other}, and pairs in the order of {own}",
         {"frequencies": rotation.frequencies[:, 0][table]}),
        ("sign", same_sign, {"signs": (1, 1)}),
        ("sign", same_sign, {"signs": (-1, -1)}),
        ("direction", "rotate in the other direction", {"signs": (1, -1)}),
    ]  # fmt: skip


def _part_faults(plan: LayerPlan, rotation: Rotation) -> list[Changes]:
    """Faults of the rotated part of the head."""
    head, turning, kind = plan.head_dim, plan.turning, plan.pairing or "half"
    half, first = len(rotation.pairs), int(rotation.pairs.min())

    def part(width: int, start: int, over: int) -> dict[str, Any]:
        pairs = entry_pairs(width, start, kind)
        powers = plan.base ** (-2 * np.arange(len(pairs)) / over)
        both, axes = np.stack([powers] * 2, 1), np.zeros(len(pairs), int)
        return {"pairs": pairs, "frequencies": both, "axes": axes}

    narrow = [width for width in (turning // 2, turning // 4) if width and width % 2 == 0]
    rows: list[Changes] = [
        ("rotated part", f"rotate {width} entries; wanted {turning} of {head}",
         part(width, first, width)) for width in narrow
    ]  # fmt: skip
    if turning == head:
        return rows
    over = f"rotate all {head} entries; wanted {turning} of {head}"
    whole, by_head = {"pairs": entry_pairs(head, 0, kind)[:half]}, part(turning, first, head)
    far = f"pair over the whole head of {head}"
    rows += [
        ("rotated part", over, part(head, 0, head)),
        ("rotated part", over, part(head, 0, turning)),
        ("pair distance", f"{far}; wanted pairs inside {turning} entries", whole),
        ("pair distance", f"{far}, with frequencies of its width", by_head | whole),
    ]
    if plan.rope_type == "proportional":
        inside = "pair inside the rotated part; wanted pairs over the whole head"
        return [
            *rows,
            ("pair distance", inside, {"pairs": entry_pairs(turning, 0, kind)}),
            ("rotated part", inside, part(turning, 0, turning)),
        ]
    shifted = rotation.pairs + (0 if first else head - turning) - first
    text = f"rotate the {'first' if first else 'last'} {turning} entries of the head"
    return [
        *rows,
        ("frequency width", f"have powers over {head} entries", by_head),
        ("rotated part", text, {"pairs": shifted}),
    ]


def _frequency_faults(plan: LayerPlan, rotation: Rotation) -> list[Changes]:
    """Faults of frequencies and of the factor on cos and sin."""
    own, factor, kind = rotation.frequencies, rotation.factor, plan.rope_type
    half, turning = len(rotation.pairs), plan.turning
    unscaled = np.stack([plan.unscaled] * 2, 1) if len(plan.unscaled) == half else own
    ratio = own / unscaled
    slowest = unscaled * ratio.min()
    exponents = np.repeat(-2 * np.arange(half)[:, None] / turning, 2, 1)
    mixed = (own > slowest) & (own < unscaled)
    exchanged = np.where(mixed, slowest + unscaled - own, own)
    lack = f"lack a right attention factor: {factor:.4g} on cos and sin"
    linear = f"have linear scaling, all frequencies divided by {1 / ratio.min():.4g}; wanted {kind}"
    longer = plan.reach > plan.trained
    sides = f"longer than {plan.trained:,}", f"of up to {plan.trained:,} positions"
    swapped = "have the list of texts {}; wanted that of texts {}".format(*sides[:: 1 - 2 * longer])
    swapped += " (this text has just so many)" * (plan.reach == plan.trained)
    lists = list[tuple]()
    if isinstance(plan.scaling, LongRopeScaling):
        original = plan.scaling.original_max_position_embeddings
        length = original if longer else original + 1
        other = plan.scaling.frequencies(turning, plan.base, length).inverse
        lists = [("scaling", swapped, np.stack([other] * 2, 1), factor)]
    rows = [
        *lists,
        ("attention factor", f"{lack} is absent", own, 1.0),
        ("attention factor", f"{lack} applies twice", own, factor**2),
        ("attention factor", f"{lack} divides", own, 1 / factor),
        ("scaling", f"have no scaling; wanted {kind}", unscaled, 1.0),
        ("scaling", f"have no scaling of frequencies; wanted {kind}", unscaled, factor),
        ("scaling", f"have the scaling ({kind}) twice", own * ratio, factor),
        ("scaling", linear, slowest, factor),
        ("scaling", linear, slowest, 1.0),
        *(("scaling", f"have all frequencies divided by {n}", own / n, factor)
          for n in (2, 4, 8, 16, 32)),
        ("scaling", f"have {kind} scaling with the weights of its two parts exchanged", exchanged,
         factor),
        ("frequency exponent", f"have frequencies θ^(−k/{turning}); wanted θ^(−2k/{turning})",
         plan.base ** (exponents / 2), factor),
        ("frequency order", "have the frequencies in reverse order", own[::-1], factor),
        ("rotated twice", "are rotated twice: all frequencies are doubled", own * 2, factor**2),
        ("not rotated", "are not rotated", own * 0, 1.0),
    ]  # fmt: skip
    return [(name, text, {"frequencies": f, "factor": by}) for name, text, f, by in rows]


def _rounding_faults(plan: LayerPlan, rotation: Rotation) -> list[Changes]:
    """Steps of the rotation that are rounded, few first; frequencies may be computed so as well."""
    counts = range(1, len(STEPS) + 1)
    steps = [some for count in counts for some in itertools.combinations(STEPS, count)]
    rows: list[Changes] = []
    for some, (name, low) in itertools.product(steps[1:], _LOW.items()):  # positions: see below
        changes = {"low": low, "rounded": some}
        rows.append(("precision", f"have {', '.join(some)} rounded to {name}", changes))
        exponents = np.divide(np.arange(0, plan.turning, 2).astype(low), low(plan.turning))
        with np.errstate(all="ignore"):  # float16 ends at 65,504
            computed = (1 / low(plan.base) ** exponents).astype(float)
        if "frequencies" in some and len(computed) == len(rotation.frequencies):
            changes = {**changes, "frequencies": np.stack([computed] * 2, 1)}
            rows.append(("precision", f"have {', '.join(some)} computed in {name}", changes))
    return rows


# Largest position, halfwidth of ln θ and number of bases of each round of `fitted_bases`: far
# positions tell bases better, but among near bases alone.
_FOR_BASES = ("values", "rows", "spread", "lengths")
_ROUNDS = (
    (60, 8.5, 120), (160, 0.2, 41), (500, 0.03, 41), (5000, 4e-3, 41), (5000, 4e-4, 41),
    (40_000, 4e-5, 41), (2**20, 4e-6, 41),
)  # fmt: skip


def fitted_bases(
    plan: LayerPlan, rotation: Rotation, trials: Sequence[Trial],
    model: Callable[[Rotation], Callable[[Any], np.ndarray]],
) -> list[tuple[str, str, Rotation]]:  # fmt: skip
    """Rotations with the bases that explain outputs best, with the plan's scaling and without.

    Args:
        plan: plan of the layer.
        rotation: right rotation.
        trials: trials, of which some rows of neighbouring and of distant tokens are used.
        model: predictions of a rotation.
    """
    whole = [one for one in trials if one.check in _FOR_BASES and one.failed]
    whole = [probe for one in whole if not one.problem for probe in one.probe or (one,)]
    half = len(rotation.pairs)
    exponents, faults = np.repeat(-2 * np.arange(half)[:, None] / plan.turning, 2, 1), []
    unscaled = len(plan.unscaled) == half and not np.allclose(plan.frequencies, plan.unscaled)
    ratio = rotation.frequencies / plan.base**exponents
    for scaling, factor in ((ratio, rotation.factor), (1.0, 1.0))[: 1 + unscaled]:

        def error(base: float, largest: int, scaling: Any = scaling, factor: float = factor):
            frequencies = scaling * base**exponents
            tried = model(rotation._replace(frequencies=frequencies, factor=factor))
            near = [_near(one, largest) for one in whole]
            pairs = zip(whole, near, strict=True)
            return sum(float(one.error(tried(one.inputs))[at].sum()) for one, at in pairs)

        middle = np.log(1e6)
        for largest, width, count in _ROUNDS if whole else ():
            grid = middle + np.linspace(-width, width, count)
            middle = grid[np.argmin([error(float(np.exp(one)), largest) for one in grid])]
        base = float(np.exp(middle))
        if whole and abs(base / plan.base - 1) > 1e-6:
            shown = [float(f"{base:.{digits}g}") for digits in range(3, 9)]
            near = 2e-5 if whole[0].tolerance.min() > 5e-3 else 2e-6
            shown = next(
                (one for one in shown if abs(one / base - 1) < near and one != plan.base), base
            )
            faulty = rotation._replace(frequencies=scaling * base**exponents, factor=factor)
            text = f"have base {shown:,.10g}; wanted {plan.base:,.10g}"
            faults.append(("base", text, faulty))
    return faults


def _near(trial: Trial, largest: int) -> np.ndarray:
    """Tokens at positions up to the largest, `[batch, n]`."""
    positions = trial.inputs.positions
    return positions.reshape(*positions.shape[:2], -1).max(axis=-1) <= largest


def _axis_faults(plan: LayerPlan, rotation: Rotation) -> list[Changes]:
    """Faults of the axes of multimodal positions."""
    count, half, own = len(plan.sections), len(rotation.pairs), rotation.axes
    if not count or sum(plan.sections) != half:
        return []

    def ordered(order: str) -> np.ndarray:
        return section_axes(plan._replace(section_order=order, layout=""), half)

    rows = (
        ("rotate all pairs by the first axis", own * 0),
        ("have contiguous sections", ordered("contiguous")),
        ("have interleaved sections", ordered("interleaved")),
        ("have axes that alternate over all pairs", ordered("alternating")),
        ("have the sections in reverse order of axes", count - 1 - own),
        ("have height and width exchanged", np.where(own > 0, count - own, 0)),
        ("have the sections rotated by one axis", (own + 1) % count),
    )
    wanted = f"wanted {plan.section_order or 'contiguous'} sections {plan.sections}"
    return [("sections", f"{text}; {wanted}", {"axes": axes}) for text, axes in rows]


# Names and sentences instead, by the check that alone shows a fault of the index.
_WITHIN = {
    "packed": ("positions never reset", "positions do not restart at the second document"),
    "left padding": ("padding counted", "padding on the left is counted as positions"),
    "decode": ("decode position", "each decoded token has position 0"),
    "shards": ("local positions", "each shard counts its positions from 0"),
}
_OF_INDEX = ("position zero", "positions ignored", "local positions")
POSITION_FAULTS: tuple[PositionFault, ...] = (
    ("position zero", "all positions are 0", lambda p: 0),
    ("positions ignored", "the index in the row is used; positions are ignored",
     lambda p: np.arange(p.shape[1])),
    ("rows", "all rows have the positions of row 0", lambda p: p[:1]),
    ("rows", "rows have each other's positions", lambda p: p[::-1]),
    ("rows", "all rows have the largest position of the batch", lambda p: p.max(axis=0)),
    ("rows", "positions run on from one row of the batch to the next",
     lambda p: np.arange(p.size).reshape(p.shape)),
    ("rows", "positions of a row follow on the row before, with its length added",
     lambda p: p + p.shape[1] * np.arange(len(p))[:, None]),
    *(("shift", f"positions are {abs(s)} too {'large' if s > 0 else 'small'}", lambda p, s=s: p + s)
      for k in range(1, 9) for s in (k, -k)),
    ("positions ignored", "positions count on from the first of each row",
     lambda p: p[:, :1] + np.arange(p.shape[1])),
    ("local positions", "positions count from the first of the call", lambda p: p - p[:, :1]),
    ("last position", "all tokens have the position of the last", lambda p: p[:, -1:]),
    ("reversed", "positions run backwards", lambda p: p[:, ::-1]),
    ("overflow", "positions overflow 16 bits", lambda p: (p + 2**15) % 2**16 - 2**15),
    *(("precision", f"positions are rounded to {name}",
       lambda p, low=low: p.astype(float).astype(low).astype(float)) for name, low in _LOW.items()),
)  # fmt: skip


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
            ("restart", f"positions restart at each chunk of {m:,}",
             lambda p, m=m: np.arange(p.shape[1]) % m if p.shape[1] > m else p),
            ("wrapped", f"positions are taken modulo {m:,}", lambda p, m=m: p % m),
            ("clamped", f"positions from {m:,} on are {m - 1:,}",
             lambda p, m=m: np.minimum(p, m - 1)),
        ]  # fmt: skip
    return rows


def moved(
    model: Callable[[Any], np.ndarray], fault: PositionFault,
    fields: tuple[str, ...] = ("positions",), who: str = "",
) -> Hypothesis:  # fmt: skip
    """A model with faulty positions, each axis by itself.

    Args:
        model: rotation or attention, from the inputs of a trial.
        fault: fault of positions.
        fields: fields of the inputs that are faulty.
        who: beginning of the sentence.
    """
    name, text, change = fault

    def faulty(positions: np.ndarray) -> np.ndarray:
        axes = np.moveaxis(np.atleast_3d(positions), -1, 0)
        changed = [np.broadcast_to(change(one), one.shape) for one in axes]
        return np.stack(changed, -1).reshape(positions.shape)

    def predict(inputs: Any) -> np.ndarray:
        return model(inputs._replace(**{one: faulty(getattr(inputs, one)) for one in fields}))

    within = _WITHIN if name in _OF_INDEX else {}
    alone = {check: (other, f"{who}{sentence}") for check, (other, sentence) in within.items()}
    return Hypothesis(name, f"{who}{text}", predict, alone)
