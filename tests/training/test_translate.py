"""Pairs of input and answer: drawn, learned by an encoder–decoder, evaluated at longer inputs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe import nn
from jaxpe._core.errors import InputError
from jaxpe.analysis.training_run import choices, read_run
from jaxpe.data import sequence_pairs, sequence_task
from jaxpe.data.tasks.sequences import EOS, PADDING, sequence_tokens
from jaxpe.report import page
from jaxpe.training import ModelConfig, TrainConfig, load_config, load_run, train, translation
from jaxpe.training.config import check_config, longest_row
from jaxpe.training.documents import load_data
from tests.training.factory import assert_equal

SMALL = ModelConfig(dim=8, layers=1, heads=2, dropout=0.0)
ASKED = TrainConfig(
    source="reverse",
    task="translate",
    length=2,
    longer=(3,),
    pairs=120,
    encoding="rope",
    decoder_encoding="t5",
    cross_encoding="alibi",
    model=SMALL,
    batch_size=20,
    steps=4,
    evaluate_every=2,
    checkpoint_every=2,
    evaluate_rows=20,
    learning_rate=0.01,
    decay="constant",
    warmup=0.0,
    probe_at=(),
)


def test_pairs_are_the_two_sides_of_rows():
    for name in ("reverse", "scan"):
        rows = sequence_task(name).sample(np_key(), rows=20, length=3, exact=False)
        found = {k: np.asarray(v) for k, v in sequence_pairs(rows["ids"]).items()}
        for row, ids, labels in zip(
            np.asarray(rows["ids"]), found["ids"], found["labels"], strict=True
        ):
            sep, end = (int(np.flatnonzero(row == token)[0]) for token in (2, EOS))
            assert ids[ids != PADDING].tolist() == [*row[1:sep], EOS]
            assert labels[labels != PADDING].tolist() == row[sep + 1 : end + 1].tolist()
        np.testing.assert_array_equal(found["mask"], found["ids"] != PADDING)


def np_key():
    return jax.random.key(3)


def test_tokens_have_names():
    for name in ("copy", "scan"):
        tokens = sequence_tokens(name)
        assert len(tokens) == len(set(tokens)) == sequence_task(name).vocab_size


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "reverse"
    return train(dataclasses.replace(ASKED, out=out))


def test_held_out_inputs_are_not_trained_on():
    data = load_data(ASKED)
    rows = [{row.tobytes() for row in part.corpus.ids} for part in (data.train, data.held_out)]
    assert rows[0].isdisjoint(rows[1])
    assert len(data.train.labels) == 108
    assert len(data.held_out.labels) > 0
    (longer,) = data.longer.values()
    first = data.train.corpus.ids[: len(longer.labels), 0]  # the same keys would draw the same
    assert np.mean(longer.corpus.ids[:, 0] == first) < 0.5
    assert (longer.corpus.mask.sum(axis=1) == 4).all()
    for part in (data.train, data.held_out, longer):
        for ids, labels in zip(part.corpus.ids, part.labels, strict=True):
            asked = ids[ids > EOS]
            assert labels[labels > EOS].tolist() == asked[::-1].tolist()


def test_a_run_is_evaluated_at_trained_and_longer_lengths(finished):
    last = finished.summary.evaluation.last
    assert list(last) == ["step", "loss", "accuracy", "exact", "exact_3"]
    assert finished.summary.encoding == "rope / t5 / alibi"
    assert last["loss"] < finished.summary.evaluation.first["loss"]
    decoder = finished.model.transformer.decoder
    assert decoder.encoding_params.get_value()["table"].shape == (32, 2)
    assert decoder.cross_encoding.defines("bias")


def test_a_run_stopped_in_between_ends_the_same(finished, tmp_path):
    short = dataclasses.replace(ASKED, out=tmp_path / "run", steps=2)
    train(short)
    again = train(dataclasses.replace(load_config(short.out), steps=4))
    assert_equal(again.params, finished.params)
    loaded = load_run(short.out)
    assert_equal(loaded.params, finished.params)
    assert loaded.vocabulary.task == "translate"


def test_a_page_says_how_the_answers_were(finished):
    run = read_run(finished.out)
    shown = page(run)
    answers = shown.lead[1]
    assert (answers.name, answers.value) == (
        "answers wholly right", finished.summary.evaluation.last["exact"]
    )  # fmt: skip
    rows = [row[0] for row in shown.tables[0].rows]
    assert {"right answers", "right answers, length 3"} <= set(rows)
    assert choices(run.config, "translate")["cross_encoding"].value == "alibi"
    assert not any("audit" in step.paste for step in shown.steps)


def test_the_loss_counts_no_padding_and_no_rows_that_fill_a_batch():
    following = 9.0 * jnp.roll(jnp.eye(6), 1, axis=1)

    def apply(params, ids, decoder_ids, **options):
        return nn.HeadOutput(params[decoder_ids], None)

    batch = {
        "ids": jnp.zeros((3, 2), jnp.int32),
        "mask": jnp.ones((3, 2), bool),
        "labels": jnp.array([[2, 3, 4], [2, 4, 0], [5, 5, 5]]),
        "valid": jnp.array([True, True, False]),
    }
    tally, tallies = translation(apply, bos_id=1)(following, batch, np_key())
    assert float(tally.weight) == 5
    assert float(tallies["accuracy"].total) == 4
    assert (float(tallies["exact"].total), float(tallies["exact"].weight)) == (1, 2)


def test_a_model_has_a_place_for_the_longest_rows():
    assert longest_row(ASKED) == sequence_task("reverse").tokens(3)
    assert longest_row(TrainConfig(length=9)) == 9


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"source": "stdlib"}, "source=stdlib.*copy"),
        ({"source": "addition"}, "source=addition"),
        ({"longer": (2,)}, "longer"),
        ({"longer": (0,)}, "longer"),
        ({"pairs": 1}, "pairs"),
        ({"cross_encoding": "rop"}, "cross_encoding.*rope"),
        ({"decoder_encoding": "axial"}, "decoder_encoding"),
        ({"encoding": "information_optimal"}, "encoding.*corpus"),
        ({"tokenizer": "words"}, "tokenizer"),
        ({"max_vocab": 9}, "max_vocab"),
        ({"model": dataclasses.replace(SMALL, pooling="mean")}, "pooling"),
        ({"task": "causal", "source": "stdlib"}, "longer"),
        ({"task": None, "longer": (), "pairs": None}, "decoder_encoding"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value),
)
def test_what_cannot_be_translated_is_refused(changes, wrong):
    with pytest.raises(InputError, match=wrong):
        check_config(dataclasses.replace(ASKED, **changes))


@pytest.mark.parametrize("name", ["sinusoidal", "fox", "smollm3"])
def test_an_encoding_that_cross_attention_has_no_place_for_is_refused(name, tmp_path):
    asked = dataclasses.replace(ASKED, cross_encoding=name, out=tmp_path / "run")
    with pytest.raises(InputError, match="cross_encoding"):
        train(asked)


def test_too_few_pairs_are_refused(tmp_path):
    asked = dataclasses.replace(ASKED, pairs=2, held_out=0.9, out=tmp_path / "run")
    with pytest.raises(InputError, match="pairs=2"):
        train(asked)


def test_a_run_has_two_transformers(finished):
    with pytest.raises(InputError, match=r"transformer\.encoder"):
        jaxpe.nn.trunk(finished.model)
