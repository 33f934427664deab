"""Directories of Hugging Face: read, written, and refused with what is wrong."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from flax import nnx

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe.nn import (
    Bert,
    Classifier,
    Encoder,
    MaskedLM,
    TransformerConfig,
    load_classifier,
    load_masked_lm,
    load_model,
    save_huggingface,
    with_encoding,
)
from tests.nn.stored import PARITY, change, copied, write

TINY = {"tiny_bert": "Bert", "tiny_mpnet": "MPNet"}
BASE = ("embeddings.", "encoder.", "pooler.")
CONFIG = TransformerConfig(
    vocab_size=11, dim=8, num_layers=1, num_heads=2, norm_position="post", dropout=0.3
)
CONFIG_OF_TINY = dataclasses.replace(CONFIG, dim=32, num_heads=4)
POSITIONS = ("position_embeddings", "relative_attention_bias")
IDS = np.arange(5, dtype=np.int32)[None]


def tensors(directory):
    return safetensors.numpy.load_file(directory / "model.safetensors")


def fields(directory):
    return json.loads((directory / "config.json").read_text())


def params(model):
    return jax.tree.leaves(nnx.state(model, nnx.Param))


def same(one, other):
    return all(
        a.dtype == b.dtype and (np.asarray(a) == np.asarray(b)).all()
        for a, b in zip(params(one), params(other), strict=True)
    )


def paths(model):
    """Parameters of a model by their path."""
    return {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree.leaves_with_path(nnx.state(model, nnx.Param))
    }


def other_encoding(name, config):
    """An encoding for a model whose table it replaces."""
    return {
        "rope": jaxpe.rope(head_dim=config.head_width),
        "t5": jaxpe.t5(num_heads=config.num_heads),
        "learned": jaxpe.learned(length=9, dim=config.dim),
    }[name]


def of_base(found, kind):
    """The tensors of the base model alone, under the names they have there."""
    short = {name.removeprefix(f"{kind}."): tensor for name, tensor in found.items()}
    return {name: tensor for name, tensor in short.items() if name.startswith(BASE)}


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
    assert same(Bert.load(tmp_path / "out"), Bert.load(directory))


@pytest.mark.parametrize("load", [load_masked_lm, load_classifier])
def test_heads_come_back_bit_for_bit(tiny, load, tmp_path):
    directory, _ = tiny
    save_huggingface(load(directory), tmp_path / "out")
    lm = load is load_masked_lm
    # Not of a masked language model: the pooler; not of MPNet's classifier, which has its own.
    other = ("classifier", "bert.pooler", "mpnet.pooler") if lm else ("cls.", "lm_", "mpnet.pooler")
    expected = {name: t for name, t in tensors(directory).items() if not name.startswith(other)}
    equal_tensors(tensors(tmp_path / "out"), expected)
    name = TINY[directory.name]
    classes = [f"{name}ForMaskedLM" if lm else f"{name}ForSequenceClassification"]
    assert fields(tmp_path / "out") == fields(directory) | {"architectures": classes}


def test_real_weights_come_back_bit_for_bit(tmp_path):
    from tests.parity.test_transformers_models import real_directory

    source = real_directory("all-MiniLM-L6-v2")
    save_huggingface(Bert.load(source), tmp_path, source=source)
    stored = {name: t for name, t in tensors(source).items() if "position_ids" not in name}
    equal_tensors(tensors(tmp_path), stored)
    assert fields(tmp_path) == fields(source)
    assert (tmp_path / "vocab.txt").read_bytes() == (source / "vocab.txt").read_bytes()


def test_a_prefix_makes_no_difference(tiny):
    directory, title = tiny
    prefixed = Bert.load(directory)
    write(directory, of_base(tensors(directory), title.lower()))
    assert same(Bert.load(directory), prefixed)


def test_early_names_of_layer_norms(bert):
    modern = Bert.load(bert)
    rename = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    old = {}
    for name, tensor in tensors(bert).items():
        for new, early in rename.items():
            name = name.replace(new, early)
        old[name] = tensor
    assert any("gamma" in name for name in old)
    write(bert, old)
    assert same(Bert.load(bert), modern)


def test_buffers_and_other_heads_are_left_alone(bert):
    before = Bert.load(bert)
    extra = {
        "bert.embeddings.position_ids": np.arange(40)[None],
        "cls.seq_relationship.bias": np.zeros(2, np.float32),
        "cls.predictions.decoder.weight": tensors(bert)["bert.embeddings.word_embeddings.weight"],
    }
    write(bert, tensors(bert) | extra)
    assert same(Bert.load(bert), before)
    load_masked_lm(bert)


def test_shards_are_read_through_their_index(bert):
    whole = Bert.load(bert)
    found = tensors(bert)
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
    with pytest.raises(InputError, match=r"b\.safetensors is a Git LFS pointer"):
        Bert.load(bert)
    (bert / "a.safetensors").unlink()
    with pytest.raises(InputError, match=r"lacks a\.safetensors, which model\.safetensors\.index"):
        Bert.load(bert)
    (bert / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(InputError, match="weight_map is None, not an object"):
        Bert.load(bert)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_parameters_are_float32_whatever_the_file_has(bert, dtype):
    write(bert, {name: tensor.astype(dtype) for name, tensor in tensors(bert).items()})
    model = Bert.load(bert)
    assert {leaf.dtype for leaf in params(model)} == {np.dtype(np.float32)}
    table = tensors(bert)["bert.embeddings.position_embeddings.weight"].astype(np.float32)
    np.testing.assert_array_equal(model.encoder.encoding_params.get_value()["table"], table)


def test_fields_of_the_configuration_can_be_overridden(bert, tmp_path):
    model = Bert.load(bert, dtype=jnp.bfloat16, param_dtype=jnp.float64, dropout=0.0)
    assert {leaf.dtype for leaf in params(model)} == {np.dtype(np.float64)}
    assert model.encoder.config.dtype == jnp.bfloat16
    assert model.encoder.embed(IDS, positions=IDS).dtype == jnp.bfloat16
    save_huggingface(model, tmp_path / "out")
    assert fields(tmp_path / "out")["hidden_dropout_prob"] == 0.1  # as the file has it
    equal_tensors(tensors(tmp_path / "out"), of_base(tensors(bert), "bert"))


@pytest.mark.parametrize("load", [Bert.load, load_masked_lm, load_classifier])
def test_fields_that_the_weights_go_with_cannot_be_overridden(load, bert):
    allowed = r"dtype, param_dtype, dropout, attention_dropout, attention, scan, remat$"
    with pytest.raises(InputError, match=f"activation, num_heads cannot be overridden.* {allowed}"):
        load(bert, num_heads=2, activation="relu", dropout=0.0)
    model = load(bert, attention_dropout=0.0, attention="dense", scan=True, remat=True)
    config = model.encoder.config
    assert (config.attention_dropout, config.attention) == (0.0, "dense")
    assert config.scan
    assert config.remat


@pytest.mark.parametrize("name", ["rope", "t5", "learned"])
def test_another_encoding_comes_with_the_same_weights(tiny, name, tmp_path):
    directory, _ = tiny
    plain = Bert.load(directory)
    encoding = other_encoding(name, plain.encoder.config)
    model = with_encoding(plain, encoding, key=jax.random.key(0))
    found, expected = (
        {path: leaf for path, leaf in paths(m).items() if "encoding_params" not in path}
        for m in (model, plain)
    )
    assert found.keys() == expected.keys()
    for path, leaf in expected.items():
        np.testing.assert_array_equal(found[path], leaf, err_msg=path)
    assert model.encoder.length is None
    with pytest.raises(ValueError, match="or has another encoding"):
        save_huggingface(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_encoding_takes_the_place_of_the_table(tiny):
    """Without positions the model is the one whose table (and bias) is zero; with some, not."""
    directory, _ = tiny

    def hidden(encoding=None):
        model = Bert.load(directory, scan=True, dtype=jnp.float64, param_dtype=jnp.float64)
        if encoding is not None:
            model = with_encoding(model, encoding, key=jax.random.key(0))
        return jax.jit(lambda: model(IDS).hidden)()

    none, own = hidden(jaxpe.identity()), hidden()
    moved = hidden(other_encoding("rope", CONFIG_OF_TINY))
    zero = {k: t * (not any(n in k for n in POSITIONS)) for k, t in tensors(directory).items()}
    write(directory, zero)
    np.testing.assert_allclose(none, hidden(), rtol=1e-9, atol=1e-9)
    assert np.abs(none - own).max() > 1e-3
    assert np.abs(none - moved).max() > 1e-3


def test_with_another_encoding_rows_may_be_longer(tiny):
    directory, _ = tiny
    rope = other_encoding("rope", CONFIG_OF_TINY)
    model = with_encoding(Bert.load(directory, scan=True), rope, key=jax.random.key(0))
    n = 43  # three more than the table has rows
    ids = np.arange(n, dtype=np.int32)[None] % 7
    run = jax.jit(model)
    padded = run(ids, mask=np.arange(n)[None] >= 2).hidden[:, 2:]
    # Rotary logits depend on differences of positions alone: padding on the left changes nothing.
    np.testing.assert_allclose(padded, run(ids[:, 2:]).hidden, rtol=1e-4, atol=1e-5)


def test_a_model_without_a_pooler(bert, tmp_path):
    write(bert, {name: t for name, t in tensors(bert).items() if "pooler" not in name})
    model = Bert.load(bert)
    assert model.pooler is None
    assert jax.eval_shape(model, IDS).pooled is None
    save_huggingface(model, tmp_path / "out")
    assert not any("pooler" in name for name in tensors(tmp_path / "out"))
    with pytest.raises(InputError, match=r"missing are pooler\.dense\.bias, pooler\.dense\.weight"):
        load_classifier(bert)


@pytest.mark.parametrize(
    ("theirs", "ours"), [("gelu_new", "gelu_tanh"), ("swish", "silu"), ("relu", "relu")]
)
def test_activations(bert, theirs, ours, tmp_path):
    change(bert, hidden_act=theirs)
    model = Bert.load(bert)
    assert model.encoder.config.activation == ours
    save_huggingface(model, tmp_path / "out")
    assert fields(tmp_path / "out")["hidden_act"] == theirs
    (bert / "config.json").write_text(json.dumps(fields(bert) | {"hidden_act": "gelu"}))
    save_huggingface(Bert.load(bert), tmp_path / "out")
    assert fields(tmp_path / "out")["hidden_act"] == "gelu"


def test_fields_left_out_have_their_defaults(bert):
    left_out = ("hidden_act", "layer_norm_eps", "type_vocab_size", "hidden_dropout_prob")
    known = {name: value for name, value in fields(bert).items() if name not in left_out}
    (bert / "config.json").write_text(json.dumps(known | {"_something_new": [1]}))
    config = Bert.load(bert).encoder.config
    found = (config.activation, config.norm_epsilon, config.token_types, config.dropout)
    assert found == ("gelu", 1e-12, 2, 0.1)


def test_unknown_fields_are_kept(bert, tmp_path):
    change(bert, something_new={"a": [1]}, torch_dtype="float16", pad_token_id=3)
    save_huggingface(Bert.load(bert), tmp_path / "out")
    kept = fields(tmp_path / "out")
    assert kept["something_new"] == {"a": [1]}
    assert (kept["torch_dtype"], kept["pad_token_id"]) == ("float32", 3)


def test_tokenizer_files_come_along(bert, tmp_path):
    (bert / "vocab.txt").write_text("[PAD]\n")
    (bert / "README.md").write_text("not this")
    save_huggingface(Bert.load(bert), tmp_path / "out", source=bert)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"config.json", "model.safetensors", "vocab.txt"}
    save_huggingface(Bert.load(bert), bert, source=bert)
    assert (bert / "vocab.txt").read_text() == "[PAD]\n"


def test_position_vectors_are_rows_of_the_table(tiny):
    directory, title = tiny
    encoder = Bert.load(directory).encoder
    table = tensors(directory)[f"{title.lower()}.embeddings.position_embeddings.weight"]
    i = np.arange(encoder.length)
    vectors = encoder.encoding.vectors(encoder.encoding_params.get_value(), i)
    np.testing.assert_array_equal(vectors, table[len(table) - encoder.length :])
    assert len(table) - encoder.length == (0 if title == "Bert" else 2)


def test_too_many_tokens(tiny):
    model = Bert.load(tiny[0])
    length = model.encoder.length
    ids = np.ones((1, length + 1), np.int32)
    with pytest.raises(ValueError, match="has no row in a table of length"):
        model(ids)
    positions = np.minimum(np.arange(length + 1), length - 1)
    assert np.isfinite(jax.jit(model)(ids, positions=positions).hidden).all()


# What is wrong with a directory, and the message.


def drop(*names):
    def spoil(directory):
        write(directory, {k: v for k, v in tensors(directory).items() if k not in names})

    return spoil


def replace(name, tensor):
    return lambda directory: write(directory, tensors(directory) | {name: tensor})


def cut(directory):
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def pickled(directory):
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")


def text(written):
    return lambda directory: (directory / "config.json").write_text(written)


def field(**changes):
    return lambda directory: change(directory, **changes)


QUERY = "bert.encoder.layer.1.attention.self.query.bias"
SPOILED = {
    "no config": (lambda d: (d / "config.json").unlink(), r"tiny_bert has no config\.json"),
    "no directory": (shutil.rmtree, "is not a directory"),
    "not JSON": (text("{"), r"config\.json is not JSON"),
    "not UTF-8": (lambda d: (d / "config.json").write_bytes(b"\xff"), r"config\.json is not JSON"),
    "not an object": (text("[1]"), r"config\.json is not a JSON object \(a list\)"),
    "another family": (field(model_type="gpt2"), "model_type is 'gpt2', .*; bert, mpnet are"),
    "a list of families": (
        field(model_type=["bert"]),
        r"model_type is \['bert'\], .*; bert, mpnet",
    ),
    "no family": (text("{}"), "model_type is None, .*; bert, mpnet"),
    "relative positions": (
        field(position_embedding_type="relative_key"),
        "position_embedding_type is 'relative_key', which changes.*only 'absolute'",
    ),
    "decoder": (field(is_decoder=True), "is_decoder is True, .* only False is supported"),
    "cross attention": (field(add_cross_attention=True), "add_cross_attention is True"),
    "pruned": (field(pruned_heads={"0": [1]}), "pruned_heads is {'0': "),
    "quantized": (
        field(quantization_config={"bits": 4}),
        r"quantization_config is .*gguf files alone",
    ),
    "activation": (
        field(hidden_act="laplace"),
        "hidden_act is 'laplace', .* only 'gelu', 'gelu_new'",
    ),
    "a number as text": (field(hidden_size="32"), "hidden_size is '32', not an integer"),
    "a fraction": (field(num_hidden_layers=1.5), "num_hidden_layers is 1.5, not an integer"),
    "a truth": (field(layer_norm_eps=True), "layer_norm_eps is True, not a finite number"),
    "uneven heads": (field(num_attention_heads=5), r"config\.json: dim 32 does not divide"),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), "has neither model.safetensors"),
    "pickled": (pickled, r"has no model\.safetensors, but pytorch_model\.bin"),
    "cut": (cut, r"model\.safetensors is not a complete safetensors file"),
    "missing": (
        drop(QUERY, "bert.embeddings.LayerNorm.weight"),
        r"missing are embeddings\.LayerNorm\.weight, encoder\.layer\.1\.attention\.self\.query\.b",
    ),
    "another shape": (
        replace(QUERY, np.zeros(31, np.float32)),
        r"layer\.1\.attention\.self\.query\.bias has shape \(31,\), not \(32,\)",
    ),
    "whole numbers": (
        replace(QUERY, np.zeros(32, np.int8)),
        r"query\.bias is I8, not floating-point numbers",
    ),
    "unknown": (
        replace("bert.encoder.layer.0.adapter.weight", np.zeros(2, np.float32)),
        r"config\.json: the tensors bert.encoder\.layer\.0\.adapter\.weight",
    ),
    "more layers than told": (field(num_hidden_layers=1), r"tensors bert.encoder\.layer\.1"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_what_is_wrong_is_named(case, bert):
    spoil, message = SPOILED[case]
    spoil(bert)
    with pytest.raises(InputError, match=message):
        Bert.load(bert)


def test_everything_wrong_is_in_one_message(bert):
    found = tensors(bert)
    missing = [name for name in found if "layer.1" in name]
    drop(*missing)(bert)
    replace("bert.pooler.dense.bias", np.zeros(3, np.float32))(bert)
    with pytest.raises(InputError) as error:
        Bert.load(bert)
    for name in [*missing, "pooler.dense.bias has shape (3,)"]:
        assert name.removeprefix("bert.") in str(error.value)


def test_buckets_of_mpnet_are_32(tmp_path):
    shutil.copytree(PARITY / "tiny_mpnet", tmp_path, dirs_exist_ok=True)
    change(tmp_path, relative_attention_num_buckets=16)
    with pytest.raises(InputError, match=r"num_buckets is 16, which changes .* only 32"):
        Bert.load(tmp_path)


def test_heads_that_are_not_as_ours(tiny):
    directory, title = tiny
    decoder = {"Bert": "cls.predictions.decoder", "MPNet": "lm_head.decoder"}[title]
    write(directory, tensors(directory) | {f"{decoder}.weight": np.ones((60, 32), np.float32)})
    with pytest.raises(
        InputError, match=rf"{decoder}\.weight differs from embeddings\.word_embedd.*tied"
    ):
        load_masked_lm(directory)
    Bert.load(directory)


def test_the_head_of_mpnet_has_gelu(tmp_path):
    shutil.copytree(PARITY / "tiny_mpnet", tmp_path, dirs_exist_ok=True)
    change(tmp_path, hidden_act="relu")
    with pytest.raises(InputError, match="hidden_act is 'relu', which changes"):
        load_masked_lm(tmp_path)


def test_models_that_hugging_face_has_no_class_for(bert, tmp_path):
    rngs, refusal = nnx.Rngs(0), "no class for this MaskedLM, which was not loaded"
    encoder = Encoder(CONFIG, encoding=jaxpe.alibi(num_heads=2), rngs=rngs)
    with pytest.raises(ValueError, match=refusal):
        save_huggingface(MaskedLM(encoder, rngs=rngs), tmp_path / "out")
    roberta = load_model(PARITY / "models" / "roberta")
    with pytest.raises(ValueError, match="no class for this Classifier"):
        save_huggingface(Classifier(roberta, num_classes=2, pooler=True, rngs=rngs), tmp_path)
    encoder = Bert.load(bert).encoder
    for options in ({}, {"pooler": True, "pooling": "mean"}):
        model = Classifier(encoder, num_classes=2, rngs=rngs, **options)
        with pytest.raises(ValueError, match="pass pooling='first' and a pooler"):
            save_huggingface(model, tmp_path / "out")


def test_a_classifier_of_other_classes_is_written_and_read(bert, tmp_path):
    model = Classifier(Bert.load(bert).encoder, num_classes=5, pooler=True, rngs=nnx.Rngs(1))
    save_huggingface(model, tmp_path / "out")
    assert same(load_classifier(tmp_path / "out"), model)
    assert fields(tmp_path / "out")["id2label"]["4"] == "LABEL_4"
