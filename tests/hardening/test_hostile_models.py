"""Models from outside that nobody should trust: refused in one line, or loaded as they stand."""

import itertools
import json
import math
import os
import re
import shutil
import struct
import sys
import tracemalloc
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import pytest
import safetensors

from jaxpe._core.errors import InputError
from jaxpe._core.gguf import read_gguf
from jaxpe.nn import (
    Bert,
    TransformerConfig,
    load_causal_lm,
    load_classifier,
    load_masked_lm,
    save_huggingface,
)
from tests.hardening import hostile_models as hostile
from tests.nn.models import one_key
from tests.nn.stored import (
    METADATA,
    PARITY,
    change,
    converted,
    copied,
    tensors,
    write,
    write_gguf,
)

LOADS = {"tiny_bert": Bert.load, "tiny_mpnet": Bert.load, "tiny_llama": load_causal_lm}
QUERY = {
    "tiny_bert": "bert.encoder.layer.1.attention.self.query.weight",
    "tiny_mpnet": "mpnet.encoder.layer.1.attention.attn.q.weight",
    "tiny_llama": "model.layers.1.self_attn.q_proj.weight",
}
MOST_BYTES = 10**8  # that a refusal may take


@pytest.fixture(autouse=True)
def _quickly():
    """Weights come from files: what they would begin with is not drawn."""
    with one_key():
        yield


@pytest.fixture(params=LOADS)
def tiny(request, tmp_path):
    """A copy of a tiny model, and what loads it."""
    return copied(request.param, tmp_path), LOADS[request.param]


@pytest.fixture
def bert(tmp_path):
    return copied("tiny_bert", tmp_path)


@pytest.fixture
def llama(tmp_path):
    return copied("tiny_llama", tmp_path)


def refused(load, path, message):
    """The load is refused with this in one line, and takes next to no memory."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=message) as error:
            load(path)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    assert str(error.value).isprintable()


# Whatever is changed, the outcome is a refusal or a model with finite weights.


def test_damaged_models_are_refused_or_finite(tmp_path):
    made = hostile.hostile_models(0, 8 * len(hostile.CHANGES), tmp_path)
    outcomes = [hostile.answer(path) for _, _, path in made]
    assert outcomes.count("refused") > 40
    assert outcomes.count("loaded") > 10


@pytest.mark.parametrize("name", LOADS)
def test_fields_of_every_type(name, tmp_path, monkeypatch):
    # The heads of an encoder follow the same fields.
    monkeypatch.setitem(hostile.LOADS, name, (LOADS[name],))
    hostile.copy_model(tmp_path / name, name)
    outcomes = []
    for field, value in list(hostile.field_cases(name))[:: 17 if name == "tiny_llama" else 37]:
        hostile.set_field(tmp_path / name, field, value)
        outcomes.append(hostile.answer(tmp_path / name))
    assert {"refused", "loaded"} == set(outcomes)


def test_entries_of_every_rope(tmp_path):
    path = tmp_path / "tiny_llama"
    hostile.copy_model(path, "tiny_llama")
    cases = itertools.product(hostile.ROPES, hostile.ROPE_KEYS, hostile.VALUES)
    outcomes = []
    for kind, key, value in list(cases)[::41]:
        hostile.set_rope(path, kind, key, value)
        outcomes.append(hostile.answer(path))
    assert outcomes.count("refused") > 28
    assert outcomes.count("loaded") > 5


# Numbers of a configuration.


@pytest.mark.parametrize("value", [0, -1, 0.5, "x", True, [], 2**31, math.nan])
def test_positions_are_a_number_above_zero(tiny, value):
    directory, load = tiny
    change(directory, max_position_embeddings=value)
    refused(load, directory, r"config\.json: max_position_embeddings is ")


def test_rows_that_no_token_of_mpnet_has(tmp_path):
    shutil.copytree(PARITY / "tiny_mpnet", tmp_path / "tiny")
    change(tmp_path / "tiny", max_position_embeddings=2)
    refused(Bert.load, tmp_path / "tiny", "max_position_embeddings is 2, .* the first 2")


@pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers", "num_attention_heads"])
@pytest.mark.parametrize("value", [10**9, -1, 0])
def test_sizes_beyond_the_tensors_take_no_memory(tiny, field, value):
    directory, load = tiny
    change(directory, **{field: value})
    refused(load, directory, rf"config\.json: .*{value}")


def test_sizes_that_are_huge_together(tiny):
    directory, load = tiny
    sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads")
    change(directory, max_position_embeddings=2**31 - 1, **dict.fromkeys(sizes, 2**30))
    refused(load, directory, r"is 1073741824, .* \d+ tensors")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e400", "1e-50", "0", "-1e-5", "1e39"])
@pytest.mark.parametrize("name", LOADS)
def test_epsilon_is_a_float32_above_zero(name, value, tmp_path):
    directory = tmp_path / name
    shutil.copytree(PARITY / name, directory)
    field = "rms_norm_eps" if name == "tiny_llama" else "layer_norm_eps"
    text = json.dumps(json.loads((directory / "config.json").read_text()) | {field: "@"})
    (directory / "config.json").write_text(text.replace('"@"', value))
    refused(LOADS[name], directory, rf"config\.json: {field} is ")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"rope_theta": math.nan}, "rope_theta is nan, not a number above 0"),
        ({"rope_theta": 0}, "rope_theta is 0.0, not a number above 0"),
        ({"rope_theta": "100"}, "rope_theta is '100', no number"),
        ({"rope_type": "linear", "factor": 1e-300}, "not finite"),
        ({"rope_type": "linear", "factor": math.inf}, "frequencies or a factor are 0"),
        ({"rope_type": ["linear"]}, "is no rope_type"),
        (
            {
                "rope_type": "yarn",
                "factor": 2.0,
                "original_max_position_embeddings": 32,
                "attention_factor": 1e20,
            },
            "not finite",
        ),
        (
            {
                "rope_type": "yarn",
                "factor": 2.0,
                "rope_theta": 1,
                "original_max_position_embeddings": 32,
            },
            "ZeroDivisionError",
        ),
        (
            {
                "rope_type": "longrope",
                "factor": 2.0,
                "short_factor": "ab",
                "long_factor": [1.0] * 8,
            },
            "short_factor is 'ab', no number",
        ),
    ],
)
def test_entries_of_rope_that_are_refused(llama, entry, message):
    change(llama, rope_parameters={"rope_type": "default", "rope_theta": 100.0} | entry)
    refused(load_causal_lm, llama, message)


def test_the_older_scaling_is_looked_at_as_well(llama):
    change(llama, rope_parameters={}, rope_scaling=[1], rope_theta=100.0)
    refused(load_causal_lm, llama, r"rope_scaling is \[1\], not an object")
    change(llama, rope_parameters=None, rope_scaling=None, rope_theta=-1.0)
    refused(load_causal_lm, llama, r"rope_theta is -1\.0, not a number above 0")


def test_a_truth_is_no_choice(llama, bert):
    change(llama, tie_word_embeddings=0)
    refused(load_causal_lm, llama, "tie_word_embeddings is 0, which changes")
    change(bert, hidden_act=True)
    refused(Bert.load, bert, "hidden_act is True, not a string")
    change(bert, hidden_act=None)  # null is the default
    Bert.load(bert)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm_epsilon": math.nan}, "norm_epsilon is nan; pass a positive number"),
        ({"norm_epsilon": math.inf}, "norm_epsilon is inf"),
        ({"init_scale": math.nan}, "init_scale is nan"),
        ({"embedding_scale": -1.0}, "embedding_scale is -1"),
        ({"token_types": -1}, "token_types is -1; pass at least 1"),
    ],
)
def test_configurations_of_ours(changes, message):
    with pytest.raises(ValueError, match=message):
        TransformerConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2, **changes)


# config.json as a file.


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 10**6, "is not JSON .nested too deeply"),
        (b'{"a":' * 10**5, "is not JSON .nested too deeply"),
        (b"\xff\xfe{", "is not JSON"),
        (b"", "is not JSON"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b"null", "is not a JSON object"),
        (b" " * (2**24 + 1), "has 16,777,217 bytes, more than 16,777,216"),
        (b'{"model_type": "\\ud800\\n"}', r"model_type is '\\ud800\\n'"),
    ],
)
def test_configurations_that_are_no_such_file(tiny, content, message):
    directory, load = tiny
    (directory / "config.json").write_bytes(content)
    refused(load, directory, message)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "/dev/zero", "itself", "nothing"])
def test_what_is_no_regular_file_is_not_opened(tiny, name, kind):
    directory, load = tiny
    path = directory / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind != "nothing":
        path.symlink_to(name if kind == "itself" else kind)
    refused(load, directory, r"config\.json|has neither model\.safetensors")


def test_code_in_a_folder_is_never_run(tiny, monkeypatch):
    directory, load = tiny
    for name in ("evil", "modeling_evil", "configuration_evil", "__init__", "setup", "conftest"):
        (directory / f"{name}.py").write_text(f"open({str(directory / 'ran')!r}, 'w')")
    classes = dict.fromkeys(("AutoConfig", "AutoModel", "AutoTokenizer"), "evil.Evil")
    change(
        directory,
        auto_map=classes,
        trust_remote_code=True,
        custom_pipelines={"x": {"impl": "evil.Evil"}},
        torch_dtype="__import__('evil')",
        architectures=["evil.Evil"],
        transformers_version="evil",
    )
    monkeypatch.chdir(directory)
    monkeypatch.syspath_prepend(str(directory))
    load(directory)
    assert not (directory / "ran").exists()
    assert "evil" not in sys.modules


def test_a_disk_that_is_full_leaves_what_was_there(bert, monkeypatch):
    whole = (bert / "model.safetensors").read_bytes()
    model = Bert.load(bert)

    def full(*args, **options):
        raise safetensors.SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr("safetensors.numpy.save_file", full)
    with pytest.raises(InputError, match=r"cannot write .*model\.safetensors .*No space left"):
        save_huggingface(model, bert)
    assert (bert / "model.safetensors").read_bytes() == whole
    assert sorted(path.name for path in bert.iterdir()) == ["config.json", "model.safetensors"]


def test_labels_of_another_type_are_written_anew(bert, tmp_path):
    change(bert, id2label=5, label2id="x", dtype=[1], torch_dtype={"a": 1})
    save_huggingface(load_classifier(bert), tmp_path / "out")
    fields = json.loads((tmp_path / "out" / "config.json").read_text())
    assert fields["id2label"] == {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}
    assert fields["dtype"] == fields["torch_dtype"] == "float32"


# Weights.


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (math.nan, np.float32),
        (math.inf, np.float16),
        (-math.inf, ml_dtypes.bfloat16),
        (math.nan, np.float64),
    ],
)
def test_a_tensor_that_is_not_finite_is_named(tiny, number, dtype):
    directory, load = tiny
    name = QUERY[directory.name]
    found = {key: tensor.astype(dtype) for key, tensor in tensors(directory).items()}
    found[name].flat[7] = number
    write(directory, found)
    refused(load, directory, rf"1 of [\d,]+ numbers of the tensor {name} are NaN")


def test_numbers_beyond_the_dtype_that_is_asked_for(llama):
    name = QUERY["tiny_llama"]
    found = {key: tensor.astype(np.float64) for key, tensor in tensors(llama).items()}
    found[name].flat[0] = 1e300
    write(llama, found)
    refused(load_causal_lm, llama, rf"1 of .* numbers of the tensor {name} .* float32")
    found[name].flat[0] = 1e6
    write(llama, found)
    load_causal_lm(llama)
    with pytest.raises(InputError, match=rf"1 of .* numbers of the tensor {name} .* float16"):
        load_causal_lm(llama, param_dtype=np.float16)


def test_tensors_that_are_not_used_may_be_anything(bert):
    head = {"cls.predictions.bias": np.full(60, np.nan, np.float32)}
    write(bert, tensors(bert) | head)
    Bert.load(bert)
    refused(load_masked_lm, bert, r"60 of 60 numbers of the tensor cls\.predictions\.bias are NaN")


def test_a_model_that_memory_does_not_hold(tiny, monkeypatch):
    directory, load = tiny
    load(directory)
    monkeypatch.setattr("jaxpe._core.memory.available_bytes", lambda: 10_000)
    refused(load, directory, r"needs 0\.0 GB of memory, .* take a smaller model")


@pytest.mark.parametrize(
    ("name", "decoder"), [("tiny_bert", "cls.predictions.decoder"), ("tiny_llama", "lm_head")]
)
@pytest.mark.parametrize(("dtype", "size"), [("F8_E4M3", 1), ("C64", 8), ("I64", 8)])
def test_a_tied_matrix_of_no_floats(tmp_path, name, decoder, dtype, size):
    directory = tmp_path / name
    shutil.copytree(PARITY / name, directory)
    decoder, load = f"{decoder}.weight", load_causal_lm if name == "tiny_llama" else load_masked_lm
    change(directory, tie_word_embeddings=True)
    write(directory, {key: t for key, t in tensors(directory).items() if key != decoder})
    file = directory / "model.safetensors"
    header, data = hostile.split_safetensors(file.read_bytes())
    rows = json.loads((directory / "config.json").read_text())["vocab_size"]
    end = len(data) + 32 * rows * size
    header[decoder] = {"dtype": dtype, "shape": [rows, 32], "data_offsets": [len(data), end]}
    hostile.write_safetensors(file, header, data.ljust(end, b"\0"))
    refused(load, directory, f"{decoder} is {dtype}, not floating-point numbers")


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_classes_that_are_no_row(bert, shape):
    write(bert, tensors(bert) | {"classifier.bias": np.zeros(shape, np.float32)})
    refused(load_classifier, bert, r"classifier\.bias has shape")


# safetensors.


def crafted(directory, change_header):
    file = directory / "model.safetensors"
    header, data = hostile.split_safetensors(file.read_bytes())
    hostile.write_safetensors(file, change_header(header) or header, data)


def set_entry(**changes):
    def spoil(header):
        next(entry for name, entry in header.items() if name[0] != "_").update(changes)

    return spoil


def doubled(header):
    name, entry = next(item for item in header.items() if item[0][0] != "_")
    text = json.dumps(header)
    return (text[:-1] + f", {json.dumps(name)}: {json.dumps(entry | {'shape': [1]})}}}").encode()


HEADERS = {
    "offsets beyond": set_entry(data_offsets=[0, 2**40]),
    "offsets reversed": set_entry(data_offsets=[8, 4]),
    "offsets negative": set_entry(data_offsets=[-4, 4]),
    "offsets as text": set_entry(data_offsets="0"),
    "overlapping": set_entry(data_offsets=[4, 8]),
    "huge shape": set_entry(shape=[2**62, 2**62]),
    "fraction of a shape": set_entry(shape=[1.5]),
    "unknown dtype": set_entry(dtype="F31"),
    "names twice": doubled,
    "not UTF-8": lambda header: json.dumps(header).encode().replace(b"bert", b"\xff\xfe\xff\xfe"),
    "deep": lambda header: b"[" * 10**6,
    "deep metadata": lambda header: b'{"__metadata__":' + b'{"a":' * 10**5,
    "empty": lambda header: b"{}",
    "no JSON": lambda header: b"\0" * 80,
}


@pytest.mark.parametrize("case", HEADERS)
def test_headers_that_are_refused(bert, case):
    crafted(bert, HEADERS[case])
    refused(Bert.load, bert, r"is not a complete safetensors file|does not fit")


@pytest.mark.parametrize("length", [0, 7, 2**30, 2**40, 2**63, 2**64 - 1])
def test_lengths_of_headers(bert, length):
    file = bert / "model.safetensors"
    file.write_bytes(struct.pack("<Q", length) + file.read_bytes()[8:])
    refused(Bert.load, bert, "is not a complete safetensors file")
    file.write_bytes(b"")
    refused(Bert.load, bert, "is not a complete safetensors file")


def test_a_shape_with_its_axes_swapped(llama):
    found = tensors(llama)
    name = "model.layers.0.mlp.up_proj.weight"
    write(llama, found | {name: np.ascontiguousarray(found[name].T)})
    refused(load_causal_lm, llama, r"mlp\.up_proj\.weight has shape \(32, 64\), not \(64, 32\)")


def test_two_tensors_for_one_parameter(bert):
    name = "embeddings.LayerNorm.weight"
    found = tensors(bert)
    write(bert, found | {name: found[f"bert.{name}"] + 1})
    refused(Bert.load, bert, f"two tensors for one parameter: bert.{name}, {name}")


def test_names_with_signs_of_a_terminal(llama):
    write(llama, tensors(llama) | {"x\n\x1b[31m": np.ones(1, np.float32)})
    refused(load_causal_lm, llama, r"the tensors 'x\\n\\x1b\[31m'")
    write(llama, tensors(llama) | {f"x{i}": np.ones(1, np.float32) for i in range(500)})
    refused(load_causal_lm, llama, "tensors .*x0, x1, .* and 461 more")


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ({"a": "../model.safetensors"}, r"names '\.\./model\.safetensors', not files in its"),
        ({"a": "/etc/passwd"}, "names '/etc/passwd', not files in its folder"),
        ({"a": "a/b.safetensors"}, "not files in its folder"),
        ({"a": "a\\b.safetensors"}, "not files in its folder"),
        ({"a": "a\n.safetensors"}, "not files in its folder"),
        ({"a": ".."}, "lacks .., which"),
        ({"a": "a" * 5000}, "lacks .*, which"),
        ({"a": ["b.safetensors"]}, r"weight_map\.a is .*, not a string"),
        ({}, "names no files"),
        ([], "weight_map is .*, not an object"),
        ({str(i): f"{i}.safetensors" for i in range(1000)}, "lacks .* and 960 more, which"),
    ],
)
def test_indices_that_are_refused(bert, shards, message):
    (bert / "model.safetensors").rename(bert.parent / "model.safetensors")
    (bert / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    refused(Bert.load, bert, message)


def test_links_to_files_are_followed(bert):
    """As caches of Hugging Face have them."""
    for name in ("config.json", "model.safetensors"):
        (bert / name).rename(bert.parent / f"blob-{name}")
        (bert / name).symlink_to(f"../blob-{name}")
    Bert.load(bert)


def test_a_tensor_in_two_shards(bert):
    whole = bert / "model.safetensors"
    for name in ("a.safetensors", "b.safetensors"):
        shutil.copy(whole, bert / name)
    whole.unlink()
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (bert / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(Bert.load, bert, "two tensors for one parameter")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "model.pt"])
def test_pickles_are_not_read(tiny, name):
    directory, load = tiny
    (directory / "model.safetensors").unlink()
    ran = directory / "ran"
    (directory / name).write_bytes(b"cos\nsystem\n(S'touch " + str(ran).encode() + b"'\ntR.")
    refused(load, directory, rf"{name}, which is not read")
    assert not ran.exists()


# .gguf.


def raw(tmp_path, entries=None, changed=None, **counts):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(hostile.gguf_file(entries or {}, changed or {}, **counts))
    return path


def test_the_file_made_here_is_the_one_of_the_package(tmp_path):
    path = write_gguf(tmp_path / "their.gguf", converted(tensors(PARITY / "tiny_llama")))
    (metadata, found), (others, theirs) = read_gguf(raw(tmp_path)), read_gguf(path)
    assert metadata == others
    assert metadata.keys() == {"general.architecture", *METADATA}
    assert found.keys() == theirs.keys()
    assert all(np.array_equal(found[name].data, theirs[name].data) for name in found)


@pytest.mark.parametrize("kind", [None, "Q8_0", "Q4_1", "F16", "BF16"])
def test_a_file_is_read_as_by_the_package(tmp_path, kind):
    kind = None if kind is None else gguf.GGMLQuantizationType[kind]
    extra = {"llama.odd": [1.5, 2.5], "tokenizer.ggml.tokens": ["a", "ä", "\n"] * 10}
    extra |= {"llama.yes": True, "llama.text": "x"}
    found = converted(tensors(PARITY / "tiny_llama"))
    path = write_gguf(tmp_path / "tiny.gguf", found, kind=kind, **extra)
    reader = gguf.GGUFReader(path)
    metadata, ours = read_gguf(path)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF."):
            value = field.contents()
            assert metadata[name] == (value[:8] if isinstance(value, list) else value)
    assert len(metadata) == len(reader.fields) - 3
    assert list(ours) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(ours[tensor.name].read(), numbers)
        assert ours[tensor.name].read().dtype == np.float32


@pytest.mark.parametrize(
    ("name", "entry", "message"),
    [
        ("llama.block_count", (4, struct.pack("<I", 2**32 - 1)), "block_count is 4294967295"),
        ("llama.block_count", (10, struct.pack("<Q", 2**32)), "block_count is 4294967296"),
        ("llama.block_count", (4, struct.pack("<I", 10**9)), "block_count is 1000000000"),
        ("llama.block_count", (6, struct.pack("<f", 2.0)), "block_count is 2.0, not a whole"),
        ("llama.block_count", (7, b"\1"), "block_count is True, not a whole"),
        (
            "llama.embedding_length",
            (10, struct.pack("<Q", 2**64 - 1)),
            "length is 18446744",
        ),
        ("llama.rope.freq_base", (6, struct.pack("<f", np.nan)), "rope.freq_base is nan"),
        (
            "llama.rope.freq_base",
            (6, struct.pack("<f", 0.0)),
            "rope_theta is 0.0, not a number above 0",
        ),
        (
            "llama.attention.layer_norm_rms_epsilon",
            (6, struct.pack("<f", np.inf)),
            "rms_norm_eps is inf, not a finite number",
        ),
        ("x", (9, struct.pack("<IQ", 0, 2**60)), r"not a whole \.gguf file .*bytes should"),
        ("x", (9, struct.pack("<IQ", 8, 2**60)), r"not a whole \.gguf file"),
        ("x", (9, struct.pack("<IQ", 9, 1) * 5000), "unknown kind 9"),
        ("x", (8, struct.pack("<Q", 2**64 - 1)), "18,446,744,073,709,551,615 bytes should"),
        ("x", (8, struct.pack("<Q", 2) + b"\xff\xfe"), "not a whole .*can't decode byte 0xff"),
        ("x", (99, b""), "unknown kind 99"),
        ("general.alignment", (4, struct.pack("<I", 0)), "general.alignment is 0, not a power"),
        ("general.alignment", (4, struct.pack("<I", 33)), "general.alignment is 33, not a power"),
        (
            "general.architecture",
            (4, struct.pack("<I", 1)),
            "architecture is 1, not a name",
        ),
        ("llama.\n\x1b[31m", (7, b"\1"), r"'llama.\\n\\x1b\[31m' is True"),
    ],
)
def test_metadata_that_are_refused(tmp_path, name, entry, message):
    refused(load_causal_lm, raw(tmp_path, {name: entry}), message)


EMBEDDINGS = "token_embd.weight"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"dims": [32]}, r"token_embd\.weight has shape \(32,\), not \(32, 32\)"),
        ({"dims": []}, r"token_embd\.weight has shape \(\), not \(1, 32\)"),
        ({"dims": [2**32, 2**32]}, "ends .* bytes after the file"),
        ({"dims": [32, 0]}, "a tensor of no numbers"),
        ({"dims": [2] * 5}, "a tensor of 5 axes"),
        ({"offset": 2**63}, "ends .* bytes after the file"),
        ({"offset": 4096}, "begins inside another"),
        ({"kind": 99}, "not a whole .*99 is not a valid"),
        ({"kind": 8, "dims": [33, 2]}, "33 numbers are not whole blocks of Q8_0"),
        ({"kind": 26}, r"token_embd\.weight is I32, not floating-point numbers"),
        ({"name": b"\xff"}, "not a whole .*can't decode"),
        ({"name": b"output.weight"}, "'output.weight' twice"),
        ({"name": b""}, "vocab_size is 32000, .* 21 tensors"),
    ],
)
def test_tensors_that_are_refused(tmp_path, said, message):
    refused(load_causal_lm, raw(tmp_path, changed={EMBEDDINGS: said}), message)


def test_names_of_hugging_face_are_not_known(tmp_path):
    path = raw(tmp_path, changed={"output.weight": {"name": b"embed_tokens.weight"}})
    refused(load_causal_lm, path, "the tensors embed_tokens.weight")


@pytest.mark.parametrize("counts", [(2**63, 14), (10**9, 14), (21, 2**63), (21, 10**9)])
def test_counts_beyond_the_file(tmp_path, counts):
    refused(load_causal_lm, raw(tmp_path, counts=counts), r"not a whole \.gguf file")


@pytest.mark.parametrize("end", [0, 3, 20, 100, 1000, 5000])
def test_files_that_end_early(tmp_path, end):
    path = raw(tmp_path)
    path.write_bytes(path.read_bytes()[:end])
    refused(load_causal_lm, path, r"not a whole \.gguf file")


def test_other_orders_of_bytes_and_versions(tmp_path):
    path = raw(tmp_path)
    content = path.read_bytes()
    for version in (struct.pack(">I", 3), struct.pack("<I", 1), struct.pack("<I", 4)):
        path.write_bytes(content[:4] + version + content[8:])
        refused(
            load_causal_lm, path, "its version is .*; 2 and 3 of little-endian files can be read"
        )


def test_a_scale_that_is_not_finite(tmp_path):
    found = converted(tensors(PARITY / "tiny_llama"))
    path = write_gguf(tmp_path / "tiny.gguf", found, kind=gguf.GGMLQuantizationType.Q8_0)
    _, stored = read_gguf(path)
    content = bytearray(path.read_bytes())
    at = content.index(stored["blk.1.ffn_up.weight"].data[3].tobytes())
    content[at : at + 2] = np.float16(np.nan).tobytes()
    path.write_bytes(content)
    refused(load_causal_lm, path, r"32 of 2,048 numbers of the tensor blk\.1\.ffn_up\.weight")


def test_what_is_no_file(tmp_path):
    (tmp_path / "a.gguf").mkdir()
    refused(load_causal_lm, tmp_path, "a.gguf is not a regular file")
    (tmp_path / "a.gguf").rmdir()
    os.mkfifo(tmp_path / "a.gguf")
    refused(load_causal_lm, tmp_path, "a.gguf is not a regular file")
    refused(load_causal_lm, tmp_path / ("a" * 5000), "does not exist")


# Commands.

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "bad", "good", "word", "##1", "1"]
COMMANDS = {
    "audit": ("--examples", 8, "--length", 6, "--model"),
    "train": ("--steps", 2, "--batch-size", 8, "--length", 6, "--pretrained"),
}


def with_nan(directory):
    found = tensors(directory)
    found[QUERY["tiny_bert"]].flat[0] = np.nan
    write(directory, found)


BAD = {
    "deep": (
        lambda d: (d / "config.json").write_text("[" * 10**5),
        r"config\.json is not JSON \(nested too deeply\)",
    ),
    "huge": (lambda d: change(d, hidden_size=10**9), "hidden_size is 1000000000"),
    "no positions": (lambda d: change(d, max_position_embeddings=0), "max_position_embeddings is"),
    "NaN": (with_nan, "1 of 1,024 numbers of the tensor .*query.weight are NaN"),
    "pickle": (
        lambda d: (d / "model.safetensors").rename(d / "pytorch_model.bin"),
        "pytorch_model.bin",
    ),
    "pipe": (
        lambda d: ((d / "config.json").unlink(), os.mkfifo(d / "config.json")),
        "has no config.json",
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("case", BAD)
def test_commands_answer_in_one_line(command, films, bert, tmp_path, name, case):
    (bert / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    spoil, message = BAD[case]
    spoil(bert)
    code, _, err = command(name, films, *COMMANDS[name], bert, "--out", tmp_path / "out")
    assert code == 2, err
    told = [line for line in err.splitlines() if line.startswith("jaxpe: ")]
    assert len(told) == 1
    assert err.rstrip().splitlines()[-1] == told[0]
    assert "Traceback" not in err
    assert re.search(message, told[0]), told[0]


def test_a_llama_that_is_damaged(command, films, tmp_path):
    path = raw(tmp_path, {"llama.block_count": (4, struct.pack("<I", 2**32 - 1))})
    words = [f"[{i}]" for i in range(20)]
    model = {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(words)}, "unk_token": "[0]"}
    tokenizer = {"version": "1.0", "added_tokens": [], "model": model}
    Path(tmp_path, "tokenizer.json").write_text(json.dumps(tokenizer))
    code, _, err = command("inspect", path, films, "--out", tmp_path / "out")
    assert code == 2
    assert "block_count is 4294967295" in err
    code, _, err = command("audit", films, "--examples", 8, "--length", 6, "--model", path)
    assert code == 2
    assert "Traceback" not in err
