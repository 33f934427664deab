"""Export to TFDS and back."""

import json
import os
import pickle
import shutil
import sys

import numpy as np
import pytest

from jaxpe._core.errors import InputError, MissingExtraError
from jaxpe._core.json_values import seal
from jaxpe.data import (
    Corpus,
    export_corpus,
    find_shards,
    load_corpus,
    load_tokens,
    open_corpus,
    tokenize,
)

TEXT = Corpus("poems", [f"The fog № {i} comes" + " on" * (i % 4) for i in range(2500)])


def test_text_round_trip(tmp_path, capfd):
    folder = export_corpus(TEXT, tmp_path / "deep" / "poems")
    assert capfd.readouterr() == ("", "")
    assert folder == tmp_path / "deep" / "poems"
    assert load_corpus(folder) == TEXT
    assert [path.name for path in folder.parent.iterdir()] == ["poems"]
    tokens, expected = load_tokens(folder), tokenize(TEXT)
    np.testing.assert_array_equal(tokens.ids, expected.ids)


def test_tokens_round_trip(tmp_path):
    tokens = tokenize(TEXT)._replace(exclude=(3, 5))
    folder = export_corpus(tokens, tmp_path)
    back = load_tokens(folder)
    for field, value in tokens._replace(choices=())._asdict().items():
        assert np.array_equal(getattr(back, field), value), field
    assert (back.ids.dtype, back.mask.dtype) == (np.int32, bool)
    cut = load_tokens(folder, length=3, tokenizer="words")
    np.testing.assert_array_equal(cut.ids, tokens.ids[:, :3])
    with pytest.raises(InputError, match="token ids, not text"):
        load_corpus(folder)
    with pytest.raises(InputError, match="token ids already"):
        load_tokens(folder, tokenizer="bytes")


def test_grain_reads_it_in_any_order(tmp_path):
    import grain

    rows = open_corpus(export_corpus(TEXT, tmp_path))
    assert len(rows) == len(TEXT.documents)
    assert rows[7]["text"].decode() == TEXT.documents[7]
    texts = grain.MapDataset.source(rows).seed(0).shuffle().map(lambda row: row["text"].decode())
    assert list(texts) != TEXT.documents
    assert sorted(texts) == sorted(TEXT.documents)
    assert len(next(iter(texts.batch(4).to_iter_dataset()))) == 4


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(InputError, match="is in use; pass a new or an empty directory"):
        export_corpus(TEXT, tmp_path)
    with pytest.raises(InputError, match="cannot be written"):
        export_corpus(TEXT, tmp_path / "mine.txt" / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_other_directories(tmp_path):
    with pytest.raises(InputError, match="holds no corpus; pass a directory that export_corpus"):
        open_corpus(tmp_path)


@pytest.mark.parametrize("module", ["tensorflow_datasets", "importlib_resources"])
def test_without_tfds(tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"{module} is not installed.*jaxpe\[data\]"):
        export_corpus(TEXT, tmp_path / "x")


def test_tfds_reads_it_too(tmp_path):
    import tensorflow_datasets as tfds

    source = tfds.builder_from_directory(export_corpus(TEXT, tmp_path)).as_data_source("train")
    assert [row["text"].decode() for row in source] == TEXT.documents


def test_rows_by_number_survive_pickling(tmp_path):
    rows = pickle.loads(pickle.dumps(open_corpus(export_corpus(TEXT, tmp_path))))
    assert [row["text"].decode() for row in rows.__getitems__([7, 3])] == [
        TEXT.documents[7],
        TEXT.documents[3],
    ]
    assert sum(1 for _ in rows) == len(rows)
    assert rows.__getitems__([]) == []
    for index in (-1, len(rows)):
        with pytest.raises(IndexError):
            rows[index]


@pytest.mark.parametrize(
    ("documents", "message"),
    [([], "two has no documents"), (["a", "\ud800"], "document 1 of two holds half of a surrog")],
)
def test_what_cannot_be_exported(tmp_path, documents, message):
    with pytest.raises(InputError, match=message):
        export_corpus(Corpus("two", documents), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_names_and_tokens_that_cannot_be_written(tmp_path):
    tokens = tokenize(Corpus("x", ["a \ud800", "b"]), tokenizer="characters")
    for corpus in (tokens, Corpus("\ud800", ["a", "b"])):
        with pytest.raises(InputError, match="half of a surrogate pair"):
            export_corpus(corpus, tmp_path / "x")


SMALL = Corpus("small", ["to be", "or not", "to be"])
SHARD = "jaxpe_corpus-train.array_record-00000-of-00001"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return export_corpus(SMALL, tmp_path_factory.mktemp("small") / "x")


@pytest.fixture
def copy(small, tmp_path):
    return shutil.copytree(small, tmp_path / "copy")


def change(path, **fields):
    """Other fields in metadata.json, and the checksum that goes with them."""
    about = json.loads((path / "metadata.json").read_text()) | fields
    del about["checksum"]
    text = json.dumps(about | {"checksum": seal(about)})
    (path / "metadata.json").write_text(text)


def refused(folder, message):
    for read in (load_corpus, load_tokens, lambda path: list(open_corpus(path))):
        with pytest.raises(InputError, match=message) as caught:
            read(folder)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=message):
        list(find_shards([folder])[0].documents())


def test_no_code_runs_from_a_folder(copy, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    features = json.loads((copy / "features.json").read_text())
    features["featuresDict"]["features"]["text"]["pythonClassName"] = "evil.X"
    (copy / "features.json").write_text(json.dumps(features))
    info = json.loads((copy / "dataset_info.json").read_text())
    info["moduleName"] = "evil"
    (copy / "dataset_info.json").write_text(json.dumps(info))
    assert load_corpus(copy) == SMALL
    assert "evil" not in sys.modules


def test_no_template_leads_out_of_a_folder(copy, tmp_path):
    shutil.copytree(copy, tmp_path / "other")
    info = json.loads((copy / "dataset_info.json").read_text())
    info["splits"][0]["filepathTemplate"] = "../other/{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    (copy / "dataset_info.json").write_text(json.dumps(info))
    assert load_corpus(copy) == SMALL
    (copy / SHARD).unlink()
    refused(copy, "lacks some of its files")


@pytest.mark.parametrize("number", ["00001-of-00002", "00000-of-00002", "00000-of-99999"])
def test_shards_that_are_missing(copy, number):
    (copy / SHARD).rename(copy / f"jaxpe_corpus-train.array_record-{number}")
    refused(copy, "lacks some of its files")


def test_links_and_pipes_in_place_of_a_shard(copy, small):
    (copy / SHARD).unlink()
    (copy / SHARD).symlink_to(small / SHARD)
    refused(copy, f"{SHARD} is a link or no file")
    (copy / SHARD).unlink()
    os.mkfifo(copy / SHARD)
    refused(copy, f"{SHARD} is a link or no file")


def test_the_shard_of_another_corpus(copy, tmp_path):
    other = export_corpus(Corpus("small", ["to be", "or NOT", "to be"]), tmp_path / "other")
    shutil.copy(other / SHARD, copy / SHARD)
    with pytest.raises(InputError, match="its documents are not those of"):
        load_corpus(copy)
    with pytest.raises(InputError, match="its documents are not those of"):
        list(find_shards([copy])[0].documents())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"documents": 4}, "has 3 documents, and metadata.json says 4"),
        ({"documents": -1}, "has 3 documents, and metadata.json says -1"),
        ({"documents": 3.0}, "documents is 3.0, not an integer"),
        ({"name": 3}, "name is 3, not a string"),
        ({"name": "\ud800"}, "has a name that is no text"),
        ({"kind": "bytes"}, "kind is 'bytes', not 'text'"),
        ({"kind": ["text"]}, "kind is"),
        ({"extra": 1}, "unknown fields 'extra'"),
    ],
)
def test_metadata_that_is_not_ours(copy, fields, message):
    change(copy, **fields)
    refused(copy, message)


def test_metadata_that_is_damaged(copy):
    path = copy / "metadata.json"
    path.write_text(path.read_text().replace("small", "smell"))
    refused(copy, r"metadata\.json is damaged \(its checksum differs\)")
    path.write_text('{"kind": ' + "[" * 100_000)
    refused(copy, "nested too deeply")
    path.write_text('{"kind": "text", "name": "small"}')
    refused(copy, "lacks 'checksum', 'digest', 'documents'; export the corpus again")
    path.unlink()
    refused(copy, "is a data set that export_corpus did not write")


def test_tokens_that_contradict_themselves(tmp_path):
    tokens = tokenize(SMALL)
    folder = export_corpus(tokens, tmp_path / "x")
    for fields, message in (
        ({"vocab_size": 2}, "contradicts itself"),
        ({"exclude": [4]}, "contradicts itself"),
        ({"longest": -1}, "contradicts itself"),
        ({"tokens": ["be", "not", "or", "\ud800"]}, "contradicts itself"),
        ({"length": 3}, "damaged document: it is not 3 numbers below 4"),
        ({"vocab_size": 2, "tokens": ["be", "not"]}, "damaged document: it is not 2 numbers"),
        ({"kind": "text"}, "unknown fields"),
    ):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        copy = shutil.copytree(folder, tmp_path / "copy")
        change(copy, **fields)
        with pytest.raises(InputError, match=message):
            load_tokens(copy)


def write_rows(path, rows):
    from array_record.python import array_record_module

    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
    for row in rows:
        writer.write(row)
    writer.close()


def test_records_that_are_no_rows(copy):
    from tensorflow_datasets.proto import tf_example_pb2

    def row(**features):
        example = tf_example_pb2.Example()
        for name, values in features.items():
            example.features.feature[name].bytes_list.value.extend(values)
        return example.SerializeToString()

    fine = row(text=[b"to be"])
    for bad in (
        b"\xff",
        b"",
        fine[:-1],
        row(),
        row(text=[]),
        row(text=[b"a", b"b"]),
        row(text=[b"\xff"]),
        row(words=[b"a"]),
        row(text=[b"a"], more=[b"b"]),
    ):
        write_rows(copy / SHARD, [fine, bad, fine])
        refused(copy, "holds a damaged document")
