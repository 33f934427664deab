"""From a configuration to a trained model and back; what is refused."""

import dataclasses
import itertools
from functools import partial

import jax
import numpy as np
import pytest
from flax import nnx

from jaxpe import encodings, nn
from jaxpe._core.errors import InputError
from jaxpe.analysis import load_result
from jaxpe.encodings.families.vector_files import vectors_file
from jaxpe.nn.heads import trunk
from jaxpe.training import ModelConfig, TrainConfig, evaluate, load_config, load_run, train
from jaxpe.training.build import build_loss, build_model, build_probe, total_steps
from jaxpe.training.config import check_config
from jaxpe.training.documents import (
    Vocabulary,
    count_documents,
    evaluation_batches,
    load_data,
    train_batches,
)
from jaxpe.training.run import TrainSummary, _evaluations, _TimedStep
from tests.compilation import compilations
from tests.nn.stored import write_bert
from tests.progress import Told
from tests.training.factory import assert_equal
from tests.unchecked import unchecked

SMALL = ModelConfig(dim=8, layers=1, heads=2, dropout=0.0)
WORDS = [f"word{k}" for k in range(20)]


def documents(rows=120, seed=0):
    """The class is whether "good" or "bad" stands somewhere among other words."""
    random = np.random.default_rng(seed)
    lines = []
    for row in range(rows):
        words = list(random.choice(WORDS, random.integers(4, 8)))
        words[random.integers(len(words))] = ("bad", "good")[row % 2]
        lines.append(f"{('neg', 'pos')[row % 2]}\t{' '.join(words)}")
    return "\n".join(["label\ttext", *lines]) + "\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "films.tsv"
    path.write_text(documents())
    return path


def config(corpus, out, **changes):
    options = {
        "source": str(corpus),
        "length": 8,
        "model": SMALL,
        "batch_size": 20,
        "held_out": 0.25,
        "weight_decay": 0.0,
        "probe_at": (),
    }
    return TrainConfig(out=out, **options | changes)


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "classify"
    lines, sent = [], []
    rate = {"learning_rate": 0.05, "decay": "constant", "warmup": 0.0, "average": 0.5}
    asked = config(corpus, out, steps=40, **rate, evaluate_every=20, probe_at=(0, 3, 20))
    result = train(asked, progress=Told(lines), on_record=sent.append)
    assert sent == result.history
    return result, asked, lines


def test_a_separable_task_is_learned(finished):
    result, _, lines = finished
    assert result.evaluation["accuracy"] == 1.0
    assert result.evaluation["loss"] < 0.1 < 0.6 < result.history[1]["loss"]
    evaluated = [r["step"] for r in result.history if "eval/loss" in r]
    probed = [r["step"] for r in result.history if "probe/occupied/stress" in r]
    assert evaluated == [0, 20, 40]
    assert probed == [0, 3, 20, 40]
    assert "90 documents" in lines[0]


def test_a_run_leaves_its_files(finished):
    result, asked, _ = finished
    names = {"config.json", "vocabulary.json", "log.jsonl", "summary.json", "checkpoints", ".lock"}
    assert {path.name for path in asked.out.iterdir()} == names
    assert load_result(TrainSummary, asked.out / "summary.json") == result.summary
    assert result.summary.evaluation.best["accuracy"] == 1.0
    assert [found["step"] for found in result.summary.probe.values()] == [0, 40]
    assert result.summary.parameters == sum(x.size for x in jax.tree.leaves(result.params))
    assert result.summary.documents == 90
    assert result.summary.held_out == 30
    assert dataclasses.replace(load_config(asked.out), resume=False) == asked


def test_a_run_comes_back_from_its_folder(finished, corpus):
    result, asked, _ = finished
    loaded = load_run(asked.out)
    assert_equal(loaded.params, result.params)
    assert (loaded.step, loaded.vocabulary.classes) == (40, ("neg", "pos"))
    ids = {word: i for i, word in enumerate(loaded.vocabulary.tokens)}
    rows = np.array([[ids["word1"], ids["good"]], [ids["bad"], ids["word2"]]])
    logits = loaded.apply(loaded.params, rows).logits
    assert logits.argmax(axis=-1).tolist() == [1, 0]
    np.testing.assert_array_equal(loaded.model(rows).logits, logits)
    ids, mask = loaded.encode(["word1 good", "unseen, BAD word2"])
    assert ids.shape == mask.shape == (2, 8)
    classes = loaded.apply(loaded.params, ids, mask=mask).logits.argmax(axis=-1)
    assert classes.tolist() == [1, 0]


def test_a_finished_run_resumes_to_itself(finished):
    result, asked, _ = finished
    again = train(load_config(asked.out))
    assert_equal(again.params, result.params)
    assert again.history == result.history
    assert again.summary == result.summary


def test_seeds_are_separate_and_encodings_share_batches_and_weights(corpus, tmp_path):
    asked = config(corpus, tmp_path)
    data = load_data(asked)
    changes = ({}, {"encoding": "alibi+rope"}, {"init_seed": 1}, {"seed": 1})
    configs = [dataclasses.replace(asked, **change) for change in changes]
    batches = [[*itertools.islice(train_batches(c, data.train), 12)] for c in configs]
    assert_equal(*batches[:2])
    assert_equal(batches[0], batches[2])
    for other in (batches[3][0], batches[0][4]):  # the latter of another epoch
        assert not np.array_equal(batches[0][0]["ids"], other["ids"])
    learned, both, drawn = (
        nnx.to_pure_dict(nnx.state(build_model(c, data.vocabulary))) for c in configs[:3]
    )
    assert not np.array_equal(learned["output"]["kernel"], drawn["output"]["kernel"])
    for state in (learned, both):
        state["encoder"].pop("encoding_params")
    assert_equal(learned, both)


@pytest.mark.parametrize("name", ["path", "sinusoidal+fox+smollm3"])
def test_every_kind_of_encoding_makes_a_model_and_is_probed(name, corpus, tmp_path):
    asked = config(corpus, tmp_path, encoding=name, task="causal")
    model = nnx.eval_shape(lambda: build_model(asked, Vocabulary("causal", ["a"] * 9)))
    train = load_data(config(corpus, tmp_path)).train
    probe = partial(build_probe, model, train.corpus, count_documents(train), seed=0)
    encoding = trunk(model).encoding
    if encoding.defines("products") and not encoding.defines("vectors"):
        with pytest.raises(InputError, match="products"):
            probe()
    else:
        params = nn.functionalize(model)[1]
        assert jax.eval_shape(probe(), params).occupied.stress.shape == ()


def test_an_encoding_made_from_the_corpus_is(corpus, tmp_path):
    asked = config(corpus, tmp_path, encoding="information_optimal")
    data = load_data(asked)
    counts = count_documents(data.train)
    model = build_model(asked, data.vocabulary, counts=counts)
    optimal = encodings.information_optimal(counts.merged(), dim=8)
    expected = optimal.vectors(optimal.init(jax.random.key(0)), np.arange(8))
    encoder = model.encoder
    vectors = encoder.encoding.vectors(encoder.encoding_params.get_value(), np.arange(8))
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_masked_and_causal_models_train(corpus, tmp_path):
    with compilations() as programs:
        masked = train(config(corpus, tmp_path / "mlm", task="mlm", steps=2, encoding="alibi"))
    assert programs.count("jit(step)") <= 2
    assert len(programs) <= 30
    loaded = load_run(tmp_path / "mlm")
    assert isinstance(loaded.model, nn.MaskedLM)
    vocabulary = loaded.vocabulary
    assert vocabulary.tokens[vocabulary.mask_id] == "[MASK]"
    assert loaded.encode(["unseen"])[0][0, 0] == vocabulary.tokens.index("[UNK]")
    assert masked.summary.vocab_size == 24  # 20 words, "good", "bad", [UNK] and [MASK]
    lines = corpus.with_suffix(".txt")
    lines.write_text("\n".join(line.split("\t")[1] for line in documents().splitlines()[1:]))
    causal = train(config(lines, tmp_path / "causal", steps=2, encoding="rope", max_vocab=10))
    assert isinstance(causal.model, nn.CausalLM)
    assert (causal.summary.task, causal.summary.vocab_size) == ("causal", 10)


def test_a_pretrained_model_is_fine_tuned_and_written_back(corpus, tmp_path):
    source = tmp_path / "bert"
    write_bert(source, vocab_size=30, length=10)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (source / "vocab.txt").write_text("\n".join([*special, "good", "bad", *WORDS]))
    asked = config(corpus, tmp_path / "run", pretrained=str(source), model=ModelConfig(), steps=2)
    result = train(asked)
    written = nn.load_classifier(tmp_path / "run" / "model")
    assert_equal(nn.functionalize(written)[1], result.params)
    assert (tmp_path / "run" / "model" / "vocab.txt").exists()
    assert result.summary.encoding == "bert"
    loaded = load_run(tmp_path / "run")
    assert_equal(loaded.params, result.params)
    assert loaded.vocabulary.special_ids == (0, 2, 3)
    with pytest.raises(InputError, match="length=11"):
        train(dataclasses.replace(asked, out=tmp_path / "b", length=11))


def test_options_that_cannot_be(corpus, tmp_path):
    pretrained = {"pretrained": "x", "model": ModelConfig()}
    for wrong, changes in (
        ("sinusoidal", {"encoding": "sinusodal"}),
        ("mrope", {"encoding": "mrope"}),
        ("epochs", {"steps": 3, "epochs": 1.0}),
        ("batch_size", {"batch_size": 0}),
        ("learning_rate", {"learning_rate": float("nan")}),
        ("warmup", {"warmup": 1.0}),
        ("average", {"average": 1.0}),
        ("accumulate", {"accumulate": 3}),
        ("task", pretrained | {"task": "causal"}),
        ("encoding", pretrained | {"encoding": "rope"}),
        ("model.dim", {"pretrained": "x"}),
        ("label_field", {"task": "causal", "label_field": "label"}),
    ):
        with pytest.raises(InputError, match=wrong):
            check_config(config(corpus, tmp_path, **changes))
    with unchecked(), pytest.raises(InputError, match="catalogue"):
        check_config(TrainConfig(encoding=encodings.rope(head_dim=4)))


def test_what_is_refused_leaves_no_run(corpus, tmp_path):
    for wrong, changes in (
        ("devices", {"devices": 1000}),
        ("num_heads", {"model": ModelConfig(dim=9, heads=2)}),
        ("90 documents", {"batch_size": 100}),
        ("class", {"label_field": "class", "task": "classify"}),
    ):
        with pytest.raises(InputError, match=wrong):
            train(dataclasses.replace(config(corpus, tmp_path / "run"), **changes))
        assert not (tmp_path / "run").exists()


def test_a_run_is_not_overwritten_nor_resumed_as_another(finished):
    _, asked, _ = finished
    with pytest.raises(InputError, match="resume=True"):
        train(asked)
    resumed = load_config(asked.out)
    wide = dataclasses.replace(SMALL, dim=16)
    for wrong, changes in (
        ("seed", {"seed": 90}),
        ("seed", {"seed": 90, "steps": 41}),
        ("model.dim", {"model": wide}),
        ("40 steps", {"steps": 39}),
    ):
        with pytest.raises(InputError, match=wrong):
            train(dataclasses.replace(resumed, **changes))
        assert load_config(asked.out) == resumed


def test_an_extended_run_of_a_constant_rate_is_that_of_as_many_steps_at_once(finished, tmp_path):
    whole, asked, _ = finished
    lines = []
    train(dataclasses.replace(asked, out=tmp_path, steps=20))
    longer = train(dataclasses.replace(load_config(tmp_path), steps=40), progress=Told(lines))
    assert_equal(longer.params, whole.params)
    assert longer.history == whole.history
    for name in ("log.jsonl", "config.json"):
        assert (longer.out / name).read_bytes() == (whole.out / name).read_bytes()
    assert (longer.summary.resumed_at, longer.summary.extended_after) == (20, 0)
    assert any("from 20 to 40 steps" in line for line in lines)


def test_the_average_is_evaluated_and_saved(finished):
    whole, *_ = finished
    loaded, asked = load_run(whole.out), load_config(whole.out)
    data = load_data(asked)
    loss = build_loss(asked, loaded.model, data.vocabulary, train=False)
    found = evaluate(loss, loaded.params, evaluation_batches(asked, data.held_out))
    assert found == whole.evaluation


def test_a_rate_that_depends_on_the_total_goes_on_as_that_of_the_new_one(corpus, tmp_path):
    """With vectors of a file."""
    path = tmp_path / "encoding.npz"
    path.write_bytes(vectors_file(np.linspace(-1, 1, 24).reshape(8, 3)))
    rate = {"decay": "linear", "warmup": 0.0}
    train(config(corpus, tmp_path / "run", encoding=str(path), steps=2, **rate))
    result = train(dataclasses.replace(load_config(tmp_path / "run"), steps=4))
    assert np.isfinite(result.history[-1]["loss"])
    rates = [record["learning_rate"] for record in result.history if record["step"]]
    old, new = (1e-3 * (1 - np.arange(steps) / steps) for steps in (2, 4))
    np.testing.assert_allclose(rates, [*old, *new[2:]], rtol=1e-5)
    assert result.summary.extended_after == 2


def test_a_run_does_not_go_on_with_other_documents(finished, corpus):
    _, asked, _ = finished
    before = corpus.read_text()
    corpus.write_text(before.replace("word3", "word4"))
    try:
        with pytest.raises(InputError, match="documents"):
            train(load_config(asked.out))
    finally:
        corpus.write_text(before)


@pytest.mark.parametrize(("task", "best"), [("causal", 2), ("classify", 1)])
def test_the_best_evaluation_has_the_greatest_accuracy_or_the_least_loss(task, best):
    """Of equal accuracies the one of lower loss is best; a loss that is not finite is worst."""
    found = [(None, 0.5), (2.0, 0.5), (1.0, 0.25)]
    history = [
        {"step": step, "eval/loss": loss, "eval/accuracy": accuracy}
        for step, (loss, accuracy) in enumerate(found)
    ]
    evaluations = _evaluations(history, TrainConfig(), task)
    assert [record["step"] for record in evaluations] == [0, best, 2]


@pytest.mark.parametrize(("epochs", "steps"), [(None, 400), (2.0, 6), (0.5, 2), (0.1, 1)])
def test_epochs_are_passes_over_whole_batches(epochs, steps):
    assert total_steps(TrainConfig(epochs=epochs, batch_size=30), 119) == steps  # 3 batches


def test_tokens_per_second_of_the_median_step():
    """Times before each step: the tokens of a step are over the time until the next one."""
    timed = _TimedStep(lambda state, batch: (state, {}))
    timed.calls = [(0.0, 8), (8.0, 30)]
    assert timed.tokens_per_second is None
    timed.calls += [(10.0, 6), (13.0, 999)]
    assert timed.tokens_per_second == 2  # of 8/8, 30/2 and 6/3


def test_labels_decide_the_task(corpus, tmp_path):
    assert load_data(config(corpus, tmp_path)).vocabulary.task == "classify"
    assert load_data(config(corpus, tmp_path, task="causal")).vocabulary.task == "causal"
    with pytest.raises(InputError, match="zz"):
        load_data(config(corpus, tmp_path, label_field="zz"))
    plain = corpus.with_name("plain.tsv")
    plain.write_text("text\n" + "".join(f"no class in {word}\n" for word in WORDS))
    assert load_data(config(plain, tmp_path)).vocabulary.task == "causal"
    with pytest.raises(InputError, match="label_field"):  # which was asked for
        load_data(config(plain, tmp_path, label_field="label"))
