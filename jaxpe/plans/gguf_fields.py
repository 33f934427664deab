"""Metadata of a GGUF file, as the equivalent fields of a config.json."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.gguf import GgufTensor, read_gguf
from jaxpe.plans.families import Family
from jaxpe.plans.fields import (
    CHUNKED,
    FULL,
    LINEAR,
    MOST_LAYERS,
    ORIGINAL,
    SLIDING,
    Fields,
    checked_list,
)
from jaxpe.plans.programs.facts import program_facts

_FACTS = program_facts("llama_cpp")
_SHOWN = 8  # entries of an array that `read_gguf` keeps by default
_DIVISORS = "rope_freqs.weight"  # computed when the file was converted
_LONG, _SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
# Fields of config.json by keys that hold the same number.
_KEYS = {
    "feed_forward_length": "intermediate_size",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logit_scale",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "use_parallel_residual": "use_parallel_residual",
}


class _Metadata(Fields):
    """Metadata of one architecture; numbers are checked when they are read."""

    def integer(self, name: str, *, least: int = 0, most: int = 2**31 - 1, step=1) -> int | None:
        """Count, the largest if given by layer; None if it is 0 or absent."""
        value = self.get(name)
        values = value if isinstance(value, list) else [value or 0]
        if not all(type(one) is int and one in range(least, most + 1, step) for one in values):
            kind = "a whole" if step == 1 else "an even"
            raise self.error(name, f", not {kind} number of {least} to {most:,}")
        return max(values, default=0) or None

    def per_layer(self, name: str, count: int) -> list[Any] | None:
        """List with a value for each layer; None if absent."""
        value = self.get(name)
        listed = isinstance(value, list)
        return checked_list(self, name, value, count, int, "a whole number") if listed else None


class GgufFile(NamedTuple):
    """Content of a GGUF file.

    Attributes:
        fields: fields of config.json that are equivalent to the metadata; model_type is the name of
            the architecture in llama.cpp.
        stated: metadata of the architecture, by key without its name.
        unread: keys of `stated` that give no field.
        tensors: tensors by name, without divisors of frequencies.
    """

    fields: dict[str, Any]
    stated: Mapping[str, Any]
    unread: frozenset[str]
    tensors: Mapping[str, GgufTensor]


def read_gguf_file(path: Path) -> GgufFile:
    """Metadata and tensors of a .gguf file, for plans and for models.

    Raises:
        InputError: an incomplete .gguf, no architecture, or values that are not numbers.
    """
    metadata, tensors = read_gguf(path)
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise InputError(f"{path}: general.architecture is {architecture!r}, not a name")
    prefix = f"{architecture}."
    arrays = (v for k, v in metadata.items() if k.startswith(prefix) and isinstance(v, list))
    if any(len(array) == _SHOWN for array in arrays):
        metadata, tensors = read_gguf(path, full_prefix=prefix)
    stated = {k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)}
    defaults = {"rope.scaling.attn_factor": 1.0}
    read = _Metadata(stated, Family(architecture, defaults=defaults), source=str(path))
    fields = {
        "model_type": architecture,
        "max_position_embeddings": read.integer("context_length"),
        "rope_finetuned": read.get("rope.scaling.finetuned"),
        "rope_scaling": _entry(read, architecture, tensors),
        **{name: read.get(key) for key, name in _KEYS.items()},
        **_heads(read, architecture),
        **_layers(read, architecture),
    }
    fields |= _bases(read, fields)
    fields = {name: value for name, value in fields.items() if value is not None}
    weights = {k: v for k, v in tensors.items() if k not in (_DIVISORS, _LONG, _SHORT)}
    return GgufFile(fields, stated, frozenset(stated.keys() - read.used), weights)


def _heads(read: _Metadata, architecture: str) -> dict[str, Any]:
    """Widths of heads, and their rotated parts."""
    hidden, heads = read.integer("embedding_length"), read.integer("attention.head_count")
    head = read.integer("attention.key_length") or (hidden // heads if hidden and heads else None)
    turned = read.integer("rope.dimension_count", step=2) or head
    fields = {"hidden_size": hidden, "num_attention_heads": heads, "head_dim": head}
    if architecture in _FACTS["latent"]:
        full = read.integer("attention.key_length_mla") or head
        nope = max(full - turned, 0) if full and turned else 0
        return fields | {"qk_rope_head_dim": turned, "qk_nope_head_dim": nope}
    local = read.integer("attention.key_length_swa") or head
    local_turned = read.integer("rope.dimension_count_swa", step=2) or turned
    if turned and _FACTS["windows"].get(architecture, {}).get("halved"):
        turned //= 2
    fields |= {"partial_rotary_factor": _share(turned, head)}
    if (local, local_turned) == (head, turned):
        return fields
    share = _share(local_turned, local)
    return fields | {"swa_head_dim": local, "swa_partial_rotary_factor": share}


def _share(turned: int | None, head: int | None) -> float | None:
    """Rotated share of a head, rounded so that its product with the width is whole."""
    if not turned or not head:
        return None
    share = min(turned / head, 1.0)
    return share if int(head * share) == min(turned, head) else math.nextafter(share, 1.0)


def _layers(read: _Metadata, architecture: str) -> dict[str, Any]:
    """Kinds of the layers, the window, and the rotating layers."""
    rule, window = _FACTS["windows"].get(architecture), read.integer("attention.sliding_window")
    count = read.integer("block_count", most=MOST_LAYERS) or 0
    # Draft models for speculative decoding consist of prediction layers alone: count them all.
    count = count - (read.integer("nextn_predict_layers") or 0) or count
    if count < 1:
        return {"sliding_window": window}
    chunk = rule and rule.get("chunk")
    narrow = window if chunk is None else read.get("attention.sliding_window") != 0
    local = SLIDING if chunk is None else CHUNKED
    windowed = _window_flags(read, rule, count) if rule and narrow else [False] * count
    kinds = [local if one else FULL for one in windowed]
    ratios = read.per_layer("attention.compress_ratios", count)
    if ratios is not None:
        kinds = ["compressed_sparse_attention" if ratio else SLIDING for ratio in ratios]
    other = "mlp" if architecture in _FACTS["without_attention"] else LINEAR
    attends = zip(_attention_flags(read, architecture, count), kinds, strict=True)
    kinds = [kind if one else other for one, kind in attends]
    fields: dict[str, Any] = {"num_hidden_layers": count, "layer_types": kinds}
    fields["sliding_window"] = window if SLIDING in kinds else None
    fields["attention_chunk_size"] = chunk if CHUNKED in kinds else None
    every = _FACTS["turning_every"].get(architecture)
    if every is not None:
        some = narrow or chunk is None  # without its chunks, Llama 4 turns every layer
        fields["no_rope_layers"] = [int(not some or (i + 1) % every != 0) for i in range(count)]
    pattern = read.per_layer("attention.rope_pattern", count)
    if pattern is not None:
        fields["no_rope_layers"] = [int(bool(turns)) for turns in pattern]
    return fields


def _window_flags(read: _Metadata, rule: Mapping[str, Any], count: int) -> list[Any]:
    """Whether each layer has a window, by the file's list, its period, or the architecture's."""
    name = "attention.sliding_window_pattern"
    listed = read.per_layer(name, count)
    if listed is not None:
        return listed
    period = read.integer(name) or rule.get("period")
    if period is None:
        raise InputError(f"{read.source} has no {name}, which llama.cpp needs: convert it again")
    full = 0 if rule.get("first") else period - 1
    return [layer % period != full for layer in range(count)]


def _attention_flags(read: _Metadata, architecture: str, count: int) -> list[Any]:
    """Whether each layer has attention, by the file's lists or the interval of attention."""
    recurrent = read.per_layer("attention.recurrent_layers", count)
    if recurrent is not None:
        return [not one for one in recurrent]
    for name in ("attention.head_count_kv", "attention.head_count"):
        heads = read.per_layer(name, count)
        if heads is not None:
            return heads
    interval = _FACTS["interval"].get(architecture)
    interval = read.integer("full_attention_interval") or interval if interval else 1
    return [(layer + 1) % interval == 0 for layer in range(count)]


def _bases(read: _Metadata, fields: Mapping[str, Any]) -> dict[str, Any]:
    """θ of the layers, and θ of layers with a window."""
    base, local = read.number("rope.freq_base"), read.number("rope.freq_base_swa")
    compressed = read.number("attention.compress_rope_freq_base")
    if compressed is not None:
        base, local = compressed, base
    alpha, head = read.number("rope.scaling.alpha"), fields.get("head_dim")
    if alpha and alpha > 0 and head and head > 2:
        base = (10_000.0 if base is None else base) * alpha ** (head / (head - 2))
    return {"rope_theta": base, "rope_local_base_freq": local}


def _entry(
    read: _Metadata, architecture: str, tensors: Mapping[str, GgufTensor]
) -> dict[str, Any] | None:
    """Scaling entry, from the metadata and any tensors of divisors."""
    factor = read.number("rope.scaling.factor") or read.number("rope.scale_linear")
    kind = read.get("rope.scaling.type") or ("linear" if factor else "none")
    original = {ORIGINAL: read.integer("rope.scaling.original_context_length")}
    attention = read.number("rope.scaling.attn_factor")
    if _DIVISORS in tensors and architecture in _FACTS["divisors"]:
        scale = factor if kind == "linear" and factor else 1.0
        same = [scale * one for one in _divisors(read, tensors[_DIVISORS])]
        lists = {"short_factor": same, "long_factor": same}
        return {"rope_type": "longrope", "named": "rope_freqs", **lists, "attention_factor": 1.0}
    if _LONG in tensors and _SHORT in tensors:
        names = {"long_factor": _LONG, "short_factor": _SHORT}
        lists = {key: _divisors(read, tensors[name]) for key, name in names.items()}
        return {"rope_type": "longrope", **lists, "attention_factor": attention, **original}
    if kind not in ("linear", "yarn") or not factor:
        return None
    entry = {"rope_type": kind, "factor": factor, "attn_factor": attention}
    if kind == "yarn":
        entry |= original
        betas = ("beta_fast", "beta_slow") if architecture in _FACTS["betas"] else ()
        entry |= {name: read.number(f"rope.scaling.yarn_{name}") for name in betas}
        multiplier = read.number("rope.scaling.yarn_log_multiplier")
        if multiplier is not None and architecture in _FACTS["multiplier"]:
            entry["mscale_all_dim"] = multiplier / (0.1 if architecture in _FACTS["tenths"] else 1)
    return entry


def _divisors(read: _Metadata, tensor: GgufTensor) -> list[float]:
    values = np.asarray(tensor.read(), np.float64).ravel()
    if not (np.isfinite(values) & (values > 0)).all():
        raise InputError(f"{read.source} has divisors that are not positive: convert it again")
    return values.tolist()
