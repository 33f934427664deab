"""From a configuration to a trained model and back; what is refused."""

import dataclasses
import json
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

import jaxpe
from jaxpe import nn
from jaxpe._core.errors import InputError
from jaxpe.analysis import load_result
from jaxpe.data import load_labelled
from jaxpe.encodings.families.vector_files import vectors_file
from jaxpe.training import (
    ModelConfig,
    TrainConfig,
    TrainSummary,
    evaluate,
    load_config,
    load_run,
    train,
)
from jaxpe.training.build import build_loss, build_model, build_probe, total_steps
from jaxpe.training.config import as_json, check_config, differences
from jaxpe.training.documents import (
    Vocabulary,
    count_documents,
    evaluation_batches,
    load_data,
    train_batches,
)
from jaxpe.training.run import _evaluations, _mesh, _TimedStep
from tests.compilation import compilations
from tests.encodings.kinds import ONE_OF_EACH_KIND
from tests.nn.stored import write_bert
from tests.progress import Told
from tests.training.factory import assert_equal
from tests.unchecked import unchecked

SMALL = ModelConfig(dim=8, layers=1, heads=2, dropout=0.0)
NARROW = ModelConfig(dim=2, layers=1, heads=1, dropout=0.0)
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
    asked = config(corpus, out, steps=80, **rate, evaluate_every=40, probe_at=(0, 3, 40))
    result = train(asked, progress=Told(lines), on_record=sent.append)
    assert sent == result.history
    return result, asked, lines


def test_a_separable_task_is_learned(finished):
    result, _, lines = finished
    assert result.evaluation["accuracy"] == 1.0
    assert result.evaluation["loss"] < 0.1 < 0.6 < result.history[1]["loss"]
    evaluated = [r["step"] for r in result.history if "eval/loss" in r]
    probed = [r["step"] for r in result.history if "probe/occupied/stress" in r]
    assert evaluated == [0, 40, 80]
    assert probed == [0, 3, 40, 80]
    assert "classify, 90 documents, 23 tokens" in lines[0]
    assert "learned" in lines[0]
    assert lines[-1].startswith("step     80   held out: loss 0.")


def test_a_run_leaves_its_files(finished):
    result, asked, _ = finished
    names = {"config.json", "vocabulary.json", "log.jsonl", "summary.json", "checkpoints", ".lock"}
    assert {path.name for path in asked.out.iterdir()} == names
    assert load_result(TrainSummary, asked.out / "summary.json") == result.summary
    assert list(result.summary.evaluation.best) == ["step", "loss", "accuracy"]
    assert result.summary.evaluation.best["accuracy"] == 1.0
    assert [found["step"] for found in result.summary.probe.values()] == [0, 80]
    assert result.summary.parameters == sum(x.size for x in jax.tree.leaves(result.params))
    assert result.summary.documents == 90
    assert result.summary.held_out == 30
    assert dataclasses.replace(load_config(asked.out), resume=False) == asked


def test_a_run_comes_back_from_its_folder(finished, corpus):
    result, asked, _ = finished
    loaded = load_run(asked.out)
    assert_equal(loaded.params, result.params)
    assert (loaded.step, loaded.vocabulary.classes) == (80, ("neg", "pos"))
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


def test_same_seeds_same_batches_and_same_weights(corpus, tmp_path):
    models, seen = [], []
    for encoding in ("learned", "alibi+rope"):
        asked = config(corpus, tmp_path, encoding=encoding)
        data = load_data(asked)
        found = iter(train_batches(asked, data.train))
        seen.append([next(found) for _ in range(12)])
        models.append(build_model(asked, data.vocabulary))
    assert_equal(*seen)
    assert not np.array_equal(seen[0][0]["ids"], seen[0][4]["ids"])  # another epoch
    learned, alibi = (nnx.to_pure_dict(nnx.state(model)) for model in models)
    for state in (learned, alibi):
        state["encoder"].pop("encoding_params")
    assert_equal(learned, alibi)


def test_seeds_are_separate(corpus, tmp_path):
    data, first = load_data(config(corpus, tmp_path)), config(corpus, tmp_path)
    other = dataclasses.replace(first, init_seed=1)
    assert_equal(*(next(iter(train_batches(c, data.train))) for c in (first, other)))
    a, b = (build_model(c, data.vocabulary).output.kernel.get_value() for c in (first, other))
    assert not np.array_equal(a, b)
    shuffled = dataclasses.replace(first, seed=1)
    ids = [next(iter(train_batches(c, data.train)))["ids"] for c in (first, shuffled)]
    assert not np.array_equal(*ids)


NAMES = [e.name for e in jaxpe.catalogue(*ONE_OF_EACH_KIND) if e.coordinates == 1]
CHAINS = ["learned+t5", "sinusoidal+rope", "rope+alibi", "sinusoidal+fox+smollm3"]


@pytest.mark.parametrize("name", [*NAMES, *CHAINS])
def test_every_kind_of_encoding_makes_a_model_and_is_probed(name, corpus, tmp_path):
    asked = config(corpus, tmp_path, encoding=name, task="causal")
    vocabulary = Vocabulary("causal", ["a"] * 9)
    model = nnx.eval_shape(lambda: build_model(asked, vocabulary))
    apply, params = nn.functionalize(model)
    ids = jax.ShapeDtypeStruct((2, 8), np.int32)
    assert jax.eval_shape(apply, params, ids).logits.shape == (2, 8, 9)
    train = load_data(config(corpus, tmp_path)).train
    probe = partial(build_probe, model, train.corpus, count_documents(train), seed=0)
    encoding = nn.trunk(model).encoding
    if encoding.defines("products") and not encoding.defines("vectors"):
        with pytest.raises(InputError, match=r"defines `products`.*; or leave the probe out"):
            probe()
    else:
        assert jax.eval_shape(probe(), params).occupied.stress.shape == ()


def test_an_encoding_made_from_the_corpus_is(corpus, tmp_path):
    asked = config(corpus, tmp_path, encoding="information_optimal")
    data = load_data(asked)
    counts = count_documents(data.train)
    model = build_model(asked, data.vocabulary, counts=counts)
    optimal = jaxpe.information_optimal(counts.merged(), dim=8)
    expected = optimal.vectors(optimal.init(jax.random.key(0)), np.arange(8))
    encoder = model.encoder
    vectors = encoder.encoding.vectors(encoder.encoding_params.get_value(), np.arange(8))
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_masked_and_causal_models_train(corpus, tmp_path):
    with compilations() as programs:
        masked = train(config(corpus, tmp_path / "mlm", task="mlm", steps=2, encoding="alibi"))
    assert programs.count("jit(step)") <= 2
    assert len(programs) <= 30
    assert isinstance(masked.model, nn.MaskedLM)
    loaded = load_run(tmp_path / "mlm")
    vocabulary = loaded.vocabulary
    assert vocabulary.tokens[vocabulary.mask_id] == "[MASK]"
    assert loaded.encode(["unseen"])[0][0, 0] == vocabulary.tokens.index("[UNK]")
    assert masked.summary.vocab_size == 24  # 20 words, "good", "bad", [UNK] and [MASK]
    lines = corpus.with_suffix(".txt")
    lines.write_text("\n".join(line.split("\t")[1] for line in documents().splitlines()[1:]))
    causal = train(config(lines, tmp_path / "causal", steps=2, encoding="rope", max_vocab=10))
    assert isinstance(causal.model, nn.CausalLM)
    assert causal.summary.task == "causal"
    assert causal.summary.vocab_size == 10
    assert load_run(tmp_path / "causal").vocabulary.tokens[-1] == "[UNK]"


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
    with pytest.raises(InputError, match=r"`length=11` .*10 positions"):
        train(dataclasses.replace(asked, out=tmp_path / "b", length=11))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoding": "sinusodal"}, "no encoding 'sinusodal'; did you mean 'sinusoidal'"),
        ({"encoding": "learned+"}, "no encoding ''; the encodings are"),
        ({"encoding": "mrope"}, "mrope needs positions with 3"),
        ({"steps": 3, "epochs": 1.0}, "`epochs` and `steps` both"),
        ({"source": "-"}, "standard input cannot be read again"),
        ({"batch_size": 0}, "`batch_size` is 0; pass at least 1"),
        ({"learning_rate": 0.0}, "`learning_rate` is 0.0; pass more than 0"),
        ({"learning_rate": float("nan")}, "`learning_rate` is nan; pass more than 0"),
        ({"warmup": 1.0}, "`warmup` is 1.0; pass less than 1"),
        ({"average": 1.0}, "`average` is 1.0; pass less than 1"),
        ({"accumulate": 3}, "`accumulate=3` does not divide `batch_size=20`"),
        ({"pretrained": "x", "task": "causal", "model": ModelConfig()}, "`task` classify and mlm"),
        ({"pretrained": "x", "encoding": "rope", "model": ModelConfig()}, "has its own; leave"),
        ({"pretrained": "x"}, "`model.dim`, `model.layers`, `model.heads`: the pretrained model"),
    ],
)
def test_options_that_cannot_be(corpus, tmp_path, changes, message):
    with pytest.raises(InputError) as caught:
        check_config(config(corpus, tmp_path, **changes))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices": 1000}, "`devices` is 1000, but"),
        ({"model": ModelConfig(dim=9, heads=2)}, "dim 9 does not divide by num_heads 2"),
        ({"batch_size": 100}, "the 90 documents"),
        ({"source": "stdlib", "task": "classify"}, "stdlib has no columns"),
        ({"label_field": "class", "task": "classify"}, "no column 'class'"),
    ],
)
def test_what_is_refused_leaves_no_run(corpus, tmp_path, changes, message):
    with pytest.raises(InputError) as caught:
        train(dataclasses.replace(config(corpus, tmp_path / "run"), **changes))
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_overwritten_nor_resumed_as_another(finished, corpus):
    _, asked, _ = finished
    with pytest.raises(InputError, match="add `resume=True`"):
        train(asked)
    resumed = load_config(asked.out)
    for changes in ({"seed": 90}, {"model": dataclasses.replace(SMALL, dim=16)}):
        other = dataclasses.replace(resumed, **changes)
        ((name, saved),) = differences(other, resumed).items()
        with pytest.raises(InputError) as caught:
            train(other)
        assert f"`{name}` ({saved}): leave these options out" in str(caught.value)
    assert (name, saved) == ("model.dim", 8)


@pytest.fixture(scope="module")
def extended(corpus, finished, tmp_path_factory):
    """A run of 40 steps that was extended to 80, what it said, and the one of 80 steps at once."""
    whole, asked, _ = finished
    out, lines = tmp_path_factory.mktemp("runs") / "parts", []
    train(dataclasses.replace(asked, out=out, steps=40))
    longer = train(dataclasses.replace(load_config(out), steps=80), progress=Told(lines))
    return longer, lines, whole


def test_an_extended_run_of_a_constant_rate_is_that_of_as_many_steps_at_once(extended):
    longer, lines, whole = extended
    assert_equal(longer.params, whole.params)
    assert (longer.out / "log.jsonl").read_bytes() == (whole.out / "log.jsonl").read_bytes()
    assert longer.history == whole.history
    assert (longer.out / "config.json").read_bytes() == (whole.out / "config.json").read_bytes()
    assert load_config(longer.out).steps == 80
    assert (longer.summary.resumed_at, longer.summary.extended_after) == (40, 0)
    assert any("from 40 to 80 steps" in line for line in lines)


def test_the_average_is_evaluated_and_saved(extended):
    *_, whole = extended
    loaded, asked = load_run(whole.out), load_config(whole.out)
    assert_equal(loaded.params, whole.params)
    data = load_data(asked)
    loss = build_loss(asked, loaded.model, data.vocabulary, train=False)
    found = evaluate(loss, loaded.params, evaluation_batches(asked, data.held_out))
    assert found == whole.evaluation


@pytest.fixture(scope="module")
def of_vectors(corpus, tmp_path_factory):
    """A run of 2 steps, of a linear rate, with vectors of a file."""
    folder = tmp_path_factory.mktemp("vectors")
    path = folder / "encoding.npz"
    path.write_bytes(vectors_file(np.linspace(-1, 1, 24).reshape(8, 3)))
    rate = {"decay": "linear", "warmup": 0.0}
    return train(config(corpus, folder / "run", encoding=str(path), steps=2, **rate))


def test_vectors_in_a_file_are_trained_with(corpus, of_vectors, tmp_path):
    assert np.isfinite(of_vectors.history[-1]["loss"])
    path = load_config(of_vectors.out).encoding
    with pytest.raises(InputError, match="width 3"):
        train(config(corpus, tmp_path / "other", encoding=path, model=NARROW, steps=2))


def test_a_rate_that_depends_on_the_total_goes_on_as_that_of_the_new_one(of_vectors):
    lines = []
    longer = dataclasses.replace(load_config(of_vectors.out), steps=4)
    result = train(longer, progress=Told(lines))
    rates = [record["learning_rate"] for record in result.history if record["step"]]
    old, new = (1e-3 * (1 - np.arange(steps) / steps) for steps in (2, 4))
    np.testing.assert_allclose(rates, [*old, *new[2:]], rtol=1e-5)
    assert result.summary.extended_after == 2
    assert "extended from 2 to 4 steps" in lines


def test_a_finished_run_says_so_and_keeps_its_times(extended):
    longer, _, _ = extended
    lines = []
    again = train(load_config(longer.out), progress=Told(lines))
    assert "resume it with more `steps`" in lines[0]
    assert again.summary == longer.summary


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 79}, "has 80 steps: pass more `steps`"),
        ({"steps": None, "epochs": 9.0}, "has 80 steps: pass more `steps`"),
        ({"steps": 81, "seed": 1}, "`seed` (0)"),
    ],
)
def test_a_run_is_extended_by_steps_alone(extended, changes, message):
    asked = load_config(extended[0].out)
    with pytest.raises(InputError) as caught:
        train(dataclasses.replace(asked, **changes))
    assert message in str(caught.value)
    assert load_config(asked.out) == asked


def test_a_configuration_of_another_version_is_refused(tmp_path):
    fields = as_json(TrainConfig()) | {"colour": "red"}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(InputError, match=r"config.json has unknown fields 'colour'"):
        load_config(tmp_path)
    fields.pop("colour")
    fields["model"]["width"] = 3
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(InputError, match=r"config.json.model has unknown fields 'width'"):
        load_config(tmp_path)
    with pytest.raises(InputError, match="holds no run to resume"):
        load_config(tmp_path / "nowhere")


def test_a_run_does_not_go_on_with_other_documents(finished, corpus):
    _, asked, _ = finished
    before = corpus.read_text()
    corpus.write_text(before.replace("word3", "word4"))
    try:
        with pytest.raises(InputError, match="setting documents was"):
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fsdp": 3}, "3 does not divide 8, the number of devices: pass smaller `fsdp` and"),
        ({"tensor": 8}, "8 does not divide 4, the devices of a process: pass a smaller `tensor`"),
        ({"batch_size": 12}, "8 does not divide 12, the `batch_size`: pass a multiple"),
        ({"devices": 4}, "JAX has 8: leave it out with several processes"),
    ],
)
def test_devices_that_do_not_fit_are_refused_before_anything_is_read(monkeypatch, changes, message):
    for name, number in {"device": 8, "local_device": 4, "process": 2}.items():
        monkeypatch.setattr(jax, f"{name}_count", lambda number=number: number)
    with pytest.raises(InputError) as caught:
        _mesh(TrainConfig(**{"batch_size": 32} | changes))
    assert message in str(caught.value)


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


def test_folders_may_be_strings():
    with unchecked():
        config = TrainConfig(out="runs/a", data_dir="data")
    assert (config.out, config.data_dir) == (Path("runs/a"), Path("data"))


def test_labels_decide_the_task(corpus, tmp_path):
    data = load_data(config(corpus, tmp_path))
    assert data.vocabulary.task == "classify"
    assert set(data.train.names) == set(load_labelled(corpus).names)
    assert load_data(config(corpus, tmp_path, task="causal")).vocabulary.task == "causal"
    with pytest.raises(InputError, match=r"`label_field='zz'`.*'text'"):
        load_data(config(corpus, tmp_path, label_field="zz"))
    with pytest.raises(InputError, match="`label_field` is for"):
        check_config(config(corpus, tmp_path, task="causal", label_field="label"))
    plain = corpus.with_name("plain.tsv")
    plain.write_text("text\n" + "".join(f"no class in {word}\n" for word in WORDS))
    assert load_data(config(plain, tmp_path)).vocabulary.task == "causal"
    with pytest.raises(InputError, match="`label_field='label'`"):  # which was asked for
        load_data(config(plain, tmp_path, label_field="label"))


def test_an_encoding_in_place_of_its_name_is_refused():
    with unchecked(), pytest.raises(InputError, match="name of the catalogue"):
        check_config(TrainConfig(encoding=jaxpe.rope(head_dim=4)))
