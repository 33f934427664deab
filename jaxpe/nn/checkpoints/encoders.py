"""Encoders in Hugging Face directories, by the rows of `encoders.toml`."""

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Int

from jaxpe._core.arrays import ArrayLike
from jaxpe._core.errors import InputError
from jaxpe.encodings import Encoding, LayerPattern, identity
from jaxpe.nn.checkpoints.architecture import (
    ARCHITECTURES,
    Architecture,
    Fields,
    TensorName,
    row_name,
)
from jaxpe.nn.checkpoints.bert import BertEncoder, BertOutput, MPNetEncoder
from jaxpe.nn.checkpoints.decoders import causal_lm_tensors
from jaxpe.nn.checkpoints.encoder_decoders import seq2seq_lm_tensors
from jaxpe.nn.checkpoints.encodings import model_encoding
from jaxpe.nn.checkpoints.fields import (
    check_sizes,
    float32_fields,
    model_config,
    read_fields,
    stored_fields,
)
from jaxpe.nn.checkpoints.tensors import (
    Tensors,
    check_masked_lm_head,
    load_parameters,
    open_tensors,
    stored_tensors,
    write_directory,
)
from jaxpe.nn.config import TransformerConfig
from jaxpe.nn.heads import CausalLM, Classifier, MaskedLM, Seq2SeqLM, pooled
from jaxpe.nn.layers import dense
from jaxpe.nn.transformer import Encoder
from jaxpe.nn.warm_start import replace_encoding

_BUFFERS = re.compile(r"(position_ids|token_type_ids|inv_freq)$")


class Bert(nnx.Module):
    """BERT: an encoder with an optional pooler.

    Heads take the encoder like any other:
    `Classifier(bert.encoder, pooler=bert.pooler, num_classes=2, rngs=rngs)`.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(
    ...     vocab_size=50, dim=16, num_layers=1, num_heads=2, norm_position="post")
    >>> encoder = jaxpe.nn.BertEncoder(config, length=7, rngs=nnx.Rngs(0))
    >>> output = jaxpe.nn.Bert(encoder, rngs=nnx.Rngs(1))(jnp.zeros((4, 7), int))
    >>> output.hidden.shape, output.pooled.shape
    ((4, 7, 16), (4, 16))
    """

    model_type: ClassVar[str] = "bert"

    def __init__(self, encoder: BertEncoder, *, pooler: bool = True, rngs: nnx.Rngs):
        config = encoder.config
        self.encoder = encoder
        self.pooler = dense(config, config.dim, config.dim, rngs=rngs) if pooler else None

    def __call__(self, ids: Int[ArrayLike, "... n"], **options: Any) -> BertOutput:
        """Hidden states and the pooled first token; options are the transformer's."""
        below = self.encoder(ids, **options)
        if self.pooler is None:
            return BertOutput(None, below)
        return BertOutput(jnp.tanh(self.pooler(pooled(below.hidden, pooling="first"))), below)

    @classmethod
    def load(
        cls, directory: str | os.PathLike, *, encoding: Encoding | None = None, **overrides: Any
    ) -> "Bert":
        """Load a Hugging Face directory: config.json, and model.safetensors or its shards.

        Parameters are float32 or `param_dtype`, for any dtype of the file. The model has a pooler
        if the file has one; other heads are ignored (`load_masked_lm` and `load_classifier` load
        them). Nothing is unpickled. An unknown tensor of the encoder is an error, since it would
        change the computation.

        Args:
            directory: Hugging Face directory, not a name on the hub.
            encoding: encoding that replaces the model's positions, and MPNet's bias, such as
                `jaxpe.rope(head_dim=64)`; initialised by `nnx.Rngs(0)`.
            **overrides: fields of `TransformerConfig` that do not affect the weights: dtype,
                param_dtype, dropout, attention_dropout, attention, scan and remat.

        Raises:
            InputError: a directory that cannot be read, another architecture, an unsupported
                computation, or another override. The message names every tensor that does not fit.

        >>> jaxpe.nn.Bert.load("nowhere")
        Traceback (most recent call last):
        jaxpe.InputError: nowhere is not a directory: pass one with config.json and ...
        """

        def make(encoder: Any, tensors: Tensors) -> Bert:
            architecture = encoder.architecture
            if architecture.model_type != cls.model_type:
                other = next(c for c in (Bert, MPNet) if c.model_type != cls.model_type)
                raise InputError(
                    f"{directory} has model_type {other.model_type!r}: use {other.__name__}.load"
                )
            pooler = f"{architecture.modules['pooler.pooler']}.weight" in tensors.files
            return cls(encoder, pooler=pooler, rngs=nnx.Rngs(0))

        return _load(directory, make, encoding, overrides, kinds=("bert",), head="pooler")

    def save(
        self, directory: str | os.PathLike, *, source: str | os.PathLike | None = None
    ) -> None:
        """Write a Hugging Face directory, as `save_huggingface` does."""
        save_huggingface(self, directory, source=source)


class MPNet(Bert):
    """MPNet: an `MPNetEncoder` with an optional pooler.

    >>> jaxpe.nn.MPNet.load("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere is not a directory: pass one with config.json and ...
    """

    model_type = "mpnet"


def load_masked_lm(
    directory: str | os.PathLike, *, encoding: Encoding | None = None, **overrides: Any
) -> MaskedLM:
    """Load a masked language model, such as BERT, MPNet, RoBERTa, ModernBERT or ESM-2.

    Arguments are as in `Bert.load`; `encoding` is for BERT and MPNet alone.

    Raises:
        InputError: errors of `Bert.load`; a missing head, or a head that is not tied to the token
            embeddings.

    >>> jaxpe.nn.load_masked_lm("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere is not a directory: pass one with config.json and ...
    """

    def make(encoder: Encoder, tensors: Tensors) -> MaskedLM:
        if isinstance(encoder, MPNetEncoder) and encoder.config.activation != "gelu":
            raise InputError(f"{directory}: the head of MPNet has GELU: set hidden_act to gelu")
        return MaskedLM(encoder, rngs=nnx.Rngs(0))

    return _load(directory, make, encoding, overrides)


def load_classifier(
    directory: str | os.PathLike, *, encoding: Encoding | None = None, **overrides: Any
) -> Classifier:
    """Load a sequence classifier, BERT or MPNet, with its head.

    Arguments are as in `Bert.load`. For a new head on a pretrained model, build `Classifier` on
    `Bert.load(directory).encoder`.

    Raises:
        InputError: errors of `Bert.load`; a missing head.

    >>> jaxpe.nn.load_classifier("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere is not a directory: pass one with config.json and ...
    """

    def make(encoder: Any, tensors: Tensors) -> Classifier:
        # A missing bias of the classes is reported by `load_parameters`.
        bias = f"{encoder.architecture.modules['classifier.output']}.bias"
        classes = math.prod(tensors.shape(bias)) if bias in tensors.files else 1
        return Classifier(encoder, num_classes=max(classes, 1), pooler=True, rngs=nnx.Rngs(0))

    return _load(directory, make, encoding, overrides, kinds=("bert",), head="classifier")


def load_encoder(directory: str | os.PathLike, **overrides: Any) -> Encoder:
    """Load an encoder without its head, such as RoBERTa, ModernBERT, ESM-2 or EmbeddingGemma."""
    return _load(directory, lambda encoder, tensors: encoder, None, overrides, head="")


def save_huggingface(
    model: Bert | Encoder | MaskedLM | Classifier | CausalLM | Seq2SeqLM,
    directory: str | os.PathLike,
    *,
    source: str | os.PathLike | None = None,
) -> None:
    """Write config.json and model.safetensors in Hugging Face's format, as float32.

    Fields of the config.json that the model was loaded with are kept, unless the model determines
    them.

    Args:
        model: model on a `BertEncoder` or an `MPNetEncoder`, or loaded from a Hugging Face
            directory with its own encoding.
        directory: folder to write to; it is created if it does not exist.
        source: directory whose tokenizer files are copied.

    Raises:
        ValueError: a model that Hugging Face has no class for, such as one with another encoding.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> encoder = jaxpe.nn.Encoder(config, rngs=nnx.Rngs(0))
    >>> save_huggingface(jaxpe.nn.MaskedLM(encoder, rngs=nnx.Rngs(1)), "somewhere")
    Traceback (most recent call last):
    ValueError: Hugging Face has no class for a MaskedLM on Encoder: build it on a BertEncoder ...
    """
    if isinstance(model, Seq2SeqLM):
        fields, tensors = seq2seq_lm_tensors(model)
    elif isinstance(model, CausalLM):
        fields, tensors = causal_lm_tensors(model)
    else:
        fields, tensors = _encoder_tensors(model)
    write_directory(directory, fields, tensors, source=source)


def _load(
    directory: str | os.PathLike,
    make: Callable[[Any, Tensors], Any],
    encoding: Encoding | None,
    overrides: Fields,
    *,
    kinds: tuple[str, ...] = ("bert", "encoder"),
    head: str = "head",
) -> Any:
    """Model that `make` builds on the encoder of a directory, with the directory's parameters."""
    architecture, fields, stored = read_fields(directory, *kinds)
    if head == "head" and "head.bias" not in architecture.modules:
        raise InputError(
            f"{directory}: no masked language model of {architecture.title} is supported: load its "
            "encoder by load_encoder"
        )
    path, prefix = Path(directory, "config.json"), architecture.prefix
    rates = {"dropout": 0.0, "attention_dropout": 0.0} if architecture.kind == "encoder" else {}
    config = model_config(architecture, path, fields, overrides, tie_embeddings=True, **rates)
    names = architecture.tensor_names("encoder" if head else "", config, head=head)
    with open_tensors(directory, prefix) as tensors:
        check_sizes(architecture, path, fields, tensors)
        fields |= _stored_frequencies(fields, tensors) if architecture.positions == "esm" else {}
        encoder = _encoder_constructor(architecture, path, fields, config, stored, encoding)
        if encoding is not None:
            tensors = _non_positional_tensors(tensors, names)
        model = load_parameters(
            lambda: make(encoder(), tensors), names, tensors, ignored=_unused_tensor(architecture)
        )
        if isinstance(model, MaskedLM):
            check_masked_lm_head(
                path,
                fields.get("tie_word_embeddings"),
                tensors,
                bias=str(architecture.modules["head.bias"]),
                tokens=f"{architecture.modules['tokens']}.weight",
            )
        below = model.encoder if head else model
    if architecture.kind == "encoder":
        below.fields = json.dumps(stored)
        if below.encoding.defines("embed"):
            below.length = fields["max_position_embeddings"] - fields["pad_token_id"] - 1
    if encoding is not None:
        replace_encoding(below, encoding, rngs=nnx.Rngs(0))
    return model


def _stored_frequencies(fields: Fields, tensors: Tensors) -> Fields:
    """RoPE entry of the frequencies in the file of an ESM, which may be rounded to half precision.

    As transformers uses them; none where they are the usual ones.
    """
    name = next((n for n in tensors.files if n.endswith("rotary_embeddings.inv_freq")), None)
    if name is None:
        return {}
    frequencies = tensors.read(name, np.float64).ravel()
    usual = fields["rope_theta"] ** -(np.arange(frequencies.size) / frequencies.size)
    if np.allclose(frequencies, usual, rtol=1e-6, atol=0):
        return {}
    lists = dict.fromkeys(("short_factor", "long_factor"), (usual / frequencies).tolist())
    lists |= {"original_max_position_embeddings": fields["max_position_embeddings"]}
    return {"rope_parameters": {"rope_type": "longrope", "attention_factor": 1.0, **lists}}


def _encoder_constructor(
    architecture: Architecture,
    path: Path,
    fields: Fields,
    config: TransformerConfig,
    stored: Fields,
    encoding: Encoding | None,
) -> Callable[[], Encoder]:
    """Constructor of the encoder of a config.json."""
    if architecture.kind == "encoder":
        if encoding is not None:
            raise InputError(f"{path.parent}: `encoding` is for BERT and MPNet; leave it out")
        positions: Encoding | LayerPattern = model_encoding(architecture, path, fields, config)
        return lambda: Encoder(config, encoding=positions, rngs=nnx.Rngs(0))
    encoder_class = next(c for c in (BertEncoder, MPNetEncoder) if c.architecture is architecture)
    length = fields["max_position_embeddings"] - encoder_class.offset
    if length < 1:
        raise InputError(
            f"{path.parent}: max_position_embeddings is {fields['max_position_embeddings']}, but "
            f"tokens do not use the first {encoder_class.offset} rows: pass more"
        )
    # Another encoding is initialised after the file's parameters are read.
    options: Any = {"encoding": None if encoding is None else identity(), "fields": stored}
    return lambda: encoder_class(config, length=length, **options, rngs=nnx.Rngs(0))


def _unused_tensor(architecture: Architecture) -> Callable[[str], bool]:
    """Predicate of tensor names: tensors of heads and buffers, which an encoder does not use."""
    trunk = (path for path in architecture.modules if not path.startswith(_HEADS))
    roots = {_root(architecture.modules[path]) for path in trunk}

    # ESM with RoPE may still have a table.
    unused = ("embeddings.position_embeddings.weight",) if architecture.positions == "esm" else ()

    def ignored(name: str) -> bool:
        return name in unused or bool(_BUFFERS.search(name)) or not name.startswith(tuple(roots))

    return ignored


_HEADS = ("head.", "pooler.", "classifier.")


def _root(module: Any) -> str:
    name = module if isinstance(module, str) else module.checkpoint_name
    return name.partition(".")[0] + "."


def _non_positional_tensors(tensors: Tensors, names: tuple[TensorName, ...]) -> Tensors:
    """Tensors of the file except the model's own positions."""
    positions = {n.checkpoint_name for n in names if ".encoding_params." in n.param_path}
    return tensors._replace(files={k: v for k, v in tensors.files.items() if k not in positions})


def _encoder_tensors(model: Any) -> tuple[Fields, dict[str, np.ndarray]]:
    """Fields of a config.json and tensors of an encoder, alone or with a head."""
    alone = isinstance(model, Encoder)
    encoder: Any = model if alone else model.encoder
    if isinstance(encoder, BertEncoder) and not alone:
        return _bert_tensors(model)
    if not encoder.fields or not isinstance(model, Encoder | MaskedLM):
        raise ValueError(
            f"Hugging Face has no class for a {type(model).__name__} on {type(encoder).__name__}: "
            "build it on a BertEncoder or an MPNetEncoder"
        )
    fields = json.loads(encoder.fields)
    architecture = ARCHITECTURES[row_name(fields)]
    names = architecture.tensor_names("" if alone else "encoder", encoder.config)
    prefix = "" if alone else architecture.prefix
    tensors = stored_tensors(model, names, prefix=prefix, head_names=architecture.head_names)
    title = architecture.title + ("Model" if alone else "ForMaskedLM")
    return float32_fields(fields) | {"architectures": [title]}, tensors


def _bert_tensors(
    model: Bert | MaskedLM | Classifier,
) -> tuple[Fields, dict[str, np.ndarray]]:
    """Fields of a config.json and tensors of a model on BERT or MPNet."""
    encoder: Any = model.encoder
    architecture = encoder.architecture
    if not encoder.has_table:
        raise ValueError(
            f"Hugging Face has no class for {architecture.title} with another encoding: save a "
            "checkpoint instead, or build the model without `encoding`"
        )
    group, ending = next(v for k, v in _CLASSES.items() if isinstance(model, k))
    if isinstance(model, Classifier) and (model.pooler is None or model.pooling != "first"):
        raise ValueError(
            "a classifier of Hugging Face pools the first token through a pooler: pass "
            "pooling='first' and a pooler when building it"
        )
    fields = stored_fields(architecture, encoder.config, json.loads(encoder.fields))
    fields["max_position_embeddings"] = encoder.length + encoder.offset
    fields["architectures"] = [architecture.title + ending]
    if isinstance(model, Classifier):
        fields |= _labels(fields, model.output.out_features)
    names = architecture.tensor_names("encoder", head=group)
    prefix = "" if isinstance(model, Bert) else architecture.prefix
    head_names = architecture.head_names
    return fields, stored_tensors(model, names, prefix=prefix, head_names=head_names)


# Group of modules outside the encoder, and suffix of the class name in transformers.
_CLASSES = {
    Bert: ("pooler", "Model"),
    MaskedLM: ("head", "ForMaskedLM"),
    Classifier: ("classifier", "ForSequenceClassification"),
}


def _labels(fields: Fields, classes: int) -> Fields:
    """Default names of classes; empty if the fields name all classes."""
    labels = fields.get("id2label")
    if isinstance(labels, Mapping) and len(labels) == classes:
        return {}
    names = [f"LABEL_{i}" for i in range(classes)]
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }
