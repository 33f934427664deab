"""Recipes for longer texts: each is applied to the file, and gives the YaRN that it promises."""

import itertools
import json
import shlex

import pytest

from jaxpe.plans import RopeOptions, explain_rope
from tests.plans.conftest import NEWEST, SGLANG, VLLM, codes, read

PUBLISHED = read("published")
QWEN3 = PUBLISHED["Qwen3 8B"]
_YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192}
_SIZES = {"hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128, "num_hidden_layers": 12}


def sized(model_type, length, base=None, **fields):
    stated = {"model_type": model_type, **_SIZES, "max_position_embeddings": length, **fields}
    return stated if base is None else {**stated, "rope_theta": base}


def sections(*counts, kind="rope_type"):
    return {kind: "mrope" if kind == "type" else "default", "mrope_section": [*counts]}


OLMO3 = sized(
    "olmo3", 65_536, 500_000, sliding_window=4096,
    rope_scaling={**_YARN, "attention_factor": 1.2079441541679836},
)  # fmt: skip
QWEN25_VL = sized(
    "qwen2_5_vl", 128_000, 1e6, rope_scaling=sections(16, 24, 24, kind="type"),
    vision_config={"depth": 32, "hidden_size": 1280, "num_heads": 16},
)  # fmt: skip
MINISTRAL3 = sized("ministral3", 262_144, rope_parameters={
    "rope_type": "yarn", "type": "yarn", "factor": 16.0, "llama_4_scaling_beta": 0.1,
    "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16_384,
    "rope_theta": 1e6, "beta_fast": 32.0, "beta_slow": 1.0,
})  # fmt: skip
# Fields, a longer length; and entries that turn, the slowest frequency, and the factor on cos and
# sin of the layers that reach furthest, by the classes of transformers 5.24 for the patched file.
CASES = {
    "plain": (QWEN3, 131_072, None),
    "rope_parameters alone": (
        {**QWEN3, "rope_theta": None, "rope_scaling": None,
         "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 131_072, None),
    "gpt-oss": (PUBLISHED["gpt-oss 120B"], 300_000, None),
    "DeepSeek-V3": (PUBLISHED["DeepSeek-V3"], 262_144, (64, 2.0836274e-06, 1.0)),
    "Kimi K2": ({**PUBLISHED["DeepSeek-V3"], "model_type": "kimi_k2"}, 262_144, None),
    "OLMo 3": (OLMO3, 262_144, (128, 7.6723147e-08, 1.3465736)),
    "Qwen2.5-VL": (QWEN25_VL, 131_072, (128, 3.1023444e-07, 1.1386294)),
    "Qwen3-VL": (
        {"model_type": "qwen3_vl", "text_config": sized(
            "qwen3_vl_text", 262_144, 5e6, rope_scaling=sections(24, 20, 20))},
        1_000_000, (128, 8.4835989e-08, 1.1098612)),
    "Qwen3-Omni": (
        {"model_type": "qwen3_omni_moe", "thinker_config": {"text_config": {
            **_SIZES, "max_position_embeddings": 65_536, "rope_theta": 1e6,
            "rope_scaling": {**sections(24, 20, 20), "type": "default"}}}}, 262_144, None),
    "Bailing": (
        sized("bailing_hybrid", 131_072, 6e6, qk_rope_head_dim=64, kv_lora_rank=512,
              partial_rotary_factor=0.5), 1_048_576, (64, 3.3929385e-08, 1.2079442)),
    "MiMo": (
        sized("mimo_v2_flash", 262_144, 5e6, head_dim=192, num_attention_heads=64,
              partial_rotary_factor=0.334, swa_rope_theta=10_000, sliding_window=128),
        1_048_576, (64, 8.0967887e-08, 1.1386294)),
    "Ministral 3": (
        {"model_type": "mistral3", "text_config": MINISTRAL3}, 524_288, (128, 3.8779305e-08, 1.0)),
    "Gemma 3": (
        sized("gemma3_text", 32_768, head_dim=256, sliding_window=512, num_hidden_layers=26),
        131_072, None),
    "GLM-4": (sized("glm4", 32_768, 10_000.0, partial_rotary_factor=0.5), 131_072,
              (64, 3.3338038e-05, 1.1386294)),
    "ModernBERT": ({"model_type": "modernbert"}, 32_768, None),
    "SmolLM3": (PUBLISHED["SmolLM3 3B"], 262_144, None),
}  # fmt: skip
# Programs that cannot do it have no recipe: those that have one, and those that have none.
PROGRAMS = {
    "plain": ({"config.json", "transformers 4.57", VLLM, SGLANG, "llama.cpp"}, set()),
    "Bailing": (set(), {"llama.cpp", "transformers 4.57"}),
    "Gemma 3": ({SGLANG}, set()),
    "MiMo": (set(), {VLLM}),
    "Qwen3-Omni": ({"config.json", VLLM}, {"transformers 4.57", SGLANG, "llama.cpp"}),
}


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
    fields, length, run = CASES[name]
    before = explain(fields, length=length)
    assert before.recipes[0].program == "config.json"
    having, lacking = PROGRAMS.get(name, (set(), set()))
    programs = {one.program for one in before.recipes}
    assert having <= programs
    assert not lacking & programs
    promised = json.loads(before.recipes[0].text)
    while "max_position_embeddings" not in promised:
        promised = next(iter(promised.values()))
    reached = promised["max_position_embeddings"]
    entry = promised.get("rope_parameters") or promised["rope_scaling"]
    entry = entry.get("full_attention", entry)
    goal = ("yarn", entry["factor"], entry["original_max_position_embeddings"])
    assert goal[1] * goal[2] >= length or name == "Qwen3-VL"  # whose authors say 3
    turned = [(plan.turns, plan.turning) for plan in before.groups]
    bases = [plan.base for plan in before.groups]
    for recipe in before.recipes:
        file = recipe.program == "config.json"
        name_of = NEWEST if file else recipe.program
        after = explain(applied(fields, recipe), length=reached, programs=name_of)
        program = after.programs[-1]
        assert program.name == name_of
        assert program.problem is None
        assert [(one.turns, one.turning) for one in program.numbers] == turned
        assert [one.base for one in program.numbers] == pytest.approx(bases, nan_ok=True)
        widest = program.numbers[before.groups.index(before.widest)]
        assert (widest.rope_type, widest.factor, widest.original) == goal
        for plan, one in zip(before.groups, program.numbers, strict=True):
            if plan.window:  # which no longer text exceeds
                assert one.rope_type == plan.rope_type
        if file and run:
            assert not {"entries_differ", "refused"} & codes(after).keys()
            found = (widest.turning, widest.frequencies[-1], widest.attention_factor)
            assert found == pytest.approx(run, rel=1e-6)


@pytest.mark.parametrize(
    "fields",
    [
        sized("hunyuan_v1_dense", 262_144,
              rope_scaling={"type": "dynamic", "alpha": 1000.0, "factor": 1.0}),
        sized("cohere2", 131_072), sized("gemma4_text", 262_144), PUBLISHED["Llama 3.1 8B"],
        {"model_type": "esm"},
    ],
)  # fmt: skip
def test_some_files_have_no_recipe(fields, explain):
    """Another scaling, windows alone, or no rotation."""
    assert explain(fields, length=1_048_576).recipes == ()


def test_a_recipe_keeps_the_other_keys_of_the_entry(explain):
    """DeepSeek V4 in transformers 5.24: 1.0 at every factor, without a key in the file."""

    def entry(fields, length):
        return json.loads(explain(fields, length=length).recipes[0].text)["rope_parameters"]

    assert entry(MINISTRAL3, 524_288) == {**MINISTRAL3["rope_parameters"], "factor": 32.0}
    assert entry(OLMO3, 262_144)["full_attention"]["attention_factor"] is None
    fixed = {**OLMO3, "rope_scaling": {**_YARN, "attention_factor": 1.0}}
    assert entry(fixed, 262_144)["full_attention"]["attention_factor"] == 1.0
    scaling = {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65_536}
    found = entry({"model_type": "deepseek_v4", "rope_scaling": scaling}, 4_194_304)
    compressed = found["compress"]
    assert (compressed["factor"], compressed["attention_factor"]) == (64.0, 1.0)
    assert found["main"]["rope_type"] == "default"


def test_the_name_of_a_file_is_quoted(tmp_path):
    path = tmp_path / "it's mine"
    path.write_text(json.dumps(QWEN3))
    found = explain_rope(RopeOptions(config=str(path), length=131_072))
    texts = {one.program: one.text for one in found.recipes}
    assert shlex.split(texts[VLLM])[2] == str(path)


def test_a_file_of_gguf_has_the_command_of_llama_cpp(write_gguf):
    metadata = {
        "block_count": 2, "embedding_length": 512, "attention.head_count": 4,
        "attention.key_length": 128, "context_length": 40_960, "rope.freq_base": 1e6,
    }  # fmt: skip
    path = write_gguf("qwen3", metadata)
    (recipe,) = explain_rope(RopeOptions(config=path, length=131_072)).recipes
    assert recipe.program == "llama.cpp"
    assert "--rope-scale 4 --yarn-orig-ctx 32768" in recipe.text
