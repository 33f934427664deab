"""Positional metadata of GGUF files, as llama.cpp reads them."""

import math

import gguf
import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.analysis.rope import RopeOptions, explain_rope
from jaxpe.encodings import inverse_frequencies
from jaxpe.encodings.rope_scaling import Llama3Scaling, YarnScaling

SIZES = {"context_length": 131_072, "embedding_length": 64, "attention.head_count": 4}
YARN = {
    "rope.freq_base": 1e6,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 32_768,
}


@pytest.fixture
def written(tmp_path):
    """The path of a .gguf with metadata and tensors."""

    def call(architecture="llama", tensors=(), **entries):
        path = tmp_path / "model.gguf"
        writer = gguf.GGUFWriter(path, architecture)
        for name, value in {**SIZES, **entries}.items():
            add = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}
            add[type(value)](f"{architecture}.{name}", value)
        for name, values in dict(tensors).items():
            writer.add_tensor(name, np.asarray(values, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return str(path)

    return call


def explain(path, **options):
    return explain_rope(RopeOptions(config=path, **options))


def codes(found):
    return {one.code for one in found.warnings}


def test_yarn_is_that_of_the_configuration(written):
    found = explain(written(**YARN))
    assert [r.reader for r in found.readings] == ["llama.cpp"]
    expected = YarnScaling(4.0, 32_768).frequencies(16, 1e6, None)
    np.testing.assert_allclose(found.readings[0].inverse, expected.inverse, rtol=1e-6)
    np.testing.assert_allclose(found.readings[0].attention_factor, 0.1 * math.log(4) + 1)
    assert found.context == 131_072


def test_without_a_base_llama_cpp_takes_10_000(written):
    found = explain(written())
    assert found.readings[0].base == 1e4
    assert "base_missing" in codes(found)


def test_yarn_without_its_original_length_takes_the_longest(written):
    entries = {key: value for key, value in YARN.items() if "original" not in key}
    found = explain(written(**entries))
    assert found.readings[0].original == 131_072
    assert "original_missing" in codes(found)


def test_divisors_of_llama_3_are_a_tensor(written):
    """As the converter writes them: 1 where a frequency stays, the factor where it is divided."""
    scaled = Llama3Scaling(8.0, 1.0, 4.0, 8192).frequencies(16, 5e5, None).inverse
    divisors = inverse_frequencies(16, base=5e5) / scaled
    path = written(tensors={"rope_freqs.weight": divisors}, **{"rope.freq_base": 5e5})
    found = explain(path)
    np.testing.assert_allclose(found.readings[0].inverse, scaled, rtol=1e-6)
    assert found.readings[0].attention_factor == 1.0


def test_local_layers_have_a_base_of_their_own(written):
    """The scaling is of global layers only."""
    entries = {"rope.freq_base": 1e6, "rope.freq_base_swa": 50.0, "rope.scaling.factor": 8.0}
    entries |= {"block_count": 7, "attention.sliding_window": 512}
    found = {r.layers: r for r in explain(written("gemma3", **entries)).readings}
    np.testing.assert_allclose(
        found["full_attention"].inverse, inverse_frequencies(16, base=1e6) / 8
    )
    np.testing.assert_allclose(
        found["sliding_attention"].inverse, inverse_frequencies(16, base=50.0)
    )


def test_the_old_name_of_a_linear_factor_and_a_partial_rotation(written):
    found = explain(written(**{"rope.scale_linear": 2.0, "rope.dimension_count": 8}))
    reading = found.readings[0]
    np.testing.assert_allclose(reading.inverse, inverse_frequencies(8, base=1e4) / 2)
    assert reading.rotated == 8


@pytest.mark.parametrize("multiplier", [0.0, 1.0])
def test_mistral_3_writes_mscale_as_a_multiplier(written, multiplier):
    more = {"rope.scaling.yarn_log_multiplier": multiplier, "attention.temperature_scale": 0.1}
    reading = explain(written("mistral3", **YARN, **more)).readings[0]
    log = 0.1 * math.log(4)
    np.testing.assert_allclose(reading.attention_factor, (log + 1) / (log * multiplier + 1))
    np.testing.assert_allclose(reading.query_factor, 1 + 0.1 * math.log1p(131_071 // 32_768))


def test_deepseek_has_its_temperature_on_the_logits(written):
    """As DeepSeek-V2-Lite is converted: 0.0707 stands for an mscale_all_dim of 0.707."""
    more = {"attention.kv_lora_rank": 512, "rope.scaling.yarn_log_multiplier": 0.0707}
    reading = explain(written("deepseek2", **YARN | {"rope.scaling.factor": 40.0}, **more))
    reading = reading.readings[0]
    assert reading.attention_factor == 1.0
    expected = (0.0707 * math.log(40) + 1) ** 2
    np.testing.assert_allclose(reading.logit_factor, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("entries", "message"),
    [({"rope.freq_base": math.inf}, "not a finite number"), ({"rope.scaling.factor": "4"}, "fini")],
)
def test_numbers_that_are_none_are_refused(written, entries, message):
    with pytest.raises(InputError, match=message):
        explain(written(**entries))


def test_what_is_no_whole_file_is_refused(written, tmp_path):
    path = written(**YARN)
    content = (tmp_path / "model.gguf").read_bytes()
    (tmp_path / "model.gguf").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"not a whole \.gguf"):
        explain(path)


def test_heads_that_are_none_leave_their_width_to_the_options(written):
    path = written(**{"attention.head_count": 0})
    with pytest.raises(InputError, match=r"model.gguf .*pass `head_dim`"):
        explain(path)
    assert explain(path, head_dim=16).head_dim == 16
