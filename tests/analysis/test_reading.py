"""The loss that an audit makes of a corpus and a model."""

import numpy as np
import pytest

from jaxpe.analysis.audit import position_loss
from jaxpe.analysis.subject import SubjectOptions, read_subject


def options(films, **fields):
    return SubjectOptions(source=str(films), length=6, **fields)


@pytest.mark.parametrize("task", ["mlm", "causal"])
def test_language_models_guess_a_token_of_each_document(films, task):
    subject = read_subject(options(films, task=task))
    model = position_loss(subject, examples=10)
    examples = model.examples
    every = np.arange(len(examples["ids"]))
    assert model.family == "masked"
    assert examples["mask"][every, examples["place"]].all()
    if task == "causal":
        guessed = examples["ids"][every, examples["place"] + 1]
        np.testing.assert_array_equal(guessed, examples["target"])
        other = position_loss(subject, examples=10, seed=1).examples["ids"]
        again = position_loss(subject, examples=10).examples["ids"]
        np.testing.assert_array_equal(again, examples["ids"])
        assert not np.array_equal(other, examples["ids"])
        return
    masked = examples["ids"][every, examples["place"]]
    assert len(set(masked)) == 1
    assert not np.any(masked == examples["target"])
    warm, cold = (position_loss(subject, examples=4, temperature=tau) for tau in (1.0, 0.5))
    example = {name: value[0] for name, value in warm.examples.items()}
    outputs = [each.at_no_shift(each.functions.vectors, example) for each in (warm, cold)]
    np.testing.assert_allclose(outputs[1], 2 * outputs[0], rtol=1e-5, atol=1e-7)
