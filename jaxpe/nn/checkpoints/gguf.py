"""Decoders in llama.cpp's files (.gguf): metadata as fields of a config.json, and tensors."""

import os
import re
import reprlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.gguf import GgufTensor, read_gguf
from jaxpe.encodings import convert_rotary_layout
from jaxpe.nn.checkpoints.architecture import (
    DECODERS,
    Architecture,
    Fields,
    Fused,
    Modules,
    TensorName,
)
from jaxpe.nn.checkpoints.tensors import WEIGHTS, Tensors, listed
from jaxpe.nn.config import TransformerConfig

_BLOCK = "blk.{layer}."
# Names of modules, shared by all architectures.
_MODULES: Modules = {
    "tokens": "token_embd",
    "encoding_params.table": "position_embd",
    "embedding_norm": "token_embd_norm",
    "layers.attention_norm": f"{_BLOCK}attn_norm",
    "layers.attention.query": f"{_BLOCK}attn_q",
    "layers.attention.key": f"{_BLOCK}attn_k",
    "layers.attention.value": f"{_BLOCK}attn_v",
    "layers.attention.output": f"{_BLOCK}attn_output",
    "layers.attention.query_norm": f"{_BLOCK}attn_q_norm",
    "layers.attention.key_norm": f"{_BLOCK}attn_k_norm",
    "layers.attention_output_norm": f"{_BLOCK}post_attention_norm",
    "layers.mlp_norm": f"{_BLOCK}ffn_norm",
    "layers.mlp.gate": f"{_BLOCK}ffn_gate",
    "layers.mlp.up": f"{_BLOCK}ffn_up",
    "layers.mlp.down": f"{_BLOCK}ffn_down",
    "layers.mlp_output_norm": f"{_BLOCK}post_ffw_norm",
    "final_norm": "output_norm",
    "head.output": "output",
}
_FUSED: Modules = {
    f"layers.attention.{name}": Fused(f"{_BLOCK}attn_qkv", i, 3)
    for i, name in enumerate(("query", "key", "value"))
}
_FUSED_MLP: Modules = {
    f"layers.mlp.{name}": Fused(f"{_BLOCK}ffn_up", i, 2) for i, name in enumerate(("gate", "up"))
}
_ORIGINAL, _ATTENTION_FACTOR = "rope.scaling.original_context_length", "rope.scaling.attn_factor"
# Entries of the metadata after the architecture's name, and fields of a config.json.
_KEYS = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logit_scale",
    "rope.freq_base": "rope_theta",
    "rope.freq_base_swa": "rope_local_base_freq",
    "context_length": "max_position_embeddings",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "use_parallel_residual": "use_parallel_residual",
    _ORIGINAL: "original_max_position_embeddings",
}
# Entries that change nothing, or nothing beyond what `_check_metadata` allows.
_HARMLESS = (
    *("vocab_size", "rope.scaling.factor", "rope.scaling.finetuned"),
    _ORIGINAL,
)
_REQUIRED = (
    *("embedding_length", "block_count", "feed_forward_length", "attention.head_count"),
    *("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"),
)
# Divisors of the frequencies at every length.
_DIVISORS = "rope_freqs.weight"
# Divisors up to the original length, and beyond it (LongRoPE).
_LISTS = {"short_factor": "rope_factors_short.weight", "long_factor": "rope_factors_long.weight"}
# Fields of a config.json without an entry; they are True for files with these tensors.
_BIASES = {"attention_bias": ("attn_q.bias", "attn_qkv.bias"), "mlp_bias": ("ffn_up.bias",)}
_BIASES |= {"use_bias": ("attn_q.bias",)}
ARCHITECTURES = {row.gguf["name"]: row for row in DECODERS.values() if row.gguf}
Names = Callable[[TransformerConfig], tuple[TensorName, ...]]


def gguf_file(path: Path) -> Path | None:
    """Path of a .gguf file; None for a Hugging Face directory."""
    if not os.path.exists(path):
        raise InputError(
            f"{path} does not exist: pass a .gguf file, a folder with one, or a directory with "
            f"config.json and {WEIGHTS}"
        )
    if os.path.isfile(path):
        return path
    files = sorted(path.glob("*.gguf"))
    if not files or any(path.glob("*.safetensors")):
        return None
    if len(files) > 1:
        names = listed(file.name for file in files)
        raise InputError(f"{path} holds {names}: pass the path of one of them")
    return files[0]


def read_gguf_model(path: Path) -> tuple[Architecture, Fields, Tensors, Names]:
    """Architecture, fields and tensors of a .gguf file, and the names of its tensors."""
    metadata, stored = read_gguf(path)
    architecture = _architecture(path, metadata)
    gguf = architecture.gguf
    divisors = _divisors(path, stored) if gguf.get("divided") else None
    fields = metadata_fields(path, architecture, metadata, divisors)
    fields["tie_word_embeddings"] = "output.weight" not in stored
    for field, endings in _BIASES.items():
        if field in architecture.defaults:
            fields[field] = any(name.endswith(endings) for name in stored)
    if (embeddings := stored.get("token_embd.weight")) is not None:
        fields["vocab_size"] = embeddings.shape[0] if embeddings.shape else 1
    heads: dict[str, int] = {}
    if gguf.get("interleaved"):
        query_heads = fields["num_attention_heads"]
        key_heads = fields.get("num_key_value_heads", query_heads)
        for leaf in ("weight", "bias"):
            heads |= {f"attn_q.{leaf}": query_heads, f"attn_k.{leaf}": key_heads}
    files = {
        name: (_Stored(path, tensor, heads.get(name.split(".", 2)[-1])), name)
        for name, tensor in stored.items()
    }
    # The rows of a fused matrix cannot be converted to another layout of rotary pairs.
    fused = not gguf.get("interleaved") and any(".attn_qkv." in name for name in stored)
    return architecture, fields, Tensors(path, files), partial(_names, architecture, fused)


def _divisors(path: Path, stored: dict[str, GgufTensor]) -> Fields | None:
    """Divisors of the frequencies up to the original length and beyond it, and their tensors out.

    The converter's form of the Llama 3 scaling has one tensor for both.
    """
    one = dict.fromkeys(_LISTS, _DIVISORS)
    names = next((n for n in (one, _LISTS) if stored.keys() >= set(n.values())), {})
    tensors = {name: stored.pop(name) for name in set(names.values())}
    lists = {
        name: _Stored(path, tensor, None).get_tensor(name).ravel().tolist()
        for name, tensor in tensors.items()
    }
    return {key: lists[name] for key, name in names.items()} or None


def _architecture(path: Path, metadata: Mapping[str, Any]) -> Architecture:
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise InputError(
            f"{path}: general.architecture is {reprlib.repr(name)}; {', '.join(ARCHITECTURES)} are "
            "supported"
        )
    return ARCHITECTURES[name]


def _names(
    architecture: Architecture, fused: bool, config: TransformerConfig
) -> tuple[TensorName, ...]:
    """Names of the tensors; scales of norms are stored without an offset."""
    modules = {path: name for path, name in _MODULES.items() if path in architecture.modules}
    modules |= _FUSED if fused else {}
    mlp = isinstance(architecture.modules.get("layers.mlp.gate"), Fused)
    modules |= _FUSED_MLP if mlp else {}
    row = architecture._replace(modules=modules, norm_offset=0.0, transposed=True, by_head=False)
    return row.tensor_names("decoder", config)


def metadata_fields(
    path: Path, architecture: Architecture, metadata: Mapping[str, Any], divisors: Fields | None
) -> Fields:
    """Fields of a config.json that are equivalent to the metadata."""
    name, defaults = architecture.gguf["name"], architecture.defaults
    prefix = f"{name}."
    entries = {k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)}
    names = _KEYS | architecture.gguf.get("keys", {})
    wanted = {key for key, field in names.items() if field in defaults}
    for key in sorted(wanted):
        if key not in entries and key in (*_REQUIRED, *architecture.gguf.get("required", ())):
            raise InputError(f"{path} has no {name}.{key}")
        if not isinstance(entries.get(key, 0), int | float):
            value = reprlib.repr(entries[key])
            raise InputError(f"{path}: {name}.{key} is {value}, not one number for all layers")
    heads = max(entries["attention.head_count"], 1)
    even_width = entries["embedding_length"] // heads
    values = {"attention.head_count_kv": heads, "rope.freq_base": 10_000.0} | entries
    values.setdefault(_ORIGINAL, entries.get("context_length", 2))
    window, absent = "attention.sliding_window", architecture.window.get("rotated")
    if values.get(window, 0 if absent else None) == 0:  # no windows, as in Phi-4 and small EXAONEs
        values[window] = None
    if defaults["head_dim"] is not None:
        values = {"attention.key_length": even_width} | values
    fields = {names[key]: values[key] for key in wanted if key in values}
    width = entries.get("attention.key_length", even_width)
    rotated = entries.get("rope.dimension_count", width)
    if "partial_rotary_factor" in defaults:
        fields["partial_rotary_factor"] = rotated / max(width, 1)
        rotated = width
    scaled = {_ATTENTION_FACTOR} if divisors else set()
    _check_metadata(path, architecture, entries, wanted | scaled, width, rotated)
    if entry := _scaling(path, entries, divisors):
        # Not `rope_parameters`, which would also apply to local layers.
        fields["rope_scaling"] = entry
    if "query_pre_attn_scalar" in defaults:
        # As in llama.cpp: the largest Gemma models, recognised by their layers, use dim / heads.
        by_dim = entries["block_count"] == architecture.gguf["scaled_by_dim"]
        fields["query_pre_attn_scalar"] = even_width if by_dim else width
    return fields | {"model_type": architecture.model_type}


def _scaling(path: Path, entries: Mapping[str, Any], divisors: Fields | None) -> Fields:
    """RoPE entry that is equivalent to the metadata, or to tensors of divisors."""
    # As in llama.cpp: a factor without a type divides positions.
    factor = entries.get("rope.scaling.factor", 0)
    linear = entries.get("rope.scaling.type", "linear" if factor else "none") == "linear"
    if divisors is None:
        return {"rope_type": "linear", "factor": factor or None} if linear else {}
    if linear:
        raise InputError(f"{path} has linear scaling and {_DIVISORS}; only one is supported")
    original = entries.get(_ORIGINAL, entries.get("context_length", 2))
    factor = entries.get(_ATTENTION_FACTOR, 1.0)
    lengths = {"original_max_position_embeddings": original}
    return {"rope_type": "longrope", "attention_factor": factor} | divisors | lengths


def _check_metadata(
    path: Path,
    architecture: Architecture,
    entries: Mapping[str, Any],
    wanted: set[str],
    head_dim: int,
    rotated: int,
) -> None:
    """Raise for unknown entries, which may change the computation, and unsupported values."""
    supported = {
        "attention.value_length": (head_dim,),
        "rope.dimension_count": (head_dim,),
        "rope.scaling.type": ("none", "linear", "longrope"),
        _ATTENTION_FACTOR: (1.0,),
        "attention.sliding_window_pattern": ([True, True, True, False] * 2,),
        "expert_count": (0,),
        "expert_used_count": (0,),
        "attention.causal": (True,),
        "attention.max_alibi_bias": (8.0,),
        "attention.clamp_kqv": (0.0,),
    }
    checked = {**entries, "rope.dimension_count": rotated}
    for key in checked.keys() - wanted - set(_HARMLESS):
        entry = listed([f"{architecture.gguf['name']}.{key}"])
        message = f"{path}: {entry} is {reprlib.repr(entries.get(key, checked[key]))}"
        if key not in supported:
            raise InputError(f"{message}, whose effect is unknown")
        if checked[key] not in supported[key]:
            only = " or ".join(map(repr, supported[key]))
            raise InputError(f"{message}; only {only} is supported")


class _Stored(NamedTuple):
    """Tensor of a .gguf, with the interface of an open safetensors file."""

    path: Path
    tensor: GgufTensor
    heads: int | None  # of a projection with interleaved pairs; None for others

    def get_slice(self, name: str) -> "_Stored":
        return self

    def get_shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    def get_dtype(self) -> str:
        kind = self.tensor.kind.name
        return kind if re.fullmatch(r"I\d+", kind) else "F32"  # after dequantisation

    def get_tensor(self, name: str) -> np.ndarray:
        try:
            weight = self.tensor.read()
        except NotImplementedError as error:
            kind = self.tensor.kind.name
            raise InputError(
                f"{self.path}: {listed([name])} is {kind}, which gguf cannot read"
            ) from error
        if self.heads is None:
            return weight
        return np.asarray(
            convert_rotary_layout(
                weight, num_heads=self.heads, source="interleaved", target="half_split", axis=0
            )
        )
