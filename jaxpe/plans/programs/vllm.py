"""vLLM: its classes of rotary embeddings, for configurations of transformers 5."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from jaxpe.plans.configuration import Configuration, Model
from jaxpe.plans.fields import ORIGINAL
from jaxpe.plans.layers import LayerGroup
from jaxpe.plans.programs.base import (
    Entries,
    Entry,
    Groups,
    UnreadableError,
    latent_factor,
    plain,
    scaling_type,
    yarn_scale,
)
from jaxpe.plans.programs.facts import program_facts
from jaxpe.plans.programs.shared import (
    RULES,
    backend_entries,
    divided,
    latent_yarn,
    longrope,
    multiplied,
    parts,
    served_entries,
    stated_entry,
    yarn,
    yarn_ratio,
)

_FACTS = program_facts("vllm")


def vllm(configuration: Configuration, model: Model, groups: Groups) -> Entries:
    """Entries as the classes of vLLM compute them.

    Raises:
        UnreadableError: a type or a class that it does not have, or numbers that are missing.
    """
    if model.family.model_type in _FACTS["transformers_code"]:
        return backend_entries(configuration, model, groups)
    for group in groups:
        _check_names(stated_entry(model, group))
    return served_entries("vllm", model, groups, partial(_vllm_entry, model))


def _check_names(stated: Mapping[str, Any]) -> None:
    """Raise where `type` and `rope_type` differ, or sections are missing."""
    names = (stated.get(name) for name in ("type", "rope_type"))
    names = sorted({name for name in names if isinstance(name, str)})
    if len(names) > 1 and names not in _FACTS["same_names"]:
        raise UnreadableError(f"ValueError: type and rope_type differ ({' and '.join(names)})")
    if scaling_type(stated) in _FACTS["sectioned"] and not stated.get("mrope_section"):
        raise UnreadableError(f"ValueError: a {scaling_type(stated)} entry needs mrope_section")


def _vllm_entry(model: Model, group: LayerGroup, entry: Entry) -> Entry:
    facts, name = _FACTS, model.family.model_type
    kind = scaling_type(stated_entry(model, group))
    scaled = entry["rope_type"] != "default"
    if name in facts["unshared_latent"]:
        entry["partial_rotary_factor"] = 1.0
    if name in facts["unscaled_turns"] and scaled:
        return {**latent_yarn(model, entry), "attention_factor": 1.0}
    latent = model.family.latent and name not in facts["whole_latent"]
    if scaled and (latent or kind in facts["latent_types"]):
        result = latent_yarn(model, entry)
        if latent and entry.get("attention_factor") != 1.0 and kind != "deepseek_llama_scaling":
            result["logit_factor"] = latent_factor({**entry, **result})
        return result
    if name in facts["plain_yarn"]:
        return _plain_yarn(entry)
    if kind == "telechat3-yarn" and scaled:
        return yarn(entry, 0.7 * (yarn_scale(float(entry["factor"])) - 1) + 1)
    if kind == "ntk" and scaled:
        return _ntk(model, group, entry)
    if entry["rope_type"] == "yarn":
        return yarn(entry, _yarn_factor(entry))
    return _RULES[entry["rope_type"]](model, entry)


def _yarn_factor(entry: Entry) -> float:
    """Factor of cos and sin, as in transformers 5: vllm-project/vllm#56446."""
    factor, stated = float(entry["factor"]), entry.get("attention_factor")
    if stated is not None:
        return float(stated)
    both = entry.get("mscale") and entry.get("mscale_all_dim")
    return yarn_ratio(factor, entry) if both else yarn_scale(factor)


def _plain_yarn(entry: Entry) -> Entry:
    """gpt-oss: YaRN for every scaling type, from four required numbers."""
    missing = [n for n in ("factor", ORIGINAL, "beta_fast", "beta_slow") if entry.get(n) is None]
    if missing:
        raise UnreadableError(f"KeyError: {', '.join(missing)} is missing in the entry")
    return yarn(entry, yarn_scale(float(entry["factor"])))


def _ntk(model: Model, group: LayerGroup, entry: Entry) -> Entry:
    """Base·s, then each frequency / s^(2/d): ω_i / s^(2(i + 1)/d)."""
    dim = int(group.width * float(entry.get("partial_rotary_factor") or 1.0))
    divisors = [float(entry["factor"]) ** (2 * (i + 1) / dim) for i in range(dim // 2)]
    return divided(model, entry, divisors, divisors) | {"attention_factor": 1.0, "named": "ntk"}


def _longrope(model: Model, entry: Entry) -> Entry:
    """Long list for texts of every length, if the program serves more than L0 by default."""
    scaled_entry = longrope(model, entry)
    if model.fields.number(ORIGINAL) is None and model.context > scaled_entry[ORIGINAL]:
        scaled_entry["short_factor"] = scaled_entry["long_factor"]
    return scaled_entry


# Dynamic scaling stretches by s·N/T − (s − 1), which is 1: vLLM takes N for the training length T.
_RULES = {**RULES, "dynamic": lambda model, entry: plain(entry), "longrope": _longrope}


def longest(model: Model) -> float:
    """`max_position_embeddings`, times the factor of types not related to YaRN."""
    beside = model.fields.number(ORIGINAL)
    if scaling_type(parts(model)[-1]) in ("su", "longrope") and beside:
        return beside
    once = _FACTS["once"] in model.family.model_type
    return float(model.context) if once else multiplied(model, _FACTS["multiplied"])
