"""Tensors of released models, in safetensors files.

Files are data only: nothing is unpickled, imported or run.
"""

import contextlib
import math
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.tree_util import GetAttrKey, keystr

from jaxpe._core.errors import InputError, require
from jaxpe._core.json_values import from_json, read_json
from jaxpe._core.memory import check_bytes, device_bytes
from jaxpe.nn.checkpoints.architecture import TensorName

Model = TypeVar("Model", bound=nnx.Module)

WEIGHTS, SHARDS = "model.safetensors", "model.safetensors.index.json"
_POINTER = b"version https://git-lfs"  # content of a large file in a clone without Git LFS
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_LARGEST_INDEX = 2**26  # bytes
_TEXT = re.compile(r"^language_model\.(model\.)?")  # prefix in a model of text and images
_FLOATS = ("F64", "F32", "F16", "BF16")  # readable dtypes, as safetensors calls them
_MOST_NAMED = 40  # tensors that a message names at most


@contextlib.contextmanager
def open_tensors(directory: str | os.PathLike, prefix: str) -> Iterator["Tensors"]:
    """Open the tensors of a directory, without the prefix of names; each is read when needed."""
    safetensors = require("safetensors", extra="train")
    with contextlib.ExitStack() as files:
        tensors: dict[str, tuple[Any, str]] = {}
        for path in _weight_files(Path(directory)):
            try:
                file = files.enter_context(safetensors.safe_open(path, framework="numpy"))
            except (safetensors.SafetensorError, OSError) as error:
                raise InputError(_damage_message(path, error)) from error
            for stored in file.keys():  # noqa: SIM118 (it is no dict)
                name = _TEXT.sub("", _modern(stored).removeprefix(prefix))
                if name in tensors:
                    twice = listed([tensors[name][1], stored])
                    raise InputError(f"{directory} has two tensors for one parameter: {twice}")
                tensors[name] = (file, stored)
        yield Tensors(Path(directory), tensors)


class Tensors(NamedTuple):
    """Tensors of a directory, by current transformers names without the prefix."""

    directory: Path
    files: dict[str, tuple[Any, str]]  # open file, and name in the file

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        file, stored = self.files[name]
        return tuple(file.get_slice(stored).get_shape())

    def read(self, name: str, dtype: Any = np.float32) -> np.ndarray:
        """Tensor in a dtype; raises `InputError` unless its floats are finite in this dtype."""
        if problem := self.problem(name):
            raise InputError(f"{self.directory}: {problem}")
        file, stored = self.files[name]
        with np.errstate(all="ignore"):
            tensor = file.get_tensor(stored).astype(dtype, copy=False)
        if not (finite := np.isfinite(tensor)).all():
            count = finite.size - np.count_nonzero(finite)
            raise InputError(
                f"{self.directory}: {count:,} of {finite.size:,} numbers of the tensor "
                f"{listed([stored])} are NaN or infinite as {tensor.dtype}: fetch the file again"
            )
        return tensor

    def problem(self, name: str) -> str | None:
        """Problem with the dtype of a tensor; None if it can be read."""
        file, stored = self.files[name]
        dtype = file.get_slice(stored).get_dtype()
        return None if dtype in _FLOATS else f"{name} is {dtype}, not floating-point numbers"


def load_parameters(
    model: Callable[[], Model],
    names: tuple[TensorName, ...],
    tensors: Tensors,
    *,
    ignored: Callable[[str], bool],
) -> Model:
    """Model with the tensors of a directory.

    Args:
        model: constructor of the model, whose parameters are not initialised.
        names: names of possible parameters.
        tensors: tensors of the directory.
        ignored: whether a tensor without a parameter may be ignored, by its name.

    Raises:
        InputError: missing or unknown tensors, or tensors of another shape or dtype; the message
            names each.
    """
    graphdef, state = nnx.split(nnx.eval_shape(model))
    leaves, treedef = jax.tree.flatten_with_path(state)
    by_path = {name.param_path: name for name in names}
    pairs = [(by_path[param_path(path)], leaf) for path, leaf in leaves]
    _check_tensors(pairs, tensors, ignored)
    _check_memory([leaf for _, leaf in pairs], tensors)
    read = [_read(name, leaf, tensors) for name, leaf in pairs]
    return nnx.merge(graphdef, jax.tree.unflatten(treedef, read))


def param_path(path: tuple) -> str:
    """Path of a parameter as text, such as "encoder.layers.mlp.up.kernel"."""
    keys = tuple(key for key in path if not isinstance(key, GetAttrKey))  # not a variable's value
    return keystr(keys, simple=True, separator=".")


def listed(names: Iterable[str]) -> str:
    """Names from a file as one line: unprintable names are quoted, more than 40 are counted."""
    names = list(names)
    short = [n if n.isprintable() and len(n) < 200 else reprlib.repr(n) for n in names]
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(short[:_MOST_NAMED]) + more


def check_tied(tensors: Tensors, one: str, other: str, *, remedy: str) -> None:
    """Raise if the file has both tensors and they differ."""
    if one not in tensors.files or other not in tensors.files:
        return
    same = tensors.shape(one) == tensors.shape(other)
    if not same or not np.array_equal(tensors.read(one), tensors.read(other)):
        raise InputError(f"{tensors.directory}: {one} differs from {other}: {remedy}")


def check_head(path: Path, tensors: Tensors, name: str, *, tied: bool) -> None:
    """Raise where a head that is not tied to the embeddings has no matrix in the file."""
    if not tied and name not in tensors.files:
        raise InputError(
            f"{path}: tie_word_embeddings is False, and {tensors.directory} has no {name}: fetch "
            "the file again, or set it to True"
        )


def check_masked_lm_head(
    path: Path, tied: bool | None, tensors: Tensors, *, bias: str, tokens: str
) -> None:
    """Raise if the decoder of a masked language model is not tied to the embeddings.

    Args:
        path: path of the config.json.
        tied: value of `tie_word_embeddings`.
        tensors: tensors of the directory.
        bias: name of the head's bias.
        tokens: name of the table of embeddings.
    """
    decoder = bias if bias == "decoder.bias" else bias.replace("bias", "decoder.bias")
    matrix = decoder.removesuffix("bias") + "weight"
    check_head(path, tensors, matrix, tied=tied is not False)
    remedy = "only heads that are tied to the embeddings (tie_word_embeddings) are supported"
    for one, other in ((matrix, tokens), (decoder, bias)):
        check_tied(tensors, one, other, remedy=remedy)


def _weight_files(directory: Path) -> list[Path]:
    """Files with a model's tensors: one, or the shards of an index."""
    if os.path.isfile(directory / WEIGHTS):
        return [directory / WEIGHTS]
    if os.path.isfile(directory / SHARDS):
        return _shards(directory / SHARDS)
    pickles = sorted(path.name for path in directory.glob("*") if path.suffix in _PICKLES)
    if pickles:
        raise InputError(
            f"{directory} has no {WEIGHTS}, but {listed(pickles)}, which is not read, since "
            "unpickling could run any code. Convert it with a Python that has torch and "
            "safetensors: "
            f"weights = torch.load({pickles[0]!r}, weights_only=True); "
            "safetensors.torch.save_file({name: tensor.clone() for name, tensor in "
            f"weights.items()}}, {WEIGHTS!r})"
        )
    raise InputError(f"{directory} has neither {WEIGHTS} nor {SHARDS}")


def _damage_message(path: Path, error: Exception) -> str:
    """Message about a file of weights that cannot be opened."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            return f"{path} is a Git LFS pointer to the weights: fetch them with `git lfs pull`"
    return f"{path} is not a complete safetensors file ({error}): fetch it again"


def _shards(index: Path) -> list[Path]:
    """Files that an index names; raises for a path outside its folder."""
    entry = f"{index}: weight_map"
    stored = read_json(index, remedy="fetch it again", largest=_LARGEST_INDEX)
    weight_map = from_json(dict[str, str], stored.get("weight_map"), where=entry)
    names = sorted(set(weight_map.values()))
    if not names:
        raise InputError(f"{entry} names no files")
    paths = [n for n in names if not n.isprintable() or n != Path(n).name or "\\" in n]
    if paths:
        raise InputError(f"{entry} names {listed(map(repr, paths))}, not files in its folder")
    if absent := [name for name in names if not os.path.isfile(index.parent / name)]:
        raise InputError(f"{index.parent} lacks {listed(absent)}, which {index.name} names")
    return [index.parent / name for name in names]


def _modern(name: str) -> str:
    """Current name of a tensor; early checkpoints, such as BERT's, use gamma and beta."""
    name = re.sub(r"(LayerNorm|layer_norm)\.gamma$", r"\1.weight", name)
    return re.sub(r"(LayerNorm|layer_norm)\.beta$", r"\1.bias", name)


def _read(name: TensorName, leaf: Any, tensors: Tensors) -> jax.Array:
    """Parameter of a name, stacked over layers."""
    layers = [tensors.read(stored, leaf.dtype) for stored in name.stored_shapes(leaf)]
    if name.part is not None:
        layers = [name.part.slice(matrix, name.axis) for matrix in layers]
    layers = [matrix.T for matrix in layers] if name.transposed else layers
    layers = [x + x.dtype.type(name.offset) for x in layers] if name.offset else layers
    layers = [np.ones_like(layers[0])] * name.first + layers
    # With its dtype, `jnp.asarray` copies once.
    whole = np.stack(layers) if name.stacked else layers[0]
    return jnp.asarray(whole, leaf.dtype)


def _check_tensors(
    wanted: list[tuple[TensorName, Any]], tensors: Tensors, ignored: Callable[[str], bool]
) -> None:
    """Raise one error that names every tensor that does not fit."""
    shapes = {k: v for name, leaf in wanted for k, v in name.stored_shapes(leaf).items()}
    problems = []
    if missing := [name for name in shapes if name not in tensors.files]:
        problems.append(f"missing are {listed(missing)}")
    for name in (name for name in shapes if name in tensors.files):
        if tensors.shape(name) != shapes[name]:
            problems.append(f"{name} has shape {tensors.shape(name)}, not {shapes[name]}")
        if problem := tensors.problem(name):
            problems.append(problem)
    if unknown := [n for n in sorted(tensors.files.keys() - shapes.keys()) if not ignored(n)]:
        stored = listed(tensors.files[name][1] for name in unknown)
        problems.append(f"the tensors {stored} are unknown")
    if problems:
        few = "; ".join(problems[:_MOST_NAMED])
        raise InputError(f"{tensors.directory} does not fit its config.json: {few}")


def _check_memory(leaves: list[Any], tensors: Tensors) -> None:
    """Raise if the parameters, or the largest one while it is read, exceed the memory."""
    sizes = [math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves]
    remedy = "take a smaller model, or a machine with more memory"
    path, limit = tensors.directory, device_bytes()
    check_bytes(2 * max(sizes), what=f"reading {path}", remedy=remedy)
    check_bytes(sum(sizes), what=f"the model of {path}", remedy=remedy, limit=limit)
