"""The page of an audit: outcomes by their rule, and both numbers of every comparison."""

import numpy as np
import pytest

from jaxpe import theory
from jaxpe.analysis.audit import AuditResult
from jaxpe.analysis.audit.result import AuditFacts, KernelPairs, Sides, Training, audited
from jaxpe.report import draw, page
from jaxpe.theory.audit import Audit, boolean

# Hypotheses without numbers, and those that compare with the largest float.
CONDITIONS = {"if no other order", "if masked loss", "if reads [CLS]", "if full examples"}
WITHOUT_RHS = {"if (8)", "if (9)", "if A2", "then L_g finite"} | CONDITIONS
PREMISES = ("τ ≤ τ_0", "ε_suff of every example")
UNCHECKED = {"if positional frequencies", "if P minimises"} | {
    f"if {lemma}{name}" for name in PREMISES for lemma in ("", "Lemma 11: ")
}
KERNEL = KernelPairs(
    np.array([3.0, 1.0, 2.0]), np.array([0.3, 0.1, 0.2]), np.array([6.0, 4.0, 5.0]),
    np.array([7.0, 9.0, 8.0]), (0.25, 0.5), (0.1, 0.2), np.array([4.0, 1.0, -1.0]),
    np.array([1.0, 2.0, 0.0]), np.array([4.0, np.inf, 3.0]),
)  # fmt: skip
TRAINING = Training(np.array([3.0, 2.0]), np.array([3.0, 1.0]), np.array([0.0, 0.5]))


def result(*audits, trained=True):
    facts = AuditFacts(3, 3, 8, 16, "masked", 1.0, trained, 0)
    statements = [audited(theory.STATEMENTS[1], audit) for audit in audits]
    return AuditResult("films", "small", facts, statements, KERNEL, TRAINING, ("a b.txt",))


def evaluated(hypothesis, conclusion, *unchecked):
    sides = ({"H1": boolean(hypothesis)},
             {"separated": boolean(conclusion)})  # fmt: skip
    return Audit(*sides, {}, unchecked=dict.fromkeys(unchecked))


def test_claims_have_both_of_their_numbers():
    for statement in theory.STATEMENTS:
        for claim in statement.sentences.keys() - UNCHECKED:
            for holds in (True, False):
                text = statement.sentence(claim, Sides(12.5, 77.7, 65.2, holds))
                assert "{" not in text, claim
                assert ("12.5" in text) == (claim not in CONDITIONS), claim
                assert ("77.7" in text) == (claim not in WITHOUT_RHS), claim


@pytest.mark.parametrize(
    ("audit", "outcome", "card"),
    [
        (evaluated(True, True), "holds", 0),
        (evaluated(True, False), "refuted", 1),
        (evaluated(True, False, "P minimises"), "not decided", 2),
        (evaluated(False, False), "does not apply", 3),
    ],
)
def test_an_outcome_is_counted_and_only_a_refuted_statement_is_advised_against(
    audit, outcome, card
):
    shown = page(result(audit))
    assert [one.value for one in shown.lead[:4]] == [int(k == card) for k in range(4)]
    (row,) = shown.sections[0].findings
    assert row.value == outcome
    assert bool(shown.steps) == (outcome == "refuted")
    (step,) = page(result(evaluated(True, True), trained=False)).steps
    assert step.paste == "jaxpe train 'a b.txt' && jaxpe audit --model run"


def test_figures_have_the_numbers():
    shown = {one.name: draw(one).axes for one in page(result()).figures}
    points, rising, falling = (line.get_xydata() for line in shown["kernel"][0].lines)
    np.testing.assert_array_equal(points.T, [[3, 1, 2], [0.3, 0.1, 0.2]])
    np.testing.assert_array_equal(rising.T, [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(falling.T, [[1, 2, 3], [9, 8, 7]])
    curves = [line.get_ydata().tolist() for axis in shown["training"] for line in axis.lines]
    assert curves == [[3, 2], [3, 1], [0, 0.5]]
    bound = shown["bound"][0].lines[0].get_xydata().tolist()
    assert bound == [[4, 1]]  # of one pair both sides are finite and above 0
