"""Rules by model type, from `families.toml`: rotating layers, fields and defaults."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

OWN_CODE = "own code"  # `since` of types that only the code of a checkpoint has


class Family(SimpleNamespace):
    """Rules of one model type; `families.toml` says what each key means.

    Attributes:
        model_type: name of the type.
        kind: "rotary", "axial", or what positions are where the type never turns: "table", "bias",
            "none".
        since, names, renamed, defaults, base, base_4, nested_base, bases, scaled, entry, convert,
            by_kind, labels, types, scaling, alpha, bare, strict, required, share, rotated, order,
            fraction, forced, latent, indexer, heads, width, pairing, place, layers, turning,
            unturned, base_by_layer, window, flag, reads, listed: keys of the table.
        axes, split, widths, layout, unit, theta, depth, divide, also: keys of axial types.
    """

    def __init__(self, model_type: str, **rules: Any):
        empty = dict.fromkeys(("base_4", "entry", "fraction", "turning"))
        super().__init__(**{"model_type": model_type, **empty, **_table()["plain"], **rules})

    def _replace(self, **rules: Any) -> "Family":
        """These rules with some replaced, as of a named tuple."""
        return Family(**{**vars(self), **rules})


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(files("jaxpe.rope").joinpath("families.toml").read_text("utf-8"))


def find_family(model_type: str) -> Family | None:
    """Rules of a model type; None if the table does not have the type.

    >>> find_family("gpt_oss").base, find_family("vit").kind, find_family("of my own")
    (150000, 'table', None)
    """
    table = _table()
    for kind in ("rotary", "axial"):
        if model_type in table[kind]:
            return Family(model_type, **{"kind": kind, **table[kind][model_type]})
    kind = next((kind for kind, types in table["without"].items() if model_type in types), None)
    return None if kind is None else Family(model_type, kind=kind)


def field_names(what: str) -> list[str]:
    """Names of fields, or patterns of names, by what they say: keys of `[fields]`."""
    return _table()["fields"][what]


def parts_of(model_type: str) -> Mapping[str, str]:
    """Types of the models in a composite configuration, by the field of each model."""
    return _table()["composite"].get(model_type, {})


def filled_part(model_type: str, name: str, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Fields of a part, completed by the class of the whole, mostly if the part is absent.

    >>> filled_part("mistral3", "text_config", None)["rope_theta"]
    1000000000.0
    >>> filled_part("mistral3", "text_config", {"head_dim": 64})
    {'head_dim': 64}
    """
    fill = _table()["fills"].get(model_type, {}).get(name, {})
    filled = given is None or model_type in _table()["filled_always"]
    return {**fill, **(given or {})} if filled else given


def thread_names(model_type: str) -> tuple[str, ...]:
    """Threads in which users met faults of programs with a model type."""
    return tuple(_table().get("threads", {}).get(model_type, ()))


def vendor_value(model_type: str, context: int) -> Mapping[str, Any]:
    """A vendor's documented scaling of a model type configured for a length; empty if none."""
    values = _table().get("vendors", {}).get(model_type, ())
    return next((one for one in values if one["context"] == context), {})


def auto_class(model_type: str) -> str:
    """Class of transformers that loads a model of a type; "none" if it has none.

    >>> auto_class("qwen3"), auto_class("qwen3_vl")
    ('AutoModelForCausalLM', 'AutoModelForImageTextToText')
    """
    classes = _table()["auto"].items()
    known = not model_type or find_family(model_type) is not None or parts_of(model_type)
    rest = "AutoModelForCausalLM" if known else "none"
    return next((name for name, types in classes if model_type in types), rest)
