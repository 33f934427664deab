"""Against HF transformers and x-transformers, from the files beside."""

from pathlib import Path

import jax
import numpy as np
import pytest

from jaxpe.encodings import alibi, cope, shaw, t5, transformer_xl
from jaxpe.encodings.attention import attend
from jaxpe.encodings.families.bias import alibi_slopes, t5_buckets

HF, X = (
    dict(np.load(Path(__file__).with_name(f"{name}.npz")))
    for name in ("transformers_bias", "x_transformers")
)


def biases(encoding, params, i, j, heads, dtype=np.float64):
    """The bias of an encoding that does not look at q and k."""
    q, k = np.zeros((len(i), heads, 4), dtype), np.zeros((len(j), heads, 4), dtype)
    return np.asarray(jax.jit(lambda params, q, k: encoding.bias(params, q, k, i, j))(params, q, k))


@pytest.mark.parametrize("setting", ["32_128", "16_64", "32_256", "64_1024"])
@pytest.mark.parametrize("direction", ["bidirectional", "causal"])
def test_t5_buckets(setting, direction):
    num_buckets, max_distance = map(int, setting.split("_"))
    options = {
        "num_buckets": num_buckets,
        "max_distance": max_distance,
        "bidirectional": direction == "bidirectional",
    }
    offsets = HF["t5_relative_positions"]
    for dtype in (np.int64, np.float32):
        ours = jax.jit(lambda offsets: t5_buckets(offsets, **options))(offsets.astype(dtype))
        np.testing.assert_array_equal(ours, HF[f"t5_buckets_{setting}_{direction}"])


@pytest.mark.parametrize("direction", ["bidirectional", "causal"])
def test_t5_bias(direction):
    encoding = t5(num_heads=3, bidirectional=direction == "bidirectional")
    i = np.arange(40)
    ours = biases(encoding, {"table": HF["t5_table"]}, i, i, 3, np.float32)
    np.testing.assert_array_equal(ours, HF[f"t5_bias_{direction}"])
    cached = biases(encoding, {"table": HF["t5_table"]}, 40 + i[:5], np.arange(45), 3, np.float32)
    np.testing.assert_array_equal(cached, HF[f"t5_bias_{direction}_cached"])
    theirs = {"table": X["t5_table"]}
    np.testing.assert_array_equal(
        biases(encoding, theirs, i, i, 3, np.float32), X[f"t5_{direction}_40_40"]
    )
    np.testing.assert_array_equal(
        biases(encoding, theirs, np.arange(197, 200), np.arange(200), 3, np.float32),
        X[f"t5_{direction}_3_200"],
    )


def test_alibi_slopes():
    for heads in range(1, 65):
        ours = alibi_slopes(heads)
        np.testing.assert_allclose(ours, HF["bloom_slopes"][heads - 1, :heads], rtol=1e-6)
        mpt = np.sort(HF["mpt_slopes"][heads - 1, :heads])
        np.testing.assert_allclose(np.sort(ours), mpt, rtol=1e-6)


@pytest.mark.parametrize("heads", [1, 5])
def test_alibi_of_x_transformers(heads):
    ours = biases(alibi(num_heads=heads), (), np.arange(3, 9), np.arange(9), heads)
    np.testing.assert_allclose(ours, X[f"alibi_{heads}_of_{heads}"], rtol=1e-6)


def test_alibi_at_positions_in_any_order():
    i, x = X["alibi_positions"], np.zeros((2, 5, 3, 4))
    ours = jax.jit(alibi(num_heads=3).bias)((), x, x, i, i)
    np.testing.assert_allclose(ours, X["alibi_custom"], rtol=1e-6)


def test_causal_alibi_of_bloom_up_to_what_softmax_does_not_see():
    heads = 12
    mask = HF["bloom_attention_mask"]
    j = np.maximum(np.cumsum(mask, -1) - 1, 0)
    x = np.zeros((2, 6, heads, 4))
    ours = np.asarray(jax.jit(alibi(num_heads=heads, causal=True).bias)((), x, x, j, j))
    theirs = np.broadcast_to(HF[f"bloom_bias_{heads}"], ours.shape)
    real = np.broadcast_to(mask[:, None, None, :] > 0, ours.shape)
    difference = np.where(real, ours - theirs, np.nan)
    assert (np.nanmax(difference, -1) - np.nanmin(difference, -1)).max() < 1e-6


def test_shaw_keys_are_wav2vec2_berts_where_it_clips_less():
    q = HF["wav2vec2_bert_q"]
    left, right = HF["wav2vec2_bert_clip"]
    table = HF["wav2vec2_bert_table"]
    both = np.concatenate([table, np.repeat(table[-1:], left - right, axis=0)])
    encoding = shaw(head_dim=4, max_distance=int(left), values=False)
    i = np.arange(len(q))
    ours = jax.jit(encoding.bias)({"key_table": both}, q, q, i, i)
    np.testing.assert_allclose(ours, HF["wav2vec2_bert_bias"], atol=1e-12)


@pytest.mark.parametrize("rows", [3, 16])
def test_cope(rows):
    q, k = (X[f"cope_{name}"].swapaxes(1, 2) for name in "qk")
    bias, i = jax.jit(cope(head_dim=8, max_positions=rows).bias), np.arange(10)
    ours = bias({"table": X[f"cope_{rows}_table"]}, q, k, i, i)
    np.testing.assert_allclose(ours, np.tril(X[f"cope_{rows}_bias"]), atol=1e-12)


def test_transformer_xl_without_a_mask_is_xlnet():
    peer = {key.removeprefix("xlnet_"): x for key, x in HF.items() if key.startswith("xlnet_")}
    params = {
        "projection": peer["projection"].transpose(2, 0, 1),
        "content_bias": peer["u"],
        "position_bias": peer["v"],
    }
    where = {"q_positions": np.arange(7), "k_positions": np.arange(7)}
    encoding = transformer_xl(num_heads=2, head_dim=4)
    out = jax.jit(lambda *heads: attend(encoding, params, *heads, **where))(
        *(peer[name] for name in ("q", "k", "value"))
    )
    # XLNet's sinusoids are float32.
    np.testing.assert_allclose(out, peer["outputs"].reshape(out.shape), atol=2e-6)
