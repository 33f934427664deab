"""Spoilt rotary configurations get no confident wrong answer."""

import pytest

from jaxpe.plans.fields import is_positional
from tests.hardening.rope_mutations import CONFIGURATIONS, judged

PARTS = 8  # tests that the configurations are shared among
SAMPLE = 5  # mutations of a configuration that the tests take


@pytest.mark.parametrize("part", range(PARTS))
def test_no_mutation_gets_a_confident_wrong_answer(part):
    wrong = []
    for name in list(CONFIGURATIONS)[part::PARTS]:
        for said, change, *_ in judged(name, SAMPLE):
            if said == "wrong":
                wrong.append((name, change))
    assert wrong == []


def test_every_positional_key_of_60_configurations_is_changed():
    assert len(CONFIGURATIONS) >= 60
    missing = []
    for name, stored in CONFIGURATIONS.items():
        changed = {(one["op"], tuple(one["path"])) for one, _ in stored["cases"] if one is not None}
        fields = stored["fields"]
        for path, part in ((), fields), (("text_config",), fields.get("text_config", {})):
            for key in part:
                if is_positional(key):
                    operations = {op for op, at in changed if at == (*path, key)}
                    if not {"drop", "rename"} <= operations:
                        missing.append((name, path, key))
    assert missing == []
