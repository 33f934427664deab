"""Directories of Hugging Face: their configuration and tensors, read and written without torch.

One table of tensors serves reading and writing. A directory is data: nothing of it is unpickled,
imported or run, and no size that it states is believed before its tensors have it.
"""

import contextlib
import json
import math
import os
import re
import reprlib
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.tree_util import GetAttrKey, keystr

from jaxpe._core.errors import InputError, require
from jaxpe._core.files import atomic_file, write_file
from jaxpe._core.json_values import from_json, read_json
from jaxpe._core.memory import check_bytes, device_bytes
from jaxpe.nn.config import Activation, TransformerConfig

Fields = dict[str, Any]
Model = TypeVar("Model", bound=nnx.Module)

WEIGHTS, SHARDS = "model.safetensors", "model.safetensors.index.json"
_POINTER = b"version https://git-lfs"  # what stands in a clone in place of a large file
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
TOKENIZER_FILES = (
    *("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "spiece.model", "tokenizer.model", "vocab.json", "merges.txt"),
)


class Part(NamedTuple):
    """Dense layer that is one of several in a matrix of the checkpoint."""

    index: int
    count: int
    heads: int | None  # where the features of all parts stand together for each of so many heads

    def of(self, whole: np.ndarray, axis: int) -> np.ndarray:
        """The features of this part, which are along an axis."""
        split = np.moveaxis(whole, axis, 0)
        shape = (self.count, -1) if self.heads is None else (self.heads, self.count, -1)
        split = split.reshape(*shape, *split.shape[1:])
        part = split[self.index] if self.heads is None else split[:, self.index]
        return np.moveaxis(
            part.reshape(-1, *part.shape[-(whole.ndim - 1) :])
            if whole.ndim > 1
            else part.reshape(-1),
            0,
            axis,
        )

    def joined(self, parts: Sequence[np.ndarray], axis: int) -> np.ndarray:
        """The matrix of all parts, in order."""
        moved = [np.moveaxis(part, axis, 0) for part in parts]
        rest = moved[0].shape[1:]
        if self.heads is None:
            return np.moveaxis(np.concatenate(moved), 0, axis)
        by_head = [part.reshape(self.heads, -1, *rest) for part in moved]
        return np.moveaxis(np.stack(by_head, axis=1).reshape(-1, *rest), 0, axis)


class TensorName(NamedTuple):
    """Name of a tensor in the checkpoint and path of the parameter here."""

    theirs: str  # {layer} stands for the number of a layer, whose tensors we stack
    ours: str
    transposed: bool = False  # a matrix [out, in] there and [in, out] here
    part: Part | None = None  # where it is a part of a matrix there
    plus: float = 0.0  # added to the numbers there
    first: int = 0  # the first layer that has it there; it is 1 here in those before

    @property
    def axis(self) -> int:
        """The axis of the features there, which parts share."""
        return 0 if self.transposed else -1


class Architecture(NamedTuple):
    """Names of the parts of a family of models in Hugging Face."""

    model_type: str  # in config.json; also the prefix of the base where there is a head
    title: str  # what its classes begin with
    defaults: Fields  # what a field is that config.json leaves out
    allowed: Mapping[str, tuple]  # fields that change the computation, and the values that we have
    base: tuple[TensorName, ...]  # the encoder
    pooler: tuple[TensorName, ...]  # of the base model
    masked_lm: tuple[TensorName, ...]  # the head of a masked language model, its decoder tied
    decoder: str  # the tied matrix, where a file has it all the same
    classifier: tuple[TensorName, ...]  # the head of a classifier, its pooler among them


def _dense(theirs: str, ours: str) -> tuple[TensorName, ...]:
    kernel = TensorName(f"{theirs}.weight", f"{ours}.kernel", transposed=True)
    return kernel, TensorName(f"{theirs}.bias", f"{ours}.bias")


def _norm(theirs: str, ours: str) -> tuple[TensorName, ...]:
    scale = TensorName(f"{theirs}.weight", f"{ours}.scale")
    return scale, TensorName(f"{theirs}.bias", f"{ours}.bias")


def _layers(projections: Sequence[str], attention_norm: str) -> tuple[TensorName, ...]:
    """Tensors of a layer: projections of query, key, value and output go by other names in each."""
    there, here = "encoder.layer.{layer}.", "encoder.layers."
    ours = [f"{here}attention.{name}" for name in ("query", "key", "value", "output")]
    parts = [_dense(there + name, own) for name, own in zip(projections, ours, strict=True)]
    parts += [
        _norm(there + attention_norm, here + "attention_norm"),
        _dense(there + "intermediate.dense", here + "mlp.up"),
        _dense(there + "output.dense", here + "mlp.down"),
        _norm(there + "output.LayerNorm", here + "mlp_norm"),
    ]
    return sum(parts, ())


_EMBEDDINGS = (
    TensorName("embeddings.word_embeddings.weight", "encoder.tokens.embedding"),
    *_norm("embeddings.LayerNorm", "encoder.embedding_norm"),
)
_DEFAULTS = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "layer_norm_eps": 1e-12,
    "initializer_range": 0.02,
}
_ALLOWED = {
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "pruned_heads": ({}, []),
    "quantization_config": (),
}

BERT = Architecture(
    model_type="bert",
    title="Bert",
    defaults={**_DEFAULTS, "vocab_size": 30522, "type_vocab_size": 2},
    allowed=_ALLOWED,
    base=(
        *_EMBEDDINGS,
        TensorName("embeddings.position_embeddings.weight", "encoder.encoding_params.table"),
        TensorName("embeddings.token_type_embeddings.weight", "encoder.token_types.embedding"),
        *_layers(
            [
                f"attention.{name}"
                for name in ("self.query", "self.key", "self.value", "output.dense")
            ],
            "attention.output.LayerNorm",
        ),
    ),
    pooler=_dense("pooler.dense", "pooler"),
    masked_lm=(
        *_dense("cls.predictions.transform.dense", "transform"),
        *_norm("cls.predictions.transform.LayerNorm", "norm"),
        TensorName("cls.predictions.bias", "bias"),
    ),
    decoder="cls.predictions.decoder.weight",
    classifier=(*_dense("pooler.dense", "pooler"), *_dense("classifier", "output")),
)

MPNET = Architecture(
    model_type="mpnet",
    title="MPNet",
    # transformers computes with 32 buckets, whatever the configuration says.
    defaults={**_DEFAULTS, "vocab_size": 30527},
    allowed={**_ALLOWED, "relative_attention_num_buckets": (32,)},
    base=(
        *_EMBEDDINGS,
        TensorName("embeddings.position_embeddings.weight", "encoder.encoding_params.0.table"),
        TensorName("encoder.relative_attention_bias.weight", "encoder.encoding_params.1.table"),
        *_layers([f"attention.attn.{name}" for name in "qkvo"], "attention.LayerNorm"),
    ),
    pooler=_dense("pooler.dense", "pooler"),
    masked_lm=(
        *_dense("lm_head.dense", "transform"),
        *_norm("lm_head.layer_norm", "norm"),
        TensorName("lm_head.bias", "bias"),
    ),
    decoder="lm_head.decoder.weight",
    classifier=(*_dense("classifier.dense", "pooler"), *_dense("classifier.out_proj", "output")),
)

ARCHITECTURES = {architecture.model_type: architecture for architecture in (BERT, MPNET)}

# Fields of config.json that are fields of ours.
FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "hidden_dim",
    "type_vocab_size": "token_types",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "layer_norm_eps": "norm_epsilon",
    "initializer_range": "init_scale",
}


class Range(NamedTuple):
    """Allowed values of a number of a configuration: its type, and bounds that it may reach."""

    kind: type
    low: float
    high: float


_FLOAT32 = np.finfo(np.float32)
_LARGEST = 2**31 - 1  # ids and positions are int32
_SIZE, _RATE = Range(int, 1, _LARGEST), Range(float, 0.0, 0.999)
_POSITIVE = Range(float, float(_FLOAT32.tiny), float(_FLOAT32.max))  # and so in float32
_LENGTHS = (  # of rows, which no tensor may have an axis for
    *("max_position_embeddings", "sliding_window", "attention_chunk_size", "floor_scale"),
    *("max_window_layers", "sliding_window_pattern", "no_rope_layer_interval"),
    *("local_attention", "global_attn_every_n_layers"),
)
_SIZES = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim"),
    *("num_key_value_heads", "intermediate_size", "rotary_dim", *_LENGTHS),
)
_RATES = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout"),
    *("dropout", "hidden_dropout", "resid_pdrop"),
)
RANGES = {
    **dict.fromkeys(_SIZES, _SIZE),
    "type_vocab_size": Range(int, 0, _LARGEST),
    **dict.fromkeys(_RATES, _RATE),
    "layer_norm_eps": _POSITIVE,
    "rms_norm_eps": _POSITIVE,
    "rope_theta": _POSITIVE._replace(low=1.0),  # below, the first pair would not turn fastest
    "rope_local_base_freq": _POSITIVE._replace(low=1.0),
    "initializer_range": Range(float, 0.0, float(_FLOAT32.max)),
    "position_buckets": Range(int, 4, _LARGEST),
    "attn_scale": Range(float, 0.0, float(_FLOAT32.max)),
    **dict.fromkeys(("partial_rotary_factor", "rotary_pct"), Range(float, 2**-20, 1.0)),
    **dict.fromkeys(
        ("query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"), _POSITIVE
    ),
}
# Fields that are off where they are null; a null of others is their default.
NULLABLE = ("sliding_window", "attn_logit_softcapping", "final_logit_softcapping", "rotary_dim")
_LARGEST_CONFIG, _LARGEST_INDEX = 2**24, 2**26  # bytes, of JSON
_FLOATS = ("F64", "F32", "F16", "BF16")  # as safetensors calls what can be read
_MOST_NAMED = 40  # tensors in a message
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


# T5, which has names of its own for all fields. Here they are those of other families.
T5_FIELDS = {
    "vocab_size": "vocab_size",
    "d_model": "dim",
    "d_kv": "head_dim",
    "d_ff": "hidden_dim",
    "num_heads": "num_heads",
    "num_layers": "num_layers",
    "layer_norm_epsilon": "norm_epsilon",
    "dropout_rate": "dropout",
}
_T5_DEFAULTS = {
    "vocab_size": 32128,
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_heads": 8,
    "num_layers": 6,
    "num_decoder_layers": None,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "layer_norm_epsilon": 1e-6,
    "dropout_rate": 0.1,
    "feed_forward_proj": "relu",
    "tie_word_embeddings": True,
}
T5_DEFAULTS = {
    "t5": _T5_DEFAULTS,
    "mt5": _T5_DEFAULTS
    | {
        **{"vocab_size": 250112, "d_ff": 1024, "num_heads": 6, "num_layers": 8},
        **{"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    },
}
T5_ACTIVATIONS: dict[str, Activation] = {
    **ACTIVATIONS,
    "gated-gelu": "geglu_tanh",  # which transformers takes for gelu_new
    "gated-gelu_new": "geglu_tanh",
    "gated-silu": "swiglu",
}
RANGES |= dict.fromkeys(
    (
        *("d_model", "d_kv", "d_ff", "num_heads", "num_layers", "num_decoder_layers"),
        *("relative_attention_num_buckets", "relative_attention_max_distance"),
    ),
    _SIZE,
)
RANGES |= {"layer_norm_epsilon": _POSITIVE, "dropout_rate": _RATE}


def t5_names(*, gated: bool) -> tuple[TensorName, ...]:
    """Tensors of T5: both stacks with their shared biases, and a head where it is not tied."""
    feed_forward = {"wi_0": "gate", "wi_1": "up"} if gated else {"wi": "up"}
    feed_forward |= {"wo": "down"}
    attention = {"q": "query", "k": "key", "v": "value", "o": "output"}
    names = [TensorName("shared.weight", "transformer.encoder.tokens.embedding")]
    for side, sublayers in (
        ("encoder", ("SelfAttention", "DenseReluDense")),
        ("decoder", ("SelfAttention", "EncDecAttention", "DenseReluDense")),
    ):
        here = f"transformer.{side}."
        for place, sublayer in enumerate(sublayers):
            there = f"{side}.block.{{layer}}.layer.{place}."
            own = {"SelfAttention": "attention", "EncDecAttention": "cross_attention"}
            module = here + "layers." + own.get(sublayer, "mlp")
            parts = feed_forward if sublayer == "DenseReluDense" else attention
            names += [
                TensorName(f"{there}{sublayer}.{theirs}.weight", f"{module}.{ours}.kernel", True)
                for theirs, ours in parts.items()
            ]
            norm = f"{module}_norm.scale".replace("cross_attention", "cross")
            names.append(TensorName(f"{there}layer_norm.weight", norm))
        names += [
            TensorName(f"{side}.final_layer_norm.weight", f"{here}final_norm.scale"),
            TensorName(
                f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                f"{here}encoding_params.table",
            ),
        ]
    return (*names, TensorName("lm_head.weight", "output.kernel", transposed=True))


def read_fields(directory: str | os.PathLike) -> tuple[Architecture, Fields]:
    """The family of a directory's model, and the fields of its config.json, defaults filled in.

    `InputError` where it cannot be read, or asks for what is not here; others do not matter.
    """
    directory = Path(directory)
    path = directory / "config.json"
    if not os.path.isdir(directory):
        raise InputError(f"{directory} is not a directory: pass one with config.json and {WEIGHTS}")
    if not os.path.isfile(path):
        raise InputError(f"{directory} has no config.json: is it the directory of a model?")
    given = read_config(path)
    kind = given.get("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        raise InputError(
            f"{path}: model_type is {reprlib.repr(kind)}; {' and '.join(ARCHITECTURES)} are what "
            "can be read"
        )
    architecture = ARCHITECTURES[kind]
    fields = architecture.defaults | given
    from_json(str, fields["hidden_act"], place=f"{path}: hidden_act")
    check_fields(path, fields, {**architecture.allowed, "hidden_act": tuple(ACTIVATIONS)})
    return architecture, fields | checked_numbers(path, fields, architecture.defaults)


def read_config(path: Path) -> Fields:
    """The fields of a config.json; raises `InputError` where they cannot be read."""
    return read_json(path, remedy="fetch it again", largest=_LARGEST_CONFIG)


def check_fields(path: Path, fields: Fields, allowed: Mapping[str, tuple]) -> None:
    """Raise where a field asks for a computation that is not here; null asks for nothing."""
    for name, values in allowed.items():
        value = fields.get(name)
        truth = isinstance(value, bool)  # which Python has for a number
        if value is None or any(truth is isinstance(v, bool) and value == v for v in values):
            continue
        only = f"; only {', '.join(map(repr, values))} is supported" if values else ""
        found = reprlib.repr(value)
        raise InputError(f"{path}: {name} is {found}, which changes the computation{only}")


def checked_numbers(path: Path, fields: Fields, defaults: Fields) -> Fields:
    """Numbers of a configuration, of their type and range; null stays where it is the default."""
    return {
        name: _checked_number(f"{path}: {name}", fields[name], RANGES[name])
        for name, default in defaults.items()
        if name in RANGES
        and (fields[name] is not None or default is not None)
        and not (fields[name] is None and name in NULLABLE)
    }


def _checked_number(place: str, value: Any, of: Range) -> Any:
    number = from_json(of.kind, value, place=place)
    if not of.low <= number <= of.high:
        low, high = (str(x) if of.kind is int else f"{x:g}" for x in (of.low, of.high))
        raise InputError(f"{place} is {value!r}; pass {low} to {high}")
    return number


def check_sizes(path: Path, fields: Fields, defaults: Fields, tensors: "Tensors") -> None:
    """Raise where sizes are beyond what the tensors can have, before anything is made of them."""
    axes = (size for name in tensors.files for size in tensors.shape(name))
    longest, count = max(axes, default=0), len(tensors.files)
    bounds = {name: longest for name in defaults if RANGES.get(name, _RATE).kind is int}
    # A model may have no tensor of its positions, and one of each part a layer.
    bounds |= {"num_hidden_layers": count} | dict.fromkeys(_LENGTHS, _LARGEST)
    for name, most in bounds.items():
        if fields.get(name) is not None and fields[name] > most:
            raise InputError(
                f"{path}: {name} is {fields[name]}, which is more than {tensors.directory} has: "
                f"{count} tensors, the longest axis {longest}"
            )


def config_of_fields(fields: Fields, architecture: Architecture) -> TransformerConfig:
    """Our configuration of the fields of a config.json."""
    own = {o: fields[theirs] for theirs, o in FIELDS.items() if theirs in architecture.defaults}
    return TransformerConfig(
        **own,
        activation=ACTIVATIONS[fields["hidden_act"]],
        embedding_scale=fields["initializer_range"],
        norm_position="post",
    )


def fields_of_config(config: TransformerConfig, architecture: Architecture, kept: Fields) -> Fields:
    """The fields of a config.json of our configuration, on top of others that are kept."""
    fields = architecture.defaults | kept | {"model_type": architecture.model_type}
    for theirs, ours in FIELDS.items():
        if theirs in architecture.defaults:
            fields[theirs] = config.hidden_width if ours == "hidden_dim" else getattr(config, ours)
    if ACTIVATIONS[fields["hidden_act"]] != config.activation:
        names = (theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
        fields["hidden_act"] = next(names)
    return fields | {name: "float32" for name in ("dtype", "torch_dtype") if name in fields}


def check_config(config: TransformerConfig, architecture: Architecture) -> None:
    """Raise where a configuration is not one that Hugging Face's class can have."""
    title = architecture.title
    required = {"norm": "layer", "norm_position": "post", "use_bias": True, "latent": None}
    required |= {"attention_scale": None, "logit_scale": 1.0, "attention_cap": None}
    required |= {"logit_cap": None, "query_key_norm": False, "embedding_factor": 1.0}
    for name, value in required.items():
        if (found := getattr(config, name)) != value:
            raise ValueError(f"{title} has {name}={value!r}, not {found!r}: pass that")
    if config.activation not in ACTIVATIONS.values():
        allowed = ", ".join(dict.fromkeys(ACTIVATIONS.values()))
        raise ValueError(f"{title} has no activation {config.activation!r}: pass one of {allowed}")
    heads = (config.key_heads, config.head_width * config.num_heads)
    if heads != (config.num_heads, config.dim) or not config.normalises_embeddings:
        raise ValueError(
            f"{title} has a norm after its embeddings and num_heads heads, also of keys, of "
            "dim/num_heads: leave embedding_norm, head_dim and num_kv_heads out"
        )
    if config.token_types and "type_vocab_size" not in architecture.defaults:
        raise ValueError(f"{title} has no token types: pass token_types=0")


@contextlib.contextmanager
def open_tensors(directory: str | os.PathLike, prefix: str) -> Iterator["Tensors"]:
    """Tensors of a directory, open to be read one by one."""
    safetensors = require("safetensors", extra="train")
    with contextlib.ExitStack() as files:
        found: dict[str, tuple[Any, str]] = {}
        for path in _weight_files(Path(directory)):
            try:
                file = files.enter_context(safetensors.safe_open(path, framework="numpy"))
            except (safetensors.SafetensorError, OSError) as error:
                raise InputError(_damaged(path, error)) from error
            for stored in file.keys():  # noqa: SIM118 (it is no dict)
                name = _modern(stored).removeprefix(prefix)
                if name in found:
                    twice = listed([found[name][1], stored])
                    raise InputError(f"{directory} has tensors for the same thing: {twice}")
                found[name] = (file, stored)
        _check_index(Path(directory), {stored for _, stored in found.values()})
        yield Tensors(Path(directory), found)


class Tensors(NamedTuple):
    """Tensors of a directory by name, without the prefix of the base and as called now."""

    directory: Path
    files: dict[str, tuple[Any, str]]  # of each tensor, the open file and its name there

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        file, stored = self.files[name]
        return tuple(file.get_slice(stored).get_shape())

    def read(self, name: str, dtype: Any = np.float32) -> np.ndarray:
        """A tensor as a dtype; `InputError` for what are no floats, or not finite in that dtype."""
        if problem := self.problem(name):
            raise InputError(f"{self.directory}: {problem}")
        file, stored = self.files[name]
        with np.errstate(all="ignore"):
            tensor = file.get_tensor(stored).astype(dtype, copy=False)
        if not (finite := np.isfinite(tensor)).all():
            count = finite.size - np.count_nonzero(finite)
            raise InputError(
                f"{self.directory}: of the tensor {listed([stored])}, {count:,} numbers of "
                f"{finite.size:,} are NaN or infinite as {tensor.dtype}: fetch the file again"
            )
        return tensor

    def problem(self, name: str) -> str | None:
        """Problem with the dtype of a tensor; None where it can be read."""
        file, stored = self.files[name]
        dtype = file.get_slice(stored).get_dtype()
        return None if dtype in _FLOATS else f"{name} is {dtype}, not floating-point numbers"


def fill(
    model: Callable[[], Model],
    names: tuple[TensorName, ...],
    tensors: Tensors,
    *,
    others: Callable[[str], bool] | None = None,
) -> Model:
    """A model with the tensors of a directory; parameters without a name are drawn as it has them.

    `InputError` names tensors that are missing, of another shape, of no floating dtype, or part of
    the model and unknown.

    Args:
        model: makes it. Nothing is drawn that the file then replaces.
        names: of its parameters, and of others it may have.
        tensors: of the directory.
        others: whether a tensor that the model has no parameter for may be left alone; those
            outside the encoder (other heads, `position_ids`) when None.
    """
    graphdef, state = nnx.split(nnx.eval_shape(model))
    leaves, treedef = jax.tree.flatten_with_path(state)
    by_path = {name.ours: name for name in names}
    wanted = {path: by_path[path] for path, _ in _by_path(leaves) if path in by_path}
    pairs = [(wanted[path], leaf) for path, leaf in _by_path(leaves) if path in wanted]
    _check_tensors(pairs, tensors, _beside_encoder if others is None else others)
    _check_memory([leaf for _, leaf in leaves], tensors)
    drawn = _drawn(model, wanted.keys()) if len(wanted) < len(leaves) else {}
    read = [
        drawn[path] if path in drawn else _read(wanted[path], leaf, tensors)
        for path, leaf in _by_path(leaves)
    ]
    return nnx.merge(graphdef, jax.tree.unflatten(treedef, read))


def _by_path(leaves: list[tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
    return ((path_name(path), leaf) for path, leaf in leaves)


def _drawn(model: Callable[[], nnx.Module], named: Collection[str]) -> dict[str, jax.Array]:
    """Parameters as a model draws them, but for those that have names."""

    def others() -> dict[str, jax.Array]:
        leaves, _ = jax.tree.flatten_with_path(nnx.state(model()))
        return {path: leaf for path, leaf in _by_path(leaves) if path not in named}

    return jax.jit(others)()


def tensors_of(
    model: nnx.Module,
    names: tuple[TensorName, ...],
    *,
    prefix: str = "",
    heads: tuple[str, ...] = ("cls.", "lm_head.", "classifier."),
) -> dict[str, np.ndarray]:
    """Tensors of a model under their names there, float32.

    Those whose names do not begin as one of `heads` get the prefix.
    """
    leaves, _ = jax.tree.flatten_with_path(nnx.state(model, nnx.Param))
    by_path = {name.ours: name for name in names}
    found: dict[str, np.ndarray] = {}
    parts: dict[str, dict[int, np.ndarray]] = {}
    for path, leaf in leaves:
        name, leaf = by_path[path_name(path)], np.asarray(leaf, np.float32)
        tensors = leaf[name.first :] if "{layer}" in name.theirs else [leaf]
        for theirs, tensor in zip(_their_names(name, leaf), tensors, strict=True):
            key = theirs if theirs.startswith(heads) else prefix + theirs
            tensor = (tensor.T if name.transposed else tensor) - np.float32(name.plus)
            if name.part is not None:
                of = parts.setdefault(key, {})
                of[name.part.index] = tensor
                if len(of) < name.part.count:
                    continue
                tensor = name.part.joined([of[i] for i in range(name.part.count)], name.axis)
            found[key] = np.ascontiguousarray(tensor)
    return found


def write_directory(
    directory: str | os.PathLike,
    fields: Fields,
    tensors: dict[str, np.ndarray],
    *,
    source: str | os.PathLike | None = None,
) -> None:
    """Write config.json and model.safetensors, and copy the tokenizer's files from `source`."""
    save_file = require("safetensors.numpy", extra="train").save_file
    failed = require("safetensors", extra="train").SafetensorError
    directory = Path(directory)
    with atomic_file(directory / WEIGHTS) as part:
        try:
            save_file(tensors, part, metadata={"format": "pt"})
        except failed as error:  # such as a disk that is full
            raise OSError(str(error)) from error
    write_file(directory / "config.json", json.dumps(fields, indent=2, sort_keys=True) + "\n")
    for name in TOKENIZER_FILES:
        if source is not None and (Path(source) / name).is_file():
            with contextlib.suppress(shutil.SameFileError):
                shutil.copy(Path(source) / name, directory / name)


def path_name(path: tuple) -> str:
    """A path in a tree of parameters as "encoder.layers.mlp.up.kernel"."""
    keys = tuple(key for key in path if not isinstance(key, GetAttrKey))  # a variable's own value
    return keystr(keys, simple=True, separator=".")


def listed(names: Iterable[str]) -> str:
    """Names from a file in one line: quoted where they have signs to hide, the rest counted."""
    names = list(names)
    short = [n if n.isprintable() and len(n) < 200 else reprlib.repr(n) for n in names]
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(short[:_MOST_NAMED]) + more


def check_tied(tensors: Tensors, one: str, other: str, *, remedy: str) -> None:
    """Raise where two tensors that are there are not the same."""
    if one not in tensors.files or other not in tensors.files:
        return
    same = tensors.shape(one) == tensors.shape(other)
    if not same or not np.array_equal(tensors.read(one), tensors.read(other)):
        raise InputError(f"{tensors.directory}: {one} is not {other}: {remedy}")


def check_head(
    where: Path, tied: Any, tensors: Tensors, *, decoder: str, bias: str, tokens: str
) -> None:
    """Raise where the decoder of a masked language model has a matrix or biases of its own."""
    matrix = decoder.removesuffix("bias") + "weight"
    if tied is False and matrix not in tensors.files:
        raise InputError(
            f"{where}: tie_word_embeddings is False, and {tensors.directory} has no {matrix}: "
            "fetch the file again, or set it to True"
        )
    remedy = "only heads that are tied to the embeddings (tie_word_embeddings) are supported"
    for one, other in ((matrix, tokens), (decoder, bias)):
        check_tied(tensors, one, other, remedy=remedy)


def _weight_files(directory: Path) -> list[Path]:
    """The files that hold a model's tensors: one, or those that an index names."""
    if os.path.isfile(directory / WEIGHTS):
        return [directory / WEIGHTS]
    if os.path.isfile(directory / SHARDS):
        return _shards(directory / SHARDS)
    pickles = sorted(path.name for path in directory.glob("*") if path.suffix in _PICKLES)
    if pickles:
        raise InputError(
            f"{directory} has {listed(pickles)}, which could run any code when unpickled and is "
            f"not read, and no {WEIGHTS}. Convert it with a Python that has torch and safetensors: "
            f"weights = torch.load({pickles[0]!r}, weights_only=True); "
            "safetensors.torch.save_file({name: tensor.clone() for name, tensor in "
            f"weights.items()}}, {WEIGHTS!r})"
        )
    raise InputError(f"{directory} has neither {WEIGHTS} nor {SHARDS}")


def _damaged(path: Path, error: Exception) -> str:
    """Message about a file of weights that cannot be opened."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            return (
                f"{path} is a pointer of Git LFS, which stands for the weights: fetch them with "
                "`git lfs pull`"
            )
    return f"{path} is not a whole safetensors file ({error}): fetch it again"


def _weight_map(index: Path) -> dict[str, str]:
    """The file of each tensor, as an index says."""
    found = read_json(index, remedy="fetch it again", largest=_LARGEST_INDEX).get("weight_map")
    return from_json(dict[str, str], found, place=f"{index}: weight_map")


def _check_index(directory: Path, stored: set[str]) -> None:
    """Raise where an index names tensors that its files do not have: they are of another model."""
    if os.path.isfile(directory / WEIGHTS) or not os.path.isfile(directory / SHARDS):
        return
    places = _weight_map(directory / SHARDS)
    if absent := sorted(places.keys() - stored):
        files = listed(sorted({places[name] for name in absent}))
        raise InputError(
            f"{directory}: by {SHARDS}, {listed(absent)} should be in {files}, and is not: the "
            "files are of different models or versions; fetch all again"
        )


def _shards(index: Path) -> list[Path]:
    """The files beside an index that it names; a path to elsewhere is no such name."""
    place = f"{index}: weight_map"
    names = sorted(set(_weight_map(index).values()))
    if not names:
        raise InputError(f"{place} names no files")
    paths = [n for n in names if not n.isprintable() or n != Path(n).name or "\\" in n]
    if paths:
        raise InputError(f"{place} names {listed(map(repr, paths))}, not files in its folder")
    if absent := [name for name in names if not os.path.isfile(index.parent / name)]:
        raise InputError(f"{index.parent} lacks {listed(absent)}, which {index.name} names")
    return [index.parent / name for name in names]


def _modern(name: str) -> str:
    """The name of today: early checkpoints, BERT's own among them, have gamma and beta."""
    name = re.sub(r"(LayerNorm|layer_norm)\.gamma$", r"\1.weight", name)
    return re.sub(r"(LayerNorm|layer_norm)\.beta$", r"\1.bias", name)


def _their_names(name: TensorName, leaf: Any) -> dict[str, tuple[int, ...]]:
    """Names and shapes there of the tensors of a parameter."""
    stacked = "{layer}" in name.theirs
    shape = leaf.shape[1:] if stacked else leaf.shape
    count = leaf.shape[0] if stacked else 1
    shape = list(shape[::-1] if name.transposed else shape)
    if name.part is not None:
        shape[name.axis] *= name.part.count
    return {name.theirs.format(layer=i): tuple(shape) for i in range(name.first, count)}


def _read(name: TensorName, leaf: Any, tensors: Tensors) -> jax.Array:
    parts = [tensors.read(theirs, leaf.dtype) for theirs in _their_names(name, leaf)]
    if name.part is not None:
        parts = [name.part.of(part, name.axis) for part in parts]
    parts = [part.T for part in parts] if name.transposed else parts
    parts = [part + part.dtype.type(name.plus) for part in parts] if name.plus else parts
    parts = [np.ones_like(parts[0])] * name.first + parts
    # With its dtype, `jnp.asarray` copies once.
    return jnp.asarray(np.stack(parts) if "{layer}" in name.theirs else parts[0], leaf.dtype)


def _beside_encoder(name: str) -> bool:
    """Whether a tensor is of a head or a buffer, which an encoder does not use."""
    buffer = name.endswith(("position_ids", "token_type_ids"))
    return buffer or not name.startswith(("embeddings.", "encoder."))


def _check_tensors(
    wanted: list[tuple[TensorName, Any]], tensors: Tensors, others: Callable[[str], bool]
) -> None:
    """Raise one error that names everything that is wrong with the tensors."""
    shapes = {k: v for name, leaf in wanted for k, v in _their_names(name, leaf).items()}
    problems = []
    if missing := [name for name in shapes if name not in tensors.files]:
        problems.append(f"missing are {listed(missing)}")
    for name in (name for name in shapes if name in tensors.files):
        if tensors.shape(name) != shapes[name]:
            problems.append(f"{name} has shape {tensors.shape(name)}, not {shapes[name]}")
        if problem := tensors.problem(name):
            problems.append(problem)
    if unknown := [n for n in sorted(tensors.files.keys() - shapes.keys()) if not others(n)]:
        stored = listed(tensors.files[name][1] for name in unknown)
        problems.append(f"nothing is known of the tensors {stored}")
    if problems:
        few = "; ".join(problems[:_MOST_NAMED])
        raise InputError(f"{tensors.directory} does not fit its config.json: {few}")


def _check_memory(leaves: list[Any], tensors: Tensors) -> None:
    """Raise where the parameters, or the largest while it is read, are more than there is."""
    sizes = [math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves]
    remedy = "take a smaller model, or a machine with more memory"
    place, limit = tensors.directory, device_bytes()
    check_bytes(2 * max(sizes), what=f"reading {place}", remedy=remedy)
    check_bytes(sum(sizes), what=f"the model of {place}", remedy=remedy, limit=limit)
