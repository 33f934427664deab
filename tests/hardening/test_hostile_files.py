"""Files that nobody should trust: refused in one line, at next to no memory, wherever they point.

Fields and tensors that are changed at random are in the matrix; here are crafted ones, by what they
attack. `test_no_code.py` has files that name code.
"""

import gzip
import json
import math
import shutil
import struct
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.data import load_corpus
from jaxpe.nn import Bert, load_causal_lm, load_classifier, load_masked_lm, save_huggingface
from tests.conftest import small_disk
from tests.nn.stored import PARITY, change, converted, copied, tensors, write, write_gguf

MOST_BYTES = 2 * 10**8  # that a refusal may take
TINY = {"tiny_bert": Bert.load, "tiny_mpnet": Bert.load, "tiny_llama": load_causal_lm}
QUERY = {
    "tiny_bert": "bert.encoder.layer.1.attention.self.query.weight",
    "tiny_mpnet": "mpnet.encoder.layer.1.attention.attn.q.weight",
    "tiny_llama": "model.layers.1.self_attn.q_proj.weight",
}


@pytest.fixture(params=TINY)
def tiny(request, tmp_path):
    """A copy of a tiny model, and what loads it."""
    return copied(request.param, tmp_path), TINY[request.param]


@pytest.fixture
def bert(tmp_path):
    return copied("tiny_bert", tmp_path)


@pytest.fixture
def llama(tmp_path):
    return copied("tiny_llama", tmp_path)


def refused(load, path, word):
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=word) as error:
            load(path)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    assert str(error.value).isprintable()


# Configurations.

HUGE = dict.fromkeys(
    ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads"), 2**30
)
FIELDS = (
    *({"max_position_embeddings": x} for x in (0, -1, 0.5, "x", True, [], 2**31, math.nan)),
    *({"hidden_size": x} for x in (10**9, -1, 0)),
    *({"num_hidden_layers": x} for x in (10**9, -1, 0)),
    {"max_position_embeddings": 2**31 - 1} | HUGE,
)


def test_sizes_beyond_the_tensors_take_no_memory(tiny):
    directory, load = tiny
    fields = json.loads((directory / "config.json").read_text())
    for changes in FIELDS:
        change(directory, **fields | changes)
        refused(load, directory, r"config\.json: ")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e400", "1e-50", "0", "-1e-5", "1e39"])
def test_epsilon_is_a_float32_above_zero(tiny, value):
    directory, load = tiny
    field = "rms_norm_eps" if directory.name == "tiny_llama" else "layer_norm_eps"
    text = json.dumps(json.loads((directory / "config.json").read_text()) | {field: "@"})
    (directory / "config.json").write_text(text.replace('"@"', value))
    refused(load, directory, field)


YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32}
ROPES = (
    ({"rope_theta": math.nan}, "rope_theta"),
    ({"rope_theta": 0}, "rope_theta"),
    ({"rope_theta": "100"}, "rope_theta"),
    ({"rope_type": "linear", "factor": 1e-300}, "finite"),
    ({"rope_type": "linear", "factor": math.inf}, "factor"),
    ({"rope_type": ["linear"]}, "rope_type"),
    (YARN | {"attention_factor": 1e20}, "finite"),
    (YARN | {"rope_theta": 1}, "ZeroDivisionError"),
    ({"rope_type": "longrope", "short_factor": "ab", "long_factor": [1.0] * 8}, "short_factor"),
)


def test_frequencies_that_are_no_numbers(llama):
    for entry, word in ROPES:
        change(llama, rope_parameters={"rope_type": "default", "rope_theta": 100.0} | entry)
        refused(load_causal_lm, llama, word)
    change(llama, rope_parameters={}, rope_scaling=[1], rope_theta=100.0)
    refused(load_causal_lm, llama, "rope_scaling")


@pytest.mark.parametrize(
    "content",
    [b"[" * 10**6, b'{"a":' * 10**5, b'{"hidden_size": ' + b"9" * 5000 + b"}", b" " * (2**24 + 1)],
)
def test_configurations_that_exhaust_a_parser(tiny, content):
    directory, load = tiny
    (directory / "config.json").write_bytes(content)
    refused(load, directory, r"config\.json")


# Weights.


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(math.nan, np.float32), (math.inf, np.float16), (-math.inf, ml_dtypes.bfloat16),
     (1e300, np.float64)],
)  # fmt: skip
def test_a_number_that_is_not_finite_is_named(tiny, number, dtype):
    directory, load = tiny
    name = QUERY[directory.name]
    found = {key: tensor.astype(dtype) for key, tensor in tensors(directory).items()}
    found[name].flat[7] = number
    write(directory, found)
    refused(load, directory, rf"1 of [\d,]+ numbers of the tensor {name}")


def test_tensors_that_do_not_fit(bert, llama):
    whole, names = tensors(bert), ("embeddings.LayerNorm.weight", "classifier.bias")
    for load, changes, word in (
        (Bert.load, {names[0]: whole[f"bert.{names[0]}"] + 1}, "two tensors"),
        (load_classifier, {names[1]: np.zeros((2, 3), np.float32)}, names[1]),
        (load_classifier, {names[1]: np.zeros(0, np.float32)}, names[1]),
        (load_masked_lm, {"cls.predictions.bias": np.full(60, np.nan, np.float32)}, "60 of 60"),
    ):
        write(bert, whole | changes)
        refused(load, bert, word)
    whole, name = tensors(llama), "model.layers.0.mlp.up_proj.weight"
    write(llama, whole | {name: np.ascontiguousarray(whole[name].T)})
    refused(load_causal_lm, llama, r"up_proj.* \(32, 64\)")
    write(llama, whole | {"x\n\x1b[31m": np.ones(1, np.float32)})
    refused(load_causal_lm, llama, r"x\\n\\x1b")


@pytest.mark.parametrize(("dtype", "size"), [("F8_E4M3", 1), ("C64", 8), ("I64", 8)])
def test_a_tied_matrix_of_no_floats(llama, dtype, size):
    change(llama, tie_word_embeddings=True)
    whole = tensors(llama)
    rows = whole.pop("lm_head.weight").shape[0]
    write(llama, whole)
    header, data = split(llama)
    end = len(data) + 32 * rows * size
    entry = {"dtype": dtype, "shape": [rows, 32], "data_offsets": [len(data), end]}
    crafted(llama, json.dumps(header | {"lm_head.weight": entry}).encode(), data.ljust(end, b"\0"))
    refused(load_causal_lm, llama, dtype)


def split(directory):
    """Header and data of a safetensors file."""
    content = (directory / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def crafted(directory, header, data, length=None):
    size = struct.pack("<Q", len(header) if length is None else length)
    (directory / "model.safetensors").write_bytes(size + header + data)


ENTRIES = (
    {"data_offsets": [0, 2**40]}, {"data_offsets": [8, 4]}, {"data_offsets": [-4, 4]},
    {"data_offsets": "0"}, {"data_offsets": [4, 8]}, {"shape": [2**62, 2**62]}, {"shape": [1.5]},
    {"dtype": "F31"},
)  # fmt: skip


def test_headers_that_are_refused(bert):
    header, data = split(bert)
    text = json.dumps(header)
    first = next(name for name in header if name[0] != "_")
    twice = f"{text[:-1]}, {json.dumps(first)}: {json.dumps(header[first] | {'shape': [1]})}}}"
    headers = [json.dumps(header | {first: header[first] | entry}) for entry in ENTRIES]
    headers += [twice, "[" * 10**6, '{"__metadata__":' + '{"a":' * 10**5, "{}", "\0" * 80]
    for one in headers:
        crafted(bert, one.encode(), data)
        refused(Bert.load, bert, "complete safetensors file|does not fit")
    for length in (0, 7, 2**30, 2**40, 2**63, 2**64 - 1):
        crafted(bert, text.encode(), data, length)
        refused(Bert.load, bert, "complete safetensors file")


# Places outside of the folder, and bombs.


@pytest.mark.parametrize(
    "shards",
    [{"a": "../model.safetensors"}, {"a": "/etc/passwd"}, {"a": "a/b.safetensors"},
     {"a": "a\\b.safetensors"}, {"a": "a\n.safetensors"}, {"a": ".."}, {"a": "a" * 5000},
     {"a": ["b.safetensors"]}, {}, [], {str(i): f"{i}.safetensors" for i in range(1000)}],
)  # fmt: skip
def test_an_index_names_files_of_its_folder(bert, shards):
    (bert / "model.safetensors").rename(bert.parent / "model.safetensors")
    (bert / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    refused(Bert.load, bert, "weight_map|lacks")


def test_a_tensor_in_two_shards(bert):
    for name in ("a.safetensors", "b.safetensors"):
        shutil.copy(bert / "model.safetensors", bert / name)
    (bert / "model.safetensors").unlink()
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (bert / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(Bert.load, bert, "two tensors")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "model.pt"])
def test_pickles_are_not_read(tiny, name):
    directory, load = tiny
    (directory / "model.safetensors").unlink()
    ran = directory / "ran"
    (directory / name).write_bytes(b"cos\nsystem\n(S'touch " + str(ran).encode() + b"'\ntR.")
    refused(load, directory, name)
    assert not ran.exists()


def test_a_line_without_an_end_is_refused_before_it_fills_memory(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a" * 2**20) * 200)
    refused(load_corpus, tmp_path / "a.txt.gz", r"a\.txt\.gz")


def test_a_full_disk_leaves_the_model_that_was_there(bert):
    whole = (bert / "model.safetensors").read_bytes()
    model = Bert.load(bert)
    with small_disk(len(whole) // 2), pytest.raises(InputError, match=r"model\.safetensors"):
        save_huggingface(model, bert)
    assert (bert / "model.safetensors").read_bytes() == whole
    assert sorted(path.name for path in bert.iterdir()) == ["config.json", "model.safetensors"]


# .gguf.

METADATA = (
    ({"llama.block_count": 2**32 - 1}, "block_count"),
    ({"llama.block_count": 10**9}, "block_count"),
    ({"llama.block_count": 2.0}, "block_count"),
    ({"llama.block_count": True}, "block_count"),
    ({"llama.embedding_length": 2**32 - 1}, "embedding_length"),
    ({"llama.rope.freq_base": math.nan}, "freq_base"),
    ({"llama.rope.freq_base": 0.0}, "rope_theta"),
    ({"llama.attention.layer_norm_rms_epsilon": math.inf}, "rms_norm_eps"),
    ({"llama.\n\x1b[31m": True}, r"\\n\\x1b"),
)
# Bytes at a place of the file, or behind a name in it.
HEADS = (
    (4, struct.pack(">I", 3)), (4, struct.pack("<I", 1)), (4, struct.pack("<I", 4)),
    (8, struct.pack("<Q", 2**63)), (8, struct.pack("<Q", 10**9)), (16, struct.pack("<Q", 2**63)),
    (16, struct.pack("<Q", 10**9)), (24, struct.pack("<Q", 2**64 - 1)),
    (b"llama.context_length", struct.pack("<I", 99)),
    (b"llama.context_length", struct.pack("<IIQ", 9, 0, 2**60)),
    (b"llama.context_length", struct.pack("<IIQ", 9, 8, 2**60)),
    (b"llama.context_length", struct.pack("<IQ", 8, 2**64 - 1)),
    (b"token_embd.weight", struct.pack("<I", 5)),
    (b"token_embd.weight", struct.pack("<IQQ", 2, 2**32, 2**32)),
    (b"token_embd.weight", struct.pack("<IQQ", 2, 32, 0)),
    (b"token_embd.weight", struct.pack("<IQQI", 2, 32, 40, 99)),
    (b"token_embd.weight", struct.pack("<IQQIQ", 2, 32, 40, 0, 2**63)),
    (b"token_embd.weight", struct.pack("<IQQIQ", 2, 32, 40, 0, 4096)),
)  # fmt: skip


def test_gguf_metadata_that_are_refused(tmp_path):
    found = converted(tensors(PARITY / "tiny_llama"))
    for changes, word in METADATA:
        refused(load_causal_lm, write_gguf(tmp_path / "a.gguf", found, **changes), word)


def test_gguf_lengths_beyond_the_file(tmp_path):
    path = write_gguf(tmp_path / "a.gguf", converted(tensors(PARITY / "tiny_llama")))
    whole = path.read_bytes()
    for place, changed in HEADS:
        at = place if isinstance(place, int) else whole.index(place) + len(place)
        path.write_bytes(whole[:at] + changed + whole[at + len(changed) :])
        refused(load_causal_lm, path, r"whole \.gguf file")
