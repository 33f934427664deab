"""llama.cpp: its graphs by architecture, for a GGUF file or for the output of its converter."""

from collections.abc import Mapping
from typing import Any

from jaxpe.plans.configuration import Configuration, Model
from jaxpe.plans.fields import ORIGINAL
from jaxpe.plans.layers import LayerGroup
from jaxpe.plans.programs.base import (
    Entries,
    Entry,
    Groups,
    QueryScaling,
    UnreadableError,
    plain,
    scaling_type,
    yarn_scale,
)
from jaxpe.plans.programs.facts import program_facts
from jaxpe.plans.programs.shared import (
    RULES,
    WINDOWED,
    divided,
    parts,
    scaled_entries,
    turned_entries,
    turning_every,
    yarn,
)

_NEVER = 1e29  # larger divisors mark pairs that do not rotate
PERMUTED = "weights permuted"
_FACTS = program_facts("llama_cpp")
_RULES = {**RULES, "default": lambda _, entry: plain(entry), "linear": lambda _, entry: entry}


def llama_cpp(configuration: Configuration, model: Model, groups: Groups) -> Entries:
    """Entries as the graph of the architecture computes them.

    Raises:
        UnreadableError: a model type that the converter does not have, or other rotating layers.
    """
    architecture = _architecture(configuration, model)
    if any(architecture in names for names in _FACTS["kinds"].values()):
        return (None,) * len(groups)
    local = model.fields.number("rope_local_base_freq")
    if configuration.form == "gguf":
        written = tuple(_metadata_entry(model, g) if g.kind == "rotary" else None for g in groups)
    else:
        written = _converter_entries(architecture, model, groups)
    pairs = [(g.name in WINDOWED, e) for g, e in zip(groups, written, strict=True) if e]
    full = next((entry for windowed, entry in pairs if not windowed), None)
    if configuration.form != "gguf":  # the converter stores θ of windowed layers separately
        local = next((float(entry["rope_theta"]) for windowed, entry in pairs if windowed), None)
    row = _FACTS["windows"].get(architecture)

    def computed(group: LayerGroup, entry: Entry) -> Entry:
        if row is not None and group.name in WINDOWED:
            entry = _window_entry(row, entry, full or entry, local)
        if entry["rope_type"] == "yarn":
            return _yarn(architecture, entry)
        if entry["rope_type"] == "longrope":
            return _longrope(model, group, entry)
        return _RULES[entry["rope_type"]](model, entry)

    return scaled_entries(groups, written, computed)


def _architecture(configuration: Configuration, model: Model) -> str:
    """Name of the architecture; Llama for options without a model."""
    name = model.family.model_type
    architecture = name if configuration.form == "gguf" else _converter_architecture(name)
    if architecture is None and configuration.form != "options":
        named = f"has no class for the model type {name}" if name else "needs a model_type"
        raise UnreadableError(f"its converter {named}")
    return architecture or "llama"


def _converter_architecture(name: str) -> str | None:
    """Architecture that the converter writes for a model type."""
    return name if name in _FACTS["same"] else _FACTS["names"].get(name)


def _metadata_entry(model: Model, group: LayerGroup) -> Entry:
    """Entry of a group, from the metadata of a file."""
    entry = model.fields.mapping("rope_scaling")
    share = model.fields.number("partial_rotary_factor", 1.0)
    if group.name in WINDOWED:
        share = model.fields.number("swa_partial_rotary_factor", share)
    entry |= {
        "rope_theta": model.fields.number("rope_theta", 10_000.0),
        "rope_type": scaling_type(entry),
    }
    entry["partial_rotary_factor"] = share
    if entry["rope_type"] in ("yarn", "longrope") and entry.get(ORIGINAL) is None:
        entry[ORIGINAL] = model.context
    return entry


def _converter_entries(architecture: str, model: Model, groups: Groups) -> Entries:
    """Entries as the converter writes them: all layers get the scaling of full-attention layers."""
    name = model.family.model_type
    family = model.family._replace(alpha=name in _FACTS["alpha"])
    turning = [group.kind == "rotary" for group in groups]
    if architecture in _FACTS["turning_every"]:
        turning = turning_every(groups, _FACTS["turning_every"][architecture])
    elif name in _FACTS["hybrids"]:
        turning = [all(group.kind != "linear" for group in groups)] * len(groups)
    entries = turned_entries(model._replace(family=family), groups, turning)
    changed: Entry = {"attn_factor": 1.0}  # written, and not read
    for name, values in _FACTS["otherwise"].items():
        changed |= {} if architecture in _FACTS[name] else values

    def written(group: LayerGroup, entry: Entry) -> Entry:
        if architecture not in _FACTS.get(entry["rope_type"], (architecture,)):
            return plain(entry | changed)
        plain_list = entry["rope_type"] == "longrope" and architecture in _FACTS["plain_longrope"]
        return entry | changed | ({"attention_factor": 1.0} if plain_list else {})

    return scaled_entries(groups, entries, written)


def _window_entry(row: Mapping[str, Any], entry: Entry, full: Entry, local: float | None) -> Entry:
    """Entry of sliding layers: often another base, and no scaling."""
    base = full["rope_theta"]
    if not row.get("full_base"):
        base = row.get("base", base) if local is None else local
    share = {"partial_rotary_factor": entry["partial_rotary_factor"], "rope_theta": base}
    return (full if row.get("scaled") else plain(full)) | share


def _yarn(architecture: str, entry: Entry) -> Entry:
    """YaRN with the factors of ggml-org/llama.cpp#17945; the ramp is always truncated."""
    factor = float(entry["factor"])
    multiplier = float(entry.get("mscale_all_dim") or 0.0)
    temperature = yarn_scale(factor) / yarn_scale(factor, multiplier)
    if multiplier and architecture in _FACTS["cancelled"]:
        temperature = 1.0
    temperature *= float(entry.get("attn_factor") or 1.0)
    if architecture in _FACTS["unscaled_turns"]:
        temperature = 1.0
    scaled = yarn(entry, temperature, truncate=True)
    if architecture in _FACTS["latent_logits"]:
        scaled["logit_factor"] = (temperature * yarn_scale(factor, multiplier)) ** 2
    return scaled


def _longrope(model: Model, group: LayerGroup, entry: Entry) -> Entry:
    """Divisors of both lists; pairs with huge divisors do not rotate, as in Gemma 4."""
    half = int(group.width * float(entry["partial_rotary_factor"])) // 2  # Step 3.5 has more
    short, long = entry["short_factor"][:half], entry["long_factor"][:half]
    turning = sum(value < _NEVER for value in short)
    if short == long and turning < len(short) and all(value == 1.0 for value in short[:turning]):
        share = {"partial_rotary_factor": turning / len(short), "factor": 1.0}
        return plain(entry) | {"rope_type": "proportional"} | share
    scaled = divided(model, entry, short, long)
    if entry.get("attention_factor") is not None:
        scaled["named"] = entry.get("named")
        return {**scaled, "attention_factor": float(entry["attention_factor"])}
    return {**scaled, "factor": max(model.context / scaled[ORIGINAL], 1.0)}


def query_scaling(configuration: Configuration, model: Model, entry: Entry) -> QueryScaling | None:
    """Query scaling, from the metadata or from the converter's output."""
    architecture = _architecture(configuration, model)
    chunk = _FACTS["windows"].get(architecture, {}).get("chunk")
    if chunk is not None:  # Llama 4, in layers without rotation
        return QueryScaling(0.1, chunk, 1, "none")
    beta, period = entry.get("llama_4_scaling_beta"), entry.get(ORIGINAL)
    if configuration.form == "gguf":
        beta = configuration.gguf.get("attention.temperature_scale")
        period = configuration.gguf.get("attention.temperature_length") or period or model.context
    elif architecture not in _FACTS["temperatures"]:
        return None
    number = all(isinstance(value, int | float) and value > 0 for value in (beta, period))
    return QueryScaling(float(beta or 0), float(period or 0), 0, "all") if number else None


def longest(model: Model) -> float:
    """Context length of the file, or the converter's output for a model with an alpha."""
    last = parts(model)[-1]
    stretched = model.family.model_type in _FACTS["alpha"] and last.get("alpha")
    written = stretched and scaling_type(last) == "dynamic"
    return float(_FACTS["alpha_context"] if written else model.context)


def pairing(model: Model, group: LayerGroup) -> str | None:
    """Pairing of the architecture, and whether the converter reorders the weights for it."""
    architecture = _converter_architecture(model.family.model_type)
    if architecture is None or group.kind != "rotary":
        return None
    half = architecture in _FACTS["half_indexers" if group.place.startswith("indexer") else "half"]
    sections = architecture in _FACTS["sections"] and bool(model.entry.get("mrope_section"))
    pairs = "half" if half or sections else "interleaved"
    if pairs == group.pairing:
        return None
    reordered = sections or architecture in _FACTS["permuted"]
    return f"{pairs}, {PERMUTED}" if reordered else pairs
