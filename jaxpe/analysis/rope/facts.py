"""Entries of a file about positions, before any reader interprets them."""

import os
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import from_json, parse_json, read_json
from jaxpe._core.options import LARGEST_SIZE
from jaxpe.analysis.rope.defaults import NOT_ROTARY, class_default
from jaxpe.analysis.rope.gguf_facts import gguf_fields
from jaxpe.analysis.rope.options import LARGEST_HEAD, RopeOptions
from jaxpe.encodings.rope_scaling import PARAMETER_KINDS

Form = Literal["config.json", "gguf", "options"]
_REMEDY = "pass a config.json, a folder with one, or a .gguf"
_LARGEST = 2**24  # bytes of a config.json
# Where a configuration of several models has that of the text.
_TEXT = ("text_config", "language_config", "llm_config", "thinker_config")
_HEAD = ("qk_rope_head_dim", "head_dim", "attention_head_dim")
# Types of the fields that readers use beside the entry.
_KINDS: dict[str, Any] = {
    **dict.fromkeys(
        (
            *("rope_theta", "rotary_emb_base", "global_rope_theta", "local_rope_theta"),
            *("rope_local_base_freq", "partial_rotary_factor", "rotary_pct", "attn_scale"),
            "floor_scale",
        ),
        float,
    ),
    **dict.fromkeys(("rotary_dim", "no_rope_layer_interval", "kv_lora_rank"), int),
    "llama_4_scaling": dict[str, Any],
}
_ORIGINAL = "original_max_position_embeddings"
_ENTRY_KINDS = PARAMETER_KINDS | {
    **dict.fromkeys(("llama_4_scaling_beta", "attn_factor", "extrapolation_factor"), float),
    "apply_yarn_scaling": bool,
}
_CONTEXT = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")


class RopeFacts(NamedTuple):
    """The positional part of a configuration.

    Attributes:
        source: file, or "options".
        form: kind of the source.
        model_type: `model_type` of config.json, or the architecture of a GGUF file.
        fields: fields of the text model, named as in config.json.
        head_dim: width of the part of a head that positions reach.
        context: `max_position_embeddings`.
    """

    source: str
    form: Form
    model_type: str
    fields: dict[str, Any]
    head_dim: int
    context: int

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of the scaling, by its newer or older name; empty where there is none."""
        return dict(self.fields.get("rope_parameters") or self.fields.get("rope_scaling") or {})

    @property
    def gguf(self) -> dict[str, Any]:
        """Metadata of a GGUF file after its architecture; empty for others."""
        return self.fields["gguf"] if self.form == "gguf" else {}

    def stated(self, *names: str) -> Any:
        """The first of the fields that is there and not null."""
        return next((self.fields[n] for n in names if self.fields.get(n) is not None), None)


def read_facts(options: RopeOptions) -> RopeFacts:
    """The facts of a file, with those of the options in place of its own.

    Args:
        options: configuration to read, and entries in place of its own.

    Raises:
        InputError: a file that cannot be read, or no width of a head.

    >>> read_facts(RopeOptions(head_dim=64, base=1e4, context=2048)).head_dim
    64
    """
    options.check()
    source, form, fields = _source(options)
    fields = _with_options(fields, options)
    model_type = str(fields.get("model_type") or "unknown")
    if model_type in NOT_ROTARY:
        raise InputError(
            f"{source}: the positions of a model of the type {model_type} are not rotary; "
            "`jaxpe encodings` tells of others"
        )
    for name, kind in _KINDS.items():
        if fields.get(name) is not None:
            from_json(kind, fields[name], place=f"{source}: {name}")
    facts = RopeFacts(source, form, model_type, fields, 0, 0)
    context = _whole(facts, "context", options.context, _CONTEXT, class_default(model_type).context)
    return facts._replace(head_dim=_head_dim(facts, options), context=context)


def _source(options: RopeOptions) -> tuple[str, Form, dict[str, Any]]:
    if options.config is None:
        return "options", "options", {}
    path = Path(options.config)
    if os.path.isdir(path):
        found = [path / "config.json", *sorted(path.glob("*.gguf"))]
        path = next((one for one in found if one.is_file()), path / "config.json")
    if not os.path.isfile(path):
        raise InputError(f"`config`: {path} is not there; {_REMEDY}")
    if path.suffix == ".gguf" or _magic(path) == b"GGUF":
        return str(path), "gguf", gguf_fields(path)
    return str(path), "config.json", _text_fields(path)


def _magic(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(4)
    except OSError as error:
        raise InputError(f"`config`: {path} cannot be read ({error}); {_REMEDY}") from error


def _text_fields(path: Path) -> dict[str, Any]:
    """Fields of the text model: those of a nested configuration over those around it."""
    fields = read_json(path, remedy=_REMEDY, largest=_LARGEST)
    for name in _TEXT:
        inner = fields.get(name)
        if isinstance(inner, dict):
            return {**{k: v for k, v in fields.items() if k not in _TEXT}, **inner}
    return fields


def _with_options(fields: Mapping[str, Any], options: RopeOptions) -> dict[str, Any]:
    fields = dict(fields)
    for name in ("rope_scaling", "rope_parameters"):
        if not isinstance(fields.get(name) or {}, dict):
            raise InputError(
                f"{name} is {reprlib.repr(fields[name])}, not an object of its entries"
            )
    if options.scaling is not None:
        entry = parse_json(options.scaling, place="`scaling`", remedy="pass a JSON object")
        if not isinstance(entry, dict):
            raise InputError(f"`scaling` is {reprlib.repr(entry)}; pass a JSON object")
        older = _moved(fields, entry)
        fields |= {"rope_scaling": entry, "rope_parameters": None, **older}
    beside = {name: fields.get(name) for name in (_ORIGINAL, "llama_4_scaling")}
    for name in ("rope_scaling", "rope_parameters"):
        _check_entry(fields.get(name) or {}, name)
    _check_entry(beside, "config")
    if options.base is not None:
        fields["rope_theta"] = options.base
        for name in ("rope_scaling", "rope_parameters"):
            fields[name] = {k: v for k, v in (fields.get(name) or {}).items() if k != "rope_theta"}
    return fields


def _check_entry(entry: Mapping[str, Any], place: str) -> None:
    """Raise `InputError` for values of other types than they must have, by kind of layer too."""
    for key, value in entry.items():
        if key in _ENTRY_KINDS and value is not None:
            from_json(_ENTRY_KINDS[key], value, place=f"{place}.{key}")
            if key == _ORIGINAL and not 2 <= value <= LARGEST_SIZE:
                raise InputError(f"{place}.{key} is {value!r}; pass 2 to {LARGEST_SIZE:,}")
        elif isinstance(value, Mapping):
            _check_entry(value, f"{place}.{key}")


def _moved(fields: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a replaced entry that are not of its scaling."""
    replaced = fields.get("rope_parameters") or {}
    names = ("rope_theta", "partial_rotary_factor")
    return {n: replaced[n] for n in names if replaced.get(n) is not None and n not in entry}


def _head_dim(facts: RopeFacts, options: RopeOptions) -> int:
    hidden = facts.stated("hidden_size", "n_embd", "d_model")
    heads = facts.stated("num_attention_heads", "n_head", "n_heads")
    default = class_default(facts.model_type).head_dim
    if default is None and _counts(hidden) and _counts(heads):
        default = hidden // heads
    return _whole(facts, "head_dim", options.head_dim, _HEAD, default)


def _whole(
    facts: RopeFacts, option: str, given: int | None, names: tuple[str, ...], default: int | None
) -> int:
    """A size from the options, a field of one of the names, or what its class takes."""
    value = given if given is not None else facts.stated(*names)
    value = default if value is None else value
    if value is None:
        raise InputError(f"{facts.source} has no {names[0]}: pass `{option}`")
    most = LARGEST_HEAD if option == "head_dim" else LARGEST_SIZE
    if not _counts(value) or not 2 <= value <= most:
        raise InputError(
            f"{facts.source}: {names[0]} is {reprlib.repr(value)}; a whole number of 2 to {most:,} "
            f"is needed, which `{option}` can give"
        )
    return value


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
