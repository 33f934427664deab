"""`jaxpe audit` as a person types it: every statement, its numbers, its page; what it refuses."""

import json
import re

import numpy as np
import pytest

from jaxpe import theory
from jaxpe._core.errors import InputError
from jaxpe.analysis import audit as auditing


def test_every_statement_is_audited(command, films, tmp_path):
    words = ("--examples", 16, "--length", 6, "--steps", 4, "--out", tmp_path)
    code, out, err = command("audit", films, *words)
    assert code == 0, err
    report = json.loads((tmp_path / "audit.json").read_text())
    names = [entry["name"] for entry in report["statements"]]
    assert names == [statement.name for statement in theory.STATEMENTS]
    for entry in report["statements"]:
        assert entry["name"] in out
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
    page = (tmp_path / "audit.html").read_text()
    assert page.count("<figure") == 4
    assert not re.search(r"(src|href)=\"http", page)
    for name in ("kernel", "training", "bound", "spectrum"):
        assert (tmp_path / "figures" / f"{name}.png").is_file()
    # What must come out whatever the corpus: softmax ignores a shift; α is E[g gᵀ].
    by_name = {entry["name"]: entry for entry in report["statements"]}
    assert by_name["Lemma 11"]["instead"]["rows sum to 0"]["holds"]
    assert not by_name["Lemma 18"]["hypotheses"]["A1 diagonal"]["holds"]
    # A loss, a model, a read-out that statements are not about.
    assert by_name["Theorem 1"]["verdict"] == "holds"
    for name in ("Lemma 11", "Lemma 12"):
        assert not by_name[name]["hypotheses"]["masked loss"]["holds"]
        assert by_name[name]["verdict"].startswith("not claimed: masked loss")
    assert by_name["Lemma 12"]["hypotheses"]["attention reads E + p"]["holds"]


@pytest.mark.parametrize("task", ["mlm", "causal"])
def test_language_models_guess_a_token_of_each_document(films, task):
    subject = auditing.read_subject(
        str(films), model=None, examples=10, length=6, seed=0, task=task, tokenizer=None
    )
    examples = subject.examples
    every = np.arange(len(examples["ids"]))
    assert subject.family == "masked"
    assert examples["mask"][every, examples["place"]].all()
    if task == "causal":
        np.testing.assert_array_equal(
            examples["ids"][every, examples["place"] + 1], examples["target"]
        )
    else:
        masked = examples["ids"][every, examples["place"]]
        assert len(set(masked)) == 1
        assert not np.any(masked == examples["target"])


def test_the_examples_are_those_of_the_seed(films):
    def drawn(seed):
        options = {"examples": 10, "length": 6, "task": None, "tokenizer": None}
        return auditing.read_subject(str(films), model=None, seed=seed, **options).examples["ids"]

    np.testing.assert_array_equal(drawn(0), drawn(0))
    assert not np.array_equal(drawn(0), drawn(1))


def test_what_cannot_be_audited_is_said(films, tmp_path):
    options = {"examples": 10, "length": 6, "seed": 0, "task": None, "tokenizer": None}
    with pytest.raises(InputError, match="nowhere"):
        auditing.read_subject(str(films), model=str(tmp_path / "nowhere"), **options)
