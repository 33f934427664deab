"""Wavelengths against the context, and errors of phases."""

import math
from typing import Any, Literal

import ml_dtypes
import numpy as np

from jaxpe.analysis.rope.facts import RopeFacts
from jaxpe.analysis.rope.readers import ALL, FULL, SLIDING
from jaxpe.analysis.rope.result import LayerRotation, PhaseError, Reading
from jaxpe.encodings import inverse_frequencies

LOST = 0.1  # radians, from which on a phase counts as lost
_LAST = 256  # positions before the longest whose errors are looked at
_DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
}
_SAME = 1e-9
_UNLIMITED = 2**62
_MOST_LAYERS = 100_000


def layer_rotation(facts: RopeFacts, reading: Reading, length: int) -> LayerRotation:
    """The frequencies of a kind of layer against the length it was trained at and is used at."""
    rotated = facts.head_dim if reading.rope_type == "proportional" else reading.rotated
    unscaled = inverse_frequencies(rotated, base=reading.base)
    turning = reading.inverse > 0
    window = _window(facts, reading.layers)
    trained = min(reading.original or facts.context, window)
    reach = min(length, window)
    slow = turning & (unscaled * trained < 2 * math.pi)
    ratio = np.divide(reading.inverse, unscaled)
    factor = ratio[turning].min() if turning.any() else 1.0
    return LayerRotation(
        layers=reading.layers,
        count=_count(facts, reading.layers),
        trained=trained,
        reach=reach,
        unscaled=unscaled,
        inverse=reading.inverse,
        never_round=int(slow.sum()),
        never_round_at_reach=int((turning & (reading.inverse * reach < 2 * math.pi)).sum()),
        unseen=int((slow & (reading.inverse * reach > unscaled * trained * (1 + _SAME))).sum()),
        kept=int((turning & (np.abs(ratio - 1) < _SAME)).sum()),
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


def lengths_up_to(length: int) -> list[int]:
    """Powers of two from 256 on that are shorter, and the length itself."""
    return [2**k for k in range(8, length.bit_length()) if 2**k < length] + [length]


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


def _window(facts: RopeFacts, kind: str) -> int:
    """Positions that a layer of this kind looks back over."""
    chunked, windowed = facts.model_type == "llama4_text", facts.model_type in ("mistral", "phi3")
    size = facts.stated("attention_chunk_size" if chunked else "sliding_window")
    everywhere = kind == ALL and (chunked or windowed)  # in all layers that turn
    limited = (kind == SLIDING or everywhere) and isinstance(size, int) and size > 0
    return size if limited else _UNLIMITED


def kinds_of_layers(facts: RopeFacts) -> list[str]:
    """Kind of every layer, where the configuration says."""
    types = facts.stated("layer_types")
    if isinstance(types, list):
        return [str(one) for one in types]
    count, pattern = _layer_count(facts), facts.stated("sliding_window_pattern")
    if count is None:
        return []
    if facts.model_type in ("gemma3", "gemma3_text") and pattern is None:
        pattern = 6
    if isinstance(pattern, int) and pattern > 0:
        return [FULL if (i + 1) % pattern == 0 else SLIDING for i in range(count)]
    return [ALL] * count


def layers_without_rope(facts: RopeFacts) -> int:
    """Layers that do not turn: `no_rope_layers`, where 1 says that a layer turns, or every n-th."""
    stated = facts.stated("no_rope_layers")
    if isinstance(stated, list) and stated:
        return stated.count(0)
    count = _layer_count(facts)
    if facts.model_type not in ("llama4_text", "smollm3") or count is None:
        return 0
    return count // max(facts.stated("no_rope_layer_interval") or 4, 1)


def _layer_count(facts: RopeFacts) -> int | None:
    count = facts.stated("num_hidden_layers", "n_layer", "n_layers")
    whole = isinstance(count, int) and not isinstance(count, bool)
    return count if whole and 0 < count <= _MOST_LAYERS else None


def _count(facts: RopeFacts, kind: str) -> int:
    found = kinds_of_layers(facts)
    turning = len(found) - layers_without_rope(facts) if found else 0
    return turning if kind == ALL else found.count(kind)
