"""Rules of single classes, with numbers that transformers 5.24 computed."""

import math

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.plans.scaling import inverse_frequencies

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
MPT = {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32}
MIMO = {"model_type": "mimo_v2_flash", "num_hidden_layers": 12, "sliding_window": 128}


def codes(found):
    return {one.code for one in found.findings}


def numbers(found):
    return {one.name: one.numbers[0] for one in found.programs if one.problem is None}


@pytest.mark.parametrize(("length", "factor"), [(4096, 1.1), (4097, 1.2433), (131_072, 1.2433)])
def test_phi_moe_has_a_factor_for_each_list(explain, length, factor):
    found = explain(PHIMOE, length=length)
    own = numbers(found)
    assert own["transformers 5.24"].attention_factor == factor
    assert own["transformers 4.57"].attention_factor == factor
    assert "keys_ignored" not in codes(found)


def test_phi_moe_has_one_list_in_the_newest_transformers(explain):
    """From 5.15 on, its table is built without the length of the text."""
    found = explain(PHIMOE, length=131_072)
    own, plain = numbers(found), inverse_frequencies(128)
    np.testing.assert_allclose(own["transformers 5.24"].frequencies, plain)
    for name in ("transformers 4.57", "vLLM 0.33", "SGLang 0.5.23"):
        np.testing.assert_allclose(own[name].frequencies, plain / 2)
    assert "frequencies_differ" in codes(found)


def test_phi_moe_needs_both_factors(explain):
    entry = {k: v for k, v in PHIMOE["rope_scaling"].items() if k != "short_mscale"}
    found = explain({**PHIMOE, "rope_scaling": entry})
    assert "short_mscale" in found.programs[0].problem


def test_an_unknown_text_model_is_not_judged(explain):
    text = {"model_type": "fancy", "hidden_size": 64, "num_attention_heads": 2}
    found = explain({"model_type": "llava", "text_config": text})
    assert found.status == "not judged"
    assert "fancy" in found.reason
    with pytest.raises(InputError, match="text_config"):
        explain({"model_type": "llava", "text_config": "x"})


@pytest.mark.parametrize(
    "fields",
    [
        {"layer_types": ["full_attention", "linear_attention"] * 2},
        {"layer_types": ["sliding_attention"] * 4, "sliding_window": 128},
    ],
)
def test_a_class_without_kinds_of_layers_ignores_their_list(explain, fields):
    found = explain({**LLAMA, **fields})
    (plan,) = found.groups
    assert (plan.kind, plan.window, plan.layers) == ("rotary", None, (0, 1, 2, 3))
    assert found.unread == tuple(fields)


def test_mistral_with_a_list_is_ministral(explain):
    fields = {**LLAMA, "model_type": "mistral", "sliding_window": 128}
    assert [plan.window for plan in explain(fields).groups] == [128]
    kinds = ["full_attention", "sliding_attention"] * 2
    found = explain({**fields, "layer_types": kinds})
    assert [plan.window for plan in found.groups] == [None, 128]
    assert found.unread == ()
    assert all(one.problem is None for one in found.programs)


def test_a_window_of_both_sides_is_half_on_each_and_the_query(explain):
    """Gemma 3 in transformers: sliding_window // 2 + 1 under `use_bidirectional_attention`."""
    fields = {**LLAMA, "model_type": "gemma3_text", "sliding_window": 512}
    found = explain({**fields, "use_bidirectional_attention": True})
    assert {(plan.window, plan.two_sided) for plan in found.groups if plan.window} == {(257, True)}


def test_kinds_of_layers_with_a_bias(explain):
    plans = {plan.name: plan for plan in explain({"model_type": "inkling2_text"}).groups}
    assert plans["hybrid"].layers == tuple(range(5, 48, 6))
    assert plans["hybrid_sliding"].window == 1024
    assert {plan.kind for plan in plans.values()} == {"bias"}


@pytest.mark.parametrize("name", ["laguna", "mellum", "muse_glimmer_assistant", "qwen3"])
def test_a_class_with_kinds_of_layers_reads_their_list(explain, name):
    kinds = ["sliding_attention", "full_attention"]
    found = explain({"model_type": name, "num_hidden_layers": 2, "layer_types": kinds})
    assert [plan.name for plan in found.groups] == kinds
    assert "layer_types" not in found.unread


def test_the_base_inside_of_attn_config(explain):
    found = explain(DBRX)
    bases = {name: one.base for name, one in numbers(found).items()}
    assert {name for name, base in bases.items() if base == 10_000} == {"transformers 5.24"}
    assert set(bases.values()) == {10_000, 500_000}
    assert "base_nested" in codes(found)
    assert "frequencies_differ" not in codes(found)
    assert "base_missing" not in codes(found)
    assert explain(DBRX, length=65_536).recipes == ()
    assert {one.base for one in numbers(explain(DBRX, base=1e6)).values()} == {1e6}
    beside = explain({**DBRX, "rope_theta": 500_000})
    assert {one.base for one in numbers(beside).values()} == {500_000}


def test_the_base_inside_of_attn_config_is_named_where_nothing_reads_it(explain):
    assert explain(DBRX, programs="transformers 5.24").unread == ("attn_config.rope_theta",)


def test_mpt_always_has_a_bias(explain):
    plain = {"alibi": True, "alibi_bias_max": 8, "rope": False}
    assert explain({**MPT, "attn_config": plain}).unread == ()
    found = explain({**MPT, "attn_config": {"alibi": False, "rope": True}})
    assert set(found.unread) == {"attn_config.alibi", "attn_config.rope"}
    assert [(plan.kind, len(plan.layers)) for plan in found.groups] == [("bias", 32)]


def test_a_switch_that_is_off_is_named(explain):
    assert explain({**LLAMA, "use_rope": False}).unread == ("use_rope",)
    assert explain({**LLAMA, "no_rope": False}).unread == ()


def test_parts_that_a_class_does_not_read(explain):
    entry = {"full_attention": {"rope_type": "default", "rope_theta": 5e5}}
    found = explain({**LLAMA, "rope_parameters": entry})
    assert numbers(found)["transformers 5.24"].base == 10_000
    assert "parts_lost" in codes(found)
    refused = explain({**LLAMA, "model_type": "qwen3", "rope_parameters": entry})
    assert refused.programs[0].problem is not None
    gemma = explain({**LLAMA, "model_type": "gemma3_text", "rope_parameters": entry})
    assert "parts_lost" not in codes(gemma)


@pytest.mark.parametrize(("size", "window"), [(128, 129), (64, 65), (None, 128)])
def test_the_window_of_mimo_counts_the_query(explain, size, window):
    found = explain({**MIMO, "sliding_window_size": size})
    plans = {plan.name: plan for plan in found.groups}
    assert plans["full_attention"].layers == (0, 5, 11)
    assert plans["sliding_attention"].window == window
    assert math.isclose(plans["sliding_attention"].frequencies[1], 0.7498942017555237, rel_tol=1e-6)


def test_a_list_that_repeats_the_layers_is_not_named(explain):
    same = [0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0]
    assert explain({**MIMO, "hybrid_layer_pattern": same}).unread == ()
    other = explain({**MIMO, "hybrid_layer_pattern": same[::-1]})
    assert other.unread == ("hybrid_layer_pattern",)


def test_zamba_2_needs_a_list_of_its_layers(explain):
    fields = {"model_type": "zamba2", "num_hidden_layers": 4}
    with pytest.raises(InputError, match="layers_block_type"):
        explain(fields)
    kinds = ["mamba", "hybrid"] * 2
    found = explain({**fields, "layers_block_type": kinds})
    assert {plan.name: plan.layers for plan in found.groups}["hybrid"] == (1, 3)
    assert sum(len(plan.layers) for plan in explain({"model_type": "zamba2"}).groups) == 54


@pytest.mark.parametrize(
    ("model_type", "window"),
    [
        ("modernbert", 65),  # half of local_attention, and itself: |i − j| ≤ 64
        ("ultrabert", 129),
        ("openai_privacy_filter", 129),
        ("embedding_gemma2_text", 513),
    ],
)
def test_windows_of_encoders_reach_to_both_sides(explain, model_type, window):
    """By `create_bidirectional_sliding_window_mask` of transformers 5.24."""
    found = explain({"model_type": model_type, "vocab_size": 9})
    assert (window, True) in {(one.window, one.two_sided) for one in found.groups}


def test_the_encoder_alone_sees_both_sides(explain):
    parts = {"encoder": {"sliding_window": 8}, "decoder": {"sliding_window": 8}}
    found = explain({"model_type": "t5gemma", **parts})
    windows = {(one.part, one.window, one.two_sided) for one in found.groups if one.window}
    assert windows == {("encoder", 9, True), ("decoder", 8, False)}


def test_windows_of_smollm3_are_of_the_layers_that_the_file_lists(explain):
    """Its mask has the window whatever `use_sliding_window` says."""
    kinds = ["full_attention", "sliding_attention"]
    fields = {"model_type": "smollm3", "num_hidden_layers": 2, "layer_types": kinds}
    found = explain({**fields, "sliding_window": 3, "use_sliding_window": False})
    assert [one.window for one in found.groups] == [None, 3]


@pytest.mark.parametrize(("model_type", "refused"), [("llama", True), ("stablelm", False)])
def test_a_scaled_part_of_a_head_needs_a_class_that_cuts_it(explain, model_type, refused):
    entry = {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}
    sizes = {"hidden_size": 64, "num_attention_heads": 4}
    found = explain({"model_type": model_type, **sizes, "rope_parameters": entry})
    assert bool(found.programs[0].problem) is refused
