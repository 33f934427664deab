"""Entries as numbers: frequencies, wavelengths against the context, errors of phases."""

import math
import reprlib
from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.rope.configuration import Configuration, Model, head_size
from jaxpe.rope.families import OWN_CODE
from jaxpe.rope.layers import SLIDING, LayerGroup
from jaxpe.rope.options import LARGEST_HEAD
from jaxpe.rope.programs.base import LOADS_CODE, ORIGINAL, Entry, Reader, UnreadableError
from jaxpe.rope.result import LayerPlan, PhaseError, Program, Reading
from jaxpe.rope.scaling import (
    PARAMETER_KINDS,
    ROPE_TYPES,
    RopeFrequencies,
    inverse_frequencies,
    scaling_from_hf,
)

LOST = 0.1  # radians, from which on a phase counts as lost
_LAST = 256  # positions before the longest whose errors are looked at
_DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
}
_SAME = 1e-9
_NUMBERS = {name for name, kind in PARAMETER_KINDS.items() if kind in (float, list[float])}
# Numbers of a program that a plan has.
_TAKEN = sorted({*LayerPlan._fields} & {*Reading._fields} - {"pairing"})


class Placed(NamedTuple):
    """Group of layers, with its model."""

    model: Model
    group: LayerGroup


def program_result(
    reader: Reader, configuration: Configuration, placed: list[Placed], length: int
) -> Program:
    """Numbers of a program for all groups of layers, or its reason to refuse the configuration."""
    own = any(model.family.since == OWN_CODE for model in configuration.models)
    evidence = "code of the model" if own and LOADS_CODE in reader.traits else reader.evidence
    shared = reader.name, reader.versions, evidence, reader.traits
    readings = list[Reading]()
    try:
        for model in configuration.models:
            own = [(i, one.group) for i, one in enumerate(placed) if one.model is model]
            groups = tuple(group for _, group in own)
            entries = reader.entries(configuration, model, groups) if groups else ()
            for (index, group), entry in zip(own, entries, strict=True):
                readings.append(_reading(reader, configuration, model, index, group, entry, length))
        longest = max((reader.longest(model) for model in configuration.models), default=math.nan)
    except (ValueError, KeyError, TypeError, ArithmeticError) as error:
        if isinstance(error, InputError):
            raise
        told = isinstance(error, ValueError)  # others carry messages of Python
        return Program(*shared, str(error) if told else f"{type(error).__name__} in its numbers")
    return Program(*shared, None, longest, tuple(readings))


def _reading(
    reader: Reader, configuration: Configuration, model: Model, index: int, group: LayerGroup,
    entry: Entry | None, length: int,
) -> Reading:  # fmt: skip
    growth = reader.query_scaling(configuration, model, entry or {})
    applies = growth is not None and growth.layers in ("all", group.kind)
    query_factor = growth.at(length - 1) if growth is not None and applies else 1.0
    if entry is None:
        return Reading(index, False, query_factor=query_factor)
    width = group.width or head_size(model)  # of layers that turn in this program alone
    found = entry_frequencies(entry, width, length, model.context)
    factor = found.attention_factor
    if "attention_factors" in entry:
        factor = entry["attention_factors"][length > entry[ORIGINAL]]
    frequencies = np.asarray(found.inverse, np.float64)
    least = 0 if entry["rope_type"] == "proportional" else 5e-324
    usable = ((frequencies >= least) & np.isfinite(frequencies)).all()
    if not usable or not 0 < abs(factor) < math.inf:
        raise UnreadableError("it loads, but frequencies or a factor are 0, negative or infinite")
    frequencies = _ordered(model, entry, frequencies[frequencies > 0])
    scaling = entry if entry["rope_type"] != "default" else {}
    return Reading(
        group=index,
        turns=True,
        rope_type=str(entry.get("named") or entry["rope_type"]),
        base=float(entry["rope_theta"]),
        turning=2 * len(frequencies),
        factor=float(scaling.get("factor") or math.nan),
        original=int(scaling.get(ORIGINAL) or 0),
        attention_factor=float(factor),
        logit_factor=reader.logit_factor(model, group, entry),
        query_factor=query_factor,
        pairing=reader.pairing(model, group) or group.pairing or "",
        frequencies=frequencies,
    )


def _ordered(model: Model, entry: Entry, frequencies: np.ndarray) -> np.ndarray:
    """Frequencies by pair; in ERNIE 4.5 VL, even pairs are for height, odd pairs for width."""
    if model.family.order != "height and width first":
        return frequencies
    sections = entry.get("mrope_section") or (22, 22, 20)
    image = frequencies[: len(frequencies) - int(sections[2])]
    return np.concatenate([image[0::2], image[1::2], frequencies[len(image) :]])


def entry_frequencies(entry: Entry, width: int, length: int, context: int) -> RopeFrequencies:
    """Frequencies of `width` entries of a head by a complete entry of `rope_parameters`.

    Args:
        entry: type, θ, share of the entries that turns, and numbers of the scaling.
        width: entries that frequencies are made for.
        length: length of the text, on which some scalings depend.
        context: `max_position_embeddings`.

    Raises:
        ValueError: numbers that make no sense.

    >>> entry_frequencies({"rope_type": "default", "rope_theta": 16.0}, 8, 10, 10).inverse.tolist()
    [1.0, 0.5, 0.25, 0.125]
    """
    kind, base = entry["rope_type"], float(entry["rope_theta"])
    taken = {"rope_type", "partial_rotary_factor", *getattr(ROPE_TYPES.get(kind), "_fields", ())}
    kept = {key: entry[key] for key in taken & entry.keys() if entry[key] is not None}
    for name in kept.keys() & _NUMBERS:
        values = kept[name] if isinstance(kept[name], list | tuple) else [kept[name]]
        if not all(isinstance(one, int | float) for one in values):
            raise UnreadableError(f"TypeError: {name} is {reprlib.repr(kept[name])}, no number")
    scaling = scaling_from_hf(kept, max_position_embeddings=context)
    share = 1.0 if kind == "proportional" else float(entry.get("partial_rotary_factor") or 1.0)
    dim = int(width * share)
    if not 0 <= dim <= LARGEST_HEAD:
        raise ValueError(f"{dim:,} entries would turn, of {width:,}")
    if not 0 < base < math.inf:
        raise ValueError(f"rope_theta is {base}, not a number above 0")
    if kind in ("default", "linear") and dim % 2 and share < 1:  # transformers pads to a pair
        return RopeFrequencies(base ** (-np.arange(0, dim, 2) / dim) / float(kept.get("factor", 1)))
    if scaling is None:
        return RopeFrequencies(inverse_frequencies(dim, base=base))
    with np.errstate(all="ignore"):
        return scaling.frequencies(dim, base, length)


def _span(model: Model, group: LayerGroup) -> int:
    """Positions that a query sees, at most."""
    local = model.family.window.get("local") and group.name != SLIDING  # beside compressed keys
    return 2**62 if local or group.window is None else group.window


def layer_plan(placed: Placed, reading: Reading | None, length: int) -> LayerPlan:
    """Plan of a group of layers with a program's numbers; None if it refuses."""
    model, group = placed
    span = _span(model, group)
    plan = LayerPlan(
        group.name, model.part, group.layers, group.kind, group.window, group.two_sided,
        group.head_dim, place=group.place, pairing=group.pairing,
        trained=min(model.context, span), reach=min(length, span),
    )  # fmt: skip
    if reading is None or not reading.turns:
        return plan if reading is None else plan._replace(query_factor=reading.query_factor)
    width = group.width if reading.rope_type == "proportional" else reading.turning
    unscaled = inverse_frequencies(width, base=reading.base)[: len(reading.frequencies)]
    frequencies, unscaled = reading.frequencies, _ordered(model, {}, unscaled)
    trained = min(reading.original or model.context, span)
    sections = model.entry.get("mrope_section")  # frequencies of each axis of positions
    whole = isinstance(sections, list) and all(isinstance(one, int) for one in sections)
    slow = unscaled * trained < 2 * math.pi
    ratio, last = frequencies / unscaled, frequencies * plan.reach
    factor = ratio.min(initial=1.0)
    return plan._replace(
        **{name: getattr(reading, name) for name in _TAKEN},
        sections=tuple(sections) if whole else (),
        unscaled=unscaled,
        trained=trained,
        never_round=int(slow.sum()),
        never_round_at_reach=int((last < 2 * math.pi).sum()),
        unseen=int((slow & (last > unscaled * trained * (1 + _SAME))).sum()),
        kept=int((np.abs(ratio - 1) < _SAME).sum()),
        divided=int((np.abs(ratio - factor) < _SAME).sum()) if factor < 1 - _SAME else 0,
    )


def phase_errors(inverse: np.ndarray, length: int) -> tuple[PhaseError, ...]:
    """Errors of ω·i near the end of a text in the types that programs use.

    Args:
        inverse: frequencies in radians a position, float64, `[half]`.
        length: length of the text, in positions.

    >>> [error.lost for error in phase_errors(np.array([1.0, 0.001]), 4096)]
    [0, 1, 1, 0, 0]
    """
    whole = [_phase_error(inverse, length, name, "all") for name in _DTYPES]
    part = [_phase_error(inverse, length, n, "frequencies") for n in _DTYPES if n != "float32"]
    return (*whole, *part)


def _phase_error(
    inverse: np.ndarray, length: int, name: str, rounded: Literal["all", "frequencies"]
) -> PhaseError:
    positions = np.arange(max(0, length - _LAST), length)
    exact = positions[:, None] * inverse
    dtype = _DTYPES[name]
    rest = dtype if rounded == "all" else np.float32
    with np.errstate(all="ignore"):
        product = positions.astype(rest)[:, None] * inverse.astype(dtype).astype(rest)
        away = np.abs(product.astype(np.float64) - exact)
    # Not up to whole turns: a phase that is off by a turn is right by chance alone.
    error = np.minimum(np.where(np.isfinite(away), away, math.pi), math.pi).max(axis=0)
    largest, lost = float(error.max(initial=0.0)), int((error > LOST).sum())
    return PhaseError(length, name, rounded, largest, lost)
