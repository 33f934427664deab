"""Configurations of public threads in which users met a wrong rotary embedding: values are right.

`threads.json` says of each what went wrong, in which program, and where its values are from.
"""

import math

import numpy as np
import pytest

from jaxpe.plans import RopeOptions, explain_rope
from tests.plans.conftest import NEWEST, codes, read

THREADS = {name: case for name, case in read("threads").items() if "outside" not in case}
QUIET = {"low_precision", "float32_precision", "kinds_of_layers", "reported", "refused_by_some"}
EXACT = ("kind", "pairing", "layers", "window", "place", "axis_lengths", "status")


def matching(groups, name=None, kind=None, layer=None):
    """Groups that a selector of an expectation means."""
    for one in groups:
        named = one.place != "indexer" if name is None else name in (one.name, one.place)
        held = layer is None or one.layers is None or layer in one.layers
        if named and held and kind in (None, one.kind):
            yield one


def value_of(group, field):
    """The value of a field of an expectation."""
    axial = isinstance(group.frequencies, tuple)
    frequencies = group.frequencies[0] if axial else group.frequencies
    if field.startswith(("frequency_", "slowest")) and not len(frequencies):
        return math.nan
    if field.startswith("frequency_"):
        return frequencies[int(field.removeprefix("frequency_"))]
    if field == "slowest":
        return min(frequencies)
    if field == "axis_lengths":
        return [len(axis) for axis in group.frequencies]
    return getattr(group, field)


@pytest.mark.parametrize("name", THREADS)
def test_values_of_a_thread_are_right(explain, write_gguf, name):
    case = THREADS[name]
    options, metadata = case.get("options", {}), dict(case["input"].get("gguf") or {})
    if metadata:
        architecture = metadata.pop("general.architecture")
        keys = {key.removeprefix(f"{architecture}."): value for key, value in metadata.items()}
        found = explain_rope(RopeOptions(config=write_gguf(architecture, keys), **options))
    else:
        judged = {} if case.get("finding") else {"programs": NEWEST}
        found = explain(case["input"], **judged | options)
    every = [*found.groups, *found.towers]
    for expected in case["right"]:
        groups = matching(every, **expected["group"])
        values = [value_of(group, expected["field"]) for group in groups]
        assert any(same(value, expected) for value in values), (expected, values)
    assert not case.get("finding") or codes(found).keys() - QUIET


def same(value, expected):
    wanted = expected["value"]
    if expected["field"] in EXACT or wanted is None or isinstance(wanted, str | list):
        return (list(value) if isinstance(value, tuple) else value) == wanted
    if value is None or isinstance(value, str) or not math.isfinite(value):
        return False
    return bool(np.isclose(value, wanted, rtol=expected.get("rtol", 2e-5), atol=0))
