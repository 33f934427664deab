"""Axial rotary embeddings of vision towers and diffusion transformers: frequencies by axis.

The axes of an image or a video divide a head among themselves. `families.toml` has the rule for
each model type.
"""

import math
import reprlib
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.plans.configuration import Model, head_size
from jaxpe.plans.families import find_family
from jaxpe.plans.fields import MOST_LAYERS, Fields
from jaxpe.plans.layers import layer_kinds
from jaxpe.plans.options import LARGEST_HEAD
from jaxpe.plans.result import LayerPlan

# Angles per unit of a position, where the class scales positions by a constant of its own.
_UNITS = {"half image": 2 * math.pi, "half base size": math.pi / 2}
_TURNING = ("full_attention", "window_attention", "sliding_attention")


def axial_plans(model: Model, length: int) -> tuple[LayerPlan, ...]:
    """Plans of the layer groups in a tower or a diffusion transformer; empty for other models.

    Layers are "axial", or "linear" for convolutions between attention layers. If the checkpoint
    learns the frequencies, base is NaN and frequencies are empty.

    Raises:
        InputError: fields that contradict each other, or no width of a head.

    >>> from jaxpe.plans.families import find_family
    >>> family = find_family("FluxTransformer2DModel")
    >>> model = Model("", family, True, Fields({}, family, source="flux"), 0)
    >>> [(len(plan.layers), plan.axes, plan.turning) for plan in axial_plans(model, 64)]
    [(57, ('index', 'height', 'width'), 128)]
    """
    family, fields = model.family, model.fields
    if family.kind != "axial":
        return ()
    names = layer_kinds(model) if family.layers else None
    counts = [fields.integer(one, least=0, most=MOST_LAYERS) for one in family.depth]
    if not family.layers and None not in counts:
        names = ["full_attention"] * sum(filter(None, counts))
    plans = []
    for name in dict.fromkeys(names or ["full_attention"]):
        layers = tuple(i for i, one in enumerate(names) if one == name) if names else None
        plans.append(_plan(model, name, layers, length))
    for part in family.also:
        rules = find_family(f"{family.model_type}.{part}") or family
        others = Fields(fields.stated, rules, source=fields.source)
        others.used = fields.used
        other = axial_plans(model._replace(family=rules, fields=others), length)
        plans += [plan._replace(name=part) for plan in other]
    return tuple(plans)


def _plan(model: Model, name: str, layers: tuple[int, ...] | None, length: int) -> LayerPlan:
    family, fields = model.family, model.fields
    window = _window(model) if name in _TURNING[1:] else None
    span = window or 2**62
    plan = LayerPlan(
        "attention", model.part, layers, "linear", window, True, 0, frequencies=(),
        trained=min(model.context, span), reach=min(length, span),
    )  # fmt: skip
    if name not in _TURNING:
        return plan
    widths = _widths(model)
    head = _head(model, widths)
    base = math.nan if family.split == "learned" else _base(model)
    angles = _SPLITS[family.split](model, widths, head, base)
    divided = zip(angles, _divisors(model, name), strict=False)
    frequencies = tuple(axis * _UNITS.get(family.unit, 1.0) / by for axis, by in divided)
    turning = 2 * sum(map(len, frequencies)) or head
    if turning > head:
        raise InputError(f"{fields.source}: {turning:,} of {head:,} entries of a head would rotate")
    pairing = family.pairing
    if pairing not in ("half", "interleaved"):  # the field that says it
        pairing = "half" if fields.get(pairing) == "split" else "interleaved"
    return plan._replace(
        kind="axial", head_dim=head, turning=turning, pairing=pairing, base=base,
        axes=tuple(family.axes[: len(angles) or None]), layout=family.layout, unit=family.unit,
        frequencies=frequencies,
    )  # fmt: skip


def _widths(model: Model) -> list[int]:
    """Number of entries of the head for each axis, from a field of the file."""
    family, fields = model.family, model.fields
    if not family.widths:
        return []
    stated: Any = fields.get(family.widths)
    if family.split == "shared":
        stated = fields.mapping("rope_scaling").get("mrope_section") or stated
    if stated is None:
        stated = family.defaults[family.widths]
    if isinstance(stated, int):
        stated = [int(stated * (family.fraction or 1))] * len(family.axes)
    sizes = range(0, LARGEST_HEAD + 1, 1 if family.split == "shared" else 2)
    valid = isinstance(stated, list) and all(type(one) is int and one in sizes for one in stated)
    if not valid or not 0 < len(stated) <= len(family.axes):
        raise InputError(
            f"{fields.source}: {family.widths} is {reprlib.repr(stated)}; a list of even numbers "
            f"is needed, for the axes {', '.join(family.axes)}"
        )
    return stated


def _head(model: Model, widths: list[int]) -> int:
    fields, rule = model.fields, model.family.heads
    head = sum(widths) if rule.get("over") == "axes" else head_size(model)
    head //= math.prod(fields.integer(name) or 1 for name in rule.get("divided", ()))
    head *= math.prod(fields.integer(name) or 1 for name in rule.get("times", ()))
    if not 2 <= head <= LARGEST_HEAD:
        raise InputError(f"{fields.source}: a head of {head:,} entries; 2 to {LARGEST_HEAD:,}")
    return head


def _base(model: Model) -> float:
    family, fields = model.family, model.fields
    stated = None
    for name in ("rope_parameters", "rope_scaling") if family.theta == "rope_theta" else ():
        entry = fields.mapping(name)
        stated = entry.get("rope_theta") if stated is None else stated
        if entry.get("rope_type", entry.get("type")) not in (None, "default", "axial", "mrope"):
            fields.used.discard(name)  # no class of an axial type has any other scaling
    if stated is None and family.theta:
        stated = fields.get(family.theta)
    return _positive(family.base if stated is None else stated, family.theta, fields)


def _positive(value: Any, name: str, fields: Fields) -> float:
    """Finite number above 0.

    Raises:
        InputError: something else.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 1e-30 < value < 1e30:
        raise InputError(f"{fields.source}: {name} has {reprlib.repr(value)}, not a number above 0")
    return float(value)


def _list(fields: Fields, name: str) -> list[float]:
    """Numbers above 0 by axis; 1 without a value."""
    stated = fields.sequence(name) or []
    return [*(_positive(one, name, fields) for one in stated), 1.0, 1.0, 1.0]


def _first(fields: Fields, name: str) -> int:
    """Whole number, or the first of a list of whole numbers."""
    value = fields.get(name)
    return int(_positive(value[0] if isinstance(value, list) and value else value, name, fields))


def _divisors(model: Model, name: str) -> list[float]:
    """Divisors of the positions of each axis."""
    rule, fields = model.family.divide, model.fields
    if "fields" in rule:
        return [_positive(fields.get(one), one, fields) for one in rule["fields"]]
    if "list" in rule:
        return _list(fields, rule["list"])
    if "grid" in rule and name == "full_attention":  # of the image; windows have their own
        grid = _first(fields, "image_size") // _first(fields, "patch_size")
        return [max(grid, 1) / _first(fields, rule["grid"])] * len(model.family.axes)
    return [1.0] * len(model.family.axes)


def _window(model: Model) -> int | None:
    rule, fields = model.family.window, model.fields
    if "patches" in rule:
        return _first(fields, rule["patches"]) ** 2
    if "field" in rule:
        return fields.integer(rule["field"])
    # Windows hold whole blocks of merged patches.
    merge, patch = _first(fields, "spatial_merge_size"), _first(fields, "patch_size")
    return (_first(fields, rule["pixels"]) // merge // patch * merge) ** 2


def _powers(width: int, base: float) -> np.ndarray:
    return base ** -(np.arange(0, width, 2) / max(width, 1))


def _equal(model: Model, widths: list[int], head: int, base: float) -> list[np.ndarray]:
    count = len(model.family.axes)
    return [_powers(2 * (int(head * (model.family.fraction or 1)) // count // 2), base)] * count


def _sixths(model: Model, widths: list[int], head: int, base: float) -> list[np.ndarray]:
    """Three axes: height and width get a third each, rounded down to pairs; time gets the rest.

    `rope_scale` raises the base of an axis, so that it divides the slowest frequency.
    """
    side = 2 * (head // 6)
    scales = _list(model.fields, "rope_scale")
    return [
        _powers(width, base * scale ** (width / max(width - 2, 1)))
        for width, scale in zip((head - 2 * side, side, side), scales, strict=False)
    ]


def _interleaved_mrope(model: Model, widths: list[int], head: int, base: float) -> list[np.ndarray]:
    """Interleaved M-RoPE: pairs 1, 4, … rotate by height, 2, 5, … by width, the others by time."""
    frequencies = _powers(head, base)
    pairs = np.arange(len(frequencies))
    axis = np.zeros_like(pairs)
    for one, count in enumerate(widths[1:], 1):
        axis[(pairs % 3 == one) & (pairs < 3 * count)] = one
    return [frequencies[axis == one] for one in range(3)]


def _spread(model: Model, widths: list[int], head: int, base: float) -> list[np.ndarray]:
    """LTX: powers of the base with exponents that rise from 0 to 1."""
    count = len(model.family.axes)
    return [base ** np.linspace(0, 1, head // (2 * count))] * count


_SPLITS: dict[str, Callable[[Model, list[int], int, float], list[np.ndarray]]] = {
    "equal": _equal,
    "given": lambda _, widths, head, base: [_powers(one, base) for one in widths],
    "sixths": _sixths,
    "eighths": lambda _, widths, head, base: [_powers(head // 8 * n, base) for n in (2, 3, 3)],
    "alternate": lambda _, widths, head, base: [_powers(head, base)[axis::2] for axis in (0, 1)],
    "shared": _interleaved_mrope,
    "spread": _spread,
    "learned": lambda _, widths, head, base: [],
}
