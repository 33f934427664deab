"""Directories of Hugging Face: their configuration and tensors, read and written without torch.

One table says which tensor of theirs is which parameter of ours; reading and writing both follow
it. Nothing is ever unpickled.
"""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.tree_util import GetAttrKey, keystr

from jaxpe._errors import InputError, require
from jaxpe.nn.config import Activation, TransformerConfig

Fields = dict[str, Any]
Model = TypeVar("Model", bound=nnx.Module)

WEIGHTS, SHARDS, PICKLE = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
TOKENIZER_FILES = (
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)


class TensorName(NamedTuple):
    """One tensor there and here.

    Attributes:
        theirs: its name; {layer} stands for the number of a layer, whose tensors we stack.
        ours: the path of the parameter.
        transposed: whether it is a matrix `[out, in]` there and `[in, out]` here.
    """

    theirs: str
    ours: str
    transposed: bool = False


class Architecture(NamedTuple):
    """How Hugging Face names the parts of a family of models.

    Attributes:
        model_type: in config.json; also the prefix of the base where there is a head.
        title: what its classes begin with.
        defaults: what a field is that config.json leaves out.
        allowed: fields that change the computation, and the values that we have.
        base: tensors of the encoder.
        pooler: of the base model's pooler.
        masked_lm: of the head of a masked language model, whose decoder is tied.
        decoder: the tied matrix, where a file has it all the same.
        classifier: of the head of a classifier, its pooler among them.
    """

    model_type: str
    title: str
    defaults: Fields
    allowed: Mapping[str, tuple]
    base: tuple[TensorName, ...]
    pooler: tuple[TensorName, ...]
    masked_lm: tuple[TensorName, ...]
    decoder: str
    classifier: tuple[TensorName, ...]


def _dense(theirs: str, ours: str) -> tuple[TensorName, ...]:
    kernel = TensorName(f"{theirs}.weight", f"{ours}.kernel", transposed=True)
    return kernel, TensorName(f"{theirs}.bias", f"{ours}.bias")


def _norm(theirs: str, ours: str) -> tuple[TensorName, ...]:
    scale = TensorName(f"{theirs}.weight", f"{ours}.scale")
    return scale, TensorName(f"{theirs}.bias", f"{ours}.bias")


def _layers(attention: Mapping[str, str], attention_norm: str) -> tuple[TensorName, ...]:
    """Tensors of a layer, whose attention the two families name differently."""
    there, here = "encoder.layer.{layer}.", "encoder.layers."
    parts = [
        _dense(there + theirs, f"{here}attention.{ours}") for theirs, ours in attention.items()
    ]
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
            {
                "attention.self.query": "query",
                "attention.self.key": "key",
                "attention.self.value": "value",
                "attention.output.dense": "output",
            },
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
        *_layers(
            {
                "attention.attn.q": "query",
                "attention.attn.k": "key",
                "attention.attn.v": "value",
                "attention.attn.o": "output",
            },
            "attention.LayerNorm",
        ),
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
_FLOATS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "layer_norm_eps",
    "initializer_range",
)
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def read_fields(directory: str | os.PathLike) -> tuple[Architecture, Fields]:
    """The family of a directory's model, and the fields of its config.json, defaults filled in.

    Raises:
        InputError: where there is no configuration, it cannot be read, or it asks for a computation
            that is not here. Fields that are not known do not matter.
    """
    directory = Path(directory)
    path = directory / "config.json"
    if not directory.is_dir():
        raise InputError(f"{directory} is not a directory: pass one with config.json and {WEIGHTS}")
    if not path.is_file():
        raise InputError(f"{directory} has no config.json: is it the directory of a model?")
    given = _read_json(path)
    kind = given.get("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        raise InputError(
            f"{path}: model_type is {kind!r}; {' and '.join(ARCHITECTURES)} are what can be read"
        )
    architecture = ARCHITECTURES[kind]
    fields = architecture.defaults | given
    _check_fields(path, architecture, fields)
    return architecture, fields


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
        fields["hidden_act"] = _their_activation(config.activation)
    return fields | {name: "float32" for name in ("dtype", "torch_dtype") if name in fields}


def check_config(config: TransformerConfig, architecture: Architecture) -> None:
    """Raise where a configuration is not one that Hugging Face's class can have."""
    title = architecture.title
    required = {"norm": "layer", "norm_position": "post", "use_bias": True, "latent": None}
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
                raise InputError(
                    f"{path} is not a whole safetensors file ({error}): fetch it again"
                ) from error
            names = file.keys()
            found.update({_modern(name).removeprefix(prefix): (file, name) for name in names})
        yield Tensors(Path(directory), found)


class Tensors(NamedTuple):
    """Tensors of a directory by name: without the prefix of the base, LayerNorms as they are now.

    Attributes:
        directory: where they are, for messages.
        files: of each tensor, the open file and its name there.
    """

    directory: Path
    files: dict[str, tuple[Any, str]]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        file, stored = self.files[name]
        return tuple(file.get_slice(stored).get_shape())

    def read(self, name: str) -> np.ndarray:
        """A tensor as float32 (float64 stays)."""
        file, stored = self.files[name]
        tensor = file.get_tensor(stored)
        return tensor if tensor.dtype == np.float64 else tensor.astype(np.float32)

    def dtype(self, name: str) -> str:
        """The dtype of a tensor, as safetensors calls it."""
        file, stored = self.files[name]
        return file.get_slice(stored).get_dtype()


def fill(model: Model, names: tuple[TensorName, ...], tensors: Tensors) -> Model:
    """A model of shapes (`nnx.eval_shape`) with the tensors of a directory.

    Raises:
        InputError: names every tensor that is missing, of another shape, of no floating dtype, or
            part of the encoder and unknown. Others (other heads, `position_ids`) are left alone.
    """
    graphdef, state = nnx.split(model)
    leaves, treedef = jax.tree.flatten_with_path(state)
    by_path = {name.ours: name for name in names}
    wanted = [(by_path[path_name(path)], leaf) for path, leaf in leaves]
    _check_tensors(wanted, tensors)
    return nnx.merge(graphdef, jax.tree.unflatten(treedef, [_read(*w, tensors) for w in wanted]))


def tensors_of(
    model: nnx.Module, names: tuple[TensorName, ...], *, prefix: str = ""
) -> dict[str, np.ndarray]:
    """Tensors of a model under their names there, float32; those of the base get the prefix."""
    leaves, _ = jax.tree.flatten_with_path(nnx.state(model, nnx.Param))
    by_path = {name.ours: name for name in names}
    found = {}
    for path, leaf in leaves:
        name = by_path[path_name(path)]
        theirs = prefix + name.theirs if _of_base(name.theirs) else name.theirs
        for key, tensor in _unstacked(theirs, np.asarray(leaf, np.float32)):
            found[key] = np.ascontiguousarray(tensor.T if name.transposed else tensor)
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
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    # Whole or not at all: a write that breaks off must not leave half a file under the name.
    unfinished = directory / f"{WEIGHTS}.unfinished"
    save_file(tensors, unfinished, metadata={"format": "pt"})
    unfinished.replace(directory / WEIGHTS)
    (directory / "config.json").write_text(
        json.dumps(fields, indent=2, sort_keys=True) + "\n", encoding="utf-8"
    )
    for name in TOKENIZER_FILES:
        if source is not None and (Path(source) / name).is_file():
            with contextlib.suppress(shutil.SameFileError):
                shutil.copy(Path(source) / name, directory / name)


def path_name(path: tuple) -> str:
    """A path in a tree of parameters as "encoder.layers.mlp.up.kernel"."""
    keys = tuple(key for key in path if not isinstance(key, GetAttrKey))  # a variable's own value
    return keystr(keys, simple=True, separator=".")


def _their_activation(ours: str) -> str:
    return next(theirs for theirs, name in ACTIVATIONS.items() if name == ours)


def _read_json(path: Path) -> Fields:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} holds a {type(found).__name__}, not an object with fields")
    return found


def _check_fields(path: Path, architecture: Architecture, fields: Fields) -> None:
    """Raise where a field asks for what is not here, or is not of its type."""
    for name, values in architecture.allowed.items():
        if fields.get(name) is not None and fields[name] not in values:
            only = f"; only {', '.join(map(repr, values))} is supported" if values else ""
            raise InputError(
                f"{path}: {name} is {fields[name]!r}, which changes the computation{only}"
            )
    if fields["hidden_act"] not in [*ACTIVATIONS]:
        known = ", ".join(ACTIVATIONS)
        raise InputError(f"{path}: hidden_act is {fields['hidden_act']!r}; supported are {known}")
    for name in architecture.defaults.keys() - {"hidden_act"}:
        _check_number(path, name, fields[name])


def _check_number(path: Path, name: str, value: Any) -> None:
    kind, what = ((int, float), "a number") if name in _FLOATS else (int, "a whole number")
    if not isinstance(value, kind) or isinstance(value, bool) or value < 0:
        raise InputError(f"{path}: {name} is {value!r}, not {what} of at least 0")


def _weight_files(directory: Path) -> list[Path]:
    """The files that hold a model's tensors: one, or those that an index names."""
    if (directory / WEIGHTS).is_file():
        return [directory / WEIGHTS]
    index = directory / SHARDS
    if index.is_file():
        shards = _read_json(index).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(s, str) for s in shards.values()):
            raise InputError(f"{index} has no weight_map from tensors to files")
        paths = [directory / Path(shard).name for shard in sorted(set(shards.values()))]
        if absent := [path.name for path in paths if not path.is_file()]:
            raise InputError(f"{directory} lacks {', '.join(absent)}, which {index.name} names")
        return paths
    if (directory / PICKLE).is_file():
        raise InputError(
            f"{directory} has {PICKLE}, which could run any code when unpickled, and no {WEIGHTS}. "
            "Convert it in there, with a Python that has torch and safetensors:\n"
            "    import safetensors.torch, torch\n"
            f"    weights = torch.load({PICKLE!r}, weights_only=True)\n"
            "    weights = {name: tensor.clone() for name, tensor in weights.items()}\n"
            f"    safetensors.torch.save_file(weights, {WEIGHTS!r})"
        )
    raise InputError(f"{directory} has neither {WEIGHTS} nor {SHARDS}")


def _modern(name: str) -> str:
    """The name of today: early checkpoints, BERT's own among them, have gamma and beta."""
    name = re.sub(r"(LayerNorm|layer_norm)\.gamma$", r"\1.weight", name)
    return re.sub(r"(LayerNorm|layer_norm)\.beta$", r"\1.bias", name)


def _of_base(name: str) -> bool:
    """Whether a tensor gets the prefix where there is a head."""
    return name.startswith(("embeddings.", "encoder.", "pooler."))


def _unstacked(theirs: str, stacked: Any) -> list[tuple[str, Any]]:
    """A parameter as the tensors it is there: one for each layer, or one."""
    if "{layer}" not in theirs:
        return [(theirs, stacked)]
    return [(theirs.format(layer=i), one) for i, one in enumerate(stacked)]


def _their_names(name: TensorName, leaf: Any) -> dict[str, tuple[int, ...]]:
    """Names and shapes there of the tensors of a parameter."""
    stacked = "{layer}" in name.theirs
    shape = leaf.shape[1:] if stacked else leaf.shape
    count = leaf.shape[0] if stacked else 1
    shape = shape[::-1] if name.transposed else shape
    return {name.theirs.format(layer=i): tuple(shape) for i in range(count)}


def _read(name: TensorName, leaf: Any, tensors: Tensors) -> jax.Array:
    parts = [tensors.read(theirs) for theirs in _their_names(name, leaf)]
    parts = [part.T for part in parts] if name.transposed else parts
    return jnp.asarray(np.stack(parts) if "{layer}" in name.theirs else parts[0], leaf.dtype)


def _check_tensors(wanted: list[tuple[TensorName, Any]], tensors: Tensors) -> None:
    """Raise one error that names everything that is wrong with the tensors."""
    shapes = {k: v for name, leaf in wanted for k, v in _their_names(name, leaf).items()}
    problems = []
    if missing := [name for name in shapes if name not in tensors.files]:
        problems.append(f"missing are {', '.join(missing)}")
    for name in (name for name in shapes if name in tensors.files):
        if tensors.shape(name) != shapes[name]:
            problems.append(f"{name} has shape {tensors.shape(name)}, not {shapes[name]}")
        if tensors.dtype(name) not in ("F64", "F32", "F16", "BF16"):
            problems.append(f"{name} is {tensors.dtype(name)}, not floating-point numbers")
    encoder = {n for n in tensors.files if n.startswith(("embeddings.", "encoder."))}
    buffers = {n for n in encoder if n.endswith(("position_ids", "token_type_ids"))}
    if unknown := encoder - buffers - shapes.keys():
        problems.append(f"of its encoder nothing is known of {', '.join(sorted(unknown))}")
    if problems:
        raise InputError(f"{tensors.directory} does not fit its config.json: {'; '.join(problems)}")
