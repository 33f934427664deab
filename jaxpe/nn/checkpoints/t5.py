"""T5, from and to directories of Hugging Face."""

import dataclasses
import json
import os
import reprlib
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import from_json
from jaxpe.encodings import Encoding, identity, t5
from jaxpe.nn.attention import encoding_parameters
from jaxpe.nn.checkpoints import huggingface
from jaxpe.nn.checkpoints.huggingface import Fields, Tensors
from jaxpe.nn.config import AttentionPath, TransformerConfig
from jaxpe.nn.encoder_decoder import EncoderDecoder
from jaxpe.nn.heads import Seq2SeqLM
from jaxpe.nn.layers import is_gated
from jaxpe.nn.transformer import Decoder, Encoder

_HEAD, _SHARED = "lm_head.weight", "shared.weight"
# Copies of the one table of embeddings, and a bias that no version of T5 reads.
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
_ALLOWED = {"quantization_config": (), "is_encoder_decoder": (True,), "is_decoder": (False,)}


def load_seq2seq_lm(
    directory: str | os.PathLike,
    *,
    encoding: Encoding | None = None,
    decoder_encoding: Encoding | None = None,
    dtype: Any = jnp.float32,
    param_dtype: Any = jnp.float32,
    attention: AttentionPath = "xla",
    dropout: float = 0.0,
    scan: bool = True,
    remat: bool = False,
) -> Seq2SeqLM:
    """T5 (Raffel et al. 2020) with its head, in any of its versions: 1.0, 1.1, Flan, mT5.

    Each side has T5's bias, one table for all its layers; cross-attention has no positions. Logits
    of attention are not scaled. The head of T5 1.0 takes hidden states times 1/√dim, those of T5
    1.1, Flan and mT5 do not. The decoder's first token is `decoder_start_token_id` of the
    config.json, 0 in released models; `generate` takes it as `start_id`.

    Args:
        directory: Hugging Face directory: config.json, and model.safetensors or its shards.
        encoding: encoding in place of the encoder's bias; its parameters begin as `nnx.Rngs(0)`
            draws them.
        decoder_encoding: encoding in place of that of the decoder's self-attention.
        dtype, param_dtype, attention, dropout, scan, remat: fields of `TransformerConfig`, but one
            block is compiled for all layers unless scan is False.

    Raises:
        InputError: for a directory that cannot be read, is of another architecture, or asks for a
            computation that is not here; the message names the field or every tensor.

    >>> jaxpe.nn.load_seq2seq_lm("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere has no config.json: pass the directory of a T5
    """
    config = Path(directory) / "config.json"
    if not os.path.isfile(config):
        raise InputError(f"{directory} has no config.json: pass the directory of a T5")
    given = huggingface.read_config(config)
    fields = _checked_fields(config, given)
    options: Any = {"dtype": dtype, "param_dtype": param_dtype, "attention": attention}
    options |= {"dropout": dropout, "scan": scan, "remat": remat}
    with huggingface.open_tensors(directory, "") as tensors:
        _check_sizes(config, fields, tensors)
        tied = _is_tied(config, fields, tensors)
        sides = tuple(
            dataclasses.replace(side, **options) for side in _configs(config, fields, tied)
        )
        made = _made(sides, _biases(config, fields))
        names = huggingface.t5_names(gated=is_gated(sides[0].activation))
        files = _files(tensors, {n.theirs for n in names}, sides)
        model = huggingface.fill(made, names, tensors._replace(files=files))
    model.fields = json.dumps(given)
    for side, other in (("encoder", encoding), ("decoder", decoder_encoding)):
        if other is not None:
            _replace_encoding(getattr(model.transformer, side), other)
            model.fields = ""
    return model


def t5_tensors(model: Seq2SeqLM) -> tuple[Fields, dict[str, np.ndarray]]:
    """Fields of a config.json and tensors of a T5 that `load_seq2seq_lm` has read.

    Raises:
        ValueError: for another model, which Hugging Face has no class for.
    """
    if not model.fields:
        raise ValueError(
            "Hugging Face has no class for this encoder–decoder: pass a T5 of load_seq2seq_lm with "
            "its own encodings, or write a checkpoint"
        )
    gated = is_gated(model.transformer.encoder.config.activation)
    fields = json.loads(model.fields)
    fields |= {name: "float32" for name in ("dtype", "torch_dtype") if name in fields}
    fields["architectures"] = [fields["model_type"].upper() + "ForConditionalGeneration"]
    return fields, huggingface.tensors_of(model, huggingface.t5_names(gated=gated))


def _checked_fields(where: Path, given: Fields) -> Fields:
    """Fields with defaults filled in, checked; those that are not known do not matter."""
    kind = given.get("model_type")
    if not isinstance(kind, str) or kind not in huggingface.T5_DEFAULTS:
        known = " and ".join(huggingface.T5_DEFAULTS)
        raise InputError(
            f"{where}: model_type is {reprlib.repr(kind)}; {known} are the encoder–decoders that "
            "can be read"
        )
    allowed = {**_ALLOWED, "feed_forward_proj": tuple(huggingface.T5_ACTIVATIONS)}
    huggingface.check_fields(where, given, allowed)
    defaults = huggingface.T5_DEFAULTS[kind]
    fields = defaults | {name: value for name, value in given.items() if value is not None}
    # Stored beside `feed_forward_proj`, before which transformers takes them.
    gate, _, act = str(fields["feed_forward_proj"]).rpartition("-")
    act = "gelu_new" if (gate, act) == ("gated", "gelu") else act
    stored = {"dense_act_fn": (act,), "is_gated_act": (gate == "gated",)}
    huggingface.check_fields(where, given, stored)
    if fields["num_decoder_layers"] is None:
        fields["num_decoder_layers"] = fields["num_layers"]
    for name in ("tie_word_embeddings", "scale_decoder_outputs"):
        from_json(bool, fields.get(name, True), place=f"{where}: {name}")
    return fields | huggingface.checked_numbers(where, fields, defaults)


def _check_sizes(where: Path, fields: Fields, tensors: Tensors) -> None:
    """Raise where sizes are beyond what the tensors can have, before anything is made of them."""
    axes = (size for name in tensors.files for size in tensors.shape(name))
    longest, count = max(axes, default=0), len(tensors.files)
    bounds = dict.fromkeys(("num_layers", "num_decoder_layers"), count)
    for name in ("vocab_size", "d_model", "d_kv", "d_ff", "num_heads"):
        bounds[name] = longest
    bounds["relative_attention_num_buckets"] = longest
    for name, most in bounds.items():
        if fields[name] > most:
            raise InputError(
                f"{where}: {name} is {fields[name]}, which is more than {tensors.directory} has: "
                f"{count} tensors, the longest axis {longest}"
            )


def _is_tied(where: Path, fields: Fields, tensors: Tensors) -> bool:
    """Whether the head is the table of embeddings; the file and its configuration must agree."""
    for copy in _COPIES:
        remedy = "the sides have one table of embeddings in T5; fetch the file again"
        huggingface.check_tied(tensors, copy, _SHARED, remedy=remedy)
    if _HEAD not in tensors.files:
        if fields["tie_word_embeddings"]:
            return True
        raise InputError(
            f"{where}: tie_word_embeddings is False, and {tensors.directory} has no {_HEAD}: fetch "
            "the file again, or set it to True"
        )
    # transformers 5 writes True for every T5, and beside it whether the head's input is scaled. For
    # mT5 it writes True alone, and takes a head of the file that differs.
    told = "scale_decoder_outputs" in fields or fields["model_type"] == "mt5"
    if fields["tie_word_embeddings"] and not told:
        remedy = "tie_word_embeddings is True; set it to False, or take one of them out"
        huggingface.check_tied(tensors, _HEAD, _SHARED, remedy=remedy)
        return True
    return False


def _configs(where: Path, fields: Fields, tied: bool) -> tuple[TransformerConfig, ...]:
    """Our configurations of both sides."""
    own = {ours: fields[theirs] for theirs, ours in huggingface.T5_FIELDS.items()}
    scaled = fields.get("scale_decoder_outputs", fields["tie_word_embeddings"])
    scaled = scaled and fields["model_type"] != "mt5"  # whose class never scales
    try:
        encoder = TransformerConfig(
            **own,
            activation=huggingface.T5_ACTIVATIONS[fields["feed_forward_proj"]],
            norm="rms",
            use_bias=False,
            attention_scale=1.0,
            attention_dropout=fields["dropout_rate"],
            tie_embeddings=tied,
            logit_scale=fields["d_model"] ** -0.5 if scaled else 1.0,
        )
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error
    return encoder, dataclasses.replace(encoder, num_layers=fields["num_decoder_layers"])


def _biases(where: Path, fields: Fields) -> tuple[Encoding, Encoding]:
    """The bias of each side; keys behind the query have buckets in the encoder alone."""
    sizes = {
        "num_heads": fields["num_heads"],
        "num_buckets": fields["relative_attention_num_buckets"],
        "max_distance": fields["relative_attention_max_distance"],
    }
    try:
        return t5(**sizes), t5(**sizes, bidirectional=False)
    except ValueError as error:
        raise InputError(f"{where}: relative_attention_num_buckets: {error}") from error


def _made(sides: tuple[TransformerConfig, ...], biases: tuple[Encoding, ...]) -> Any:
    """A function that makes the model."""
    encoder, decoder = sides

    def make() -> Seq2SeqLM:
        one = Encoder(encoder, encoding=biases[0], rngs=nnx.Rngs(0))
        options: Any = {"encoding": biases[1], "cross_encoding": identity()}
        other = Decoder(decoder, **options, rngs=nnx.Rngs(0))
        return Seq2SeqLM(EncoderDecoder(one, other), rngs=nnx.Rngs(0))

    return make


def _files(tensors: Tensors, known: set[str], sides: tuple[TransformerConfig, ...]) -> Any:
    """Files of the tensors that are read; raises for one that takes part in another computation."""
    most = max(side.num_layers for side in sides)
    names = {name.format(layer=i) for name in known for i in range(most)}
    names |= {*_COPIES, _HEAD, _UNUSED}
    if others := sorted(tensors.files.keys() - names):
        stored = huggingface.listed(tensors.files[name][1] for name in others)
        raise InputError(f"{tensors.directory}: nothing is known of the tensors {stored}")
    return {k: v for k, v in tensors.files.items() if k not in (*_COPIES, _UNUSED)}


def _replace_encoding(side: Any, encoding: Encoding) -> None:
    if encoding.defines("context"):
        raise ValueError("the encoding depends on the hidden states of its layer: pass another")
    side.encoding = nnx.static(encoding)
    side.encoding_params = encoding_parameters(side.config, encoding, rngs=nnx.Rngs(0))
