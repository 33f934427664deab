"""Files that programs refuse, or only warn of: run with transformers 5.24 unless stated."""

import json
import math

import numpy as np
import pytest

from jaxpe._core.json_values import to_json
from jaxpe.report import page
from tests.plans.conftest import NEWEST, VLLM, by_program, codes, read

ORIGINAL = "original_max_position_embeddings"
PUBLISHED = read("published")
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 4,
    "max_position_embeddings": 8192, "rope_theta": 1e4,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 8192}
REVERSED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0,
            ORIGINAL: 8192}  # fmt: skip
TUNED = json.loads(json.dumps(PUBLISHED["Llama 4 Scout"]))
TUNED["text_config"]["attn_temperature_tuning"] = 4


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
    found = by_program(explain({**LLAMA, "rope_scaling": REVERSED}))
    plain = 1e4 ** (-np.arange(64) / 64)
    for name, short in ((NEWEST, 8192 / 4), (VLLM, 8192)):
        expected = plain / np.where(2 * np.pi / plain < short, 1, 8)
        np.testing.assert_allclose(found[name].frequencies, expected)


@pytest.mark.parametrize("factor", [-1.0, math.inf, "4.0"])
def test_no_number_is_invented_for_a_factor_that_makes_no_sense(explain, factor):
    """-1 turns pairs backwards, inf makes cos and sin infinite, and a text raises TypeError."""
    found = explain({**LLAMA, "rope_scaling": {**YARN, "factor": factor}})
    problem = found.programs[0].problem
    assert "refused" in codes(found)
    assert ("TypeError: factor" in problem) == isinstance(factor, str)
    assert found.numbers_of == ""
    (group,) = to_json(found)["groups"]
    assert (group["base"], group["turning"], group["frequencies"]) == (None, 0, [])


@pytest.mark.parametrize(
    ("fields", "readers"),
    [
        # transformers raises KeyError('ntk').
        ({"rope_scaling": {"type": "ntk", "factor": 2.0}}, [VLLM]),
        # Exaone4Config raises TypeError for LLLG without layer_types; vLLM and SGLang use it.
        ({"model_type": "exaone4", "sliding_window_pattern": "LLLG"}, ["llama.cpp"]),
        ({"head_dim": 127}, []),
        ({"rope_scaling": {"rope_type": "yarn"}}, []),
    ],
)
def test_numbers_of_a_file_that_most_programs_refuse(explain, fields, readers):
    found = explain({**LLAMA, **fields})
    assert [*by_program(found)] == readers
    assert (found.numbers_of, found.widest) == ("", None)
    assert page(found).lead


EXAONE = {"model_type": "exaone4", "num_hidden_layers": 8}
STEP = {"model_type": "step3p5", "num_hidden_layers": 4, "layer_types": ["full_attention"] * 5}
TINY = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "head_dim": 16}
KINDS = ["sliding_attention", "full_attention"] * 2
LINEAR, SCALED = {"rope_type": "linear", "factor": 2.0}, {**YARN, ORIGINAL: 128}
HALF = {"partial_rotary_factor": 0.5}
NO_WINDOW, NO_BASE, NO_HEAD = {"sliding_window": None}, {"rope_theta": None}, {"head_dim": None}
SLIDES, NULL = "TypeError: layers slide", "TypeError: rope_theta"
UNREAD = "KeyError: rope_parameters has no 'full_attention'"
# Type, fields beside those of a tiny model, and what the class or a forward pass raises.
REFUSED = [
    ("exaone4", EXAONE | NO_WINDOW, "sliding_window_pattern"),
    ("exaone4", EXAONE | {"sliding_window_pattern": 0}, "sliding_window_pattern"),
    ("exaone4", EXAONE | NO_WINDOW | {"layer_types": ["full_attention"] * 8}, None),
    ("cohere2", {"sliding_window_pattern": None}, "sliding_window_pattern"),
    ("llama", {"layer_types": ["full_attention"] * 5}, "5 entries"),
    ("step3p5", STEP, "5 entries"),
    ("step3p5", STEP | {"num_nextn_predict_layers": 1}, None),
    ("llama", {"sliding_window_pattern": "LLLG"}, None),
    ("llama4", TUNED, "attn_temperature_tuning"),
    ("llama", NO_BASE, NULL),
    ("gemma3_text", NO_BASE, NULL),
    ("gpt_oss", NO_BASE, NULL),
    ("llama", {"rope_parameters": NO_BASE}, NULL),
    ("gpt_neox", NO_BASE, None),
    ("neomme", NO_BASE, None),
    ("gemma2", NO_WINDOW, SLIDES),
    ("gpt_oss", NO_WINDOW, SLIDES),
    ("recurrent_gemma", NO_WINDOW, SLIDES),
    ("modernbert", NO_WINDOW, SLIDES),
    ("modernbert", {}, None),
    ("cwm", NO_WINDOW, "TypeError: Field 'sliding_window'"),
    ("mistral", NO_WINDOW, None),
    ("dots3_note_text", NO_WINDOW, None),
    ("qwen2", NO_WINDOW, None),
    ("qwen2", {"layer_types": KINDS, "use_sliding_window": False}, SLIDES),
    ("qwen2", {"layer_types": KINDS, "use_sliding_window": True}, None),
    ("qwen2_vl_text", {"rope_scaling": {"type": "mrope", "mrope_section": [4, 4, 4]}},
     "RuntimeError: [4, 4, 4] are not half of 16"),
    ("qwen2_vl_text", {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}, None),
    ("qwen2_5_vl_text", {}, "RuntimeError: [16, 24, 24] are not half of 16"),
    ("gemma3_text", {"layer_types": KINDS, "rope_scaling": SCALED} | HALF,
     "RuntimeError: 8 of 16 entries"),
    ("gemma3_text", {"layer_types": KINDS} | HALF, None),
    ("deepseek_v3", {"rope_scaling": SCALED, "qk_rope_head_dim": 16} | HALF,
     "RuntimeError: 8 of 16 entries"),
    ("gpt_neox_japanese", {"rope_parameters": {"rope_type": "proportional"} | HALF},
     "RuntimeError: 16 of 8 entries"),
    ("solar_open", HALF, "RuntimeError: 8 of 16 entries"),
    ("llama", {"rope_parameters": LINEAR | HALF}, "RuntimeError"),
    ("stablelm", {"rope_parameters": LINEAR | HALF}, None),
    ("gemma3_text", {"rope_parameters": {"rope_type": "default"}, "rope_scaling": LINEAR}, UNREAD),
    ("modernbert", {"rope_parameters": {}, "rope_scaling": LINEAR}, UNREAD),
    ("ministral3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
     "TypeError: llama_4_scaling_beta"),
    ("ministral3", {}, None),
    ("smollm3", {"no_rope_layers": []}, "IndexError: no_rope_layers"),
    ("llama4_text", {"no_rope_layers": []}, None),
    ("phi", {"partial_rotary_factor": None}, "KeyError: 'partial_rotary_factor'"),
    ("glm", {"partial_rotary_factor": None}, None),
    ("llama", {"rope_scaling": {"rope_type": None, "factor": 4.0}}, "KeyError: None"),
    ("llama", {"max_position_embeddings": None}, "TypeError: Field 'max_position_embeddings'"),
    ("hrm_text", NO_HEAD, "TypeError: Field 'head_dim'"),
    ("glm", NO_HEAD, None),
    # GPT-J's class reads no scaling, and RecurrentGemma's refuses one; both read none without.
    ("gptj", {"rope_scaling": LINEAR}, None),
    ("recurrent_gemma", {"rope_scaling": LINEAR}, "no scaling"),
    ("recurrent_gemma", {}, None),
]  # fmt: skip


@pytest.mark.parametrize(("model_type", "fields", "said"), REFUSED)
def test_what_a_class_or_its_forward_pass_refuses(explain, model_type, fields, said):
    """With tiny models of transformers 5.24; fields of None run there."""
    fields = {"model_type": model_type, **TINY, **fields}
    result = explain(fields, programs=NEWEST).programs[0]
    assert said in result.problem if said else result.problem is None
    if model_type == "gptj":
        assert {one.rope_type for one in result.numbers} == {"default"}
