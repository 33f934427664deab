"""Rotations by sections, and places in the head, against classes of transformers."""

import json
from pathlib import Path

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.conformance.reference import plan_rotation
from jaxpe.plans import read_config, simple_plan
from tests.plans.agreement import classes

PARITY = Path(__file__).parents[1] / "parity"
SECTIONS = json.loads((PARITY / "rope_sections.json").read_text())["cases"]


@pytest.mark.parametrize("case", SECTIONS, ids=lambda case: f"{case['type']}-{case['layer_type']}")
def test_rotates_by_sections_as_the_class_does(case):
    plans = read_config({"model_type": case["type"], **case["config"]}).plan()
    plans = [one for one in plans if one.turns and one.place != "indexer, last"]
    (plan,) = (one for one in plans if case["layer_type"] in (None, one.name))
    q = np.array(case["q"])
    heads = np.zeros((len(q), plan.head_dim))
    heads[:, -q.shape[1] :] = q  # of a latent head, the class rotates a separate part
    positions = np.array(case["positions"])[None]
    out = plan_rotation(plan).turn(heads[None, :, None], positions)[0, :, 0]
    np.testing.assert_allclose(out[:, -q.shape[1] :], case["rotated"], atol=5e-6)


def test_rotates_the_entries_that_the_classes_rotate():
    """First and last rotated entry, one case of each type."""
    compared = 0
    for index, entry in enumerate(classes()["types"].values()):
        cases = [one for one in entry["cases"].values() if one.get("groups") and one.get("text")]
        for case in cases[index % len(cases) :][:1] if cases else ():
            try:
                found = read_config(case["input"], programs="transformers 5.24").plan()
            except InputError:
                continue
            for group in case["groups"]:
                plans = [p for p in found if p.turning == group.get("turning")]
                plans = [p for p in plans if "indexer" not in p.place]
                same = [p for p in plans if set(p.layers or ()) & set(group.get("layers") or ())]
                if group.get("kind") == "rotary" and group.get("place") and len(same) == 1:
                    rotated = plan_rotation(same[0]._replace(sections=(), section_order="")).pairs
                    assert [rotated.min(), rotated.max()] == group["place"], case["input"]
                    compared += 1
    assert compared > 150


def test_sections_that_do_not_add_up_are_refused():
    with pytest.raises(InputError, match="sections"):
        plan_rotation(simple_plan(head_dim=8, sections=(1, 2)))
