"""Findings on published configurations, and on what users reported to go wrong."""

import json
import math

import ml_dtypes
import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.results import load_result, result_files
from jaxpe.plans import RopeAnalysis, RopeOptions, explain_rope, phase_errors, read_config
from jaxpe.plans.checks import texts
from jaxpe.plans.comparison import shown_error
from jaxpe.plans.result import PhaseError
from jaxpe.plans.scaling import inverse_frequencies
from tests.plans.conftest import read

PUBLISHED = read("published")
REPORTED = read("reported")
CONFIGS = PUBLISHED | REPORTED
CONFIGS["dynamic scaling of its own length"] = {
    **PUBLISHED["Llama 2 7B"], "rope_scaling": {"type": "dynamic", "factor": 2.0}
}  # fmt: skip

CONFIGS["YaRN with an attention factor"] = {
    **PUBLISHED["Qwen3 8B"], "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768,
        "attention_factor": 1.0,
    },
}  # fmt: skip


def numbers(found, program, group=0):
    return next(one for one in found.programs if one.name.startswith(program)).numbers[group]


def told(found, code):
    return next(one for one in found.findings if one.code == code)


# Code of a finding, the configuration that users reported, and numbers or words that it must tell.
FOUND = [
    ("base_of_class_missing", "Gemma 3 4B", ("1,000,000", "10,000")),
    ("base_missing", "Llama 2 7B", ("10,000",)),
    ("unseen_by_4", "a v5 entry, read by v4 (vllm-project/vllm#44158)", ("500,000", "10,000")),
    ("unseen_by_4", "YaRN in rope_parameters alone (sgl-project/sglang#26187)", ("yarn",)),
    ("share_ignored", "a share of a head in the entry", ("partial_rotary_factor",)),
    ("entries_differ", "both entries", ("factor",)),
    ("types_differ", "type and rope_type", ("dynamic", "yarn")),
    ("type_unknown", "a name of YaRN (vllm-project/vllm#56446)", ("telechat3-yarn",)),
    ("unread", "a misspelt key", ("original_max_position_embeddings?",)),
    ("keys_ignored", "gpt-oss 120B", ("truncate", "llama.cpp")),
    ("mscale_alone", "mscale alone", ("mscale_all_dim",)),
    ("frequencies_differ", "a share of a head in the entry", ("vLLM", "64")),
    ("length_is_scaled", "DeepSeek-V3", ("163,840", "4,096")),
    ("lengths_contradict", "two lengths that contradict", ("131,072", "65,536")),
    ("original_missing", "YaRN without L0 (huggingface/transformers#33783)", ("32,768",)),
    ("dynamic_original", "dynamic scaling of Llama 3.1 (vllm-project/vllm#10537)", ("131,072",)),
    ("dynamic_length", "dynamic scaling of its own length", ("grow",)),
    ("query_factor_differs", "Ministral 3 8B", ("1.277", "vLLM")),
    ("query_factor", "Llama 4 Scout", ("1.716",)),
    ("logit_factor_differs", "DeepSeek-V2-Lite", ("1.59", "transformers 4.57")),
    ("logit_factor", "DeepSeek-V3", ("1.874",)),
    ("keys_ignored", "YaRN with an attention factor", ("1.139", "SGLang")),
    ("length_multiplied", "Gemma 3 4B", ("SGLang 0.5.23 allows 1,048,576", "--context-length")),
    ("kinds_of_layers", "Gemma 3 4B", ("1,000,000", "10,000")),
    ("linear_original", "Gemma 3 4B", ("131,072",)),
    ("scaling_with_sections", "YaRN beside sections (jundot/omlx#3347)", ("mrope_section",)),
    ("low_precision", "Llama 2 7B", ("float16",)),
    ("float32_precision", "Llama 4 Scout", ("0.68",)),
    ("refused_by_some", "Ministral 3 8B", ("transformers 4.57",)),
]


@pytest.mark.parametrize(("code", "name", "words"), FOUND)
def test_reported_configurations_are_told(explain, code, name, words):
    finding = told(explain(CONFIGS[name]), code)
    said = f"{finding.text} {finding.remedy}"
    assert [word for word in words if word not in said] == []
    assert finding.remedy


def test_mscale_alone_is_told_where_it_is_used(explain):
    fields = CONFIGS["mscale alone"]
    scaling = {**fields["rope_scaling"], "attention_factor": 1.0}  # which takes its place
    found = explain({**fields, "rope_scaling": scaling})
    assert "mscale_alone" not in {one.code for one in found.findings}


def test_a_factor_that_settings_leave_out_is_told(explain):
    yarn = {**CONFIGS["Qwen3 8B with YaRN"]["rope_scaling"], "attention_factor": 1.2}
    fields = {**PUBLISHED["Qwen3 8B"], "max_position_embeddings": 131_072, "rope_scaling": yarn}
    assert "1.2" in told(explain(fields, length=262_144), "attention_factor_reset").text


def test_programs_without_a_factor_of_an_entry_are_told(explain):
    """llama.cpp's graph of MiniCPM 3 has no factor of longrope on cos and sin."""
    lists = {"short_factor": [1.0] * 16, "long_factor": [2.0] * 16}
    entry = {"type": "longrope", "original_max_position_embeddings": 4096, **lists}
    fields = {"model_type": "minicpm3", "qk_rope_head_dim": 32, "rope_scaling": entry}
    found = explain({**fields, "max_position_embeddings": 131_072})
    assert "llama.cpp uses 1." in told(found, "attention_factor_differs").text


WRONG = {
    "attn_factor": 0.8782488562869419,  # DeepSeek-R1-0528-Qwen3-8B: 1 instead of 0.1·ln 4 + 1
    "extrapolation_factor": 0.5,
}


@pytest.mark.parametrize("key", WRONG)
def test_a_key_that_one_program_reads_is_ignored_by_the_others(explain, key):
    """vLLM 0.33.0 has none of these keys, and transformers never had."""
    yarn = CONFIGS["Qwen3 8B with YaRN"]["rope_scaling"]
    found = explain({**CONFIGS["Qwen3 8B with YaRN"], "rope_scaling": {**yarn, key: WRONG[key]}})
    text = told(found, "keys_ignored").text
    used, ignored = text.split(" and ignored by ")
    assert "SGLang" in used
    assert all(name in ignored for name in ("transformers 5.24", "vLLM 0.33", "llama.cpp"))
    codes = {one.code for one in found.findings}
    assert not codes & {"attention_factor_differs", "frequencies_differ", "unread"}


@pytest.mark.parametrize("key", ["use_fope", "a_key_of_nobody"])
def test_keys_that_no_rule_computes_with_are_not_judged(explain, key):
    found = explain({**PUBLISHED["Llama 3.2 1B"], "rope_scaling": {"type": "default", key: True}})
    assert found.unread == (f"rope_scaling.{key}",)
    assert "delete" not in told(found, "unread").remedy.lower()


def test_sections_of_hunyuan_have_a_name_of_their_own(explain):
    entry = {"type": "xdrope", "alpha": 1000.0, "factor": 1.0, "xdrope_section": [16, 16, 16, 16]}
    found = explain({"model_type": "hunyuan_vl_text", "head_dim": 128, "rope_scaling": entry})
    assert found.groups[0].sections == (16, 16, 16, 16)
    assert found.unread == ()


def test_reported_faults_stand_only_where_programs_differ(explain):
    found = [explain(fields) for fields in PUBLISHED.values()]
    said = [any(one.code == "reported" for one in result.findings) for result in found]
    assert any(said)
    assert all(result.disagreements for result, one in zip(found, said, strict=True) if one)


def test_every_finding_has_a_configuration_in_the_tests():
    elsewhere = {
        "attention_factor_reset", "base_nested", "base_of_gguf_missing", "beyond_context",
        "beyond_own_scaling", "beyond_scaling", "flat_entry_lost", "longrope_lists", "own_code",
        "own_dynamic", "pairing_differs", "parts_lost", "refused", "reported", "second_base_lost",
        "attention_factor_differs", "factors_missing", "turning_differs",
        "unlikely",
    }  # fmt: skip
    assert {code for code, _, _ in FOUND} | elsewhere == set(texts())


def test_a_length_is_set_by_the_option_of_the_program_that_multiplies_it(explain):
    assert "--max-model-len" not in told(explain(CONFIGS["Gemma 3 4B"]), "length_multiplied").remedy
    linear = {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    remedy = told(explain(PUBLISHED["Qwen2 7B"] | linear), "length_multiplied").remedy
    assert "--max-model-len 131072 for vLLM and --context-length 131072 for SGLang" in remedy


@pytest.mark.parametrize(
    ("largest", "shown"),
    [(math.pi, "π (lost)"), (3.06, "π (lost)"), (3.04, "3"), (0.0074, "0.0074")],
)
def test_an_error_that_rounds_to_half_a_rotation_is_lost(largest, shown):
    assert shown_error(PhaseError(8, "bfloat16", "all", largest, 1)) == shown


PLAIN = ("Llama 3.2 1B", "Qwen2 7B", "Qwen3 8B", "Pythia 160M")
QUIET = {"low_precision", "float32_precision", "kinds_of_layers", "reported", "refused_by_some"}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_configurations_have_no_serious_finding(explain, name):
    found = explain(PUBLISHED[name], programs="transformers,vllm 0.33,llama.cpp")
    assert [one for one in found.findings if one.code not in QUIET] == []


@pytest.mark.parametrize("name", CONFIGS)
def test_a_file_that_the_newest_transformers_reads_is_not_called_wrong_for_others(explain, name):
    """ "wrong" is said of a file that contradicts itself, or that transformers 5 refuses."""
    found = explain(CONFIGS[name])
    codes = {one.code for one in found.findings if one.severity == "wrong"}
    assert codes <= {
        "refused", "type_unknown", "types_differ", "entries_differ", "flat_entry_lost",
        "dynamic_original",
    }  # fmt: skip
    assert ("refused" in codes) == (found.programs[0].problem is not None)


def test_a_v5_base_is_lost_in_version_4(explain):
    found = explain(CONFIGS["a v5 entry, read by v4 (vllm-project/vllm#44158)"])
    bases = {one.name: one.numbers[0].base for one in found.programs}
    assert {name for name, base in bases.items() if base == 1e4} == {"transformers 4.57"}
    assert set(bases.values()) == {1e4, 5e5}


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


def test_llama_4_turns_within_its_chunks_in_three_layers_of_four(explain):
    plans = {plan.kind: plan for plan in explain(PUBLISHED["Llama 4 Scout"]).groups}
    assert len(plans["none"].layers) == 12
    assert len(plans["rotary"].layers) == 36
    assert plans["rotary"].reach == plans["rotary"].window == 8192
    assert plans["rotary"].kept + plans["rotary"].divided == 64  # low = high: nothing between


def test_gemma_3_has_two_kinds_of_layers(explain):
    plans = {plan.name: plan for plan in explain(PUBLISHED["Gemma 3 4B"]).groups}
    assert {k: (len(v.layers), v.trained) for k, v in plans.items()} == {
        "full_attention": (5, 131_072),
        "sliding_attention": (29, 1024),
    }
    assert plans["full_attention"].divided == 128
    assert plans["sliding_attention"].kept == 128


def test_the_pattern_of_cohere_2_moe_begins_after_its_dense_layers(explain):
    fields = {"model_type": "cohere2_moe", "num_hidden_layers": 9, "first_k_dense_replace": 1}
    plans = {plan.name: plan.layers for plan in explain(fields).groups}
    assert plans == {"full_attention": (0, 4, 8), "sliding_attention": (1, 2, 3, 5, 6, 7)}
    fields |= {"first_k_dense_replace": 3, "prefix_dense_sliding_window_pattern": 2}
    plans = {plan.name: plan.layers for plan in explain(fields).groups}
    assert plans == {"full_attention": (1, 6), "sliding_attention": (0, 2, 3, 4, 5, 7, 8)}


def test_a_longer_text_reaches_phases_that_training_did_not_have(explain):
    plain = PUBLISHED["Qwen3 8B"]
    assert explain(plain, length=40_960).groups[0].unseen == 0
    longer = explain(plain, length=163_840)
    assert told(longer, "beyond_scaling").severity == "risk"
    assert longer.groups[0].unseen == longer.groups[0].never_round > 0
    entry = {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 40_960}
    scaled = explain(plain, length=163_840, scaling=json.dumps(entry))
    assert scaled.groups[0].unseen == 0
    assert "beyond_scaling" not in {one.code for one in scaled.findings}
    thirds = {"rope_type": "linear", "factor": 3}  # of which rounding is no new phase
    scaled = explain(plain, length=3 * 40_960, scaling=json.dumps(thirds))
    assert scaled.groups[0].unseen == 0
    scaled = explain(plain, length=4 * 40_960, scaling=json.dumps(thirds))
    text = told(scaled, "beyond_own_scaling").text  # three times as much is not what the file says
    assert "40,960" in text
    assert "122,880" not in text


def test_a_yarn_that_is_there_is_stretched_from_its_own_length(explain):
    found = explain(PUBLISHED["Qwen3 8B with YaRN"], length=262_144)
    entry = json.loads(found.recipes[0].text)["rope_parameters"]
    assert (entry["factor"], entry["original_max_position_embeddings"]) == (8.0, 32_768)


def test_a_llama3_scaling_has_no_recipe_beyond_its_length(explain):
    found = explain(PUBLISHED["Llama 3.1 8B"], length=262_144)
    assert found.recipes == ()
    assert "llama3" in told(found, "beyond_own_scaling").text


def test_a_flat_entry_is_lost_where_kinds_of_layers_have_parts(explain):
    """Gemma 3 and OLMo 3, run with transformers 5.24: base and scaling of the file are ignored."""
    entry = {"rope_type": "yarn", "rope_theta": 5e6, "factor": 4.0}
    found = explain({**PUBLISHED["Gemma 3 4B"]["text_config"], "rope_parameters": entry,
                     "model_type": "gemma3_text", "rope_scaling": None})  # fmt: skip
    assert told(found, "flat_entry_lost").severity == "wrong"
    assert {plan.base for plan in found.groups} == {1e6, 1e4}
    assert {plan.rope_type for plan in found.groups} == {"default"}


def test_a_base_beside_reaches_full_layers_of_olmo_3_alone(explain):
    """Run with transformers 5.24: sliding layers keep the default of the class."""
    found = explain({"model_type": "olmo3", "num_hidden_layers": 4, "rope_theta": 1e6})
    assert {plan.name: plan.base for plan in found.groups} == {
        "full_attention": 1e6,
        "sliding_attention": 5e5,
    }
    assert "500,000" in told(found, "second_base_lost").text


def test_a_share_that_a_class_ignores_is_told(explain):
    fields = {**PUBLISHED["Llama 3.2 1B"], "rope_scaling": None, "partial_rotary_factor": 0.5}
    found = explain(fields)
    assert "all 64 entries" in told(found, "share_ignored").text
    assert found.groups[0].turning == 64


@pytest.mark.parametrize(
    ("fields", "layers", "context"),
    [
        ({"model_type": "gpt2", "n_layer": 12, "n_positions": 1024}, 12, 1024),
        ({"model_type": "mpt", "n_layers": 32, "max_seq_len": 4096}, 32, 4096),
        ({"model_type": "t5", "num_layers": 6, "n_positions": 512}, 6, 512),
        ({"model_type": "whisper", "encoder_layers": 6, "max_target_positions": 448}, 6, 448),
        ({"model_type": "longcat_flash", "num_layers": 28}, 28, 131_072),
    ],
)  # fmt: skip
def test_layers_are_counted_under_other_names(explain, fields, layers, context):
    """As `attribute_map` of each class in transformers 5.24 names them."""
    found = explain(fields)
    assert (len(found.groups[0].layers), found.context) == (layers, context)


def test_attention_of_recurrent_gemma_has_windows(explain):
    fields = {"model_type": "recurrent_gemma", "num_hidden_layers": 6,
              "block_types": ["recurrent", "recurrent", "attention"]}  # fmt: skip
    kinds = {group.name: group.layers for group in explain(fields).groups}
    assert kinds == {"linear_attention": (0, 1, 3, 4), "sliding_attention": (2, 5)}


def test_no_group_is_without_layers(explain):
    fields = {"model_type": "deepseek_v4", "num_hidden_layers": 6, "rope_theta": 1e4,
              "compress_ratios": [128, 128, 4, 128, 4, 128]}  # fmt: skip
    groups = {group.name: len(group.layers) for group in explain(fields).groups}
    assert groups == {"heavily_compressed_attention": 4, "compressed_sparse_attention": 2}


def test_a_key_that_no_rule_uses_is_named(explain):
    fields = {**PUBLISHED["Qwen3 8B"], "rope_thetas": 1e6, "swa_rope_theta": 1e4}
    found = explain(fields)
    assert found.unread == ("rope_thetas", "swa_rope_theta")
    assert "swa_rope_theta" in told(found, "unread").text


def test_a_type_without_rules_is_not_judged(explain):
    found = explain({"model_type": "of_my_own", "head_dim": 64, "max_position_embeddings": 2048})
    assert found.status == "not judged"
    assert "of_my_own" in found.reason
    assert explain({"head_dim": 64}).status == "not judged"
    assert explain({}).groups == ()


def test_the_stretch_of_qwens_own_code_is_told(explain):
    fields = {"model_type": "qwen", "hidden_size": 4096, "num_attention_heads": 32,
              "num_hidden_layers": 32, "seq_length": 8192, "rotary_emb_base": 10_000,
              "max_position_embeddings": 32_768, "use_dynamic_ntk": True}  # fmt: skip
    found = explain(fields)
    assert "use_dynamic_ntk" in told(found, "own_dynamic").text
    assert found.context == 8192
    assert found.unread == ()


def test_gpt_j_says_how_many_entries_turn(explain):
    fields = {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "rotary_dim": 64, "n_layer": 28}
    found = explain({**fields, "n_positions": 2048})
    plan = found.groups[0]
    assert (plan.head_dim, found.context, len(plan.layers)) == (256, 2048, 28)
    assert (plan.turning, plan.pairing) == (64, "interleaved")


def test_options_alone_are_a_configuration():
    options = {"head_dim": 64, "base": 1e4, "context": 2048}
    found = explain_rope(RopeOptions(**options, scaling='{"type": "linear", "factor": 4.0}'))
    plan = found.groups[0]
    np.testing.assert_allclose(plan.frequencies, inverse_frequencies(64, base=1e4) / 4)
    assert (found.form, found.status) == ("options", "judged")


def test_options_replace_fields(explain):
    found = explain(CONFIGS["a v5 entry, read by v4 (vllm-project/vllm#44158)"], base=1e6)
    assert {one.numbers[0].base for one in found.programs} == {1e6}


def test_a_head_is_not_replaced_where_the_file_has_one(explain):
    """A width for all would be wrong where kinds of layers have others, as in Gemma 4."""
    with pytest.raises(InputError, match="`head_dim`"):
        explain(PUBLISHED["Qwen3 8B"], head_dim=64)


def test_the_plan_of_a_program(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS["a v5 entry, read by v4 (vllm-project/vllm#44158)"]))
    config = read_config(path)
    newest, old = (config.plan(name)[0] for name in ("transformers 5", "transformers 4"))
    assert not np.allclose(newest.frequencies, old.frequencies)
    with pytest.raises(InputError, match="transformers 5"):
        config.plan("a program of my own")


@pytest.mark.parametrize(
    ("dtype", "length", "low", "high"),
    [("float32", 4096, 1e-5, 1e-3), ("bfloat16", 4096, 1.0, math.pi), ("float16", 2048, 0.1, 2.0)],
)
def test_phase_errors_against_the_rounding_of_the_types(dtype, length, low, high):
    inverse = inverse_frequencies(128, base=1e4)
    errors = {(e.dtype, e.rounded): e for e in phase_errors(inverse, length)}
    found = errors[dtype, "all"]
    assert low < found.largest <= high
    if dtype == "bfloat16":
        # Positions above 256 are rounded to multiples of 16: 8 away at most, at ω = 1 radians.
        assert found.lost > errors[dtype, "frequencies"].lost > 0


def test_phase_errors_of_a_short_text_are_at_its_positions_alone():
    inverse = inverse_frequencies(128, base=1e4)
    errors = {(e.dtype, e.rounded): e for e in phase_errors(inverse, 20)}
    rounded = inverse.astype(ml_dtypes.bfloat16).astype(float)
    expected = 19 * np.abs(rounded - inverse).max()
    np.testing.assert_allclose(errors["bfloat16", "frequencies"].largest, expected, rtol=1e-3)


@pytest.mark.parametrize("length", [200, 3000, 4096])
def test_phase_errors_are_listed_once_for_each_length(explain, length):
    precision = explain(PUBLISHED["Llama 3.1 8B"], length=length).precision
    lengths = [e.length for e in precision if (e.dtype, e.rounded) == ("float32", "all")]
    assert lengths == [2**k for k in range(8, 12) if 2**k < length] + [length]


def test_positions_that_float16_does_not_hold_are_lost():
    errors = {(e.dtype, e.rounded): e for e in phase_errors(np.array([1.0, 1e-3]), 2**20)}
    assert errors["float16", "all"].largest == math.pi
    assert errors["float16", "all"].lost == 2


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
        ({"model_type": "llama", "hidden_size": None}, {}, "pass `head_dim`"),
        ({"head_dim": 63, "rope_theta": 1e4}, {}, "even"),
        ({"head_dim": True}, {}, "whole number of 2 to"),
        ({"head_dim": 64, "rope_scaling": [4]}, {}, "rope_scaling is"),
        ({"head_dim": 64, "rope_theta": "big"}, {}, "rope_theta"),
        ({"head_dim": 2**20}, {}, "2 to 65,536"),
        ({"model_type": 3}, {}, "not a name"),
        ({"model_type": "qwen3", "layer_types": [1]}, {}, "layer_types"),
        ({"model_type": "qwen3", "layer_types": ["full_attention"]}, {}, "1 entries for 32"),
        ({"head_dim": 64}, {"length": 1}, "`length` is 1; pass at least 2"),
        ({"head_dim": 64}, {"scaling": "[1]"}, "pass a JSON object"),
        ({"head_dim": 64}, {"scaling": "{"}, "`scaling` is not JSON"),
        ({"head_dim": 64}, {"base": 0.5}, "`base` is 0.5; pass at least 1"),
    ],
)
def test_bad_configurations_are_refused_with_a_remedy(explain, fields, options, message):
    if message == "even":
        assert "even" in explain(fields, **options).programs[0].problem
        return
    with pytest.raises(InputError, match=message):
        explain(fields, **options)


def test_nothing_asked_and_nothing_there_are_refused(tmp_path):
    with pytest.raises(InputError, match="pass `config`"):
        explain_rope(RopeOptions())
    with pytest.raises(InputError, match=r"config\.json does not exist"):
        explain_rope(RopeOptions(config=str(tmp_path)))
