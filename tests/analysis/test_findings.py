"""Comparison finding by finding: the rule, its level with known truth, and what is read."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from jaxpe._core.errors import InputError
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


@pytest.mark.parametrize(("findings", "degrees"), [(1, None), (12, None), (12, 15)])
def test_results_of_one_law_differ_in_5_percent_of_cases(findings, degrees):
    """By chance, in any finding; intervals by Student's t of 15 degrees too, as of 16 folds."""
    rng = np.random.default_rng(0)
    trials, wrong = 2000, 0
    for _ in range(trials):
        values, spread = rng.normal(size=(2, findings)), 1.0
        if degrees is not None:
            spread = np.sqrt(rng.chisquare(degrees, size=(2, findings)) / degrees)
        quantile = 1.96 if degrees is None else 2.131
        wrong += differ(values, quantile * spread).any()
    assert 0.03 < wrong / trials < 0.062


@pytest.mark.parametrize("correlation", [-1.0, -0.5, 0.0, 0.5, 1.0])
def test_results_of_the_same_documents_differ_in_at_most_5_percent_of_cases(correlation):
    """At any correlation of the two estimates; independent intervals fail below 0."""
    covariance = [[1.0, correlation], [correlation, 1.0]]
    values = np.random.default_rng(0).multivariate_normal([0, 0], covariance, size=2000).T
    wrong = [np.mean([differ(values[:, k : k + 1], 1.96, shared=s) for k in range(2000)])
             for s in (True, False)]  # fmt: skip
    assert wrong[0] < 0.062
    assert (wrong[0] > 0.04) == (correlation == -1)
    assert (wrong[1] > 0.062) == (correlation < 0)


def test_results_that_differ_are_told_apart():
    """By 6 standard errors of the difference, in one of 12 findings."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(200):
        values = rng.normal(size=(2, 12))
        values[1, 0] += 6 * 2**0.5
        found.append(differ(values, 1.96))
    assert np.mean([one[0] for one in found]) > 0.99
    assert np.mean([one[1:].any() for one in found]) < 0.08


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
        ("inspect", (2.0, 1 + 0.51**0.5, 2.7), "not significant"),
        ("inspect", (2.0, 1.001 + 0.51**0.5, 2.7), "differs"),  # disjoint intervals
        ("inspect", (2.0, 1.8, math.inf), "differs"),
    ],
)
def test_a_finding_differs_where_its_interval_is_above_0(tmp_path, kind, second, verdict):
    a = folder(tmp_path / "a", row("nearness", 1.0, 0.5, 1 + 0.51**0.5), kind=kind)
    bound = {"high": "Infinity", "unit": " or more"} if math.isinf(second[2]) else {}
    other = row("nearness", *second) | bound
    b = folder(tmp_path / "b", other, kind=kind, source="code.csv", documents=7)
    found = page(compare_findings([a, b]))
    (one,) = [x for x in found.findings if x.name == "nearness"]
    assert one.verdict == verdict
    assert one.value == 1.0
    assert found.lead[0].value == (verdict == "differs")


def test_what_is_not_judged(tmp_path):
    """Without interval, of no width, counts, texts, names that are there twice, other units."""
    rows = (
        row("tokens", 9.0), row("flat", 2.0, 2.0, 2.0), row("first", 3.0, 2.0, 4.0, "count"),
        row("best", "alibi"), row("twice", 1.0, 0.0, 2.0), row("twice", 2.0, 1.0, 3.0),
    )  # fmt: skip
    a = folder(tmp_path / "a", *rows, row("x", 1.0, 0.0, 2.0, "bits"))
    b = folder(tmp_path / "b", *rows, row("x", 9.0, 8.0, 10.0), source="code.csv", documents=7)
    found = compare_findings([a, b])
    assert found.names == ("tokens", "flat", "first")
    assert np.isnan(found.differences[1:]).all()
    assert page(found).lead[0].reference == 0


def test_a_finding_of_two_folders_of_three_is_compared(tmp_path):
    a, b, c = (
        folder(tmp_path / name, *[row("loss", k, k - 0.1, k + 0.1)] * (k > 0), kind="inspect")
        for k, name in enumerate("abc")
    )
    found = compare_findings([b, a, c])
    np.testing.assert_array_equal(found.estimates[0, :, 0], [1, np.nan, 2])
    assert [one.name for one in page(found).lead] == ["findings that differ", "loss, c"]


@pytest.mark.parametrize(
    ("changes", "shared"),
    [
        ({"source": "films.csv"}, True),
        ({"source": ["code.csv", "films.csv"]}, True),
        ({"source": "."}, True),  # the folder of the other
        ({"source": "code.csv"}, False),
        ({"source": "code.csv", "from_counts": True}, True),  # of which documents is unknown
        ({"source": "copy.csv", "documents": 100}, True),
    ],
)
def test_reports_may_share_documents(tmp_path, changes, shared):
    a = folder(tmp_path / "a")
    b = folder(tmp_path / "b", **{"documents": 7} | changes)
    assert compare_findings([a, b]).shared == (True, shared)


@pytest.mark.parametrize(
    ("kind", "changes", "named"),
    [
        ("report", {"length": 9}, ["length"]),
        ("report", {"cohort": True, "source": "code.csv"}, ["cohort"]),
        ("inspect", {"positions": 125}, []),  # within a quarter
        ("inspect", {"positions": 126}, ["positions"]),
        ("inspect", {"source": "stdlib", "longest": 400}, ["source", "longest"]),
    ],
)
def test_settings_that_make_numbers_less_comparable_are_named(tmp_path, kind, changes, named):
    a, b = folder(tmp_path / "a", kind=kind), folder(tmp_path / "b", kind=kind, **changes)
    found = compare_findings([a, b])
    assert set(found.differing) == changes.keys()
    assert found.less_comparable == named
    assert [one.name for one in page(found).findings[1:]] == named


def test_bad_folders(tmp_path):
    a = folder(tmp_path / "a")
    (tmp_path / "b").mkdir()
    for folders, message in (
        ([a], "pass two"),
        ([a, a], "each once"),
        ([a, tmp_path / "b"], "findings.json cannot be read"),
    ):
        with pytest.raises(InputError, match=message):
            compare_findings(folders)
    (tmp_path / "b" / "findings.json").write_text('[{"name": 1}]')
    with pytest.raises(InputError, match="holds no findings"):
        compare_findings([a, tmp_path / "b"])
    (tmp_path / "b" / "findings.json").write_text("[]")
    (tmp_path / "b" / "report.json").write_text("{}")
    with pytest.raises(InputError, match="is no report of this version"):
        compare_findings([a, tmp_path / "b"])
