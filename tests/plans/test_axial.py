"""Axial rotary embeddings against the matrices of transformers' and diffusers' own modules."""

import json
from pathlib import Path

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import to_json
from jaxpe.plans import LayerPlan
from jaxpe.plans.axial import axial_plans
from jaxpe.plans.configuration import Model, read_configuration
from jaxpe.plans.families import _table, _texts, find_family
from jaxpe.plans.fields import Fields
from jaxpe.plans.options import RopeOptions
from jaxpe.plans.programs.facts import program_facts
from tests.plans.entries import family_table

CASES = json.loads((Path(__file__).parents[1] / "parity" / "rope_axial.json").read_text())["cases"]
# The module of these needs what a configuration does not have, and is not run.
NOT_RUN = {
    "lightglue": "frequencies are weights",
    "MochiTransformer3DModel": "frequencies are weights",
    "JoyImageEditPlusTransformer3DModel": "the rotation of JoyImageEditTransformer3DModel",
    "FluxControlNetModel": "the module of FluxTransformer2DModel",
    "QwenImageControlNetModel": "the module of QwenImageTransformer2DModel",
    "CosmosControlNetModel": "the module of CosmosTransformer3DModel",
}


def groups_of(model_type: str, given: dict) -> tuple[LayerPlan, ...]:
    family = find_family(model_type)
    assert family is not None
    fields = Fields(given, family, source="config.json")
    return axial_plans(Model("", family, True, fields, 2048), 64)


def pairs_of(group: LayerPlan) -> list[tuple[int, int]]:
    """Axis and index of the frequency of each pair, in the order of the head."""
    counts = [len(axis) for axis in group.frequencies]
    if group.layout == "alternating":
        return [(axis, k) for k in range(counts[0]) for axis in range(len(counts))]
    if group.layout == "mixed sections":
        order, next_of = [], [0] * len(counts)
        for i in range(sum(counts)):
            axis = i % 3 if i % 3 and i // 3 < counts[i % 3] else 0
            order.append((axis, next_of[axis]))
            next_of[axis] += 1
        return order
    return [(axis, k) for axis, count in enumerate(counts) for k in range(count)]


def crossed(group: LayerPlan) -> dict[tuple[int, int], tuple[int, float]]:
    """Frequencies stand as the other pairing has them."""
    entries, start = {}, 0
    if group.pairing == "half":  # repeated one by one, over all axes
        repeated = [(a, f) for a, axis in enumerate(group.frequencies) for f in np.repeat(axis, 2)]
        half = group.turning // 2
        return {(i, (i + half) % group.turning): one for i, one in enumerate(repeated)}
    for axis, frequencies in enumerate(group.frequencies):  # tiled, axis by axis
        tiled = np.tile(frequencies, 2)
        entries |= {(start + i, start + (i ^ 1)): (axis, f) for i, f in enumerate(tiled)}
        start += len(tiled)
    return entries


def entries_of(group: LayerPlan) -> dict[tuple[int, int], tuple[int, float]]:
    """Axis and angle by entry and its partner, as the group's words say."""
    if group.layout == "crossed":
        return crossed(group)
    order = pairs_of(group)
    entries = {}
    first = group.head_dim - group.turning if "base size" in group.unit else 0  # padded in front
    starts = np.cumsum([0, *(2 * len(axis) for axis in group.frequencies)])
    for p, (axis, k) in enumerate(order):
        if group.layout == "blocks":
            i = int(starts[axis]) + k
            j = i + len(group.frequencies[axis])
        elif group.pairing == "half":
            i, j = p, p + len(order)
        else:
            i, j = 2 * p, 2 * p + 1
        angle = group.frequencies[axis][k]
        entries[first + i, first + j] = entries[first + j, first + i] = (axis, angle)
    return entries


def of_case(groups: tuple[LayerPlan, ...], part: str) -> LayerPlan:
    """The group that a measurement is of: windowed, of a part, or the one with full attention."""
    if part == "window":
        return next(one for one in groups if one.window)
    name = part or "attention"
    return next(
        one for one in groups if one.kind == "axial" and one.name == name and not one.window
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['type']}-{case['case']}")
def test_turns_as_the_class_does(case):
    groups = groups_of(case["type"], case["config"])
    for measured in case["groups"]:
        group = of_case(groups, measured["part"])
        entries = entries_of(group)
        assert group.head_dim == measured["head"]
        assert group.turning == sum(measured["counts"]) == len(entries)
        for axis, triples in enumerate(measured["entries"]):
            for i, j, angle in triples:
                found, frequency = entries[i, j]
                assert found == axis, (i, j)
                assert frequency == pytest.approx(angle, rel=2e-5)
        counts = [2 * len(axis) for axis in group.frequencies]
        assert counts == measured["counts"]
        layers = [i for one in groups if one.name == group.name for i in one.layers or ()]
        assert sorted(layers) == list(range(measured["layers"]))
    if "windows" in case:
        layers, patches = case["windows"]
        windowed = [one for one in groups if one.window]
        assert [(list(one.layers or ()), one.window) for one in windowed] == [(layers, patches)]


@pytest.mark.parametrize(
    "case", [c for c in CASES if c["case"] == "default"], ids=lambda c: c["type"]
)
def test_an_empty_file_is_the_default_of_the_class(case):
    assert case["case"] == "default"
    empty, stated = (groups_of(case["type"], given) for given in ({}, case["config"]))
    assert to_json(empty) == to_json(stated)


def test_every_type_with_a_row_is_measured():
    rows = {name for name in family_table()["axial"] if "." not in name}
    measured = {case["type"] for case in CASES}
    assert rows == measured | set(NOT_RUN)
    assert len(measured) == 97
    assert not measured & set(NOT_RUN)


def test_no_type_is_in_two_tables():
    table = family_table()
    without = [name for names in table["without"].values() for name in names]
    names = [*table["rotary"], *table["axial"], *without]
    assert len(names) == len(set(names))


def test_each_table_is_read_by_itself():
    parts = {heading: _table(heading) for heading in _texts()}
    whole = parts.pop("")
    for heading, part in parts.items():
        kind, _, name = heading.partition(".")
        whole |= {kind: whole.get(kind, {}) | {name: part} if name else part}
    assert whole == family_table()


def test_rows_have_known_keys():
    table = family_table()
    architectures = program_facts("llama_cpp")["rows"].values()
    rows = [*table["rotary"].values(), *table["axial"].values(), *architectures]
    rows += [row["listed"] for row in rows if "listed" in row]
    assert {key for row in rows for key in row} <= {*vars(find_family("llama"))} - {"model_type"}


QWEN = {  # as the released 7B has it
    "depth": 32, "hidden_size": 1280, "num_heads": 16, "intermediate_size": 3420, "patch_size": 14,
    "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], "spatial_merge_size": 2,
}  # fmt: skip


def read(tmp_path, config: dict):
    (tmp_path / "config.json").write_text(json.dumps(config))
    return read_configuration(RopeOptions(config=str(tmp_path)))


def test_the_tower_of_a_composite_file(tmp_path):
    config = {"model_type": "qwen2_5_vl", "hidden_size": 3584, "num_attention_heads": 28}
    configuration = read(tmp_path, config | {"vision_config": QWEN})
    (tower,) = configuration.towers
    windowed, full = axial_plans(tower, 64)
    assert full.layers == (7, 15, 23, 31)
    assert windowed.window == 64
    assert windowed.head_dim == windowed.turning == 80
    assert axial_plans(configuration.models[0], 64) == ()


def test_windows_hold_whole_blocks_of_merged_patches(tmp_path):
    """4 of the blocks of 28 pixels fit in 126, and 5 in 140; a block is 2 by 2 patches."""
    for pixels, window in ((126, (2 * 4) ** 2), (140, (2 * 5) ** 2)):
        config = {"model_type": "qwen2_5_vl", "hidden_size": 64, "num_attention_heads": 2}
        config |= {"vision_config": QWEN | {"window_size": pixels}}
        (tower,) = read(tmp_path, config).towers
        assert axial_plans(tower, 64)[0].window == window


def test_a_diffusion_model_names_its_class(tmp_path):
    config = {"_class_name": "FluxTransformer2DModel", "num_layers": 1, "num_single_layers": 2}
    (model,) = read(tmp_path, config).models
    (group,) = axial_plans(model, 64)
    assert group.layers == (0, 1, 2)
    assert [len(axis) for axis in group.frequencies] == [8, 28, 28]


def test_another_scaling_is_left_unread():
    family = find_family("qwen3_vl_vision")
    for kind, unread in (("axial", ()), ("yarn", ("rope_parameters",))):
        fields = Fields(
            {"rope_parameters": {"rope_type": kind, "rope_theta": 50.0}}, family, source=""
        )
        (group,) = axial_plans(Model("", family, True, fields, 2048), 64)
        assert group.base == 50.0
        assert fields.unread() == unread


@pytest.mark.parametrize(
    ("model_type", "given", "message"),
    [
        ("FluxTransformer2DModel", {"axes_dims_rope": [16, 55, 56]}, "even numbers"),
        ("FluxTransformer2DModel", {"axes_dims_rope": [16, 56, 56, 8]}, "index, height, width"),
        ("FluxTransformer2DModel", {"attention_head_dim": 64}, "128 of 64"),
        ("qwen2_vl_vision", {"rope_parameters": {"rope_theta": 0}}, "not a number above 0"),
        ("LTXVideoTransformer3DModel", {"num_attention_heads": 10**6}, "2 to 65,536"),
        ("AllegroTransformer3DModel", {"interpolation_scale_h": 0}, "interpolation_scale_h"),
        ("sam3_vit_model", {"patch_size": "14"}, "patch_size"),
    ],
)
def test_fields_that_no_class_could_use(model_type, given, message):
    with pytest.raises(InputError, match=message):
        groups_of(model_type, given)
