"""Files that programs refuse, or only warn of: run with transformers 5.24 unless stated."""

import json
import math

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import to_json
from jaxpe.plans import RopeOptions, explain_rope
from jaxpe.report import page
from tests.plans.conftest import read

NEWEST = "transformers 5.24"
ORIGINAL = "original_max_position_embeddings"
PUBLISHED = read("published")
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 4,
    "max_position_embeddings": 8192, "rope_theta": 1e4,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 8192}
REVERSED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0,
            ORIGINAL: 8192}  # fmt: skip
EXAONE = {"model_type": "exaone4", "num_hidden_layers": 8}
TUNED = json.loads(json.dumps(PUBLISHED["Llama 4 Scout"]))
TUNED["text_config"]["attn_temperature_tuning"] = 4


def codes(found):
    return {one.code for one in found.findings}


def numbers(found, name):
    return next(one for one in found.programs if one.name == name).numbers[0].frequencies


@pytest.mark.parametrize(
    ("scaling", "second", "last", "factor"),
    [
        ({**YARN, "attention_factor": 0.5, "beta_fast": 1, "beta_slow": 32},
         0.2164910883, 1.154781930e-4, 0.5),
        (REVERSED, 0.8659643531, 1.443477413e-5, 1.0),
        ({"rope_type": "linear", "factor": 0.5}, 2 * 0.8659643531, 2 * 1.154781930e-4, 1.0),
        ({**YARN, "attention_factor": -0.5}, 0.8659643531, 2.886954825e-5, -0.5),
    ],
)  # fmt: skip
def test_what_transformers_warns_of_is_not_refused(explain, scaling, second, last, factor):
    found = explain({**LLAMA, "rope_scaling": scaling})
    (group,) = found.groups
    assert found.programs[0].problem is None
    np.testing.assert_allclose(group.frequencies[[1, -1]], (second, last), rtol=1e-6)
    assert group.attention_factor == factor
    assert "unlikely" in codes(found)
    assert "refused" not in codes(found)


def test_a_reversed_llama3_has_its_step_elsewhere_in_vllm(explain):
    """vllm/model_executor/layers/rotary_embedding/llama3_rope.py: short wavelengths come first."""
    found = explain({**LLAMA, "rope_scaling": REVERSED})
    plain = 1e4 ** (-np.arange(64) / 64)
    kept = {NEWEST: 2 * np.pi / plain < 8192 / 4, "vLLM 0.33": 2 * np.pi / plain < 8192}
    for name, short in kept.items():
        np.testing.assert_allclose(numbers(found, name), plain / np.where(short, 1, 8))


@pytest.mark.parametrize("factor", [-1.0, math.inf, "4.0"])
def test_no_number_is_invented_for_a_factor_that_makes_no_sense(explain, factor):
    """-1 turns pairs backwards, inf makes cos and sin infinite, and a text raises TypeError."""
    found = explain({**LLAMA, "rope_scaling": {**YARN, "factor": factor}})
    problem = found.programs[0].problem
    assert "refused" in codes(found)
    assert ("TypeError: factor" in problem) == isinstance(factor, str)
    assert "ufunc" not in problem
    assert found.numbers_of == ""
    (group,) = to_json(found)["groups"]
    assert (group["base"], group["turning"], group["frequencies"]) == (None, 0, [])


def test_a_file_for_one_program_alone_has_its_numbers_among_the_programs(explain):
    """transformers raises KeyError('ntk')."""
    found = explain({**LLAMA, "rope_scaling": {"type": "ntk", "factor": 2.0}})
    (group,) = found.groups
    assert (found.numbers_of, group.kind, group.rope_type) == ("", "rotary", "")
    assert found.widest is None
    assert len(numbers(found, "vLLM 0.33")) == 64
    assert {r.rope_type for one in found.programs for r in one.numbers} == {"ntk"}
    assert found.numbers_of != NEWEST
    assert "What programs compute" in [table.title for table in page(found).tables]


def test_a_refusal_of_the_configuration_class_is_of_all_programs_that_load_files_with_it(explain):
    """Exaone4Config raises TypeError for LLLG without layer_types; vLLM and SGLang use it."""
    found = explain({**EXAONE, "sliding_window_pattern": "LLLG"})
    assert [one.name for one in found.programs if not one.problem] == ["llama.cpp"]
    assert found.numbers_of == ""
    assert explain(PUBLISHED["Qwen3 8B"]).numbers_of == NEWEST


@pytest.mark.parametrize("fields", [{"head_dim": 127}, {"rope_scaling": {"rope_type": "yarn"}}])
def test_a_file_that_no_program_reads(explain, fields):
    found = explain({**LLAMA, **fields})
    assert all(one.problem for one in found.programs)
    assert found.numbers_of == ""
    (lead,) = page(found).lead
    assert (lead.name, lead.value) == ("programs that read the file", 0)


@pytest.mark.parametrize(("head_dim", "scaling"), [(127, None), (64, '{"rope_type": "yarn"}')])
def test_options_that_no_program_reads_are_bad_input(head_dim, scaling):
    with pytest.raises(InputError, match="no program reads these options"):
        explain_rope(RopeOptions(head_dim=head_dim, scaling=scaling))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({**EXAONE, "sliding_window": None}, "sliding_window_pattern"),
        ({**EXAONE, "sliding_window_pattern": 0}, "sliding_window_pattern"),
        ({"model_type": "cohere2", "sliding_window_pattern": None}, "sliding_window_pattern"),
        ({**LLAMA, "layer_types": ["full_attention"] * 5}, "5 entries for 4"),
        ({"model_type": "step3p5", "num_hidden_layers": 4, "layer_types": ["full_attention"] * 5},
         "5 entries for 4"),
        ({"model_type": "step3p5", "num_hidden_layers": 4, "layer_types": ["full_attention"] * 5,
          "num_nextn_predict_layers": 1}, None),
        ({**LLAMA, "sliding_window_pattern": "LLLG"}, None),
        ({**EXAONE, "sliding_window": None, "layer_types": ["full_attention"] * 8}, None),
        (TUNED, "attn_temperature_tuning"),
    ],
)  # fmt: skip
def test_layers_that_the_class_refuses(explain, fields, said):
    problem = explain(fields).programs[0].problem
    assert said in problem if said else problem is None


def test_a_type_without_rules_has_no_sentence_about_its_layers(explain):
    found = explain({**LLAMA, "model_type": "of_my_own", "partial_rotary_factor": 0.5})
    assert codes(found) <= {"refused_by_some"}
    assert [one.sentence for one in page(found).lead] == [found.reason]
    assert [len(group.frequencies) for group in found.groups] == [64]
    assert "numbers shown" in found.reason
    found = explain({"model_type": "rwkv7", "hidden_size": 2048, "head_dim": 64})
    assert (found.status, found.groups) == ("not judged", ())
    assert "numbers" not in found.reason
    assert "Layers" not in [table.title for table in page(found).tables]
    problems = [one.problem for one in explain({}).programs if one.problem]
    assert not any(problem.endswith(" ") for problem in problems)


def test_a_type_without_a_class_is_of_the_models_own_code(explain):
    """transformers raises "Unrecognized model identifier" for kimi_k2."""
    found = explain({
        "model_type": "kimi_k2", "hidden_size": 7168, "num_attention_heads": 64,
        "num_hidden_layers": 61, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    })  # fmt: skip
    evidence = {one.name: one.evidence for one in found.programs}
    assert evidence[NEWEST] == evidence["transformers 4.57"] == "code of the model"
    assert evidence["vLLM 0.33"] == "read from source"
    assert "own_code" in codes(found)


@pytest.mark.parametrize("name", ["Gemma 3 4B", "Command R7B", "Llama 4 Scout"])
def test_a_length_beyond_the_file_is_told_where_no_phase_is_new(explain, name):
    fields = {**PUBLISHED, "Command R7B": {"model_type": "cohere2"}}[name]
    length = 2 * explain(fields).length
    found = explain(fields, length=length)
    assert found.widest.unseen == 0 or name == "Llama 4 Scout"
    assert codes(found) & {"beyond_context", "beyond_scaling", "beyond_own_scaling"}
    assert page(found).lead[-1].sentence == ""  # not "needs no change"


def test_a_model_without_rotation_has_no_phases_beyond_its_scaling(explain):
    """A bias, at twice its length."""
    fields = {"model_type": "mpt", "n_layers": 2, "n_heads": 4, "d_model": 64, "max_seq_len": 2048}
    found = codes(explain(fields, length=4096))
    assert "beyond_context" in found
    assert not found & {"beyond_scaling", "beyond_own_scaling"}


def test_layers_without_rotation_have_their_query_factor(explain):
    plans = {plan.kind: plan for plan in explain(PUBLISHED["Llama 4 Scout"]).groups}
    assert plans["none"].query_factor == pytest.approx(1.7155, rel=1e-4)
    assert plans["rotary"].query_factor == 1.0


@pytest.mark.parametrize("factor", [None, 4.0])
def test_a_class_without_scalings_ignores_or_refuses_them(explain, factor):
    """GPT-J's class reads no scaling, and RecurrentGemma's refuses one; both read none without."""
    scaling = {"rope_scaling": {"type": "linear", "factor": factor}} if factor else {}
    sizes = {"n_embd": 4096, "n_head": 16, "rotary_dim": 64}
    found = explain({"model_type": "gptj", **sizes, **scaling})
    (group,) = found.groups
    np.testing.assert_allclose(group.frequencies[:32], 1e4 ** (-np.arange(32) / 32), rtol=1e-6)
    sizes = {"hidden_size": 2560, "num_attention_heads": 10, "head_dim": 256}
    found = explain({"model_type": "recurrent_gemma", **sizes, **scaling})
    assert ("no scaling" in (found.programs[0].problem or "")) == bool(factor)


TINY = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "head_dim": 16}
LINEAR = {"rope_type": "linear", "factor": 2.0}
SCALED = {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 128}
KINDS = ["sliding_attention", "full_attention"] * 2


@pytest.mark.parametrize(
    ("model_type", "fields", "said"),
    [
        ("llama", {"rope_theta": None}, "TypeError: rope_theta is null"),
        ("gemma3_text", {"rope_theta": None}, "TypeError: rope_theta is null"),
        ("gpt_oss", {"rope_theta": None}, "TypeError: rope_theta is null"),
        ("llama", {"rope_parameters": {"rope_theta": None}}, "TypeError: rope_theta is null"),
        ("gpt_neox", {"rope_theta": None}, None),
        ("neomme", {"rope_theta": None}, None),
        ("gemma2", {"sliding_window": None}, "TypeError: layers slide"),
        ("gpt_oss", {"sliding_window": None}, "TypeError: layers slide"),
        ("recurrent_gemma", {"sliding_window": None}, "TypeError: layers slide"),
        ("modernbert", {"sliding_window": None}, "TypeError: layers slide"),
        ("modernbert", {}, None),
        ("cwm", {"sliding_window": None}, "TypeError: Field 'sliding_window' expected int"),
        ("mistral", {"sliding_window": None}, None),
        ("dots3_note_text", {"sliding_window": None}, None),
        ("qwen2", {"sliding_window": None}, None),
        ("qwen2", {"layer_types": KINDS, "use_sliding_window": False}, "TypeError: layers slide"),
        ("qwen2", {"layer_types": KINDS, "use_sliding_window": True}, None),
        ("smollm3", {"layer_types": KINDS, "sliding_window": 8}, None),
        ("qwen2_vl_text", {"rope_scaling": {"type": "mrope", "mrope_section": [4, 4, 4]}},
         "RuntimeError: [4, 4, 4] are not half of 16"),
        ("qwen2_vl_text", {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}, None),
        ("qwen2_5_vl_text", {}, "RuntimeError: [16, 24, 24] are not half of 16"),
        ("gemma3_text",
         {"layer_types": KINDS, "rope_scaling": SCALED, "partial_rotary_factor": 0.5},
         "RuntimeError: 8 of 16 entries"),
        ("gemma3_text", {"layer_types": KINDS, "partial_rotary_factor": 0.5}, None),
        ("deepseek_v3", {"rope_scaling": SCALED, "partial_rotary_factor": 0.5,
                         "qk_rope_head_dim": 16}, "RuntimeError: 8 of 16 entries"),
        ("gpt_neox_japanese", {"rope_parameters": {
            "rope_type": "proportional", "partial_rotary_factor": 0.5}},
         "RuntimeError: 16 of 8 entries"),
        ("solar_open", {"partial_rotary_factor": 0.5}, "RuntimeError: 8 of 16 entries"),
        ("gemma3_text", {"rope_parameters": {"rope_type": "default"}, "rope_scaling": LINEAR},
         "KeyError: rope_parameters has no 'full_attention'"),
        ("modernbert", {"rope_parameters": {}, "rope_scaling": LINEAR},
         "KeyError: rope_parameters has no 'full_attention'"),
        ("ministral3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
         "TypeError: llama_4_scaling_beta"),
        ("ministral3", {}, None),
        ("smollm3", {"no_rope_layers": []}, "IndexError: no_rope_layers"),
        ("llama4_text", {"no_rope_layers": []}, None),
        ("phi", {"partial_rotary_factor": None}, "KeyError: 'partial_rotary_factor'"),
        ("glm", {"partial_rotary_factor": None}, None),
        ("llama", {"rope_scaling": {"rope_type": None, "factor": 4.0}}, "KeyError: None"),
        ("llama", {"max_position_embeddings": None},
         "TypeError: Field 'max_position_embeddings' expected int"),
        ("hrm_text", {"head_dim": None}, "TypeError: Field 'head_dim' expected int"),
        ("glm", {"head_dim": None}, None),
    ],
)  # fmt: skip
def test_what_a_class_or_its_forward_pass_refuses(explain, model_type, fields, said):
    """With tiny models of transformers 5.24; fields of None run there."""
    problem = explain({"model_type": model_type, **TINY, **fields}).programs[0].problem
    assert said in problem if said else problem is None
