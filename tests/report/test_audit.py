"""Sentences of an audit: one for every comparison, with both of its numbers."""

from types import SimpleNamespace

import numpy as np
import pytest

from jaxpe import theory
from jaxpe.analysis.audit import Sides
from jaxpe.analysis.audit.result import audited
from jaxpe.report.audit.advice import advice
from jaxpe.theory.audit import NOTHING_COMPARED

# Hypotheses without numbers, and those that compare with the largest float.
CONDITIONS = {"if no other order", "if masked loss", "if reads [CLS]", "if full examples"}
WITHOUT_RHS = {"if (8)", "if (9)", "if A2", "then L_g finite"} | CONDITIONS
PREMISES = ("τ ≤ τ_0", "ε_suff of every example")
UNCHECKED = {"if positional frequencies", "if P minimises"} | {
    f"if {lemma}{name}" for name in PREMISES for lemma in ("", "Lemma 11: ")
}


@pytest.mark.parametrize("statement", theory.STATEMENTS, ids=lambda statement: statement.name)
@pytest.mark.parametrize("holds", [True, False])
def test_a_claim_has_both_of_its_numbers(statement, holds):
    for claim in statement.sentences.keys() - UNCHECKED:
        text = statement.sentence(claim, Sides(12.5, 77.7, 65.2, holds))
        assert text.endswith(".")
        assert "{" not in text
        assert ("12.5" in text) == (claim not in CONDITIONS)
        assert ("77.7" in text) == (claim not in WITHOUT_RHS)


def test_a_condition_that_fails_is_not_said_to_hold():
    for statement in theory.STATEMENTS:
        for claim in CONDITIONS & statement.sentences.keys():
            true, false = (statement.sentence(claim, theory.boolean(x)) for x in (True, False))
            assert true != false


def test_nothing_is_compared_of_infinite_divergences():
    lemma_12 = next(s for s in theory.STATEMENTS if s.name == "Lemma 12")
    text = lemma_12.sentence("instead slope in k", Sides(0.0, 0.0, 0.0, True))
    assert text == NOTHING_COMPARED


@pytest.mark.parametrize("family", ["masked", "classification", "agnostic"])
def test_every_family_of_losses_has_its_sentences(family):
    """Those of the other statements are all written by the audit of one model."""
    zeros = np.zeros((1, 2, 2)), np.zeros((2, 1))
    gradients = theory.PositionGradients(zeros[0], zeros[0], zeros[1], zeros[1], zeros[1])
    audit = theory.corollary_15(gradients, np.eye(2), family=family)
    statement = next(s for s in theory.STATEMENTS if s.name == "Corollary 15")
    assert {f"then {name}" for name in audit.conclusions} <= statement.sentences.keys()
    assert {f"if {name}" for name in audit.unchecked} <= UNCHECKED & statement.sentences.keys()


@pytest.mark.parametrize(
    ("holds", "unchecked", "outcome"),
    [
        ((True, False), (), "refuted"),
        ((False, False), (), "not claimed"),
        ((True, False), ("a",), "not decided"),
        ((True, True), ("a",), "holds"),
    ],
)
def test_only_a_refuted_statement_is_advised_against(holds, unchecked, outcome):
    """Every hypothesis is checked and holds, and a conclusion fails."""
    hypothesis, conclusion = ({"a": theory.boolean(condition)} for condition in holds)
    audit = theory.Audit(hypothesis, conclusion, {}, unchecked=dict.fromkeys(unchecked))
    statement = audited(theory.STATEMENTS[0], audit)
    assert statement.outcome == outcome
    assert statement.verdict.split(":")[0].split(";")[0] == outcome
    facts = SimpleNamespace(trained=True)
    steps = advice(SimpleNamespace(statements=[statement], facts=facts))
    assert [statement.name in step.text for step in steps] == [True] * (outcome == "refuted")
