"""Recipes for longer texts: each is applied to the file, and gives the YaRN that it promises."""

import itertools
import json
import shlex

import pytest

from jaxpe.plans import RopeOptions, explain_rope
from tests.plans.conftest import read

PUBLISHED = read("published")
QWEN3 = PUBLISHED["Qwen3 8B"]
NEWEST, VLLM, SGLANG = "transformers 5.24", "vLLM 0.33", "SGLang 0.5.23"
_YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192}
_SIZES = {"hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128, "num_hidden_layers": 12}
OLMO3 = {
    "model_type": "olmo3", **_SIZES, "max_position_embeddings": 65_536, "rope_theta": 500_000,
    "sliding_window": 4096, "rope_scaling": {**_YARN, "attention_factor": 1.2079441541679836},
}  # fmt: skip
QWEN25_VL = {
    "model_type": "qwen2_5_vl", **_SIZES, "max_position_embeddings": 128_000, "rope_theta": 1e6,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "vision_config": {"depth": 32, "hidden_size": 1280, "num_heads": 16},
}  # fmt: skip
QWEN3_VL = {
    "model_type": "qwen3_vl",
    "text_config": {
        "model_type": "qwen3_vl_text", **_SIZES, "max_position_embeddings": 262_144,
        "rope_theta": 5e6, "rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20]},
    },
}  # fmt: skip
OMNI = {"model_type": "qwen3_omni_moe", "thinker_config": {"text_config": {
    **_SIZES, "max_position_embeddings": 65_536, "rope_theta": 1e6,
    "rope_scaling": {"type": "default", "rope_type": "default", "mrope_section": [24, 20, 20]},
}}}  # fmt: skip
BAILING = {
    "model_type": "bailing_hybrid", **_SIZES, "qk_rope_head_dim": 64, "kv_lora_rank": 512,
    "max_position_embeddings": 131_072, "partial_rotary_factor": 0.5, "rope_theta": 6e6,
}  # fmt: skip
MIMO = {
    "model_type": "mimo_v2_flash", **_SIZES, "head_dim": 192, "num_attention_heads": 64,
    "max_position_embeddings": 262_144, "partial_rotary_factor": 0.334, "rope_theta": 5e6,
    "swa_rope_theta": 10_000, "sliding_window": 128,
}  # fmt: skip
MINISTRAL3 = {"model_type": "mistral3", "text_config": {
    "model_type": "ministral3", **_SIZES, "max_position_embeddings": 262_144,
    "rope_parameters": {
        "rope_type": "yarn", "type": "yarn", "factor": 16.0, "llama_4_scaling_beta": 0.1,
        "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16_384,
        "rope_theta": 1e6, "beta_fast": 32.0, "beta_slow": 1.0,
    },
}}  # fmt: skip
GEMMA3 = {
    "model_type": "gemma3_text", "hidden_size": 1152, "num_attention_heads": 4, "head_dim": 256,
    "num_hidden_layers": 26, "max_position_embeddings": 32_768, "sliding_window": 512,
}  # fmt: skip
GLM4 = {
    "model_type": "glm4", **_SIZES, "max_position_embeddings": 32_768, "rope_theta": 10_000.0,
    "partial_rotary_factor": 0.5,
}  # fmt: skip
KIMI = {**PUBLISHED["DeepSeek-V3"], "model_type": "kimi_k2"}
CASES = {
    "plain": (QWEN3, 131_072),
    "rope_parameters alone": (
        {**QWEN3, "rope_theta": None, "rope_scaling": None,
         "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 131_072),
    "gpt-oss": (PUBLISHED["gpt-oss 120B"], 300_000),
    "DeepSeek-V3": (PUBLISHED["DeepSeek-V3"], 262_144),
    "Kimi K2": (KIMI, 262_144),
    "OLMo 3": (OLMO3, 262_144),
    "Qwen2.5-VL": (QWEN25_VL, 131_072),
    "Qwen3-VL": (QWEN3_VL, 1_000_000),
    "Qwen3-Omni": (OMNI, 262_144),
    "Bailing": (BAILING, 1_048_576),
    "MiMo": (MIMO, 1_048_576),
    "Ministral 3": (MINISTRAL3, 524_288),
    "Gemma 3": (GEMMA3, 131_072),
    "GLM-4": (GLM4, 131_072),
    "ModernBERT": ({"model_type": "modernbert"}, 32_768),
    "SmolLM3": (PUBLISHED["SmolLM3 3B"], 262_144),
}  # fmt: skip


def merged(fields, patch):
    """Fields with a patch, at every depth."""
    whole = dict(fields)
    for key, value in patch.items():
        both = isinstance(value, dict) and isinstance(whole.get(key), dict)
        whole[key] = merged(whole[key], value) if both else value
    return whole


def read_once(patch):
    """Patch of a program's configuration, which has no `rope_scaling` beside `rope_parameters`."""
    inner = {k: read_once(v) if isinstance(v, dict) else v for k, v in patch.items()}
    return {"rope_scaling": None, **inner} if "rope_parameters" in patch else inner


def patch_of(recipe):
    """Fields that a recipe sets: in the file, or in the configuration of a program."""
    if recipe.text.startswith("{"):
        return json.loads(recipe.text)
    flags = dict(itertools.pairwise(shlex.split(recipe.text)))
    if "--rope-scale" in flags:  # of a .gguf, made from the file as it is
        return {"rope_scaling": {
            "rope_type": flags["--rope-scaling"], "factor": float(flags["--rope-scale"]),
            "original_max_position_embeddings": int(flags["--yarn-orig-ctx"]),
        }}  # fmt: skip
    return read_once(json.loads(flags.get("--hf-overrides") or flags["--json-model-override-args"]))


def applied(fields, recipe):
    patch = patch_of(recipe)
    if recipe.program == "llama.cpp":
        patch["rope_theta"] = (fields.get("rope_parameters") or fields)["rope_theta"]
    flat = "text_config" in patch and "text_config" not in fields
    return merged(fields, patch["text_config"] if flat else patch)


@pytest.mark.parametrize("name", CASES)
def test_each_recipe_gives_what_it_promises(name, explain):
    fields, length = CASES[name]
    before = explain(fields, length=length)
    assert before.recipes[0].program == "config.json"
    promised = json.loads(before.recipes[0].text)
    while "max_position_embeddings" not in promised:
        promised = next(iter(promised.values()))
    entry = promised.get("rope_parameters") or promised["rope_scaling"]
    entry = entry.get("full_attention", entry)
    goal = ("yarn", entry["factor"], entry["original_max_position_embeddings"])
    turned = [(plan.turns, plan.turning) for plan in before.groups]
    bases = [plan.base for plan in before.groups]
    for recipe in before.recipes:
        after = explain(applied(fields, recipe), length=promised["max_position_embeddings"])
        file = recipe.program == "config.json"
        for program in (
            one for one in after.programs if one.name in (recipe.program, file and NEWEST)
        ):
            assert program.problem is None
            assert [(one.turns, one.turning) for one in program.numbers] == turned
            assert [one.base for one in program.numbers] == pytest.approx(bases, nan_ok=True)
            widest = program.numbers[before.groups.index(before.widest)]
            assert (widest.rope_type, widest.factor, widest.original) == goal
            for plan, one in zip(before.groups, program.numbers, strict=True):
                if plan.window:  # which no longer text exceeds
                    assert one.rope_type == plan.rope_type


# Entries that turn, the slowest frequency, and the factor on cos and sin of the layers that reach
# furthest, by the classes of transformers 5.24 for the patched file.
RUN = {
    "DeepSeek-V3": (64, 2.0836274e-06, 1.0),
    "OLMo 3": (128, 7.6723147e-08, 1.3465736),
    "Qwen2.5-VL": (128, 3.1023444e-07, 1.1386294),
    "Qwen3-VL": (128, 8.4835989e-08, 1.1098612),
    "Bailing": (64, 3.3929385e-08, 1.2079442),
    "MiMo": (64, 8.0967887e-08, 1.1386294),
    "Ministral 3": (128, 3.8779305e-08, 1.0),
    "GLM-4": (64, 3.3338038e-05, 1.1386294),
}


@pytest.mark.parametrize("name", RUN)
def test_the_patched_file_computes_as_transformers_does(name, explain):
    fields, length = CASES[name]
    patch = json.loads(explain(fields, length=length).recipes[0].text)
    after = explain(merged(fields, patch), length=length)
    widest = after.widest
    found = (widest.turning, widest.frequencies[-1], widest.attention_factor)
    assert found == pytest.approx(RUN[name], rel=1e-6)
    assert not {"entries_differ", "refused"} & {one.code for one in after.findings}


def test_programs_that_cannot_do_it_have_no_recipe(explain):
    programs = {name: {one.program for one in explain(fields, length=length).recipes}
                for name, (fields, length) in CASES.items()}  # fmt: skip
    assert programs["plain"] == {
        "config.json", "transformers 4.57", VLLM, SGLANG, "llama.cpp",
    }  # fmt: skip
    assert not {"llama.cpp", "transformers 4.57"} & programs["Bailing"]
    assert SGLANG in programs["Gemma 3"]
    assert VLLM not in programs["MiMo"]
    assert programs["Qwen3-Omni"] == {"config.json", VLLM}


HUNYUAN = {"model_type": "hunyuan_v1_dense", **_SIZES, "max_position_embeddings": 262_144,
           "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}}  # fmt: skip
COHERE2 = {"model_type": "cohere2", **_SIZES, "max_position_embeddings": 131_072}
GEMMA4 = {"model_type": "gemma4_text", **_SIZES, "max_position_embeddings": 262_144}


@pytest.mark.parametrize(
    "fields", [HUNYUAN, COHERE2, GEMMA4, PUBLISHED["Llama 3.1 8B"], {"model_type": "esm"}]
)
def test_some_files_have_no_recipe(fields, explain):
    """Another scaling, windows alone, or no rotation."""
    assert explain(fields, length=1_048_576).recipes == ()


def test_a_recipe_keeps_the_other_keys_of_the_entry(explain):
    text = explain(MINISTRAL3, length=524_288).recipes[0].text
    entry = json.loads(text)["text_config"]["rope_parameters"]
    old = MINISTRAL3["text_config"]["rope_parameters"]
    assert entry == {**old, "factor": 32.0}
    fixed = json.loads(explain(OLMO3, length=262_144).recipes[0].text)["rope_parameters"]
    assert fixed["full_attention"]["attention_factor"] is None


def test_a_factor_of_one_on_cos_and_sin_stays(explain):
    """DeepSeek V4 in transformers 5.24: 1.0 at every factor, without a key in the file."""
    entry = {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65_536}
    fields = {"model_type": "deepseek_v4", "rope_scaling": entry}
    recipes = explain(fields, length=4_194_304).recipes
    parameters = json.loads(recipes[0].text)["rope_parameters"]
    assert parameters["compress"]["factor"] == 64.0
    assert parameters["compress"]["attention_factor"] == 1.0
    assert parameters["main"]["rope_type"] == "default"
    fixed = {**OLMO3, "rope_scaling": {**_YARN, "attention_factor": 1.0}}
    text = explain(fixed, length=262_144).recipes[0].text
    assert json.loads(text)["rope_parameters"]["full_attention"]["attention_factor"] == 1.0


def test_a_name_is_quoted(tmp_path):
    path = tmp_path / "it's mine"
    path.write_text(json.dumps(QWEN3))
    found = explain_rope(RopeOptions(config=str(path), length=131_072))
    texts = {one.program: one.text for one in found.recipes}
    assert shlex.split(texts[VLLM])[2] == str(path)


def test_a_file_of_gguf_has_the_command_of_llama_cpp(gguf_file):
    metadata = {
        "general.architecture": "qwen3", "qwen3.block_count": 2, "qwen3.embedding_length": 512,
        "qwen3.attention.head_count": 4, "qwen3.attention.key_length": 128,
        "qwen3.context_length": 40_960, "qwen3.rope.freq_base": 1e6,
    }  # fmt: skip
    found = gguf_file(metadata, length=131_072)
    assert [one.program for one in found.recipes] == ["llama.cpp"]
    assert "--rope-scale 4 --yarn-orig-ctx 32768" in found.recipes[0].text


@pytest.mark.parametrize("kind", ["esm", "gptj", "recurrent_gemma"])
def test_classes_without_scalings_compute_none(kind, explain):
    """transformers 5.24 ignores a scaling in two of these classes and refuses it in one."""
    found = explain({"model_type": kind, **_SIZES, "position_embedding_type": "rotary",
                     "rope_scaling": {"rope_type": "linear", "factor": 4.0}})  # fmt: skip
    (new,) = (one for one in found.programs if one.name.startswith("transformers 5.24"))
    if kind == "recurrent_gemma":
        assert new.problem
    else:
        assert {one.rope_type for one in new.numbers if one.turns} == {"default"}
