"""Fields of a config.json: reading, checks, and conversion to a `TransformerConfig`.

Sizes in a configuration are not trusted before they are compared with the tensors.
"""

import math
import os
import reprlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import from_json, read_json
from jaxpe.nn.checkpoints.architecture import (
    ARCHITECTURES,
    Architecture,
    Fields,
    architectures,
    row_name,
    text_fields,
)
from jaxpe.nn.checkpoints.encodings import (
    GLOBAL,
    layer_types,
    local_kind,
    rope_entry,
    rope_kinds,
)
from jaxpe.nn.checkpoints.tensors import WEIGHTS, Tensors, listed
from jaxpe.nn.config import (
    Activation,
    ConvolutionSizes,
    DeltaNetSizes,
    ExpertSizes,
    LatentSizes,
    TransformerConfig,
)
from jaxpe.plans.scaling import PARAMETER_KINDS

# Fields that change the computation of some architecture, with their harmless values. For an
# architecture without a default for such a field, other values are refused.
_UNUSUAL: Mapping[str, tuple] = {
    "alibi": (False,),
    "attention_bias": (False,),
    "attention_multiplier": (),
    "attn_logit_softcapping": (),
    "embedding_multiplier": (),
    "final_logit_softcapping": (),
    "layer_types": (),
    "logit_scale": (),
    "logits_scaling": (),
    "mlp_bias": (False,),
    "no_rope_layers": (),
    "num_experts": (0, 1),
    "num_local_experts": (0, 1),
    "partial_rotary_factor": (1.0,),
    "quantization_config": (),
    "query_pre_attn_scalar": (),
    "residual_multiplier": (),
    "sliding_window": (),
    "use_bidirectional_attention": (False,),
    "use_sliding_window": (False,),
}

_GATED: dict[str, Activation] = {
    "silu": "swiglu",
    "swish": "swiglu",
    "gelu": "geglu",
    "gelu_new": "geglu_tanh",
    "gelu_fast": "geglu_tanh",
    "gelu_pytorch_tanh": "geglu_tanh",
}
_PLAIN: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "swish": "silu",
}
ACTIVATIONS: Mapping[str, Mapping[str, Activation]] = {
    "plain": _PLAIN,
    "gated": _GATED,
    # In the first configurations of Gemma, "gelu" means its approximation.
    "gemma": {**_GATED, "gelu": "geglu_tanh"},
    # For T5, transformers reads "gated-gelu" as "gelu_new".
    "t5": {
        **_PLAIN,
        "gated-gelu": "geglu_tanh",
        "gated-gelu_new": "geglu_tanh",
        "gated-silu": "swiglu",
    },
}

# Fields of a TransformerConfig, by the common names of the fields of a config.json.
CONFIG_FIELDS: Mapping[str, str] = {
    "vocab_size": "vocab_size",
    "hidden_size": "dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads",
    "head_dim": "head_dim",
    "intermediate_size": "hidden_dim",
    "type_vocab_size": "token_types",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "rms_norm_eps": "norm_epsilon",
    "layer_norm_eps": "norm_epsilon",
    "initializer_range": "init_scale",
    "tie_word_embeddings": "tie_embeddings",
    "qk_layernorm": "query_key_norm",
    "embedding_multiplier": "embedding_factor",
    "attention_multiplier": "attention_scale",
    "residual_multiplier": "residual_scale",
    "logit_scale": "logit_scale",
    "emb_layer_norm_before": "embedding_norm",
    "attn_logit_softcapping": "attention_cap",
    "final_logit_softcapping": "logit_cap",
}
_CONVERTED: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "initializer_range": ("embedding_scale", float),
    "logits_scaling": ("logit_scale", lambda divisor: 1 / divisor),
    "hidden_size_per_layer_input": ("layer_input_dim", lambda width: width or None),
    "query_pre_attn_scalar": ("attention_scale", lambda scalar: scalar**-0.5),
    "use_parallel_residual": ("residual", lambda yes: "parallel" if yes else "sequential"),
    "do_layer_norm_before": ("norm_position", lambda yes: "pre" if yes else "post"),
}


def _row_sizes(row: Mapping[str, Any], fields: Fields) -> Fields:
    """Sizes of a row: values of fields, their product for a list, or constants."""

    def value(entry: Any) -> Any:
        if isinstance(entry, list):
            return math.prod(fields[name] for name in entry)
        return fields.get(entry, entry) if isinstance(entry, str) else entry

    return {name: value(entry) for name, entry in row.items()}


def _latent(architecture: Architecture, fields: Fields) -> Fields:
    """Fields of a TransformerConfig with latent attention, whose scale has YaRN's factor."""
    sizes = LatentSizes(**_row_sizes(architecture.latent, fields))
    entry, width = rope_entry(fields, None), fields["head_dim"] + sizes.rotary_dim
    scaled = entry.get("rope_type", entry.get("type", "default")) != "default"
    multiplier = entry.get("mscale_all_dim", 0.0) if scaled else 0.0
    factor = 1 + 0.1 * multiplier * math.log(max(entry.get("factor", 1.0), 1.0))
    return {"latent": sizes, "num_kv_heads": None, "attention_scale": factor**2 * width**-0.5}


def _mixer(architecture: Architecture, fields: Fields) -> ConvolutionSizes | DeltaNetSizes | None:
    """Token mixer of layers that do not attend; None without such layers."""
    if not architecture.mixer:
        return None
    sizes = _row_sizes(architecture.mixer, fields)
    return DeltaNetSizes(**sizes) if "key_heads" in sizes else ConvolutionSizes(**sizes)


def _experts(architecture: Architecture, fields: Fields) -> ExpertSizes:
    sizes = _row_sizes(architecture.experts, fields)
    if fields.get("topk_method") == "greedy":  # whatever the groups
        sizes |= {"groups": 1, "chosen_groups": 1}
    return ExpertSizes(**sizes)


def _is_dense(fields: Fields, layer: int) -> bool:
    """Whether a layer of a model with experts has none."""
    return (
        layer < fields.get("first_k_dense_replace", 0)
        or (layer + 1) % fields.get("decoder_sparse_step", 1) != 0
        or layer in (fields.get("mlp_only_layers") or ())
    )


class Range(NamedTuple):
    """Allowed values of a number of a configuration: its type, and inclusive bounds."""

    kind: type
    low: float
    high: float


# Fields of a configuration that leave what the weights of a file compute as it is.
_OVERRIDES = ("dtype", "param_dtype", "dropout", "attention_dropout", "attention", "scan", "remat")
_FLOAT32 = np.finfo(np.float32)
_LARGEST = 2**31 - 1  # ids and positions are int32
_SIZE, _RATE = Range(int, 1, _LARGEST), Range(float, 0.0, 0.999)
_POSITIVE = Range(float, float(_FLOAT32.tiny), float(_FLOAT32.max))  # also in float32
_LENGTHS = (  # lengths and periods, which need not be the size of any tensor's axis
    *("max_position_embeddings", "sliding_window", "attention_chunk_size", "floor_scale"),
    *("max_window_layers", "sliding_window_pattern", "no_rope_layer_interval"),
    *("full_attention_interval", "conv_L_cache", "linear_conv_kernel_dim", "block_multiple_of"),
    "original_max_position_embeddings",
    *("local_attention", "global_attn_every_n_layers", "relative_attention_max_distance"),
    "decoder_sparse_step",
)
_LAYERS = ("num_hidden_layers", "num_decoder_layers")
_SIZES = (
    *("vocab_size", "hidden_size", "num_attention_heads", "head_dim", "num_key_value_heads"),
    *("intermediate_size", "rotary_dim", "relative_attention_num_buckets", *_LAYERS, *_LENGTHS),
    *("linear_num_key_heads", "linear_num_value_heads"),
    *("linear_key_head_dim", "linear_value_head_dim"),
    *("global_head_dim", "num_global_key_value_heads"),
    *("num_local_experts", "num_experts_per_tok", "moe_intermediate_size"),
    *("shared_expert_intermediate_size", "n_group", "topk_group"),
    *("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "v_head_dim"),
)
_RANGES = {
    **dict.fromkeys(_SIZES, _SIZE),
    **dict.fromkeys(("type_vocab_size", "mask_token_id"), Range(int, 0, _LARGEST)),
    "num_kv_shared_layers": Range(int, 0, _LARGEST),
    "hidden_size_per_layer_input": Range(int, 0, _LARGEST),
    **dict.fromkeys(("dropout", "attention_dropout"), _RATE),
    **dict.fromkeys(("layer_norm_eps", "rms_norm_eps", "query_pre_attn_scalar"), _POSITIVE),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), _POSITIVE),
    **dict.fromkeys(("embedding_multiplier", "attention_multiplier"), _POSITIVE),
    **dict.fromkeys(("residual_multiplier", "logits_scaling", "logit_scale"), _POSITIVE),
    # Below a base of 1, the first pair would not rotate fastest.
    **dict.fromkeys(("rope_theta", "rope_local_base_freq"), _POSITIVE._replace(low=1.0)),
    **dict.fromkeys(("initializer_range", "attn_scale"), _POSITIVE._replace(low=0.0)),
    **dict.fromkeys(("block_ffn_dim_multiplier", "routed_scaling_factor"), _POSITIVE),
    "swiglu_limit": _POSITIVE,
    **dict.fromkeys(("n_shared_experts", "first_k_dense_replace"), Range(int, 0, _LARGEST)),
    "position_buckets": Range(int, 4, _LARGEST),
    "partial_rotary_factor": Range(float, 2**-20, 1.0),
}
# Null switches these off; in any other field, null means the default.
_NULLABLE = (
    *("sliding_window", "attn_logit_softcapping", "final_logit_softcapping", "rotary_dim"),
    "q_lora_rank",
)
# Fields without a default that are read.
_WITHOUT_DEFAULT = (
    *("model_type", "rope_parameters", "rope_scaling", "scale_decoder_outputs"),
    "tie_word_embeddings",
)
_LARGEST_CONFIG = 2**24  # bytes
_QUANTISED = (
    "quantised weights are read from .gguf files alone. Pass one, or save floats by transformers: "
    "AutoModelForCausalLM.from_pretrained(folder, quantization_config=Mxfp4Config(dequantize=True))"
    ".save_pretrained(another), or FineGrainedFP8Config in its place"
)


def read_config(path: Path) -> Fields:
    """Fields of a config.json; raises `InputError` if they cannot be read."""
    return read_json(path, remedy="fetch it again", largest=_LARGEST_CONFIG)


def read_fields(directory: str | os.PathLike, *kinds: str) -> tuple[Architecture, Fields, Fields]:
    """Architecture of a directory, its checked fields, and the fields of its config.json.

    Unknown fields are ignored.

    Args:
        directory: Hugging Face directory.
        *kinds: supported kinds of architectures.

    Raises:
        InputError: a file that cannot be read, another architecture, or an unsupported computation.
    """
    directory = Path(directory)
    path = directory / "config.json"
    if not os.path.isdir(directory):
        raise InputError(f"{directory} is not a directory: pass one with config.json and {WEIGHTS}")
    if not os.path.isfile(path):
        raise InputError(f"{directory} has no config.json: is it the directory of a model?")
    stored = read_config(path)
    architecture = architecture_of_fields(path, stored, architectures(*kinds))
    return architecture, checked_fields(architecture, path, stored), stored


def architecture_of_fields(
    path: Path, stored: Fields, rows: Mapping[str, Architecture]
) -> Architecture:
    """The row of a config.json's model type; `InputError` for another type."""
    model_type = row_name(stored)
    if not isinstance(model_type, str) or model_type not in rows:
        raise InputError(
            f"{path}: model_type is {reprlib.repr(model_type)}; {' and '.join(rows)} are supported"
        )
    return rows[model_type]


def find_architecture(directory: str | os.PathLike) -> Architecture | None:
    """Architecture of a directory; None without a config.json, or if it is unknown."""
    config = Path(directory) / "config.json"
    model_type = row_name(text_fields(read_config(config))) if os.path.isfile(config) else None
    return ARCHITECTURES.get(model_type) if isinstance(model_type, str) else None


class _Config(NamedTuple):
    """Fields under their common names, and names in the file for messages."""

    path: Path
    architecture: Architecture
    fields: Fields
    stored_names: Mapping[str, str]

    def field_name(self, name: str) -> str:
        return f"{self.path}: {self.stored_names.get(name, name)}"

    def check_values(self, allowed: Mapping[str, Any]) -> None:
        """Raise for a field that requires an unsupported computation; null requires nothing."""
        for name, values in allowed.items():
            value = self.fields.get(name)
            if value is None or any(_equal(value, allowed_value) for allowed_value in values):
                continue
            only = f"; only {', '.join(map(repr, values))} is supported" if values else ""
            only = f": {_QUANTISED}" if name == "quantization_config" else only
            raise InputError(
                f"{self.field_name(name)} is {reprlib.repr(value)}, which changes the "
                f"computation{only}"
            )

    def checked_numbers(self) -> Fields:
        """Numbers, checked for type and range; null stays if it is the default or switches off."""
        return {
            name: _number_in_range(self.field_name(name), self.fields[name], _RANGES[name])
            for name, default in self.architecture.defaults.items()
            if name in _RANGES
            and (self.fields[name] is not None or default is not None)
            and not (self.fields[name] is None and name in _NULLABLE)
        }


def _equal(one: Any, other: Any) -> bool:
    return isinstance(one, bool) is isinstance(other, bool) and one == other  # True is not 1


def _number_in_range(field_name: str, value: Any, allowed: Range) -> Any:
    number = from_json(allowed.kind, value, where=field_name)
    if not allowed.low <= number <= allowed.high:
        low, high = (str(x) if allowed.kind is int else f"{x:g}" for x in allowed[1:])
        raise InputError(f"{field_name} is {value!r}; pass {low} to {high}")
    return number


def checked_fields(architecture: Architecture, path: Path, stored: Fields) -> Fields:
    """Checked fields under their common names, with defaults."""
    used = {k: v for k, v in architecture.names.items() if stored.get(k) is not None}
    fields = stored | {common: stored[name] for name, common in used.items()}
    fields = {k: v for k, v in fields.items() if v is not None or k in _NULLABLE}
    fields = architecture.defaults | fields
    names = {common: name for name, common in {**architecture.names, **used}.items()}
    config = _Config(path, architecture, fields, names)
    defaults = architecture.defaults
    from_json(str, fields["hidden_act"], where=config.field_name("hidden_act"))
    config.check_values(
        {k: v for k, v in _UNUSUAL.items() if k not in (*defaults, *architecture.ignored, *used)}
        | {k: (False, True) for k, v in defaults.items() if isinstance(v, bool)}
        | {"hidden_act": tuple(ACTIVATIONS[architecture.activations])}
        | {k: tuple(v) for k, v in architecture.allowed.items()}
    )
    if "moe_layers" in architecture.allowed and stored.get("moe_layers") != []:
        raise InputError(
            f"{path}: moe_layers is {reprlib.repr(stored.get('moe_layers'))}, but layers of "
            "experts are not supported; only [] is"
        )
    if "per_layer_config" in defaults and fields["per_layer_config"] is not None:
        fields |= _global_sizes(config)
    fields |= config.checked_numbers()
    config.check_values({k: (fields[other],) for k, other in architecture.equal.items()})
    _check_layers(config)
    fields = {k: v for k, v in fields.items() if k in (*defaults, *_WITHOUT_DEFAULT)}
    if isinstance(entry := fields.get("rope_parameters"), dict):
        ignored = architecture.ignored
        fields["rope_parameters"] = {k: v for k, v in entry.items() if k not in ignored}
    _check_rope(path, fields)
    return fields


def _check_layers(config: _Config) -> None:
    """Raise for a list by layer without exactly one allowed entry for each layer."""
    entries = {"layer_types": (GLOBAL, local_kind(config.architecture)), "no_rope_layers": (0, 1)}
    layers = config.fields["num_hidden_layers"]
    if (indices := config.fields.get("full_attn_idxs")) is not None:
        from_json(list[int], indices, where=config.field_name("full_attn_idxs"))
    for name, allowed in entries.items():
        values = config.fields.get(name)
        if name not in config.architecture.defaults or not values:
            continue
        fits = isinstance(values, list) and len(values) == layers
        if not fits or any(value not in allowed for value in values):
            raise InputError(
                f"{config.field_name(name)} is {reprlib.repr(values)}; pass a list of {layers}, "
                f"one per layer, of {' and '.join(map(repr, allowed))}"
            )


def _check_rope(path: Path, fields: Fields) -> None:
    """Raise for a RoPE entry with unknown keys, or with values of another type."""
    for field_name, entry in _rope_entries(path, fields):
        if entry.get("mrope_section") is not None:
            raise InputError(
                f"{field_name} has mrope_section, but positions of text have a single coordinate"
            )
        entry = {key: value for key, value in entry.items() if value is not None}
        if unknown := sorted(entry.keys() - PARAMETER_KINDS.keys() - {"mrope_interleaved"}):
            raise InputError(f"{field_name} has the unknown keys {listed(unknown)}")
        for key in entry.keys() & PARAMETER_KINDS.keys():
            from_json(PARAMETER_KINDS[key], entry[key], where=f"{field_name}.{key}")
        if "rope_theta" in entry:
            field_name = f"{field_name}: rope_theta"
            _number_in_range(field_name, entry["rope_theta"], _RANGES["rope_theta"])


def _rope_entries(path: Path, fields: Fields) -> Iterator[tuple[str, Fields]]:
    """Names and values of the RoPE entries: one, or one for each kind of layer."""
    kinds = rope_kinds(fields)
    for name in ("rope_parameters", "rope_scaling") if kinds else ():
        entry = from_json(dict[str, Any], fields.get(name, {}), where=f"{path}: {name}")
        nested = [kind for kind in kinds if kind in entry]
        for kind in nested:
            field_name = f"{path}: {name}.{kind}"
            yield field_name, from_json(dict[str, Any], entry[kind] or {}, where=field_name)
        if not nested:
            yield f"{path}: {name}", entry
        if entry:
            return


def check_sizes(architecture: Architecture, path: Path, fields: Fields, tensors: Tensors) -> None:
    """Raise for sizes that exceed the tensors, before anything is allocated."""
    config = _Config(path, architecture, fields, {v: k for k, v in architecture.names.items()})
    axes = (size for name in tensors.files for size in tensors.shape(name))
    longest, count = max(axes, default=0), len(tensors.files)
    for name in architecture.defaults:
        if name not in _RANGES or _RANGES[name].kind is not int or name in _LENGTHS:
            continue
        size = fields.get(name)
        if size is not None and size > (count if name in _LAYERS else longest):
            raise InputError(
                f"{config.field_name(name)} is {size}, which exceeds the tensors of "
                f"{tensors.directory}: {count} tensors, with a longest axis of {longest}"
            )


def model_config(
    architecture: Architecture, path: Path, fields: Fields, overrides: Fields, **options: Any
) -> TransformerConfig:
    """`TransformerConfig` from checked fields; options and overrides replace its fields."""
    if others := sorted(overrides.keys() - set(_OVERRIDES)):
        raise InputError(
            f"{', '.join(others)} cannot be overridden, since the weights of {path.parent} depend "
            f"on it: pass some of {', '.join(_OVERRIDES)}"
        )
    defaults = architecture.defaults
    values = {target: fields[name] for name, target in CONFIG_FIELDS.items() if name in defaults}
    values |= {
        target: convert(fields[name])
        for name, (target, convert) in _CONVERTED.items()
        if name in defaults
    }
    values["activation"] = ACTIVATIONS[architecture.activations][fields["hidden_act"]]
    values["use_bias"] = tuple(
        part
        for part, bias in architecture.biases.items()
        if (fields[bias] if isinstance(bias, str) else bias)
    )
    if architecture.scaled_embeddings:
        values["embedding_factor"] = fields["hidden_size"] ** 0.5
    if fields.get("token_dropout"):  # 0.15·0.8 of the tokens were masks in training
        values |= {"embedding_factor": 0.88, "dropped_token": fields["mask_token_id"]}
    if "block_auto_adjust_ff_dim" in defaults:
        values["hidden_dim"] = _adjusted_width(fields)
    if architecture.latent:
        values |= _latent(architecture, fields)
    for name in architecture.ignored:
        values.pop(CONFIG_FIELDS.get(name, name), None)
    for name, value in architecture.config.items():
        values[name] = tuple(value) if isinstance(value, list) else value
    try:
        if architecture.experts:
            values["experts"] = _experts(architecture, fields)
        values["by_layer"] = _changes_by_layer(architecture, fields)
        return TransformerConfig(**values | options | overrides)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error


def _changes_by_layer(architecture: Architecture, fields: Fields) -> Any:
    """Value of `by_layer`: () if all layers are alike."""
    kinds = layer_types(architecture, fields) if "layer_types" in architecture.defaults else []
    mixer, local = _mixer(architecture, fields), local_kind(architecture)
    changes = [{"mixer": mixer} if mixer and kind == local else {} for kind in kinds]
    if "num_kv_shared_layers" in fields:
        changes = [_gemma4_changes(fields, kinds, layer) for layer in range(len(kinds))]
    if architecture.experts:
        changes = changes or [{} for _ in range(fields["num_hidden_layers"])]
        for layer, change in enumerate(changes):
            change |= {"experts": None} if _is_dense(fields, layer) else {}
    return tuple(tuple(change.items()) for change in changes) if any(changes) else ()


def _gemma4_changes(fields: Fields, kinds: list[str], layer: int) -> Fields:
    """Changes in a layer of Gemma 4: sizes and values of global ones, the source of the last."""
    kind, first = kinds[layer], len(kinds) - fields["num_kv_shared_layers"]
    changes, equal = {}, kind == GLOBAL and fields["attention_k_eq_v"]
    if kind == GLOBAL:
        changes = {"head_dim": fields["global_head_dim"] or 512}
    if equal and (heads := fields["num_global_key_value_heads"]) is not None:
        changes["num_kv_heads"] = heads
    if layer < first:
        return changes | {"keys_are_values": equal}
    wide = fields["intermediate_size"] * (2 if fields["use_double_wide_mlp"] else 1)
    sources = [i for i in range(first) if kinds[i] == kind]
    if not sources:
        raise ValueError(f"num_kv_shared_layers leaves no {kind} layer that has its own keys")
    return changes | {"source_layer": sources[-1], "hidden_dim": wide}


def _global_sizes(config: _Config) -> Fields:
    """Sizes of global layers, which transformers 5.24 stores for each of them."""
    name = config.field_name("per_layer_config")
    stored = from_json(dict[str, dict[str, int]], config.fields["per_layer_config"], where=name)
    names = {"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"}
    first = next(iter(stored.values()), {})
    if first.keys() - names or any(sizes != first for sizes in stored.values()):
        raise InputError(f"{name}: pass equal sizes {' and '.join(names)} of all global layers")
    return {names[key]: size for key, size in first.items()}


def _adjusted_width(fields: Fields) -> int:
    """Width of the feed-forward layer of LFM2: two thirds, rounded up to a multiple."""
    width, multiple = fields["intermediate_size"], fields["block_multiple_of"]
    if not fields["block_auto_adjust_ff_dim"]:
        return width
    width = int(fields["block_ffn_dim_multiplier"] * int(2 * width / 3))
    return -(-width // multiple) * multiple


def stored_fields(architecture: Architecture, config: TransformerConfig, stored: Fields) -> Fields:
    """Fields of a config.json for a configuration; other stored fields stay."""
    names = {common: name for name, common in architecture.names.items()}
    fields = {"hidden_act": "gelu"} | stored | {"model_type": architecture.model_type}
    for common, name in CONFIG_FIELDS.items():
        if common in architecture.defaults:
            value = config.hidden_width if name == "hidden_dim" else getattr(config, name)
            fields[names.get(common, common)] = value
    activations = ACTIVATIONS[architecture.activations]
    if activations[fields["hidden_act"]] != config.activation:
        fields["hidden_act"] = next(k for k, v in activations.items() if v == config.activation)
    return float32_fields(fields)


def float32_fields(fields: Fields) -> Fields:
    """Fields with the dtype of the tensors set to float32."""
    return fields | {name: "float32" for name in ("dtype", "torch_dtype") if name in fields}
