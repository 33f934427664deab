"""Positional metadata of GGUF files, as llama.cpp reads them."""

import math
from pathlib import Path

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.plans import RopeOptions, explain_rope
from jaxpe.plans.scaling import Llama3Scaling, YarnScaling, inverse_frequencies
from tests.plans.conftest import codes

SIZES = {"context_length": 131_072, "embedding_length": 64, "attention.head_count": 4}
YARN = {
    "rope.freq_base": 1e6,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 32_768,
}
WINDOWED = {"block_count": 12, "attention.sliding_window": 512}
FULL, SLIDING, COMPRESSED = "full_attention", "sliding_attention", "compressed_sparse_attention"
M4 = 0.1 * math.log(4) + 1


@pytest.fixture
def explain(write_gguf):
    """The analysis of a file of an architecture, with metadata and tensors."""

    def call(architecture="llama", tensors=(), options=None, **metadata):
        path = write_gguf(architecture, {**SIZES, **metadata}, tensors)
        return explain_rope(RopeOptions(config=path, **(options or {})))

    return call


def plain(width=16, base=1e4, by=1):
    return inverse_frequencies(width, base=base) / by


def yarn(width=16, base=1e6, **fields):
    return YarnScaling(4.0, 32_768, **fields).frequencies(width, base, None).inverse


# As the converter writes them: 1 where a frequency stays, the factor where it is divided.
LLAMA3 = Llama3Scaling(8.0, 1.0, 4.0, 8192).frequencies(16, 5e5, None).inverse
DIVISORS = {"rope_freqs.weight": plain(base=5e5) / LLAMA3}
LISTS = {"rope_factors_long.weight": [2.0] * 8, "rope_factors_short.weight": [1.0] * 8}
GEMMA3 = {"rope.freq_base": 1e6, "rope.scaling.factor": 8.0, **WINDOWED}
GEMMA4 = {
    **WINDOWED, "attention.sliding_window_pattern": [True, True, False] * 4,
    "attention.key_length": 32, "attention.key_length_swa": 16, "rope.freq_base": 1e6,
    "rope.freq_base_swa": 1e4, "rope.dimension_count": 32, "rope.dimension_count_swa": 16,
}  # fmt: skip
STILL = {"rope_freqs.weight": [1.0] * 4 + [1e30] * 12}  # pairs that do not turn
DEEPSEEK2 = {
    "attention.key_length": 576, "attention.key_length_mla": 192, "rope.dimension_count": 64,
    "rope.scaling.yarn_log_multiplier": 0.0707, **YARN, "rope.scaling.factor": 40.0,
}  # fmt: skip
DEEPSEEK4 = {
    "block_count": 4, "attention.compress_ratios": [0, 128, 4, 4], "attention.key_length": 32,
    "attention.compress_rope_freq_base": 16e4, "rope.dimension_count": 8, **YARN,
    "rope.freq_base": 1e4,
}  # fmt: skip
STEP = {
    **WINDOWED, "attention.sliding_window_pattern": [False, True] * 6, "rope.freq_base": 5e6,
    "rope.dimension_count": 16, "short": [1],  # not every array is longer than what is shown
}  # fmt: skip
# Architecture, metadata, tensors; and quantities of each kind of layer.
NUMBERS = {
    "YaRN": ("llama", YARN, (), {FULL: {"frequencies": yarn(), "attention_factor": M4}}),
    "default base": ("llama", {}, (), {FULL: {"frequencies": plain()}}),
    "longest as original": (
        "llama", {k: v for k, v in YARN.items() if "original" not in k}, (),
        {FULL: {"frequencies": YarnScaling(4.0, 131_072).frequencies(16, 1e6, None).inverse}},
    ),
    "betas unread": (
        "llama", {**YARN, "rope.scaling.yarn_beta_fast": 4.0}, (), {FULL: {"frequencies": yarn()}},
    ),
    "betas": (
        "mistral3", {**YARN, "rope.scaling.yarn_beta_fast": 4.0}, (),
        {FULL: {"frequencies": yarn(beta_fast=4.0)}},
    ),
    "divisors": (
        "llama", {"rope.freq_base": 5e5}, DIVISORS,
        {FULL: {"frequencies": LLAMA3, "attention_factor": 1.0, "rope_type": "rope_freqs"}},
    ),
    # The factor counts under its type alone.
    **{f"divisors, {kind}": (
        "llama", {"rope.freq_base": 5e5, "rope.scaling.type": kind, "rope.scaling.factor": 2.0},
        DIVISORS, {FULL: {"frequencies": LLAMA3 / by}},
    ) for kind, by in (("linear", 2.0), ("none", 1.0))},
    "divisors unread": (
        "qwen3", {"rope.freq_base": 5e5}, DIVISORS, {FULL: {"frequencies": plain(base=5e5)}},
    ),
    "lists": (
        "phi3", {"rope.scaling.attn_factor": 1.19, "rope.scaling.original_context_length": 4096},
        LISTS, {FULL: {"frequencies": plain(by=2), "attention_factor": 1.19}},
    ),
    # The scaling is of global layers only; the base of the others is 10,000 by default.
    **{f"local base {base}": (
        "gemma3", {**GEMMA3, **({} if base == 1e4 else {"rope.freq_base_swa": base})}, (),
        {FULL: {"frequencies": plain(base=1e6, by=8), "layers": (5, 11), "window": None},
         SLIDING: {"frequencies": plain(base=base), "window": 512}},
    ) for base in (1e4, 50.0)},
    # All layers of the assistant are for drafts.
    **{architecture: (
        architecture, {**GEMMA4, "nextn_predict_layers": predicting}, STILL,
        {FULL: {"frequencies": plain(32, 1e6)[:4], "head_dim": 32, "layers": (2, 5, 8, 11)},
         SLIDING: {"frequencies": plain(), "head_dim": 16}},
    ) for architecture, predicting in (("gemma4", 0), ("gemma4-assistant", 12))},
    # Its divisors are as many as the windowed layers need; the others take the first of them.
    "step 3": (
        "step35", STEP, {"rope_freqs.weight": [2.0] * 8},
        {FULL: {"frequencies": plain(8, 5e6, by=2)}, SLIDING: {"frequencies": plain()}},
    ),
    "olmo 3": (
        "olmo2", YARN | WINDOWED, (),
        {SLIDING: {"frequencies": plain(base=1e6), "attention_factor": 1.0},
         FULL: {"frequencies": yarn(), "attention_factor": M4}},
    ),
    "old name, partial": (
        "llama", {"rope.scale_linear": 2.0, "rope.dimension_count": 8}, (),
        {FULL: {"frequencies": plain(8, by=2)}},
    ),
    **{f"multiplier {multiplier}": (
        "mistral3", {**YARN, "rope.scaling.yarn_log_multiplier": multiplier,
                     "attention.temperature_scale": 0.1}, (),
        {FULL: {"attention_factor": M4 / (0.1 * math.log(4) * multiplier + 1),
                "query_factor": 1 + 0.1 * math.log1p(131_071 // 32_768)}},
    ) for multiplier in (0.0, 1.0)},
    # As DeepSeek-V2-Lite is converted: 0.0707 stands for an mscale_all_dim of 0.707.
    "latent": (
        "deepseek2", DEEPSEEK2, (),
        {FULL: {"head_dim": 192, "turning": 64, "place": "latent", "attention_factor": 1.0,
                "logit_factor": (0.0707 * math.log(40) + 1) ** 2}},
    ),
    "compressed": (
        "deepseek4", DEEPSEEK4, (),
        {SLIDING: {"frequencies": plain(8), "place": "last"},
         COMPRESSED: {"frequencies": yarn(8, 16e4), "attention_factor": 1.0}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_by_kind_of_layer(explain, name):
    architecture, metadata, tensors, expected = NUMBERS[name]
    found = {one.name: one for one in explain(architecture, tensors, **metadata).groups}
    assert found.keys() == expected.keys()
    for layers, values in expected.items():
        for what, wanted in values.items():
            value = getattr(found[layers], what)
            exact = isinstance(wanted, str | tuple | None)
            same = np.testing.assert_equal if exact else np.testing.assert_allclose
            same(value, wanted, **({} if exact else {"rtol": 1e-6}), err_msg=what)


EVERY = tuple(range(12))
# Architecture, metadata, and layers by kind.
KINDS = [
    ("cohere2moe", WINDOWED, {"none": (0, 4, 8), "rotary": (1, 2, 3, 5, 6, 7, 9, 10, 11)}),
    ("cohere2", WINDOWED, {"none": (3, 7, 11), "rotary": (0, 1, 2, 4, 5, 6, 8, 9, 10)}),
    ("exaone4", {"block_count": 12}, {"rotary": EVERY}),
    ("llama4", {"block_count": 8}, {"rotary": (0, 1, 2, 4, 5, 6), "none": (3, 7)}),
    ("llama4", {"block_count": 12, "attention.sliding_window": 0}, {"rotary": EVERY}),
    # Lists of more than eight layers are read whole.
    ("lfm2", {"block_count": 12, "attention.head_count_kv": [0, 0, 0, 2] * 3}, (3, 7, 11)),
    ("qwen3next", {"block_count": 12}, (3, 7, 11)),
    ("qwen35", {"block_count": 12, "full_attention_interval": 4}, (3, 7, 11)),
    ("bailingmoe3",
     {"block_count": 12, "attention.recurrent_layers": [True, True, True, False] * 3}, (3, 7, 11)),
    ("deci", {"block_count": 12, "attention.head_count": [4] * 8 + [0] * 4},
     {"rotary": EVERY[:8], "none": EVERY[8:]}),
    ("deci", {"block_count": 12, "attention.head_count_kv": [2] * 8 + [0] * 4},
     {"rotary": EVERY[:8], "none": EVERY[8:]}),
    ("granitehybrid", {"rope.scaling.finetuned": False}, {"none": None}),
    ("granitehybrid", {}, {"rotary": None}),
    ("baichuan", {"block_count": 40}, {"bias": tuple(range(40))}),
    ("baichuan", {"block_count": 12}, {"rotary": EVERY}),
    ("nemotron_h", {}, {"none": None}),
    ("mamba2", {}, {"linear": None}),
    ("gpt2", {}, {"table": None}),
    ("gemma4", {"block_count": 12}, {"rotary": EVERY}),
]  # fmt: skip


@pytest.mark.parametrize(("architecture", "metadata", "expected"), KINDS)
def test_kinds_of_layers(explain, architecture, metadata, expected):
    if isinstance(expected, tuple):  # the others are recurrent
        expected = {"rotary": expected, "linear": tuple(i for i in EVERY if i not in expected)}
    groups = explain(architecture, **metadata).groups
    assert {one.kind: one.layers for one in groups} == expected


@pytest.mark.parametrize(
    ("architecture", "pairing"),
    [("llama", "interleaved"), ("qwen3", "half"), ("glm4", "interleaved")],
)
def test_pairing_is_that_of_the_architecture(explain, architecture, pairing):
    found = explain(architecture)
    assert found.groups[0].pairing == found.programs[0].numbers[0].pairing == pairing


def test_options_stand_in_place_of_the_metadata(explain):
    options = {"scaling": '{"rope_type": "linear", "factor": 2.0}', "base": 5e5}
    (group,) = explain(options=options, **YARN).groups
    np.testing.assert_allclose(group.frequencies, plain(base=5e5, by=2))


def test_every_field_of_a_file_is_known(explain):
    more = {"attention.sliding_window_pattern": 6, "rope.freq_base_swa": 9.0}
    for architecture in ("gemma3", "llama", "granitehybrid", "smollm3"):
        assert explain(architecture, **WINDOWED, **YARN, **more).unread == (), architecture
    assert explain("of-my-own", **WINDOWED).status == "not judged"
    assert explain("hunyuan_vl").status == "judged"


@pytest.mark.parametrize(
    ("architecture", "metadata", "message"),
    [
        ("llama", {"rope.freq_base": math.inf}, "finite"),
        ("llama", {"rope.scaling.factor": "4"}, "finite"),
        ("llama", {"attention.head_count": "four"}, "whole"),
        ("llama", {"block_count": 2**31}, "whole"),
        ("llama", {"block_count": 4, "attention.head_count_kv": [1, 1]}, "4 layers"),
        ("llama", {"rope.dimension_count": 15}, "even"),
        ("llama", {"rope.dimension_count_swa": 7}, "even"),
        ("gemma4", WINDOWED, "sliding_window_pattern"),
        ("maple", WINDOWED, "sliding_window_pattern"),
        ("llama", {"attention.head_count": [0, 0]}, "head_dim"),
    ],
)
def test_metadata_that_llama_cpp_cannot_use_is_refused(explain, architecture, metadata, message):
    with pytest.raises(InputError, match=message):
        explain(architecture, **metadata)


def test_what_is_no_whole_file_is_refused(write_gguf):
    file = Path(write_gguf("llama", SIZES | YARN))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(InputError, match="whole"):
        explain_rope(RopeOptions(config=str(file)))


def test_the_width_of_no_heads_is_an_option(explain):
    found = explain(options={"head_dim": 16}, **{"attention.head_count": 0})
    assert found.groups[0].head_dim == 16


def test_findings_of_a_file_are_of_keys_that_it_has(explain):
    """`attn_factor`, `mscale_all_dim` and shares are what the metadata became, not keys of it."""
    multiplier = {"rope.scaling.yarn_log_multiplier": 0.1, "rope.dimension_count": 8}
    found = codes(explain("deepseek2", **YARN, **multiplier))
    assert {*found} == {"length_is_scaled", "logit_factor"}
    assert "context_length" in found["length_is_scaled"].text
    partial = codes(explain("qwen35", **{"rope.dimension_count": 8}))
    assert {*partial} <= {"base_of_gguf_missing", "float32_precision"}


@pytest.mark.parametrize(
    ("metadata", "tensors", "wrong"),
    [
        ({"rope.scaling.original_context_length": 4096}, (), True),
        ({"rope.scaling.type": "longrope"}, (), True),
        ({"rope.scaling.original_context_length": 131_072}, (), False),
        (YARN, (), False),
        ({"rope.scaling.original_context_length": 4096}, LISTS, False),
    ],
)
def test_a_longer_context_without_its_factors_is_told(explain, metadata, tensors, wrong):
    found = codes(explain("phi3", tensors, **{"block_count": 2, **metadata}))
    assert ("factors_missing" in found) == wrong
