"""Rows of tables of configurations, audits, counts and runs, cell by cell."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from jaxpe import theory
from jaxpe._core.options import Choice
from jaxpe.analysis.audit import Sides
from jaxpe.analysis.counts import CountedShard, CountHeader, CountSettings, StoredCounts
from jaxpe.report import training_figures
from jaxpe.report.audit import page as audit
from jaxpe.report.extrapolation import page as extrapolation
from jaxpe.report.extrapolation import text as extrapolation_text
from jaxpe.report.rope import text as rope
from jaxpe.report.tables import counts_table
from tests.report import test_extrapolation as cells
from tests.report.test_figure_values_jobs import SCALED

PLAN, NUMBERS = SCALED.groups[0], SCALED.programs[0].numbers[0]
COLUMN = ["linear", "10,000", "16", "4", "–", "1", "2", "3", "half", "as the first"]


def column(**fields: Any) -> tuple[str, ...]:
    own = NUMBERS._replace(logit_factor=2.0, query_factor=3.0, **fields)
    return rope._program_column(SCALED.programs[0]._replace(numbers=(own,)), 0, NUMBERS)


def changed(*cells: tuple[int, str]) -> list[str]:
    return [dict(cells).get(k, cell) for k, cell in enumerate(COLUMN)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, COLUMN),
        ({"original": 2048}, changed((4, "2,048"))),
        ({"attention_factor": 1.25}, changed((5, "1.25"))),
        ({"factor": float("nan")}, changed((3, "–"))),
        ({"frequencies": NUMBERS.frequencies * np.where(np.arange(8) < 2, 1, 2.0)},
         changed((9, "× 2"))),
        ({"frequencies": NUMBERS.frequencies * np.linspace(1, 3, 8)},
         changed((9, f"× {1 + 2 / 7:.4g} to 3"))),
        ({"frequencies": NUMBERS.frequencies[:4]}, changed((9, "4 of them"))),
        ({"pairing": "half, permuted"}, changed((8, "as weights"))),
    ],
)  # fmt: skip
def test_what_a_program_computes(fields, expected):
    assert list(column(**fields)) == expected


def test_rows_of_layers():
    plan = PLAN._replace(
        name="full_attention", layers=(0, 2), window=9, two_sided=True, place="last",
        sections=(4, 2, 2), part="decoder",
    )  # fmt: skip
    assert rope._layer_row(plan, True) == (
        "full in decoder", "0, 2", "rotates", "16 of 16, last entries", "10,000", "linear", "±9",
        "half, 4+2+2",
    )  # fmt: skip
    assert rope._layer_row(plan._replace(two_sided=False), False)[::6] == ("full", "9")
    yarn = PLAN._replace(rope_type="yarn", kept=3, divided=4, attention_factor=1.5)
    assert " keeps 3 frequencies, divides 4 by the full factor and 1 by" in (
        rope._scaling_sentence(yarn)
    )
    counts = PLAN._replace(never_round_at_reach=1, unseen=2, kept=3, divided=4, never_round=5)
    assert rope._frequency_row(counts)[3:] == ("5 of 8", "1", "2", "3", "4")


def test_headlines_of_a_configuration_are_of_float32_and_of_programs_that_agree():
    found = {x.label: x.value for x in rope.headlines(SCALED)}
    (float32,) = (
        x.largest for x in SCALED.precision
        if (x.dtype, x.rounded, x.length) == ("float32", "all", 512)
    )  # fmt: skip
    assert float(found["Float32 phase error"].split(" ")[0]) == pytest.approx(float32, rel=0.03)
    odd, count = len(rope.differing_programs(SCALED)), len(SCALED.accepted_by)
    assert found["Programs that agree"] == f"{count - odd} of {count}"


def test_claims_of_an_audit_hold_or_not():
    published = next(one for one in theory.STATEMENTS if "then L_g finite" in one.sentences)
    claims = {"L_g finite": Sides(1.0, 2.0, 1.0, True)}
    for holds, word in ((True, "yes"), (False, "no")):
        sides = {name: one._replace(holds=holds) for name, one in claims.items()}
        statement: Any = SimpleNamespace(
            name=published.name, hypotheses={}, conclusions=sides, instead={}, unchecked=(),
            outcome="holds",
        )  # fmt: skip
        (line,) = audit.lines(statement)
        assert (line.claim, line.holds) == ("then L_g finite", word)
    result: Any = SimpleNamespace(source="s", model="m", statements=[statement, statement])
    assert [row.end_section for row in audit.audit_table(result).rows] == [True, True]


def test_rows_of_extrapolation_have_multiples_of_the_training_length():
    header = extrapolation_text.task_header(cells.numbers())
    assert header == ["encoding", "8 = T", "16 = 2T", "32 = 4T", "64 = 8T", "rate"]
    settings = {name: shown for name, *shown in extrapolation._settings(cells.CASES["two suites"])}
    assert settings["name"] == ["sums", "strings"]
    assert settings["length"] == ["8", "4"]
    assert settings["encodings"][1] == "NoPE (none), rope, t5"


def test_a_task_is_not_learned_only_if_no_encoding_has_learned_it():
    def said(*found: Any) -> bool:
        case = cells.report([*found])._replace(comparisons=())
        return "No encoding has learned" in extrapolation_text._advice(case)

    one, other = cells.tokens()[:2]
    poor = [
        cells.scored(x, {name: np.full((3, 4), 0.1) for name in x.scores})._replace(chance=0.5)
        for x in (one, other)
    ]
    assert [said(*poor), said(poor[0], other)] == [True, False]


def test_rows_of_counts():
    table = np.zeros((2, 2, 3), np.int64)
    table[0, 0, 1] = table[1, 0, 1] = table[0, 1, 2] = 500
    settings = CountSettings("words", "", 8, (0, 4, 8), 3, (), 2, 5, 1, 0, "author")
    shard = CountedShard("a", 9, "0", 600)
    lost = CountedShard("x", 9, "", 0, null_texts=1, unreadable="why")
    choice = Choice("column", "body", "the only one", "pass another")
    header = CountHeader(1200, settings, (shard, shard, lost), "body", (choice,), ["a", "b", "c"])
    stored = StoredCounts(table, np.zeros((5, 1, 2, 3), np.int64), header)
    columns = counts_table(stored).columns
    names, values = ([str(cell) for cell in each.cells] for each in columns)
    values = [x.replace("\N{NO-BREAK SPACE}", " ") for x in values]
    expected = {
        "documents": "1,200", "tokens": "1,500", "positions": "8 in 2 bins",
        "vocabulary": "3 (words)", "cells in use": "2 of 6 (33 %)",
        "folds": "2, and 5 nulls in 1", "kept together": "documents of the same 'author' in a fold",
        "shards": "2", "column of text": "body", "column": "body: the only one",
    }  # fmt: skip
    left_out = [("left out", "1 row without text"), ("left out", "x, 9 bytes: why")]
    assert [*zip(names, values, strict=True)] == [*expected.items(), *left_out]


def test_rows_of_a_probe_are_of_its_first_and_last_step():
    ends = [{"step": k, "loss": 2.0 - k, "accuracy": 0.5} for k in range(3)]
    probe = {
        "first": {"occupied/violation_rate": 0.25, "occupied/stress": 3.0},
        "last": {"occupied/violation_rate": 0.5, "occupied/stress": 2.0},
    }
    summary: Any = SimpleNamespace(evaluation=ends, task="classify", probe=probe)
    rows = {name: cells for name, *cells in training_figures.summary_rows(summary)}
    assert "perplexity" not in rows
    assert [x.replace("\N{NO-BREAK SPACE}", " ") for x in rows["violation rate"]] == [
        "25 %", "", "50 %"
    ]  # fmt: skip
    assert rows["raw stress, Eq. (4)"] == ["3", "", "2"]


@pytest.mark.parametrize(("value", "ends"), [(5.0, (4.95, 5.05)), (0.0, (-1e-8, 1e-8))])
def test_an_axis_of_a_constant_has_2_percent(value, ends):
    axis = Figure().subplots()
    axis.set_ylim(value - 1e-12, value + 1e-12)
    training_figures._widen_axis(axis)
    assert axis.get_ylim() == pytest.approx(ends)
