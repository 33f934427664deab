"""Entries of the readers as numbers, and where these differ."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxpe.analysis.rope.facts import RopeFacts
from jaxpe.analysis.rope.readers import (
    ALL,
    READERS,
    YARNS,
    Entry,
    ReaderName,
    UnreadableError,
    logit_factor,
    longest,
    query_scaling,
    readers_of,
)
from jaxpe.analysis.rope.result import Disagreement, Reading
from jaxpe.encodings import rope_frequencies
from jaxpe.encodings.rope_scaling import ROPE_TYPES
from jaxpe.encodings.rotary import rope_arguments

# Keys of an entry that some reader uses, beside those of the scalings.
_BESIDE = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
_SECTIONS = {"mrope_section", "mrope_interleaved"}
_KNOWN_ELSEWHERE = {
    "llama_4_scaling_beta", "apply_yarn_scaling", "attn_factor", "extrapolation_factor",
    "max_position_embeddings",
}  # fmt: skip
_COMPARED = (
    "problem", "rope_type", "base", "rotated", "factor", "original", "attention_factor",
    "logit_factor", "query_factor", "longest",
)  # fmt: skip
_SAME = 1e-6  # relative; readers compute in float32


def readings(facts: RopeFacts, length: int) -> tuple[Reading, ...]:
    """Numbers that every reader computes with at a length, by kind of layer."""
    entries = {reader: _entries(reader, facts) for reader in readers_of(facts)}
    kinds = dict.fromkeys(kind for found in entries.values() for kind in found)
    kinds = [kind for kind in kinds if kind != ALL] or [ALL]
    return tuple(
        _reading(reader, facts, kind, found.get(kind, found.get(ALL)), length)
        for kind in kinds
        for reader, found in entries.items()
    )


def _entries(reader: ReaderName, facts: RopeFacts) -> Mapping[str, Entry | str]:
    """Entries by kind of layer, or why there are none."""
    try:
        return READERS[reader](facts)
    except UnreadableError as error:
        return {ALL: str(error)}
    except (ValueError, KeyError, ArithmeticError) as error:
        return {ALL: f"{type(error).__name__}: {error}"}


def _reading(
    reader: ReaderName, facts: RopeFacts, kind: str, entry: Entry | str | None, length: int
) -> Reading:
    if not isinstance(entry, dict):
        return _refused(reader, kind, entry or f"it has no layers of the kind {kind}")
    try:
        return _numbers(reader, facts, kind, entry, length)
    except (ValueError, ArithmeticError) as error:
        return _refused(reader, kind, str(error))


def _refused(reader: ReaderName, kind: str, problem: str) -> Reading:
    nan = math.nan
    return Reading(
        reader, kind, "", nan, 0, nan, 0, nan, nan, nan, nan, np.zeros(0), problem
    )  # fmt: skip


def _numbers(reader: ReaderName, facts: RopeFacts, kind: str, entry: Entry, length: int) -> Reading:
    kept = {key: entry[key] for key in _taken(entry) & entry.keys() if entry[key] is not None}
    arguments = rope_arguments(kept, max_position_embeddings=facts.context)
    with np.errstate(all="ignore"):
        found = rope_frequencies(head_dim=facts.head_dim, length=length, **arguments)
    inverse = np.asarray(found.inverse, np.float64)
    if not np.isfinite(inverse).all() or not math.isfinite(found.attention_factor):
        raise ValueError("its frequencies are not finite numbers")
    scaling = arguments["scaling"]
    growth = query_scaling(reader, facts, entry)
    return Reading(
        reader=reader,
        layers=kind,
        rope_type=str(entry["rope_type"]),
        base=arguments["base"],
        rotated=2 * len(inverse),
        factor=float(getattr(scaling, "factor", math.nan)),
        original=int(getattr(scaling, "original_max_position_embeddings", 0)),
        attention_factor=float(found.attention_factor),
        logit_factor=logit_factor(reader, facts, entry),
        query_factor=1.0 if growth is None else growth.at(length - 1),
        longest=longest(reader, facts),
        inverse=inverse,
        problem=None,
    )


def _taken(entry: Mapping[str, Any]) -> set[str]:
    """Keys that a scaling of this type takes."""
    kind = "yarn" if entry["rope_type"] in YARNS else entry["rope_type"]
    return {*_BESIDE, *getattr(ROPE_TYPES.get(kind), "_fields", ())}


def ignored_keys(facts: RopeFacts) -> tuple[str, ...]:
    """Keys of the entries that the first reader ignores in every kind of layer."""
    found = _entries(readers_of(facts)[0], facts)
    entries = [entry for entry in found.values() if isinstance(entry, dict)]
    if not entries:
        return ()
    known = set().union(*map(_taken, entries)) | _SECTIONS | _KNOWN_ELSEWHERE
    given = facts.entry
    parts = [part for part in given.values() if isinstance(part, Mapping)] or [given]
    stated = {key for part in parts for key, value in part.items() if value is not None}
    return tuple(sorted(stated - known))


def disagreements(found: tuple[Reading, ...]) -> tuple[Disagreement, ...]:
    """Quantities whose values differ between the readers of one kind of layer."""
    result = []
    for kind in dict.fromkeys(reading.layers for reading in found):
        every = [reading for reading in found if reading.layers == kind]
        own = [reading for reading in every if reading.problem is None]
        for what in _COMPARED:
            compared = every if what == "problem" else own
            values = {reading.reader: getattr(reading, what) for reading in compared}
            if not _alike(list(values.values())):
                texts = {name: _text(value) for name, value in values.items()}
                result.append(Disagreement(kind, what, texts))
        if not _alike_frequencies(own):
            result.append(Disagreement(kind, "inverse", _apart_from_first(own)))
    return tuple(result)


def _alike(values: list[Any]) -> bool:
    numbers = [v for v in values if isinstance(v, float | int) and not math.isnan(v)]
    if any(isinstance(value, str) or value is None for value in values):
        return len(set(values)) == 1
    return not numbers or bool(np.ptp(numbers) <= _SAME * max(map(abs, numbers)))


def _alike_frequencies(own: list[Reading]) -> bool:
    known = [reading.inverse for reading in own]
    if len({len(inverse) for inverse in known}) > 1:
        return False
    return all(np.allclose(inverse, known[0], rtol=_SAME, atol=0) for inverse in known[1:])


def _apart_from_first(own: list[Reading]) -> dict[str, str]:
    """Largest difference of the frequencies from those of the first reader, by reader."""
    first = own[0].inverse
    return {reading.reader: _difference(reading.inverse, first) for reading in own}


def _difference(inverse: np.ndarray, first: np.ndarray) -> str:
    if len(inverse) != len(first):
        return f"{len(inverse)} of them"
    turning = (first > 0) & (inverse > 0)
    ratio = np.divide(inverse[turning], first[turning])
    largest = max(ratio, key=lambda one: abs(math.log(one)), default=1.0)
    return "the same" if abs(largest - 1) <= _SAME else f"times {largest:.4g}"


def _text(value: Any) -> str:
    if value is None:
        return "reads it"
    if isinstance(value, str):
        return value
    return "–" if isinstance(value, float) and math.isnan(value) else f"{value:,.6g}"
