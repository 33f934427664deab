"""The positional metadata of a GGUF file, as the fields of a config.json that mean the same."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.analysis.rope.defaults import BASE
from jaxpe.data.gguf_file import GgufTensor, read_gguf

_SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attention.kv_lora_rank": "kv_lora_rank",
}
_YARN = {
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}
_ORIGINAL = "rope.scaling.original_context_length"
_LLAMA3 = "rope_freqs.weight"  # divisors of the frequencies, computed when it was converted
_LONG, _SHORT = "rope_factors_long.weight", "rope_factors_short.weight"


def gguf_fields(path: Path) -> dict[str, Any]:
    """Fields of config.json that the metadata of a .gguf describe; `gguf` has the metadata.

    Raises:
        InputError: no whole .gguf, no architecture, or numbers that are none.
    """
    metadata, tensors = read_gguf(path)
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise InputError(f"{path}: general.architecture is {architecture!r}, not a name")
    prefix = f"{architecture}."
    own = {k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)}
    fields: dict[str, Any] = {"model_type": architecture, "gguf": own}
    fields |= {theirs: _one(own[name]) for name, theirs in _SIZES.items() if name in own}
    entry, base = _entry(path, own, tensors), _number(path, own, "rope.freq_base", None)
    fields |= {} if base is None else {"rope_theta": base}
    local = _number(path, own, "rope.freq_base_swa", None)
    fields |= {} if local is None else {"rope_local_base_freq": local}
    head, turned = _head_dim(fields), own.get("rope.dimension_count")
    if head and isinstance(turned, int) and 0 < turned < head:
        fields["partial_rotary_factor"] = turned / head
    fields |= {} if head is None else {"head_dim": head}
    return fields | {"rope_scaling": entry or None}


def _head_dim(fields: Mapping[str, Any]) -> int | None:
    hidden, heads = fields.get("hidden_size"), fields.get("num_attention_heads")
    known = isinstance(hidden, int) and isinstance(heads, int) and heads > 0
    return fields.get("head_dim", hidden // heads if known else None)


def _entry(
    path: Path, own: Mapping[str, Any], tensors: Mapping[str, GgufTensor]
) -> dict[str, Any] | None:
    """The scaling: the metadata, and the tensors of divisors where there are some."""
    factor = _number(path, own, "rope.scaling.factor", None)
    factor = _number(path, own, "rope.scale_linear", factor)
    kind = own.get("rope.scaling.type", "linear" if factor else "none")
    if _LLAMA3 in tensors:
        same = _divisors(path, tensors[_LLAMA3])  # at every length, and cos and sin as they are
        return {
            "rope_type": "longrope",
            "short_factor": same,
            "long_factor": same,
            "attention_factor": 1.0,
        }
    if _LONG in tensors and _SHORT in tensors:
        return {
            "rope_type": "longrope",
            "long_factor": _divisors(path, tensors[_LONG]),
            "short_factor": _divisors(path, tensors[_SHORT]),
            "attention_factor": _number(path, own, "rope.scaling.attn_factor", 1.0),
            **_original(own),
        }
    if kind == "none" or not factor:
        return None
    entry = {"rope_type": kind, "factor": factor}
    if kind == "yarn":
        entry |= {theirs: own[name] for name, theirs in _YARN.items() if name in own}
        entry |= _original(own)
        multiplier = _number(path, own, "rope.scaling.yarn_log_multiplier", None)
        if multiplier is not None and "attention.kv_lora_rank" in own:
            entry["mscale_all_dim"] = multiplier / 0.1  # the converter writes a tenth of it
    return entry


def _original(own: Mapping[str, Any]) -> dict[str, Any]:
    return {"original_max_position_embeddings": own[_ORIGINAL]} if _ORIGINAL in own else {}


def _divisors(path: Path, tensor: GgufTensor) -> list[float]:
    values = np.asarray(tensor.read(), np.float64).ravel()
    if not (np.isfinite(values) & (values > 0)).all():
        raise InputError(f"{path}: divisors of the frequencies are not positive: convert it again")
    return values.tolist()


def _one(value: Any) -> Any:
    """The largest of values by layer."""
    return max(value, default=None) if isinstance(value, list) else value


def _number(path: Path, own: Mapping[str, Any], name: str, default: float | None) -> float | None:
    value = own.get(name, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{path}: {name} is {value!r}, not a finite number (such as {BASE:g})")
    return float(value)
