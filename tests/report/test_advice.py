"""Every piece of advice of every report, and the stored results that some of it rests on."""

import ast
import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxpe.report
from jaxpe.report.attention.advice import advice as attention_advice
from jaxpe.report.corpus.advice import advice as corpus_advice
from jaxpe.report.training_advice import RANKS, TASKS, TRIED
from tests.report import test_spectral as spectral
from tests.report.factory import analysis

ROOT = Path(jaxpe.report.__file__).parent
RESULTS = Path(__file__).parents[2] / "experiments" / "results"
# Functions that advise, by what their advice rests on.
NUMBERS_OF_THE_PAGE = {
    "audit/advice.py": {"advice"},
    "bench/advice.py": {"advice", "_rerun"},  # trains the encoding that the user judges
    "comparison.py": {"advice"},
    "corpora.py": {"advice"},
    "corpus/advice.py": {"advice", "_markup", "_length", "_background"},
    "extrapolation/text.py": {"advice"},
    "inspect/advice.py": {
        "comparison_advice", "_configuration", "_longer_texts", "_truncation", "_sinks", "_reach",
        "_middle", "_scaling", "_padding", "_order",
    },
    "rope/advice.py": {"advice"},
    "training_run.py": {"next_steps"},
}  # fmt: skip
STORED_RESULTS = {
    "attention/advice.py": {"advice"},
    "corpus/advice.py": {"_training"},
    "training_advice.py": {"training_advice"},
}


def test_every_piece_of_advice_rests_on_its_page_or_on_stored_results():
    pieces = dict[str, set[str]]()
    for file in ROOT.rglob("*.py"):
        name, tree = file.relative_to(ROOT).as_posix(), ast.parse(file.read_text("utf-8"))
        for node in ast.walk(tree):
            calls = {getattr(getattr(x, "func", None), "id", "") for x in ast.walk(node)}
            if isinstance(node, ast.FunctionDef) and calls & {"Advice", "training_advice"}:
                pieces.setdefault(name, set()).add(node.name)
        if "--encoding " in file.read_text("utf-8"):
            assert name in {"training_advice.py", "bench/advice.py"}
    known = NUMBERS_OF_THE_PAGE | STORED_RESULTS
    assert pieces == {k: known[k] | NUMBERS_OF_THE_PAGE.get(k, set()) for k in known}


def stored(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def check_table(learning: Any, times: Any) -> None:
    """The table of the package has the ranks of the stored results, and tries the best."""
    tasks = learning["tasks"]
    assert tuple(tasks) == TASKS
    losses = [
        {k: np.mean(x["held_out"]) for k, x in t["encodings"].items()} for t in tasks.values()
    ]
    ranks = {k: tuple(sorted(x, key=x.__getitem__).index(k) + 1 for x in losses) for k in losses[0]}
    order = sorted(ranks, key=lambda name: sum(ranks[name]))
    assert [*order[:3], order[-1]] == list(RANKS)
    assert {name: ranks[name] for name in RANKS} == RANKS
    assert set(ranks["none"]) == {len(ranks)} == {16}
    relative = {"rope": 1.0} | {name: x["median"] for name, x in times.items()}
    assert (order[0], min(order[:3], key=relative.__getitem__)) == TRIED
    choices = [task["choice"] for task in tasks.values()]
    assert all(x["position"]["loss"] > x["at_random"] for x in choices)


def test_advice_on_encodings_is_that_of_the_stored_results():
    learning = stored("stress_and_learning")
    times = stored("benchmark_layers")["forward and backward"]["over_rope"]
    check_table(learning, times)
    for path, value in {
        ("tags", "encodings", "t5", "held_out"): [0.1],
        ("tags", "encodings", "none", "held_out"): [0.4],
        ("next word", "choice", "position", "loss"): 3.4,
    }.items():
        moved = copy.deepcopy(learning)
        *parents, last = path
        parent = moved["tasks"]
        for name in parents:
            parent = parent[name]
        parent[last] = value
        with pytest.raises(AssertionError):
            check_table(moved, times)
    with pytest.raises(AssertionError):
        check_table(learning, times | {"transformer_xl": {"median": 0.9}})


def test_only_encodings_of_the_table_are_advised():
    none, most = np.zeros((3, 4)), np.full((3, 4), 0.3)
    shares = (spectral.variance(*x) for x in ((none, none), (most, none), (none, most)))
    steps = [attention_advice(spectral.report()._replace(variance=x))[-1] for x in shares]
    steps += [corpus_advice(analysis(position={"significant_rank": x}))[-1] for x in (0, 2)]
    for step in steps:
        assert tuple(re.findall(r"--encoding (\w+)", step.paste)) == TRIED
