"""Directories of Hugging Face: read, written, and refused with what is wrong."""

import json
import shutil

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from flax import nnx

from jaxpe import encodings
from jaxpe._core.errors import InputError
from jaxpe.nn import (
    Bert,
    Classifier,
    load_classifier,
    load_masked_lm,
    save_huggingface,
    with_encoding,
)
from tests.nn.stored import change, copied, write

TINY = {"tiny_bert": "Bert", "tiny_mpnet": "MPNet"}
POSITIONS = ("position_embeddings", "relative_attention_bias")
IDS = np.arange(5, dtype=np.int32)[None]


def tensors(directory):
    return safetensors.numpy.load_file(directory / "model.safetensors")


def fields(directory):
    return json.loads((directory / "config.json").read_text())


def params(model):
    """Parameters of a model by their path, without those of its encoding."""
    leaves = jax.tree.leaves_with_path(nnx.state(model, nnx.Param))
    named = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
    return {path: leaf for path, leaf in named.items() if "encoding_params" not in path}


def same(one, other):
    leaves = [jax.tree.leaves(nnx.state(model, nnx.Param)) for model in (one, other)]
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(*leaves, strict=True))


def of_base(found, kind):
    """The tensors of the base model alone, under the names they have there."""
    short = {name.removeprefix(f"{kind}."): tensor for name, tensor in found.items()}
    base = ("embeddings.", "encoder.", "pooler.")
    return {name: tensor for name, tensor in short.items() if name.startswith(base)}


@pytest.fixture(params=TINY)
def tiny(request, tmp_path):
    """A copy of a tiny model, and the title of its classes."""
    return copied(request.param, tmp_path), TINY[request.param]


@pytest.fixture
def bert(tmp_path):
    return copied("tiny_bert", tmp_path)


def equal_tensors(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


def test_the_base_comes_back_bit_for_bit(tiny, tmp_path):
    directory, title = tiny
    save_huggingface(Bert.load(directory), tmp_path / "out")
    equal_tensors(tensors(tmp_path / "out"), of_base(tensors(directory), title.lower()))
    assert fields(tmp_path / "out") == fields(directory) | {"architectures": [f"{title}Model"]}
    assert same(Bert.load(tmp_path / "out"), Bert.load(directory))  # whatever the prefix


@pytest.mark.parametrize("load", [load_masked_lm, load_classifier])
def test_heads_come_back_bit_for_bit(tiny, load, tmp_path):
    directory, title = tiny
    save_huggingface(load(directory), tmp_path / "out")
    lm = load is load_masked_lm
    # Not of a masked language model: the pooler; not of MPNet's classifier, which has its own.
    other = ("classifier", "bert.pooler", "mpnet.pooler") if lm else ("cls.", "lm_", "mpnet.pooler")
    expected = {name: t for name, t in tensors(directory).items() if not name.startswith(other)}
    equal_tensors(tensors(tmp_path / "out"), expected)
    classes = [f"{title}ForMaskedLM" if lm else f"{title}ForSequenceClassification"]
    assert fields(tmp_path / "out") == fields(directory) | {"architectures": classes}


def test_real_weights_come_back_bit_for_bit(tmp_path):
    from tests.parity.test_transformers_models import real_directory

    source = real_directory("all-MiniLM-L6-v2")
    save_huggingface(Bert.load(source), tmp_path, source=source)
    stored = {name: t for name, t in tensors(source).items() if "position_ids" not in name}
    equal_tensors(tensors(tmp_path), stored)
    assert fields(tmp_path) == fields(source)
    assert (tmp_path / "vocab.txt").read_bytes() == (source / "vocab.txt").read_bytes()


def test_early_names_buffers_and_other_heads_make_no_difference(bert):
    before, found = Bert.load(bert), tensors(bert)
    extra = {
        "bert.embeddings.position_ids": np.arange(40)[None],
        "cls.seq_relationship.bias": np.zeros(2, np.float32),
        "cls.predictions.decoder.weight": found["bert.embeddings.word_embeddings.weight"],
    }
    write(bert, found | extra)
    assert same(Bert.load(bert), before)
    load_masked_lm(bert)
    for new, early in {"weight": "gamma", "bias": "beta"}.items():
        found = {k.replace(f"LayerNorm.{new}", f"LayerNorm.{early}"): t for k, t in found.items()}
    write(bert, found)
    assert same(Bert.load(bert), before)


def test_shards_are_read_through_their_index(bert):
    whole, found = Bert.load(bert), tensors(bert)
    shards = {"a.safetensors": {}, "b.safetensors": {}}
    for i, (name, tensor) in enumerate(found.items()):
        shards[("a" if i % 2 else "b") + ".safetensors"][name] = tensor
    for file, part in shards.items():
        safetensors.numpy.save_file(part, bert / file)
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (bert / "model.safetensors.index.json").write_text(json.dumps(index))
    (bert / "model.safetensors").unlink()
    assert same(Bert.load(bert), whole)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    (bert / "b.safetensors").write_text(pointer)
    with pytest.raises(InputError, match="LFS"):
        Bert.load(bert)
    (bert / "a.safetensors").unlink()
    with pytest.raises(InputError, match="lacks"):
        Bert.load(bert)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_parameters_are_float32_whatever_the_file_has(bert, dtype):
    write(bert, {name: tensor.astype(dtype) for name, tensor in tensors(bert).items()})
    model = Bert.load(bert)
    leaves = jax.tree.leaves(nnx.state(model, nnx.Param))
    assert {leaf.dtype for leaf in leaves} == {np.dtype(np.float32)}
    table = tensors(bert)["bert.embeddings.position_embeddings.weight"].astype(np.float32)
    np.testing.assert_array_equal(model.encoder.encoding_params.get_value()["table"], table)


def test_fields_of_the_configuration_can_be_overridden(bert, tmp_path):
    model = Bert.load(bert, dtype=jnp.bfloat16, param_dtype=jnp.float64, dropout=0.0, scan=True)
    assert {leaf.dtype for leaf in params(model).values()} == {np.dtype(np.float64)}
    assert (model.encoder.config.dtype, model.encoder.config.scan) == (jnp.bfloat16, True)
    save_huggingface(model, tmp_path / "out")
    assert fields(tmp_path / "out")["hidden_dropout_prob"] == 0.1  # as the file has it
    equal_tensors(tensors(tmp_path / "out"), of_base(tensors(bert), "bert"))
    with pytest.raises(InputError, match="activation"):  # which the weights go with
        Bert.load(bert, activation="relu")


ROPE = encodings.rope(head_dim=8)


@pytest.mark.parametrize("encoding", [ROPE, encodings.learned(length=9, dim=32)])
def test_another_encoding_comes_with_the_same_weights(bert, encoding, tmp_path):
    plain = Bert.load(bert)
    model = with_encoding(plain, encoding, key=jax.random.key(0))
    found, expected = params(model), params(plain)
    assert found.keys() == expected.keys()
    for path, leaf in expected.items():
        np.testing.assert_array_equal(found[path], leaf, err_msg=path)
    assert model.encoder.length is None
    with pytest.raises(ValueError, match="encoding"):
        save_huggingface(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_encoding_takes_the_place_of_the_table(tiny):
    """Without positions the model is the one whose table (and bias) is zero; with some, not.

    Rotary logits depend on differences of positions alone, and rows may be longer than the table.
    """
    directory, _ = tiny
    wide = {"scan": True, "dtype": jnp.float64, "param_dtype": jnp.float64}
    model = Bert.load(directory, **wide)
    both = encodings.identity(), ROPE
    none, turned = (with_encoding(model, encoding, key=jax.random.key(0)) for encoding in both)
    zero = {k: t * (not any(n in k for n in POSITIONS)) for k, t in tensors(directory).items()}
    write(directory, zero)
    ids = np.arange(43, dtype=np.int32)[None] % 7  # three more than the table has rows

    @jax.jit
    def run():
        short = [m(IDS).hidden for m in (none, Bert.load(directory, **wide), model)]
        padded = turned(ids, mask=np.arange(43)[None] >= 2).hidden[:, 2:]
        return *short, padded, turned(ids[:, 2:]).hidden

    without, zeros, own, padded, cut = jax.device_get(run())
    np.testing.assert_allclose(without, zeros, rtol=1e-9, atol=1e-9)
    assert np.abs(without - own).max() > 1e-3
    np.testing.assert_allclose(padded, cut, rtol=1e-9, atol=1e-9)


def test_a_model_without_a_pooler(bert, tmp_path):
    write(bert, {name: t for name, t in tensors(bert).items() if "pooler" not in name})
    model = Bert.load(bert)
    assert jax.eval_shape(model, IDS).pooled is None
    save_huggingface(model, tmp_path / "out")
    assert not any("pooler" in name for name in tensors(tmp_path / "out"))
    with pytest.raises(InputError, match="pooler"):
        load_classifier(bert)


def test_fields_left_out_have_their_defaults_and_unknown_ones_are_kept(bert, tmp_path):
    left_out = ("hidden_act", "layer_norm_eps", "type_vocab_size", "hidden_dropout_prob")
    known = {name: value for name, value in fields(bert).items() if name not in left_out}
    known |= {"something_new": {"a": [1]}, "torch_dtype": "float16"}
    (bert / "config.json").write_text(json.dumps(known))
    model = Bert.load(bert)
    config = model.encoder.config
    found = (config.activation, config.norm_epsilon, config.token_types, config.dropout)
    assert found == ("gelu", 1e-12, 2, 0.1)
    save_huggingface(model, tmp_path / "out")
    kept = fields(tmp_path / "out")
    assert (kept["something_new"], kept["torch_dtype"]) == ({"a": [1]}, "float32")


def test_tokenizer_files_come_along(bert, tmp_path):
    (bert / "vocab.txt").write_text("[PAD]\n")
    (bert / "README.md").write_text("not this")
    for out in (tmp_path / "out", bert):
        save_huggingface(Bert.load(bert), out, source=bert)
        assert (out / "vocab.txt").read_text() == "[PAD]\n"
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"config.json", "model.safetensors", "vocab.txt"}


QUERY = "bert.encoder.layer.1.attention.self.query.bias"
WRONG_FIELDS = {
    "model_type": ["bert"],
    "position_embedding_type": "relative_key",
    "is_decoder": True,
    "quantization_config": {"bits": 4},
    "hidden_act": "laplace",
    "hidden_size": "32",
    "layer_norm_eps": True,
}
WRONG_TENSORS = {
    QUERY: np.zeros(31, np.float32),
    QUERY + "_": np.zeros(2, np.float32),
    QUERY.replace("1", "0"): np.zeros(32, np.int8),
}


def test_what_is_wrong_is_named(bert):
    original, found = fields(bert), tensors(bert)
    for name, value in WRONG_FIELDS.items():
        (bert / "config.json").write_text(json.dumps(original | {name: value}))
        with pytest.raises(InputError, match=name):
            Bert.load(bert)
    for more in ({"num_attention_heads": 5}, {"num_hidden_layers": 1}):
        (bert / "config.json").write_text(json.dumps(original | more))
        with pytest.raises(InputError, match=r"dim 32|layer\.1"):
            Bert.load(bert)
    (bert / "config.json").write_text(json.dumps(original))
    for name, tensor in WRONG_TENSORS.items():
        write(bert, found | {name: tensor})
        with pytest.raises(InputError, match="query"):
            Bert.load(bert)
    missing = [name for name in found if "layer.1" in name]
    write(bert, {name: t for name, t in found.items() if name not in missing})
    with pytest.raises(InputError) as error:  # all in one message
        Bert.load(bert)
    assert all(name.removeprefix("bert.") in str(error.value) for name in missing)
    path = bert / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InputError, match="safetensors"):
        Bert.load(bert)
    path.rename(bert / "pytorch_model.bin")
    with pytest.raises(InputError, match="pytorch_model"):
        Bert.load(bert)
    shutil.rmtree(bert)
    with pytest.raises(InputError, match="directory"):
        Bert.load(bert)


BUCKETS = "relative_attention_num_buckets"


def test_heads_that_are_not_as_ours(tiny):
    directory, title = tiny
    decoder = {"Bert": "cls.predictions.decoder", "MPNet": "lm_head.decoder"}[title]
    write(directory, tensors(directory) | {f"{decoder}.weight": np.ones((60, 32), np.float32)})
    with pytest.raises(InputError, match=decoder):
        load_masked_lm(directory)
    Bert.load(directory)
    if title == "MPNet":  # its head has GELU, and its buckets are 32
        for name, wrong, own in (("hidden_act", "relu", "gelu"), (BUCKETS, 16, 32)):
            change(directory, **{name: wrong})
            with pytest.raises(InputError, match=name):
                load_masked_lm(directory)
            change(directory, **{name: own})


def test_a_classifier_of_other_classes_is_written_and_read(bert, tmp_path):
    model = Classifier(Bert.load(bert).encoder, num_classes=5, pooler=True, rngs=nnx.Rngs(1))
    save_huggingface(model, tmp_path / "out")
    assert same(load_classifier(tmp_path / "out"), model)
    assert fields(tmp_path / "out")["id2label"]["4"] == "LABEL_4"
