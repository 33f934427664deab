"""Llamas of Hugging Face and of llama.cpp: read, replaced in part, and refused."""

import functools
import shutil
import sys

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxpe
from jaxpe._core.errors import InputError, MissingExtraError
from jaxpe._core.gguf import read_gguf
from jaxpe.data.tokens.pretrained import open_pretrained
from jaxpe.nn import generate, load_causal_lm, with_encoding
from tests.nn.stored import HEAD_DIM, PARITY, change, converted, tensors, write, write_gguf
from tests.parity.test_transformers_models import real_directory
from tools.parity.make_llama import CASES, IDS, REAL, SHOWN, TEXTS

STORED = dict(np.load(PARITY / "llama.npz"))


@functools.partial(jax.jit, static_argnums=0)
def _logits(graphdef, params, ids):
    return nnx.merge(graphdef, params)(ids).logits


def logits(model, ids=IDS):
    return np.asarray(_logits(*nnx.split(model, nnx.Param), ids))


def same(one, other):
    leaves = [jax.tree.leaves(nnx.state(model, nnx.Param)) for model in (one, other)]
    return all(np.array_equal(a, b) for a, b in zip(*leaves, strict=True))


@pytest.fixture
def tiny(tmp_path):
    """A copy of the tiny model."""
    shutil.copytree(PARITY / "tiny_llama", tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.fixture(scope="module")
def known():
    """The tiny model's tensors, and those of its .gguf."""
    found = tensors(PARITY / "tiny_llama")
    return found, converted(found)


@pytest.fixture(scope="module")
def smollm():
    """The folder of the real model, the model and its tokenizer."""
    folder = real_directory(REAL)
    tokenizer = open_pretrained(folder).model
    return folder, load_causal_lm(folder), tokenizer


@pytest.mark.parametrize("case", CASES)
def test_a_directory_computes_as_in_transformers(tiny, case):
    change(tiny, **CASES[case])
    if case == "tied":
        write(tiny, {k: v for k, v in tensors(tiny).items() if k != "lm_head.weight"})
    np.testing.assert_allclose(
        logits(load_causal_lm(tiny)), STORED[f"tiny_{case}"], rtol=0, atol=2e-5
    )
    assert case == "own" or np.abs(STORED["tiny_own"] - STORED[f"tiny_{case}"]).max() > 1


def test_a_configuration_from_before_version_5(tiny):
    scaling = dict(CASES["llama3"]["rope_parameters"])
    theta = scaling.pop("rope_theta")
    change(tiny, rope_parameters=None, rope_scaling=scaling, rope_theta=theta)
    ours = logits(load_causal_lm(tiny))
    np.testing.assert_allclose(ours, STORED["tiny_llama3"], rtol=0, atol=2e-5)


def test_a_gguf_is_the_directory_it_was_made_from(tmp_path, known):
    _, theirs = known
    path = write_gguf(tmp_path / "tiny.gguf", theirs)
    model, original = load_causal_lm(path), load_causal_lm(PARITY / "tiny_llama")
    assert same(model, original)
    np.testing.assert_allclose(logits(model), STORED["tiny_own"], rtol=0, atol=2e-5)
    folder = load_causal_lm(tmp_path)
    assert same(folder, model)


def test_a_gguf_without_an_output_is_tied(tmp_path, known):
    theirs = {name: tensor for name, tensor in known[1].items() if name != "output.weight"}
    model = load_causal_lm(write_gguf(tmp_path / "tiny.gguf", theirs))
    np.testing.assert_allclose(logits(model), STORED["tiny_tied"], rtol=0, atol=2e-5)


def test_a_gguf_with_linear_scaling(tmp_path, known):
    scaling = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    model = load_causal_lm(write_gguf(tmp_path / "tiny.gguf", known[1], **scaling))
    np.testing.assert_allclose(logits(model), STORED["tiny_linear"], rtol=0, atol=2e-5)


def test_a_factor_alone_is_of_positions(tmp_path, known):
    """As llama.cpp takes it."""
    path = write_gguf(tmp_path / "tiny.gguf", known[1], **{"llama.rope.scaling.factor": 4.0})
    np.testing.assert_allclose(
        logits(load_causal_lm(path)), STORED["tiny_linear"], rtol=0, atol=2e-5
    )
    unscaled = {"llama.rope.scaling.factor": 4.0, "llama.rope.scaling.type": "none"}
    path = write_gguf(tmp_path / "tiny.gguf", known[1], **unscaled)
    np.testing.assert_allclose(logits(load_causal_lm(path)), STORED["tiny_own"], rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", ["Q8_0", "Q4_1", "F16", "BF16"])
def test_a_quantised_gguf_is_read_as_the_numbers_it_stands_for(tmp_path, known, name):
    kind = gguf.GGMLQuantizationType[name]

    def rounded(x):
        return gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind) if x.ndim > 1 else x

    plain = write_gguf(tmp_path / "plain.gguf", {k: rounded(v) for k, v in known[1].items()})
    quantised = write_gguf(tmp_path / "quantised.gguf", known[1], kind=kind)
    model = load_causal_lm(quantised)
    assert same(model, load_causal_lm(plain))
    # The tiny model's own numbers are bfloat16, none too small for float16.
    assert same(model, load_causal_lm(PARITY / "tiny_llama")) == (name in ("F16", "BF16"))


KINDS = ("Q4_0", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4")


def test_other_kinds_of_quantisation_are_those_of_the_package(tmp_path):
    """Of 256 numbers a row, with a scale that is finite."""
    writer = gguf.GGUFWriter(tmp_path / "kinds.gguf", "llama")
    random = np.random.default_rng(0)
    for name in KINDS:
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
        content = random.integers(0, 60, (2, 256 // block * size), np.uint8)
        writer.add_tensor(name, content, raw_dtype=gguf.GGMLQuantizationType[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensors = read_gguf(tmp_path / "kinds.gguf")[1]
    for name in KINDS:
        numbers = tensors[name].read()
        assert numbers.shape == (2, 256)
        assert numbers.dtype == np.float32
        assert 0 < np.abs(numbers).max() < np.inf
        theirs = gguf.quants.dequantize(tensors[name].data, gguf.GGMLQuantizationType[name])
        np.testing.assert_array_equal(numbers, theirs)


def test_another_encoding_takes_the_place_of_the_rotation(tiny, tmp_path, known):
    scaled = jaxpe.rope(head_dim=HEAD_DIM, base=100.0, scaling=jaxpe.encodings.LinearScaling(4.0))
    for source in (tiny, write_gguf(tmp_path / "tiny.gguf", known[1])):
        ours = logits(with_encoding(load_causal_lm(source), scaled, key=jax.random.key(0)))
        np.testing.assert_allclose(ours, STORED["tiny_linear"], rtol=0, atol=2e-5)
    wide = load_causal_lm(tiny, param_dtype=jnp.float64)
    table = with_encoding(wide, jaxpe.learned(length=12, dim=32), key=jax.random.key(0))
    params = table.decoder.encoding_params.get_value()["table"]
    assert params.shape == (12, 32)
    assert params.dtype == jnp.float64


def test_options_leave_what_is_computed(tiny):
    wide = load_causal_lm(tiny, dtype=jnp.float64, param_dtype=jnp.float64, scan=False)
    assert logits(wide).dtype == np.float64
    np.testing.assert_allclose(logits(wide), STORED["tiny_own"], rtol=0, atol=2e-5)
    narrow = load_causal_lm(tiny, dtype=jnp.bfloat16, dropout=0.1)
    np.testing.assert_allclose(logits(narrow), STORED["tiny_own"], rtol=0, atol=0.3)
    assert narrow.decoder.config.dropout == 0.1
    with pytest.raises(ValueError, match="dropout is 2"):
        load_causal_lm(tiny, dropout=2.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "new"}, "model_type is 'new', .*; llama, mistral"),
        ({"hidden_act": "tanh"}, "hidden_act is 'tanh', which changes .*'silu', 'swish'"),
        ({"attention_bias": True}, "missing are layers.0.self_attn.k_proj.bias"),
        ({"sliding_window": 8}, "has sliding_window, which this architecture does not"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0, which changes"),
        ({"num_local_experts": 8}, "num_local_experts is 8, which changes"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}"),
        ({"num_key_value_heads": "2"}, "num_key_value_heads is '2', not an integer"),
        ({"num_key_value_heads": 3}, "4 query heads cannot share 3 key heads"),
        ({"rms_norm_eps": 0}, r"rms_norm_eps is 0; pass 1\.17.*e-38 to 3"),
        ({"attention_dropout": -1}, "attention_dropout is -1; pass 0 to 0.999"),
        ({"rope_parameters": {"rope_type": "new"}}, "refuses .*: KeyError: 'new' is no rope_type"),
        ({"rope_parameters": "yarn"}, "rope_parameters is 'yarn', not an object"),
        ({"num_hidden_layers": 3}, "missing are layers.2.self_attn.k_proj.weight, layers.2"),
        ({"num_hidden_layers": 1}, "the tensors model.layers.1"),
        ({"tie_word_embeddings": True}, "lm_head.weight differs from embed_tokens.weight"),
        ({"intermediate_size": 63}, r"gate_proj.weight has shape \(64, 32\), not \(63, 32\)"),
    ],
)
def test_directories_that_are_refused(tiny, changes, message):
    change(tiny, **changes)
    with pytest.raises(InputError, match=message):
        load_causal_lm(tiny)


def test_tensors_that_nothing_is_known_of(tiny, known):
    extra = {f"model.layers.0.self_attn.{n}_norm.weight": np.ones(16, np.float32) for n in "qk"}
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}
    write(tiny, known[0] | buffer)
    assert same(load_causal_lm(tiny), load_causal_lm(PARITY / "tiny_llama"))
    write(tiny, known[0] | extra)
    with pytest.raises(InputError, match=r"tensors model.layers.0.self_attn.k_norm.weight, model"):
        load_causal_lm(tiny)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"llama.block_count": None}, "has no llama.block_count"),
        ({"llama.attention.head_count": [4, 2]}, r"head_count is \[4, 2\], not one number"),
        ({"llama.attention.value_length": 8}, "llama.attention.value_length is 8; only 16 is"),
        ({"llama.expert_count": 8}, "llama.expert_count is 8; only 0 is supported"),
        ({"llama.logit_scale": 2.0}, "logit_scale is 2.0, which changes"),
        ({"llama.block_count": 3}, "missing are blk.2.attn_k.weight, blk.2"),
        ({"architecture": "t5"}, "general.architecture is 't5'; llama"),
    ],
)
def test_gguf_files_that_are_refused(tmp_path, known, changes, message):
    write_gguf(tmp_path / "tiny.gguf", known[1], **changes)
    with pytest.raises(InputError, match=message):
        load_causal_lm(tmp_path)


def test_tensors_of_a_gguf_that_are_refused(tmp_path, known):
    factors = {"rope_freqs.weight": np.zeros(8, np.float32)}
    with pytest.raises(InputError, match="has divisors that are not positive"):
        load_causal_lm(write_gguf(tmp_path / "a.gguf", known[1] | factors))
    bias = {"blk.0.attn_q.bias": np.ones(64, np.float32)}
    with pytest.raises(InputError, match=r"missing are blk.0.attn_k.bias, blk.1.attn_k.bias"):
        load_causal_lm(write_gguf(tmp_path / "b.gguf", known[1] | bias))
    fused = {"blk.0.attn_qkv.weight": np.ones((128, 32), np.float32)}
    with pytest.raises(InputError, match=r"the tensors blk.0.attn_qkv.weight"):
        load_causal_lm(write_gguf(tmp_path / "b.gguf", known[1] | fused))
    whole = {"output_norm.weight": np.ones(32, np.int32)}
    with pytest.raises(InputError, match=r"norm.weight is I32, not floating-point numbers"):
        load_causal_lm(write_gguf(tmp_path / "c.gguf", known[1] | whole))
    double = {"output_norm.weight": np.ones(32)}
    with pytest.raises(InputError, match=r"output_norm.weight is F64, which gguf cannot read"):
        load_causal_lm(write_gguf(tmp_path / "d.gguf", known[1] | double))


def test_paths_that_are_refused(tmp_path, known):
    with pytest.raises(InputError, match=r"nowhere does not exist"):
        load_causal_lm(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"has neither a .gguf file nor config.json"):
        load_causal_lm(tmp_path)
    path = write_gguf(tmp_path / "a.gguf", known[1])
    (tmp_path / "b.gguf").write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"holds a.gguf, b.gguf: pass the path of one of them"):
        load_causal_lm(tmp_path)
    with pytest.raises(InputError, match=r"b.gguf is not a whole .gguf file \(.*fetch it again"):
        load_causal_lm(tmp_path / "b.gguf")
    (tmp_path / "c.gguf").write_text("no such thing")
    with pytest.raises(InputError, match=r"c.gguf is not a whole .gguf file"):
        load_causal_lm(tmp_path / "c.gguf")


def test_without_the_package_gguf(tmp_path, known, monkeypatch):
    path = write_gguf(tmp_path / "tiny.gguf", known[1])
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'jaxpe\[gguf\]'"):
        load_causal_lm(path)
    assert load_causal_lm(PARITY / "tiny_llama").decoder.config.num_layers == 2


def test_real_text_becomes_the_tokens_of_llama_cpp(smollm):
    tokenizer = smollm[2]
    for number, text in enumerate(TEXTS):
        ids = tokenizer.encode(text).ids
        assert ids == STORED[f"tokens_{number}"].tolist()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert tokenizer.encode("".join(special)).ids == [0, 1, 2]


def test_real_logits(smollm):
    ours = logits(smollm[1], STORED["tokens_1"][None])[0, list(SHOWN)]
    assert np.argmax(ours, axis=-1).tolist() == STORED["likeliest"][:, 0].tolist()
    shown = np.take_along_axis(ours, STORED["likeliest"].astype(np.int64), axis=1)
    np.testing.assert_allclose(shown, STORED["transformers"], rtol=0, atol=2e-4)
    # llama.cpp gives log-probabilities, whose sum over the vocabulary it has to 2e-4.
    ratios = STORED["llama_cpp"] - STORED["llama_cpp"][:, :1]
    np.testing.assert_allclose(shown - shown[:, :1], ratios, rtol=0, atol=2e-4)
    total = np.log(np.exp(ours.astype(np.float64)).sum(-1, keepdims=True))
    np.testing.assert_allclose(shown - total, STORED["llama_cpp"], rtol=0, atol=1e-3)


def test_real_text_goes_on(smollm):
    _, model, tokenizer = smollm
    prompt = np.array([tokenizer.encode(TEXTS[0]).ids], np.int32)
    ids = np.asarray(generate(model, prompt, steps=2))[0]
    assert [tokenizer.id_to_token(number) for number in ids] == ["ĠParis", "."]


def test_real_tokens_by_path(smollm):
    corpus = jaxpe.data.Corpus("two", [TEXTS[0], "Paris"])
    tokens = jaxpe.data.tokenize(corpus, tokenizer=smollm[0], length=5)
    assert tokens.ids[0].tolist() == STORED["tokens_0"].tolist()
    assert tokens.vocab_size == 49152
