"""Sentences of an audit: one for every comparison, with both of its numbers."""

import numpy as np
import pytest

from jaxpe import theory
from jaxpe.report.audit.text import _SENTENCES, sentence

# Hypotheses without numbers, and those that compare with the largest float.
_WITHOUT_RHS = {"if (9)", "if A2", "then L_g finite"}
_OF_MODELS = {"if no other order", "if masked loss", "if reads [CLS]"}


@pytest.mark.parametrize("statement", theory.STATEMENTS, ids=lambda statement: statement.name)
def test_a_claim_has_both_of_its_numbers(statement):
    for claim in _SENTENCES[statement.name]:
        text = sentence(statement.name, claim, "12.5", "77.7")
        assert text.endswith(".")
        assert "{" not in text
        assert ("12.5" in text) == (claim not in _OF_MODELS)
        assert ("77.7" in text) == (claim not in _OF_MODELS | _WITHOUT_RHS)


@pytest.mark.parametrize("family", ["masked", "classification", "agnostic"])
def test_every_family_of_losses_has_its_sentences(family):
    """Those of the other statements are all written by the audit of one model."""
    zeros = np.zeros((1, 2, 2)), np.zeros((2, 1))
    given = theory.PositionGradients(zeros[0], zeros[0], zeros[1], zeros[1], zeros[1])
    found = theory.corollary_15(given, np.eye(2), family=family)
    assert all(sentence("Corollary 15", f"then {name}", "1", "2") for name in found.conclusions)
