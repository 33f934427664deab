"""Comparison finding by finding: the rule, its level with known truth, and what is read."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from jaxpe.analysis.findings import (
    FindingsComparison,
    compare_findings,
    differences,
    joint_factor,
)
from jaxpe.report import page

REPORT = {
    "facts": {
        "documents": 100, "tokens": 900, "tokenizer": "words", "length": 8, "origin": 0,
        "edges": None, "from_counts": False,
    },
    "options": {"source": "films.csv", "cohort": False, "special": False},
}  # fmt: skip
INSPECT = {"facts": {"source": "sst2", "positions": 100, "longest": 512}}
OTHER = {"source": "code.csv", "documents": 7}  # of another report


def row(name, value, low=None, high=None, unit=""):
    return {"name": name, "value": value, "low": low, "high": high, "unit": unit}


def folder(path, *rows, kind="report", **changes):
    path.mkdir()
    values = REPORT if kind == "report" else INSPECT
    values = {part: {k: changes.get(k, v) for k, v in of.items()} for part, of in values.items()}
    (path / f"{kind}.json").write_text(json.dumps(values))
    (path / "findings.json").write_text(json.dumps(rows))
    return path


def differ(values, half, *, shared=False):
    """Which of symmetric intervals `[2, findings]` are found to differ, `[findings]`."""
    names = tuple(f"f{k}" for k in range(values.shape[1]))
    estimates = np.stack([values, values - half, values + half])
    found = FindingsComparison(
        "report", ("a", "b"), names, ("",) * len(names), estimates, ({}, {}), (True, shared)
    )
    _, low, high = found.differences[:, 0]
    return (low > 0) | (high < 0)


@pytest.mark.parametrize(("findings", "shift"), [(1, 0), (12, 0), (12, 6)])
def test_results_of_one_law_differ_in_5_percent_of_cases_and_others_always(findings, shift):
    """By chance, in any finding; by 6 standard errors of the difference, in the first."""
    values = np.random.default_rng(0).normal(size=(2000, 2, findings))
    values[:, 1, 0] += shift * 2**0.5
    found = np.array([differ(one, 1.96) for one in values])
    if not shift:
        assert 0.03 < found.any(axis=1).mean() < 0.062
        return
    assert found[:, 0].mean() > 0.99
    assert found[:, 1:].any(axis=1).mean() < 0.062


@pytest.mark.parametrize("correlation", [-1.0, 0.0, 1.0])
def test_results_of_the_same_documents_differ_in_at_most_5_percent_of_cases(correlation):
    """At any correlation of the two estimates; independent intervals fail below 0."""
    covariance = [[1.0, correlation], [correlation, 1.0]]
    values = np.random.default_rng(0).multivariate_normal([0, 0], covariance, size=2000).T
    wrong = [np.mean([differ(values[:, k : k + 1], 1.96, shared=s) for k in range(2000)])
             for s in (True, False)]  # fmt: skip
    assert wrong[0] < 0.062
    assert (wrong[1] > 0.062) == (correlation < 0)


def test_a_difference_has_the_half_widths_that_bound_it():
    """Of Wilson's intervals of two shares, it is Newcombe's (1998): 56/70 and 48/80 in Table II."""
    shares = [(k / n, *stats.binomtest(k, n).proportion_ci(method="wilson"))
              for k, n in ((48, 80), (56, 70))]  # fmt: skip
    found = differences(*map(np.array, shares))
    np.testing.assert_allclose(found, [0.2, 0.0524, 0.3339], atol=5e-5)
    assert joint_factor(10) == pytest.approx(2.807034 / 1.959964, rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "second", "verdict"),
    [
        ("report", (2.0, 1.299, 2.7), "not significant"),
        ("report", (2.0, 1.301, 2.7), "differs"),
        ("inspect", (2.0, 1.001 + 0.51**0.5, 2.7), "differs"),  # disjoint intervals
        ("inspect", (2.0, 1.8, math.inf), "differs"),
    ],
)
def test_a_finding_differs_where_its_interval_is_above_0(tmp_path, kind, second, verdict):
    a = folder(tmp_path / "a", row("nearness", 1.0, 0.5, 1 + 0.51**0.5), kind=kind)
    bound = {"high": "Infinity", "unit": " or more"} if math.isinf(second[2]) else {}
    b = folder(tmp_path / "b", row("nearness", *second) | bound, kind=kind, **OTHER)
    found = page(compare_findings([a, b]))
    (one,) = [x for x in found.findings if x.name == "nearness"]
    assert (one.verdict, one.value) == (verdict, 1.0)
    assert found.lead[0].value == (verdict == "differs")
    (values,) = (table.rows for table in found.tables if table.title == "Values")
    assert [float(cell.split(" ")[0]) for cell in values[0][1:]] == [1.0, 2.0]


def test_what_is_not_judged(tmp_path):
    """Without interval, of no width, counts, texts, names that are there twice, other units."""
    rows = (
        row("tokens", 9.0), row("flat", 2.0, 2.0, 2.0), row("first", 3.0, 2.0, 4.0, "count"),
        row("best", "alibi"), row("twice", 1.0, 0.0, 2.0), row("twice", 2.0, 1.0, 3.0),
    )  # fmt: skip
    a = folder(tmp_path / "a", *rows, row("x", 1.0, 0.0, 2.0, "bits"))
    b = folder(tmp_path / "b", *rows, row("x", 9.0, 8.0, 10.0), **OTHER)
    c = folder(tmp_path / "c", **OTHER)
    found = compare_findings([c, a, b])
    assert found.names == ("tokens", "flat", "first")
    assert np.isnan(found.estimates[0, 0]).all()
    assert np.isnan(found.differences[1:]).all()
    assert page(found).lead[0].reference == 0


@pytest.mark.parametrize(
    ("changes", "shared"),
    [
        ({"source": ["code.csv", "films.csv"]}, True),
        ({"source": "."}, True),  # the folder of the other
        ({"source": "code.csv"}, False),
        ({"source": "code.csv", "from_counts": True}, True),  # of which documents is unknown
        ({"source": "copy.csv", "documents": 100}, True),
    ],
)
def test_reports_may_share_documents(tmp_path, changes, shared):
    a, b = folder(tmp_path / "a"), folder(tmp_path / "b", **{"documents": 7} | changes)
    assert compare_findings([a, b]).shared == (True, shared)


@pytest.mark.parametrize(
    ("kind", "changes", "named"),
    [
        ("report", {"length": 9, "source": "code.csv"}, ["length"]),
        ("inspect", {"positions": 125}, []),  # within a quarter
        ("inspect", {"source": "stdlib", "longest": 400}, ["source", "longest"]),
    ],
)
def test_settings_that_make_numbers_less_comparable_are_named(tmp_path, kind, changes, named):
    a, b = folder(tmp_path / "a", kind=kind), folder(tmp_path / "b", kind=kind, **changes)
    found = compare_findings([a, b])
    assert (set(found.differing), found.less_comparable) == (changes.keys(), named)
    assert [one.name for one in page(found).findings[1:]] == named
