"""Files of llama.cpp of every family against what transformers and llama.cpp compute of them."""

import gguf
import jax
import numpy as np
import pytest
from flax import nnx

from jaxpe._core.errors import InputError
from jaxpe.nn import load_causal_lm
from jaxpe.nn.checkpoints.encodings import read_plans
from jaxpe.nn.checkpoints.gguf_weights import ARCHITECTURES, model_fields, read_gguf_model
from jaxpe.plans.gguf_fields import read_gguf_file
from tests.nn.stored import tensors
from tests.parity.tiny_models import GGUF, HF, gguf_errors
from tools.parity.make_gguf_models import CASES, FOLDER, config_of, write_gguf_model

OWN = [name for name, (_, changes) in CASES.items() if not changes]
GELU = ("gemma", "gemma2", "gemma3", "gptneox", "gpt2", "bloom", "phi2", "starcoder2")


def written(path, name, **options):
    return write_gguf_model(path, name, tensors(FOLDER / CASES[name][0]), **options)


@pytest.mark.parametrize("name", CASES)
def test_logits(name, tmp_path):
    """llama.cpp has GELU by tanh, in half precision: what that changes is 8e-4 to 1.8e-3."""
    errors = gguf_errors(name, tmp_path)
    assert errors["transformers"] < 1e-5
    assert errors["llama_cpp"] < (2.5e-3 if name in GELU else 1e-5)


def test_every_family_is_among_the_cases():
    assert CASES.keys() - {"llama3"} == ARCHITECTURES.keys()
    acts = {"silu", "relu2"}
    assert (
        tuple(name for name in CASES if not acts & set(map(str, config_of(name).values()))) == GELU
    )
    for name in OWN:
        found = GGUF[f"{name}_transformers"]
        np.testing.assert_allclose(found, HF[f"{CASES[name][0]}_logits"], rtol=0, atol=1e-5)


def test_projections_that_are_fused(tmp_path):
    """As the first files of Phi have them; llama.cpp computes the same of both."""
    paths = [written(tmp_path / f"{fused}.gguf", "phi2", fused=fused) for fused in (False, True)]
    one, other = (nnx.state(load_causal_lm(path), nnx.Param) for path in paths)
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_entries_that_are_left_out(tmp_path):
    """What llama.cpp takes instead, not what transformers takes where a config.json has none."""
    entries = ("rope.freq_base", "attention.head_count_kv", "attention.key_length")
    entries += ("attention.value_length",)
    path = written(tmp_path / "a.gguf", "gemma3", without=entries)
    row, fields, _, _ = read_gguf_model(path)
    assert {plan.base for plan in read_plans(path, row)} == {
        50,
        10_000,
    }  # of windows, and of others
    assert fields.get("num_key_value_heads") is None  # as many as queries
    assert fields["head_dim"] == 4
    path = written(tmp_path / "b.gguf", "gemma3", without=("attention.sliding_window",))
    assert [plan.window for plan in read_plans(path, row)] == [None]
    path = written(tmp_path / "c.gguf", "gemma3", without=("feed_forward_length",))
    with pytest.raises(InputError, match=r"has no gemma3.feed_forward_length"):
        load_causal_lm(path)


def test_queries_of_the_largest_gemmas_are_scaled_by_dim(tmp_path):
    """Of Gemma 3 27B by dim / heads, of Gemma 3 12B by the width of a head."""
    for layers, dim, heads, head_dim, scalar in (
        (48, 3840, 16, 256, 256),
        (62, 5376, 32, 128, 168),
    ):
        path = tmp_path / f"{layers}.gguf"
        write_sizes(path, "gemma3", layers, dim, heads, head_dim)
        fields = model_fields(path, ARCHITECTURES["gemma3"], read_gguf_file(path))
        assert fields["query_pre_attn_scalar"] == scalar


def write_sizes(path, name, layers, dim, heads, head_dim):
    """A file of metadata alone."""
    entries = {
        "embedding_length": dim,
        "block_count": layers,
        "feed_forward_length": 4 * dim,
        "attention.head_count": heads,
        "attention.key_length": head_dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.sliding_window": 4096,
    }
    writer = gguf.GGUFWriter(path, name)
    for key, value in entries.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{name}.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def test_a_model_does_not_change_with_its_file(tmp_path):
    path = written(tmp_path / "tiny.gguf", "phi2")
    model = load_causal_lm(path)
    before = [np.array(leaf) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))]
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    after = jax.tree.leaves(nnx.state(model, nnx.Param))
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
