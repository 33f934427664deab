"""Models from outside that are broken or crafted, made from small ones that are whole.

`write_hostile(seed, index, path)` writes one, the same for the same numbers, and `load(path)` loads
it in every way that there is; `hostile_models(seed, number, folder)` goes through many.
"""

import itertools
import json
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxpe._core.errors import InputError
from jaxpe.nn import Bert, load_causal_lm, load_classifier, load_masked_lm
from tests.nn.stored import METADATA, PARITY, converted, tensors

FOLDERS = ("tiny_bert", "tiny_mpnet", "tiny_llama")
# JSON that no size, rate, name or choice of a model is.
VALUES = (
    *("null", "true", "false", "0", "-1", "1", "2", "3", "1.5", "-0.0", "7", "1000000000"),
    *("1e-320", "1e-60", "1e-3", "1e20", "1e60", "1e400", "-1e400", "NaN", "Infinity", "-Infinity"),
    *("2147483647", "2147483648", "9223372036854775808", "1" + "0" * 400, "9" * 5000),
    *('""', '"4"', '"relu"', '"\\ud800\\n\\u001b[31m"', '"' + "a" * 5000 + '"'),
    *("[]", "[4]", "{}", '{"0": [1]}', '{"factor": 2}', "[" * 900 + "]" * 900, "[" * 99_999),
)
ROPE_KEYS = (
    *("rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings"),
    *("low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor"),
    *("mscale", "mscale_all_dim", "truncate", "short_factor", "long_factor"),
    *("partial_rotary_factor", "mrope_section", "unknown"),
)
ROPES: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 2.0, "original_max_position_embeddings": 32},
    "llama3": {
        "factor": 2.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "longrope": {
        "short_factor": [1.0] * 8,
        "long_factor": [2.0] * 8,
        "original_max_position_embeddings": 32,
    },
    "proportional": {"partial_rotary_factor": 0.5},
}
OTHER_FIELDS = (
    *("position_embedding_type", "pruned_heads", "quantization_config", "hidden_act"),
    *("relative_attention_num_buckets", "partial_rotary_factor", "rope_scaling", "rope_theta"),
    *("torch_dtype", "dtype", "auto_map", "trust_remote_code", "id2label", "something_new"),
)
# Values of GGUF metadata: its kind and bytes.
ENTRIES = (
    *((4, struct.pack("<I", n)) for n in (0, 1, 3, 4, 2**16, 2**31, 2**32 - 1)),
    *((10, struct.pack("<Q", n)) for n in (0, 2, 10**9, 2**32, 2**63, 2**64 - 1)),
    *((5, struct.pack("<i", n)) for n in (-1, -(2**31))),
    *((6, struct.pack("<f", x)) for x in (0.0, -1.0, 1e-40, 1e-5, 1.5, 3e38, np.inf, np.nan)),
    *((12, struct.pack("<d", x)) for x in (1e300, -np.inf, np.nan, 1e-300)),
    *((7, bytes([n])) for n in (0, 1, 200)),
    *(
        (8, struct.pack("<Q", len(t)) + t)
        for t in (b"", b"linear", b"none", b"\xff\xfe", b"\n\x1b[31m")
    ),
    *((8, struct.pack("<Q", n) + b"abc") for n in (100, 2**32, 2**63, 2**64 - 1)),
    *((9, struct.pack("<IQ", kind, n)) for kind in (0, 4, 8, 9) for n in (1, 2**32, 2**60)),
    (9, struct.pack("<IQ", 9, 1) * 5000),
    *((kind, b"\0" * 8) for kind in (13, 255, 2**32 - 1)),
)
Change = Callable[[np.random.Generator, Path], str]
_HEADS = (load_masked_lm, load_classifier)
LOADS: dict[str, tuple[Callable[..., nnx.Module], ...]] = {
    "tiny_bert": (Bert.load, *_HEADS),
    "tiny_mpnet": (Bert.load, *_HEADS),
    "tiny_llama": (load_causal_lm,),
    "gguf": (load_causal_lm,),
}


def hostile_models(seed: int, number: int, folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Write so many models, and yield the class, what was done, and the path of each.

    A model is deleted when the next one is asked for.
    """
    for index in range(number):
        path = folder / str(index)
        yield *write_hostile(seed, index, path), path
        shutil.rmtree(path)


def write_hostile(seed: int, index: int, path: Path) -> tuple[str, str]:
    """Write one model into a folder that does not exist yet: its class, and what was done."""
    change = CHANGES[index % len(CHANGES)]
    return change.__name__, change(np.random.default_rng([seed, index]), path)


def load(path: Path) -> None:
    """Load a model that was written here; its weights must be finite."""
    for loads in LOADS[_kind(path)]:
        for leaf in jax.tree.leaves(nnx.state(loads(path), nnx.Param)):
            assert np.isfinite(np.asarray(leaf, np.float32)).all(), "weights are not finite"


def answer(path: Path) -> str:
    """What loading a model comes to: "loaded", or "refused" in one line."""
    try:
        load(path)
    except InputError as error:
        message = str(error)
        assert message.isprintable(), f"the message is not one line: {message[:300]!r}"
        assert len(message) < 6000, f"the message is long: {message[:300]!r}"
        return "refused"
    return "loaded"


def _kind(path: Path) -> str:
    return (path / "made_from").read_text()


def copy_model(path: Path, name: str) -> None:
    """Copy a whole model to a folder that does not exist yet."""
    shutil.copytree(PARITY / name, path)
    (path / "made_from").write_text(name)


def _copied(rng: np.random.Generator, path: Path, name: str | None = None) -> str:
    name = str(rng.choice(FOLDERS)) if name is None else name
    copy_model(path, name)
    return name


def _picked(rng: np.random.Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def field(rng: np.random.Generator, path: Path) -> str:
    """One field of config.json has another value."""
    return set_field(path, _picked(rng, fields_of(_copied(rng, path))), _picked(rng, VALUES))


def rope_field(rng: np.random.Generator, path: Path) -> str:
    """One entry of rope_parameters has another value."""
    _copied(rng, path, "tiny_llama")
    kind, key, value = (_picked(rng, choices) for choices in (sorted(ROPES), ROPE_KEYS, VALUES))
    return set_rope(path, kind, key, value)


def fields_of(name: str) -> list[str]:
    """Fields of the config.json of a model, and others that may stand there."""
    return sorted({*json.loads((PARITY / name / "config.json").read_text()), *OTHER_FIELDS})


def field_cases(name: str) -> Iterator[tuple[str, str]]:
    """Every field of a model's config.json with every value."""
    yield from itertools.product(fields_of(name), VALUES)


def set_field(path: Path, name: str, value: str) -> str:
    """Set a field of config.json to a JSON text."""
    fields = json.loads((PARITY / _kind(path) / "config.json").read_text()) | {name: "@"}
    (path / "config.json").write_text(json.dumps(fields).replace('"@"', value))
    return f"{_kind(path)}: {name} = {value[:40]}"


def set_rope(path: Path, kind: str, key: str, value: str) -> str:
    """Set an entry of rope_parameters of a kind to a JSON text."""
    entry = {"rope_type": kind, "rope_theta": 100.0} | ROPES[kind] | {key: "@"}
    set_field(path, "rope_parameters", json.dumps(entry).replace('"@"', value))
    return f"{kind}: {key} = {value[:40]}"


def config_bytes(rng: np.random.Generator, path: Path) -> str:
    """Bytes of config.json are others."""
    return f"{_copied(rng, path)}: {_flipped(rng, path / 'config.json', 0, None)}"


def header_bytes(rng: np.random.Generator, path: Path) -> str:
    """Bytes of the header of a safetensors file are others."""
    name = _copied(rng, path)
    file = path / "model.safetensors"
    length = struct.unpack("<Q", file.read_bytes()[:8])[0]
    return f"{name}: {_flipped(rng, file, 0, 8 if rng.random() < 0.2 else 8 + length)}"


def data_bytes(rng: np.random.Generator, path: Path) -> str:
    """Bytes of tensors of a safetensors file are others."""
    name = _copied(rng, path)
    file = path / "model.safetensors"
    length = struct.unpack("<Q", file.read_bytes()[:8])[0]
    return f"{name}: {_flipped(rng, file, 8 + length, None, most=64)}"


def header_entry(rng: np.random.Generator, path: Path) -> str:
    """One entry of the header of a safetensors file is another."""
    name = _copied(rng, path)
    file = path / "model.safetensors"
    header, data = split_safetensors(file.read_bytes())
    tensor = _picked(rng, sorted(header.keys() - {"__metadata__"}))
    entry = header[tensor]
    key = _picked(rng, ("dtype", "shape", "data_offsets", "name", "gone", "metadata"))
    if key == "dtype":
        entry[key] = _picked(rng, ("F16", "BF16", "F64", "I8", "BOOL", "F8_E4M3", "F4", "X", 1))
    elif key == "shape":
        odd = ([], [0], [-1], [2**63], [2**64, 2], [2**32, 2**32], entry[key][::-1], "32", [1.5])
        entry[key] = _picked(rng, odd)
    elif key == "data_offsets":
        first, last = entry[key]
        odd = ([last, first], [0, last - first], [first, 2**63], [-1, 4], [first + 4, last + 4])
        entry[key] = _picked(rng, (*odd, [first], [2**64, 2**64 + 4], None))
    elif key == "name":
        odd = (f"{tensor}\n\x1b[31m", "\ud800", "", f"x.{tensor}", tensor.split(".", 1)[1])
        header[_picked(rng, odd)] = header.pop(tensor)
    elif key == "gone":
        del header[tensor]
    else:
        header["__metadata__"] = _picked(rng, ([], {"a": 1}, {"format": "x" * 10**5}, None))
    write_safetensors(file, header, data)
    return f"{name}: {tensor}: {key}"


def cut(rng: np.random.Generator, path: Path) -> str:
    """A file of the model ends early, or goes on."""
    name = _copied(rng, path)
    file = path / _picked(rng, ("config.json", "model.safetensors"))
    return f"{name}: {file.name}: {_cut(rng, file)}"


def gguf_bytes(rng: np.random.Generator, path: Path) -> str:
    """Bytes of a .gguf are others."""
    file = _written_gguf(path)
    end = {0: 24, 1: 800}.get(int(rng.integers(6)), 2400)
    return _flipped(rng, file, 0, end)


def gguf_data(rng: np.random.Generator, path: Path) -> str:
    """Bytes of tensors of a .gguf are others."""
    return _flipped(rng, _written_gguf(path), 3000, None, most=64)


def gguf_cut(rng: np.random.Generator, path: Path) -> str:
    """A .gguf ends early, or goes on."""
    return _cut(rng, _written_gguf(path))


def gguf_entry(rng: np.random.Generator, path: Path) -> str:
    """One entry of the metadata of a .gguf is another."""
    others = ("rope.scaling.type", "rope.scaling.factor", "expert_count", "new")
    names = [*METADATA, *(f"llama.{name}" for name in others), "general.architecture"]
    name, entry = str(_picked(rng, [*names, "general.alignment"])), _picked(rng, ENTRIES)
    _written_gguf(path, entries={name: entry})
    return f"{name} = {entry[0]}: {entry[1][:20]!r}"


def gguf_tensor(rng: np.random.Generator, path: Path) -> str:
    """What is said of one tensor of a .gguf is not so."""
    theirs = converted(tensors(PARITY / "tiny_llama"))
    name = _picked(rng, sorted(theirs))
    dims = list(theirs[name].shape[::-1])
    key, value = _picked(
        rng,
        (
            *(("dims", d) for d in (dims[:1], dims[::-1], [0], [2**32] * 2, [2**63, 2], [1] * 5)),
            *(("dims", [1] * 10**5), ("dims", [])),
            *(("kind", k) for k in (1, 2, 8, 24, 26, 28, 30, 31, 99, 2**32 - 1)),
            *(("offset", o) for o in (1, 32, 2**40, 2**63, 2**64 - 32)),
            *(("name", n) for n in (b"\xff", b"", b"x\n\x1b[31m", b"output.weight", b"a" * 10**5)),
        ),
    )
    _written_gguf(path, changed={name: {key: value}})
    return f"{name}: {key} = {str(value)[:40]}"


CHANGES: tuple[Change, ...] = (
    *(field, rope_field, config_bytes, header_bytes, data_bytes, header_entry, cut),
    *(gguf_bytes, gguf_data, gguf_cut, gguf_entry, gguf_tensor),
)


def split_safetensors(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and data of a safetensors file."""
    length = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def write_safetensors(path: Path, header: dict[str, Any] | bytes, data: bytes) -> None:
    """A safetensors file of a header, as fields or as bytes, and data."""
    said = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(said)) + said + data)


def gguf_file(
    entries: dict[str, tuple[int, bytes]],
    changed: dict[str, dict[str, Any]],
    counts: tuple[int, int] | None = None,
) -> bytes:
    """A .gguf of the tiny Llama, byte by byte: some entries and what is said of tensors others."""
    made = {int: lambda x: (4, struct.pack("<I", x)), float: lambda x: (6, struct.pack("<f", x))}
    made[str] = lambda x: (8, text_of(x.encode()))
    values: dict[str, Any] = {"general.architecture": "llama", **METADATA}
    all_entries = {name: made[type(value)](value) for name, value in values.items()} | entries
    theirs = converted(tensors(PARITY / "tiny_llama"))
    infos, data = b"", b""
    for name, tensor in theirs.items():
        of = changed.get(name, {})
        dims = of.get("dims", tensor.shape[::-1])
        infos += text_of(of.get("name", name.encode()))
        infos += struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        infos += struct.pack("<IQ", of.get("kind", 0), of.get("offset", len(data)))
        data += tensor.tobytes() + b"\0" * (-tensor.nbytes % 32)
    head = struct.pack("<4sIQQ", b"GGUF", 3, *(counts or (len(theirs), len(all_entries))))
    for name, (kind, value) in all_entries.items():
        head += text_of(name.encode()) + struct.pack("<I", kind) + value
    head += infos
    return head + b"\0" * (-len(head) % 32) + data


def _written_gguf(path: Path, *, entries: Any = None, changed: Any = None) -> Path:
    path.mkdir()
    (path / "made_from").write_text("gguf")
    (path / "tiny.gguf").write_bytes(gguf_file(entries or {}, changed or {}))
    return path / "tiny.gguf"


def text_of(content: bytes) -> bytes:
    """Text as a .gguf has it."""
    return struct.pack("<Q", len(content)) + content


def _flipped(
    rng: np.random.Generator, file: Path, start: int, end: int | None, *, most: int = 3
) -> str:
    """Change one byte or a few: a bit of it, or all of it."""
    content = bytearray(file.read_bytes())
    end = len(content) if end is None else min(end, len(content))
    places = rng.integers(start, end, int(rng.integers(1, most + 1)))
    for place in places:
        content[place] = (
            content[place] ^ (1 << int(rng.integers(8)))
            if rng.random() < 0.5
            else int(_picked(rng, (0, 0x7F, 0x80, 0xFF, 0x22, 0x5D, int(rng.integers(256)))))
        )
    file.write_bytes(content)
    return f"{file.name} at {places[:5].tolist()}"


def _cut(rng: np.random.Generator, file: Path) -> str:
    content = file.read_bytes()
    if rng.random() < 0.1:
        file.write_bytes(content + b"\0" * 100)
        return "longer by 100"
    end = int(rng.integers(0, len(content)))
    file.write_bytes(content[:end])
    return f"of {end} bytes"
