"""Decoders of every family of the table, from a .gguf file or a directory of Hugging Face."""

import dataclasses
import json
import os
import re
import reprlib
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import from_json
from jaxpe.encodings import Encoding, LayerPattern, rope_frequencies
from jaxpe.encodings.families.rotary import rope_arguments
from jaxpe.nn.checkpoints import huggingface
from jaxpe.nn.checkpoints.architectures import (
    DECODERS,
    GATED,
    PLAIN,
    UNUSUAL,
    rope_entry,
    rope_kinds,
)
from jaxpe.nn.checkpoints.families import Family, tensor_names
from jaxpe.nn.checkpoints.gguf import Names, gguf_file, read_gguf_model
from jaxpe.nn.checkpoints.huggingface import Fields, TensorName, Tensors
from jaxpe.nn.config import AttentionPath, TransformerConfig
from jaxpe.nn.heads import CausalLM
from jaxpe.nn.transformer import Decoder
from jaxpe.rope.scaling import PARAMETER_KINDS

# Fields of config.json that are fields of ours, in every family.
_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads",
    "head_dim": "head_dim",
    "intermediate_size": "hidden_dim",
    "initializer_range": "init_scale",
    "attention_dropout": "attention_dropout",
    "tie_word_embeddings": "tie_embeddings",
}
# What a file of a decoder may have beside its parameters: masks and frequencies.
_BUFFERS = re.compile(r"(^|\.)(attn\.|attention\.)(masked_)?bias$|inv_freq$")


def load_causal_lm(
    path: str | os.PathLike,
    *,
    encoding: Encoding | LayerPattern | None = None,
    dtype: Any = jnp.float32,
    param_dtype: Any = jnp.float32,
    attention: AttentionPath = "xla",
    dropout: float = 0.0,
    scan: bool = True,
    remat: bool = False,
) -> CausalLM:
    """A released decoder of one of the families in the table of architectures, with its head.

    Llama, Mistral, Qwen2, Qwen3, Gemma 1 to 3, SmolLM3, Llama 4 without experts, GPT-NeoX (Pythia),
    GPT-J, GPT-2, OPT, BLOOM and Phi. Queries and keys of a .gguf are in the layout of Hugging
    Face. Its quantised tensors become floats, as the package `gguf` (an extra) has them. A tensor
    or field that changes what is computed and is not known is an error.

    Args:
        path: a .gguf file, a folder with one, or a Hugging Face directory (config.json, and
            model.safetensors or its shards).
        encoding: encoding in place of the model's own; its parameters begin as `nnx.Rngs(0)` draws
            them.
        dtype, param_dtype, attention, dropout, scan, remat: fields of `TransformerConfig`, but one
            block is compiled for all layers unless scan is False.

    Raises:
        InputError: for a file that cannot be read, is of another architecture, or asks for a
            computation that is not here; the message names the field or every tensor, by its name
            in the file without the prefix of the base.

    >>> jaxpe.nn.load_causal_lm("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere is not there: pass a .gguf file, a folder with one, or ...
    """
    path = Path(path)
    options = {"dtype": dtype, "param_dtype": param_dtype, "attention": attention}
    options |= {"dropout": dropout, "scan": scan, "remat": remat}
    if (file := gguf_file(path)) is not None:
        family, fields, tensors, names = read_gguf_model(file)
        return _loaded(family, file, fields, tensors, names, encoding, options)
    config = path / "config.json"
    if not os.path.isfile(config):
        raise InputError(f"{path} has neither a .gguf file nor config.json")
    given = huggingface.read_config(config)
    kind = given.get("model_type")
    family = DECODERS.get(kind) if isinstance(kind, str) else None
    prefix = "model." if family is None else family.prefix
    with huggingface.open_tensors(path, prefix) as tensors:
        if family is None:
            raise InputError(_another_family(config, kind, tensors))
        model = _loaded(family, config, given, tensors, None, encoding, options)
    model.decoder.fields = json.dumps(given) if encoding is None else ""
    return model


def causal_lm_tensors(model: CausalLM) -> tuple[Fields, dict[str, np.ndarray]]:
    """Fields of a config.json and tensors of a model that `load_causal_lm` read."""
    if not model.decoder.fields:
        raise ValueError(
            "the model was not read from a config.json, or has another encoding: Hugging Face has "
            "no class for it; write a checkpoint"
        )
    fields = json.loads(model.decoder.fields)
    family = DECODERS[fields["model_type"]]
    tensors = huggingface.tensors_of(
        model,
        names_there(family, model.decoder.config),
        prefix=family.prefix,
        heads=(f"{family.modules['head.output']}.",),
    )
    fields |= {name: "float32" for name in ("dtype", "torch_dtype") if name in fields}
    return fields, tensors


def _loaded(
    family: Family,
    where: Path,
    given: Fields,
    tensors: Tensors,
    names: Names | None,
    encoding: Encoding | LayerPattern | None,
    options: Fields,
) -> CausalLM:
    """The model of fields and tensors, as a directory of Hugging Face has them."""
    fields = checked_fields(family, where, given)
    huggingface.check_sizes(where, fields, family.defaults, tensors)
    config = dataclasses.replace(config_of(family, where, fields), **options)
    own = own_encoding(family, where, fields, config)
    if tied := config.tie_embeddings:  # a head with biases, and with the embeddings for a matrix
        config = dataclasses.replace(config, tie_embeddings=not config.has_bias("head"))
    named = names_there(family, config) if names is None else names(config)
    head = next(name.theirs for name in named if name.ours == "output.kernel")
    tokens = next(name.theirs for name in named if name.ours.endswith("tokens.embedding"))
    if head not in tensors.files and not tied:
        raise InputError(
            f"{where}: tie_word_embeddings is False, and {tensors.directory} has no {head}: fetch "
            "the file again, or set it to True"
        )
    if not config.tie_embeddings and tokens in tensors.files:
        tensors = tensors._replace(files={head: tensors.files[tokens]} | tensors.files)
    unused = {head} if config.tie_embeddings else set()
    if encoding is not None:
        positions = [name for name in named if "encoding_params" in name.ours]
        named = tuple(name for name in named if name not in positions)
        unused |= {name.theirs for name in positions}

    def model() -> CausalLM:
        chosen = own if encoding is None else encoding
        return CausalLM(Decoder(config, encoding=chosen, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(0))

    def others(name: str) -> bool:
        return name in unused or bool(_BUFFERS.search(name))

    loaded = huggingface.fill(model, named, tensors, others=others)
    if tied:  # versions of transformers differ in which of the two they take
        remedy = "tie_word_embeddings is True; set it to False, or take one of them out"
        huggingface.check_tied(tensors, head, tokens, remedy=remedy)
    if encoding is None and "encoding_params.table" in family.modules:
        loaded.decoder.length = fields["max_position_embeddings"]
    return loaded


def names_there(
    family: Family, config: TransformerConfig, trunk: str = "decoder"
) -> tuple[TensorName, ...]:
    """Names in a directory of Hugging Face."""
    how = {"transposed": family.transposed, "plus": family.plus, "first_norm": config.first_norm}
    return tensor_names(family.modules, trunk, heads=config.num_heads, **how)


def checked_fields(family: Family, where: Path, given: Fields) -> Fields:
    """Fields under their common names with defaults filled in, checked."""
    fields = dict(given)
    for theirs, common in family.renamed.items():
        if given.get(theirs) is not None:
            fields[common] = given[theirs]
    fields = {k: v for k, v in fields.items() if v is not None or k in huggingface.NULLABLE}
    fields = family.defaults | fields
    allowed = {k: v for k, v in UNUSUAL.items() if k not in family.defaults}
    truths = {k: (False, True) for k, v in family.defaults.items() if isinstance(v, bool)}
    gated = any(name.endswith("mlp.gate") for name in family.modules)
    acts = {"hidden_act": tuple(GATED if gated else PLAIN)}
    huggingface.check_fields(where, fields, {**allowed, **truths, **acts, **family.allowed})
    if "num_local_experts" in family.defaults and given.get("moe_layers") != []:
        raise InputError(
            f"{where}: moe_layers is {reprlib.repr(given.get('moe_layers'))}, layers of experts, "
            "which are not supported; only [] is"
        )
    fields |= huggingface.checked_numbers(where, fields, family.defaults)
    equal = {name: (fields[other],) for name, other in family.same.items()}
    huggingface.check_fields(where, fields, equal)
    _check_layers(family, where, fields)
    _check_rope(where, fields)
    if "partial_rotary_factor" not in family.defaults:
        fields.pop("partial_rotary_factor", None)
    return fields


def _check_layers(family: Family, where: Path, fields: Fields) -> None:
    """Raise where lists of layers are not one entry for each layer."""
    local = "chunked" if "attention_chunk_size" in family.defaults else "sliding"
    entries = {"layer_types": ("full_attention", f"{local}_attention"), "no_rope_layers": (0, 1)}
    for name, allowed in entries.items():
        values = fields.get(name)
        if name not in family.defaults or not values:
            continue
        layers = fields["num_hidden_layers"]
        fits = isinstance(values, list) and len(values) == layers
        if not fits or any(value not in allowed for value in values):
            raise InputError(
                f"{where}: {name} is {reprlib.repr(values)}; pass a list of {layers}, one a layer, "
                f"of {' and '.join(map(repr, allowed))}"
            )


def config_of(family: Family, where: Path, fields: Fields) -> TransformerConfig:
    """Our configuration of the fields of a config.json."""
    common = {ours: fields[theirs] for theirs, ours in _FIELDS.items()}
    try:
        return TransformerConfig(
            **common, **{"embedding_scale": fields["initializer_range"], **family.options(fields)}
        )
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error


def own_encoding(
    family: Family, where: Path, fields: Fields, config: TransformerConfig
) -> Encoding | LayerPattern:
    """The encoding of a config.json, of today or with a `rope_scaling`."""
    try:
        with np.errstate(all="ignore"):  # what is not finite is found by the check
            encoding = family.encoding(fields, config)
            for kind in rope_kinds(fields):
                _check_phases(rope_entry(fields, kind), fields, config.head_width)
    except (TypeError, ValueError, ArithmeticError) as error:
        entry = reprlib.repr(fields.get("rope_parameters") or fields.get("rope_scaling"))
        raise InputError(f"{where}: rope_parameters {entry}: {error}") from error
    return encoding


def _check_rope(where: Path, fields: Fields) -> None:
    """Raise where the entries of RoPE are not known, or their values not of their types."""
    kinds = rope_kinds(fields)
    for name in ("rope_parameters", "rope_scaling") if kinds else ():
        entry = from_json(dict[str, Any], fields.get(name, {}), place=f"{where}: {name}")
        nested = {kind: entry[kind] for kind in kinds if kind in entry}
        if not nested:
            _check_entry(f"{where}: {name}", entry)
        for kind, inner in nested.items():
            place = f"{where}: {name}.{kind}"
            _check_entry(place, from_json(dict[str, Any], inner or {}, place=place))
        if entry:
            break


def _check_entry(place: str, entry: Fields) -> None:
    if entry.get("mrope_section") is not None:
        raise InputError(f"{place} has mrope_section, and positions of a text are single")
    known = {key: value for key, value in entry.items() if value is not None}
    if others := sorted(known.keys() - PARAMETER_KINDS.keys() - {"mrope_interleaved"}):
        raise InputError(f"{place} has {huggingface.listed(others)}, which is not known")
    for key in known.keys() & PARAMETER_KINDS.keys():
        from_json(PARAMETER_KINDS[key], known[key], place=f"{place}.{key}")
    given = {"rope_theta": known.get("rope_theta")}
    huggingface.checked_numbers(Path(place), given, dict.fromkeys(given))


def _check_phases(entry: Fields, fields: Fields, head_dim: int) -> None:
    """Raise where turning by this entry makes what is not finite in float32."""
    positions = fields["max_position_embeddings"]
    arguments = rope_arguments(entry, max_position_embeddings=positions)
    frequencies = rope_frequencies(head_dim=head_dim, length=positions, **arguments)
    # Logits carry the square of the factor.
    numbers = [*np.asarray(frequencies.inverse) * positions, frequencies.attention_factor**2]
    if not np.isfinite(np.asarray(numbers, np.float32)).all():
        raise ValueError("angles or logits of it are not finite numbers")


def _another_family(where: Path, kind: Any, tensors: Tensors) -> str:
    """Message about a model of an unknown family: the nearest known one, and the differences."""
    there = {re.sub(r"(^|\.)\d+\.", r"\1*.", name) for name in tensors.files}
    there = {name for name in there if not _BUFFERS.search(name)}

    def names_of(family: Family) -> set[str]:
        named = tensor_names(family.modules, "decoder", heads=1)
        return {name.theirs.format(layer="*") for name in named if name.theirs.endswith("weight")}

    def apart(family: Family) -> int:
        own = names_of(family)
        return len(own ^ there)

    nearest = min(DECODERS.values(), key=apart)
    own, said = names_of(nearest), f"{where}: model_type is {reprlib.repr(kind)}; "
    said += f"{', '.join(DECODERS)} are what can be read. By its tensors {nearest.model_type} is "
    said += "nearest"
    if absent := sorted(own - there - {f"{nearest.modules['head.output']}.weight"}):
        return f"{said}, and there is no {huggingface.listed(absent)}"
    if beyond := sorted(there - own):
        return f"{said}. Beyond it there is {huggingface.listed(beyond)}"
    return (
        f"{said}, and has the same: where nothing else differs, write model_type "
        f"{nearest.model_type!r} into a copy of the file"
    )
