"""Every class of the newest transformers, with every stored variation."""

from tests.plans.agreement import verdicts


def test_no_class_differs(tmp_path):
    assert [one for one in verdicts(tmp_path) if one.outcome == "differs"] == []
