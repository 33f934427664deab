"""Against HF transformers, x-transformers and the papers' formulas, from the files beside."""

import json
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxpe import alibi, cope, fire, kerple, shaw, t5, transformer_xl
from jaxpe.encodings import alibi_slopes, t5_buckets
from jaxpe.encodings.attention import attend
from jaxpe.encodings.attention_terms import attention_logits

HF, X, PAPERS = (
    dict(np.load(Path(__file__).with_name(f"{name}.npz")))
    for name in ("transformers_bias", "x_transformers", "papers")
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
        np.testing.assert_array_equal(ours, HF[f"explicit_t5_buckets_{setting}_{direction}"])


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


def test_t5_is_mpnet():
    offsets = HF["mpnet_relative_positions"]
    np.testing.assert_array_equal(t5_buckets(offsets), HF["mpnet_buckets"])
    i = np.arange(40)
    ours = biases(t5(num_heads=3), {"table": HF["t5_table"]}, i, i, 3, np.float32)
    np.testing.assert_array_equal(ours, HF["mpnet_bias"])


@pytest.mark.parametrize("heads", range(1, 65))
def test_alibi_slopes(heads):
    ours = alibi_slopes(heads)
    np.testing.assert_allclose(ours, HF["press_slopes"][heads - 1, :heads], rtol=1e-14)
    np.testing.assert_allclose(ours, HF["bloom_slopes"][heads - 1, :heads], rtol=1e-6)
    np.testing.assert_allclose(np.sort(ours), np.sort(HF["mpt_slopes"][heads - 1, :heads]), 1e-6)


@pytest.mark.parametrize("heads", [1, 5, 8, 12])
def test_alibi_of_x_transformers(heads):
    ours = biases(alibi(num_heads=heads), (), np.arange(3, 9), np.arange(9), heads)
    np.testing.assert_allclose(ours, X[f"alibi_{heads}_of_{heads}"], rtol=1e-6)


@pytest.mark.parametrize(("heads", "total"), [(4, 8), (3, 5)])
def test_alibi_on_some_heads_is_a_slope_of_zero(heads, total):
    slopes = np.concatenate([X[f"alibi_{heads}_of_{total}_slopes"], np.zeros(total - heads)])
    encoding = alibi(num_heads=total, slopes=slopes)
    ours = biases(encoding, (), np.arange(3, 9), np.arange(9), total)
    np.testing.assert_allclose(ours, X[f"alibi_{heads}_of_{total}"], rtol=1e-6)


def test_alibi_at_positions_in_any_order():
    i, x = X["alibi_positions"], np.zeros((2, 5, 3, 4))
    ours = jax.jit(alibi(num_heads=3).bias)((), x, x, i, i)
    np.testing.assert_allclose(ours, X["alibi_custom"], rtol=1e-6)


@pytest.mark.parametrize("heads", [8, 12])
def test_causal_alibi_of_bloom_up_to_what_softmax_does_not_see(heads):
    mask = HF["bloom_attention_mask"]
    j = np.maximum(np.cumsum(mask, -1) - 1, 0)
    x = np.zeros((2, 6, heads, 4))
    ours = np.asarray(jax.jit(alibi(num_heads=heads, causal=True).bias)((), x, x, j, j))
    theirs = np.broadcast_to(HF[f"bloom_bias_{heads}"], ours.shape)
    real = np.broadcast_to(mask[:, None, None, :] > 0, ours.shape)
    difference = np.where(real, ours - theirs, np.nan)
    assert (np.nanmax(difference, -1) - np.nanmin(difference, -1)).max() < 1e-6


@pytest.mark.parametrize("kind", ["log", "power"])
def test_kerple(kind):
    r1, r2 = PAPERS["explicit_kerple_r1"], PAPERS["explicit_kerple_r2"]
    params = {"log_r1": np.log(r1)}
    params |= {"log_r2": np.log(r2)} if kind == "log" else {"logit_r2": np.log(r2 / (2 - r2))}
    i = np.arange(12)
    ours = biases(kerple(num_heads=3, kind=kind), params, i, i, 3)
    np.testing.assert_allclose(ours, PAPERS[f"explicit_kerple_{kind}_bias"], atol=1e-12)


@pytest.mark.parametrize("case", json.loads(str(PAPERS["explicit_fire_cases"])))
def test_fire(case):
    params = {
        "log_c": np.log(case["c"]),
        "log_threshold": np.log(case["threshold"]),
        "weight_in": PAPERS["explicit_fire_w1"],
        "bias_in": PAPERS["explicit_fire_b1"],
        "weight_out": PAPERS["explicit_fire_w2"].T,
        "bias_out": PAPERS["explicit_fire_b2"],
    }
    i = np.arange(12)
    ours = biases(fire(num_heads=3), params, i, i, 3)
    theirs = PAPERS[f"explicit_fire_{case['name']}_bias"]
    causal = ~np.isnan(theirs)
    np.testing.assert_allclose(ours[causal], theirs[causal], atol=1e-12)


@pytest.mark.parametrize("rows", [3, 16])
def test_cope(rows):
    q, k = (PAPERS[f"explicit_cope_{name}"] for name in "qk")
    params = {"table": PAPERS[f"explicit_cope_{rows}_table"]}
    bias = jax.jit(cope(head_dim=8, max_positions=rows).bias)
    theirs = PAPERS[f"explicit_cope_{rows}_bias"]
    ours = bias(params, q, k, np.arange(12), np.arange(12))
    np.testing.assert_allclose(ours, np.nan_to_num(theirs), atol=1e-12)

    q, k = (X[f"cope_{name}"].swapaxes(1, 2) for name in "qk")
    params = {"table": X[f"cope_{rows}_table"]}
    ours = bias(params, q, k, np.arange(10), np.arange(10))
    np.testing.assert_allclose(ours, np.tril(X[f"cope_{rows}_bias"]), atol=1e-12)


@partial(jax.jit, static_argnums=0)
def attention(encoding, params, q, k, v, *, mask=None, **where):
    """Logits and outputs."""
    logits = attention_logits(encoding, params, q, k, **where)
    return logits, attend(encoding, params, q, k, v, mask=mask, **where)


def test_shaw():
    peer = [HF[f"explicit_shaw_{name}"] for name in ("q", "k", "v")]
    params = {f"{part}_table": HF[f"explicit_shaw_table_{part[0]}"] for part in ("key", "value")}
    where = {"q_positions": np.arange(9), "k_positions": np.arange(9)}
    logits, out = attention(shaw(head_dim=4, max_distance=3), params, *peer, **where)
    np.testing.assert_allclose(logits, HF["explicit_shaw_logits"], atol=1e-12)
    np.testing.assert_allclose(out, HF["explicit_shaw_outputs"], atol=1e-12)


def test_shaw_keys_are_wav2vec2_berts_where_it_clips_less():
    q = HF["wav2vec2_bert_q"]
    left, right = HF["wav2vec2_bert_clip"]
    table = HF["wav2vec2_bert_table"]
    both = np.concatenate([table, np.repeat(table[-1:], left - right, axis=0)])
    encoding = shaw(head_dim=4, max_distance=int(left), values=False)
    i = np.arange(len(q))
    ours = jax.jit(encoding.bias)({"key_table": both}, q, q, i, i)
    np.testing.assert_allclose(ours, HF["wav2vec2_bert_bias"], atol=1e-12)


def transformer_xl_params(peer):
    return {
        "projection": peer("projection").transpose(2, 0, 1),
        "content_bias": peer("u"),
        "position_bias": peer("v"),
    }


@pytest.mark.parametrize("name", ["txl", "txl_memory"])
def test_transformer_xl(name):
    def peer(key):
        return HF[f"explicit_{name}_{key}"]

    q, k, value = (peer(key) for key in ("q", "k", "value"))
    encoding = transformer_xl(num_heads=2, head_dim=4)
    where = {"q_positions": np.arange(len(k) - len(q), len(k)), "k_positions": np.arange(len(k))}
    params, where["mask"] = transformer_xl_params(peer), peer("causal_mask")
    logits, out = attention(encoding, params, q, k, value, **where)
    np.testing.assert_allclose(logits, peer("logits"), atol=1e-12)
    np.testing.assert_allclose(out, peer("causal_outputs"), atol=1e-12)


def test_transformer_xl_without_a_mask_is_xlnet():
    def peer(key):
        return HF[f"xlnet_{key}"]

    q, k, value = (peer(key) for key in ("q", "k", "value"))
    where = {"q_positions": np.arange(7), "k_positions": np.arange(7)}
    encoding, params = transformer_xl(num_heads=2, head_dim=4), transformer_xl_params(peer)
    _, out = attention(encoding, params, q, k, value, **where)
    # XLNet's sinusoids are float32.
    np.testing.assert_allclose(out, peer("outputs").reshape(out.shape), atol=2e-6)
