"""Fields of a config.json: reading, checks, and conversion to a `TransformerConfig`.

Sizes in a configuration are not trusted before they are compared with the tensors.
"""

import os
import reprlib
from collections.abc import Callable, Mapping
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
from jaxpe.nn.checkpoints.tensors import WEIGHTS, Tensors
from jaxpe.nn.config import Activation, TransformerConfig

# Fields that change the computation of some architecture, with their harmless values. For an
# architecture without a default for such a field, other values are refused.
_UNUSUAL: Mapping[str, tuple] = {
    "alibi": (False,),
    "attention_bias": (False,),
    "attention_multiplier": (),
    "attn_logit_softcapping": (),
    "embedding_multiplier": (),
    "final_logit_softcapping": (),
    "logit_scale": (),
    "logits_scaling": (),
    "mlp_bias": (False,),
    "num_experts": (0, 1),
    "num_local_experts": (0, 1),
    "quantization_config": (),
    "query_pre_attn_scalar": (),
    "residual_multiplier": (),
    "use_bidirectional_attention": (False,),
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
_GATES: dict[str, Activation] = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh"}
_GATED = {name: _GATES[plain] for name, plain in _PLAIN.items() if plain in _GATES}
_OF_T5 = {f"gated-{name}": gated for name, gated in _GATED.items()}
ACTIVATIONS: Mapping[str, Mapping[str, Activation]] = {
    "plain": _PLAIN,
    "gated": _GATED,
    # In the first configurations of Gemma, "gelu" means its approximation.
    "gemma": _GATED | {"gelu": "geglu_tanh"},
    # For T5, transformers reads "gated-gelu" as "gelu_new".
    "t5": _PLAIN | _OF_T5 | {"gated-gelu": "geglu_tanh"},
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
    "query_pre_attn_scalar": ("attention_scale", lambda scalar: scalar**-0.5),
    "use_parallel_residual": ("residual", lambda yes: "parallel" if yes else "sequential"),
    "do_layer_norm_before": ("norm_position", lambda yes: "pre" if yes else "post"),
}


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
# Lengths need not be the size of any tensor's axis.
_LENGTHS = ("max_position_embeddings", "relative_attention_max_distance")
_LAYERS = ("num_hidden_layers", "num_decoder_layers")
_SIZES = (
    *("vocab_size", "hidden_size", "num_attention_heads", "head_dim", "num_key_value_heads"),
    *("intermediate_size", "relative_attention_num_buckets", *_LAYERS, *_LENGTHS),
)
_RANGES = {
    **dict.fromkeys(_SIZES, _SIZE),
    **dict.fromkeys(("type_vocab_size", "mask_token_id"), Range(int, 0, _LARGEST)),
    **dict.fromkeys(("dropout", "attention_dropout"), _RATE),
    **dict.fromkeys(("layer_norm_eps", "rms_norm_eps", "query_pre_attn_scalar"), _POSITIVE),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), _POSITIVE),
    **dict.fromkeys(("embedding_multiplier", "attention_multiplier"), _POSITIVE),
    **dict.fromkeys(("residual_multiplier", "logits_scaling", "logit_scale"), _POSITIVE),
    **dict.fromkeys(("initializer_range",), _POSITIVE._replace(low=0.0)),
}
# Null switches these off; in any other field, null means the default.
_NULLABLE = ("attn_logit_softcapping", "final_logit_softcapping")
# Fields without a default that are read.
_WITHOUT_DEFAULT = ("model_type", "scale_decoder_outputs", "tie_word_embeddings")
_LARGEST_CONFIG = 2**24  # bytes
_QUANTISED = (
    "quantised weights are read from .gguf files alone. Pass one, or save floats by transformers: "
    "AutoModelForCausalLM.from_pretrained(folder, quantization_config=FineGrainedFP8Config("
    "dequantize=True)).save_pretrained(another)"
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
            f"{path}: model_type is {reprlib.repr(model_type)}, which is not loaded into Flax; "
            f"{', '.join(rows)} are. `jaxpe inspect {path.parent}` runs other models through "
            "transformers (pip install 'jaxpe[torch]')"
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
    fields |= config.checked_numbers()
    config.check_values({k: (fields[other],) for k, other in architecture.equal.items()})
    return {k: v for k, v in fields.items() if k in (*defaults, *_WITHOUT_DEFAULT)}


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
    for name in architecture.ignored:
        values.pop(CONFIG_FIELDS.get(name, name), None)
    for name, value in architecture.config.items():
        values[name] = tuple(value) if isinstance(value, list) else value
    try:
        return TransformerConfig(**values | options | overrides)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error


def float32_fields(fields: Fields) -> Fields:
    """Fields with the dtype of the tensors set to float32."""
    return fields | {name: "float32" for name in ("dtype", "torch_dtype") if name in fields}
