"""T5 in Hugging Face directories."""

import dataclasses
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

from flax import nnx

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import from_json
from jaxpe.encodings import Encoding, identity, t5
from jaxpe.nn.checkpoints.architecture import Architecture, Fields, architectures
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
from jaxpe.nn.config import TransformerConfig
from jaxpe.nn.encoder_decoder import EncoderDecoder
from jaxpe.nn.heads import Seq2SeqLM
from jaxpe.nn.transformer import Decoder, Encoder

ENCODER_DECODERS = architectures("encoder_decoder")
_HEAD, _SHARED = "lm_head.weight", "shared.weight"
# Copies of the one table of embeddings, and a bias that no version of T5 reads.
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


def load_seq2seq_lm(directory: str | os.PathLike, **overrides: Any) -> Seq2SeqLM:
    """Load T5 (Raffel et al. 2020) with its head: versions 1.0, 1.1, Flan and mT5.

    Each side has T5's bias, with one table for all its layers; cross-attention has no positions.
    Attention logits are not scaled. T5 1.0 multiplies hidden states by 1/√dim before the head; 1.1,
    Flan and mT5 do not. The decoder's first token is `decoder_start_token_id` of the config.json, 0
    in released models; pass it to `generate` as `start_id`.

    Args:
        directory: Hugging Face directory with config.json, and model.safetensors or its shards.
        **overrides: fields of `TransformerConfig`, as for `Bert.load`. By default, one block is
            compiled and looped over.

    Raises:
        InputError: a directory that cannot be read, another architecture, or an unsupported
            computation. The message names the field, or every tensor.

    >>> jaxpe.nn.load_seq2seq_lm("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere has no config.json: pass the directory of a T5
    """
    path = Path(directory) / "config.json"
    if not os.path.isfile(path):
        raise InputError(f"{directory} has no config.json: pass the directory of a T5")
    stored = read_config(path)
    architecture, fields = _t5_fields(path, stored)
    with open_tensors(directory, architecture.prefix) as tensors:
        check_sizes(architecture, path, fields, tensors)
        tied = _is_tied(path, fields, tensors)
        rates = {"dropout": 0.0, "attention_dropout": fields["dropout"]}
        head = {"logit_scale": _logit_scale(fields), "tie_embeddings": tied}
        config = model_config(architecture, path, fields, overrides, scan=True, **rates, **head)
        make = partial(_model, config, fields, _biases(path, fields))

        def ignored(name: str) -> bool:
            return name in (*_COPIES, _UNUSED) or (tied and name == _HEAD)

        names = architecture.tensor_names("transformer", config)
        model = load_parameters(make, names, tensors, ignored=ignored)
    for side in (model.transformer.encoder, model.transformer.decoder):
        side.fields = json.dumps(stored)
    return model


def _model(
    config: TransformerConfig, fields: Fields, biases: tuple[Encoding, Encoding]
) -> Seq2SeqLM:
    """T5 with initial parameters."""
    encoder = Encoder(config, encoding=biases[0], rngs=nnx.Rngs(0))
    options: Any = {"encoding": biases[1], "cross_encoding": identity()}
    config = dataclasses.replace(config, num_layers=fields["num_decoder_layers"])
    decoder = Decoder(config, **options, rngs=nnx.Rngs(0))
    return Seq2SeqLM(EncoderDecoder(encoder, decoder), rngs=nnx.Rngs(0))


def _logit_scale(fields: Fields) -> float:
    """Factor of hidden states at the head: 1/√dim in T5 1.0."""
    scaled = fields.get("scale_decoder_outputs", fields["tie_word_embeddings"])
    scaled = scaled and fields["model_type"] != "mt5"  # the class of mT5 never scales
    return fields["hidden_size"] ** -0.5 if scaled else 1.0


def _t5_fields(path: Path, stored: Fields) -> tuple[Architecture, Fields]:
    """Architecture, and checked fields under their common names."""
    architecture = architecture_of_fields(path, stored, ENCODER_DECODERS)
    # transformers also stores dense_act_fn and is_gated_act, but reads feed_forward_proj alone.
    projection = stored.get("feed_forward_proj") or architecture.defaults["hidden_act"]
    gate, _, activation = str(projection).rpartition("-")
    activation = "gelu_new" if projection == "gated-gelu" else activation
    consistent = {"dense_act_fn": [activation], "is_gated_act": [gate == "gated"]}
    allowed = {**architecture.allowed, **consistent}
    fields = checked_fields(architecture._replace(allowed=allowed), path, stored)
    if fields["num_decoder_layers"] is None:
        fields["num_decoder_layers"] = fields["num_hidden_layers"]
    if "scale_decoder_outputs" in fields:
        from_json(bool, fields["scale_decoder_outputs"], where=f"{path}: scale_decoder_outputs")
    return architecture, fields


def _is_tied(path: Path, fields: Fields, tensors: Tensors) -> bool:
    """Whether the head is tied to the embeddings; raises if file and configuration disagree."""
    for copy in _COPIES:
        remedy = "the sides have one table of embeddings in T5; fetch the file again"
        check_tied(tensors, copy, _SHARED, remedy=remedy)
    check_head(path, tensors, _HEAD, tied=fields["tie_word_embeddings"])
    if _HEAD not in tensors.files:
        return True
    # transformers 5 writes True for every T5, together with `scale_decoder_outputs`. For mT5 it
    # writes True alone, but uses a separate head of the file.
    ambiguous = "scale_decoder_outputs" in fields or fields["model_type"] == "mt5"
    if fields["tie_word_embeddings"] and not ambiguous:
        remedy = "tie_word_embeddings is True; set it to False, or remove one of the tensors"
        check_tied(tensors, _HEAD, _SHARED, remedy=remedy)
        return True
    return False


def _biases(path: Path, fields: Fields) -> tuple[Encoding, Encoding]:
    """T5's bias of each side; only the encoder has buckets for keys after the query."""
    sizes = {
        "num_heads": fields["num_attention_heads"],
        "num_buckets": fields["relative_attention_num_buckets"],
        "max_distance": fields["relative_attention_max_distance"],
    }
    try:
        return t5(**sizes), t5(**sizes, bidirectional=False)
    except ValueError as error:
        raise InputError(f"{path}: relative_attention_num_buckets: {error}") from error
