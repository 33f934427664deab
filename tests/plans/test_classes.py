"""Classes of the newest transformers that can be built: nothing differs without a word."""

import pytest

from jaxpe.plans.job import read_plans
from tests.plans.agreement import classes, verdicts, written

# Types without a modelling file of their own: their classes are those of Llama and of others.
OF_OTHERS = {"exaone", "internlm3", "iquestcoder", "sarvam_mla", "sarvam_moe"}


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    return list(verdicts(tmp_path_factory.mktemp("classes"), sample=True))


def test_no_class_differs(every):
    wrong = [one for one in every if one.outcome == "differs"]
    assert wrong == []


def test_most_classes_are_judged(every):
    """What is not judged, refused or has a key that no rule uses is the exception."""
    agree = {one.model_type for one in every if one.outcome == "agrees" and one.rotates}
    rotating = {one.model_type for one in every if one.rotates}
    assert len(agree) >= 0.95 * len(rotating)
    assert len(agree) >= 150


def test_types_without_rotary_code_have_no_table(tmp_path):
    """A learned table, a bias or nothing: never a rotation."""
    wrong = []
    for model_type in set(classes()["no_rotary"]) - OF_OTHERS:
        fields = {"model_type": model_type, "hidden_size": 64, "num_attention_heads": 2}
        _, found = read_plans(written(fields, tmp_path))
        if any(plan.kind == "rotary" for plan in found.groups) and found.status == "judged":
            wrong.append(model_type)
    assert wrong == []
