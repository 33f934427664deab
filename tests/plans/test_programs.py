"""What vLLM, SGLang and llama.cpp make of a configuration: numbers of public threads."""

import math

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.plans.comparison import largest_ratio
from jaxpe.plans.programs.base import UnreadableError
from jaxpe.plans.programs.keys import reading_programs
from jaxpe.plans.programs.table import PROGRAMS, choose_programs
from jaxpe.plans.scaling import inverse_frequencies
from tests.plans.entries import computed, entries, program, written

ORIGINAL = "original_max_position_embeddings"
NEWEST, VLLM = "transformers 5.24", "vLLM 0.33"
SGLANG, LLAMA_CPP = "SGLang 0.5.23", "llama.cpp"
OTHERS = (SGLANG, LLAMA_CPP)
LLAMA = {
    "model_type": "llama", "hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 2,
    "rope_theta": 1e6, "max_position_embeddings": 40_960,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 32_768}


@pytest.fixture
def llama(tmp_path):
    """A configuration of Llama with fields in place of its own."""
    return lambda **fields: written(tmp_path, **{**LLAMA, **fields})


def only(name, given):
    (entry,) = entries(name, given).values()
    return entry


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        (NEWEST, 1.0),
        (VLLM, 1.0),
        *[(n, 0.1 * math.log(4) + 1) for n in OTHERS],
    ],
)
def test_an_attention_factor_counts_in_transformers_and_new_vllm(llama, name, factor):
    """vllm-project/vllm#56446: as transformers from 0.30 on."""
    given = llama(rope_scaling={**YARN, "attention_factor": 1.0})
    assert computed(only(name, given), 128)[1] == pytest.approx(factor)


@pytest.mark.parametrize(("name", "longest"), [(VLLM, 40_960), (SGLANG, 40_960)])
def test_the_longest_text_under_yarn(llama, name, longest):
    """vllm-project/vllm#56446: it is not multiplied by the factor again."""
    assert program(name).longest(llama(rope_scaling=YARN).model) == longest


@pytest.mark.parametrize(("name", "longest"), [(VLLM, 81_920), (SGLANG, 81_920), (NEWEST, 40_960)])
def test_servers_multiply_a_linear_length(llama, name, longest):
    given = llama(rope_scaling={"rope_type": "linear", "factor": 2.0})
    assert program(name).longest(given.model) == longest


def test_longrope_is_served_up_to_its_original_length_in_vllm(tmp_path):
    """Its default max_model_len is the field beside the entry: vllm-project/vllm#48621."""
    lists = {"short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
    given = written(
        tmp_path, model_type="phi3", max_position_embeddings=131_072,
        rope_scaling={"type": "longrope", **lists}, **{ORIGINAL: 4096},
    )  # fmt: skip
    assert program(VLLM).longest(given.model) == 4096
    expected = math.sqrt(1 + math.log(32) / math.log(4096))
    for name in (VLLM, SGLANG, LLAMA_CPP):
        inverse, factor = computed(only(name, given), 96, 131_072)
        np.testing.assert_allclose(inverse, inverse_frequencies(96) / 2)
        assert factor == pytest.approx(expected)


def test_longrope_without_a_length_beside_has_one_list_in_vllm(llama):
    lists = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64}
    given = llama(rope_scaling={"rope_type": "longrope", **lists, ORIGINAL: 4096})
    short = {name: computed(only(name, given), 128, 100)[0] for name in (VLLM, SGLANG)}
    np.testing.assert_allclose(short[VLLM], short[SGLANG] / 2)


@pytest.mark.parametrize(("context", "divisor"), [(4096, 1), (4097, 2)])
def test_vllm_takes_the_long_list_beyond_the_original_length_alone(llama, context, divisor):
    """At a context equal to L0 a short text has the short list."""
    lists = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64}
    entry = {"rope_type": "longrope", **lists, ORIGINAL: 4096}
    given = llama(rope_scaling=entry, max_position_embeddings=context)
    inverse, _ = computed(only(VLLM, given), 128, 100)
    np.testing.assert_allclose(inverse, inverse_frequencies(128, base=1e6) / divisor)


@pytest.mark.parametrize(("kind", "scaled"), [("deepseek_v2", False), ("deepseek_v3", True)])
def test_deepseek_v2_has_no_factor_on_logits_in_transformers_4(explain, kind, scaled):
    """Its class had none before 5.15, unlike version 3."""
    yarn = {"type": "yarn", "factor": 40, ORIGINAL: 4096, "mscale": 0.7, "mscale_all_dim": 0.7}
    config = {
        "model_type": kind, "hidden_size": 2048, "num_attention_heads": 16,
        "num_hidden_layers": 2, "max_position_embeddings": 163_840, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rope_scaling": yarn,
    }  # fmt: skip
    programs = explain(config, programs="transformers").programs
    factors = {one.name: one.numbers[0].logit_factor for one in programs}
    expected = (0.1 * 0.7 * math.log(40) + 1) ** 2
    assert factors["transformers 5.24"] == pytest.approx(expected)
    assert factors["transformers 4.57"] == pytest.approx(expected if scaled else 1.0)


@pytest.mark.parametrize(("name", "multiplied"), [(VLLM, False), (SGLANG, True)])
def test_attn_factor_multiplies_cos_and_sin_in_sglang_alone(llama, tmp_path, name, multiplied):
    """yarn.py and rope_variant.py of SGLang 0.5.23; no file of vLLM 0.33.0 has the key."""
    factor = 0.5 if multiplied else 1.0
    entry = only(name, llama(rope_scaling={**YARN, "attn_factor": 0.5}))
    assert computed(entry, 128)[1] == pytest.approx(factor * (0.1 * math.log(4) + 1))
    yarn = {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5, "attn_factor": 0.5}
    given = written(tmp_path, model_type="deepseek_v3", rope_scaling=yarn)
    ratio = (0.1 * math.log(4) + 1) / (0.05 * math.log(4) + 1)
    assert computed(only(name, given), 64)[1] == pytest.approx(factor * ratio)


def sglang_yarn(dim, base, s, extrapolation):
    """`YaRNScalingRotaryEmbedding._compute_inv_freq` of SGLang, in float64."""
    pos_freqs = base ** (np.arange(0, dim, 2) / dim)
    low, high = (
        dim * math.log(32_768 / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (32, 1)
    )
    low, high = max(math.floor(low), 0), min(math.ceil(high), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    mask = (1 - ramp) * extrapolation
    return (1 / (s * pos_freqs)) * (1 - mask) + (1 / pos_freqs) * mask


@pytest.mark.parametrize("name", [NEWEST, VLLM, SGLANG, LLAMA_CPP])
def test_extrapolation_factor_multiplies_the_ramp_of_sglang_alone(llama, tmp_path, name):
    given = llama(rope_theta=5e5, rope_scaling={**YARN, "extrapolation_factor": 0.5})
    inverse, factor = computed(only(name, given), 128)
    usual = sglang_yarn(128, 5e5, 4.0, 1.0)
    expected = sglang_yarn(128, 5e5, 4.0, 0.5) if name == SGLANG else usual
    np.testing.assert_allclose(inverse, expected)
    assert factor == pytest.approx(0.1 * math.log(4) + 1)
    if name == SGLANG:
        assert (~np.isclose(inverse, usual)).sum() == 42
        assert (inverse / usual).min() == pytest.approx(0.625)
        yarn = {**YARN, "extrapolation_factor": 0.5}
        latent = only(name, written(tmp_path, model_type="deepseek_v3", rope_scaling=yarn))
        np.testing.assert_allclose(computed(latent, 64)[0], sglang_yarn(64, 1e4, 4.0, 0.5))


def test_programs_compute_with_keys_that_their_source_reads(llama):
    """`keys.toml` is made from the sources, the rules are written by hand."""
    names = dict(zip((NEWEST, "transformers 4.57", VLLM, SGLANG, LLAMA_CPP),
                     ("transformers", "transformers_4", "vllm", "sglang", "llama_cpp"),
                     strict=True))  # fmt: skip
    stated = {
        **YARN, "attn_factor": 0.9, "extrapolation_factor": 0.5, "beta_fast": 16.0,
        "beta_slow": 2.0, "truncate": False, "mscale": 0.7, "mscale_all_dim": 0.5,
    }  # fmt: skip
    used = dict.fromkeys(names, ())
    for key in stated.keys() - YARN.keys():
        without = llama(rope_scaling={k: v for k, v in stated.items() if k != key})
        for name in names:
            found, other = (computed(only(name, given), 128)
                            for given in (llama(rope_scaling=stated), without))  # fmt: skip
            if not np.allclose(found[0], other[0]) or not math.isclose(found[1], other[1]):
                assert names[name] in reading_programs(key, "yarn")
                used[name] = (*used[name], key)
    assert {"attn_factor", "extrapolation_factor"} <= {*used[SGLANG]}
    assert len(used[NEWEST]) == len(used[VLLM]) == 5


def test_dynamic_is_three_things(llama):
    """Growing in transformers, nothing in vLLM, always for s times the length in SGLang."""
    given = llama(rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    plain = inverse_frequencies(128, base=1e6)
    for name in (VLLM, LLAMA_CPP):
        np.testing.assert_allclose(computed(only(name, given), 128)[0], plain)
    stretched = inverse_frequencies(128, base=1e6 * 3 ** (128 / 126))
    np.testing.assert_allclose(computed(only(SGLANG, given), 128)[0], stretched)


@pytest.mark.parametrize("name", [NEWEST, VLLM, SGLANG, LLAMA_CPP])
def test_alpha_of_hunyuan_stretches_the_base(tmp_path, name):
    """10,000·1000^(128/126), as tencent/Hunyuan-A13B-Instruct and the converter have it."""
    given = written(
        tmp_path, model_type="hunyuan_v1_moe", hidden_size=4096, num_attention_heads=32,
        head_dim=128, max_position_embeddings=32_768,
        rope_scaling={"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
    )  # fmt: skip
    assert only(name, given)["rope_theta"] == pytest.approx(11_158_839.9251)
    longest = 262_144 if name == LLAMA_CPP else 32_768
    assert program(name).longest(given.model) == longest


def test_alpha_counts_for_every_class_of_the_servers(llama):
    given = llama(rope_scaling={"rope_type": "dynamic", "alpha": 10.0, "factor": 1.0})
    base = 1e6 * 10 ** (128 / 126)
    assert only(VLLM, given)["rope_theta"] == only(SGLANG, given)["rope_theta"]
    assert only(VLLM, given)["rope_theta"] == pytest.approx(base)
    assert only(NEWEST, given)["rope_type"] == "dynamic"
    assert only(LLAMA_CPP, given)["rope_theta"] == 1e6


def test_ntk_is_a_type_of_vllm_alone(llama):
    given = llama(rope_scaling={"rope_type": "ntk", "factor": 4.0})
    inverse, factor = computed(only(VLLM, given), 128)
    expected = inverse_frequencies(128, base=4e6) / 4 ** (2 / 128)
    np.testing.assert_allclose(inverse, expected)
    assert factor == 1
    for name in (NEWEST, SGLANG, LLAMA_CPP):
        with pytest.raises(UnreadableError, match="ntk"):
            entries(name, given)


def test_telechat_has_a_factor_of_its_own(llama):
    given = llama(rope_scaling={**YARN, "rope_type": "telechat3-yarn"})
    assert computed(only(VLLM, given), 128)[1] == pytest.approx(0.07 * math.log(4) + 1)


@pytest.mark.parametrize("name", [VLLM, SGLANG])
def test_a_whole_linear_factor_is_refused_by_the_servers(llama, name):
    given = llama(rope_scaling={"rope_type": "linear", "factor": 4})
    with pytest.raises(UnreadableError, match=r"4\.0"):
        entries(name, given)
    assert only(NEWEST, given)["factor"] == 4


def test_types_that_differ_are_refused_by_vllm(llama):
    given = llama(rope_scaling={**YARN, "type": "linear"})
    with pytest.raises(UnreadableError, match="differ"):
        entries(VLLM, given)
    assert only(SGLANG, given)["rope_type"] == "yarn"


@pytest.mark.parametrize(
    ("name", "expected"), [(VLLM, 0.75), (SGLANG, 1.0), (NEWEST, 1.0), (LLAMA_CPP, 1.0)]
)
def test_a_share_beside_llama(llama, name, expected):
    share = only(name, llama(partial_rotary_factor=0.75))["partial_rotary_factor"]
    assert share == expected


DEEPSEEK = {
    "model_type": "deepseek_v3", "max_position_embeddings": 163_840, "num_hidden_layers": 2,
    "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                     ORIGINAL: 4096},
}  # fmt: skip


@pytest.mark.parametrize("name", [NEWEST, VLLM, SGLANG, LLAMA_CPP])
def test_deepseek_v3_has_its_temperature_on_the_logits(tmp_path, name):
    given = written(tmp_path, **DEEPSEEK)
    entry = only(name, given)
    logits = program(name).logit_factor(given.model, given.groups[0], entry)
    assert computed(entry, 64)[1] == pytest.approx(1.0)
    assert logits == pytest.approx((0.1 * math.log(40) + 1) ** 2)


def test_without_mscale_the_latent_graph_of_llama_cpp_has_both(tmp_path):
    """src/models/deepseek2.cpp: the factor of cos and sin is squared into the logits too."""
    scaling = {k: v for k, v in DEEPSEEK["rope_scaling"].items() if "mscale" not in k}
    given = written(tmp_path, **{**DEEPSEEK, "rope_scaling": scaling})
    entry, m = only(LLAMA_CPP, given), 0.1 * math.log(40) + 1
    assert entry["attention_factor"] == pytest.approx(m)
    assert entry["logit_factor"] == pytest.approx(m * m)
    assert only(VLLM, given)["logit_factor"] == 1.0


def test_vllm_leaves_the_logits_where_the_attention_factor_is_1(tmp_path):
    scaling = {**DEEPSEEK["rope_scaling"], "attention_factor": 1.0}
    given = written(tmp_path, **{**DEEPSEEK, "rope_scaling": scaling})
    assert "logit_factor" not in only(VLLM, given)
    assert only(SGLANG, given)["logit_factor"] > 1.8


def test_a_share_is_taken_of_the_rope_part_once_more_in_vllm_alone(tmp_path):
    given = written(tmp_path, **{**DEEPSEEK, "partial_rotary_factor": 0.5})
    shares = {n: only(n, given)["partial_rotary_factor"] for n in (VLLM, SGLANG)}
    assert shares == {VLLM: 0.5, SGLANG: 1.0}


@pytest.mark.parametrize("name", [NEWEST, VLLM, SGLANG, LLAMA_CPP])
def test_deepseek_v4_scales_compressed_layers_alone(tmp_path, name):
    """sgl-project/sglang#34788, vllm-project/vllm#54815: θ of both kinds, cos and sin times 1."""
    scaling = {"type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, ORIGINAL: 65_536}
    layers = {"num_hidden_layers": 3, "compress_ratios": [0, 4, 128]}
    given = written(tmp_path, model_type="deepseek_v4", rope_scaling=scaling, **layers)
    found = entries(name, given)
    local, factor = computed(found["sliding_attention"], 512)
    np.testing.assert_allclose(local, inverse_frequencies(64, base=1e4))
    compressed, factor = computed(found["compressed_sparse_attention"], 512)
    assert factor == 1.0
    assert compressed[1] == pytest.approx(0.6877, rel=1e-3)
    assert compressed[-1] == pytest.approx(5.68e-7, rel=1e-2)


def test_olmo_3_by_version(tmp_path):
    """huggingface/transformers#45945, vllm-project/vllm#43419, ggml-org/llama.cpp#16015."""
    scaling = {"rope_type": "yarn", "factor": 8.0, ORIGINAL: 8192}
    given = written(
        tmp_path, model_type="olmo3", rope_theta=500_000, max_position_embeddings=65_536,
        rope_scaling=scaling,
    )  # fmt: skip
    for name in (NEWEST, VLLM, SGLANG, LLAMA_CPP, "transformers 4.57"):
        found = entries(name, given)
        assert found["sliding_attention"]["rope_type"] == "default", name
        assert computed(found["full_attention"], 128)[1] == pytest.approx(1.208, abs=1e-3)


def test_the_ramp_of_gpt_oss_is_truncated_in_llama_cpp(tmp_path):
    found = {n: only_full(n, written(tmp_path, model_type="gpt_oss"))
             for n in (NEWEST, VLLM, SGLANG, LLAMA_CPP)}  # fmt: skip
    np.testing.assert_allclose(found[VLLM], found[NEWEST])
    np.testing.assert_allclose(found[SGLANG], found[NEWEST])
    assert not np.allclose(found[LLAMA_CPP], found[NEWEST], rtol=1e-2)


def only_full(name, given):
    return computed(entries(name, given)["full_attention"], 64)[0]


@pytest.mark.parametrize("name", [NEWEST, VLLM, SGLANG])
def test_servers_scale_the_full_layers_of_gemma_3(tmp_path, name):
    scaling = {"rope_type": "linear", "factor": 8.0}
    given = written(tmp_path, model_type="gemma3_text", rope_scaling=scaling)
    found = entries(name, given)
    expected = inverse_frequencies(256, base=1e6) / 8
    np.testing.assert_allclose(computed(found["full_attention"], 256)[0], expected)
    local = inverse_frequencies(256, base=1e4)
    np.testing.assert_allclose(computed(found["sliding_attention"], 256)[0], local)


def test_granite_hybrids_lose_their_rotation_in_llama_cpp(tmp_path):
    """Its converter writes none beside state space layers, and one where there are none."""
    kinds = {"layer_types": ["mamba", "attention"], "num_hidden_layers": 2}
    shared = {"model_type": "granitemoehybrid", "position_embedding_type": "rope"}
    given = written(tmp_path, **shared, **kinds)
    assert entries(LLAMA_CPP, given) == {"linear_attention": None, "full_attention": None}
    assert entries(NEWEST, given)["full_attention"]["rope_theta"] == 1e4
    given = written(tmp_path, model_type="granitemoehybrid", layer_types=["attention"] * 2,
                    position_embedding_type="nope", num_hidden_layers=2)  # fmt: skip
    assert entries(NEWEST, given)["full_attention"] is None
    assert entries(LLAMA_CPP, given)["full_attention"]["rope_theta"] == 1e4


def test_layers_that_turn_in_one_program_alone_are_told(explain):
    """Their heads have the width that the configuration states."""
    fields = {
        "model_type": "granitemoehybrid", "hidden_size": 2048, "num_attention_heads": 16,
        "num_hidden_layers": 2, "layer_types": ["attention"] * 2,
    }  # fmt: skip
    found = explain(fields)
    turning = {one.name: [r.turning for r in one.numbers] for one in found.programs}
    assert turning[LLAMA_CPP] == [128]
    assert turning[NEWEST] == [0]
    (told,) = (one for one in found.disagreements if one.what == "turns")
    assert told.values[LLAMA_CPP] == "rotates"


@pytest.mark.parametrize(
    ("frequencies", "ratio"),
    [([0.4, 1.7], 0.4), ([0.6, 1.7], 1.7), ([1.0, 1.0], 1.0), ([1.0], math.nan)],
)
def test_the_largest_ratio_is_the_factor_furthest_from_one(frequencies, ratio):
    np.testing.assert_equal(largest_ratio(np.array(frequencies), np.ones(2)), ratio)


def test_layers_that_are_fixed_in_the_code_are_told_from_those_of_the_file(tmp_path):
    shared = {"model_type": "smollm3", "num_hidden_layers": 8}
    given = written(tmp_path, **shared)
    turning = [group.layers for group in given.groups if group.kind == "rotary"]
    found = program(LLAMA_CPP).entries(*given)
    assert turning == [(0, 1, 2, 4, 5, 6)]
    assert [entry is None for entry in found] == [False, True]
    given = written(tmp_path, **shared, no_rope_layers=[1, 0] * 4)
    with pytest.raises(UnreadableError, match="4th layer"):
        entries(LLAMA_CPP, given)


def test_llama3_is_written_for_some_architectures_alone(tmp_path):
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, ORIGINAL: 8192}  # fmt: skip
    kinds = {}
    for model_type in ("llama", "qwen3"):
        given = written(tmp_path, model_type=model_type, rope_scaling=scaling)
        kinds[model_type] = only(LLAMA_CPP, given)["rope_type"]
    assert kinds == {"llama": "llama3", "qwen3": "default"}


def test_chatglm_has_a_ratio(tmp_path):
    """zai-org/glm-4-9b-chat: rope_ratio 500, half of each head, pairs side by side."""
    given = written(
        tmp_path, model_type="chatglm", num_layers=40, kv_channels=128, hidden_size=4096,
        num_attention_heads=32, seq_length=131_072, rope_ratio=500, original_rope=True,
    )  # fmt: skip
    (group,) = given.groups
    assert (group.pairing, len(group.layers), given.model.context) == ("interleaved", 40, 131_072)
    for name in (NEWEST, VLLM, SGLANG, LLAMA_CPP):
        inverse = computed(only(name, given), group.width)[0]
        np.testing.assert_allclose(inverse, inverse_frequencies(64, base=5e6))
        assert program(name).pairing(given.model, group) is None


def test_baichuan_13b_has_a_bias(tmp_path):
    kinds = [
        written(tmp_path, model_type="baichuan", hidden_size=size, num_attention_heads=32).groups[0]
        for size in (4096, 5120)
    ]
    assert [group.kind for group in kinds] == ["rotary", "bias"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model_type": "llama"}, "interleaved, weights permuted"),
        ({"model_type": "qwen3"}, None),
        ({"model_type": "cohere"}, None),
        ({"model_type": "glm4v_text", "rope_scaling": {"rope_type": "default",
          "mrope_section": [8, 12, 12]}}, "half, weights permuted"),
        ({"model_type": "llama4_text"}, None),
    ],
)  # fmt: skip
def test_pairing_of_llama_cpp(tmp_path, fields, expected):
    given = written(tmp_path, **fields)
    assert program(LLAMA_CPP).pairing(given.model, given.groups[0]) == expected


def test_hy_4_is_interleaved_in_servers_and_halved_in_transformers(tmp_path):
    """tencent/Hy4-preview: vLLM's attention.py, llama.cpp's conversion/hy_v4.py."""
    given = written(tmp_path, model_type="hy_v4")
    found = {n: program(n).pairing(given.model, given.groups[0]) for n in (NEWEST, VLLM, LLAMA_CPP)}
    assert found == {NEWEST: None, VLLM: "interleaved", LLAMA_CPP: "interleaved"}


@pytest.mark.parametrize(
    ("name", "model_type"), [(VLLM, "qwen"), (VLLM, "baichuan"), (LLAMA_CPP, "helium")]
)
def test_models_that_a_program_does_not_have(tmp_path, name, model_type):
    given = written(tmp_path, model_type=model_type, hidden_size=4096, num_attention_heads=32)
    with pytest.raises(UnreadableError, match="class for"):
        entries(name, given)


def test_queries_of_ministral_3(tmp_path):
    """β and L0 of the entry; in SGLang the whole length; in vLLM only what stands beside."""
    given = written(tmp_path, model_type="ministral3")
    found = {}
    for name in (NEWEST, VLLM, SGLANG, LLAMA_CPP):
        rules, entry = program(name), only(name, given)
        scaling = rules.query_scaling(given.configuration, given.model, entry)
        found[name] = scaling and (scaling.beta, scaling.period)
    expected = {NEWEST: (0.1, 16_384), VLLM: None, SGLANG: (0.1, 262_144)}
    assert found == {**expected, LLAMA_CPP: (0.1, 16_384)}


def test_mimo_has_flat_fields_that_transformers_does_not_read(tmp_path):
    given = written(
        tmp_path, model_type="mimo_v2_flash", rope_theta=2e6, swa_rope_theta=3e4,
        partial_rotary_factor=0.334, head_dim=192,
    )  # fmt: skip
    bases = {
        name: [entries(name, given)[kind]["rope_theta"]
               for kind in ("full_attention", "sliding_attention")]
        for name in (NEWEST, VLLM, SGLANG)
    }  # fmt: skip
    assert bases == {NEWEST: [5e6, 1e4], VLLM: [2e6, 3e4], SGLANG: [2e6, 3e4]}


@pytest.mark.parametrize(
    ("names", "form", "expected"),
    [
        (None, "gguf", ["llama.cpp"]),
        ("VLLM", "config.json", [VLLM]),
        ("vllm 0.33, transformers 4", "config.json", ["transformers 4.57", VLLM]),
        (" transformers 5 , llama.cpp", "config.json", [NEWEST, LLAMA_CPP]),
        ("sglang 0.5.23", "options", [SGLANG]),
    ],
)
def test_programs_are_chosen_by_name(names, form, expected):
    assert [one.name for one in choose_programs(names, form)] == expected


def test_the_newest_transformers_comes_first():
    assert PROGRAMS[0].name == NEWEST
    assert choose_programs(None, "config.json")[0] == PROGRAMS[0]


@pytest.mark.parametrize(
    ("names", "form"),
    [
        ("keras", "config.json"),
        ("transformers 5.15", "options"),
        ("vllm 0.29", "options"),
        ("vllm", "gguf"),
        ("", "options"),
    ],
)  # fmt: skip
def test_names_of_no_program_are_refused(names, form):
    with pytest.raises(InputError, match=r"pass some of .*llama\.cpp"):
        choose_programs(names, form)
