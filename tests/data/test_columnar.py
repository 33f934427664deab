"""Parquet and Arrow files: what they hold, what is refused, and how much is read at once."""

import gzip
import os
import subprocess
import sys
import tracemalloc

import pyarrow as pa
import pyarrow.parquet
import pytest

from jaxpe._core.errors import InputError, MissingExtraError
from jaxpe.data import find_shards, load_corpus, load_labelled, load_tokens
from jaxpe.data.formats import columns

TEXTS = ["The fog comes", 'on "little", cat feet', " ", "naïve — 猫", "It sits"]
LABELS = ["yes", "no", "no", "no", "yes"]
NAMES = ["a.parquet", "stream.arrow", "file.arrow"]
KINDS = {
    "string": pa.string(),
    "large": pa.large_string(),
    "view": pa.string_view(),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
}


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


def fails(path, message, read=load_corpus, **options):
    with pytest.raises(InputError, match=message) as caught:
        read(path, **options)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_documents(tmp_path, name, kind):
    if name == "a.parquet" and kind == "view":
        pytest.skip("not in Parquet files")
    columns = {"n": range(5), "review": pa.array(TEXTS).cast(KINDS[kind])}
    path = write(tmp_path / name, columns)
    expected = [text for text in TEXTS if text.strip()]
    assert load_corpus(path)[:2] == (name, expected)
    (shard,) = find_shards([path])
    assert [document.text for document in shard.documents()] == expected


@pytest.mark.parametrize("name", NAMES)
def test_labels_and_groups(tmp_path, name):
    path = write(tmp_path / name, {"text": TEXTS, "label": LABELS, "by": [1, 1, 2, None, 3]})
    found = load_labelled(path)
    assert found.labels.tolist() == [1, 0, 0, 1]
    assert found.names == ("no", "yes")
    (shard,) = find_shards([path])
    groups = [document.group for document in shard.documents(group_field="by")]
    assert groups == ["1", "1", None, "3"]


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_text(tmp_path, name):
    columns = {"n": range(2), "tags": [["a"], ["b"]], "bytes": [b"a", b"b"], "half": ["a", "b"]}
    path = write(tmp_path / name, columns | {"other": ["c", "d"]})
    for field in ("n", "tags", "bytes"):
        fails(path, rf"row 0: '{field}' is .*, not a string.* `text_field`", text_field=field)
    fails(path, r"no column 'z'; pass one of 'n', 'tags'", text_field="z")
    fails(path, r"which column holds the text: 'n' \(0, 1\), .*'half' \('a', 'b'\), 'other'")
    fails(
        path, r"row 0: label .* is no class", load_labelled, text_field="half", label_field="tags"
    )
    fails(path, "no column 'z'", load_labelled, text_field="half", label_field="z")
    fails(write(tmp_path / name, {"n": range(2)}), "not clear which column")
    fails(write(tmp_path / name, {"text": range(2)}), r"not clear which column .*'text' \(0, 1\)")


UNCLEAR = {
    "list<string>": [["a"], ["b"]],
    "struct": [{"text": "a"}, {"text": "b"}],
    "binary": [b"a", b"b"],
    "null": pa.nulls(2),
    "string": pa.nulls(2, pa.string()),
}
CLEAR = {
    "number": [1.5, 2.5],
    "boolean": [True, None],
    "time": pa.array([2**62 + 1, 1], pa.timestamp("ns", tz="Nowhere/Land")),
    "date": pa.array([1, 2], pa.date32()),
    "decimal": pa.array([1, 2], pa.decimal128(5, 2)),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_only_strings_are_text_beside_numbers_alone(tmp_path, name):
    for kind, values in UNCLEAR.items():
        path = write(tmp_path / name, {"id": ["a1", "a2"], kind: values})
        fails(path, rf"not clear which column holds the text: 'id' \('a1', 'a2'\), '{kind}' ")
        assert load_corpus(path, text_field="id").documents == ["a1", "a2"]
    path = write(tmp_path / name, {"body": ["x", "y"], **CLEAR})
    assert load_corpus(path).documents == ["x", "y"]


def test_two_columns_of_one_name(tmp_path):
    table = pa.table([["a", "b"], ["c", "d"]], names=["text", "text"])
    with pa.ipc.new_stream(tmp_path / "x.arrow", table.schema) as writer:
        writer.write_table(table)
    fails(tmp_path / "x.arrow", "several columns are named")


@pytest.mark.parametrize("name", NAMES)
def test_files_that_are_not_what_they_seem(tmp_path, name):
    path = write(tmp_path / name, {"text": [f"a line {n}" for n in range(100)]})
    content = path.read_bytes()
    zeros = content[:-200] + bytes(200)
    for damaged in (b"", b"text\na\nb\n", content[:-9], content[:40], zeros):
        path.write_bytes(damaged)
        fails(path, rf"{name} cannot be read: .*check that it is complete")
    fails(write(tmp_path / name, {"text": pa.array([], pa.string())}), "holds no documents")
    fails(write(tmp_path / name, {"text": ["a"]}), "only one document")
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    fails(tmp_path / f"{name}.gz", "unknown kind of file")
    path.unlink()
    os.mkfifo(path)  # nobody writes into it
    fails(path, "is not a regular file")


def test_text_that_is_not_utf8(tmp_path):
    text = pa.array([b"caf\xe9", b"b"]).view(pa.string())
    for name in NAMES:
        fails(write(tmp_path / name, {"text": text}), r"cannot be read: .*UTF8")


def test_a_long_text_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "LARGEST_TEXT", 10)
    path = write(tmp_path / "x.parquet", {"text": ["a", "b" * 11]})
    fails(path, r"row 1: 'text' has 11 characters, more than 10")


def test_few_rows_are_in_memory_at_once(tmp_path):
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 20_000)))
    path = tmp_path / "x.parquet"
    table = pa.table({"text": [f"{n}{text}" for n in range(2000)]})  # 120 MB
    pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False)
    del table
    (shard,) = find_shards([path])
    start = pa.total_allocated_bytes()
    pa.default_memory_pool().release_unused()
    tracemalloc.start()
    for number, document in enumerate(shard.documents()):
        if number % 100 == 0:
            assert pa.total_allocated_bytes() - start < 2**28
            assert len(document.text) > 20_000
    assert tracemalloc.get_traced_memory()[1] < 2**28
    tracemalloc.stop()
    assert number == 1999


def test_progress_counts_the_rows(tmp_path, shown):
    load_corpus(write(tmp_path / "x.parquet", {"text": TEXTS}), progress=shown)
    assert shown.bars == [("Reading x.parquet", 5)]


def test_the_extra_is_named_and_imported_where_it_is_needed(tmp_path, monkeypatch):
    path = write(tmp_path / "x.parquet", {"text": TEXTS})
    (tmp_path / "x.txt").write_text("a\nb\n")
    code = (
        "import sys, jaxpe.data; from jaxpe.analysis.corpus import analyse; "
        f"jaxpe.data.load_tokens({str(tmp_path / 'x.txt')!r}); print('pyarrow' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
    for module in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    for read in (load_corpus, load_tokens, load_labelled):
        with pytest.raises(MissingExtraError, match=r"pip install 'jaxpe\[parquet\]'"):
            read(path)
