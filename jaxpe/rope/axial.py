"""Axial rotary embeddings, of vision towers and diffusion transformers: frequencies by axis.

The axes of an image or a video share a head. `families.toml` has the rule for each type.
"""

import math
import reprlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.rope.configuration import Model, head_size
from jaxpe.rope.families import find_family
from jaxpe.rope.fields import MOST_LAYERS, Fields
from jaxpe.rope.layers import layer_kinds
from jaxpe.rope.options import LARGEST_HEAD

# Angles per unit of a position, where the class scales positions by a constant of its own.
_UNITS = {"half image": 2 * math.pi, "half base size": math.pi / 2}
_TURNING = ("full_attention", "window_attention", "sliding_attention")


class AxialGroup(NamedTuple):
    """Group of layers that treat the positions of patches alike.

    Attributes:
        part: stack that the layers are of, where a model has several stacks; else empty.
        layers: indices, from 0; None if the file does not give their number.
        kind: "axial", or "linear" for convolutions between attention.
        head_dim: width of a head, or of all heads together where their frequencies differ.
        turning: entries that turn, over all axes.
        base: θ of the frequencies; None where they are weights of the checkpoint.
        axes: names of the axes, in the order of the head.
        frequencies: angle per unit of a position, a tuple for each axis; empty for weights.
        pairing: "half" or "interleaved".
        layout: "sections" (the pairs of an axis stand together), "blocks" (the entries of an axis
            do, and are paired among themselves), "alternating" (the axes take turns, pair by pair),
            "mixed sections" (they take turns as long as both have pairs left) or "crossed"
            (frequencies stand as the other pairing has them, so the entries of a pair turn by
            angles of their own).
        unit: unit of a position: "patch", "half image" (from -1 to 1 over it), "half base size"
            (from -1 to 1 over a fixed size), "grid" (the image is stretched over a fixed grid),
            "area" (the grid has a fixed area), "frame" or "pixel".
        window: patches that a query sees; None for all.
    """

    part: str = ""
    layers: tuple[int, ...] | None = None
    kind: str = "linear"
    head_dim: int = 0
    turning: int = 0
    base: float | None = None
    axes: tuple[str, ...] = ()
    frequencies: tuple[tuple[float, ...], ...] = ()
    pairing: str = ""
    layout: str = ""
    unit: str = ""
    window: int | None = None


def axial_groups(model: Model) -> tuple[AxialGroup, ...]:
    """Groups of layers in a tower or a diffusion transformer; empty for other models.

    Raises:
        InputError: fields that contradict each other, or no width of a head.

    >>> from jaxpe.rope.families import find_family
    >>> family = find_family("FluxTransformer2DModel")
    >>> model = Model("", family, True, Fields({}, family, source="flux"), 0)
    >>> [(len(group.layers), group.axes, group.turning) for group in axial_groups(model)]
    [(57, ('index', 'height', 'width'), 128)]
    """
    if model.family.kind != "axial":
        return ()
    names = _layer_names(model)
    found = []
    for name in dict.fromkeys(names or ["full_attention"]):
        layers = tuple(i for i, one in enumerate(names) if one == name) if names else None
        found.append(_group(model, name)._replace(layers=layers))
    for part in model.family.also:
        family = find_family(f"{model.family.model_type}.{part}") or model.family
        fields = Fields(model.fields.stated, family, source=model.fields.source)
        fields.used = model.fields.used
        other = model._replace(family=family, fields=fields)
        found += [one._replace(part=part) for one in axial_groups(other)]
    return tuple(found)


def _layer_names(model: Model) -> list[str] | None:
    if model.family.layers:
        return layer_kinds(model)
    counts = [model.fields.whole(one, least=0, most=MOST_LAYERS) for one in model.family.depth]
    return None if None in counts else ["full_attention"] * sum(filter(None, counts))


def _group(model: Model, name: str) -> AxialGroup:
    family = model.family
    if name not in _TURNING:
        return AxialGroup()
    widths = _widths(model)
    head = _head(model, widths)
    base = None if family.split == "learned" else _base(model)
    angles = _SPLITS[family.split](model, widths, head, base or 1.0)
    unit = _UNITS.get(family.unit, 1.0)
    divided = zip(angles, _divisors(model, name), strict=False)
    frequencies = tuple(tuple((axis * unit / by).tolist()) for axis, by in divided)
    turning = 2 * sum(map(len, frequencies)) or head
    if turning > head:
        raise InputError(f"{model.fields.source}: {turning:,} entries turn of a head of {head:,}")
    pairing = family.pairing
    if pairing not in ("half", "interleaved"):  # the field that says it
        pairing = "half" if model.fields.get(pairing) == "split" else "interleaved"
    axes = tuple(family.axes[: len(angles) or None])
    window = None if name == "full_attention" else _window(model)
    own = (axes, frequencies, pairing, family.layout, family.unit, window)
    return AxialGroup("", None, "axial", head, turning, base, *own)


def _widths(model: Model) -> list[int]:
    """Entries of the head for each axis, from a field."""
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
    whole = isinstance(stated, list) and all(type(one) is int and one in sizes for one in stated)
    if not whole or not 0 < len(stated) <= len(family.axes):
        raise InputError(
            f"{fields.source}: {family.widths} is {reprlib.repr(stated)}; a list of even numbers "
            f"is needed, for the axes {', '.join(family.axes)}"
        )
    return stated


def _head(model: Model, widths: list[int]) -> int:
    fields, rule = model.fields, model.family.heads
    head = sum(widths) if rule.get("over") == "axes" else head_size(model)
    head //= math.prod(fields.whole(name) or 1 for name in rule.get("divided", ()))
    head *= math.prod(fields.whole(name) or 1 for name in rule.get("times", ()))
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
        return fields.whole(rule["field"])
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


def _shared(model: Model, widths: list[int], head: int, base: float) -> list[np.ndarray]:
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
    "shared": _shared,
    "spread": _spread,
    "learned": lambda _, widths, head, base: [],
}
