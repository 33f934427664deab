"""`jaxpe audit` as a person types it: every statement and its numbers; what it refuses."""

import json

import numpy as np

from jaxpe import theory
from jaxpe._core.results import load_result
from jaxpe.analysis.audit import AuditResult
from jaxpe.analysis.audit.evidence import _swaps


def test_every_statement_is_audited(command, films, tmp_path):
    words = ("--examples", 16, "--length", 6, "--steps", 4, "--out", tmp_path)
    code, _, err = command("audit", films, *words)
    assert code == 0, err
    report = json.loads((tmp_path / "audit.json").read_text())
    names = [entry["name"] for entry in report["statements"]]
    assert names == [statement.name for statement in theory.STATEMENTS]
    for entry in report["statements"]:
        assert entry["conclusions"]
        for sides in (entry["hypotheses"] | entry["conclusions"]).values():
            assert set(sides) == {"lhs", "rhs", "slack", "holds"}
        # What is said to hold instead does, on every model.
        assert all(sides["holds"] for sides in entry["instead"].values()), entry["name"]
        failed = [k for k, sides in entry["conclusions"].items() if not sides["holds"]]
        assert all(name in entry["verdict"] for name in failed)
        assert ("fail" in entry["verdict"]) == bool(failed) or entry["hypotheses"]
    training = report["training"]
    assert len(training["losses"]) == 5
    assert training["losses"][-1] < training["losses"][0]
    assert training["output_distance"][0] == 0
    # What must come out whatever the corpus: softmax ignores a shift; α is E[g gᵀ].
    by_name = {entry["name"]: entry for entry in report["statements"]}
    assert by_name["Lemma 11"]["instead"]["rows sum to 0"]["holds"]
    assert not by_name["Lemma 18"]["hypotheses"]["A1 diagonal"]["holds"]
    # No kernel is positive definite and an increasing function of d_H.
    vacuous = [entry for entry in report["statements"] if entry["status"] == "vacuous"]
    assert {entry["name"] for entry in vacuous} == {"Lemma 18", "Remark 20"}
    assert all(entry["verdict"].startswith("not claimed: A1") for entry in vacuous)
    # A loss, a model, a read-out that statements are not about.
    assert by_name["Theorem 1"]["verdict"] == "holds"
    assert by_name["Corollary 15"]["unchecked"] == ["positional frequencies"]
    assert not by_name["Lemma 11"]["hypotheses"]["τ < 1"]["holds"]
    assert not by_name["Lemma 12"]["hypotheses"]["Lemma 11: τ < 1"]["holds"]
    for name in ("Lemma 11", "Lemma 12"):
        assert not by_name[name]["hypotheses"]["masked loss"]["holds"]
        assert by_name[name]["verdict"].startswith("not claimed: masked loss")
    assert by_name["Lemma 12"]["hypotheses"]["attention reads E + p"]["holds"]
    # What is saved is the whole result.
    found = load_result(AuditResult, tmp_path / "audit.json")
    assert [entry.verdict for entry in found.statements] == [
        entry["verdict"] for entry in report["statements"]
    ]
    assert found.kernel.alpha.shape == found.kernel.bound.shape == (15,)
    assert (np.diff(found.kernel.eigenvalues) <= 0).all()
    order = np.argsort(found.kernel.distances)
    for fit, sign in ((found.kernel.increasing, 1), (found.kernel.decreasing, -1)):
        assert (sign * np.diff(fit[order]) >= 0).all()


def test_what_cannot_be_audited_is_said(command, films, tmp_path):
    for words, said in (
        (("--steps", 0), "--steps is 0; pass at least 1"),
        (("--length", 2), "--length is 2; pass at least 3"),
        (("--temperature", 0), "--temperature is 0.0; pass at least 0.001"),
        (("--model", tmp_path / "nowhere"), "nowhere"),
    ):
        code, _, err = command("audit", films, *words, "--out", tmp_path / "out")
        assert code == 2
        assert err.startswith("jaxpe: ")
        assert said in err


def test_swaps_are_of_different_positions_with_text():
    swaps = _swaps(np.isin(np.arange(6), [1, 3, 5]), seed=0)
    assert sorted(map(tuple, swaps.tolist())) == [(1, 3), (1, 5), (3, 5)]
    many = _swaps(np.ones(10, bool), seed=0)
    assert len({*map(tuple, many.tolist())}) == len(many) == 24
