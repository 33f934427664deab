"""Settings for a longer text, ready to paste: files and commands."""

import json
import math
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxpe.plans.checks import Case
from jaxpe.plans.comparison import SAME
from jaxpe.plans.families import REMOTE_CODE, part_types, vendor_value
from jaxpe.plans.fields import ORIGINAL
from jaxpe.plans.layers import UNSCALED, layer_groups
from jaxpe.plans.programs.base import Program
from jaxpe.plans.programs.table import choose_programs
from jaxpe.plans.programs.transformers import group_label
from jaxpe.plans.result import LayerPlan, Recipe

_SHARE, _LENGTH = "partial_rotary_factor", "max_position_embeddings"
_NEW, _OLD = "rope_parameters", "rope_scaling"
_SCALED = {"default": "default", "mrope": "default", "yarn": "yarn"}  # what YaRN can replace
# Text of a recipe by program, with the fields of the text model that it changes.
_Changes = dict[str, tuple[str, Mapping[str, Any]]]


class _Goal(NamedTuple):
    """Target of the recipes: YaRN with these numbers.

    Attributes:
        case: configuration and its analysis.
        widest: rotating layers that reach furthest.
        factor: s of YaRN.
        original: L0.
        length: longest text.
    """

    case: Case
    widest: LayerPlan
    factor: float
    original: int
    length: int


def recipes(case: Case) -> tuple[Recipe, ...]:
    """YaRN settings for a text longer than the configured length.

    A recipe is for programs that compute this YaRN from it, by their rules. Empty if no rotating
    layer sees more than the configured length, or if the file has another scaling than YaRN. The
    vendor's documented values have priority. Without them, YaRN starts from the length before
    scaling; in an unscaled file, from `max_position_embeddings`.
    """
    analysis, widest, kind = case.analysis, case.widest, _SCALED.get(case.kind)
    types = {group.rope_type for group in analysis.groups if group.turns}
    if analysis.status != "judged" or widest is None or widest.part != case.model.part:
        return ()
    # Code in a checkpoint need not implement YaRN, unless the file already uses it.
    remote_code = case.model.family.since == REMOTE_CODE and kind != "yarn"
    other = widest.rope_type != kind or not types <= {"default", "yarn"}
    other |= bool(case.model.family.nested_base)  # programs do not agree on the base
    if other or remote_code or widest.reach <= analysis.context:
        return ()
    vendor = vendor_value(case.name, analysis.context)
    original = int(case.original or vendor.get("original", 0)) or analysis.context
    factor = float(math.ceil(analysis.length / original))
    if analysis.length <= vendor.get("length", 0):
        factor = min(factor, vendor["factor"])
    length = max(analysis.length, int(original * factor))
    goal = _Goal(case, widest, factor, original, length)
    changes = _nested_changes(goal) | _flat_changes(goal)
    verified = (_verified_recipe(goal, name, *change) for name, change in changes.items())
    return tuple(filter(None, verified))


def _verified_recipe(
    goal: _Goal, program: str, text: str, changed: Mapping[str, Any]
) -> Recipe | None:
    """Recipe, if the program computes the goal with it; a file is for the newest transformers."""
    file = program == "config.json"
    rules, *_ = choose_programs(None if file else program, goal.case.configuration.form)
    right = _agrees(goal, rules, changed)
    return Recipe(program if file else rules.name, text) if right else None


def _agrees(goal: _Goal, program: Program, changed: Mapping[str, Any]) -> bool:
    """Whether a program computes the goal from the changed file."""
    [result] = goal.case.changed_results([program], changed, goal.length)
    numbers = zip(result.numbers, goal.case.analysis.groups, strict=False)
    agrees = not result.problem and result.longest >= goal.length
    for one, plan in numbers:
        scaled = _is_scaled(goal, plan)
        kind = "yarn" if scaled else plan.rope_type
        agrees &= (one.turns, one.rope_type) == (plan.turns, kind) and one.turning == plan.turning
        agrees &= not plan.turns or math.isclose(one.base, plan.base, rel_tol=SAME)
        agrees &= not scaled or (one.factor, one.original) == (goal.factor, goal.original)
    return agrees


def _is_scaled(goal: _Goal, plan: LayerPlan) -> bool:
    alike = group_label(goal.case.model, plan) == group_label(goal.case.model, goal.widest)
    alike |= not goal.case.model.family.by_kind and plan.name != UNSCALED
    return plan.turns and alike and plan.part == goal.widest.part


def _part(goal: _Goal, plan: LayerPlan, old: Mapping[str, Any]) -> dict[str, Any]:
    """Complete entry of a group: its old keys, with the goal's numbers in place of the old ones."""
    model = goal.case.model
    width = next(one.width for one in layer_groups(model) if one.name == plan.name)
    shares = old.get(_SHARE), model.fields.number(_SHARE), model.family.fraction
    stated = {one for one in shares if isinstance(one, int | float)}
    fitting = (one for one in (*stated, 1.0) if 0 <= width * one - plan.turning < 1)
    share = next(fitting, plan.turning / width)
    new = {"rope_type": plan.rope_type, "rope_theta": plan.base}
    if _is_scaled(goal, plan):
        new |= {"rope_type": "yarn", "factor": goal.factor, ORIGINAL: goal.original}
    present = {"type": new["rope_type"], _LENGTH: goal.length, "attention_factor": None}
    new |= {key: value for key, value in present.items() if key in old}
    unit = plan.rope_type == "yarn" and plan.attention_factor == 1  # whatever the factor is
    if unit and (goal.case.factor or 2) > 1 and not {"mscale", "mscale_all_dim"} & {*old}:
        new["attention_factor"] = 1.0
    return {**old, **new, **({_SHARE: share} if {*stated, share} - {1.0} else {})}


def _parameters(goal: _Goal) -> dict[str, Any]:
    """New `rope_parameters`, with a part for each kind of layer where the class reads parts."""
    model, entry = goal.case.model, _part(goal, goal.widest, goal.case.entry)
    if not model.family.by_kind:
        return entry
    stated = (goal.case.stated.get(_NEW) or {}).items()
    parts = {key: value for key, value in stated if isinstance(value, Mapping)}
    plain = {"rope_type": "default", "rope_theta": model.fields.number("rope_theta")}
    unused = dict.fromkeys(model.family.labels.values(), plain)  # no layer has them
    every = (one for one in goal.case.analysis.groups if one.part == goal.widest.part)
    labels = {group_label(model, plan): plan for plan in every if plan.turns}
    made = {name: _part(goal, plan, parts.get(name, {})) for name, plan in labels.items()}
    return {**unused, **parts, **made, group_label(model, goal.widest): entry}


def _nested_changes(goal: _Goal) -> _Changes:
    """Recipes with an entry of transformers 5, which may have parts."""
    case, configuration, length = goal.case, goal.case.configuration, goal.length
    if configuration.form == "gguf":
        return {}
    remote_code = case.model.family.since == REMOTE_CODE
    entry = {_OLD if remote_code else _NEW: _parameters(goal), _length_name(goal): length}
    fields = {_OLD: None, **entry}
    file = _nested_patch(case.model.part, fields if case.stated.get(_OLD) else entry)
    types = part_types(configuration.model_type).items()
    path = case.model.part or next((key for key, kind in types if kind == case.name), "")
    patch = shlex.quote(json.dumps(_nested_patch(path, entry)))
    name = shlex.quote(_name(goal)) + " --trust-remote-code" * remote_code
    sglang = f"python -m sglang.launch_server --model-path {name} --context-length {length}"
    # Text per program; `_verified_recipe` drops the programs that would compute something else.
    texts = {
        "config.json": json.dumps(file, indent=2),
        "vLLM": f"vllm serve {name} --max-model-len {length} --hf-overrides {patch}",
        "SGLang": f"{sglang} --json-model-override-args {patch}",
    }
    if "." in path:  # SGLang replaces whole objects below the first level
        del texts["SGLang"]
    return {program: (text, fields) for program, text in texts.items()}


def _flat_changes(goal: _Goal) -> _Changes:
    """Recipes with one entry for all layers."""
    case, length = goal.case, goal.length
    if case.model.part or sum(plan.turns for plan in case.analysis.groups) > 1:
        return {}
    entry = _part(goal, goal.widest, case.entry)
    other_fields = {key: entry.pop(key) for key in ("rope_theta", _SHARE) if key in entry}
    fields = {_OLD: entry, **other_fields, _length_name(goal): length}
    single_model = case.name == case.configuration.model_type and case.configuration.form != "gguf"
    file = json.dumps({_NEW: None, **fields} if case.stated.get(_NEW) else fields, indent=2)
    files: _Changes = {"transformers 4": (file, fields)} if single_model else {}
    yarn = f"--rope-scaling yarn --rope-scale {goal.factor:g} --yarn-orig-ctx {goal.original}"
    command = f"llama-server -m MODEL.gguf -c {length} {yarn}"
    return {**files, "llama.cpp": (command, {_OLD: entry | other_fields, _NEW: None})}


def _length_name(goal: _Goal) -> str:
    """Field of the file with the context length."""
    family = goal.case.model.family
    name = {**family.names, **family.prior}.get(_LENGTH, _LENGTH)
    return name if name in goal.case.stated else _LENGTH


def _nested_patch(path: str, values: dict[str, Any]) -> dict[str, Any]:
    for key in reversed(path.split(".") if path else []):
        values = {key: values}
    return values


def _name(goal: _Goal) -> str:
    form, source = goal.case.analysis.form, goal.case.analysis.source
    return "MODEL" if form != "config.json" or source.endswith(".json") else source
