"""Differences between what programs compute from one configuration."""

import math
from typing import Any

import numpy as np

from jaxpe.plans.result import Disagreement, GroupNumbers, PhaseError, ProgramResult

SAME = 1e-6  # relative; programs compute in float32
_COMPARED = (
    "turns", "rope_type", "base", "turning", "factor", "original", "attention_factor",
    "logit_factor", "query_factor", "pairing",
)  # fmt: skip
_FACTORS = ("attention_factor", "logit_factor")
_ROTATION = (*_FACTORS, "query_factor")


def disagreements(programs: tuple[ProgramResult, ...]) -> tuple[Disagreement, ...]:
    """Quantities that programs compute differently: for the whole model first, then by group."""
    accepting = [one for one in programs if one.problem is None]
    result = _disagreement(None, "problem", {one.name: one.problem for one in programs})
    result += _disagreement(None, "longest", {one.name: one.longest for one in accepting})
    for numbers in zip(*(one.numbers for one in accepting), strict=True):
        names = [one.name for one in accepting]
        result += _group_disagreements(numbers[0].group, dict(zip(names, numbers, strict=True)))
    return tuple(result)


def _disagreement(group: int | None, what: str, values: dict[str, Any]) -> list[Disagreement]:
    """Disagreement about a quantity; empty if all values agree."""
    texts = {name: _text(value) for name, value in values.items()}
    return [] if _alike(list(values.values())) else [Disagreement(group, what, texts)]


def _group_disagreements(index: int, numbers: dict[str, GroupNumbers]) -> list[Disagreement]:
    result = list[Disagreement]()
    turning = {name: one for name, one in numbers.items() if one.turns}
    for what in _COMPARED:
        compared = numbers if what in ("turns", "query_factor") else turning
        values: dict[str, Any] = {name: getattr(one, what) for name, one in compared.items()}
        if what in _FACTORS:
            values = {name: shown_factor(value) for name, value in values.items()}
        if what == "pairing":  # a converter that permutes the weights gives the same rotation
            values = {name: value.split(",")[0] for name, value in values.items()
                      if "permuted" not in value}  # fmt: skip
        result += _disagreement(index, what, values)
    first = next((one.frequencies for one in turning.values()), np.zeros(0))
    if not all(same_frequencies(first, one.frequencies) for one in turning.values()):
        texts = {name: _ratio_text(one.frequencies, first) for name, one in turning.items()}
        result.append(Disagreement(index, "frequencies", texts))
    return result


def _alike(values: list[Any]) -> bool:
    if any(isinstance(value, str | bool) or value is None for value in values):
        return len(set(values)) == 1
    numbers = {float(value) for value in values if not math.isnan(value)}
    limit = SAME * max(numbers, default=0.0)  # quantities are positive, or exactly alike
    return len(numbers) < 2 or bool(np.ptp([*numbers]) <= limit < math.inf)


def shown_factor(value: float) -> float:
    """Factor to the four digits of the tables; a smaller difference is none."""
    return float(f"{value:.4g}")


def shown_error(error: PhaseError) -> str:
    """Largest phase error in radians, or "π (lost)" if it rounds to π, its upper bound."""
    text = f"{error.largest:.2g}"
    return "π (lost)" if text == f"{math.pi:.2g}" else text


def same_frequencies(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two lists of frequencies agree to float32 precision."""
    return len(one) == len(other) and np.allclose(one, other, rtol=SAME, atol=0)


def alike(one: GroupNumbers, other: GroupNumbers) -> bool:
    """Whether two programs rotate a group alike, with the same factors."""
    pairs = ((getattr(one, name), getattr(other, name)) for name in _ROTATION)
    same = all(shown_factor(a) == shown_factor(b) for a, b in pairs)
    return same and same_frequencies(one.frequencies, other.frequencies)


def largest_ratio(frequencies: np.ndarray, first: np.ndarray) -> float:
    """Ratio of corresponding frequencies furthest from 1; NaN for lists of different lengths."""
    if len(frequencies) != len(first):
        return math.nan
    ratios = np.divide(frequencies, first)
    return float(max(ratios, key=lambda one: abs(math.log(one)), default=1.0))


def _ratio_text(frequencies: np.ndarray, first: np.ndarray) -> str:
    """Text of the largest ratio between two lists of frequencies."""
    ratio = largest_ratio(frequencies, first)
    if math.isnan(ratio):
        return f"{len(frequencies)} of them"
    return "the same" if abs(ratio - 1) <= SAME else f"up to {ratio:.4g} times"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "rotates" if value else "does not rotate"
    if value is None or isinstance(value, str):
        return value or "reads it"
    return "–" if math.isnan(value) else f"{value:,.6g}"
