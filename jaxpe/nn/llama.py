"""Llama, from a .gguf file or a directory of Hugging Face.

A .gguf is read as the directory it was made from: its metadata become the fields of a config.json,
its tensors get the names, shapes and order of features that they have there.
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxpe._errors import InputError, require
from jaxpe.encodings import Encoding, convert_rotary_layout, rope_from_hf
from jaxpe.nn import huggingface
from jaxpe.nn.attention import encoding_parameters
from jaxpe.nn.config import AttentionPath, TransformerConfig
from jaxpe.nn.heads import CausalLM
from jaxpe.nn.huggingface import Fields, TensorName, Tensors
from jaxpe.nn.transformer import Decoder

_OURS = {
    "input_layernorm": "attention_norm.scale",
    "self_attn.q_proj": "attention.query.kernel",
    "self_attn.k_proj": "attention.key.kernel",
    "self_attn.v_proj": "attention.value.kernel",
    "self_attn.o_proj": "attention.output.kernel",
    "post_attention_layernorm": "mlp_norm.scale",
    "mlp.gate_proj": "mlp.gate.kernel",
    "mlp.up_proj": "mlp.up.kernel",
    "mlp.down_proj": "mlp.down.kernel",
}
_TENSORS = (
    TensorName("embed_tokens.weight", "decoder.tokens.embedding"),
    *(
        TensorName(
            f"layers.{{layer}}.{theirs}.weight", f"decoder.layers.{ours}", ours.endswith("kernel")
        )
        for theirs, ours in _OURS.items()
    ),
    TensorName("norm.weight", "decoder.final_norm.scale"),
)
_OUTPUT = TensorName("lm_head.weight", "output.kernel", transposed=True)  # where it is not tied

_DEFAULTS = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "intermediate_size": 11008,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "initializer_range": 0.02,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
}
# Fields that change the computation, and the values that are here.
_ALLOWED = {
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "partial_rotary_factor": (1.0,),
    "tie_word_embeddings": (False, True),
    "quantization_config": (),
}
_FRACTIONS = ("rms_norm_eps", "rope_theta", "initializer_range", "attention_dropout")
_MAY_BE_ZERO = ("initializer_range", "attention_dropout")

# Parts of a .gguf, and entries of its metadata after "llama.", by what they are called there.
_PARTS = {
    "token_embd": "embed_tokens",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "output_norm": "norm",
    "output": "lm_head",
}
_KEYS = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "context_length": "max_position_embeddings",
}
# Nothing is computed from these, or only where `_check_metadata` has nothing against it.
_HARMLESS = (
    "vocab_size",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
)
_REQUIRED = (
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "attention.head_count",
    "attention.layer_norm_rms_epsilon",
)


def load_llama(
    path: str | os.PathLike,
    *,
    encoding: Encoding | None = None,
    dtype: Any = jnp.float32,
    param_dtype: Any = jnp.float32,
    attention: AttentionPath = "xla",
    dropout: float = 0.0,
    scan: bool = True,
    remat: bool = False,
) -> CausalLM:
    """A Llama (Touvron et al. 2023): RMSNorm, SwiGLU, grouped queries, rotary encoding.

    Queries and keys are in the half-split layout, whatever the file: a .gguf has them interleaved,
    and they are put back. Its quantised tensors become floats, as the package `gguf` (an extra)
    has them. A tensor that is not known is an error, since it would change what is computed.

    Args:
        path: a .gguf file, a folder with one, or a Hugging Face directory (config.json, and
            model.safetensors or its shards).
        encoding: in place of the model's own `rope_from_hf`; its parameters begin as
            `nnx.Rngs(0)` draws them.
        dtype: of the computation.
        param_dtype: of the parameters, whatever the file has.
        attention, dropout, scan, remat: as in `TransformerConfig`, but one block is compiled for
            all layers unless scan is False.

    Raises:
        InputError: for a file that cannot be read, is of another architecture, or asks for a
            computation that is not here; the message names the field or every tensor, by its name
            in a Hugging Face directory without "model.".

    >>> jaxpe.nn.load_llama("nowhere")
    Traceback (most recent call last):
    jaxpe._errors.InputError: nowhere is not there: pass a .gguf file, a folder with one, or ...
    """
    path = Path(path)
    options = {"dtype": dtype, "param_dtype": param_dtype, "attention": attention}
    options |= {"dropout": dropout, "scan": scan, "remat": remat}
    if (file := _gguf_file(path)) is not None:
        fields, tensors = _read_gguf(file)
        return _loaded(file, fields, tensors, encoding, options)
    fields = huggingface._read_json(_config_file(path))
    with huggingface.open_tensors(path, "model.") as tensors:
        return _loaded(path / "config.json", fields, tensors, encoding, options)


def _loaded(
    where: Path, fields: Fields, tensors: Tensors, encoding: Encoding | None, options: Fields
) -> CausalLM:
    """The model of fields and tensors, as a directory of Hugging Face has them."""
    fields = _checked_fields(where, fields)
    config = dataclasses.replace(_config(where, fields), **options)
    own = _own_encoding(where, fields, config.head_width)

    def model():
        return CausalLM(Decoder(config, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(0))

    names = _TENSORS if config.tie_embeddings else (*_TENSORS, _OUTPUT)
    _check_known(tensors, names, config.num_layers)
    if config.tie_embeddings:
        _check_tied(tensors)
    # Shapes alone: nothing is drawn that the file then replaces.
    loaded = huggingface.fill(nnx.eval_shape(model), names, tensors)
    decoder = loaded.decoder
    encoding = own if encoding is None else encoding
    decoder.encoding = nnx.static(encoding)
    decoder.encoding_params = encoding_parameters(config, encoding, rngs=nnx.Rngs(0))
    return loaded


def _config(where: Path, fields: Fields) -> TransformerConfig:
    """Our configuration of the fields of a config.json."""
    try:
        return TransformerConfig(
            vocab_size=fields["vocab_size"],
            dim=fields["hidden_size"],
            num_layers=fields["num_hidden_layers"],
            num_heads=fields["num_attention_heads"],
            num_kv_heads=fields["num_key_value_heads"],
            head_dim=fields["head_dim"],
            hidden_dim=fields["intermediate_size"],
            activation="swiglu",
            norm="rms",
            norm_epsilon=fields["rms_norm_eps"],
            use_bias=False,
            tie_embeddings=fields["tie_word_embeddings"],
            attention_dropout=fields["attention_dropout"],
            init_scale=fields["initializer_range"],
            embedding_scale=fields["initializer_range"],
        )
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error


def _own_encoding(where: Path, fields: Fields, head_dim: int) -> Encoding:
    """The rotary encoding of a config.json, of today or with a `rope_scaling`."""
    entry = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    if not isinstance(entry, Mapping):
        raise InputError(f"{where}: rope_parameters is {entry!r}, not an object with fields")
    try:
        return rope_from_hf(
            {"rope_theta": fields["rope_theta"], **entry},
            head_dim=head_dim,
            max_position_embeddings=fields["max_position_embeddings"],
        )
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: rope_parameters {dict(entry)}: {error}") from error


def _checked_fields(where: Path, given: Fields) -> Fields:
    """Fields with defaults filled in; what is asked for is here, and every number is one.

    Fields that are not known do not matter.
    """
    if (kind := given.get("model_type")) != "llama":
        raise InputError(f"{where}: model_type is {kind!r}; llama is what can be read here")
    given = {name: value for name, value in given.items() if value is not None}
    for name, values in _ALLOWED.items():
        if name in given and given[name] not in values:
            only = f"; only {', '.join(map(repr, values))} is supported" if values else ""
            raise InputError(
                f"{where}: {name} is {given[name]!r}, which changes the computation{only}"
            )
    fields = _DEFAULTS | given
    for name in _DEFAULTS.keys() - {"tie_word_embeddings"}:
        _check_number(where, name, fields[name])
    return fields


def _check_number(where: Path, name: str, value: Any) -> None:
    if value is None:  # a default that other fields decide
        return
    kind, what = ((int, float), "a number") if name in _FRACTIONS else (int, "a whole number")
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if not fits or not (value > 0 or (value == 0 and name in _MAY_BE_ZERO)):
        bound = "of at least 0" if name in _MAY_BE_ZERO else "above 0"
        raise InputError(f"{where}: {name} is {value!r}, not {what} {bound}")


def _check_known(tensors: Tensors, names: tuple[TensorName, ...], num_layers: int) -> None:
    """Raise where there are tensors that would take part in the computation of another model."""
    known = {name.theirs.format(layer=i) for name in names for i in range(num_layers)}
    # A tied matrix may be stored twice, and the frequencies follow from the fields.
    known.add(_OUTPUT.theirs)
    others = sorted(n for n in tensors.files if n not in known and not n.endswith(".inv_freq"))
    if others:
        some = ", ".join(tensors.files[name][1] for name in others[:8])
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        raise InputError(f"{tensors.directory}: nothing is known of the tensors {some}{more}")


def _check_tied(tensors: Tensors) -> None:
    """Raise where a file has a matrix of its own beside the embeddings it is said to share.

    Versions of transformers differ in which of the two they take.
    """
    names = (_OUTPUT.theirs, _TENSORS[0].theirs)
    if not all(name in tensors.files for name in names):
        return
    output, embeddings = (tensors.read(name) for name in names)
    if not np.array_equal(output, embeddings):
        raise InputError(
            f"{tensors.directory}: tie_word_embeddings is True, but {names[0]} is not {names[1]}: "
            "set it to False, or take one of them out"
        )


def _gguf_file(path: Path) -> Path | None:
    """The .gguf file that is meant; None for a directory of Hugging Face."""
    if not path.exists():
        raise InputError(
            f"{path} is not there: pass a .gguf file, a folder with one, or a directory with "
            f"config.json and {huggingface.WEIGHTS}"
        )
    if path.is_file():
        return path
    found = sorted(path.glob("*.gguf"))
    if not found or any(path.glob("*.safetensors")):
        return None
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise InputError(f"{path} holds {names}: pass the path of one of them")
    return found[0]


def _config_file(directory: Path) -> Path:
    path = directory / "config.json"
    if not path.is_file():
        raise InputError(f"{directory} has neither a .gguf file nor config.json")
    return path


def _read_gguf(path: Path) -> tuple[Fields, Tensors]:
    """Fields and tensors of a .gguf file, as a directory of Hugging Face has them."""
    gguf = require("gguf", extra="gguf")
    try:
        reader = gguf.GGUFReader(path)
    except (ValueError, KeyError, IndexError, OSError) as error:
        raise InputError(f"{path} is not a whole .gguf file ({error}): fetch it again") from error
    fields = _fields_of_metadata(path, reader.fields)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    fields["tie_word_embeddings"] = "output.weight" not in stored
    if "token_embd.weight" in stored:
        fields["vocab_size"] = int(stored["token_embd.weight"].shape[1])
    query_heads = fields["num_attention_heads"]
    heads = {
        "attn_q.weight": query_heads,
        "attn_k.weight": fields.get("num_key_value_heads", query_heads),
    }
    files = {
        _their_name(name): (_Stored(path, tensor, heads.get(name.split(".", 2)[-1])), name)
        for name, tensor in stored.items()
    }
    return fields, Tensors(path, files)


def _fields_of_metadata(path: Path, entries: Mapping[str, Any]) -> Fields:
    """The config.json that the metadata of a .gguf describe."""
    found = {
        name: entry.contents()
        for name, entry in entries.items()
        if name == "general.architecture" or name.startswith("llama.")
    }
    if (kind := found.pop("general.architecture", None)) != "llama":
        raise InputError(f"{path}: general.architecture is {kind!r}; llama is what can be read")
    own = {name.removeprefix("llama."): value for name, value in found.items()}
    for name in _KEYS:
        if name not in own and name in _REQUIRED:
            raise InputError(f"{path}: llama.{name} is not there")
        if not isinstance(own.get(name, 0), int | float):
            raise InputError(
                f"{path}: llama.{name} is {own[name]!r}, not one number for all layers"
            )
    fields = {theirs: own[name] for name, theirs in _KEYS.items() if name in own}
    width = own.get("attention.key_length")
    if width is None:
        width = own["embedding_length"] // max(own["attention.head_count"], 1)
    _check_metadata(path, own, width)
    if own.get("rope.scaling.type") == "linear":
        factor = own.get("rope.scaling.factor")
        fields["rope_parameters"] = {"rope_type": "linear", "factor": factor}
    return fields | {"model_type": "llama"}


def _check_metadata(path: Path, own: Mapping[str, Any], head_dim: int) -> None:
    """Raise where there are entries that are not known: they may change the computation."""
    supported = {
        "attention.value_length": (head_dim,),
        "rope.dimension_count": (head_dim,),
        "rope.scaling.type": ("none", "linear"),
        "expert_count": (0,),
        "expert_used_count": (0,),
        "attention.causal": (True,),
    }
    for name in own.keys() - _KEYS.keys() - set(_HARMLESS):
        if name not in supported:
            raise InputError(f"{path}: llama.{name} is {own[name]!r}, and its effect is not known")
        if own[name] not in supported[name]:
            only = " or ".join(map(repr, supported[name]))
            raise InputError(f"{path}: llama.{name} is {own[name]!r}; only {only} is supported")


def _their_name(name: str) -> str:
    """What a tensor of a .gguf is called in a directory of Hugging Face, without "model."."""
    whole, _, kind = name.rpartition(".")
    place, _, part = whole.rpartition(".")
    return ".".join(filter(None, (place.replace("blk", "layers"), _PARTS.get(part, part), kind)))


class _Stored(NamedTuple):
    """A tensor of a .gguf, which is asked as an open safetensors file is.

    Attributes:
        path: of the file, for messages.
        tensor: as `gguf` has it, its axes in reverse.
        heads: of a projection of queries or keys; None for others.
    """

    path: Path
    tensor: Any
    heads: int | None

    def get_slice(self, name: str) -> "_Stored":
        return self

    def get_shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape[::-1].tolist())

    def get_dtype(self) -> str:
        kind = self.tensor.tensor_type.name
        return kind if re.fullmatch(r"I\d+", kind) else "F32"  # what it is when it is read

    def get_tensor(self, name: str) -> np.ndarray:
        dequantize = require("gguf.quants", extra="gguf").dequantize
        kind = self.tensor.tensor_type
        try:
            weight = dequantize(self.tensor.data, kind).reshape(self.get_shape())
        except NotImplementedError as error:
            raise InputError(
                f"{self.path}: {name} is {kind.name}, which gguf cannot read"
            ) from error
        if self.heads is None:
            return weight
        return np.asarray(
            convert_rotary_layout(
                weight, num_heads=self.heads, source="interleaved", target="half_split", axis=0
            )
        )
