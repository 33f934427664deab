"""Parquet and Arrow files: what they hold, what is refused, and how much is read at once."""

import gzip
import os
import sys
import tracemalloc

import pyarrow as pa
import pyarrow.parquet
import pytest

from jaxpe._core.errors import MissingExtraError
from jaxpe.data import load_corpus, load_labelled, load_tokens
from jaxpe.data.corpora.shards import find_shards
from jaxpe.data.formats import columnar, columns
from tests.data.reading import read_both_ways, refused

TEXTS = ["The fog comes", 'on "little", cat feet', " ", "naïve — 猫", "It sits"]
FILES = pytest.mark.parametrize("name", ["a.parquet", "stream.arrow", "file.arrow"])


def write(path, columns, *, rows=2):
    """A file with so many rows a group or batch."""
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=rows)
        return path
    new = pa.ipc.new_stream if path.name.startswith("stream") else pa.ipc.new_file
    with new(path, table.schema) as writer:
        writer.write_table(table, rows)
    return path


@FILES
def test_every_kind_of_string_gives_the_same_documents(tmp_path, name):
    kinds = [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
    for kind in kinds + [pa.string_view()] * (name != "a.parquet"):
        path = write(tmp_path / name, {"n": range(5), "review": pa.array(TEXTS).cast(kind)})
        assert read_both_ways(path).documents == [text for text in TEXTS if text.strip()]


@FILES
def test_labels_and_groups(tmp_path, name):
    labels = ["yes", "no", "no", "no", "yes"]
    path = write(tmp_path / name, {"text": TEXTS, "label": labels, "by": [1, 1, 2, None, 3]})
    found = load_labelled(path)
    assert (found.labels.tolist(), found.names) == ([1, 0, 0, 1], ("no", "yes"))
    (shard,) = find_shards([path])
    groups = [document.group for document in shard.documents(group_field="by")]
    assert groups == ["1", "1", None, "3"]


UNCLEAR = {
    "list": [["a"], ["b"]],
    "struct": [{"text": "a"}, {"text": "b"}],
    "binary": [b"a", b"b"],
    "null": pa.nulls(2, pa.string()),
}
CLEAR = {
    "number": [1.5, 2.5],
    "boolean": [True, None],
    "time": pa.array([2**62 + 1, 1], pa.timestamp("ns", tz="Nowhere/Land")),
    "date": pa.array([1, 2], pa.date32()),
    "decimal": pa.array([1, 2], pa.decimal128(5, 2)),
}


@FILES
def test_which_columns_can_be_text(tmp_path, name):
    for kind, values in UNCLEAR.items():
        path = write(tmp_path / name, {"id": ["a1", "a2"], kind: values})
        refused(path, f"'{kind}' ")
        refused(path, f"'{kind}' is", text_field=kind)
        assert load_corpus(path, text_field="id").documents == ["a1", "a2"]
    refused(path, "'z'", text_field="z")
    refused(path, "'z'", load_labelled, text_field="id", label_field="z")
    path = write(tmp_path / name, {"text": ["a", "b"], "label": [["x"], ["y"]]})
    refused(path, "is no class", load_labelled)
    path = write(tmp_path / name, {"body": ["x", "y"], **CLEAR})
    assert load_corpus(path).documents == ["x", "y"]


def test_two_columns_of_one_name(tmp_path):
    table = pa.table([["a", "b"], ["c", "d"]], names=["text", "text"])
    with pa.ipc.new_stream(tmp_path / "x.arrow", table.schema) as writer:
        writer.write_table(table)
    refused(tmp_path / "x.arrow", "several columns")


@FILES
def test_files_that_are_not_what_they_seem(tmp_path, name):
    path = write(tmp_path / name, {"text": [f"a line {n}" for n in range(100)]})
    content = path.read_bytes()
    for damaged in (b"", b"text\na\nb\n", content[:-9], content[:-200] + bytes(200)):
        path.write_bytes(damaged)
        refused(path, "cannot be read")
    refused(write(path, {"text": pa.array([b"caf\xe9", b"b"]).view(pa.string())}), "UTF8")
    refused(write(path, {"text": pa.array([], pa.string())}), "no documents")
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    refused(tmp_path / f"{name}.gz", "unknown kind")
    path.unlink()
    os.mkfifo(path)  # nobody writes into it
    refused(path, "regular file")


def test_a_long_text_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "LARGEST_TEXT", 10)
    refused(write(tmp_path / "x.parquet", {"text": ["a" * 10, "b" * 11]}), "row 1: .* 11 ")


def test_few_rows_are_in_memory_at_once(tmp_path, monkeypatch):
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 20_000)))
    path = tmp_path / "x.parquet"
    table = pa.table({"text": [f"{n}{text}" for n in range(400)]})  # 24 MB
    options = {"write_batch_size": 10, "data_page_size": 2**18, "use_dictionary": False}
    pyarrow.parquet.write_table(table, path, compression="none", **options)
    del table
    monkeypatch.setattr(columnar, "_BYTES_AT_ONCE", 2**20)
    (shard,) = find_shards([path])
    pa.default_memory_pool().release_unused()
    start = pa.total_allocated_bytes()
    tracemalloc.start()
    for number, document in enumerate(shard.documents()):
        assert pa.total_allocated_bytes() - start < 2**23
        assert document.text == f"{number}{text}"
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()
    assert number == 399


def test_the_extra_is_named(tmp_path, monkeypatch):
    path = write(tmp_path / "x.parquet", {"text": TEXTS})
    for module in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    for read in (load_corpus, load_tokens, load_labelled):
        with pytest.raises(MissingExtraError, match="parquet"):
            read(path)
