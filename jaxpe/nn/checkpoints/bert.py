"""BERT and MPNet, from and to directories of Hugging Face."""

import dataclasses
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jaxtyping import Bool, Float, Int

from jaxpe._core.arrays import ArrayLike
from jaxpe._core.errors import InputError
from jaxpe.encodings import Encoding, chain, identity, learned, t5
from jaxpe.nn.attention import encoding_parameters
from jaxpe.nn.checkpoints import huggingface
from jaxpe.nn.checkpoints.decoders import causal_lm_tensors
from jaxpe.nn.checkpoints.encoders import encoder_tensors, family_of_encoder, read_encoder
from jaxpe.nn.checkpoints.huggingface import Architecture, Fields, TensorName, Tensors
from jaxpe.nn.checkpoints.t5 import t5_tensors
from jaxpe.nn.config import TransformerConfig
from jaxpe.nn.heads import CausalLM, Classifier, MaskedLM, Seq2SeqLM, pooled
from jaxpe.nn.layers import dense
from jaxpe.nn.masks import padded_positions
from jaxpe.nn.transformer import Encoder, TransformerOutput

# Fields of a configuration that leave what the weights of a file compute as it is.
_OVERRIDES = ("dtype", "param_dtype", "dropout", "attention_dropout", "attention", "scan", "remat")


class BertOutput(NamedTuple):
    """Output of BERT.

    Attributes:
        pooled: vector of the first token, through a dense layer and tanh; None without one.
        transformer: hidden states, and attention where traced.
    """

    pooled: Float[Array, "... dim"] | None
    transformer: TransformerOutput

    @property
    def hidden(self) -> Float[Array, "... n dim"]:
        """Hidden states of the last layer."""
        return self.transformer.hidden


class BertEncoder(Encoder):
    """BERT without its head: norms behind, token types, learned positions (Devlin et al. 2019).

    Args:
        config: configuration with norm_position="post"; BERT's own also have token_types=2,
            norm_epsilon=1e-12.
        length: positions of the table.
        encoding: encoding in place of the table; rows may then be as long as the encoding allows,
            and Hugging Face has no class for the model.
        fields: fields of a config.json, kept for writing one.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(
    ...     vocab_size=50, dim=16, num_layers=1, num_heads=2, norm_position="post", token_types=2)
    >>> encoder = jaxpe.nn.BertEncoder(config, length=7, rngs=nnx.Rngs(0))
    >>> encoder.encoding_params.get_value()["table"].shape
    (7, 16)
    """

    architecture: ClassVar[Architecture] = huggingface.BERT
    offset: ClassVar[int] = 0  # rows of the table before that of position 0

    def __init__(
        self,
        config: TransformerConfig,
        *,
        length: int = 512,
        encoding: Encoding | None = None,
        fields: Fields | None = None,
        rngs: nnx.Rngs,
    ):
        huggingface.check_config(config, self.architecture)
        own = self._encoding(config, length) if encoding is None else encoding
        super().__init__(config, encoding=own, rngs=rngs)
        self.has_table = encoding is None
        self.length = length
        self.fields = json.dumps(fields or {})  # a string is static and hashable

    def __call__(
        self,
        ids: Int[ArrayLike, "... n"],
        *,
        mask: Bool[ArrayLike, "... n"] | None = None,
        positions: ArrayLike | None = None,
        **options: Any,
    ) -> TransformerOutput:
        """Hidden states; as a transformer, but more tokens than the table has raise ValueError."""
        if positions is None and not self._fits(ids):
            raise ValueError(
                f"{np.shape(ids)[-1]} tokens, but the model has {self.length} positions: cut the "
                "rows, or pass positions"
            )
        return super().__call__(ids, mask=mask, positions=positions, **options)

    def _fits(self, ids: ArrayLike) -> bool:
        return not self.has_table or np.shape(ids)[-1] <= self.length

    def _encoding(self, config: TransformerConfig, length: int) -> Encoding:
        return learned(length=length, dim=config.dim)


class MPNetEncoder(BertEncoder):
    """MPNet without its head: learned positions and T5's bias, shared by layers (Song et al. 2020).

    Position 0 is the first token, and its vector is row 2 of the table; its first two rows are
    left over from how padding was counted, and no token has them. Where padding is on the left,
    pass a mask: positions then count from the first token, as Hugging Face's do (which takes
    padding from the ids; its hidden states of padding differ, on which nothing depends).

    Args:
        config: configuration with norm_position="post" and no token types; MPNet has
            norm_epsilon=1e-12.
        length: positions; the table has two rows more.
        encoding: encoding in place of the table and the bias, as in `BertEncoder`.
        fields: fields of a config.json, kept for writing one.
        rngs: for the initialisation.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(
    ...     vocab_size=50, dim=16, num_layers=1, num_heads=2, norm_position="post")
    >>> encoder = jaxpe.nn.MPNetEncoder(config, length=7, rngs=nnx.Rngs(0))
    >>> learned, t5 = encoder.encoding_params.get_value()
    >>> learned["table"].shape, t5["table"].shape
    ((9, 16), (32, 2))
    """

    architecture = huggingface.MPNET
    offset = 2

    def __call__(
        self,
        ids: Int[ArrayLike, "... n"],
        *,
        mask: Bool[ArrayLike, "... n"] | None = None,
        positions: ArrayLike | None = None,
        **options: Any,
    ) -> TransformerOutput:
        """Hidden states of tokens; positions count what is not masked, unless given."""
        if positions is None and mask is not None and self._fits(ids):
            positions = padded_positions(mask)
        return super().__call__(ids, mask=mask, positions=positions, **options)

    def _encoding(self, config: TransformerConfig, length: int) -> Encoding:
        table = _shifted(learned(length=length + self.offset, dim=config.dim), self.offset)
        return chain(table, t5(num_heads=config.num_heads))


class Bert(nnx.Module):
    """BERT: an encoder, and a pooler where it has one.

    A classifier or a masked language model stands on the encoder as on any other:
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
        """The model of a Hugging Face directory (config.json, model.safetensors or its shards).

        Parameters are float32, whatever the file has, or `param_dtype`. Heads are left out
        (`load_masked_lm` and `load_classifier` take them); a pooler is there if the file has one.
        Nothing is unpickled. A tensor of the encoder that is not known is an error, since it would
        change what is computed; other heads and buffers are ignored.

        Args:
            directory: a folder, not a name on the hub.
            encoding: in place of the model's positions (of MPNet's bias too), such as
                `jaxpe.rope(head_dim=64)`. Theirs are then not read, and the parameters of this one
                begin as `nnx.Rngs(0)` draws them.
            **overrides: fields of `TransformerConfig` that the weights do not depend on: dtype,
                param_dtype, dropout, attention_dropout, attention, scan and remat.

        Raises:
            InputError: for a directory that cannot be read, is of another family, or asks for a
                computation that is not here; the message names every tensor that does not fit. Also
                for any other override.

        >>> jaxpe.nn.bert.Bert.load("nowhere")
        Traceback (most recent call last):
        jaxpe.InputError: nowhere is not a directory: pass one with config.json and ...
        """

        def make(encoder: BertEncoder, tensors: Tensors) -> Bert:
            if encoder.architecture.model_type != cls.model_type:
                other = next(c for c in (Bert, MPNet) if c.model_type != cls.model_type)
                raise InputError(
                    f"{directory} has model_type {other.model_type!r}: use {other.__name__}.load"
                )
            pooler = encoder.architecture.pooler[0].theirs in tensors.files
            return cls(encoder, pooler=pooler, rngs=nnx.Rngs(0))

        return _load(directory, make, encoding, overrides)

    def save(
        self, directory: str | os.PathLike, *, source: str | os.PathLike | None = None
    ) -> None:
        """Write a Hugging Face directory; see `save_huggingface`."""
        save_huggingface(self, directory, source=source)


class MPNet(Bert):
    """MPNet: an encoder, and a pooler where it has one. As `Bert`, on an `MPNetEncoder`.

    >>> jaxpe.nn.MPNet.load("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere is not a directory: pass one with config.json and ...
    """

    model_type = "mpnet"


def load_masked_lm(
    directory: str | os.PathLike, *, encoding: Encoding | None = None, **overrides: Any
) -> MaskedLM:
    """A masked language model with its head; as `Bert.load`.

    BERT, MPNet, RoBERTa, DeBERTa v2 and v3, ModernBERT.

    Raises:
        InputError: as `Bert.load`, and where the head is not there or its decoder is not tied to
            the token embeddings.

    >>> jaxpe.nn.load_masked_lm("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere is not a directory: pass one with config.json and ...
    """

    if (family := family_of_encoder(directory)) is not None:
        if encoding is not None:
            raise InputError(f"{directory}: another encoding is for BERT and MPNet; leave it out")
        return read_encoder(family, directory, head=True, **overrides)

    def make(encoder: BertEncoder, tensors: Tensors) -> MaskedLM:
        if encoder.architecture is huggingface.MPNET and encoder.config.activation != "gelu":
            raise InputError(f"{directory}: the head of MPNet has GELU whatever hidden_act is")
        return MaskedLM(encoder, rngs=nnx.Rngs(0))

    return _load(directory, make, encoding, overrides)


def load_classifier(
    directory: str | os.PathLike, *, encoding: Encoding | None = None, **overrides: Any
) -> Classifier:
    """A classifier of sequences, BERT's or MPNet's, with the head in the file; as `Bert.load`.

    For a new head on a pretrained model build `Classifier` on `Bert.load(directory).encoder`.

    Raises:
        InputError: as `Bert.load`, and where the head is not there.

    >>> jaxpe.nn.load_classifier("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere is not a directory: pass one with config.json and ...
    """

    def make(encoder: BertEncoder, tensors: Tensors) -> Classifier:
        # Of the classes' bias; where it is missing, `fill` says so.
        bias = encoder.architecture.classifier[-1].theirs
        classes = math.prod(tensors.shape(bias)) if bias in tensors.files else 1
        return Classifier(encoder, num_classes=max(classes, 1), pooler=True, rngs=nnx.Rngs(0))

    return _load(directory, make, encoding, overrides)


def save_huggingface(
    model: Bert | Encoder | MaskedLM | Classifier | CausalLM | Seq2SeqLM,
    directory: str | os.PathLike,
    *,
    source: str | os.PathLike | None = None,
) -> None:
    """Write config.json and model.safetensors, as transformers reads them (float32).

    Fields of the config.json that the model was loaded with stay as they were, unless they are
    about what is written.

    Args:
        model: on a `BertEncoder` or an `MPNetEncoder`, what `load_causal_lm` read from a
            directory of Hugging Face, or a T5 of `load_seq2seq_lm`.
        directory: made where it does not exist.
        source: a directory whose tokenizer files are copied.

    Raises:
        ValueError: for a model that Hugging Face has no class for, as with another encoding.

    >>> from flax import nnx
    >>> config = jaxpe.nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> encoder = jaxpe.nn.Encoder(config, rngs=nnx.Rngs(0))
    >>> save_huggingface(jaxpe.nn.MaskedLM(encoder, rngs=nnx.Rngs(1)), "somewhere")
    Traceback (most recent call last):
    ValueError: Hugging Face has no class for a MaskedLM on Encoder: build it on a BertEncoder ...
    """
    if isinstance(model, Seq2SeqLM):
        return huggingface.write_directory(directory, *t5_tensors(model), source=source)
    if isinstance(model, CausalLM):
        return huggingface.write_directory(directory, *causal_lm_tensors(model), source=source)
    encoder: Any = model if isinstance(model, Encoder) else model.encoder
    read = encoder.fields and not isinstance(encoder, BertEncoder)
    if read and isinstance(model, Encoder | MaskedLM):
        return huggingface.write_directory(directory, *encoder_tensors(model), source=source)
    if not isinstance(encoder, BertEncoder) or isinstance(model, Encoder):
        raise ValueError(
            f"Hugging Face has no class for a {type(model).__name__} on {type(encoder).__name__}: "
            "build it on a BertEncoder or an MPNetEncoder"
        )
    parts = encoder.architecture
    if not encoder.has_table:
        raise ValueError(
            f"Hugging Face has no class for {parts.title} with another encoding: write a "
            "checkpoint, or leave encoding out when making it"
        )
    fields = huggingface.fields_of_config(encoder.config, parts, json.loads(encoder.fields))
    fields["max_position_embeddings"] = encoder.length + encoder.offset
    fields["architectures"] = [parts.title + _their_class(model)]
    if isinstance(model, Classifier):
        fields |= _labels(fields, model.output.out_features)
    prefix = "" if isinstance(model, Bert) else f"{parts.model_type}."
    tensors = huggingface.tensors_of(model, _names(model, parts), prefix=prefix)
    huggingface.write_directory(directory, fields, tensors, source=source)


def _load(
    directory: str | os.PathLike,
    make: Callable[[BertEncoder, Tensors], Any],
    encoding: Encoding | None,
    overrides: dict[str, Any],
) -> Any:
    parts, fields = huggingface.read_fields(directory)
    encoder_class = next(c for c in (BertEncoder, MPNetEncoder) if c.architecture is parts)
    length = fields["max_position_embeddings"] - encoder_class.offset
    if length < 1:
        raise InputError(
            f"{directory}: max_position_embeddings is {fields['max_position_embeddings']}, of "
            f"which no token has the first {encoder_class.offset}: pass more"
        )
    config = _config(directory, parts, fields, overrides)
    # What is filled has parameters of the file alone; those of another encoding come after.
    filled = None if encoding is None else identity()

    with huggingface.open_tensors(directory, f"{parts.model_type}.") as tensors:
        huggingface.check_sizes(Path(directory, "config.json"), fields, parts.defaults, tensors)
        if encoding is not None:
            tensors = _without_positions(tensors, parts)

        def model():
            options = {"length": length, "encoding": filled, "fields": fields}
            return make(encoder_class(config, **options, rngs=nnx.Rngs(0)), tensors)

        loaded = huggingface.fill(model, _names(nnx.eval_shape(model), parts), tensors)
        if isinstance(loaded, MaskedLM):
            huggingface.check_head(
                Path(directory, "config.json"),
                fields.get("tie_word_embeddings"),
                tensors,
                decoder=parts.decoder.replace("weight", "bias"),
                bias=parts.masked_lm[-1].theirs,
                tokens=parts.base[0].theirs,
            )
    if encoding is not None:
        loaded.encoder.encoding = nnx.static(encoding)
        loaded.encoder.encoding_params = encoding_parameters(config, encoding, rngs=nnx.Rngs(0))
    return loaded


def _config(
    directory: str | os.PathLike, parts: Architecture, fields: Fields, overrides: dict[str, Any]
) -> TransformerConfig:
    """The configuration of a config.json, with overrides that keep its function."""
    if others := sorted(overrides.keys() - set(_OVERRIDES)):
        raise InputError(
            f"{', '.join(others)} cannot be overridden: the weights of {directory} go with what "
            f"its config.json has. Pass some of {', '.join(_OVERRIDES)}"
        )
    try:
        config = huggingface.config_of_fields(fields, parts)
    except ValueError as error:
        raise InputError(f"{directory}: config.json: {error}") from error
    return dataclasses.replace(config, **overrides)


def _without_positions(tensors: Tensors, parts: Architecture) -> Tensors:
    """Tensors but those of the model's own positions."""
    positions = {n.theirs for n in parts.base if n.ours.startswith("encoder.encoding_params.")}
    return tensors._replace(files={k: v for k, v in tensors.files.items() if k not in positions})


def _their_class(model: Bert | MaskedLM | Classifier) -> str:
    """Ending of the name of Hugging Face's class."""
    if isinstance(model, Bert):
        return "Model"
    if isinstance(model, MaskedLM):
        return "ForMaskedLM"
    if model.pooler is None or model.pooling != "first":
        raise ValueError(
            "a classifier of Hugging Face pools the first token through a pooler: pass "
            "pooling='first' and a pooler when building it"
        )
    return "ForSequenceClassification"


def _names(model: Bert | MaskedLM | Classifier, parts: Architecture) -> tuple[TensorName, ...]:
    """Names of all tensors of a model."""
    if isinstance(model, MaskedLM):
        return parts.base + parts.masked_lm
    return parts.base + (parts.classifier if isinstance(model, Classifier) else parts.pooler)


def _labels(fields: Fields, classes: int) -> Fields:
    """Names of classes, unless there are as many already."""
    named = fields.get("id2label")
    if isinstance(named, Mapping) and len(named) == classes:
        return {}
    names = [f"LABEL_{i}" for i in range(classes)]
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


def _shifted(encoding: Encoding, by: int) -> Encoding:
    """An encoding of embeddings at positions that start `by` later."""

    def embed(params, x, positions):
        return encoding.embed(params, x, positions + by)

    def vectors(params, positions):
        return encoding.vectors(params, positions + by)

    return Encoding(init=encoding.init, embed=embed, vectors=vectors)
