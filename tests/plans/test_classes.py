"""Classes of the newest transformers that can be built: nothing differs without a word."""

import numpy as np
import pytest

from jaxpe.plans.families import find_family, has_own_layers, part_types
from tests.plans.agreement import classes, outcome, read, verdicts

POSITIONS = classes("class_positions")["types"]
SIZES = {"hidden_size": 64, "num_attention_heads": 2}
# Types whose own file has the entry, which composite types have in a part.
RULES = {
    name: rules
    for name, rules in classes("class_rules")["types"].items()
    if "cases" in rules and not part_types(name) and find_family(name).kind == "rotary"
}


def test_classes_agree_or_say_why_not(tmp_path):
    """What is not judged, refused or has a key that no rule uses is the exception."""
    every = list(verdicts(tmp_path, sample=True))
    assert [one for one in every if one.outcome == "differs"] == []
    agree = {one.model_type for one in every if one.outcome == "agrees" and one.rotates}
    rotating = {one.model_type for one in every if one.rotates}
    assert len(agree) >= max(150, 0.95 * len(rotating))


# A width of the indexer that the class compares with the rotated entries; properties and sizes
# that the class derives otherwise; of OLMo Hybrid, a model without a rotary module, which runs.
UNREAD = {
    ("qwen4_exp_text", "head_dim"),
    *((name, "null head_dim") for name in ("falcon", "glm4_moe_lite", "jetmoe", "mistral4")),
    *((name, "null max_position_embeddings") for name in ("bailing_hybrid", "codegen", "gptj")),
    *((name, "null rope_theta") for name in ("step3p5", "olmo_hybrid")),
    *((name, "null num_hidden_layers")
      for name in ("exaone", "longcat_flash", "moonshine", "seamless_m4t")),
}  # fmt: skip
# Only a forward pass makes masks, attention and odd heads.
FORWARD = ("layers slide", "'partial_rotary_factor'", "llama_4", "come in pairs", "not half")


def test_kinds_without_rotation_are_of_the_built_class(tmp_path):
    """From its parameters, buffers and modules, with each switch of positions on and off."""
    wrong, unjudged = [], {"clvp_encoder"}  # which rotates
    for model_type, case in POSITIONS.items():
        kind, composite = case["kind"], part_types(model_type)
        cases = [({}, kind)]
        for name, switch in case.get("switches", {}).items():
            cases.append(({name: not switch["default"]}, switch["otherwise"]))
        if model_type == "deberta-v2":  # version 3 has no table
            cases.append(({"relative_attention": True, "position_biased_input": False}, "bias"))
        if model_type in unjudged or (composite and not has_own_layers(model_type)):
            continue
        for fields, expected in cases[:1] if composite else cases:
            found = read({"model_type": model_type, **SIZES, **fields}, tmp_path)
            own = None if found.status == "not judged" else "judged"
            if expected is not None:
                own = found.groups[0].kind
                assert composite or len(found.groups) == 1, model_type
            if own != expected:
                wrong.append((model_type, fields, own, expected))
    assert wrong == []
    assert len(POSITIONS) > 300


def _fields(name, case):
    return {"model_type": name, **RULES[name]["needed"], **case["fields"]}


@pytest.mark.parametrize("start", range(8))
def test_fields_are_refused_overwritten_or_computed_as_by_the_class(start, tmp_path):
    """A third of the cases of each class, another third for the next class."""
    for index, (name, rules) in list(enumerate(RULES.items()))[start::8]:
        always = {"layer_types", "head_dim"} & rules["cases"].keys()
        for change in {*list(rules["cases"])[index % 3 :: 3], *always}:
            _check_case(name, change, rules["cases"][change], tmp_path)


def _check_case(name, change, case, folder):
    length = 2048 if "longrope" in change else None  # a class holds the short list up to L0
    if (name, change) in UNREAD and "null" in change:
        return
    problem, groups = outcome(_fields(name, case), folder, length)
    # Without its module, only its class ran. Attention, which did not run, cannot rotate a
    # part of heads that the class does not cut.
    unknown = not RULES[name]["modules"] and change.endswith(
        ("warped", "longrope", "null rope_theta")
    )
    unknown |= any(text in problem for text in FORWARD)
    turns = change in ("partial_rotary_factor", "null head_dim") or "proportional" in change
    unknown |= turns and "entries would turn" in problem
    if not unknown and (name, change) not in UNREAD:
        assert bool(problem) == ("refused" in case), (name, change, problem, case)
    if problem or "refused" in case:
        return
    rotary = [one for one in groups if one.kind == "rotary" and "indexer" not in one.place]
    for group in rotary if case.get("numbers") else ():
        found = float(sum(group.frequencies)), group.attention_factor
        near = [np.allclose(found, row[1:], rtol=1e-4, atol=0) for row in case["numbers"]]
        assert any(near), (name, change, group.name, found)
    if change == "layer_types":
        kinds = {i: one.name for one in groups if "indexer" not in one.place
                 for i in one.layers or ()}  # fmt: skip
        assert [kinds[i] for i in sorted(kinds)] == case["layer_types"]
    if change == "head_dim" and rotary and not find_family(name).latent:
        assert case["head_dim"] in {one.head_dim for one in rotary}
