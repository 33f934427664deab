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

from jaxpe import encodings
from jaxpe._core.errors import InputError, MissingExtraError
from jaxpe.data.tokens.pretrained import open_pretrained
from jaxpe.nn import load_causal_lm, with_encoding
from tests.nn.stored import HEAD_DIM, PARITY, change, converted, tensors, write, write_gguf
from tests.parity.test_transformers_models import real_directory
from tools.parity.make_gguf_models import IDS, REAL, SHOWN
from tools.parity.make_gguf_models import LLAMA_CASES as CASES
from tools.parity.make_gguf_models import PROMPTS as TEXTS

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


def test_a_gguf_is_the_directory_it_was_made_from(tmp_path, known):
    _, theirs = known
    path = write_gguf(tmp_path / "tiny.gguf", theirs)
    model, original = load_causal_lm(path), load_causal_lm(PARITY / "tiny_llama")
    assert same(model, original)
    np.testing.assert_allclose(logits(model), STORED["tiny_own"], rtol=0, atol=2e-5)
    folder = load_causal_lm(tmp_path)
    assert same(folder, model)


def test_a_gguf_with_other_metadata_or_without_an_output(tmp_path, known):
    """A factor alone is of positions, as llama.cpp takes it; without an output it is tied."""
    scaling = {"llama.rope.scaling.factor": 4.0}
    cases = {
        "linear": (known[1], {**scaling, "llama.rope.scaling.type": "linear"}),
        "factor": (known[1], scaling),
        "none": (known[1], {**scaling, "llama.rope.scaling.type": "none"}),
        "tied": ({k: t for k, t in known[1].items() if k != "output.weight"}, {}),
    }
    stored = {"factor": "tiny_linear", "none": "tiny_own"}
    for name, (found, metadata) in cases.items():
        model = load_causal_lm(write_gguf(tmp_path / "tiny.gguf", found, **metadata))
        expected = STORED[stored.get(name, f"tiny_{name}")]
        np.testing.assert_allclose(logits(model), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", ["Q4_1", "BF16"])
def test_a_quantised_gguf_is_read_as_the_numbers_it_stands_for(tmp_path, known, name):
    kind = gguf.GGMLQuantizationType[name]

    def rounded(x):
        return gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind) if x.ndim > 1 else x

    plain = write_gguf(tmp_path / "plain.gguf", {k: rounded(v) for k, v in known[1].items()})
    quantised = write_gguf(tmp_path / "quantised.gguf", known[1], kind=kind)
    model = load_causal_lm(quantised)
    assert same(model, load_causal_lm(plain))
    # The tiny model's own numbers are bfloat16.
    assert same(model, load_causal_lm(PARITY / "tiny_llama")) == (name == "BF16")


def test_another_encoding_takes_the_place_of_the_rotation(tiny, tmp_path, known):
    scaled = encodings.rope(head_dim=HEAD_DIM, base=100.0, scaling=encodings.LinearScaling(4.0))
    for source in (tiny, write_gguf(tmp_path / "tiny.gguf", known[1])):
        ours = logits(with_encoding(load_causal_lm(source), scaled, key=jax.random.key(0)))
        np.testing.assert_allclose(ours, STORED["tiny_linear"], rtol=0, atol=2e-5)


def test_options_leave_what_is_computed(tiny):
    wide = load_causal_lm(tiny, dtype=jnp.float64, param_dtype=jnp.float64, scan=False)
    assert logits(wide).dtype == np.float64
    np.testing.assert_allclose(logits(wide), STORED["tiny_own"], rtol=0, atol=2e-5)
    narrow = load_causal_lm(tiny, dtype=jnp.bfloat16, dropout=0.1)
    np.testing.assert_allclose(logits(narrow), STORED["tiny_own"], rtol=0, atol=0.3)
    assert narrow.decoder.config.dropout == 0.1


def test_directories_that_are_refused(tiny):
    original = (tiny / "config.json").read_text()
    for name, value in (
        ("model_type", "new"),
        ("hidden_act", "tanh"),
        ("attention_bias", True),
        ("sliding_window", 8),
        ("attn_logit_softcapping", 50.0),
        ("num_key_value_heads", "2"),
        ("num_key_value_heads", 3),
        ("rms_norm_eps", 0),
        ("rope_parameters", {"rope_type": "new"}),
        ("num_hidden_layers", 3),
        ("num_hidden_layers", 1),
        ("tie_word_embeddings", True),
        ("intermediate_size", 63),
    ):
        change(tiny, **{name: value})
        with pytest.raises(InputError):
            load_causal_lm(tiny)
        (tiny / "config.json").write_text(original)


def test_tensors_that_nothing_is_known_of(tiny, known):
    extra = {f"model.layers.0.self_attn.{n}_norm.weight": np.ones(16, np.float32) for n in "qk"}
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}
    write(tiny, known[0] | buffer)
    assert same(load_causal_lm(tiny), load_causal_lm(PARITY / "tiny_llama"))
    write(tiny, known[0] | extra)
    with pytest.raises(InputError, match="k_norm"):
        load_causal_lm(tiny)


def test_gguf_files_that_are_refused(tmp_path, known):
    def refused(wrong, extra=None, **changes):
        path = write_gguf(tmp_path / "tiny.gguf", known[1] | (extra or {}), **changes)
        with pytest.raises(InputError, match=wrong):
            load_causal_lm(path)

    refused("block_count", **{"llama.block_count": None})
    refused("head_count", **{"llama.attention.head_count": [4, 2]})
    refused("value_length", **{"llama.attention.value_length": 8})
    refused("logit_scale", **{"llama.logit_scale": 2.0})
    refused("blk.2", **{"llama.block_count": 3})
    refused("t5", architecture="t5")
    refused("divisors", {"rope_freqs.weight": np.zeros(8, np.float32)})
    refused("blk.0.attn_k.bias", {"blk.0.attn_q.bias": np.ones(64, np.float32)})
    refused("attn_qkv", {"blk.0.attn_qkv.weight": np.ones((128, 32), np.float32)})
    refused("output_norm", {"output_norm.weight": np.ones(32, np.int32)})


def test_paths_that_are_refused(tmp_path, known):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError):
            load_causal_lm(path)
    path = write_gguf(tmp_path / "a.gguf", known[1])
    (tmp_path / "b.gguf").write_bytes(path.read_bytes()[:-9])
    for path, wrong in ((tmp_path, "a.gguf, b.gguf"), (tmp_path / "b.gguf", "whole")):
        with pytest.raises(InputError, match=wrong):
            load_causal_lm(path)


def test_without_the_package_gguf(tmp_path, known, monkeypatch):
    path = write_gguf(tmp_path / "tiny.gguf", known[1])
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtraError, match="gguf"):
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
