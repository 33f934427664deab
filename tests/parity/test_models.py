"""Tiny checkpoints of every architecture against what transformers computes of them."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from flax import nnx

from jaxpe._core.errors import InputError
from jaxpe.analysis.inspect.flax_model import FlaxModel
from jaxpe.nn import (
    load_causal_lm,
    load_masked_lm,
    load_model,
    load_seq2seq_lm,
)
from jaxpe.nn.checkpoints.encodings import read_plans
from jaxpe.nn.checkpoints.model_config import find_architecture
from tests.nn.models import one_key
from tests.nn.stored import change, tensors, write
from tests.parity.tiny_models import decoder_errors, encoder_errors
from tools.parity.make_models import ANSWERS, CHANGED_IDS, DECODERS, ENCODERS, FOLDER, HERE
from tools.parity.make_models import CHANGED as CASES
from tools.parity.make_models import write_changed as write_case

TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def _quickly():
    """Weights come from files: what they would begin with is not drawn."""
    with one_key():
        yield


# One of each kind of cache and of positions in it; the others differ in what no cache looks at.
CACHES = (*("llama", "gpt2", "bloom", "phi3", "gemma3", "smollm3", "cohere2"),)


@pytest.mark.parametrize("name", DECODERS)
def test_decoders(name, tmp_path):
    errors = decoder_errors(name, tmp_path, cached=name in CACHES)
    assert {key: error for key, error in errors.items() if error > TOLERANCE} == {}


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders(name, tmp_path):
    errors = encoder_errors(name, tmp_path)
    assert {key: error for key, error in errors.items() if error > TOLERANCE} == {}


CHANGED = dict(np.load(HERE / "changed_models.npz"))


def changed_logits(folder, case):
    ids, others, wide = CHANGED_IDS.astype(np.int32), (), {}
    load = load_masked_lm if case.base in ENCODERS else load_causal_lm
    if case.base.startswith("tiny"):
        load, others = load_seq2seq_lm, (ANSWERS.astype(np.int32),)
        wide = {"dtype": jnp.float64, "param_dtype": jnp.float64}
    graphdef, params = nnx.split(load(folder, **wide))
    return jax.jit(lambda p, *rows: nnx.merge(graphdef, p)(*rows).logits)(params, ids, *others)


@pytest.mark.parametrize("name", CASES)
def test_other_fields_and_heads_are_those_of_transformers(name, tmp_path):
    """Fields that are stored and not used, tied and untied heads, in and out of the file."""
    logits = changed_logits(write_case(CASES[name], tmp_path / "case"), CASES[name])
    np.testing.assert_allclose(logits, CHANGED[name], rtol=0, atol=TOLERANCE)


def test_names_of_the_text_in_a_model_of_images(tmp_path):
    """Those of Mistral 3, and those of Qwen3.5; tensors of images are ignored."""
    shutil.copytree(FOLDER / "mistral3", tmp_path / "other")
    found = tensors(FOLDER / "mistral3")
    others = {"language_model.model.": "model.language_model.", "vision_tower.": "model.visual."}
    for one, other in others.items():
        found = {name.replace(one, other): x for name, x in found.items()}
    write(tmp_path / "other", found | {"mtp.fc.weight": np.ones((2, 2), np.float32)})
    models = [load_causal_lm(folder) for folder in (FOLDER / "mistral3", tmp_path / "other")]
    jax.tree.map(np.testing.assert_array_equal, *(nnx.state(m, nnx.Param) for m in models))
    assert "reads images" in FlaxModel(models[1]).left_out
    assert FlaxModel(models[1]).context(tmp_path / "other") == 32
    write(tmp_path / "other", found | {"model.memory": np.ones(2, np.float32)})
    with pytest.raises(InputError, match="memory"):
        load_causal_lm(tmp_path / "other")


def test_modernbert_of_transformers_4_has_a_base_for_each_kind_of_layer(tmp_path):
    folder = tmp_path / "modernbert"
    shutil.copytree(FOLDER / "modernbert", folder)
    change(folder, rope_parameters=None, global_rope_theta=400.0, local_rope_theta=50.0)
    bases = {plan.name: plan.base for plan in read_plans(folder, find_architecture(folder))}
    assert bases == {"full_attention": 400.0, "sliding_attention": 50.0}


@pytest.mark.parametrize("name", ["roberta", "modernbert", "bert"])
def test_masked_language_models_with_other_heads_are_refused(name, tmp_path):
    """By the field, where the file lacks the head; by the tensor, where it has another."""
    folder = tmp_path / name
    shutil.copytree(FOLDER / name if name in ENCODERS else HERE / f"tiny_{name}", folder)
    whole = tensors(folder)
    table = next(
        k for k in whole if k.endswith(("word_embeddings.weight", "tok_embeddings.weight"))
    )
    decoder = {
        "modernbert": "decoder",
        "roberta": "lm_head.decoder",
    }.get(name, "cls.predictions.decoder")
    change(folder, tie_word_embeddings=False)
    with pytest.raises(InputError, match=f"{decoder}.weight"):
        load_masked_lm(folder)
    others = [{f"{decoder}.weight": 2 * whole[table]}]
    if name != "modernbert":
        bias = decoder.replace("decoder", "bias")
        others += [{f"{decoder}.bias": whole[bias] + 1, f"{decoder}.weight": whole[table]}]
    for truth in (True, False):
        change(folder, tie_word_embeddings=truth)
        for tensor in others:
            write(folder, whole | tensor)
            with pytest.raises(InputError, match="tie_word_embeddings"):
                load_masked_lm(folder)


MODELS_OF_TORCH = (
    *("mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3", "qwen3_next", "qwen3_5", "lfm2"),
    *("gemma4", "llama4", "deberta-v2", "phimoe"),
)


@pytest.mark.parametrize("model_type", MODELS_OF_TORCH)
def test_models_that_are_run_by_torch(model_type, tmp_path):
    """One error says which are loaded, and the command that runs the others."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    for load in (load_causal_lm, load_masked_lm, load_seq2seq_lm, load_model):
        with pytest.raises(InputError, match="jaxpe inspect"):
            load(tmp_path)
    assert find_architecture(tmp_path) is None  # `jaxpe inspect` then asks torch


# Fields that would change what a model computes, and are not supported; or do not fit the tensors.
REFUSED = [
    ("gemma2", "layer_types", ["full_attention"]),
    ("gemma3", "layer_types", ["full_attention", "local"] * 2),
    ("gemma2", "query_pre_attn_scalar", 0),
    ("gemma2", "use_bidirectional_attention", True),
    ("esm", "position_embedding_type", "relative_key"),
    ("llama", "logits_scaling", 8.0),
    ("llama", "num_local_experts", 8),
    ("qwen2", "attn_logit_softcapping", 30.0),
    ("gpt2", "scale_attn_by_inverse_layer_idx", True),
    ("bloom", "apply_residual_connection_post_layernorm", True),
    ("roberta", "hidden_act", "relu"),
    ("opt", "word_embed_proj_dim", 8),
    ("llama", "tie_word_embeddings", True),
    ("gemma", "tie_word_embeddings", False),
    ("cohere", "use_qk_norm", True),
    ("granite", "residual_multiplier", 0),
]


@pytest.mark.parametrize(("name", "field", "value"), REFUSED)
def test_configurations_that_are_refused(name, field, value, tmp_path):
    shutil.copytree(FOLDER / name, tmp_path / name)
    change(tmp_path / name, **{field: value})
    with pytest.raises(InputError, match="local" if "local" in str(value) else field):
        load_model(tmp_path / name)


def test_weights_that_do_not_fit_are_refused(tmp_path):
    for name, changes, word in (
        ("gpt_neox", {"attention_bias": False}, "tensors"),
        ("qwen3", {"head_dim": 4}, "q_norm"),
        ("llama", {"quantization_config": {"quant_method": "fp8"}}, "FP8"),
    ):
        shutil.copytree(FOLDER / name, tmp_path / name)
        change(tmp_path / name, **changes)
        with pytest.raises(InputError, match=word):
            load_model(tmp_path / name)


def test_shards_are_one_model_unless_one_is_cut_off(tmp_path):
    shutil.copytree(FOLDER / "gpt2", tmp_path / "gpt2")
    folder, found = tmp_path / "gpt2", tensors(FOLDER / "gpt2")
    (folder / "model.safetensors").unlink()
    places = {name: f"part-{i % 2}.safetensors" for i, name in enumerate(sorted(found))}
    for file in set(places.values()):
        part = {name: tensor for name, tensor in found.items() if places[name] == file}
        safetensors.numpy.save_file(part, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    whole, sharded = (nnx.state(load_causal_lm(f), nnx.Param) for f in (FOLDER / "gpt2", folder))
    jax.tree.map(np.testing.assert_array_equal, whole, sharded)
    cut = folder / "part-1.safetensors"
    cut.write_bytes(cut.read_bytes()[:-100])
    with pytest.raises(InputError, match="part-1"):
        load_causal_lm(folder)
