"""Decoders in llama.cpp's files (.gguf): fields of their rows, and tensors."""

import os
import re
import reprlib
import tomllib
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.gguf import GgufTensor
from jaxpe.encodings import convert_rotary_layout
from jaxpe.nn.checkpoints.architecture import (
    DECODERS,
    Architecture,
    Fields,
    Fused,
    Modules,
    TensorName,
)
from jaxpe.nn.checkpoints.encodings import class_pairing
from jaxpe.nn.checkpoints.tensors import WEIGHTS, Tensors, listed
from jaxpe.nn.config import TransformerConfig
from jaxpe.plans.gguf_fields import GgufFile, read_gguf_file
from jaxpe.plans.programs.facts import find_architecture

_TABLE = tomllib.loads(files("jaxpe.nn.checkpoints").joinpath("gguf.toml").read_text("utf-8"))
_FUSED: Modules = {
    f"layers.attention.{name}": Fused("blk.{layer}.attn_qkv", i, 3)
    for i, name in enumerate(("query", "key", "value"))
}
_FUSED_MLP: Modules = {
    f"layers.mlp.{name}": Fused("blk.{layer}.ffn_up", i, 2) for i, name in enumerate(("gate", "up"))
}
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
    found = sorted(path.glob("*.gguf"))
    if not found or any(path.glob("*.safetensors")):
        return None
    if len(found) > 1:
        names = listed(file.name for file in found)
        raise InputError(f"{path} holds {names}: pass the path of one of them")
    return found[0]


def read_gguf_model(path: Path) -> tuple[Architecture, Fields, Tensors, Names]:
    """Architecture, fields and tensors of a .gguf file, and the names of its tensors."""
    file = read_gguf_file(path)
    name, stored = file.fields["model_type"], file.tensors
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise InputError(
            f"{path}: general.architecture is {reprlib.repr(name)}; {known} are supported"
        )
    architecture = ARCHITECTURES[name]
    fields = model_fields(path, architecture, file)
    fields["tie_word_embeddings"] = "output.weight" not in stored
    for field, endings in _TABLE["biases"].items():
        if field in architecture.defaults:
            fields[field] = any(name.endswith(tuple(endings)) for name in stored)
    if (embeddings := stored.get("token_embd.weight")) is not None:
        fields["vocab_size"] = embeddings.shape[0] if embeddings.shape else 1
    turned, heads = 0, dict[str, int]()
    pairing = getattr(find_architecture(name), "pairing", "")
    if pairing == "interleaved" and class_pairing(architecture) == "half":
        turned = int(fields["head_dim"] * fields.get("partial_rotary_factor", 1.0))
        heads["q"] = fields["num_attention_heads"]
        heads["k"] = fields.get("num_key_value_heads", heads["q"])
    projection = re.compile(r"attn_([qk])\.(weight|bias)$")
    tensors = {}
    for name, tensor in stored.items():
        found = projection.search(name)
        rotated = (heads[found[1]], turned) if found and heads else None
        tensors[name] = _Stored(path, tensor, rotated), name
    fused = not heads and any(".attn_qkv." in name for name in stored)  # else rows cannot be moved
    return architecture, fields, Tensors(path, tensors), partial(_names, architecture, fused)


def model_fields(path: Path, architecture: Architecture, file: GgufFile) -> Fields:
    """Fields for the row of the architecture; raises for what may change the computation."""
    name, defaults, row = architecture.gguf["name"], architecture.defaults, architecture.gguf
    fields = {row.get("keys", {}).get(key, key): value for key, value in file.fields.items()}
    required = {field: key for field, key in _TABLE["required"].items() if field in defaults}
    for field, key in (required | row.get("required", {})).items():
        if field not in fields:
            raise InputError(f"{path} has no {name}.{key}")
    for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        if isinstance(file.stated.get(key), list):
            value = reprlib.repr(file.stated[key])
            raise InputError(f"{path}: {name}.{key} is {value}, not one number for all layers")
    harmless = {**_TABLE["harmless"], "attention.value_length": (fields.get("head_dim"),)}
    for key in sorted(file.unread):
        message = f"{path}: {listed([f'{name}.{key}'])} is {reprlib.repr(file.stated[key])}"
        if key not in harmless:
            raise InputError(f"{message}, whose effect is unknown")
        if harmless[key] and file.stated[key] not in harmless[key]:
            only = " or ".join(map(repr, harmless[key]))
            raise InputError(f"{message}; only {only} is supported")
    if "query_pre_attn_scalar" in defaults:
        # As in llama.cpp: the largest Gemma models, recognised by their layers, use dim / heads.
        by_dim = fields["num_hidden_layers"] == row["scaled_by_dim"]
        even = fields["hidden_size"] // fields["num_attention_heads"]
        fields["query_pre_attn_scalar"] = even if by_dim else fields["head_dim"]
    return fields | {"model_type": architecture.model_type}


def _names(
    architecture: Architecture, fused: bool, config: TransformerConfig
) -> tuple[TensorName, ...]:
    """Names of the tensors; scales of norms are stored without an offset."""
    modules = {
        path: name for path, name in _TABLE["modules"].items() if path in architecture.modules
    }
    modules |= _FUSED if fused else {}
    mlp = isinstance(architecture.modules.get("layers.mlp.gate"), Fused)
    modules |= _FUSED_MLP if mlp else {}
    row = architecture._replace(modules=modules, norm_offset=0.0, transposed=True, by_head=False)
    return row.tensor_names("decoder", config)


class _Stored(NamedTuple):
    """Tensor of a .gguf, with the interface of an open safetensors file."""

    path: Path
    tensor: GgufTensor
    rotated: tuple[int, int] | None  # heads and rotated entries of projections in another pairing

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
        if self.rotated is None:
            return weight
        heads, turned = self.rotated
        options = {"axis": 0, "num_heads": heads, "rotary_dim": turned}
        return np.asarray(
            convert_rotary_layout(weight, source="interleaved", target="half", **options)
        )
