"""Advice on training, and the stored results that it rests on."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxpe.report.training_advice import RANKS, TASKS, TRIED
from jaxpe.report.writing import page
from tests.report.factory import analysis

RESULTS = Path(__file__).parents[2] / "experiments" / "results"


def check_table(learning: Any, times: Any) -> None:
    """The table of the package has the ranks of the stored results, and tries the best."""
    tasks = learning["tasks"]
    cells = [task["encodings"].items() for task in tasks.values()]
    losses = [{name: np.mean(cell["held_out"]) for name, cell in x} for x in cells]
    ranks = {k: tuple(sorted(x, key=x.__getitem__).index(k) + 1 for x in losses) for k in losses[0]}
    order = sorted(ranks, key=lambda name: sum(ranks[name]))
    assert (tuple(tasks), [*order[:3], order[-1]]) == (TASKS, list(RANKS))
    assert {name: ranks[name] for name in RANKS} == RANKS
    assert set(ranks["none"]) == {len(ranks)} == {16}
    assert (order[0], min(order[:3], key=times.__getitem__)) == TRIED
    choices = [task["choice"] for task in tasks.values()]
    assert all(x["position"]["loss"] > x["at_random"] for x in choices)


def test_advice_on_encodings_is_that_of_the_stored_results():
    names = ("stress_and_learning", "benchmark_layers")
    learning, layers = (json.loads((RESULTS / f"{x}.json").read_text("utf-8")) for x in names)
    relative = layers["forward and backward"]["over_rope"].items()
    times = {"rope": 1.0} | {name: x["median"] for name, x in relative}
    check_table(learning, times)
    moved = [copy.deepcopy(learning) for _ in range(3)]
    moved[0]["tasks"]["tags"]["encodings"]["t5"]["held_out"] = [0.1]
    moved[1]["tasks"]["tags"]["encodings"]["none"]["held_out"] = [0.4]
    moved[2]["tasks"]["next word"]["choice"]["position"]["loss"] = 3.4
    others = [(x, times) for x in moved] + [(learning, times | {"transformer_xl": 0.9})]
    for other in others:
        with pytest.raises(AssertionError):
            check_table(*other)


def test_only_encodings_of_the_table_are_advised():
    for dim in (0, 2):
        steps = page(analysis(held_out={"dim": dim})).steps
        (paste,) = (step.paste for step in steps if "train" in step.paste)
        assert tuple(re.findall(r"--encoding (\w+)", paste)) == TRIED
