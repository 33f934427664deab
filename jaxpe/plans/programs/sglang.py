"""SGLang: its classes of rotary embeddings, for configurations of transformers 5."""

from functools import partial

from jaxpe.plans.configuration import Configuration, Model
from jaxpe.plans.fields import ORIGINAL
from jaxpe.plans.layers import LayerGroup
from jaxpe.plans.programs.base import (
    Entries,
    Entry,
    Groups,
    UnreadableError,
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
    multiplied,
    parts,
    served_entries,
    stated_entry,
    yarn,
    yarn_ratio,
)
from jaxpe.plans.scaling import LinearScaling, YarnScaling

_FACTS = program_facts("sglang")


def sglang(configuration: Configuration, model: Model, groups: Groups) -> Entries:
    """Entries as the classes of SGLang 0.5.23 compute them.

    Raises:
        UnreadableError: a type that it does not have, or numbers that are missing.
    """
    if model.family.model_type in _FACTS["transformers_code"]:
        return backend_entries(configuration, model, groups)
    if _all_turn(model):
        groups = tuple(group._replace(kind="rotary") for group in groups)
    return served_entries("sglang", model, groups, partial(_sglang_entry, model))


def _all_turn(model: Model) -> bool:
    """EXAONE 4: letters for the layers of a period; without letters all layers rotate.

    Raises:
        UnreadableError: a number instead of letters.
    """
    pattern = model.fields.stated.get("sliding_window_pattern", "none")
    if model.family.model_type not in _FACTS["letters"]:
        return False
    if isinstance(pattern, int) and pattern:
        raise UnreadableError("TypeError: sliding_window_pattern must be letters such as LLLG")
    return not pattern


def _sglang_entry(model: Model, group: LayerGroup, entry: Entry) -> Entry:
    facts, name, scaled = _FACTS, model.family.model_type, entry["rope_type"] != "default"
    proportional = entry["rope_type"] == "proportional"
    if model.family.latent or not (model.family.share or proportional):
        entry["partial_rotary_factor"] = 1.0  # SGLang does not read the share from the entry
    if name in facts["transformers_tables"]:
        return entry
    if name in facts["unscaled_turns"] and scaled:
        return {
            **_extrapolated(model, group, entry, latent_yarn(model, entry)),
            "attention_factor": 1.0,
        }
    latent = model.family.latent and name not in facts["whole_latent"]
    if scaled and (latent or scaling_type(stated_entry(model, group)) == "deepseek_yarn"):
        result = _extrapolated(model, group, entry, latent_yarn(model, entry, _multiplier(entry)))
        return {**result, "logit_factor": _logits(entry)} if latent else result
    return _extrapolated(model, group, entry, _RULES[entry["rope_type"]](model, entry))


def _multiplier(entry: Entry) -> float:
    return float(entry.get("attn_factor") or 1.0)


def _extrapolated(model: Model, group: LayerGroup, entry: Entry, scaled: Entry) -> Entry:
    """YaRN whose ramp has e = `extrapolation_factor`: ω/s + e·(ω_yarn − ω/s)."""
    extrapolation = entry.get("extrapolation_factor")
    if scaled["rope_type"] != "yarn" or extrapolation in (None, 1):
        return scaled
    dim, factor = int(group.width * float(entry["partial_rotary_factor"])), float(scaled["factor"])
    stated = {key: scaled[key] for key in YarnScaling._fields if key in scaled}
    base = float(scaled["rope_theta"])
    unscaled, ramped = (one.frequencies(dim, base, None).inverse
                        for one in (LinearScaling(1.0), YarnScaling(**stated)))  # fmt: skip
    inverse = unscaled / factor + float(extrapolation) * (ramped - unscaled / factor)
    divisors = (unscaled / inverse).tolist()
    named = {"named": "yarn", "factor": factor, "attention_factor": scaled["attention_factor"]}
    return divided(model, scaled, divisors, divisors) | named


def _logits(entry: Entry) -> float:
    """Factor of logits under latent attention: m(s, mscale_all_dim)²."""
    if entry.get("apply_yarn_scaling") is False or entry.get("apply_scale") is False:
        return 1.0
    all_dim = float(entry.get("mscale_all_dim") or 0.0)
    return yarn_scale(float(entry.get("factor") or 1.0), all_dim) ** 2


def _yarn(model: Model, entry: Entry) -> Entry:
    """YaRN without `attention_factor`, which SGLang does not read; an mscale of 0 counts as set."""
    factor = float(entry["factor"])
    without = entry.get("mscale") is None or entry.get("mscale_all_dim") is None
    ratio = yarn_scale(factor) if without else yarn_ratio(factor, entry)
    return yarn(entry, ratio * _multiplier(entry))


def _dynamic(model: Model, entry: Entry) -> Entry:
    """NTK-aware scaling for the length s·N at every length: s² − (s − 1) in place of s."""
    factor = float(entry["factor"])
    return plain(entry) | {"rope_type": "ntk", "factor": factor * factor - factor + 1}


_RULES = {**RULES, "dynamic": _dynamic, "yarn": _yarn}


def longest(model: Model) -> float:
    """`max_position_embeddings`, times the factor of types without L0."""
    entries = parts(model)
    beside = len(entries) == 1 and ORIGINAL not in entries[0]
    return multiplied(model, _FACTS["multiplied"]) if beside else float(model.context)
