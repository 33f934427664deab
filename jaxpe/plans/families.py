"""Rules by model type, from `families.toml`: rotating layers, fields and defaults."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

REMOTE_CODE = "remote code"  # `since` of types whose class is code in a checkpoint


class Family(SimpleNamespace):
    """Rules of one model type.

    Further attributes are the keys of `families.toml`, which explains them. A key that the model
    type lacks has the value of the row `plain`.

    Attributes:
        model_type: name of the type.
        kind: "rotary" or "axial"; "switched" if fields select among kinds without rotation; else
            "linear", "none", or one or more of "table", "bias", "convolution", joined by "+".
    """

    def __init__(self, model_type: str, **rules: Any):
        empty = dict.fromkeys(("base_4", "entry", "fraction", "turning"))
        super().__init__(**{"model_type": model_type, **empty, **_table()["plain"], **rules})

    def _replace(self, **rules: Any) -> "Family":
        """These rules with some replaced, as `NamedTuple._replace` does."""
        return Family(**{**vars(self), **rules})


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("families.toml").read_text("utf-8"))


def find_family(model_type: str) -> Family | None:
    """Rules of a model type; None if the table does not have the type.

    >>> find_family("gpt_oss").base, find_family("vit").kind, find_family("of my own")
    (150000, 'table', None)
    """
    table = _table()
    for kind in ("rotary", "axial", "switched"):
        if model_type in table[kind]:
            return Family(model_type, **{"kind": kind, **table[kind][model_type]})
    kind = next((kind for kind, types in table["without"].items() if model_type in types), None)
    return None if kind in (None, "undecided") else Family(model_type, kind=kind)


def has_own_layers(model_type: str) -> bool:
    """Whether a composite type has layers next to those of its parts.

    >>> has_own_layers("dpt"), has_own_layers("clip")
    (True, False)
    """
    table = _table()
    sized = "hidden_size" in table["rotary"].get(model_type, {}).get("defaults", ())
    return sized or any(model_type in types for types in table["without"].values())


def field_names(what: str) -> list[str]:
    """Names of fields, or patterns of names, of one meaning: a key of `[fields]`."""
    return _table()["fields"][what]


def part_types(model_type: str) -> Mapping[str, str]:
    """Model types of the parts of a composite configuration, by field."""
    return _table()["composite"].get(model_type, {})


def filled_part(model_type: str, name: str, fields: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Fields of a part, which some composite classes complete, mostly if the part is absent.

    >>> filled_part("mistral3", "text_config", None)["rope_theta"]
    1000000000.0
    >>> filled_part("mistral3", "text_config", {"head_dim": 64})
    {'head_dim': 64}
    """
    fill = _table()["fills"].get(model_type, {}).get(name, {})
    filled = fields is None or model_type in _table()["filled_always"]
    return {**fill, **(fields or {})} if filled else fields


def thread_names(model_type: str) -> tuple[str, ...]:
    """Threads in which users reported faults of programs with a model type."""
    return tuple(_table().get("threads", {}).get(model_type, ()))


def vendor_value(model_type: str, context: int) -> Mapping[str, Any]:
    """Scaling that the vendor documents for a model type and its configured length; else empty."""
    values = _table().get("vendors", {}).get(model_type, ())
    return next((one for one in values if one["context"] == context), {})
