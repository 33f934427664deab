"""Axial rotary embeddings against the matrices of transformers' and diffusers' own modules."""

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import to_json
from jaxpe.conformance.reference import plan_rotation
from jaxpe.plans import read_config
from jaxpe.plans.families import find_family
from jaxpe.plans.programs.facts import program_facts
from tests.plans.conftest import family_table

CASES = json.loads((Path(__file__).parents[1] / "parity" / "rope_axial.json").read_text())["cases"]
# The module of these needs what a configuration does not have, or is that of another type.
NOT_RUN = {
    "lightglue", "MochiTransformer3DModel", "JoyImageEditPlusTransformer3DModel",
    "FluxControlNetModel", "QwenImageControlNetModel", "CosmosControlNetModel",
}  # fmt: skip


def groups_of(name, given):
    """Plans of a class of diffusers, or of a type of transformers."""
    config = read_config({"_class_name" if name[0].isupper() else "model_type": name, **given})
    return config.plan(length=64)


def of_case(groups, part):
    """The group that a measurement is of: windowed, of a part, or the one with full attention."""
    if part == "window":
        return next(one for one in groups if one.window)
    name = part or "attention"
    return next(
        one for one in groups if one.kind == "axial" and one.name == name and not one.window
    )


def entries_of(group):
    """Axis and angle by entry and its partner."""
    rotation = plan_rotation(group)
    pairs = len(rotation.pairs)
    axes = np.broadcast_to(rotation.axes.reshape(pairs, -1), (pairs, 2))
    entries = {}
    for (i, j), (f, g), (a, b) in zip(rotation.pairs, rotation.frequencies, axes, strict=True):
        entries[i, j], entries[j, i] = (a, f), (b, g)
    return entries


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['type']}-{case['case']}")
def test_turns_as_the_class_does(case):
    groups = groups_of(case["type"], case["config"])
    for measured in case["groups"]:
        group = of_case(groups, measured["part"])
        entries = entries_of(group)
        assert group.head_dim == measured["head"]
        assert group.turning == sum(measured["counts"]) == len(entries)
        for axis, triples in enumerate(measured["entries"]):
            found = [entries[i, j] for i, j, _ in triples]
            assert {one for one, _ in found} <= {axis}
            angles = [angle for *_, angle in triples]
            np.testing.assert_allclose([one for _, one in found], angles, rtol=2e-5)
        assert [2 * len(axis) for axis in group.frequencies] == measured["counts"]
        layers = [i for one in groups if one.name == group.name for i in one.layers or ()]
        assert sorted(layers) == list(range(measured["layers"]))
    if "windows" in case:
        layers, patches = case["windows"]
        windowed = [one for one in groups if one.window]
        assert [(list(one.layers or ()), one.window) for one in windowed] == [(layers, patches)]
    if case["case"] == "default":
        assert to_json(groups_of(case["type"], {})) == to_json(groups)


def test_every_type_has_one_row_which_is_measured():
    table = family_table()
    names = [*table["rotary"], *table["axial"], *chain(*table["without"].values())]
    assert len(names) == len(set(names))
    measured = {case["type"] for case in CASES}
    assert {name for name in table["axial"] if "." not in name} == measured | NOT_RUN
    architectures = program_facts("llama_cpp")["rows"].values()
    rows = [*table["rotary"].values(), *table["axial"].values(), *architectures]
    rows += [row["listed"] for row in rows if "listed" in row]
    assert {key for row in rows for key in row} <= {*vars(find_family("llama"))} - {"model_type"}


QWEN = {  # as the released 7B has it
    "depth": 32, "hidden_size": 1280, "num_heads": 16, "intermediate_size": 3420, "patch_size": 14,
    "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], "spatial_merge_size": 2,
}  # fmt: skip


@pytest.mark.parametrize(("pixels", "window"), [(112, 64), (126, 64), (140, 100)])
def test_the_tower_of_a_composite_file(explain, pixels, window):
    """Windows hold whole blocks of 2 by 2 patches: 4 of 28 pixels fit in 126, and 5 in 140."""
    config = {"model_type": "qwen2_5_vl", "hidden_size": 3584, "num_attention_heads": 28}
    found = explain({**config, "vision_config": {**QWEN, "window_size": pixels}})
    windowed, full = found.towers
    assert full.layers == (7, 15, 23, 31)
    assert windowed.window == window
    assert windowed.head_dim == windowed.turning == 80
    assert {one.kind for one in found.groups} == {"rotary"}


@pytest.mark.parametrize(("kind", "unread"), [("axial", ()), ("yarn", ("rope_parameters",))])
def test_another_scaling_is_left_unread(explain, kind, unread):
    entry = {"rope_type": kind, "rope_theta": 50.0}
    found = explain({"model_type": "qwen3_vl_vision", "rope_parameters": entry})
    assert found.groups[0].base == 50.0
    assert found.unread == unread


@pytest.mark.parametrize(
    ("model_type", "given", "message"),
    [
        ("FluxTransformer2DModel", {"axes_dims_rope": [16, 55, 56]}, "even"),
        ("FluxTransformer2DModel", {"axes_dims_rope": [16, 56, 56, 8]}, "height"),
        ("FluxTransformer2DModel", {"attention_head_dim": 64}, "128 of 64"),
        ("qwen2_vl_vision", {"rope_parameters": {"rope_theta": 0}}, "above 0"),
        ("LTXVideoTransformer3DModel", {"num_attention_heads": 10**6}, "65,536"),
        ("AllegroTransformer3DModel", {"interpolation_scale_h": 0}, "interpolation_scale_h"),
        ("sam3_vit_model", {"patch_size": "14"}, "patch_size"),
    ],
)
def test_fields_that_no_class_could_use(model_type, given, message):
    with pytest.raises(InputError, match=message):
        groups_of(model_type, given)
