"""Files that jaxpe reads: how a whole one is made, how it is read, and what may come of it.

What is read of a damaged file is refused, or is what the whole file holds, where the format has
checksums, or what stands in the damaged one by a second way of reading it.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import math
import struct
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from flax import nnx

from jaxpe import encodings, plans
from jaxpe._core.results import load_result, read_npz, result_files
from jaxpe.analysis import counts as counting
from jaxpe.analysis.corpus import CorpusResult
from jaxpe.analysis.inspect import InspectResult
from jaxpe.analysis.training_run import read_run
from jaxpe.data import load_corpus, load_labelled, load_tokens, open_tokenizer
from jaxpe.encodings.families.vector_files import vectors_file
from jaxpe.nn import Bert, load_causal_lm
from jaxpe.training import Checkpoints, load_config
from jaxpe.training.config import as_json
from jaxpe.training.log import Log
from tests.data.reading import read_both_ways
from tests.data.tfds_builder import tfds_folder
from tests.nn.stored import PARITY, converted, tensors, write_gguf
from tests.plans.conftest import add_value, read
from tests.training.test_folder import run_folder

EXAMPLE = Path(__file__).parents[2] / "docs" / "example"


class Surface(NamedTuple):
    """Files of one kind.

    - `make`: writes whole ones into a folder.
    - `read`: what a user reads from the folder, one of whose files is damaged.
    - `right`: raises `AssertionError` unless what was read is right; it is given the folder, the
      damaged file, what was read, and what is read of the whole files.
    - `files`: patterns of the files to damage.
    """

    make: Callable[[Path], object]
    read: Callable[[Path, Path], Any]
    right: Callable[[Path, Path, Any, Any], None]
    files: tuple[str, ...] = ("*",)


def as_before(folder: Path, file: Path, found: Any, whole: Any) -> None:
    """Right is what the whole files hold, to the bit."""
    same = jax.tree.map(np.array_equal, found, whole)
    assert all(jax.tree.leaves(same)), "it is not what was written"


# Text and tables.

TEXTS = ["The fog comes", 'on "little", cat feet', "naïve — 猫", "It sits looking", "over harbor"]
LABELS = ["yes", "no", "no", "yes", "no"]
ROWS = list(zip(LABELS, TEXTS, strict=True))
OBJECTS = [{"label": label, "text": text} for label, text in ROWS]


def written_table(**dialect) -> bytes:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n", **dialect).writerows([("label", "text"), *ROWS])
    return file.getvalue().encode()


CONTENTS = {
    "a.txt": "\n".join(TEXTS).encode(),
    "a.tsv": "\n".join(["label\ttext", *map("\t".join, ROWS), ""]).encode(),
    "a.csv": written_table(),
    "a.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in OBJECTS).encode(),
}
UNPACK = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}


def plain_text(path: Path) -> str:
    content = UNPACK.get(path.suffix, bytes)(path.read_bytes())
    for mark, encoding in ((b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32")):
        if content.startswith(mark):
            return content.decode(encoding)
    is_utf16 = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    return content.decode("utf-16" if is_utf16 else "utf-8")


def plain_documents(path: Path) -> list[str]:
    """What a file holds by the plainest reading; an exception where that is no such file."""
    text, kind = plain_text(path), path.name.removeprefix("a.").split(".")[0]
    lines = [line.removeprefix("\ufeff") for line in text.split("\n")]
    if kind == "txt":
        documents = [line.rstrip("\r\n") for line in lines]
    elif kind == "jsonl":
        documents = [json.loads(line)["text"] for line in lines if line.strip()]
    else:
        quoting = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if kind == "tsv" else {}
        file = io.StringIO(text.removeprefix("\ufeff"), newline="")
        header, *rows = csv.reader(file, **quoting)
        documents = [row[header.index("text")] for row in rows if row]
    return [text for text in documents if text.strip()]


def text_surface(name: str, content: bytes) -> Surface:
    def right(folder, file, found, whole):
        assert found == plain_documents(file)

    return Surface(partial(_put, name, content), _documents, right)


def _put(name: str, content: bytes, folder: Path) -> None:
    (folder / name).write_bytes(content)


def _documents(folder: Path, file: Path) -> list[str]:
    documents = read_both_ways(file).documents
    assert all(text.strip() for text in documents)
    if len(documents) > 1 and file.suffix in (".tsv", ".csv", ".jsonl"):
        load_labelled(file)
    return documents


def columns(kind: str, folder: Path) -> None:
    texts = [f"{text} {number}" for number, text in enumerate(TEXTS * 20)]
    tags = [["a"], [], None, ["b"], ["c"]] * 20
    table = pa.table({"label": LABELS * 20, "text": texts, "tags": tags})
    if kind == "parquet":
        options = {"compression": "none", "write_page_checksum": True, "use_dictionary": False}
        return pyarrow.parquet.write_table(table, folder / "a.parquet", **options)
    with pa.ipc.new_stream(folder / "a.arrow", table.schema) as writer:
        writer.write_table(table, 3)
    return None


# Token ids and tokenizers.


def right_ids(folder: Path, file: Path, found: Any, whole: Any) -> None:
    if file.suffix == ".npy":
        ids = np.load(file)
    else:  # without the number of a header all of it is ids
        content = file.read_bytes()
        number, _, stated = struct.unpack("<3i", content[:12])
        ids = np.frombuffer(content[1024 * (number == LLM_C) :], "<u2")
        assert number != LLM_C or len(ids) == stated
    np.testing.assert_array_equal(found.ids[found.mask], ids.reshape(-1))


LLM_C = 20240520


def llm_c(folder: Path) -> None:
    """Ids with a header that holds their number."""
    header = np.zeros(256, "<i4")
    header[:3] = LLM_C, 1, 4000
    content = header.tobytes() + np.arange(4000, dtype="<u2").tobytes()
    (folder / "a.bin").write_bytes(content)


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "fog", "##s", "come", ","]


def tokenizer_json(folder: Path) -> None:
    words = {word: number for number, word in enumerate(PIECES)}
    ends = {"[CLS]": 2, "[SEP]": 3}
    special = [
        {"id": i, "content": name, "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for name, i in ends.items()
    ]  # fmt: skip
    fields = {
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(fields))


def encoded(folder: Path, file: Path) -> None:
    for special in (False, True):
        opened = open_tokenizer(file, special=special)
        ids, _ = opened.encode(TEXTS, length=6)
        assert 0 <= ids.min() <= ids.max() < len(opened.tokens)
        assert all(0 <= number < len(opened.tokens) for number in opened.exclude)


def nothing_more(folder: Path, file: Path, found: Any, whole: Any) -> None:
    """Reading has checked it."""


# Counts, results and runs.


def counted(folder: Path) -> Any:
    """Count two shards; what is counted already is not counted again."""
    sources = tuple(str(folder / f"{name}.txt") for name in "ab")
    options = {"tokenizer": "bytes", "length": 6, "folds": 4, "nulls": 2}
    return counting.count(counting.CountOptions(sources=sources, **options), folder / "out")


def make_counts(folder: Path) -> None:
    for name in "ab":
        text = "\n".join(f"{word}{name} {number}" for number, word in enumerate(TEXTS * 4))
        (folder / f"{name}.txt").write_text(text)
    counted(folder)


def example(name: str, folder: Path) -> None:
    for ending in ("json", "npz"):
        (folder / f"{name}.{ending}").write_bytes((EXAMPLE / f"{name}.{ending}").read_bytes())


def whole_arrays(path: Path) -> dict[str, np.ndarray]:
    """Arrays of an .npz whose checksums are right."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None, "its checksums are wrong"
    with np.load(path) as arrays:
        return dict(arrays)


def right_result(folder: Path, file: Path, found: Any, whole: Any) -> None:
    """What stands in the file: JSON has no checksum."""
    path = file.with_suffix(".json")
    files = result_files(found, path.stem)
    _assert_within(json.loads(path.read_bytes()), json.loads(files[path.name]))
    arrays = np.load(io.BytesIO(files[f"{path.stem}.npz"]))
    for name, stored in whole_arrays(path.with_suffix(".npz")).items():
        np.testing.assert_array_equal(arrays[name], stored)


def _assert_within(said: Any, found: Any) -> None:
    """Raise unless all that a file says was read; what it leaves out has defaults."""
    if isinstance(said, dict):
        for name, value in said.items():
            _assert_within(value, found[name])
    elif isinstance(said, list):
        assert len(said) == len(found), f"{len(said)} items, not {len(found)}"
        for value, other in zip(said, found, strict=True):
            _assert_within(value, other)
    else:
        said = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(said, said)
        assert said == found or said != said, f"{said!r} was read as {found!r}"


RECORDS = [
    {"step": n, "loss": 1 / (n + 1), "eval/loss": 0.5, "learning_rate": 1e-3} for n in (0, 1, 2)
]


def make_run(folder: Path) -> None:
    run_folder(folder)
    with Log(folder / "log.jsonl") as log:
        for record in RECORDS:
            log.write(record)


def run_of(folder: Path, file: Path) -> Any:
    return read_run(folder), load_config(folder)


def right_run(folder: Path, file: Path, found: Any, whole: Any) -> None:
    run, config = found
    _assert_within(json.loads((folder / "config.json").read_bytes()), as_json(config))
    said = json.loads((folder / "vocabulary.json").read_bytes())
    del said["documents"]
    _assert_within(said, run.vocabulary._asdict())
    log = folder / "log.jsonl"
    lines = log.read_bytes().split(b"\n")[:-1] if log.is_file() else []
    assert run.history == [json.loads(line) for line in lines]


# Checkpoints and models.


def state(step: int) -> dict[str, jax.Array]:
    return {"w": jnp.arange(60, dtype=jnp.float32).reshape(6, 10), "steps": jnp.arange(7) + step}


def make_checkpoints(folder: Path) -> None:
    with Checkpoints(folder / "run", config={"seed": 0}) as checkpoints:
        for step in (5, 7):
            checkpoints.save(step, state(step), {"next": step})


def restored(folder: Path, file: Path) -> Any:
    with Checkpoints(folder / "run", config={"seed": 0}, read_only=True) as checkpoints:
        found = checkpoints.restore(state(0))
    return found and tuple(found._replace(state=jax.tree.map(np.asarray, found.state)))


def model(name: str, folder: Path) -> None:
    for file in ("config.json", "model.safetensors"):
        (folder / file).write_bytes((PARITY / name / file).read_bytes())


def make_gguf(folder: Path) -> None:
    write_gguf(folder / "tiny.gguf", converted(tensors(PARITY / "tiny_llama")))


def weights(load: Callable[[Path], nnx.Module], folder: Path, file: Path) -> list[np.ndarray]:
    found = [np.asarray(x) for x in jax.tree.leaves(nnx.state(load(folder), nnx.Param))]
    assert all(np.isfinite(x).all() for x in found), "weights are not finite"
    return found


def right_weights(folder: Path, file: Path, found: Any, whole: Any) -> None:
    """Files of weights have no checksums; with another configuration weights are the same."""
    assert [x.shape for x in found] == [x.shape for x in whole]
    if file.name == "config.json":
        as_before(folder, file, found, whole)


# Rotary configurations.


def configurations(folder: Path) -> None:
    for name in ("published", "reported"):
        fields = [one for one in read(name).values() if "model_type" in one]
        for number, one in enumerate(fields):
            (folder / f"{name}-{number}.json").write_text(json.dumps(one))


def headers(folder: Path) -> None:
    """Files of llama.cpp without tensors."""
    inputs = (one.get("input", {}) for one in read("threads").values())
    for number, metadata in enumerate(fields["gguf"] for fields in inputs if "gguf" in fields):
        writer = gguf.GGUFWriter(folder / f"{number}.gguf", metadata["general.architecture"])
        for key, value in metadata.items():
            if key != "general.architecture":
                add_value(writer, key, value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def explained(folder: Path, file: Path) -> None:
    found = plans.explain_rope(plans.RopeOptions(config=str(file)))
    for group in found.groups:
        assert np.isfinite(group.frequencies).all()
        assert np.isfinite(group.attention_factor)


def arrays_of(folder: Path, file: Path) -> Any:
    return read_npz(file, remedy="write it again")


def right_arrays(folder: Path, file: Path, found: Any, whole: Any) -> None:
    np.testing.assert_equal(found, whole_arrays(file))


def vectors(folder: Path, file: Path) -> np.ndarray:
    encoding = encodings.from_file(file)
    return np.asarray(encoding.init(jax.random.key(0))["table"])


def right_vectors(folder: Path, file: Path, found: Any, whole: Any) -> None:
    np.testing.assert_array_equal(found, whole_arrays(file)["vectors"].astype(found.dtype))


VECTORS = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
BATCH = {"positions": np.tile(np.arange(40), (9, 1)), "ids": np.arange(360).reshape(9, 40)}
LONG = CONTENTS["a.txt"] * 9
SURFACES: dict[str, Surface] = {
    **{name: text_surface(name, content) for name, content in CONTENTS.items()},
    "a.jsonl.gz": text_surface("a.jsonl.gz", gzip.compress(CONTENTS["a.jsonl"] * 9, mtime=0)),
    "a.txt.bz2": text_surface("a.txt.bz2", bz2.compress(LONG)),
    "a.txt.xz": text_surface("a.txt.xz", lzma.compress(LONG)),
    "parquet": Surface(partial(columns, "parquet"), _documents, as_before),
    "arrow": Surface(partial(columns, "arrow"), _documents, nothing_more),
    "tfds": Surface(
        tfds_folder,
        lambda folder, file: load_corpus(next(folder.glob("news/*"))).documents,
        as_before,
        ("news/**/*",),
    ),
    "npy": Surface(
        lambda folder: np.save(folder / "a.npy", np.arange(12, dtype=np.int16).reshape(4, 3)),
        lambda folder, file: load_tokens(file),
        right_ids,
    ),
    "bin": Surface(llm_c, lambda folder, file: load_tokens(file, length=8), right_ids),
    "vocab.txt": Surface(
        partial(_put, "vocab.txt", "\n".join(PIECES).encode()), encoded, nothing_more
    ),
    "tokenizer.json": Surface(tokenizer_json, encoded, nothing_more),
    "batch": Surface(lambda folder: np.savez(folder / "a.npz", **BATCH), arrays_of, right_arrays),
    "vectors": Surface(partial(_put, "a.npz", vectors_file(VECTORS)), vectors, right_vectors),
    "counts": Surface(
        make_counts,
        lambda folder, file: tuple(counting.read_counts(folder / "out")),
        as_before,
        ("out/counts.npz",),
    ),
    "shards": Surface(
        make_counts, lambda folder, file: tuple(counted(folder)), as_before, ("out/shards/*",)
    ),
    "report": Surface(
        partial(example, "report"),
        lambda folder, file: load_result(CorpusResult, folder / "report.json"),
        right_result,
    ),
    "inspection": Surface(
        partial(example, "inspect"),
        lambda folder, file: load_result(InspectResult, folder / "inspect.json"),
        right_result,
    ),
    "run": Surface(make_run, run_of, right_run, ("*.json",)),
    "log": Surface(make_run, run_of, right_run, ("log.jsonl",)),
    "checkpoints": Surface(make_checkpoints, restored, as_before, ("run/7/**/*",)),
    "bert": Surface(partial(model, "tiny_bert"), partial(weights, Bert.load), right_weights),
    "llama": Surface(partial(model, "tiny_llama"), partial(weights, load_causal_lm), right_weights),
    "gguf": Surface(make_gguf, partial(weights, load_causal_lm), right_weights),
    "rope": Surface(configurations, explained, nothing_more),
    "rope gguf": Surface(headers, explained, nothing_more),
}
