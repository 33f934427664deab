"""The scoreboard agrees with the stored results."""

import json
import re
from pathlib import Path

import pytest

import jaxpe.theory

EXPERIMENTS = Path(__file__).parent.parent / "experiments"
SCOREBOARD = EXPERIMENTS / "RESULTS.md"
TOOLS = (
    *("common", "fetch_models", "learning", "learning_tasks", "literal_numbers"),
    "position_alternatives",
    *(
        "position_corpora",
        "position_parts",
        "provenance",
        "render_results",
        "rows",
        "task_measures",
        "task_models",
    ),
)
SCRIPTS = sorted(path.stem for path in EXPERIMENTS.glob("*.py") if path.stem not in TOOLS)


def test_the_bounds_of_the_benchmark_hold():
    results = EXPERIMENTS / "results" / "benchmark_encodings.json"
    claims = json.loads(results.read_text())["claims"]
    assert len(claims) == 8
    for claim in claims:
        value, bound = claim["value"], claim["bound"]
        assert value <= bound if claim["at_most"] else value >= bound, claim["what"]


def test_training_is_no_slower_than_in_torch():
    results = EXPERIMENTS / "results" / "benchmark_training.json"
    assert min(json.loads(results.read_text())["speed_by_round"]) >= 1


def test_no_hostile_input_is_answered_wrong():
    found = json.loads((EXPERIMENTS / "results" / "hostile.json").read_text())
    assert found["all"]["tried"] >= 2000
    assert found["all"]["wrong"] == found["all"]["slow"] == 0
    assert found["all"]["answered"] + found["all"]["right"] == found["all"]["tried"]
    assert found["kills"]
    assert all(kill["kills"] >= 20 for kill in found["kills"].values())


def test_kernels_are_faster_than_the_peer_in_half_the_memory():
    results = EXPERIMENTS / "results" / "benchmark_ntk.json"
    for problem in json.loads(results.read_text())["problems"]:
        assert problem["speed_by_round"][1] > 1, problem["network"]
        assert problem["memory_of_peer"] <= 0.5, problem["network"]


STATEMENTS = [
    statement.name
    for statement in (*jaxpe.theory.STATEMENTS, *jaxpe.theory.STATEMENTS_ON_OWN_MODELS)
]


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_is_on_the_scoreboard(name):
    assert re.search(rf"^\| {re.escape(name)}\b", SCOREBOARD.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_is_on_the_scoreboard_with_its_result(script):
    assert f"python experiments/{script}.py" in SCOREBOARD.read_text()
    assert (EXPERIMENTS / "results" / f"{script}.json").is_file()


def test_every_figure_shown_exists_and_is_small():
    shown = re.findall(r"\]\((results/\S+\.png)\)", SCOREBOARD.read_text())
    assert shown
    for name in shown:
        assert (EXPERIMENTS / name).stat().st_size < 200_000, name


VERDICTS = (
    *("reproduced", "not decided", "not reproduced", "false as stated", "vacuous"),
    "inference invalid",  # of a step of a proof
    "measured",  # of open questions and of our own work
)


def table_rows(start, end):
    """Cells of the rows of a table, between two headings of the scoreboard."""
    text = SCOREBOARD.read_text()
    rows = text[text.index(start) : text.index(end)].splitlines()[4:]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        for row in rows
        if row.startswith("| ")
    ]


def test_every_verdict_is_one_of_those_defined():
    verdicts = [cells[3] for cells in table_rows("## Scoreboard", "## What is called false")]
    assert len(verdicts) > 90
    assert [verdict for verdict in verdicts if not verdict.startswith(VERDICTS)] == []


def test_what_is_called_false_is_quoted():
    rows = table_rows("## Scoreboard", "## What is called false")
    false = [cells[0] for cells in rows if cells[3].startswith("false as stated")]
    quoted = tuple(cells[0] for cells in table_rows("## What is called false", "## Verdicts that"))
    assert len(false) > 12
    assert [claim for claim in false if not claim.startswith(quoted)] == []
    assert [name for name in quoted if not any(claim.startswith(name) for claim in false)] == []
