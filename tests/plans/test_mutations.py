"""A spoilt configuration gets no confident wrong answer: one mutation of some configurations."""

from tests.hardening.rope_mutations import CONFIGURATIONS, judged


def test_no_mutation_gets_a_confident_wrong_answer():
    wrong = []
    for name in list(CONFIGURATIONS)[::8]:
        wrong += [(name, change) for said, change, *_ in judged(name, 1) if said == "wrong"]
    assert wrong == []
