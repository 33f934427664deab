"""Kinds of layers and numbers of single classes, as transformers 5.24 runs them.

Some files were made at random, and once read wrongly.
"""

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.plans.scaling import inverse_frequencies
from tests.plans.conftest import NEWEST, OLD, SGLANG, VLLM, by_program, codes, read

PUBLISHED = read("published")
FULL, SLIDING, INDEXED = "full_attention", "sliding_attention", "indexed_attention"
LINEAR = "linear_attention"
KINDS = [FULL, SLIDING] * 2
SIZES = {
    "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4,
    "max_position_embeddings": 512,
}  # fmt: skip
NARROW = {**SIZES, "head_dim": 16}
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 4,
    "max_position_embeddings": 8192, "rope_theta": 10_000.0,
}  # fmt: skip
PHIMOE = {
    "model_type": "phimoe", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 2,
    "max_position_embeddings": 131_072, "original_max_position_embeddings": 4096,
    "rope_theta": 10_000.0,
    "rope_scaling": {
        "type": "longrope", "long_factor": [2.0] * 64, "short_factor": [1.0] * 64,
        "long_mscale": 1.2433, "short_mscale": 1.1, "original_max_position_embeddings": 4096,
    },
}  # fmt: skip
DBRX = {
    "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32_768,
    "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500_000},
}  # fmt: skip
MPT = {"d_model": 4096, "n_heads": 32, "n_layers": 32}
MIMO = {"num_hidden_layers": 12, "sliding_window": 128}
PATTERN = [0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0]
GPTJ = {"n_embd": 64, "n_head": 4, "n_layer": 2, "rotary_dim": 8, "n_positions": 512}
OTHER = {"rope_type": "default", "rope_theta": 777.0}
BASE = {"rope_type": "default", "rope_theta": 1e6}
YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "rope_theta": 1e6,
}  # fmt: skip
BLOCKS = {"num_hidden_layers": 6, "block_types": ["recurrent", "recurrent", "attention"]}


def turns(base, turning, **more):
    return {"kind": "rotary", "base": base, "turning": turning, **more}


def layers(*indices, **more):
    return {"layers": indices, **more}


STILL = {"turning": 0}
# Type, fields, quantities by kind of layer (not always all kinds), and keys that no rule uses.
PLANS = [
    # Bases and rotated entries.
    ("gptj", {**GPTJ, "rope_theta": 100.0}, {FULL: turns(1e4, 8)}),
    ("gptj", {"n_embd": 4096, "n_head": 16, "rotary_dim": 64, "n_layer": 28, "n_positions": 2048},
     {FULL: turns(1e4, 64, head_dim=256, pairing="interleaved", layers=tuple(range(28)))}),
    ("codegen", {**GPTJ, "rope_parameters": YARN}, {FULL: turns(1e4, 8)}, ("rope_parameters",)),
    ("roformer", {**SIZES, "rope_theta": 100.0}, {FULL: turns(1e4, 16)}, ("rope_theta",)),
    ("esm", {**SIZES, "position_embedding_type": "rotary", "rope_theta": 100.0,
             "rope_parameters": OTHER}, {FULL: turns(100, 16)}),
    ("gemma3_text", {**NARROW, "rope_parameters": {SLIDING: None, FULL: OTHER},
                     "sliding_window_pattern": 2}, {FULL: turns(777, 16), SLIDING: turns(1e4, 16)}),
    ("gemma3_text", {**NARROW, "rope_parameters": {SLIDING: OTHER, FULL: None},
                     "sliding_window_pattern": 2}, {FULL: turns(1e6, 16), SLIDING: turns(777, 16)}),
    ("olmo3", {**SIZES, "rope_parameters": {SLIDING: None, FULL: OTHER}},
     {FULL: turns(777, 16), SLIDING: turns(500_000, 16)}),
    ("olmo3", {**SIZES, "rope_theta": 1e6}, {FULL: turns(1e6, 16), SLIDING: turns(5e5, 16)}),
    ("beam", {**NARROW, "rope_scaling": {FULL: OTHER, SLIDING: BASE}},
     {FULL: turns(777, 16), SLIDING: turns(1e6, 16)}),
    ("mimo_v2_flash", {**SIZES, "head_dim": 24, "rope_parameters": {FULL: YARN, SLIDING: OTHER}},
     {FULL: turns(1e6, 24), SLIDING: turns(777, 8)}),
    ("dots3_note_text", {**SIZES, "qk_rope_head_dim": 8},
     {INDEXED: turns(8e7, 8), f"{INDEXED}, indexer": turns(8e7, 8), SLIDING: turns(5e4, 64)}),
    ("dots3_note_text", {**SIZES, "swa_head_dim": 32, "swa_qk_nope_head_dim": 20},
     {INDEXED: turns(8e7, 64), f"{INDEXED}, indexer": turns(8e7, 64), SLIDING: turns(5e4, 12)}),
    ("jetmoe", {**SIZES, "head_dim": 8, "kv_channels": 16}, {FULL: turns(1e4, 8)}),
    ("olmo_hybrid", SIZES, {LINEAR: STILL, FULL: turns(1e4, 16)}),
    ("olmo_hybrid", {**SIZES, "rope_parameters": {FULL: None, LINEAR: OTHER}},
     {LINEAR: STILL, FULL: STILL}),
    ("olmo_hybrid", {**SIZES, "rope_theta": None}, {LINEAR: STILL, FULL: STILL}),
    ("nemotron_h", {**SIZES, "hybrid_override_pattern": "M*M*", "rope_parameters": {FULL: OTHER}},
     {LINEAR: STILL, FULL: STILL}),
    # Counts and kinds of layers; a name of all models precedes the name of a class.
    ("gptj", {**GPTJ, "num_hidden_layers": 3}, {FULL: layers(0, 1, 2)}),
    ("exaone", {**SIZES, "num_layers": 3}, {FULL: layers(0, 1, 2)}),
    ("gpt2", {"n_layer": 3}, {FULL: layers(0, 1, 2, kind="table")}),
    ("mpt", {"n_layers": 2}, {FULL: layers(0, 1, kind="bias")}),
    ("t5", {"num_layers": 2}, {FULL: layers(0, 1, kind="bias")}),
    ("longcat_flash", {"num_layers": 2}, {FULL: layers(0, 1)}),
    ("cohere2_moe", {"num_hidden_layers": 9, "first_k_dense_replace": 1},
     {FULL: layers(0, 4, 8), SLIDING: layers(1, 2, 3, 5, 6, 7)}),
    ("cohere2_moe", {"num_hidden_layers": 9, "first_k_dense_replace": 3,
                     "prefix_dense_sliding_window_pattern": 2},
     {FULL: layers(1, 6), SLIDING: layers(0, 2, 3, 4, 5, 7, 8)}),
    ("recurrent_gemma", BLOCKS, {LINEAR: layers(0, 1, 3, 4), SLIDING: layers(2, 5)}),
    ("deepseek_v4", {"num_hidden_layers": 6, "compress_ratios": [128, 128, 4, 128, 4, 128]},
     {"heavily_compressed_attention": layers(0, 1, 3, 5),
      "compressed_sparse_attention": layers(2, 4)}),
    ("zamba2", {"num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid"] * 2},
     {"hybrid": layers(1, 3)}),
    ("inkling2_text", {}, {"hybrid": layers(*range(5, 48, 6), kind="bias"),
                           "hybrid_sliding": {"window": 1024, "kind": "bias"}}),
    # Lists of kinds: Mistral with one is Ministral; a class without kinds ignores it.
    ("llama", {**LLAMA, "layer_types": [FULL, LINEAR] * 2},
     {FULL: layers(0, 1, 2, 3, kind="rotary", window=None)}, ("layer_types",)),
    ("llama", {**LLAMA, "layer_types": [SLIDING] * 4, "sliding_window": 128},
     {FULL: layers(0, 1, 2, 3, kind="rotary", window=None)}, ("layer_types", "sliding_window")),
    ("mistral", {**LLAMA, "sliding_window": 128}, {FULL: {"window": 128}}),
    ("mistral", {**LLAMA, "sliding_window": 128, "layer_types": KINDS},
     {FULL: {"window": None}, SLIDING: layers(1, 3, window=128)}),
    *((name, {"num_hidden_layers": 2, "layer_types": [SLIDING, FULL], "sliding_window": 8,
               "use_sliding_window": True},
       {SLIDING: layers(0), FULL: layers(1)})
      for name in ("laguna", "mellum", "muse_glimmer_assistant", "qwen3")),
    # Windows. That of MiMo counts the query; a list that repeats the layers is not named.
    *(("mimo_v2_flash", {**MIMO, "sliding_window_size": size},
       {FULL: layers(0, 5, 11), SLIDING: {"window": window}})
      for size, window in ((128, 129), (64, 65), (None, 128))),
    ("mimo_v2_flash", {**MIMO, "hybrid_layer_pattern": PATTERN}, {}, ()),
    ("mimo_v2_flash", {**MIMO, "hybrid_layer_pattern": PATTERN[::-1]}, {},
     ("hybrid_layer_pattern",)),
    # Of both sides: sliding_window // 2 + 1 under `use_bidirectional_attention`; else |i − j| ≤ w.
    ("gemma3_text", {**LLAMA, "sliding_window": 512,
                     "use_bidirectional_attention": True},
     {SLIDING: {"window": 257, "two_sided": True}}),
    *((name, {}, {SLIDING: {"window": window, "two_sided": True}}) for name, window in (
        ("modernbert", 65), ("ultrabert", 129), ("embedding_gemma2_text", 513))),
    ("openai_privacy_filter", {}, {FULL: {"window": 129, "two_sided": True}}),
    # The mask of SmolLM3 has the window whatever `use_sliding_window` says.
    ("smollm3", {"num_hidden_layers": 2, "layer_types": [FULL, SLIDING], "sliding_window": 3,
                 "use_sliding_window": False}, {FULL: {"window": None}, SLIDING: {"window": 3}}),
    # Switches and keys without effect.
    ("llama", {**LLAMA, "use_rope": False}, {}, ("use_rope",)),
    ("llama", {**LLAMA, "no_rope": False}, {}, ()),
    ("mpt", {**MPT, "attn_config": {"alibi": True, "alibi_bias_max": 8, "rope": False}},
     {FULL: {"kind": "bias"}}, ()),
    ("mpt", {**MPT, "attn_config": {"alibi": False, "rope": True}}, {FULL: {"kind": "bias"}},
     ("attn_config.rope", "attn_config.alibi")),
    ("hunyuan_vl_text", {"head_dim": 128, "rope_scaling": {
        "type": "xdrope", "alpha": 1000.0, "factor": 1.0, "xdrope_section": [16, 16, 16, 16]}},
     {FULL: {"sections": (16, 16, 16, 16)}}, ()),
]  # fmt: skip


@pytest.mark.parametrize("case", PLANS, ids=[f"{i} {one[0]}" for i, one in enumerate(PLANS)])
def test_plans_of_layers(explain, case):
    model_type, fields, expected, *unread = case
    found = explain({**fields, "model_type": model_type}, programs=NEWEST)
    assert found.programs[0].problem is None
    groups = {one.name: one for one in found.groups}
    for name, quantities in expected.items():
        values = {what: getattr(groups[name], what) for what in quantities}
        assert values == quantities, name
    assert not unread or found.unread == unread[0]


def test_llama_4_turns_within_its_chunks_in_three_layers_of_four(explain):
    plans = {plan.kind: plan for plan in explain(PUBLISHED["Llama 4 Scout"]).groups}
    assert plans["none"].layers == tuple(range(3, 48, 4))
    assert len(plans["rotary"].layers) == 36
    assert plans["rotary"].reach == plans["rotary"].window == 8192
    assert plans["rotary"].kept + plans["rotary"].divided == 64  # low = high: nothing between
    assert plans["none"].query_factor == pytest.approx(1.7155, rel=1e-4)
    assert plans["rotary"].query_factor == 1.0


def test_gemma_3_has_two_kinds_of_layers(explain):
    full, sliding = sorted(explain(PUBLISHED["Gemma 3 4B"]).groups, key=lambda one: one.name)
    assert (len(full.layers), full.trained, full.divided) == (5, 131_072, 128)
    assert (len(sliding.layers), sliding.trained, sliding.kept) == (29, 1024, 128)


def test_the_encoder_alone_sees_both_sides(explain):
    parts = {"encoder": {"sliding_window": 8}, "decoder": {"sliding_window": 8}}
    found = explain({"model_type": "t5gemma", **parts})
    windows = {(one.part, one.window, one.two_sided) for one in found.groups if one.window}
    assert windows == {("encoder", 9, True), ("decoder", 8, False)}


@pytest.mark.parametrize(("length", "divisor", "factor"), [(4096, 1, 1.1), (4097, 2, 1.2433)])
def test_phi_moe_has_a_list_and_a_factor_for_each_length(explain, length, divisor, factor):
    """From 5.15 on, the table of transformers is built without the length of the text."""
    found = explain(PHIMOE, length=length)
    own, plain = by_program(found), inverse_frequencies(128)
    assert own[NEWEST].attention_factor == own[OLD].attention_factor == factor
    np.testing.assert_allclose(own[NEWEST].frequencies, plain)
    for name in (OLD, VLLM, SGLANG):
        np.testing.assert_allclose(own[name].frequencies, plain / divisor)
    assert ("frequencies_differ" in codes(found)) == (divisor == 2)
    entry = {k: v for k, v in PHIMOE["rope_scaling"].items() if k != "short_mscale"}
    assert "short_mscale" in explain({**PHIMOE, "rope_scaling": entry}).programs[0].problem


def test_the_base_inside_of_attn_config(explain):
    found = explain(DBRX)
    bases = {name: one.base for name, one in by_program(found).items()}
    assert {name for name, base in bases.items() if base == 10_000} == {NEWEST}
    assert set(bases.values()) == {10_000, 500_000}
    assert "base_nested" in codes(found)
    assert not {"frequencies_differ", "base_missing"} & codes(found).keys()
    assert explain(DBRX, length=65_536).recipes == ()
    for fields, options in ((DBRX, {"base": 500_000.0}), ({**DBRX, "rope_theta": 500_000}, {})):
        beside = by_program(explain(fields, **options))
        assert {one.base for one in beside.values()} == {500_000}
    assert explain(DBRX, programs=NEWEST).unread == ("attn_config.rope_theta",)


def test_parts_that_a_class_does_not_read(explain):
    entry = {FULL: {"rope_type": "default", "rope_theta": 5e5}}
    found = explain({**LLAMA, "rope_parameters": entry})
    assert by_program(found)[NEWEST].base == 10_000
    assert "parts_lost" in codes(found)
    refused = explain({**LLAMA, "model_type": "qwen3", "rope_parameters": entry})
    assert refused.programs[0].problem is not None
    gemma = explain({**LLAMA, "model_type": "gemma3_text", "rope_parameters": entry})
    assert "parts_lost" not in codes(gemma)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "zamba2", "num_hidden_layers": 4}, "layers_block_type"),
        ({"model_type": "llava", "text_config": "x"}, "text_config"),
    ],
)
def test_fields_that_a_class_needs(explain, fields, message):
    with pytest.raises(InputError, match=message):
        explain(fields)
