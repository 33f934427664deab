"""Rows without a text: refused with their number, or left out and counted."""

import pyarrow as pa
import pyarrow.parquet
import pytest

from jaxpe.data import load_corpus, load_labelled, load_tokens
from jaxpe.data.corpora.shards import find_shards
from jaxpe.data.formats.columns import ReadLog
from tests.data.reading import refused, write_lines

TEXTS = ["a b", None, "c d", None, " ", "e f"]
KEPT = ["a b", "c d", "e f"]
RECORDS = [{"text": text, "label": n % 2} for n, text in enumerate(TEXTS)]


def write(path):
    """The six rows in a file of some kind."""
    match path.name:
        case "missing.jsonl":
            write_lines(path, *(r if r["text"] else {"label": r["label"]} for r in RECORDS))
        case "null.jsonl":
            write_lines(path, *RECORDS)
        case "x.parquet":
            pyarrow.parquet.write_table(pa.Table.from_pylist(RECORDS), path, row_group_size=2)
        case "x.arrow":
            table = pa.Table.from_pylist(RECORDS)
            with pa.ipc.new_stream(path, table.schema) as writer:
                writer.write_table(table, 2)
    return path


FIRST = {
    "missing.jsonl": "line 2",
    "null.jsonl": "line 2",
    "x.parquet": "row 1",
    "x.arrow": "row 1",
}


@pytest.mark.parametrize("name", FIRST)
def test_null_texts(tmp_path, name):
    path = write(tmp_path / name)
    for read in (load_corpus, load_tokens, load_labelled):
        refused(path, f"{FIRST[name]}: 'text'", read)
    found = load_corpus(path, skip_nulls=True)
    assert (found.documents, found.null_texts) == (KEPT, 2)
    assert load_tokens(path, skip_nulls=True).null_texts == 2
    labelled = load_labelled(path, skip_nulls=True)
    assert (labelled.labels.tolist(), labelled.corpus.null_texts) == ([0, 0, 1], 2)
    (shard,) = find_shards([path])
    refused("text", "null or missing", lambda field: list(shard.documents(text_field=field)))
    log = ReadLog()
    documents = list(shard.documents(text_field="text", skip_nulls=True, log=log))
    assert ([document.text for document in documents], log.null_texts) == (KEPT, 2)


def test_a_column_that_no_row_has(tmp_path):
    path = write(tmp_path / "null.jsonl")
    refused(path, "no column 'body'", text_field="body")
    refused(path, "in all 6 rows", text_field="body", skip_nulls=True)
