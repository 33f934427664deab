"""Export of loaded models in Hugging Face's format."""

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxpe._core.errors import require
from jaxpe._core.files import atomic_file, write_file
from jaxpe.nn.checkpoints.architecture import (
    ARCHITECTURES,
    Architecture,
    Fields,
    TensorName,
    row_name,
    text_fields,
)
from jaxpe.nn.checkpoints.encoders import Bert
from jaxpe.nn.checkpoints.model_config import float32_fields
from jaxpe.nn.checkpoints.tensors import WEIGHTS, param_path
from jaxpe.nn.heads import CausalLM, Classifier, MaskedLM, Seq2SeqLM
from jaxpe.nn.transformer import Encoder

TOKENIZER_FILES = (
    *("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "spiece.model", "tokenizer.model", "vocab.json", "merges.txt"),
)
# Path of the transformer, group of modules beside it and a module of it, and suffix of the class in
# transformers; None for the class that the file names.
_CLASSES: Mapping[type, tuple[str, str, str, str | None]] = {
    CausalLM: ("decoder", "head", "head.output", None),
    Seq2SeqLM: ("transformer", "head", "head.output", "ForConditionalGeneration"),
    Encoder: ("", "", "tokens", "Model"),
    Bert: ("encoder", "pooler", "pooler.pooler", "Model"),
    MaskedLM: ("encoder", "head", "head.bias", "ForMaskedLM"),
    Classifier: ("encoder", "classifier", "classifier.output", "ForSequenceClassification"),
}


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

    >>> from jaxpe import nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=1, num_heads=2)
    >>> encoder = nn.Encoder(config, rngs=nnx.Rngs(0))
    >>> save_huggingface(nn.MaskedLM(encoder, rngs=nnx.Rngs(1)), "somewhere")
    Traceback (most recent call last):
    ValueError: Hugging Face has no class for this MaskedLM, which was not loaded from ...
    """
    trunk, group, module, ending = next(v for k, v in _CLASSES.items() if isinstance(model, k))
    transformer: Any = getattr(model, trunk) if trunk else model
    sides = (transformer,)
    if isinstance(model, Seq2SeqLM):
        sides = (transformer.encoder, transformer.decoder)
    loaded = all(side.fields for side in sides)
    fields = text_fields(json.loads(sides[0].fields)) if loaded else {}
    architecture = ARCHITECTURES.get(row_name(fields))
    if architecture is None or module not in architecture.modules:
        raise ValueError(
            f"Hugging Face has no class for this {type(model).__name__}, which was not loaded from "
            "a directory of such a model, or has another encoding: save a checkpoint instead"
        )
    fields = float32_fields(fields)
    if ending is not None:
        fields |= {"architectures": [architecture.title + ending]}
    if isinstance(model, Classifier):
        fields |= _class_fields(model, fields)
    names = architecture.tensor_names(trunk, sides[0].config, head=group)
    prefix = "" if ending == "Model" else architecture.prefix
    tensors = _stored_tensors(model, names, architecture, prefix=prefix)
    _write_directory(Path(directory), fields, tensors, source=source)


def _class_fields(model: Classifier, fields: Fields) -> Fields:
    """Default names of classes; empty if the fields name all classes."""
    if model.pooler is None or model.pooling != "first":
        raise ValueError(
            "a classifier of Hugging Face pools the first token through a pooler: pass "
            "pooling='first' and a pooler when building it"
        )
    labels, classes = fields.get("id2label"), model.output.out_features
    if isinstance(labels, Mapping) and len(labels) == classes:
        return {}
    names = [f"LABEL_{i}" for i in range(classes)]
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


def _stored_tensors(
    model: nnx.Module, names: tuple[TensorName, ...], architecture: Architecture, *, prefix: str
) -> dict[str, np.ndarray]:
    """Tensors of a model under their checkpoint names, float32.

    Names get the prefix, except those of heads.
    """
    leaves, _ = jax.tree.flatten_with_path(nnx.state(model, nnx.Param))
    by_path = {name.param_path: name for name in names}
    matrices: dict[str, np.ndarray] = {}
    parts: dict[str, dict[int, np.ndarray]] = {}
    for path, leaf in leaves:
        name, leaf = by_path[param_path(path)], np.asarray(leaf, np.float32)
        layers = (leaf if name.stacked else leaf[None])[name.first :]
        for stored, tensor in zip(name.stored_shapes(leaf), layers, strict=True):
            key = stored if stored.startswith(architecture.head_names) else prefix + stored
            tensor = (tensor.T if name.transposed else tensor) - np.float32(name.offset)
            if name.part is not None:
                others = parts.setdefault(key, {})
                others[name.part.index] = tensor
                if len(others) < len(name.part.sizes):
                    continue
                tensor = name.part.join([others[i] for i in sorted(others)], name.axis)
            matrices[key] = np.ascontiguousarray(tensor)
    return matrices


def _write_directory(
    directory: Path,
    fields: Fields,
    tensors: dict[str, np.ndarray],
    *,
    source: str | os.PathLike | None = None,
) -> None:
    """Write config.json and model.safetensors, and copy the tokenizer's files from `source`."""
    save_file = require("safetensors.numpy", extra="train").save_file
    failed = require("safetensors", extra="train").SafetensorError
    with atomic_file(directory / WEIGHTS) as part:
        try:
            save_file(tensors, part, metadata={"format": "pt"})
        except failed as error:  # such as a full disk
            raise OSError(str(error)) from error
    write_file(directory / "config.json", json.dumps(fields, indent=2, sort_keys=True) + "\n")
    for name in TOKENIZER_FILES:
        if source is not None and (Path(source) / name).is_file():
            with contextlib.suppress(shutil.SameFileError):
                shutil.copy(Path(source) / name, directory / name)
