"""The folder of a run, damaged or crafted: one error that names the file, whatever it holds."""

import dataclasses
import json
from pathlib import Path

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

ROOT = Path(__file__).parents[2]
SMALL = ModelConfig(dim=8, layers=1, heads=2)
SAVED = as_json(TrainConfig(source="films.tsv", model=SMALL))
VOCABULARY = Vocabulary("classify", ["a", "b", "[UNK]"], ("no", "yes"))._asdict() | {"documents": 1}


def run_folder(folder, *, config=SAVED, vocabulary=VOCABULARY):
    for name, content in (("config.json", config), ("vocabulary.json", vocabulary)):
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text)
    return folder


FIELDS = {
    "source": 3, "task": "clasify", "text_field": [], "label_field": 3, "data_dir": 1,
    "held_out": "0.1", "tokenizer": {}, "special": 1, "length": 8.5, "max_vocab": "many",
    "encoding": 7, "pretrained": False, "model": [], "batch_size": True, "accumulate": None,
    "epochs": "1", "steps": 2.0, "learning_rate": [], "warmup": None, "decay": "slow",
    "weight_decay": "0", "clip": {}, "mask_rate": True, "seed": "0", "init_seed": 0.5,
    "evaluate_every": None, "evaluate_rows": [], "checkpoint_every": "100", "keep": {},
    "probe_at": [0, "1"], "devices": "all",
}  # fmt: skip
MODEL = {
    "dim": "8", "layers": 1.5, "heads": None, "hidden": [], "kv_heads": True, "activation": "tanh",
    "norm": 1, "norm_position": "mid", "embedding_norm": "yes", "embedding_scale": "1",
    "pooling": 0, "dropout": None, "dtype": "int8", "scan": 0, "remat": "no",
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), FIELDS.items())
def test_a_field_of_another_type_is_named(tmp_path, name, value):
    with pytest.raises(InputError, match=rf"config\.json\.{name}"):
        load_config(run_folder(tmp_path, config=SAVED | {name: value}))


@pytest.mark.parametrize(("name", "value"), MODEL.items())
def test_a_field_of_the_model_of_another_type_is_named(tmp_path, name, value):
    changed = SAVED | {"model": SAVED["model"] | {name: value}}
    with pytest.raises(InputError, match=rf"config\.json\.model\.{name}"):
        load_config(run_folder(tmp_path, config=changed))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"model": ' * 50_000, "nested too deeply"),
        ("{", "not JSON"),
        ("", "not JSON"),
        ('{"seed": 1' + "0" * 5000 + "}", "not JSON"),
        (json.dumps(SAVED | {"length": -5}), "`length` is -5"),
        (json.dumps(SAVED | {"seed": 2**32}), f"`seed` is {2**32}"),
        (json.dumps(SAVED | {"learning_rate": 0}), "`learning_rate` is 0"),
        (json.dumps(SAVED | {"learning_rate": float("nan")}), "learning_rate is nan"),
        (json.dumps(SAVED | {"encoding": "rop"}), "did you mean 'rope'"),
        (json.dumps(SAVED | {"held_out": 3}), "`held_out` is 3"),
    ],
)
def test_a_configuration_that_cannot_be_is_one_error(tmp_path, text, said):
    with pytest.raises(InputError) as caught:
        load_config(run_folder(tmp_path, config=text))
    assert "config.json" in str(caught.value)
    assert said in str(caught.value)


def test_a_configuration_that_is_no_file(tmp_path):
    (tmp_path / "config.json").symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"config\.json"):
        load_config(tmp_path)


@pytest.mark.parametrize("sizes", [{"dim": 10**9}, {"dim": 2**20, "heads": 1}])
def test_a_model_that_memory_does_not_hold_is_refused_before_it_is_made(tmp_path, sizes):
    folder = run_folder(tmp_path, config=SAVED | {"model": SAVED["model"] | sizes})
    for use in (load_run, lambda out: train(load_config(out))):
        with pytest.raises(InputError, match=rf"`model\.dim={sizes['dim']}`.* GB"):
            use(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"task": "read"}, r"vocabulary\.json\.task"),
        ({"tokens": "abc"}, r"vocabulary\.json\.tokens"),
        ({"tokens": ["a", 1]}, r"vocabulary\.json\.tokens\[1\]"),
        ({"classes": None}, r"vocabulary\.json\.classes"),
        ({"mask_id": True}, r"vocabulary\.json\.mask_id"),
        ({"special_ids": [0.5]}, r"vocabulary\.json\.special_ids\[0\]"),
        ({"documents": "1"}, r"vocabulary\.json\.documents"),
        ({"colour": "red"}, "unknown fields 'colour'"),
    ],
)
def test_a_vocabulary_that_cannot_be_is_one_error(tmp_path, change, said):
    with pytest.raises(InputError, match=said):
        load_run(run_folder(tmp_path, vocabulary=VOCABULARY | change))


@pytest.mark.parametrize("text", ["[]", "null", "{}", "[" * 100_000, '{"documents": 1}'])
def test_a_vocabulary_that_is_something_else(tmp_path, text):
    with pytest.raises(InputError, match=r"vocabulary\.json"):
        load_run(run_folder(tmp_path, vocabulary=text))


def test_a_run_without_a_checkpoint_makes_no_folder_for_it(tmp_path):
    with pytest.raises(InputError, match="no checkpoint yet"):
        load_run(run_folder(tmp_path))
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00\n", b"\x00\x01\x02", b"null\n", b"[1]\n", b'{"step": true}\n',
        b'{"step": -1}\n', b'{"step": 1.0}\n', b"[" * 100_000 + b"\n", b"\x89PNG\r\n\x1a\n",
    ],
)  # fmt: skip
def test_what_is_no_log_is_refused(tmp_path, content):
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


@pytest.mark.parametrize("content", ["", '{"step": 0}\n{"step": 1}\n{"step": 2}\n'])
def test_a_finished_run_whose_log_is_gone_says_so(quick, films, tmp_path, content):
    train(asked(films, tmp_path))
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


@pytest.mark.parametrize(
    "model",
    [
        ModelConfig(dim=64, layers=2, heads=4),
        ModelConfig(dim=64, layers=3, heads=4, kv_heads=2, hidden=100, activation="swiglu"),
    ],
)
def test_parameters_are_about_as_many_as_are_made(model):
    config = TrainConfig(task="causal", model=model, encoding="none")
    vocabulary = Vocabulary("causal", [f"word{k}" for k in range(500)])
    made = nnx.eval_shape(lambda: build_model(config, vocabulary))
    leaves = jax.tree.leaves(nnx.split(made, nnx.Param)[1])
    assert 0.9 < parameters(config, 500) / sum(np.prod(x.shape) for x in leaves) <= 1


def test_what_a_step_takes_grows_with_rows_and_length_and_less_with_parts():
    def needs(**changes):
        return activations(TrainConfig(**{"length": 64, "batch_size": 32} | changes))

    assert needs(batch_size=64) == 2 * needs()
    assert needs(accumulate=4) * 4 == needs()
    assert needs(length=128) > 2 * needs()
    assert needs(model=ModelConfig(remat=True)) * 2 == needs()
    check_memory(TrainConfig(), vocab_size=4000, limit=10**9)
    with pytest.raises(InputError, match=r"4,000,000 words at `length=64`.*`probe_at"):
        check_memory(TrainConfig(), vocab_size=4_000_000, limit=10**10)


def test_memory_of_each_need_to_the_byte():
    """In float32; rows have 1/4 of the length, and a softmax of 256² weights and more is summed."""
    config = TrainConfig(model=ModelConfig(dim=8, layers=2, heads=2), length=32, batch_size=6)
    # Block: queries, keys, values and outputs 8 × 8, hidden layer 8 × 32 and back.
    count = 100 * 8 + 2 * (4 * 64 + 2 * 8 * 32)
    assert parameters(config, 100) == count
    assert activations(config) == 6 * 2 * 8 * (8 + 2 * 8)
    longer = [dataclasses.replace(config, length=n) for n in (1024, 1028)]
    assert [activations(one) for one in longer] == [12 * 256 * (8 + 2 * 256), 12 * 257 * (8 + 2)]
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
        with pytest.raises(InputError, match="import somebodys first, or pass `encoding="):
            load_config(tmp_path)
