"""Token files of trainers: the same documents from each, damage in one line."""

import json
import os
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from jaxpe.data import load_corpus, load_tokens, open_tokenizer
from jaxpe.data.corpora.shards import find_shards
from jaxpe.data.formats import token_files
from jaxpe.data.formats.columns import Fields, ReadLog
from jaxpe.data.formats.table import holds_ids
from jaxpe.data.formats.token_files import Stream, map_id_blocks
from jaxpe.data.tokens.tokenizers import tokenizer_of_ids
from tests.data.reading import refused

EOT = 0
DOCUMENTS = [[5, 7, 7], [9], [], [3, 2, 1, 4, 6], [8, 8]]
THERE = [row for row in DOCUMENTS if row]


def arrow_stream(path, table):
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


def stream_of(dtype):
    rows = [[*row, EOT] for row in DOCUMENTS]
    return np.array([token for row in rows for token in row], dtype)


def raw(folder, head=b"", dtype="<u2"):
    (folder / "raw.bin").write_bytes(head + stream_of(dtype).tobytes())
    return folder / "raw.bin"


def llm_c(folder):
    head = np.zeros(256, "<i4")
    head[:3] = 20240520, 1, 16
    return raw(folder, head.tobytes())


def numpy_stream(folder):
    np.save(folder / "a.npy", stream_of(np.int64))
    return folder / "a.npy"


def table(**more):
    kind = pa.list_(pa.int32())
    return pa.table({"text": ["x"] * 5, "input_ids": pa.array(DOCUMENTS, kind), **more})


def parquet(folder):
    pq.write_table(table(), folder / "a.parquet")
    return folder / "a.parquet"


def arrow(folder):
    arrow_stream(folder / "a.arrow", table())
    return folder / "a.arrow"


WRITERS = {
    "nanoGPT": raw,
    "llm.c": llm_c,
    "npy": numpy_stream,
    "parquet": parquet,
    "arrow": arrow,
}


def rows_of(blocks):
    return [row.tolist() for ids, _ in blocks for row in ids]


def read(path, field="input_ids", stream=Stream(separator=EOT)):  # noqa: B008
    field = field if str(path).endswith(("parquet", "arrow")) else None
    (shard,) = find_shards([path])
    return rows_of(shard.id_blocks(text_field=field, stream=stream))


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
@pytest.mark.parametrize("at_once", [1, 2, 2**22])
def test_every_format_has_the_same_documents(tmp_path, monkeypatch, write, at_once):
    monkeypatch.setattr(token_files, "_AT_ONCE", at_once)
    assert read(write(tmp_path)) == THERE


@pytest.mark.parametrize("at_once", [1, 5, 6, 2**22])
def test_streams_without_separator_and_matrices(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(token_files, "_AT_ONCE", at_once)
    path, tokens = raw(tmp_path), stream_of(int).tolist()  # 16 of them
    for length in (3, 4, 5):
        rows = [tokens[start : start + length] for start in range(0, 16, length)]
        assert read(path, stream=Stream(length=length)) == rows
    matrix = np.arange(15, dtype=np.uint16).reshape(5, 3)
    np.save(tmp_path / "a.npy", matrix)
    assert read(tmp_path / "a.npy") == matrix.tolist()


def test_a_large_vocabulary_has_32_bits(tmp_path):
    path = raw(tmp_path, dtype="<u4")
    assert read(path, stream=Stream(EOT, 128, 2**16 + 1)) == THERE
    assert read(raw(tmp_path), stream=Stream(EOT, 128, 2**16)) == THERE
    refused(raw(tmp_path, b"x"), "33 bytes", read)


@pytest.mark.parametrize("kind", [pa.large_list(pa.int64()), pa.list_(pa.uint8())])
def test_columns_of_other_lists(tmp_path, kind):
    pq.write_table(pa.table({"x": pa.array(DOCUMENTS, kind)}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", field=None) == THERE
    assert holds_ids(str(tmp_path / "a.parquet"))


def test_which_column_holds_ids(tmp_path):
    path = str(parquet(tmp_path))
    assert holds_ids(path, "input_ids")
    assert not holds_ids(path)  # there is text
    assert not holds_ids(path, "text")
    refused(path, "'text'", read, field="text")
    pq.write_table(pa.table({"a": [[1]], "b": [[2]]}), path)
    refused(path, r"'a' \(\[1\]\)", read, field=None)


def test_rows_and_ids_that_are_null(tmp_path):
    rows = pa.table({"ids": pa.array([[1], None, [2, 3]], pa.list_(pa.int32())), "by": [*"xyz"]})
    path, log = tmp_path / "a.parquet", ReadLog()
    pq.write_table(rows, path)
    refused(path, "'ids' is null", read, field="ids")
    (shard,) = find_shards([path])
    options = {"text_field": "ids", "group_field": "by", "skip_nulls": True}
    ((ids, by),) = shard.id_blocks(**options, stream=Stream(), log=log)
    assert ([row.tolist() for row in ids], by) == ([[1], [2, 3]], ["x", "z"])
    assert log.null_texts == 1
    pq.write_table(pa.table({"ids": [[1, None]]}), path)
    refused(path, "rows 0 to 0: 1 ids", read, field=None)


def save_to_disk(folder, tables, **state):
    """As `Dataset.save_to_disk` of Hugging Face datasets; the files are not sorted by name."""
    folder.mkdir()
    names = [f"data-{n:05}-of-{len(tables):05}.arrow" for n in reversed(range(len(tables)))]
    for name, each in zip(names, tables, strict=True):
        arrow_stream(folder / name, each)
    files = {"_data_files": [{"filename": name} for name in names], **state}
    (folder / "state.json").write_text(json.dumps(files))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def test_a_dataset_saved_to_disk(tmp_path):
    ids = [pa.table({"input_ids": rows}) for rows in (DOCUMENTS[:2], DOCUMENTS[2:])]
    folder = save_to_disk(tmp_path / "ids", ids)
    shards = find_shards([folder])
    assert [row for s in shards for row in rows_of(s.id_blocks(stream=Stream()))] == THERE
    assert load_tokens(folder).ids.shape[0] == len(THERE)
    texts = save_to_disk(tmp_path / "text", [pa.table({"text": [x, "b"]}) for x in ("a", "c")])
    assert load_corpus(texts).documents == ["a", "b", "c", "b"]
    chosen = save_to_disk(tmp_path / "chosen", ids, _indices_data_files=[{"filename": "i.arrow"}])
    refused([chosen], "flatten_indices", find_shards)
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    refused([tmp_path], "no such file: .*/train", find_shards)


def test_a_corpus_of_ids_of_different_lengths(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"ids": pa.array(DOCUMENTS, pa.list_(pa.int32()))}), path)
    corpus = load_tokens(path, length=4)
    assert corpus.ids.tolist() == [[5, 7, 7, 0], [9, 0, 0, 0], [3, 2, 1, 4], [8, 8, 0, 0]]
    assert corpus.mask.sum(axis=1).tolist() == [3, 1, 4, 2]
    assert (corpus.vocab_size, corpus.longest, corpus.tokenizer) == (10, 5, "ids")
    named = load_tokens(path, tokenizer="bytes")
    assert named.tokens == open_tokenizer("bytes").tokens


WRONG = Path(os.environ.get("JAXPE_DATA_DIR", "none")) / "wrong_cases"


@pytest.mark.skipif(not WRONG.exists(), reason="a file that people had")
def test_a_bin_of_32_bits_that_was_read_as_16():
    corpus = load_tokens(WRONG / "u4.bin", length=20)
    assert corpus.ids.tolist() == np.fromfile(WRONG / "u4.bin", "<u4").reshape(2, 20).tolist()


@pytest.mark.parametrize(
    ("dtype", "most", "bits"),
    [("<u4", 50_000, "32"), ("<u4", 4, "32"), ("<u4", 200_000, "32"), ("<i8", 50_000, "64")]
    + [("<u2", most, None) for most in (50_000, 4, 300)],
)
def test_the_bits_of_a_bin_by_its_content(tmp_path, dtype, most, bits):
    ids = np.random.default_rng(0).integers(0, most, 400)
    ids.astype(dtype).tofile(tmp_path / "a.bin")
    corpus = load_tokens(tmp_path / "a.bin", length=100)
    np.testing.assert_array_equal(corpus.ids.reshape(-1), ids)
    assert [c.value for c in corpus.choices if c.setting == "bits of an id"] == [bits] * bool(bits)


@pytest.mark.parametrize(("code", "dtype"), [(4, "<i4"), (5, "<i8"), (8, "<u2")])
def test_the_idx_of_megatron_names_the_type(tmp_path, code, dtype):
    ids = np.arange(1, 401)
    ids.astype(dtype).tofile(tmp_path / "a.bin")
    index = tmp_path / "a.idx"
    index.write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQ", 1, code, 4) + bytes(99))
    corpus = load_tokens(tmp_path / "a.bin", length=100)
    assert (corpus.ids.reshape(-1).tolist(), corpus.choices) == (ids.tolist(), ())
    for damaged in (b"", b"MMIDIDX\0\0" + struct.pack("<QB", 1, 7), b"TNTIDX" + bytes(20)):
        index.write_bytes(damaged)
        refused(tmp_path / "a.bin", "a.idx", load_tokens)


def test_headers_of_other_trainers(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"LITPKDS" + bytes(9) + stream_of("<u2").tobytes())
    refused(path, "LitData", load_tokens)
    header = np.zeros(256, "<u4")
    header[:3] = 20240520, 1, 9  # of llm.c, which states the number of ids
    path.write_bytes(header.tobytes() + np.arange(8, dtype="<u2").tobytes())
    refused(path, "header says 9", read)


def test_a_header_that_is_cut_is_no_ids(tmp_path):
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, 0
    (tmp_path / "a.bin").write_bytes(header.tobytes()[:600])
    refused(tmp_path / "a.bin", "header", load_tokens, length=8)


def test_the_column_of_ids_is_one_for_all_files(tmp_path):
    for name, columns in {"a": ["input_ids", "labels"], "b": ["labels"]}.items():
        pq.write_table(pa.table({x: [[1, 2], [3]] for x in columns}), tmp_path / f"{name}.parquet")
    refused(tmp_path, "b.parquet, .*'input_ids' is null", load_tokens)
    corpus = load_tokens(tmp_path, skip_nulls=True)
    assert (corpus.ids.tolist(), corpus.null_texts) == ([[1, 2], [3, 0]], 2)


@pytest.mark.parametrize("number", [3, -1, 2**32])
def test_ids_beyond_the_vocabulary_are_refused(number):
    refused([np.array([number])], f"id {number}", tokenizer_of_ids(vocab_size=3).encode, length=4)


def test_tokenizers_of_ids_that_are_none():
    wrong = {"words": {"tokenizer": "words"}, "pass `vocab_size`": {}, "is 0": {"vocab_size": 0}}
    for word, options in wrong.items():
        refused(options, word, lambda options: tokenizer_of_ids(**options))


def test_a_separator_that_does_not_occur_is_named(tmp_path):
    np.arange(1, 60, dtype="<u2").tofile(tmp_path / "a.bin")
    log = ReadLog()
    blocks = [*map_id_blocks(str(tmp_path / "a.bin"), Fields(None, None), Stream(0, 8, 99), log)]
    assert [len(row) for ids, _ in blocks for row in ids] == [59]
    assert [choice.setting for choice in log.choices] == ["separator"]
