"""Hugging Face transformers 5 and 4, by `modeling_rope_utils.py` and the classes of each model."""

from collections.abc import Callable, Mapping
from typing import Any

from jaxpe.plans.configuration import Configuration, Model, head_size
from jaxpe.plans.families import REMOTE_CODE
from jaxpe.plans.fields import FULL, ORIGINAL, SLIDING
from jaxpe.plans.layers import INDEXER, UNSCALED, WINDOWED, LayerGroup
from jaxpe.plans.programs.base import (
    YARNS,
    Entries,
    Entry,
    Groups,
    QueryScaling,
    UnreadableError,
    latent_factor,
    llama4_query_scaling,
    plain,
    scaling_type,
)
from jaxpe.plans.programs.facts import program_facts
from jaxpe.plans.result import LayerPlan

ALL = ""  # label of an entry for all layers
_BETA, _SHARE = "llama_4_scaling_beta", "partial_rotary_factor"
_FACTS = program_facts("transformers")
# Lists by layer, by the key of an entry.
_LISTS = {"rope_theta": "rope_theta", "partial_rotary_factor": "partial_rotary_factors"}


def transformers_5(configuration: Configuration, model: Model, groups: Groups) -> Entries:
    """Completed entries; without a scaling, most classes ignore the share of a head.

    Phi-3.5-MoE uses the short list of longrope alone.

    Raises:
        UnreadableError: an unknown type, or missing numbers.
    """
    refuse_configuration(model)
    _refuse(model, groups)
    ignores = model.family.scaling == "ignored"
    entries = completed_entries(_without_scaling(model) if ignores else model, groups)
    for group, entry in [(g, e) for g, e in zip(groups, entries, strict=True) if e]:
        if entry["rope_type"] == "default" and not model.family.share:
            entry["partial_rotary_factor"] = 1.0
        if _add_factors(model, entry):
            entry["long_factor"] = entry.get("short_factor")
        _refuse_entry(model, group, entry)
    return entries


def _refuse_entry(model: Model, group: LayerGroup, entry: Entry) -> None:
    """Raise where the table of cos and sin, or a number of the entry, does not fit the layer."""
    family, rotated = model.family, group.width
    latent = family.heads.get("latent", "")
    whole = head_size(model) if latent in model.fields.stated else group.width
    width = model.fields.integer(latent) or whole
    share = float(entry["partial_rotary_factor"])
    # A proportional table has zeros for the rest.
    turned = round(width * (1.0 if entry["rope_type"] == "proportional" else share))
    if family.latent:
        part = model.fields.integer("qk_rope_head_dim")
        separate = group.place != "latent" or group.name in family.heads  # a width of its own
        rotated = turned if separate or not part else part
    elif family.model_type in _FACTS["sliced"]:
        rotated = round(width * share)
    elif family.model_type not in _FACTS["whole"] and (family.share or family.fraction is not None):
        rotated = turned
    sections = entry.get("mrope_section") or family.mrope.get("sections")
    split = family.mrope.get("order") in ("contiguous", "height and width first")
    needed = (_BETA, ORIGINAL) if _BETA in (family.entry or ()) else ()
    missing = [key for key in needed if entry.get(key) is None]
    scaled = entry["rope_type"] != "default" and family.scaling == "refused"
    _refuse_if({
        "ValueError: its class has no scaling": scaled,
        f"RuntimeError: {turned} of {rotated} entries would turn":
            turned != rotated or (not family.latent and turned > width),
        f"RuntimeError: {sections} are not half of {turned} entries":
            split and 2 * sum(sections) != turned,
        f"TypeError: {''.join(missing[:1])} is missing in the entry": missing,
    })  # fmt: skip


def _add_factors(model: Model, entry: Entry) -> bool:
    """Add the two factors on cos and sin, up to L0 and beyond, that Phi-3.5-MoE alone has."""
    if model.family.model_type not in _FACTS["list_factors"] or entry["rope_type"] == "default":
        return False
    factors = [entry.get(name) for name in ("short_mscale", "long_mscale")]
    if not all(isinstance(one, int | float) for one in factors):
        raise UnreadableError("TypeError: short_mscale and long_mscale must be numbers")
    entry["attention_factors"] = factors
    return True


def _refuse_layers(model: Model, *, exact: bool = True) -> None:
    """Raise for kinds of layers that the configuration class refuses."""
    fields, rule = model.fields, model.family.layers
    count, listed = fields.integer("num_hidden_layers"), fields.stated.get("layer_types")
    listed = listed if isinstance(listed, list) else None  # also of classes that do not use it
    if rule.get("field") == "sliding_window_pattern" and listed is None:
        unwindowed = model.family.model_type == "exaone4" and fields.get("sliding_window") is None
        pattern = 0 if unwindowed else fields.get("sliding_window_pattern")
        stated = "sliding_window_pattern" in fields.stated or pattern is not None
        if stated and (not pattern or isinstance(pattern, str)):
            raise UnreadableError(f"TypeError: sliding_window_pattern is {pattern!r}, not positive")
    if fields.stated.get(model.family.unturned) == [] and rule.get("by_turning") != "chunks":
        raise UnreadableError(f"IndexError: {model.family.unturned} is empty")
    cut = fields.integer("num_nextn_predict_layers", least=0) if "nextn" in rule else 0
    exact = exact and not rule.keys() & {"each", "with_mlp"}
    if listed and count and exact and len(listed) not in (count, count + (cut or 0)):
        named = f"{len(listed)} entries for {count} layers"
        raise UnreadableError(f"ValueError: layer_types has {named}")


def refuse_configuration(model: Model) -> None:
    """Raise for what the configuration class refuses, in every program that loads files with it.

    Raises:
        UnreadableError: fields that contradict the class or each other.
    """
    family, fields, entry = model.family, model.fields, file_entry(model)
    if family.since == REMOTE_CODE:
        return
    _refuse_layers(model)
    for name, default in family.defaults.items():
        null = fields.stated.get(family.names.get(name, name), 0) is None
        if null and type(default) is int and family.model_type not in _FACTS["nulls"].get(name, ()):
            raise UnreadableError(f"TypeError: Field {name!r} expected int, got NoneType")
    if type(fields.get("attn_temperature_tuning")) is int:
        raise UnreadableError("TypeError: attn_temperature_tuning must be true or false")
    for name in family.strict:
        keys = fields.mapping(name)
        kinds = (key for key in (FULL, SLIDING) if isinstance(keys.get(key), Mapping))
        if others := sorted(keys.keys() - set(kinds)):
            raise UnreadableError(f"{name} has {others[0]!r}, no kind of layer")
    needed, kind = family.required if entry else [], scaling_type(entry)
    if family.scaling == "ignored":  # its class validates the entry all the same
        needed = [*_FACTS["required"].get(kind, ()), *_FACTS["unfilled"].get(kind, ())]
        if kind in ("yarn", "llama3") and "max_position_embeddings" not in family.defaults:
            raise UnreadableError("AttributeError: its class has no max_position_embeddings")
    if missing := [key for key in needed if key not in entry]:
        raise UnreadableError(f"KeyError: {missing[0]!r} is missing in the entry")
    sections = entry.get("mrope_section") if family.mrope.get("whole") else None
    if sections and 2 * sum(sections) != head_size(model):
        raise UnreadableError(f"ValueError: {sections} are not half of {head_size(model)} entries")


def _refuse(model: Model, groups: Groups) -> None:
    """Raise for what the code of the model, but not its configuration class, refuses."""
    family, fields, entry = model.family, model.fields, file_entry(model)
    kind, name = scaling_type(fields.mapping("rope_parameters")), family.model_type
    null = [key for key, value in fields.stated.items() if value is None]
    slide = [one for one in groups if one.name in WINDOWED and name not in _FACTS["windowless"]]
    unset = "sliding_window" in null or None in [one.window for one in slide]
    numbered = fields.stated.get("sliding_window") in (0, -1)  # a number makes a mask
    unshared = _SHARE in null and _SHARE not in entry and name in _FACTS["shared"]
    sized = [key for key in family.sized if entry.get(key) or key == scaling_type(entry)]
    _refuse_if({
        f"KeyError: {kind!r} is known in rope_scaling alone": kind in YARNS[1:],
        "TypeError: layers slide, and sliding_window is not set": slide and unset and not numbered,
        "KeyError: 'partial_rotary_factor' is null": unshared,
        f"TypeError: {''.join(sized[:1])} needs head_dim, and the file has none":
            sized and fields.get("head_dim") is None,
    })  # fmt: skip


def _refuse_if(problems: Mapping[str, Any]) -> None:
    """Raise the first message whose condition holds."""
    for message in (message for message, holds in problems.items() if holds):
        raise UnreadableError(message)


def _without_scaling(model: Model) -> Model:
    """Model whose class reads no scaling; some have a fixed base, too."""
    ignored = {"rope_scaling", "rope_parameters", "rope_theta" * model.family.fixed}
    stated = {key: value for key, value in model.fields.stated.items() if key not in ignored}
    return model._replace(fields=model.fields.replaced(stated))


def completed_entries(model: Model, groups: Groups) -> Entries:
    """Entries from `rope_scaling`, else `rope_parameters`, completed by the fields next to them.

    Raises:
        UnreadableError: an unknown type, or missing numbers.
    """
    if model.family.since == REMOTE_CODE:
        return _remote_code_entries(model, groups)
    parts = _CONVERSIONS.get(model.family.convert, _standard_entries)(model, groups)
    return _group_entries(model, groups, parts)


def transformers_4(configuration: Configuration, model: Model, groups: Groups) -> Entries:
    """Entries from `rope_scaling`, with θ and share next to it; `rope_parameters` is not read.

    If `type` and `rope_type` differ, version 4 uses `type`, version 5 uses `rope_type`.

    Raises:
        UnreadableError: a model type of a later version, or llama3 scaling without L0.
    """
    model = _without_scaling(model) if isinstance(model.family.scaling, str) else model
    family, fields = model.family, model.fields
    if family.since == REMOTE_CODE:
        return _remote_code_entries(model, groups)
    if family.since.startswith("5"):
        raise UnreadableError(f"the model type {family.model_type} came with version 5")
    _refuse_layers(model, exact=bool(family.layers))
    entry = fields.mapping("rope_scaling") or dict(family.entry or {})
    entry = entry if entry == _flat(entry) else {}  # parts by kind of layer are not read
    entry["rope_type"] = _rope_type(model, str(entry.get("type") or scaling_type(entry)))
    class_base = family.bases[FULL][1] if FULL in family.bases else family.base
    default_base = family.base_4 or float(class_base)
    entry["rope_theta"] = fields.number(family.nested_base or "rope_theta") or default_base
    entry["partial_rotary_factor"] = model.fields.number("partial_rotary_factor", family.fraction)
    beside = fields.number(ORIGINAL)
    if entry["rope_type"] == "longrope":  # L0 is read next to the entry, not inside it
        inside = entry.get(ORIGINAL) if _add_factors(model, entry) else None
        beside = beside or inside
        entry[ORIGINAL] = beside or model.context
        entry |= {"factor": model.context / beside} if beside else {}
    elif entry["rope_type"] == "yarn":
        entry[ORIGINAL] = entry.get(ORIGINAL) or model.context
    elif entry["rope_type"] == "llama3" and entry.get(ORIGINAL) is None:
        raise UnreadableError(f"{ORIGINAL} must be in rope_scaling")
    _finish(model, entry)
    parts = {ALL: entry}
    if SLIDING in family.bases and family.bases[SLIDING][0]:
        local = {"rope_type": "default", "rope_theta": _base(model, SLIDING)}
        parts = {FULL: entry, SLIDING: _finish(model, local)}
    elif family.bases:  # OLMo 3: θ for all layers, the scaling for full attention only
        parts = {FULL: entry, SLIDING: plain(entry)}
    return _group_entries(model, groups, parts)


def _base(model: Model, kind: str) -> Any:
    """θ of a kind of layer, from the field of this kind."""
    name, default = model.family.bases[kind]
    return _beside(model, name, default)


def _beside(model: Model, name: str, default: Any) -> Any:
    """A number next to the entry, or the default; None for a null, which most classes keep."""
    stated = model.fields.stated.get(model.family.renamed.get(name, name), default)
    kept = model.family.scaling != "ignored" and model.family.model_type not in _FACTS["fills"]
    return None if stated is None and kept else model.fields.number(name, default)


def _remote_code_entries(model: Model, groups: Groups) -> Entries:
    """Entries of models with remote code, which transformers loads from the checkpoint."""
    entry = model.fields.mapping("rope_scaling")
    entry["rope_theta"] = model.fields.number("rope_theta") or model.family.base
    if "rope_ratio" in model.family.defaults:
        entry["rope_theta"] *= model.fields.number("rope_ratio", 1.0)
    entry["rope_type"] = _rope_type(model, scaling_type(entry))
    share = model.fields.number("partial_rotary_factor", model.family.fraction)
    entry["partial_rotary_factor"] = share
    if entry["rope_type"] in _FACTS["with_original"]:
        entry[ORIGINAL] = entry.get(ORIGINAL) or model.context
    return _group_entries(model, groups, {ALL: _finish(model, entry)})


def file_entry(model: Model) -> dict[str, Any]:
    """Mutable copies of the file's entry, else the class's."""
    entry = model.entry or model.family.entry or {}
    return {k: dict(v) if isinstance(v, Mapping) else v for k, v in entry.items()}


def _standard_entries(model: Model, groups: Groups) -> dict[str, Entry]:
    """Entries by label, as `convert_rope_params_to_dict` and `standardize_rope_params` do.

    Raises:
        UnreadableError: parts by kind of layer for a class that reads one entry.
    """
    if model.family.bases:
        return _base_entries(model)
    entry, family = file_entry(model), model.family
    theta = _beside(model, "rope_theta", None if family.bare else family.base)
    share = _beside(model, _SHARE, _fraction(model))
    labels = {group_label(model, group) for group in groups} | {*family.labels.values()}
    labels |= {FULL, SLIDING} if family.by_kind and not family.bare else set()
    nested = [key for key in entry if key in labels and (family.layers or family.by_kind)]
    if nested and not family.by_kind and any(group.kind == "rotary" for group in groups):
        raise UnreadableError(f"its class reads one entry, not one for {' and '.join(nested)}")
    for key in nested:
        if entry[key] and not isinstance(entry[key], Mapping):
            raise UnreadableError(f"TypeError: the part for {key} is no object of its entries")
    if not nested:
        if family.by_kind and not family.base_by_layer:
            raise UnreadableError("its class needs an entry for each kind of layer")
        return {ALL: _complete_entry(model, _flat(entry), theta, share, nested=False)}
    return {k: _complete_entry(model, entry[k], theta, share) if entry[k] else {} for k in nested}


def _fraction(model: Model) -> float | None:
    """Share from the class, or from a field with the number of rotated entries."""
    rotated = model.fields.integer(model.family.rotated) if model.family.rotated else None
    if rotated is None:
        return model.family.fraction
    if not model.family.latent:
        return rotated / head_size(model)
    if model.fields.mapping("rope_scaling"):  # Mistral 4 fills it into rope_parameters alone
        return None
    return rotated / (rotated + (model.fields.integer("qk_nope_head_dim", least=0) or 0))


def _base_entries(model: Model) -> dict[str, Entry]:
    """Gemma 3, ModernBERT, OLMo 3, NeoMME: a base by kind of layer, a scaling for some kinds."""
    entry, scaling = (model.fields.mapping(name) for name in ("rope_parameters", "rope_scaling"))
    defaults = model.family.entry or {}
    parts = {k: {**defaults.get(k, {}), **(entry.get(k) or {})} for k in model.family.bases}
    for kind in model.family.scaled:
        if scaling and model.fields.get("rope_parameters") is not None and not entry.get(kind):
            raise UnreadableError(f"KeyError: rope_parameters has no {kind!r} for rope_scaling")
        parts[kind] |= _flat(scaling)
    share = model.fields.number("partial_rotary_factor")
    return {k: _complete_entry(model, part, _base(model, k), share) for k, part in parts.items()}


def _flat(entry: Entry) -> Entry:
    return {key: value for key, value in entry.items() if not isinstance(value, Mapping)}


def _deepseek_v4(model: Model, groups: Groups) -> dict[str, Entry]:
    """`main` for sliding layers, unscaled; `compress` for the others, with another base."""
    entry, fields = file_entry(model), model.fields
    rotated = fields.integer("qk_rope_head_dim")
    share = fields.number("partial_rotary_factor")
    share = share or (rotated / head_size(model) if rotated else 0.125)
    theta, names = fields.number("rope_theta"), ("main", "compress")
    if not all(isinstance(entry.get(name), Mapping) for name in names):
        compress = {k: v for k, v in entry.items() if k not in names}
        compress["rope_theta"] = fields.number("compress_rope_theta")
        if scaling_type(compress) == "yarn":
            compress.setdefault("attention_factor", 1.0)
        entry = {"main": {"rope_type": "default", "rope_theta": theta}, "compress": compress}
    return {name: _complete_entry(model, entry[name], theta, share) for name in names}


def _layer_list_entries(model: Model, groups: Groups) -> dict[str, Entry]:
    """Step 3.5 and Ultrabert: θ, and a share of the head, in lists by layer."""
    entry, fields = file_entry(model), model.fields
    names = dict.fromkeys(group.name.removesuffix(INDEXER) for group in groups)
    if entry and all(isinstance(entry.get(name), Mapping) for name in names):
        return _standard_entries(model, groups)
    parts = {}
    for group in groups:
        first = group.layers[0] if group.layers else 0
        part: Entry = {"rope_type": "default"}
        for key, name in _LISTS.items():
            value = fields.get(name)
            value = value[first] if isinstance(value, list) and first < len(value) else value
            if isinstance(value, int | float):
                part[key] = float(value)
        if group.name == FULL:
            part |= fields.mapping("rope_scaling")
        parts[group.name] = _complete_entry(model, part, model.family.base)
    return parts


def _cohere2_moe(model: Model, groups: Groups) -> dict[str, Entry]:
    """Entry without completion, else `rope_theta`; `rope_scaling` is not read."""
    theta = model.fields.number("rope_theta", model.family.base)
    entry = model.fields.mapping("rope_parameters") or {"rope_theta": theta}
    return {ALL: _complete_entry(model, entry, nested=False)}


def _dots3_note(model: Model, groups: Groups) -> dict[str, Entry]:
    """The rope part of latent attention is the table; without an entry, sliding layers differ."""
    entry, fields = model.entry, model.fields
    names = dict.fromkeys(group.name.removesuffix(INDEXER) for group in groups)
    theta = _beside(model, "rope_theta", model.family.base)
    bases = {} if entry else {SLIDING: fields.number("swa_rope_theta") or 5e4}
    nested = any(isinstance(entry.get(name), Mapping) for name in names)
    stated = {name: entry.get(name) if nested else entry for name in names}
    parts = {
        n: {**one, "partial_rotary_factor": 1.0} for n, one in stated.items() if one is not None
    }
    return {name: _complete_entry(model, parts[name], bases.get(name, theta)) for name in parts}


_CONVERSIONS: dict[str, Callable[[Model, Groups], dict[str, Entry]]] = {
    "deepseek_v4": _deepseek_v4,
    "by_layer_lists": _layer_list_entries,
    "ultrabert": lambda m, g: (_standard_entries if m.entry else _layer_list_entries)(m, g),
    "cohere2_moe": _cohere2_moe,
    "dots3_note": _dots3_note,
}


def _complete_entry(
    model: Model, entry: Entry, theta: Any = None, share: Any = None, *, nested: bool = True
) -> Entry:
    """Entry, completed by the fields next to it.

    Raises:
        UnreadableError: an unknown type, or a number that its type needs.
    """
    # The share of such a class is a default of unscaled layers alone.
    share = None if model.family.bare and scaling_type(entry) != "default" else share
    for name, value in (("rope_theta", theta), ("partial_rotary_factor", share)):
        if value is not None:
            entry.setdefault(name, value)
    if entry.get("rope_type", entry.get("type", "")) is None:
        raise UnreadableError("KeyError: None is no rope_type")
    stated = scaling_type(entry)
    entry["rope_type"] = _rope_type(model, stated)
    if stated == "su" and entry.get(ORIGINAL) is None:  # renamed after L0 is filled in
        raise UnreadableError(f"KeyError: the type su needs {ORIGINAL} inside the entry")
    if entry["rope_type"] == "dynamic" and "factor" not in entry:
        raise UnreadableError("KeyError: factor is missing in a dynamic entry")
    if entry["rope_type"] in _FACTS["with_original"]:
        beside = None if nested else model.fields.number(ORIGINAL)
        entry[ORIGINAL] = beside or entry.get(ORIGINAL) or model.context
    if nested:
        entry.pop("truncate", None)  # transformers looks for it next to the parts
    return _finish(model, entry)


def _rope_type(model: Model, stated: str) -> str:
    kind = model.family.types.get(stated, stated)
    if kind not in _FACTS["required"]:
        raise UnreadableError(f"KeyError: {kind!r} is no rope_type")
    takes = model.family.scaling
    if kind not in ("default", *takes) and not isinstance(takes, str):
        raise UnreadableError(f"ValueError: its configuration class has no scaling {kind!r}")
    return kind


def _finish(model: Model, entry: Entry) -> Entry:
    """Raise for missing numbers, and apply the last changes of classes."""
    kind = entry["rope_type"]
    missing = [name for name in _FACTS["required"][kind] if name not in entry]
    if entry.get("rope_theta") is None and not model.family.optional:
        raise UnreadableError("TypeError: rope_theta is null, or missing in the entry of a kind")
    if kind == "dynamic" and model.family.alpha and entry.get("alpha"):
        return entry
    if missing:
        raise UnreadableError(f"KeyError: {', '.join(missing)} is missing in a {kind} entry")
    if kind in ("yarn", "longrope") and entry.get("factor") is None:
        entry["factor"] = model.context / entry[ORIGINAL]
    if entry.get("partial_rotary_factor") is None:
        entry["partial_rotary_factor"] = 1.0
    return entry


def group_label(model: Model, group: LayerGroup | LayerPlan) -> str:
    """Part of the entry for a group; an indexer uses the part of its layers."""
    name = group.name.removesuffix(INDEXER)
    return model.family.labels.get(name, name)


def _group_entries(model: Model, groups: Groups, parts: Mapping[str, Entry]) -> Entries:
    """Entry of each group; Hunyuan's alpha stretches the base to base·alpha^(d/(d − 2))."""
    result = []
    for group in groups:
        label = group_label(model, group)
        entry = parts.get(label, parts.get(ALL)) if group.kind == "rotary" else {}
        if entry is None:
            raise UnreadableError(f"KeyError: the entry has no part for {label}")
        entry = plain(entry) if entry and group.name == UNSCALED else dict(entry)
        if entry and group.base is not None:
            entry["rope_theta"] = group.base
        if model.family.alpha and entry.get("rope_type") == "dynamic" and entry.get("alpha"):
            dim = int(group.width * float(entry.get("partial_rotary_factor") or 1.0))
            stretch = float(entry["alpha"]) ** (dim / (dim - 2))
            entry = {**plain(entry), "rope_theta": float(entry["rope_theta"]) * stretch}
        result.append(entry or None)
    return tuple(result)


def logit_factor(model: Model, group: LayerGroup, entry: Entry) -> float:
    """Factor on all logits of latent attention under YaRN."""
    return latent_factor(entry) if model.family.latent else 1.0


def logit_factor_4(model: Model, group: LayerGroup, entry: Entry) -> float:
    """Factor as in 5.24, except for DeepSeek V2, whose class had no factor before 5.15."""
    return 1.0 if model.family.model_type == "deepseek_v2" else logit_factor(model, group, entry)


def query_scaling(configuration: Configuration, model: Model, entry: Entry) -> QueryScaling | None:
    """Query scaling, which some classes read from the entry."""
    stated = model.family.model_type in _FACTS["scaled_queries"]
    return llama4_query_scaling(model, entry, entry if stated else {})
