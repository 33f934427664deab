"""Positional metadata of GGUF files, as llama.cpp reads them."""

import math

import gguf
import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.plans.configuration import unread_fields
from jaxpe.plans.job import explain_rope
from jaxpe.plans.options import RopeOptions
from jaxpe.plans.scaling import Llama3Scaling, YarnScaling, inverse_frequencies
from tests.plans.entries import computed, entries, program, read

SIZES = {"context_length": 131_072, "embedding_length": 64, "attention.head_count": 4}
YARN = {
    "rope.freq_base": 1e6,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 32_768,
}
WINDOWED = {"block_count": 12, "attention.sliding_window": 512}
PROGRAM = "llama.cpp"


@pytest.fixture
def path(tmp_path):
    """The path of a .gguf with metadata and tensors."""

    def call(architecture="llama", tensors=(), **metadata):
        file = tmp_path / "model.gguf"
        writer = gguf.GGUFWriter(file, architecture)
        for name, value in {**SIZES, **metadata}.items():
            add = {
                str: writer.add_string, float: writer.add_float32, int: writer.add_uint32,
                bool: writer.add_bool, list: writer.add_array,
            }[type(value)]  # fmt: skip
            add(f"{architecture}.{name}", value)
        for name, values in dict(tensors).items():
            writer.add_tensor(name, np.asarray(values, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return str(file)

    return call


def by_kind(file, **options):
    """Frequencies, and the factor on cos and sin, by kind of layer; None where none turns."""
    given = read(file, **options)
    found = entries(PROGRAM, given)
    return {
        group.name: found[group.name] and computed(found[group.name], group.width, 10**5)
        for group in given.groups
    }


def only(file, **options):
    (found,) = by_kind(file, **options).values()
    return found


def test_yarn_is_that_of_the_configuration(path):
    inverse, factor = only(path(**YARN))
    expected = YarnScaling(4.0, 32_768).frequencies(16, 1e6, None)
    np.testing.assert_allclose(inverse, expected.inverse)
    assert factor == pytest.approx(0.1 * math.log(4) + 1)


def test_without_a_base_llama_cpp_takes_10_000(path):
    np.testing.assert_allclose(only(path())[0], inverse_frequencies(16, base=1e4))


def test_yarn_without_its_original_length_takes_the_longest(path):
    metadata = {key: value for key, value in YARN.items() if "original" not in key}
    (entry,) = entries(PROGRAM, read(path(**metadata))).values()
    assert entry["original_max_position_embeddings"] == 131_072


def test_betas_count_in_some_graphs_alone(path):
    more = {"rope.scaling.yarn_beta_fast": 4.0}
    np.testing.assert_allclose(only(path(**YARN, **more))[0], only(path(**YARN))[0])
    other = only(path("mistral3", **YARN, **more))[0]
    expected = YarnScaling(4.0, 32_768, beta_fast=4.0).frequencies(16, 1e6, None)
    np.testing.assert_allclose(other, expected.inverse)


def test_divisors_of_llama_3_are_a_tensor(path):
    """As the converter writes them: 1 where a frequency stays, the factor where it is divided."""
    scaled = Llama3Scaling(8.0, 1.0, 4.0, 8192).frequencies(16, 5e5, None).inverse
    divisors = inverse_frequencies(16, base=5e5) / scaled
    tensors = {"rope_freqs.weight": divisors}
    inverse, factor = only(path(tensors=tensors, **{"rope.freq_base": 5e5}))
    np.testing.assert_allclose(inverse, scaled, rtol=1e-6)
    assert factor == 1.0
    for kind, by in (("linear", 2.0), ("none", 1.0)):  # the factor counts under its type alone
        scaling = {"rope.scaling.type": kind, "rope.scaling.factor": 2.0, "rope.freq_base": 5e5}
        inverse, _ = only(path(tensors=tensors, **scaling))
        np.testing.assert_allclose(inverse, scaled / by, rtol=1e-6)
    unread, _ = only(path("qwen3", tensors=tensors, **{"rope.freq_base": 5e5}))
    np.testing.assert_allclose(unread, inverse_frequencies(16, base=5e5))


def test_two_lists_of_divisors(path):
    tensors = {"rope_factors_long.weight": [2.0] * 8, "rope_factors_short.weight": [1.0] * 8}
    metadata = {"rope.scaling.attn_factor": 1.19, "rope.scaling.original_context_length": 4096}
    inverse, factor = only(path("phi3", tensors=tensors, **metadata))
    np.testing.assert_allclose(inverse, inverse_frequencies(16) / 2)
    assert factor == pytest.approx(1.19)


@pytest.mark.parametrize("base", [None, 50.0])
def test_local_layers_have_a_base_of_their_own(path, base):
    """The scaling is of global layers only; the base of the others is 10,000 by default."""
    local = {} if base is None else {"rope.freq_base_swa": base}
    metadata = {"rope.freq_base": 1e6, "rope.scaling.factor": 8.0, **WINDOWED, **local}
    file = path("gemma3", **metadata)
    found = by_kind(file)
    np.testing.assert_allclose(found["full_attention"][0], inverse_frequencies(16, base=1e6) / 8)
    expected = inverse_frequencies(16, base=base or 1e4)
    np.testing.assert_allclose(found["sliding_attention"][0], expected)
    layers = {group.name: (group.layers, group.window) for group in read(file).groups}
    assert layers["full_attention"] == ((5, 11), None)
    assert layers["sliding_attention"][1] == 512


@pytest.mark.parametrize("predicting", [0, 12])
def test_gemma_4_has_heads_of_two_widths(path, predicting):
    """Pairs that stand still have divisors of 1e30; all layers of its assistant are for drafts."""
    name = "gemma4-assistant" if predicting else "gemma4"
    metadata = {
        **WINDOWED, "attention.sliding_window_pattern": [True, True, False] * 4,
        "attention.key_length": 32, "attention.key_length_swa": 16, "rope.freq_base": 1e6,
        "rope.freq_base_swa": 1e4, "rope.dimension_count": 32, "rope.dimension_count_swa": 16,
        "nextn_predict_layers": predicting,
    }  # fmt: skip
    file = path(name, {"rope_freqs.weight": [1.0] * 4 + [1e30] * 12}, **metadata)
    found = by_kind(file)
    np.testing.assert_allclose(found["sliding_attention"][0], inverse_frequencies(16, base=1e4))
    full = found["full_attention"][0]
    np.testing.assert_allclose(full[:4], inverse_frequencies(32, base=1e6)[:4])
    assert not full[4:].any()
    widths = {group.name: (len(group.layers), group.head_dim) for group in read(file).groups}
    assert widths == {"sliding_attention": (8, 16), "full_attention": (4, 32)}


def test_full_layers_of_step_3_turn_half_of_what_the_file_says(path):
    """Its divisors are as many as the windowed layers need; the others take the first of them."""
    metadata = {
        **WINDOWED, "attention.sliding_window_pattern": [False, True] * 6, "rope.freq_base": 5e6,
        "rope.dimension_count": 16, "short": [1],  # not every array is longer than what is shown
    }  # fmt: skip
    found = by_kind(path("step35", {"rope_freqs.weight": [2.0] * 8}, **metadata))
    np.testing.assert_allclose(found["full_attention"][0], inverse_frequencies(8, base=5e6) / 2)
    np.testing.assert_allclose(found["sliding_attention"][0], inverse_frequencies(16, base=1e4))


def test_olmo_3_scales_layers_without_a_window(path):
    found = by_kind(path("olmo2", **YARN, **WINDOWED))
    np.testing.assert_allclose(found["sliding_attention"][0], inverse_frequencies(16, base=1e6))
    assert found["full_attention"][1] > 1.1


def test_full_layers_of_cohere_2_do_not_turn(path):
    assert by_kind(path("cohere2", **WINDOWED))["full_attention"] is None
    kinds = [g.kind for g in read(path("exaone4", block_count=4)).groups]
    assert kinds == ["rotary"]


@pytest.mark.parametrize(
    ("architecture", "full"), [("cohere2moe", (0, 4, 8)), ("cohere2", (3, 7, 11))]
)
def test_the_first_or_the_last_layer_of_a_period_has_no_window(path, architecture, full):
    layers = {group.name: group.layers for group in read(path(architecture, **WINDOWED)).groups}
    assert layers["full_attention"] == full


def test_llama_4_turns_three_of_four_layers(path):
    groups = read(path("llama4", block_count=8)).groups
    assert [(g.kind, g.layers) for g in groups] == [
        ("rotary", (0, 1, 2, 4, 5, 6)), ("none", (3, 7))
    ]  # fmt: skip
    whole = read(path("llama4", block_count=8, **{"attention.sliding_window": 0})).groups
    assert [(g.kind, g.layers) for g in whole] == [("rotary", tuple(range(8)))]


@pytest.mark.parametrize(
    ("architecture", "metadata"),
    [
        ("lfm2", {"attention.head_count_kv": [0, 0, 0, 2] * 3}),
        ("qwen3next", {}),
        ("qwen35", {"full_attention_interval": 4}),
        ("bailingmoe3", {"attention.recurrent_layers": [True, True, True, False] * 3}),
    ],
)
def test_recurrent_layers_do_not_turn(path, architecture, metadata):
    """Lists of more than eight layers are read whole."""
    groups = read(path(architecture, block_count=12, **metadata)).groups
    assert {g.kind: g.layers for g in groups}["rotary"] == (3, 7, 11)
    assert {g.kind for g in groups} == {"linear", "rotary"}


@pytest.mark.parametrize(
    ("architecture", "metadata", "kind"),
    [
        ("granitehybrid", {"rope.scaling.finetuned": False}, "none"),
        ("granitehybrid", {}, "rotary"),
        ("baichuan", {"block_count": 40}, "bias"),
        ("baichuan", {"block_count": 32}, "rotary"),
        ("nemotron_h", {}, "none"),
        ("mamba2", {}, "linear"),
        ("gpt2", {}, "table"),
    ],
)
def test_kinds_of_architectures(path, architecture, metadata, kind):
    given = read(path(architecture, **metadata))
    assert [group.kind for group in given.groups] == [kind]
    assert (next(iter(entries(PROGRAM, given).values())) is None) == (kind != "rotary")


def test_an_unknown_architecture_is_not_known(path):
    unknown = read(path("of-my-own", **WINDOWED))
    assert not unknown.model.has_rules
    assert not {"swa_head_dim", "swa_partial_rotary_factor"} & set(unknown.model.fields.stated)
    assert read(path("hunyuan_vl")).model.has_rules


@pytest.mark.parametrize(
    ("architecture", "pairing"), [("llama", "interleaved"), ("qwen3", "half"), ("glm4", None)]
)
def test_pairing_is_that_of_the_architecture(path, architecture, pairing):
    given = read(path(architecture))
    assert given.groups[0].pairing == (pairing or "interleaved")
    assert program(PROGRAM).pairing(given.model, given.groups[0]) is None


def test_the_old_name_of_a_linear_factor_and_a_partial_rotation(path):
    inverse, _ = only(path(**{"rope.scale_linear": 2.0, "rope.dimension_count": 8}))
    np.testing.assert_allclose(inverse, inverse_frequencies(8, base=1e4) / 2)


@pytest.mark.parametrize("multiplier", [0.0, 1.0])
def test_mistral_3_writes_mscale_as_a_multiplier(path, multiplier):
    more = {"rope.scaling.yarn_log_multiplier": multiplier, "attention.temperature_scale": 0.1}
    given = read(path("mistral3", **YARN, **more))
    (entry,) = entries(PROGRAM, given).values()
    log = 0.1 * math.log(4)
    assert entry["attention_factor"] == pytest.approx((log + 1) / (log * multiplier + 1))
    queries = program(PROGRAM).query_scaling(given.configuration, given.model, entry)
    assert queries.at(131_071) == pytest.approx(1 + 0.1 * math.log1p(131_071 // 32_768))


def test_deepseek_has_its_temperature_on_the_logits(path):
    """As DeepSeek-V2-Lite is converted: 0.0707 stands for an mscale_all_dim of 0.707."""
    more = {
        "attention.key_length": 576, "attention.key_length_mla": 192, "rope.dimension_count": 64,
        "rope.scaling.yarn_log_multiplier": 0.0707,
    }  # fmt: skip
    given = read(path("deepseek2", **YARN | {"rope.scaling.factor": 40.0}, **more))
    (entry,), (group,) = entries(PROGRAM, given).values(), given.groups
    assert (group.head_dim, group.width, group.place) == (192, 64, "latent")
    assert entry["attention_factor"] == 1.0
    logits = program(PROGRAM).logit_factor(given.model, group, entry)
    assert logits == pytest.approx((0.0707 * math.log(40) + 1) ** 2)


def test_compressed_layers_of_deepseek_4(path):
    metadata = {
        "block_count": 4, "attention.compress_ratios": [0, 128, 4, 4], "attention.key_length": 32,
        "attention.compress_rope_freq_base": 16e4, "rope.dimension_count": 8, **YARN,
        "rope.freq_base": 1e4,
    }  # fmt: skip
    file = path("deepseek4", **metadata)
    found = by_kind(file)
    np.testing.assert_allclose(found["sliding_attention"][0], inverse_frequencies(8, base=1e4))
    expected = YarnScaling(4.0, 32_768).frequencies(8, 16e4, None).inverse
    np.testing.assert_allclose(found["compressed_sparse_attention"][0], expected)
    assert found["compressed_sparse_attention"][1] == 1.0
    assert {group.place for group in read(file).groups} == {"last"}


def test_options_stand_in_place_of_the_metadata(path):
    inverse, _ = only(path(**YARN), scaling='{"rope_type": "linear", "factor": 2.0}', base=5e5)
    np.testing.assert_allclose(inverse, inverse_frequencies(16, base=5e5) / 2)


def test_every_field_of_a_file_is_known(path):
    metadata = {
        **WINDOWED,
        **YARN,
        "attention.sliding_window_pattern": 6,
        "rope.freq_base_swa": 9.0,
    }
    for architecture in ("gemma3", "llama", "granitehybrid", "smollm3", "of-my-own"):
        given = read(path(architecture, **metadata))
        assert architecture == "of-my-own" or not unread_fields(given.configuration), architecture


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"rope.freq_base": math.inf}, "not a finite number"),
        ({"rope.scaling.factor": "4"}, "not a finite number"),
        ({"attention.head_count": "four"}, "not a whole number"),
        ({"block_count": 2**31}, "not a whole number"),
        ({"block_count": 4, "attention.head_count_kv": [1, 1]}, "2 entries for 4 layers"),
        ({"rope.dimension_count": 15}, "not an even number"),
        ({"rope.dimension_count_swa": 7}, "not an even number"),
    ],
)
def test_numbers_that_are_none_are_refused(path, metadata, message):
    with pytest.raises(InputError, match=message):
        read(path(**metadata))


def test_what_is_no_whole_file_is_refused(path, tmp_path):
    file = path(**YARN)
    content = (tmp_path / "model.gguf").read_bytes()
    (tmp_path / "model.gguf").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"not a whole \.gguf"):
        read(file)


@pytest.mark.parametrize("architecture", ["gemma4", "mimo2", "step35", "maple"])
def test_windows_without_the_list_that_llama_cpp_needs_are_refused(path, architecture):
    with pytest.raises(InputError, match=r"no attention.sliding_window_pattern"):
        read(path(architecture, **WINDOWED))
    assert len(read(path(architecture, block_count=12)).groups) == 1


@pytest.mark.parametrize("kv", [{}, {"attention.head_count_kv": [2] * 8 + [0] * 4}])
def test_layers_without_heads_do_not_turn(path, kv):
    heads = {"block_count": 12, "attention.head_count": [4] * 8 + [0] * 4, **kv}
    groups = read(path("deci", **heads)).groups
    assert [(g.kind, g.layers) for g in groups] == [
        ("rotary", tuple(range(8))), ("none", (8, 9, 10, 11))
    ]  # fmt: skip


def test_findings_of_a_file_are_of_keys_that_it_has(path):
    """`attn_factor`, `mscale_all_dim` and shares are what the metadata became, not keys of it."""
    multiplier = {"rope.scaling.yarn_log_multiplier": 0.1, "rope.dimension_count": 8}
    found = explain_rope(RopeOptions(config=path("deepseek2", **YARN, **multiplier)))
    codes = {one.code: one for one in found.findings}
    assert {*codes} == {"length_is_scaled", "logit_factor"}
    assert "context_length" in codes["length_is_scaled"].text
    partial = explain_rope(RopeOptions(config=path("qwen35", **{"rope.dimension_count": 8})))
    assert {one.code for one in partial.findings} <= {"base_of_gguf_missing", "float32_precision"}


def test_divisors_have_the_name_of_their_tensor(path):
    tensors = {"rope_freqs.weight": np.linspace(1, 8, 8)}
    (group,) = explain_rope(RopeOptions(config=path(tensors=tensors))).groups
    assert (group.rope_type, group.frequencies[-1]) == (
        "rope_freqs",
        pytest.approx(1e4**-0.875 / 8),
    )


@pytest.mark.parametrize("heads", [0, [0, 0]])
def test_heads_that_are_none_leave_their_width_to_the_options(path, heads):
    file = path(**{"attention.head_count": heads})
    with pytest.raises(InputError, match=r"model.gguf .*pass `head_dim`"):
        read(file)
    assert read(file, head_dim=16).groups[0].head_dim == 16


@pytest.mark.parametrize("architecture", ["phi3", "qwen3"])
@pytest.mark.parametrize(
    ("metadata", "wrong"),
    [
        ({"rope.scaling.original_context_length": 4096}, True),
        ({"rope.scaling.type": "longrope"}, True),
        ({"rope.scaling.original_context_length": 131_072}, False),
        (YARN, False),
        ({}, False),
    ],
)
def test_a_longer_context_without_its_factors_is_told(path, architecture, metadata, wrong):
    found = explain_rope(RopeOptions(config=path(architecture, **{"block_count": 2, **metadata})))
    codes = {one.code: one.text for one in found.findings}
    assert ("factors_missing" in codes) == wrong


def test_the_tensors_of_longrope_are_its_factors(path):
    tensors = {f"rope_factors_{name}.weight": [1.0] * 8 for name in ("long", "short")}
    metadata = {"block_count": 2, "rope.scaling.original_context_length": 4096}
    found = explain_rope(RopeOptions(config=path("phi3", tensors, **metadata)))
    assert "factors_missing" not in {one.code for one in found.findings}
