"""Damaged and crafted files of every kind: right data or one InputError, nothing else."""

import bz2
import csv
import gzip
import io
import json
import lzma

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from jaxpe._core.errors import InputError
from jaxpe.data import (
    find_shards,
    load_corpus,
    load_labelled,
    load_tokens,
    open_tokenizer,
)
from tests.hardening.mutations import json_mutations, mutations

TEXTS = ["The fog comes", 'on "little", cat feet', "naïve — 猫", "It sits looking"]
LABELS = ["yes", "no", "no", "yes"]
ROWS = list(zip(LABELS, TEXTS, strict=True))
NUMBER = 100


def written(writerow_rows, **dialect):
    file = io.StringIO()
    csv.writer(file, lineterminator="\n", **dialect).writerows(writerow_rows)
    return file.getvalue().encode()


def array_bytes(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


FILES = {
    "a.txt": "\n".join(TEXTS).encode(),
    "a.tsv": ("label\ttext\n" + "".join(f"{x}\t{t}\n" for x, t in ROWS)).encode(),
    "a.csv": written([("label", "text"), *ROWS]),
    "a.jsonl": b"".join(
        json.dumps({"label": x, "text": t}, ensure_ascii=i % 2 == 0).encode() + b"\n"
        for i, (x, t) in enumerate(ROWS)
    ),
}


TABLE = pa.table({"label": LABELS, "text": TEXTS, "tags": [["a"], [], None, ["b", "c"]]})


def columns_bytes(name, table):
    file = pa.BufferOutputStream()
    match name:
        case "stream.arrow" | "file.arrow":
            write = pa.ipc.new_stream if name[0] == "s" else pa.ipc.new_file
            with write(file, table.schema) as writer:
                writer.write_table(table, 3)
        case "plain.parquet":
            pyarrow.parquet.write_table(table, file, compression="none", row_group_size=3)
        case _:
            options = {"compression": "zstd", "write_page_checksum": True}
            pyarrow.parquet.write_table(table, file, **options)
    return file.getvalue().to_pybytes()


def lines_of(content):
    return [line.removeprefix("\ufeff") for line in content.decode().split("\n")]


def texts_of(name, content):
    """What a file holds by the plainest reading; an exception where that is no such file."""
    match name.removesuffix(".gz")[-4:]:
        case ".txt":
            texts = [line.rstrip("\r\n") for line in lines_of(content)]
        case ".tsv":
            header, *rows = csv.reader(
                io.StringIO(content.decode("utf-8-sig"), newline=""), "excel-tab", quoting=3
            )
            texts = [row[header.index("text")] for row in rows if row]
        case ".csv":
            lines = io.StringIO(content.decode("utf-8-sig"), newline="")
            header, *rows = csv.reader(lines)
            texts = [row[header.index("text")] for row in rows if row]
        case _:
            texts = [json.loads(line)["text"] for line in lines_of(content) if line.strip()]
    return [text for text in texts if text.strip()]


def outcome(read):
    """The data, or None for an InputError of one line; anything else is a failure."""
    try:
        return read()
    except InputError as error:
        message = str(error)
    assert "\n" not in message
    assert len(message) < 1000
    return None


def streamed_texts(path):
    (shard,) = find_shards([path])
    return [document.text for document in shard.documents()]


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("name", FILES)
def test_text(tmp_path, name, packed):
    path, content, read = tmp_path / (name + packed), FILES[name], 0
    whole = gzip.compress(content, mtime=0) if packed else content
    for changed in mutations(whole, seed=1, number=NUMBER):
        path.write_bytes(changed)
        corpus = outcome(lambda: load_corpus(path))
        streamed = outcome(lambda: streamed_texts(path))
        outcome(lambda: load_labelled(path))
        if corpus is not None:
            read += 1
            plain = gzip.decompress(changed) if packed else changed
            assert corpus.documents == streamed == texts_of(name, plain)
    assert read > (0 if packed else NUMBER // 10)


def zstd_bytes(content):
    file = pa.BufferOutputStream()
    with pa.CompressedOutputStream(file, "zstd") as stream:
        stream.write(content)
    return file.getvalue().to_pybytes()


CONTENTS = {
    "a.jsonl.bz2": bz2.compress(FILES["a.jsonl"]),
    "a.jsonl.xz": lzma.compress(FILES["a.jsonl"]),
    "a.jsonl.zst": zstd_bytes(FILES["a.jsonl"]),
    "utf16.csv": FILES["a.csv"].decode().encode("utf-16"),
    "utf32.txt": FILES["a.txt"].decode().encode("utf-32"),
    "quoted.tsv": written([("label", "text"), *ROWS, ("no", "two\nlines\tof it")], delimiter="\t"),
    "semicolon.csv": b"sep=;\n" + written([("label", "text"), *ROWS], delimiter=";"),
    "chat.jsonl": b'{"id": "x", "messages": [{"role": "user", "content": "hi"}]}\n' * 2,
}


@pytest.mark.parametrize("name", CONTENTS)
def test_text_that_is_known_by_its_content(tmp_path, name):
    path = tmp_path / name
    for changed in mutations(CONTENTS[name], seed=13, number=NUMBER // 2):
        path.write_bytes(changed)
        corpus = outcome(lambda: load_corpus(path))
        outcome(lambda: load_labelled(path))
        if corpus is not None:  # at least two documents
            assert streamed_texts(path) == corpus.documents


@pytest.mark.parametrize("name", ["stream.arrow", "file.arrow", "plain.parquet", "packed.parquet"])
def test_columns(tmp_path, name):
    path, read = tmp_path / name, 0
    for changed in mutations(columns_bytes(name, TABLE), seed=13, number=3 * NUMBER):
        path.write_bytes(changed)
        corpus = outcome(lambda: load_corpus(path))
        streamed = outcome(lambda: streamed_texts(path))
        outcome(lambda: load_labelled(path))
        if corpus is not None:
            read += 1
            assert corpus.documents == streamed
            assert all(text.strip() for text in corpus.documents)
            if name == "packed.parquet":  # which has checksums
                assert corpus.documents == TEXTS
    assert read > 0


def test_ids(tmp_path):
    path, ids, read = tmp_path / "a.npy", np.arange(12, dtype=np.int16).reshape(4, 3), 0
    for changed in mutations(array_bytes(ids), seed=2, number=4 * NUMBER):
        path.write_bytes(changed)
        tokens = outcome(lambda: load_tokens(path))
        if tokens is not None:
            read += 1
            expected = np.load(io.BytesIO(changed))
            # A row of one id is padded to the smallest length.
            np.testing.assert_array_equal(tokens.ids[tokens.mask], expected.reshape(-1))
    assert read > 0


def test_vocabulary_files(tmp_path):
    path, read = tmp_path / "vocab.txt", 0
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "fog", "##s", "come", ","]
    for changed in mutations("\n".join(pieces).encode(), seed=10, number=NUMBER):
        path.write_bytes(changed)
        for special in (False, True):
            opened = outcome(lambda special=special: open_tokenizer(path, special=special))
            if opened is not None:
                read += 1
                ids, mask = opened.encode(TEXTS, length=6)
                assert 0 <= ids.min() <= ids.max() < len(opened.tokens)
                known = set(lines_of(changed)) | {line.rstrip("\r") for line in lines_of(changed)}
                assert {opened.tokens[i] for i in ids[mask]} <= known
    assert read > NUMBER // 10


def tokenizer_json(kind):
    import tokenizers
    from tokenizers import models, pre_tokenizers, processors

    if kind == "bpe":
        model = tokenizers.Tokenizer(
            models.BPE({"t": 0, "h": 1, "th": 2, "?": 3}, [("t", "h")], unk_token="?")
        )
        model.pre_tokenizer = pre_tokenizers.Whitespace()
        return model.to_str().encode()
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "fog": 4}
    model = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    model.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    model.enable_padding(pad_id=0)
    return model.to_str().encode()


@pytest.mark.parametrize("kind", ["bpe", "words"])
def test_tokenizer_files(tmp_path, kind):
    path, content, read = tmp_path / "tokenizer.json", tokenizer_json(kind), 0
    cases = [*json_mutations(content, seed=11, number=2 * NUMBER)]
    for changed in [*cases, *mutations(content, seed=12, number=NUMBER)]:
        path.write_bytes(changed)
        for special in (False, kind == "words"):
            opened = outcome(lambda special=special: open_tokenizer(path, special=special))
            found = opened and outcome(lambda opened=opened: opened.encode(TEXTS, length=6))
            if found:
                read += 1
                assert 0 <= found[0].min() <= found[0].max() < len(opened.tokens)
                assert all(0 <= i < len(opened.tokens) for i in opened.exclude)
    assert read > 0
