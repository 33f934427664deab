"""Encoders in Hugging Face directories, by the rows of `encoders.toml`."""

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jaxtyping import Float, Int

from jaxpe._core.arrays import ArrayLike
from jaxpe._core.errors import InputError
from jaxpe.nn.checkpoints.architecture import (
    Architecture,
    Fields,
)
from jaxpe.nn.checkpoints.encodings import model_encoding, read_plans, table_length
from jaxpe.nn.checkpoints.model_config import (
    check_sizes,
    model_config,
    read_fields,
)
from jaxpe.nn.checkpoints.tensors import (
    Tensors,
    check_masked_lm_head,
    load_parameters,
    open_tensors,
)
from jaxpe.nn.heads import Classifier, MaskedLM, pooled
from jaxpe.nn.layers import dense
from jaxpe.nn.transformer import Encoder, TransformerOutput
from jaxpe.plans.result import LayerPlan
from jaxpe.plans.scaling import LongRopeScaling

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

    Args:
        encoder: transformer under the pooler.
        pooler: whether to add a pooler, a dense layer with tanh on the first token.
        rngs: random streams of the pooler's initialisation, with another seed than the encoder's.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(
    ...     vocab_size=50, dim=16, num_layers=1, num_heads=2, norm_position="post")
    >>> table = encodings.learned(length=7, dim=16)
    >>> encoder = nn.Encoder(config, encoding=table, rngs=nnx.Rngs(0))
    >>> output = nn.Bert(encoder, rngs=nnx.Rngs(1))(jnp.zeros((4, 7), int))
    >>> output.hidden.shape, output.pooled.shape
    ((4, 7, 16), (4, 16))
    """

    def __init__(self, encoder: Encoder, *, pooler: bool = True, rngs: nnx.Rngs):
        config = encoder.config
        self.encoder = encoder
        self.pooler = dense(config, config.dim, config.dim, rngs=rngs) if pooler else None

    def __call__(self, ids: Int[ArrayLike, "... n"], **options: Any) -> BertOutput:
        """Hidden states and the pooled first token.

        Args:
            ids: token ids, `[..., n]`.
            **options: further arguments of the transformer, such as `mask`.
        """
        below = self.encoder(ids, **options)
        if self.pooler is None:
            return BertOutput(None, below)
        return BertOutput(jnp.tanh(self.pooler(pooled(below.hidden, pooling="first"))), below)

    @classmethod
    def load(cls, directory: str | os.PathLike, **overrides: Any) -> "Bert":
        """Load a Hugging Face directory: config.json, and model.safetensors or its shards.

        Parameters are float32 or `param_dtype`, for any dtype of the file. The model has a pooler
        if the file has one; other heads are ignored (`load_masked_lm` and `load_classifier` load
        them). Nothing is unpickled. An unknown tensor of the encoder is an error, since it would
        change the computation.

        Args:
            directory: Hugging Face directory, not a name on the hub.
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

        return _load(directory, make, overrides, kinds=("bert",), head="pooler")


def load_masked_lm(directory: str | os.PathLike, **overrides: Any) -> MaskedLM:
    """Load a masked language model, such as BERT, MPNet, RoBERTa, ModernBERT or ESM-2.

    Args:
        directory, **overrides: arguments of `Bert.load`.

    Raises:
        InputError: errors of `Bert.load`; a missing head, or a head that is not tied to the token
            embeddings.

    >>> jaxpe.nn.load_masked_lm("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere is not a directory: pass one with config.json and ...
    """

    make = lambda encoder, *_: MaskedLM(encoder, rngs=nnx.Rngs(0))  # noqa: E731
    return _load(directory, make, overrides, head="head")


def load_classifier(directory: str | os.PathLike, **overrides: Any) -> Classifier:
    """Load a sequence classifier, BERT or MPNet, with its head.

    For a new head on a pretrained model, build `Classifier` on `Bert.load(directory).encoder`.

    Args:
        directory, **overrides: arguments of `Bert.load`.

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

    return _load(directory, make, overrides, kinds=("bert",), head="classifier")


def load_encoder(directory: str | os.PathLike, **overrides: Any) -> Encoder:
    """Load an encoder without its head; arguments are as in `Bert.load`."""
    return _load(directory, lambda encoder, *_: encoder, overrides)


def _load(
    directory: str | os.PathLike,
    make: Callable[[Encoder, Architecture, Tensors], Any],
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
        plans = _with_stored_frequencies(read_plans(path, architecture), tensors)
        positions = model_encoding(architecture, fields, config, plans)

        def model() -> Any:
            return make(
                Encoder(config, encoding=positions, rngs=nnx.Rngs(0)), architecture, tensors
            )

        loaded = load_parameters(model, names, tensors, ignored=_unused_tensor(architecture))
        if isinstance(loaded, MaskedLM):
            check_masked_lm_head(
                path,
                fields.get("tie_word_embeddings"),
                tensors,
                bias=str(architecture.modules["head.bias"]),
                tokens=f"{architecture.modules['tokens']}.weight",
            )
    encoder = loaded.encoder if head else loaded
    encoder.fields = json.dumps(stored)
    if encoder.encoding.defines("embed"):
        encoder.length = table_length(fields)
    return loaded


def _with_stored_frequencies(
    plans: tuple[LayerPlan, ...], tensors: Tensors
) -> tuple[LayerPlan, ...]:
    """Plans with the frequencies in the file of an ESM, which may be rounded to half precision.

    transformers uses them; the plans stay where they are the usual ones.
    """
    name = next((n for n in tensors.files if n.endswith("rotary_embeddings.inv_freq")), None)
    if name is None:
        return plans
    stored, usual = tensors.read(name, np.float64).ravel(), np.asarray(plans[0].frequencies)
    if stored.shape != usual.shape or np.allclose(stored, usual, rtol=1e-6, atol=0):
        return plans
    divisors = tuple((usual / stored).tolist())
    scaling = LongRopeScaling(divisors, divisors, plans[0].trained, attention_factor=1.0)
    return tuple(one._replace(scaling=scaling, frequencies=stored) for one in plans)


def _unused_tensor(architecture: Architecture) -> Callable[[str], bool]:
    """Predicate of tensor names: tensors of heads and buffers, which an encoder does not use."""
    modules = (name for path, name in architecture.modules.items() if not path.startswith(_HEADS))
    names = (name if isinstance(name, str) else name.checkpoint_name for name in modules)
    roots = tuple({name.partition(".")[0] + "." for name in names})
    # ESM with RoPE may still have a table.
    table = "embeddings.position_embeddings.weight" if architecture.model_type == "esm" else ""

    def ignored(name: str) -> bool:
        return name == table or bool(_BUFFERS.search(name)) or not name.startswith(roots)

    return ignored


_HEADS = ("head.", "pooler.", "classifier.")
