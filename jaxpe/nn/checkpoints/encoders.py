"""Encoders of the table, from and to directories of Hugging Face."""

import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxpe._core.errors import InputError
from jaxpe.nn.checkpoints import huggingface
from jaxpe.nn.checkpoints.architectures import DEBERTA, ENCODERS
from jaxpe.nn.checkpoints.decoders import checked_fields, config_of, names_there, own_encoding
from jaxpe.nn.checkpoints.families import Family
from jaxpe.nn.checkpoints.huggingface import Fields, Tensors
from jaxpe.nn.config import AttentionPath
from jaxpe.nn.heads import MaskedLM
from jaxpe.nn.transformer import Encoder

_BUFFERS = re.compile(r"(position_ids|token_type_ids|inv_freq)$")
_RELATIVE = ("encoder.rel_embeddings.weight", "encoder.LayerNorm.weight", "encoder.LayerNorm.bias")
# Parts of a model that an encoder computes nothing from.
_HEADS = ("cls.", "lm_head.", "classifier.", "pooler.", "head.", "decoder.", "lm_predictions.")
_HEADS += ("mask_predictions.",)


def family_of_encoder(directory: str | os.PathLike) -> Family | None:
    """The row of a directory's encoder; None where it is of no family here."""
    config = Path(directory) / "config.json"
    if not os.path.isfile(config):
        return None
    kind = huggingface.read_config(config).get("model_type")
    return ENCODERS.get(kind) if isinstance(kind, str) else None


def read_encoder(
    family: Family,
    directory: str | os.PathLike,
    *,
    head: bool,
    dtype: Any = jnp.float32,
    param_dtype: Any = jnp.float32,
    attention: AttentionPath = "xla",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    scan: bool = True,
    remat: bool = False,
) -> Any:
    """The encoder of a directory, or the masked language model on it where `head`."""
    directory = Path(directory)
    where = directory / "config.json"
    given = huggingface.read_config(where)
    fields = checked_fields(family, where, given)
    if family is DEBERTA:
        _check_disentangled(where, fields)
    options: Any = {"dtype": dtype, "param_dtype": param_dtype, "attention": attention}
    options |= {"dropout": dropout, "attention_dropout": attention_dropout}
    config = config_of(family, where, fields)
    config = dataclasses.replace(config, **options, scan=scan, remat=remat, tie_embeddings=True)
    encoding = own_encoding(family, where, fields, config)
    shared: Any = {"layer_encoding" if family is DEBERTA else "encoding": encoding}

    def encoder() -> Encoder:
        return Encoder(config, **shared, rngs=nnx.Rngs(0))

    def model() -> MaskedLM:
        return MaskedLM(encoder(), rngs=nnx.Rngs(0))

    # An encoder alone has no name of a trunk before its parameters.
    names = names_there(family, config, "encoder")
    if not head:
        own = [name for name in names if name.ours.startswith("encoder.")]
        names = tuple(name._replace(ours=name.ours.removeprefix("encoder.")) for name in own)

    def others(name: str) -> bool:
        known = family is DEBERTA and name in _RELATIVE
        return known or name.startswith(_HEADS) or bool(_BUFFERS.search(name))

    with huggingface.open_tensors(directory, family.prefix) as tensors:
        huggingface.check_sizes(where, fields, family.defaults, tensors)
        if head:
            _check_head(family, where, fields, tensors)
        made: Any = model if head else encoder
        loaded = huggingface.fill(made, names, tensors, others=others)
        below = loaded.encoder if head else loaded
        if family is DEBERTA:
            _set_tables(below, fields, tensors)
    if "encoding_params.table" in family.modules:
        below.length = fields["max_position_embeddings"] - fields["pad_token_id"] - 1
    below.fields = json.dumps(given)
    return loaded


def encoder_tensors(model: Encoder | MaskedLM) -> tuple[Fields, dict[str, np.ndarray]]:
    """Fields of a config.json and tensors of an encoder that was read."""
    below = model.encoder if isinstance(model, MaskedLM) else model
    fields = json.loads(below.fields)
    family = ENCODERS[fields["model_type"]]
    if family is DEBERTA:
        raise ValueError(
            "the tables of DeBERTa are read as projections of its relative embeddings, which are "
            "not kept: write a checkpoint"
        )
    names, prefix = names_there(family, below.config, "encoder"), family.prefix
    if below is model:
        names = tuple(n._replace(ours=n.ours.removeprefix("encoder.")) for n in names)
        prefix = ""
    heads = ("lm_head.", "head.", "decoder.bias")
    tensors = huggingface.tensors_of(model, names, prefix=prefix, heads=heads)
    kind = "Model" if below is model else "ForMaskedLM"
    fields |= {name: "float32" for name in ("dtype", "torch_dtype") if name in fields}
    return fields | {"architectures": [family.title + kind]}, tensors


def _check_head(family: Family, where: Path, fields: Fields, tensors: Tensors) -> None:
    """Raise where the head is not tied to the embeddings."""
    bias = str(family.modules["head.bias"])
    decoder = bias if bias == "decoder.bias" else bias.replace("bias", "decoder.bias")
    tokens = f"{family.modules['tokens']}.weight"
    tied = fields["tie_word_embeddings"]
    huggingface.check_head(where, tied, tensors, decoder=decoder, bias=bias, tokens=tokens)


def _check_disentangled(where: Path, fields: Fields) -> None:
    """Raise where a DeBERTa leaves out what its versions 2 and 3 have."""
    for name in ("relative_attention", "share_att_key", "pos_att_type"):
        if not fields[name]:
            raise InputError(f"{where}: {name} is {fields[name]!r}, which changes the computation")
    if fields["position_biased_input"] or fields["norm_rel_ebd"] != "layer_norm":
        raise InputError(
            f"{where}: position_biased_input is {fields['position_biased_input']} and norm_rel_ebd "
            f"{fields['norm_rel_ebd']!r}; only False and 'layer_norm' are supported"
        )


def _set_tables(encoder: Encoder, fields: Fields, tensors: Tensors) -> None:
    """Tables of keys and queries of each layer: projections of embeddings that all share."""
    if absent := [name for name in _RELATIVE if name not in tensors.files]:
        raise InputError(f"{tensors.directory}: missing are {huggingface.listed(absent)}")
    table, scale, bias = (tensors.read(name, np.float64) for name in _RELATIVE)
    rows = 2 * fields["position_buckets"]
    if table.shape[0] < rows or table.shape[1:] != (encoder.config.dim,):
        raise InputError(
            f"{tensors.directory}: {_RELATIVE[0]} has shape {table.shape}, not "
            f"{(rows, encoder.config.dim)}"
        )
    table = table[:rows] - table[:rows].mean(-1, keepdims=True)
    spread = np.sqrt((table**2).mean(-1, keepdims=True) + fields["layer_norm_eps"])
    table = table / spread * scale + bias
    attention = encoder.layers.attention
    params = attention.encoding_params.get_value()

    def projected(layer: Any, like: Any) -> Any:
        kernel, offset = (np.asarray(x.get_value(), np.float64) for x in (layer.kernel, layer.bias))
        found = np.einsum("rc,lcd->lrd", table, kernel) + offset[:, None]
        return jnp.asarray(found.reshape(like.shape), like.dtype)

    attention.encoding_params = nnx.Param(
        {
            "key_table": projected(attention.key, params["key_table"]),
            "query_table": projected(attention.query, params["query_table"]),
        }
    )
