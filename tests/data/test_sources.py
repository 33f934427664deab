"""Sources: folders, patterns, several files, and datasets of TFDS and Hugging Face with splits."""

import gzip
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from jaxpe.data import load_corpus, load_labelled, load_tokens
from jaxpe.data.corpora.shards import find_shards
from jaxpe.data.corpora.sources import held_out_split, source_name, source_paths
from tests.data.reading import read_both_ways, refused, write_lines
from tests.data.tfds_builder import NAMES, ROWS, TEXTS, tfds_folder

FEATURES = {
    "text": {"dtype": "string", "_type": "Value"},
    "label": {"names": NAMES, "_type": "ClassLabel"},
}


def huggingface_table(rows):
    """A table as the `datasets` library writes it, with its features in the metadata."""
    texts, labels = zip(*rows, strict=True)
    metadata = {"huggingface": json.dumps({"info": {"features": FEATURES}})}
    return pa.table({"text": texts, "label": labels}).replace_schema_metadata(metadata)


def save_to_disk(folder, rows, *, metadata=True):
    """As `Dataset.save_to_disk`, of two files."""
    folder.mkdir(parents=True)
    table = huggingface_table(rows)
    table = table if metadata else table.replace_schema_metadata(None)
    files = [f"data-0000{number}-of-00002.arrow" for number in range(2)]
    for number, name in enumerate(files):
        with pa.ipc.new_stream(folder / name, table.schema) as writer:
            writer.write_table(table.slice(number, 1 + number * len(rows)))
    state = {"_data_files": [{"filename": name} for name in files]}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
    return folder


def dataset_dict(folder):
    for split, rows in ROWS.items():
        save_to_disk(folder / split, rows)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": [*ROWS]}))
    return folder


def parquet_folder(folder):
    folder.mkdir()
    for split, rows in ROWS.items():
        table = huggingface_table(rows)
        for number in range(2):
            part = table.slice(number, 1 + number * len(rows))
            pa.parquet.write_table(part, folder / f"{split}-0000{number}-of-00002.parquet")
    return folder


def lines_folder(folder):
    folder.mkdir()
    for split, rows in ROWS.items():
        objects = ({"text": text, "label": NAMES[label]} for text, label in rows)
        write_lines(folder / f"{split}.jsonl", *objects)
    return folder


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """The same texts in each kind of dataset."""
    kinds = (dataset_dict, parquet_folder, lines_folder, tfds_folder)
    return {kind: kind(tmp_path_factory.mktemp("x") / "y") for kind in kinds}


KINDS = pytest.mark.parametrize("kind", [dataset_dict, parquet_folder, lines_folder, tfds_folder])


@KINDS
def test_every_dataset_has_splits_and_names_its_classes(datasets, kind):
    folder = datasets[kind]
    corpus = load_corpus(folder)
    assert corpus.documents == TEXTS["train"]
    choice = corpus.choices[0]
    assert (choice.setting, choice.value) == ("split", "train")
    other = choice.how.removeprefix("pass ")  # what the message says is read
    assert load_corpus(other).documents in (TEXTS["validation"], TEXTS["test"])
    train = load_labelled(folder)
    names = tuple(sorted(NAMES) if kind is lines_folder else NAMES)
    expected = [names.index(NAMES[label]) for _, label in ROWS["train"]]
    assert (train.names, train.labels.tolist()) == (names, expected)
    assert held_out_split(str(folder)) == "validation"
    for split in ("validation", "test"):
        assert load_corpus(folder, split=split).documents == TEXTS[split]
        part = load_labelled(folder, split=split, like=train)
        assert [names[label] for label in part.labels] == [NAMES[n] for _, n in ROWS[split]]
        assert load_tokens(folder, split=split).ids.shape[0] == len(ROWS[split])
    refused(folder, "no split 'dev'", split="dev")
    shards = find_shards([folder])
    documents = [x for shard in shards for x in shard.documents(group_field="label")]
    expected = [(text, NAMES[label]) for text, label in ROWS["train"]]
    assert [tuple(document) for document in documents] == expected
    other = {shard.digest() for shard in find_shards(source_paths(folder, split="test"))}
    assert other.isdisjoint(shard.digest() for shard in shards)


def test_sources_in_any_form_are_the_same_documents(tmp_path):
    expected = ["text 0", "text 1", "text 2"]
    files = [tmp_path / f"part-{number}.jsonl" for number in range(3)]
    for path, text in zip(files, expected, strict=True):
        write_lines(path, {"text": text})
    (tmp_path / "README.md").touch()
    for source in (tmp_path, f"{tmp_path}/", tmp_path / "*.jsonl", files, [files[0], tmp_path]):
        assert read_both_ways(source).documents == expected
    assert load_corpus(tmp_path).name == tmp_path.name
    assert source_name([f"{n}.txt" for n in range(5)]) == "0.txt + 1.txt + 2.txt and 2 more"
    assert len(load_corpus(["stdlib", tmp_path]).documents) > 5000


def test_ids_of_several_files(tmp_path):
    for number, rows in enumerate(([[1, 2, 3], None, [4, 5]], [[6], None, [7, 8]])):
        pa.parquet.write_table(pa.table({"ids": rows}), tmp_path / f"{number}.parquet")
    corpus = load_tokens(tmp_path, skip_nulls=True)
    assert (corpus.name, corpus.vocab_size, corpus.null_texts) == (tmp_path.name, 9, 2)
    assert corpus.ids[corpus.mask].tolist() == [*range(1, 9)]
    (tmp_path / "a.txt").write_text("to be\n")
    refused([tmp_path / "*.parquet", tmp_path / "a.txt"], "token ids", load_tokens)
    refused(tmp_path, "several kinds", load_tokens)


def test_classes_of_several_files(tmp_path):
    for name, rows in {"a": [("x", "b"), ("y", "a")], "b": [("z", "c"), ("w", "a")]}.items():
        write_lines(tmp_path / f"{name}.jsonl", *({"text": t, "label": x} for t, x in rows))
    labelled = load_labelled(tmp_path)
    assert (labelled.names, labelled.labels.tolist()) == (("a", "b", "c"), [1, 0, 2, 0])
    first = save_to_disk(tmp_path / "first", ROWS["train"], metadata=False)
    assert load_labelled(first).names == tuple(NAMES)
    other = huggingface_table(ROWS["test"])
    metadata = other.schema.metadata[b"huggingface"].replace(b"arts", b"art")
    other = other.replace_schema_metadata({"huggingface": metadata})
    pa.parquet.write_table(other, tmp_path / "other.parquet")
    refused([first, tmp_path / "other.parquet"], "'art'", load_labelled)


@pytest.mark.parametrize("label", [-1, 2])
def test_a_number_that_is_no_class(tmp_path, label):
    pa.parquet.write_table(huggingface_table([("a", 0), ("b", label)]), tmp_path / "x.parquet")
    refused(tmp_path, f"row 1: unknown label '{label}'", load_labelled)


def test_features_of_tfds_that_are_text(tmp_path):
    import tensorflow_datasets as tfds

    features = {"title": tfds.features.Text(), "number": np.int32}
    one = tfds_folder(tmp_path / "one", **features)
    assert load_corpus(one).documents == [text.upper() for text in TEXTS["train"]]
    refused(one, "row 0: 'number'", text_field="number")
    refused(one, "no column 'label'", load_labelled)
    refused(one / "dev", "no such file")
    assert load_labelled(one, label_field="number").names == ("0", "1", "2")


def test_datasets_of_tfds_that_are_not_whole(datasets, tmp_path):
    whole = datasets[tfds_folder]
    assert load_corpus(whole.parent).documents == TEXTS["train"]  # in one folder, it is found
    info = json.loads((whole / "dataset_info.json").read_text())
    record = next(whole.glob("*-train*"))
    content = record.read_bytes()
    splits, kind = (json.dumps(info | x).encode() for x in ({"splits": [1]}, {"fileFormat": "tf"}))
    for number, (name, changed, word) in enumerate(
        (
            ("dataset_info.json", splits, "splits"),
            ("dataset_info.json", kind, "holds tf"),
            (record.name, content[:100] + bytes(len(content) - 100), "cannot be read"),
            ("features.json", None, "not both files"),  # classes in a .txt are no documents
        )
    ):
        folder = Path(shutil.copytree(whole, tmp_path / str(number)))
        (folder / name).unlink()
        if changed is not None:
            (folder / name).write_bytes(changed)
        for read in (load_corpus, load_labelled):
            refused(folder, word, read)
    for name in (record.name, "x.array_record"):  # records without their dataset
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, "unknown kind")


def poems(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        content = f"{name}\nto be\n".encode()
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder


@pytest.mark.parametrize(
    ("train", "test", "split"),
    [
        ("en_train.txt", "en_test.txt", "test"),
        ("training-0.txt", "valid-0.txt", "valid"),
        ("imdb.train.txt", "imdb.dev.txt", "dev"),
        ("my train.txt.gz", "my EVAL.txt", "eval"),
        ("trainset.txt", "testset.txt", "test"),
        ("enTrain.txt", "enTest.txt", "test"),
        ("TrainingData.txt", "TestData.txt", "test"),
        ("train_test_split_train.txt", "train_test_split_test.txt", "test"),
    ],
)
def test_splits_are_words_in_the_names_of_files(tmp_path, train, test, split):
    folder = poems(tmp_path / "x", train, test)
    corpus = load_corpus(folder)
    assert corpus.documents == [train, "to be"]
    assert load_corpus(folder, split=split).documents == [test, "to be"]
    assert load_corpus(corpus.choices[0].how.removeprefix("pass ")).documents == [test, "to be"]
    assert held_out_split(str(folder)) == split


def test_words_within_words_are_no_splits(tmp_path):
    for names in (("contest.txt", "restrained.txt"), ("a_train_ride.txt", "war.txt")):
        assert len(load_corpus(poems(tmp_path / names[0], *names)).documents) == 4


def test_a_file_beside_its_compressed_copy_is_refused(tmp_path):
    folder = poems(tmp_path / "x", "a.txt", "a.txt.gz", "b.txt")
    for source in (folder, folder / "*", [folder / "a.txt.gz", folder / "a.txt"]):
        refused(source, "one file", source_paths)
    assert len(source_paths([folder / "a.txt.gz", folder / "b.txt"])) == 2


def test_a_clone_of_a_hub_dataset_is_the_folder_of_its_files(tmp_path):
    clone = tmp_path / "clone"
    (clone / ".git").mkdir(parents=True)
    poems(clone / ".git", "hidden.txt")
    (clone / "README.md").write_text("# A dataset")
    parquet_folder(clone / "data")
    (clone / "images").mkdir()
    assert load_corpus(clone).documents == TEXTS["train"]
    assert load_corpus(clone, split="test").documents == TEXTS["test"]
    assert held_out_split(str(clone)) == "validation"
    assert len(source_paths(clone / "**")) == 2
    poems(clone / "more" / "deep", "a.txt")
    refused(clone, "'data', 'more'")


def test_two_stars_do_not_follow_links_to_folders(tmp_path):
    folder = poems(tmp_path / "x", "a.txt", ".hidden.txt")
    poems(folder / "b", "b.txt")
    poems(folder / ".git", "c.txt")
    (folder / "one").symlink_to(folder)
    found = {"**/*.txt": ["a.txt", "b.txt"], "**": ["a.txt", "b.txt"], "one/*.txt": ["a.txt"]}
    for pattern, names in (found | {".hid*": [".hidden.txt"]}).items():
        assert [Path(path).name for path in source_paths(folder / pattern)] == names, pattern


@pytest.mark.parametrize("kind", ["link", "pipe", "device"])
def test_links_and_pipes_of_a_folder_are_refused_by_name(tmp_path, kind):
    folder = poems(tmp_path / kind, "a.txt")
    if kind == "pipe":
        os.mkfifo(folder / "b.txt")
    else:
        (folder / "b.txt").symlink_to("/dev/zero" if kind == "device" else folder / "none")
    for source in (folder, folder / "*.txt", folder / "**/*.txt", folder / "b.txt"):
        for read in (load_corpus, load_tokens, lambda path: find_shards([path])):
            refused(source, "b.txt is", read)


def test_published_splits(tmp_path):
    assert (held_out_split("imdb"), held_out_split("stdlib")) == ("test", None)
    assert held_out_split(["sst2", "imdb"]) is None
    (tmp_path / "test-0.txt").write_text("to be\n")
    assert held_out_split(str(tmp_path)) is None  # nothing to train on


def test_a_missing_shard_is_named_and_notes_are_no_documents(tmp_path):
    for number in (0, 2, 1):
        if number == 1:
            refused(tmp_path, "2 of 3 files", source_paths)
        write_lines(tmp_path / f"train-0000{number}-of-00003.jsonl", {"text": "a"})
    (tmp_path / "README.txt").write_text("about the data\n")
    assert len(source_paths(tmp_path)) == 3


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.bin", "a.parquet"])
def test_pointers_of_git_lfs_and_archives_are_no_data(tmp_path, name):
    lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    for content, word in ((lfs, "git lfs pull"), (b"PK\x03\x04" + bytes(60), "zip")):
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, word, source_paths)
