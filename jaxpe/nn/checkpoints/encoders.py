"""Encoders in Hugging Face directories, by the rows of `encoders.toml`."""

import json
import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jaxtyping import Float, Int

from jaxpe._core.arrays import ArrayLike
from jaxpe._core.errors import InputError
from jaxpe.encodings import Encoding, LayerPattern
from jaxpe.nn.checkpoints.architecture import (
    ARCHITECTURES,
    Architecture,
    Fields,
    row_name,
)
from jaxpe.nn.checkpoints.decoders import causal_lm_tensors
from jaxpe.nn.checkpoints.encoder_decoders import seq2seq_lm_tensors
from jaxpe.nn.checkpoints.encodings import model_encoding
from jaxpe.nn.checkpoints.fields import (
    check_sizes,
    float32_fields,
    model_config,
    read_fields,
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
from jaxpe.nn.transformer import Encoder, TransformerOutput

_BUFFERS = re.compile(r"(position_ids|token_type_ids|inv_freq)$")


class BertOutput(NamedTuple):
    """Output of BERT.

    Attributes:
        pooled: vector of the first token after a dense layer and tanh; None without a pooler.
        transformer: hidden states, and traced attention.
    """

    pooled: Float[Array, "... dim"] | None
    transformer: TransformerOutput

    @property
    def hidden(self) -> Float[Array, "... n dim"]:
        """Hidden states of the last layer."""
        return self.transformer.hidden


class Bert(nnx.Module):
    """BERT or MPNet: an encoder with an optional pooler (Devlin et al. 2019, Song et al. 2020).

    Heads take the encoder like any other:
    `Classifier(bert.encoder, pooler=bert.pooler, num_classes=2, rngs=rngs)`.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(
    ...     vocab_size=50, dim=16, num_layers=1, num_heads=2, norm_position="post")
    >>> table = jaxpe.learned(length=7, dim=16)
    >>> encoder = jaxpe.nn.Encoder(config, encoding=table, rngs=nnx.Rngs(0))
    >>> output = jaxpe.nn.Bert(encoder, rngs=nnx.Rngs(1))(jnp.zeros((4, 7), int))
    >>> output.hidden.shape, output.pooled.shape
    ((4, 7, 16), (4, 16))
    """

    def __init__(self, encoder: Encoder, *, pooler: bool = True, rngs: nnx.Rngs):
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

        def make(encoder: Encoder, architecture: Architecture, tensors: Tensors) -> Bert:
            pooler = f"{architecture.modules['pooler.pooler']}.weight" in tensors.files
            return cls(encoder, pooler=pooler, rngs=nnx.Rngs(0))

        return _load(directory, make, encoding, overrides, kinds=("bert",), head="pooler")


def load_masked_lm(
    directory: str | os.PathLike, *, encoding: Encoding | None = None, **overrides: Any
) -> MaskedLM:
    """Load a masked language model, such as BERT, MPNet, RoBERTa, ModernBERT or ESM-2.

    Arguments are as in `Bert.load`.

    Raises:
        InputError: errors of `Bert.load`; a missing head, or a head that is not tied to the token
            embeddings.

    >>> jaxpe.nn.load_masked_lm("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere is not a directory: pass one with config.json and ...
    """

    return _load(
        directory,
        lambda encoder, *_: MaskedLM(encoder, rngs=nnx.Rngs(0)),
        encoding,
        overrides,
        head="head",
    )


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

    def make(encoder: Encoder, architecture: Architecture, tensors: Tensors) -> Classifier:
        # A missing bias of the classes is reported by `load_parameters`.
        bias = f"{architecture.modules['classifier.output']}.bias"
        classes = math.prod(tensors.shape(bias)) if bias in tensors.files else 1
        return Classifier(encoder, num_classes=max(classes, 1), pooler=True, rngs=nnx.Rngs(0))

    return _load(directory, make, encoding, overrides, kinds=("bert",), head="classifier")


def load_encoder(
    directory: str | os.PathLike, *, encoding: Encoding | None = None, **overrides: Any
) -> Encoder:
    """Load an encoder without its head; arguments are as in `Bert.load`."""
    return _load(directory, lambda encoder, *_: encoder, encoding, overrides)


def save_huggingface(
    model: Bert | Encoder | MaskedLM | Classifier | CausalLM | Seq2SeqLM,
    directory: str | os.PathLike,
    *,
    source: str | os.PathLike | None = None,
) -> None:
    """Write config.json and model.safetensors in Hugging Face's format, as float32.

    Fields of the config.json that the model was loaded with are kept.

    Args:
        model: model that was loaded from a Hugging Face directory with its own encoding, or a
            classifier on the encoder of a BERT or MPNet that was.
        directory: folder to write to; it is created if it does not exist.
        source: directory whose tokenizer files are copied.

    Raises:
        ValueError: a model that Hugging Face has no class for, such as one with another encoding.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> encoder = jaxpe.nn.Encoder(config, rngs=nnx.Rngs(0))
    >>> save_huggingface(jaxpe.nn.MaskedLM(encoder, rngs=nnx.Rngs(1)), "somewhere")
    Traceback (most recent call last):
    ValueError: Hugging Face has no class for this MaskedLM, whose encoder was not loaded from ...
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
    make: Callable[[Encoder, Architecture, Tensors], Any],
    encoding: Encoding | None,
    overrides: Fields,
    *,
    kinds: tuple[str, ...] = ("bert", "encoder"),
    head: str = "",
) -> Any:
    """Model that `make` builds on the encoder of a directory, with the directory's parameters."""
    architecture, fields, stored = read_fields(directory, *kinds)
    if head == "head" and "head.bias" not in architecture.modules:
        raise InputError(
            f"{directory}: no masked language model of {architecture.title} is supported: load its "
            "encoder by load_model"
        )
    path = Path(directory, "config.json")
    rates = {"dropout": 0.0, "attention_dropout": 0.0} if architecture.kind == "encoder" else {}
    config = model_config(architecture, path, fields, overrides, tie_embeddings=True, **rates)
    names = architecture.tensor_names("encoder" if head else "", config, head=head)
    with open_tensors(directory, architecture.prefix) as tensors:
        check_sizes(architecture, path, fields, tensors)
        fields |= _stored_frequencies(fields, tensors) if architecture.positions == "esm" else {}
        if encoding is None:
            length, positions = _positions(architecture, path, fields, config)
            unused: set[str] = set()
        else:
            length, positions = None, encoding
            unused = {n.checkpoint_name for n in names if "encoding_params" in n.param_path}
            names = tuple(n for n in names if "encoding_params" not in n.param_path)

        def model() -> Any:
            return make(
                Encoder(config, encoding=positions, rngs=nnx.Rngs(0)), architecture, tensors
            )

        ignored = _unused_tensor(architecture, unused)
        loaded = load_parameters(model, names, tensors, ignored=ignored)
        if isinstance(loaded, MaskedLM):
            check_masked_lm_head(
                path,
                fields.get("tie_word_embeddings"),
                tensors,
                bias=str(architecture.modules["head.bias"]),
                tokens=f"{architecture.modules['tokens']}.weight",
            )
    encoder = loaded.encoder if head else loaded
    encoder.length, encoder.fields = length, json.dumps(stored) if encoding is None else ""
    return loaded


def _positions(
    architecture: Architecture, path: Path, fields: Fields, config: TransformerConfig
) -> tuple[int | None, Encoding | LayerPattern]:
    """Number of positions in a table, None without one; and the encoding of the file."""
    encoding = model_encoding(architecture, path, fields, config)
    if not isinstance(encoding, Encoding) or not encoding.defines("embed"):
        return None, encoding
    rows, offset = fields["max_position_embeddings"], fields.get("pad_token_id", -1) + 1
    if rows <= offset:
        raise InputError(
            f"{path.parent}: max_position_embeddings is {rows}, but tokens do not use the first "
            f"{offset} rows: pass more"
        )
    return rows - offset, encoding


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


def _unused_tensor(architecture: Architecture, positions: Collection[str]) -> Callable[[str], bool]:
    """Predicate of names of tensors that an encoder does not use: of heads, buffers, positions."""
    modules = (name for path, name in architecture.modules.items() if not path.startswith(_HEADS))
    names = (name if isinstance(name, str) else name.checkpoint_name for name in modules)
    roots = tuple({name.partition(".")[0] + "." for name in names})
    # ESM with RoPE may still have a table.
    table = ("embeddings.position_embeddings.weight",) if architecture.positions == "esm" else ()

    def ignored(name: str) -> bool:
        unused = name in positions or name in table or bool(_BUFFERS.search(name))
        return unused or not name.startswith(roots)

    return ignored


_HEADS = ("head.", "pooler.", "classifier.")


def _encoder_tensors(
    model: Encoder | Bert | MaskedLM | Classifier,
) -> tuple[Fields, dict[str, np.ndarray]]:
    """Fields of a config.json and tensors of an encoder, alone or with a head."""
    encoder: Any = model if isinstance(model, Encoder) else model.encoder
    group, module, ending = next(v for k, v in _CLASSES.items() if isinstance(model, k))
    fields = json.loads(encoder.fields or "{}")
    architecture = ARCHITECTURES.get(row_name(fields))
    if architecture is None or module not in architecture.modules:
        raise ValueError(
            f"Hugging Face has no class for this {type(model).__name__}, whose encoder was not "
            "loaded from a directory with such a head, or has another encoding: save a checkpoint "
            "instead"
        )
    fields = float32_fields(fields) | {"architectures": [architecture.title + ending]}
    if isinstance(model, Classifier):
        if model.pooler is None or model.pooling != "first":
            raise ValueError(
                "a classifier of Hugging Face pools the first token through a pooler: pass "
                "pooling='first' and a pooler when building it"
            )
        fields |= _labels(fields, model.output.out_features)
    trunk = "" if model is encoder else "encoder"
    names = architecture.tensor_names(trunk, encoder.config, head=group)
    prefix = "" if ending == "Model" else architecture.prefix
    head_names = architecture.head_names
    return fields, stored_tensors(model, names, prefix=prefix, head_names=head_names)


# Group of modules outside the encoder, a module of it, and suffix of the class in transformers.
_CLASSES = {
    Encoder: ("", "tokens", "Model"),
    Bert: ("pooler", "pooler.pooler", "Model"),
    MaskedLM: ("head", "head.bias", "ForMaskedLM"),
    Classifier: ("classifier", "classifier.output", "ForSequenceClassification"),
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
