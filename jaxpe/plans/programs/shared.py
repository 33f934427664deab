"""Shared rules of vLLM, SGLang and llama.cpp: entries of rotating groups."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxpe.plans.configuration import Configuration, Model
from jaxpe.plans.fields import CHUNKED, ORIGINAL, SLIDING
from jaxpe.plans.layers import LayerGroup
from jaxpe.plans.programs.base import (
    Entries,
    Entry,
    Groups,
    QueryScaling,
    UnreadableError,
    llama4_query_scaling,
    plain,
    scaling_type,
    yarn_scale,
)
from jaxpe.plans.programs.facts import program_facts
from jaxpe.plans.programs.transformers import (
    completed_entries,
    file_entry,
    group_label,
    logit_factor,
    query_scaling,
    refuse_configuration,
    transformers_5,
)

WINDOWED = (SLIDING, CHUNKED)
Facts = Mapping[str, Any]  # of `program_facts`
Rule = Callable[[LayerGroup, Entry], Entry]
_YARN = ("factor", ORIGINAL, "beta_fast", "beta_slow", "truncate")


def scaled_entries(groups: Groups, entries: Entries, rule: Rule) -> Entries:
    """Entries of rotating groups, each changed by a rule."""
    pairs = zip(groups, entries, strict=True)
    return tuple(None if entry is None else rule(group, entry) for group, entry in pairs)


def served_entries(program: str, model: Model, groups: Groups, rule: Rule) -> Entries:
    """Entries of the groups that a server rotates: its table by model type, then a rule.

    Raises:
        UnreadableError: a removed class, or an entry that transformers refuses.
    """
    facts, name = program_facts(program), model.family.model_type
    if name in facts["removed"]:
        last = facts["removed"][name]
        raise UnreadableError(f"version {last} is the last with a class for {name}")
    if name not in facts["own_configurations"]:
        refuse_configuration(model)
    family = model.family._replace(types={**facts["types"], **model.family.types}, alpha=True)
    rotations = _rotation_flags(facts, name, groups)
    entries = turned_entries(model._replace(family=family), groups, rotations)
    full = next((e for g, e in zip(groups, entries, strict=True) if g.name not in WINDOWED), None)
    served = scaled_entries(
        groups, entries, lambda g, e: _class_entry(facts, model, g, e, full or e)
    )
    return scaled_entries(groups, served, rule)


def backend_entries(configuration: Configuration, model: Model, groups: Groups) -> Entries:
    """Entries of types that a server runs with the code of transformers."""
    entries = transformers_5(configuration, model, groups)
    return scaled_entries(
        groups, entries, lambda g, e: {**e, "logit_factor": logit_factor(model, g, e)}
    )


def _class_entry(facts: Facts, model: Model, group: LayerGroup, entry: Entry, full: Entry) -> Entry:
    """Entry as the class of the model type uses it, by the table."""
    name = model.family.model_type
    if group.name in facts["bases"].get(name, {}):
        field, default = facts["bases"][name][group.name]
        entry["rope_theta"] = model.fields.number(field, float(default))
        share = model.fields.number("partial_rotary_factor", entry["partial_rotary_factor"])
        entry["partial_rotary_factor"] = share
    if name in facts["bases_fixed"]:
        entry["rope_theta"] = facts["bases_fixed"][name]
    if name in facts["plain_sliding"] and group.name in WINDOWED:
        # A field for θ of these layers.
        separate_base = "" not in model.family.bases.get(SLIDING, ())
        entry = plain(entry if separate_base else {**entry, "rope_theta": full["rope_theta"]})
    if name in facts["without_factor"]:
        entry = {**plain(entry), "rope_type": entry["rope_type"]}
    return plain(entry) if name in facts["ignores_scaling"] else entry


def _rotation_flags(facts: Facts, name: str, groups: Groups) -> tuple[bool, ...]:
    if name in facts["turning_every"]:
        return turning_every(groups, facts["turning_every"][name])
    windows = any(group.name in WINDOWED for group in groups)
    kinds = {"rotary"} | ({"linear"} if name in facts["turning_linear"] else set())
    kinds |= {"none"} if name in facts["all_without_windows"] and not windows else set()
    return tuple(group.kind in kinds for group in groups)


def turned_entries(model: Model, groups: Groups, turning: Sequence[bool]) -> Entries:
    """Completed entries of the groups that a program rotates, whatever transformers rotates."""
    pairs = zip(groups, turning, strict=True)
    turned = (one._replace(kind="rotary" if turns else "none") for one, turns in pairs)
    entries = completed_entries(model, tuple(turned))
    if not model.family.nested_base:
        return entries
    base = model.fields.number(model.family.nested_base, model.family.base)
    return scaled_entries(
        groups, entries, lambda group, entry: plain({**entry, "rope_theta": base})
    )


def turning_every(groups: Groups, step: int) -> tuple[bool, ...]:
    """Whether each group rotates, if layer i rotates unless `step` divides i + 1.

    Raises:
        UnreadableError: layers of a group that differ by this rule.
    """
    rotations = [{(layer + 1) % step != 0 for layer in group.layers or ()} for group in groups]
    if any(len(turns) > 1 for turns in rotations):
        rule = f"all except each {step}th layer, whatever the configuration lists"
        raise UnreadableError(f"it rotates other layers: {rule}")
    return tuple(
        True in turns if turns else group.kind == "rotary"
        for group, turns in zip(groups, rotations, strict=True)
    )


def served_queries(
    program: str, configuration: Configuration, model: Model, entry: Entry
) -> QueryScaling | None:
    """Query scaling of a server: from the code of transformers, or an object next to the entry."""
    facts, name = program_facts(program), model.family.model_type
    if name in facts["transformers_code"]:
        return query_scaling(configuration, model, entry)
    changed = {**entry, ORIGINAL: model.context} if name in facts["whole_period"] else None
    return llama4_query_scaling(model, entry, changed or model.fields.mapping("llama_4_scaling"))


def stated_entry(model: Model, group: LayerGroup) -> Mapping[str, Any]:
    """Entry of the file, before any program completes it."""
    entry = file_entry(model)
    part = entry.get(group_label(model, group))
    return part if isinstance(part, Mapping) else entry


def yarn(entry: Entry, attention_factor: float, **changed: Any) -> Entry:
    """YaRN entry from the numbers of an entry, with a given factor on cos and sin."""
    numbers = {name: entry[name] for name in _YARN if entry.get(name) is not None}
    scaling = {"rope_type": "yarn", "attention_factor": attention_factor}
    return plain(entry) | numbers | scaling | changed


def latent_yarn(model: Model, entry: Entry, multiplier: float = 1.0) -> Entry:
    """YaRN of DeepSeek: m(s, mscale)/m(s, mscale_all_dim) with defaults 1 and 0, multiplied."""
    factor = float(entry.get("factor") or 1.0)
    changed = {"factor": factor, ORIGINAL: entry.get(ORIGINAL) or model.context}
    return yarn(entry, yarn_ratio(factor, entry) * multiplier, **changed, truncate=True)


def yarn_ratio(factor: float, entry: Entry) -> float:
    """Attention factor of DeepSeek's YaRN: m(s, mscale)/m(s, mscale_all_dim)."""
    mscale, all_dim = entry.get("mscale", 1.0), entry.get("mscale_all_dim", 0.0)
    return yarn_scale(factor, float(mscale)) / yarn_scale(factor, float(all_dim))


def divided(model: Model, entry: Entry, short: list[float], long: list[float]) -> Entry:
    """Entry with a divisor for each frequency: one list up to L0, one beyond."""
    lists = {"short_factor": short, "long_factor": long}
    original = entry.get(ORIGINAL) or model.context
    return plain(entry) | {"rope_type": "longrope", **lists, ORIGINAL: original}


def longrope(model: Model, entry: Entry) -> Entry:
    """LongRoPE entry with the attention factor √(1 + ln(N/L0)/ln L0), unless it has factors."""
    scaled = divided(model, entry, entry["short_factor"], entry["long_factor"])
    if entry.get("short_mscale") and entry.get("long_mscale"):
        return {**scaled, "attention_factor": float(entry["long_mscale"])}
    return {**scaled, "factor": max(model.context / scaled[ORIGINAL], 1.0)}


def _linear(model: Model, entry: Entry) -> Entry:
    """Raise for a factor without a decimal point, which both servers read as a list."""
    if isinstance(entry["factor"], int):
        raise UnreadableError(f"TypeError: a linear factor must be written as {entry['factor']}.0")
    return entry


# Changes of completed entries by servers, by scaling type; "proportional" loses its factor.
RULES: dict[str, Callable[[Model, Entry], Entry]] = {
    "default": lambda model, entry: entry,
    # With high below low, servers put the step at high, transformers at low.
    "llama3": lambda model, entry: {
        **entry,
        "low_freq_factor": min(entry["low_freq_factor"], entry["high_freq_factor"]),
    },
    "linear": _linear,
    "longrope": longrope,
    "proportional": lambda model, entry: {**entry, "factor": 1.0},
}


def stored_logit_factor(model: Model, group: LayerGroup, entry: Entry) -> float:
    """Factor on logits that the program's `entries` put into the entry."""
    return float(entry.get("logit_factor", 1.0))


def parts(model: Model) -> list[Mapping[str, Any]]:
    """Entries of a file: one for each kind of layer, or a single one."""
    entry = model.entry
    return [part for part in entry.values() if isinstance(part, Mapping)] or [entry]


def multiplied(model: Model, kinds: Sequence[str]) -> float:
    """Longest text, times the factor of the last entry if its type is one of `kinds`."""
    last = parts(model)[-1]
    factor = last.get("factor") if scaling_type(last) in kinds else None
    number = isinstance(factor, int | float) and not isinstance(factor, bool)
    return model.context * (float(factor) if number else 1.0)


def fixed_pairing(program: str, model: Model, group: LayerGroup) -> str | None:
    """Pairing of a server, if it differs from the class of transformers."""
    facts, name = program_facts(program), model.family.model_type
    pairs = group.pairing
    if name in facts["interleaved"]:
        pairs = "interleaved"
    elif group.place.startswith("indexer") and name in facts["half_indexers"]:
        pairs = "interleaved" if model.fields.get("indexer_rope_interleave") else "half"
    return None if pairs == group.pairing else pairs
