"""Array records: how large they are unpacked is known before they are."""

import os
import random

import pytest

from jaxpe._core import memory
from jaxpe._core.errors import InputError
from jaxpe._core.files import content_hash
from jaxpe.data import find_shards
from jaxpe.data.formats import array_records as array_records
from jaxpe.data.formats.array_records import Records


def write(path, records, options="group_size:1"):
    from array_record.python import array_record_module

    writer = array_record_module.ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()
    return str(path)


def some(kind):
    rng = random.Random(0)
    sizes = {
        "none": [],
        "empty": [0] * 3000,
        "small": [rng.randrange(40) for _ in range(3000)],
        "blocks": [rng.randrange(5000) for _ in range(200)],
        "large": [200_000] * 5,
    }[kind]
    return [rng.randbytes(size) for size in sizes]


@pytest.mark.parametrize("kind", ["none", "empty", "small", "blocks", "large"])
@pytest.mark.parametrize(
    "options", ["group_size:1", "group_size:70", "group_size:900,transpose:true", "uncompressed"]
)
def test_the_headers_of_the_chunks_are_found(tmp_path, kind, options):
    records = some(kind)
    path = write(tmp_path / "x.array_record", records, options)
    assert list(Records([path])) == records
    chunks = list(array_records._chunks(path))
    # The table of contents has a record for each chunk, and its own few.
    ours = sum(chunk.records for chunk in chunks)
    assert len(records) <= ours <= len(records) + len(chunks) + 20
    assert sum(map(len, records)) <= sum(chunk.unpacked for chunk in chunks)
    assert max(map(len, records), default=0) <= max(chunk.unpacked for chunk in chunks)


def test_a_chunk_larger_than_memory_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    path = write(tmp_path / "x.array_record", [bytes(2**22)])
    assert os.path.getsize(path) < 2**18
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**23)
    with pytest.raises(InputError, match=r"x\.array_record, of which a chunk has 4,194,304 bytes"):
        list(find_shards([path])[0].documents())


def test_a_record_longer_than_a_document_may_be(tmp_path, monkeypatch):
    path = write(tmp_path / "x.array_record", [b"fine", bytes(2000)])
    monkeypatch.setattr(array_records, "LARGEST_TEXT", 1999)
    with pytest.raises(InputError, match="a chunk of 2,000 bytes for 1 records, which may have"):
        Records([path])  # before it is unpacked
    path = write(tmp_path / "y.array_record", [b"fine", bytes(2000)], "group_size:2")
    with pytest.raises(InputError, match="a record of 2,000 bytes, which may have 1,999"):
        list(Records([path]))
    assert Records([path])[0] == b"fine"


def test_large_records_are_not_read_by_the_thousand(tmp_path, monkeypatch):
    path = write(tmp_path / "x.array_record", some("large"))
    monkeypatch.setattr(array_records, "_BYTES_AT_ONCE", 450_000)
    read = []
    records = Records([path])
    get = records.__getitems__
    monkeypatch.setattr(Records, "__getitems__", lambda self, i: read.append(len(i)) or get(i))
    assert list(records) == some("large")
    assert read == [2, 2, 1]


def test_what_is_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.array_record")
    with pytest.raises(InputError, match=r"pipe\.array_record is not a regular file"):
        Records([str(tmp_path / "pipe.array_record")])
    with pytest.raises(InputError, match=r"pipe\.array_record is not a regular file"):
        find_shards([tmp_path / "pipe.array_record"])


@pytest.mark.parametrize("whole", [True, False])
def test_a_file_of_holes_is_not_walked_through(tmp_path, whole):
    path = tmp_path / "x.array_record"
    if whole:
        write(path, [b"fine"])
    else:
        path.touch()
    os.truncate(path, 2**38)  # which takes no room on the disk
    (shard,) = find_shards([path])
    with pytest.raises(InputError, match=r"x\.array_record cannot be read: there is no chunk at"):
        list(shard.documents(content=content_hash()))
