"""Decoders: loading from a .gguf file or a Hugging Face directory, and export to a directory."""

import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

from flax import nnx

from jaxpe._core.errors import InputError
from jaxpe.nn.checkpoints.architecture import DECODERS, Architecture, Fields, text_fields
from jaxpe.nn.checkpoints.encodings import model_encoding, read_plans, table_length
from jaxpe.nn.checkpoints.gguf_weights import Names, gguf_file, read_gguf_model
from jaxpe.nn.checkpoints.model_config import (
    architecture_of_fields,
    check_sizes,
    checked_fields,
    model_config,
    read_config,
)
from jaxpe.nn.checkpoints.tensors import (
    Tensors,
    check_head,
    check_tied,
    load_parameters,
    open_tensors,
)
from jaxpe.nn.heads import CausalLM
from jaxpe.nn.transformer import Decoder

# Masks and frequencies that a file may have in addition to parameters.
_BUFFERS = re.compile(r"(^|\.)(attn\.|attention\.)(masked_)?bias$|inv_freq$")
# Tensors of images and sound, and of layers for speculation, in a model of text and images.
_NO_TEXT = re.compile(r"(vision_|visual\.|audio_|embed_(vision|audio)\.|multi_modal_|mtp\.)")


def load_causal_lm(path: str | os.PathLike, **overrides: Any) -> CausalLM:
    """Load a released decoder with its language-model head.

    Architectures: `jaxpe/nn/checkpoints/decoders.toml` has a row for each, such as Llama, Mistral,
    Qwen 3, Gemma 3, OLMo, Phi, Granite, Command R, GLM, EXAONE and GPT. The error for another one
    names all. `jaxpe inspect` runs others, such as mixtures of experts, through PyTorch. Queries
    and keys of a .gguf are converted to Hugging Face's pairing; its quantised tensors become
    floats, by the package `gguf` (an extra). Of a model of text and images, such as Gemma 3, the
    part for text is loaded. An unknown tensor, or an unsupported field that changes the
    computation, is an error.

    Args:
        path: .gguf file, folder with one, or Hugging Face directory with config.json, and
            model.safetensors or its shards.
        **overrides: fields of `TransformerConfig`, as for `Bert.load`. By default, one block is
            compiled and looped over.

    Raises:
        InputError: a file that cannot be read, another architecture, or an unsupported
            computation. The message names the field, or every tensor by its name without prefix.

    >>> jaxpe.nn.load_causal_lm("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere does not exist: pass a .gguf file, a folder with one, or ...
    """
    path = Path(path)
    if (file := gguf_file(path)) is not None:
        architecture, fields, tensors, names = read_gguf_model(file)
        return _load(architecture, file, fields, tensors, names, overrides)
    config = path / "config.json"
    if not os.path.isfile(config):
        raise InputError(f"{path} has neither a .gguf file nor config.json")
    whole = read_config(config)
    stored = text_fields(whole)
    architecture = architecture_of_fields(config, stored, DECODERS)
    with open_tensors(path, architecture.prefix) as tensors:
        model = _load(architecture, config, stored, tensors, None, overrides)
    model.decoder.fields = json.dumps(whole)
    return model


def _load(
    architecture: Architecture,
    path: Path,
    stored: Fields,
    tensors: Tensors,
    names: Names | None,
    overrides: Fields,
) -> CausalLM:
    """Model from fields and tensors; by default with Hugging Face's names of tensors."""
    fields = checked_fields(architecture, path, stored)
    check_sizes(architecture, path, fields, tensors)
    config = model_config(architecture, path, fields, overrides, scan=True, dropout=0.0)
    positions = model_encoding(architecture, fields, config, read_plans(path, architecture))
    if tied := config.tie_embeddings:  # a tied head with biases becomes a layer of its own
        config = dataclasses.replace(config, tie_embeddings=not config.has_bias("head"))
    named = architecture.tensor_names("decoder", config) if names is None else names(config)
    by_path = {name.param_path: name.checkpoint_name for name in named}
    head, tokens = by_path["output.kernel"], by_path["decoder.tokens.embedding"]
    check_head(path, tensors, head, tied=tied)
    if not config.tie_embeddings and tokens in tensors.files:
        tensors = tensors._replace(files={head: tensors.files[tokens]} | tensors.files)
    unused = {head} if config.tie_embeddings else set()

    def model() -> CausalLM:
        return CausalLM(Decoder(config, encoding=positions, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(0))

    def ignored(name: str) -> bool:
        return name in unused or bool(_BUFFERS.search(name) or _NO_TEXT.match(name))

    loaded = load_parameters(model, named, tensors, ignored=ignored)
    if tied:  # versions of transformers use one or the other tensor
        remedy = "tie_word_embeddings is True; set it to False, or remove one of the tensors"
        check_tied(tensors, head, tokens, remedy=remedy)
    if "encoding_params.table" in architecture.modules:
        loaded.decoder.length = table_length(fields)
    return loaded
