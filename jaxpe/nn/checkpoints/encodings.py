"""Positional encoding of a released model, from its config.json and its architecture.

Formulas are from the classes of transformers 5.
"""

import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.encodings import (
    Encoding,
    LayerPattern,
    alibi,
    chain,
    identity,
    learned,
    rope,
    rope_frequencies,
    rope_from_hf,
    sliding_window,
    t5,
)
from jaxpe.encodings.combine import moved_positions
from jaxpe.encodings.families.rotary import rope_arguments
from jaxpe.nn.checkpoints.architecture import Architecture, Fields
from jaxpe.nn.config import TransformerConfig

GLOBAL, LOCAL = "full_attention", "sliding_attention"

_LONGROPE = ("longrope", "su", "yarn")  # names of one scaling in the configurations of Phi-3


def model_encoding(
    architecture: Architecture, path: Path, fields: Fields, config: TransformerConfig
) -> Encoding | LayerPattern:
    """Encoding of a released model from checked fields; raises `InputError` for invalid numbers."""
    try:
        with np.errstate(all="ignore"):  # numbers that are not finite are refused below
            encoding = ENCODINGS[architecture.positions](architecture, fields, config)
            for kind in rope_kinds(fields):
                _check_phases(rope_entry(fields, kind), fields, config.head_width)
    except (TypeError, ValueError, ArithmeticError) as error:
        entry = reprlib.repr(fields.get("rope_parameters") or fields.get("rope_scaling"))
        raise InputError(f"{path}: rope_parameters {entry}: {error}") from error
    return encoding


def rope_kinds(fields: Fields) -> tuple[str | None, ...]:
    """Kinds of layers with a RoPE entry each: (None,) for a single entry, () without RoPE."""
    if "rope_theta" not in fields:
        return ()
    return (GLOBAL, LOCAL) if "rope_local_base_freq" in fields else (None,)


def rope_entry(fields: Fields, kind: str | None) -> Fields:
    """RoPE entry of a kind of layer, with its base and rotated share."""
    entry = fields.get("rope_parameters") or {}
    if kind is not None and (kind in entry or LOCAL in entry or GLOBAL in entry):
        entry = entry.get(kind) or {}
    elif not entry and kind != LOCAL:
        entry = fields.get("rope_scaling") or {}
    base = fields["rope_local_base_freq"] if kind == LOCAL else fields["rope_theta"]
    share = fields.get("partial_rotary_factor")
    defaults = {"rope_theta": base} | ({} if share is None else {"partial_rotary_factor": share})
    entry = defaults | {name: value for name, value in entry.items() if value is not None}
    original = "original_max_position_embeddings"
    if original in fields and entry.get("rope_type", entry.get("type")) in _LONGROPE:
        entry |= {"rope_type": "longrope", original: fields[original]}
    return entry if share is not None else _full_head_entry(entry)


def _full_head_entry(entry: Fields) -> Fields:
    """RoPE entry of an architecture that rotates full heads and ignores the rotated share."""
    kind, share = entry.get("rope_type", entry.get("type", "default")), "partial_rotary_factor"
    if kind == "proportional" or entry.get(share, 1.0) == 1.0:
        return entry
    if kind != "default":
        raise ValueError(f"{share} is {entry[share]!r}, but this architecture rotates full heads")
    return {name: value for name, value in entry.items() if name != share}


def _check_phases(entry: Fields, fields: Fields, head_dim: int) -> None:
    """Raise for phases or attention factors that are not finite in float32."""
    positions = fields["max_position_embeddings"]
    arguments = rope_arguments(entry, max_position_embeddings=positions)
    frequencies = rope_frequencies(head_dim=head_dim, length=positions, **arguments)
    # Logits carry the square of the factor.
    numbers = [*np.asarray(frequencies.inverse) * positions, frequencies.attention_factor**2]
    if not np.isfinite(np.asarray(numbers, np.float32)).all():
        raise ValueError("its phases or logits are not finite")


# Rules for layers with a window, if a config.json has no layer_types: from the fields, the number
# of a layer, and whether it rotates.
LOCAL_LAYERS: Mapping[str, Callable[[Fields, int, bool], bool]] = {
    "all": lambda fields, layer, rotates: True,
    "even": lambda fields, layer, rotates: layer % 2 == 0,
    "late": lambda fields, layer, rotates: layer >= fields["max_window_layers"],
    "unrotated": lambda fields, layer, rotates: fields["use_sliding_window"] and not rotates,
    "but every fourth": lambda fields, layer, rotates: (layer + 1) % 4 != 0,
    "but every sliding_window_pattern-th": lambda fields, layer, rotates: (
        (layer + 1) % fields["sliding_window_pattern"] != 0
    ),
    "but every global_attn_every_n_layers-th from the first": lambda fields, layer, rotates: (
        layer % fields["global_attn_every_n_layers"] != 0
    ),
}


def _rotary(
    architecture: Architecture, fields: Fields, config: TransformerConfig
) -> Encoding | LayerPattern:
    """RoPE by layer: some layers may not rotate, and local layers have a window."""
    rotates, kinds = _rotation_flags(fields), layer_types(architecture, fields)
    mask = _window(architecture, fields)
    if architecture.window.get("rotated") and mask is not None:
        rotates = [kind != GLOBAL for kind in kinds]
    bases = {kind: _rotation(architecture, fields, config, kind) for kind in rope_kinds(fields)}

    def layer_encoding(rotated: bool, layer_type: str) -> Encoding:
        base = bases[layer_type if layer_type in bases else None] if rotated else identity()
        if mask is None or layer_type == GLOBAL:
            return base
        return mask if base == identity() else chain(base, mask)

    keys = list(zip(rotates, kinds, strict=True))
    encodings = {key: layer_encoding(*key) for key in dict.fromkeys(keys)}
    first = encodings[keys[0]]
    if all(encoding == first for encoding in encodings.values()):
        return first
    return LayerPattern(tuple(encodings[key] for key in keys))


def layer_types(architecture: Architecture, fields: Fields) -> list[str]:
    """Kind of each layer, as the file lists them, or by the rule of the architecture."""
    stored = fields["layer_types"] if "layer_types" in architecture.defaults else None
    rotates, window = _rotation_flags(fields), architecture.window
    kinds = stored or [GLOBAL] * len(rotates)
    if window and not stored:
        rule = LOCAL_LAYERS[window["layers"]]
        kinds = [LOCAL if rule(fields, *layer) else GLOBAL for layer in enumerate(rotates)]
    return kinds


def _rotation_flags(fields: Fields) -> list[bool]:
    """Whether each layer rotates: 1 in `no_rope_layers` means rotation, despite the name."""
    layers = range(fields["num_hidden_layers"])
    if "no_rope_layer_interval" not in fields:
        return [True for _ in layers]
    period = fields["no_rope_layer_interval"]
    return [bool(x) for x in fields["no_rope_layers"] or [(i + 1) % period for i in layers]]


def _rotation(
    architecture: Architecture, fields: Fields, config: TransformerConfig, kind: str | None
) -> Encoding:
    return rope_from_hf(
        rope_entry(fields, kind),
        head_dim=config.head_width,
        max_position_embeddings=fields["max_position_embeddings"],
        layout="interleaved" if architecture.interleaved else "half_split",
    )


def _window(architecture: Architecture, fields: Fields) -> Encoding | None:
    """Mask of local layers; None if the model has none, or switches it off."""
    window = architecture.window
    size = fields[window["field"]] if "field" in window else None
    if size is None or ("flag" in window and not fields[window["flag"]]):
        return None
    # Half of the window on each side, and the token itself.
    return sliding_window(size=size // 2 + 1 if window.get("half") else size)


def _gptj_rope(architecture: Architecture, fields: Fields, config: TransformerConfig) -> Encoding:
    width = config.head_width
    share = (fields["rotary_dim"] or width) / width
    return rope(head_dim=width, fraction=share, layout="interleaved")


def _table(architecture: Architecture, fields: Fields, config: TransformerConfig) -> Encoding:
    return learned(length=fields["max_position_embeddings"], dim=config.dim)


def _opt_table(architecture: Architecture, fields: Fields, config: TransformerConfig) -> Encoding:
    offset = 2  # rows of the table before position 0
    length = fields["max_position_embeddings"] + offset
    return offset_positions(learned(length=length, dim=config.dim), offset)


def _roberta_table(
    architecture: Architecture, fields: Fields, config: TransformerConfig
) -> Encoding:
    return offset_positions(_table(architecture, fields, config), fields["pad_token_id"] + 1)


def offset_positions(encoding: Encoding, offset: int) -> Encoding:
    """Encoding whose positions start at `offset`."""
    return moved_positions(encoding, lambda positions: positions + offset)


ENCODINGS: Mapping[str, Callable[..., Any]] = {
    "rope": _rotary,
    "gptj": _gptj_rope,
    "learned": _table,
    "opt": _opt_table,
    "roberta": _roberta_table,
    "esm": lambda architecture, fields, config: (
        _rotary if fields["position_embedding_type"] == "rotary" else _roberta_table
    )(architecture, fields, config),
    "mpnet": lambda architecture, fields, config: chain(
        _roberta_table(architecture, fields, config), t5(num_heads=config.num_heads)
    ),
    "alibi": lambda architecture, fields, config: alibi(num_heads=config.num_heads),
}
