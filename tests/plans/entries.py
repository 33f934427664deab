"""Numbers that a program computes with, from the entry that it makes of a file."""

import json
import tomllib
from pathlib import Path
from typing import NamedTuple

import numpy as np

import jaxpe.plans
from jaxpe.plans.configuration import Configuration, Model, read_configuration
from jaxpe.plans.layers import LayerGroup, layer_groups
from jaxpe.plans.options import RopeOptions
from jaxpe.plans.programs.base import Entry, Program
from jaxpe.plans.programs.table import PROGRAMS
from jaxpe.plans.scaling import ROPE_TYPES, inverse_frequencies, scaling_from_hf


class Read(NamedTuple):
    """A configuration of one model, and its groups of layers."""

    configuration: Configuration
    model: Model
    groups: tuple[LayerGroup, ...]


def family_table() -> dict[str, dict]:
    return tomllib.loads(Path(jaxpe.plans.__file__).with_name("families.toml").read_text("utf-8"))


def read(path: object, **options: object) -> Read:
    configuration = read_configuration(RopeOptions(config=str(path), **options))
    (model,) = configuration.models
    return Read(configuration, model, layer_groups(model))


def written(folder, **fields: object) -> Read:
    path = folder / "config.json"
    path.write_text(json.dumps(fields))
    return read(path)


def program(name: str) -> Program:
    return next(one for one in PROGRAMS if one.name == name)


def entries(name: str, given: Read) -> dict[str, Entry | None]:
    """Entries of a program by kind of layer."""
    found = program(name).entries(*given)
    return {group.name: entry for group, entry in zip(given.groups, found, strict=True)}


def computed(entry: Entry, width: int, length: int = 1) -> tuple[np.ndarray, float]:
    """Frequencies, and the factor on cos and sin, as `jaxpe.plans.scaling` has them."""
    kind, base = entry["rope_type"], float(entry["rope_theta"])
    share = 1.0 if kind == "proportional" else entry.get("partial_rotary_factor") or 1.0
    dim = int(width * share)
    if kind == "default":
        return inverse_frequencies(dim, base=base), 1.0
    kept = ("rope_type", "rope_theta", "partial_rotary_factor", *ROPE_TYPES[kind]._fields)
    found = scaling_from_hf({k: v for k, v in entry.items() if k in kept})
    assert found is not None
    return found.frequencies(dim, base, length)
