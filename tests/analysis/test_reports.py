"""Reports compared finding by finding: the rule, its level with known truth, and what is read."""

import json

import numpy as np
import pytest
from scipy import stats

from jaxpe._core.errors import InputError
from jaxpe.analysis.reports import (
    ComparedReport,
    ReportComparison,
    compare_reports,
    independent_differences,
    joint_factor,
)
from jaxpe.report import page

FACTS = {
    "documents": 100, "tokens": 900, "tokenizer": "words", "length": 8, "origin": 0, "edges": None,
    "from_counts": False,
}  # fmt: skip
OPTIONS = {"source": "films.csv", "cohort": False, "special": False}


def row(name, value, low=None, high=None, unit=""):
    return {"name": name, "value": value, "low": low, "high": high, "unit": unit}


def report(folder, *rows, source="films.csv", **facts):
    folder.mkdir()
    values = {"facts": FACTS | facts, "options": OPTIONS | {"source": source}}
    (folder / "report.json").write_text(json.dumps(values))
    (folder / "findings.json").write_text(json.dumps(rows))
    return folder


def compared(values, half):
    """A comparison of estimates `[reports, findings]` with symmetric intervals."""
    reports = tuple(ComparedReport(f"r{k}", (f"{k}",), k, k, {}) for k in range(len(values)))
    names = tuple(f"f{k}" for k in range(values.shape[1]))
    shared = (True, *[False] * (len(values) - 1))
    ends = values - half, values + half
    return ReportComparison(reports, names, ("",) * len(names), values, *ends, shared)


def differ(found):
    _, low, high = found.differences
    return (low > 0) | (high < 0)


@pytest.mark.parametrize(("findings", "degrees"), [(1, None), (12, None), (12, 15)])
def test_reports_of_one_law_differ_in_5_percent_of_cases(findings, degrees):
    """By chance, in any finding; intervals by Student's t of 15 degrees too, as of 16 folds."""
    rng = np.random.default_rng(0)
    trials, wrong = 2000, 0
    for _ in range(trials):
        values, spread = rng.normal(size=(2, findings)), 1.0
        if degrees is not None:
            spread = np.sqrt(rng.chisquare(degrees, size=(2, findings)) / degrees)
        quantile = 1.96 if degrees is None else 2.131
        wrong += differ(compared(values, quantile * spread)).any()
    assert 0.03 < wrong / trials < 0.062


def test_reports_that_differ_are_told_apart():
    """By 6 standard errors of the difference, in one of 12 findings."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(200):
        values = rng.normal(size=(2, 12))
        values[1, 0] += 6 * 2**0.5
        found.append(differ(compared(values, 1.96))[0])
    assert np.mean([one[0] for one in found]) > 0.99
    assert np.mean([one[1:].any() for one in found]) < 0.08


def test_a_difference_has_the_half_widths_that_bound_it():
    """Of Wilson's intervals of two shares, it is Newcombe's (1998): 56/70 and 48/80 in Table II."""
    shares = [(k / n, *stats.binomtest(k, n).proportion_ci(method="wilson"))
              for k, n in ((48, 80), (56, 70))]  # fmt: skip
    found = independent_differences(*map(np.array, shares))
    np.testing.assert_allclose(found, [0.2, 0.0524, 0.3339], atol=5e-5)
    assert joint_factor(10) == pytest.approx(2.807034 / 1.959964, rel=1e-6)


@pytest.mark.parametrize(
    ("second", "verdict"),
    [((2.0, 1.299, 2.7), "not significant"), ((2.0, 1.301, 2.7), "differs")],
)
def test_a_finding_differs_where_its_interval_is_above_0(tmp_path, second, verdict):
    a = report(tmp_path / "a", row("nearness", 1.0, 0.5, 1 + 0.51**0.5))
    b = report(tmp_path / "b", row("nearness", *second), source="code.csv", documents=7)
    found = page(compare_reports([a, b]))
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
    a = report(tmp_path / "a", *rows, row("x", 1.0, 0.0, 2.0, "bits"))
    b = report(tmp_path / "b", *rows, row("x", 9.0, 8.0, 10.0), source="code.csv", documents=7)
    found = compare_reports([a, b])
    assert found.names == ("tokens", "flat", "first")
    assert np.isnan(found.differences[1:]).all()
    assert page(found).lead[0].reference == 0


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
def test_reports_that_may_share_documents_are_not_judged(tmp_path, changes, shared):
    nearness = row("nearness", 1.0, 0.9, 1.1), row("nearness", 5.0, 4.9, 5.1)
    a = report(tmp_path / "a", nearness[0])
    found = compare_reports([a, report(tmp_path / "b", nearness[1], **{"documents": 7} | changes)])
    assert found.shared == (True, shared)
    assert [one.verdict for one in page(found).lead[1:]] == ["differs"] * (not shared)


def test_settings_that_differ_are_named(tmp_path):
    a, b = report(tmp_path / "a"), report(tmp_path / "b", length=16, documents=7, source="c")
    (setting,) = page(compare_reports([a, b])).findings[1:]
    assert (setting.name, setting.value) == ("length", "8 / 16")


def test_bad_folders(tmp_path):
    a = report(tmp_path / "a")
    (tmp_path / "b").mkdir()
    for folders, message in (
        ([a], "pass two"),
        ([a, a], "each once"),
        ([a, tmp_path / "b"], "findings.json cannot be read"),
    ):
        with pytest.raises(InputError, match=message):
            compare_reports(folders)
    (tmp_path / "b" / "findings.json").write_text('[{"name": 1}]')
    with pytest.raises(InputError, match="holds no findings"):
        compare_reports([a, tmp_path / "b"])
    (tmp_path / "b" / "findings.json").write_text("[]")
    (tmp_path / "b" / "report.json").write_text("{}")
    with pytest.raises(InputError, match="is no report of this version"):
        compare_reports([a, tmp_path / "b"])
