"""Configurations as files store them, and the models that they describe."""

import contextlib
import os
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jaxpe._core.errors import InputError
from jaxpe._core.hub import check_model_folder, model_folder
from jaxpe._core.json_values import parse_json, read_json
from jaxpe.plans.families import (
    Family,
    field_names,
    filled_part,
    find_family,
    has_own_layers,
    part_types,
)
from jaxpe.plans.fields import Fields, positional_names
from jaxpe.plans.options import LARGEST_HEAD, RopeOptions
from jaxpe.plans.programs.facts import find_architecture

Form = Literal["config.json", "gguf", "options"]
_REMEDY = "pass a config.json, a folder with one, a .gguf, or a name such as Qwen/Qwen3-8B"
_LARGEST = 2**24  # bytes of a config.json
_ENTRIES = ("rope_scaling", "rope_parameters")
DEFAULT_CONTEXT = 2048


class UnknownSizeError(InputError):
    """Error for a file that does not determine the width of a head."""


class Model(NamedTuple):
    """Model in a configuration, as its class reads it.

    Attributes:
        part: path of its fields in the file, such as "text_config"; empty for the whole file.
        family: rules of its type.
        has_rules: whether `family` is of this model type, rather than the plain rules.
        fields: fields of the file, with the defaults of the class.
        context: `max_position_embeddings`.
    """

    part: str
    family: Family
    has_rules: bool
    fields: Fields
    context: int

    @property
    def entry(self) -> dict[str, Any]:
        """Entry of the file: `rope_scaling`, else `rope_parameters`."""
        return self.fields.mapping("rope_scaling") or self.fields.mapping("rope_parameters")


class Configuration(NamedTuple):
    """Positional fields of a file, before any program interprets them.

    Attributes:
        source: file, or "options".
        form: kind of the source.
        model_type: `model_type` of config.json, or the architecture of a GGUF file.
        models: text model, or encoder and decoder.
        outside: fields of the file outside the models.
        towers: other models of the file: vision, audio.
        gguf: metadata of a GGUF file after its architecture; empty for others.
    """

    source: str
    form: Form
    model_type: str
    models: tuple[Model, ...]
    outside: Mapping[str, Any]
    towers: tuple[Model, ...] = ()
    gguf: Mapping[str, Any] = {}


def read_configuration(
    options: RopeOptions, stated: Mapping[str, Any] | None = None
) -> Configuration:
    """Configuration from a file, its fields, or options; options replace fields.

    Args:
        options: file to read, and values that replace its fields.
        stated: fields of a config.json, in place of a file.

    Raises:
        InputError: a file that cannot be read, or fields that are no configuration.

    >>> read_configuration(RopeOptions(head_dim=64, context=2048)).models[0].context
    2048
    """
    if stated is None:
        options.check()
        source, form, fields = _source(options)
    else:
        source, form, fields = "fields", "config.json", dict(stated)
    gguf = fields.pop("gguf", {})
    model_type = fields.get("model_type") or fields.get("_class_name") or ""
    if not isinstance(model_type, str):
        raise InputError(f"{source}: model_type is {reprlib.repr(model_type)}, not a name")
    plain = ("", model_type, fields, False)
    model_parts = [plain] if form == "gguf" else [*_models(fields, model_type, "")]
    models = tuple(_model(source, form, *one[:3], options) for one in model_parts if not one[3])
    towers = tuple(_model(source, form, *one[:3], None) for one in model_parts if one[3])
    outside = {} if any(one.part == "" for one in models) else fields
    return Configuration(source, form, model_type, models, outside, towers, gguf)


def _source(options: RopeOptions) -> tuple[str, Form, dict[str, Any]]:
    if options.config is None:
        return "options", "options", {}
    path = model_folder(options.config, revision=options.revision)
    if os.path.isdir(path):
        check_model_folder(path)
        candidates = path / "config.json", *sorted(path.glob("*.gguf"))
        path = next(filter(Path.is_file, candidates), candidates[0])
    if not os.path.isfile(path):
        raise InputError(f"`config`: {path} does not exist; {_REMEDY}")
    magic = b""
    with contextlib.suppress(OSError), path.open("rb") as file:  # reported where it is read
        magic = file.read(4)
    if path.suffix == ".gguf" or magic == b"GGUF":
        from jaxpe.plans.gguf_fields import read_gguf_file  # needs the package gguf

        file = read_gguf_file(path)
        return str(path), "gguf", {**file.fields, "gguf": file.stated}
    fields = read_json(path, remedy=_REMEDY, largest=_LARGEST)
    name = options.config if not os.path.exists(options.config) else str(path)
    return name, "config.json", fields


def _models(
    fields: Mapping[str, Any], model_type: str, part: str
) -> Iterator[tuple[str, str, Mapping[str, Any], bool]]:
    """Models of a file: part, type, fields, and whether it is a tower next to the text model."""
    types = part_types(model_type)

    def part_type(name: str) -> str:
        """Type that a part states, unless it repeats the type of the whole."""
        stated = nested.get(name, {}).get("model_type")
        distinct = isinstance(stated, str) and stated and stated != model_type
        return stated if distinct else types.get(name, "")

    nested = {key: value for key, value in fields.items() if isinstance(value, Mapping)}
    if find_family(model_type) is not None and not types:
        nested = {}
    text = next((name for name in field_names("text") if name in {**nested, **types}), None)
    stacks = [name for name in field_names("stacks") if name in {**nested, **types}]
    chosen = [text] if text else stacks
    for name in chosen:
        if name not in nested and fields.get(name) is not None:
            raise InputError(f"`config`: {name} is {reprlib.repr(fields[name])}, not an object")
    sized = "hidden_size" in fields and {"num_hidden_layers", "num_attention_heads"} & {*fields}
    flat = text is not None and text not in nested and sized
    if (
        not chosen or flat or (text is None and has_own_layers(model_type))
    ):  # a model has its fields at the top level
        text_type = (model_type if text is None else types.get(text)) or model_type
        yield part, text_type, fields, False
    for name in () if flat else chosen:
        inner = filled_part(model_type, name, nested.get(name))
        yield from _models(inner, part_type(name), _join(part, name))
    for name, inner in nested.items():
        kind = part_type(name)
        if name not in chosen and find_family(kind) is not None:
            yield _join(part, name), kind, inner, True


def _join(part: str, name: str) -> str:
    return f"{part}.{name}" if part else name


def _model(
    source: str, form: Form, part: str, model_type: str, stated: Mapping[str, Any],
    options: RopeOptions | None,
) -> Model:  # fmt: skip
    """Model of a part, with the options in place of its fields."""
    family = find_architecture(model_type) if form == "gguf" else find_family(model_type)
    if family is not None and not part and stated.get("layer_types"):
        family = family._replace(**family.listed)
    has_rules = family is not None or form == "options"
    location = f"{source}: {part}" if part else source
    fields = Fields(stated, family or Family(model_type), source=location)
    if options is not None:
        _take_options(fields, options)
    names = (name for name in field_names("contexts") if fields.get(name) is not None)
    context = fields.integer(next(names, "max_position_embeddings"), least=2) or DEFAULT_CONTEXT
    return Model(part, fields.family, has_rules, fields, context)


def _take_options(fields: Fields, options: RopeOptions) -> None:
    stated = fields.stated
    if options.scaling is not None:
        entry = parse_json(options.scaling, where="`scaling`", remedy="pass a JSON object")
        if not isinstance(entry, dict):
            raise InputError(f"`scaling` is {reprlib.repr(entry)}; pass a JSON object")
        replaced = fields.mapping("rope_parameters")
        absent = [k for k in ("rope_theta", "partial_rotary_factor") if k not in entry]
        stated |= {k: replaced[k] for k in absent if replaced.get(k) is not None}
        stated |= {"rope_scaling": entry, "rope_parameters": None}
    if options.base is not None:
        for name in _ENTRIES:
            entry = fields.mapping(name)
            stated[name] = {k: v for k, v in entry.items() if k != "rope_theta"} or None
        named = fields.family.renamed.get("rope_theta", "rope_theta"), fields.family.nested_base
        stated |= dict.fromkeys(filter(None, named), options.base)
    if options.context is not None:
        stated["max_position_embeddings"] = options.context
    if options.head_dim is not None:
        names = ("head_dim", "qk_rope_head_dim", "hidden_size", "num_attention_heads")
        present = [fields.get(name) is not None for name in names]
        if options.config is not None and (present[0] or present[1] or all(present[2:])):
            why = "has the width of a head: leave out `head_dim`, which is for files without it"
            raise InputError(f"{fields.source} {why}")
        stated["head_dim"] = options.head_dim


def head_size(model: Model, name: str = "head_dim") -> int:
    """Width of a head: the field, else hidden_size / num_attention_heads.

    Raises:
        UnknownSizeError: the file has neither.
        InputError: a width out of range.
    """
    fields = model.fields
    stated = (fields.integer(n, least=2, most=LARGEST_HEAD) for n in (name, "head_dim"))
    value = next((one for one in stated if one is not None), None)
    if value is None:
        hidden, heads = (fields.integer(n) for n in ("hidden_size", "num_attention_heads"))
        if not (hidden and heads):
            raise UnknownSizeError(f"{fields.source} has no {name}: pass `head_dim`")
        value = hidden // heads
    if not 2 <= value <= LARGEST_HEAD:
        raise InputError(f"{fields.source}: a head of {value:,} entries; 2 to {LARGEST_HEAD:,}")
    return value


def unread_fields(configuration: Configuration) -> tuple[str, ...]:
    """Names of positional fields that no rule used, in all models and outside them."""
    models = configuration.models
    used = {name: one.fields.stated.get(name) for one in models for name in one.fields.used}
    entries = [one.fields.stated.get(name) for one in models for name in _ENTRIES]
    outside = configuration.outside
    names = positional_names(outside)
    around = (key for key in names if outside[key] not in (used.get(key), *entries))
    inner = (_join(one.part, name) for one in models for name in one.fields.unread())
    return tuple(dict.fromkeys([*inner, *around]))
