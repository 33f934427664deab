"""Keys of a scaling entry, and the programs that read them, from their sources: `keys.toml`."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jaxpe.plans.configuration import Model
from jaxpe.plans.programs.base import YARNS, scaling_type
from jaxpe.plans.scaling import ROPE_TYPES

_EVERY = {  # of entries of all types
    "type", "rope_type", "rope_theta", "partial_rotary_factor", "max_position_embeddings",
    "mrope_section", "mrope_interleaved", "llama_4_scaling_beta",
}  # fmt: skip
_NAMES = {"su": "longrope", "mrope": "default", **dict.fromkeys(YARNS, "yarn")}
# Keys that rules of programs compute with; values of other keys change no number here.
COMPUTED = {field for scaling in ROPE_TYPES.values() for field in scaling._fields} | {
    "alpha", "attn_factor", "extrapolation_factor", "apply_yarn_scaling", "apply_scale",
    "short_mscale", "long_mscale", "xdrope_section",
}  # fmt: skip


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("keys.toml").read_text("utf-8"))


def reading_programs(key: str, kind: str) -> list[str]:
    """Programs whose code reads a key under a type of scaling, at least for single models.

    >>> yarn = reading_programs("extrapolation_factor", "yarn")
    >>> yarn, reading_programs("use_fope", "default")
    (['sglang'], ['vllm', 'sglang'])
    """
    return [name for name, row in _table().items()
            if any(key in row.get(part, ()) for part in ("every", kind, "models"))]  # fmt: skip


def stated_keys(entry: Mapping[str, Any]) -> list[str]:
    """Keys of an entry that are not of every type, and say something."""
    said = (key for key, value in entry.items() if value is not None and key not in _EVERY)
    return [key for key in said if not isinstance(entry[key], Mapping)
            and (entry[key] is not False or key in COMPUTED)]  # fmt: skip


def unjudged_keys(model: Model) -> dict[str, list[str]]:
    """Keys of the entry that no rule computes with, and the programs that read each."""
    kind = scaling_type(model.entry)
    kind = model.family.types.get(kind, kind)
    kind = _NAMES.get(kind, kind)
    if kind not in (*ROPE_TYPES, "default"):
        return {}
    programs = {key: reading_programs(key, kind) for key in stated_keys(model.entry)}
    if model.family.alpha:  # no program reads YaRN's numbers that Hunyuan's files have
        programs = {key: names for key, names in programs.items() if key not in COMPUTED}
    return {key: names for key, names in programs.items() if not names or key not in COMPUTED}
