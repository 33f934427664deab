"""Array records: order, lengths and damage."""

import os

import pytest

from jaxpe._core.errors import InputError
from jaxpe.data import find_shards
from jaxpe.data.formats import array_records
from tests.data.test_shards import write_records


def texts(path):
    (shard,) = find_shards([path])
    return [document.text for document in shard.documents()]


def test_records_in_order_however_many_are_read_at_once(tmp_path, monkeypatch):
    documents = [f"{number} " * (number % 40 + 1) for number in range(300)]
    path = tmp_path / "x.array_record"
    write_records(path, [text.encode() for text in documents])
    for at_once in (1, 7, 1000):
        monkeypatch.setattr(array_records, "_AT_ONCE", at_once)
        assert texts(path) == documents


def test_a_record_longer_than_a_document_may_be(tmp_path, monkeypatch):
    path = tmp_path / "x.array_record"
    write_records(path, [b"fine", b"x" * 2000])
    monkeypatch.setattr(array_records, "LARGEST_TEXT", 1999)
    with pytest.raises(InputError, match="record 1 has 2,000 bytes, and may have 1,999"):
        texts(path)


def test_what_is_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.array_record")
    with pytest.raises(InputError, match=r"pipe\.array_record is not a regular file"):
        find_shards([tmp_path / "pipe.array_record"])
