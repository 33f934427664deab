"""What vLLM, SGLang and llama.cpp make of a configuration: numbers of public threads."""

import math

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.plans.programs.keys import reading_programs
from jaxpe.plans.programs.table import PROGRAMS, choose_programs
from jaxpe.plans.scaling import inverse_frequencies
from tests.plans.conftest import LLAMA_CPP, NEWEST, OLD, SGLANG, VLLM, by_program, codes

ORIGINAL = "original_max_position_embeddings"
FULL, SLIDING = "full_attention", "sliding_attention"
LLAMA = {
    "model_type": "llama", "hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 2,
    "rope_theta": 1e6, "max_position_embeddings": 40_960,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 32_768}
LISTS = {"rope_type": "longrope", "short_factor": [1.0] * 64, "long_factor": [2.0] * 64}
DEEPSEEK = {
    "model_type": "deepseek_v3", "max_position_embeddings": 163_840, "num_hidden_layers": 2,
    "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                     ORIGINAL: 4096},
}  # fmt: skip
HUNYUAN = {
    "model_type": "hunyuan_v1_moe", "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128,
    "max_position_embeddings": 32_768,
    "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
}  # fmt: skip
PHI3 = {
    "model_type": "phi3", "max_position_embeddings": 131_072, ORIGINAL: 4096,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48},
}  # fmt: skip
CHATGLM = {
    "model_type": "chatglm", "num_layers": 40, "kv_channels": 128, "hidden_size": 4096,
    "num_attention_heads": 32, "seq_length": 131_072, "rope_ratio": 500, "original_rope": True,
}  # fmt: skip
M4, M40 = (0.1 * math.log(s) + 1 for s in (4, 40))


def llama(**scaling):
    return {**LLAMA, "rope_scaling": scaling}


def deepseek(**changes):
    scaling = {**DEEPSEEK["rope_scaling"], **changes}
    return {**DEEPSEEK, "rope_scaling": {k: v for k, v in scaling.items() if v is not None}}


def sglang_yarn(dim, base, extrapolation):
    """`YaRNScalingRotaryEmbedding._compute_inv_freq` of SGLang, in float64, for YARN."""
    pos_freqs = base ** (np.arange(0, dim, 2) / dim)
    low, high = (
        dim * math.log(32_768 / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (32, 1)
    )
    low, high = max(math.floor(low), 0), min(math.ceil(high), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    mask = (1 - ramp) * extrapolation
    return (1 / (4 * pos_freqs)) * (1 - mask) + (1 / pos_freqs) * mask


PLAIN = inverse_frequencies(128, base=1e6)
USUAL, HALVED = (sglang_yarn(128, 1e6, e) for e in (1.0, 0.5))
STRETCHED = inverse_frequencies(128, base=1e6 * 3 ** (128 / 126))
NTK = inverse_frequencies(128, base=4e6) / 4 ** (2 / 128)
LONG = math.sqrt(1 + math.log(32) / math.log(4096))
ANY, REFUSED = ..., "refused"
# Fields, a quantity, and its values in the newest transformers, vLLM, SGLang and llama.cpp.
CASES = {
    # vllm-project/vllm#56446: as transformers from 0.30 on; the length is not multiplied again.
    "attention factor": (
        llama(**YARN, attention_factor=1.0), "attention_factor", (1.0, 1.0, M4, M4),
    ),
    "longest under YaRN": (llama(**YARN), "longest", (40_960,) * 4),
    "longest of linear": (
        llama(rope_type="linear", factor=2.0), "longest", (40_960, 81_920, 81_920, ANY),
    ),
    # yarn.py and rope_variant.py of SGLang 0.5.23; no file of vLLM 0.33.0 has the keys.
    "attn_factor": (llama(**YARN, attn_factor=0.5), "attention_factor", (M4, M4, M4 / 2, M4)),
    "extrapolation": (
        llama(**YARN, extrapolation_factor=0.5), "frequencies", (USUAL, USUAL, HALVED, USUAL),
    ),
    "factor of extrapolation": (
        llama(**YARN, extrapolation_factor=0.5), "attention_factor", (M4,) * 4,
    ),
    "latent extrapolation": (
        {**DEEPSEEK, "rope_scaling": {**YARN, "extrapolation_factor": 0.5}}, "frequencies",
        (ANY, sglang_yarn(64, 1e4, 1.0), sglang_yarn(64, 1e4, 0.5), ANY),
    ),
    "latent attn_factor": (
        deepseek(factor=4.0, mscale_all_dim=0.5, attn_factor=0.5), "attention_factor",
        (ANY, M4 / (0.05 * math.log(4) + 1), M4 / (0.1 * math.log(4) + 2), ANY),
    ),
    # Growing in transformers, nothing in vLLM, always for s times the length in SGLang.
    "dynamic": (
        llama(rope_type="dynamic", factor=2.0), "frequencies", (PLAIN, PLAIN, STRETCHED, PLAIN),
    ),
    # 10,000·1000^(128/126), as tencent/Hunyuan-A13B-Instruct and the converter have it.
    "alpha": (HUNYUAN, "base", (11_158_839.9251,) * 4),
    "longest with alpha": (HUNYUAN, "longest", (32_768,) * 3 + (262_144,)),
    "alpha of any class": (
        llama(rope_type="dynamic", alpha=10.0, factor=1.0), "base",
        (1e6, *[1e6 * 10 ** (128 / 126)] * 2, 1e6),
    ),
    "ntk": (llama(rope_type="ntk", factor=4.0), "frequencies", (REFUSED, NTK, REFUSED, REFUSED)),
    "telechat": (
        llama(**{**YARN, "rope_type": "telechat3-yarn"}), "attention_factor",
        (ANY, 0.07 * math.log(4) + 1, ANY, ANY),
    ),
    "whole factor": (
        llama(rope_type="linear", factor=4), "factor", (4.0, REFUSED, REFUSED, ANY),
    ),
    "two types": (llama(**YARN, type="linear"), "rope_type", (ANY, REFUSED, "yarn", ANY)),
    "share": ({**LLAMA, "partial_rotary_factor": 0.75}, "turning", (128, 96, 128, 128)),
    "logits": (DEEPSEEK, "logit_factor", (M40**2,) * 4),
    "cos and sin": (DEEPSEEK, "attention_factor", (1.0,) * 4),
    # src/models/deepseek2.cpp: the factor of cos and sin is squared into the logits too.
    "no mscale": (
        deepseek(mscale=None, mscale_all_dim=None), "logit_factor", (ANY, 1.0, ANY, M40**2),
    ),
    "no mscale, cos and sin": (
        deepseek(mscale=None, mscale_all_dim=None), "attention_factor", (ANY, ANY, ANY, M40),
    ),
    "latent factor of 1": (
        deepseek(attention_factor=1.0), "logit_factor", (ANY, 1.0, M40**2, ANY),
    ),
    "latent share": ({**DEEPSEEK, "partial_rotary_factor": 0.5}, "turning", (ANY, 32, 64, ANY)),
    # Its default max_model_len is the field beside the entry: vllm-project/vllm#48621.
    "longest of longrope": (PHI3, "longest", (ANY, 4096, ANY, ANY)),
    "lists": (PHI3, "frequencies", (ANY, *[inverse_frequencies(96) / 2] * 3)),
    "factor of lists": (PHI3, "attention_factor", (ANY, LONG, LONG, LONG)),
    "written for Llama": (
        llama(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              **{ORIGINAL: 8192}), "rope_type", ("llama3",) * 4,
    ),
    "not written for Qwen 3": (
        {**LLAMA, "model_type": "qwen3", "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            ORIGINAL: 8192}}, "rope_type", (ANY, ANY, ANY, "default"),
    ),
    # zai-org/glm-4-9b-chat: rope_ratio 500, half of each head, pairs side by side.
    "ratio": (CHATGLM, "frequencies", (inverse_frequencies(64, base=5e6),) * 4),
    "pairs of ChatGLM": (CHATGLM, "pairing", ("interleaved",) * 4),
    # tencent/Hy4-preview: vLLM's attention.py, llama.cpp's conversion/hy_v4.py.
    "pairs of Hy 4": (
        {"model_type": "hy_v4"}, "pairing", ("half", "interleaved", ANY, "interleaved"),
    ),
    "permuted": (
        {"model_type": "llama"}, "pairing", (ANY, ANY, ANY, "interleaved, weights permuted"),
    ),
    "permuted sections": (
        {"model_type": "glm4v_text", "rope_scaling": {
            "rope_type": "default", "mrope_section": [8, 12, 12]}},
        "pairing", (ANY, ANY, ANY, "half, weights permuted"),
    ),
    "halves": ({"model_type": "qwen3"}, "pairing", (ANY, ANY, ANY, "half")),
    "no class in vLLM": (
        {"model_type": "baichuan", "hidden_size": 4096, "num_attention_heads": 32}, "base",
        (ANY, REFUSED, ANY, 1e4),
    ),
    "no class in llama.cpp": ({"model_type": "helium"}, "base", (ANY, ANY, ANY, REFUSED)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_numbers_of_programs(explain, name):
    fields, what, expected = CASES[name]
    programs = {one.name: one for one in explain(fields).programs}
    for program, wanted in zip((NEWEST, VLLM, SGLANG, LLAMA_CPP), expected, strict=True):
        found = programs[program]
        if wanted is ANY:
            continue
        assert (found.problem is not None) == (wanted is REFUSED), program
        if wanted is not REFUSED:
            value = getattr(found if what == "longest" else found.numbers[0], what)
            if isinstance(wanted, str):
                assert value == wanted, program
            else:
                np.testing.assert_allclose(value, wanted, err_msg=program)


@pytest.mark.parametrize(("context", "divisor"), [(4096, 1), (4097, 2)])
def test_vllm_takes_the_long_list_beyond_the_original_length_alone(explain, context, divisor):
    """At a context equal to L0 a short text has the short list, as in SGLang at any."""
    fields = {**llama(**LISTS, **{ORIGINAL: 4096}), "max_position_embeddings": context}
    found = by_program(explain(fields, length=100))
    np.testing.assert_allclose(found[VLLM].frequencies, PLAIN / divisor)
    np.testing.assert_allclose(found[SGLANG].frequencies, PLAIN)


@pytest.mark.parametrize(("kind", "scaled"), [("deepseek_v2", False), ("deepseek_v3", True)])
def test_deepseek_v2_has_no_factor_on_logits_in_transformers_4(explain, kind, scaled):
    """Its class had none before 5.15, unlike version 3."""
    found = by_program(explain({**deepseek(mscale=0.7, mscale_all_dim=0.7), "model_type": kind}))
    expected = (0.07 * math.log(40) + 1) ** 2
    assert found[NEWEST].logit_factor == pytest.approx(expected)
    assert found[OLD].logit_factor == pytest.approx(expected if scaled else 1.0)


def test_programs_compute_with_keys_that_their_source_reads(explain):
    """`keys.toml` is made from the sources, the rules are written by hand."""
    names = {NEWEST: "transformers", OLD: "transformers_4", VLLM: "vllm", SGLANG: "sglang",
             LLAMA_CPP: "llama_cpp"}  # fmt: skip
    stated = {
        **YARN, "attn_factor": 0.9, "extrapolation_factor": 0.5, "beta_fast": 16.0,
        "beta_slow": 2.0, "truncate": False, "mscale": 0.7, "mscale_all_dim": 0.5,
    }  # fmt: skip
    whole = by_program(explain(llama(**stated)))
    for key in stated.keys() - YARN.keys():
        without = by_program(explain(llama(**{k: v for k, v in stated.items() if k != key})))
        uses = {name for name in names if not np.allclose(
            [*whole[name].frequencies, whole[name].attention_factor],
            [*without[name].frequencies, without[name].attention_factor])}  # fmt: skip
        assert {names[name] for name in uses} <= set(reading_programs(key, "yarn"))
        assert uses or key not in ("attn_factor", "extrapolation_factor", "beta_fast", "mscale")


def test_deepseek_v4_scales_compressed_layers_alone(explain):
    """sgl-project/sglang#34788, vllm-project/vllm#54815: θ of both kinds, cos and sin times 1."""
    scaling = {"type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, ORIGINAL: 65_536}
    found = explain({"model_type": "deepseek_v4", "rope_scaling": scaling, "num_hidden_layers": 3,
                     "compress_ratios": [0, 4, 128]})  # fmt: skip
    for name, local in by_program(found, SLIDING).items():
        compressed = by_program(found, "compressed_sparse_attention")[name]
        np.testing.assert_allclose(local.frequencies, inverse_frequencies(64, base=1e4))
        assert compressed.attention_factor == 1.0
        assert compressed.frequencies[[1, -1]] == pytest.approx([0.6877, 5.68e-7], rel=1e-2)


def test_windows_keep_their_frequencies_where_full_layers_are_scaled(explain):
    """huggingface/transformers#45945, vllm-project/vllm#43419, ggml-org/llama.cpp#16015."""
    scaling = {"rope_type": "yarn", "factor": 8.0, ORIGINAL: 8192}
    olmo = explain({"model_type": "olmo3", "rope_theta": 500_000, "rope_scaling": scaling,
                    "max_position_embeddings": 65_536})  # fmt: skip
    assert {one.rope_type for one in by_program(olmo, SLIDING).values()} == {"default"}
    for one in by_program(olmo, FULL).values():
        assert one.attention_factor == pytest.approx(1.208, abs=1e-3)
    gemma = explain({"model_type": "gemma3_text",
                     "rope_scaling": {"rope_type": "linear", "factor": 8.0}})  # fmt: skip
    full, local = (by_program(gemma, layers) for layers in (FULL, SLIDING))
    for name in (NEWEST, VLLM, SGLANG):
        expected = inverse_frequencies(256, base=1e6) / 8
        np.testing.assert_allclose(full[name].frequencies, expected)
        np.testing.assert_allclose(local[name].frequencies, inverse_frequencies(256, base=1e4))


def test_the_ramp_of_gpt_oss_is_truncated_in_llama_cpp(explain):
    found = by_program(explain({"model_type": "gpt_oss"}), FULL)
    same = {name for name, one in found.items()
            if np.allclose(one.frequencies, found[NEWEST].frequencies, rtol=1e-2)}  # fmt: skip
    assert {VLLM, SGLANG} <= same
    assert LLAMA_CPP not in same


@pytest.mark.parametrize(
    ("fields", "rotates"),
    [  # llama.cpp's converter writes no rotation beside state space layers, and one without them
        ({"layer_types": ["mamba", "attention"], "position_embedding_type": "rope"}, NEWEST),
        ({"layer_types": ["attention"] * 2, "position_embedding_type": "nope"}, LLAMA_CPP),
        ({"layer_types": ["attention"] * 2}, LLAMA_CPP),
    ],
)
def test_granite_hybrids_rotate_in_one_program_alone(explain, fields, rotates):
    sizes = {"hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 2}
    found = explain({"model_type": "granitemoehybrid", **sizes, **fields})
    turning = {name: one.turning for name, one in by_program(found, FULL).items()}
    other = {NEWEST: LLAMA_CPP, LLAMA_CPP: NEWEST}[rotates]
    assert (turning[rotates], turning[other]) == (128, 0)
    (told,) = (one for one in found.disagreements if one.what == "turns")
    assert told.values[rotates] == "rotates"
    assert "turning_differs" in codes(found)


def test_layers_that_are_fixed_in_the_code_are_told_from_those_of_the_file(explain):
    shared = {"model_type": "smollm3", "num_hidden_layers": 8}
    found = explain(shared)
    assert found.groups[0].layers == (0, 1, 2, 4, 5, 6)
    (llama_cpp,) = (one for one in found.programs if one.name == LLAMA_CPP)
    assert [one.turns for one in llama_cpp.numbers] == [True, False]
    assert LLAMA_CPP not in by_program(explain({**shared, "no_rope_layers": [1, 0] * 4}))


def test_queries_of_ministral_3(explain):
    """β and L0 of the entry; in SGLang the whole length; in vLLM only what stands beside."""
    found = by_program(explain({"model_type": "ministral3"}))
    scalings = {name: one.query_scaling and one.query_scaling[:2] for name, one in found.items()}
    assert (scalings[NEWEST], scalings[LLAMA_CPP]) == ((0.1, 16_384), (0.1, 16_384))
    assert (scalings[VLLM], scalings[SGLANG]) == (None, (0.1, 262_144))


def test_mimo_has_flat_fields_that_transformers_does_not_read(explain):
    found = explain({"model_type": "mimo_v2_flash", "rope_theta": 2e6, "swa_rope_theta": 3e4,
                     "partial_rotary_factor": 0.334, "head_dim": 192})  # fmt: skip
    full, local = (by_program(found, layers) for layers in (FULL, SLIDING))
    bases = {name: (full[name].base, local[name].base) for name in (NEWEST, VLLM, SGLANG)}
    assert bases == {NEWEST: (5e6, 1e4), VLLM: (2e6, 3e4), SGLANG: (2e6, 3e4)}


@pytest.mark.parametrize(
    ("names", "form", "expected"),
    [
        (None, "gguf", [LLAMA_CPP]),
        (None, "config.json", [one.name for one in PROGRAMS]),
        ("VLLM", "config.json", [VLLM]),
        ("vllm 0.33, transformers 4", "config.json", [OLD, VLLM]),
        (" transformers 5 , llama.cpp", "config.json", [NEWEST, LLAMA_CPP]),
        ("keras", "config.json", None),
        ("transformers 5.15", "options", None),
        ("vllm", "gguf", None),
        ("", "options", None),
    ],
)
def test_programs_are_chosen_by_name(names, form, expected):
    assert PROGRAMS[0].name == NEWEST
    if expected is None:
        with pytest.raises(InputError, match="pass"):
            choose_programs(names, form)
    else:
        assert [one.name for one in choose_programs(names, form)] == expected
