"""Fields of a row of the table of architectures."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from jaxpe.encodings import Encoding, LayerPattern
from jaxpe.nn.checkpoints.huggingface import Fields, Part, TensorName
from jaxpe.nn.config import TransformerConfig

# Modules by their paths here. A path of layers has {layer} there.
Modules = dict[str, "str | Fused"]


class Fused(NamedTuple):
    """Several dense layers in one matrix there.

    Attributes:
        theirs: name of the matrix.
        index, count: which of how many it is.
        by_head: whether the parts of each head stand together, and not all heads of each part.
    """

    theirs: str
    index: int
    count: int
    by_head: bool = False


class Gguf(NamedTuple):
    """Names and conventions of a family in llama.cpp.

    Attributes:
        name: its `general.architecture`.
        interleaved: whether pairs of rotary entries stand side by side there.
        required: entries that a file may leave out there, and may not here.
        divided: whether frequencies of RoPE are divided by a tensor, where there is one.
    """

    name: str
    interleaved: bool = False
    required: tuple[str, ...] = ()
    divided: bool = False


class Family(NamedTuple):
    """A row of the table: how Hugging Face has an architecture, and what it is here.

    Attributes:
        model_type: its name in a config.json.
        title: what the names of its classes begin with.
        prefix: of the tensors below the head.
        modules: names of dense layers, norms and tables.
        defaults: fields that are looked at, and what those are that a config.json leaves out.
        options: fields of `TransformerConfig` beyond those of every family, from the fields.
        encoding: the encoding, from the fields, the width of a head and the configuration.
        renamed: fields there by the names that are common.
        allowed: values of fields that change the computation; fields that `options` and `encoding`
            use are not among them.
        same: fields that must equal another one where they are there.
        transposed: whether matrices of layers are `[out, in]` there. Matrices of heads always are.
        plus: number that norms there add to their scale.
        gguf: how llama.cpp has it; without a name where it has not, or has it otherwise.
    """

    model_type: str
    title: str
    prefix: str
    modules: Modules
    defaults: Fields
    options: Callable[[Fields], Fields]
    encoding: Callable[[Fields, TransformerConfig], Encoding | LayerPattern]
    renamed: Mapping[str, str] = {}
    allowed: Mapping[str, tuple] = {}
    same: Mapping[str, str] = {}
    transposed: bool = True
    plus: float = 0.0
    gguf: Gguf = Gguf("")


def tensor_names(
    modules: Modules,
    trunk: str,
    *,
    heads: int = 1,
    transposed: bool = True,
    plus: float = 0.0,
    first_norm: bool = True,
) -> tuple[TensorName, ...]:
    """Names of all tensors that modules can have, here below `trunk`, or where "head." begins them.

    Args:
        modules: names here and there.
        trunk: path of the transformer in the model.
        heads: query heads.
        transposed: whether matrices of layers are `[out, in]` there. Matrices of heads always are.
        plus: number that norms there add to their scale.
        first_norm: whether the first layer has a norm before attention.
    """
    found: list[TensorName] = []
    for ours, theirs in modules.items():
        part = None
        if isinstance(theirs, Fused):
            part = Part(theirs.index, theirs.count, heads if theirs.by_head else None)
            theirs = theirs.theirs
        path = ours[5:] if ours.startswith("head.") else f"{trunk}.{ours}"
        if path == "bias":
            found.append(TensorName(theirs, path))
            continue
        if ours.endswith(_TABLES):
            leaf = "" if "params" in ours else ".embedding"
            found.append(TensorName(f"{theirs}.weight", f"{path}{leaf}"))
            continue
        is_norm = ours.endswith("norm")
        first = int(ours == "layers.attention_norm" and not first_norm)
        scale = TensorName(f"{theirs}.weight", f"{path}.scale", plus=plus, first=first)
        turned = transposed or ours.startswith("head.")
        kernel = TensorName(f"{theirs}.weight", f"{path}.kernel", turned, part)
        found += [
            scale if is_norm else kernel,
            TensorName(f"{theirs}.bias", f"{path}.bias", part=part, first=first),
        ]
    return tuple(found)


_TABLES = ("tokens", "token_types", "table")
