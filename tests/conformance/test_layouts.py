"""Rotations of every layout of a head against what classes of transformers and diffusers do."""

import json
from pathlib import Path

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.conformance.reference import plan_rotation
from jaxpe.plans import read_config, simple_plan
from jaxpe.plans.job import read_plans
from tests.plans.agreement import classes, written
from tests.plans.test_axial import CASES, groups_of, of_case

PARITY = Path(__file__).parents[1] / "parity"
SECTIONS = json.loads((PARITY / "rope_sections.json").read_text())["cases"]


@pytest.mark.parametrize("case", SECTIONS, ids=lambda case: f"{case['type']}-{case['layer_type']}")
def test_rotates_by_sections_as_the_class_does(case, tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": case["type"], **case["config"]})
    )
    plans = [
        one for one in read_config(tmp_path).plan() if one.turns and one.place != "indexer, last"
    ]
    (plan,) = (one for one in plans if case["layer_type"] in (None, one.name))
    rotation, q = plan_rotation(plan), np.array(case["q"])
    heads = np.zeros((len(q), plan.head_dim))
    heads[:, -q.shape[1] :] = q  # of a latent head, the class rotates a separate part
    out = rotation.turn(heads[None, :, None], np.array(case["positions"])[None])[0, :, 0]
    np.testing.assert_allclose(out[:, -q.shape[1] :], case["rotated"], atol=5e-6)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['type']}-{case['case']}")
def test_rotates_by_axes_as_the_class_does(case):
    groups = groups_of(case["type"], case["config"])
    for measured in case["groups"]:
        rotation = plan_rotation(of_case(groups, measured["part"]))
        axes = np.broadcast_to(
            rotation.axes.reshape(len(rotation.pairs), -1), (len(rotation.pairs), 2)
        )
        entries = {}
        for (i, j), (f, g), (a, b) in zip(rotation.pairs, rotation.frequencies, axes, strict=True):
            entries[i, j], entries[j, i] = (a, f), (b, g)
        for axis, triples in enumerate(measured["entries"]):
            for i, j, angle in triples:
                assert entries[i, j] == (axis, pytest.approx(angle, rel=2e-5))


def test_rotates_the_entries_that_the_classes_rotate(tmp_path):
    """First and last rotated entry, one case of each type."""
    compared = 0
    for index, entry in enumerate(classes()["types"].values()):
        cases = [one for one in entry["cases"].values() if one.get("groups") and one.get("text")]
        for case in cases[index % len(cases) :][:1] if cases else ():
            _, found = read_plans(written(case["input"], tmp_path))
            for group in case["groups"]:
                plans = [p for p in found.groups if p.turning == group.get("turning")]
                plans = [p for p in plans if "indexer" not in p.place]
                same = [p for p in plans if set(p.layers or ()) & set(group.get("layers") or ())]
                if group.get("kind") == "rotary" and group.get("place") and len(same) == 1:
                    rotated = plan_rotation(same[0]._replace(sections=(), section_order="")).pairs
                    assert [rotated.min(), rotated.max()] == group["place"], case["input"]
                    compared += 1
    assert compared > 150


def test_sections_that_do_not_add_up_are_refused():
    plan = simple_plan(head_dim=8)._replace(sections=(1, 2))
    with pytest.raises(InputError, match="do not add up to 4 pairs"):
        plan_rotation(plan)
