"""Programs that read a configuration, as functions that return their numbers."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from jaxpe.plans.configuration import Configuration, Model
from jaxpe.plans.fields import ORIGINAL
from jaxpe.plans.layers import LayerGroup

# Complete `rope_parameters` of one kind of layer: θ, type and all numbers of the scaling.
Entry = dict[str, Any]
# One entry for each group of layers; None if the program does not rotate the group.
Entries = tuple[Entry | None, ...]
Groups = tuple[LayerGroup, ...]

# Names of YaRN, the last two in checkpoints with remote code.
YARNS = ("yarn", "deepseek_yarn", "telechat3-yarn")
_PLAIN = ("rope_theta", "partial_rotary_factor", "mrope_section", "llama_4_scaling_beta")

# Traits of programs.
VERSION_4 = "does not read rope_parameters"
ONE_LIST = "uses one list of longrope for texts of every length"
LOADS_CODE = "runs the code of a checkpoint"


class UnreadableError(ValueError):
    """Refusal of a configuration by a program."""


class QueryScaling(NamedTuple):
    """Scaling of queries by their position i: a factor 1 + β·ln(1 + ⌊(i + offset)/p⌋).

    Attributes:
        beta: slope β.
        period: p, positions until the first increase.
        offset: 1 as in Llama 4, 0 as in Ministral 3.
        layers: layers with the factor: "all", or "none" for layers without rotation.
    """

    beta: float
    period: float
    offset: int
    layers: Literal["all", "none"]

    def at(self, position: int) -> float:
        """Factor at a position."""
        return 1 + self.beta * math.log1p((position + self.offset) // self.period)


class Program(NamedTuple):
    """A program in one version, with the functions that compute its numbers.

    Attributes:
        name: program and version, as tables show it.
        versions: versions that compute the same numbers.
        date: release month of the version that was read.
        evidence: "run" if tests compare its numbers with the program, else "read from source".
        entries: complete entries of each group of layers. Raises `UnreadableError`.
        logit_factor: factor on all logits of a group, in addition to the factor on cos and sin.
        longest: longest text that it allows by default.
        query_scaling: scaling of queries by their position.
        pairing: pairing of the entries of a head; None for the checkpoint's pairing.
        traits: traits that findings depend on: `VERSION_4`, `ONE_LIST`, `LOADS_CODE`.
    """

    name: str
    versions: str
    date: str
    evidence: Literal["run", "read from source"]
    entries: Callable[[Configuration, Model, Groups], Entries]
    logit_factor: Callable[[Model, LayerGroup, Entry], float]
    longest: Callable[[Model], float]
    query_scaling: Callable[[Configuration, Model, Entry], QueryScaling | None]
    pairing: Callable[[Model, LayerGroup], str | None]
    traits: tuple[str, ...] = ()


def yarn_scale(factor: float, multiplier: float = 1.0) -> float:
    """Attention factor of YaRN: m(s, k) = 0.1·k·ln s + 1; 1 if s is at most 1."""
    return 0.1 * multiplier * math.log(factor) + 1 if factor > 1 else 1.0


def scaling_type(entry: Mapping[str, Any]) -> str:
    """Scaling type of an entry, from `rope_type` or `type`."""
    kind = entry.get("rope_type") or entry.get("type") or "default"
    return str(kind)


def plain(entry: Entry) -> Entry:
    """Entry without its scaling: θ and the rotated share."""
    return {"rope_type": "default", **{name: entry[name] for name in _PLAIN if name in entry}}


def latent_factor(entry: Entry) -> float:
    """Factor of latent attention under YaRN: m(s, mscale_all_dim)²."""
    all_dim = entry.get("mscale_all_dim")
    if entry["rope_type"] not in YARNS or not all_dim:
        return 1.0
    return yarn_scale(float(entry["factor"]), float(all_dim)) ** 2


def llama4_query_scaling(
    model: Model, entry: Entry, beside: Mapping[str, Any]
) -> QueryScaling | None:
    """Query scaling, from the fields of Llama 4, the entry, or an object next to the entry."""
    fields = model.fields
    if model.family.model_type == "llama4_text":
        if not fields.get("attn_temperature_tuning"):
            return None
        beta, period = fields.number("attn_scale"), fields.number("floor_scale")
        return QueryScaling(beta or 0.1, period or 8192, 1, "none")
    beta = beside.get("llama_4_scaling_beta", beside.get("beta"))
    period = beside.get(ORIGINAL)
    return QueryScaling(float(beta), float(period), 0, "all") if beta and period else None
