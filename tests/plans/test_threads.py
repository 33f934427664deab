"""Configurations of public threads in which users met a wrong rotary embedding: values are right.

`threads.json` says of each what went wrong, in which program, and where its values are from.
"""

import math

import numpy as np
import pytest

from tests.plans.conftest import read

THREADS = {name: case for name, case in read("threads").items() if "outside" not in case}
QUIET = {"low_precision", "float32_precision", "kinds_of_layers", "reported", "refused_by_some"}
EXACT = ("kind", "pairing", "layers", "window", "place", "axis_lengths", "status")


def matching(groups, selector):
    """Groups that a selector of an expectation means."""
    found = groups
    if "name" in selector:
        found = [one for one in found if selector["name"] in (one.name, one.place)]
    else:
        found = [one for one in found if one.place != "indexer"]
    if "kind" in selector:
        found = [one for one in found if one.kind == selector["kind"]]
    if "layer" in selector:
        found = [one for one in found if one.layers is None or selector["layer"] in one.layers]
    return found


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
def test_values_of_a_thread_are_right(explain, gguf_file, name):
    case = THREADS[name]
    options = case.get("options", {})
    metadata = case["input"].get("gguf")
    found = (
        explain(case["input"], **options) if metadata is None else gguf_file(metadata, **options)
    )
    every = [*found.groups, *found.towers]
    wrong = []
    for expected in case["right"]:
        groups = matching(every, expected["group"])
        values = [value_of(group, expected["field"]) for group in groups]
        if not any(same(value, expected) for value in values):
            wrong.append((expected["group"], expected["field"], expected["value"], values))
    assert wrong == []
    if case.get("finding"):
        assert {one.code for one in found.findings} - QUIET


def same(value, expected):
    wanted = expected["value"]
    if expected["field"] in EXACT or wanted is None or isinstance(wanted, str | list):
        value = list(value) if isinstance(value, tuple) else value
        return value == wanted
    if value is None or isinstance(value, str) or not math.isfinite(value):
        return False
    return bool(np.isclose(value, wanted, rtol=expected.get("rtol", 2e-5), atol=0))


def test_there_are_at_least_40_threads():
    assert len(THREADS) >= 40
