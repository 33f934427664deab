"""Findings on published configurations, and on what users reported to go wrong."""

import json
import math

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.results import load_result, result_files
from jaxpe.plans import RopeAnalysis, RopeOptions, explain_rope, read_config
from jaxpe.plans.checks import texts
from jaxpe.plans.scaling import inverse_frequencies
from tests.plans.conftest import by_program, codes, read

PUBLISHED = read("published")
QWEN3, V5 = PUBLISHED["Qwen3 8B"], "a v5 entry, read by v4 (vllm-project/vllm#44158)"
CONFIGS = PUBLISHED | read("reported")
CONFIGS["dynamic scaling of its own length"] = {
    **PUBLISHED["Llama 2 7B"], "rope_scaling": {"type": "dynamic", "factor": 2.0}
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}
CONFIGS["YaRN with an attention factor"] = {
    **QWEN3, "rope_scaling": {**YARN, "attention_factor": 1.0}
}  # fmt: skip

# Code of a finding, the configuration that users reported, and a number or key that it must tell.
FOUND = [
    ("base_of_class_missing", "Gemma 3 4B", "1,000,000"),
    ("base_missing", "Llama 2 7B", "10,000"),
    ("unseen_by_4", V5, "500,000"),
    ("unseen_by_4", "YaRN in rope_parameters alone (sgl-project/sglang#26187)", "yarn"),
    ("share_ignored", "a share of a head in the entry", "partial_rotary_factor"),
    ("entries_differ", "both entries", "factor"),
    ("types_differ", "type and rope_type", "dynamic"),
    ("type_unknown", "a name of YaRN (vllm-project/vllm#56446)", "telechat3-yarn"),
    ("unread", "a misspelt key", "original_max_position_embeddings?"),
    ("keys_ignored", "gpt-oss 120B", "truncate"),
    ("keys_ignored", "YaRN with an attention factor", "1.139"),
    ("mscale_alone", "mscale alone", "mscale_all_dim"),
    ("frequencies_differ", "a share of a head in the entry", "64"),
    ("length_is_scaled", "DeepSeek-V3", "163,840"),
    ("lengths_contradict", "two lengths that contradict", "131,072"),
    ("original_missing", "YaRN without L0 (huggingface/transformers#33783)", "32,768"),
    ("dynamic_original", "dynamic scaling of Llama 3.1 (vllm-project/vllm#10537)", "131,072"),
    ("dynamic_length", "dynamic scaling of its own length", ""),
    ("query_factor_differs", "Ministral 3 8B", "1.277"),
    ("query_factor", "Llama 4 Scout", "1.716"),
    ("logit_factor_differs", "DeepSeek-V2-Lite", "1.59"),
    ("logit_factor", "DeepSeek-V3", "1.874"),
    ("length_multiplied", "Gemma 3 4B", "1,048,576"),
    ("kinds_of_layers", "Gemma 3 4B", "1,000,000"),
    ("linear_original", "Gemma 3 4B", "131,072"),
    ("scaling_with_sections", "YaRN beside sections (jundot/omlx#3347)", "mrope_section"),
    ("low_precision", "Llama 2 7B", "float16"),
    ("float32_precision", "Llama 4 Scout", "0.68"),
    ("refused_by_some", "Ministral 3 8B", "transformers 4.57"),
]
ELSEWHERE = {
    "attention_factor_reset", "base_nested", "base_of_gguf_missing", "beyond_context",
    "beyond_own_scaling", "beyond_scaling", "flat_entry_lost", "longrope_lists", "own_code",
    "own_dynamic", "pairing_differs", "parts_lost", "refused", "reported", "second_base_lost",
    "attention_factor_differs", "factors_missing", "turning_differs", "unlikely",
}  # fmt: skip
PLAIN = ("Llama 3.2 1B", "Qwen2 7B", "Qwen3 8B", "Pythia 160M")
QUIET = {"low_precision", "float32_precision", "kinds_of_layers", "reported", "refused_by_some"}
WRONG = {"refused", "type_unknown", "types_differ", "entries_differ", "dynamic_original"}


@pytest.mark.parametrize("name", CONFIGS)
def test_reported_configurations_are_told(explain, name):
    """ "wrong" is said of a file that contradicts itself, or that transformers 5 refuses."""
    result = explain(CONFIGS[name])
    found = codes(result)
    for code, _, word in (row for row in FOUND if row[1] == name):
        assert word in f"{found[code].text} {found[code].remedy}"
        assert found[code].remedy
    wrong = {code for code, one in found.items() if one.severity == "wrong"}
    assert wrong <= WRONG
    assert ("refused" in wrong) == (result.programs[0].problem is not None)
    assert result.disagreements or "reported" not in found
    if name in PLAIN:
        narrowed = explain(CONFIGS[name], programs="transformers,vllm 0.33,llama.cpp")
        assert codes(narrowed).keys() <= QUIET


def test_every_finding_has_a_configuration_in_the_tests():
    assert {code for code, _, _ in FOUND} | ELSEWHERE == set(texts())


# Type, fields, options, findings that are told, and findings that are not.
QWEN = {
    "model_type": "qwen", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
    "seq_length": 8192, "rotary_emb_base": 10_000, "max_position_embeddings": 32_768,
    "use_dynamic_ntk": True,
}  # fmt: skip
FLAT = {
    **PUBLISHED["Gemma 3 4B"]["text_config"], "model_type": "gemma3_text", "rope_scaling": None,
    "rope_parameters": {"rope_type": "yarn", "rope_theta": 5e6, "factor": 4.0},
}  # fmt: skip
MINICPM = {
    "model_type": "minicpm3", "qk_rope_head_dim": 32, "max_position_embeddings": 131_072,
    "rope_scaling": {
        "type": "longrope", "original_max_position_embeddings": 4096,
        "short_factor": [1.0] * 16, "long_factor": [2.0] * 16,
    },
}  # fmt: skip
MSCALE = CONFIGS["mscale alone"]
STRETCHED = json.dumps({**YARN, "original_max_position_embeddings": 40_960})
THIRDS = '{"rope_type": "linear", "factor": 3}'
BIAS = {"model_type": "mpt", "n_layers": 2, "n_heads": 4, "d_model": 64, "max_seq_len": 2048}
TOLD = {
    # An attention factor takes the place of mscale, and settings leave it out.
    "mscale unused": (
        {**MSCALE, "rope_scaling": {**MSCALE["rope_scaling"], "attention_factor": 1.0}}, {},
        set(), {"mscale_alone"}),
    "factor left out": (
        {**QWEN3, "max_position_embeddings": 131_072,
         "rope_scaling": {**YARN, "attention_factor": 1.2}},
        {"length": 262_144}, {"attention_factor_reset"}, set()),
    # llama.cpp's graph of MiniCPM 3 has no factor of longrope on cos and sin.
    "no factor": (MINICPM, {}, {"attention_factor_differs"}, set()),
    "own code": (QWEN, {}, {"own_dynamic"}, {"unread"}),
    "flat entry": (FLAT, {}, {"flat_entry_lost"}, set()),
    "base beside": (
        {"model_type": "olmo3", "num_hidden_layers": 4, "rope_theta": 1e6}, {},
        {"second_base_lost"}, set()),
    "share": (
        {**PUBLISHED["Llama 3.2 1B"], "rope_scaling": None, "partial_rotary_factor": 0.5}, {},
        {"share_ignored"}, set()),
    # Phases that training did not have; with thirds, rounding is no new phase.
    "within": (QWEN3, {"length": 40_960}, set(), {"beyond_scaling", "beyond_context"}),
    "beyond": (QWEN3, {"length": 163_840}, {"beyond_scaling"}, set()),
    "scaled": (QWEN3, {"length": 163_840, "scaling": STRETCHED}, set(), {"beyond_scaling"}),
    "thirds": (
        QWEN3, {"length": 3 * 40_960, "scaling": THIRDS}, {"beyond_context"},
        {"beyond_own_scaling"}),
    "beyond thirds": (
        QWEN3, {"length": 4 * 40_960, "scaling": THIRDS}, {"beyond_own_scaling"}, set()),
    "llama3": (PUBLISHED["Llama 3.1 8B"], {"length": 262_144}, {"beyond_own_scaling"}, set()),
    # No phase is new, and yet the text is longer than the file says.
    "windows": ({"model_type": "cohere2"}, {"length": 1_000_000}, {"beyond_context"}, set()),
    "bias": (BIAS, {"length": 4096}, {"beyond_context"}, {"beyond_scaling", "beyond_own_scaling"}),
    # transformers raises "Unrecognized model identifier" for kimi_k2.
    "code of a checkpoint": (
        {"model_type": "kimi_k2", "hidden_size": 7168, "num_attention_heads": 64,
         "num_hidden_layers": 61, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}, {},
        {"own_code"}, set()),
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_findings_follow_the_numbers(explain, name):
    fields, options, told, untold = TOLD[name]
    found = explain(fields, **options)
    assert told <= codes(found).keys()
    assert not untold & codes(found).keys()
    if "length" in options and found.widest is not None:
        beyond = codes(found).keys() & {"beyond_scaling", "beyond_own_scaling"}
        assert bool(found.widest.unseen) == bool(beyond)


@pytest.mark.parametrize(
    ("key", "value"),
    # DeepSeek-R1-0528-Qwen3-8B: 1 instead of 0.1·ln 4 + 1
    [("attn_factor", 0.8782488562869419), ("extrapolation_factor", 0.5)],
)
def test_a_key_that_one_program_reads_is_ignored_by_the_others(explain, key, value):
    """vLLM 0.33.0 has none of these keys, and transformers never had."""
    found = codes(explain({**QWEN3, "rope_scaling": {**YARN, key: value}}))
    used, ignored = found["keys_ignored"].text.split(" and ignored by ")
    assert "SGLang" in used
    assert all(name in ignored for name in ("transformers 5.24", "vLLM 0.33", "llama.cpp"))
    assert not found.keys() & {"attention_factor_differs", "frequencies_differ", "unread"}


def test_keys_that_no_rule_computes_with_are_named(explain):
    for key in ("use_fope", "a_key_of_nobody"):
        entry = {"type": "default", key: True}
        found = explain({**PUBLISHED["Llama 3.2 1B"], "rope_scaling": entry})
        assert found.unread == (f"rope_scaling.{key}",)
    found = explain({**QWEN3, "rope_thetas": 1e6, "swa_rope_theta": 1e4})
    assert found.unread == ("rope_thetas", "swa_rope_theta")
    assert "swa_rope_theta" in codes(found)["unread"].text


def test_a_length_is_set_by_the_option_of_the_program_that_multiplies_it(explain):
    """SGLang multiplies that of Gemma 3; both servers a linear one."""
    remedy = codes(explain(CONFIGS["Gemma 3 4B"]))["length_multiplied"].remedy
    assert "--max-model-len" not in remedy
    linear = {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    remedy = codes(explain(PUBLISHED["Qwen2 7B"] | linear))["length_multiplied"].remedy
    assert "--max-model-len 131072" in remedy
    assert "--context-length 131072" in remedy


def test_wavelengths_against_the_context(explain):
    """Llama 3.1: 29 of 64 frequencies complete no rotation in 8,192 positions; all are divided by
    8, and at 131,072 = 16 × 8,192 their phases are twice those of training."""
    plan = explain(PUBLISHED["Llama 3.1 8B"]).groups[0]
    wavelengths = 2 * math.pi * 5e5 ** (np.arange(0, 128, 2) / 128)
    assert plan.never_round == int((wavelengths > 8192).sum()) == 29
    assert plan.divided == plan.unseen == 29
    assert plan.kept == int((wavelengths < 8192 / 4).sum())
    assert plan.never_round_at_reach == int((2 * math.pi / plan.frequencies > 131_072).sum())
    fields = {**PUBLISHED["Llama 3.1 8B"], "max_position_embeddings": 65_536}
    assert explain(fields).groups[0].unseen == 0


def test_a_type_without_rules_is_not_judged(explain):
    found = explain({"model_type": "of_my_own", "head_dim": 64, "max_position_embeddings": 2048})
    assert found.status == "not judged"
    assert "of_my_own" in found.reason
    assert found.groups == ()
    text = {"model_type": "fancy", "hidden_size": 64, "num_attention_heads": 2}
    assert explain({"model_type": "llava", "text_config": text}).status == "not judged"
    assert explain({"model_type": "rwkv7", "hidden_size": 2048}).groups == ()
    assert explain({}).groups == ()


def test_options_are_a_configuration_or_replace_fields(explain):
    options = {"head_dim": 64, "base": 1e4, "context": 2048}
    found = explain_rope(RopeOptions(**options, scaling='{"type": "linear", "factor": 4.0}'))
    expected = inverse_frequencies(64, base=1e4) / 4
    np.testing.assert_allclose(found.groups[0].frequencies, expected)
    assert (found.form, found.status) == ("options", "judged")
    found = by_program(explain(CONFIGS[V5], base=1e6))
    assert {one.base for one in found.values()} == {1e6}


def test_the_plan_of_a_program():
    """A v5 base is lost in version 4."""
    config = read_config(CONFIGS[V5])
    newest, old = (config.plan(name)[0] for name in ("transformers 5", "transformers 4"))
    assert (newest.base, old.base) == (5e5, 1e4)
    assert not np.allclose(newest.frequencies, old.frequencies)
    with pytest.raises(InputError, match="transformers 5"):
        config.plan("a program of my own")


@pytest.mark.parametrize("name", ["Ministral 3 8B", "Gemma 3 4B", "Llama 4 Scout"])
def test_the_result_is_written_and_read_again(explain, tmp_path, name):
    found = explain(PUBLISHED[name])
    for file, content in result_files(found, "rope").items():
        (tmp_path / file).write_bytes(content)
    again = load_result(RopeAnalysis, tmp_path / "rope.json")
    assert again.findings == found.findings
    assert again.disagreements == found.disagreements
    for one, other in zip(again.groups, found.groups, strict=True):
        np.testing.assert_array_equal(one.frequencies, other.frequencies)


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ({"model_type": "llama", "hidden_size": None}, {}, "head_dim"),
        ({**QWEN3}, {"head_dim": 64}, "head_dim"),  # a width for all, where the file has one
        ({"head_dim": True}, {}, "whole"),
        ({"head_dim": 64, "rope_scaling": [4]}, {}, "rope_scaling"),
        ({"head_dim": 64, "rope_theta": "big"}, {}, "rope_theta"),
        ({"head_dim": 2**20}, {}, "65,536"),
        ({"model_type": 3}, {}, "name"),
        ({"model_type": "qwen3", "layer_types": [1]}, {}, "layer_types"),
        ({"model_type": "qwen3", "layer_types": ["full_attention"]}, {}, "32"),
        ({"head_dim": 64}, {"length": 1}, "length"),
        ({"head_dim": 64}, {"scaling": "[1]"}, "object"),
        ({"head_dim": 64}, {"scaling": "{"}, "JSON"),
        ({"head_dim": 64}, {"base": 0.5}, "base"),
    ],
)
def test_bad_configurations_are_refused(explain, fields, options, message):
    with pytest.raises(InputError, match=message):
        explain(fields, **options)


def test_nothing_asked_and_nothing_there_are_refused(tmp_path):
    for options in ({}, {"config": str(tmp_path)}, {"head_dim": 127}):
        with pytest.raises(InputError):
            explain_rope(RopeOptions(**options))
