"""Classes of the newest transformers that can be built: nothing differs without a word."""

import numpy as np
import pytest

from jaxpe.plans.families import find_family, has_own_layers, part_types
from tests.plans.agreement import classes, outcome, read, verdicts


def family_of(name):
    family = find_family(name)
    assert family is not None
    return family


POSITIONS = classes("class_positions")["types"]
# Types whose own file has the entry, which composite types have in a part.
RULES = {
    name: rules
    for name, rules in classes("class_rules")["types"].items()
    if "cases" in rules and not part_types(name) and family_of(name).kind == "rotary"
}


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    return list(verdicts(tmp_path_factory.mktemp("classes"), sample=True))


def test_no_class_differs(every):
    wrong = [one for one in every if one.outcome == "differs"]
    assert wrong == []


def test_most_classes_are_judged(every):
    """What is not judged, refused or has a key that no rule uses is the exception."""
    agree = {one.model_type for one in every if one.outcome == "agrees" and one.rotates}
    rotating = {one.model_type for one in every if one.rotates}
    assert len(agree) >= 0.95 * len(rotating)
    assert len(agree) >= 150


# A width of the indexer that the class compares with the rotated entries.
UNREAD = {
    ("qwen4_exp_text", "head_dim"),
    # Properties and sizes that the class derives otherwise.
    *((name, "null head_dim") for name in ("falcon", "glm4_moe_lite", "jetmoe", "mistral4")),
    ("bailing_hybrid", "null max_position_embeddings"), ("codegen", "null max_position_embeddings"),
    ("gptj", "null max_position_embeddings"), ("step3p5", "null rope_theta"),
    ("olmo_hybrid", "null rope_theta"),  # whose model then builds no rotary module, and runs
    *((name, "null num_hidden_layers") for name in (
        "exaone", "longcat_flash", "moonshine", "seamless_m4t",
    )),
}  # fmt: skip


def kind_of(model_type, fields, folder):
    """Kind of the only group of a type that never rotates."""
    sizes = {"hidden_size": 64, "num_attention_heads": 2}
    (group,) = read({"model_type": model_type, **sizes, **fields}, folder).groups
    return group.kind


def test_kinds_without_rotation_are_of_the_built_class(tmp_path):
    """From its parameters, buffers and modules, with each switch of positions on and off."""
    alone = {k: v for k, v in POSITIONS.items() if not part_types(k) and v["kind"] is not None}
    assert len(alone) > 300
    wrong = []
    for model_type, case in alone.items():
        switches = case.get("switches", {}).items()
        cases = {name: ({name: not one["default"]}, one["otherwise"]) for name, one in switches}
        for fields, kind in ({}, case["kind"]), *cases.values():
            if kind_of(model_type, fields, tmp_path) != kind:
                wrong.append((model_type, fields, kind))
    assert wrong == []


def test_a_class_that_cannot_be_built_or_decided_is_not_judged(tmp_path):
    for model_type, case in POSITIONS.items():
        if case["kind"] is None and find_family(model_type) is None and not part_types(model_type):
            found = read({"model_type": model_type, "head_dim": 64}, tmp_path)
            assert (found.status, model_type in found.reason) == ("not judged", True), model_type
    known = {k for k, v in POSITIONS.items() if v["kind"] is None and find_family(k) is not None}
    assert known == {"clvp_encoder"}  # which rotates


@pytest.mark.parametrize(
    "model_type", [n for n in POSITIONS if part_types(n) and has_own_layers(n)]
)
def test_composite_types_have_their_own_layers_too(model_type, tmp_path):
    """DPT, RT-DETR and others, next to the layers of a backbone."""
    found = read({"model_type": model_type, "hidden_size": 64, "num_attention_heads": 2}, tmp_path)
    kind = POSITIONS[model_type]["kind"]
    assert found.groups[0].kind == kind if kind else found.status == "not judged"


def test_two_switches(tmp_path):
    """DeBERTa v3, which has no table."""
    fields = {"relative_attention": True, "position_biased_input": False}
    assert kind_of("deberta-v2", fields, tmp_path) == "bias"


def _fields(name, case):
    return {"model_type": name, **RULES[name]["needed"], **case["fields"]}


@pytest.mark.parametrize("name", RULES)
def test_scalings_and_fields_are_refused_or_computed_as_by_the_class(name, tmp_path):
    """Refused where it refuses, else with its frequencies, also where it overwrites fields."""
    modules = RULES[name]["modules"]
    for change, case in RULES[name]["cases"].items():
        length = 2048 if "longrope" in change else None  # a class holds the short list up to L0
        if (name, change) in UNREAD and "null" in change:
            continue
        problem, groups = outcome(_fields(name, case), tmp_path, length)
        # Without its module, only its class ran.
        unknown = not modules and change.endswith(("warped", "longrope", "null rope_theta"))
        # Only a forward pass makes masks, attention and odd heads.
        forward = (
            "layers slide",
            "'partial_rotary_factor'",
            "llama_4",
            "come in pairs",
            "not half",
        )
        unknown |= any(text in problem for text in forward)
        # Attention, which did not run, cannot rotate a part of heads that the class does not cut.
        turns = change in ("partial_rotary_factor", "null head_dim") or "proportional" in change
        unknown |= turns and "entries would turn" in problem
        if not unknown and (name, change) not in UNREAD:
            assert bool(problem) == ("refused" in case), (change, problem, case)
        if not problem and case.get("numbers"):
            for group in (one for one in groups if one.kind == "rotary"):
                found = float(sum(group.frequencies)), group.attention_factor
                rows = (row[1:] for row in case["numbers"])
                near = any(np.allclose(found, row, rtol=1e-4, atol=0) for row in rows)
                assert near or "indexer" in group.place, (change, group.name, found)


@pytest.mark.parametrize("name", RULES)
def test_overwritten_fields_are_those_of_the_class(name, tmp_path):
    cases = RULES[name]["cases"]
    for change in cases.keys() & {"head_dim", "layer_types"}:
        case = cases[change]
        if "refused" in case or (family_of(name).latent and change == "head_dim"):
            continue
        groups = [one for one in read(_fields(name, case), tmp_path).groups if one.layers]
        kinds = {
            i: one.name for one in groups for i in one.layers or () if "indexer" not in one.place
        }
        if change == "layer_types":
            assert [kinds[i] for i in sorted(kinds)] == case["layer_types"]
        else:
            rotary = [one for one in groups if one.kind == "rotary"]
            assert case["head_dim"] in {one.head_dim for one in rotary} or not rotary
