"""Decoders in files of llama.cpp (.gguf): metadata as fields of a config.json, and tensors."""

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
from jaxpe.nn.checkpoints import huggingface
from jaxpe.nn.checkpoints.architectures import DECODERS
from jaxpe.nn.checkpoints.families import Family, Fused, Modules, tensor_names
from jaxpe.nn.checkpoints.huggingface import Fields, TensorName, Tensors
from jaxpe.nn.config import TransformerConfig

_BLOCK = "blk.{layer}."
# Names of modules, the same for all families.
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
    "rope.freq_base": "rope_theta",
    "rope.freq_base_swa": "rope_local_base_freq",
    "context_length": "max_position_embeddings",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "use_parallel_residual": "use_parallel_residual",
}
# Nothing is computed from these, or only where `_check_metadata` has nothing against it.
_HARMLESS = (
    *("vocab_size", "rope.scaling.factor", "rope.scaling.finetuned"),
    *("rope.scaling.original_context_length", "rope.dimension_count"),
)
_REQUIRED = (
    *("embedding_length", "block_count", "feed_forward_length", "attention.head_count"),
    *("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"),
)
# Divisors of the frequencies, at every length: what the converter makes of the scaling of Llama 3.
_DIVISORS = "rope_freqs.weight"
# Fields of a config.json of which there is no entry, and tensors that are there if they are True.
_BIASES = {"attention_bias": ("attn_q.bias", "attn_qkv.bias"), "mlp_bias": ("ffn_up.bias",)}
FAMILIES = {family.gguf.name: family for family in DECODERS.values() if family.gguf.name}
# Models of Gemma whose queries are scaled by dim / heads, by the number of layers, as in llama.cpp.
_SCALED_BY_DIM = {"gemma2": 46, "gemma3": 62}
Names = Callable[[TransformerConfig], tuple[TensorName, ...]]


def gguf_file(path: Path) -> Path | None:
    """The .gguf file that is meant; None for a directory of Hugging Face."""
    if not os.path.exists(path):
        raise InputError(
            f"{path} is not there: pass a .gguf file, a folder with one, or a directory with "
            f"config.json and {huggingface.WEIGHTS}"
        )
    if os.path.isfile(path):
        return path
    found = sorted(path.glob("*.gguf"))
    if not found or any(path.glob("*.safetensors")):
        return None
    if len(found) > 1:
        names = huggingface.listed(file.name for file in found)
        raise InputError(f"{path} holds {names}: pass the path of one of them")
    return found[0]


def read_gguf_model(path: Path) -> tuple[Family, Fields, Tensors, Names]:
    """Family, fields and tensors of a .gguf file, and the names that its tensors have."""
    metadata, stored = read_gguf(path)
    family = _family(path, metadata)
    divisors = None
    if family.gguf.divided and _DIVISORS in stored:
        divisors = _Stored(path, stored.pop(_DIVISORS), None).get_tensor(_DIVISORS)
    fields = _fields_of_metadata(path, family, metadata, divisors)
    fields["tie_word_embeddings"] = "output.weight" not in stored
    for field, endings in _BIASES.items():
        if field in family.defaults:
            fields[field] = any(name.endswith(endings) for name in stored)
    if (embeddings := stored.get("token_embd.weight")) is not None:
        fields["vocab_size"] = embeddings.shape[0] if embeddings.shape else 1
    heads: dict[str, int] = {}
    if family.gguf.interleaved:
        query_heads = fields["num_attention_heads"]
        key_heads = fields.get("num_key_value_heads", query_heads)
        for leaf in ("weight", "bias"):
            heads |= {f"attn_q.{leaf}": query_heads, f"attn_k.{leaf}": key_heads}
    files = {
        name: (_Stored(path, tensor, heads.get(name.split(".", 2)[-1])), name)
        for name, tensor in stored.items()
    }
    # Rows of a fused matrix are in the layout of the file.
    fused = not family.gguf.interleaved and any(".attn_qkv." in name for name in stored)
    return family, fields, Tensors(path, files), partial(_names, family, fused)


def _family(path: Path, metadata: Mapping[str, Any]) -> Family:
    kind = metadata.get("general.architecture")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise InputError(
            f"{path}: general.architecture is {reprlib.repr(kind)}; {', '.join(FAMILIES)} are what "
            "can be read"
        )
    return FAMILIES[kind]


def _names(family: Family, fused: bool, config: TransformerConfig) -> tuple[TensorName, ...]:
    """Names of the tensors; norms are stored as what they multiply by."""
    modules = {ours: theirs for ours, theirs in _MODULES.items() if ours in family.modules}
    return tensor_names(modules | (_FUSED if fused else {}), "decoder")


def _fields_of_metadata(
    path: Path, family: Family, metadata: Mapping[str, Any], divisors: np.ndarray | None
) -> Fields:
    """The config.json that the metadata describe."""
    kind = family.gguf.name
    own = {k.removeprefix(f"{kind}."): v for k, v in metadata.items() if k.startswith(f"{kind}.")}
    wanted = {name for name, theirs in _KEYS.items() if theirs in family.defaults}
    for name in sorted(wanted):
        if name not in own and name in (*_REQUIRED, *family.gguf.required):
            raise InputError(f"{path}: {kind}.{name} is not there")
        if not isinstance(own.get(name, 0), int | float):
            found = reprlib.repr(own[name])
            raise InputError(f"{path}: {kind}.{name} is {found}, not one number for all layers")
    heads = max(own["attention.head_count"], 1)
    narrow = own["embedding_length"] // heads
    without = {"attention.head_count_kv": heads, "rope.freq_base": 10_000.0}
    if family.defaults["head_dim"] is not None:
        without["attention.key_length"] = narrow
    stated = without | own
    fields = {_KEYS[name]: stated[name] for name in wanted if name in stated}
    width = own.get("attention.key_length", narrow)
    turning = own.get("rope.dimension_count", width)
    if "partial_rotary_factor" in family.defaults:
        fields["partial_rotary_factor"] = turning / max(width, 1)
        turning = width
    _check_metadata(path, family, own, wanted, width, turning)
    if entry := _scaling(path, own, divisors):
        # Not `rope_parameters`, which would be of local layers too.
        fields["rope_scaling"] = entry
    if "query_pre_attn_scalar" in family.defaults:
        by_dim = own["block_count"] == _SCALED_BY_DIM[kind]
        fields["query_pre_attn_scalar"] = narrow if by_dim else width
    return fields | {"model_type": family.model_type}


def _scaling(path: Path, own: Mapping[str, Any], divisors: np.ndarray | None) -> Fields:
    """The entry of RoPE that the metadata or a tensor of divisors of the frequencies describe."""
    # As llama.cpp has it: a factor is one of positions unless it is said to be of nothing.
    factor = own.get("rope.scaling.factor", 0)
    linear = own.get("rope.scaling.type", "linear" if factor else "none") == "linear"
    if divisors is None:
        return {"rope_type": "linear", "factor": factor or None} if linear else {}
    if linear:
        raise InputError(f"{path} has linear scaling and {_DIVISORS}; only one is supported")
    both = dict.fromkeys(("short_factor", "long_factor"), divisors.ravel().tolist())
    lengths = {"original_max_position_embeddings": own.get("context_length", 2)}
    return {"rope_type": "longrope", "attention_factor": 1.0} | both | lengths


def _check_metadata(
    path: Path,
    family: Family,
    own: dict[str, Any],
    wanted: set[str],
    head_dim: int,
    turning: int,
) -> None:
    """Raise where there are entries that are not known: they may change the computation."""
    kind = family.gguf.name
    supported = {
        "attention.value_length": (head_dim,),
        "rope.dimension_count": (head_dim,),
        "rope.scaling.type": ("none", "linear"),
        "expert_count": (0,),
        "expert_used_count": (0,),
        "attention.causal": (True,),
        "attention.max_alibi_bias": (8.0,),
        "attention.clamp_kqv": (0.0,),
    }
    looked_at = own | {"rope.dimension_count": turning}
    for name in looked_at.keys() - wanted - (set(_HARMLESS) - {"rope.dimension_count"}):
        found = f"{path}: {huggingface.listed([f'{kind}.{name}'])} is "
        found += reprlib.repr(own.get(name, looked_at[name]))
        if name not in supported:
            raise InputError(f"{found}, and its effect is not known")
        if looked_at[name] not in supported[name]:
            only = " or ".join(map(repr, supported[name]))
            raise InputError(f"{found}; only {only} is supported")


class _Stored(NamedTuple):
    """A tensor of a .gguf, which is asked as an open safetensors file is."""

    path: Path
    tensor: GgufTensor
    heads: int | None  # of a projection with pairs side by side; None for others

    def get_slice(self, name: str) -> "_Stored":
        return self

    def get_shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    def get_dtype(self) -> str:
        kind = self.tensor.kind.name
        return kind if re.fullmatch(r"I\d+", kind) else "F32"  # what it is when it is read

    def get_tensor(self, name: str) -> np.ndarray:
        try:
            weight = self.tensor.read()
        except NotImplementedError as error:
            kind = self.tensor.kind.name
            raise InputError(
                f"{self.path}: {huggingface.listed([name])} is {kind}, which gguf cannot read"
            ) from error
        if self.heads is None:
            return weight
        return np.asarray(
            convert_rotary_layout(
                weight, num_heads=self.heads, source="interleaved", target="half_split", axis=0
            )
        )
