"""The folder of a run, damaged or crafted: one error that names the file, whatever it holds."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from flax import nnx

from jaxpe._core.errors import InputError
from jaxpe._core.files import locked_folder
from jaxpe.training import (
    ModelConfig,
    TrainConfig,
    load_config,
    load_run,
    read_log,
    train,
)
from jaxpe.training.build import build_model
from jaxpe.training.config import as_json
from jaxpe.training.documents import Vocabulary
from jaxpe.training.memory import activations, check_memory, parameters

SMALL = ModelConfig(dim=8, layers=1, heads=2)
SAVED = as_json(TrainConfig(source="films.tsv", model=SMALL))
VOCABULARY = Vocabulary("classify", ["a", "b", "[UNK]"], ("no", "yes"))._asdict() | {"documents": 1}


def run_folder(folder, *, config=SAVED, vocabulary=VOCABULARY):
    for name, content in (("config.json", config), ("vocabulary.json", vocabulary)):
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text)
    return folder


FIELDS = {
    "source": 3, "task": "clasify", "text_field": [], "held_out": "0.1", "length": 8.5,
    "encoding": 7, "pretrained": False, "model": [], "batch_size": True, "accumulate": None,
    "learning_rate": [], "decay": "slow", "clip": {}, "mask_rate": True, "seed": "0",
    "probe_at": [0, "1"], "colour": "red",
}  # fmt: skip
MODEL = {
    "dim": "8", "layers": 1.5, "heads": None, "activation": "tanh", "norm": 1,
    "embedding_norm": "yes", "pooling": 0, "dtype": "int8", "scan": 0, "width": 3,
}  # fmt: skip


def test_a_field_of_another_type_is_named(tmp_path):
    models = {name: {"model": SAVED["model"] | {name: value}} for name, value in MODEL.items()}
    for name, change in [*((k, {k: v}) for k, v in FIELDS.items()), *models.items()]:
        with pytest.raises(InputError, match=rf"config\.json.*{name}"):
            load_config(run_folder(tmp_path, config=SAVED | change))


def test_a_configuration_that_cannot_be_is_one_error(tmp_path):
    out_of_range = {"length": -5, "seed": 2**32, "learning_rate": 0, "encoding": "rop"}
    texts = ["[]", "[" * 100_000, "{", "", '{"seed": 1' + "0" * 5000 + "}"]
    texts += [json.dumps(SAVED | {name: value}) for name, value in out_of_range.items()]
    for text in texts:
        with pytest.raises(InputError, match=r"config\.json"):
            load_config(run_folder(tmp_path, config=text))
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"config\.json"):
        load_config(tmp_path)


def test_a_model_that_memory_does_not_hold_is_refused_before_it_is_made(tmp_path):
    folder = run_folder(tmp_path, config=SAVED | {"model": SAVED["model"] | {"dim": 10**9}})
    for use in (load_run, lambda out: train(load_config(out))):
        with pytest.raises(InputError, match="GB"):
            use(folder)


def test_a_vocabulary_that_cannot_be_is_one_error(tmp_path):
    changes = (
        {"task": "read"}, {"tokens": "abc"}, {"tokens": ["a", 1]}, {"classes": None},
        {"mask_id": True}, {"special_ids": [0.5]}, {"documents": "1"}, {"colour": "red"},
    )  # fmt: skip
    for vocabulary in [*(VOCABULARY | change for change in changes), "[]", "{}", "[" * 100_000]:
        with pytest.raises(InputError, match=r"vocabulary\.json"):
            load_run(run_folder(tmp_path, vocabulary=vocabulary))


def test_a_run_without_a_checkpoint_makes_no_folder_for_it(tmp_path):
    with pytest.raises(InputError, match="no checkpoint yet"):
        load_run(run_folder(tmp_path))
    assert not (tmp_path / "checkpoints").exists()


def test_what_is_no_log_is_refused(tmp_path):
    for content in (b"\xff\xfe\x00\n", b"null\n", b'{"step": true}\n', b'{"step": 1.0}\n'):
        (tmp_path / "log.jsonl").write_bytes(content)
        with pytest.raises(InputError, match=r"log\.jsonl"):
            read_log(tmp_path / "log.jsonl")


def not_trained(*setup, **options):
    """In place of a step, which would only have to be compiled."""

    def step(state, batch):
        return state._replace(step=state.step + 1), {"loss": 0.5, "finite": True}

    return step


def not_evaluated(*about, **options):
    return {"loss": 0.5, "accuracy": 0.5}


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("jaxpe.training.run.train_step", not_trained)
    monkeypatch.setattr("jaxpe.training.run.evaluate", not_evaluated)


def asked(films, out):
    return TrainConfig(source=str(films), length=8, model=SMALL, steps=2, probe_at=(), out=out)


def test_a_finished_run_whose_log_is_gone_says_so(quick, films, tmp_path):
    train(asked(films, tmp_path))
    for content in ("", '{"step": 0}\n{"step": 1}\n{"step": 2}\n'):
        (tmp_path / "log.jsonl").write_text(content)
        with pytest.raises(InputError, match=r"log\.jsonl lacks"):
            train(load_config(tmp_path))


def test_a_folder_that_another_run_writes_into_is_left_alone(quick, films, tmp_path):
    with locked_folder(tmp_path), pytest.raises(InputError, match="another run is writing"):
        train(asked(films, tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock"]
    train(asked(films, tmp_path))  # now that it is free
    with locked_folder(tmp_path), pytest.raises(InputError, match="another run is writing"):
        train(load_config(tmp_path))


def test_a_run_that_came_first_meanwhile_is_not_overwritten(quick, films, tmp_path, monkeypatch):
    """Both find an empty folder, and the other is done before this one writes."""
    from jaxpe.training import run

    def first(*found):
        monkeypatch.undo()
        (tmp_path / "config.json").write_text("theirs")
        return {}

    monkeypatch.setattr(run, "fingerprint", first)
    with pytest.raises(InputError, match="already holds a run"):
        train(asked(films, tmp_path))
    assert (tmp_path / "config.json").read_text() == "theirs"


def test_a_run_that_is_being_written_can_be_looked_at(quick, films, tmp_path):
    """Loading neither reads nor removes a checkpoint that is half written."""
    train(asked(films, tmp_path))
    folder = tmp_path / "checkpoints"
    half = folder / "3.orbax-checkpoint-tmp"
    half.mkdir()
    with locked_folder(tmp_path):
        assert load_run(tmp_path).step == 2
    assert half.is_dir()


def test_parameters_are_about_as_many_as_are_made():
    gated = {"kv_heads": 2, "hidden": 100, "activation": "swiglu"}
    model = ModelConfig(dim=64, layers=3, heads=4, **gated)
    config = TrainConfig(task="causal", model=model, encoding="none")
    vocabulary = Vocabulary("causal", [f"word{k}" for k in range(500)])
    made = nnx.eval_shape(lambda: build_model(config, vocabulary))
    leaves = jax.tree.leaves(nnx.split(made, nnx.Param)[1])
    assert 0.9 < parameters(config, 500) / sum(np.prod(x.shape) for x in leaves) <= 1


def test_memory_of_each_need_to_the_byte():
    """In float32; rows have 1/4 of the length, and a softmax of 512² weights and more is summed."""
    config = TrainConfig(model=ModelConfig(dim=8, layers=2, heads=2), length=32, batch_size=6)
    # Block: queries, keys, values and outputs 8 × 8, hidden layer 8 × 32 and back.
    count = 100 * 8 + 2 * (4 * 64 + 2 * 8 * 32)
    assert parameters(config, 100) == count
    assert activations(config) == 6 * 2 * 8 * (8 + 2 * 8)
    longer = [dataclasses.replace(config, length=n) for n in (2048, 2052)]
    assert [activations(one) for one in longer] == [12 * 512 * (8 + 2 * 512), 12 * 513 * (8 + 2)]
    assert activations(dataclasses.replace(config, accumulate=3)) * 3 == activations(config)
    geometry = 16 * 32 * 100 + 2 * 32**2
    averaged = dataclasses.replace(config, average=0.9, probe_at=(), batch_size=1)
    for asked, training, values in (
        (config, True, geometry),
        (dataclasses.replace(averaged, average=None), True, 4 * count),
        (averaged, True, 5 * count),
        (config, False, count),
        (dataclasses.replace(averaged, batch_size=999), True, 999 * 2 * 8 * 24),
    ):
        needs = {"vocab_size": 100, "training": training}
        check_memory(asked, limit=4 * values, **needs)
        with pytest.raises(InputError):
            check_memory(asked, limit=4 * values - 1, **needs)


def test_a_folder_imports_nothing(tmp_path, monkeypatch):
    (tmp_path / "somebodys.py").write_text("raise RuntimeError('this was run')\n")
    monkeypatch.chdir(tmp_path)
    for encoding in ("somebodys:made", "learned+somebodys:made"):
        (tmp_path / "config.json").write_text(json.dumps({"encoding": encoding}))
        with pytest.raises(InputError, match="import somebodys first"):
            load_config(tmp_path)
