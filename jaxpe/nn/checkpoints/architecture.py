"""Architectures of released models: rows of `decoders.toml` and the tables next to it."""

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from jaxpe.nn.config import TransformerConfig
from jaxpe.nn.layers import is_gated

Fields = dict[str, Any]


class Part(NamedTuple):
    """One of several dense layers that are fused into one matrix of the checkpoint."""

    index: int
    sizes: tuple[int, ...]  # of all parts, in units of the smallest
    heads: int = 1  # number of groups of the matrix, each with all parts

    def slice(self, matrix: np.ndarray, axis: int) -> np.ndarray:
        """Features of this part, from the matrix of all parts."""
        features = np.moveaxis(matrix, axis, 0)
        rest = features.shape[1:]
        by_head = features.reshape(self.heads, sum(self.sizes), -1, *rest)
        start = sum(self.sizes[: self.index])
        part = by_head[:, start : start + self.sizes[self.index]]
        return np.moveaxis(part.reshape(-1, *rest), 0, axis)

    def join(self, parts: Sequence[np.ndarray], axis: int) -> np.ndarray:
        """Matrix of all parts, which are in order."""
        moved = [np.moveaxis(part, axis, 0) for part in parts]
        rest = moved[0].shape[1:]
        by_head = [part.reshape(self.heads, -1, *rest) for part in moved]
        return np.moveaxis(np.concatenate(by_head, axis=1).reshape(-1, *rest), 0, axis)


class TensorName(NamedTuple):
    """Name of a tensor in the checkpoint, path of its parameter, and the conversion."""

    checkpoint_name: str  # {layer} is the number that the parameter is stacked over
    param_path: str
    transposed: bool = False  # [out, in] in the checkpoint, [in, out] as a parameter
    part: Part | None = None
    offset: float = 0.0  # added to the values of the checkpoint
    first: int = 0  # first layer with the tensor; the parameter is 1 in earlier layers

    @property
    def axis(self) -> int:
        """Axis of the features in the checkpoint, along which parts are fused."""
        return 0 if self.transposed else -1

    @property
    def stacked(self) -> bool:
        """Whether the checkpoint has a tensor for each entry of the parameter's first axis."""
        return "{layer}" in self.checkpoint_name

    def stored_shapes(self, leaf: Any) -> dict[str, tuple[int, ...]]:
        """Names and shapes of a parameter's tensors in the checkpoint."""
        layers = range(self.first, leaf.shape[0] if self.stacked else 1)
        shape = list(leaf.shape[self.stacked :])
        shape = shape[::-1] if self.transposed else shape
        if self.part is not None:
            sizes = self.part.sizes
            shape[self.axis] = shape[self.axis] * sum(sizes) // sizes[self.part.index]
        names = (self.checkpoint_name.format(layer=layer) for layer in layers)
        return dict.fromkeys(names, tuple(shape))


class Fused(NamedTuple):
    """Dense layer number `index` of `count` that are fused into a matrix of the checkpoint."""

    checkpoint_name: str
    index: int
    count: int

    def part(self, config: TransformerConfig, *, by_head: bool) -> Part:
        """Place of the dense layer in the matrix."""
        # Of three parts, the first are queries, whose heads may share keys and values.
        groups = config.num_heads // config.key_heads
        sizes = (groups, 1, 1) if self.count == 3 else (1,) * self.count
        return Part(self.index, sizes, config.num_heads if by_head else 1)


Modules = Mapping[str, str | Fused]


class Architecture(NamedTuple):
    """Row of the table of architectures; `decoders.toml` explains the keys.

    Attributes:
        modules: checkpoint names by parameter path, including layers.
    """

    model_type: str
    kind: str
    title: str
    prefix: str
    activations: str
    modules: Modules
    defaults: Fields
    positions: Sequence[str] = ("table",)
    offset: int = 0
    by_head: bool = False
    gated: Mapping[str, str] = {}
    transposed: bool = True
    norm_offset: float = 0.0
    names: Mapping[str, str] = {}
    allowed: Mapping[str, list] = {}
    equal: Mapping[str, str] = {}
    ignored: Sequence[str] = ()
    config: Mapping[str, Any] = {}
    biases: Mapping[str, bool | str] = {}
    scaled_embeddings: bool = False
    gguf: Mapping[str, Any] = {}
    when: Mapping[str, Any] = {}

    @property
    def head_names(self) -> tuple[str, ...]:
        """Checkpoint names that do not have the prefix."""
        outside = ("head.", "classifier.")
        names = [str(name) for path, name in self.modules.items() if path.startswith(outside)]
        return tuple(name for name in names if not name.startswith("pooler."))

    def tensor_names(
        self, trunk: str, config: TransformerConfig, *, head: str = "head"
    ) -> tuple[TensorName, ...]:
        """Names of all tensors that a model may have.

        Args:
            trunk: path of the transformer in the model; "" for the transformer itself.
            config: configuration of the model, on which heads and first layers depend.
            head: group of modules outside the transformer.
        """
        modules, names = {**self.modules}, []
        if is_gated(config.activation):
            modules |= self.gated
        for path, module in modules.items():
            part = None
            if isinstance(module, Fused):
                part = module.part(config, by_head=self.by_head)
                module = module.checkpoint_name
            group, _, rest = path.partition(".")
            beside = group in _GROUPS
            if beside and group != head:
                continue
            leaf = rest if beside else f"{trunk}.{path}".removeprefix(".")
            weight, first = f"{module}.weight", 0
            if leaf == "bias":
                names.append(TensorName(module, leaf))
                continue
            if path.endswith(_TABLES):
                table = leaf if "params" in path else f"{leaf}.embedding"
                names.append(TensorName(weight, table))
                continue
            if path.endswith("norm"):
                first = int(path == "layers.attention_norm" and not config.first_norm)
                offset = self.norm_offset if path.endswith("_norm") else 0.0
                names.append(TensorName(weight, f"{leaf}.scale", offset=offset, first=first))
            else:
                kernel = f"{leaf}.kernel"
                names.append(TensorName(weight, kernel, self.transposed or beside, part))
            names.append(TensorName(f"{module}.bias", f"{leaf}.bias", part=part, first=first))
        return tuple(names)


_TABLES = ("tokens", "token_types", "table")
_GROUPS = ("head", "pooler", "classifier")


def _rows() -> dict[str, Fields]:
    folder = files("jaxpe.nn.checkpoints")
    rows: dict[str, Fields] = {}
    for name in ("decoders", "encoders", "encoder_decoders"):
        rows |= tomllib.loads(folder.joinpath(f"{name}.toml").read_text("utf-8"))
    return rows


def _extended_row(rows: Mapping[str, Fields], name: str) -> Fields:
    """Row merged with the rows that it extends; optional fields are null by default."""
    row = dict(rows[name])
    row["defaults"] = row.get("defaults", {}) | dict.fromkeys(row.pop("optional", ()))
    if "like" not in row:
        return row
    base = _extended_row(rows, row.pop("like"))
    base.pop("gguf", None)
    tables = {key: base[key] | row[key] for key in base.keys() & row if isinstance(row[key], dict)}
    return base | row | tables


def _architecture(rows: Mapping[str, Fields], model_type: str) -> Architecture:
    row = _extended_row(rows, model_type)
    layer = row.pop("layer", "")
    modules: dict[str, str | Fused] = dict(row.pop("modules"))
    layers = {path: layer + name for path, name in row.pop("layers", {}).items() if name}
    modules |= {f"layers.{path}": name for path, name in layers.items()}
    for matrix, paths in row.pop("fused", {}).items():
        for i, path in enumerate(paths):
            modules[f"layers.{path}"] = Fused(layer + matrix, i, len(paths))
    return Architecture(model_type=model_type, modules=modules, **row)


_ROWS = _rows()
ARCHITECTURES: Mapping[str, Architecture] = {
    name: _architecture(_ROWS, name) for name in _ROWS if not name.startswith("base_")
}


def row_name(fields: Fields) -> Any:
    """Key of the row of a config.json: its model type, unless other fields choose another row."""
    chosen = (name for name, row in ARCHITECTURES.items() if row.when)
    fits = (n for n in chosen if fields.items() >= ARCHITECTURES[n].when.items())
    return next(fits, fields.get("model_type"))


# Models of text and images, and the type of `text_config` where the file does not say it.
_WRAPPERS = {"gemma3": "gemma3_text", "mistral3": "mistral"}


def text_fields(fields: Fields) -> Fields:
    """Fields of the part that reads text; all fields for a model of text alone."""
    text, text_type = fields.get("text_config"), _WRAPPERS.get(str(fields.get("model_type")))
    if text_type is None or not isinstance(text, dict):
        return fields
    # The head belongs to the whole model.
    names = ("tie_word_embeddings", "quantization_config", "dtype")
    whole = {name: fields[name] for name in names if name in fields}
    return {"model_type": text_type} | text | whole


def architectures(*kinds: str) -> dict[str, Architecture]:
    """Architectures of some kinds, by model type."""
    return {name: row for name, row in ARCHITECTURES.items() if row.kind in kinds}


DECODERS = architectures("decoder")
