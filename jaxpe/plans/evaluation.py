"""Numbers of a scaling entry: frequencies, wavelengths against the context, and phase errors."""

import math
import reprlib
from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.plans.configuration import Configuration, Model, head_size
from jaxpe.plans.families import REMOTE_CODE
from jaxpe.plans.fields import ORIGINAL, SLIDING
from jaxpe.plans.layers import LayerGroup
from jaxpe.plans.options import LARGEST_HEAD
from jaxpe.plans.programs.base import LOADS_CODE, Entry, Program, UnreadableError
from jaxpe.plans.result import GroupNumbers, LayerPlan, PhaseError, ProgramResult
from jaxpe.plans.scaling import (
    PARAMETER_KINDS,
    ROPE_TYPES,
    RopeFrequencies,
    RopeScaling,
    inverse_frequencies,
    scaling_from_hf,
)

LOST = 0.1  # radians; a frequency with a larger phase error counts as lost
_LAST = 256  # positions at the end of the text, where phase errors are largest
_DTYPES: Any = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
_SAME = 1e-9
_NUMBERS = {name for name, kind in PARAMETER_KINDS.items() if kind in (float, list[float])}
# Fields that a plan takes from the numbers of a program.
_SHARED_FIELDS = sorted({*LayerPlan._fields} & {*GroupNumbers._fields} - {"pairing"})


class ModelGroup(NamedTuple):
    """Group of layers, with its model."""

    model: Model
    group: LayerGroup


def program_result(
    program: Program, configuration: Configuration, model_groups: list[ModelGroup], length: int
) -> ProgramResult:
    """Numbers of a program for all groups of layers, or its reason to refuse the configuration."""
    remote_code = any(model.family.since == REMOTE_CODE for model in configuration.models)
    runs_it = remote_code and LOADS_CODE in program.traits
    evidence = "code of the model" if runs_it else program.evidence
    identity = program.name, program.versions, evidence, program.traits
    numbers = list[GroupNumbers]()
    try:
        for model in configuration.models:
            members = [(i, one.group) for i, one in enumerate(model_groups) if one.model is model]
            groups = tuple(group for _, group in members)
            entries = program.entries(configuration, model, groups) if groups else ()
            for (index, group), entry in zip(members, entries, strict=True):
                numbers.append(
                    _group_numbers(program, configuration, model, index, group, entry, length)
                )
        longest = max((program.longest(model) for model in configuration.models), default=math.nan)
    except (ValueError, KeyError, TypeError, ArithmeticError) as error:
        if isinstance(error, InputError):
            raise
        clear = isinstance(error, ValueError)  # others carry messages of Python
        return ProgramResult(
            *identity, str(error) if clear else f"{type(error).__name__} in its numbers"
        )
    return ProgramResult(*identity, None, longest, tuple(numbers))


def _group_numbers(
    program: Program, configuration: Configuration, model: Model, index: int, group: LayerGroup,
    entry: Entry | None, length: int,
) -> GroupNumbers:  # fmt: skip
    growth = program.query_scaling(configuration, model, entry or {})
    growth = growth if growth is not None and growth.layers in ("all", group.kind) else None
    query_factor = 1.0 if growth is None else growth.at(length - 1)
    if entry is None:
        return GroupNumbers(index, False, query_factor=query_factor, query_scaling=growth)
    width = group.width or head_size(model)  # of layers that turn in this program alone
    scaled = entry_frequencies(entry, width, length, model.context)
    factor = scaled.attention_factor
    if "attention_factors" in entry:
        factor = entry["attention_factors"][length > entry[ORIGINAL]]
    frequencies = np.asarray(scaled.inverse, np.float64)
    least = 0 if entry["rope_type"] == "proportional" else 5e-324
    usable = ((frequencies >= least) & np.isfinite(frequencies)).all()
    if not usable or not 0 < abs(factor) < math.inf:
        raise UnreadableError("it loads, but frequencies or a factor are 0, negative or infinite")
    frequencies = frequencies[frequencies > 0]
    scaling = entry if entry["rope_type"] != "default" else {}
    return GroupNumbers(
        group=index,
        turns=True,
        rope_type=str(entry.get("named") or entry["rope_type"]),
        scaling=entry_scaling(entry, model.context),
        base=float(entry["rope_theta"]),
        turning=2 * len(frequencies),
        factor=float(scaling.get("factor") or math.nan),
        original=int(scaling.get(ORIGINAL) or 0),
        attention_factor=float(factor),
        logit_factor=program.logit_factor(model, group, entry),
        query_factor=query_factor,
        query_scaling=growth,
        pairing=program.pairing(model, group) or group.pairing or "",
        frequencies=frequencies,
    )


def entry_frequencies(entry: Entry, width: int, length: int, context: int) -> RopeFrequencies:
    """Frequencies of a head of `width` entries under a complete `rope_parameters` entry.

    Args:
        entry: type, θ, rotated share of the head, and numbers of the scaling.
        width: width of the head, or of its rotary part.
        length: length of the text, on which some scalings depend.
        context: `max_position_embeddings`.

    Raises:
        ValueError: numbers that make no sense.

    >>> entry = {"rope_type": "default", "rope_theta": 16.0}
    >>> entry_frequencies(entry, 8, 10, 10).inverse.tolist()
    [1.0, 0.5, 0.25, 0.125]
    """
    kind, base = entry["rope_type"], float(entry["rope_theta"])
    scaling = entry_scaling(entry, context)
    share = 1.0 if kind == "proportional" else float(entry.get("partial_rotary_factor") or 1.0)
    dim = int(width * share)
    if not 0 <= dim <= LARGEST_HEAD:
        raise ValueError(f"{dim:,} of {width:,} entries would rotate")
    if not 0 < base < math.inf:
        raise ValueError(f"rope_theta is {base}, not a number above 0")
    if kind in ("default", "linear") and dim % 2 and share < 1:  # transformers pads to a pair
        unscaled = base ** (-np.arange(0, dim, 2) / dim)
        return RopeFrequencies(unscaled / getattr(scaling, "factor", 1.0))
    if scaling is None:
        return RopeFrequencies(inverse_frequencies(dim, base=base))
    with np.errstate(all="ignore"):
        return scaling.frequencies(dim, base, length)


def entry_scaling(entry: Entry, context: int) -> RopeScaling | None:
    """Scaling of a complete `rope_parameters` entry; None for "default".

    Raises:
        ValueError: an unknown type, or numbers that are missing or no numbers.

    >>> entry_scaling({"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}, 2048)
    LinearScaling(factor=2.0)
    """
    fields = getattr(ROPE_TYPES.get(entry["rope_type"]), "_fields", ())
    taken = {"rope_type", "rope_theta", "partial_rotary_factor", *fields}
    parameters = {key: entry[key] for key in taken & entry.keys() if entry[key] is not None}
    for name in parameters.keys() & _NUMBERS:
        value = parameters[name]
        values = value if isinstance(value, list | tuple) else [value]
        if not all(isinstance(one, int | float) for one in values):
            raise UnreadableError(f"TypeError: {name} is {reprlib.repr(value)}, no number")
    return scaling_from_hf(parameters, max_position_embeddings=context)


def _span(model: Model, group: LayerGroup) -> int:
    """Positions that a query sees, at most."""
    local = model.family.window.get("local") and group.name != SLIDING  # beside compressed keys
    return 2**62 if local or group.window is None else group.window


def layer_plan(model_group: ModelGroup, numbers: GroupNumbers | None, length: int) -> LayerPlan:
    """Plan of a group of layers with a program's numbers; without numbers if `numbers` is None."""
    model, group = model_group
    span = _span(model, group)
    plan = LayerPlan(
        group.name, model.part, group.layers, group.kind, group.window, group.two_sided,
        group.head_dim, place=group.place, pairing=group.pairing,
        trained=min(model.context, span), reach=min(length, span),
    )  # fmt: skip
    if numbers is None or not numbers.turns:
        scaled = ("query_factor", "query_scaling") if numbers is not None else ()
        return plan._replace(**{name: getattr(numbers, name) for name in scaled})
    width = group.width if numbers.rope_type == "proportional" else numbers.turning
    unscaled = inverse_frequencies(width, base=numbers.base)[: len(numbers.frequencies)]
    frequencies = numbers.frequencies
    sections = _sections(model, group, len(frequencies))
    trained = min(numbers.original or model.context, span)
    slow = unscaled * trained < 2 * math.pi
    ratio, last = frequencies / unscaled, frequencies * plan.reach
    factor = ratio.min(initial=1.0)
    return plan._replace(
        **{name: getattr(numbers, name) for name in _SHARED_FIELDS},
        sections=sections,
        section_order=model.family.mrope.get("order", "") if sections else "",
        unscaled=unscaled,
        trained=trained,
        never_round=int(slow.sum()),
        never_round_at_reach=int((last < 2 * math.pi).sum()),
        unseen=int((slow & (last > unscaled * trained * (1 + _SAME))).sum()),
        kept=int((np.abs(ratio - 1) < _SAME).sum()),
        divided=int((np.abs(ratio - factor) < _SAME).sum()) if factor < 1 - _SAME else 0,
    )


def _sections(model: Model, group: LayerGroup, pairs: int) -> tuple[int, ...]:
    """Numbers of frequencies of each axis of positions: the file's, or the default of the class."""
    rule = model.family.mrope
    if model.has_rules and not rule:  # the class has one axis
        return ()
    if rule.get("order") == "alternating":  # two axes
        return pairs - pairs // 2, pairs // 2
    by_kind = model.fields.mapping("rope_parameters").get(group.name)
    entry = by_kind if isinstance(by_kind, dict) else model.entry
    entries = entry, model.family.entry or {}
    names = "mrope_section", "xdrope_section"  # the second of Hunyuan
    stated = next((one[name] for one in entries for name in names if one.get(name)), None)
    valid = isinstance(stated, list) and all(isinstance(one, int) for one in stated)
    return tuple(stated if valid else rule.get("sections", ()))


def phase_errors(inverse: np.ndarray, length: int) -> tuple[PhaseError, ...]:
    """Phase errors, of ω·i near the end of a text, in the floating-point types of programs.

    Args:
        inverse: frequencies ω in radians per position, float64, `[half]`.
        length: length of the text, in positions.

    >>> [error.lost for error in phase_errors(np.array([1.0, 0.001]), 4096)]
    [0, 1, 1, 0, 0]
    """
    rounded: list[Any] = [(name, "all") for name in _DTYPES]
    rounded += [(name, "frequencies") for name in _DTYPES if name != "float32"]
    return tuple(_phase_error(inverse, length, *kind) for kind in rounded)


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
    # Errors are not reduced modulo 2π: a phase that is off by a whole rotation is right by chance.
    error = np.minimum(np.where(np.isfinite(away), away, math.pi), math.pi).max(axis=0)
    largest, lost = float(error.max(initial=0.0)), int((error > LOST).sum())
    return PhaseError(length, name, rounded, largest, lost)
