"""What a job looks at: documents and a model from options; the loss that an audit makes of both."""

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.analysis.audit import position_loss
from jaxpe.analysis.inspect.documents import draw_sample
from jaxpe.analysis.subject import SubjectOptions, read_subject


def options(films, **fields):
    return SubjectOptions(source=str(films), length=6, **fields)


@pytest.mark.parametrize("task", ["mlm", "causal"])
def test_language_models_guess_a_token_of_each_document(films, task):
    model = position_loss(read_subject(options(films, task=task)), examples=10)
    examples = model.examples
    every = np.arange(len(examples["ids"]))
    assert model.family == "masked"
    assert examples["mask"][every, examples["place"]].all()
    if task == "causal":
        np.testing.assert_array_equal(
            examples["ids"][every, examples["place"] + 1], examples["target"]
        )
    else:
        masked = examples["ids"][every, examples["place"]]
        assert len(set(masked)) == 1
        assert not np.any(masked == examples["target"])


def test_a_temperature_divides_the_outputs(films):
    subject = read_subject(options(films, task="mlm"))
    warm, cold = (position_loss(subject, examples=4, temperature=tau) for tau in (1.0, 0.5))
    example = {name: value[0] for name, value in warm.examples.items()}
    outputs = [model.at_no_shift(model.functions.vectors, example) for model in (warm, cold)]
    np.testing.assert_allclose(outputs[1], 2 * outputs[0], rtol=1e-5, atol=1e-7)


def test_the_examples_are_those_of_the_seed(films):
    subject = read_subject(options(films))

    def drawn(seed):
        return position_loss(subject, examples=10, seed=seed).examples["ids"]

    np.testing.assert_array_equal(drawn(0), drawn(0))
    assert not np.array_equal(drawn(0), drawn(1))


def test_what_is_no_model_is_said(films, tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        read_subject(options(films, model=str(tmp_path / "nowhere")))


def not_trained(*setup, **options):
    """In place of a step, which would only have to be compiled."""

    def step(state, batch):
        return state._replace(step=state.step + 1), {"loss": 0.0, "finite": True}

    return step


def test_a_run_brings_its_documents(films, tmp_path, monkeypatch):
    from jaxpe.training import ModelConfig, TrainConfig, train

    monkeypatch.setattr("jaxpe.training.run.train_step", not_trained)
    monkeypatch.setattr("jaxpe.training.run.evaluate", lambda *found, **options: {"loss": 0.0})
    run, same_as_new = tmp_path / "run", ModelConfig(dim=64, layers=2, heads=4)
    reading = {"source": str(films), "task": "mlm", "length": 6, "held_out": 0.4}
    train(TrainConfig(**reading, model=same_as_new, steps=2, probe_at=(), out=run))
    own = SubjectOptions(model=str(run))
    subject = read_subject(own, new_head=False, held_out=True)
    assert subject.source == "films.tsv, held out"
    assert subject.model == "run, trained for 2 steps"
    sample = draw_sample(subject, examples=8, score="masked")
    chosen = sample.documents
    assert chosen["guessed"].any(axis=1).all()
    rows = np.arange(len(chosen["ids"]))[:, None]
    masked = chosen["ids"][rows, chosen["places"]][chosen["guessed"]]
    assert len(set(masked)) == 1
    assert not np.isin(masked[0], chosen["targets"])
    learned_from = read_subject(SubjectOptions(model=str(run), length=6))
    assert learned_from.source == "films.tsv"
    assert len(learned_from.documents.labels) > len(subject.documents.labels)
    with pytest.raises(InputError, match="not on sst2: leave `source` out"):
        read_subject(SubjectOptions(source="sst2", model=str(run)))
    # What it brings is not passed over in silence.
    for name, value in (("length", 64), ("task", "causal"), ("label_field", "class")):
        with pytest.raises(InputError, match=f"`{name}={value}`: the run"):
            read_subject(SubjectOptions(model=str(run), **{name: value}))
